"""Words as people type them: sizes, lists, patterns, choices; what is none of them is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

REFUSED: list[tuple[str, list[str], str]] = []
"""A command, further words, and what is said."""

for size, said in {
    "0": "is less than a byte",
    "0.5": "is less than a byte",
    "1e-300": "is less than a byte",
    "-1": "is not a size",
    "1e400": "is not a size",
    "nan": "is not a size",
    "inf": "is not a size",
    "": "is not a size",
    " ": "is not a size",
    "1,000": "is not a size",
    "0x10": "is not a size",
    "٣": "is not a size",
    "1e19": "is too large a size",
    "256mib": "is not a size",
    "1GiB/s": "is not a size",
}.items():
    for verb in ("predict model.json --flow 0:1", "explain model.json --flow 0:1"):
        REFUSED.append((verb, ["--size", size], said))
    if size.strip() and size != "1,000":
        REFUSED.append(("plan topology.json", ["--sizes", f"1MiB,{size}"], said))

for text in ("", " ", ",", "1MiB,", ",1MiB", "1MiB,,2MiB"):
    REFUSED.append(("plan topology.json", ["--sizes", text], "is no list of sizes"))
    calibrate = "calibrate topology.json -o m.json --simulate model.json"
    REFUSED.append((calibrate, ["--sizes", text], "is no list of sizes"))
for text in ("", " ", ",", "0,", "0,,1"):
    for verb in (
        "plan topology.json",
        "calibrate topology.json -o m.json --simulate model.json",
        "measure plan.json -o c.json --spawn 2",
        "fabric --like topology.json",
        "export model.json --as simgrid",
    ):
        REFUSED.append((verb, ["--endpoints", text], "is no list of endpoints"))
for verb in ("plan topology.json", "export model.json --as simgrid", "fabric --like topology.json"):
    REFUSED.append((verb, ["--endpoints", "0,1,gpu0"], "endpoint gpu0 is named twice"))

for option, text, said in (
    ("--fan-in", "0:1,1", "stands twice"),
    ("--fan-in", "0:1,,2", "is no list of peers"),
    ("--fan-in", "0:0", "from gpu0 to itself"),
    ("--fan-in", "0:", "is not of the form"),
    ("--fan-in", ":0", "is not of the form"),
    ("--fan-in", "0", "is not of the form"),
    ("--fan-out", "0:1,0", "from gpu0 to itself"),
    ("--fan-out", "0:9", "unknown endpoint '9'"),
    ("--both-ways", "0:0", "from gpu0 to itself"),
    ("--both-ways", "0:1,2", "several endpoints on one side"),
    ("--flow", "0:1,2", "several endpoints on one side"),
    ("--flow", "0:0", "from gpu0 to itself"),
    ("--flow", "0->1", "is not of the form"),
    ("--flow", "-1:0", "unknown endpoint '-1'"),
    ("--flow", "gpu０:1", "unknown endpoint"),
    ("--flow", "x" * 9999 + ":1", "unknown endpoint 'xxx"),
    ("--pattern", "", "is not a pattern"),
    ("--pattern", "0", "is not a pattern"),
    ("--pattern", "0<-", "is not a pattern"),
    ("--pattern", "0<-1,,2", "is not a pattern"),
    ("--pattern", "0<-1 2", "is not a pattern"),
    ("--pattern", "0->1->2", "is not a pattern"),
    ("--pattern", "0=>1", "is not a pattern"),
    ("--pattern", "0->1 +", "is not a pattern"),
    ("--pattern", "0->1;1->2", "is not a pattern"),
    ("--pattern", "0->0", "from gpu0 to itself"),
    ("--pattern", "0->1 + 0->1", "stands twice"),
    ("--pattern", "0↔0", "from gpu0 to itself"),
    ("--pattern", "0\x1b[31m->1", "unknown endpoint"),
):
    for verb in ("predict model.json", "explain model.json"):
        REFUSED.append((verb, [option, text], said))
REFUSED += [
    ("predict model.json", ["--fan-in", "0:1", "--fan-in", "0:1"], "asked for twice"),
    ("predict model.json", ["--flow", "0:1", "--pattern", "0→1"], "asked for twice"),
    ("predict model.json", ["--fan-in", "0:1,2", "--pattern", "0<-2,1"], "asked for twice"),
]

REFUSED += [
    ("export model.json", ["--as", "grpahml"], "no format 'grpahml'; did you mean graphml?"),
    ("export model.json", ["--as", "png"], "no format 'png'; choose one of simgrid, nccl"),
    ("read topology.json", ["--as", "hwlok"], "no kind of file 'hwlok'; did you mean hwloc?"),
    ("schema", ["modle"], "no schema 'modle'; did you mean model?"),
    ("completion", ["csh"], "no completion for the shell 'csh'; choose one of bash, zsh, fish"),
    ("measure plan.json -o c.json --spawn 3", ["--issue", "groop"], "did you mean group?"),
    ("fabric", ["--seed", "-1"], "--seed -1; give a whole number, zero or more"),
    ("fabric", ["--scale", "1e300"], "no fabric has this scale"),
    ("fabric", ["--scale", "nan"], "no fabric has this scale"),
    (calibrate, ["--seed", "-1"], "--seed -1; give a whole number"),
    ("plan topology.json", ["--repeats", "9" * 30], "a million at most"),
    ("simulate model.json flows.csv", ["--default", "0"], "give a rate above zero"),
]
for words, said in (
    (["--set", "x=2x", "--set", "X=3x"], "--set X twice; say one of them"),
    (["--remove", "x", "--remove", "x "], "--remove x twice"),
    (["--remove", "x", "--set", "x=2x"], "--remove and --set x; say one of them"),
):
    REFUSED.append(("simulate model.json flows.csv", words, said))

for line, held in {
    "fit pairs.csv -o": "JSON",
    "plan topology.json -o": "JSON",
    "caps model.json -o": "JSON",
    "read topology.json -o": "JSON",
    "export model.json --as dot -o": "DOT",
    "export model.json --as nccl -o": "XML",
    "report model.json -o": "HTML",
    "explain pairs.csv --html": "HTML",
    "show topology.json --svg": "SVG",
    "simulate model.json flows.csv --svg": "SVG",
    "simulate model.json flows.csv --html": "HTML",
    "gather --sysfs sys -o": "an archive",
}.items():
    REFUSED.append((line, ["answer.pdf"], f"would hold {held}, and its name says PDF; call it "))


@pytest.mark.parametrize(("line", "words", "said"), REFUSED)
def test_what_is_refused(line: str, words: list[str], said: str, run: Run) -> None:
    before = sorted(path.name for path in Path().iterdir())
    status, out, err = run(*line.split(), *words)
    assert (status, out) == (2, "")
    assert err.startswith("topocal")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 700
    assert said in err
    assert sorted(path.name for path in Path().iterdir()) == before


SAME = [
    ("--pattern", "0<-1,2", ["0←1,2", " 0 <- 1 , 2 ", "GPU0<-gpu1,Gpu2", "00<-01,2"]),
    ("--pattern", "0->1 + 1->2", ["0→1 + 1→2", "0->1+1->2"]),
    ("--pattern", "0<->1", ["0↔1", "0 <-> 1", "1<->0"]),
    ("--fan-in", "0:1,2", ["0:1 2", "0: 1, 2", "gpu0:gpu1,2"]),
    ("--flow", "0:1", ["0 : 1", "gpu0:1", "GPU0:gpu1"]),
]  # fmt: skip


@pytest.mark.parametrize(("option", "text", "others"), SAME)
def test_what_is_the_same(option: str, text: str, others: list[str], run: Run) -> None:
    def seconds(words: str) -> float:
        status, out, err = run("predict", "model.json", option, words, "--json")
        assert (status, err) == (0, "")
        (found,) = json.loads(out)["predictions"]
        return float(found["seconds"])

    assert {seconds(words) for words in others} == {seconds(text)}


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("export model.json --as dot", "export model.json --as DOT"),
        ("schema model", "schema Model"),
        ("completion bash", "completion Bash"),
        ("plan topology.json --endpoints 0,1", "plan topology.json --endpoints gpu0,GPU1"),
        ("plan topology.json --sizes 1MiB,2MiB", "plan topology.json --sizes 2MiB,1024KiB"),
    ],
)
def test_words_in_any_case(line: str, other: str, run: Run) -> None:
    one = run(*line.split())
    assert one[0] == 0
    assert run(*other.split()) == one


def test_lists_may_have_blanks(run: Run) -> None:
    one = run("plan", "topology.json", "--endpoints", "0,1")
    assert run("plan", "topology.json", "--endpoints", "0, 1") == one
    assert run("plan", "topology.json", "--endpoints", "0 1") == one


def test_links_may_have_arrows_of_any_kind(run: Run) -> None:
    for one, other in (
        ("gpu0->gpu1=9GB/s", "gpu0→gpu1=9GB/s"),
        ("gpu0<->gpu1=9GB/s", "gpu0↔gpu1=9GB/s"),
    ):
        plain = run("simulate", "model.json", "flows.csv", "--add-link", one)
        assert plain[0] == 0
        assert run("simulate", "model.json", "flows.csv", "--add-link", other) == plain

"""Slips on the command line: what is read is not written over, options that say two things."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


def refused(ran: tuple[int, str, str], words: str) -> None:
    status, out, err = ran
    assert (status, out) == (2, "")
    assert err.startswith("topocal")
    assert err.count("\n") == 1
    assert words in err


OVER = [
    ("assign", "model.json", "wanted.csv", "-o", "wanted.csv"),
    ("assign", "caps.json", "wanted.csv", "-o", "caps.json"),
    ("simulate", "model.json", "flows.csv", "-o", "flows.csv"),
    ("simulate", "model.json", "flows.csv", "-o", "model.json"),
    ("simulate", "model.json", "flows.csv", "--svg", "flows.csv"),
    ("simulate", "model.json", "flows.csv", "--html", "./model.json"),
    ("show", "topology.json", "--svg", "topology.json"),
    ("plan", "topology.json", "-o", "topology.json"),
    ("fit", "pairs.csv", "-o", "pairs.csv"),
    ("fit", "pairs.csv", "-t", "topology.json", "-o", "topology.json"),
    ("report", "model.json", "-o", "model.json"),
    ("report", "model.json", "pairs.csv", "-o", "pairs.csv"),
    ("caps", "model.json", "-o", "model.json"),
    ("price", "caps.json", "flows.csv", "-o", "flows.csv"),
    ("export", "model.json", "--as", "dot", "-o", "model.json"),
    ("measure", "plan.json", "-o", "plan.json", "--spawn", "2"),
    ("measure", "plan.json", "-t", "topology.json", "-o", "topology.json", "--spawn", "2"),
    ("calibrate", "topology.json", "-o", "topology.json", "--spawn", "2"),
    (
        "calibrate",
        "topology.json",
        "-o",
        "m",
        "--simulate",
        "model.json",
        "--samples",
        "model.json",
    ),
    ("fabric", "--like", "topology.json", "-o", "topology.json"),
]


@pytest.mark.parametrize("arguments", OVER, ids=" ".join)
def test_what_is_read_is_not_written_over(
    arguments: tuple[str, ...], run: Run, made: dict[str, bytes]
) -> None:
    refused(run(*arguments), "is what is read; write elsewhere")
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == made


def test_a_link_to_what_is_read_is_not_written_over(run: Run, made: dict[str, bytes]) -> None:
    Path("parts.csv").symlink_to("wanted.csv")
    refused(run("assign", "model.json", "wanted.csv", "-o", "parts.csv"), "is what is read")
    assert Path("wanted.csv").read_bytes() == made["wanted.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "plan.json", "-o", "folder", "--spawn", "2"),
        ("calibrate", "topology.json", "-o", "folder", "--spawn", "2"),
        ("calibrate", "topology.json", "-o", "m.json", "--samples", "folder", "--spawn", "2"),
        ("fit", "pairs.csv", "-o", "folder"),
        ("plan", "topology.json", "-o", "folder"),
    ],
    ids=" ".join,
)
def test_a_folder_as_output_is_told_before_anything_is_done(
    arguments: tuple[str, ...], run: Run, made: dict[str, bytes]
) -> None:
    Path("folder").mkdir()
    refused(run(*arguments), "folder: cannot be written: is a directory; name a file in it")
    Path("folder").rmdir()
    assert {path.name for path in Path().iterdir()} == set(made)


def test_two_outputs_are_two_files(run: Run) -> None:
    given = ("simulate", "model.json", "flows.csv", "--svg", "x.html", "--html", "x.html")
    refused(run(*given), "x.html: is written twice")
    assert not Path("x.html").exists()


def test_a_file_may_be_called_as_a_machine(run: Run) -> None:
    """A reference machine is no file: nothing is written over."""
    status, _, _ = run("show", "b70", "--svg", "b70")
    assert status == 0
    assert Path("b70").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("caps", "model.json", "--backend", " "), "a backend without a name"),
        (("caps", "model.json", "--group-size", 10**30), "give the number of processes"),
        (("caps", "model.json", "--setting", "A=1", "--setting", "A=2"), "'A' is set twice"),
        (("caps", "caps.json", "--digest", ""), "'' is no digest; give sha256:"),
        (("price", "caps.json", "flows.csv", "--digest", "zz"), "'zz' is no digest"),
        (("caps", "caps.json", "--digest", "0" * 8), "holds other caps"),
        (
            ("assign", "caps.json", "wanted.csv", "--whole", "--min-split", "2MiB"),
            "--whole cuts nothing; leave out --whole or --min-split",
        ),
        (("simulate", "model.json", "flows.csv", "--set", "x=1e300"), "give 1000 PB/s at most"),
        (("simulate", "model.json", "flows.csv", "--alpha", "1e300"), "give 1e9 s at most"),
        (
            ("explain", "model.json", "--flow", "0:1", "--faster", "1e308"),
            "give a number above 1, a million at most",
        ),
    ],
)
def test_options_that_mean_nothing(arguments: tuple[object, ...], words: str, run: Run) -> None:
    refused(run(*arguments), words)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("caps.json", "caps.json: is a topocal/caps file and no topology; give topology.json"),
        ("pairs.csv", "pairs.csv: is of no known kind (begins with 'source,"),
    ],
)
@pytest.mark.parametrize("verb", ["simulate", "show", "export"])
def test_a_file_of_another_kind(verb: str, file: str, words: str, run: Run) -> None:
    more = {"simulate": ("flows.csv",), "export": ("--as", "dot"), "show": ()}[verb]
    ran = run(verb, file, *more)
    refused(ran, words)
    # These verbs have no option that names a kind of file.
    assert "name its kind with --as" not in ran[2]


@pytest.mark.parametrize("text", ["{}", "[]", '{"requests": []}', '[{"parameter": "q"}]'])
def test_requests_that_do_not_say_what_they_are(text: str, run: Run) -> None:
    Path("asked.json").write_text(text)
    ran = run("assign", "caps.json", "asked.json")
    refused(ran, 'asked.json: does not say that it holds requests; write {"format"')


@pytest.mark.parametrize("half", [{"source": 2}, {"target": 1, "bytes": 5}, {}, None, 7])
def test_half_a_transfer_is_not_passed_over(half: object, run: Run) -> None:
    whole = {"source": 0, "target": 1, "bytes": 5}
    Path("flows.json").write_text(json.dumps([whole, half]))
    refused(run("price", "caps.json", "flows.json"), "item 1 of 2 names no source and target")
    Path("flows.json").write_text(json.dumps([whole, whole]))
    assert run("price", "caps.json", "flows.json")[0] == 0


@pytest.mark.parametrize(("verb", "file"), [("price", "flows.csv"), ("assign", "wanted.csv")])
def test_no_time_is_made_up_where_nothing_is_known(verb: str, file: str, run: Run) -> None:
    status, out, _ = run(verb, "b70", file)
    assert status == 0
    assert "nothing says how long it takes" in out
    assert "0 ns, 0 B/s" not in out
    assert "no answer finishes sooner" not in out

"""``-`` is standard input wherever a file is read, and nothing is named twice."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from topocal import cli
from topocal.topo.files import read_limited

COMMANDS: dict[str, Any] = dict(getattr(get_command(cli.command_line()), "commands"))  # noqa: B009  # typer's type lacks it

Run = Callable[..., tuple[int, str, str]]

# Of each command that reads, one line for each argument: the file in braces comes as `-`.
READS: dict[str, list[str]] = {
    "assign": ["{caps.json} wanted.csv --json", "caps.json {wanted.csv} --json"],
    "calibrate": ["{topology.json} -o m.json --simulate model.json --rounds 1 --json"],
    "caps": ["{model.json} --json", "{caps.json}", "{topology.json} --json"],
    "diff": ["{model.json} other.json", "model.json {other.json} --json"],
    "explain": [
        "{pairs.csv} fans.csv", "{model.json} --flow 0:1 --json", "pairs.csv -t {topology.json}",
    ],
    "export": ["{model.json} --as dot", "{topology.json} --as simgrid"],
    "fit": ["{pairs.csv} fans.csv", "pairs.csv fans.csv -t {topology.json} --json"],
    "measure": ["{plan.json} -o c.json --spawn 7"],
    "plan": ["{topology.json} --json"],
    "predict": ["{model.json} --fan-in 0:1,2 --json"],
    "price": ["{caps.json} flows.csv --json", "caps.json {flows.csv} --json"],
    "read": ["{topology.json}"],
    "report": ["{model.json} --json", "model.json {pairs.csv} --json"],
    "show": ["{topology.json}"],
    "simulate": ["{model.json} flows.csv --json", "model.json {flows.csv} --json"],
}  # fmt: skip

NOT_READING = {"completion", "demo", "discover", "fabric", "gather", "schema"}
"""Commands whose arguments are no files; of fabric, --like is read as others read topologies."""


def test_every_argument_that_is_read_is_here() -> None:
    assert set(READS) | NOT_READING == set(COMMANDS)
    for name, lines in READS.items():
        one = COMMANDS[name]
        arguments = [
            p for p in one.get_params(typer.Context(one)) if p.param_type_name == "argument"
        ]
        places = {
            line.split().index(word) for line in lines for word in line.split() if "{" in word
        }
        assert set(range(len(arguments))) <= places


@pytest.mark.parametrize("line", [f"{n} {line}" for n, lines in READS.items() for line in lines])
def test_standard_input_is_read_as_the_file_is(
    line: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("other.json").write_bytes(Path("model.json").read_bytes())
    named = run(*line.replace("{", "").replace("}", "").split())
    piped_file = line.partition("{")[2].partition("}")[0]
    content = Path(piped_file).read_bytes()
    for written in ("m.json", "m.calibration.json"):
        Path(written).unlink(missing_ok=True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    piped = run(*line.replace("{" + piped_file + "}", "-").split())
    status, *texts = named
    assert status == (2 if "--spawn 7" in line else 0)
    assert piped[0] == status
    # The same is said, but for the name of the file where one is.
    assert [*piped[1:]] in ([t.replace(piped_file, "standard input") for t in texts], texts)


@pytest.mark.parametrize("line", [f"{n} {line}" for n, lines in READS.items() for line in lines])
def test_damage_in_standard_input_says_where_it_is(
    line: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("other.json").write_bytes(Path("model.json").read_bytes())
    piped_file = line.partition("{")[2].partition("}")[0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\0")))
    status, out, err = run(*line.replace("{" + piped_file + "}", "-").split())
    assert (status, out) == (2, "")
    assert err.startswith("topocal: standard input:")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", sorted(READS))
def test_closed_standard_input(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    line = READS[name][0]
    piped_file = line.partition("{")[2].partition("}")[0]
    monkeypatch.setattr(sys, "stdin", None)
    status, out, err = run(name, *line.replace("{" + piped_file + "}", "-").split())
    assert (status, out) == (2, "")
    assert err == "topocal: standard input: cannot be read; give a file, or pipe a tool into it\n"


def test_fabric_reads_its_machine_from_standard_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, made: dict[str, bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nothing")))
    status, _, err = run("fabric", "--like", "-")
    assert status == 2
    assert err.startswith("topocal: standard input: is of no known kind")


TWICE = [
    "assign caps.json caps.json",
    "diff model.json model.json",
    "diff model.json link.json",
    "explain pairs.csv ./pairs.csv",
    "explain topology.json pairs.csv -t topology.json",
    "fit pairs.csv fans.csv pairs.csv",
    "fit pairs.csv -t pairs.csv",
    "fit - -",
    "measure plan.json -t plan.json -o c.json --spawn 3",
    "price caps.json caps.json",
    "price - -",
    "read topology.json link.json ./topology.json",
    "report model.json pairs.csv model.json",
    "simulate model.json model.json",
    "simulate - -",
]


@pytest.mark.parametrize("line", TWICE)
def test_what_is_named_twice_is_refused(line: str, run: Run) -> None:
    Path("link.json").symlink_to("model.json")
    before = sorted(path.name for path in Path().iterdir())
    status, out, err = run(*line.split())
    assert (status, out) == (2, "")
    assert err.endswith("is named twice; name each file once\n")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_machine_may_stand_for_itself(run: Run) -> None:
    """Its own nominal capacities answer: no slip."""
    status, _, _ = run(
        "calibrate", "dgx-h100", "-o", "m.json", "--simulate", "dgx-h100", "--rounds", "1"
    )
    assert status == 0


@pytest.mark.parametrize(
    "line", ["explain {pairs.csv} fans.csv", "simulate {model.json} {flows.csv}", "fit {pairs.csv}"]
)
def test_a_shells_pipes_are_read_as_files_are(line: str, run: Run) -> None:
    """``<(command)`` is a pipe: it gives what it holds once, to whoever asks first."""
    named = run(*line.replace("{", "").replace("}", "").split())
    words, ends = [], []
    for word in line.split():
        if "{" in word:
            reading, writing = os.pipe()
            os.write(writing, Path(word.strip("{}")).read_bytes()[:65_536])
            os.close(writing)
            ends.append(reading)
            word = f"/dev/fd/{reading}"
        words.append(word)
    try:
        piped = run(*words)
    finally:
        for end in ends:
            os.close(end)
    assert named[0] == piped[0] == 0
    assert named[1].splitlines()[-1] == piped[1].splitlines()[-1]


def test_packed_files_are_unpacked(run: Run) -> None:
    for name in ("pairs.csv", "topology.json"):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
    for verb in ("fit", "explain"):
        named = run(verb, "pairs.csv", "-t", "topology.json")
        packed = run(verb, "pairs.csv.gz", "-t", "topology.json.gz")
        assert named[0] == 0
        assert packed == named
    both = run("explain", "pairs.csv.gz", "topology.json.gz")
    assert both[0] == 0


def test_a_limit_is_for_pipes_too() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"0123456789")
    os.close(writing)
    try:
        assert read_limited(f"/dev/fd/{reading}", 4) == b"0123"
        assert read_limited(f"/dev/fd/{reading}", 20) == b"0123456789"
        assert read_limited(f"/dev/fd/{reading}") == b"0123456789"
    finally:
        os.close(reading)


def test_what_is_far_too_large_is_not_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files with a hole: 2 GB that nobody has to write."""
    monkeypatch.setattr("topocal.topo.files._MOST_BYTES", 2**20)
    for name in ("big.csv", "big.json"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(2**31)
    for line in (
        "fit big.csv", "explain big.csv", "predict big.json --flow 0:1", "caps big.json",
        "simulate big.json flows.csv", "simulate model.json big.csv", "price caps.json big.csv",
        "assign caps.json big.csv", "measure big.json -o c.json --spawn 3",
        "report big.json --json", "diff model.json big.json", "export big.json --as dot",
        "show big.json", "read big.json",
    ):  # fmt: skip
        status, out, err = run(*line.split())
        assert (status, out) == (2, ""), line
        assert "larger than" in err, (line, err)

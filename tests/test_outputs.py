"""Where a command is to write is looked at before anything is read, computed or measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from topocal import cli

COMMANDS: dict[str, Any] = dict(getattr(get_command(cli.command_line()), "commands"))  # noqa: B009  # typer's type lacks it

Run = Callable[..., tuple[int, str, str]]

# Every option that names a file to write, in a command line whose inputs are not there:
# complaining of the output shows that it was looked at first.
WRITERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("assign", "--output"): ("assign", "none.json", "none.csv", "-o"),
    ("calibrate", "--output"): ("calibrate", "none.json", "--simulate", "none.json", "-o"),
    ("calibrate", "--samples"): ("calibrate", "none.json", "--spawn", "2", "-o", "m", "--samples"),
    ("caps", "--output"): ("caps", "none.json", "-o"),
    ("discover", "--output"): ("discover", "--sysfs", "none", "-o"),
    ("explain", "--html"): ("explain", "none.csv", "--html"),
    ("export", "--output"): ("export", "none.json", "--as", "dot", "-o"),
    ("fabric", "--output"): ("fabric", "--like", "none.json", "-o"),
    ("fit", "--output"): ("fit", "none.csv", "-o"),
    ("gather", "--output"): ("gather", "--sysfs", "none", "-o"),
    ("measure", "--output"): ("measure", "none.json", "--spawn", "2", "-o"),
    ("plan", "--output"): ("plan", "none.json", "-o"),
    ("price", "--output"): ("price", "none.json", "none.csv", "-o"),
    ("read", "--output"): ("read", "none.txt", "-o"),
    ("report", "--output"): ("report", "none.json", "-o"),
    ("schema", "--output"): ("schema", "none", "-o"),
    ("show", "--svg"): ("show", "none.json", "--svg"),
    ("simulate", "--output"): ("simulate", "none.json", "none.csv", "-o"),
    ("simulate", "--svg"): ("simulate", "none.json", "none.csv", "--svg"),
    ("simulate", "--html"): ("simulate", "none.json", "none.csv", "--html"),
}

PLACES = [
    ("folder.json", "is a directory; name a file in it"),
    ("none/out.json", "no such file or directory; choose another place"),
    ("file/out.json", "not a directory; choose another place"),
    ("pipe.json", "is a named pipe; choose another place"),
    ("loop.json", "too many levels of symbolic links; choose another place"),
    ("x" * 300 + ".json", "file name too long; choose another place"),
    ("", "is a directory; name a file in it"),
    (".", "is a directory; name a file in it"),
]


def test_every_option_that_names_a_file_to_write_is_here() -> None:
    found = {
        (name, option)
        for name, one in COMMANDS.items()
        for parameter in one.get_params(typer.Context(one))
        if parameter.param_type_name == "option" and parameter.metavar == "FILE"
        for option in parameter.opts
        if option.startswith("--")
    }
    assert set(WRITERS) == found


@pytest.mark.parametrize(("place", "words"), PLACES, ids=[words for _, words in PLACES])
@pytest.mark.parametrize("writer", sorted(WRITERS), ids=" ".join)
def test_a_place_that_cannot_be_written_is_told_first(
    writer: tuple[str, str], place: str, words: str, command: Run
) -> None:
    Path("folder.json").mkdir()
    Path("file").write_text("precious")
    Path("loop.json").symlink_to("loop.json")
    os.mkfifo("pipe.json")
    before = sorted(path.name for path in Path().iterdir())
    if place in ("", ".") and writer in {("assign", "--output"), ("simulate", "--output")}:
        words = "is neither .csv nor .json; name it after its format"
    status, out, err = command(*WRITERS[writer], place)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.rstrip("\n").endswith(words)
    assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("file").read_text() == "precious"


def test_a_name_that_leaves_no_room_for_the_journal(run: Run) -> None:
    """The journal is OUTPUT.journal: a name of 250 characters can be written and it cannot."""
    status, out, err = run("measure", "plan.json", "-o", "x" * 250, "--spawn", "2")
    assert (status, out) == (2, "")
    assert "x.journal: cannot be written: file name too long" in err


@pytest.mark.parametrize("rank", ["0", "1"])
def test_of_a_group_the_first_process_writes(
    rank: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may be on hosts where the folder does not exist."""
    from topocal.processes import is_writer

    for name, value in {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert is_writer() == (rank == "0")
    _, _, err = run("measure", "none.json", "-o", "none/c.json")
    assert err.startswith("topocal: none/c.json" if rank == "0" else "topocal: none.json")


def test_looking_changes_nothing(run: Run, tmp_path: Path) -> None:
    from topocal.outputs import check_outputs

    Path("old").write_text("precious")
    Path("link").symlink_to("old")
    before = sorted(path.name for path in Path().iterdir())
    check_outputs([Path("old"), Path("new"), tmp_path / "newer"])
    check_outputs(Path("link"))
    assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("old").read_text() == "precious"
    assert Path("link").is_symlink()

"""Whole commands on files that were changed: past the reader, to everything that uses what it read.

An input is one file or several, with a NUL byte between two.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import seeds

from topocal.measure.importers.registry import IMPORTERS
from topocal.topo.errors import InputError
from topocal.topo.readers.registry import READERS

__all__ = ["COMMANDS", "command_seeds", "run_command"]

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "explain": ("explain", "FILES", "--time-limit", "0s", "--html", "page.html"),
    "explain-json": ("explain", "FILES", "--time-limit", "0s", "--json"),
    "fit": ("fit", "FILES", "-o", "model.json"),
    "show": ("show", "FILE", "--svg", "machine.svg"),
    "read": ("read", "FILES", "-o", "topology.json"),
    "export-nccl": ("export", "FILE", "--as", "nccl", "-o", "topology.xml"),
    "export-simgrid": ("export", "FILE", "--as", "simgrid", "-o", "platform.xml"),
    "export-graphml": ("export", "FILE", "--as", "graphml", "-o", "machine.graphml"),
    "export-dot": ("export", "FILE", "--as", "dot"),
    "predict": ("predict", "FILE", "--fan-in", "0:1,2", "--json"),
    "report": ("report", "FILE", "-o", "page.html"),
    "plan": ("plan", "FILE", "-o", "plan.json"),
    "diff": ("diff", "TWO"),
}
"""What follows ``topocal``; ``FILES`` stands for all files of an input, ``FILE`` for the first and
``TWO`` for the first two."""

_MOST_FILES: Final = 4
_OF_MEASUREMENT: Final = ("explain", "fit")
_OF_MODEL: Final = ("predict", "report", "diff")


def command_seeds(name: str) -> tuple[bytes, ...]:
    """Inputs that a command is given."""
    documents = seeds.documents()
    texts = {kind: some[0].encode() for kind, some in seeds.texts().items()}
    if name == "diff":
        return (documents["model"] + b"\0" + documents["model"],)
    if name in _OF_MODEL:
        return (documents["model"],)
    if not name.startswith(_OF_MEASUREMENT):
        one = [texts[reader.name] for reader in READERS if reader.name in texts]
        more = [one[0] + b"\0" + one[1]] if name == "read" else []
        return (documents["topology"], *one, *more)
    measured = [texts[importer.name] for importer in IMPORTERS]
    pair = [texts["nvidia-topo"] + b"\0" + texts["p2p"], documents["calibration"]]
    return (*pair, *measured)


def run_command(name: str) -> Callable[[bytes], None]:
    """Runs a command on the files of an input, in a folder of its own."""
    words = COMMANDS[name]

    def run(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for k, part in enumerate(content.split(b"\0", _MOST_FILES - 1)):
                path = Path(folder) / f"input-{k}"
                path.write_bytes(part)
                files.append(str(path))
            with contextlib.chdir(folder):
                _call([word for w in words for word in _replaced(w, files)])
            left = [p.name for p in Path(folder).iterdir() if p.name.endswith(".part")]
            assert not left, f"left behind: {left}"

    return run


def _replaced(word: str, files: list[str]) -> list[str]:
    return {"FILES": files, "FILE": files[:1], "TWO": (files * 2)[:2]}.get(word, [word])


def _call(arguments: list[str]) -> None:
    """As the command line is called; what it says of an error is one line."""
    from topocal.cli import main

    out, err = io.StringIO(), io.StringIO()
    status: object = None
    with (
        _argv(["topocal", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    said = err.getvalue()
    assert status in (0, 1, 2), f"exit status {status}: {said[:400]!r}"
    if status == 2:
        assert said.startswith("topocal"), said[:400]
        assert said.count("\n") == 1, f"an error of several lines: {said[:400]!r}"
        assert "; see topocal" not in said, f"the command line itself is wrong: {said[:400]!r}"
        raise InputError(said.strip("\n"))
    text = out.getvalue()
    assert "nan" not in text.lower().split(), f"not a number: {text[:400]!r}"


@contextlib.contextmanager
def _argv(words: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = before

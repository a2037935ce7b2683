"""Every page in docs/ does what it says: its commands run, and print what it shows.

In a page, blocks with these words after the fence are looked at, in order:

``sh``
    Commands, run by bash in one directory for the page; each must succeed. Those of ``sh torch``
    need torch, and are left out where it is not installed.
``python``
    Run in that directory too; all blocks of a page share their names.
``text NAME`` (or ``csv NAME``, ``xml NAME``, ``json NAME``)
    A file of that name, written before what follows.
``output``
    What the block before has printed: in one piece, or lines of it, each as it stands but for
    blanks.
``console``
    Command lines that need a machine: those of topocal must be understood, and are not run.

Other blocks are prose.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from typer.main import get_command

from topocal import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
HAS_TORCH = importlib.util.find_spec("torch") is not None
_FILES = ("text", "csv", "xml", "json")
_BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


class Block(NamedTuple):
    kind: str
    name: str
    text: str
    line: int


def _blocks(page: Path) -> Iterator[Block]:
    content = page.read_text()
    for found in _BLOCK.finditer(content):
        line = content.count("\n", 0, found.start()) + 1
        yield Block(found[1], found[2] or "", found[3], line)


def _plain(text: str) -> str:
    return " ".join(text.split())


class Page:
    """A page being played through."""

    def __init__(self, page: Path, place: Path) -> None:
        self._page = page
        self._place = place
        self._names: dict[str, object] = {}
        self._printed: str | None = ""
        programs = place / ".programs"
        programs.mkdir()
        for name, module in (("topocal", "topocal"), ("torchrun", "torch.distributed.run")):
            command = programs / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            command.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        (place / "examples").symlink_to(ROOT / "examples")

    def play(self, block: Block) -> None:
        where = f"{self._page.name}:{block.line}"
        if block.kind == "sh" and block.name == "torch" and not HAS_TORCH:
            self._printed = None
        elif block.kind == "sh":
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=self._place,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0, f"{where}: {ran.stderr}"
            self._printed = ran.stdout
        elif block.kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, where, "exec"), self._names)
            self._printed = printed.getvalue()
        elif block.kind == "output" and self._printed is not None:
            if _plain(block.text) in _plain(self._printed):
                return
            lines = {_plain(line) for line in self._printed.splitlines()}
            for line in filter(None, map(_plain, block.text.splitlines())):
                assert line in lines, f"{where}: not printed: {line}\n{self._printed}"
        elif block.kind in _FILES and block.name:
            (self._place / block.name).write_text(block.text)


@pytest.mark.heavy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    player = Page(page, tmp_path)
    for block in _blocks(page):
        player.play(block)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _command_lines(text: str) -> Iterator[str]:
    """Commands of ``console`` and ``bash`` blocks, from ``topocal`` on."""
    for line in text.replace("\\\n", " ").splitlines():
        found = re.match(r"(?:\$ )?(?:(?:torchrun|srun|[A-Z_]+=)\S*.*?)?\b(topocal [a-z].*)", line)
        if found is not None:
            yield found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_need_a_machine_are_understood(page: Path) -> None:
    commands = getattr(get_command(cli.command_line()), "commands")  # noqa: B009  # typer's type lacks it
    for block in _blocks(page):
        if block.kind not in ("console", "bash") or "[OPTIONS]" in block.text:
            continue
        for line in _command_lines(block.text):
            # Behind these is another program's command, or a file's name.
            name, *words = shlex.split(re.split(r" (?:--|>|\|)(?: |$)", line)[0])[1:]
            command = commands[name]
            command.make_context(name, list(words), resilient_parsing=True)
            known = {"-"}
            for parameter in command.get_params(typer.Context(command)):
                known |= {*parameter.opts, *parameter.secondary_opts}
            for word in words:
                assert not word.startswith("-") or word in known, f"{page.name}: {line}"


def test_command_lines_are_found() -> None:
    text = "$ torchrun --nnodes 2 \\\n    -m topocal plan b70\nsrun topocal fit a.csv\n$ pip x\n"
    assert [*_command_lines(text)] == ["topocal plan b70", "topocal fit a.csv"]


def test_there_are_pages_and_blocks_to_play() -> None:
    kinds = [block.kind for page in PAGES for block in _blocks(page)]
    assert {"sh", "python", "output"} <= set(kinds)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\nfalse\n```\n", "page.md:3"),
        ("```sh\ntopocal read none.txt\n```\n", "none.txt: no such file"),
        ("```sh\necho a  b\n```\n```output\na b\nb\n```\n", "not printed: b"),
        ("```python\nprint(1)\n```\n```output\n2\n```\n", "not printed: 2"),
        ("```text a.txt\nx\n```\n```sh\ngrep -q y a.txt\n```\n", "page.md:6"),
    ],
)
def test_a_page_that_lies_is_found(block: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n" + block)
    place = tmp_path / "place"
    place.mkdir()
    *before, last = _blocks(page)
    player = Page(page, place)
    for found in before:
        player.play(found)
    with pytest.raises(AssertionError, match=message):
        player.play(last)

"""The README's commands do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(README) if kind == language]


def _plain(text: str) -> str:
    return " ".join(text.split())


def test_the_two_commands_are_there_and_ci_runs_the_second() -> None:
    assert "make demo" in README
    assert "make test" in README
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "make test"


def test_every_topocal_command_of_the_readme_runs_and_prints_what_it_shows(
    tmp_path: Path,
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed, count = "", 0
    for kind, text in _BLOCK.findall(README):
        if kind == "output":
            assert _plain(text) in _plain(printed)
        if kind != "sh":
            continue
        printed = ""
        for command in text.splitlines():
            if not command.startswith("topocal "):
                continue
            ran = subprocess.run(
                [sys.executable, "-m", "topocal", *shlex.split(command)[1:]],
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0, f"{command}: {ran.stderr}"
            printed += ran.stdout
            count += 1
    assert count >= 5


def test_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file()


@pytest.mark.parametrize("block", range(len(_blocks("python"))))
def test_every_python_snippet_of_the_readme_runs(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(_blocks("python")[block], f"README block {block}", "exec"), {})

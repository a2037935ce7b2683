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


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def _commands() -> list[str]:
    lines = [line for block in _blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("topocal ")]


def test_the_two_commands_are_there_and_ci_runs_the_second() -> None:
    assert "make demo" in README
    assert "make test" in README
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "make test"


def test_every_topocal_command_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for text in _blocks("csv") + _blocks("text"):
        name = re.match(r"# (\S+\.(?:csv|txt))", text)
        assert name is not None, "each file of the README begins with its name"
        (tmp_path / name[1]).write_text(text)
    commands = _commands()
    assert len(commands) >= 5
    for command in commands:
        ran = subprocess.run(
            [sys.executable, "-m", "topocal", *shlex.split(command)[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, f"{command}: {ran.stderr}"


@pytest.mark.parametrize("block", range(len(_blocks("python"))))
def test_every_python_snippet_of_the_readme_runs(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(_blocks("python")[block], f"README block {block}", "exec"), {})

"""The wheel works where nothing else is installed and where symlinks are not kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("topo", "measure", "solve", "examples", "README.md", "LICENSE", "pyproject.toml")


def _checkout_without_symlinks(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [n for n in names if n == "__pycache__" or (Path(folder) / n).is_symlink()]

    shutil.copytree(ROOT / "topocal", target / "topocal", ignore=ignored)


def _install(python: Path, wheel: Path, cwd: Path) -> None:
    """With what it needs; skips the test where that cannot be fetched."""
    constraints = ROOT / "constraints.txt"
    try:
        _run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=cwd)
    except AssertionError as error:
        if re.search("connection|timed out|Temporary failure|SSLError", str(error), re.IGNORECASE):
            pytest.skip("what the wheel needs cannot be fetched")
        raise


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHONPATH")}
    ran = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.heavy
def test_the_wheel_runs_in_an_empty_environment(tmp_path: Path) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    checkout.mkdir()
    elsewhere.mkdir()
    _checkout_without_symlinks(checkout)
    assert not (checkout / "topocal" / "topo").exists()
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, cwd=checkout)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _install(python, wheel, elsewhere)
    topocal = tmp_path / "venv" / "bin" / "topocal"
    # A user's own measure.py must neither shadow ours nor be shadowed.
    (elsewhere / "measure.py").write_text("raise RuntimeError('the wrong measure')\n")
    assert "predict" in _run(topocal, "--help", cwd=elsewhere)
    document = json.loads(_run(topocal, "demo", "--json", cwd=elsewhere))
    assert len(document["extremes"]) == 8
    code = (
        "import topocal.solve.fit as f, importlib.util as u; print(f.__file__, u.find_spec('topo'))"
    )
    where, bare = _run(python, "-c", code, cwd=elsewhere).split()
    assert str(tmp_path / "venv") in where
    assert bare == "None"
    assert "torch" not in _run(python, "-m", "pip", "freeze", cwd=elsewhere)

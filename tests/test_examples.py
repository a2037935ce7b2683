"""Every example runs, says nothing on standard error, and prints what it is there for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))

SAYS = {
    "01_paste_to_explanation": [r"gpu5 is slow with every partner", r"resources"],
    "02_simulate_a_fat_tree": [
        r"everybody to the next leaf .* 100 GB/s .* 2\.00x",
        r"seven into one",
    ],
    "03_plan_and_measure": [
        r"\d+ patterns in \d+ rounds",
        r"does gpu0 receive at once or by turns\?",
    ],
    "04_fit_and_predict": [r"receivers are time-shared", r"gpu3<-gpu4,gpu5,gpu6,gpu7: 38\.\d ms"],
    "05_fans_nobody_measured": [r"topocal +off by +0\.\d% in the middle"],
    "06_caps_to_a_policy": [
        r"digest sha256:",
        r"the first holder of each +\d",
        r"no choice before +\d",
    ],
    "07_deepspeed": [r"asked by", r"one region at a time", r"8 from one rank, 0 split"],
}
"""By script: what it prints."""


def run(script: Path, folder: Path, *options: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script), *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert list(folder.iterdir()) == []
    return ran.stdout


@pytest.mark.heavy
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example(script: Path, tmp_path: Path) -> None:
    printed = run(script, tmp_path)
    for pattern in SAYS[script.stem]:
        assert re.search(pattern, printed), f"{pattern} is not in\n{printed}"


def test_fans_that_nobody_measured_are_close(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "05_fans_nobody_measured.py", tmp_path)
    ours, others = (
        [float(x) for x in re.findall(rf"{name} +off by +([\d.]+)% .*?([\d.]+)% at", printed)[0]]
        for name in ("topocal", "slowest pair")
    )
    assert ours[0] < 1 < others[0]
    assert ours[1] < 3 < others[1]


@pytest.mark.alone
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_measuring_with_real_messages(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "03_plan_and_measure.py"), "--spawn"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "timings in all" in ran.stdout


def test_every_script_is_listed_and_expected_to_say_something() -> None:
    assert {path.stem for path in SCRIPTS} == set(SAYS)
    listed = re.findall(r"\]\((\d\d_\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert listed == [path.name for path in SCRIPTS]
    for path in SCRIPTS:
        assert len(path.read_text().splitlines()) <= 150, path.name

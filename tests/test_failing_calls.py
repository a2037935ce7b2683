"""Calls that write fail in turn, in every command that writes: a full disk, and SIGKILL.

What is there afterwards is the old file or the new one; the command says so in one line; and after
a kill the next run does as if nothing had been.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from failing_calls import LIBRARY, PROGRAM

pytestmark = pytest.mark.heavy

# Not here: `assign`, whose optimiser has threads that a fork does not take along, and what is
# measured, which says when.
COMMANDS: dict[str, tuple[str, ...]] = {
    "caps": ("caps", "model.json", "-o", "new.json"),
    "explain": ("explain", "pairs.csv", "fans.csv", "--time-limit", "0s", "--html", "new.html"),
    "export": ("export", "model.json", "--as", "dot", "-o", "new.dot"),
    "fit": ("fit", "pairs.csv", "fans.csv", "-o", "new.json"),
    "plan": ("plan", "topology.json", "-o", "new.json"),
    "price": ("price", "caps.json", "flows.csv", "-o", "new.json"),
    "read": ("read", "topology.json", "-o", "new.json"),
    "report": ("report", "model.json", "-o", "new.html"),
    "schema": ("schema", "model", "-o", "new.json"),
    "show": ("show", "topology.json", "--svg", "new.svg"),
    "simulate": (
        *("simulate", "model.json", "flows.csv", "-o", "new.json"),
        *("--svg", "new.svg", "--html", "new.html"),
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "failing.c").write_text(LIBRARY)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", folder / "failing.so", folder / "failing.c", "-ldl"],
        check=True,
    )
    return folder / "failing.so"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_call_that_writes_may_fail(
    name: str, library: Path, made: dict[str, bytes], tmp_path: Path
) -> None:
    words = COMMANDS[name]
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for file, content in made.items():
        (inputs / file).write_bytes(content)
    ran = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, inputs, json.dumps(words)),
            json.dumps([word for word in words if word.startswith("new")]),
        ],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:] + ran.stdout[-500:]
    count, tries = map(int, ran.stdout.splitlines()[-1].split())
    assert tries >= 4 * min(count, 6)
    print(f"{name}: {count} calls, {tries} tries")

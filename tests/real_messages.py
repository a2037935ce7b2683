"""Commands that measure with real messages, each in processes of its own, and what becomes of them.

No test here may depend on when something happens: a measurement that is to be disturbed either
never ends (:data:`ENDLESS` repeats), or waits for its end once it has written so many batches
(:func:`pausing_after`).
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

PATIENCE_S: Final = 300.0
"""No assertion on speed: what takes longer hangs."""

ENDLESS: Final = 10**9
"""Repeats that nobody waits for."""

PAUSING = """
import sys, time
from topocal.__main__ import main
from topocal.measure.journal import Journal

add, left = Journal.add, int(sys.argv.pop(1))

def add_and_pause(*arguments, **more):
    global left
    add(*arguments, **more)
    left -= 1
    while not left:
        time.sleep(1)

Journal.add = add_and_pause
main()
"""


def topocal(*arguments: str) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "topocal", *arguments]


def pausing_after(count: int, *arguments: str) -> list[str]:
    """The same, but rank 0 waits for ever once it has written so many batches."""
    return [sys.executable, "-c", PAUSING, str(count), *arguments]


def children(process: subprocess.Popen[str]) -> list[int]:
    """The ranks' process ids, in order of rank."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def lines(journal: Path) -> list[dict[str, Any]]:
    """What stands in a journal, without what a killed process did not write to its end."""
    whole = journal.read_text().rpartition("\n")[0] if journal.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def batches(journal: Path) -> list[dict[str, Any]]:
    """The lines that have timings."""
    return [line for line in lines(journal) if "batch" in line]


def wait_for_batches(process: subprocess.Popen[str], journal: Path, count: int = 2) -> None:
    """Until so many are written."""
    until = time.monotonic() + PATIENCE_S
    while len(batches(journal)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on, and that the system does not give to connections."""
    for port in random.sample(range(15_000, 32_000), 1000):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass
    raise AssertionError("no port is free")

"""Running other programs for what they print: no shell, a time limit, bounded output."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topocal.topo.errors import one_line

__all__ = ["Outcome", "run_program"]

MAX_OUTPUT_BYTES: Final = 8 * 2**20
TIMEOUT_S: Final = 30.0
"""``nvidia-smi`` takes seconds per GPU where the driver's persistence mode is off."""

_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a program.

    Attributes
    ----------
    text
        What it printed; ``None`` where that is of no use.
    problem
        Empty, or why there is no text.
    """

    text: str | None = None
    problem: str = ""


def run_program(
    command: Sequence[str], *, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_OUTPUT_BYTES
) -> Outcome:
    """Run a program found on ``PATH`` and return what it prints on standard output.

    Parameters
    ----------
    command
        Name and arguments, given to the program as they are.
    timeout_s
        After so many seconds it is killed.
    max_bytes
        When it prints more, it is killed.
    """
    program = shutil.which(command[0])
    if program is None:
        return Outcome(problem="not installed")
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    try:
        child = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError as error:
        return Outcome(problem=f"does not start: {one_line(error.strerror)}")
    with child:
        content, problem = _collect(child, time.monotonic() + timeout_s, timeout_s, max_bytes)
        if problem:
            child.kill()
    text = content.decode("utf-8", errors="replace")
    if problem:
        return Outcome(problem=problem)
    if child.returncode != 0 and not text.strip():
        return Outcome(problem=f"ended with status {child.returncode}")
    return Outcome(text=text) if text.strip() else Outcome(problem="printed nothing")


def _collect(
    child: subprocess.Popen[bytes], deadline: float, timeout_s: float, max_bytes: int
) -> tuple[bytes, str]:
    """All that a program prints until it ends, and what went wrong (or nothing)."""
    parts: list[bytes] = []
    size = 0
    late = f"killed after {timeout_s:g} s"
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return b"", late
            part = os.read(child.stdout.fileno(), _CHUNK)
            if not part:
                break
            size += len(part)
            if size > max_bytes:
                return b"", f"killed after printing {max_bytes >> 20} MiB"
            parts.append(part)
    try:
        child.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return b"", late
    return b"".join(parts), ""

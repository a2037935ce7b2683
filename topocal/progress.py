"""Progress of long work, on standard error and only where somebody looks at it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Advance", "progress"]

_EVERY_S = 0.2
"""How often a bar that follows the clock is moved."""

_SEEN_S = 0.5
"""Less is over before anybody has read it."""


class Advance:
    """To be called with how much has been done since the last call."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar = bar
        self._task = task

    def __call__(self, done: float) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, done)

    def reach(self, done: float, total: float) -> None:
        """So much of all is done, for work that tells its total as it goes."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)


@contextmanager
def progress(
    what: str, total: int | None = None, *, expected_s: float | None = None
) -> Iterator[Advance]:
    """A bar with the time left while the block runs; a sign of life while no total is known.

    Parameters
    ----------
    total
        How much there is to do, where that is known beforehand.
    expected_s
        Seconds that it takes or may take, for work that says nothing while it runs: the bar
        follows the clock, and stops short of its end until the work is done.  Where that is
        too short to look at, there is none.

    Yields
    ------
    Advance
        To be called with how much has been done since the last call.
    """
    if not sys.stderr.isatty() or (expected_s is not None and expected_s < _SEEN_S):
        yield Advance()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, emoji=False), transient=True) as bar:
        task = bar.add_task(what, total=total if expected_s is None else expected_s)
        over = threading.Event()
        if expected_s is not None:
            threading.Thread(
                target=_follow_clock, args=(bar, task, expected_s, over), daemon=True
            ).start()
        try:
            yield Advance(bar, task)
        finally:
            over.set()


def _follow_clock(bar: Progress, task: TaskID, expected_s: float, over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(_EVERY_S):
        bar.update(task, completed=min(time.monotonic() - began, 0.98 * expected_s))

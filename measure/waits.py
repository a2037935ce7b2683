"""Waiting for messages: never without end, and with few words on why one did not come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from topocal.topo.errors import MeasurementError, one_line

__all__ = [
    "Late",
    "begin",
    "complaint",
    "first_line",
    "is_out_of_memory",
    "promised",
    "sleep_until",
    "wait",
    "wait_or_raise",
    "words",
]

_CLOSED: Final = ("Connection closed", "Connection reset", "Broken pipe", "pair closure")
"""What gloo says where the other end, or the whole group at this end, has gone."""


_NO_MEMORY: Final = (
    "allocate memory",
    "out of memory",
    "bad_alloc",
    "start new thread",
)
"""What Python, torch and the C library say where there is no memory left: a thread, too, fails
to start for its stack."""

_SLACK_S: Final = 5.0
"""How much later than promised a sign of life may come."""


class Late(Exception):  # noqa: N818  # No error until somebody has said about whom.
    """A message that did not come or go."""

    def __init__(self, why: str, peer: int | None) -> None:
        self.why, self.peer = why, peer
        super().__init__(why)


def complaint(what: str) -> MeasurementError:
    """An error about another rank, whose own says more if there is one."""
    error = MeasurementError(what, remedy="see what became of the other ranks")
    error.others_fault = True
    return error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


def first_line(error: BaseException) -> str:
    """The first line of an error's text; the others are the backend's own stack."""
    return one_line(str(error).partition("\n")[0])


def words(error: BaseException) -> str:
    """A backend's error in few words."""
    text = str(error)
    if any(sign in text for sign in _CLOSED):
        return "the connection was closed"
    if "Timed out" in text or "timed out" in text or "timeout" in text.lower():
        return "nothing came in time"
    return first_line(error)


def begin(call: Any, tensor: Any, rank: int, group: Any, peer: int) -> Any:
    """A message begun; :class:`Late` where that is refused."""
    try:
        return call(tensor, rank, group=group)
    except RuntimeError as error:
        raise Late(words(error), peer) from error


def wait(work: Any, until: float) -> str:
    """Wait for an operation; why it failed, or nothing."""
    if isinstance(work, BaseException):
        return words(work)
    try:
        # A wait of zero would be one without end.
        work.wait(timedelta(seconds=max(until - time.monotonic(), 1e-3)))
    except RuntimeError as error:
        return words(error)
    return ""


def wait_or_raise(work: Any, until: float, peer: int) -> float:
    """The time at which an operation was done."""
    why = wait(work, until)
    if why:
        raise Late(why, peer)
    return time.monotonic()


@contextmanager
def promised(promise: Callable[[float], None], seconds: float) -> Iterator[None]:
    """Whoever watches may take this process for hung when the block lasts longer."""
    promise(seconds + _SLACK_S)
    try:
        yield
    finally:
        promise(math.inf)


def sleep_until(at: float, at_most_s: float) -> None:
    """Wait for an instant of the monotonic clock, unless it is further away than it can be."""
    while 0 < (left := at - time.monotonic()) <= at_most_s:
        time.sleep(left)

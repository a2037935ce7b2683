"""Binary heaps for compiled loops: of records that know their place, and of targets.

A *heap of ids* orders records of an array by their fields ``key`` and, where
keys are equal, by number; field ``place`` is a record's index in the heap, -1
outside.  A *heap of targets* lies in a stretch of an array of records with a
field ``at`` and is moved as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import inlined

__all__ = ["drop_target", "insert", "push_target", "remove_first", "update"]


@inlined
def _up(heap: NDArray[np.int64], records: Any, i: int) -> None:
    item = heap[i]
    key = records[item].key
    while i > 0:
        above = (i - 1) >> 1
        other = heap[above]
        other_key = records[other].key
        if other_key < key or (other_key == key and other < item):
            break
        heap[i] = other
        records[other].place = i
        i = above
    heap[i] = item
    records[item].place = i


@inlined
def _down(heap: NDArray[np.int64], records: Any, i: int, length: int) -> None:
    item = heap[i]
    key = records[item].key
    while True:
        below = 2 * i + 1
        if below >= length:
            break
        other = heap[below]
        other_key = records[other].key
        if below + 1 < length:
            right = heap[below + 1]
            right_key = records[right].key
            if right_key < other_key or (right_key == other_key and right < other):
                below += 1
                other = right
                other_key = right_key
        if key < other_key or (key == other_key and item < other):
            break
        heap[i] = other
        records[other].place = i
        i = below
    heap[i] = item
    records[item].place = i


@inlined
def insert(heap: NDArray[np.int64], records: Any, length: int, item: int) -> int:
    """Add a record to a heap of ids of ``length``; its new length."""
    heap[length] = item
    _up(heap, records, length)
    return length + 1


@inlined
def update(heap: NDArray[np.int64], records: Any, length: int, item: int) -> None:
    """Restore the order after the key of a record in the heap has changed."""
    place = records[item].place
    if place > 0:
        _up(heap, records, place)
    if records[item].place == place:
        _down(heap, records, place, length)


@inlined
def remove_first(heap: NDArray[np.int64], records: Any, length: int) -> int:
    """Take the least record out of a heap of ids of ``length``; its new length."""
    records[heap[0]].place = -1
    length -= 1
    if length > 0:
        heap[0] = heap[length]
        _down(heap, records, 0, length)
    return length


@inlined
def push_target(targets: Any, first: int, length: int, at: float, flow: int, column: int) -> None:
    """Add a target to the heap in ``targets[first : first + length]``."""
    i = length
    while i > 0:
        above = (i - 1) >> 1
        if targets[first + above].at <= at:
            break
        targets[first + i].at = targets[first + above].at
        targets[first + i].flow = targets[first + above].flow
        targets[first + i].column = targets[first + above].column
        i = above
    targets[first + i].at = at
    targets[first + i].flow = flow
    targets[first + i].column = column


@inlined
def drop_target(targets: Any, first: int, length: int) -> None:
    """Take the least target out of the heap in ``targets[first : first + length]``."""
    length -= 1
    at = targets[first + length].at
    flow = targets[first + length].flow
    column = targets[first + length].column
    i = 0
    while True:
        below = 2 * i + 1
        if below >= length:
            break
        if below + 1 < length and targets[first + below + 1].at < targets[first + below].at:
            below += 1
        if at <= targets[first + below].at:
            break
        targets[first + i].at = targets[first + below].at
        targets[first + i].flow = targets[first + below].flow
        targets[first + i].column = targets[first + below].column
        i = below
    targets[first + i].at = at
    targets[first + i].flow = flow
    targets[first + i].column = column

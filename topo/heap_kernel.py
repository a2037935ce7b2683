"""Priority queues for compiled loops: of records that know their place, and of targets.

A *queue of records* orders records of an array by their fields ``key`` and, where
keys are equal, by number; field ``place`` is where a record stands in the queue, -1
outside.  The queue is an array of record numbers with room for one more, in which
stands whether it is a binary heap: few records are kept unsorted and looked
through, which takes less time than to sort them.  It begins as zeros.

A *heap of targets* lies in a stretch of an array of records with a field ``at`` and
is moved as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import inlined

__all__ = ["clear", "drop_target", "first", "insert", "push_target", "remove", "update"]

_FEW = 16
"""So many records are not sorted."""


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
def first(queue: NDArray[np.int64], records: Any, length: int) -> int:
    """The least record of a queue of ``length``, which is not empty."""
    best = queue[0]
    if queue[-1] == 0:
        least = records[best].key
        for i in range(1, length):
            item = queue[i]
            key = records[item].key
            if key < least or (key == least and item < best):
                best, least = item, key
    return int(best)


@inlined
def insert(queue: NDArray[np.int64], records: Any, length: int, item: int) -> int:
    """Add a record to a queue of ``length``; its new length."""
    queue[length] = item
    if queue[-1] == 0:
        records[item].place = length
        if length + 1 > _FEW:
            queue[-1] = 1
            for i in range(1, length + 1):
                _up(queue, records, i)
    else:
        _up(queue, records, length)
    return length + 1


@inlined
def update(queue: NDArray[np.int64], records: Any, length: int, item: int) -> None:
    """Restore the order after the key of a record in the queue has changed."""
    if queue[-1] == 0:
        return
    place = records[item].place
    if place > 0:
        _up(queue, records, place)
    if records[item].place == place:
        _down(queue, records, place, length)


@inlined
def remove(queue: NDArray[np.int64], records: Any, length: int, item: int) -> int:
    """Take a record out of a queue of ``length``; its new length."""
    place = records[item].place
    records[item].place = -1
    length -= 1
    moved = queue[length]
    if moved != item:
        queue[place] = moved
        records[moved].place = place
        if queue[-1] != 0:
            update(queue, records, length, moved)
    if length == 0:
        queue[-1] = 0
    return length


@inlined
def clear(queue: NDArray[np.int64], records: Any, length: int) -> None:
    """Take all records out of a queue of ``length``."""
    for i in range(length):
        records[queue[i]].place = -1
    queue[-1] = 0


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

"""Whole regions by holder: the loops over requests, compiled.

Arrays are those of :class:`topocal.solve.policy.choice.Choice`; ``held[k]`` is the entry that
request k is with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined, passes

__all__ = ["descend", "fill"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]


@compiled_when_long(passes(3))
def fill(order: _I, group: _I, size: _F, start: _I, quota: _F, held: _I) -> None:
    """Give each request, in ``order``, to the holder of its group that lacks most of its quota.

    ``quota`` is used up; of equals the lowest holder is taken.
    """
    for k in order:
        first, end = start[group[k]], start[group[k] + 1]
        best = first
        for entry in range(first + 1, end):
            if quota[entry] > quota[best]:
                best = entry
        quota[best] -= size[k]
        held[k] = best


@inlined
def _steep(load: float, squarings: int) -> float:
    """A high power, so that the sum over resources is ruled by the busiest."""
    for _ in range(squarings):
        load *= load
    return load


@compiled_when_long(passes(10))
def descend(
    order: _I,
    group: _I,
    size: _F,
    start: _I,
    entry_pair: _I,
    pair_ptr: _I,
    pair_row: _I,
    pair_cost: _F,
    load: _F,
    held: _I,
    squarings: int,
) -> int:
    """Let each request, in ``order``, choose its holder again while all others stay.

    It takes the one that adds least to the sum of powers of ``load`` (about 1 for the
    busiest), the 2nd to the ``squarings``; it stays where nothing is better.  Returns how
    many moved.
    """
    moved = 0
    for k in order:
        now, best, least = held[k], held[k], np.inf
        amount = size[k]
        pair = entry_pair[now]
        for line in range(pair_ptr[pair], pair_ptr[pair + 1]):
            load[pair_row[line]] -= amount * pair_cost[line]
        for turn in range(-1, start[group[k] + 1] - start[group[k]]):
            # The present holder first, then all from the lowest.
            entry = now if turn < 0 else start[group[k]] + turn
            pair = entry_pair[entry]
            added = 0.0
            for line in range(pair_ptr[pair], pair_ptr[pair + 1]):
                before = load[pair_row[line]]
                after = before + amount * pair_cost[line]
                added += _steep(after, squarings) - _steep(before, squarings)
            if added < least * (1.0 - 1e-9):
                best, least = entry, added
        pair = entry_pair[best]
        for line in range(pair_ptr[pair], pair_ptr[pair + 1]):
            load[pair_row[line]] += amount * pair_cost[line]
        if best != now:
            held[k] = best
            moved += 1
    return moved

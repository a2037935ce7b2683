"""Policies that take requests one after another: their loops, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled, compiled_when_long, passes

__all__ = ["choose", "least_loaded", "online", "per_request"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]


@compiled_when_long(passes(3))
def least_loaded(group: _I, size: _F, start: _I, holder: _I, sent: _F, held: _I) -> None:
    """Each request to the holder that has sent the fewest bytes so far, the lowest of equals."""
    for k in range(len(group)):
        best = start[group[k]]
        for entry in range(start[group[k]] + 1, start[group[k] + 1]):
            if sent[holder[entry]] < sent[holder[best]]:
                best = entry
        sent[holder[best]] += size[k]
        held[k] = best


@compiled_when_long(passes(10))
def per_request(
    group: _I,
    size: _F,
    start: _I,
    pair: _I,
    pair_ptr: _I,
    pair_row: _I,
    pair_cost: _F,
    load: _F,
    held: _I,
) -> None:
    """Each request to the holder whose busiest resource is then the least busy.

    Of equals the one that adds least work, then the lowest.
    """
    for k in range(len(group)):
        best, least, work = start[group[k]], np.inf, np.inf
        for entry in range(start[group[k]], start[group[k] + 1]):
            longest, added = 0.0, 0.0
            for line in range(pair_ptr[pair[entry]], pair_ptr[pair[entry] + 1]):
                cost = size[k] * pair_cost[line]
                added += cost
                longest = max(longest, load[pair_row[line]] + cost)
            if longest < least or (longest == least and added < work):
                best, least, work = entry, longest, added
        held[k] = best
        for line in range(pair_ptr[pair[best]], pair_ptr[pair[best] + 1]):
            load[pair_row[line]] += size[k] * pair_cost[line]


# Always: callers choose request by request, and are not to wait in the middle.
@compiled
def choose(
    pairs: _I, size: float, pair_ptr: _I, pair_row: _I, pair_cost: _F, load: _F, top: float
) -> int:
    """Which of ``pairs`` adds least to the sum of the 16th powers of the loads.

    Of equals it is the first.  ``top`` is the largest load so far; loads count in units of the
    largest that may come.
    """
    unit = top
    for pair in pairs:
        for line in range(pair_ptr[pair], pair_ptr[pair + 1]):
            unit = max(unit, load[pair_row[line]] + size * pair_cost[line])
    best, least = 0, np.inf
    for place in range(len(pairs)):
        added = 0.0
        for line in range(pair_ptr[pairs[place]], pair_ptr[pairs[place] + 1]):
            before = load[pair_row[line]] / unit
            after = before + size * pair_cost[line] / unit
            for _ in range(4):
                before *= before
                after *= after
            added += after - before
        if added < least * (1.0 - 1e-9):
            best, least = place, added
    return best


@compiled_when_long(passes(20))
def online(
    group: _I,
    size: _F,
    start: _I,
    pair: _I,
    pair_ptr: _I,
    pair_row: _I,
    pair_cost: _F,
    load: _F,
    held: _I,
) -> None:
    """Each request as :func:`choose` says."""
    top = 0.0
    for k in range(len(group)):
        first, end = start[group[k]], start[group[k] + 1]
        best = first + choose(pair[first:end], size[k], pair_ptr, pair_row, pair_cost, load, top)
        held[k] = best
        for line in range(pair_ptr[pair[best]], pair_ptr[pair[best] + 1]):
            load[pair_row[line]] += size[k] * pair_cost[line]
            top = max(top, load[pair_row[line]])

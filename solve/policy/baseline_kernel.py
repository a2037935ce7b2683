"""Policies that take requests one after another: their loops, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled

__all__ = ["least_loaded", "per_request"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]


@compiled
def least_loaded(group: _I, size: _F, start: _I, holder: _I, sent: _F, held: _I) -> None:
    """Each request to the holder that has sent the fewest bytes so far, the lowest of equals."""
    for k in range(len(group)):
        best = start[group[k]]
        for entry in range(start[group[k]] + 1, start[group[k] + 1]):
            if sent[holder[entry]] < sent[holder[best]]:
                best = entry
        sent[holder[best]] += size[k]
        held[k] = best


@compiled
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

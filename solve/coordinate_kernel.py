"""The best value of one capacity while all others stay, over its whole range, compiled.

As a function of one x the cost has many local minima: every observation that loads the
resource may be the one that it explains.  The global one lies, up to the width of the
Huber loss, where some observation is met exactly, or at the prior; all are tried.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled, inlined

__all__ = ["sweep"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]


@inlined
def _huber(error: float, threshold: float) -> float:
    """Huber loss, square up to the threshold."""
    size = abs(error)
    if size <= threshold:
        return size * size
    return 2.0 * threshold * min(size, 1e6) - threshold * threshold


@compiled
def sweep(
    wanted: _I,
    row_ptr: _I,
    row_column: _I,
    row_load: _F,
    column_ptr: _I,
    column_row: _I,
    column_load: _F,
    x: _F,
    log_seconds: _F,
    sigma: _F,
    engine: _F,
    pull_to: _F,
    pull: _F,
    limit: _F,
    threshold: float,
) -> int:
    """Move each wanted column of ``x`` to its best value, one after the other; how many moved.

    ``engine`` is the longest time-shared log time of each row (-inf: none), ``pull`` the
    cost per unit of x away from ``pull_to``, ``limit`` the largest x that is allowed; they stay.
    """
    longest = 0
    for r in wanted:
        longest = max(longest, column_ptr[r + 1] - column_ptr[r])
    other = np.empty(longest)
    moved = 0
    for r in wanted:
        begin, end = column_ptr[r], column_ptr[r + 1]
        for k in range(begin, end):
            s = column_row[k]
            top = engine[s]
            for e in range(row_ptr[s], row_ptr[s + 1]):
                if row_column[e] != r:
                    top = max(top, row_load[e] + x[row_column[e]])
            other[k - begin] = top
        best_value, best_cost, now = x[r], np.inf, np.inf
        for trial in range(-2, end - begin):
            if trial == -2:
                value = x[r]
            elif trial == -1:
                value = pull_to[r]
            else:
                k = begin + trial
                value = min(limit[r], log_seconds[column_row[k]] - column_load[k])
                # A value that the others hide here explains nothing here.
                if column_load[k] + value < other[trial]:
                    continue
            cost = pull[r] * abs(value - pull_to[r])
            for k in range(begin, end):
                s = column_row[k]
                predicted = max(other[k - begin], column_load[k] + value)
                cost += _huber((predicted - log_seconds[s]) / sigma[s], threshold)
                if cost >= best_cost:
                    break
            if trial == -2:
                now = cost
            if cost < best_cost:
                best_cost, best_value = cost, value
        if best_cost < now - 1e-9 * max(1.0, now):
            x[r] = best_value
            moved += 1
    return moved

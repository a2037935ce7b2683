"""The best value of one capacity while all others stay, over its whole range, compiled.

As a function of one x the cost has many local minima: every observation that loads the
resource may be the one that it explains.  The global one lies, up to the width of the
Huber loss, where some observation is met exactly, or at the prior; all are tried.

Most observations of a resource are longer by another one whatever value is tried: they cost
the same every time and are counted once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined, passes

__all__ = ["sweep"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]


@inlined
def _huber(error: float, threshold: float) -> float:
    """Huber loss, square up to the threshold."""
    size = abs(error)
    if size <= threshold:
        return size * size
    return 2.0 * threshold * min(size, 1e6) - threshold * threshold


@inlined
def _two_largest(
    s: int,
    row_ptr: _I32,
    row_column: _I32,
    row_load: _F,
    x: _F,
    engine: _F,
    first: _F,
    second: _F,
    holder: _I32,
) -> None:
    """The longest and the next longest time of a row, and the column of the former (-1: an
    engine)."""
    top, next_top, column = engine[s], -np.inf, np.int32(-1)
    for e in range(row_ptr[s], row_ptr[s + 1]):
        value = row_load[e] + x[row_column[e]]
        if value > top:
            top, next_top, column = value, top, row_column[e]
        elif value > next_top:
            next_top = value
    first[s], second[s], holder[s] = top, next_top, column


@compiled_when_long(passes(2))
def sweep(
    wanted: _I,
    row_ptr: _I32,
    row_column: _I32,
    row_load: _F,
    column_ptr: _I32,
    column_row: _I32,
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
    rows = len(log_seconds)
    first, second = np.empty(rows), np.empty(rows)
    holder = np.empty(rows, dtype=np.int32)
    for s in range(rows):
        _two_largest(s, row_ptr, row_column, row_load, x, engine, first, second, holder)
    other, load = np.empty(longest), np.empty(longest)
    target, deviation, trials = np.empty(longest), np.empty(longest), np.empty(longest + 2)
    moved = 0
    for r in wanted:
        # Nothing that is tried below is larger than this.
        largest = max(limit[r], x[r], pull_to[r])
        fixed, open_rows, count = 0.0, 0, 2
        trials[0], trials[1] = x[r], pull_to[r]
        at_limit = False
        for k in range(column_ptr[r], column_ptr[r + 1]):
            s = column_row[k]
            top = second[s] if holder[s] == r else first[s]
            if column_load[k] + largest < top:
                fixed += _huber((top - log_seconds[s]) / sigma[s], threshold)
                continue
            other[open_rows], load[open_rows] = top, column_load[k]
            target[open_rows], deviation[open_rows] = log_seconds[s], sigma[s]
            open_rows += 1
            value = min(limit[r], log_seconds[s] - column_load[k])
            # A value that the others hide here explains nothing here.
            if column_load[k] + value < top or (at_limit and value == limit[r]):
                continue
            at_limit = at_limit or value == limit[r]
            trials[count] = value
            count += 1
        best_value, best_cost, now = x[r], np.inf, np.inf
        for trial in range(count):
            value = trials[trial]
            cost = fixed + pull[r] * abs(value - pull_to[r])
            for k in range(open_rows):
                predicted = max(other[k], load[k] + value)
                cost += _huber((predicted - target[k]) / deviation[k], threshold)
                if cost >= best_cost:
                    break
            if trial == 0:
                now = cost
            if cost < best_cost:
                best_cost, best_value = cost, value
        if best_cost < now - 1e-9 * max(1.0, now):
            x[r] = best_value
            moved += 1
            for k in range(column_ptr[r], column_ptr[r + 1]):
                _two_largest(
                    column_row[k], row_ptr, row_column, row_load, x, engine, first, second, holder
                )
    return moved

"""The inner loops over rows, compiled."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, passes

__all__ = [
    "chosen",
    "engine_times",
    "first_largest",
    "largest",
    "largest_of_column",
    "least_slack",
    "top_two",
]

_B = NDArray[np.bool_]
_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]


@compiled_when_long(passes(1))
def largest(indptr: _I32, column: _I32, value: _F, x: _F) -> _F:
    """Largest ``value + x`` of each row; -inf for an empty row."""
    found = np.full(len(indptr) - 1, -np.inf)
    for row in range(len(found)):
        top = -np.inf
        for k in range(indptr[row], indptr[row + 1]):
            top = max(top, value[k] + x[column[k]])
        found[row] = top
    return found


@compiled_when_long(passes(2))
def first_largest(indptr: _I32, column: _I32, value: _F, x: _F, tie: float) -> _I:
    """Position of the first entry of each row that is within ``tie`` of its largest
    ``value + x``; -1 for a row that is empty or has no finite one."""
    found = np.full(len(indptr) - 1, -1, dtype=np.int64)
    for row in range(len(found)):
        top = -np.inf
        for k in range(indptr[row], indptr[row + 1]):
            top = max(top, value[k] + x[column[k]])
        if top == -np.inf:
            continue
        for k in range(indptr[row], indptr[row + 1]):
            if value[k] + x[column[k]] >= top - tie:
                found[row] = k
                break
    return found


@compiled_when_long(passes(1))
def top_two(
    indptr: _I32, column: _I32, value: _F, x: _F, first: _F, second: _F, holder: _I32
) -> None:
    """The largest ``value + x`` of each row, the next largest, and the column of the former."""
    for row in range(len(indptr) - 1):
        top, next_top, at = -np.inf, -np.inf, -1
        for k in range(indptr[row], indptr[row + 1]):
            one = value[k] + x[column[k]]
            if one > top:
                top, next_top, at = one, top, column[k]
            elif one > next_top:
                next_top = one
        first[row], second[row], holder[row] = top, next_top, at


@compiled_when_long(passes(1))
def chosen(
    indptr: _I32,
    column: _I32,
    value: _F,
    wanted: _B,
    new_indptr: _I32,
    new_column: _I32,
    new_value: _F,
) -> None:
    """The entries in wanted columns, in order."""
    at = 0
    for row in range(len(indptr) - 1):
        new_indptr[row] = at
        for k in range(indptr[row], indptr[row + 1]):
            if wanted[column[k]]:
                new_column[at], new_value[at] = column[k], value[k]
                at += 1
    new_indptr[len(indptr) - 1] = at


@compiled_when_long(passes(1))
def largest_of_column(indptr: _I32, column: _I32, of_row: _F, found: _F) -> None:
    """Raise each column's figure to the largest of its rows."""
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            found[column[k]] = max(found[column[k]], of_row[row])


@compiled_when_long(passes(1))
def least_slack(indptr: _I32, column: _I32, value: _F, y: _F, bound: _F) -> None:
    """Lower each column's bound to the least ``y - value`` of its rows."""
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            bound[column[k]] = min(bound[column[k]], y[row] - value[k])


@compiled_when_long(passes(3))
def engine_times(
    indptr: _I, pair: _I, log_bytes: _F, side: _I, solo: _F, log_kappa: _F, busy: _F, share: _F
) -> None:
    """Log busy time of each time-shared row into ``busy``, each flow's share into ``share``."""
    for row in range(len(busy)):
        top = -np.inf
        known = True
        count = indptr[row + 1] - indptr[row]
        for k in range(indptr[row], indptr[row + 1]):
            term = log_bytes[k] + solo[pair[k]]
            known = known and term > -np.inf
            top = max(top, term)
        if not known:
            busy[row] = -np.inf
            for k in range(indptr[row], indptr[row + 1]):
                share[k] = 1.0 / count
            continue
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            share[k] = math.exp(log_bytes[k] + solo[pair[k]] - top)
            total += share[k]
        for k in range(indptr[row], indptr[row + 1]):
            share[k] /= total
        busy[row] = log_kappa[side[row]] + top + math.log(total)

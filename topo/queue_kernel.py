"""Lines of flows before in-order resources.

A line holds flow numbers in order of arrival: ``line[head[r] : end[r]]`` are those
that resource ``r`` has still to let go.  A flow begins when it is the first in all
the lines that it stands in.  Orders are the same in all lines, so that the earliest
flow of all can always begin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import inlined

__all__ = ["HELD", "held_by", "let_go", "line_up"]

HELD = -1.0
"""``begin`` of a flow that has arrived and waits."""


@inlined
def line_up(
    low: int,
    order: NDArray[np.int64],
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    in_order: NDArray[np.bool_],
    head: NDArray[np.int64],
    end: NDArray[np.int64],
    line: NDArray[np.int64],
) -> None:
    """Put the flows through each in-order resource into its line, by time of arrival."""
    head[:] = 0
    for step in range(2):
        if step == 1:
            place = 0
            for r in range(len(head)):
                here = head[r]
                head[r] = end[r] = place
                place += here
        for i in order:
            f = low + i
            if size[f] == 0.0:
                continue
            for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
                r = indices[k]
                if not in_order[r]:
                    continue
                if step == 0:
                    head[r] += 1
                else:
                    line[end[r]] = f
                    end[r] += 1


@inlined
def held_by(
    f: int,
    pair: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    in_order: NDArray[np.bool_],
    head: NDArray[np.int64],
    line: NDArray[np.int64],
) -> int:
    """An in-order resource where flow ``f`` is not the first in line; -1: none."""
    for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
        r = indices[k]
        if in_order[r] and line[head[r]] != f:
            return int(r)
    return -1


@inlined
def let_go(
    f: int,
    column: int,
    pair: NDArray[np.int64],
    begin: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    in_order: NDArray[np.bool_],
    head: NDArray[np.int64],
    end: NDArray[np.int64],
    line: NDArray[np.int64],
    ready: NDArray[np.int64],
) -> int:
    """Let flow ``f`` leave the line of ``column``, or all lines where that is negative.

    Returns how many flows may begin now; they are put into ``ready``.
    """
    n_ready = 0
    for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
        r = indices[k]
        if not in_order[r] or (column >= 0 and column != r):
            continue
        if head[r] == end[r] or line[head[r]] != f:
            continue
        head[r] += 1
        if head[r] == end[r]:
            continue
        g = line[head[r]]
        if begin[g] == HELD and held_by(g, pair, indptr, indices, in_order, head, line) < 0:
            ready[n_ready] = g
            n_ready += 1
    return n_ready

"""One pass over all observations: how each unknown should move, compiled.

With soft assignment weights w_r that sum to one, (sum w_r d_r)² <= sum w_r d_r² (Jensen),
so the diagonal matrix of summed weights lies above the Gauss-Newton matrix: a step by it
never overshoots the quadratic model.  A time-shared row has slopes that sum to two (its
shares and its overlap factor), hence the factor there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, passes

__all__ = ["gather"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]


WIDTH = 8.0
"""A row further below the busiest than this, in widths of the assignment, has no part in it."""


@compiled_when_long(passes(1))
def gather(
    indptr: _I32,
    column: _I32,
    load: _F,
    x: _F,
    log_seconds: _F,
    sigma: _F,
    softness: float,
    threshold: float,
    engine_ptr: _I,
    engine_busy: _F,
    engine_side: _I,
    flow_ptr: _I,
    flow_column: _I,
    flow_share: _F,
    gradient: _F,
    curvature: _F,
) -> None:
    """Add every observation's part to ``gradient`` and ``curvature``.

    Both have shape (R + 2,): resources, then the two log overlap factors.  ``column`` and
    ``load`` hold the capacity rows, ``engine_*`` the time-shared rows in order of
    observation, ``flow_*`` their flows; a column of -1 has no fitted capacity.
    """
    resources = len(x)
    longest = 0
    for s in range(len(log_seconds)):
        longest = max(longest, indptr[s + 1] - indptr[s] + engine_ptr[s + 1] - engine_ptr[s])
    values, parts = np.empty(longest), np.empty(longest)
    near = np.empty(longest, dtype=np.int64)
    for s in range(len(log_seconds)):
        begin, end = indptr[s], indptr[s + 1]
        top = -np.inf
        for k in range(begin, end):
            values[k - begin] = load[k] + x[column[k]]
            top = max(top, values[k - begin])
        for e in range(engine_ptr[s], engine_ptr[s + 1]):
            top = max(top, engine_busy[e])
        if top == -np.inf:
            continue
        inverse = 1.0 / sigma[s]
        sharp = inverse / softness
        total, count = 0.0, 0
        # A little wider than what counts, which is decided on the same terms as ever.
        edge = top - WIDTH / sharp * (1.0 + 1e-6) - 1e-12 * abs(top)
        for k in range(begin, end):
            if values[k - begin] >= edge:
                gap = (top - load[k] - x[column[k]]) * sharp
                if gap < WIDTH:
                    near[count], parts[count] = k, math.exp(-gap)
                    total += parts[count]
                    count += 1
        capacities = count
        for e in range(engine_ptr[s], engine_ptr[s + 1]):
            gap = (top - engine_busy[e]) * sharp
            if gap < WIDTH:
                near[count], parts[count] = e, math.exp(-gap)
                total += parts[count]
                count += 1
        error = (top - log_seconds[s]) * inverse
        weight = 1.0 if abs(error) <= threshold else threshold / abs(error)
        slope = weight * error * inverse / total
        bend = weight * inverse * inverse / total
        for k in range(capacities):
            gradient[column[near[k]]] += slope * parts[k]
            curvature[column[near[k]]] += bend * parts[k]
        for k in range(capacities, count):
            e, part = near[k], parts[k]
            side = resources + engine_side[e]
            gradient[side] += slope * part
            curvature[side] += 2.0 * bend * part
            for f in range(flow_ptr[e], flow_ptr[e + 1]):
                if flow_column[f] >= 0:
                    gradient[flow_column[f]] += slope * part * flow_share[f]
                    curvature[flow_column[f]] += 2.0 * bend * part * flow_share[f]

"""The compiled loop of :mod:`topocal.topo.busiest`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined

__all__ = ["run"]

# The codes of topocal.topo.capacities.SHARING_CODE (a test compares them).
_TIME_SHARED = 2
_FATPIPE = 3

# A pattern with at least a third as many loads as there are resources is dense.
_DENSE = 3


@inlined
def _alone(
    engine: int,
    low_flow: int,
    high_flow: int,
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    sharing: NDArray[np.int8],
    flows_on: NDArray[np.int64],
) -> bool:
    """Whether the flows through ``engine`` share nothing with flows that bypass it."""
    through = np.zeros(len(flows_on), np.int64)
    for f in range(low_flow, high_flow):
        row = pair[f]
        crosses = False
        for k in range(indptr[row], indptr[row + 1]):
            crosses = crosses or indices[k] == engine
        if crosses and size[f] > 0.0:
            for k in range(indptr[row], indptr[row + 1]):
                through[indices[k]] += 1
    for r in range(len(through)):
        if through[r] > 0 and through[r] != flows_on[r] and sharing[r] != _FATPIPE:
            return False
    return True


def _steps(first: int, last: int, *others: NDArray[np.int64]) -> int:
    batch_indptr, pair, indptr, sharing = others[0], others[1], others[4], others[7]
    flows = pair[batch_indptr[first] : batch_indptr[last]]
    return len(sharing) + 20 * (last - first) + int(6 * np.diff(indptr)[flows].sum())


@compiled_when_long(_steps)
def run(
    first: int,
    last: int,
    batch_indptr: NDArray[np.int64],
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    start: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    cost: NDArray[np.float64],
    sharing: NDArray[np.int8],
    kappa: NDArray[np.float64],
    in_order: NDArray[np.bool_],
    alpha_s: float,
    seconds: NDArray[np.float64],
    bottleneck: NDArray[np.int32],
    runner_up: NDArray[np.int32],
    runner_up_s: NDArray[np.float64],
    exact: NDArray[np.bool_],
    busy_indptr: NDArray[np.int64],
    busy_column: NDArray[np.int32],
    busy_s: NDArray[np.float64],
) -> None:
    """Fill the results of patterns ``first`` to ``last - 1``.

    Per-resource busy seconds go to ``busy_column`` and ``busy_s`` from
    ``busy_indptr[first]`` on (which the caller gives, with room for the loads of
    all flows), and ``busy_indptr[first + 1 : last + 1]`` is filled; nothing of it
    where ``busy_indptr`` is empty.
    """
    R = len(sharing)
    load = np.zeros(R)
    flows_on = np.zeros(R, np.int64)
    begin = np.zeros(R)
    touched = np.empty(R, np.int64)
    keep_busy = len(busy_indptr) > 0
    plain = True
    for r in range(R):
        plain = plain and sharing[r] != _TIME_SHARED and sharing[r] != _FATPIPE
    for p in range(first, last):
        latest, first_size, first_start = 0.0, 0.0, 0.0
        loaded, lines = 0, 0
        together, alike = True, True
        for f in range(batch_indptr[p], batch_indptr[p + 1]):
            b, s = size[f], start[f]
            latest = max(latest, s)
            reach = indptr[pair[f] + 1] - indptr[pair[f]]
            if b == 0.0 or reach == 0:
                continue
            if loaded == 0:
                first_size, first_start = b, s
            together = together and s == first_start
            alike = alike and b == first_size
            loaded += 1
            lines += reach
        n = 0
        if plain and together and _DENSE * lines >= R:
            # Many flows on few resources: nothing to decide on the way.
            for f in range(batch_indptr[p], batch_indptr[p + 1]):
                b = size[f]
                if b == 0.0:
                    continue
                for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
                    load[indices[k]] += b * cost[k]
            for r in range(R):
                if load[r] > 0.0:
                    touched[n] = r
                    n += 1
                    begin[r] = first_start
        else:
            for f in range(batch_indptr[p], batch_indptr[p + 1]):
                b, s = size[f], start[f]
                if b == 0.0:
                    continue
                for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
                    r = indices[k]
                    u = b * cost[k]
                    if flows_on[r] == 0:
                        touched[n] = r
                        n += 1
                        flows_on[r] = 1
                        begin[r] = s
                        load[r] = u
                    elif sharing[r] == _FATPIPE:
                        # Not shared: the flow that would finish last alone decides.
                        if s + u > begin[r] + load[r]:
                            begin[r] = s
                            load[r] = u
                    else:
                        flows_on[r] += 1
                        begin[r] = min(begin[r], s)
                        load[r] += u
        best = latest
        second = latest
        best_column = -1
        second_column = -1
        contended_engines = 0
        for i in range(n):
            r = touched[i]
            if sharing[r] == _TIME_SHARED and flows_on[r] >= 2:
                load[r] *= kappa[r]
                contended_engines += 1
        for i in range(n):
            r = touched[i]
            # A lone flow takes its solo time on a time-shared resource: that is the
            # time of one of its capacities, which is then the one to name.
            if load[r] > 0.0 and (sharing[r] != _TIME_SHARED or flows_on[r] >= 2):
                t = begin[r] + load[r]
                if t > best or (t == best and (best_column < 0 or r < best_column)):
                    second = best
                    second_column = best_column
                    best = t
                    best_column = r
                elif t > second or (t == second and (second_column < 0 or r < second_column)):
                    second = t
                    second_column = r
        sure = together and alike and contended_engines <= 1
        if sure and contended_engines == 1:
            for i in range(n):
                r = touched[i]
                if in_order[r] and flows_on[r] >= 2:
                    # The last message in line has nothing to overlap with; and those
                    # that wait leave their share of other resources to whoever is there.
                    sure = kappa[r] == 1.0 and _alone(
                        r,
                        batch_indptr[p],
                        batch_indptr[p + 1],
                        pair,
                        size,
                        indptr,
                        indices,
                        sharing,
                        flows_on,
                    )
        seconds[p] = alpha_s + best
        bottleneck[p] = best_column
        runner_up[p] = second_column
        runner_up_s[p] = alpha_s + second
        exact[p] = sure
        if keep_busy:
            at = busy_indptr[p]
            for i in range(n):
                r = touched[i]
                if load[r] > 0.0:
                    busy_column[at] = r
                    busy_s[at] = load[r]
                    at += 1
            busy_indptr[p + 1] = at
        for i in range(n):
            flows_on[touched[i]] = 0
            load[touched[i]] = 0.0

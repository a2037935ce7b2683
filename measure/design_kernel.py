"""The compiled loops of the design (:mod:`topocal.measure.design`).

Everything is per byte: pair ``p`` takes ``cost[k]`` seconds of class ``indices[k]``
for ``k`` in ``indptr[p]:indptr[p + 1]``.  Busy seconds follow the law of
:mod:`topocal.topo.busiest`.  Of candidates that do about equally well the one
that crosses least is taken, then the one whose endpoints are used least, then the
first in the order given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined

__all__ = ["both_ways_value", "grow", "grow_contrast", "second_of_two", "weigh"]

# The codes of topocal.topo.capacities.SHARING_CODE (a test compares them).
_TIME_SHARED = 2
_FATPIPE = 3

# Two figures closer than this are the same.
_SAME = 1e-9


@inlined
def _busy(load: float, count: int, more: float, law: int, kappa: float) -> float:
    """Busy seconds once a flow of ``more`` seconds joins ``count`` flows of ``load``."""
    if law == _FATPIPE:
        return max(load, more)
    if law == _TIME_SHARED:
        # A lone flow takes the time of one of its capacities, which counts already.
        return kappa * (load + more) if count > 0 else 0.0
    return load + more


@inlined
def _pick(
    worth: NDArray[np.float64],
    cap: float,
    slack: float,
    candidates: NDArray[np.int32],
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    indptr: NDArray[np.int64],
    used: NDArray[np.int64],
) -> int:
    """Which candidate to take, -1 where none is worth zero or more.

    Beyond ``cap`` all are equally good, and so are those within a share ``slack`` of the best.
    """
    best = -1.0
    for i in range(len(candidates)):
        best = max(best, min(worth[i], cap))
    enough = best * (1.0 - slack) if best > 0.0 else best
    at, crossed, uses = -1, 0, 0
    for i in range(len(candidates)):
        if worth[i] < 0.0 or min(worth[i], cap) < enough:
            continue
        p = candidates[i]
        here = indptr[p + 1] - indptr[p]
        used_here = used[source[p]] + used[destination[p]]
        if at < 0 or here < crossed or (here == crossed and used_here < uses):
            at, crossed, uses = i, here, used_here
    return at


@inlined
def _join(
    p: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    load: NDArray[np.float64],
    count: NDArray[np.int32],
) -> None:
    """Add the flow of pair ``p`` to the loads."""
    for k in range(indptr[p], indptr[p + 1]):
        s = indices[k]
        if law[s] == _FATPIPE:
            load[s] = max(load[s], cost[k])
        else:
            load[s] += cost[k]
        count[s] += 1


@inlined
def _clear(
    p: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    load: NDArray[np.float64],
    count: NDArray[np.int32],
) -> None:
    for k in range(indptr[p], indptr[p + 1]):
        load[indices[k]] = 0.0
        count[indices[k]] = 0


def _looks(candidates: NDArray[np.int32], indptr: NDArray[np.int64]) -> int:
    """Steps to look once at what each candidate crosses."""
    return int(3 * np.diff(indptr)[candidates].sum())


def _steps_of_grow(target: int, candidates: NDArray[np.int32], *others: Any) -> int:
    most, patience, indptr = others[3], others[4], others[7]
    return _looks(candidates, indptr) * int(min(most, len(candidates), patience + 1))


@compiled_when_long(_steps_of_grow)
def grow(
    target: int,
    candidates: NDArray[np.int32],
    disjoint: bool,
    enough: float,
    slack: float,
    most: int,
    patience: int,
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    kappa: NDArray[np.float64],
    used: NDArray[np.int64],
    load: NDArray[np.float64],
    count: NDArray[np.int32],
    busy_end: NDArray[np.bool_],
    chosen: NDArray[np.int32],
) -> tuple[int, float]:
    """Flows that make ``target`` the clear bottleneck, added one at a time.

    Parameters
    ----------
    candidates
        Pairs that cross the target.
    disjoint
        Whether an endpoint may appear in one flow only.
    enough
        Ratio of the target's busy seconds to any other's at which to stop.
    slack
        Pairs whose ratios differ by less than this share are equally good.
    most
        Largest number of flows.
    patience
        How many flows to add without a better ratio before giving up.
    used
        How often each endpoint is used by other patterns.
    load, count, busy_end
        All zero, and left so: room for loads and for which endpoints are taken.
    chosen
        Room for ``most`` flows.

    Returns
    -------
    How many of ``chosen`` to keep, and the ratio they reach (infinite where they load
    nothing else).
    """
    taken = np.zeros(len(candidates), np.bool_)
    worth = np.empty(len(candidates))
    rivals = 0.0
    n, best_n, best = 0, 0, 0.0
    while n < most:
        for i in range(len(candidates)):
            p = candidates[i]
            worth[i] = -1.0
            if taken[i] or (disjoint and (busy_end[source[p]] or busy_end[destination[p]])):
                continue
            mine, others = 0.0, rivals
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                u = _busy(load[s], count[s], cost[k], law[s], kappa[s])
                if s == target:
                    mine = u
                elif u > others:
                    others = u
            worth[i] = mine / others if others > 0.0 else (np.inf if mine > 0.0 else 0.0)
        at = _pick(worth, enough, slack, candidates, source, destination, indptr, used)
        if at < 0:
            break
        p = candidates[at]
        for k in range(indptr[p], indptr[p + 1]):
            s = indices[k]
            if s != target:
                rivals = max(rivals, _busy(load[s], count[s], cost[k], law[s], kappa[s]))
        taken[at] = True
        busy_end[source[p]] = True
        busy_end[destination[p]] = True
        _join(p, indptr, indices, cost, law, load, count)
        chosen[n] = p
        n += 1
        if worth[at] > best * (1.0 + _SAME):
            best, best_n = worth[at], n
        if best >= enough or n - best_n >= patience:
            break
    for i in range(n):
        p = chosen[i]
        busy_end[source[p]] = False
        busy_end[destination[p]] = False
        _clear(p, indptr, indices, load, count)
    return best_n, best


def _steps_of_grow_contrast(
    first: int, candidates: NDArray[np.int32], most: int, *others: Any
) -> int:
    return _looks(candidates, others[2]) * min(most, len(candidates))


@compiled_when_long(_steps_of_grow_contrast)
def grow_contrast(
    first: int,
    candidates: NDArray[np.int32],
    most: int,
    hidden: float,
    slack: float,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    solo: NDArray[np.float64],
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    used: NDArray[np.int64],
    load: NDArray[np.float64],
    count: NDArray[np.int32],
    chosen: NDArray[np.int32],
) -> tuple[int, float]:
    """A fan whose flows take much longer one by one than they do sharing capacities.

    Parameters
    ----------
    hidden
        Seconds per flow of a capacity that no topology shows and that all of them share.
    slack
        Flows whose ratios differ by less than this share are equally good.

    Returns
    -------
    How many of ``chosen`` make the greatest ratio of the sum of the times alone to the
    time by capacities, and that ratio.
    """
    taken = np.zeros(len(candidates), np.bool_)
    worth = np.empty(len(candidates))
    _join(first, indptr, indices, cost, law, load, count)
    chosen[0] = first
    n = 1
    sum_s, longest = solo[first], solo[first]
    best_n, best = 0, 0.0
    while n < most:
        for i in range(len(candidates)):
            p = candidates[i]
            worth[i] = -1.0
            if taken[i] or p == first:
                continue
            t = max(longest, (n + 1) * hidden)
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                if law[s] != _TIME_SHARED:
                    t = max(t, _busy(load[s], count[s], cost[k], law[s], 1.0))
            worth[i] = (sum_s + solo[p]) / t if t > 0.0 else 0.0
        at = _pick(worth, np.inf, slack, candidates, source, destination, indptr, used)
        if at < 0:
            break
        p = candidates[at]
        for k in range(indptr[p], indptr[p + 1]):
            s = indices[k]
            if law[s] != _TIME_SHARED:
                longest = max(longest, _busy(load[s], count[s], cost[k], law[s], 1.0))
        taken[at] = True
        _join(p, indptr, indices, cost, law, load, count)
        chosen[n] = p
        n += 1
        sum_s += solo[p]
        if worth[at] > best * (1.0 + _SAME):
            best, best_n = worth[at], n
    for i in range(n):
        _clear(chosen[i], indptr, indices, load, count)
    return best_n, best


def _steps_of_second_of_two(first: int, candidates: NDArray[np.int32], *others: Any) -> int:
    indptr = others[2]
    return _looks(candidates, indptr) * (1 + int(indptr[first + 1] - indptr[first]))


@compiled_when_long(_steps_of_second_of_two)
def second_of_two(
    first: int,
    candidates: NDArray[np.int32],
    enough: float,
    slack: float,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    used: NDArray[np.int64],
    load: NDArray[np.float64],
    count: NDArray[np.int32],
) -> int:
    """The candidate that leaves the clearest bottleneck together with ``first``, -1: none.

    Bottlenecks beyond ``enough``, and those that differ by less than a share ``slack``, are
    equally clear.
    """
    worth = np.full(len(candidates), -1.0)
    _join(first, indptr, indices, cost, law, load, count)
    for i in range(len(candidates)):
        p = candidates[i]
        if p == first:
            continue
        t, t2 = 0.0, 0.0
        for side in range(2):
            row = first if side == 0 else p
            for k in range(indptr[row], indptr[row + 1]):
                s = indices[k]
                if law[s] == _TIME_SHARED:
                    continue
                # What both cross is counted with `p`, the rest of `first` as it stands.
                if side == 1:
                    u = _busy(load[s], count[s], cost[k], law[s], 1.0)
                else:
                    u = load[s]
                    for j in range(indptr[p], indptr[p + 1]):
                        if indices[j] == s:
                            u = 0.0
                if u > t:
                    t2, t = t, u
                elif u > t2:
                    t2 = u
        worth[i] = t / t2 if t2 > 0.0 else np.inf
    _clear(first, indptr, indices, load, count)
    at = _pick(worth, enough, slack, candidates, source, destination, indptr, used)
    return candidates[at] if at >= 0 else -1


def _steps_of_weigh(
    flow_indptr: NDArray[np.int64], flows: NDArray[np.int32], indptr: NDArray[np.int64], *_: Any
) -> int:
    return 3 * _looks(flows, indptr)


@compiled_when_long(_steps_of_weigh)
def weigh(
    flow_indptr: NDArray[np.int64],
    flows: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    kappa: NDArray[np.float64],
    busiest: NDArray[np.int32],
    busy: NDArray[np.float64],
    runner_up: NDArray[np.int32],
    next_busy: NDArray[np.float64],
) -> None:
    """Per pattern: its busiest class and that one's busy seconds, and the next one's."""
    K = len(law)
    load = np.zeros(K)
    count = np.zeros(K, np.int32)
    for q in range(len(flow_indptr) - 1):
        low, high = flow_indptr[q], flow_indptr[q + 1]
        for i in range(low, high):
            _join(flows[i], indptr, indices, cost, law, load, count)
        top_at, top, second_at, second = -1, 0.0, -1, 0.0
        for i in range(low, high):
            p = flows[i]
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                if count[s] == 0:
                    continue
                u = load[s]
                if law[s] == _TIME_SHARED:
                    u = kappa[s] * u if count[s] >= 2 else 0.0
                count[s] = 0
                if u > top or (u == top and u > 0.0 and s < top_at):
                    second, second_at = top, top_at
                    top, top_at = u, s
                elif u > second or (u == second and u > 0.0 and s < second_at):
                    second, second_at = u, s
        for i in range(low, high):
            _clear(flows[i], indptr, indices, load, count)
        busiest[q] = top_at
        busy[q] = top
        runner_up[q] = second_at
        next_busy[q] = second


def _steps_of_both_ways_value(candidates: NDArray[np.int32], *others: Any) -> int:
    return 5 * _looks(candidates, others[4])


@compiled_when_long(_steps_of_both_ways_value)
def both_ways_value(
    candidates: NDArray[np.int32],
    reverse: NDArray[np.int32],
    partner: NDArray[np.int32],
    is_open: NDArray[np.bool_],
    enough: float,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    load: NDArray[np.float64],
    wins: NDArray[np.int32],
) -> None:
    """Per candidate pair: for how many open connections it and its reverse would tell.

    They tell of a connection when its two directions together are busy ``enough`` times
    as long as anything else is.  ``partner`` is the other direction of each class, -1
    where it has none; ``load`` is all zero, and left so.
    """
    for i in range(len(candidates)):
        p, q = candidates[i], reverse[candidates[i]]
        wins[i] = 0
        if q < 0:
            continue
        longest = 0.0
        for side in range(2):
            row = p if side == 0 else q
            for k in range(indptr[row], indptr[row + 1]):
                load[indices[k]] += cost[k]
        for side in range(2):
            row = p if side == 0 else q
            for k in range(indptr[row], indptr[row + 1]):
                longest = max(longest, load[indices[k]])
        for k in range(indptr[p], indptr[p + 1]):
            s = indices[k]
            t = partner[s]
            if t >= 0 and is_open[s] and load[t] > 0.0 and load[s] + load[t] >= enough * longest:
                wins[i] += 1
        for side in range(2):
            row = p if side == 0 else q
            for k in range(indptr[row], indptr[row + 1]):
                load[indices[k]] = 0.0

"""Time or bytes, endpoint by endpoint, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined, passes

__all__ = ["prefer_time"]

_B = NDArray[np.bool_]
_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]


@inlined
def _misfit(
    level: _F,
    alone: _F,
    x: float,
    busy: _F,
    shift: float,
    seconds: _F,
    sigma: _F,
    threshold: float,
    worst: float,
    enough: float,
) -> float:
    """Huber loss of observations that take the longest of three times; where the sum reaches
    ``enough`` it ends early."""
    cost = 0.0
    for k in range(len(level)):
        predicted = max(level[k], max(alone[k] + x, busy[k] + shift))
        size = min(abs(predicted - seconds[k]) / sigma[k], worst)
        if size <= threshold:
            cost += size * size
        else:
            cost += 2.0 * threshold * size - threshold * threshold
        if cost >= enough:
            break
    return float(cost)


@compiled_when_long(passes(20))
def prefer_time(
    engine: _I,
    port: _I,
    side: _I,
    of_engine: _I,
    engine_ptr: _I,
    row: _I,
    busy: _F,
    at_work: _F,
    row_ptr: _I,
    first: _F,
    second: _F,
    holder: _I32,
    port_ptr: _I32,
    port_row: _I32,
    port_load: _F,
    log_seconds: _F,
    sigma: _F,
    prior: _F,
    has_kappa: _B,
    least_shift: float,
    price: float,
    same: float,
    threshold: float,
    worst: float,
    preference: _F,
) -> None:
    """Into ``preference``, for each engine asked for: bytes' cost less time's.

    The time-shared rows of engine e are ``of_engine[engine_ptr[e]:engine_ptr[e + 1]]``; row k
    is of observation ``row[k]``, takes ``busy[k]``, and ``at_work[k]`` where its engine is at
    work (-inf elsewhere); those of observation s are ``row_ptr[s]`` to ``row_ptr[s + 1]``.
    ``first``, ``second`` and ``holder`` are each observation's longest time by capacities, the
    next longest, and the column of the longest; ``port_ptr``, ``port_row`` and ``port_load``
    the loads, column after column.
    """
    longest = 0
    for e in engine:
        longest = max(longest, engine_ptr[e + 1] - engine_ptr[e])
    levels, loads, times = np.empty(longest), np.empty(longest), np.empty(longest)
    targets, deviations, never = np.empty(longest), np.empty(longest), np.full(longest, -np.inf)
    tries, shifts = np.empty(longest + 1), np.empty(longest + 1)
    for a in range(len(engine)):
        begin, n = engine_ptr[engine[a]], engine_ptr[engine[a] + 1] - engine_ptr[engine[a]]
        known = n > 0
        at, bound = port_ptr[port[a]], np.inf
        for k in range(n):
            me = of_engine[begin + k]
            s = row[me]
            known = known and np.isfinite(busy[me])
            level = second[s] if holder[s] == port[a] else first[s]
            for other in range(row_ptr[s], row_ptr[s + 1]):
                if other != me:
                    level = max(level, at_work[other])
            levels[k], times[k] = level, busy[me]
            targets[k], deviations[k] = log_seconds[s], sigma[s]
            # Both are in order of observation; what is between them is not of a fan.
            while at < port_ptr[port[a] + 1] and port_row[at] < s:
                bound = min(bound, log_seconds[port_row[at]] - port_load[at])
                at += 1
            loads[k] = -np.inf
            if at < port_ptr[port[a] + 1] and port_row[at] == s:
                loads[k] = port_load[at]
                at += 1
        preference[a] = 0.0
        if not known:
            continue
        for e in range(at, port_ptr[port[a] + 1]):
            bound = min(bound, log_seconds[port_row[e]] - port_load[e])
        tries[0], shifts[0], least = -np.inf, 0.0, 0.0
        for k in range(n):
            tries[k + 1] = min(bound, targets[k] - loads[k])
            shifts[k + 1] = min(0.0, max(least_shift, targets[k] - times[k]))
        count = 1
        if not has_kappa[side[a]]:
            count, least = n + 1, price
        level, alone, time = levels[:n], loads[:n], times[:n]
        target, deviation = targets[:n], deviations[:n]
        by_bytes, by_time = np.inf, np.inf
        for i in range(n + 1):
            x = tries[i]
            if x == np.inf or (i > 0 and x == tries[i - 1]):
                continue
            said = x == -np.inf or x >= bound or abs(x - prior[port[a]]) <= same
            own = 0.0 if said else price
            cost = own + _misfit(
                level, alone, x, never[:n], 0.0, target, deviation, threshold, worst, by_bytes - own
            )
            by_bytes = min(by_bytes, cost)
            for j in range(count):
                # Who takes turns still has a port.
                shift = shifts[j]
                if j > 0 and shift == shifts[j - 1]:
                    continue
                more = own + least
                cost = more + _misfit(
                    level,
                    alone,
                    x,
                    time,
                    shift,
                    target,
                    deviation,
                    threshold,
                    worst,
                    by_time - more,
                )
                by_time = min(by_time, cost)
        preference[a] = by_bytes - by_time

"""Max-min fair rates by progressive filling, kept up to date locally.

Words used below.  A *class* is all flows of one pair: they have the same rate at
any moment.  The *level* of progressive filling is the rate of all classes that
nothing has stopped yet; a resource *fills up* at its level, and the classes on
it stop there.  Every class has a *stop*: the resource that it stopped at, or its
own bound (:data:`AT_BOUND`).

What a start or a finish changes is found without filling from zero:

- Below the rate of a class that leaves, none of its resources fills up, so that
  all lower levels stay as they are.  A class that enters counts from level 0.
- Only the resources of a class whose rate changes can fill up at another level,
  and only above the lesser of its two rates.  So the level rises through a queue
  of *open* resources: at first those of the classes that enter and leave, then,
  from that level on, those of every class that stops elsewhere than before.
- A class whose stop is not open, or has not been passed by the level, keeps its
  rate and is a fixed cap to others.

Constraints are kept as seconds per byte: on every resource the sum over its
classes of flows * cost * rate is at most 1 (an entry's weight is flows * cost).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.heap_kernel import clear, first, insert, remove, update
from topocal.topo.jit import inlined

__all__ = [
    "AT_BOUND",
    "CLASS",
    "ENTRY",
    "LINE",
    "NOWHERE",
    "RESOURCE",
    "RISING",
    "fill",
    "mark_changed",
    "serve",
    "set_count",
]

RESOURCE = np.dtype(
    [
        ("key", np.float64),  # level at which to look at it: no more than where it fills up
        ("filled_at", np.float64),  # level; inf: not full
        ("candidate", np.float64),  # level at which it fills up, unless the key is stale
        ("weight", np.float64),  # of all its classes, but for rounding
        ("first", np.int64),  # its entries, as many as it has members
        ("members", np.int64),
        ("place", np.int64),
        ("stopped", np.int64),  # members in state STOPPED, in turn `turn`
        ("turn", np.int64),
        ("is_open", np.bool_),
        ("is_busier", np.bool_),  # a class on it has begun to rise
        ("is_full", np.bool_),
        ("is_stale", np.bool_),  # the key may be too low
    ],
    align=True,
)
CLASS = np.dtype(
    [
        ("rate", np.float64),
        ("cap", np.float64),  # the rate if it is kept or has stopped, else the bound
        ("bound", np.float64),
        ("stop", np.int64),
        ("state", np.int8),
        ("is_moved", np.bool_),  # it has another stop than before
        ("is_changed", np.bool_),
        ("served", np.float64),  # bytes that a flow there from the beginning would have got
        ("since", np.float64),  # when that was
        ("key", np.float64),  # when its next flow reaches a target
        ("place", np.int64),
        ("bound_column", np.int64),
        ("first", np.int64),  # its lines
        ("last", np.int64),
        ("targets", np.int64),  # its targets, so many of them
        ("waiting", np.int64),
        ("count", np.int64),  # flows that move
        ("total", np.int64),  # flows that ever will
        ("pair", np.int64),
        ("engines", np.int64),  # in-order resources that it crosses
    ],
    align=True,
)
LINE = np.dtype(  # a class on a resource, as the class sees it
    [("cost", np.float64), ("column", np.int64), ("entry", np.int64)], align=True
)
ENTRY = np.dtype(  # and as the resource sees it
    [("weight", np.float64), ("of", np.int64), ("line", np.int64)], align=True
)

AT_BOUND, NOWHERE = -1, -2
"""Stops that are no resource: the class's own bound; not stopped at all."""

_KEPT, RISING, _STOPPED = 0, 1, 2
"""What is known of a class while the level rises."""

# Less than one by more than what rounding adds to a resource's weight.
_ALMOST_ONE = 1.0 - 1e-6

# Rates closer than this are the same, so that rounding does not ripple on.
_SAME = 2e-14


@inlined
def _fill_level(
    r: int, low: float, resources: Any, entries: NDArray[np.void], classes: Any
) -> float:
    """Level from ``low`` on at which resource ``r`` fills up if no other does before."""
    begin = resources[r].first
    end = begin + resources[r].members
    level = low
    while True:
        used, rising, next_cap = 0.0, 0.0, np.inf
        for e in range(begin, end):
            c = entries[e].of
            # What stops here rises with the level; what stops elsewhere is a fixed cap.
            bound, cap, weight = classes[c].bound, classes[c].cap, entries[e].weight
            cap = bound if classes[c].stop == r else cap
            # Written without branches: which way they would go is hard to foresee.
            fixed = cap <= level
            used += weight * cap if fixed else 0.0
            rising += 0.0 if fixed else weight
            next_cap = min(next_cap, np.inf if fixed else cap)
        if rising == 0.0:
            return np.inf
        found = max(low, (1.0 - used) / rising)
        if next_cap >= found:
            return found
        level = found


@inlined
def _earliest(r: int, level: float, resources: Any) -> float:
    """Level from ``level`` on before which nothing happens at ``r``, found without a look at it."""
    if not resources[r].is_busier:
        return float(resources[r].filled_at)
    # With all its classes rising it fills up here; or it used to fill up before.
    return float(min(resources[r].filled_at, max(level, _ALMOST_ONE / resources[r].weight)))


@inlined
def fill(
    now: float,
    level: float,
    turn: int,
    moving: int,
    resources: Any,
    classes: Any,
    lines: Any,
    entries: Any,
    queue: NDArray[np.int64],
    opened: NDArray[np.int64],
    n_open: int,
    touched: NDArray[np.int64],
    n_touched: int,
    changed: NDArray[np.int64],
    n_changed: int,
) -> int:
    """Bring all rates up to date.

    Parameters
    ----------
    now
        Time, at which the bytes served so far are noted for each class that changes.
    level
        Level below which nothing changes.
    turn
        Number of the call, from 1.
    moving
        Classes with lines and flows that move.
    opened, n_open
        Open resources to begin with.
    touched, n_touched
        Classes that enter, in state RISING.
    changed, n_changed
        Classes whose count or rate has changed; added to.

    Returns
    -------
    The new ``n_changed``; -1 when there was no progress, which only numbers near
    the limits of floating point can cause.
    """
    # A number with a width: a literal would have each helper compiled once more.
    n_queued = int(np.int64(0))
    for i in range(n_touched):
        for k in range(classes[touched[i]].first, classes[touched[i]].last):
            resources[lines[k].column].is_busier = True
    for i in range(n_open):
        r = opened[i]
        if resources[r].is_busier or resources[r].filled_at < np.inf:
            resources[r].key = _earliest(r, level, resources)
            resources[r].is_stale = True
            n_queued = insert(queue, resources, n_queued, r)
    # Every step fills or passes a resource, or looks at one again because a class
    # stopped: far fewer than this.
    allowed = 64 + 16 * (len(resources) + len(classes)) * (1 + len(resources))
    while n_queued > 0 and moving > 0:
        r = first(queue, resources, n_queued)
        if resources[r].turn == turn and resources[r].stopped == resources[r].members:
            n_queued = remove(queue, resources, n_queued, r)
            continue
        level = max(level, resources[r].key)
        before = resources[r].filled_at
        if resources[r].is_stale:
            resources[r].is_stale = False
            candidate = _fill_level(r, level, resources, entries, classes)
            resources[r].candidate = candidate
            # To be looked at again when it fills up, or where it used to.
            key = candidate if candidate <= before * (1.0 + _SAME) else before
            if key > level:
                resources[r].key = key
                if key < np.inf:
                    update(queue, resources, n_queued, r)
                else:
                    n_queued = remove(queue, resources, n_queued, r)
                continue
        allowed -= 1
        if allowed < 0:
            clear(queue, resources, n_queued)
            return -1
        candidate = resources[r].candidate
        begin, end = resources[r].first, resources[r].first + resources[r].members
        if candidate > before * (1.0 + _SAME):
            # It used to fill up here and no longer does: its classes rise on, and
            # may fill up what they cross.
            resources[r].filled_at = np.inf
            for e in range(begin, end):
                c = entries[e].of
                if classes[c].state != _KEPT or classes[c].stop != r:
                    continue
                classes[c].state = RISING
                classes[c].cap = classes[c].bound
                touched[n_touched] = c
                n_touched += 1
                for k in range(classes[c].first, classes[c].last):
                    s = lines[k].column
                    resources[s].is_busier = True
                    if s == r or resources[s].is_full:
                        continue
                    resources[s].is_stale = True
                    if not resources[s].is_open:
                        resources[s].is_open = True
                        opened[n_open] = s
                        n_open += 1
                    key = _earliest(s, level, resources)
                    if resources[s].place < 0:
                        resources[s].key = key
                        n_queued = insert(queue, resources, n_queued, s)
                    elif key < resources[s].key:
                        resources[s].key = key
                        update(queue, resources, n_queued, s)
            resources[r].key = candidate
            if candidate < np.inf:
                update(queue, resources, n_queued, r)
            else:
                n_queued = remove(queue, resources, n_queued, r)
            continue
        n_queued = remove(queue, resources, n_queued, r)
        if candidate >= before * (1.0 - _SAME):
            candidate = before
        resources[r].filled_at = candidate
        resources[r].is_full = True
        for e in range(begin, end):
            c = entries[e].of
            state, old = classes[c].state, classes[c].rate
            if state == _STOPPED:
                continue
            new, stop = candidate, r
            if state == _KEPT and classes[c].stop != r:
                if old < candidate * (1.0 - _SAME):
                    continue
            elif classes[c].bound <= candidate:
                new, stop = classes[c].bound, AT_BOUND
            if abs(new - old) <= _SAME * new:
                new = old
            if state == _KEPT:
                touched[n_touched] = c
                n_touched += 1
            classes[c].state = _STOPPED
            classes[c].cap = new
            if stop != classes[c].stop:
                classes[c].stop = stop
                classes[c].is_moved = True
            moving -= 1
            for k in range(classes[c].first, classes[c].last):
                s = lines[k].column
                if resources[s].is_full:
                    continue
                if resources[s].turn != turn:
                    resources[s].turn = turn
                    resources[s].stopped = 0
                resources[s].stopped += 1
                if resources[s].is_open:
                    resources[s].is_stale = True
                elif new != old and resources[s].filled_at < np.inf:
                    # The class slows down: what it emptied may let others rise.
                    resources[s].is_open = True
                    opened[n_open] = s
                    n_open += 1
                    resources[s].is_stale = True
                    resources[s].key = resources[s].filled_at
                    n_queued = insert(queue, resources, n_queued, s)
    clear(queue, resources, n_queued)
    for i in range(n_touched):
        c = touched[i]
        if classes[c].state == RISING and classes[c].stop != AT_BOUND:
            classes[c].stop = AT_BOUND
            classes[c].is_moved = True
        classes[c].state = _KEPT
        if classes[c].cap != classes[c].rate:
            if classes[c].since < now:
                classes[c].served += classes[c].rate * (now - classes[c].since)
                classes[c].since = now
            classes[c].rate = classes[c].cap
            classes[c].is_moved = True
        if classes[c].is_moved:
            classes[c].is_moved = False
            if not classes[c].is_changed:
                classes[c].is_changed = True
                changed[n_changed] = c
                n_changed += 1
    for i in range(n_open):
        r = opened[i]
        if not resources[r].is_full:
            resources[r].filled_at = np.inf
        resources[r].is_open = False
        resources[r].is_full = False
        resources[r].is_busier = False
    return n_changed


@inlined
def mark_changed(c: int, classes: Any, changed: NDArray[np.int64], n_changed: int) -> int:
    """Put a class into ``changed``, once; its new length."""
    if not classes[c].is_changed:
        classes[c].is_changed = True
        changed[n_changed] = c
        n_changed += 1
    return n_changed


@inlined
def serve(now: float, c: int, classes: Any) -> None:
    """Note the bytes that each flow of a class has got until ``now``."""
    if classes[c].count > 0 and classes[c].since < now:
        classes[c].served += classes[c].rate * (now - classes[c].since)
    classes[c].since = now


@inlined
def set_count(c: int, count: int, resources: Any, classes: Any, lines: Any, entries: Any) -> None:
    """Let ``count`` flows of a class move: enter it, let it leave, or change its weights."""
    before = classes[c].count
    classes[c].count = count
    for k in range(classes[c].first, classes[c].last):
        r = lines[k].column
        if resources[r].members == 0:
            resources[r].weight = 0.0
        resources[r].weight += (count - before) * lines[k].cost
        if before == 0:
            e = resources[r].first + resources[r].members
            resources[r].members += 1
            entries[e].of = c
            entries[e].line = k
            lines[k].entry = e
        e = lines[k].entry
        if count > 0:
            entries[e].weight = count * lines[k].cost
            continue
        resources[r].members -= 1
        last = resources[r].first + resources[r].members
        entries[e].of = entries[last].of
        entries[e].line = entries[last].line
        entries[e].weight = entries[last].weight
        lines[entries[e].line].entry = e

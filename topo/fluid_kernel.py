"""The compiled event loop of :mod:`topocal.topo.fluid`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.filling_kernel import (
    AT_BOUND,
    NOWHERE,
    RISING,
    fill,
    mark_changed,
    serve,
    set_count,
)
from topocal.topo.heap_kernel import (
    clear,
    drop_target,
    first,
    insert,
    push_target,
    remove,
    update,
)
from topocal.topo.jit import compiled_when_long, inlined
from topocal.topo.queue_kernel import HELD, held_by, let_go, line_up
from topocal.topo.setup_kernel import prepare

__all__ = ["CHANGE", "FINISHED", "NEVER", "STUCK", "TARGET", "run"]

FINISHED, NEVER, STUCK = 0, 1, 2
"""Outcomes of a pattern: done; a resource of capacity zero is in the way; no progress."""

TARGET = np.dtype(  # bytes of its class at which a flow finishes, or releases an engine
    [("at", np.float64), ("flow", np.int64), ("column", np.int64)], align=True
)
CHANGE = np.dtype(  # what holds for all flows of a pair from a moment on
    [
        ("time_s", np.float64),
        ("rate_Bps", np.float64),
        ("pair", np.int32),
        ("flows", np.int32),
        ("stop", np.int32),
    ],
    align=True,
)

# Finishes closer than this are one event.
_AT_ONCE = 1e-14
_FINISH = -1


@inlined
def _open(
    c: int,
    full_only: bool,
    resources: Any,
    classes: Any,
    lines: Any,
    opened: NDArray[np.int64],
    n_open: int,
) -> int:
    """Open the resources of a class, or only the full ones; the new length of ``opened``."""
    for k in range(classes[c].first, classes[c].last):
        r = lines[k].column
        if not resources[r].is_open and (not full_only or resources[r].filled_at < np.inf):
            resources[r].is_open = True
            opened[n_open] = r
            n_open += 1
    return n_open


@inlined
def _enter(c: int, classes: Any, touched: NDArray[np.int64], n_entering: int) -> int:
    """Let a class rise that gets flows; the new length of ``touched``."""
    if classes[c].first == classes[c].last:
        classes[c].rate = classes[c].bound
        classes[c].stop = AT_BOUND
    elif classes[c].state != RISING:
        classes[c].state = RISING
        classes[c].cap = classes[c].bound
        touched[n_entering] = c
        n_entering += 1
    return n_entering


@inlined
def _finish(
    now: float,
    c: int,
    classes: Any,
    targets: Any,
    start: NDArray[np.float64],
    begin: NDArray[np.float64],
    held: NDArray[np.int32],
    finish: NDArray[np.float64],
    bottleneck: NDArray[np.int32],
    released: NDArray[np.int64],
    n_released: int,
) -> tuple[int, int]:
    """Deal with all targets that a class has reached.

    Returns how many flows have finished, and the new length of ``released``: flows
    that leave a line, and which (_FINISH: all).
    """
    at = classes[c].targets
    classes[c].served = targets[at].at
    classes[c].since = now
    reached = classes[c].served * (1.0 + _AT_ONCE)
    stop = _stop_column(c, classes)
    done = 0
    while classes[c].waiting > 0 and targets[at].at <= reached:
        f, column = targets[at].flow, targets[at].column
        drop_target(targets, at, classes[c].waiting)
        classes[c].waiting -= 1
        if classes[c].engines > 0:
            released[n_released, 0] = f
            released[n_released, 1] = column
            n_released += 1
        if column == _FINISH:
            done += 1
            finish[f] = now
            waited = begin[f] - start[f]
            bottleneck[f] = held[f] if waited > now - begin[f] else stop
    return done, n_released


@inlined
def _stop_column(c: int, classes: Any) -> int:
    """Column of what stops a class, -1 where nothing does."""
    stop = classes[c].stop
    return int(max(-1, classes[c].bound_column if stop == AT_BOUND else stop))


def _steps(begin_at: int, end_at: int, batch_indptr: NDArray[np.int64], *others: Any) -> int:
    """Records are slow to reach in Python: a flow's part in a resource takes a millisecond."""
    pair, indptr = others[0], others[3]
    flows = pair[batch_indptr[begin_at] : batch_indptr[end_at]]
    return int(1000 * np.diff(indptr)[flows].sum())


@compiled_when_long(_steps)
def run(
    begin_at: int,
    end_at: int,
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
    class_of: NDArray[np.int64],
    resources: Any,
    classes: Any,
    lines: Any,
    entries: Any,
    targets: Any,
    finish: NDArray[np.float64],
    begin: NDArray[np.float64],
    bottleneck: NDArray[np.int32],
    held: NDArray[np.int32],
    outcome: NDArray[np.int8],
    culprit: NDArray[np.int64],
    changes: Any,
    record: bool,
) -> tuple[Any, int]:
    """Simulate patterns ``begin_at`` to ``end_at - 1``; results go to the arrays of their flows.

    ``start`` includes alpha; ``held`` is the in-order resource that a flow found
    taken, -1 if none.  ``class_of`` is -1 everywhere; ``resources`` to
    ``targets`` are room to work in.  ``culprit[p]`` is a pair and a column where
    ``outcome[p]`` is NEVER.  Returns the changes of all rates in order of time
    (``changes``, or a larger array) and how many, where they are to be recorded.
    """
    R, C = len(resources), len(classes)
    queued = bool(np.any(in_order))
    finish_queue = np.zeros(C + 1, np.int64)
    level_queue = np.zeros(R + 1, np.int64)
    opened = np.empty(R, np.int64)
    used = np.empty(R, np.int64)
    touched = np.empty(C, np.int64)
    changed = np.empty(C, np.int64)
    head = np.zeros(R if queued else 0, np.int64)
    end = np.zeros(R if queued else 0, np.int64)
    line = np.empty(len(targets) if queued else 0, np.int64)
    released = np.empty((2 * len(targets) if queued else 0, 2), np.int64)
    ready = np.empty(R if queued else 0, np.int64)
    in_turn = np.arange(np.max(np.diff(batch_indptr[begin_at : end_at + 1])))
    # Numbers with a width: a literal would have each helper compiled once more.
    zero = int(np.int64(0))
    n_changes, turn = 0, zero
    for p in range(begin_at, end_at):
        low, high = batch_indptr[p], batch_indptr[p + 1]
        culprit[p, 0] = -1
        n, n_used = prepare(
            low,
            high,
            pair,
            size,
            indptr,
            indices,
            cost,
            sharing,
            kappa,
            in_order,
            class_of,
            resources,
            classes,
            lines,
            used,
            culprit[p],
        )
        together, alike, n_empty = True, not queued and not record, 0
        any_size = 0.0
        for f in range(low, high):
            together = together and start[f] == start[low]
            bottleneck[f] = -1
            held[f] = -1
            begin[f] = np.inf
            finish[f] = np.inf
            if size[f] == 0.0:
                begin[f] = start[f]
                finish[f] = start[f]
                n_empty += 1
            else:
                alike = alike and (any_size == 0.0 or size[f] == any_size)
                any_size = size[f]
        alike = alike and together
        order = in_turn[: high - low]
        if not together:
            order = np.argsort(start[low:high], kind="mergesort")
        if queued:
            line_up(low, order, pair, size, indptr, indices, in_order, head, end, line)
        left = high - low - n_empty
        outcome[p] = FINISHED
        if culprit[p, 0] >= 0:
            outcome[p] = NEVER
            left = 0
        n_queued, n_arrived, moving = zero, 0, zero
        while left > 0:
            while n_arrived < high - low and size[low + order[n_arrived]] == 0.0:
                n_arrived += 1
            now = np.inf
            if n_queued > 0:
                now = classes[first(finish_queue, classes, n_queued)].key
            if n_arrived < high - low:
                now = min(now, start[low + order[n_arrived]])
            if not now < np.inf:
                outcome[p] = STUCK
                break
            n_open, n_changed, n_entering, n_released, n_seen = zero, zero, zero, zero, 0
            level = np.inf
            while n_queued > 0:
                c = first(finish_queue, classes, n_queued)
                if classes[c].key > now * (1.0 + _AT_ONCE):
                    break
                n_queued = remove(finish_queue, classes, n_queued, c)
                done, n_released = _finish(
                    now,
                    c,
                    classes,
                    targets,
                    start,
                    begin,
                    held,
                    finish,
                    bottleneck,
                    released,
                    n_released,
                )
                if done > 0:
                    left -= done
                    level = min(level, classes[c].rate)
                    # Less load fills nothing up.
                    n_open = _open(c, True, resources, classes, lines, opened, n_open)
                    set_count(c, classes[c].count - done, resources, classes, lines, entries)
                    if classes[c].count == 0:
                        if classes[c].first < classes[c].last:
                            moving -= 1
                        classes[c].rate = 0.0
                        classes[c].stop = NOWHERE
                n_changed = mark_changed(c, classes, changed, n_changed)
            # Flows that arrive, or whose turn has come, begin; one that nothing holds
            # back is through at once and lets the next in line begin.
            n_ready = 0
            if alike:
                for c in range(n):
                    n_entering = _enter(c, classes, touched, n_entering)
                    set_count(c, classes[c].total, resources, classes, lines, entries)
                    n_open = _open(c, False, resources, classes, lines, opened, n_open)
                moving, level = n_entering, 0.0
            while not alike:
                if n_ready > 0:
                    n_ready -= 1
                    f = ready[n_ready]
                elif n_seen < n_released:
                    n_ready = let_go(
                        released[n_seen, 0],
                        released[n_seen, 1],
                        pair,
                        begin,
                        indptr,
                        indices,
                        in_order,
                        head,
                        end,
                        line,
                        ready,
                    )
                    n_seen += 1
                    continue
                elif n_arrived < high - low and start[low + order[n_arrived]] <= now:
                    f = low + order[n_arrived]
                    n_arrived += 1
                    if size[f] == 0.0:
                        continue
                    if queued and classes[class_of[pair[f]]].engines > 0:
                        held[f] = held_by(f, pair, indptr, indices, in_order, head, line)
                        if held[f] >= 0:
                            begin[f] = HELD
                            continue
                else:
                    break
                begin[f] = now
                c = class_of[pair[f]]
                if classes[c].first == classes[c].last and classes[c].bound == np.inf:
                    finish[f] = now
                    left -= 1
                    if classes[c].engines > 0:
                        released[n_released, 0] = f
                        released[n_released, 1] = _FINISH
                        n_released += 1
                    continue
                serve(now, c, classes)
                if classes[c].count == 0:
                    classes[c].served = 0.0
                    if classes[c].first < classes[c].last:
                        moving += 1
                n_entering = _enter(c, classes, touched, n_entering)
                level = 0.0
                set_count(c, classes[c].count + 1, resources, classes, lines, entries)
                n_open = _open(c, False, resources, classes, lines, opened, n_open)
                n_changed = mark_changed(c, classes, changed, n_changed)
                at, served = classes[c].targets, classes[c].served
                push_target(targets, at, classes[c].waiting, served + size[f], f, _FINISH)
                classes[c].waiting += 1
                if classes[c].engines > 0:
                    for k in range(indptr[pair[f]], indptr[pair[f] + 1]):
                        r = indices[k]
                        if in_order[r] and kappa[r] < 1.0:
                            reach = served + kappa[r] * size[f]
                            push_target(targets, at, classes[c].waiting, reach, f, r)
                            classes[c].waiting += 1
            if n_open > 0:
                turn += 1
                n_changed = fill(
                    now,
                    level,
                    turn,
                    moving,
                    resources,
                    classes,
                    lines,
                    entries,
                    level_queue,
                    opened,
                    n_open,
                    touched,
                    n_entering,
                    changed,
                    n_changed,
                )
                if n_changed < 0:
                    outcome[p] = STUCK
                    break
            if alike:
                # Who leaves first was fastest, so that nobody else speeds up: all keep
                # their first rates to the end.
                for f in range(low, high):
                    c = class_of[pair[f]]
                    if finish[f] == np.inf:
                        begin[f] = now
                        bottleneck[f] = _stop_column(c, classes)
                        finish[f] = now + size[f] / classes[c].rate
                break
            if record and n_changes + n_changed > len(changes):
                grown = np.empty(2 * (n_changes + n_changed), changes.dtype)
                grown[:n_changes] = changes[:n_changes]
                changes = grown
            for i in range(n_changed):
                c = changed[i]
                classes[c].is_changed = False
                if classes[c].waiting > 0:
                    ahead = targets[classes[c].targets].at - classes[c].served
                    classes[c].key = classes[c].since + max(0.0, ahead) / classes[c].rate
                    if classes[c].place >= 0:
                        update(finish_queue, classes, n_queued, c)
                    else:
                        n_queued = insert(finish_queue, classes, n_queued, c)
                if record:
                    changes[n_changes].time_s = now
                    changes[n_changes].rate_Bps = classes[c].rate
                    changes[n_changes].pair = classes[c].pair
                    changes[n_changes].flows = classes[c].count
                    changes[n_changes].stop = _stop_column(c, classes)
                    n_changes += 1
        clear(finish_queue, classes, n_queued)
        for i in range(n_used):
            r = used[i]
            resources[r].members = 0
            resources[r].is_open = False
            resources[r].is_full = False
            resources[r].is_busier = False
        for c in range(n):
            class_of[classes[c].pair] = -1
    return changes, n_changes

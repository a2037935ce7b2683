"""Shares moved until the flows end together under fair sharing.

Shares whose busiest resource is the least possible may still finish later than that: a
resource idles while the flows that need it wait elsewhere.  From several starts, the best
first, a part of a group's bytes goes from one holder to another wherever that ends the whole
sooner; parts shrink until nothing helps.  What the search may spend is counted in simulated flows,
not timed, so that it always finds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.policy.choice import Choice
from topocal.solve.policy.judge import Judge, effort

__all__ = ["settle"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CLOSE: Final = 2e-3
"""A finish this near to the bound, relative, is near enough."""

_LARGEST_STEP: Final = 0.25
_SMALLEST_STEP: Final = 1e-3
"""Parts of a group's bytes that change holders."""

_SPEND: Final = 500_000
"""Effort of the judge: a fraction of a second."""

_LATE: Final = 1e-3
"""Flows that end this near to the last one, relative, are late."""

_BETTER: Final = 1e-9


def settle(
    choice: Choice, judge: Judge, starts: Sequence[Floats], bound_s: float
) -> tuple[Floats, float]:
    """The best shares found, and their finish.

    Parameters
    ----------
    starts
        Shape (E,) each, in order of preference where they are equally good.
    bound_s
        No shares finish sooner.
    """
    limit = judge.spent + _SPEND
    enough_s = bound_s * (1.0 + CLOSE)
    _, seconds = judge.race([choice.bytes_of(shares) for shares in starts], enough_s=enough_s)
    best = int(np.argmin(seconds))
    found, least = starts[best], float(seconds[best])
    for k in np.argsort(seconds, kind="stable").tolist():
        if least <= enough_s or not np.isfinite(seconds[k]):
            break
        shares, finish = _descended(choice, judge, starts[k], float(seconds[k]), bound_s, limit)
        if finish < least * (1.0 - _BETTER):
            found, least = shares, finish
    return found, least


def _descended(
    choice: Choice, judge: Judge, shares: Floats, finish: float, bound_s: float, limit: int
) -> tuple[Floats, float]:
    """From one start to where nothing helps, or the effort is spent."""
    step = _LARGEST_STEP
    flows = int(np.count_nonzero(choice.bytes_of(shares)))
    holders = np.diff(choice.start)
    while step >= _SMALLEST_STEP and finish > bound_s * (1.0 + CLOSE):
        moved = False
        for group in _groups_to_try(choice, judge, shares).tolist():
            tries = int(holders[group]) * (int(holders[group]) - 1)
            if judge.spent + tries * effort(flows) > limit:
                return shares, finish
            better = _best_move(choice, judge, shares, group, step, finish)
            if better is not None:
                shares, finish = better
                moved = True
        if not moved:
            step /= 2.0
    return shares, finish


def _groups_to_try(choice: Choice, judge: Judge, shares: Floats) -> Ints:
    """Groups of late flows, then those that share a resource with one."""
    _, finish = judge.finishes_s(choice.bytes_of(shares)[None, :])
    late = finish[0] >= finish.max() * (1.0 - _LATE)
    touched = (choice.cost_s @ late.astype(np.float64)) > 0
    near = (choice.cost_s.T @ touched.astype(np.float64)) > 0
    used = shares > 0
    first = np.unique(choice.entry_group[used & late[choice.entry_pair]])
    more = np.unique(choice.entry_group[used & near[choice.entry_pair]])
    return np.concatenate((first, more[~np.isin(more, first)]))


def _best_move(
    choice: Choice, judge: Judge, shares: Floats, group: int, step: float, finish: float
) -> tuple[Floats, float] | None:
    """The best change of holder of a part of one group, ``None`` where none ends sooner."""
    begin, end = int(choice.start[group]), int(choice.start[group + 1])
    moves = [
        (a, b) for a in range(begin, end) if shares[a] > 0 for b in range(begin, end) if a != b
    ]
    tried = np.repeat(shares[None, :], len(moves), axis=0)
    for row, (a, b) in enumerate(moves):
        part = min(step, float(shares[a]))
        tried[row, a] -= part
        tried[row, b] += part
    seconds, _ = judge.finishes_s(np.array([choice.bytes_of(row) for row in tried]))
    if not len(seconds) or seconds.min() >= finish * (1.0 - _BETTER):
        return None
    best = int(np.argmax(seconds <= seconds.min() * (1.0 + _BETTER)))
    return tried[best], float(seconds[best])

"""Whole regions where there are few: the mixed-integer program.

Requests of one group and size are alike, so that the unknowns are numbers of requests by
group, size and holder.  The search is limited by nodes, never by time: a clock would make
ranks disagree.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from topocal.solve.integer import solve_integer
from topocal.solve.modeller import cvxpy
from topocal.solve.policy.choice import Choice
from topocal.solve.policy.rounding import Regions
from topocal.topo.errors import SolverError

__all__ = ["least_busy_whole"]

Ints = NDArray[np.int64]

MOST_UNKNOWNS: Final = 600
"""Where the program is still solved in a fraction of a second, most often at its root."""

_OPTIONS: Final = {"parallel": "off", "mip_max_nodes": 100, "random_seed": 0}
_PATIENCE_S: Final = 3600.0
_TOO_LONG: Final = 1e4
_GAP: Final = 1e-3


def least_busy_whole(choice: Choice, regions: Regions) -> Ints | None:
    """Shape (M,): the entries of least busiest time; ``None`` where the program is too large.

    Also ``None`` where the search ends without a solution.
    """
    if not len(regions.row):
        return None
    keys = np.stack((regions.group, regions.size.astype(np.int64)), axis=1)
    kinds, kind_of, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    kind_of = kind_of.ravel()
    lengths = np.diff(choice.start)[kinds[:, 0]]
    if int(lengths.sum()) > MOST_UNKNOWNS:
        return None
    cp = cvxpy()

    kind = np.repeat(np.arange(len(kinds)), lengths)
    first = np.repeat(np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    entry = choice.start[kinds[kind, 0]] + np.arange(len(kind)) - first
    unit_s = min(choice.busiest_s(choice.even), choice.busiest_s(choice.quickest))
    if unit_s <= 0:
        return None
    size = kinds[kind, 1].astype(np.float64)
    matrix = choice.cost_s.tocsc()[:, choice.entry_pair[entry]]
    matrix = csr_array(matrix @ diags_array(size / unit_s))
    # One region there already takes too long: the program need not know how much too long.
    matrix.data = np.minimum(matrix.data, _TOO_LONG)
    fixed = choice.cost_s @ choice.fixed_bytes / unit_s
    used = np.flatnonzero((np.diff(matrix.indptr) > 0) | (fixed > 0))
    sums = csr_array((np.ones(len(kind)), (kind, np.arange(len(kind)))))
    number, busiest = cp.Variable(len(kind), integer=True), cp.Variable()
    problem = cp.Problem(
        cp.Minimize(busiest),
        [
            matrix[used] @ number + fixed[used] <= busiest,
            sums @ number == count.astype(np.float64),
            number >= 0,
        ],
    )
    try:
        outcome = solve_integer(
            problem, "whole regions", time_limit_s=_PATIENCE_S, gap=_GAP, options=_OPTIONS
        )
    except SolverError:
        # The rounded shares stand in for it.
        return None
    if outcome.objective is None:
        return None
    return _held(np.round(np.asarray(number.value)).astype(np.int64), kind, entry, kind_of)


def _held(number: Ints, kind: Ints, entry: Ints, kind_of: Ints) -> Ints | None:
    """Requests of each kind in their order, the lowest holder's first."""
    held = np.zeros(len(kind_of), dtype=np.int64)
    by_kind = np.argsort(kind_of, kind="stable")
    ends = np.searchsorted(kind_of[by_kind], np.arange(kind[-1] + 2))
    for k in range(int(kind[-1]) + 1):
        mine = kind == k
        wanted = np.repeat(entry[mine], np.maximum(number[mine], 0))
        if len(wanted) != ends[k + 1] - ends[k]:
            return None
        held[by_kind[ends[k] : ends[k + 1]]] = wanted
    return held

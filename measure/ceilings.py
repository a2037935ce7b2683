"""How far a resource can be ahead of everything else, whatever runs: proofs, not searches.

For any weights w_s >= 0 with

    cost of r  <=  sum over other classes s of w_s * cost of s      on every pair,

every pattern keeps r at most (sum of w_s) times as busy as the busiest of the others.
One class that all pairs of r cross gives the simplest such proof
(:func:`dominated`); the limits at the sending ends, or
at the receiving ends, give another; the dual of a linear program gives the best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.measure import ceilings_kernel
from topocal.measure.crossings import CAPACITY, FATPIPE, TIME_SHARED

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings

__all__ = ["Feeding", "Fractional", "best_subset", "dominated", "feeding", "fractional"]

_MOST_SUBSETS_OF: Final = 12
"""Of up to so many pairs, every subset is tried: 4095 patterns."""

_LARGEST_PROGRAM: Final = 50_000
"""Loads in a linear program; more would take seconds."""

_TOLERANCE: Final = 1e-7


@dataclass(frozen=True, eq=False)
class Fractional:
    """Flows of any amounts that put a class furthest ahead.

    Attributes
    ----------
    flows
        Amount on each pair that crosses the class.
    ceiling
        How far ahead at most, proven.
    weights
        The proof: ``{class: w_s}``.
    """

    flows: NDArray[np.float64]
    ceiling: float
    weights: dict[int, float]


@dataclass(frozen=True, eq=False)
class Feeding:
    """What all flows through a class cross on their way, at one end or another.

    Attributes
    ----------
    ceiling
        How far ahead of the busiest of them the class can be.
    classes
        Which they are, the greatest contribution first.
    """

    ceiling: float
    classes: tuple[int, ...]


def _submatrix(crossings: Crossings, target: int) -> tuple[csr_array, NDArray[np.float64]]:
    """Costs of the pairs that cross the target: on all other classes, and on the target."""
    c = crossings
    matrix = csr_array((c.cost_s, c.indices, c.indptr), shape=(c.pairs, c.classes))
    part = csr_array(matrix[c.rows_of(target)])
    mine = part[:, [target]].toarray()[:, 0]
    return part, mine


def best_subset(crossings: Crossings, target: int) -> tuple[tuple[int, ...], float] | None:
    """The best pattern of all, by trying every one; ``None`` where there are too many.

    Of equally good ones, one of the fewest flows.
    """
    rows = crossings.rows_of(target)
    k = len(rows)
    if k > _MOST_SUBSETS_OF:
        return None
    part, _ = _submatrix(crossings, target)
    columns = np.unique(part.indices)
    dense = part[:, columns].toarray()
    law, kappa = crossings.law[columns], crossings.kappa[columns]
    member = (np.arange(1, 2**k)[:, None] >> np.arange(k)) & 1
    load = member @ dense
    crossed = member @ (dense > 0)
    pipes = np.flatnonzero(law == FATPIPE)
    for at in pipes.tolist():
        load[:, at] = (member * dense[:, at]).max(axis=1)
    timed = law == TIME_SHARED
    load[:, timed] = np.where(crossed[:, timed] >= 2, load[:, timed] * kappa[timed], 0.0)
    mine = load[:, columns == target][:, 0]
    rivals = load[:, columns != target].max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rivals > 0, mine / rivals, np.where(mine > 0, np.inf, 0.0))
    top = ratio.max()
    good = np.flatnonzero(ratio >= top * (1 - 1e-12))
    at = int(good[np.argmin(member[good].sum(axis=1))])
    return tuple(rows[member[at] == 1].tolist()), float(ratio[at])


def fractional(crossings: Crossings, target: int) -> Fractional | None:
    """The best pattern of flows of any amount, with its proof.

    Limits on each flow and time-shared resources are left out, so that the ceiling may be
    higher than what is possible, never lower.  ``None`` where the program is too large or
    its answer does not stand the check.
    """
    c = crossings
    if c.law[target] == FATPIPE:
        return None
    # Rows of the matrix are long or short alike: look at the size before cutting it out.
    rows = c.rows_of(target)
    if int(np.diff(c.indptr)[rows].sum()) > _LARGEST_PROGRAM:
        return None
    part, mine = _submatrix(c, target)
    others = np.unique(part.indices)
    others = others[(others != target) & (c.law[others] == CAPACITY)]
    others = others[np.asarray(part[:, others].sum(axis=0)).ravel() > 0]
    if not len(others):
        return None
    limits = csr_array(part[:, others].T)
    # In units of the target's own time, so that all numbers are of the order of one.
    scale = float(mine.max())
    if scale <= 0:
        return None
    return _solved(csr_array(limits / scale), mine / scale, others)


def _solved(
    limits: csr_array, mine: NDArray[np.float64], others: NDArray[np.int32]
) -> Fractional | None:
    from scipy import optimize

    # Its published types know no sparse matrices.
    linprog: Callable[..., Any] = optimize.linprog
    free = np.asarray(limits.sum(axis=0)).ravel() <= 0
    if free.any():
        return None
    answer = linprog(-mine, A_ub=limits, b_ub=np.ones(len(others)))
    if answer.status != 0 or answer.x is None:
        return None
    flows = np.maximum(answer.x, 0.0)
    weights = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    busiest = float((limits @ flows).max())
    covered = limits.T @ weights
    if busiest <= 0 or flows.max() <= 0:
        return None
    # The proof must hold on every pair: stretch it by what rounding left out.
    lacking = float((mine / covered).max()) if (covered > 0).all() else np.inf
    if not lacking < 1 + 1e3 * _TOLERANCE or busiest > 1 + 1e3 * _TOLERANCE:
        return None
    weights *= max(1.0, lacking)
    named = {int(s): float(w) for s, w in zip(others, weights, strict=True) if w > _TOLERANCE}
    return Fractional(flows, float(weights.sum()), named)


def feeding(crossings: Crossings, target: int) -> Feeding | None:
    """The proof by what the sending ends, or the receiving ends, can pass.

    Each end counts with the one class that bounds all its flows through the target best;
    a class that several ends have in common counts once.
    """
    c = crossings
    if c.law[target] != CAPACITY:
        return None
    rows = c.rows_of(target)
    by_destination = rows[np.argsort(c.destination[rows], kind="stable")]
    found: Feeding | None = None
    for ordered, ends in ((rows, c.source), (by_destination, c.destination)):
        share = np.zeros(c.classes)
        if ceilings_kernel.feeders(
            target, ordered, ends[ordered], c.indptr, c.indices, c.cost_s, c.law, share
        ):
            classes = np.flatnonzero(share)
            total = float(share.sum())
            if found is None or total < found.ceiling:
                ranked = classes[np.lexsort((classes, -share[classes]))]
                found = Feeding(total, tuple(ranked.tolist()))
    return found


def dominated(crossings: Crossings) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Per class: the one class that bounds it best, -1 where none does, and how far ahead
    of that it can be."""
    c = crossings
    by, ceiling = np.empty(c.classes, dtype=np.int32), np.empty(c.classes)
    ceilings_kernel.dominators(
        c.column_indptr, c.column_rows, c.indptr, c.indices, c.cost_s, c.law, by, ceiling
    )
    return by, ceiling

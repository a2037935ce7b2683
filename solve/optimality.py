"""How good a fit can be at all: two certificates that need no trust in the fitter.

A system of scenarios says ``y_s = max over r of (a_sr + x_r)`` in logs.  No fit of
measured data satisfies it exactly; how near can any come?

The largest error, in closed form
---------------------------------
Let ``h_r = min over s of (y_s - a_sr)``, the slowest that every scenario allows
(residuation), ``c_s = max over r of (a_sr + h_r)`` the prediction there, and
``D = max over s of (y_s - c_s)`` the largest deficit.  Then no x misses every scenario
by less than D / 2, and ``x = h + D / 2`` misses none by more.

*Proof.*  If all errors of x are at most e then ``a_sr + x_r <= y_s + e`` for all s and r,
so ``x <= h + e``, so the prediction of x is at most ``c + e``.  In the scenario of the
largest deficit it must reach ``y_s - e``, hence ``D <= 2 e``.  Conversely the prediction of
``h + D/2`` is ``c + D/2``, which lies between ``y - D/2`` and ``y + D/2`` since
``y - D <= c <= y``.  (Cuninghame-Green 1979.)

Times that are known and not fitted, such as those of time-shared receivers whose
senders' times are given, enter as a floor ``b_s``: the prediction is
``max(b_s, a_sr + x_r …)``.  By the same argument the least error is the largest over s of
``max(b_s - y_s, min(y_s - b_s, (y_s - c_s) / 2), 0)``.

The witness is one scenario and, for each resource it loads, the scenario that says the
resource is no slower: those figures contradict each other whatever the capacities.

The sum of errors, by a mixed-integer program
---------------------------------------------
The fit of least ``sum |y - prediction|`` has a yes-or-no for every (scenario, resource):
is it the busiest?  :mod:`topocal.solve.l1_presolve` decides most, HiGHS the others
(:mod:`topocal.solve.l1_program`), under a time limit.  What comes back is a lower bound
for any x that misses no scenario by more than epsilon; solutions that miss one by more
are not covered, and the result says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.integer import ProgramStatus, relative_gap
from topocal.solve.l1_presolve import groups_of, reduce
from topocal.solve.l1_program import Search
from topocal.topo.errors import InputError, SolverError

__all__ = [
    "EPSILON_FACTOR",
    "L1Certificate",
    "LargestError",
    "certify_l1",
    "least_largest_error",
    "predicted_log_seconds",
]

EPSILON_FACTOR: Final = 1.25
"""Default epsilon, in units of the largest error of the fit at hand: wide enough for fits
that trade one scenario for others, and the search slows down steeply beyond (on the same
155 scenarios 0.3 s at 1.05, 2 s at 1.5, 4 s at 2.5)."""

LEAST_EPSILON: Final = 0.01
"""Default epsilon at least, so that a perfect fit is compared with something."""

OPTIMAL_GAP: Final = 1e-4
"""A fit whose sum of errors is within this of the bound counts as optimal."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LargestError:
    """The least that the largest error of any fit can be, and why.

    Attributes
    ----------
    error
        Least possible largest |log error|.
    x
        Log seconds per byte that reach it, shape (R,); +inf for resources that nothing loads.
    scenario
        The scenario that no x explains better.
    held_by
        ``(resource, scenario)``: for each resource that ``scenario`` loads, the scenario that
        says it is no slower. Empty where a floor alone is the reason.
    """

    error: float
    x: Floats
    scenario: int
    held_by: tuple[tuple[int, int], ...]

    def sentence(self, scenarios: Sequence[str], resources: Sequence[str]) -> str:
        """The proof in words."""
        least = f"every fit misses some scenario by {math.expm1(self.error):.1%} or more"
        if self.error <= 0:
            return "some capacities explain every scenario exactly"
        name = scenarios[self.scenario]
        if not self.held_by:
            return f"{least}: the time-shared resources of {name} alone say another time"
        why = "; ".join(f"{resources[r]} by {scenarios[s]}" for r, s in self.held_by[:_MOST_NAMED])
        more = len(self.held_by) - _MOST_NAMED
        why += f"; and {more} more" if more > 0 else ""
        return f"{least}: {name} took longer than all that it loads is allowed to take ({why})"


_MOST_NAMED: Final = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class L1Certificate:
    """How near the least possible sum of errors a fit is.

    Attributes
    ----------
    status
        ``optimal`` when the search has ended: the bound is the least sum there is;
        ``feasible`` when time ran out.
    objective
        Weighted sum of |log error| of the fit at hand.
    best_objective, best_x
        The best fit that is known after the search; the one at hand where none is better.
    bound
        No fit within epsilon has a lower sum.
    epsilon
        The bound speaks of fits that miss no scenario by more than this (log).
    conditional
        Whether fits exist that epsilon excludes and the bound does not cover; false where a
        single error of epsilon already costs more than the whole fit.
    decisions
        Yes-or-nos that were left for the solver.
    seconds
        Wall time in all.
    """

    status: ProgramStatus
    objective: float
    best_objective: float
    best_x: Floats
    bound: float
    epsilon: float
    conditional: bool
    decisions: int
    seconds: float

    @property
    def gap(self) -> float:
        """How far the fit may be from the best one, relative to its own sum of errors."""
        return relative_gap(self.objective, self.bound)

    @property
    def is_optimal(self) -> bool:
        """Whether the fit is proven best, to :data:`OPTIMAL_GAP`."""
        return self.gap <= OPTIMAL_GAP

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        terms = (
            f" (conditional on no scenario being missed by more than "
            f"{math.expm1(self.epsilon):.0%})"
            if self.conditional
            else ""
        )
        if self.is_optimal:
            return f"no capacities have a smaller sum of errors{terms}"
        if self.status is ProgramStatus.OPTIMAL:
            return f"other capacities have a sum of errors {self.gap:.1%} smaller{terms}"
        return (
            f"no capacities have a sum of errors more than {self.gap:.1%} smaller{terms}; "
            f"time ran out after {self.seconds:.0f} s"
        )


def predicted_log_seconds(log_load: csr_array, x: Floats, floor: Floats | None = None) -> Floats:
    """``max(b_s, max_r (a_sr + x_r))`` of every scenario; -inf where nothing is loaded."""
    entries = log_load.tocoo()
    reached = np.full(log_load.shape[0], -np.inf) if floor is None else floor.astype(float)
    np.maximum.at(reached, entries.coords[0], entries.data + x[entries.coords[1]])
    return reached


def least_largest_error(
    log_load: csr_array, log_seconds: Floats, floor: Floats | None = None
) -> LargestError:
    """The exact optimum of the largest error, with its witness.

    Parameters
    ----------
    log_load
        Shape (S, R): log of the bytes; a stored zero is a load of one byte.
    log_seconds
        Shape (S,).
    floor
        Shape (S,): log of times that are given, such as those of time-shared resources; -inf
        where there is none.

    Raises
    ------
    InputError
        When figures are not finite, or a scenario loads nothing.
    """
    y = np.asarray(log_seconds, dtype=np.float64)
    _check(log_load, y, floor)
    entries = log_load.tocoo()
    row, column = entries.coords
    slowest = np.full(log_load.shape[1], np.inf)
    np.minimum.at(slowest, column, y[row] - entries.data)
    reached = predicted_log_seconds(log_load, np.where(np.isfinite(slowest), slowest, -np.inf))
    need = (y - reached) / 2
    if floor is not None:
        need = np.maximum(floor - y, np.minimum(y - floor, need))
    need = np.maximum(need, 0.0)
    scenario = int(np.argmax(need))
    error = float(need[scenario])
    too_long = floor is not None and error > 0 and floor[scenario] - y[scenario] >= error
    held = () if too_long else _held_by(log_load, y, slowest, scenario)
    return LargestError(error=error, x=slowest + error, scenario=scenario, held_by=held)


def _held_by(
    log_load: csr_array, y: Floats, slowest: Floats, scenario: int
) -> tuple[tuple[int, int], ...]:
    """For each resource of a scenario, the first scenario that says it is no slower."""
    entries = log_load.tocoo()
    row, column = entries.coords
    found = {}
    for r in column[row == scenario]:
        mine = column == r
        at = int(np.argmin(y[row[mine]] - entries.data[mine] - slowest[r]))
        found[int(r)] = int(row[mine][at])
    return tuple(sorted(found.items()))


def certify_l1(
    log_load: csr_array,
    log_seconds: Floats,
    x: Floats,
    *,
    weight: Floats | None = None,
    epsilon: float | None = None,
    time_limit_s: float = 10.0,
) -> L1Certificate:
    """How far the fit ``x`` may be from the least sum of errors.

    Parameters
    ----------
    log_load, log_seconds
        As in :func:`least_largest_error`.
    x
        Shape (R,): log seconds per byte; -inf is a resource that never binds.
    weight
        Shape (S,): what a unit of error costs at each scenario; default one.
    epsilon
        Fits that miss some scenario by more (log) are left out of the comparison; at least
        the largest error of ``x``.  Default: :data:`EPSILON_FACTOR` times that.
    time_limit_s
        Wall time for all; at least what the closed forms prove is always returned.

    Raises
    ------
    InputError
        When figures are not finite, a scenario loads nothing, or epsilon is below the
        largest error of ``x``.
    SolverError
        When the solver returns what is no solution.
    """
    begin = time.perf_counter()
    y = np.asarray(log_seconds, dtype=np.float64)
    _check(log_load, y, None)
    cost = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    if not (np.isfinite(cost).all() and (cost > 0).all()):
        raise InputError("a weight is not a finite number above zero", about=cost)
    error = np.abs(predicted_log_seconds(log_load, x) - y)
    if not np.isfinite(error).all():
        raise InputError("the fit leaves a scenario unexplained", about=x)
    objective = float(cost @ error)
    largest = float(error.max(initial=0.0))
    if epsilon is None:
        epsilon = max(EPSILON_FACTOR * largest, LEAST_EPSILON)
    elif not (math.isfinite(epsilon) and epsilon >= largest):
        raise InputError(
            f"epsilon {epsilon:g} is below the largest error of the fit, {largest:.3g}",
            remedy="give at least that much",
        )
    reduced = reduce(groups_of(log_load, y, cost), x, epsilon)
    search = Search(reduced, x, begin + time_limit_s)
    bound, ended, best_x = search.run()
    best = float(cost @ np.abs(predicted_log_seconds(log_load, best_x) - y))
    if ended and best > bound + OPTIMAL_GAP * max(1.0, objective):
        raise SolverError(
            f"the solver's sum of errors {bound:g} comes out as {best:g} when evaluated",
            about=best_x,
        )
    if best >= objective:
        best, best_x = objective, np.array(x, dtype=np.float64)
    return L1Certificate(
        status=ProgramStatus.OPTIMAL if ended else ProgramStatus.FEASIBLE,
        objective=objective,
        best_objective=best,
        best_x=best_x,
        bound=min(bound, best),
        epsilon=epsilon,
        conditional=bool(epsilon * cost.min(initial=math.inf) < objective),
        decisions=search.decisions,
        seconds=time.perf_counter() - begin,
    )


def _check(log_load: csr_array, y: Floats, floor: Floats | None) -> None:
    if not (len(y) and log_load.shape[0] == len(y)):
        raise InputError("there are no scenarios, or not one row for each", about=log_load)
    if not (np.isfinite(y).all() and np.isfinite(log_load.data).all()):
        raise InputError("a time or a load is not finite", about=log_load)
    loaded = np.diff(csr_array(log_load).indptr) > 0
    if floor is not None:
        loaded = loaded | np.isfinite(floor)
    if not loaded.all():
        raise InputError(
            f"scenario {int(np.argmin(loaded))} loads no resource",
            remedy="leave it out",
        )

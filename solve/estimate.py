"""The capacities that explain the observations best.

Cost: Huber loss of the log error in units of each observation's standard error, so that
a single bad one pulls no harder than one at the threshold; plus a weak pull of every x to
its prior (nominal capacity where known, otherwise the slowest value that the data
allows), which decides what no observation decides.

The predicted log time of an observation is a maximum of smooth functions, most of them
linear with slope one in a single unknown.  Given which rows bind, least squares is nearly
diagonal; so the fit alternates: rows that come within a fraction of the noise of the
busiest share the observation (soft assignment, the fraction shrinking), the Huber weights
are renewed, a diagonal step is taken (:mod:`topocal.solve.fitting_kernel`) and halved until
the true cost falls; where time-shared rows couple the unknowns, sparse Gauss-Newton steps
follow.  Small instances are then finished by :mod:`topocal.solve.polish`, a convex program that no
tie can stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from topocal.solve.coordinate_kernel import sweep
from topocal.solve.fitting_kernel import gather
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest
from topocal.solve.rows_kernel import largest_of_column

__all__ = [
    "HUBER",
    "LEAST_KAPPA",
    "LEAST_LOG_KAPPA",
    "Cost",
    "Estimate",
    "estimate",
    "huber",
    "largest_sigma",
    "predict_log_seconds",
]

HUBER: Final = 1.345
"""Threshold in noise units: 95 % efficient on Gaussian noise (Huber 1981, table 4.1)."""

PRIOR_UNIT: Final = 0.03
"""Distances from a specification count in units of the noise, but of 3 % at least: machines
reach 70 to 100 % of what is specified, and such a distance must not cost as much as supposing
a resource that nobody specified."""

PRIOR: Final = 0.3
"""Pull to a nominal capacity, per unit: of what is measured it moves one observation by 0.15
deviations at most, n of them by n times less."""

LEANING: Final = 1e-2
"""Pull to the slowest value that the data allows, where no specification gives one: only what
no observation decides feels it."""

UNEXPLAINED: Final = 1e6
"""Misfit, in noise units, that an observation without any fitted resource counts."""

SOFTNESS: Final = (1.0, 0.3, 0.1)
"""Widths of the soft assignment, in noise units, one after the other."""

PROOF_SIGMAS: Final = 3.0
"""Deviations by which a figure that bounds a capacity may itself be off."""

MOST_STEPS: Final = 40
MOST_SWEEPS: Final = 4
DOUBT: Final = 2.5
"""Deviations from which an observation is badly met."""

LEAST_KAPPA: Final = 0.85
"""Least overlap factor that still is time-sharing: below it a fan of unlike senders hardly
differs from one that shares bytes (published: 0.98)."""
LEAST_LOG_KAPPA: Final = math.log(LEAST_KAPPA)

LEAST_GAIN: Final = 1e-5
"""Relative fall of the cost below which a stage ends; the soft ones only lead the way."""
SHORTEST_STEP: Final = 1e-3


Step: TypeAlias = Callable[
    [NDArray[np.float64], NDArray[np.float64], float],
    tuple[NDArray[np.float64], NDArray[np.float64]],
]
"""From a point and a softness to steps of the fitted x and of log kappa."""

_NO_ENGINES: Final = (np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Estimate:
    """A fit.

    Attributes
    ----------
    x
        Log seconds per byte of every capacity, shape (R,); -inf where no observation
        loads it and no nominal value is known.
    log_kappa
        Log overlap factor of time-shared receivers and of time-shared senders.
    log_predicted
        Log seconds of each observation by the fitted resources alone, shape (S,); -inf
        where none of them carries it.
    objective
        Value of the cost.
    """

    x: NDArray[np.float64]
    log_kappa: NDArray[np.float64]
    log_predicted: NDArray[np.float64]
    objective: float


def huber(error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Huber loss of errors in noise units, as cvxpy defines it (square up to the threshold).

    An observation that nothing in the fit carries has an infinite error; it costs
    what :data:`UNEXPLAINED` does, which no finite misfit does.
    """
    size = np.minimum(np.abs(error), UNEXPLAINED)
    return np.asarray(np.where(size <= HUBER, size**2, 2 * HUBER * size - HUBER**2))


def largest_sigma(rows: Rows) -> NDArray[np.float64]:
    """Shape (R,): the largest standard error among the observations of each resource."""
    load, found = rows.log_load, np.zeros(rows.log_load.shape[1])
    largest_of_column(load.indptr, load.indices, rows.sigma, found)
    return found


def predict_log_seconds(
    rows: Rows, x: NDArray[np.float64], log_kappa: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log seconds of each observation: its busiest row."""
    predicted = rows.highest(x)
    if len(rows.shared):
        busy, _ = rows.shared.busy(rows.solo(x), log_kappa)
        np.maximum.at(predicted, rows.shared.row, busy)
    return predicted


class Cost:
    """The objective, as a function of the fitted columns of x and of log kappa."""

    def __init__(self, rows: Rows, fitted: NDArray[np.bool_], prior: NDArray[np.float64]) -> None:
        bound = upper_bounds(rows)
        known = np.isfinite(prior)
        pull_to = np.where(known, np.minimum(prior, bound), bound)
        self.rows = rows
        self.fitted = fitted
        self.columns = np.flatnonzero(fitted)
        self.place = np.cumsum(fitted) - 1
        self.pull_to = pull_to[self.columns]
        self.pull = np.where(known, PRIOR, LEANING)[self.columns]
        # No resource is busy for longer than a pattern took: what the data proves, the fit
        # must not break, up to the noise of the figure that proves it.
        self.limit = bound + PROOF_SIGMAS * largest_sigma(rows)
        self.unit = max(PRIOR_UNIT, float(np.median(rows.sigma))) if len(rows.sigma) else 1.0
        self._last: tuple[NDArray[np.float64], ...] | None = None

    @cached_property
    def by_column(self) -> csc_array:
        """The loads of ``rows``, column after column."""
        return csc_array(self.rows.log_load.tocsc())

    def __call__(self, x: NDArray[np.float64], log_kappa: NDArray[np.float64]) -> float:
        """The cost at a point."""
        predicted = self.rows.highest(x)
        if len(self.rows.shared):
            busy, _ = self.engines_at(x, log_kappa)
            np.maximum.at(predicted, self.rows.shared.row, busy)
        error = (predicted - self.rows.log_seconds) / self.rows.sigma
        away = np.abs(x[self.columns] - self.pull_to) / self.unit
        return float(huber(error).sum() + (self.pull * away).sum())

    def engines_at(
        self, x: NDArray[np.float64], log_kappa: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log busy seconds of the time-shared rows, and their flows' shares.

        Steps are taken from where the cost was asked for last: that is kept, so neither
        array may be changed once it was given here.
        """
        if self._last is None or self._last[0] is not x or self._last[1] is not log_kappa:
            busy, shares = self.rows.shared.busy(self.rows.solo(x), log_kappa)
            self._last = (x, log_kappa, busy, shares)
        return self._last[2], self._last[3]

    def descend(
        self,
        x: NDArray[np.float64],
        log_kappa: NDArray[np.float64],
        step: NDArray[np.float64],
        step_kappa: NDArray[np.float64],
        best: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """The longest of the halved steps that lowers the cost; where it stands, and the cost.

        Returns the point itself when none does.
        """
        fraction = 1.0
        while fraction >= SHORTEST_STEP:
            new_x = x.copy()
            new_x[self.columns] += fraction * step
            new_x[self.columns] = np.minimum(new_x, self.limit)[self.columns]
            new_kappa = np.clip(log_kappa + fraction * step_kappa, LEAST_LOG_KAPPA, 0.0)
            value = self(new_x, new_kappa)
            if value < best:
                return new_x, new_kappa, value
            fraction /= 2
        return x, log_kappa, best

    def pull_stiffness(self, away: NDArray[np.float64]) -> NDArray[np.float64]:
        """The pull |away| as a quadratic that touches it where it stands, stiff near zero."""
        return np.asarray(self.pull / self.unit / np.maximum(2 * np.abs(away), self.unit))

    def engine_slopes(self, x: NDArray[np.float64], shares: NDArray[np.float64]) -> csr_array:
        """Slope in the fitted x of every time-shared row, shape (K, fitted)."""
        rows, shared = self.rows, self.rows.shared
        binding = first_busiest(rows.pair_weight, x)[shared.pair]
        inside = binding >= 0
        column = self.place[rows.pair_weight.indices[binding[inside]]]
        triples = (shares[inside], (shared.owner[inside], column))
        return coo_array(triples, shape=(len(shared), len(self.columns))).tocsr()


def estimate(
    rows: Rows,
    prior: NDArray[np.float64],
    active: NDArray[np.bool_] | None = None,
    start: Estimate | None = None,
) -> Estimate:
    """Fit all capacities, and an overlap factor where receivers or senders are time-shared.

    Parameters
    ----------
    prior
        Shape (R,): log seconds per byte by specification, NaN where unknown.
    active
        Shape (R,): the resources that may explain an observation; the others are not in
        the fit and come out as the slowest that the observations allow. Default: all.
    start
        Begin here instead of at the prior.
    """
    bound = upper_bounds(rows)
    loaded = np.isfinite(bound)
    first = np.where(np.isfinite(prior), np.minimum(prior, bound), bound)
    fitted = loaded if active is None else loaded & active
    # What is not fitted never binds.
    cost = Cost(rows.only(fitted), fitted, prior)
    x, log_kappa = np.where(fitted, first, -np.inf), np.zeros(2)
    if start is not None:
        usable = fitted & np.isfinite(start.x)
        x[usable], log_kappa = np.minimum(start.x, cost.limit)[usable], start.log_kappa
    best = cost(x, log_kappa)
    if fitted.any():
        quick = _Diagonal(cost)
        for softness in SOFTNESS:
            x, log_kappa, best = _settle(cost, quick.step, x, log_kappa, best, softness)
        newton = partial(_gauss_newton, cost)
        for _ in range(MOST_SWEEPS):
            if len(rows.shared):
                x, log_kappa, best = _settle(cost, newton, x, log_kappa, best, SOFTNESS[-1])
            swept, value = _sweep(cost, x, log_kappa, best)
            if not best - value > LEAST_GAIN * max(1.0, best):
                break
            x, log_kappa, best = _settle(cost, quick.step, swept, log_kappa, value, SOFTNESS[-1])
    return _result(cost, x, log_kappa, best, first, prior, loaded)


def _sweep(
    cost: Cost, x: NDArray[np.float64], log_kappa: NDArray[np.float64], best: float
) -> tuple[NDArray[np.float64], float]:
    """Every doubtful capacity to its best value while the others stay, and the cost there.

    Steps cannot leave a point where a resource explains what another explains nearly as
    well; this can.  Doubtful is what carries a badly met observation, or stands far from
    its specification.
    """
    rows = cost.rows
    predicted = predict_log_seconds(rows, x, log_kappa)
    bad = np.abs(predicted - rows.log_seconds) > DOUBT * rows.sigma
    owner = np.repeat(np.arange(len(bad)), np.diff(rows.log_load.indptr))
    doubtful = np.bincount(
        rows.log_load.indices, weights=bad[owner].astype(float), minlength=len(x)
    ).astype(bool)
    pull_to, pull = np.zeros(len(x)), np.zeros(len(x))
    pull_to[cost.columns], pull[cost.columns] = cost.pull_to, cost.pull / cost.unit
    doubtful |= pull * np.abs(np.where(cost.fitted, x - pull_to, 0.0)) > 1.0
    wanted = np.flatnonzero(doubtful & cost.fitted)
    engine = np.full(len(bad), -np.inf)
    if len(rows.shared):
        busy, _ = rows.shared.busy(rows.solo(x), log_kappa)
        np.maximum.at(engine, rows.shared.row, busy)
        # What an engine adds up does not stay while one of its terms moves.
        binding = first_busiest(rows.pair_weight, x)[np.unique(rows.shared.pair)]
        added_up = rows.pair_weight.indices[binding[binding >= 0]]
        wanted = np.setdiff1d(wanted, added_up)
    columns = cost.by_column
    swept = x.copy()
    moved = sweep(
        wanted.astype(np.int64),
        rows.log_load.indptr,
        rows.log_load.indices,
        rows.log_load.data,
        columns.indptr,
        columns.indices,
        columns.data,
        swept,
        rows.log_seconds,
        rows.sigma,
        engine,
        pull_to,
        pull,
        cost.limit,
        HUBER,
    )
    value = cost(swept, log_kappa) if moved else best
    return (swept, value) if value < best else (x, best)


def _result(
    cost: Cost,
    x: NDArray[np.float64],
    log_kappa: NDArray[np.float64],
    best: float,
    first: NDArray[np.float64],
    prior: NDArray[np.float64],
    loaded: NDArray[np.bool_],
) -> Estimate:
    unfitted = np.where(loaded, first, np.where(np.isfinite(prior), prior, -np.inf))
    return Estimate(
        x=np.where(cost.fitted, x, unfitted),
        log_kappa=log_kappa,
        log_predicted=predict_log_seconds(cost.rows, x, log_kappa),
        objective=best,
    )


def _settle(
    cost: Cost,
    step: Step,
    x: NDArray[np.float64],
    log_kappa: NDArray[np.float64],
    best: float,
    softness: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Steps at one softness until the cost stays."""
    least = LEAST_GAIN if softness == SOFTNESS[-1] else 10 * LEAST_GAIN
    for _ in range(MOST_STEPS):
        ahead, ahead_kappa = step(x, log_kappa, softness)
        x, log_kappa, value = cost.descend(x, log_kappa, ahead, ahead_kappa, best)
        if not best - value > least * max(1.0, best):
            return x, log_kappa, value
        best = value
    return x, log_kappa, best


class _Diagonal:
    """The step by the diagonal that lies above the Gauss-Newton matrix."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        rows, shared = cost.rows, cost.rows.shared
        if (np.diff(shared.row) < 0).any():
            raise ValueError("time-shared rows must stand in order of observation")
        self._engine_ptr = np.searchsorted(shared.row, np.arange(len(rows.log_seconds) + 1))

    def step(
        self, x: NDArray[np.float64], log_kappa: NDArray[np.float64], softness: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Steps of the fitted x and of log kappa."""
        cost, rows, shared = self._cost, self._cost.rows, self._cost.rows.shared
        busy, shares = cost.engines_at(x, log_kappa) if len(shared) else _NO_ENGINES
        flow_column = np.full(len(shares), -1, dtype=np.int64)
        if len(shared):
            binding = first_busiest(rows.pair_weight, x)[shared.pair]
            inside = binding >= 0
            flow_column[inside] = rows.pair_weight.indices[binding[inside]]
        gradient, curvature = np.zeros(len(x) + 2), np.zeros(len(x) + 2)
        gather(
            rows.log_load.indptr,
            rows.log_load.indices,
            rows.log_load.data,
            x,
            rows.log_seconds,
            rows.sigma,
            softness,
            HUBER,
            self._engine_ptr.astype(np.int64),
            busy,
            shared.side.astype(np.int64),
            shared.indptr,
            flow_column,
            shares,
            gradient,
            curvature,
        )
        away = x[cost.columns] - cost.pull_to
        pull = cost.pull_stiffness(away)
        step = -(gradient[cost.columns] + pull * away) / (curvature[cost.columns] + pull)
        with np.errstate(invalid="ignore"):
            step_kappa = np.where(curvature[-2:] > 0, -gradient[-2:] / curvature[-2:], 0.0)
        return step, step_kappa


def _gauss_newton(
    cost: Cost, x: NDArray[np.float64], log_kappa: NDArray[np.float64], softness: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least-squares step on the rows that bind or nearly do."""
    rows, n = cost.rows, len(cost.columns)
    slopes, predicted = soft_slopes(cost, x, log_kappa, softness)
    carried = np.isfinite(predicted)
    error = np.where(carried, predicted - rows.log_seconds, 0.0) / rows.sigma
    size = np.abs(error)
    weight = np.where(size <= HUBER, 1.0, HUBER / np.maximum(size, HUBER)) * carried
    scaled = diags_array(np.sqrt(weight) / rows.sigma) @ slopes
    away = x[cost.columns] - cost.pull_to
    pull = cost.pull_stiffness(away)
    damping = np.concatenate((pull + 1e-9 / cost.unit**2, np.full(2, 1e-3 / cost.unit**2)))
    normal = (scaled.T @ scaled + diags_array(damping)).tocsc()
    gradient = scaled.T @ (np.sqrt(weight) * error)
    gradient[:n] += pull * away
    step = splu(normal, permc_spec="COLAMD").solve(-gradient)
    return step[:n], step[n:]


def soft_slopes(
    cost: Cost, x: NDArray[np.float64], log_kappa: NDArray[np.float64], softness: float
) -> tuple[csr_array, NDArray[np.float64]]:
    """Slope of every observation in (fitted x, log kappa), and its predicted log time.

    A softness of zero assigns each observation to its busiest row alone.
    """
    rows, n = cost.rows, len(cost.columns)
    s = len(rows.log_seconds)
    predicted = rows.highest(x)
    engine_busy, shares = rows.shared.busy(rows.solo(x), log_kappa)
    by_capacity = predicted.copy()
    np.maximum.at(predicted, rows.shared.row, engine_busy)
    first = first_busiest(rows.log_load, x)
    owner = np.repeat(np.arange(s), np.diff(rows.log_load.indptr))
    value = rows.log_load.data + x[rows.log_load.indices]
    with np.errstate(invalid="ignore"):
        if softness > 0:
            gap = (predicted[owner] - value) / (softness * rows.sigma[owner])
            near = gap < 8.0
            parts = np.exp(-gap[near])
            engine_gap = (predicted[rows.shared.row] - engine_busy) / (
                softness * rows.sigma[rows.shared.row]
            )
            engine_near = engine_gap < 8.0
            engine_part = np.where(engine_near, np.exp(-np.where(engine_near, engine_gap, 0)), 0)
        else:
            wins = (first >= 0) & (by_capacity >= predicted)
            near = np.zeros(len(value), dtype=bool)
            near[first[wins]] = True
            parts = np.ones(int(near.sum()))
            engine_part = _longest_engine(rows, engine_busy, by_capacity).astype(float)
    columns = cost.place[rows.log_load.indices[near]]
    capacity = coo_array((parts, (owner[near], columns)), shape=(s, n + 2)).tocsr()
    total = np.bincount(owner[near], weights=parts, minlength=s)
    if len(rows.shared):
        total += np.bincount(rows.shared.row, weights=engine_part, minlength=s)
        pick = coo_array(
            (engine_part, (rows.shared.row, np.arange(len(rows.shared)))),
            shape=(s, len(rows.shared)),
        ).tocsr()
        kappa = coo_array(
            (np.ones(len(rows.shared)), (np.arange(len(rows.shared)), rows.shared.side)),
            shape=(len(rows.shared), 2),
        )
        engine = cost.engine_slopes(x, shares).tocoo()
        whole = coo_array(
            (
                np.concatenate((engine.data, kappa.data)),
                (
                    np.concatenate((engine.coords[0], kappa.coords[0])),
                    np.concatenate((engine.coords[1], n + kappa.coords[1])),
                ),
            ),
            shape=(len(rows.shared), n + 2),
        ).tocsr()
        capacity = csr_array(capacity + pick @ whole)
    scale = np.where(total > 0, 1.0 / np.maximum(total, 1e-300), 0.0)
    return csr_array(diags_array(scale) @ capacity), predicted


def _longest_engine(
    rows: Rows, busy: NDArray[np.float64], by_capacity: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """The time-shared row that binds each observation which no capacity binds."""
    shared = rows.shared
    order = np.lexsort((np.arange(len(shared)), -busy, shared.row))
    leads = np.ones(len(order), dtype=bool)
    leads[1:] = np.diff(shared.row[order]) != 0
    chosen = np.zeros(len(shared), dtype=bool)
    chosen[order[leads]] = True
    return chosen & (busy > by_capacity[shared.row])

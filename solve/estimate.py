"""The capacities that explain the observations best.

What explaining costs is said in :mod:`topocal.solve.cost`.
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
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array
from scipy.sparse.linalg import SuperLU, splu

from topocal.solve.coordinate_kernel import sweep
from topocal.solve.cost import HUBER, Cost, Estimate, predict_log_seconds
from topocal.solve.fitting_kernel import gather
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest

__all__ = ["estimate", "lower", "soft_slopes"]

SOFTNESS: Final = (1.0, 0.3, 0.1)
"""Widths of the soft assignment, in noise units, one after the other."""

MOST_STEPS: Final = 40
MOST_SWEEPS: Final = 4
DOUBT: Final = 2.5
"""Deviations from which an observation is badly met."""

LEAST_GAIN: Final = 1e-5
"""Relative fall of the cost below which a stage ends; the soft ones only lead the way."""


Step: TypeAlias = Callable[
    [NDArray[np.float64], NDArray[np.float64], float],
    tuple[NDArray[np.float64], NDArray[np.float64]],
]
"""From a point and a softness to steps of the fitted x and of log kappa."""

_LARGE: Final = 2000
"""Unknowns from which an order made for symmetric matrices is worth while: of 4,600 it fills in
a quarter as much and takes a fifth of the time."""

_NO_ENGINES: Final = (np.zeros(0), np.zeros(0))


def estimate(
    rows: Rows,
    prior: NDArray[np.float64],
    active: NDArray[np.bool_] | None = None,
    start: Estimate | None = None,
    *,
    give_up: float = math.inf,
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
    give_up
        End early if the cost is still above this when every doubtful capacity was tried over
        its whole range once.
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
    x, log_kappa, best = _lowered(cost, x, log_kappa, give_up)
    return _result(cost, x, log_kappa, best, first, prior, loaded)


def lower(
    rows: Rows,
    free: NDArray[np.bool_],
    prior: NDArray[np.float64],
    x: NDArray[np.float64],
    log_kappa: NDArray[np.float64],
    *,
    steps: bool = True,
) -> tuple[float, float]:
    """The cost at a point, and the least that is found from there while some capacities move.

    Parameters
    ----------
    free
        Shape (R,): the capacities that move; some observation must load each.
    x
        Shape (R,): of all capacities; -inf for those that are not in the fit.
    steps
        Whether to look for less.
    """
    cost = Cost(rows, free, prior)
    begin = cost(x, log_kappa)
    return begin, _lowered(cost, x, log_kappa, math.inf)[2] if steps else begin


def _lowered(
    cost: Cost, x: NDArray[np.float64], log_kappa: NDArray[np.float64], give_up: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """All stages, from a point to where the cost stays."""
    shared = cost.rows.shared
    best = cost(x, log_kappa)
    if not len(cost.columns):
        return x, log_kappa, best
    quick = _Diagonal(cost)
    for softness in SOFTNESS:
        x, log_kappa, best = _settle(cost, quick.step, x, log_kappa, best, softness)
    if best > give_up:
        # Capacities that stand where no step leads out of cost most: they are tried first.
        swept, value = _sweep(cost, x, log_kappa, best)
        ahead = _settle(cost, quick.step, swept, log_kappa, value, SOFTNESS[-1])
        if ahead[2] > give_up:
            return ahead
    newton = partial(_gauss_newton, cost)
    for _ in range(MOST_SWEEPS):
        if len(shared):
            x, log_kappa, best = _settle(cost, newton, x, log_kappa, best, SOFTNESS[-1])
        swept, value = _sweep(cost, x, log_kappa, best)
        if not best - value > LEAST_GAIN * max(1.0, best):
            break
        x, log_kappa, best = _settle(cost, quick.step, swept, log_kappa, value, SOFTNESS[-1])
    return x, log_kappa, best


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
    step = _factorised(normal).solve(-gradient)
    return step[:n], step[n:]


def _factorised(normal: csc_array) -> SuperLU:
    """The factors of a symmetric, positive definite matrix."""
    if normal.shape[0] <= _LARGE:
        return splu(normal, permc_spec="COLAMD")
    return splu(
        normal,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


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
    loads = rows.log_load.indices[near]
    moves = cost.fitted[loads]
    columns = cost.place[loads[moves]]
    capacity = coo_array((parts[moves], (owner[near][moves], columns)), shape=(s, n + 2)).tocsr()
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

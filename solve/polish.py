"""The last steps of a small fit: a convex program that no tie can stop.

Predicting too long is a convex cost as it stands, row by row.  Predicting too short is
not; it is replaced by its tangent at the present point, the row that binds there: the
convex-concave procedure (Yuille & Rangarajan 2003; Lipp & Boyd 2016).  A time-shared row
stands by its tangent in both.  Each step is a quadratic program in cvxpy, halved until
the true cost falls.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.convex import solve_convex
from topocal.solve.cost import HUBER, Cost, Estimate, predict_log_seconds
from topocal.solve.estimate import soft_slopes
from topocal.solve.modeller import cvxpy
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows

__all__ = ["MOST_OBSERVATIONS", "polish"]

MOST_OBSERVATIONS: Final = 2000
"""Above that the quadratic program takes seconds; ties among so many rarely matter."""

MOST_STEPS: Final = 12
LEAST_GAIN: Final = 1e-4


def polish(
    rows: Rows, prior: NDArray[np.float64], active: NDArray[np.bool_], found: Estimate
) -> Estimate:
    """Lower the cost of an estimate until no convex step lowers it by more than 1e-4.

    Raises
    ------
    SolverError
        When an optimiser fails.
    """
    bound = upper_bounds(rows)
    fitted = np.isfinite(bound) & active
    cost = Cost(rows, fitted, prior)
    x, log_kappa = np.where(fitted, found.x, -np.inf), found.log_kappa
    best = cost(x, log_kappa)
    for _ in range(MOST_STEPS if fitted.any() else 0):
        step, step_kappa = _convex_step(cost, x, log_kappa)
        x, log_kappa, value = cost.descend(x, log_kappa, step, step_kappa, best)
        gain, best = best - value, value
        if not gain > LEAST_GAIN * max(1.0, best):
            break
    return Estimate(
        x=np.where(fitted, x, found.x),
        log_kappa=log_kappa,
        log_predicted=predict_log_seconds(rows, x, log_kappa),
        objective=best,
    )


def _convex_step(
    cost: Cost, x: NDArray[np.float64], log_kappa: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The minimiser of the convex model of the cost, as a step."""
    cp = cvxpy()

    # Unknowns are in units of the noise, so that every number in the program is of order
    # one whatever the machine's speed.
    rows, unit, n = cost.rows, cost.unit, len(cost.columns)
    step = cp.Variable(n + 2)
    over = cp.Variable(len(rows.log_seconds), nonneg=True)
    under = cp.Variable(len(rows.log_seconds), nonneg=True)
    scale = unit / rows.sigma
    entries = rows.log_load.tocoo()
    inside = cost.fitted[entries.coords[1]]
    row, column = entries.coords[0][inside], entries.coords[1][inside]
    excess = (entries.data[inside] + x[column] - rows.log_seconds[row]) / rows.sigma[row]
    constraints: list[Any] = [
        cp.multiply(scale[row], step[cost.place[column]]) + excess <= over[row],
        step[n:] <= -log_kappa / unit,
        step[:n] <= (cost.limit - x)[cost.columns] / unit,
    ]
    busy, shares = rows.shared.busy(rows.solo(x), log_kappa)
    known = np.flatnonzero(np.isfinite(busy))
    if len(known):
        at = rows.shared.row[known]
        slopes = cost.engine_slopes(x, shares)[known]
        grown = slopes @ step[:n] + step[n + rows.shared.side[known]]
        above = (busy[known] - rows.log_seconds[at]) / rows.sigma[at]
        constraints.append(cp.multiply(scale[at], grown) + above <= over[at])
    slope, predicted = soft_slopes(cost, x, log_kappa, 0.0)
    carried = np.flatnonzero(np.isfinite(predicted))
    lacking = (rows.log_seconds[carried] - predicted[carried]) / rows.sigma[carried]
    tangent = cp.multiply(scale[carried], slope[carried] @ step)
    constraints.append(lacking - tangent <= under[carried])
    away = step[:n] + (x[cost.columns] - cost.pull_to) / unit
    pull = cp.norm1(cp.multiply(cost.pull, away))
    # Only one of over and under is positive at an optimum, so one Huber serves both.
    problem = cp.Problem(cp.Minimize(cp.sum(cp.huber(over + under, HUBER)) + pull), constraints)
    solve_convex(problem, "capacities")
    value: NDArray[np.float64] = unit * np.asarray(step.value)
    return value[:n], value[n:]

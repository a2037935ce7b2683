"""The capacities that explain the samples best.

In logs the predicted time of a sample, max over rows of (load + x), is convex in the
unknowns: slowness x of every capacity and log kappa of the time-shared resources
(log-sum-exp of the flows' solo times).  Predicting too much is therefore a convex
cost.  Predicting too little is not; it is replaced by its tangent at the present
point, the row that binds there.  That is the convex-concave procedure (Yuille &
Rangarajan 2003; Lipp & Boyd 2016).  A time-shared row stands by its tangent in both,
so that each step is a quadratic program in cvxpy; the step is halved until the true
cost falls, which it must, as the tangents are exact where it starts.

Cost: Huber loss of the log error in units of the noise, so that a single bad sample
pulls no harder than one at the threshold; plus a weak pull of every x to its prior
(nominal capacity where known, otherwise the slowest value that the data allows),
which decides what no sample decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.solve.convex import solve_convex
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest

__all__ = ["Estimate", "estimate", "huber", "predict_log_seconds"]

HUBER: Final = 1.345
"""Threshold in noise units: 95 % efficient on Gaussian noise (Huber 1981, table 4.1)."""

PRIOR: Final = 1e-3
"""Weight of the pull to the prior against one noise unit of one sample: only ties feel it."""

UNEXPLAINED: Final = 1e6
"""Misfit, in noise units, that a sample without any fitted resource counts."""

MOST_STEPS: Final = 40
LEAST_GAIN: Final = 1e-6
SHORTEST_STEP: Final = 1e-3


@dataclass(frozen=True)
class Estimate:
    """A fit.

    Attributes
    ----------
    x
        Log seconds per byte of every capacity, shape (R,); -inf where no sample loads
        it and no nominal value is known.
    log_kappa
        Log of the overlap factor, 0 where nothing is time-shared.
    log_predicted
        Log seconds of each sample by the fitted resources alone, shape (S,); -inf where
        none of them carries it.
    objective
        Value of the cost.
    steps
        Convex problems solved.
    """

    x: NDArray[np.float64]
    log_kappa: float
    log_predicted: NDArray[np.float64]
    objective: float
    steps: int


def huber(error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Huber loss of errors in noise units, as cvxpy defines it (square up to the threshold).

    A sample that nothing in the fit carries has an infinite error; it costs
    :data:`UNEXPLAINED`, which no finite misfit does.
    """
    size = np.minimum(np.abs(error), UNEXPLAINED)
    return np.asarray(np.where(size <= HUBER, size**2, 2 * HUBER * size - HUBER**2))


def predict_log_seconds(
    rows: Rows, x: NDArray[np.float64], log_kappa: float
) -> NDArray[np.float64]:
    """Log seconds of each sample: its busiest row."""
    predicted = rows.highest(x)
    busy, _ = rows.shared.busy(rows.solo(x), log_kappa)
    np.maximum.at(predicted, rows.shared.sample, busy)
    return predicted


def estimate(
    rows: Rows, noise: float, prior: NDArray[np.float64], active: NDArray[np.bool_] | None = None
) -> Estimate:
    """Fit all capacities, and one overlap factor where anything is time-shared.

    Parameters
    ----------
    noise
        Relative standard deviation of one sample.
    prior
        Shape (R,): log seconds per byte by specification, NaN where unknown.
    active
        Shape (R,): the resources that may explain a sample; the others are not in the
        fit and come out as the slowest that the samples allow. Default: all.

    Raises
    ------
    SolverError
        When an optimiser fails.
    """
    bound = upper_bounds(rows)
    loaded = np.isfinite(bound)
    start = np.where(np.isfinite(prior), np.minimum(prior, bound), bound)
    fitted = loaded if active is None else loaded & active
    problem = _Problem(rows, noise, fitted, start)
    x, log_kappa = np.where(fitted, start, -np.inf), 0.0
    best = problem.cost(x, log_kappa)
    steps = 0
    while steps < MOST_STEPS and fitted.any():
        goal, goal_kappa = problem.step(x, log_kappa)
        steps += 1
        new_x, new_kappa, value = problem.descend(x, log_kappa, goal, goal_kappa, best)
        gain = best - value
        if value < best:
            x, log_kappa, best = new_x, new_kappa, value
        if not gain > LEAST_GAIN * max(1.0, best):
            break
    predicted = predict_log_seconds(rows, x, log_kappa)
    objective = problem.cost(x, log_kappa)
    unfitted = np.where(loaded, start, np.where(np.isfinite(prior), prior, -np.inf))
    return Estimate(
        x=np.where(fitted, x, unfitted),
        log_kappa=log_kappa,
        log_predicted=predicted,
        objective=objective,
        steps=steps,
    )


class _Problem:
    """The cost and its convex majorant."""

    def __init__(
        self,
        rows: Rows,
        noise: float,
        fitted: NDArray[np.bool_],
        pull_to: NDArray[np.float64],
    ) -> None:
        self._rows = rows
        self._noise = noise
        self._fitted = fitted
        self._columns = np.flatnonzero(fitted)
        self._place = np.cumsum(fitted) - 1
        self._pull_to = pull_to[self._columns]

    def cost(self, x: NDArray[np.float64], log_kappa: float) -> float:
        """The objective at a point."""
        predicted = predict_log_seconds(self._rows, x, log_kappa)
        size = np.abs(predicted - self._rows.log_seconds) / self._noise
        pull = np.abs(x[self._columns] - self._pull_to).sum() / self._noise
        return float(huber(size).sum() + PRIOR * pull)

    def step(self, x: NDArray[np.float64], log_kappa: float) -> tuple[NDArray[np.float64], float]:
        """The minimiser of the convex model of the cost at (x, log_kappa)."""
        import cvxpy as cp

        # Unknowns are steps from the present point in units of the noise, so that every
        # number in the program is of order one whatever the machine's speed.
        rows, unit = self._rows, self._noise
        step, step_kappa = cp.Variable(len(self._columns)), cp.Variable()
        over = cp.Variable(len(rows.samples), nonneg=True)
        under = cp.Variable(len(rows.samples), nonneg=True)
        entries = rows.log_load.tocoo()
        inside = self._fitted[entries.coords[1]]
        row_of, column_of = entries.coords[0][inside], entries.coords[1][inside]
        excess = entries.data[inside] + x[column_of] - rows.log_seconds[row_of]
        constraints: list[Any] = [
            step[self._place[column_of]] + excess / unit <= over[row_of],
            step_kappa <= -log_kappa / unit,
        ]
        engine_slope, engine = self._engines(x, log_kappa)
        known = np.flatnonzero(np.isfinite(engine))
        sample = rows.shared.sample[known]
        if len(known):
            grown = engine_slope[known] @ step + step_kappa
            above = (engine[known] - rows.log_seconds[sample]) / unit
            constraints.append(grown + above <= over[sample])
        slope, slope_kappa, value = self._binding_rows(x, engine_slope, engine)
        carried = np.flatnonzero(np.isfinite(value))
        lacking = (rows.log_seconds[carried] - value[carried]) / unit
        tangent = slope[carried] @ step + slope_kappa[carried] * step_kappa
        constraints.append(lacking - tangent <= under[carried])
        pull = PRIOR * cp.norm1(step + (x[self._columns] - self._pull_to) / unit)
        # Only one of over and under is positive at an optimum, so one Huber serves both.
        cost = cp.sum(cp.huber(over + under, HUBER)) + pull
        solve_convex(cp.Problem(cp.Minimize(cost), constraints), "capacities")
        goal = x.copy()
        goal[self._columns] += unit * step.value
        if not len(rows.shared):
            return goal, 0.0
        return goal, float(min(0.0, log_kappa + unit * step_kappa.value))

    def descend(
        self,
        x: NDArray[np.float64],
        log_kappa: float,
        goal: NDArray[np.float64],
        goal_kappa: float,
        best: float,
    ) -> tuple[NDArray[np.float64], float, float]:
        """The farthest of the halved steps towards the goal that lowers the cost."""
        fraction = 1.0
        while True:
            new_x = x.copy()
            ahead = goal[self._columns] - x[self._columns]
            new_x[self._columns] += fraction * ahead
            new_kappa = log_kappa + fraction * (goal_kappa - log_kappa)
            value = self.cost(new_x, new_kappa)
            if value < best or fraction < SHORTEST_STEP:
                return new_x, new_kappa, value
            fraction /= 2

    def _engines(
        self, x: NDArray[np.float64], log_kappa: float
    ) -> tuple[csr_array, NDArray[np.float64]]:
        """Slope in x, and value, of every time-shared row; its slope in log kappa is 1."""
        rows, shared = self._rows, self._rows.shared
        busy, shares = shared.busy(rows.solo(x), log_kappa)
        binding = first_busiest(rows.pair_weight, x)[shared.pair]
        inside = binding >= 0
        column = self._place[rows.pair_weight.indices[binding[inside]]]
        triples = (shares[inside], (shared.row[inside], column))
        shape = (len(shared), len(self._columns))
        return coo_array(triples, shape=shape).tocsr(), busy

    def _binding_rows(
        self, x: NDArray[np.float64], engine_slope: csr_array, engine: NDArray[np.float64]
    ) -> tuple[csr_array, NDArray[np.float64], NDArray[np.float64]]:
        """Slope in x, slope in log kappa, and value of the binding row of every sample."""
        rows, shared = self._rows, self._rows.shared
        s, n = len(rows.samples), len(self._columns)
        value = rows.highest(x)
        first = first_busiest(rows.log_load, x)
        longest = np.full(s, -np.inf)
        np.maximum.at(longest, shared.sample, engine)
        by_engine = longest > value
        # Of several engines in one sample the longest counts, the first among equals.
        ranked = np.lexsort((np.arange(len(shared)), -engine, shared.sample))
        leads = np.ones(len(ranked), dtype=bool)
        leads[1:] = np.diff(shared.sample[ranked]) != 0
        chosen = ranked[leads]
        chosen = chosen[by_engine[shared.sample[chosen]]]
        by_capacity = np.flatnonzero((first >= 0) & ~by_engine)
        column = self._place[rows.log_load.indices[first[by_capacity]]]
        slope = coo_array((np.ones(len(column)), (by_capacity, column)), shape=(s, n)).tocsr()
        pick = coo_array(
            (np.ones(len(chosen)), (shared.sample[chosen], chosen)), shape=(s, len(shared))
        )
        if len(shared):
            slope = csr_array(slope + pick.tocsr() @ engine_slope)
        return slope, by_engine.astype(float), np.maximum(value, longest)

"""What a fit costs, at any point: the function that the estimate lowers.

Huber loss of the log error in units of each observation's standard error, so that a single
bad one pulls no harder than one at the threshold; plus a weak pull of every x to its prior
(nominal capacity where known, otherwise the slowest value that the data allows), which
decides what no observation decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array

from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest
from topocal.solve.rows_kernel import largest_of_column

__all__ = [
    "HUBER",
    "LEAST_KAPPA",
    "LEAST_LOG_KAPPA",
    "PRIOR",
    "PRIOR_UNIT",
    "UNEXPLAINED",
    "Cost",
    "Estimate",
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

PROOF_SIGMAS: Final = 3.0
"""Deviations by which a figure that bounds a capacity may itself be off."""

LEAST_KAPPA: Final = 0.85
"""Least overlap factor that still is time-sharing: below it a fan of unlike senders hardly
differs from one that shares bytes (published: 0.98)."""
LEAST_LOG_KAPPA: Final = math.log(LEAST_KAPPA)

SHORTEST_STEP: Final = 1e-3


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
        resource = rows.pair_weight.indices[binding]
        inside = (binding >= 0) & self.fitted[resource]
        column = self.place[resource[inside]]
        triples = (shares[inside], (shared.owner[inside], column))
        return coo_array(triples, shape=(len(shared), len(self.columns))).tocsr()

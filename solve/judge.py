"""Does one endpoint share bytes or time?  Its own fans are asked, all else as fitted.

Bytes: the best capacity of its port that all other observations allow.  Time: that, or the
engine's busy time where it is longer, with the overlap factor of its side (or, while that
side has none yet, the best single one).  Both answers are closed forms over the few
observations at hand.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.estimate import LEAST_LOG_KAPPA, Estimate, huber
from topocal.solve.rows import Rows, row_max

__all__ = ["SAME_SIGMAS", "Judge"]

SAME_SIGMAS: Final = 3.0
"""Capacities closer than that, in deviations of an observation, are one number."""


class Judge:
    """Asks endpoints one by one.

    Parameters
    ----------
    rows
        With all engines.
    found, active, engines
        The present fit: estimate, resources in it, engines at work; shapes (R,).
    prior
        Shape (R,): log seconds per byte by specification, NaN where unknown.
    """

    def __init__(
        self,
        rows: Rows,
        found: Estimate,
        active: NDArray[np.bool_],
        engines: NDArray[np.bool_],
        prior: NDArray[np.float64],
    ) -> None:
        self._rows = rows
        self._x = np.where(active, found.x, -np.inf)
        self._prior = prior
        shared = rows.shared
        self._busy, _ = shared.busy(rows.solo(self._x), found.log_kappa)
        working = engines[shared.resource]
        self._has_kappa = [bool((working & (shared.side == side)).any()) for side in (0, 1)]
        self._at_work = np.where(working, self._busy, -np.inf)
        self._row_ptr = np.searchsorted(shared.row, np.arange(len(rows.log_seconds) + 1))
        order = np.argsort(shared.resource, kind="stable")
        self._of_engine = order
        self._engine_ptr = np.searchsorted(shared.resource[order], np.arange(len(active) + 1))
        by_column = rows.log_load.tocsc()
        self._port_ptr, self._port_row = by_column.indptr, by_column.indices
        self._port_load = by_column.data
        self._price = math.log(max(2, len(rows.log_seconds)))
        self._same = SAME_SIGMAS * float(np.median(rows.sigma)) if len(rows.sigma) else 0.0

    def prefers_time(self, engine: int, port: int, side: int) -> float:
        """How much cheaper an endpoint's observations are when it shares time, not bytes.

        0 while the solo time of one of its flows is unknown.
        """
        rows = self._rows
        mine = self._of_engine[self._engine_ptr[engine] : self._engine_ptr[engine + 1]]
        busy, here = self._busy[mine], rows.shared.row[mine]
        if not len(mine) or not np.all(np.isfinite(busy)):
            return 0.0
        others = self._x.copy()
        others[port] = -np.inf
        level = row_max(rows.log_load[here], others)
        for k, (row, me) in enumerate(zip(here, mine, strict=True)):
            for other in range(self._row_ptr[row], self._row_ptr[row + 1]):
                if other != me:
                    level[k] = max(level[k], self._at_work[other])
        seconds, sigma = rows.log_seconds[here], rows.sigma[here]

        def misfit(predicted: NDArray[np.float64]) -> float:
            return float(huber((np.maximum(level, predicted) - seconds) / sigma).sum())

        span = slice(self._port_ptr[port], self._port_ptr[port + 1])
        load = np.full(len(rows.log_seconds), -np.inf)
        load[self._port_row[span]] = self._port_load[span]
        elsewhere = np.setdiff1d(self._port_row[span], here)
        bound = float((rows.log_seconds[elsewhere] - load[elsewhere]).min(initial=np.inf))
        tries = np.unique(np.minimum(np.append(seconds - load[here], -np.inf), bound))
        shifts = np.zeros(1)
        price = 0.0
        if not self._has_kappa[side]:
            shifts = np.unique(np.clip(np.append(seconds - busy, 0.0), LEAST_LOG_KAPPA, 0.0))
            price = self._price
        bytes_ = time = math.inf
        for x in tries:
            alone = load[here] + x
            own = self._price_of(x, bound, port)
            bytes_ = min(bytes_, misfit(alone) + own)
            # Who takes turns still has a port.
            for shift in shifts:
                time = min(time, misfit(np.maximum(alone, busy + shift)) + own + price)
        return bytes_ - time

    def _price_of(self, x: float, bound: float, port: int) -> float:
        """A port's capacity is a number of its own, unless something else says it."""
        said = not np.isfinite(x) or x >= bound or abs(x - self._prior[port]) <= self._same
        return 0.0 if said else self._price

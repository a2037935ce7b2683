"""What one engine more, or one less, may save: asked around its own fans, before all is fitted.

An engine changes what its own fans cost and nothing else.  What it saves is at most what they
cost now, and what capacities save that no longer have to explain them.  These are the capacities
that are busiest there, or nearly so, and those that set the pace of a flow alone; what else
they are busiest in, or nearly so, holds them where they are.  So those capacities are fitted
again, on the observations that they are within :data:`REACH` of binding, while all others
stay as they were.  The saving that is found is exact for capacities that stay within
that reach; what others further off could add by moving after them is of second order, since
each stands at its own best.  An engine that falls short of its price by more than a
:data:`SHARE` of it is not worth a fit of everything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.cost import Estimate, predict_log_seconds
from topocal.solve.estimate import lower
from topocal.solve.rows import Rows

__all__ = ["SHARE", "Nearby"]

REACH: Final = 0.25
"""Log distance within which a capacity may come to bind: no engine moves one by 28 %, or it
would save far more than its price."""

SHARE: Final = 0.5
"""Of the price of an engine: what capacities further off are granted to add."""


class Nearby:
    """A fit, prepared to be asked about engines.

    Parameters
    ----------
    rows
        With all engines.
    found, active, engines
        The fit: estimate, resources in it, engines at work; shapes (R,).
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
        self._rows = rows.only(active)
        self._x = np.where(active, found.x, -np.inf)
        self._found, self._active, self._engines, self._prior = found, active, engines, prior
        load = self._rows.log_load
        predicted = predict_log_seconds(self._rows.with_engines(engines), self._x, found.log_kappa)
        row = np.repeat(np.arange(len(predicted)), np.diff(load.indptr))
        near = load.data + self._x[load.indices] >= predicted[row] - REACH
        counts = np.bincount(row[near], minlength=len(predicted))
        indptr = np.concatenate(([0], np.cumsum(counts)))
        ones = np.ones(indptr[-1], dtype=bool)
        self._near = csr_array((ones, load.indices[near], indptr), shape=load.shape)
        self._near_rows = self._near.tocsc()

    def saving(self, engines: NDArray[np.bool_]) -> float:
        """How much less the observations cost with these engines at work instead."""
        changed = self._rows.with_engines(engines != self._engines)
        fans = np.unique(changed.shared.row)
        free = np.zeros(len(self._x), dtype=bool)
        free[self._near[fans].indices] = True
        free[self._pacemakers(changed)] = True
        keep = np.zeros(len(self._rows.log_seconds), dtype=bool)
        keep[fans] = True
        keep[self._near_rows[:, np.flatnonzero(free)].indices] = True
        now = self._rows.with_engines(self._engines).some(keep)
        then = self._rows.with_engines(engines).some(keep)
        before, _ = lower(now, free, self._prior, self._x, self._found.log_kappa, steps=False)
        _, after = lower(then, free, self._prior, self._x, self._found.log_kappa)
        return before - after

    def _pacemakers(self, changed: Rows) -> NDArray[np.int32]:
        """What sets the pace of a flow alone, or nearly so."""
        entries, solo = changed.pair_weight, changed.solo(self._x)
        pair = np.repeat(np.arange(len(solo)), np.diff(entries.indptr))
        near = entries.data + self._x[entries.indices] >= solo[pair] - REACH
        return np.asarray(entries.indices[near])

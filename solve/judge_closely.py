"""Time or bytes at one endpoint, asked closely: for machines whose fans are few.

As :mod:`topocal.solve.judge`, with two more freedoms under either answer.  The port may pass
anything, and the flows alone feel it too: a port that nothing measured alone makes a fan of
fast senders look slow whichever way they share.  And what was supposed for these fans alone
may be done without, or is paid for.  Where every endpoint has dozens of fans neither changes
an answer, and the compiled way is taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.cost import LEAST_LOG_KAPPA, Estimate, huber
from topocal.solve.judge import SAME_SIGMAS
from topocal.solve.rows import Rows, row_max

__all__ = ["Judge"]

MOST_TRIES: Final = 64
"""Capacities of a port that are tried; a wide choice of fans proposes hundreds alike."""


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
        self._log_kappa = found.log_kappa
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

    def prefers_time(
        self, engine: int, port: int, side: int, supposed: Collection[int] = ()
    ) -> float:
        """How much cheaper an endpoint's observations are when it shares time, not bytes.

        0 while the solo time of one of its flows is unknown.

        Parameters
        ----------
        engine, port, side
            Columns of the endpoint's engine and port; 0 receives, 1 sends.
        supposed
            Columns of what was supposed for its observations alone: either answer may do
            without them, or pays for them.
        """
        rows, shared = self._rows, self._rows.shared
        mine = self._of_engine[self._engine_ptr[engine] : self._engine_ptr[engine + 1]]
        here = shared.row[mine]
        if not len(mine) or not np.all(np.isfinite(self._busy[mine])):
            return 0.0
        seconds, sigma = rows.log_seconds[here], rows.sigma[here]
        span = slice(self._port_ptr[port], self._port_ptr[port + 1])
        load = np.full(len(rows.log_seconds), -np.inf)
        load[self._port_row[span]] = self._port_load[span]
        elsewhere = np.setdiff1d(self._port_row[span], here)
        bound = float((rows.log_seconds[elsewhere] - load[elsewhere]).min(initial=np.inf))
        found = np.append(seconds - load[here], [-np.inf, self._prior[port]])
        ports = np.unique(np.minimum(found[~np.isnan(found)], bound))
        others = self._x.copy()
        others[port] = -np.inf
        bytes_ = time = math.inf
        for without in (False, True) if supposed else (True,):
            if without:
                others[list(supposed)] = -np.inf
            extra = 0.0 if without else self._price * len(supposed)
            level = self._level(here, mine, others)

            def cost(
                tries: NDArray[np.float64],
                busy: NDArray[np.float64],
                level: NDArray[np.float64] = level,
            ) -> NDArray[np.float64]:
                """Of each port tried, shape (T,): misfit, and the price of the port."""
                predicted = np.maximum(np.maximum(level, load[here] + tries[:, None]), busy)
                misfit = huber((predicted - seconds) / sigma).sum(axis=1)
                return np.asarray(misfit + self._prices(tries, bound, port))

            bytes_ = min(bytes_, float(cost(ports, np.array(-np.inf)).min()) + extra)
            # Who takes turns still has a port, which the flows alone feel too.
            turns = _Turns.of(rows, mine, port, others)
            known = self._has_kappa[side]
            log_kappa = float(self._log_kappa[side]) if known else 0.0
            more = np.minimum(turns.ports_that_meet(np.exp(seconds - log_kappa)), bound)
            tries = _spread_out(np.unique(np.concatenate([ports, more])))
            busy = turns.busy(tries) + log_kappa
            if known:
                time = min(time, float(cost(tries, busy).min()) + extra)
                continue
            for meets in (*range(len(here)), -1):
                shift = seconds[meets] - busy[:, meets] if meets >= 0 else np.zeros(len(tries))
                shift = np.clip(shift, LEAST_LOG_KAPPA, 0.0)[:, None]
                time = min(time, float(cost(tries, busy + shift).min()) + extra + self._price)
        return bytes_ - time

    def _level(
        self, here: NDArray[np.int64], mine: NDArray[np.int64], x: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What else keeps the endpoint's observations busy, other engines at work included."""
        level = row_max(self._rows.log_load[here], x)
        for k, (row, me) in enumerate(zip(here, mine, strict=True)):
            for other in range(self._row_ptr[row], self._row_ptr[row + 1]):
                if other != me:
                    level[k] = max(level[k], self._at_work[other])
        return level

    def _prices(self, x: NDArray[np.float64], bound: float, port: int) -> NDArray[np.float64]:
        """A port's capacity is a number of its own, unless something else says it."""
        said = ~np.isfinite(x) | (x >= bound) | (np.abs(x - self._prior[port]) <= self._same)
        return np.where(said, 0.0, self._price)


@dataclass(frozen=True)
class _Turns:
    """What an endpoint's fans take by turns, as a function of its port.

    Attributes
    ----------
    begin
        Shape (rows,): first flow of each fan.
    size_bytes, solo, weight
        Shape (flows,): bytes; seconds per byte alone without the port; weight on the port.
    """

    begin: NDArray[np.int64]
    size_bytes: NDArray[np.float64]
    solo: NDArray[np.float64]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows, mine: NDArray[np.int64], port: int, x: NDArray[np.float64]) -> _Turns:
        """Of the time-shared rows ``mine``; ``x`` is -inf at the port."""
        shared, pairs = rows.shared, rows.pair_weight
        counts = shared.indptr[mine + 1] - shared.indptr[mine]
        begin = np.concatenate(([0], np.cumsum(counts)))[:-1]
        flows = np.repeat(shared.indptr[mine] - begin, counts) + np.arange(counts.sum())
        at = shared.pair[flows]
        solo, weight = np.empty(len(at)), np.zeros(len(at))
        for k, pair in enumerate(at.tolist()):
            span = slice(pairs.indptr[pair], pairs.indptr[pair + 1])
            columns, data = pairs.indices[span], pairs.data[span]
            solo[k] = np.max(data + x[columns], initial=-np.inf)
            weight[k] = np.exp(data[columns == port]).sum()
        return cls(begin, np.exp(shared.log_bytes[flows]), np.exp(solo), weight)

    def busy(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log seconds, shape (T, rows), for each of T ports; -inf where a flow's own is unknown."""
        each = np.maximum(self.solo, self.weight * np.exp(x)[:, None])
        seconds = np.add.reduceat(each * self.size_bytes, self.begin, axis=1)
        unknown = np.logical_or.reduceat(each <= 0, self.begin, axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(unknown, -np.inf, np.log(seconds)))

    def ports_that_meet(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ports with which some fan takes just so long: log seconds per byte."""
        found = []
        ends = [*self.begin.tolist()[1:], len(self.solo)]
        for k, (begin, end) in enumerate(zip(self.begin.tolist(), ends, strict=True)):
            order = begin + np.argsort(self.solo[begin:end])
            slowed = np.cumsum(self.weight[order] * self.size_bytes[order])
            own = self.solo[order] * self.size_bytes[order]
            left = seconds[k] - (own.sum() - np.cumsum(own))
            found.append(left[(left > 0) & (slowed > 0)] / slowed[(left > 0) & (slowed > 0)])
        return np.asarray(np.log(np.concatenate(found)))


def _spread_out(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Not more than :data:`MOST_TRIES` of ascending values, ends included."""
    if len(values) <= MOST_TRIES:
        return values
    return np.asarray(values[np.linspace(0, len(values) - 1, MOST_TRIES).round().astype(int)])

"""What policies ask of caps, worked out once: rates by pair, and what a process passes in all.

``alone``
    The rate of each pair by itself.
``both ways``
    What each direction passes while both are busy with as many bytes, where that is less
    than the slower of them passes alone.
``send``, ``receive``
    What a process passes at most, whoever the others are.  Every pair passes no more than
    alone, and every resource bounds the sum over its pairs; where the sets of pairs
    nest, as those of links in a tree do, adding up from the smallest set is exact.
``receive, by number of senders``
    The total into one process from k senders of as many bytes each: the least, whichever
    they are (exact: the busiest resource is busiest with the k pairs that cost it most), and
    what a well chosen set reaches (senders are added one by one, each the best that is left).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from topocal.solve.fading import Crowd, Fading
from topocal.solve.pair_costs import PairCosts
from topocal.solve.rectangles import Block, SetTable, blocks_of

__all__ = ["ProcessTable", "alone_blocks", "both_ways_blocks", "process_table", "sender_counts"]

Floats = NDArray[np.float64]

_ALL_COUNTS: Final = 8
"""Up to so many senders every number is listed, then each double."""

_MOST_CHOSEN: Final = 64
"""Largest set of senders that is chosen one by one; beyond, only all of them."""

ENOUGH: Final = 0.95
"""Share of the most that a receiver gets from which further senders are not worth it."""

_SAME: Final = 1e-9
"""Relative difference below which two times are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """Caps by process, n of them, in bytes per second; ``None``: nothing known limits it.

    Attributes
    ----------
    send_Bps, receive_Bps
        What each process passes at most.
    senders
        Numbers of concurrent senders, the columns of the next two.
    receive_least_Bps, receive_most_Bps
        By receiver and number of senders; ``None`` too where there are not so many.
    enough_senders
        By receiver, the fewest senders that bring :data:`ENOUGH` of the most it gets from
        any listed number.
    """

    send_Bps: tuple[float | None, ...]
    receive_Bps: tuple[float | None, ...]
    senders: tuple[int, ...]
    receive_least_Bps: tuple[tuple[float | None, ...], ...]
    receive_most_Bps: tuple[tuple[float | None, ...], ...]
    enough_senders: tuple[int, ...]


def alone_blocks(costs: PairCosts, table: SetTable) -> list[Block]:
    """Rate of each pair by itself; a pair that nothing limits, or that is blocked, has none."""
    return _blocks(_inverse(costs.alone_s), len(costs.endpoints), table)


def both_ways_blocks(
    costs: PairCosts, table: SetTable, fading: Fading | None = None
) -> list[Block]:
    """Rate of each direction while both are busy, where they get into each other's way."""
    n = len(costs.endpoints)
    a, b = np.divmod(np.arange(n * n), n)
    back = b * n + a
    columns = costs.seconds_per_byte.tocsc()
    forth = np.flatnonzero((a < b) & ~costs.blocked & ~costs.blocked[back])
    found = np.zeros(n * n)
    if len(forth) and columns.shape[0]:
        both = csc_array(columns[:, forth] + columns[:, back[forth]])
        finish = np.asarray(both.max(axis=0).todense()).ravel()
        if fading is not None and fading.by is Crowd.PATTERN:
            finish *= 1.0 + fading.loss
        elif fading is not None:
            shared = csc_array(both - abs(columns[:, forth] - columns[:, back[forth]]))
            both = csc_array(both + fading.loss * both.multiply(shared > 0))
            finish = np.asarray(both.max(axis=0).todense()).ravel()
        slower = np.maximum(costs.alone_s[forth], costs.alone_s[back[forth]])
        rate = np.where(finish > slower * (1 + _SAME), _inverse(finish), 0.0)
        found[forth] = found[back[forth]] = rate
    return _blocks(found, n, table)


def _blocks(values: Floats, n: int, table: SetTable) -> list[Block]:
    column = csr_array(values[:, None])
    column.eliminate_zeros()
    (found,) = blocks_of(column, n, table)
    return found


def _inverse(values: Floats) -> Floats:
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def sender_counts(n: int) -> tuple[int, ...]:
    """Numbers of concurrent senders that a table lists for n processes.

    >>> sender_counts(8), sender_counts(40)
    ((1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 39))
    """
    found = list(range(1, min(_ALL_COUNTS, n - 1) + 1))
    while found[-1] * 2 < n - 1 and found[-1] * 2 <= _MOST_CHOSEN:
        found.append(found[-1] * 2)
    return tuple(found if found[-1] == n - 1 else [*found, n - 1])


def process_table(costs: PairCosts, fading: Fading | None = None) -> ProcessTable:
    """Caps of every process."""
    n = len(costs.endpoints)
    columns = costs.seconds_per_byte.tocsc()
    counts = sender_counts(n)
    everybody = np.arange(n)
    send, receive = [], []
    least: list[tuple[float | None, ...]] = []
    most: list[tuple[float | None, ...]] = []
    enough = []
    for k in range(n):
        others = everybody[everybody != k]
        out, into = k * n + others, others * n + k
        send.append(_most_in_all(columns, costs, out))
        receive.append(_most_in_all(columns, costs, into))
        fan = _Fan.of(columns, costs, into, fading)
        least.append(fan.least(counts))
        most.append(fan.most(counts))
        enough.append(_enough(counts, most[-1]))
    return ProcessTable(
        send_Bps=tuple(send),
        receive_Bps=tuple(receive),
        senders=counts,
        receive_least_Bps=tuple(least),
        receive_most_Bps=tuple(most),
        enough_senders=tuple(enough),
    )


def _most_in_all(columns: csc_array, costs: PairCosts, pairs: NDArray[np.int64]) -> float | None:
    """The greatest total rate of some pairs, bounded from the smallest set of pairs upwards."""
    pairs = pairs[~costs.blocked[pairs]]
    if not len(pairs):
        return 0.0
    alone = costs.alone_s[pairs]
    bound = np.where(alone > 0, _inverse(alone), np.inf)
    rows = columns[:, pairs].tocsr()
    lengths = np.diff(rows.indptr)
    several = np.flatnonzero(lengths > 1)
    block = np.arange(len(pairs))
    size = np.ones(len(pairs), dtype=np.int64)
    for r in several[np.argsort(lengths[several], kind="stable")].tolist():
        span = slice(rows.indptr[r], rows.indptr[r + 1])
        met = np.unique(block[rows.indices[span]])
        if size[met].sum() != span.stop - span.start:
            continue  # It cuts through a set that is bounded as a whole: no use of it is made.
        into = int(met[0])
        bound[into] = min(float(bound[met].sum()), 1.0 / float(rows.data[span].min()))
        size[into] = span.stop - span.start
        block[rows.indices[span]] = into
    total = float(bound[np.unique(block)].sum())
    return total if np.isfinite(total) else None


@dataclass(frozen=True)
class _Fan:
    """The senders that can reach one receiver, and what a byte of each costs.

    Sender s costs ``cost[begin[s]:begin[s + 1]]`` of the rows ``row[...]``; each has an entry.
    """

    row: NDArray[np.int64]
    cost: Floats
    begin: NDArray[np.int64]
    rows: int
    fading: Fading | None

    @classmethod
    def of(
        cls,
        columns: csc_array,
        costs: PairCosts,
        pairs: NDArray[np.int64],
        fading: Fading | None,
    ) -> _Fan:
        """The fan of some pairs into one receiver."""
        pairs = pairs[~costs.blocked[pairs]]
        own = columns[:, pairs]
        # A last row of no cost, so that a sender that nothing limits has an entry as well.
        used, place = np.unique(own.indices, return_inverse=True)
        begin = own.indptr.astype(np.int64)
        row = np.insert(place.astype(np.int64), begin[1:], len(used))
        cost = np.insert(own.data, begin[1:], 0.0)
        return cls(row, cost, begin + np.arange(len(begin)), len(used) + 1, fading)

    @property
    def senders(self) -> int:
        """How many."""
        return len(self.begin) - 1

    def _loss(self, on_row: NDArray[np.int64]) -> Floats:
        """Times as long that a row takes for so many flows on it, where these count."""
        if self.fading is None or self.fading.by is Crowd.PATTERN:
            return np.ones(len(on_row))
        return self.fading.factor(on_row)

    def _rate(self, senders: int, finish_s: float) -> float | None:
        """Total from so many senders; all of a pattern's flows may count."""
        if self.fading is not None and self.fading.by is Crowd.PATTERN:
            finish_s *= float(self.fading.factor(np.array(senders)))
        return senders / finish_s if finish_s > 0 else None

    @property
    def _all_s(self) -> float:
        """Time of a byte from each of all senders."""
        count = np.bincount(self.row, weights=self.cost > 0, minlength=1).astype(np.int64)
        return float(
            (np.bincount(self.row, weights=self.cost, minlength=1) * self._loss(count)).max()
        )

    def least(self, counts: tuple[int, ...]) -> tuple[float | None, ...]:
        """Total from the worst set of each number of senders."""
        order = np.lexsort((-self.cost, self.row))
        row, cost = self.row[order], self.cost[order]
        first = np.searchsorted(row, np.arange(self.rows))
        rank = np.arange(len(row)) - first[row]
        running = np.cumsum(cost)
        until = running - np.where(first[row] > 0, running[first[row] - 1], 0.0)
        until *= self._loss(rank + 1)
        # The k costliest pairs of a row; where it has fewer, all of them.
        longest = np.zeros(self.senders + 1)
        np.maximum.at(longest, np.minimum(rank + 1, self.senders), until)
        finish = np.maximum.accumulate(longest)
        finish[self.senders] = self._all_s
        return tuple(self._rate(k, float(finish[k])) if k <= self.senders else None for k in counts)

    def most(self, counts: tuple[int, ...]) -> tuple[float | None, ...]:
        """Total from a well chosen set of each number of senders."""
        busy = np.zeros(self.rows)
        crowd = np.zeros(self.rows, dtype=np.int64)
        left = np.ones(self.senders, dtype=bool)
        finish: dict[int, float] = {}
        wanted = [k for k in counts if k <= min(self.senders, _MOST_CHOSEN)]
        for k in range(1, max(wanted, default=0) + 1):
            loss = self._loss(crowd[self.row] + 1)
            after = np.maximum.reduceat((busy[self.row] + self.cost) * loss, self.begin[:-1])
            after = np.where(left, after, np.inf)
            # Of equal ones the first, whatever the last digit says.
            one = int(np.argmax(after <= after.min() * (1 + _SAME)))
            span = slice(self.begin[one], self.begin[one + 1])
            np.add.at(busy, self.row[span], self.cost[span])
            np.add.at(crowd, self.row[span], self.cost[span] > 0)
            left[one] = False
            finish[k] = float((busy * self._loss(crowd)).max())
        if self.senders:
            finish[self.senders] = self._all_s
        return tuple(self._rate(k, finish[k]) if k in finish else None for k in counts)


def _enough(counts: tuple[int, ...], most: tuple[float | None, ...]) -> int:
    """Fewest senders that bring nearly the most; one where nothing known limits it."""
    if not most or most[0] is None:
        return 1
    known = [(k, rate) for k, rate in zip(counts, most, strict=True) if rate is not None]
    peak = max((rate for _, rate in known), default=0.0)
    return next((k for k, rate in known if rate >= ENOUGH * peak), 1)

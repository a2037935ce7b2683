"""What is left to choose: shares of each group's bytes, by holder.

Shares y of the E entries (group, holder) add up to 1 in each group; the bytes of pair p are
``fixed[p] + sum of size[group] * y`` over the entries on it, and everything else follows
from the costs.  Groups with one holder have nothing to choose and make the fixed part; those
without bytes go to their lowest holder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.table import Table

__all__ = ["Choice", "choice_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Choice:
    """Groups and entries as arrays, over the P pairs that occur.

    Attributes
    ----------
    pairs
        Shape (P,): column of each in the costs, sorted.
    cost_s
        Shape (R, P): seconds per byte; of resources in series, which the same pairs load, only
        the slowest.
    fixed_bytes
        Shape (P,): of groups without a choice.
    groups
        Shape (C,): number in the table of each group with a choice.
    size_bytes
        Shape (C,).
    start
        Shape (C + 1,): entries of group c are ``start[c]:start[c + 1]``, lowest holder first.
    entry_group, entry_pair, entry_holder
        Shape (E,).
    """

    pairs: Ints
    cost_s: csr_array
    fixed_bytes: Floats
    groups: Ints
    size_bytes: Floats
    start: Ints
    entry_group: Ints
    entry_pair: Ints
    entry_holder: Ints

    @property
    def even(self) -> Floats:
        """Shape (E,): the same share for every holder of a group."""
        return 1.0 / np.diff(self.start)[self.entry_group].astype(np.float64)

    @cached_property
    def whole_s(self) -> Floats:
        """Shape (E,): how long a group's bytes take when all come from one holder alone."""
        if not self.cost_s.shape[0]:
            return np.zeros(len(self.entry_pair))
        slowest = self.cost_s.tocsc()[:, self.entry_pair].max(axis=0)
        whole: Floats = np.asarray(slowest.todense()).ravel() * self.size_bytes[self.entry_group]
        return whole

    @cached_property
    def quickest(self) -> Floats:
        """Shape (E,): all of a group from the holder that is the quickest alone."""
        least = np.minimum.reduceat(self.whole_s, self.start[:-1])[self.entry_group]
        place = np.where(self.whole_s <= least, np.arange(len(least)), len(least))
        shares = np.zeros(len(least))
        shares[np.minimum.reduceat(place, self.start[:-1])] = 1.0
        return shares

    def bytes_of(self, shares: Floats) -> Floats:
        """Shape (P,): bytes of each pair."""
        moved = np.bincount(
            self.entry_pair, shares * self.size_bytes[self.entry_group], len(self.pairs)
        )
        total: Floats = self.fixed_bytes + moved
        return total

    def busiest_s(self, shares: Floats) -> float:
        """How long the busiest resource takes."""
        return float((self.cost_s @ self.bytes_of(shares)).max(initial=0.0))

    def normalised(self, shares: Floats) -> Floats:
        """Non-negative and with sums of 1; a group of nothing is shared evenly."""
        kept = np.maximum(shares, 0.0)
        total = np.bincount(self.entry_group, kept, len(self.groups))[self.entry_group]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(total > 0, kept / total, self.even)


def choice_of(costs: PairCosts, table: Table, *, also: Ints | None = None) -> Choice:
    """From a table of requests.

    Parameters
    ----------
    also
        Further columns of the costs to have among the pairs, without bytes.
    """
    n, count = len(costs.endpoints), len(table.group_holders)
    moving = table.group >= 0
    size = np.bincount(
        table.group[moving], table.size_bytes[moving].astype(np.float64), minlength=count
    )
    lengths = np.array([len(holders) for holders in table.group_holders], dtype=np.int64)
    group = np.repeat(np.arange(count), lengths)
    holder = np.array([h for hs in table.group_holders for h in hs], dtype=np.int64)
    column = holder * n + table.group_target[group]
    pairs = np.unique(column if also is None else np.concatenate((column, also)))
    pair = np.searchsorted(pairs, column)
    free = (lengths > 1) & (size > 0)
    single = ~free[group]
    fixed = np.bincount(pair[single], size[group[single]], minlength=len(pairs))
    chosen = np.flatnonzero(free)
    place = np.full(count, -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    return Choice(
        pairs=pairs,
        cost_s=_without_series(csr_array(costs.seconds_per_byte.tocsc()[:, pairs])),
        fixed_bytes=fixed.astype(np.float64),
        groups=chosen,
        size_bytes=size[chosen].astype(np.float64),
        start=np.concatenate(([0], np.cumsum(lengths[chosen]))).astype(np.int64),
        entry_group=place[group[~single]],
        entry_pair=pair[~single].astype(np.int64),
        entry_holder=holder[~single],
    )


def _without_series(cost_s: csr_array) -> csr_array:
    """Without empty rows, and those that never take longer than another on the same pairs."""
    cost_s.sort_indices()
    slowest: dict[bytes, list[int]] = {}
    ptr, indices, data = cost_s.indptr, cost_s.indices, cost_s.data
    for row in range(cost_s.shape[0]):
        begin, end = int(ptr[row]), int(ptr[row + 1])
        if begin == end:
            continue
        own = data[begin:end]
        rivals = slowest.setdefault(indices[begin:end].tobytes(), [])
        others = [data[ptr[k] : ptr[k + 1]] for k in rivals]
        if not any((own <= other).all() for other in others):
            rivals[:] = [k for k, o in zip(rivals, others, strict=True) if not (o <= own).all()]
            rivals.append(row)
    return csr_array(cost_s[sorted(row for rows in slowest.values() for row in rows)])

"""What others do: policies to compare with, each a holder for every request.

=============  ==========================================================================
first          the lowest holder, even where the target holds the region itself
least-loaded   a local copy, else the holder that has sent the fewest bytes so far
fastest-pair   a local copy, else the holder whose pair is the fastest alone
per-request    a local copy, else the holder with which the busiest resource on the way is
               then the least busy, one request after another
online         a local copy, else the holder that adds least to the sum of the 16th powers
               of all busy times: what :class:`topocal.deepspeed.ReplicaSelector` does
=============  ==========================================================================

Requests come by parameter, target and origin; of equals the lowest holder is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.baseline_kernel import least_loaded, online, per_request
from topocal.solve.policy.table import Table

__all__ = ["BASELINES", "baseline"]

Ints = NDArray[np.int64]


def baseline(name: str, costs: PairCosts, table: Table) -> Ints:
    """Shape (N,): the holder of each request of the table, by a policy of :data:`BASELINES`."""
    return BASELINES[name](costs, table)


def _first(costs: PairCosts, table: Table) -> Ints:
    n = len(costs.endpoints)
    holder = _remote(table, np.array([h[0] for h in table.group_holders], dtype=np.int64))
    number = costs.number
    for row in np.flatnonzero(table.group < 0).tolist():
        target = int(table.target[row])
        names = table.requests[int(table.order[row])].holders
        holder[row] = min(
            place
            for place in map(number.__getitem__, names)
            if place == target or not costs.blocked[place * n + target]
        )
    return holder


def _fastest_pair(costs: PairCosts, table: Table) -> Ints:
    n = len(costs.endpoints)
    found = [
        min(holders, key=lambda h: (float(costs.alone_s[h * n + target]), h))
        for target, holders in zip(table.group_target.tolist(), table.group_holders, strict=True)
    ]
    return _remote(table, np.array(found, dtype=np.int64))


def _remote(table: Table, of_group: Ints) -> Ints:
    """The holder of each group for its requests; the target where the copy is local."""
    holder = table.target.copy()
    moving = table.group >= 0
    holder[moving] = of_group[table.group[moving]]
    return holder


def _least_loaded(costs: PairCosts, table: Table) -> Ints:
    rows, start, entry_holder, _ = _entries(costs, table)
    held = np.zeros(len(rows), dtype=np.int64)
    sent = np.zeros(len(costs.endpoints))
    size = table.size_bytes[rows].astype(np.float64)
    least_loaded(table.group[rows], size, start, entry_holder, sent, held)
    return _with_local(table, rows, entry_holder[held] if len(rows) else held)


def _per_request(costs: PairCosts, table: Table) -> Ints:
    return _one_by_one(per_request, costs, table)


def _online(costs: PairCosts, table: Table) -> Ints:
    return _one_by_one(online, costs, table)


def _one_by_one(policy: Callable[..., None], costs: PairCosts, table: Table) -> Ints:
    rows, start, entry_holder, entry_pair = _entries(costs, table)
    held = np.zeros(len(rows), dtype=np.int64)
    by_pair = costs.seconds_per_byte.tocsc()
    policy(
        table.group[rows],
        table.size_bytes[rows].astype(np.float64),
        start,
        entry_pair,
        by_pair.indptr.astype(np.int64),
        by_pair.indices.astype(np.int64),
        by_pair.data,
        np.zeros(len(costs.resources)),
        held,
    )
    return _with_local(table, rows, entry_holder[held] if len(rows) else held)


def _entries(costs: PairCosts, table: Table) -> tuple[Ints, Ints, Ints, Ints]:
    """Rows that move; of every group, one holder or more: where it starts, holders, pairs."""
    lengths = np.array([len(h) for h in table.group_holders], dtype=np.int64)
    start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    holder = np.array([h for hs in table.group_holders for h in hs], dtype=np.int64)
    target = np.repeat(table.group_target, lengths)
    return np.flatnonzero(table.group >= 0), start, holder, holder * len(costs.endpoints) + target


def _with_local(table: Table, rows: Ints, holders: Ints) -> Ints:
    found = table.target.copy()
    found[rows] = holders
    return found


BASELINES: Final[dict[str, Callable[[PairCosts, Table], Ints]]] = {
    "first": _first,
    "least-loaded": _least_loaded,
    "fastest-pair": _fastest_pair,
    "per-request": _per_request,
    "online": _online,
}
"""By name, in the order in which they are told."""

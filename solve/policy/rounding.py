"""Whole regions: the shares rounded to requests, then improved.

Shares give every holder of a group a quota of bytes.  The largest requests come first and go to
the holder that lacks most (what graph partitioners and list scheduling do); a local search
on the busiest resources follows, and where regions are so large that single ones matter, a
search by simulated finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.policy.choice import Choice
from topocal.solve.policy.judge import Judge, effort
from topocal.solve.policy.rounding_kernel import descend, fill
from topocal.solve.policy.table import Table

__all__ = ["Regions", "by_holder", "by_quota", "improved", "polished", "regions_of", "shares_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SWEEPS: Final = 20
"""Local search has always ended sooner on the machines of benchmarks/policy.py."""

_SPEND: Final = 300_000
"""Effort of the judge, as in :mod:`topocal.solve.policy.settle`."""

_LATE: Final = 1e-3
_BETTER: Final = 1e-9


@dataclass(frozen=True, eq=False)
class Regions:
    """The M requests that have a choice.

    Attributes
    ----------
    row
        Shape (M,): their rows in the table.
    group
        Shape (M,): number in the choice.
    size
        Shape (M,): bytes.
    order
        Shape (M,): largest first, then as in the table.
    """

    row: Ints
    group: Ints
    size: Floats
    order: Ints


def regions_of(choice: Choice, table: Table) -> Regions:
    """Those of a table."""
    place = np.full(len(table.group_holders) + 1, -1, dtype=np.int64)
    place[choice.groups] = np.arange(len(choice.groups))
    group = place[table.group]
    row = np.flatnonzero(group >= 0)
    size = table.size_bytes[row].astype(np.float64)
    return Regions(row, group[row], size, np.argsort(-size, kind="stable"))


def shares_of(choice: Choice, regions: Regions, held: Ints) -> Floats:
    """Shape (E,): the part of its group's bytes that each holder sends."""
    sent = np.bincount(held, regions.size, len(choice.entry_pair))
    size = choice.size_bytes[choice.entry_group]
    return np.divide(sent, size, out=choice.even.copy(), where=size > 0)


def by_holder(choice: Choice, regions: Regions, holder: Ints) -> Ints:
    """Shape (M,): the entry of each request, from the number of its holder."""
    span = int(choice.entry_holder.max(initial=0)) + 1
    # Entries stand by group, lowest holder first.
    keys = choice.entry_group * span + choice.entry_holder
    found: Ints = np.searchsorted(keys, regions.group * span + holder).astype(np.int64)
    return found


def by_quota(choice: Choice, regions: Regions, shares: Floats) -> Ints:
    """Shape (M,): the entry of each request."""
    held = np.zeros(len(regions.row), dtype=np.int64)
    quota = shares * choice.size_bytes[choice.entry_group]
    fill(regions.order, regions.group, regions.size, choice.start, quota, held)
    return held


def improved(choice: Choice, regions: Regions, held: Ints, unit_s: float, squarings: int) -> Ints:
    """After local search on the busiest resources, in units of ``unit_s``.

    The higher the power (2 to the ``squarings``), the less busy the busiest, and the less even
    the rest, which fair sharing may mind.
    """
    held = held.copy()
    if unit_s <= 0:
        return held
    by_pair = choice.cost_s.tocsc()
    by_pair.sort_indices()
    ptr, rows = by_pair.indptr.astype(np.int64), by_pair.indices.astype(np.int64)
    costs = by_pair.data / unit_s
    for _ in range(_SWEEPS):
        load = choice.cost_s @ choice.bytes_of(shares_of(choice, regions, held)) / unit_s
        moved = descend(
            regions.order,
            regions.group,
            regions.size,
            choice.start,
            choice.entry_pair,
            ptr,
            rows,
            costs,
            load,
            held,
            squarings,
        )
        if not moved:
            break
    return held


def polished(
    choice: Choice, judge: Judge, regions: Regions, held: Ints, enough_s: float
) -> tuple[Ints, float]:
    """After moving single requests of late pairs while that ends the whole sooner.

    Parameters
    ----------
    enough_s
        A finish that needs no further search.

    Returns
    -------
    The entries and their finish.
    """
    held = held.copy()
    limit = judge.spent + _SPEND
    while True:
        bytes_of = choice.bytes_of(shares_of(choice, regions, held))
        _, seconds = judge.race([bytes_of])
        now = float(seconds[0])
        if now <= enough_s:
            return held, now
        _, finish = judge.finishes_s(bytes_of[None, :])
        late = finish[0] >= now * (1.0 - _LATE)
        moves = _moves(choice, regions, held, late)
        affordable = (limit - judge.spent) // max(1, effort(int(np.count_nonzero(bytes_of))))
        moves = moves[: max(0, affordable)]
        if not len(moves):
            return held, now
        tried = np.repeat(bytes_of[None, :], len(moves), axis=0)
        k, entry = moves[:, 0], moves[:, 1]
        index = np.arange(len(moves))
        tried[index, choice.entry_pair[held[k]]] -= regions.size[k]
        tried[index, choice.entry_pair[entry]] += regions.size[k]
        seconds, _ = judge.finishes_s(np.maximum(tried, 0.0))
        if seconds.min() >= now * (1.0 - _BETTER):
            return held, now
        best = int(np.argmax(seconds <= seconds.min() * (1.0 + _BETTER)))
        held[k[best]] = entry[best]


def _moves(choice: Choice, regions: Regions, held: Ints, late: NDArray[np.bool_]) -> Ints:
    """``(request, entry)`` of every change of a late pair's requests, one of each size."""
    k = np.flatnonzero(late[choice.entry_pair[held]] & (regions.size > 0))
    keys = np.stack((held[k], regions.size[k].astype(np.int64)), axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    found = [
        (request, entry)
        for request in k[np.sort(first)].tolist()
        for entry in range(
            int(choice.start[regions.group[request]]), int(choice.start[regions.group[request] + 1])
        )
        if entry != held[request]
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)

"""Whether the two directions of a connection are really independent: flows that oppose
each other on it, such that they would take 1.4 times as long were they not.

Two flows between a pair do where they fill the connection, and tell of several
connections at once.  Where a connection carries more than one flow can, or nothing says
what it carries, it is filled by the flows that pin one of its directions and the same
the other way.  Of direct links between endpoints, so many are tried that every endpoint
is at one of them: they are of one make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure import design_kernel
from topocal.measure.crossings import CAPACITY
from topocal.measure.supplements import TELLS

if TYPE_CHECKING:
    from topocal.measure.pinning import Search
    from topocal.topo.topology import Topology

__all__ = ["Opposed", "connections", "opposed_flows"]

_TRIED: Final = 8
"""Pairs tried for one connection."""

Ints = NDArray[np.int32]
Classes = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Opposed:
    """Flows that oppose each other on a connection.

    Attributes
    ----------
    classes
        Both directions.
    rows
        The flows.
    ratio
        Busy seconds of both directions together over those of the busiest resource.
    """

    classes: Classes
    rows: tuple[int, ...]
    ratio: float


def connections(topology: Topology, search: Search) -> list[Classes]:
    """Both directions of each connection, as classes, where they differ and flows load them."""
    c = search.crossings
    column = {name: k for k, name in enumerate(c.resources)}
    found: dict[tuple[int, int], None] = {}
    for link in topology.links.values():
        if link.reverse is None or not link.uses:
            continue
        back = topology.links[link.reverse]
        if not back.uses:
            continue
        there, here = (int(c.class_of[column[x.uses[0][0]]]) for x in (link, back))
        if min(there, here) < 0 or there == here:
            continue
        if c.law[there] != CAPACITY or c.law[here] != CAPACITY:
            continue
        found[min(there, here), max(there, here)] = None
    return list(found)


def opposed_flows(
    search: Search,
    directions: Sequence[Classes],
    pinned_by: Mapping[int, Sequence[int]],
    measured: Iterable[Sequence[int]] = (),
) -> Iterator[Opposed]:
    """Flows both ways over each connection.

    Parameters
    ----------
    directions
        As :func:`connections` gives them.
    pinned_by
        Flows that make a class the clear bottleneck.
    measured
        Patterns that need not be repeated: a connection that one of them tries is passed over.
    """
    couples = _Couples(search, directions)
    for flows in measured:
        couples.close(flows, enough=TELLS)
    for one, other in couples.in_order(directions):
        mirrored = _mirrored(search, pinned_by.get(one) or pinned_by.get(other) or ())
        flows = () if mirrored and couples.is_vague(one, other) else couples.best(one, other)
        flows = flows or mirrored
        ratio = joint(search, one, other, flows) if flows else 0.0
        if ratio < search.clear:
            continue
        couples.close(flows, (one, other))
        search.take(flows)
        yield Opposed((one, other), flows, ratio)


class _Couples:
    """Which connections are still to be tried, and the pairs that try most of them."""

    def __init__(self, search: Search, directions: Sequence[Classes]) -> None:
        self._search = search
        c = search.crossings
        self._partner = np.full(c.classes, -1, dtype=np.int32)
        self.is_open = np.zeros(c.classes, dtype=np.bool_)
        for one, other in directions:
            self._partner[one], self._partner[other] = other, one
            self.is_open[[one, other]] = True
        unknown = np.zeros(c.classes, dtype=np.bool_)
        unknown[c.indices[np.isnan(c.nominal_s)]] = True
        self._vague = np.array([unknown[k] and self._is_inner(k) for k in range(c.classes)])
        self._met: set[int] = set()
        self._wins = np.empty(c.pairs, dtype=np.int32)

    def _is_inner(self, group: int) -> bool:
        """Whether several endpoints send over a class, and several receive."""
        c = self._search.crossings
        rows = c.rows_of(group)
        return bool(
            (c.source[rows] != c.source[rows[0]]).any()
            and (c.destination[rows] != c.destination[rows[0]]).any()
        )

    def is_vague(self, one: int, other: int) -> bool:
        """Whether more than one flow may be needed to fill a connection."""
        return bool(self._vague[one] or self._vague[other])

    def _ends(self, group: int) -> set[int]:
        """Both ends of a direct link, which one pair crosses; else none."""
        c = self._search.crossings
        rows = c.rows_of(group)
        return {int(c.source[rows[0]]), int(c.destination[rows[0]])} if len(rows) == 1 else set()

    def in_order(self, directions: Sequence[Classes]) -> Iterator[Classes]:
        """Inner connections of unknown speed, then all others, direct links last.

        What was tried meanwhile is passed over, and so are direct links between endpoints
        that were both at another one; those where neither was come first.
        """
        ranked = sorted(directions, key=lambda d: not self.is_vague(*d))
        direct = [d for d in ranked if self._ends(d[0])]
        yield from (d for d in ranked if not self._ends(d[0]) and self.is_open[d[0]])
        for enough in (1, 2):
            for one, other in direct:
                if self.is_open[one] and len(self._ends(one) & self._met) < enough:
                    yield one, other

    def best(self, one: int, other: int) -> tuple[int, ...]:
        """Two opposing flows that try a connection, and as many others as possible."""
        search, c = self._search, self._search.crossings
        rows = c.rows_of(one)
        ahead = (c.destination[rows] - c.source[rows]) % len(c.endpoints)
        rows = rows[np.argsort(ahead, kind="stable")]
        design_kernel.both_ways_value(
            rows,
            c.reverse,
            self._partner,
            self.is_open & ~self._vague,
            search.clear,
            c.indptr,
            c.indices,
            c.cost_s,
            search.load,
            self._wins,
        )
        wins = self._wins[: len(rows)]
        for at in np.lexsort((search.price(rows), -wins))[:_TRIED].tolist():
            couple = (int(rows[at]), int(c.reverse[rows[at]]))
            if min(couple) >= 0 and joint(search, one, other, couple) >= search.clear:
                return couple
        return ()

    def close(
        self, flows: Sequence[int], tried: Classes | None = None, *, enough: float = 0.0
    ) -> None:
        """Note which connections the flows have tried; ``tried`` for sure."""
        search, c = self._search, self._search.crossings
        spans = [c.indices[c.indptr[p] : c.indptr[p + 1]] for p in flows]
        for s in np.unique(np.concatenate(spans)).tolist():
            t = int(self._partner[s])
            if t < 0 or not self.is_open[s] or (self.is_vague(s, t) and s not in (tried or ())):
                continue
            if joint(search, s, t, flows) >= (enough or search.clear):
                self.is_open[[s, t]] = False
                self._met |= self._ends(s)
        if tried is not None:
            self.is_open[list(tried)] = False


def _mirrored(search: Search, rows: Sequence[int]) -> tuple[int, ...]:
    """Flows and the same the other way; none where one has no way back."""
    both = dict.fromkeys((*rows, *(int(search.crossings.reverse[p]) for p in rows)))
    return () if -1 in both else tuple(both)


def joint(search: Search, one: int, other: int, rows: Sequence[int]) -> float:
    """Busy seconds of two classes together over those of the busiest one."""
    c = search.crossings
    mine = 0.0
    for p in rows:
        span = slice(c.indptr[p], c.indptr[p + 1])
        hit = (c.indices[span] == one) | (c.indices[span] == other)
        mine += float(c.cost_s[span][hit].sum())
    longest = float(search.weigh([rows]).busy_s[0])
    return mine / longest if longest > 0 else 0.0

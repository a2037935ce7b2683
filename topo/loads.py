"""Seconds that a byte of each pair takes of each resource: what both simulators compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topocal.topo.capacities import SHARING_CODE, unknown_capacity
from topocal.topo.errors import FlowError, one_line
from topocal.topo.flow import Flow, Pattern
from topocal.topo.incidence import Incidence, incidence
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.capacities import Capacities
    from topocal.topo.topology import Topology

__all__ = ["Batch", "Loads", "batch_of"]


@dataclass(frozen=True, eq=False)
class Loads:
    """Seconds per byte of every pair on every resource that it loads.

    Compressed rows: pair p loads ``indices[indptr[p]:indptr[p + 1]]``.

    Attributes
    ----------
    pairs
        ``(source, destination)`` of each row.
    capacities
        What the columns are.
    indptr
        Shape (pairs + 1,).
    indices
        Columns.
    cost_s
        Seconds that one byte takes of the resource: weight / capacity; on a
        time-shared one 1 / solo rate, where the solo rate is what the pair's
        capacities, duplexes and fatpipes let through.  Zero where nothing binds,
        infinite behind a capacity of zero.
    """

    pairs: tuple[tuple[str, str], ...]
    capacities: Capacities
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    cost_s: NDArray[np.float64]

    @classmethod
    def of(cls, lines: Incidence, capacities: Capacities) -> Loads:
        """Loads of the pairs of an incidence.

        Raises
        ------
        TopologyError
            When a pair loads a resource whose capacity is unknown.
        """
        matrix = lines.matrix
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        weight = matrix.data.astype(np.float64)
        capacity = capacities.capacity_Bps[indices]
        lost = np.unique(indices[np.isnan(capacity)])
        if len(lost):
            raise unknown_capacity([capacities.resources[k] for k in lost])
        with np.errstate(divide="ignore"):
            cost = weight / capacity
        timed = capacities.sharing[indices] == SHARING_CODE[Sharing.TIME_SHARED]
        cost[timed] = 0.0
        if timed.any():
            row = np.repeat(np.arange(len(lines.pairs)), np.diff(indptr))
            solo_s = np.zeros(len(lines.pairs))
            np.maximum.at(solo_s, row, cost)
            cost[timed] = solo_s[row[timed]]
        return cls(lines.pairs, capacities, indptr, indices, cost)

    @property
    def solo_s(self) -> NDArray[np.float64]:
        """Shape (pairs,): seconds per byte of each pair when it runs alone."""
        solo = np.zeros(len(self.pairs))
        np.maximum.at(
            solo, np.repeat(np.arange(len(self.pairs)), np.diff(self.indptr)), self.cost_s
        )
        return solo


@dataclass(frozen=True, eq=False)
class Batch:
    """Patterns as arrays: pattern p has flows ``indptr[p]:indptr[p + 1]``.

    Attributes
    ----------
    indptr
        Shape (patterns + 1,).
    pair
        Shape (flows,), row of each flow's pair in :class:`Loads`.
    size_bytes, start_s
        Shape (flows,).

    Raises
    ------
    FlowError
        When there is no pattern, or one has no flows.
    """

    indptr: NDArray[np.int64]
    pair: NDArray[np.int64]
    size_bytes: NDArray[np.float64]
    start_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(self.indptr) < 2 or np.diff(self.indptr).min() < 1:
            raise FlowError("a pattern has no flows", remedy="give at least one flow to each")

    @property
    def patterns(self) -> int:
        """How many patterns."""
        return len(self.indptr) - 1

    def part(self, first: int, last: int) -> Batch:
        """Patterns ``first`` to ``last - 1``."""
        low, high = self.indptr[first], self.indptr[last]
        return Batch(
            self.indptr[first : last + 1] - low,
            self.pair[low:high],
            self.size_bytes[low:high],
            self.start_s[low:high],
        )

    def select(self, patterns: NDArray[np.int64]) -> Batch:
        """Some of the patterns, by number."""
        lengths = np.diff(self.indptr)[patterns]
        ends = np.concatenate(([0], np.cumsum(lengths)))
        flow = np.arange(ends[-1]) + np.repeat(self.indptr[patterns] - ends[:-1], lengths)
        return Batch(ends, self.pair[flow], self.size_bytes[flow], self.start_s[flow])

    @classmethod
    def single(
        cls,
        pair: NDArray[np.int64],
        size_bytes: NDArray[np.float64],
        start_s: NDArray[np.float64] | None = None,
    ) -> Batch:
        """One pattern; it starts at once unless told otherwise."""
        start = np.zeros(len(pair)) if start_s is None else start_s
        return cls(np.array([0, len(pair)], dtype=np.int64), pair, size_bytes, start)


def batch_of(topology: Topology, patterns: Sequence[Pattern]) -> tuple[Incidence, Batch]:
    """Patterns as arrays, and the incidence of the pairs that occur in them.

    Raises
    ------
    FlowError
        When there are no patterns, or one has no flows.
    UnknownEndpointError, NoRouteError
        When a flow cannot be carried on the topology.
    """
    if not patterns:
        raise FlowError("no patterns", remedy="give at least one")
    flows: list[Flow] = []
    ends = [0]
    for number, pattern in enumerate(patterns):
        if not pattern.flows:
            name = pattern.name or f"pattern {number + 1}"
            raise FlowError(f"{one_line(name)} has no flows", remedy="give at least one flow")
        flows.extend(pattern.flows)
        ends.append(len(flows))
    rows: dict[tuple[str, str], int] = {}
    pair = np.fromiter(
        (rows.setdefault((f.source, f.destination), len(rows)) for f in flows),
        dtype=np.int64,
        count=len(flows),
    )
    batch = Batch(
        np.array(ends, dtype=np.int64),
        pair,
        np.fromiter((f.size_bytes for f in flows), dtype=np.float64, count=len(flows)),
        np.fromiter((f.start_s for f in flows), dtype=np.float64, count=len(flows)),
    )
    return incidence(topology, list(rows)), batch

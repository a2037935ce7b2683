"""Which pair crosses what, with resources that no pattern can tell apart taken as one.

Resources that exactly the same pairs load, in the same proportion, are in *series*:
only the slowest of them shows, whatever is measured.  They make one *class*, which
stands for its slowest member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from topocal.topo.capacities import SHARING_CODE
from topocal.topo.errors import FlowError, InputError
from topocal.topo.incidence import Incidence, incidence
from topocal.topo.resource import PathClass, Sharing

if TYPE_CHECKING:
    from topocal.measure.prior import Prior
    from topocal.topo.topology import Topology

__all__ = ["CAPACITY", "FATPIPE", "MOST_ENDPOINTS", "TIME_SHARED", "Crossings", "lines_between"]

CAPACITY: Final = SHARING_CODE[Sharing.CAPACITY]
TIME_SHARED: Final = SHARING_CODE[Sharing.TIME_SHARED]
FATPIPE: Final = SHARING_CODE[Sharing.FATPIPE]

MOST_ENDPOINTS: Final = 2048
"""All ordered pairs of so many endpoints fit in about 3 GB."""

Ints = NDArray[np.int32]


def lines_between(topology: Topology, endpoints: Sequence[str]) -> tuple[Incidence, Ints, Ints]:
    """The incidence of all ordered pairs that a route joins, and both ends' numbers.

    Pairs stand in the order of their source, then destination.

    Raises
    ------
    UnknownEndpointError
        When one of them is not an endpoint of the topology.
    InputError
        When one stands twice, there are fewer than two or more than
        :data:`MOST_ENDPOINTS`, or no route joins any two.
    """
    topology.require_endpoints(endpoints)
    n = len(endpoints)
    if len(set(endpoints)) != n:
        twice = next(e for e in endpoints if list(endpoints).count(e) > 1)
        raise InputError(f"endpoint {twice} is named twice", remedy="name each once")
    if n < 2:
        raise FlowError(
            f"a plan needs two endpoints, not {n}", remedy="name others besides the accelerators"
        )
    if n > MOST_ENDPOINTS:
        raise InputError(
            f"{n} endpoints make {n * (n - 1):,} pairs",
            remedy=f"name at most {MOST_ENDPOINTS:,} of them",
        )
    source = np.repeat(np.arange(n, dtype=np.int32), n)
    destination = np.tile(np.arange(n, dtype=np.int32), n)
    joined = topology.routes(endpoints).path_class.ravel() != PathClass.DIS
    keep = joined & (source != destination)
    source, destination = source[keep], destination[keep]
    if not len(source):
        raise FlowError(
            "no route joins any two of the endpoints", remedy="name endpoints that are connected"
        )
    pairs = [(endpoints[i], endpoints[j]) for i, j in zip(source, destination, strict=True)]
    return incidence(topology, pairs), source, destination


@dataclass(frozen=True, eq=False)
class Crossings:
    """Seconds per byte that every pair takes of every class of resources.

    Attributes
    ----------
    endpoints
        Names, n of them.
    source, destination
        Shape (P,): numbers of both ends of each pair.
    is_far
        Shape (P,): whether it leaves its socket or its machine.
    resources
        Ids of all resources of the topology.
    members
        Resource columns of each class, the slowest first; K classes.
    class_of
        Class of each resource column; -1 where no pair loads it.
    indptr, indices, cost_s
        Compressed rows: pair p takes ``cost_s`` seconds per byte of class ``indices``.
    nominal_s
        The same by specification alone: NaN where a member's nominal capacity is unknown.
    law, kappa
        Shape (K,): how a class is shared (:data:`~topocal.topo.capacities.SHARING_CODE`, a
        duplex counts as a capacity), and its overlap.
    """

    endpoints: tuple[str, ...]
    source: Ints
    destination: Ints
    is_far: NDArray[np.bool_]
    resources: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    class_of: Ints
    indptr: NDArray[np.int64]
    indices: Ints
    cost_s: NDArray[np.float64]
    nominal_s: NDArray[np.float64]
    law: NDArray[np.int8]
    kappa: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        topology: Topology,
        endpoints: Sequence[str],
        lines: Incidence,
        source: Ints,
        destination: Ints,
        prior: Prior,
    ) -> Crossings:
        """Merge the columns of ``lines``, with the speeds of ``prior``."""
        table = list(topology.resources.values())
        law = np.array([_law(r.sharing) for r in table], dtype=np.int8)
        kappa = np.array([r.kappa for r in table])
        members = _classes(lines.matrix, law, prior.seconds_per_byte, kappa)
        class_of = np.full(len(table), -1, dtype=np.int32)
        for k, group in enumerate(members):
            class_of[list(group)] = k
        first = np.array([group[0] for group in members], dtype=np.int64)
        reduced = csr_array(lines.matrix[:, first])
        reduced.sort_indices()
        indptr = reduced.indptr.astype(np.int64)
        indices = reduced.indices.astype(np.int32)
        # A class has a nominal speed only where all its members have: the slowest shows.
        slowest = np.array([prior.nominal_s[list(group)].max() for group in members])
        timed = law[first] == TIME_SHARED
        cost, nominal = (
            _with_solo(reduced.data * speed[indices], indptr, timed[indices])
            for speed in (prior.seconds_per_byte[first], np.where(timed, 0.0, slowest))
        )
        routes = topology.routes(tuple(endpoints))
        return cls(
            endpoints=tuple(endpoints),
            source=source,
            destination=destination,
            is_far=routes.path_class[source, destination] >= PathClass.SYS,
            resources=lines.resources,
            members=members,
            class_of=class_of,
            indptr=indptr,
            indices=indices,
            cost_s=cost,
            nominal_s=nominal,
            law=law[first],
            kappa=kappa[first],
        )

    @property
    def pairs(self) -> int:
        """How many pairs."""
        return len(self.source)

    @property
    def classes(self) -> int:
        """How many classes."""
        return len(self.members)

    @cached_property
    def _by_class(self) -> csc_array:
        shape = (self.pairs, self.classes)
        ones = np.ones(len(self.indices), dtype=np.int8)
        return csr_array((ones, self.indices, self.indptr), shape=shape).tocsc()

    @cached_property
    def column_indptr(self) -> NDArray[np.int64]:
        """Class k is crossed by the pairs ``column_rows[column_indptr[k]:column_indptr[k+1]]``."""
        return self._by_class.indptr.astype(np.int64, copy=False)

    @cached_property
    def column_rows(self) -> Ints:
        """See :attr:`column_indptr`."""
        return self._by_class.indices.astype(np.int32, copy=False)

    def rows_of(self, k: int) -> Ints:
        """Pairs that cross class ``k``, in order."""
        found: Ints = self.column_rows[self.column_indptr[k] : self.column_indptr[k + 1]]
        return found

    @cached_property
    def solo_s(self) -> NDArray[np.float64]:
        """Shape (P,): seconds per byte of each pair alone."""
        return _row_max(self.cost_s, self.indptr)

    @cached_property
    def row(self) -> Ints:
        """Shape (n, n): the row of each pair, -1 where there is none."""
        n = len(self.endpoints)
        found = np.full((n, n), -1, dtype=np.int32)
        found[self.source, self.destination] = np.arange(self.pairs, dtype=np.int32)
        return found

    @cached_property
    def reverse(self) -> Ints:
        """Shape (P,): the row of the pair the other way, -1 where there is none."""
        found: Ints = self.row[self.destination, self.source]
        return found

    def sending(self, endpoint: int) -> Ints:
        """Rows of the pairs that begin at an endpoint, in the order of the other end."""
        return self._near(self.row[endpoint], endpoint)

    def receiving(self, endpoint: int) -> Ints:
        """Rows of the pairs that end there."""
        return self._near(self.row[:, endpoint], endpoint)

    @staticmethod
    def _near(rows: Ints, endpoint: int) -> Ints:
        """``rows`` by how far the other end's number is ahead of the endpoint's."""
        turned = np.concatenate((rows[endpoint + 1 :], rows[:endpoint]))
        return turned[turned >= 0]

    def names(self, rows: Sequence[int]) -> list[tuple[str, str]]:
        """``(source, destination)`` of each row."""
        ends = self.endpoints
        return [(ends[self.source[p]], ends[self.destination[p]]) for p in rows]


def _law(sharing: Sharing) -> int:
    return CAPACITY if sharing is Sharing.DUPLEX else SHARING_CODE[sharing]


def _row_max(values: NDArray[np.float64], indptr: NDArray[np.int64]) -> NDArray[np.float64]:
    """Largest of each row, zero where it is empty."""
    found = np.zeros(len(indptr) - 1)
    full = np.flatnonzero(np.diff(indptr))
    if len(full):
        found[full] = np.maximum.reduceat(values, indptr[full])
    return found


def _with_solo(
    cost: NDArray[np.float64], indptr: NDArray[np.int64], timed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """``cost`` with the pair's time alone where the resource is time-shared."""
    if timed.any():
        cost[timed] = np.repeat(_row_max(cost, indptr), np.diff(indptr))[timed]
    return cost


def _classes(
    matrix: csr_array,
    law: NDArray[np.int8],
    seconds_per_byte: NDArray[np.float64],
    kappa: NDArray[np.float64],
) -> tuple[tuple[int, ...], ...]:
    """Columns in series, the slowest of each class first; classes by their first column."""
    columns = matrix.tocsc()
    columns.sort_indices()
    spans = np.diff(columns.indptr)
    used = np.flatnonzero(spans)
    first = columns.indptr[used]
    weight_of_first = np.repeat(columns.data[first], spans[used])
    relative = columns.data / weight_of_first
    # How often a byte counts on a time-shared resource makes no difference.
    relative[np.repeat(law == TIME_SHARED, spans)] = 1.0
    keys = _mixed(columns.indices.astype(np.uint64)) * (_mixed(relative.view(np.uint64)) | 1)
    digest = np.add.reduceat(keys, first)
    groups: dict[tuple[int, int, int], list[list[int]]] = defaultdict(list)
    for k, column in enumerate(used.tolist()):
        span = slice(columns.indptr[column], columns.indptr[column + 1])
        # Of one pair alone, a limit on each flow and one on all of them are the same.
        kind = CAPACITY if spans[column] == 1 and law[column] == FATPIPE else int(law[column])
        alike = groups[kind, int(spans[column]), int(digest[k])]
        for group in alike:
            other = slice(columns.indptr[group[0]], columns.indptr[group[0] + 1])
            if np.array_equal(columns.indices[span], columns.indices[other]) and np.array_equal(
                relative[span], relative[other]
            ):
                group.append(column)
                break
        else:
            alike.append([column])
    slowness = np.where(law == TIME_SHARED, kappa, seconds_per_byte)
    slowness[used] *= np.where(law[used] == TIME_SHARED, 1.0, columns.data[first])
    found = [
        tuple(sorted(group, key=lambda c: (-slowness[c], c)))
        for alike in groups.values()
        for group in alike
    ]
    return tuple(sorted(found, key=min))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195): well-spread bits."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))

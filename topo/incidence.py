"""Flows × resources: who loads what, as one sparse matrix with named axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.topo.errors import FlowError, NoRouteError
from topocal.topo.incidence_kernel import load_entries
from topocal.topo.resource import PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Incidence", "PairRoutes", "incidence", "loads", "routes_of_pairs"]

Ints = NDArray[np.int64]

_KEEP_ALL_PAIRS: Final = 256
"""Up to so many endpoints, routes of all pairs are found once and kept for the next call."""


@dataclass(frozen=True)
class Incidence:
    """Which resource each pair loads, and how often a byte counts there.

    Attributes
    ----------
    pairs
        ``(source, destination)`` of each row.
    resources
        Resource id of each column.
    matrix
        Shape (pairs, resources), weights, zero where a pair does not load a resource; in
        canonical form (sorted, no entry twice).
    """

    pairs: tuple[tuple[str, str], ...]
    resources: tuple[str, ...]
    matrix: csr_array


def incidence(topology: Topology, pairs: Sequence[tuple[str, str]]) -> Incidence:
    """The incidence of ``pairs`` on all resources of a topology.

    A pair may stand several times; a pair from an endpoint to itself loads nothing.

    Raises
    ------
    UnknownEndpointError
        When a pair names no endpoint of the topology.
    NoRouteError
        When nothing connects a pair.
    FlowError
        When there are no pairs.
    """
    if not pairs:
        raise FlowError("no flows", remedy="give at least one source and destination")
    names = set(map(itemgetter(0), pairs)) | set(map(itemgetter(1), pairs))
    topology.require_endpoints(sorted(names))
    numbers = topology.router.number
    source, destination = _numbers(numbers, pairs, 0), _numbers(numbers, pairs, 1)
    return Incidence(tuple(pairs), tuple(topology.resources), loads(topology, source, destination))


def _numbers(numbers: dict[str, int], pairs: Sequence[tuple[str, str]], side: int) -> Ints:
    found = map(numbers.__getitem__, map(itemgetter(side), pairs))
    return np.fromiter(found, dtype=np.int64, count=len(pairs))


def loads(topology: Topology, source: Ints, destination: Ints) -> csr_array:
    """The matrix of :class:`Incidence`, from the numbers of endpoints.

    Parameters
    ----------
    source, destination
        Shape (pairs,): as ``topology.router.number`` has them.

    Raises
    ------
    NoRouteError
        When nothing connects a pair.
    """
    routes = routes_of_pairs(topology, source, destination)
    if np.any(routes.path_class == PathClass.DIS):
        lost = int(np.argmax(routes.path_class == PathClass.DIS))
        name = list(topology.router.number)
        raise NoRouteError(
            f"no route from {name[source[lost]]} to {name[destination[lost]]}",
            remedy="add the link that joins them",
        )
    columns = len(topology.resources)
    ways = (source, destination, routes.path_class, routes.route, routes.indptr, routes.links)
    most = topology.rules.most(source, destination, np.diff(routes.indptr)[routes.route])
    indptr = np.zeros(len(source) + 1, dtype=np.int64)
    indices, data = np.empty(most, dtype=np.int32), np.empty(most)
    load_entries(columns, *ways, indptr, indices, data, *topology.rules.arrays)
    size = int(indptr[-1])
    if size <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    shape = (len(source), columns)
    matrix = csr_array((data[:size].copy(), indices[:size].copy(), indptr), shape=shape)
    matrix.has_canonical_format = True
    return matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRoutes:
    """Routes of pairs: pair p crosses ``links[indptr[route[p]]:indptr[route[p] + 1]]``.

    Attributes
    ----------
    route
        Shape (pairs,): which route each pair goes by.
    indptr, links
        Links of the routes, by their number in ``topology.router.links``.
    path_class
        Shape (pairs,): code of each pair.
    """

    route: Ints
    indptr: Ints
    links: NDArray[np.int32]
    path_class: NDArray[np.int8]


def routes_of_pairs(topology: Topology, source: Ints, destination: Ints) -> PairRoutes:
    """Routes of pairs of endpoints, given by number as ``topology.router.number`` has them.

    From the routes of all pairs where those are small or wanted anyway, else one by one.
    """
    numbers = topology.router.number
    accelerators = np.zeros(len(numbers), dtype=bool)
    accelerators[[numbers[name] for name in topology.accelerators]] = True
    inside = bool(accelerators[source].all() and accelerators[destination].all())
    group = topology.accelerators if inside else topology.endpoints
    if len(group) <= _KEEP_ALL_PAIRS or len(source) * 4 >= len(group) ** 2:
        found = topology.routes(group)
        place = np.zeros(len(numbers), dtype=np.int64)
        place[[numbers[name] for name in group]] = np.arange(len(group))
        route = place[source] * len(group) + place[destination]
        return PairRoutes(
            route=route,
            indptr=found.indptr,
            links=found.indices,
            path_class=found.path_class.reshape(-1)[route],
        )
    key, route = np.unique(source * len(numbers) + destination, return_inverse=True)
    one_by_one = topology.router.find(key // len(numbers), key % len(numbers))
    present = one_by_one.rows >= 0
    return PairRoutes(
        route=route.astype(np.int64),
        indptr=np.concatenate(([0], np.cumsum(present.sum(axis=1)))),
        links=one_by_one.rows[present],
        path_class=one_by_one.path_class[route],
    )

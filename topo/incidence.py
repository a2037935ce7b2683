"""Flows × resources: who loads what, as one sparse matrix with named axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.topo.errors import FlowError, NoRouteError
from topocal.topo.resource import PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Incidence", "incidence"]

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
    flows = _crossings(topology, pairs, names)
    if np.any(flows.path_class == PathClass.DIS):
        lost = pairs[int(np.argmax(flows.path_class == PathClass.DIS))]
        raise NoRouteError(
            f"no route from {lost[0]} to {lost[1]}", remedy="add the link that joins them"
        )
    columns = {name: k for k, name in enumerate(topology.resources)}
    matrix = _through_links(topology, flows, columns)
    if topology.uses:
        matrix = csr_array(matrix + _by_rule(topology, flows, columns))
    matrix.sum_duplicates()
    return Incidence(tuple(pairs), tuple(columns), matrix)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crossings:
    """Links of each flow: flow k crosses ``links[indptr[k]:indptr[k + 1]]``."""

    source: Ints
    destination: Ints
    indptr: Ints
    links: NDArray[np.int32]
    path_class: NDArray[np.int8]


def _crossings(topology: Topology, pairs: Sequence[tuple[str, str]], names: set[str]) -> _Crossings:
    """From the routes of all pairs where those are small or wanted anyway, else one by one."""
    numbers = topology.router.number
    source = _numbers(numbers, pairs, 0)
    destination = _numbers(numbers, pairs, 1)
    group = topology.accelerators if names <= set(topology.accelerators) else topology.endpoints
    if len(group) <= _KEEP_ALL_PAIRS or len(pairs) * 4 >= len(group) ** 2:
        routes = topology.routes(group)
        place = np.zeros(len(numbers), dtype=np.int64)
        place[[numbers[name] for name in group]] = np.arange(len(group))
        pair = place[source] * len(group) + place[destination]
        indptr, links = routes.indptr, routes.indices
        path_class = routes.path_class.reshape(-1)[pair]
    else:
        key, pair = np.unique(source * len(numbers) + destination, return_inverse=True)
        found = topology.router.find(key // len(numbers), key % len(numbers))
        present = found.rows >= 0
        indptr = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
        links, path_class = found.rows[present], found.path_class[pair]
    lengths = indptr[pair + 1] - indptr[pair]
    ends = np.concatenate(([0], np.cumsum(lengths)))
    step = np.arange(ends[-1]) + np.repeat(indptr[pair] - ends[:-1], lengths)
    return _Crossings(
        source=source,
        destination=destination,
        indptr=ends,
        links=links[step],
        path_class=path_class,
    )


def _numbers(numbers: dict[str, int], pairs: Sequence[tuple[str, str]], side: int) -> Ints:
    found = map(numbers.__getitem__, map(itemgetter(side), pairs))
    return np.fromiter(found, dtype=np.int64, count=len(pairs))


def _through_links(topology: Topology, flows: _Crossings, columns: dict[str, int]) -> csr_array:
    """Loads by the resources that links use."""
    uses = [topology.links[link].uses for link in topology.router.links]
    count = np.array([len(u) for u in uses], dtype=np.int64)
    column = np.array([columns[r] for u in uses for r, _ in u], dtype=np.int32)
    weight = np.array([w for u in uses for _, w in u], dtype=np.float64)
    indptr = flows.indptr
    if np.all(count == 1):
        at = flows.links.astype(np.intp)
    else:
        many = count[flows.links]
        ends = np.concatenate(([0], np.cumsum(many)))
        begin = (np.cumsum(count) - count)[flows.links]
        at = np.arange(ends[-1]) + np.repeat(begin - ends[:-1], many)
        indptr = ends[indptr]
    shape = (len(flows.source), len(columns))
    return csr_array((weight[at], column[at], indptr), shape=shape)


def _by_rule(topology: Topology, flows: _Crossings, columns: dict[str, int]) -> csr_array:
    """Loads by :class:`Use`; flows are looked up by endpoint, not scanned once per rule."""
    numbers = topology.router.number
    n = len(numbers)
    by_source = _Grouped(flows.source, n)
    by_destination = _Grouped(flows.destination, n)
    rows, cols, weights = [], [], []
    different = flows.source != flows.destination
    for use in topology.uses:
        if use.sources is not None:
            candidates = by_source.members([numbers[e] for e in set(use.sources)])
        elif use.destinations is not None:
            candidates = by_destination.members([numbers[e] for e in set(use.destinations)])
        else:
            candidates = np.arange(len(flows.source))
        keep = different[candidates]
        if use.sources is not None and use.destinations is not None:
            wanted = np.zeros(n, dtype=bool)
            wanted[[numbers[e] for e in use.destinations]] = True
            keep &= wanted[flows.destination[candidates]]
        if use.path_classes is not None:
            keep &= np.isin(flows.path_class[candidates], [int(c) for c in use.path_classes])
        chosen = candidates[keep]
        rows.append(chosen)
        cols.append(np.full(len(chosen), columns[use.resource]))
        weights.append(np.full(len(chosen), use.weight))
    shape = (len(flows.source), len(columns))
    triples = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(cols)))
    return coo_array(triples, shape=shape).tocsr()


class _Grouped:
    """Flow numbers by the endpoint they share."""

    def __init__(self, endpoint: Ints, n: int) -> None:
        self._order = np.argsort(endpoint, kind="stable")
        self._bounds = np.searchsorted(endpoint[self._order], np.arange(n + 1))

    def members(self, endpoints: list[int]) -> Ints:
        """Flows of any of ``endpoints``."""
        spans = [self._order[self._bounds[e] : self._bounds[e + 1]] for e in endpoints]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

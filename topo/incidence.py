"""Flows × resources: who loads what, as one sparse matrix with named axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.topo.errors import FlowError, NoRouteError
from topocal.topo.resource import PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Incidence", "incidence"]


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
        Shape (pairs, resources), weights, zero where a pair does not load a resource.
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
    names = {name for pair in pairs for name in pair}
    topology.require_endpoints(sorted(names))
    accelerators = set(topology.accelerators)
    routes = topology.routes(None if names <= accelerators else topology.endpoints)
    n = len(routes.endpoints)
    source = np.array([routes.position[s] for s, _ in pairs], dtype=np.int64)
    destination = np.array([routes.position[d] for _, d in pairs], dtype=np.int64)
    code = routes.path_class[source, destination]
    if np.any(code == PathClass.DIS):
        lost = pairs[int(np.argmax(code == PathClass.DIS))]
        raise NoRouteError(
            f"no route from {lost[0]} to {lost[1]}", remedy="add the link that joins them"
        )
    columns = {name: k for k, name in enumerate(topology.resources)}
    flow, link = _crossings(routes.indptr, routes.indices, source * n + destination)
    link_rows, link_columns, link_weights = _link_uses(topology, routes.links, columns)
    crossing = coo_array((np.ones(len(flow)), (flow, link)), shape=(len(pairs), len(routes.links)))
    through_links = crossing.tocsr() @ csr_array(
        (link_weights, (link_rows, link_columns)), shape=(len(routes.links), len(columns))
    )
    by_rule = _rule_uses(topology, routes.position, columns, source, destination, code)
    return Incidence(tuple(pairs), tuple(topology.resources), csr_array(through_links + by_rule))


def _crossings(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], pair: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``(row, link)`` of every link that the pairs cross, without a Python loop."""
    lengths = indptr[pair + 1] - indptr[pair]
    row = np.repeat(np.arange(len(pair)), lengths)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return row, indices[np.repeat(indptr[pair], lengths) + offset].astype(np.int64)


def _link_uses(
    topology: Topology, links: tuple[str, ...], columns: dict[str, int]
) -> tuple[list[int], list[int], list[float]]:
    rows, cols, weights = [], [], []
    for k, link in enumerate(links):
        for resource, weight in topology.links[link].uses:
            rows.append(k)
            cols.append(columns[resource])
            weights.append(weight)
    return rows, cols, weights


def _rule_uses(
    topology: Topology,
    position: dict[str, int],
    columns: dict[str, int],
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    code: NDArray[np.int8],
) -> csr_array:
    """Loads by :class:`Use`; flows are looked up by endpoint, not scanned once per rule."""
    n = len(position)
    by_source = _Grouped(source, n)
    by_destination = _Grouped(destination, n)
    rows, cols, weights = [], [], []
    different = source != destination
    for use in topology.uses:
        ends = [position[e] for e in use.sources or () if e in position]
        starts_here = use.sources is not None
        if starts_here:
            candidates = by_source.members(ends)
        elif use.destinations is not None:
            candidates = by_destination.members(
                [position[e] for e in use.destinations if e in position]
            )
        else:
            candidates = np.arange(len(source))
        keep = different[candidates]
        if starts_here and use.destinations is not None:
            wanted = np.zeros(n, dtype=bool)
            wanted[[position[e] for e in use.destinations if e in position]] = True
            keep &= wanted[destination[candidates]]
        if use.path_classes is not None:
            keep &= np.isin(code[candidates], [int(c) for c in use.path_classes])
        chosen = candidates[keep]
        rows.append(chosen)
        cols.append(np.full(len(chosen), columns[use.resource]))
        weights.append(np.full(len(chosen), use.weight))
    shape = (len(source), len(columns))
    if not rows:
        return csr_array(shape)
    triples = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(cols)))
    return coo_array(triples, shape=shape).tocsr()


class _Grouped:
    """Flow numbers by the endpoint they share."""

    def __init__(self, endpoint: NDArray[np.int64], n: int) -> None:
        self._order = np.argsort(endpoint, kind="stable")
        self._bounds = np.searchsorted(endpoint[self._order], np.arange(n + 1))

    def members(self, endpoints: list[int]) -> NDArray[np.int64]:
        """Flows of any of ``endpoints``."""
        spans = [self._order[self._bounds[e] : self._bounds[e + 1]] for e in endpoints]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

"""Deterministic routes between endpoints, all pairs at once.

The cheapest chain of links wins, where a link's cost says what a transfer
prefers: a GPU fabric before PCIe, PCIe before the hop between sockets, anything
before a network.  Endpoints do not pass traffic on, except NICs, and equal
costs are decided by link id, so that every run and every rank finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from topocal.topo.errors import NoRouteError, UnknownEndpointError
from topocal.topo.resource import Link, LinkKind, NodeKind, PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Routes", "all_pairs_routes"]

# Only the order of magnitude matters: one link of a dearer kind outweighs any
# number of cheaper ones that a real machine chains.
_COST: Final = {
    LinkKind.NVLINK: 1.0,
    LinkKind.XGMI: 1.0,
    LinkKind.XELINK: 1.0,
    LinkKind.C2C: 10.0,
    LinkKind.MEMORY: 10.0,
    LinkKind.PCIE: 100.0,
    LinkKind.UNKNOWN: 100.0,
    LinkKind.SMP: 10_000.0,
    LinkKind.NET: 1_000_000.0,
}
_FABRIC: Final = (LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK)


@dataclass(frozen=True)
class Routes:
    """Ordered links from every endpoint to every other.

    Attributes
    ----------
    endpoints
        Row and column names, n of them.
    links
        Link ids that ``indices`` refers to.
    indptr
        Shape (n*n + 1,): pair ``i*n + j`` has links ``indices[indptr[p]:indptr[p+1]]``.
    indices
        Link numbers in the order of travel; a link crossed twice stands twice.
    path_class
        Shape (n, n), :class:`PathClass` codes; ``DIS`` where there is no route.
    """

    endpoints: tuple[str, ...]
    links: tuple[str, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    path_class: NDArray[np.int8]

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each endpoint."""
        return {name: k for k, name in enumerate(self.endpoints)}

    def pair_index(self, source: str, destination: str) -> int:
        """Row of a pair in ``indptr``.

        Raises
        ------
        UnknownEndpointError
            When either is not among ``endpoints``.
        """
        for name in (source, destination):
            if name not in self.position:
                raise UnknownEndpointError(name, self.endpoints)
        return self.position[source] * len(self.endpoints) + self.position[destination]

    def route(self, source: str, destination: str) -> tuple[str, ...]:
        """Ids of the links from source to destination, in order.

        Raises
        ------
        UnknownEndpointError
            When either is not an endpoint.
        NoRouteError
            When nothing connects them.
        """
        pair = self.pair_index(source, destination)
        if self.path_class.flat[pair] == PathClass.DIS:
            raise NoRouteError(
                f"no route from {source} to {destination}", remedy="add the link that joins them"
            )
        span = self.indices[self.indptr[pair] : self.indptr[pair + 1]]
        return tuple(self.links[k] for k in span)

    def classes(self) -> Iterator[tuple[str, str, PathClass]]:
        """``(source, destination, path class)`` of all ordered pairs of different endpoints."""
        for i, source in enumerate(self.endpoints):
            for j, destination in enumerate(self.endpoints):
                if i != j:
                    yield source, destination, PathClass(int(self.path_class[i, j]))


def all_pairs_routes(topology: Topology, endpoints: tuple[str, ...]) -> Routes:
    """Routes between all ordered pairs of ``endpoints``.

    Raises
    ------
    UnknownEndpointError
        When one of them is not an endpoint of the topology.
    """
    topology.require_endpoints(endpoints)
    nodes = list(topology.graph.nodes)
    number = {node: k for k, node in enumerate(nodes)}
    links = list(topology.links.values())
    kinds = [topology.graph.nodes[node]["kind"] for node in nodes]
    # An endpoint may send and receive but not pass on: it receives at a copy of its node.
    arrival = np.arange(len(nodes))
    extra = [k for k, kind in enumerate(kinds) if kind.is_endpoint and kind is not NodeKind.NIC]
    arrival[extra] = len(nodes) + np.arange(len(extra))
    size = len(nodes) + len(extra)

    tails = np.array([number[link.tail] for link in links], dtype=np.int64)
    heads = np.array([arrival[number[link.head]] for link in links], dtype=np.int64)
    # The tie-break is far below any cost and grows with the link's place in natural order.
    costs = np.array([_COST[link.kind] for link in links]) + 1e-3 * np.arange(len(links)) / max(
        1, len(links)
    )
    order = np.lexsort((costs, heads, tails))
    keys = tails[order] * size + heads[order]
    keys, first = np.unique(keys, return_index=True)
    best = order[first]
    weights = csr_array((costs[best], (tails[best], heads[best])), shape=(size, size))

    start = np.array([number[e] for e in endpoints], dtype=np.int64)
    n = len(endpoints)
    if n == 0 or not links:
        empty = np.full((n, n), PathClass.DIS, dtype=np.int8)
        np.fill_diagonal(empty, PathClass.LOC)
        return Routes(endpoints, (), np.zeros(n * n + 1, np.int64), np.zeros(0, np.int32), empty)
    _, before = dijkstra(weights, indices=start, return_predecessors=True)
    steps = _walk_back(before, start, arrival[start], keys, best, size)
    indptr, indices = _pack(steps)
    path_class = _classify(topology, links, kinds, number, indptr, indices, n)
    return Routes(endpoints, tuple(link.id for link in links), indptr, indices, path_class)


def _walk_back(
    before: NDArray[np.int32],
    start: NDArray[np.int64],
    goal: NDArray[np.int64],
    keys: NDArray[np.int64],
    best: NDArray[np.int64],
    size: int,
) -> list[NDArray[np.int64]]:
    """Link numbers of all pairs, last hop first; -1 where a route has already begun."""
    n = len(start)
    source = np.repeat(np.arange(n), n)
    here = np.tile(goal, n)
    here[source == np.tile(np.arange(n), n)] = -1
    steps: list[NDArray[np.int64]] = []
    while True:
        previous = np.where(here >= 0, before[source, here], -1)
        alive = previous >= 0
        if not alive.any():
            return steps or [np.full(n * n, -1, dtype=np.int64)]
        link = np.full(n * n, -1, dtype=np.int64)
        link[alive] = best[np.searchsorted(keys, previous[alive] * np.int64(size) + here[alive])]
        steps.append(link)
        here = np.where(alive, previous, -1)


def _pack(steps: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Compressed rows in order of travel."""
    table = np.stack(steps[::-1], axis=1)
    present = table >= 0
    indptr = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
    return indptr, table[present].astype(np.int32)


def _classify(
    topology: Topology,
    links: list[Link],
    kinds: list[NodeKind],
    number: dict[str, int],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    n: int,
) -> NDArray[np.int8]:
    """Path classes from what each route crosses."""
    link_kind = [link.kind for link in links]
    head_kind = [kinds[number[link.head]] for link in links]

    def count(flags: list[bool]) -> NDArray[np.int64]:
        marked = np.array(flags, dtype=np.int64)[indices]
        return np.diff(np.concatenate(([0], np.cumsum(marked)))[indptr])

    hops = np.diff(indptr)
    switches = count([k is NodeKind.PCIE_SWITCH for k in head_kind])
    bridges = count([k is NodeKind.HOST_BRIDGE for k in head_kind])
    sockets = count([k in (NodeKind.SOCKET, NodeKind.GROUP) for k in head_kind])
    code = np.where(switches <= 1, PathClass.PIX, PathClass.PXB)
    code[(bridges == 1) | (sockets >= 1)] = PathClass.PHB
    code[bridges >= 2] = PathClass.NODE
    code[count([k is LinkKind.SMP for k in link_kind]) >= 1] = PathClass.SYS
    code[sockets >= 2] = PathClass.SYS
    code[(hops > 0) & (count([k is LinkKind.C2C for k in link_kind]) == hops)] = PathClass.C2C
    code[(hops > 0) & (count([k in _FABRIC for k in link_kind]) == hops)] = PathClass.NVL
    code[count([k is LinkKind.NET for k in link_kind]) >= 1] = PathClass.NET
    code[hops == 0] = PathClass.DIS
    path_class = code.reshape(n, n).astype(np.int8)
    np.fill_diagonal(path_class, PathClass.LOC)
    return path_class

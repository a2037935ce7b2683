"""Deterministic routes between endpoints, all pairs at once.

What a transfer prefers, best first:

1. a GPU fabric (NVLink, xGMI, Xe Link), direct or through its switch;
2. the lowest common PCIe ancestor: a switch, a root complex, a socket;
3. the hop between sockets;
4. a network, from the NIC nearest to the source to the one nearest to the
   destination (:mod:`topocal.topo.gateways`).

Endpoints do not pass traffic on, except where there is no other way.  Where the
topology says that two endpoints are no peers, their copies are staged: up to
host memory, or the root above it, and down again, so that an uplink that both
lie under is crossed twice.  :mod:`topocal.topo.router` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topocal.topo.errors import NoRouteError, UnknownEndpointError
from topocal.topo.resource import PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Routes", "all_pairs_routes"]


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
        Shape (n, n), :class:`PathClass` codes; ``DIS`` where there is no route.  The class
        says how far apart two endpoints are, also where their copies are staged.
    staged
        Shape (n, n), whether a copy is staged in host memory; ``None`` counts as nowhere.
    """

    endpoints: tuple[str, ...]
    links: tuple[str, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    path_class: NDArray[np.int8]
    staged: NDArray[np.bool_] | None = None

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

    What a pair's route is does not depend on which other endpoints are asked for.

    Raises
    ------
    UnknownEndpointError
        When one of them is not an endpoint of the topology.
    """
    topology.require_endpoints(endpoints)
    router = topology.router
    n = len(endpoints)
    number = np.array([router.number[e] for e in endpoints], dtype=np.int64)
    found = router.find(np.repeat(number, n), np.tile(number, n))
    present = found.rows >= 0
    indptr = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
    return Routes(
        endpoints,
        router.links,
        indptr,
        found.rows[present],
        found.path_class.reshape(n, n),
        found.staged.reshape(n, n),
    )

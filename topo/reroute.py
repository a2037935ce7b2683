"""Routes that somebody chose, in place of those that a machine would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array

from topocal.topo.errors import NoRouteError, TopologyError, one_line
from topocal.topo.incidence import Incidence
from topocal.topo.path_class import classify, count_table, pack
from topocal.topo.resource import PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["ChosenRoutes", "check_route", "links_along", "with_routes"]

ChosenRoutes = Mapping[tuple[str, str], tuple[str, ...]]
"""Link ids, in order of travel, by source and destination."""


def links_along(topology: Topology, nodes: Sequence[str]) -> tuple[str, ...]:
    """Links that lead from each node to the next; of parallel ones the first.

    Raises
    ------
    TopologyError
        When a node does not exist.
    NoRouteError
        When no link leads from one to the next.
    """
    for node in nodes:
        if node not in topology.graph:
            raise TopologyError(
                f"unknown node {one_line(node)!r}", remedy="name nodes as topocal show prints them"
            )
    step = {(link.tail, link.head): link.id for link in reversed(topology.links.values())}
    for a, b in pairwise(nodes):
        if (a, b) not in step:
            raise NoRouteError(f"no link from {a} to {b}", remedy="name neighbours, one by one")
    return tuple(step[a, b] for a, b in pairwise(nodes))


def check_route(
    topology: Topology, source: str, destination: str, links: Sequence[str]
) -> tuple[str, ...]:
    """The links, when they lead from the source to the destination.

    Raises
    ------
    UnknownEndpointError
        When either is not an endpoint.
    TopologyError
        When a link does not exist.
    NoRouteError
        When they do not follow each other, or lead elsewhere.
    """
    topology.require_endpoints((source, destination))
    here = source
    for name in links:
        if name not in topology.links:
            raise TopologyError(
                f"unknown link {one_line(name)!r}", remedy="name links as tail->head"
            )
        link = topology.links[name]
        if link.tail != here:
            raise NoRouteError(
                f"the route of {source}->{destination} is at {here}, where {name} does not begin",
                remedy="name links that follow each other",
            )
        here = link.head
    if here != destination:
        raise NoRouteError(
            f"the route of {source}->{destination} ends at {here}",
            remedy="name all links up to the destination",
        )
    return tuple(links)


def with_routes(lines: Incidence, topology: Topology, routes: ChosenRoutes) -> Incidence:
    """An incidence whose pairs take the routes that were chosen for them.

    Raises
    ------
    UnknownEndpointError, TopologyError, NoRouteError
        As :func:`check_route`.
    """
    chosen = [k for k, pair in enumerate(lines.pairs) if pair in routes]
    if not chosen:
        return lines
    column = {name: k for k, name in enumerate(lines.resources)}
    rows, columns, weights = [], [], []
    for k in chosen:
        source, destination = lines.pairs[k]
        links = check_route(topology, source, destination, routes[lines.pairs[k]])
        for resource, weight in _uses(topology, source, destination, links):
            rows.append(k)
            columns.append(column[resource])
            weights.append(weight)
    keep = np.ones(len(lines.pairs))
    keep[chosen] = 0.0
    new = coo_array((weights, (rows, columns)), shape=lines.matrix.shape)
    matrix = csr_array(diags_array(keep) @ lines.matrix + new.tocsr())
    matrix.eliminate_zeros()
    matrix.sum_duplicates()
    return Incidence(lines.pairs, lines.resources, matrix)


def _uses(
    topology: Topology, source: str, destination: str, links: Sequence[str]
) -> list[tuple[str, float]]:
    """What a flow along ``links`` loads, by the links and by the topology's rules."""
    crossed = [topology.links[name] for name in links]
    found = [use for link in crossed for use in link.uses]
    heads = [topology.graph.nodes[link.head]["kind"] for link in crossed]
    counts = count_table([link.kind for link in crossed], heads).sum(axis=0, dtype=np.int16)
    path_class = PathClass(int(classify(pack(counts[np.newaxis]))[0]))
    for a, b, stated in topology.graph.graph.get("class_overrides") or ():
        if {a, b} == {source, destination}:
            path_class = PathClass[stated]
    for use in topology.uses:
        if (
            (use.sources is None or source in use.sources)
            and (use.destinations is None or destination in use.destinations)
            and (use.path_classes is None or path_class in use.path_classes)
        ):
            found.append((use.resource, use.weight))
    return found

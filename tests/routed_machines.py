"""Small machines, and the routes in them."""

from __future__ import annotations

from collections.abc import Callable

from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, PathClass
from topocal.topo.topology import Topology

Build = Callable[[TopologyBuilder], None]


def made(build: Build) -> Topology:
    builder = TopologyBuilder("test")
    build(builder)
    return builder.build()


def way(topology: Topology, source: str, destination: str) -> list[str]:
    """The nodes of a route, in order."""
    routes = topology.routes(topology.endpoints)
    links = [topology.links[link] for link in routes.route(source, destination)]
    return [source, *(link.head for link in links)]


def class_of(topology: Topology, source: str, destination: str) -> str:
    routes = topology.routes(topology.endpoints)
    at = routes.position
    return PathClass(int(routes.path_class[at[source], at[destination]])).name


def pcie(builder: TopologyBuilder, *pairs: tuple[str, str]) -> None:
    for a, b in pairs:
        builder.connect(a, b, LinkKind.PCIE)

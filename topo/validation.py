"""What is wrong with a machine description, each with its remedy; one function per rule.

*Inconsistencies* are what the rest of the code could not work with; a
:class:`~topocal.topo.topology.Topology` with one is refused.  *Doubts* are legal
but probably not meant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import networkx as nx
import numpy as np

from topocal.topo.errors import one_line
from topocal.topo.naming import natural_key
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Problem", "doubts", "inconsistencies"]

PCIE_WIDTHS: Final = (1, 2, 4, 8, 16, 32)
PCIE_GENERATIONS: Final = range(1, 8)

_PAIR_LISTS: Final = {"no_peer_pairs": 2, "stated_classes": 3, "class_overrides": 3}
"""Graph attributes that list pairs, and how long an entry is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong: what it is about, what is wrong with it, and what to do."""

    about: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.about}: {self.what}; {self.remedy}"


Problems = Iterator[Problem]


def inconsistencies(graph: nx.MultiDiGraph) -> list[Problem]:
    """What the rest of the code could not work with; empty when the graph can be used."""
    missing = list(_parts_missing(graph))
    return missing or [problem for rule in _STRICT for problem in rule(graph)]


def doubts(topology: Topology) -> list[Problem]:
    """What is legal but probably not meant; empty when all is well."""
    return [problem for rule in _DOUBTFUL for problem in rule(topology)]


_LONGEST_PROBLEM: Final = 400
"""Characters of what is wrong; no sentence of ours is as long."""


def _problem(about: object, what: str, remedy: str) -> Problem:
    # What a file calls things may be of any length.
    return Problem(about=one_line(about), what=_bounded(what), remedy=remedy)


def _bounded(what: str) -> str:
    return " ".join(one_line(word) for word in what.split())[:_LONGEST_PROBLEM]


def _parts_missing(graph: nx.MultiDiGraph) -> Problems:
    parts = graph.graph
    if not isinstance(parts.get("resources"), dict) or not isinstance(parts.get("uses"), list):
        yield _problem("graph", "has no resources or uses", "build it with topocal.topo.builder")


def _node_kinds(graph: nx.MultiDiGraph) -> Problems:
    for node, kind in graph.nodes(data="kind"):
        if not isinstance(node, str):
            yield _problem(node, "node id is not text", "give it a name")
        elif not isinstance(kind, NodeKind):
            yield _problem(
                node, f"node of kind {kind!r}", "give it a topocal.topo.resource.NodeKind"
            )


def _link_ids(graph: nx.MultiDiGraph) -> Problems:
    seen: set[Any] = set()
    for _, _, key in graph.edges(keys=True):
        if not isinstance(key, str):
            yield _problem(key, "link id is not text", "name it tail->head")
        if key in seen:
            yield _problem(key, "two links have this id", "number them: …#2")
        seen.add(key)


def _link_ends(graph: nx.MultiDiGraph) -> Problems:
    for tail, head, key, kind in graph.edges(keys=True, data="kind"):
        if tail == head:
            yield _problem(key, "link from a node to itself", "remove it")
        if not isinstance(kind, LinkKind):
            yield _problem(key, f"link of kind {kind!r}", "give it a LinkKind")


def _link_capacities(graph: nx.MultiDiGraph) -> Problems:
    for _, _, key, rate in graph.edges(keys=True, data="nominal_Bps"):
        if not _is_rate(rate):
            yield _problem(key, f"nominal capacity {rate}", "give bytes per second, or None")


def _link_uses(graph: nx.MultiDiGraph) -> Problems:
    resources = graph.graph["resources"]
    for _, _, key, uses in graph.edges(keys=True, data="uses", default=()):
        for resource, weight in uses:
            if resource not in resources:
                yield _problem(key, f"uses the unknown resource {resource}", "add the resource")
            if not 0 < weight < math.inf:
                yield _problem(
                    key, f"uses {resource} with weight {weight}", "give a weight above 0"
                )


def _rule_uses(graph: nx.MultiDiGraph) -> Problems:
    resources = graph.graph["resources"]
    for use in graph.graph["uses"]:
        if use.resource not in resources:
            yield _problem(use.resource, "is used but is not a resource", "add the resource")
        for name in (*(use.sources or ()), *(use.destinations or ())):
            if name not in graph:
                yield _problem(
                    use.resource, f"is used by the unknown endpoint {name}", "name an endpoint"
                )
        if not 0 < use.weight < math.inf:
            yield _problem(
                use.resource, f"is used with weight {use.weight}", "give a weight above 0"
            )


def _resource_values(graph: nx.MultiDiGraph) -> Problems:
    for name, resource in graph.graph["resources"].items():
        if not isinstance(resource, Resource) or resource.id != name:
            yield _problem(name, "is not listed under its own id", "list each resource by its id")
            continue
        if not _is_rate(resource.nominal_Bps):
            yield _problem(
                name, f"nominal capacity {resource.nominal_Bps}", "give bytes per second, or None"
            )
        if not 0 < resource.kappa <= 1:
            yield _problem(name, f"overlap factor {resource.kappa}", "give 0 < kappa <= 1")


def _stated_pairs(graph: nx.MultiDiGraph) -> Problems:
    for attribute, length in _PAIR_LISTS.items():
        for entry in graph.graph.get(attribute) or ():
            if not isinstance(entry, list | tuple) or len(entry) != length:
                form = "[a, b]" if length == 2 else "[a, b, class]"
                yield _problem(attribute, f"has the entry {entry!r}", f"list {form}")
                continue
            for name in entry[:2]:
                if name not in graph:
                    yield _problem(attribute, f"names the unknown node {name}", "name an endpoint")
            for name in entry[2:]:
                yield from _class_name(attribute, name)


def _stated_link_classes(graph: nx.MultiDiGraph) -> Problems:
    for _, _, key, data in graph.edges(keys=True, data=True):
        if "path_class" in data:
            yield from _class_name(key, data["path_class"])


def _class_name(about: str, name: object) -> Problems:
    if name not in PathClass.__members__:
        known = ", ".join(PathClass.__members__)
        yield _problem(about, f"states the unknown path class {name}", f"use one of {known}")


def _is_rate(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


_STRICT: Final[tuple[Callable[[nx.MultiDiGraph], Problems], ...]] = (
    _node_kinds,
    _link_ids,
    _link_ends,
    _link_capacities,
    _link_uses,
    _rule_uses,
    _resource_values,
    _stated_pairs,
    _stated_link_classes,
)


def _no_endpoint(topology: Topology) -> Problems:
    if not topology.endpoints:
        yield _problem(
            topology.name or "topology",
            "has no endpoint",
            "add a GPU, NIC, processor or memory node",
        )


def _loose_nodes(topology: Topology) -> Problems:
    graph = topology.graph
    if graph.number_of_nodes() > 1:
        for node in sorted(graph.nodes, key=natural_key):
            if graph.degree(node) == 0:
                yield _problem(node, "has no link", "connect it or remove it")


def _separate_parts(topology: Topology) -> Problems:
    """Endpoints that no chain of links connects, whatever its direction."""
    endpoints = set(topology.endpoints)
    graph = topology.graph
    parts = [
        sorted(part & endpoints, key=natural_key) for part in nx.weakly_connected_components(graph)
    ]
    parts = sorted((p for p in parts if p), key=lambda p: (-len(p), natural_key(p[0])))
    for part in parts[1:]:
        if graph.degree(part[0]) > 0 or len(part) > 1:
            others = f"and {len(part) - 1} more endpoints " if len(part) > 1 else ""
            yield _problem(
                part[0],
                f"{others}cannot be reached from {parts[0][0]}",
                "add the links that join the parts, or give each its own topology",
            )


def _one_way(topology: Topology) -> Problems:
    """Endpoints that links connect, but in the other direction only."""
    part = {}
    for k, nodes in enumerate(nx.weakly_connected_components(topology.graph)):
        part.update(dict.fromkeys(nodes, k))
    routes = topology.routes()
    lost: dict[str, list[str]] = defaultdict(list)
    for i, j in np.argwhere(routes.path_class == PathClass.DIS):
        source, destination = routes.endpoints[i], routes.endpoints[j]
        if part[source] == part[destination]:
            lost[source].append(destination)
    for source, destinations in lost.items():
        more = f" and {len(destinations) - 1} more" if len(destinations) > 1 else ""
        yield _problem(
            source,
            f"has no route to {destinations[0]}{more}",
            "add links in the missing direction",
        )


def _reverse_links(topology: Topology) -> Problems:
    links = topology.links
    for link in links.values():
        if link.reverse is None:
            continue
        other = links.get(link.reverse)
        if other is None:
            yield _problem(
                link.id,
                f"its other direction {link.reverse} does not exist",
                f"add a link {link.head}->{link.tail}",
            )
        elif (other.tail, other.head) != (link.head, link.tail):
            yield _problem(
                link.id,
                f"its other direction {other.id} runs from {other.tail} to {other.head}",
                f"name a link {link.head}->{link.tail}",
            )


def _asymmetric(topology: Topology) -> Problems:
    """Both directions of one link with different figures; each pair is told once."""
    links = topology.links
    for link in links.values():
        other = links.get(link.reverse or "")
        if other is not None and link.id < other.id and link.nominal_Bps != other.nominal_Bps:
            yield _problem(
                link.id,
                f"nominal capacity {link.nominal_Bps} forth and {other.nominal_Bps} back",
                "give both directions the same, unless the link is built that way",
            )


def _unused(topology: Topology) -> Problems:
    used = {resource for link in topology.links.values() for resource, _ in link.uses}
    used |= {use.resource for use in topology.uses}
    for name in topology.resources:
        if name not in used:
            yield _problem(name, "no link or endpoint uses this resource", "use it or remove it")


def _links_without_resource(topology: Topology) -> Problems:
    for link in topology.links.values():
        if not link.uses:
            yield _problem(link.id, "loads no resource", "give it one, or it is infinitely fast")


def _zero_capacity(topology: Topology) -> Problems:
    for resource in topology.resources.values():
        if resource.nominal_Bps == 0:
            yield _problem(
                resource.id, "nominal capacity 0", "give what it passes, or None where unknown"
            )


def _pcie(topology: Topology) -> Iterator[tuple[str, dict[str, Any]]]:
    """Attributes of PCIe links; both directions of one connection are told once."""
    stated = {key: data for _, _, key, data in topology.graph.edges(keys=True, data=True)}
    names = ("generation", "width", "max_generation", "max_width")
    for key, link in topology.links.items():
        if link.kind is not LinkKind.PCIE:
            continue
        data, other = stated[key], stated.get(link.reverse or "", {})
        same = all(data.get(name) == other.get(name) for name in names)
        if not (same and link.reverse and natural_key(link.reverse) < natural_key(key)):
            yield key, data


def _pcie_width(topology: Topology) -> Problems:
    for key, data in _pcie(topology):
        for name in ("width", "max_width"):
            if data.get(name) is not None and data[name] not in PCIE_WIDTHS:
                widths = ", ".join(map(str, PCIE_WIDTHS))
                yield _problem(key, f"PCIe {name} {data[name]}", f"give one of {widths}, or None")


def _pcie_generation(topology: Topology) -> Problems:
    for key, data in _pcie(topology):
        for name in ("generation", "max_generation"):
            if data.get(name) is not None and data[name] not in PCIE_GENERATIONS:
                last = PCIE_GENERATIONS[-1]
                yield _problem(key, f"PCIe {name} {data[name]}", f"give 1 to {last}, or None")


def _pcie_below_capability(topology: Topology) -> Problems:
    for key, data in _pcie(topology):
        for name, word in (("generation", "generation"), ("width", "x")):
            now, best = data.get(name), data.get(f"max_{name}")
            if isinstance(now, int) and isinstance(best, int) and 0 < now < best:
                space = " " if word == "generation" else ""
                yield _problem(
                    key,
                    f"runs at {word}{space}{now} where {word}{space}{best} is possible",
                    "read it under load (idle links slow down); then check slot, riser and BIOS",
                )


def _same(topology: Topology, attribute: str, remedy: str, by_kind: bool) -> Problems:
    owners: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name in sorted(topology.graph.nodes, key=natural_key):
        data = topology.graph.nodes[name]
        if data.get(attribute) is not None:
            kind = data["kind"] if by_kind else None
            # Tiles and partitions have the number and the address of their card.
            part = str(data.get("tile", ""))
            owners[data.get("host"), kind, part, str(data[attribute])].append(name)
    for (*_, value), names in owners.items():
        if len(names) > 1:
            yield _problem(names[1], f"has the same {attribute} {value} as {names[0]}", remedy)


def _same_bus_id(topology: Topology) -> Problems:
    return _same(topology, "bus_id", "correct one, or give each its host", by_kind=True)


def _same_index(topology: Topology) -> Problems:
    return _same(topology, "index", "number them apart, or give each its host", by_kind=True)


_DOUBTFUL: Final[tuple[Callable[[Topology], Problems], ...]] = (
    _no_endpoint,
    _loose_nodes,
    _separate_parts,
    _one_way,
    _reverse_links,
    _asymmetric,
    _unused,
    _links_without_resource,
    _zero_capacity,
    _pcie_width,
    _pcie_generation,
    _pcie_below_capability,
    _same_bus_id,
    _same_index,
)

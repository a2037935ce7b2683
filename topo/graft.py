"""Adding to one topology what another says of the same machine."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.graft_links import (
    fill_links,
    fill_nvlinks,
    level_ports,
    pair_links,
    share_links,
)
from topocal.topo.match import Match
from topocal.topo.path_class import FABRIC
from topocal.topo.resource import NodeKind, PathClass, Resource
from topocal.topo.topology import Topology, natural_key
from topocal.topo.view import DEVICES, View

__all__ = ["Graft"]

_PAIR_LISTS: Final = ("stated_classes", "no_peer_pairs", "class_overrides")
_OF_FABRIC: Final = ("NVL", "NVB")


class Graft:
    """A copy of one topology that grows by what another adds; nothing stated is replaced.

    Parameters
    ----------
    base
        The topology that grows.
    other
        The one that adds.
    match
        Which nodes are the same thing.
    """

    def __init__(self, base: View, other: View, match: Match) -> None:
        self._base = base
        self._other = other
        self._match = match
        self._pairs = match.nodes
        self._here = {theirs: ours for ours, theirs in self._pairs.items()}
        self._graph = base.topology.graph.copy()
        self._resources = dict(base.topology.resources)
        self._renamed: dict[str, str] = {}

    @property
    def names(self) -> dict[str, str]:
        """The other file's nodes, by the names that they have now."""
        return self._pairs | self._match.parts

    def fill_attributes(self) -> None:
        """Whatever the other file says of a matched node and this one leaves open."""
        for ours, theirs in self._pairs.items():
            self._fill(ours, theirs, ())
        for part, whole in self._match.parts.items():
            self._fill(part, whole, ("index", "label"))

    def _fill(self, ours: str, theirs: str, without: Sequence[str]) -> None:
        mine, more = self._graph.nodes[ours], self._other.graph.nodes[theirs]
        for name, value in more.items():
            known = mine.get(name) not in (None, "")
            if name in ("kind", *without) or value in (None, "") or known:
                continue
            unique = name == "index" or (name == "numa" and mine["kind"] is NodeKind.SOCKET)
            if not (unique and self._taken(name, value, mine["kind"])):
                mine[name] = value

    def _taken(self, name: str, value: Any, kind: NodeKind) -> bool:
        return any(
            data["kind"] is kind and data.get(name) == value
            for _, data in self._graph.nodes(data=True)
        )

    def fill_links(self) -> None:
        """Speed, width and capacity of links that both files show; what they share."""
        links = pair_links(self._base, self._other, self._pairs)
        for pair in links:
            mine, more = self._graph.edges[pair.here], self._other.graph.edges[pair.there]
            for (ours, _), (theirs, _) in zip(mine["uses"][:1], more["uses"][:1], strict=False):
                self._renamed.setdefault(theirs, ours)
        fill_links(self._graph, self._resources, self._other, links)
        share_links(self._graph, self._resources, self._other, links)
        for pair in links:
            mine, more = self._graph.edges[pair.here], self._other.graph.edges[pair.there]
            added = [(self._copy_resource(r, {}), weight) for r, weight in more["uses"][1:]]
            known = {resource for resource, _ in mine["uses"]}
            mine["uses"] += tuple(use for use in added if use[0] not in known)

    def add_sockets(self) -> None:
        """NUMA nodes that only the other file has, with the links to those that both have."""
        here = self._base.of_kind(NodeKind.SOCKET)
        known = [self._graph.nodes[node].get("numa") for node in here]
        if not here or None in known:
            return
        for node in self._other.of_kind(NodeKind.SOCKET):
            numa = self._other.get(node, "numa")
            if node in self._here or numa is None or numa in known:
                continue
            near = [n for n in self._other.graph.successors(node) if n in self._here]
            near = [n for n in near if self._other.graph.nodes[n]["kind"] is NodeKind.SOCKET]
            if near:
                self._copy_node(node)
                for other in near:
                    self._copy_links(node, other)

    def add_missing_devices(self, kinds: Iterable[NodeKind]) -> None:
        """Endpoints that only the other file has, with what is between them and a known place."""
        graph = self._other.graph
        chosen = {kind for kind in kinds if kind.is_endpoint}
        wanted = [
            node
            for node, kind in graph.nodes(data="kind")
            if kind in chosen and node not in self._here and node not in self._match.parts.values()
        ]
        for node in sorted(wanted, key=natural_key):
            if self._other.key(node) in self._base.at_bus:
                continue
            chain = self._other.chain(node)
            known = next((k for k, upper in enumerate(chain) if upper in self._here), None)
            for k in reversed(range(known or 0)):
                self._copy_node(chain[k])
                self._copy_links(chain[k + 1], chain[k])

    def add_fabric(self) -> None:
        """GPU links, where the first file shows none at all."""
        if self._base.fabric_links or not self._other.fabric_links:
            return
        done = set()
        for tail, head, _, _ in self._other.fabric_links:
            for node in (tail, head):
                if self._other.graph.nodes[node]["kind"] is NodeKind.NVSWITCH:
                    self._copy_node(node)
            pair = frozenset((tail, head))
            if pair not in done and tail in self._here and head in self._here:
                done.add(pair)
                self._copy_links(tail, head, fabric=True)

    def _copy_node(self, node: str) -> None:
        if node in self._here:
            return
        attributes = dict(self._other.graph.nodes[node])
        name = node
        if attributes["kind"] in DEVICES:
            word = node.rstrip("0123456789")
            name = node if node not in self._graph else f"{word}{self._next(word)}"
            if self._taken("index", attributes.get("index"), attributes["kind"]):
                attributes.pop("index", None)
        name = _free(name, self._graph)
        self._graph.add_node(name, **attributes)
        self._here[node] = name
        self._pairs[name] = node

    def _next(self, word: str) -> int:
        """The first number above all that are taken."""
        tails = [n.removeprefix(word) for n in self._graph if n.startswith(word)]
        return 1 + max((int(t) for t in tails if t.isdecimal() and t.isascii()), default=-1)

    def _copy_links(self, a: str, b: str, *, fabric: bool = False) -> None:
        """All links between two nodes of the other file, both ways."""
        graph = self._other.graph
        found = [
            (tail, head, key, data)
            for tail, head in ((a, b), (b, a))
            for key, data in (graph.get_edge_data(tail, head) or {}).items()
            if (data["kind"] in FABRIC) is fabric
        ]
        names: dict[str, str] = {}
        for tail, head, key, _ in found:
            base = f"{self._here[tail]}->{self._here[head]}"
            number = self._graph.number_of_edges(self._here[tail], self._here[head]) + 1
            number += sum(name.partition("#")[0] == base for name in names.values())
            names[key] = base if number == 1 else f"{base}#{number}"
        for tail, head, key, data in found:
            attributes: dict[str, Any] = dict(data)
            attributes["uses"] = tuple(
                (self._copy_resource(r, names), weight) for r, weight in data["uses"]
            )
            attributes["reverse"] = names.get(data.get("reverse"))
            self._graph.add_edge(self._here[tail], self._here[head], key=names[key], **attributes)

    def _copy_resource(self, resource: str, links: Mapping[str, str]) -> str:
        """The resource under the name that it has here: that of its link, else its own."""
        if resource in self._renamed:
            return self._renamed[resource]
        theirs: Resource = self._other.topology.resources[resource]
        of_a_link = resource in self._other.topology.links
        name = links.get(resource, self._here.get(resource, resource))
        if name in self._resources:
            # What is named after no link (an engine, a root complex) is one thing in both.
            if not of_a_link:
                return self._renamed.setdefault(resource, name)
            name = _free(name, self._resources)
        self._resources[name] = replace(theirs, id=name)
        return self._renamed.setdefault(resource, name)

    def add_uses(self) -> None:
        """Loads that no link shows, of the devices that both files have."""
        known = list(self._graph.graph["uses"])
        for use in self._other.topology.uses:
            ends = [self._translated(names) for names in (use.sources, use.destinations)]
            if any(names == () for names in ends):
                continue
            theirs = self._copy_resource(use.resource, {})
            mine = replace(use, resource=theirs, sources=ends[0], destinations=ends[1])
            if mine not in known:
                known.append(mine)
        self._graph.graph["uses"] = known

    def _translated(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        return tuple(self._here[name] for name in names if name in self._here)

    def fill_graph(self) -> None:
        """What is said of the machine as a whole and of single pairs."""
        mine, more = self._graph.graph, self._other.graph.graph
        for name, value in more.items():
            if mine.get(name) is None and name not in ("resources", "uses"):
                mine[name] = [] if name in _PAIR_LISTS else value
        for name in _PAIR_LISTS:
            ordered = name == "class_overrides"
            known = {_pair(entry, ordered): list(entry) for entry in mine.get(name) or ()}
            for first, second, *rest in more.get(name) or ():
                if first not in self._here or second not in self._here:
                    continue
                entry = [self._here[first], self._here[second], *rest]
                if not ordered:
                    entry[:2] = sorted(entry[:2], key=natural_key)
                if not ordered or self._may_override(*entry):
                    known.setdefault(_pair(entry, ordered), entry)
            if known or name in mine:
                mine[name] = sorted(
                    known.values(), key=lambda entry: tuple(natural_key(n) for n in entry[:2])
                )

    def _may_override(self, a: str, b: str, path_class: str) -> bool:
        """Whether the first file does not tell how far apart a pair is, or tells the same."""
        if path_class in _OF_FABRIC and not self._base.fabric_links:
            return True
        if a not in self._base.graph or b not in self._base.graph:
            return True
        code = PathClass(int(self._told[self._place[a], self._place[b]]))
        words = {code.name, path_class}
        return code is PathClass.DIS or len(words) == 1 or words == {"PHB", "NODE"}

    @cached_property
    def _place(self) -> dict[str, int]:
        return {node: k for k, node in enumerate(self._match.endpoints)}

    @cached_property
    def _told(self) -> NDArray[np.int8]:
        return self._base.path_classes(list(self._match.endpoints))

    def build(self) -> Topology:
        """The grown topology."""
        fill_nvlinks(self._graph, self._resources)
        level_ports(self._graph, self._resources)
        resources = sorted(self._resources.items(), key=lambda item: natural_key(item[0]))
        self._graph.graph["resources"] = dict(resources)
        return Topology(self._graph)


def _pair(entry: Sequence[str], ordered: bool) -> tuple[str, ...] | frozenset[str]:
    return tuple(entry[:2]) if ordered else frozenset(entry[:2])


def _free(name: str, taken: Container[object]) -> str:
    """The name, numbered where something else has it."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}#{number}", number + 1
    return free

"""Adding to one topology what another says of the same machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from topocal.topo.path_class import FABRIC
from topocal.topo.readers.pci import parse_speed, parse_width
from topocal.topo.resource import LinkKind, NodeKind, Resource
from topocal.topo.topology import Topology, natural_key
from topocal.topo.view import View

__all__ = ["Graft"]

_NUMBERED = (NodeKind.GPU, NodeKind.NIC)
_LINK_WORDS = ("generation", "width", "max_generation", "max_width", "count")


class Graft:
    """A copy of one topology that grows by what another adds; nothing stated is replaced.

    Parameters
    ----------
    base
        The topology that grows.
    other
        The one that adds.
    pairs
        Nodes of ``base`` to the nodes of ``other`` that are the same thing.
    """

    def __init__(self, base: View, other: View, pairs: dict[str, str]) -> None:
        self._base = base
        self._other = other
        self._pairs = dict(pairs)
        self._here = {theirs: ours for ours, theirs in pairs.items()}
        self._graph = base.topology.graph.copy()
        self._resources = dict(base.topology.resources)
        # A resource of one connection has its capacity; one that more share has its own.
        self._users: dict[str, set[str]] = defaultdict(set)
        for _, _, key, uses in self._graph.edges(keys=True, data="uses"):
            for resource, _ in uses:
                self._users[resource].add(key)

    def fill_attributes(self, names: Iterable[str]) -> None:
        """Attributes of matched nodes."""
        wanted = tuple(names)
        for ours, theirs in self._pairs.items():
            mine, more = self._graph.nodes[ours], self._other.graph.nodes[theirs]
            for name in wanted:
                if mine.get(name) is None and more.get(name) is not None:
                    mine[name] = more[name]
            if not mine.get("label") and more.get("label"):
                mine["label"] = more["label"]

    def fill_links(self) -> None:
        """Speed, width and nominal capacity of PCIe links, and of links between sockets."""
        for ours, theirs in self._pairs.items():
            above, below = self._base.above.get(ours), self._other.above.get(theirs)
            if above is None or below is None or ours not in self._base.uplink:
                continue
            if theirs in self._other.uplink:
                self._fill_both(above[1], (above[0], ours), below[1], (below[0], theirs))
        for tail, head, key, data in list(self._graph.edges(keys=True, data=True)):
            a, b = self._pairs.get(tail), self._pairs.get(head)
            if data["kind"] is not LinkKind.SMP or a is None or b is None:
                continue
            for link, more in (self._other.graph.get_edge_data(a, b) or {}).items():
                if more["kind"] is LinkKind.SMP:
                    self._fill(key, (tail, head), link, (a, b))
                    break

    def _fill_both(
        self, link: str, ends: tuple[str, str], other: str, other_ends: tuple[str, str]
    ) -> None:
        self._fill(link, ends, other, other_ends)
        back = self._graph.edges[*ends, link].get("reverse")
        back_there = self._other.graph.edges[*other_ends, other].get("reverse")
        if back and back_there:
            self._fill(back, ends[::-1], back_there, other_ends[::-1])

    def _fill(
        self, link: str, ends: tuple[str, str], other: str, other_ends: tuple[str, str]
    ) -> None:
        if not self._graph.has_edge(*ends, link) or not self._other.graph.has_edge(
            *other_ends, other
        ):
            return
        mine = self._graph.edges[*ends, link]
        more = self._other.graph.edges[*other_ends, other]
        known = mine.get("nominal_Bps") is not None
        # Half of one file and half of another would make a link that neither describes.
        whole = not known and not _at_odds(mine, more)
        for word in _LINK_WORDS:
            fits = whole or word.startswith("max_")
            if fits and mine.get(word) is None and more.get(word) is not None:
                mine[word] = more[word]
        if not whole or more.get("nominal_Bps") is None:
            return
        mine["nominal_Bps"] = more["nominal_Bps"]
        mine.pop("speed_text", None)
        theirs = self._other.topology.resources
        source = next((theirs[r].source for r, _ in more["uses"] if theirs[r].source), "")
        for resource, _ in mine["uses"]:
            old = self._resources[resource]
            if old.nominal_Bps is None and len(self._users[resource]) <= 2:
                self._resources[resource] = replace(
                    old, nominal_Bps=more["nominal_Bps"], source=old.source or source
                )

    def add_missing_devices(self, kinds: Iterable[NodeKind]) -> None:
        """Endpoints that only the other file has, with what is between them and a known place."""
        graph = self._other.graph
        chosen = {kind for kind in kinds if kind.is_endpoint}
        wanted = [
            node
            for node, kind in graph.nodes(data="kind")
            if kind in chosen and node not in self._here
        ]
        taken = set(self._base.by_bus)
        for node in sorted(wanted, key=natural_key):
            data = graph.nodes[node]
            if (str(data.get("host") or ""), data.get("bus_id")) in taken:
                continue
            chain = [node]
            while chain[-1] in self._other.above and chain[-1] not in self._here:
                chain.append(self._other.above[chain[-1]][0])
            if chain[-1] not in self._here:
                continue
            for lower, upper in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
                self._copy_node(lower)
                self._copy_links(upper, lower)

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
        if attributes["kind"] in _NUMBERED:
            word = node.rstrip("0123456789")
            name = node if node not in self._graph else f"{word}{self._next(word)}"
            same = {
                data.get("index")
                for _, data in self._graph.nodes(data=True)
                if data["kind"] is attributes["kind"]
            }
            if attributes.get("index") in same:
                attributes.pop("index", None)
        number = 2
        while name in self._graph:
            name = f"{node}#{number}"
            number += 1
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

    def _copy_resource(self, resource: str, links: dict[str, str]) -> str:
        """The resource under the name of its link here, else its own."""
        theirs: Resource = self._other.topology.resources[resource]
        name = links.get(resource, resource)
        if name not in links.values() and name in self._resources:
            return name
        self._resources[name] = replace(theirs, id=name)
        return name

    def fill_graph(self) -> None:
        """What is said of the machine as a whole: peer access, stated classes."""
        mine, more = self._graph.graph, self._other.graph.graph
        if mine.get("peer_access") is None:
            mine["peer_access"] = more.get("peer_access")
        for key in ("stated_classes", "no_peer_pairs"):
            pairs = {frozenset(pair[:2]): list(pair) for pair in mine.get(key) or ()}
            for first, second, *rest in more.get(key) or ():
                if first in self._here and second in self._here:
                    a, b = sorted((self._here[first], self._here[second]), key=natural_key)
                    pairs.setdefault(frozenset((a, b)), [a, b, *rest])
            if pairs or key in mine:
                mine[key] = sorted(
                    pairs.values(), key=lambda pair: tuple(natural_key(n) for n in pair[:2])
                )

    def build(self) -> Topology:
        """The grown topology."""
        resources = sorted(self._resources.items(), key=lambda item: natural_key(item[0]))
        self._graph.graph["resources"] = dict(resources)
        return Topology(self._graph)


def _at_odds(mine: dict[str, Any], more: dict[str, Any]) -> bool:
    """Whether two descriptions of a link cannot be joined.

    They differ, or the second repeats figures that the first one's reader had
    reason not to believe (an emulated bridge) and kept as text only.
    """
    for word in ("generation", "width"):
        if None not in (mine.get(word), more.get(word)) and mine[word] != more[word]:
            return True
    speed, _, width = str(mine.get("speed_text") or "").rpartition(" x")
    doubted = (parse_speed(speed), parse_width(width))
    return None not in doubted and doubted == (more.get("generation"), more.get("width"))

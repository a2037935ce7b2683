"""One topology as a merge looks at it: which link is above a device, who answers to what."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any, Final

from topocal.topo.path_class import FABRIC
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology, natural_key

__all__ = ["View", "uplink_text"]

_DOWN: Final = (LinkKind.PCIE, LinkKind.UNKNOWN, LinkKind.C2C, LinkKind.MEMORY)
"""Links that hang a device off the tree."""


class View:
    """A topology under the name of the file it came from.

    Parameters
    ----------
    topology
        What the file says.
    name
        What messages call it.
    """

    def __init__(self, topology: Topology, name: str) -> None:
        self.topology = topology
        self.name = name
        self.graph = topology.graph

    def of_kind(self, kind: NodeKind) -> list[str]:
        """Nodes of one kind, in natural order."""
        found = (node for node, k in self.graph.nodes(data="kind") if k is kind)
        return sorted(found, key=natural_key)

    def get(self, node: str, attribute: str) -> Any:
        """What the file says of a node, ``None`` where it says nothing."""
        return self.graph.nodes[node].get(attribute)

    @cached_property
    def by_bus(self) -> dict[tuple[str, str], str]:
        """Nodes by host and PCI address; of several with one address, none."""
        found: dict[tuple[str, str], str] = {}
        twice = set()
        for node, data in self.graph.nodes(data=True):
            bus_id = data.get("bus_id")
            if isinstance(bus_id, str):
                key = (str(data.get("host") or ""), bus_id)
                twice |= {key} if key in found else set()
                found[key] = node
        return {key: node for key, node in found.items() if key not in twice}

    @cached_property
    def above(self) -> dict[str, tuple[str, str]]:
        """For every node below another: that one, and the id of the link down from it."""
        found: dict[str, tuple[str, str]] = {}
        roots = self.of_kind(NodeKind.SOCKET) or self.of_kind(NodeKind.HOST_BRIDGE)
        roots += self.of_kind(NodeKind.GROUP)
        waiting = deque(roots)
        seen = set(roots)
        while waiting:
            node = waiting.popleft()
            for _, head, link, kind in self.graph.out_edges(node, keys=True, data="kind"):
                if head in seen or kind not in _DOWN:
                    continue
                seen.add(head)
                found[head] = (node, link)
                if not self.graph.nodes[head]["kind"].is_endpoint:
                    waiting.append(head)
        return found

    @cached_property
    def uplink(self) -> dict[str, dict[str, Any]]:
        """What the file says of the PCIe link above each node that has one."""
        found = {}
        for node in self.graph.nodes:
            for tail, _, data in self.graph.in_edges(node, data=True):
                if data["kind"] is LinkKind.PCIE and self.above.get(node, ("",))[0] == tail:
                    found[node] = data
        return found

    @cached_property
    def fabric_links(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        """Links of GPU fabrics: tail, head, id, attributes."""
        return [
            (tail, head, key, data)
            for tail, head, key, data in self.graph.edges(keys=True, data=True)
            if data["kind"] in FABRIC
        ]

    @cached_property
    def fabric_count(self) -> dict[str, int]:
        """GPU fabric links of each GPU, where every one says how many it stands for."""
        found: dict[str, int] = {}
        unknown = set()
        for tail, _, _, data in self.fabric_links:
            if self.graph.nodes[tail]["kind"] is NodeKind.GPU:
                count = data.get("count")
                if isinstance(count, int):
                    found[tail] = found.get(tail, 0) + count
                else:
                    unknown.add(tail)
        return {gpu: count for gpu, count in found.items() if gpu not in unknown}

    @cached_property
    def stated(self) -> dict[frozenset[str], str]:
        """Path classes that the file itself states, by pair."""
        listed = self.graph.graph.get("stated_classes") or ()
        return {frozenset((a, b)): str(path_class) for a, b, path_class in listed}

    def path_classes(self, endpoints: list[str]) -> dict[frozenset[str], str]:
        """Path class of every pair: the stated one, else that of the route."""
        routes = self.topology.routes(tuple(endpoints))
        found = {}
        for i, a in enumerate(endpoints):
            for j in range(i):
                pair = frozenset((a, endpoints[j]))
                code = PathClass(int(routes.path_class[i, j]))
                found[pair] = self.stated.get(pair, code.name)
        return found


def uplink_text(link: dict[str, Any]) -> str:
    """Generation and width of a PCIe link in words."""
    generation, width = link.get("generation"), link.get("width")
    parts = [f"Gen{generation}" if generation else "", f"x{width}" if width else ""]
    return " ".join(part for part in parts if part) or str(link.get("speed_text") or "unknown")

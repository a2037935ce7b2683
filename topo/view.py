"""One topology as a merge looks at it: which link is above a device, who answers to what."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.path_class import FABRIC
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology, natural_key

__all__ = ["DEVICES", "View", "uplink_text"]

DEVICES: Final = (NodeKind.GPU, NodeKind.NIC)
"""Kinds of devices that files about one machine have in common."""

_DOWN: Final = (LinkKind.PCIE, LinkKind.UNKNOWN, LinkKind.C2C, LinkKind.MEMORY)
"""Links that hang a device off the tree."""

_TYPES: Final = {
    "index": int,
    "numa": int,
    "package": int,
    "tile": int,
    "nvlinks": int,
    "cpu_list": str,
    "model": str,
    "device": str,
    "bus_id": str,
    "bus": str,
    "names": list,
    "net_names": list,
}
"""What a merge looks at; a user's own topology.json may hold anything under these names."""

_PLACES_A_SOCKET: Final = ("numa", "numa_nodes", "cpu_list", "package")


class View:
    """A topology under the name of the file it came from.

    Parameters
    ----------
    topology
        What the file says.
    name
        What messages call it.
    names
        What messages call its nodes, where not by their ids.
    """

    def __init__(
        self, topology: Topology, name: str, names: Mapping[str, str] | None = None
    ) -> None:
        self.topology = topology
        self.name = name
        self.graph = topology.graph
        self._names = names or {}

    def called(self, node: str) -> str:
        """What messages call a node."""
        return self._names.get(node, node)

    def of_kind(self, kind: NodeKind) -> list[str]:
        """Nodes of one kind, in natural order."""
        found = (node for node, k in self.graph.nodes(data="kind") if k is kind)
        return sorted(found, key=natural_key)

    def get(self, node: str, attribute: str) -> Any:
        """What the file says of a node, ``None`` where it says nothing of use."""
        return _of_its_type(attribute, self.graph.nodes[node].get(attribute))

    def key(self, node: str) -> tuple[str, str] | None:
        """Host and PCI address of a node that has one."""
        bus_id = self.get(node, "bus_id")
        return (str(self.get(node, "host") or ""), bus_id) if isinstance(bus_id, str) else None

    @cached_property
    def at_bus(self) -> dict[tuple[str, str], list[str]]:
        """Nodes by host and PCI address."""
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for node in self.graph.nodes:
            if (key := self.key(node)) is not None:
                found[key].append(node)
        return dict(found)

    @cached_property
    def by_bus(self) -> dict[tuple[str, str], str]:
        """The node at each address; none where several claim it."""
        return {key: nodes[0] for key, nodes in self.at_bus.items() if len(nodes) == 1}

    # Structure

    @cached_property
    def has_devices(self) -> bool:
        """Whether it lists any GPU or NIC."""
        return any(kind in DEVICES for _, kind in self.graph.nodes(data="kind"))

    @cached_property
    def is_list(self) -> bool:
        """Whether it only lists devices, each by itself, such as ``nvidia-smi -L``."""
        joining = (NodeKind.SOCKET, NodeKind.GROUP, NodeKind.NET_SWITCH, NodeKind.PCIE_SWITCH)
        kinds = {kind for _, kind in self.graph.nodes(data="kind")}
        return not kinds.intersection(joining) and not self.fabric_links

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
    def below(self) -> dict[str, list[str]]:
        """GPUs and NICs below every node that has some."""
        found: dict[str, list[str]] = defaultdict(list)
        for kind in DEVICES:
            for node in self.of_kind(kind):
                for upper in self.chain(node)[1:]:
                    found[upper].append(node)
        return dict(found)

    def chain(self, node: str) -> list[str]:
        """A node and all above it, the nearest first."""
        found = [node]
        while found[-1] in self.above:
            found.append(self.above[found[-1]][0])
        return found

    @cached_property
    def unstated_socket(self) -> str | None:
        """The one socket of a file that says nothing of sockets (``lspci -tv``)."""
        sockets = self.of_kind(NodeKind.SOCKET)
        if len(sockets) != 1 or any(self.get(sockets[0], w) is not None for w in _PLACES_A_SOCKET):
            return None
        near = (self.graph.nodes[n]["kind"] for n in self.graph.successors(sockets[0]))
        return None if any(kind is NodeKind.CPU for kind in near) else sockets[0]

    def lists_processors(self, socket: str) -> bool:
        """Whether the file lists a socket's processors for their own sake."""
        near = (self.graph.nodes[n]["kind"] for n in self.graph.successors(socket))
        return any(kind is NodeKind.CPU for kind in near)

    # Links

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

    # Classes

    def path_classes(self, endpoints: Sequence[str]) -> NDArray[np.int8]:
        """How far apart endpoints are, as far as the file tells: stated, else by the route.

        Returns
        -------
        Codes of shape (n, n), symmetric; ``DIS`` where the file does not tell,
        because nothing joins a pair or because its route takes a link that a reader
        put in for want of anything better.
        """
        n = len(endpoints)
        routes = self.topology.routes(tuple(endpoints))
        found = routes.path_class.copy()
        guessed = np.array([link in self._guessed for link in routes.links], dtype=bool)
        pair = np.repeat(np.arange(n * n), np.diff(routes.indptr))
        found.flat[pair[guessed[routes.indices]]] = PathClass.DIS
        found = np.where(np.tri(n, dtype=bool), found, found.T)
        place = {name: k for k, name in enumerate(endpoints)}
        for a, b, path_class in self.graph.graph.get("stated_classes") or ():
            if a in place and b in place:
                found[place[a], place[b]] = found[place[b], place[a]] = PathClass[path_class]
        return found

    @cached_property
    def _guessed(self) -> set[str]:
        """Links that stand for something that the file does not describe."""
        found = set()
        for tail, head, key, data in self.graph.edges(keys=True, data=True):
            ends = (self.graph.nodes[tail]["kind"], self.graph.nodes[head]["kind"])
            unknown = data["kind"] is LinkKind.UNKNOWN and all(kind.is_endpoint for kind in ends)
            at_guess = self.unstated_socket in (tail, head) and self.unstated_socket is not None
            if unknown or at_guess or data.get("described") is False:
                found.add(key)
        return found


def _of_its_type(attribute: str, value: Any) -> Any:
    wanted = _TYPES.get(attribute, object)
    return value if isinstance(value, wanted) and not isinstance(value, bool) else None


def uplink_text(link: dict[str, Any]) -> str:
    """Generation and width of a PCIe link in words."""
    generation, width = link.get("generation"), link.get("width")
    parts = [f"Gen{generation}" if generation else "", f"x{width}" if width else ""]
    return " ".join(part for part in parts if part) or str(link.get("speed_text") or "unknown")

"""A topology from a matrix of path classes, such that its routes have those classes.

The tree of :mod:`topocal.topo.readers.class_tree` becomes switches below host
bridges below sockets: one switch where all pairs are ``PIX``, a switch above
switches for ``PXB``, a host bridge each where ``NODE`` tells several apart, an SMP
link for ``SYS``.  GPU links are direct, or lead to one NVSwitch where every GPU
has more of them than it could have to each peer.  Where a matrix fits no tree,
routes are those of the nearest tree and ``class_overrides`` keeps the class that
was stated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.naming import natural_key
from topocal.topo.readers.class_matrix import ClassMatrix, FabricLink, some
from topocal.topo.readers.class_notes import note_oddities
from topocal.topo.readers.class_tree import ClassTree, Part, Root, SocketGroup, group_classes
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["topology_from_classes"]

MOST_NVLINKS: Final = 18
"""NVLinks that one GPU has at most: H100 whitepaper (2022), Blackwell brief (2024)."""


MOST_IN_A_MESH: Final = 64
"""Sockets beyond which a link per pair says little and costs much."""


def topology_from_classes(builder: TopologyBuilder, matrix: ClassMatrix) -> Topology:
    """The topology whose routes have the classes of a matrix.

    Parameters
    ----------
    builder
        With nothing but a name, notes and peer access yet.
    matrix
        What is known of the pairs.

    Returns
    -------
    ``graph.graph["stated_classes"]`` lists what the matrix states, and
    ``graph.graph["class_overrides"]`` the pairs whose class no tree gives.
    """
    tree = group_classes(matrix)
    _Assembly(builder, matrix, tree).assemble()
    note_oddities(builder, matrix, tree)
    return builder.build()


class _Assembly:
    """Adds a tree to a builder, and keeps what class each route will have."""

    def __init__(self, builder: TopologyBuilder, matrix: ClassMatrix, tree: ClassTree) -> None:
        self._builder = builder
        self._matrix = matrix
        self._tree = tree
        self._next: dict[str, int] = defaultdict(int)
        # Where each device stands, from the switch up to the socket; equal numbers are shared.
        self._place: list[list[object]] = [[] for _ in matrix.devices]
        self._sockets: tuple[str, ...] = ()

    def assemble(self) -> None:
        for device in self._matrix.devices:
            stated: dict[str, Any] = {}
            if len(device.numa) == 1:
                stated["numa"] = device.numa[0]
            elif device.numa:
                stated["numa_nodes"] = list(device.numa)
            if device.cpu_list:
                stated["cpu_list"] = device.cpu_list
            self._builder.node(
                device.id, device.kind, label=device.label, **(stated | device.attributes)
            )
        self._sockets = tuple(self._add_sockets())
        for name, socket in zip(self._sockets, self._tree.sockets, strict=True):
            self._add_part(socket.main, [name], apart=False)
            for part in socket.apart:
                self._add_part(part, [name], apart=True)
        between = self._join_sockets()
        for part in self._tree.loose:
            self._add_part(part, between, apart=True)
        self._add_fabric()
        self._keep_classes()

    def _id(self, kind: str) -> str:
        while True:
            name = f"{kind}{self._next[kind]}"
            self._next[kind] += 1
            if name not in self._builder:
                return name

    # Sockets and what hangs on them

    def _add_sockets(self) -> list[str]:
        names: list[str] = [""] * len(self._tree.sockets)
        # Those with a number first, so that the others take what is left.
        for named in (True, False):
            for k, socket in enumerate(self._tree.sockets):
                if (len(socket.numa) == 1) is named:
                    names[k] = self._add_socket(socket)
        return names

    def _add_socket(self, socket: SocketGroup) -> str:
        label = ""
        stated: dict[str, Any] = {}
        if len(socket.numa) == 1:
            name = f"socket{socket.numa[0]}"
            label, stated["numa"] = f"NUMA node {socket.numa[0]}", socket.numa[0]
        else:
            name = self._id("socket")
            if socket.numa:
                label = "NUMA nodes " + ", ".join(map(str, socket.numa))
                stated["numa_nodes"] = list(socket.numa)
        if socket.cpu_list:
            stated["cpu_list"] = socket.cpu_list
        return self._builder.node(name, NodeKind.SOCKET, label=label, **stated)

    def _join_sockets(self) -> Sequence[str]:
        """Join all sockets; returns the nodes from which every socket is one link away."""
        if len(self._sockets) <= MOST_IN_A_MESH:
            for a, b in combinations(self._sockets, 2):
                self._builder.connect(a, b, LinkKind.SMP)
            return self._sockets
        middle = self._builder.node("interconnect", NodeKind.SOCKET, label="between the sockets")
        for socket in self._sockets:
            self._builder.connect(socket, middle, LinkKind.SMP)
        return [middle]

    def _add_part(self, part: Part, sockets: Sequence[str], *, apart: bool) -> None:
        """Host bridges below a socket, or, ``apart``, reached over an SMP link."""
        upper = sockets[0] if sockets else ""
        kind = LinkKind.PCIE
        if apart and len(part.roots) + len(part.bare) > 1:
            upper = self._builder.node(self._id("bridge"), NodeKind.HOST_BRIDGE)
            for socket in sockets:
                self._builder.connect(upper, socket, LinkKind.SMP)
        elif apart:
            kind = LinkKind.SMP
        for root in part.roots:
            if len(part.roots) == 1 and not part.bare and not apart:
                self._add_root(root, upper)
                continue
            bridge = self._builder.node(self._id("bridge"), NodeKind.HOST_BRIDGE)
            for above in sockets if kind is LinkKind.SMP else [upper]:
                self._builder.connect(bridge, above, kind)
            self._add_root(root, bridge)
        for device in part.bare:
            if kind is LinkKind.SMP:
                upper = self._builder.node(self._id("bridge"), NodeKind.HOST_BRIDGE)
                for socket in sockets:
                    self._builder.connect(upper, socket, kind)
            self._attach(device, upper)
            self._place[device] = [object(), object(), object()]
        whole = object()
        for device in part.devices:
            self._place[device].append(whole)

    def _add_root(self, root: Root, upper: str) -> None:
        whole = object()
        for group in root.switched:
            above, shared = upper, object()
            if len(group) > 1:
                above = self._builder.node(self._id("switch"), NodeKind.PCIE_SWITCH)
                self._builder.connect(above, upper, LinkKind.PCIE)
            for members in group:
                place, near = above, object()
                if len(members) > 1 or len(group) > 1:
                    place = self._builder.node(self._id("switch"), NodeKind.PCIE_SWITCH)
                    self._builder.connect(place, above, LinkKind.PCIE)
                for device in members:
                    self._attach(device, place)
                    self._place[device] = [near, shared, whole]

    def _attach(self, device: int, upper: str) -> None:
        """The link above a device: PCIe, or chip-to-chip where it hangs on a socket itself."""
        what = self._matrix.devices[device]
        chip = what.coherent and upper in self._sockets
        self._builder.connect(what.id, upper, LinkKind.C2C if chip else LinkKind.PCIE)

    # GPU links

    def _add_fabric(self) -> None:
        switched = self._switched_groups()
        behind = {d: k for k, (members, _) in enumerate(switched) for d in members}
        for members, links in switched:
            name = self._builder.node(self._id("nvswitch"), NodeKind.NVSWITCH, label="NVSwitch")
            for device in members:
                self._connect_fabric(self._matrix.devices[device].id, name, links[device])
        self._add_stated_switches()
        ports = self._add_ports()
        for a, b, link in self._matrix.joined():
            if link.kind is LinkKind.NVLINK and a in behind and behind[a] == behind.get(b):
                continue
            if link.switched:
                continue
            self._connect_fabric(ports[a], ports[b], link)

    def _add_stated_switches(self) -> None:
        """A switch for each set of devices that the tool says are joined through one."""
        peers: dict[int, set[int]] = defaultdict(set)
        links: dict[int, FabricLink] = {}
        for a, b, link in self._matrix.joined():
            if link.switched:
                peers[a].add(b)
                peers[b].add(a)
                links.setdefault(a, link)
                links.setdefault(b, link)
        placed: set[int] = set()
        for start in sorted(peers):
            if start in placed:
                continue
            members, more = {start}, [start]
            while more:
                found = peers[more.pop()] - members
                members |= found
                more += found
            placed |= members
            fabric = str(links[start].attributes.get("fabric", "fabric"))
            name = self._builder.node(
                self._id("nvswitch"), NodeKind.NVSWITCH, label=f"{fabric} switch"
            )
            for device in sorted(members):
                self._connect_fabric(self._matrix.devices[device].id, name, links[device])

    def _add_ports(self) -> list[str]:
        """Where each device's direct links end: at itself, or, where devices relay, at a port.

        Endpoints do not pass traffic on; a port beside each does it for them.
        """
        names = [device.id for device in self._matrix.devices]
        if not any(True for _ in self._matrix.relayed()):
            return names
        kinds: dict[int, LinkKind] = {}
        for a, b, link in self._matrix.joined():
            if link.kind is not LinkKind.UNKNOWN:
                kinds.setdefault(a, link.kind)
                kinds.setdefault(b, link.kind)
        for device, kind in kinds.items():
            label = f"fabric port of {self._matrix.devices[device].label or names[device]}"
            port = self._builder.node(f"{names[device]}.port", NodeKind.NVSWITCH, label=label)
            self._builder.connect(names[device], port, kind)
            names[device] = port
        return names

    def _connect_fabric(self, a: str, b: str, link: FabricLink) -> None:
        counted = {} if link.count is None else {"count": link.count}
        self._builder.connect(
            a,
            b,
            link.kind,
            nominal_Bps=link.nominal_Bps,
            source=link.source,
            **(counted | link.attributes),
        )

    def _switched_groups(self) -> list[tuple[list[int], dict[int, FabricLink]]]:
        """GPUs that all have as many NVLinks to each other as only a switch can give them.

        Without one, the links to all others would have to be a GPU's own.  A GPU that has lost
        some of its links has fewer to every other, and the others have all of theirs.
        """
        peers: dict[int, dict[int, FabricLink]] = defaultdict(dict)
        for a, b, link in self._matrix.joined():
            if link.kind is LinkKind.NVLINK and link.count is not None:
                peers[a][b] = peers[b][a] = link
        own = {
            a: max(links.values(), key=lambda link: link.count or 0) for a, links in peers.items()
        }
        groups: list[tuple[list[int], dict[int, FabricLink]]] = []
        for start in sorted(peers):
            if any(start in members for members, _ in groups):
                continue
            members = sorted({start, *peers[start]})
            needed = max(sum(link.count or 0 for link in peers[m].values()) for m in members)
            if len(members) < 3 or needed <= MOST_NVLINKS:
                continue
            links = {m: own[m] for m in members}
            if all(self._as_switched(a, b, links) for a, b in combinations(members, 2)):
                groups.append((members, links))
        return groups

    def _as_switched(self, a: int, b: int, links: Mapping[int, FabricLink]) -> bool:
        """Whether a pair has as many links as the poorer of its ends, or a cut table says
        nothing of it."""
        link = self._matrix.fabric(a, b)
        if link is None:
            return self._matrix.pcie_class(a, b) is None
        count = min(links[a].count or 0, links[b].count or 0)
        return link.kind is LinkKind.NVLINK and link.count == count

    # Classes

    def _keep_classes(self) -> None:
        names = [device.id for device in self._matrix.devices]
        stated = []
        odd: list[tuple[str, str, PathClass, PathClass]] = []
        relayed: list[tuple[str, str]] = []
        for a, b, path_class in self._matrix.stated():
            first, second = sorted((names[a], names[b]), key=natural_key)
            stated.append([first, second, path_class.name])
            if path_class is PathClass.NVB:
                relayed.append((first, second))
                continue
            given = PathClass.NVL if self._matrix.fabric(a, b) else self._tree_class(a, b)
            if given is not path_class:
                odd.append((first, second, path_class, given))
        self._builder.stated_classes = sorted(stated, key=_pair_key)
        overrides = [[x, y, c.name] for a, b, c, _ in odd for x, y in ((a, b), (b, a))]
        # By way of ports such a route looks like one through a switch.
        overrides += [[x, y, "NVB"] for a, b in relayed for x, y in ((a, b), (b, a))]
        self._builder.class_overrides = sorted(overrides, key=_pair_key)
        hidden = [pair for pair in odd if pair[2:] == (PathClass.NODE, PathClass.SYS)]
        if hidden:
            shown = some(f"{a}-{b}" for a, b, _, _ in hidden)
            self._builder.note(
                f"the letters say NODE for {shown}, which are near to different NUMA nodes: a "
                "job's or virtual machine's view hides the socket hop; routes cross it, and keep "
                "the class that the file states"
            )
        others = [pair for pair in odd if pair not in hidden]
        if others:
            shown = some(f"{a}-{b} {c.name}, others make it {g.name}" for a, b, c, g in others)
            self._builder.note(
                f"the classes fit no PCIe tree ({shown}): routes are those of the nearest tree, "
                "and keep the class that the file states"
            )

    def _tree_class(self, a: int, b: int) -> PathClass:
        levels = (PathClass.PIX, PathClass.PXB, PathClass.PHB, PathClass.NODE)
        for level, x, y in zip(levels, self._place[a], self._place[b], strict=True):
            if x is y:
                return level
        return PathClass.SYS


def _pair_key(entry: Sequence[str]) -> tuple[object, ...]:
    return natural_key(entry[0]), natural_key(entry[1])

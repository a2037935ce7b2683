"""The tree that a machine mostly is, and the links beside it.

A *machine* is what no network separates.  Its tree begins at the sockets and
follows PCIe, memory and chip-to-chip links down to the endpoints; links between
sockets, GPU fabrics, networks and second parents stand beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import networkx as nx

from topocal.topo.naming import natural_key
from topocal.topo.path_class import FABRIC
from topocal.topo.resource import Link, LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate

__all__ = ["Branch", "Connection", "Machine", "Outline", "describe_link", "outline"]

_ROOTS: Final = (
    NodeKind.SOCKET,
    NodeKind.GROUP,
    NodeKind.HOST_BRIDGE,
    NodeKind.PCIE_SWITCH,
)
"""Where a tree begins, best first."""

_WORDS: Final = {
    LinkKind.PCIE: "PCIe",
    LinkKind.NVLINK: "NVLink",
    LinkKind.XGMI: "xGMI",
    LinkKind.XELINK: "Xe Link",
    LinkKind.FABRIC: "fabric",
    LinkKind.C2C: "C2C",
    LinkKind.SMP: "SMP",
    LinkKind.MEMORY: "memory",
    LinkKind.NET: "network",
    LinkKind.UNKNOWN: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Both directions of one physical connection, or the one there is.

    Attributes
    ----------
    a, b
        Its ends.
    forth
        The link from a to b, or the only one.
    back
        The link from b to a.
    text
        What it is and passes, in words.
    """

    a: str
    b: str
    forth: Link
    back: Link | None
    text: str

    @property
    def kind(self) -> LinkKind:
        """What it is made of."""
        return self.forth.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A node of the tree.

    Attributes
    ----------
    node
        Its id.
    kind
        What it is.
    connection
        How it hangs on its parent; ``None`` at the root.
    children
        In natural order, endpoints of a switch before further switches.
    """

    node: str
    kind: NodeKind
    connection: Connection | None
    children: tuple[Branch, ...]

    def walk(self) -> Iterator[Branch]:
        """This branch and all below, top down."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One part that no network separates.

    Attributes
    ----------
    name
        The host that all of it is on, or what its ids begin with; empty where neither is.
    roots
        Its trees.
    peers
        Connections of GPU fabrics.
    sockets
        Connections between sockets.
    others
        Connections that are neither in the tree nor of the above: second parents.
    shape
        Equal for machines that differ only in their ids' prefix.
    """

    name: str
    roots: tuple[Branch, ...]
    peers: tuple[Connection, ...]
    sockets: tuple[Connection, ...]
    others: tuple[Connection, ...]
    shape: str

    @property
    def nodes(self) -> list[str]:
        """Ids of the nodes in its trees, top down."""
        return [branch.node for root in self.roots for branch in root.walk()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A topology as machines and the networks between them.

    Attributes
    ----------
    machines
        In natural order of their first node.
    switches
        Ids of network switches, in natural order.
    network
        Connections of the network.
    """

    machines: tuple[Machine, ...]
    switches: tuple[str, ...]
    network: tuple[Connection, ...]


def outline(topology: Topology) -> Outline:
    """The machines, trees and networks of a topology."""
    graph = topology.graph
    connections = list(_connections(topology))
    inside = nx.Graph()
    inside.add_nodes_from(n for n, k in graph.nodes(data="kind") if k is not NodeKind.NET_SWITCH)
    wired = [c for c in connections if c.kind is not LinkKind.NET]
    inside.add_edges_from((c.a, c.b) for c in wired)
    parts = [sorted(part, key=natural_key) for part in nx.connected_components(inside)]
    parts.sort(key=lambda part: natural_key(part[0]))
    home = {node: k for k, part in enumerate(parts) for node in part}
    local: dict[int, list[Connection]] = defaultdict(list)
    for connection in wired:
        local[home[connection.a]].append(connection)
    switches = [n for n, k in graph.nodes(data="kind") if k is NodeKind.NET_SWITCH]
    return Outline(
        machines=tuple(_machine(topology, part, local[k]) for k, part in enumerate(parts)),
        switches=tuple(sorted((s for s in switches if s not in home), key=natural_key)),
        network=tuple(c for c in connections if c.kind is LinkKind.NET),
    )


def _connections(topology: Topology) -> Iterator[Connection]:
    """Each connection once, in natural order of its first link."""
    seen: set[str] = set()
    for link in topology.links.values():
        if link.id in seen:
            continue
        back = topology.links.get(link.reverse or "")
        seen |= {link.id} if back is None else {link.id, back.id}
        yield Connection(
            a=link.tail,
            b=link.head,
            forth=link,
            back=back,
            text=describe_link(topology, link, back),
        )


def describe_link(topology: Topology, link: Link, back: Link | None) -> str:
    """What a connection is and what it passes in one direction, in words.

    Parameters
    ----------
    link, back
        Its two directions.
    """
    data = topology.graph.edges[link.tail, link.head, link.id]
    parts = [_made_of(link.kind, data), _capacity(topology, link, back)]
    return " · ".join(part for part in parts if part)


def _made_of(kind: LinkKind, data: dict[str, Any]) -> str:
    named = data.get("fabric") if kind is LinkKind.FABRIC else None
    word, generation = str(named or _WORDS[kind]), data.get("generation")
    width, count = data.get("width"), data.get("count")
    if kind is LinkKind.PCIE:
        number = f" {generation}.0" if generation is not None else ""
        return f"{word}{number} x{width}" if width is not None else f"{word}{number}"
    name = f"{word} {generation}" if generation is not None else word
    return f"{count} × {name}" if count is not None and count != 1 else name


def _capacity(topology: Topology, link: Link, back: Link | None) -> str:
    forth_Bps = link.nominal_Bps
    back_Bps = forth_Bps if back is None else back.nominal_Bps
    one_way = " one way" if back is None else ""
    if forth_Bps is None and back_Bps is None:
        return one_way.strip()
    shared = {topology.resources[r].sharing for r, _ in link.uses}
    if Sharing.DUPLEX in shared:
        return f"{format_rate(forth_Bps)} both ways together"
    if forth_Bps != back_Bps:
        return f"{format_rate(forth_Bps)} {link.tail}→{link.head}, {format_rate(back_Bps)} back"
    return format_rate(forth_Bps) + one_way


def _machine(topology: Topology, nodes: list[str], local: list[Connection]) -> Machine:
    kinds = {node: topology.graph.nodes[node]["kind"] for node in nodes}
    peers, sockets, tree = [], [], []
    for connection in local:
        ends = {kinds[connection.a], kinds[connection.b]}
        if connection.kind is LinkKind.SMP:
            sockets.append(connection)
        elif connection.kind in FABRIC and ends <= {NodeKind.GPU, NodeKind.NVSWITCH}:
            peers.append(connection)
        else:
            tree.append(connection)
    roots, used = _grow(nodes, kinds, tree)
    name = _name(topology, nodes)
    return Machine(
        name=name,
        roots=roots,
        peers=tuple(peers),
        sockets=tuple(sockets),
        others=tuple(c for c in tree if c.forth.id not in used),
        shape=_shape(name, nodes, local, kinds),
    )


def _grow(
    nodes: list[str], kinds: dict[str, NodeKind], tree: Iterable[Connection]
) -> tuple[tuple[Branch, ...], set[str]]:
    """Trees that hold every node but NVSwitches, and the ids of the links they follow.

    NVSwitches that nothing else is joined to stand for themselves.
    """
    beside: dict[str, list[tuple[str, Connection]]] = defaultdict(list)
    for connection in tree:
        beside[connection.a].append((connection.b, connection))
        beside[connection.b].append((connection.a, connection))
    parent: dict[str, Connection | None] = {}
    below: dict[str, list[str]] = defaultdict(list)
    order = {kind: k for k, kind in enumerate(_ROOTS)}
    starts = sorted(
        [n for n in nodes if kinds[n] is not NodeKind.NVSWITCH] or nodes,
        key=lambda n: (order.get(kinds[n], len(order)), natural_key(n)),
    )
    roots: list[str] = []
    sockets = [n for n in starts if kinds[n] is NodeKind.SOCKET]
    for group in (sockets, *([n] for n in starts)):
        fresh = [n for n in group if n not in parent]
        parent.update(dict.fromkeys(fresh))
        roots += fresh
        # Breadth first from all sockets at once, so that each part hangs on the nearest.
        frontier = fresh
        while frontier:
            further = []
            for node in frontier:
                for other, connection in beside[node]:
                    if other not in parent:
                        parent[other] = connection
                        below[node].append(other)
                        further.append(other)
            frontier = further
    used = {connection.forth.id for connection in parent.values() if connection is not None}
    return tuple(_branch(root, kinds, parent, below) for root in roots), used


def _branch(
    root: str,
    kinds: dict[str, NodeKind],
    parent: dict[str, Connection | None],
    below: dict[str, list[str]],
) -> Branch:
    """The branch at ``root``, built bottom up: chains of switches may be long."""
    order = [root]
    for node in order:
        order.extend(below[node])
    done: dict[str, Branch] = {}
    for node in reversed(order):
        children = sorted(
            below[node], key=lambda n: (not kinds[n].is_endpoint, str(kinds[n]), natural_key(n))
        )
        done[node] = Branch(
            node=node,
            kind=kinds[node],
            connection=parent[node],
            children=tuple(done[child] for child in children),
        )
    return done[root]


def _name(topology: Topology, nodes: list[str]) -> str:
    hosts = {topology.graph.nodes[node].get("host") for node in nodes}
    if len(hosts) == 1 and None not in hosts:
        return str(hosts.pop())
    prefixes = {node.rpartition("/")[0] for node in nodes}
    return prefixes.pop() if len(prefixes) == 1 else ""


def _shape(name: str, nodes: list[str], local: list[Connection], kinds: dict[str, NodeKind]) -> str:
    """Nodes and connections with the machine's name taken out."""
    pattern = re.compile(rf"^{re.escape(name)}/") if name else re.compile("(?!)")

    def plain(node: str) -> str:
        return pattern.sub("", node)

    ends = sorted(f"{plain(c.a)} {plain(c.b)} {c.text}" for c in local)
    return "\n".join([*sorted(f"{plain(n)} {kinds[n]}" for n in nodes), *ends])

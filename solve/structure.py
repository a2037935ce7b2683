"""Which cards sit together, in lines; for a topology of which nothing was measured.

Told from the graph and not from the classes of pairs: a GPU link hides how far apart its ends
are in PCIe, and two cards joined by one sit below a socket all the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import networkx as nx

from topocal.solve.findings_topology import FABRIC
from topocal.solve.words import ranges
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology, natural_key
from topocal.topo.units import format_rate

__all__ = ["structure"]

_BELOW_A_SWITCH: Final = frozenset({NodeKind.GPU, NodeKind.NIC, NodeKind.PCIE_SWITCH})
_BELOW_A_BRIDGE: Final = _BELOW_A_SWITCH | {NodeKind.HOST_BRIDGE}
_BELOW_A_SOCKET: Final = _BELOW_A_BRIDGE | {NodeKind.SOCKET}

_MOST_GROUPS: Final = 8
"""More are counted: nobody reads forty."""


def structure(topology: Topology) -> tuple[str, ...]:
    """Cards by fabric, switch, socket and network card, each in a line that says something."""
    cards = topology.accelerators
    if len(cards) < 2:
        first = "one card" if cards else "no card is described"
        return (first, *_switches(topology), *_network_cards(topology))
    routes = topology.routes(cards)
    counts = Counter(
        PathClass(int(routes.path_class.flat[routes.pair_index(a, b)])).name
        for k, a in enumerate(cards)
        for b in cards[k + 1 :]
    )
    apart = counts.pop(PathClass.DIS.name, 0)
    shown = ", ".join(f"{n} {name}" for name, n in counts.items())
    if apart:
        shown += f"{', ' * bool(shown)}{apart} of which nothing says how they are connected"
    lines = [f"{len(cards)} cards; pairs by class: {shown}"]
    fabric = _together(topology, cards, FABRIC, frozenset(NodeKind) - {NodeKind.NET_SWITCH})
    if any(len(group) > 1 for group in fabric):
        lines.append(f"joined by a fabric: {_in_groups(fabric)}")
    lines += _switches(topology)
    bridges = _together(topology, cards, frozenset({LinkKind.PCIE}), _BELOW_A_BRIDGE)
    if 1 < len(bridges) < len(cards) and bridges != _behind_switches(topology, cards):
        lines.append(f"under one host bridge: {_in_groups(bridges)}")
    sockets = _by_socket(topology, cards)
    if len(sockets) > 1:
        lines.append(f"on a socket: {_of_sockets(topology, sockets)}")
    elif by_numa := _by_numa(topology, cards):
        lines.append(f"on a NUMA node: {by_numa}")
    return (*lines, *_network_cards(topology))


def _graph(
    topology: Topology, links: Collection[LinkKind], nodes: Collection[NodeKind]
) -> nx.Graph[str]:
    """The part of some kinds of links between some kinds of nodes."""
    kinds = dict(topology.graph.nodes(data="kind"))
    found: nx.Graph[str] = nx.Graph()
    found.add_nodes_from(name for name, kind in kinds.items() if kind in nodes)
    found.add_edges_from(
        (link.tail, link.head)
        for link in topology.links.values()
        if link.kind in links and link.tail in found and link.head in found
    )
    return found


def _together(
    topology: Topology,
    cards: Sequence[str],
    links: Collection[LinkKind],
    nodes: Collection[NodeKind],
) -> list[list[str]]:
    """Cards that such a part joins, in natural order."""
    groups = [
        sorted(part & set(cards), key=natural_key)
        for part in nx.connected_components(_graph(topology, links, nodes))
    ]
    return sorted((g for g in groups if g), key=lambda g: natural_key(g[0]))


def _behind_switches(topology: Topology, cards: Sequence[str]) -> list[list[str]]:
    return _together(topology, cards, frozenset({LinkKind.PCIE}), _BELOW_A_SWITCH)


def _switches(topology: Topology) -> Iterator[str]:
    """What sits behind one switch, and what the uplink that it shares passes.

    Of cards behind one switch those are named that are nearer to each other than the rest.
    """
    cards = set(topology.accelerators)
    nics = {n for n, kind in topology.graph.nodes(data="kind") if kind is NodeKind.NIC}
    below = _graph(topology, frozenset({LinkKind.PCIE}), _BELOW_A_SWITCH)
    parts = [(part & cards, part & nics, part) for part in nx.connected_components(below)]
    shared = sorted(
        (p for p in parts if len(p[0]) > 1 or (p[0] and p[1]) or (not cards and len(p[1]) > 1)),
        key=lambda p: natural_key(min(p[0] or p[1], key=natural_key)),
    )
    alone = [c for mine, others, _ in parts if len(mine) == 1 and not others for c in mine]
    if not shared or (len(shared) == 1 and shared[0][0] == cards and not shared[0][1]):
        return
    uplinks = [_uplink(topology, part) for _, _, part in shared]
    same = uplinks[0] if len(set(uplinks)) == 1 else ""
    texts = []
    for (mine, others, _), uplink in zip(shared, uplinks, strict=True):
        close = _nearest(below, mine)
        also = [f"nearest {_in_groups(close)}"] if any(len(g) > 1 for g in close) else []
        also += [uplink] if uplink and not same else []
        texts.append(ranges([*mine, *others]) + (f" ({', '.join(also)})" if also else ""))
    if alone:
        texts.append(f"alone {ranges(alone)}")
    each = "each group shares " if len(shared) > 1 else "they share "
    yield f"behind one PCIe switch: {_cut(texts)}" + (f"; {each}{same}" if same else "")


def _uplink(topology: Topology, part: Collection[str]) -> str:
    """The one way out of a switch, with its nominal capacity; empty where that is unknown."""
    out = [link for link in topology.links.values() if link.tail in part and link.head not in part]
    known = [link.nominal_Bps for link in out if link.kind is LinkKind.PCIE]
    if len(known) != 1 or known[0] is None:
        return ""
    return f"an uplink of {format_rate(known[0])} each way"


def _nearest(below: nx.Graph[str], group: Collection[str]) -> list[list[str]]:
    """Cards of a group in parts that are nearer to each other; none where all are as near."""
    hops = {a: nx.single_source_shortest_path_length(below, a) for a in group}
    far = [hops[a][b] for a in group for b in group if a != b]
    if not far or min(far) == max(far):
        return []
    close: nx.Graph[str] = nx.Graph()
    close.add_nodes_from(group)
    close.add_edges_from((a, b) for a in group for b in group if 0 < hops[a][b] == min(far))
    parts = [sorted(part, key=natural_key) for part in nx.connected_components(close)]
    return sorted(parts, key=lambda part: natural_key(part[0]))


def _by_numa(topology: Topology, cards: Sequence[str]) -> str:
    """Cards by the NUMA node that the file gives them; empty where it gives one or none."""
    found: dict[int, list[str]] = defaultdict(list)
    for card in cards:
        number = topology.graph.nodes[card].get("numa")
        if not isinstance(number, int):
            return ""
        found[number].append(card)
    if len(found) < 2:
        return ""
    return _cut([f"{ranges(mine)} ({number})" for number, mine in sorted(found.items())])


def _by_socket(topology: Topology, cards: Sequence[str]) -> dict[str, list[str]]:
    """Cards by the one socket above them; none where some hang below none, or below several."""
    sockets = {n for n, kind in topology.graph.nodes(data="kind") if kind is NodeKind.SOCKET}
    found: dict[str, list[str]] = defaultdict(list)
    below = _graph(topology, frozenset({LinkKind.PCIE, LinkKind.C2C}), _BELOW_A_SOCKET)
    for part in nx.connected_components(below):
        above = part & sockets
        mine = part & set(cards)
        if mine and len(above) != 1:
            return {}
        for name in above if mine else ():
            found[name] = sorted(mine, key=natural_key)
    return dict(sorted(found.items(), key=lambda item: natural_key(item[1][0])))


def _of_sockets(topology: Topology, sockets: dict[str, list[str]]) -> str:
    """Cards of each, with the NUMA node where that is no number of the socket itself."""
    nodes = topology.graph.nodes
    numbers = [nodes[name].get("numa") for name in sockets]
    named = None not in numbers and numbers != list(range(len(numbers)))
    parts = [
        ranges(mine) + (f" (NUMA node {number})" if named else "")
        for mine, number in zip(sockets.values(), numbers, strict=True)
    ]
    return _cut(parts)


def _network_cards(topology: Topology) -> Iterator[str]:
    """Which cards each network card is nearest to."""
    cards = topology.accelerators
    nics = [n for n, kind in topology.graph.nodes(data="kind") if kind is NodeKind.NIC]
    if not nics or not cards:
        return
    below = _graph(topology, frozenset({LinkKind.PCIE}), _BELOW_A_SWITCH)
    ends = (*cards, *sorted(nics, key=natural_key))
    routes = topology.routes(ends)
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for nic in ends[len(cards) :]:
        code = {c: int(routes.path_class.flat[routes.pair_index(c, nic)]) for c in cards}
        nearest = min(code.values())
        near = tuple(c for c in cards if code[c] == nearest)
        if set(near) == set(cards) & nx.node_connected_component(below, nic):
            continue  # told with the switch
        groups[PathClass(nearest).name, near].append(nic)
    parts = [
        f"{ranges(mine)} {name} "
        + ("to every card" if len(near) == len(cards) > 1 else f"to {ranges(near)}")
        for (name, near), mine in groups.items()
    ]
    if parts:
        yield f"network cards: {_cut(parts)}"


def _in_groups(groups: Sequence[Sequence[str]]) -> str:
    several = [ranges(g) for g in groups if len(g) > 1]
    alone = [g[0] for g in groups if len(g) == 1]
    return _cut([*several, *([f"alone {ranges(alone)}"] if alone else [])])


def _cut(parts: Sequence[str]) -> str:
    more = len(parts) - _MOST_GROUPS
    return "; ".join([*parts[:_MOST_GROUPS], *([f"and {more} more"] if more > 0 else [])])

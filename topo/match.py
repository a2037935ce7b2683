"""Which device of one file is which device of another file about the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from topocal.topo.agreement import same_model, same_processors
from topocal.topo.resource import NodeKind
from topocal.topo.view import DEVICES, View

__all__ = ["HOW", "Match", "match_devices"]

HOW: Final = ("address", "name", "number", "order", "sockets")
"""What devices may be matched by, the surest first."""

_PLACES: Final = (NodeKind.PCIE_SWITCH, NodeKind.HOST_BRIDGE)


@dataclass(slots=True, eq=False, kw_only=True)
class Match:
    """Pairs of nodes that are one thing: of the first file to those of the second.

    Attributes
    ----------
    endpoints
        GPUs and NICs.
    places
        Everything else: switches, host bridges, sockets, and what hangs on these alone
        (processors, memory).
    parts
        Parts of a GPU (tiles, partitions) to the whole one that the second file lists.
    how
        Per kind of device, what they were matched by, one of :data:`HOW`.
    only_first, only_second
        GPUs and NICs that the other file does not have.
    """

    endpoints: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    how: dict[NodeKind, str] = field(default_factory=dict)
    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> dict[str, str]:
        """All that are one thing each."""
        return self.places | self.endpoints

    @property
    def surest(self) -> int:
        """Place in :data:`HOW` of the best that links the two files; too far when nothing does."""
        return min((HOW.index(how) for how in self.how.values()), default=len(HOW))

    @property
    def links_them(self) -> bool:
        """Whether the two files have anything in common."""
        return bool(self.how)

    def seen_from(self, view: View, names: Mapping[str, str], second: View) -> Match:
        """The same match, of one of the files that the first was merged from.

        Parameters
        ----------
        view
            That file.
        names
            Its nodes, by the first's.
        second
            The file on the other side.
        """
        found = Match(how=dict(self.how))
        for name in ("endpoints", "places", "parts"):
            pairs: dict[str, str] = getattr(self, name)
            getattr(found, name).update({names[a]: b for a, b in pairs.items() if a in names})
        _count_out(found, view, second)
        return found


def match_devices(first: View, second: View) -> Match:
    """Match by PCI address; else by the tools' own numbers; else, with equal counts, by order.

    Switches follow by address, sockets by NUMA number or processors, and both by the
    devices below them.  A file that lists no device is matched by its sockets alone.
    """
    match = Match()
    for kind in DEVICES:
        _match_role(first, second, kind, match)
    _count_out(match, first, second)
    for key, node in first.by_bus.items():
        other = second.by_bus.get(key)
        here = first.graph.nodes[node]["kind"]
        if here in _PLACES and other and second.graph.nodes[other]["kind"] in _PLACES:
            match.places[node] = other
    buses = {second.get(node, "bus"): node for node in second.of_kind(NodeKind.HOST_BRIDGE)}
    for node in first.of_kind(NodeKind.HOST_BRIDGE):
        bus = first.get(node, "bus")
        if bus is not None and bus in buses:
            match.places.setdefault(node, buses[bus])
    _match_card_ports(first, second, match)
    _match_sockets(first, second, match)
    _match_by_surroundings(first, second, match)
    return match


def _count_out(match: Match, first: View, second: View) -> None:
    """List the devices that only one file has."""
    taken = set(match.endpoints.values()) | set(match.parts.values())
    for kind in DEVICES:
        here, there = first.of_kind(kind), second.of_kind(kind)
        match.only_first += [n for n in here if n not in match.endpoints and n not in match.parts]
        match.only_second += [n for n in there if n not in taken]


def _match_role(first: View, second: View, kind: NodeKind, match: Match) -> None:
    left, right = first.of_kind(kind), second.of_kind(kind)
    if not left or not right:
        return
    pairs, parts, how = _by_address(first, second, kind), _parts_at(first, second, kind), "address"
    if pairs:
        pairs |= _the_rest_by_order(first, left, second, right, pairs)
    # Two files that give every address and share none are about two machines.
    addressed = _all_have(first, left, "bus_id") and _all_have(second, right, "bus_id")
    if not pairs and not parts and not addressed and _models_agree(first, left, second, right):
        pairs, how = _by_name(first, left, second, right), "name"
        if not pairs:
            parts, how = _parts_numbered(first, left, second, right), "number"
        if not pairs and not parts:
            pairs, how = _by_number(first, left, second, right)
    match.endpoints |= pairs
    match.parts |= parts
    if pairs or parts:
        match.how[kind] = how


def _by_address(first: View, second: View, kind: NodeKind) -> dict[str, str]:
    pairs = {}
    for key, node in first.by_bus.items():
        other = second.by_bus.get(key)
        if other is None or first.graph.nodes[node]["kind"] is not kind:
            continue
        if second.graph.nodes[other]["kind"] is kind:
            pairs[node] = other
    return pairs


def _parts_at(first: View, second: View, kind: NodeKind) -> dict[str, str]:
    """Several nodes at one address, which is one device in the other file."""
    parts: dict[str, str] = {}
    for key, nodes in first.at_bus.items():
        other = second.by_bus.get(key)
        alike = [node for node in nodes if first.graph.nodes[node]["kind"] is kind]
        if len(alike) > 1 and other and second.graph.nodes[other]["kind"] is kind:
            parts |= dict.fromkeys(alike, other)
    return parts


def _parts_numbered(first: View, left: list[str], second: View, right: list[str]) -> dict[str, str]:
    """Tiles with the number of their card, and cards."""
    whole = _numbered(second, right)
    if whole is None or any(second.get(node, "tile") is not None for node in right):
        return {}
    tiles = [node for node in left if first.get(node, "tile") is not None]
    return {node: whole[n] for node in tiles if (n := first.get(node, "index")) in whole}


def _by_name(first: View, left: list[str], second: View, right: list[str]) -> dict[str, str]:
    """Devices that both files call by one name, such as ``mlx5_0``.

    Those that a file does not name (a legend may be cut off) follow by number.
    """
    one, other = _named(first, left), _named(second, right)
    pairs = {one[name]: other[name] for name in one if name in other}
    if not pairs:
        return {}
    numbers, others = _numbered(first, left) or {}, _numbered(second, right) or {}
    for number, node in numbers.items():
        found = others.get(number, "")
        free = node not in pairs and found and found not in pairs.values()
        if free and not (node in one.values() and found in other.values()):
            pairs[node] = found
    return pairs


def _named(view: View, nodes: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in nodes:
        names = view.get(node, "net_names") or view.get(node, "names") or ()
        found |= {str(name): node for name in names if name}
    return found


def _the_rest_by_order(
    first: View, left: list[str], second: View, right: list[str], pairs: dict[str, str]
) -> dict[str, str]:
    """Devices whose address one file has wrong: as many left over on either side."""
    taken = set(pairs.values())
    rest = [node for node in left if node not in pairs]
    others = [node for node in right if node not in taken]
    if len(left) != len(right) or len(rest) != len(others):
        return {}
    return dict(zip(_in_order(first, rest), _in_order(second, others), strict=True))


def _by_number(
    first: View, left: list[str], second: View, right: list[str]
) -> tuple[dict[str, str], str]:
    one = _numbered(first, left)
    other = _numbered(second, right)
    if one is not None and other is not None and one.keys() & other.keys():
        return {one[n]: other[n] for n in sorted(one.keys() & other.keys())}, "number"
    if len(left) == len(right):
        return dict(zip(_in_order(first, left), _in_order(second, right), strict=True)), "order"
    return {}, ""


def _numbered(view: View, nodes: list[str]) -> dict[int, str] | None:
    """Nodes by the tool's number, where each has its own and there is one host."""
    found = {view.get(node, "index"): node for node in nodes}
    complete = len(found) == len(nodes) and all(isinstance(n, int) for n in found)
    return found if complete else None


def _in_order(view: View, nodes: list[str]) -> list[str]:
    """As the tool numbers them, else in natural order of the ids, which follow addresses."""
    numbered = _numbered(view, nodes)
    return nodes if numbered is None else [numbered[n] for n in sorted(numbered)]


def _all_have(view: View, nodes: list[str], attribute: str) -> bool:
    return all(view.get(node, attribute) is not None for node in nodes)


def _models_agree(first: View, left: list[str], second: View, right: list[str]) -> bool:
    """Whether no device's model, or PCI device id, rules the other file's devices out."""
    for attribute in ("model", "device"):
        one = {value for node in left if (value := first.get(node, attribute))}
        other = {value for node in right if (value := second.get(node, attribute))}
        if attribute == "model":
            alike = any(same_model(a, b) for a in one for b in other)
        else:
            alike = bool(one & other)
        if one and other and not alike:
            return False
    return True


def _match_card_ports(first: View, second: View, match: Match) -> None:
    """The switch above all parts of a card, and what stands above the card."""
    for whole in dict.fromkeys(match.parts.values()):
        parts = [node for node, other in match.parts.items() if other == whole]
        ports = {node for part in parts for node in first.chain(part)[1:2]}
        upper = second.chain(whole)[1:2]
        if len(ports) != 1 or not upper:
            continue
        port = ports.pop()
        alone = set(first.below[port]) == set(parts) and second.below[upper[0]] == [whole]
        kinds = {first.graph.nodes[port]["kind"], second.graph.nodes[upper[0]]["kind"]}
        if alone and kinds == {NodeKind.PCIE_SWITCH}:
            match.places.setdefault(port, upper[0])


def _match_sockets(first: View, second: View, match: Match) -> None:
    left, right = first.of_kind(NodeKind.SOCKET), second.of_kind(NodeKind.SOCKET)
    hosted = _all_have(first, left, "host") and _all_have(second, right, "host")
    numas = _by_numa(second, right, hosted=hosted)
    for place, node in _by_numa(first, left, hosted=hosted).items():
        if place in numas:
            match.places[node] = numas[place]
    if len(left) == len(right) == 1:
        match.places[left[0]] = right[0]
    for node in left:
        if node not in match.places and (other := _by_processors(first, node, second, match)):
            match.places[node] = other
    # A file that lists no device has only its sockets to go by.
    bare = not first.has_devices or not second.has_devices
    unstated = (first.unstated_socket and right) or (second.unstated_socket and left)
    if bare and (unstated or any(node in match.places for node in left)):
        match.how[NodeKind.SOCKET] = "sockets"


def _by_numa(view: View, sockets: list[str], *, hosted: bool) -> dict[tuple[str, int], str]:
    """Sockets by host and NUMA node; none where several claim one."""
    found: dict[tuple[str, int], str] = {}
    twice = set()
    for node in sockets:
        numa = view.get(node, "numa")
        if numa is not None:
            place = (str(view.get(node, "host")) if hosted else "", numa)
            twice |= {place} if place in found else set()
            found[place] = node
    return {place: node for place, node in found.items() if place not in twice}


def _by_processors(first: View, node: str, second: View, match: Match) -> str | None:
    """The one socket of the same processors, where one of the two has no number."""
    cpus, taken = first.get(node, "cpu_list"), set(match.places.values())
    if not cpus:
        return None
    found = [
        other
        for other in second.of_kind(NodeKind.SOCKET)
        if other not in taken
        and (first.get(node, "numa") is None or second.get(other, "numa") is None)
        and same_processors(cpus, str(second.get(other, "cpu_list") or ""))
    ]
    return found[0] if len(found) == 1 else None


_JOINTS: Final = (
    NodeKind.SOCKET,
    NodeKind.HOST_BRIDGE,
    NodeKind.PCIE_SWITCH,
    NodeKind.NVSWITCH,
    NodeKind.CPU,
    NodeKind.MEMORY,
)
_NAMES: Final = ("bus_id", "bus", "numa")
"""Attributes that tell two nodes of one kind apart."""


def _match_by_surroundings(first: View, second: View, match: Match) -> None:
    """What stands above the same devices, or hangs on the same socket, is one thing.

    Only where that is unique in both files, and no address or number says otherwise.
    """
    for kind in _JOINTS:
        taken = set(match.places.values())
        free = {node for node in second.of_kind(kind) if node not in taken}
        here = _by_surroundings(first, set(first.of_kind(kind)) - match.places.keys(), match.nodes)
        there = _by_surroundings(second, free, {node: node for node in second.graph.nodes})
        for around, node in here.items():
            other = there.get(around)
            if other is not None and all(
                None in (a := (first.get(node, word), second.get(other, word))) or a[0] == a[1]
                for word in _NAMES
            ):
                match.places[node] = other


def _by_surroundings(
    view: View, nodes: set[str], names: Mapping[str, str]
) -> dict[frozenset[str], str]:
    """Nodes by the devices below them, or their neighbours; none where several are alike."""
    found: dict[frozenset[str], list[str]] = {}
    for node in nodes:
        kind = view.graph.nodes[node]["kind"]
        tree = kind in (NodeKind.SOCKET, NodeKind.HOST_BRIDGE, NodeKind.PCIE_SWITCH)
        around = view.below.get(node, []) if tree else list(view.graph.successors(node))
        if kind is NodeKind.NVSWITCH:
            around = [n for n in around if view.graph.nodes[n]["kind"] is NodeKind.GPU]
        if around and all(n in names for n in around):
            found.setdefault(frozenset(names[n] for n in around), []).append(node)
    return {around: alike[0] for around, alike in found.items() if len(alike) == 1}

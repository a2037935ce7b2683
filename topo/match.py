"""Which device of one file is which device of another file about the same machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from topocal.topo.resource import NodeKind
from topocal.topo.view import View

__all__ = ["Match", "match_devices"]

_ROLES: Final = (NodeKind.GPU, NodeKind.NIC)
_PLACES: Final = (NodeKind.PCIE_SWITCH, NodeKind.HOST_BRIDGE)


@dataclass(slots=True, eq=False, kw_only=True)
class Match:
    """Pairs of nodes that are one thing: of the first file to those of the second.

    Attributes
    ----------
    endpoints
        GPUs and NICs.
    places
        Switches, host bridges and sockets.
    how
        Per kind of device, what they were matched by: ``address``, ``name``, ``number``
        or ``order``.
    only_first, only_second
        GPUs and NICs that the other file does not have.
    """

    endpoints: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    how: dict[NodeKind, str] = field(default_factory=dict)
    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> dict[str, str]:
        """All of them."""
        return self.places | self.endpoints

    @property
    def links_them(self) -> bool:
        """Whether the two files have anything in common."""
        return bool(self.how)


def match_devices(first: View, second: View) -> Match:
    """Match by PCI address; else by the tools' own numbers; else, with equal counts, by order.

    Switches and sockets follow by address and NUMA number.
    """
    match = Match()
    for kind in _ROLES:
        _match_role(first, second, kind, match)
    for kind in _PLACES:
        for key, node in first.by_bus.items():
            other = second.by_bus.get(key)
            here = first.graph.nodes[node]["kind"]
            if here is kind and other and second.graph.nodes[other]["kind"] in _PLACES:
                match.places[node] = other
    _match_sockets(first, second, match)
    return match


def _match_role(first: View, second: View, kind: NodeKind, match: Match) -> None:
    left, right = first.of_kind(kind), second.of_kind(kind)
    if left and right:
        pairs, how = _by_address(first, second, kind), "address"
        addressed = _all_have(first, left, "bus_id") and _all_have(second, right, "bus_id")
        if pairs:
            pairs |= _the_rest_by_order(first, left, second, right, pairs)
        # Two files that give every address and share none are about two machines.
        elif not addressed and _models_agree(first, left, second, right):
            pairs, how = _by_name(first, left, second, right), "name"
            if not pairs:
                pairs, how = _by_number(first, left, second, right)
        match.endpoints |= pairs
        if pairs:
            match.how[kind] = how
    taken = set(match.endpoints.values())
    match.only_first += [node for node in left if node not in match.endpoints]
    match.only_second += [node for node in right if node not in taken]


def _by_address(first: View, second: View, kind: NodeKind) -> dict[str, str]:
    pairs = {}
    for key, node in first.by_bus.items():
        other = second.by_bus.get(key)
        if other is None or first.graph.nodes[node]["kind"] is not kind:
            continue
        if second.graph.nodes[other]["kind"] is kind:
            pairs[node] = other
    return pairs


def _by_name(first: View, left: list[str], second: View, right: list[str]) -> dict[str, str]:
    """Devices that both files call by one name, such as ``mlx5_0``."""
    one, other = _named(first, left), _named(second, right)
    return {one[name]: other[name] for name in one if name in other}


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
        one = {_plain(first.get(node, attribute)) for node in left} - {""}
        other = {_plain(second.get(node, attribute)) for node in right} - {""}
        if one and other and not one & other:
            return False
    return True


def _plain(model: object) -> str:
    """A model's name without the words that tools add or leave out."""
    words = str(model or "").lower().replace("-", " ").split()
    return " ".join(w for w in words if w not in ("nvidia", "amd", "intel", "tesla", "geforce"))


def _match_sockets(first: View, second: View, match: Match) -> None:
    left, right = first.of_kind(NodeKind.SOCKET), second.of_kind(NodeKind.SOCKET)
    numas = {second.get(node, "numa"): node for node in right}
    for node in left:
        numa = first.get(node, "numa")
        if numa is not None and numa in numas:
            match.places[node] = numas[numa]
    if len(left) == len(right) == 1:
        match.places[left[0]] = right[0]
    bare = not (match.only_first or match.only_second or match.how)
    has_devices = any(v.of_kind(k) for v in (first, second) for k in _ROLES)
    if bare and not has_devices and any(node in match.places for node in left):
        # Neither file lists a device: the NUMA nodes are all there is to go by.
        match.how[NodeKind.SOCKET] = "number"

"""One host of a topology as NCCL sees it: a tree of PCI devices below NUMA nodes.

What hangs from what, which address and number each device has, and what a link passes;
:mod:`topocal.topo.exporters.nccl_xml` writes it down.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from topocal.topo.errors import InputError, one_line
from topocal.topo.exporters.figures import Figures, link_figure
from topocal.topo.naming import natural_key
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.resource import LinkKind, NodeKind

if TYPE_CHECKING:
    from topocal.topo.resource import Link
    from topocal.topo.topology import Topology

__all__ = ["DEVICES", "TREE_LINKS", "Host", "host_of", "rate_of", "some"]

TREE_LINKS: Final = (LinkKind.PCIE, LinkKind.UNKNOWN)
"""What the tree is made of."""

DEVICES: Final = (NodeKind.GPU, NodeKind.NIC)
"""What hangs at the ends of the tree."""

_PASSED: Final = (NodeKind.PCIE_SWITCH, NodeKind.HOST_BRIDGE)

_MADE_UP_DOMAIN: Final = 0xF0C0
"""Where addresses are numbered that nothing says."""

_BOUNDS: Final = ("bounded", "series")


@dataclass(eq=False)
class Host:
    """One host's part of a topology, while it is written.

    Attributes
    ----------
    nodes
        Its nodes' attributes by id.
    sockets
        Its NUMA nodes, in natural order.
    above
        Of each device and switch in the tree: what it hangs from.
    bus_id
        PCI address of each device and switch, made up where nothing says it.
    number
        What NCCL calls each GPU and each NIC by.
    notes
        What is lost.
    made_up
        Addresses that nothing says.
    """

    topology: Topology
    figures: Figures
    nodes: dict[str, dict[str, Any]]
    sockets: list[str] = field(default_factory=list)
    above: dict[str, str] = field(default_factory=dict)
    bus_id: dict[str, str] = field(default_factory=dict)
    number: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    made_up: list[str] = field(default_factory=list)

    def of_kind(self, *kinds: NodeKind) -> list[str]:
        """Its nodes of some kinds, in natural order."""
        return sorted((n for n, d in self.nodes.items() if d["kind"] in kinds), key=natural_key)

    def links(self, tail: str, head: str) -> list[Link]:
        """Links from one node to another."""
        keys = self.topology.graph.get_edge_data(tail, head, default={})
        return [self.topology.links[key] for key in keys]

    def address(self) -> str:
        """A PCI address that nothing has."""
        taken = len(self.made_up)
        name = f"{_MADE_UP_DOMAIN + (taken >> 13):04x}:{taken >> 5 & 0xFF:02x}:{taken & 31:02x}.0"
        self.made_up.append(name)
        return name


def host_of(topology: Topology, figures: Figures, host: str | None) -> Host:
    """One host, its tree found and its devices numbered.

    Raises
    ------
    InputError
        When there is no GPU, no such host, or nothing says how the machine is wired.
    """
    one = Host(topology, figures, _nodes_of(topology, host))
    if not one.of_kind(NodeKind.GPU):
        raise InputError("has no GPU, which NCCL's file is about", remedy="give another machine")
    one.sockets = one.of_kind(NodeKind.SOCKET)
    _hang(one, one.sockets)
    _number(one)
    return one


def _nodes_of(topology: Topology, host: str | None) -> dict[str, dict[str, Any]]:
    """The nodes of one host.

    Raises
    ------
    InputError
        When the host is not told, or unknown; or when there are groups and no machine.
    """
    nodes = dict(topology.graph.nodes(data=True))
    if any(data["kind"] is NodeKind.GROUP for data in nodes.values()):
        raise InputError(
            "its groups come from timings, and nothing says how the machine is wired",
            remedy="fit with -t and a topology",
        )
    inside = (*DEVICES, NodeKind.SOCKET, *_PASSED, NodeKind.NVSWITCH)
    hosts = sorted(
        {str(d["host"]) for d in nodes.values() if d["kind"] in inside and d.get("host")},
        key=natural_key,
    )
    if host is None and len(hosts) > 1:
        shown = ", ".join(hosts[:5]) + (", …" if len(hosts) > 5 else "")
        raise InputError(f"has {len(hosts)} hosts", remedy=f"choose one with --host: {shown}")
    if host is not None and host not in hosts:
        known = ", ".join(hosts[:5]) or "none that is named"
        raise InputError(f"no host {one_line(host)!r}", remedy=f"it has {known}")
    return {
        name: data
        for name, data in nodes.items()
        if data["kind"] in inside and (host is None or data.get("host") == host)
    }


def _hang(one: Host, sockets: list[str]) -> None:
    """Find the tree: breadth first from all sockets at once, so that each hangs as near as can be.

    Host bridges are no part of NCCL's tree: what hangs below one hangs from its socket.
    """
    neighbours: dict[str, list[str]] = {name: [] for name in one.nodes}
    for link in one.topology.links.values():
        if link.kind in TREE_LINKS and link.tail in one.nodes and link.head in one.nodes:
            neighbours[link.tail].append(link.head)
    waiting = deque(sockets)
    twice: set[str] = set()
    while waiting:
        upper = waiting.popleft()
        for lower in sorted(set(neighbours[upper]), key=natural_key):
            kind = one.nodes[lower]["kind"]
            if kind not in (*DEVICES, *_PASSED) or lower == one.above.get(upper):
                continue
            if lower in one.above:
                twice.add(lower)
                continue
            one.above[lower] = upper
            if kind in _PASSED:
                waiting.append(lower)
    if twice:
        one.notes.append(
            f"{some(sorted(twice, key=natural_key))}: joined to several places; the nearest stands"
        )
    loose = [name for name in one.of_kind(*DEVICES) if name not in one.above]
    for name in loose:
        one.above[name] = _own_socket(one, name, sockets)


def _own_socket(one: Host, name: str, sockets: list[str]) -> str:
    """Where a device hangs that no PCIe link reaches: its chip-to-chip or NUMA socket."""
    joined = [s for s in sockets if one.links(name, s) or one.links(s, name)]
    numa = one.nodes[name].get("numa")
    same = [s for s in sockets if numa is not None and one.nodes[s].get("numa") == numa]
    return next(iter((*joined, *same, *sockets)), "")


def _number(one: Host) -> None:
    """PCI addresses and device numbers; those that nothing says are made up, and that is told."""
    seen: set[str] = set()
    bare = []
    for name in one.of_kind(*DEVICES, NodeKind.PCIE_SWITCH):
        text = one.nodes[name].get("bus_id") or name.rpartition("pcie:")[2]
        address = normal_bus_id(str(text))
        if address is None or address in seen:
            address = one.address()
            bare.append(name)
        seen.add(address)
        one.bus_id[name] = address
    if bare:
        one.notes.append(
            f"{some(bare)}: no PCI address is known, and NCCL finds devices by it; those from "
            f"{one.made_up[0]} on are made up and must be replaced on the machine"
        )
    for kind in DEVICES:
        names = one.of_kind(kind)
        stated = [_stated_number(one, name) for name in names]
        known = [n for n in stated if n is not None]
        usable = len(known) == len(names) == len(set(known))
        for k, name in enumerate(names):
            found = stated[k]
            one.number[name] = found if usable and found is not None else k


def _stated_number(one: Host, name: str) -> int | None:
    index = one.nodes[name].get("index")
    if isinstance(index, int) and 0 <= index < 10**9:
        return index
    match = re.search(r"([0-9]{1,6})$", name)
    return None if match is None else int(match[1])


def rate_of(one: Host, links: Sequence[Link]) -> tuple[float | None, bool]:
    """What parallel links pass in all, and whether a measurement says so."""
    total, fitted = 0.0, False
    for link in links:
        figure = link_figure(one.topology, one.figures, link)
        if figure is None or figure.capacity_Bps is None:
            return None, False
        rate, here = figure.capacity_Bps, figure.is_fitted
        if figure.status in _BOUNDS and (link.nominal_Bps or 0.0) >= rate:
            rate, here = link.nominal_Bps or 0.0, False
        total += rate
        fitted |= here
    return (total, fitted) if total > 0 else (None, False)


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

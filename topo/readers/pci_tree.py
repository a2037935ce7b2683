"""A PCIe tree from its functions: GPUs, NICs, the switches above them and the host bridges.

A physical switch is one upstream port and several downstream ports, all of them
bridges.  It becomes one node, called by its upstream port; a root port is the
upper end of a link and no node.  A switch that is part of a card (AMD and Intel
put one before their GPUs, BlueField before its NICs) is no node either: the
link that counts is the one above it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.readers.numbering import number_devices
from topocal.topo.readers.pci import bus_id_key
from topocal.topo.readers.pci_function import PciFunction, Port, Role
from topocal.topo.readers.pci_link import Verdict, judge_link, line_Bps
from topocal.topo.readers.pci_role import AMD, AMD_PROCESSOR, INTEL
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["MAX_ENDPOINTS", "add_pci_tree", "few", "place_by_buses"]

MAX_ENDPOINTS: Final = 2000
"""GPUs and NICs; far more than one machine has."""

_SHOWN: Final = 4
_DOUBT: Final = (
    "its link reads slower than a device below claims to be, and that device contradicts its own "
    "port, so the capacity towards the processor is unknown"
)


def few(names: Iterable[str]) -> str:
    """The first few of many names.

    >>> few(["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5"])
    'gpu0, gpu1, gpu2, gpu3 and 2 more'
    """
    listed = list(names)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(slots=True)
class _Below:
    """What hangs below a switch's upstream port."""

    vendors: set[str | None] = field(default_factory=set)
    slots: set[str] = field(default_factory=set)


class _Tree:
    def __init__(
        self,
        builder: TopologyBuilder,
        functions: Mapping[str, PciFunction],
        socket_of: Callable[[str | None], str],
        socket_near: Callable[[int], str] | None,
        file: str,
    ) -> None:
        self._builder = builder
        self._functions = functions
        self._socket_of = socket_of
        self._socket_near = socket_near
        self._file = file
        self._ports: dict[str, Port] = {}
        self._switches: dict[str, str] = {}
        self._links: dict[tuple[str, str], tuple[str, str]] = {}
        self._doubted: set[str] = set()
        self._findings: dict[str, list[str]] = defaultdict(list)
        self.ids: dict[str, str] = {}

    # Which functions play a part

    def _endpoints(self) -> list[PciFunction]:
        found = [f for f in self._functions.values() if f.role in (Role.GPU, Role.NIC)]
        integrated = self._integrated(found)
        if integrated:
            self._builder.note(
                f"{few(integrated)}: a processor's own graphics, no accelerator: left out"
            )
        physical = {(f.role, f.parent) for f in found if not f.virtual}
        virtual = [f for f in found if f.virtual and (f.role, f.parent) in physical]
        if virtual:
            self._builder.note(
                f"{len(virtual)} virtual functions are left out: they share the link of the "
                "device they are part of"
            )
        out = set(integrated) | {f.address for f in virtual}
        kept = [f for f in found if f.address not in out]
        if len(kept) > MAX_ENDPOINTS:
            raise FormatError(
                f"lists {len(kept)} GPUs and NICs; at most {MAX_ENDPOINTS} are read",
                where=Where(file=self._file),
                remedy="give the output of one machine",
            )
        return sorted(kept, key=lambda f: bus_id_key(f.address))

    def _integrated(self, found: list[PciFunction]) -> list[str]:
        """AMD processors' own graphics: a display whose device holds the security processor."""
        processors = {
            f.slot
            for f in self._functions.values()
            if f.vendor == AMD_PROCESSOR
            and ((f.pci_class or "").startswith("0x1080") or "PSP" in f.model)
        }
        return [
            f.address
            for f in found
            if f.vendor == AMD
            and f.slot in processors
            and (f.pci_class or "0x03").startswith("0x03")
        ]

    # Bridges

    def _chain(self, function: PciFunction) -> list[PciFunction]:
        """Bridges above a function, nearest first."""
        chain: list[PciFunction] = []
        seen = {function.address}
        above = function.parent
        while above is not None and above not in seen and above in self._functions:
            seen.add(above)
            bridge = self._functions[above]
            chain.append(bridge)
            above = bridge.parent
        return chain

    def _port_of(self, bridge: PciFunction) -> Port:
        """Which kind a bridge is: as the source says, else by its place, as kinds alternate."""
        if bridge.address not in self._ports:
            chain = [bridge, *self._chain(bridge)]
            above: Port | None = None
            for each in reversed(chain):
                known = self._ports.get(each.address)
                if known is None:
                    known = each.port or _port_below(above)
                    self._ports[each.address] = known
                above = known
        return self._ports[bridge.address]

    def _anchor(self, bridge: PciFunction | None, device: PciFunction) -> str:
        """The node that a device below ``bridge`` is linked to."""
        path = [] if bridge is None else [bridge, *self._chain(bridge)]
        upstream: list[PciFunction] = []
        for each in path:
            if self._port_of(each) is Port.ROOT:
                break
            if self._port_of(each) is Port.UPSTREAM:
                upstream.append(each)
                if each.address in self._switches:
                    break
        if upstream and upstream[-1].address in self._switches:
            node = self._switches[upstream.pop().address]
        else:
            node = self._host_bridge(device)
        for switch in reversed(upstream):
            node = self._add_switch(switch, node)
        return node

    def _add_switch(self, upstream: PciFunction, above: str) -> str:
        node = self._builder.node(
            f"pcie:{upstream.address}",
            NodeKind.PCIE_SWITCH,
            label=upstream.model,
            **_stated(
                bus_id=upstream.address,
                pci_class=upstream.pci_class,
                vendor=upstream.vendor,
                device=upstream.device,
                numa=upstream.numa,
            ),
        )
        verdict = judge_link(upstream, self._upper(upstream), idles=False)
        if upstream.address in self._doubted:
            text = verdict.attributes.get("speed_text") or str(upstream.state)
            verdict = Verdict(attributes={"speed_text": text}, finding=_DOUBT)
        self._connect(above, node, (upstream.address, ""), verdict)
        self._switches[upstream.address] = node
        return node

    def _host_bridge(self, device: PciFunction) -> str:
        root = device.root
        if root is None and device.numa is not None and self._socket_near is not None:
            return self._socket_near(device.numa)
        socket = self._socket_of(root)
        if root is None:
            return socket
        node = f"host-bridge:{root}"
        if node not in self._builder:
            self._builder.node(node, NodeKind.HOST_BRIDGE, bus=root)
            self._builder.connect(socket, node, LinkKind.PCIE)
        return node

    # Links

    def _link_of(self, function: PciFunction, lower: PciFunction) -> tuple[str, str]:
        """Which physical link a function is at: functions of one card share it.

        On a root bus, where nothing says that there is a link, each stands alone.
        """
        port = self._upper(lower)
        return (function.address, "") if port is None else (port.address, lower.slot)

    def _connect(self, above: str, node: str, link: tuple[str, str], verdict: Verdict) -> None:
        shared = self._links.get(link)
        made = self._builder.connect(
            above,
            node,
            LinkKind.PCIE,
            nominal_Bps=verdict.nominal_Bps,
            resources=shared,
            source=verdict.source,
            **verdict.attributes,
        )
        if shared is None:
            self._links[link] = made
            if verdict.finding:
                self._findings[verdict.finding].append(node)

    def _card_switches(self) -> dict[str, PciFunction]:
        """Upstream ports that are part of a card, by the card's slot."""
        below: dict[str, _Below] = defaultdict(_Below)
        for function in self._functions.values():
            if function.bridge:
                continue
            for bridge in self._chain(function)[:2]:
                if self._port_of(bridge) is Port.UPSTREAM:
                    below[bridge.address].vendors.add(function.vendor)
                    if function.role in (Role.GPU, Role.NIC):
                        below[bridge.address].slots.add(function.slot)
        found = {}
        for address, what in below.items():
            if len(what.slots) != 1 or len(what.vendors) != 1:
                continue
            vendor = next(iter(what.vendors))
            switch = self._functions[address].vendor
            if switch == vendor if switch is not None else vendor in (AMD, INTEL):
                found[next(iter(what.slots))] = self._functions[address]
        return found

    def build(self) -> None:
        endpoints = self._endpoints()
        self._number(endpoints)
        cards = self._card_switches()
        lowers = [cards.get(function.slot, function) for function in endpoints]
        verdicts = [
            judge_link(lower, self._upper(lower), idles=function.role is Role.GPU)
            for function, lower in zip(endpoints, lowers, strict=True)
        ]
        for lower, verdict in zip(lowers, verdicts, strict=True):
            if verdict.contradicts:
                self._doubt(lower, verdict)
        links: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
        for function, lower, verdict in zip(endpoints, lowers, verdicts, strict=True):
            links[self._link_of(function, lower)].append(verdict)
        for function, lower in zip(endpoints, lowers, strict=True):
            link = self._link_of(function, lower)
            # What is known of one function of a card holds for the card's link.
            verdict = next((v for v in links[link] if v.nominal_Bps is not None), links[link][0])
            if lower is not function:
                verdict = replace(
                    verdict, attributes=verdict.attributes | {"card_switch": lower.address}
                )
            node = self._add_endpoint(function)
            if function.root is None:
                # What is between the card and the socket is not shown.
                attributes = verdict.attributes | {"described": False}
                verdict = replace(verdict, attributes=attributes)
            anchor = self._anchor(self._upper(lower), function)
            self._connect(anchor, node, link, verdict)
        for finding, nodes in self._findings.items():
            self._builder.note(f"{few(nodes)}: {finding}")
        self._note_redirects(endpoints)

    def _number(self, endpoints: list[PciFunction]) -> None:
        for role, word in ((Role.GPU, "gpu"), (Role.NIC, "nic")):
            devices = [f for f in endpoints if f.role is role]
            stated = [f.index if role is Role.GPU else None for f in devices]
            numbers, clash = number_devices(stated, [f.address for f in devices])
            if clash:
                self._builder.note(
                    f"several {word.upper()}s carry the same number: they are numbered by PCI "
                    "address"
                )
            for number, device in zip(numbers, devices, strict=True):
                self.ids[device.address] = f"{word}{number}"

    def _add_endpoint(self, function: PciFunction) -> str:
        gpu = function.role is Role.GPU
        return self._builder.node(
            self.ids[function.address],
            NodeKind.GPU if gpu else NodeKind.NIC,
            label="" if gpu else ", ".join(function.names),
            **_stated(
                bus_id=function.address,
                index=function.index if gpu else None,
                model=function.model or None,
                numa=function.numa,
                pci_class=function.pci_class,
                vendor=function.vendor,
                device=function.device,
                network_Bps=function.network_Bps,
                **{"names" if gpu else "net_names": function.names or None},
            ),
        )

    def _upper(self, function: PciFunction) -> PciFunction | None:
        return None if function.parent is None else self._functions.get(function.parent)

    def _doubt(self, device: PciFunction, verdict: Verdict) -> None:
        """Where a device contradicts its port, slower links further up are in doubt, too.

        On machines whose GPUs reach the processor another way (POWER with NVLink)
        the PCIe links above them are for management, and their speed is no limit.
        """
        for bridge in self._chain(device):
            claim = bridge.rate_Bps or line_Bps(bridge.state)
            if claim is not None and claim < 0.97 * (verdict.claim_Bps or 0.0):
                self._doubted.add(bridge.address)

    def _note_redirects(self, endpoints: list[PciFunction]) -> None:
        names = [
            self.ids[f.address]
            for f in endpoints
            if f.role is Role.GPU and any(b.redirects for b in self._chain(f)[:1])
        ]
        if names:
            self._builder.note(
                f"{few(names)}: access control (ACS) on the port above sends peer traffic up to "
                "the root complex instead of across the switch"
            )


def _port_below(above: Port | None) -> Port:
    if above is None:
        return Port.ROOT
    return Port.DOWNSTREAM if above is Port.UPSTREAM else Port.UPSTREAM


def add_pci_tree(
    builder: TopologyBuilder,
    functions: Mapping[str, PciFunction],
    socket_of: Callable[[str | None], str],
    *,
    file: str,
    socket_near: Callable[[int], str] | None = None,
) -> dict[str, str]:
    """Add GPUs, NICs, PCIe switches and host bridges to a topology that has its sockets.

    Parameters
    ----------
    functions
        By address.
    socket_of
        The socket node that a root bus hangs off; asked with ``None`` for devices
        whose root bus the source does not say.
    file
        What messages call the source.
    socket_near
        The socket node of a memory node, for devices that name theirs and whose root bus the
        source does not say.

    Returns
    -------
    Node ids of the GPUs and NICs by address.

    Raises
    ------
    FormatError
        When there are more devices than any machine has.
    """
    tree = _Tree(builder, functions, socket_of, socket_near, file)
    tree.build()
    return tree.ids


def place_by_buses(functions: Mapping[str, PciFunction], buses: Mapping[str, str]) -> None:
    """Find parents and root buses from the bridges' bus numbers, where there is no tree.

    A bus is a root bus when no listed bridge leads to it and it shows that it is
    one: it has a host bridge or a root port on it, or is bus 0.
    """
    roots: set[str] = set()
    for address, function in functions.items():
        bus = address[: -len("00.0") - 1]
        function.parent = buses.get(bus)
        shows = function.bridge or (function.pci_class or "").startswith("0x0600")
        if function.parent is None and (shows or bus.endswith(":00")):
            roots.add(bus)
    for address, function in functions.items():
        top, seen = function, {address}
        while top.parent is not None and top.parent in functions and top.parent not in seen:
            seen.add(top.parent)
            top = functions[top.parent]
        bus = top.address[: -len("00.0") - 1]
        function.root = bus if bus in roots else None


def _stated(**attributes: Any) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}

"""The tree of NCCL's topology XML as records: which devices there are and what each is.

Every attribute is optional in files that people write by hand, so a device's
role is told from whatever is there, and oddities become notes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.numbering import number_devices
from topocal.topo.readers.pci import (
    class_kind,
    cpu_list_of_mask,
    normal_bus_id,
    normal_class,
    parse_speed,
    parse_width,
)
from topocal.topo.readers.xml import Element
from topocal.topo.resource import NodeKind

__all__ = [
    "MAX_CPUS",
    "MAX_CPUS_IN_ALL",
    "MAX_DEVICES",
    "Device",
    "Socket",
    "Tree",
    "cap_notes",
    "integer",
    "read_tree",
    "some",
]

MAX_DEVICES: Final = 5_000
"""More than a rack: a p5 node has some 300 PCI nodes, where NCCL once stopped at 256."""

MAX_CPUS: Final = 64
"""NUMA nodes of one host; each pair gets a link."""

MAX_CPUS_IN_ALL: Final = 512
"""NUMA nodes of all hosts that NVLink joins."""

MAX_NOTES: Final = 50
"""More than anybody reads; a file with more oddities is damaged, or no machine's."""

_READ: Final = ("cpu", "pci", "nic", "gpu", "net")
_SHOWN: Final = 4
_REMEDY: Final = "give the file that NCCL_TOPO_DUMP_FILE names, of one machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One ``<cpu>``: a NUMA node.

    Attributes
    ----------
    id
        Its node.
    host
        Name of its host; empty in a file of one host.
    numa
        Its number, where it has one.
    cpu_list
        Its hardware threads, where the mask can be read.
    element
        Its element.
    """

    id: str
    host: str
    numa: int | None
    cpu_list: str | None
    element: Element


@dataclass(slots=True, eq=False, kw_only=True)
class Device:
    """One ``<pci>``, or a ``<nic>`` that stands directly in its ``<cpu>``.

    Attributes
    ----------
    element, detail
        Its element, and the ``<gpu>`` or ``<nic>`` in it.
    role
        ``GPU``, ``NIC`` or ``PCIE_SWITCH``.
    parent
        The switch above, ``None`` below a socket.
    socket
        Its NUMA node.
    bus_id
        PCI address, where it has one.
    generation, width
        Of the link above, where the file says something sensible.
    number
        What the tool calls it by, where it says so.
    id
        Its node.
    """

    element: Element
    detail: Element | None
    role: NodeKind
    parent: Device | None
    socket: Socket
    bus_id: str | None
    generation: int | None
    width: int | None
    number: int | None
    id: str = ""

    @property
    def is_virtual(self) -> bool:
        """Whether no PCI device stands behind it."""
        return self.element.tag != "pci"

    @property
    def link_text(self) -> str:
        """Speed and width of the link above as the file has them; empty for none."""
        speed, width = self.element.get("link_speed"), self.element.get("link_width")
        return f"{one_line(speed)} x{one_line(width)}" if speed or width else ""


@dataclass(slots=True, eq=False)
class Tree:
    """All that the file lists.

    Attributes
    ----------
    sockets, devices
        In document order.
    notes
        Oddities, for the user.
    """

    sockets: list[Socket] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of_role(self, role: NodeKind) -> list[Device]:
        """Devices of one role, in document order."""
        return [device for device in self.devices if device.role is role]


def read_tree(root: Element, *, file: str) -> Tree:
    """The sockets and devices of a document.

    Raises
    ------
    FormatError
        When it lists no CPU and no device, or more than any machine has.
    """
    return _TreeReader(root, file).read()


def integer(text: str) -> int | None:
    """A decimal number of at most nine digits, ``None`` for anything else."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def cap_notes(notes: list[str]) -> list[str]:
    """Notes, the last one standing for those that are too many."""
    more = len(notes) - MAX_NOTES
    return notes if more <= 0 else [*notes[:MAX_NOTES], f"and {more} more oddities of that kind"]


def some(ids: list[str]) -> str:
    """The first few of many ids."""
    more = len(ids) - _SHOWN
    return ", ".join(ids[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


class _TreeReader:
    def __init__(self, root: Element, file: str) -> None:
        self._root = root
        self._file = file
        self._tree = Tree()
        self._left_out: Counter[str] = Counter()
        self._note = self._tree.notes.append

    def read(self) -> Tree:
        cpus = [self._root] if self._root.tag == "cpu" else self._root.all("cpu")
        loose = [] if self._root.tag == "cpu" else self._root.all("pci", "nic")
        if loose:
            self._note(f"{len(loose)} devices stand outside any <cpu>: their NUMA node is unknown")
            cpus.append(Element("cpu", {}, self._root.line, children=loose))
        if not cpus:
            self._fail("describes no CPU and no device", self._root.line)
        most = max(Counter(cpu.get("host_hash") for cpu in cpus).values())
        if most > MAX_CPUS or len(cpus) > MAX_CPUS_IN_ALL:
            self._fail(f"has {len(cpus)} CPUs, which no machine has", self._root.line)
        # NCCL joins the files of several hosts into one where NVLink spans them.
        hashes = list(dict.fromkeys(cpu.get("host_hash") for cpu in cpus))
        for cpu in cpus:
            number = hashes.index(cpu.get("host_hash"))
            socket = self._read_socket(cpu, f"host{number}" if len(hashes) > 1 else "")
            self._read_devices(cpu, socket)
        if len(hashes) > 1:
            self._note(f"the file describes {len(hashes)} hosts, joined by NVLink alone")
        self._name_endpoints()
        self._name_switches()
        self._note_oddities()
        return self._tree

    def _fail(self, what: str, line: int) -> None:
        raise FormatError(what, where=Where(file=self._file, line=line), remedy=_REMEDY)

    def _read_socket(self, cpu: Element, host: str) -> Socket:
        numa = integer(cpu.get("numaid"))
        if numa is not None and numa < 0:
            numa = None
        taken = {socket.id for socket in self._tree.sockets}
        number = sum(socket.host == host for socket in self._tree.sockets) if numa is None else numa
        name = base = f"{_prefix(host)}socket{number}"
        repeat = 1
        while name in taken:
            repeat += 1
            name = f"{base}#{repeat}"
        if repeat > 1 and numa is not None:
            self._note(f"{repeat} <cpu> elements claim to be NUMA node {numa}: each is kept")
        mask = cpu.get("affinity")
        cpu_list = cpu_list_of_mask(mask) if mask else None
        if mask and cpu_list is None:
            self._note(f"{name}: the CPU mask {one_line(mask)!r} cannot be read")
        socket = Socket(id=name, host=host, numa=numa, cpu_list=cpu_list or None, element=cpu)
        self._tree.sockets.append(socket)
        return socket

    def _read_devices(self, cpu: Element, socket: Socket) -> None:
        waiting: list[tuple[Element, Device | None]] = [(c, None) for c in reversed(cpu.children)]
        while waiting:
            element, parent = waiting.pop()
            role: NodeKind | None
            detail: Element | None
            if element.tag == "pci":
                role, detail = self._role(element)
            elif element.tag == "nic" and parent is None:
                role, detail = NodeKind.NIC, element
            else:
                if element.tag not in _READ:
                    self._left_out[f"<{one_line(element.tag)}>"] += 1
                continue
            if role is None:
                what = one_line(element.get("class")) or "unknown"
                self._left_out[f"device of class {what}"] += 1
                continue
            if len(self._tree.devices) == MAX_DEVICES:
                self._fail(f"has more than {MAX_DEVICES} devices", element.line)
            device = Device(
                element=element,
                detail=detail,
                role=role,
                parent=parent,
                socket=socket,
                bus_id=normal_bus_id(element.get("busid")),
                generation=parse_speed(element.get("link_speed")),
                width=parse_width(element.get("link_width")),
                number=_number(role, detail),
            )
            self._tree.devices.append(device)
            if role is NodeKind.PCIE_SWITCH:
                waiting.extend((c, device) for c in reversed(element.children))

    def _role(self, element: Element) -> tuple[NodeKind | None, Element | None]:
        """What a ``<pci>`` is: by what it holds, else by its class, else by its place."""
        for tag, role in (("gpu", NodeKind.GPU), ("nic", NodeKind.NIC)):
            found = element.all(tag)
            if len(found) > 1:
                self._note(
                    f"{one_line(element.get('busid'))} holds {len(found)} <{tag}> elements: "
                    "the first is read"
                )
            if found:
                return role, found[0]
        if element.all("pci"):
            # NCCL, too, takes whatever holds devices for a switch.
            return NodeKind.PCIE_SWITCH, None
        kind = class_kind(normal_class(element.get("class")))
        if kind is NodeKind.NVSWITCH:
            # Its PCIe link is for management: data reaches it by NVLink alone.
            return None, None
        if kind is None and not element.get("class"):
            return NodeKind.NIC, None
        return kind, None

    def _name_endpoints(self) -> None:
        for host in dict.fromkeys(socket.host for socket in self._tree.sockets):
            for role, word in ((NodeKind.GPU, "gpu"), (NodeKind.NIC, "nic")):
                devices = [d for d in self._tree.of_role(role) if d.socket.host == host]
                stated = [d.number for d in devices]
                numbers, clash = number_devices(stated, [d.bus_id for d in devices])
                for device, number in zip(devices, numbers, strict=True):
                    device.id = f"{_prefix(host)}{word}{number}"
                if clash:
                    self._note(
                        f"several {word.upper()}s carry the same dev number: "
                        "they are numbered by PCI address"
                    )
                elif role is NodeKind.GPU and devices and all(n is None for n in stated):
                    self._note(
                        "the file does not number its GPUs: they are numbered by PCI address"
                    )

    def _name_switches(self) -> None:
        """Each element is a switch of its own, whatever address it claims."""
        seen: Counter[str] = Counter()
        for device in self._tree.of_role(NodeKind.PCIE_SWITCH):
            address = device.bus_id or one_line(device.element.get("busid")) or "unknown"
            name = f"{_prefix(device.socket.host)}pcie:{address}"
            seen[name] += 1
            device.id = name if seen[name] == 1 else f"{name}#{seen[name]}"
        for name, times in seen.items():
            if times > 1:
                self._note(
                    f"{times} bridges carry the same address {name.partition('pcie:')[2]}: "
                    "each is kept as a switch of its own"
                )

    def _note_oddities(self) -> None:
        for what, times in self._left_out.items():
            self._note(f"{times} x {what}: plays no part in transfers, left out")
        if self._root.tag == "system" and self._root.get("version") not in ("", "1", "2"):
            self._note(f"system version {one_line(self._root.get('version'))} is newer than 2")
        unclassed = [
            d.id
            for d in self._tree.of_role(NodeKind.NIC)
            if d.detail is None and not d.element.get("class")
        ]
        if unclassed:
            self._note(
                f"{some(unclassed)}: no class and no <gpu>, so taken as network devices "
                "(NCCL finds GPUs by itself, so files may omit them)"
            )
        gpus = self._tree.of_role(NodeKind.GPU)
        if not gpus:
            self._note("the file lists no GPU")
        addresses = Counter(
            (d.socket.host, d.bus_id)
            for d in self._tree.devices
            if d.role is not NodeKind.PCIE_SWITCH and d.bus_id is not None
        )
        for (_, bus_id), times in addresses.items():
            if times > 1:
                self._note(f"{times} devices carry the same address {bus_id}")
        for socket_id, bare in Counter(d.socket.id for d in gpus if d.parent is None).items():
            if bare > 1:
                self._note(
                    f"{bare} GPUs hang directly off {socket_id}: the file shows no PCIe switch or "
                    "root port, so which of them share an uplink is unknown until it is measured"
                )


def _prefix(host: str) -> str:
    return f"{host}/" if host else ""


def _number(role: NodeKind, detail: Element | None) -> int | None:
    """What the tool calls a device by: ``dev`` of the GPU, or of a NIC's first port."""
    if detail is None:
        return None
    if role is NodeKind.NIC:
        ports = detail.all("net")
        if not ports:
            return None
        detail = ports[0]
    number = integer(detail.get("dev"))
    return number if number is not None and number >= 0 else None

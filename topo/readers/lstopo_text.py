"""``lstopo`` on a console: the tree in words that people paste.

Lines are indented below what they are part of: packages, memory nodes, host bridges, PCI
bridges, devices, and what the operating system calls these.  The XML of the same tool
(:mod:`topocal.topo.readers.hwloc`) says more: this text has neither addresses of bridges
nor, unless it was asked for, link speeds.  So it is read as how far apart devices are: the
first bridge below a host bridge is a root port, and switches follow in pairs of an upstream
and a downstream port.

References
----------
hwloc manual, chapter "Command-line tools", and utils/lstopo/lstopo-text.c in
open-mpi/hwloc.  Versions before 2 print memory nodes around their processors, later ones
beside them; versions before 1.11 say ``Socket`` and print no PCI addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.readers.class_matrix import MAX_DEVICES, ClassMatrix, MatrixDevice, some
from topocal.topo.readers.from_classes import topology_from_classes
from topocal.topo.readers.numa_text import spans
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.pci import bus_id_key, normal_bus_id
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["LSTOPO_TEXT", "looks_like_lstopo_text", "parse_lstopo_text"]

_SNIFF: Final = re.compile(r"^[ \t]{0,40}Machine(?: \([^)\n]{1,60}\)| [LP]#0)", re.M)
_INSIDE: Final = re.compile(r"\b(?:NUMANode|Package|Socket|PU|HostBridge) [LP]#[0-9]")
_WORD: Final = re.compile(
    r"(Machine|Package|Socket|NUMANode|Group[0-9]?|Die|L[1-5][di]?|Core|PU|HostBridge|PCIBridge"
    r"|PCI|Net|Network|OpenFabrics|CoProc|GPU|Block|DMA|MemCache)\b"
)
_NUMBERS: Final = re.compile(r"(?:L#([0-9]{1,5}))?\s?\(?(?:P#([0-9]{1,5}))?")
_ADDRESS: Final = re.compile(
    r"PCI (?:L#[0-9]{1,5} )?\(?(?:busid=)?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
)
_CLASS: Final = re.compile(r"\((?:.{0,80}class=[0-9a-f]{4}\()?(\w{1,30})\)")
_NAME: Final = re.compile(r"[\"\u201c\u201d]([\w.:\-]{1,40})[\"\u201c\u201d]")
_NUMBERED: Final = re.compile(r"(nvml|rsmi|ze|cuda)([0-9]{1,4})")
_BACKENDS: Final = ("nvml", "rsmi", "ze", "cuda")
_GPU_CLASSES: Final = frozenset({"3D", "Display", "ProcAccel", "ProcessingAccelerator"})
_NIC_CLASSES: Final = frozenset({"Ethernet", "InfiniBand", "Network", "Fabric"})
_NETWORKS: Final = ("Net", "Network", "OpenFabrics")
_ACCELERATORS: Final = ("CoProc", "GPU")
_DEEPEST: Final = 64
_REMEDY: Final = "give the whole output of lstopo-no-graphics, or better `lstopo topology.xml`"


@dataclass(slots=True)
class _Object:
    """A line's innermost object, and where it stands."""

    what: str
    indent: int
    number: int | None = None
    above: _Object | None = None
    numas: list[int] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Device:
    """A PCI device that is a GPU or a NIC, or may turn out to be one."""

    pci_class: str
    address: str | None
    bridges: tuple[int, ...]
    root: int
    place: _Object | None
    line: int
    names: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    @property
    def kind(self) -> NodeKind | None:
        """What it is, by its class and by what the system calls it."""
        if self.kinds & set(_ACCELERATORS) or self.pci_class in _GPU_CLASSES:
            return NodeKind.GPU
        if self.kinds & set(_NETWORKS) or self.pci_class in _NIC_CLASSES:
            return NodeKind.NIC
        return None


def looks_like_lstopo_text(text: str) -> bool:
    """Whether a text has lines of lstopo's tree in it."""
    return _SNIFF.search(text) is not None and _INSIDE.search(text) is not None


def parse_lstopo_text(text: str, *, file: str) -> Topology:
    """The GPUs and NICs of the tree, and how far apart they are.

    Raises
    ------
    FormatError
        When it shows no memory node and no device.
    """
    reading = _Reading()
    for number, line in enumerate(plain_lines(text), 1):
        if not reading.take(line, number):
            break
    devices = [d for d in reading.devices if d.kind is not None]
    if not devices or len(devices) > MAX_DEVICES:
        raise FormatError(
            f"shows {len(devices) or 'no'} GPUs and NICs",
            where=Where(file=file),
            remedy=_REMEDY,
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: lstopo")
    left_out = [d for d in reading.devices if d.kind is None and d.pci_class == "VGA"]
    if left_out:
        builder.note(
            f"{len(left_out)} display that nothing computes on is left out"
            if len(left_out) == 1
            else f"{len(left_out)} displays that nothing computes on are left out"
        )
    ordered = sorted(devices, key=_order)
    matrix = ClassMatrix(_named(ordered), file=file)
    for (a, one), (b, other) in combinations(enumerate(ordered), 2):
        matrix.state(a, b, _apart(one, other))
    near = {numa for device in matrix.devices for numa in device.numa}
    if near and (far := sorted(reading.numas - near)):
        listed = some(far)
        builder.note(f"NUMA nodes with no GPU and no NIC are left out: {listed}")
    builder.note(
        "link speeds are not taken from lstopo's text: `lstopo topology.xml` has them, "
        "where root runs it"
    )
    return topology_from_classes(builder, matrix)


class _Reading:
    """The tree, line by line."""

    def __init__(self) -> None:
        self.devices: list[_Device] = []
        self.numas: set[int] = set()
        self._stack: list[_Object] = []
        self._begun = False
        self._bridges = 0

    def take(self, line: str, number: int) -> bool:
        """Place one line; returns whether the tree goes on."""
        stripped = line.lstrip()
        word = _WORD.match(stripped)
        if word is None or (not self._begun and word[1] != "Machine"):
            # Notes and cut marks inside the tree; a prompt at its left edge ends it.
            return not self._begun or not stripped or len(line) > len(stripped)
        indent = len(line) - len(stripped)
        if self._begun and word[1] == "Machine":
            return False
        self._begun = True
        while self._stack and self._stack[-1].indent >= indent:
            self._stack.pop()
        for part in stripped.split(" + "):
            self._add(part, indent, number)
        return len(self._stack) < _DEEPEST

    def _add(self, part: str, indent: int, line: int) -> None:
        word = _WORD.match(part)
        if word is None:
            return
        what = word[1]
        if what in (*_NETWORKS, *_ACCELERATORS):
            self._name_device(what, part)
            return
        above = self._stack[-1] if self._stack else None
        numbers = _NUMBERS.match(part[word.end() :].lstrip())
        digits: str | None = (numbers[2] or numbers[1]) if numbers is not None else None
        number = int(digits) if digits else None
        this = _Object(what, indent, number, above)
        if what == "PCI":
            self._add_device(part, this, line)
        elif what in ("HostBridge", "PCIBridge"):
            self._bridges += 1
            this.number = self._bridges
        elif what == "NUMANode" and number is not None:
            this.numas.append(number)
            self.numas.add(number)
            if above is not None:
                above.numas.append(number)
        elif what == "PU" and number is not None:
            place: _Object | None = this
            while place is not None:
                place.cpus.append(number)
                place = place.above
        self._stack.append(this)

    def _add_device(self, part: str, this: _Object, line: int) -> None:
        chain = []
        place = this.above
        while place is not None and place.what in ("HostBridge", "PCIBridge"):
            chain.append(place.number or 0)
            place = place.above
        chain.reverse()
        address, pci_class = _ADDRESS.search(part), _CLASS.search(part)
        self.devices.append(
            _Device(
                pci_class=pci_class[1] if pci_class is not None else "",
                address=normal_bus_id(address[1]) if address is not None else None,
                bridges=tuple(chain[1:]),
                root=chain[0] if chain else -line,
                place=place,
                line=line,
            )
        )

    def _name_device(self, what: str, part: str) -> None:
        inside = any(o.what == "PCI" for o in self._stack)
        if self.devices and inside:
            self.devices[-1].kinds.add(what)
            # What it is called comes last, after its vendor and model.
            self.devices[-1].names += _NAME.findall(part)[-1:]


def _order(device: _Device) -> tuple[object, ...]:
    if device.address is None:
        return (1, device.line)
    return (0, bus_id_key(device.address))


def _named(devices: Sequence[_Device]) -> list[MatrixDevice]:
    """Devices with the numbers that their tools give them, else in order of their addresses."""
    gpus = [d for d in devices if d.kind is NodeKind.GPU]
    numbers: dict[int, int] = {}
    for backend in _BACKENDS:
        found = {
            id(d): int(m[2])
            for d in gpus
            for name in d.names
            if (m := _NUMBERED.fullmatch(name)) is not None and m[1] == backend
        }
        if gpus and len(found) == len(gpus) == len(set(found.values())):
            numbers = found
            break
    named = []
    counts = {NodeKind.GPU: 0, NodeKind.NIC: 0}
    for device in devices:
        kind = device.kind
        assert kind is not None
        index = numbers.get(id(device), counts[kind])
        counts[kind] += 1
        numas, cpus = _near(device)
        attributes: dict[str, object] = {"index": index}
        if device.address is not None:
            attributes["bus_id"] = device.address
        names = sorted(device.names, key=_least_telling)
        if names:
            attributes["names" if kind is NodeKind.GPU else "net_names"] = names
        named.append(
            MatrixDevice(
                id=f"{kind.value}{index}",
                kind=kind,
                label=names[0] if names else device.pci_class,
                numa=numas,
                cpu_list=cpus,
                attributes=attributes,
            )
        )
    return named


def _least_telling(name: str) -> bool:
    """Whether a device has a better known name than this one."""
    return _NUMBERED.fullmatch(name) is None and not name.startswith("mlx")


def _near(device: _Device) -> tuple[tuple[int, ...], str]:
    """Memory nodes and processors of the innermost place that has any."""
    place = device.place
    while place is not None:
        if place.numas:
            return tuple(sorted(set(place.numas))), spans(place.cpus)
        place = place.above
    return (), ""


def _apart(one: _Device, other: _Device) -> PathClass:
    """By what lies between two devices in the tree."""
    if one.root != other.root:
        near = set(_near(one)[0]) & set(_near(other)[0])
        return PathClass.NODE if near or not (_near(one)[0] or _near(other)[0]) else PathClass.SYS
    shared = 0
    for a, b in zip(one.bridges, other.bridges, strict=False):
        if a != b:
            break
        shared += 1
    if not shared:
        return PathClass.PHB
    most = max(len(one.bridges), len(other.bridges)) - shared
    return PathClass.PIX if most <= 1 else PathClass.PXB


LSTOPO_TEXT: Final = Reader(
    name="lstopo",
    title="lstopo-no-graphics, hwloc-ls",
    looks_like=looks_like_lstopo_text,
    parse=parse_lstopo_text,
)
"""The reader that the registry lists."""

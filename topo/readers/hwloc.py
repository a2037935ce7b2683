"""hwloc's XML (``lstopo topology.xml``), of versions 1, 2 and 3.

Objects nest: machine, packages (``Socket`` before 1.11), memory nodes, and below
them bridges, PCI devices and what the operating system calls these.  A GPU has
several such names (``cuda0``, ``nvml0``, ``opencl0d0``) and is one device.

References
----------
Element and attribute names: the hwloc manual, chapter "Importing and exporting
topologies from/to XML files"; ``hwloc.dtd`` and ``hwloc2.dtd``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.hwloc_distances import (
    Matrix,
    connect_fabrics,
    memory_distances,
    read_matrices,
)
from topocal.topo.readers.pci import cpu_list_of_mask, normal_bus_id, normal_class, normal_id
from topocal.topo.readers.pci_function import PciFunction, Role
from topocal.topo.readers.pci_role import role_by_class
from topocal.topo.readers.pci_tree import add_pci_tree, few
from topocal.topo.readers.reader import Reader
from topocal.topo.readers.sockets import MemoryNode, Sockets, add_sockets
from topocal.topo.readers.xml import Element, parse_xml
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["HWLOC", "looks_like_hwloc", "parse_hwloc"]

MAX_MEMORY_NODES: Final = 1024
"""More than any single machine has (the largest shared-memory machines: 256)."""

_LONGEST_CPU_SET: Final = 4096
_NUMBERED: Final = re.compile(r"([a-z]+)(\d{1,4})")
_BACKENDS: Final = ("nvml", "rsmi", "ze", "cuda", "opencl")
"""Names that number GPUs, the one that tools agree on first (``nvidia-smi`` counts as NVML)."""

_NO_SOCKET: Final = frozenset({"GPUMemory", "HBM", "MCDRAM", "SPM", "CXL-DRAM", "NVM"})
"""Subtypes of memory nodes that are not a socket's own memory."""

_NETWORK: Final = frozenset({"2", "3", "network", "openfabrics"})
_NETWORK_BITS: Final = 16 | 32
_PCI_TYPE: Final = re.compile(r"([0-9a-f]{4})\s+\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)


def looks_like_hwloc(text: str) -> bool:
    """Whether a text is XML with hwloc's elements."""
    return re.search(r"<topology\b[^<>]{0,200}>\s*<object\b", text) is not None


def parse_hwloc(text: str, *, file: str) -> Topology:
    """The machine that an hwloc XML file describes.

    Raises
    ------
    FormatError
        When it is not well-formed XML of that kind, or describes no machine.
    """
    root = parse_xml(text, file=file)
    if root.tag != "topology" or not root.all("object"):
        raise FormatError(
            f"its root element is <{one_line(root.tag)}> and holds no <object>",
            where=Where(file=file, line=root.line),
            remedy="give what `lstopo topology.xml` writes",
        )
    machine = _Objects(root, file)
    machine.read(root.all("object")[0])
    return _build(machine, read_matrices(root, file=file), file)


@dataclass(slots=True)
class _Place:
    """Where in the machine an object is: the memory nodes it may be near."""

    numas: tuple[int, ...] = ()
    package: int | None = None
    bridge: str | None = None
    root: str | None = None


@dataclass(slots=True)
class _Objects:
    """What the file lists."""

    xml: Element
    file: str
    name: str = ""
    newest: bool = False
    nodes: list[MemoryNode] = field(default_factory=list)
    functions: dict[str, PciFunction] = field(default_factory=dict)
    places: dict[str | None, tuple[int, ...]] = field(default_factory=dict)
    objects: dict[str, tuple[str, str]] = field(default_factory=dict)
    packages: dict[str, tuple[int, ...]] = field(default_factory=dict)
    loose: list[tuple[Element, tuple[int, ...]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _numas_below: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def read(self, machine: Element) -> None:
        version = re.match(r"\d+", self.xml.get("version", "1"))
        self.newest = version is not None and int(version[0][:3]) >= 3
        infos = _infos(machine) | _infos(self.xml)
        self.name = infos.get("DMIProductName", "") or infos.get("PlatformModel", "")
        self._count_memory(machine)
        waiting = [(machine, _Place(numas=tuple(n.number for n in self.nodes)))]
        while waiting:
            element, place = waiting.pop()
            inner = self._enter(element, place)
            waiting.extend((child, inner) for child in reversed(element.all("object")))

    def _count_memory(self, machine: Element) -> None:
        """Find the memory nodes, and which of them are in or beside each object."""
        order: list[Element] = []
        seen: set[int] = set()
        sets: set[str | None] = set()
        waiting: list[tuple[Element, int | None]] = [(machine, None)]
        while waiting:
            element, package = waiting.pop()
            order.append(element)
            kind, number = _type(element), _integer(element.get("os_index"))
            if kind == "package":
                package = number
            waiting.extend((child, package) for child in reversed(element.children))
            if kind == "numanode" and number is not None and number not in seen:
                seen.add(number)
                # Memory without processors (HBM, a GPU's) is given those of its neighbour.
                cpus = _cpu_list(element)
                if element.get("subtype") in _NO_SOCKET or (cpus and cpus in sets):
                    cpus = ""
                sets.add(cpus)
                self.nodes.append(
                    MemoryNode(
                        number=number,
                        cpu_list=cpus,
                        memory_bytes=_integer(element.get("local_memory")),
                        package=package,
                    )
                )
        self.nodes.sort(key=lambda n: n.number)
        if not self.nodes:
            self._packages_for_nodes(order)
        if len(self.nodes) > MAX_MEMORY_NODES:
            raise FormatError(
                f"lists {len(self.nodes)} memory nodes; at most {MAX_MEMORY_NODES} are read",
                where=Where(file=self.file),
                remedy="give the file of one machine",
            )
        with_cpus = {n.number for n in self.nodes if n.cpu_list != ""}
        for element in reversed(order):
            inside = {n for child in element.children for n in self._numas_below.get(id(child), ())}
            if _type(element) in ("numanode", "package") and (
                (own := _integer(element.get("os_index"))) is not None
                and (_type(element) == "numanode" or not seen)
            ):
                inside.add(own)
            if kept := inside & with_cpus:
                self._numas_below[id(element)] = tuple(sorted(kept))

    def _packages_for_nodes(self, order: list[Element]) -> None:
        """Old files of machines with one memory have no memory node: packages stand for them."""
        machine = order[0]
        packages = {
            number: element
            for element in order
            if _type(element) == "package"
            and (number := _integer(element.get("os_index"))) is not None
        }
        if len(packages) < 2:
            memory = _integer(machine.get("local_memory"))
            number = min(packages, default=0)
            self.nodes = [
                MemoryNode(number=number, cpu_list=_cpu_list(machine), memory_bytes=memory)
            ]
        else:
            self.nodes = [
                MemoryNode(number=n, cpu_list=_cpu_list(packages[n]), package=n)
                for n in sorted(packages)
            ]

    def _enter(self, element: Element, place: _Place) -> _Place:
        """Take in one object; returns the place of what is in it."""
        kind = _type(element)
        gp_index = element.get("gp_index")
        if kind == "bridge":
            return self._enter_bridge(element, place)
        if kind == "pcidev":
            address = self._add_function(element, place, bridge=False)
            if address is not None and gp_index:
                self.objects[gp_index] = ("pci", address)
            return _Place(place.numas, place.package, address or place.bridge, place.root)
        if kind == "osdev":
            self._add_os_device(element, place)
            if gp_index and place.bridge in self.functions:
                self.objects[gp_index] = ("pci", place.bridge or "")
            return place
        near = self._numas_below.get(id(element), ())
        if gp_index and near:
            self.objects[gp_index] = ("near", ",".join(map(str, near)))
        return _Place(numas=near) if near else place

    def _enter_bridge(self, element: Element, place: _Place) -> _Place:
        if element.get("bridge_type").startswith("0-"):
            match = re.match(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})", element.get("bridge_pci").lower())
            root = f"{int(match[1], 16):04x}:{match[2]}" if match else None
            if root in self.places:
                self.notes.append(f"two host bridges claim the bus {root}")
            self.places.setdefault(root, place.numas)
            return _Place(place.numas, place.package, None, root)
        address = self._add_function(element, place, bridge=True)
        return _Place(place.numas, place.package, address or place.bridge, place.root)

    def _add_function(self, element: Element, place: _Place, *, bridge: bool) -> str | None:
        address = normal_bus_id(element.get("pci_busid"))
        if address is None or address in self.functions:
            if element.get("pci_busid"):
                self.notes.append(
                    f"{one_line(element.get('pci_busid'))}: no PCI address, or one that was "
                    "there before: left out"
                )
            return None
        infos = _infos(element)
        kind = _PCI_TYPE.search(element.get("pci_type"))
        pci_class = normal_class(kind[1]) if kind else None
        vendor = normal_id(kind[2]) if kind else None
        model = infos.get("PCIDevice", "") or infos.get("GPUModel", "")
        words = " ".join([infos.get("PCIVendor", ""), model, element.get("name")])
        if place.root is None:
            self.places.setdefault(None, place.numas)
        function = PciFunction(
            address=address,
            parent=place.bridge,
            root=place.root,
            bridge=bridge,
            pci_class=pci_class,
            vendor=vendor,
            device=normal_id(kind[3]) if kind else None,
            model=one_line(model) if model else "",
            numa=place.numas[0] if len(place.numas) == 1 else None,
            rate_Bps=_rate(element.get("pci_link_speed")),
            virtual="virtual function" in words.lower(),
        )
        if element.get("subtype") == "NVSwitch":
            function.role = Role.NVSWITCH
        elif pci_class is not None and not bridge:
            function.role = role_by_class(
                pci_class, vendor, words, on_root_bus=place.bridge is None
            )
        self.functions[address] = function
        return address

    def _add_os_device(self, element: Element, place: _Place) -> None:
        name = one_line(element.get("name"))
        match = _NUMBERED.fullmatch(name)
        accelerator = (match is not None and match[1] in _BACKENDS) or re.fullmatch(
            r"opencl\d+d\d+", name
        )
        function = self.functions.get(place.bridge or "")
        if function is None or function.bridge:
            if accelerator:
                self.loose.append((element, place.numas))
            return
        network = self._is_network(element.get("osdev_type"))
        if accelerator and not name.startswith("opencl"):
            if function.role is Role.OTHER:
                function.role = Role.GPU
            function.model = _infos(element).get("GPUModel", "") or function.model
        elif network and function.role is Role.OTHER:
            function.role = Role.NIC
        if (accelerator or network) and name not in function.names:
            function.names.append(name)

    def _is_network(self, kind: str) -> bool:
        """Numbers before version 3, bits since."""
        number = _integer(kind)
        if self.newest and number is not None:
            return bool(number & _NETWORK_BITS)
        return kind.lower() in _NETWORK


def _build(machine: _Objects, matrices: list[Matrix], file: str) -> Topology:
    builder = TopologyBuilder(machine.name or Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: hwloc XML")
    for text in machine.notes[:20]:
        builder.note(text)
    if len(machine.notes) > 20:
        builder.note(f"{len(machine.notes) - 20} more oddities of that kind")
    numbers = [n.number for n in machine.nodes]
    sockets = add_sockets(builder, machine.nodes, distances=memory_distances(matrices, numbers))
    _number_gpus(builder, machine)
    ids = add_pci_tree(
        builder,
        machine.functions,
        lambda root: sockets.of(*machine.places.get(root, ())),
        file=file,
    )
    loose = _add_loose(builder, machine, sockets)
    _note_unplaced(builder, machine, ids)

    def resolve(gp_index: str) -> tuple[str, str] | None:
        """What an object of a matrix is here: ``(what, node id or address)``."""
        if gp_index in loose:
            return ("gpu", loose[gp_index])
        what, where = machine.objects.get(gp_index, ("", ""))
        if what == "near":
            return ("socket", sockets.of(*map(int, where.split(","))))
        function = machine.functions.get(where)
        if function is None:
            return None
        if function.role is Role.GPU and where in ids:
            return ("gpu", ids[where])
        return ("switch", where) if function.role is not Role.GPU else None

    connect_fabrics(builder, matrices, resolve, file=file)
    if not any(f.role is Role.GPU for f in machine.functions.values()) and not loose:
        builder.note("the file lists no GPU (hwloc leaves I/O devices out unless asked for)")
    return builder.build()


def _number_gpus(builder: TopologyBuilder, machine: _Objects) -> None:
    """Give GPUs the number of the first backend that names them all."""
    gpus = [f for f in machine.functions.values() if f.role is Role.GPU]
    orders: dict[str, list[int]] = {}
    for backend in _BACKENDS[:-1]:
        found = [_index(f.names, backend) for f in gpus]
        if gpus and None not in found:
            orders[backend] = [n for n in found if n is not None]
    if not orders:
        return
    chosen = next(iter(orders))
    for function, number in zip(gpus, orders[chosen], strict=True):
        function.index = number
    for other, order in orders.items():
        if order != orders[chosen]:
            builder.note(
                f"{other} numbers the GPUs otherwise than {chosen} does; {chosen}'s numbers "
                "are used"
            )


def _index(names: list[str], backend: str) -> int | None:
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None and match[1] == backend:
            return int(match[2])
    return None


def _add_loose(builder: TopologyBuilder, machine: _Objects, sockets: Sockets) -> dict[str, str]:
    """GPUs whose PCI device the file leaves out; returns their node ids by gp_index."""
    by_backend: dict[str, list[tuple[Element, tuple[int, ...]]]] = {}
    for element, numas in machine.loose:
        match = _NUMBERED.fullmatch(element.get("name"))
        if match is not None:
            by_backend.setdefault(match[1], []).append((element, numas))
    backend = next((b for b in _BACKENDS if b in by_backend), None)
    if backend is None or any(f.role is Role.GPU for f in machine.functions.values()):
        return {}
    found: dict[str, str] = {}
    for element, numas in by_backend[backend]:
        name = element.get("name")
        node = f"gpu{int(name.removeprefix(backend))}"
        if node in builder:
            continue
        model = _infos(element).get("GPUModel", "")
        extra = {"model": one_line(model)} if model else {}
        builder.node(node, NodeKind.GPU, index=int(name.removeprefix(backend)), **extra)
        builder.connect(sockets.of(*numas), node, LinkKind.PCIE)
        found[element.get("gp_index")] = node
    builder.note(
        f"{few(found.values())}: the file leaves PCI devices out, so what is between them and "
        "the socket is unknown"
    )
    return found


def _note_unplaced(builder: TopologyBuilder, machine: _Objects, ids: dict[str, str]) -> None:
    several = len([n for n in machine.nodes if n.cpu_list != ""]) > 1
    lost = [
        node
        for address, node in ids.items()
        if several and len(machine.places.get(machine.functions[address].root, ())) != 1
    ]
    if lost:
        builder.note(f"{few(lost)}: the file does not say which socket they are near")
    bare = [node for address, node in ids.items() if machine.functions[address].root is None]
    if bare:
        builder.note(
            f"{few(bare)}: the file shows no host bridge or switch above, so which of them share "
            "an uplink is unknown"
        )


def _type(element: Element) -> str:
    kind = element.get("type").lower() if element.tag == "object" else ""
    return "package" if kind == "socket" else kind


def _infos(element: Element) -> dict[str, str]:
    return {i.get("name"): i.get("value") for i in element.all("info")}


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _rate(text: str) -> float | None:
    """Bytes per second of a ``pci_link_speed``; zero stands for unknown."""
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", text) is None:
        return None
    return float(text) * 1e9 or None


def _cpu_list(element: Element) -> str | None:
    """``0-3`` from ``0x0000000f``; an empty word between commas is zero."""
    text = element.get("cpuset")
    if not text or len(text) > _LONGEST_CPU_SET:
        return None
    words = [word.strip().lower().removeprefix("0x") or "0" for word in text.split(",")]
    return cpu_list_of_mask(",".join(words))


HWLOC: Final = Reader(
    name="hwloc",
    title="lstopo topology.xml (hwloc XML)",
    looks_like=looks_like_hwloc,
    parse=parse_hwloc,
)
"""The reader that the registry lists."""

"""What Linux's sysfs says of a machine, first as a handful of small texts, then as a topology.

:func:`~topocal.topo.readers.sysfs_capture.capture_sysfs` copies the files that
matter into a dictionary; :func:`read_machine` is pure.  Between the two the
dictionary can be written to an archive and sent (:mod:`topocal.topo.gather`):
what is read live is what is replayed.

References
----------
Linux kernel documentation: Documentation/ABI/testing/sysfs-bus-pci,
sysfs-class-net and sysfs-class-infiniband; Documentation/ABI/stable/sysfs-devices-node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.nominal import ethernet_Bps, infiniband_Bps
from topocal.topo.readers.pci import (
    normal_bus_id,
    normal_class,
    normal_id,
    parse_speed,
    parse_width,
)
from topocal.topo.readers.pci_function import LinkState, PciFunction, Role
from topocal.topo.readers.pci_role import role_by_class
from topocal.topo.readers.pci_tree import add_pci_tree, few, place_by_buses
from topocal.topo.readers.sockets import MemoryNode, Sockets, add_sockets, commonest
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["SysfsMachine", "add_machine", "read_machine"]

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ROOT: Final = re.compile(r"pci([0-9a-f]{4,8}):([0-9a-f]{2})")
_NODE: Final = re.compile(r"devices/system/node/node([0-9]{1,4})/(cpulist|distance|meminfo)")
_PACKAGE: Final = re.compile(r"devices/system/cpu/cpu([0-9]{1,5})/topology/physical_package_id")
_NET: Final = re.compile(r"(?P<device>.+?)/(?:virtio[0-9]+/)?net/(?P<name>[^/]+)/speed")
_INFINIBAND: Final = re.compile(r"(?P<device>.+)/infiniband/(?P<name>[^/]+)/ports/[0-9]+/rate")
_RATE: Final = re.compile(r"([0-9.]{1,6}) Gb/sec \(([0-9]{1,2})X (\w{3,5})\)")
_WIRELESS: Final = re.compile(r"wl|wwan")


@dataclass(slots=True)
class SysfsMachine:
    """What the files list.

    Attributes
    ----------
    nodes
        Memory nodes in the order of their numbers.
    distances
        The firmware's distances between them.
    functions
        PCI functions by address.
    other_nets
        Network interfaces without a PCI device, and what they run at.
    """

    nodes: list[MemoryNode] = field(default_factory=list)
    distances: dict[tuple[int, int], float] = field(default_factory=dict)
    functions: dict[str, PciFunction] = field(default_factory=dict)
    other_nets: dict[str, float | None] = field(default_factory=dict)


def read_machine(files: Mapping[str, str]) -> SysfsMachine:
    """Interpret files of sysfs.

    Parameters
    ----------
    files
        Content by path below ``/sys``.  Anything odd in them counts as not said.
    """
    machine = SysfsMachine()
    _read_memory(machine, files)
    _read_functions(machine, files)
    _read_networks(machine, files)
    return machine


def _read_memory(machine: SysfsMachine, files: Mapping[str, str]) -> None:
    packages = {
        int(m[1]): _integer(text) for p, text in files.items() if (m := _PACKAGE.fullmatch(p))
    }
    said: dict[int, dict[str, str]] = defaultdict(dict)
    for path, text in files.items():
        if match := _NODE.fullmatch(path):
            said[int(match[1])][match[2]] = text.strip()
    for number in sorted(said):
        cpus = said[number].get("cpulist")
        first = re.match(r"[0-9]{1,5}", cpus or "")
        total = re.search(r"MemTotal:\s+([0-9]{1,15}) kB", said[number].get("meminfo", ""))
        machine.nodes.append(
            MemoryNode(
                number=number,
                cpu_list=cpus,
                memory_bytes=int(total[1]) * 1024 if total else None,
                package=packages.get(int(first[0])) if first else None,
            )
        )
    order = [n.number for n in machine.nodes]
    for number in order:
        row = said[number].get("distance", "").split()
        if len(row) == len(order) and all(re.fullmatch(r"[0-9]{1,5}", w) for w in row):
            machine.distances |= {
                (number, other): float(w)
                for other, w in zip(order, row, strict=True)
                if other != number
            }
    if not machine.nodes:
        # A kernel without NUMA has one memory and says only which processors there are.
        online = files.get("devices/system/cpu/online")
        if online is not None:
            machine.nodes.append(MemoryNode(number=0, cpu_list=online.strip() or None))


def _read_functions(machine: SysfsMachine, files: Mapping[str, str]) -> None:
    buses: dict[str, str] = {}
    flat = False
    for path, text in files.items():
        directory, _, name = path.rpartition("/")
        parts = directory.split("/")
        address = normal_bus_id(parts[-1]) if _ADDRESS.fullmatch(parts[-1]) else None
        if name != "class" or address is None or address in machine.functions:
            continue
        above = parts[-2] if len(parts) > 1 else ""
        root = next((m for p in reversed(parts) if (m := _ROOT.fullmatch(p))), None)
        flat = flat or root is None
        function = PciFunction(
            address=address,
            parent=normal_bus_id(above) if _ADDRESS.fullmatch(above) else None,
            root=None if root is None else f"{int(root[1], 16):04x}:{root[2]}",
            pci_class=normal_class(text),
            virtual=f"{directory}/physfn" in files,
        )
        _describe(function, directory, files)
        machine.functions[address] = function
        if second := _integer(files.get(f"{directory}/secondary_bus_number", "")):
            buses.setdefault(f"{address.split(':')[0]}:{second:02x}", address)
    if flat:
        place_by_buses(machine.functions, buses)


def _describe(function: PciFunction, directory: str, files: Mapping[str, str]) -> None:
    def said(name: str) -> str:
        return files.get(f"{directory}/{name}", "").strip()

    function.vendor = normal_id(said("vendor"))
    function.device = normal_id(said("device"))
    function.model = said("product_name")
    function.numa = _integer(said("numa_node"))
    function.state = LinkState(
        generation=parse_speed(said("current_link_speed")),
        width=parse_width(said("current_link_width")),
    )
    function.capability = LinkState(
        generation=parse_speed(said("max_link_speed")), width=parse_width(said("max_link_width"))
    )
    pci_class = function.pci_class or ""
    function.bridge = pci_class.startswith("0x0604")
    if pci_class and not function.bridge:
        function.role = role_by_class(
            pci_class, function.vendor, function.model, on_root_bus=function.parent is None
        )


def _read_networks(machine: SysfsMachine, files: Mapping[str, str]) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    for path, text in files.items():
        verbs = _INFINIBAND.fullmatch(path)
        match = verbs or _NET.fullmatch(path)
        if match is None:
            continue
        address = match["device"].rpartition("/")[2]
        function = machine.functions.get(normal_bus_id(address) or "")
        rate = _verbs_Bps(text) if verbs else _net_Bps(text)
        if function is None:
            if not verbs and not _ADDRESS.search(path):
                machine.other_nets[match["name"]] = rate
            continue
        if _WIRELESS.match(match["name"]):
            function.role = Role.OTHER
            continue
        if function.role is Role.OTHER:
            function.role = Role.NIC
        if match["name"] not in function.names:
            function.names.append(match["name"])
        if rate is not None:
            rates[function.address].append(rate)
    for address, found in rates.items():
        # The interface and the verbs device of one port both say its speed.
        machine.functions[address].network_Bps = max(found)


def _net_Bps(text: str) -> float | None:
    """Megabits per second; -1 for a port that is down."""
    megabits = _integer(text)
    return ethernet_Bps(megabits / 1e3) if megabits else None


def _verbs_Bps(text: str) -> float | None:
    """Such as ``200 Gb/sec (4X HDR)``."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    exact = infiniband_Bps(match[3], int(match[2]))
    decimal = re.fullmatch(r"[0-9]{1,4}(\.[0-9])?", match[1])
    return exact or (ethernet_Bps(float(match[1])) if decimal else None)


def add_machine(builder: TopologyBuilder, machine: SysfsMachine) -> tuple[dict[str, str], Sockets]:
    """Add sockets, memory, processors, GPUs, NICs and what is between them.

    Returns
    -------
    Node ids of the GPUs and NICs by address, and the sockets.
    """
    sockets = add_sockets(builder, machine.nodes, distances=machine.distances)
    by_root: dict[str | None, list[int | None]] = defaultdict(list)
    for function in machine.functions.values():
        by_root[function.root].append(function.numa)
    numas = {root: commonest(numbers) for root, numbers in by_root.items()}

    def socket_of(root: str | None) -> str:
        number = numas.get(root)
        return sockets.of() if number is None else sockets.of(number)

    ids = add_pci_tree(builder, machine.functions, socket_of, file="sysfs")
    several = sum(n.cpu_list != "" for n in machine.nodes) > 1
    lost = [i for a, i in ids.items() if numas.get(machine.functions[a].root) not in sockets]
    if several and lost:
        builder.note(f"{few(lost)}: the kernel does not say which memory node they are near")
    bare = [i for a, i in ids.items() if machine.functions[a].root is None]
    if bare:
        builder.note(
            f"{few(bare)}: no PCIe tree is shown above them, so which of them share an uplink is "
            "unknown"
        )
    taken = sum(node.startswith("nic") for node in ids.values())
    for number, (name, rate) in enumerate(sorted(machine.other_nets.items()), start=taken):
        extra = {} if rate is None else {"network_Bps": rate}
        node = builder.node(f"nic{number}", NodeKind.NIC, label=name, net_names=[name], **extra)
        builder.connect(sockets.of(), node, LinkKind.UNKNOWN)
    return ids, sockets


def _integer(text: str) -> int | None:
    """A number of zero or more; the kernel writes -1 for "unknown"."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None

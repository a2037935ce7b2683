"""NCCL's and RCCL's topology XML: dumps of a machine, and the files that cloud providers write.

``<system>`` holds ``<cpu>`` (a NUMA node), that holds ``<pci>`` in the shape of
the PCIe tree, and a device holds ``<gpu>`` or ``<nic>``.  Speed and width of a
``<pci>`` are those of the link above it.

References
----------
The elements and the class codes that NCCL knows: NVIDIA/nccl, src/graph/xml.cc
and src/graph/topo.cc; the ``xgmi`` and ``gcn`` words: ROCm/rccl, the same files.
"""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.nominal import ethernet_Bps, pcie_Bps, source_of
from topocal.topo.readers.nccl_fabric import FabricGpu, connect_fabric
from topocal.topo.readers.nccl_tree import (
    Device,
    Socket,
    Tree,
    cap_notes,
    integer,
    read_tree,
    some,
)
from topocal.topo.readers.pci import normal_class, normal_id
from topocal.topo.readers.reader import Reader
from topocal.topo.readers.xml import Element, parse_xml
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["NCCL_XML", "OWN_FIGURES", "looks_like_nccl_xml", "parse_nccl_xml"]

_EMULATED_VENDORS: Final = frozenset({"0x1b36"})
"""Red Hat: QEMU's PCIe ports, whose speed and width are settings of the virtual machine."""


OWN_FIGURES: Final = ("topocal_down_Bps", "topocal_up_Bps")
"""Attributes of a ``<pci>`` that topocal's own export adds: what the link above it passes to the
device and from it, in full, where NCCL's words are coarser."""

_BEGINS: Final = re.compile(r"<system\b[^<]{0,200}>|<cpu\b[^<>]{0,2000}\bnumaid\s*=")
_INSIDE: Final = re.compile(r"<pci\b[^<>]{0,200}\bbusid\s*=[^<>]{0,600}>")
"""Elements of a file whose beginning is not there."""

_FASTEST_BPS: Final = 1e21


def looks_like_nccl_xml(text: str) -> bool:
    """Whether a text is XML with NCCL's elements."""
    return _BEGINS.search(text) is not None or _INSIDE.search(text) is not None


def parse_nccl_xml(text: str, *, file: str) -> Topology:
    """The machine that an NCCL or RCCL topology file describes.

    Raises
    ------
    FormatError
        When it is not well-formed XML of that kind, or describes nothing.
    """
    if _BEGINS.search(text) is None and _INSIDE.search(text) is not None:
        raise FormatError(
            "is a part from within an NCCL topology file",
            where=Where(file=file),
            remedy="give the whole file, from <system> to </system>",
        )
    root = parse_xml(text, file=file)
    if root.tag not in ("system", "cpu"):
        raise FormatError(
            f"its root element is <{one_line(root.tag)}>, not <system>",
            where=Where(file=file, line=root.line),
            remedy="give the file that NCCL_TOPO_DUMP_FILE names",
        )
    tree = read_tree(root, file=file)
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: NCCL topology XML")
    for socket in tree.sockets:
        _add_socket(builder, socket)
    for device in tree.devices:
        _add_device(builder, device)
    notes = [*tree.notes, *_connect_devices(builder, tree)]
    for a, b in combinations(tree.sockets, 2):
        if a.host == b.host:
            builder.connect(a.id, b.id, LinkKind.SMP)
    gpus = [_fabric_gpu(device) for device in tree.of_role(NodeKind.GPU)]
    notes += connect_fabric(builder, gpus, file=file)
    for text in cap_notes(notes):
        builder.note(text)
    return builder.build()


def _add_socket(builder: TopologyBuilder, socket: Socket) -> None:
    element = socket.element
    builder.node(
        socket.id,
        NodeKind.SOCKET,
        label="" if socket.numa is None else f"NUMA node {socket.numa}",
        **_stated(
            numa=socket.numa,
            cpu_list=socket.cpu_list,
            host=socket.host or None,
            arch=element.get("arch") or None,
            vendor=element.get("vendor") or None,
            cpu_family=integer(element.get("familyid")),
            cpu_model=integer(element.get("modelid")),
        ),
    )


def _add_device(builder: TopologyBuilder, device: Device) -> None:
    element, detail = device.element, device.detail
    label = ""
    attributes = _stated(
        index=device.number,
        bus_id=device.bus_id,
        numa=device.socket.numa,
        host=device.socket.host or None,
        pci_class=normal_class(element.get("class")),
        vendor=normal_id(element.get("vendor")),
        device=normal_id(element.get("device")),
    )
    if device.role is NodeKind.GPU and detail is not None:
        gcn = detail.get("gcn")
        attributes |= _stated(
            # AMD's "sm" is a count of compute units; its architecture is a name in new
            # files and a number in old ones.
            compute_capability=None if gcn else integer(detail.get("sm")),
            architecture=gcn or None,
            rank=integer(detail.get("rank")),
        )
    elif device.role is NodeKind.NIC and detail is not None:
        ports = detail.all("net")
        names = [one_line(port.get("name")) for port in ports if port.get("name")]
        speeds = [speed for speed in map(_port_Bps, ports) if speed is not None]
        label = ", ".join(names)
        attributes |= _stated(net_names=names or None, network_Bps=sum(speeds) or None)
    builder.node(device.id, device.role, label=label, **attributes)


def _port_Bps(port: Element) -> float | None:
    """Bytes per second of a network port; NCCL writes megabits per second."""
    megabits = integer(port.get("speed"))
    return None if megabits is None else ethernet_Bps(megabits / 1e3)


def _connect_devices(builder: TopologyBuilder, tree: Tree) -> list[str]:
    """Add the links above all devices; returns what is odd about them."""
    notes = []
    doubtful = _doubtful_bridges(tree)
    unknown: list[str] = []
    for device in tree.devices:
        upper = device.socket.id if device.parent is None else device.parent.id
        if device.is_virtual:
            builder.connect(upper, device.id, LinkKind.UNKNOWN)
            continue
        believed = device not in doubtful
        generation = device.generation if believed else None
        width = device.width if believed else None
        nominal = pcie_Bps(generation, width)
        down, up = (_figure(device.element.get(name)) for name in OWN_FIGURES)
        source = "" if nominal is None else source_of(f"pcie {generation}")
        if (down is None) != (up is None):
            down = up = down or up
        if down is not None:
            # The words are what NCCL shall take the link for, and no slot's.
            generation = width = None
            nominal, source = down, "as topocal wrote it to the file"
        if nominal is None and believed:
            unknown.append(device.id)
        builder.connect(
            upper,
            device.id,
            LinkKind.PCIE,
            nominal_Bps=nominal,
            back_Bps=up,
            source=source,
            **_stated(
                generation=generation,
                width=width,
                speed_text=device.link_text or None if nominal is None else None,
            ),
        )
    if doubtful:
        odd = [d for d in tree.devices if d in doubtful]
        notes.append(
            f"{some([d.id for d in odd])}: reads {some(sorted({d.link_text for d in odd}))}, as "
            "bridges do that a virtual machine emulates; not believed, so the nominal capacity "
            "is unknown"
        )
    if unknown:
        notes.append(
            f"{some(unknown)}: the file gives no usable speed and width for the PCIe link above, "
            "so its nominal capacity is unknown"
        )
    return notes


def _figure(text: str) -> float | None:
    """Bytes per second; ``None`` where it is no such number."""
    if re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?", text) is None:
        return None
    value = float(text)
    return value if 0 < value <= _FASTEST_BPS else None


def _doubtful_bridges(tree: Tree) -> set[Device]:
    """Bridges whose link is an emulator's and not the hardware's.

    Emulated bridges read 2.5 GT/s x1 above cards that run faster (a real riser
    of one lane leaves its card with one lane, too), or are QEMU's by vendor.
    """
    slow_above_fast: set[Device] = set()
    for device in tree.devices:
        if (device.generation or 0) > 1 or (device.width or 0) > 1:
            above = device.parent
            while above is not None and above not in slow_above_fast:
                if (above.generation, above.width) == (1, 1):
                    slow_above_fast.add(above)
                above = above.parent
    return slow_above_fast | {
        device
        for device in tree.of_role(NodeKind.PCIE_SWITCH)
        if device.link_text and normal_id(device.element.get("vendor")) in _EMULATED_VENDORS
    }


def _fabric_gpu(device: Device) -> FabricGpu:
    detail = device.detail
    host = device.socket.host
    return FabricGpu(
        id=device.id,
        host=f"{host}/" if host else "",
        socket=device.socket.id,
        bus_id=device.bus_id,
        compute_capability=None if detail is None else integer(detail.get("sm")),
        architecture=None if detail is None else detail.get("gcn") or None,
        links=() if detail is None else tuple(detail.children),
    )


def _stated(**attributes: Any) -> dict[str, Any]:
    """Only what the file says."""
    return {key: value for key, value in attributes.items() if value is not None}


NCCL_XML: Final = Reader(
    name="nccl-xml",
    title="NCCL_TOPO_DUMP_FILE (NCCL and RCCL topology XML)",
    looks_like=looks_like_nccl_xml,
    parse=parse_nccl_xml,
)
"""The reader that the registry lists."""

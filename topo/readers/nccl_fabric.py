"""GPU fabrics in NCCL's topology XML: NVLink, NVSwitch, xGMI and chip-to-chip links.

Each ``<gpu>`` lists its links as ``<nvlink target= count= tclass=>`` (RCCL:
``<xgmi>``), once per neighbour, and ``<c2c bw= count=>`` to its own processor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import networkx as nx

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.nominal import nvlink_Bps, nvlink_generation, source_of, xgmi_Bps
from topocal.topo.readers.pci import normal_bus_id, normal_class
from topocal.topo.readers.xml import Element
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["FabricGpu", "connect_fabric"]

MAX_LINKS: Final = 20_000
"""A full mesh of 140 GPUs; a switched rack of 72 has 72."""

_TO_CPU: Final = "0x068001"
"""Class that NCCL writes for the processor's end of an NVLink (POWER9)."""

_TO_SWITCH: Final = "0x0680"
_TO_GPU: Final = ("0x03", "0x12")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricGpu:
    """A GPU and the link elements it lists.

    Attributes
    ----------
    id, socket
        Node ids of the GPU and of its NUMA node.
    host
        Prefix of all ids of its host; empty in a file of one host.
    bus_id
        Its PCI address, which other GPUs' links name.
    compute_capability
        Times ten, for NVIDIA GPUs.
    architecture
        ``gfx942`` or RCCL's number, for AMD GPUs.
    links
        Elements below its ``<gpu>``.
    """

    id: str
    host: str
    socket: str
    bus_id: str | None
    compute_capability: int | None
    architecture: str | None
    links: tuple[Element, ...]


class _Fabric:
    """What all GPUs say together."""

    def __init__(self, builder: TopologyBuilder, gpus: Sequence[FabricGpu], file: str) -> None:
        self._builder = builder
        self.notes: list[str] = []
        self._gpus = {gpu.id: gpu for gpu in gpus}
        self._file = file
        self._by_bus: dict[tuple[str, str], str] = {}
        for gpu in gpus:
            if gpu.bus_id is not None:
                self._by_bus.setdefault((gpu.host, gpu.bus_id), gpu.id)
        self._direct: Counter[tuple[str, str]] = Counter()
        self._to_switch: Counter[tuple[str, str]] = Counter()
        self._to_cpu: Counter[str] = Counter()
        self._absent: dict[str, Counter[str]] = {}
        self._tag: dict[str, str] = {}

    def read(self) -> None:
        named: Counter[tuple[str, str]] = Counter()
        for gpu in self._gpus.values():
            named.update({(gpu.host, _target(link)) for link in gpu.links})
        for gpu in self._gpus.values():
            loops = 0
            for link in gpu.links:
                if link.tag == "c2c":
                    self._read_c2c(gpu, link)
                    continue
                if link.tag not in ("nvlink", "xgmi"):
                    continue
                loops += self._read_link(gpu, link, named)
            if loops:
                self.notes.append(f"{gpu.id} lists {loops} links to itself: they are left out")
        if len(self._direct) + len(self._to_switch) > MAX_LINKS:
            raise FormatError(
                f"lists more than {MAX_LINKS} GPU links",
                where=Where(file=self._file),
                remedy="give the file of one machine",
            )
        for gpu_id, targets in self._absent.items():
            total = sum(targets.values())
            self.notes.append(
                f"{gpu_id} lists {total} links to {', '.join(sorted(targets)[:4])}, which the "
                "file does not describe: they are left out"
            )

    def _read_link(self, gpu: FabricGpu, link: Element, named: Counter[tuple[str, str]]) -> int:
        """Count one element; returns the links to itself."""
        count = _count(link)
        target = _target(link)
        target_class = normal_class(link.get("tclass")) or ""
        self._tag[gpu.id] = link.tag
        peer = self._by_bus.get((gpu.host, target))
        if count < 1:
            self.notes.append(
                f"{gpu.id} lists {one_line(link.get('count'))!r} links to {one_line(target)}: "
                "left out"
            )
        elif peer == gpu.id:
            return count
        elif peer is not None:
            self._direct[gpu.id, peer] += count
        elif target_class == _TO_CPU:
            self._to_cpu[gpu.id] += count
        elif target_class.startswith(_TO_SWITCH) or (
            not target_class.startswith(_TO_GPU) and named[gpu.host, target] > 1
        ):
            self._to_switch[gpu.id, target] += count
        else:
            self._absent.setdefault(gpu.id, Counter())[one_line(target) or "nothing"] += count
        return 0

    def _read_c2c(self, gpu: FabricGpu, link: Element) -> None:
        """The figure is the driver's, in MB/s per link (NVML_FI_DEV_C2C_LINK_GET_MAX_BW)."""
        count = _count(link)
        megabytes = link.get("bw")
        known = count > 0 and megabytes.isascii() and megabytes.isdecimal() and len(megabytes) < 9
        attributes: dict[str, Any] = {"count": count} if count > 0 else {}
        self._builder.connect(
            gpu.socket,
            gpu.id,
            LinkKind.C2C,
            nominal_Bps=int(megabytes) * 1e6 * count or None if known else None,
            source="NVML, maximum bandwidth of a C2C link, as the file states it" if known else "",
            **attributes,
        )

    # Building

    def connect(self) -> None:
        self._connect_pairs()
        self._connect_switches()
        for gpu_id, count in self._to_cpu.items():
            gpu = self._gpus[gpu_id]
            self._link(gpu.socket, gpu_id, gpu, count, count)

    def _link(self, a: str, b: str, gpu: FabricGpu, forth: int, back: int) -> None:
        """One connection, of ``gpu``'s generation, with as many links each way as stated."""
        amd = gpu.architecture is not None or self._tag.get(gpu.id) == "xgmi"
        attributes: dict[str, Any] = {"count": forth}
        if amd:
            kind = LinkKind.XGMI
            forth_Bps = xgmi_Bps(gpu.architecture, forth)
            back_Bps = xgmi_Bps(gpu.architecture, back)
            source = "AMD data sheet of its architecture (topocal.topo.nominal)"
        else:
            kind = LinkKind.NVLINK
            generation = nvlink_generation(gpu.compute_capability)
            forth_Bps = nvlink_Bps(None, forth, compute_capability=gpu.compute_capability)
            back_Bps = nvlink_Bps(None, back, compute_capability=gpu.compute_capability)
            source = "" if generation is None else source_of(f"nvlink {generation}")
            if generation is not None:
                attributes["generation"] = generation
        self._builder.connect(
            a,
            b,
            kind,
            nominal_Bps=forth_Bps,
            back_Bps=back_Bps,
            source="" if forth_Bps is None else source,
            **attributes,
        )

    def _connect_pairs(self) -> None:
        """Direct links: both ends list them; where one does not, the other is believed."""
        done: set[frozenset[str]] = set()
        for (a, b), forth in self._direct.items():
            if frozenset((a, b)) in done:
                continue
            done.add(frozenset((a, b)))
            back = self._direct.get((b, a), 0)
            if back == 0:
                self.notes.append(f"{a} lists {forth} links to {b}, which lists none back")
            elif back != forth:
                self.notes.append(f"{a} lists {forth} links to {b}, which lists {back} back")
            self._link(a, b, self._gpus[a], forth, back or forth)

    def _connect_switches(self) -> None:
        """One node per group of NVSwitches that some GPU joins.

        A flow spreads over all switches of its group at once, so the group is
        one node with all of a GPU's links: a node per switch would let a route
        use only one of them.
        """
        if not self._to_switch:
            return
        joined = nx.Graph()
        for gpu_id, target in self._to_switch:
            joined.add_edge(("gpu", gpu_id), ("switch", target))
        totals: Counter[str] = Counter()
        for (gpu_id, _), count in self._to_switch.items():
            totals[gpu_id] += count
        nodes = []
        for number, group in enumerate(nx.connected_components(joined)):
            members = [g for g in self._gpus if ("gpu", g) in group]
            targets = sorted(name for what, name in group if what == "switch")
            hosts = {self._gpus[g].host for g in members}
            prefix = hosts.pop() if len(hosts) == 1 else ""
            node = self._builder.node(
                f"{prefix}nvswitch{number}",
                NodeKind.NVSWITCH,
                label=f"{len(targets)} NVSwitches" if len(targets) > 1 else "NVSwitch",
                bus_ids=[t for t in targets if normal_bus_id(t) == t],
            )
            for gpu_id in members:
                self._link(gpu_id, node, self._gpus[gpu_id], totals[gpu_id], totals[gpu_id])
            nodes.append((prefix, node))
        self._join_groups(nodes)
        self._note_lost(totals)

    def _join_groups(self, nodes: list[tuple[str, str]]) -> None:
        for (prefix, a), (other, b) in pairwise(nodes):
            if prefix == other:
                self._builder.connect(a, b, LinkKind.NVLINK)
                self.notes.append(
                    f"{a} and {b} share no GPU: they are taken as joined, as NCCL takes them, by "
                    "links of unknown capacity that the file does not show"
                )

    def _note_lost(self, totals: Counter[str]) -> None:
        most = max(totals.values())
        for gpu_id in self._gpus:
            if totals[gpu_id] < most:
                self.notes.append(
                    f"{gpu_id} has {totals[gpu_id]} NVLinks to the switches where others have "
                    f"{most}: some may be down, or the file is cut"
                )


def connect_fabric(builder: TopologyBuilder, gpus: Sequence[FabricGpu], *, file: str) -> list[str]:
    """Add the links that the GPUs list to a topology that has the GPUs and sockets.

    Returns
    -------
    Oddities, for the user.

    Raises
    ------
    FormatError
        When they list more links than any machine has.
    """
    fabric = _Fabric(builder, gpus, file)
    fabric.read()
    fabric.connect()
    return fabric.notes


def _target(link: Element) -> str:
    text = link.get("target").lower()
    return normal_bus_id(text) or text


def _count(link: Element) -> int:
    """Links of an element: one where it does not say, none where it says nonsense."""
    text = link.get("count", "1")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else 0

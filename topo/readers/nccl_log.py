"""NCCL's INFO log with the GRAPH subsystem: the topology that NCCL saw, as it printed it.

Bandwidths in it are figures of NCCL's own cost model (a PCIe 3 link of 16
lanes counts 12.0, a link within a process 5000.0).  They are kept as
``nccl_bw_GBps`` and never taken for nominal capacities.

References
----------
NVIDIA/nccl, src/graph/topo.cc (ncclTopoPrint) and src/graph/paths.cc
(printNodePaths), versions 2.5 to 2.30; ROCm/rccl prints the same with XGMI.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.readers.nccl_dump import Dump, DumpNode, find_dumps, visible_devices
from topocal.topo.readers.nccl_transports import transport_notes
from topocal.topo.readers.nccl_tree import (
    MAX_CPUS,
    MAX_CPUS_IN_ALL,
    MAX_DEVICES,
    cap_notes,
    some,
)
from topocal.topo.readers.numbering import number_devices
from topocal.topo.readers.pci import bus_id_of_number, normal_id
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology, natural_key

__all__ = ["NCCL_LOG", "looks_like_nccl_log", "parse_nccl_log"]

_ROLES: Final = {
    "CPU": NodeKind.SOCKET,
    "PCI": NodeKind.PCIE_SWITCH,
    "GPU": NodeKind.GPU,
    "NIC": NodeKind.NIC,
    "NVS": NodeKind.NVSWITCH,
}
_LINKS: Final = {
    "PCI": LinkKind.PCIE,
    "NVL": LinkKind.NVLINK,
    "XGMI": LinkKind.XGMI,
    "C2C": LinkKind.C2C,
    "SYS": LinkKind.SMP,
    "QPI": LinkKind.SMP,
}
_OWN_WORDS: Final = {"XGMI": "NVL", "P2C": "PHB"}
"""RCCL's word for its GPU fabric; PCIe up to a processor and its chip-to-chip link down."""

_NO_NUMA: Final = 2**64 - 1
_EMULATED_GBPS: Final = 0.2
"""What NCCL counts for 2.5 GT/s x1 (15 / 80 GB/s)."""

_TREE_LINE: Final = re.compile(r"\+ [A-Z0-9]{2,8}\[\s*[0-9.]+\] - [A-Z]{3}/[0-9A-Fa-f]")


def looks_like_nccl_log(text: str) -> bool:
    """Whether a text has NCCL's topology dump, or its INFO lines without any benchmark's."""
    if "=== System : max" in text or _TREE_LINE.search(text) is not None:
        return True
    return "NCCL INFO" in text and "algbw" not in text


def parse_nccl_log(text: str, *, file: str) -> Topology:
    """The machine of the fullest topology dump in an NCCL log.

    Raises
    ------
    FormatError
        When there is no dump in it.
    """
    dumps = [dump for dump in find_dumps(text) if dump.roots]
    if not dumps:
        raise FormatError(
            "has no topology dump of NCCL",
            where=Where(file=file),
            remedy="log a run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH",
        )
    dump = max(dumps, key=_fullness)
    shape = _Shape(dump, TopologyBuilder(Path(file).stem or "machine"), file)
    shape.builder.source(f"{Path(file).name}: NCCL log, topology dump of line {dump.line}")
    _note_dumps(shape.builder, dump, dumps)
    for sentence in transport_notes(text, {}):
        shape.builder.note(sentence)
    return shape.build(visible_devices(text, dump.host))


def _fullness(dump: Dump) -> tuple[int, int, bool, int, int]:
    """A dump has only the GPUs of its communicator; the fullest tells most of the machine."""
    types = Counter(node.type for node in dump.nodes())
    return types["GPU"], types["NIC"], dump.closed, len(dump.paths), -dump.line


def _note_dumps(builder: TopologyBuilder, dump: Dump, dumps: list[Dump]) -> None:
    hosts = dict.fromkeys(d.host for d in dumps)
    if len(hosts) > 1:
        best = [max((d for d in dumps if d.host == h), key=_fullness) for h in hosts]
        alike = len({tuple(sorted(_form(d))) for d in best}) == 1
        builder.note(
            f"the log has dumps of {len(hosts)} hosts, "
            + ("all of one shape" if alike else "of different shapes")
            + f": the one of line {dump.line} is read"
        )
    elif len(dumps) > 1:
        builder.note(f"the log has {len(dumps)} dumps: the fullest, of line {dump.line}, is read")
    if not dump.closed:
        builder.note("the dump has no closing line: it may be cut off")
    if dump.flattened:
        builder.note(
            "the dump has lost its indentation: which device is below which switch is unknown, "
            "and all hang off their CPU"
        )


def _form(dump: Dump) -> list[str]:
    return [f"{node.type} {node.column}" for node in dump.nodes()]


class _Shape:
    """One dump on its way to a topology."""

    def __init__(self, dump: Dump, builder: TopologyBuilder, file: str) -> None:
        self.builder = builder
        self._notes: list[str] = []
        self._dump = dump
        self._ids: dict[tuple[str, int, int], str] = {}
        self._joined: set[tuple[frozenset[str], LinkKind]] = set()
        self._hosts = sorted({node.system for node in dump.nodes()})
        nodes = dump.nodes()
        cpus = Counter(root.system for root in dump.roots)
        hosts = max(len(self._hosts), len(dump.roots))
        if len(nodes) > MAX_DEVICES or max(cpus.values()) > MAX_CPUS or hosts > MAX_CPUS_IN_ALL:
            raise FormatError(
                f"has a dump of {len(nodes)} nodes, {len(dump.roots)} CPUs and "
                f"{len(self._hosts)} hosts: more than any machine",
                where=Where(file=file, line=dump.line),
                remedy="give the log of one machine",
            )

    def build(self, numbers: dict[str, int]) -> Topology:
        for root in self._dump.roots:
            self._add_cpu(root)
        owned = [node for node in self._dump.nodes() if node.link == "PCI"]
        self._name("GPU", "gpu", owned, numbers)
        self._name("NIC", "nic", owned, {})
        for node in owned:
            self._add_device(node)
        self._connect()
        self._join_cpus()
        self._note_figures()
        self.builder.stated_classes = self._classes()
        for text in cap_notes(self._notes):
            self.builder.note(text)
        return self.builder.build()

    def _prefix(self, node: DumpNode) -> str:
        return f"host{self._hosts.index(node.system)}/" if len(self._hosts) > 1 else ""

    def _add_cpu(self, root: DumpNode) -> None:
        if root.key in self._ids:
            self._notes.append(f"CPU/{root.number:X} is printed twice")
            return
        numa = None if root.number >= _NO_NUMA or root.number > 10**6 else root.number
        self._ids[root.key] = self.builder.node(
            f"{self._prefix(root)}socket{len(self._ids) if numa is None else numa}",
            NodeKind.SOCKET,
            label="" if numa is None else f"NUMA node {numa}",
            **_stated(numa=numa, host=self._prefix(root).rstrip("/") or None),
        )

    def _bus_id(self, node: DumpNode) -> str | None:
        return bus_id_of_number(node.number) if node.has_pci else None

    def _name(self, type: str, word: str, owned: list[DumpNode], known: dict[str, int]) -> None:
        nodes = list({node.key: node for node in owned if node.type == type}.values())
        for host in self._hosts:
            some_nodes = [node for node in nodes if node.system == host]
            if type == "NIC":
                stated = [_first_net(node) for node in some_nodes]
            else:
                stated = [known.get(self._bus_id(node) or "") for node in some_nodes]
            buses = [self._bus_id(node) for node in some_nodes]
            numbers, clash = number_devices(stated, buses)
            if type == "GPU" and some_nodes and (clash or None in stated):
                self._notes.append(
                    "the log does not say each GPU's number: they are numbered by PCI address"
                )
                numbers, _ = number_devices([None] * len(buses), buses)
            for node, number in zip(some_nodes, numbers, strict=True):
                self._ids[node.key] = f"{self._prefix(node)}{word}{number}"

    def _add_device(self, node: DumpNode) -> None:
        role = _ROLES.get(node.type)
        if role is None or role is NodeKind.SOCKET or role is NodeKind.NVSWITCH:
            return
        bus_id = self._bus_id(node)
        name = self._ids.get(node.key)
        if name is None:
            name = self._ids[node.key] = f"{self._prefix(node)}pcie:{bus_id or node.number}"
        if name in self.builder:
            self._notes.append(f"{node.type}/{node.number:x} is printed twice: the first is kept")
            return
        attributes = _stated(bus_id=bus_id, host=self._prefix(node).rstrip("/") or None)
        if node.type in ("PCI", "GPU") and re.fullmatch(r"[0-9a-fA-F]{12,16}", node.detail):
            ids = f"{int(node.detail, 16):016x}"
            attributes |= _stated(vendor=normal_id(ids[:4]), device=normal_id(ids[4:8]))
        if node.type == "GPU" and re.fullmatch(r"[0-9]{1,6}", node.detail):
            attributes["rank"] = int(node.detail)
        if node.type == "NIC":
            nets = [child for child in node.children if child.type == "NET"]
            if nets:
                attributes["nccl_bw_GBps"] = sum(child.bw for child in nets)
                attributes |= _stated(index=_first_net(node))
        self.builder.node(name, role, **attributes)

    def _connect(self) -> None:
        for parent in self._dump.nodes():
            for node in parent.children:
                self._connect_one(parent, node)

    def _connect_one(self, parent: DumpNode, node: DumpNode) -> None:
        kind = _LINKS.get(node.link)
        if kind is None or node.type not in _ROLES:
            return
        if node.type == "NVS" and node.key not in self._ids:
            name = f"{self._prefix(node)}nvswitch{node.number}"
            self._ids[node.key] = self.builder.node(name, NodeKind.NVSWITCH)
        a, b = self._ids.get(parent.key), self._ids.get(node.key)
        if a is None or b is None:
            self._notes.append(
                f"{parent.type}/{parent.number:x} has a link to {node.type}/{node.number:x}, "
                "which the dump does not describe: it is left out"
            )
            return
        if a == b:
            self._notes.append(f"{a} has a link to itself: it is left out")
            return
        if (frozenset((a, b)), kind) in self._joined:
            return
        self._joined.add((frozenset((a, b)), kind))
        if not node.has_pci and kind is LinkKind.PCIE:
            self.builder.connect(a, b, LinkKind.UNKNOWN)
        else:
            self.builder.connect(a, b, kind, nccl_bw_GBps=node.bw)

    def _join_cpus(self) -> None:
        for one, other in combinations(self._dump.roots, 2):
            if one.system != other.system or one.key == other.key:
                continue
            a, b = self._ids[one.key], self._ids[other.key]
            if (frozenset((a, b)), LinkKind.SMP) not in self._joined:
                self.builder.connect(a, b, LinkKind.SMP)

    def _note_figures(self) -> None:
        if not any(node.type == "GPU" for node in self._dump.nodes()):
            self._notes.append("the dump lists no GPU")
        slow = [
            self._ids[node.key]
            for node in self._dump.nodes()
            if node.link == "PCI" and node.bw <= _EMULATED_GBPS and node.type == "PCI"
        ]
        if slow:
            self._notes.append(
                f"{some(slow)}: NCCL read 2.5 GT/s x1, as bridges do that a virtual machine "
                "emulates; its figures past them mean nothing"
            )
        self._notes.append(
            "bandwidths in the log are NCCL's own figures, kept as nccl_bw_GBps: "
            "the nominal capacity of each link is unknown"
        )

    def _classes(self) -> list[list[str]]:
        """The path table, each pair once; nearer class first where its two directions differ."""
        owners = {
            child.key: node.key
            for node in self._dump.nodes()
            if node.type == "NIC"
            for child in node.children
            if child.type == "NET"
        }
        found: dict[tuple[str, str], str] = {}
        for path in self._dump.paths:
            a = self._ids.get(owners.get(path.source, path.source), "")
            b = self._ids.get(owners.get(path.target, path.target), "")
            if a == b or not {path.source[0], path.target[0]} <= {"GPU", "NET"} or not (a and b):
                continue
            pair = (a, b) if natural_key(a) < natural_key(b) else (b, a)
            word = _OWN_WORDS.get(path.path_class, path.path_class)
            if word in PathClass.__members__:
                found.setdefault(pair, word)
        ordered = sorted(found.items(), key=lambda item: tuple(map(natural_key, item[0])))
        return [[a, b, path_class] for (a, b), path_class in ordered]


def _first_net(nic: DumpNode) -> int | None:
    """NCCL's number of a NIC's first port."""
    ports = [child.number for child in nic.children if child.type == "NET"]
    return ports[0] if ports and ports[0] <= MAX_DEVICES else None


def _stated(**attributes: Any) -> dict[str, Any]:
    """Only what the log says."""
    return {key: value for key, value in attributes.items() if value is not None}


NCCL_LOG: Final = Reader(
    name="nccl-log",
    title="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH (NCCL and RCCL log)",
    looks_like=looks_like_nccl_log,
    parse=parse_nccl_log,
)
"""The reader that the registry lists."""

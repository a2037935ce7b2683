"""``nvidia-smi topo -m`` and ``-p2p``: how far GPUs and NICs are apart, and who are peers.

References
----------
The letters: the legend that the tool prints below its matrix.  The statuses of
``-p2p``: its legend, and ``nvmlGpuP2PStatus_t`` of NVIDIA's NVML reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.naming import natural_key
from topocal.topo.readers.class_matrix import ClassMatrix, FabricLink, MatrixDevice, some
from topocal.topo.readers.from_classes import topology_from_classes
from topocal.topo.readers.matrix_text import Block, Row, find_blocks, is_status
from topocal.topo.readers.reader import Reader
from topocal.topo.readers.smi_errors import refuse_tool_error
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["TOPO_MATRIX", "looks_like_topo_matrix", "parse_topo_matrix"]

_CLASSES: Final = {
    "PSB": PathClass.PIX,
    "PIX": PathClass.PIX,
    "PXB": PathClass.PXB,
    "PHB": PathClass.PHB,
    "NODE": PathClass.NODE,
    "SYS": PathClass.SYS,
    "SOC": PathClass.SYS,
}
_ROW: Final = re.compile(
    r"(?:GPU|NIC)[0-9]{1,4}[ \t|\xa0\u2502]{0,400}"
    r"(?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}|OK|CNS|GNS|TNS|NS|DR)(?![a-z])"
)
_LEGEND: Final = re.compile(r"^[ \t]{0,40}(NIC[0-9]{1,4})\s{0,8}:\s{0,8}([\w.\-]{1,64})\s*$", re.M)
_NUMBERED: Final = re.compile(r"(GPU|NIC)([0-9]{1,4})")
_MOST_NUMA: Final = 64
_REMEDY: Final = "give the output of nvidia-smi topo -m as it was printed"


def looks_like_topo_matrix(text: str) -> bool:
    """Whether a text has a matrix of ``nvidia-smi topo``."""
    if _ROW.search(text) is None:
        return False
    try:
        return bool(find_blocks(text, file=""))
    except FormatError:
        return True


def parse_topo_matrix(text: str, *, file: str) -> Topology:
    """The machine that the matrices in a text describe.

    Several matrices of the same devices are read as one: ``-mp`` tells the PCIe
    class that an NVLink hides, ``-p2p`` who are peers.

    Raises
    ------
    FormatError
        When there is no matrix, or one that makes no sense.
    """
    blocks = find_blocks(text, file=file)
    classes = [b for b in blocks if not b.is_status]
    statuses = [b for b in blocks if b.is_status]
    if not blocks:
        refuse_tool_error(text, file=file)
        raise FormatError(
            "has no row of nvidia-smi topo (a device name, then X and letters such as PIX or SYS)",
            where=Where(file=file),
            remedy=_REMEDY,
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: nvidia-smi topo")
    for block in blocks:
        for note in block.notes:
            builder.note(note)
    main = classes[0] if classes else statuses[0]
    reading = _Reading(builder, main, text, file=file)
    if classes:
        for block in classes:
            reading.read_classes(block)
        reading.complete()
    reading.read_statuses(statuses)
    if not classes:
        for device in reading.matrix.devices:
            builder.node(device.id, device.kind, label=device.label, **device.attributes)
        builder.note(
            "only peer access is stated, not how the GPUs are connected: give nvidia-smi topo -m, "
            "too"
        )
        return builder.build()
    return topology_from_classes(builder, reading.matrix)


class _Reading:
    """One machine's matrices on their way to a :class:`ClassMatrix`."""

    def __init__(self, builder: TopologyBuilder, main: Block, text: str, *, file: str) -> None:
        self._builder = builder
        self._main = main
        self._file = file
        self._number = {name: k for k, name in enumerate(main.columns)}
        self.matrix = ClassMatrix(self._devices(text), file=file)
        self._conflicts: list[str] = []

    def _devices(self, text: str) -> Iterator[MatrixDevice]:
        rows = {row.label: row for row in self._main.rows}
        legend = dict(_LEGEND.findall(text))
        numbered_nics = [n for n in self._main.columns if n.startswith("NIC")]
        if legend and not set(numbered_nics) <= set(legend):
            self._builder.note(
                f"the NIC legend names {len(legend)} of {len(numbered_nics)} NICs: it is cut off"
            )
        taken: set[str] = set()
        for name in self._main.columns:
            numbered = _NUMBERED.fullmatch(name)
            kind = NodeKind.GPU if name.startswith("GPU") else NodeKind.NIC
            stem = kind.value
            index = int(numbered[2]) if numbered else 0
            while f"{stem}{index}" in taken:
                index += 1
            taken.add(f"{stem}{index}")
            affinity = rows[name].affinity if name in rows else None
            attributes: dict[str, object] = {"index": index}
            net_name = legend.get(name) or ("" if numbered else name)
            if net_name:
                attributes["net_names"] = [net_name]
            gpu_numa = _numbers(affinity.gpu_numa) if affinity else ()
            if gpu_numa:
                attributes["memory_numa"] = gpu_numa[0]
            yield MatrixDevice(
                id=f"{stem}{index}",
                kind=kind,
                label=net_name or name,
                numa=_numbers(affinity.numa) if affinity else (),
                cpu_list=affinity.cpu_list if affinity else "",
                coherent=bool(gpu_numa),
                attributes=attributes,
            )

    # Classes

    def read_classes(self, block: Block) -> None:
        """Take what a matrix says; where two speak of the same pair, the first counts."""
        if block is not self._main and not _same_machine(self._main, block):
            self._builder.note(
                f"line {block.line}: another matrix, which is not of the same machine, is left "
                "out: give each machine its own file"
            )
            return
        for row in block.rows:
            self._read_row(row, block)
        if self._conflicts:
            self._builder.note(
                "the matrix contradicts itself: " + some(self._conflicts) + "; the first is taken"
            )
            self._conflicts = []

    def _read_row(self, row: Row, block: Block) -> None:
        a = self._number[row.label]
        for name, cell in zip(block.columns, row.cells, strict=False):
            b = self._number[name]
            if a == b or not cell:
                continue
            known = self.matrix.pcie_class(a, b)
            link = self.matrix.fabric(a, b)
            said = f"{self.matrix.devices[a].id}-{self.matrix.devices[b].id}"
            if cell.startswith("NV"):
                count = int(cell[2:])
                if link is not None and link.count != count:
                    self._conflicts.append(f"{said} NV{link.count} and {cell}")
                elif link is None and known is not None and block is self._main:
                    self._conflicts.append(f"{said} {known.name} and {cell}")
                elif link is None:
                    self.matrix.join(a, b, FabricLink(kind=LinkKind.NVLINK, count=count))
            else:
                path_class = _CLASSES[cell]
                if known is not None and known is not path_class:
                    self._conflicts.append(f"{said} {known.name} and {cell}")
                elif known is None and link is not None and block is self._main:
                    self._conflicts.append(f"{said} NV{link.count} and {cell}")
                elif known is None:
                    self.matrix.state(a, b, path_class)

    def complete(self) -> None:
        """Say which rows are missing, and place pairs of which only missing rows would tell."""
        rows = {row.label: row for row in self._main.rows}
        missing = [name for name in self._main.columns if name not in rows]
        width = len(self._main.columns)
        short = [row for row in rows.values() if len(row.cells) < width]
        for row in short:
            self._builder.note(
                f"line {row.line}: row {row.label} ends after {len(row.cells)} of {width} "
                "columns: the table is cut off"
            )
        if missing:
            self._builder.note(
                f"rows {some(missing)} are missing: what the other rows say of them is taken"
            )
        if missing or short:
            self._repeat_first_half()

    def _repeat_first_half(self) -> None:
        """GPU pairs that nothing tells, where the second half of the GPUs repeats the first."""
        gpus = [d for d, device in enumerate(self.matrix.devices) if device.kind is NodeKind.GPU]
        half = len(gpus) // 2
        if half < 2 or len(gpus) % 2:
            return
        unknown = []
        confirmed = 0
        for x, y in combinations(range(half), 2):
            model = self._said(gpus[x], gpus[y])
            image = self._said(gpus[x + half], gpus[y + half])
            if image is None:
                unknown.append((gpus[x + half], gpus[y + half], model))
            elif image == model:
                confirmed += 1
            else:
                return
        placed = [(a, b, c) for a, b, c in unknown if isinstance(c, PathClass)]
        if not confirmed or not placed:
            return
        for a, b, path_class in placed:
            self.matrix.state(a, b, path_class, assumed=True)
        devices = self.matrix.devices
        shown = some(f"{devices[a].id}-{devices[b].id} {c.name}" for a, b, c in placed)
        self._builder.note(
            f"assumed, as the second half of the GPUs repeats the first where both are in the "
            f"table: {shown}"
        )

    def _said(self, a: int, b: int) -> PathClass | int | None:
        """What is known of a pair: its NVLinks, or its PCIe class."""
        link = self.matrix.fabric(a, b)
        return self.matrix.pcie_class(a, b) if link is None else link.count

    # Peer access

    def read_statuses(self, blocks: Sequence[Block]) -> None:
        """Tell who are peers: by reads and writes, else by what the pair is joined with."""
        said: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for block in blocks:
            rank = _rank(block.capabilities)
            unknown = [name for name in block.columns if name not in self._number]
            if unknown:
                self._builder.note(
                    f"line {block.line}: the peer-to-peer matrix names {some(unknown)}, which the "
                    "topology does not have: left out"
                )
            for a, b, status in _pairs(block):
                if a in self._number and b in self._number:
                    said.setdefault((a, b), []).append((rank, status))
        denied: dict[tuple[str, str], str] = {}
        granted = 0
        for (a, b), found in said.items():
            # Atomics say nothing of copies, PCIe nothing of an NVLink pair, nor the reverse.
            joined = self.matrix.fabric(self._number[a], self._number[b]) is not None
            wanted = 0 if any(rank == 0 for rank, _ in found) else _NVLINK if joined else _PCIE
            statuses = {status for rank, status in found if rank == wanted}
            bad = sorted(statuses - {"OK", "U"})
            if bad:
                x, y = sorted((self._id(a), self._id(b)), key=natural_key)
                denied.setdefault((x, y), bad[0])
            elif "OK" in statuses:
                granted += 1
        self._tell_peers(denied, granted)

    def _id(self, name: str) -> str:
        return self.matrix.devices[self._number[name]].id

    def _tell_peers(self, denied: dict[tuple[str, str], str], granted: int) -> None:
        if not denied:
            self._builder.peer_access = True if granted else None
            return
        gpus = [d.id for d in self.matrix.devices if d.kind is NodeKind.GPU]
        everywhere = len(denied) == len(gpus) * (len(gpus) - 1) // 2
        why = ", ".join(f"{code} ({_STATUSES[code]})" for code in sorted(set(denied.values())))
        if everywhere:
            self._builder.peer_access = False
            whom = "any two GPUs"
        else:
            self._builder.no_peer_pairs = [list(pair) for pair in sorted(denied, key=_pair_key)]
            whom = some(f"{a}-{b}" for a, b in sorted(denied, key=_pair_key))
        self._builder.note(
            f"no peer access between {whom}: {why}; copies go through the host, whatever the "
            "letter says"
        )


_STATUSES: Final = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by regkey",
}
_PCIE, _NVLINK, _ATOMICS = 1, 2, 3


def _same_machine(one: Block, other: Block) -> bool:
    """Whether two matrices agree, but for NVLinks that one of them (``-mp``) does not show."""
    if set(one.columns) != set(other.columns):
        return False
    said = [
        {
            (row.label, name): cell
            for row in block.rows
            for name, cell in zip(block.columns, row.cells, strict=False)
        }
        for block in (one, other)
    ]
    shows = [any(cell.startswith("NV") for cell in cells.values()) for cells in said]
    return all(
        cell == said[1].get(pair, cell)
        or (not all(shows) and "NV" in {cell[:2], said[1].get(pair, cell)[:2]})
        for pair, cell in said[0].items()
    )


def _rank(capabilities: str) -> int:
    """How much a ``-p2p`` matrix decides: reads and writes, PCIe, NVLink, atomics."""
    if not capabilities or set("rw") & set(capabilities):
        return 0
    return {"p": _PCIE, "n": _NVLINK}.get(capabilities[0], _ATOMICS)


def _pairs(block: Block) -> Iterator[tuple[str, str, str]]:
    """Both directions of a pair count as one: a copy reads or writes."""
    for row in block.rows:
        for name, cell in zip(block.columns, row.cells, strict=False):
            if name != row.label and is_status(cell):
                a, b = sorted((row.label, name), key=natural_key)
                yield a, b, cell


def _pair_key(pair: Sequence[str]) -> tuple[object, ...]:
    return natural_key(pair[0]), natural_key(pair[1])


def _numbers(text: str) -> tuple[int, ...]:
    """``0-1,4`` as (0, 1, 4); nothing where it is no short list of numbers.

    >>> _numbers("0-1,4"), _numbers("")
    ((0, 1, 4), ())
    """
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high - low > _MOST_NUMA or len(found) > _MOST_NUMA:
            return ()
        found += range(low, high + 1)
    return tuple(dict.fromkeys(found))


TOPO_MATRIX: Final = Reader(
    name="nvidia-topo",
    title="nvidia-smi topo -m, -mp and -p2p",
    looks_like=looks_like_topo_matrix,
    parse=parse_topo_matrix,
)
"""The reader that the registry lists."""

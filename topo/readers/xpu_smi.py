"""``xpu-smi topology -m``, in words and as JSON, and its ``--p2p`` matrix.

An endpoint is a tile: ``GPU 1/0`` is tile 0 of device 1.  Tiles of one device
share its PCIe link and are joined by a multi-die fabric (``MDF``); ``XL16`` is a
direct Xe Link of 16 lanes; ``XL*`` goes by way of another tile, over its Xe Link
and its MDF, and is no path of its own.

References
----------
Codes: Intel XPU System Management Interface user guide, "Get the system
topology"; keys of the JSON: the command-line sources of intel/xpumanager,
versions 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.naming import natural_key
from topocal.topo.nominal import source_of, xelink_Bps
from topocal.topo.readers.amd_pairs import whole_number
from topocal.topo.readers.class_matrix import (
    MAX_DEVICES,
    ClassMatrix,
    FabricLink,
    MatrixDevice,
    some,
)
from topocal.topo.readers.from_classes import topology_from_classes
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["XPU_SMI", "looks_like_xpu_smi", "parse_xpu_smi"]

_NAME: Final = re.compile(r"GPU [0-9]{1,4}(?:/[0-9]{1,3})?|NIC ?[0-9]{1,4}")
_ROW: Final = re.compile(r"\s{0,32}(GPU [0-9]{1,4}(?:/[0-9]{1,3})?|NIC ?[0-9]{1,4})\s{1,64}(\S.*)")
_CODE: Final = re.compile(r"S|X|MDF|XL(?:[0-9]{1,3}|\*)?|SYS|NODE|PHB|PXB|PIX|OK|NS|\?|N/A|UNKNOWN")
_LANES: Final = re.compile(r"XL([0-9]{1,3})")
_CPU_LIST: Final = re.compile(r"[0-9][0-9,\-]{0,2000}")
_TEXT: Final = re.compile(
    r"GPU [0-9]{1,4}/[0-9]{1,3}[ |]{1,64}(?:S|MDF|XL|SYS|NODE|PHB|PXB|PIX)\b"
    r"|^[ |]{0,16}GPU [0-9]{1,4}[ |]{1,64}(?:X|OK|NS|\?)[ |]",
    re.MULTILINE,
)
_JSON: Final = re.compile(r'"(?:topo_list|p2p_list|p2p_capability)"\s*:')
_CLASSES: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
_REMEDY: Final = "give the output of xpu-smi topology -m as it was printed"


def looks_like_xpu_smi(text: str) -> bool:
    """Whether a text has a matrix of ``xpu-smi topology``."""
    return _TEXT.search(text) is not None or _JSON.search(text) is not None


@dataclass(slots=True)
class _Said:
    """Everything that an output says, by the tool's own names."""

    names: list[str] = field(default_factory=list)
    cpu_list: dict[str, str] = field(default_factory=dict)
    numa: dict[str, int] = field(default_factory=dict)
    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    capability: str = ""
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Take note of a device, and return what it is called here: ``GPU 1`` is ``GPU 1/0``."""
        called = self.known.setdefault(_parts(name), name)
        if called not in self.cpu_list:
            self.names.append(called)
            self.cpu_list[called] = ""
        return called


def parse_xpu_smi(text: str, *, file: str) -> Topology:
    """The tiles and NICs of a matrix.

    Raises
    ------
    FormatError
        When there is no matrix, or a cell of it makes no sense.
    """
    said = _Said()
    if _JSON.search(text):
        _read_json(text, said, file)
    else:
        _read_text(text, said, file)
    if not said.names or len(said.names) > MAX_DEVICES:
        raise FormatError(
            f"describes {len(said.names) or 'no'} devices",
            where=Where(file=file),
            remedy=_REMEDY,
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: xpu-smi topology")
    statuses = [code for code in said.cells.values() if code in ("OK", "NS", "?")]
    classes = [code for code in said.cells.values() if code not in ("OK", "NS", "?", "S", "X")]
    matrix = ClassMatrix(_devices(said), file=file)
    if statuses:
        _tell_peers(builder, matrix, said)
    if statuses and not classes:
        for device in matrix.devices:
            builder.node(device.id, device.kind, label=device.label, **device.attributes)
        builder.note(
            "only peer access is stated, not how the GPUs are connected: give xpu-smi topology "
            "-m, too"
        )
        return builder.build()
    _fill(matrix, said, builder)
    return topology_from_classes(builder, matrix)


# Devices


def _parts(name: str) -> tuple[str, int, int]:
    """``GPU 1/0`` as ("GPU", 1, 0)."""
    numbers = [int(number) for number in re.findall(r"[0-9]{1,4}", name)]
    return name[:3], numbers[0], numbers[1] if len(numbers) > 1 else 0


def _devices(said: _Said) -> Iterator[MatrixDevice]:
    tiled = any(_parts(name)[2] for name in said.names)
    # Some versions print node 0 for every device, whatever processors it is near to.
    lists = {c for c in said.cpu_list.values() if c}
    numa_told = len(set(said.numa.values())) > 1 or len(lists) <= 1
    for name in said.names:
        what, device, tile = _parts(name)
        kind = NodeKind.GPU if what == "GPU" else NodeKind.NIC
        stated: dict[str, Any] = {"index": device}
        if kind is NodeKind.GPU and tiled:
            stated["tile"] = tile
        numa = said.numa.get(name) if numa_told else None
        yield MatrixDevice(
            id=f"{kind.value}{device}" + (f".{tile}" if kind is NodeKind.GPU and tiled else ""),
            kind=kind,
            label=name,
            numa=() if numa is None or numa < 0 else (numa,),
            cpu_list=said.cpu_list[name],
            attributes=stated,
        )


def _fill(matrix: ClassMatrix, said: _Said, builder: TopologyBuilder) -> None:
    place = {name: k for k, name in enumerate(said.names)}
    conflicts = []
    silent = []
    for one, other in combinations(said.names, 2):
        codes = [
            code
            for code in (said.cells.get((one, other)), said.cells.get((other, one)))
            if code is not None and code not in ("OK", "NS", "?", "N/A", "UNKNOWN", "S", "X")
        ]
        if not codes:
            silent.append(f"{one}-{other}")
        elif len(set(codes)) > 1:
            conflicts.append(f"{one}-{other} {' and '.join(codes)}")
        if codes:
            _state(matrix, place[one], place[other], codes[0])
        (what, device, _), (_, second, _) = _parts(one), _parts(other)
        same_card = what == "GPU" == other[:3] and device == second
        if same_card and matrix.pcie_class(place[one], place[other]) is None:
            # One card has one PCIe link, which its tiles share.
            matrix.state(place[one], place[other], PathClass.PIX, assumed=True)
    if conflicts:
        builder.note(f"the matrix contradicts itself: {some(conflicts)}; the first is taken")
    if silent:
        builder.note(f"nothing is said of {some(silent)}: the table is cut off or the tool failed")


def _state(matrix: ClassMatrix, a: int, b: int, code: str) -> None:
    if code in _CLASSES:
        matrix.state(a, b, PathClass[code])
    elif code == "XL*":
        matrix.relay(a, b)
    elif code == "MDF":
        matrix.join(a, b, FabricLink(kind=LinkKind.XELINK, attributes={"fabric": "MDF"}))
    else:
        lanes = _LANES.fullmatch(code)
        width = int(lanes[1]) if lanes else None
        nominal = xelink_Bps(width)
        matrix.join(
            a,
            b,
            FabricLink(
                kind=LinkKind.XELINK,
                nominal_Bps=nominal,
                source="" if nominal is None else source_of("xelink lane"),
                attributes={} if width is None else {"width": width},
            ),
        )


def _tell_peers(builder: TopologyBuilder, matrix: ClassMatrix, said: _Said) -> None:
    if said.capability in ("n", "a"):
        builder.note(
            f"the peer-to-peer matrix is of capability {said.capability!r}, which says nothing of "
            "copies: left out"
        )
        return
    ids = {name: device.id for name, device in zip(said.names, matrix.devices, strict=True)}
    denied = set()
    granted = False
    for (one, other), code in said.cells.items():
        granted |= code == "OK"
        if code == "NS":
            denied.add(tuple(sorted((ids[one], ids[other]), key=natural_key)))
    gpus = sum(device.kind is NodeKind.GPU for device in matrix.devices)
    pairs = sorted(denied, key=lambda pair: [natural_key(name) for name in pair])
    if not pairs:
        builder.peer_access = True if granted else None
        return
    if len(pairs) == gpus * (gpus - 1) // 2:
        builder.peer_access = False
        whom = "any two GPUs"
    else:
        builder.no_peer_pairs = [list(pair) for pair in pairs]
        whom = some(f"{a}-{b}" for a, b in pairs)
    builder.note(f"no peer access between {whom}: copies go through the host")


# Words


def _read_text(text: str, said: _Said, file: str) -> None:
    columns: list[str] = []
    for number, line in enumerate(plain_lines(text), 1):
        capability = re.search(r"--p2p\s{1,8}([rwnap])\b", line[:2000])
        if capability:
            said.capability = capability[1]
        row = _ROW.fullmatch(line)
        if row is None:
            continue
        words = row[2].split()
        if _CODE.fullmatch(words[0]) is None:
            names = _NAME.findall(line)
            if len(names) > 1 or not columns:
                columns = [" ".join(name.split()) for name in names]
            continue
        label = " ".join(row[1].split())
        if label in columns:
            _read_row(said, columns, label, words, Where(file=file, line=number))


def _read_row(said: _Said, columns: list[str], label: str, words: list[str], where: Where) -> None:
    if len(columns) > MAX_DEVICES:
        raise FormatError(f"has {len(columns)} columns", where=where, remedy=_REMEDY)
    names = [said.name(name) for name in columns]
    label = said.name(label)
    for name, word in zip(names, words, strict=False):
        if _CODE.fullmatch(word) is None:
            raise FormatError(
                f"cell {one_line(word)!r} of row {label} is no code of xpu-smi",
                where=where,
                remedy=_REMEDY,
            )
        said.cells.setdefault((label, name), word)
    behind = words[len(columns) :]
    if behind and _CPU_LIST.fullmatch(behind[0]):
        said.cpu_list[label] = behind[0]


# JSON


def _read_json(text: str, said: _Said, file: str) -> None:
    try:
        document = msgspec.json.decode(text[max(0, text.find("{")) :])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(
            f"damaged JSON: {one_line(error)}", where=Where(file=file), remedy=_REMEDY
        ) from error
    if not isinstance(document, dict):
        return
    said.capability = str(document.get("p2p_capability", ""))[:1]
    headers, rows = document.get("headers"), document.get("matrix")
    if isinstance(headers, list) and isinstance(rows, list):
        columns = [str(h) for h in headers if _NAME.fullmatch(str(h))]
        for row in rows if len(columns) == len(headers) else ():
            _read_json_row(row, columns, said, file)
    entries = document.get("topo_list")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            _read_entry(entry, said, file)


def _read_json_row(row: object, columns: list[str], said: _Said, file: str) -> None:
    if not isinstance(row, dict) or str(row.get("tile")) not in columns:
        return
    words = row.get("connections")
    cpu_list = str(row.get("cpu_affinity", ""))
    cells = [str(word) for word in words[: len(columns)]] if isinstance(words, list) else []
    behind = [cpu_list] if len(cells) == len(columns) else []
    _read_row(said, columns, str(row["tile"]), [*cells, *behind], Where(file=file))


def _read_entry(entry: dict[str, Any], said: _Said, file: str) -> None:
    """One ordered pair; NICs have no number here, but stand in the matrix beside it."""
    ids = [whole_number(entry.get(f"{side}_device_id")) for side in ("local", "remote")]
    if None in ids:
        return
    tiles = [whole_number(entry.get(f"{side}_subdevice_id")) for side in ("local", "remote")]
    one, other = (said.name(f"GPU {d}/{t or 0}") for d, t in zip(ids, tiles, strict=True))
    numa = whole_number(entry.get("local_numa_index"))
    if numa is not None:
        said.numa.setdefault(one, numa)
    cpu_list = str(entry.get("local_cpu_affinity", ""))
    if _CPU_LIST.fullmatch(cpu_list):
        said.cpu_list[one] = said.cpu_list[one] or cpu_list
    word = str(entry.get("link_type", "UNKNOWN"))
    if word == "XL":
        ports = entry.get("port_list")
        lanes = [n for p in ports if (n := whole_number(p))] if isinstance(ports, list) else []
        word = f"XL{sum(lanes)}" if 0 < sum(lanes) < 1000 else "XL"
    if _CODE.fullmatch(word) is None:
        raise FormatError(
            f"link type {one_line(word)!r} is no code of xpu-smi",
            where=Where(file=file),
            remedy=_REMEDY,
        )
    said.cells.setdefault((one, other), word)


XPU_SMI: Final = Reader(
    name="xpu-smi",
    title="xpu-smi topology -m and --p2p, also with -j",
    looks_like=looks_like_xpu_smi,
    parse=parse_xpu_smi,
)
"""The reader that the registry lists."""

"""Distance matrices of accelerators other than NVIDIA's: ``npu-smi``, ``mx-smi`` and their kin.

Such a matrix has device names over its columns and before its rows, a mark on the diagonal,
and codes elsewhere; CPU lists and NUMA nodes may stand behind them.  Names and codes differ
by make, the form does not: a text is known by the form, and what the codes mean stands in
its legend (:mod:`topocal.topo.readers.code_legend`).  Codes that nothing explains are told
and place nobody.

``hl-smi topo`` prints no codes, only NUMA nodes and processors of each device; that is read
as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.readers.class_matrix import ClassMatrix, FabricLink, MatrixDevice, some
from topocal.topo.readers.code_legend import CODE, meaning_of, read_legend
from topocal.topo.readers.from_classes import topology_from_classes
from topocal.topo.readers.matrix_text import is_class, is_status
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = [
    "ACCELERATOR_MATRIX",
    "looks_like_accelerator_matrix",
    "parse_accelerator_matrix",
]

_WORDS: Final = "GPU|NPU|MLU|XPU|DCU|HCU|HPU|IPU|TPU|SPU|PPU|Phy-ID|Device|Card|Chip|Die"
_ACCELERATOR: Final = re.compile(rf"(?:{_WORDS})[\-_]?([0-9]{{1,4}})", re.I)
_APART: Final = re.compile(rf"\b({_WORDS}|NIC)[ \t]{{1,3}}([0-9]{{1,4}})(?![0-9/:.])", re.I)
"""``Device 0``: a name in two words."""

_NIC: Final = re.compile(r"NIC_?([0-9]{1,4})|mlx[0-9]_(?:bond_?)?[0-9]{1,4}|[a-z]{2,8}_[0-9]{1,3}")
_NIC_ENTRY: Final = re.compile(r"^[ \t]{0,40}(NIC[0-9]{1,4})\s{0,8}:\s{0,8}([\w.\-]{1,64})\s*$")
_SELVES: Final = frozenset({"X", "S", "SELF", "-"})
_NOTHING: Final = frozenset({"NA", "N/A", "-", "--", "NONE"})
_TAIL: Final = re.compile(
    r"CPU\s{0,4}Affinity|(?:NUMA|Node)\s{0,4}Affinity|NUMA\s{0,4}(?:ID|Node)?"
)
_CPU_LIST: Final = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")
_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_LIST_HEADER: Final = re.compile(r"modID\s{1,40}CPU Affinity(\s{1,40}NUMA Affinity)?\s*", re.I)
_LIST_ROW: Final = re.compile(
    r"([0-9]{1,4})\s{1,40}([0-9][0-9,\- ]{0,400}?)(?:\s{2,40}([0-9]{1,4}))?"
)
_TOOL: Final = re.compile(
    r"\b(?:npu-smi info -t topo|(?:mx-smi|ixsmi|mthreads-gmi|cnmon|hy-smi|xpu[-_]smi|hl-smi) topo"
    r"|gpustack-runtime topo)\b"
)
_LONGEST_ROW: Final = 600
_MOST_WORDS: Final = 1_000
_REMEDY: Final = "give the tool's whole matrix with its legend"


@dataclass(slots=True)
class _Row:
    label: str
    cells: list[str]
    cpu_list: str = ""
    numa: tuple[int, ...] = ()
    line: int = 0


@dataclass(slots=True)
class _Block:
    columns: list[str]
    rows: list[_Row] = field(default_factory=list)

    def is_whole(self) -> bool:
        """Whether it is a matrix at all: most rows have the mark in their own column."""
        marked = sum(
            1
            for row in self.rows
            if len(row.cells) > self.columns.index(row.label)
            and row.cells[self.columns.index(row.label)] in _SELVES
        )
        return bool(self.rows) and 2 * marked > len(self.rows)

    def codes(self) -> set[str]:
        """All cells beside the diagonal."""
        return {
            cell
            for row in self.rows
            for name, cell in zip(self.columns, row.cells, strict=False)
            if name != row.label and cell not in _NOTHING
        }


def looks_like_accelerator_matrix(text: str) -> bool:
    """Whether a text has a matrix that ``nvidia-smi`` would not print.

    Either its devices are not called GPU, or it has a code that another make publishes or
    the text itself explains.
    """
    if _LIST_HEADER.search(text) is not None:
        return True
    if _ACCELERATOR.search(text) is None and _APART.search(text) is None:
        return False
    lines = _lines(text)
    blocks = list(_blocks(lines))
    if not blocks:
        return False
    legend = read_legend(lines)
    for block in blocks:
        codes = block.codes()
        foreign = {c for c in codes if not is_class(c) and not is_status(c)}
        known = [c for c in foreign if meaning_of(c, legend) is not None or c in legend]
        named = [n for n in block.columns if _ACCELERATOR.fullmatch(n) and n[:3].upper() != "GPU"]
        if known or (named and codes and not any(is_status(c) for c in codes)):
            return True
    return False


def parse_accelerator_matrix(text: str, *, file: str) -> Topology:
    """The devices of the first matrix, and how far apart they are.

    Raises
    ------
    FormatError
        When there is no matrix.
    """
    builder = TopologyBuilder(Path(file).stem or "machine")
    tool = _TOOL.search(text)
    what = "a matrix of distances between accelerators" if tool is None else tool[0]
    builder.source(f"{Path(file).name}: {what}")
    lines = _lines(text)
    blocks = list(_blocks(lines))
    listed = _listed(lines) if not blocks else []
    if listed:
        builder.note(
            "only processors and NUMA nodes of each device are stated, not how the devices are "
            "connected"
        )
        return topology_from_classes(builder, ClassMatrix(listed, file=file))
    if not blocks:
        raise FormatError(
            "has no matrix with device names over its columns and before its rows",
            where=Where(file=file),
            remedy=_REMEDY,
        )
    # The largest is the machine; a tool may print NPUs first and NPUs with NICs below.
    main = max(blocks, key=lambda block: len(block.columns))
    matrix = ClassMatrix(_devices(builder, main, lines), file=file)
    _fill(builder, matrix, main, read_legend(lines))
    return topology_from_classes(builder, matrix)


# Text


def _lines(text: str) -> list[str]:
    return [_APART.sub(r"\1\2", line) for line in plain_lines(text)]


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """Matrices: a line of names, then rows that begin with one of them."""
    block: _Block | None = None
    tails: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        header = _header(line)
        if header is not None:
            if block is not None and block.is_whole():
                yield block
            block, tails = _Block(header[0]), header[1]
            continue
        row = None if block is None else _row(line, block.columns, tails, number)
        if row is None or block is None:
            if block is not None and block.is_whole():
                yield block
            block = None
        elif all(row.label != other.label for other in block.rows):
            block.rows.append(row)
    if block is not None and block.is_whole():
        yield block


def _header(line: str) -> tuple[list[str], list[str]] | None:
    """Names over the columns, and what stands behind them: ``cpu`` or ``numa``."""
    tail = list(islice(_TAIL.finditer(line), 4))
    words = line[: tail[0].start() if tail else len(line)].split()
    if words and not _is_device(words[0]):
        words = words[1:]
    if len(words) < 2 or not all(map(_is_device, words)) or len(set(words)) < len(words):
        return None
    if not any(_ACCELERATOR.fullmatch(word) for word in words):
        return None
    return words, ["cpu" if found[0][:3].upper() == "CPU" else "numa" for found in tail]


def _is_device(word: str) -> bool:
    return _ACCELERATOR.fullmatch(word) is not None or _NIC.fullmatch(word) is not None


def _row(line: str, columns: list[str], tails: list[str], number: int) -> _Row | None:
    words = line.split(None, _MOST_WORDS)
    if words[0] not in columns:
        return None
    cells: list[str] = []
    for word in words[1 : 1 + len(columns)]:
        if CODE.fullmatch(word) is None and word.upper() not in _NOTHING:
            break
        cells.append(word.upper())
    if not cells:
        return None
    row = _Row(words[0], cells, line=number)
    if len(cells) == len(columns):
        _add_affinity(row, _joined(words[1 + len(columns) :]), tails)
    return row


def _joined(words: list[str]) -> list[str]:
    """Words, where a list that goes on behind a comma is one."""
    found: list[str] = []
    for word in words:
        if found and found[-1].endswith(","):
            found[-1] += word
        else:
            found.append(word)
    return found


def _add_affinity(row: _Row, words: list[str], tails: list[str]) -> None:
    """What stands behind the codes: in the header's order, else by its form."""
    words = [word for word in words if _CPU_LIST.fullmatch(word)]
    if len(words) == len(tails):
        pairs = list(zip(tails, words, strict=True))
    else:
        pairs = [("numa" if "numa" in tails and _NUMBER.fullmatch(w) else "cpu", w) for w in words]
    for what, word in pairs:
        if what == "cpu":
            row.cpu_list = row.cpu_list or word
        elif _NUMBER.fullmatch(word):
            row.numa = row.numa or (int(word),)


def _listed(lines: Sequence[str]) -> list[MatrixDevice]:
    """Devices of ``hl-smi topo``: a number, processors, a NUMA node."""
    found: dict[int, MatrixDevice] = {}
    inside = False
    for line in lines:
        if _LIST_HEADER.fullmatch(line.strip()):
            inside = True
        elif inside and (row := _LIST_ROW.fullmatch(line.strip()[:_LONGEST_ROW])) is not None:
            number = int(row[1])
            found.setdefault(
                number,
                MatrixDevice(
                    id=f"gpu{number}",
                    kind=NodeKind.GPU,
                    label=f"module {number}",
                    numa=() if row[3] is None else (int(row[3]),),
                    cpu_list=row[2].replace(" ", "").strip(","),
                    attributes={"index": number},
                ),
            )
    return [found[number] for number in sorted(found)]


# Meaning


def _devices(builder: TopologyBuilder, block: _Block, lines: Sequence[str]) -> list[MatrixDevice]:
    rows = {row.label: row for row in block.rows}
    legend = {m[1]: m[2] for line in lines if (m := _NIC_ENTRY.match(line)) is not None}
    missing = [name for name in block.columns if name not in rows]
    if missing:
        builder.note(f"rows {some(missing)} are missing: what the other rows say of them is taken")
    taken: set[str] = set()
    found = []
    for name in block.columns:
        accelerator = _ACCELERATOR.fullmatch(name)
        numbered = accelerator or _NIC.fullmatch(name)
        stem = "nic" if accelerator is None else "gpu"
        index = int(numbered[1]) if numbered is not None and numbered[1] is not None else 0
        while f"{stem}{index}" in taken:
            index += 1
        taken.add(f"{stem}{index}")
        row = rows.get(name)
        attributes: dict[str, object] = {"index": index}
        net_name = legend.get(name, "" if accelerator or (numbered and numbered[1]) else name)
        if net_name:
            attributes["net_names"] = [net_name]
        found.append(
            MatrixDevice(
                id=f"{stem}{index}",
                kind=NodeKind.GPU if accelerator else NodeKind.NIC,
                label=net_name or name,
                numa=row.numa if row is not None else (),
                cpu_list=row.cpu_list if row is not None else "",
                attributes=attributes,
            )
        )
    return found


def _fill(
    builder: TopologyBuilder, matrix: ClassMatrix, block: _Block, legend: dict[str, str]
) -> None:
    place = {name: k for k, name in enumerate(block.columns)}
    unknown: dict[str, list[str]] = {}
    said: dict[tuple[int, int], str] = {}
    conflicts = []
    for row in block.rows:
        for name, code in zip(block.columns, row.cells, strict=False):
            a, b = sorted((place[row.label], place[name]))
            if a == b:
                continue
            if said.setdefault((a, b), code) != code:
                conflicts.append(f"{block.columns[a]}-{block.columns[b]} {said[a, b]} and {code}")
    for (a, b), code in said.items():
        meaning = meaning_of(code, legend)
        if meaning is None:
            pair = f"{matrix.devices[a].id}-{matrix.devices[b].id}"
            unknown.setdefault(code, []).append(pair)
        elif meaning.path_class is not None:
            matrix.state(a, b, meaning.path_class)
        else:
            matrix.join(
                a,
                b,
                FabricLink(
                    kind=LinkKind.FABRIC,
                    count=meaning.count,
                    switched=meaning.switched,
                    attributes={"fabric": meaning.fabric},
                ),
            )
    if conflicts:
        builder.note(f"the matrix contradicts itself: {some(conflicts)}; the first is taken")
    for code, pairs in sorted(unknown.items()):
        words = legend.get(code)
        why = f"means {words!r}" if words else "is not explained in the text"
        builder.note(f"{code} ({some(pairs)}) {why}: how far apart they are is not known")


ACCELERATOR_MATRIX: Final = Reader(
    name="accelerator-topo",
    title="npu-smi info -t topo, mx-smi topo -m and other makes' matrices",
    looks_like=looks_like_accelerator_matrix,
    parse=parse_accelerator_matrix,
)
"""The reader that the registry lists."""

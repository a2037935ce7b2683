"""Finding the matrices of ``nvidia-smi topo`` in whatever they were pasted into.

A matrix is a run of rows: a device name, then one code per device, then what
it is near to.  Rows count as found by their codes, never by their position, so
prompts, legends, notes, missing headers and prefixes of a launcher do not
matter.  Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Final

from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.glued_row import separated
from topocal.topo.readers.paste import plain_lines

__all__ = ["Affinity", "Block", "Row", "find_blocks", "is_class", "is_status"]

_CLASS: Final = re.compile(r"SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}")
"""SOC is what drivers before 2017 called SYS; PSB is PIX on one board."""

_STATUS: Final = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""Legend of ``nvidia-smi topo -p2p``."""

_SELF: Final = "X"
_GLUED_CODES: Final = re.compile(r"(?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}){2,4096}")
_ONE_CODE: Final = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,3}")

_SURE_DEVICE: Final = re.compile(r"GPU[0-9]{1,4}|NIC[0-9]{1,4}|mlx[0-9]_(?:bond_?)?[0-9]{1,4}")
_DEVICE: Final = re.compile(r"[A-Za-z][A-Za-z_.\-]{0,30}[0-9][\w.\-]{0,30}")
_COLUMN: Final = re.compile(r"CPU\s{0,4}Affinity|GPU\s{1,4}NUMA\s{0,4}ID|NUMA\s{0,4}(?:Affinity)?")
_P2P_COMMAND: Final = re.compile(r"-p2p\s{1,8}-?([rwnap]{1,5})\b")
_CPU_LIST: Final = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")
_NOT_AVAILABLE: Final = "N/A"
_TAB_STOP: Final = 8
_MOST_RUNS: Final = 1_000
_MOST_WORDS: Final = 2_000
"""Of a row; no machine has so many devices."""

_MOST_HEADER_LINES: Final = 4
_MOST_PREFIX: Final = 3
"""Words that launchers put before a line: a rank, a host, a stream."""


def is_class(code: str) -> bool:
    """Whether a cell is a path class or an NVLink count."""
    return _CLASS.fullmatch(code) is not None


def is_status(code: str) -> bool:
    """Whether a cell is a peer-to-peer status."""
    return code in _STATUS


def _is_code(token: str) -> bool:
    return token == _SELF or is_class(token) or is_status(token)


def _codes(token: str) -> list[str]:
    """The codes that a word is made of; several where a paste lost the space between them."""
    if _is_code(token):
        return [token]
    return _ONE_CODE.findall(token) if _GLUED_CODES.fullmatch(token) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """What stands behind the codes of a row; empty where nothing does.

    Attributes
    ----------
    cpu_list
        Processors.
    numa
        NUMA nodes, as printed.
    gpu_numa
        NUMA node of the GPU's own memory, as printed.
    """

    cpu_list: str = ""
    numa: str = ""
    gpu_numa: str = ""


@dataclass(slots=True, kw_only=True)
class Row:
    """One row.

    Attributes
    ----------
    label
        Device name.
    cells
        Codes in the order of the columns; empty for a cell that holds none.
    affinity
        What it is near to.
    line
        Where it stands, from 1.
    """

    label: str
    cells: list[str]
    affinity: Affinity
    line: int


@dataclass(slots=True, kw_only=True)
class Block:
    """One matrix.

    Attributes
    ----------
    columns
        Device names.
    rows
        Those that are there; the last may be shorter than ``columns``.
    line
        Of its first row.
    capabilities
        Letters after ``-p2p``, where the command stands above it.
    notes
        Oddities of its form.
    """

    columns: list[str]
    rows: list[Row]
    line: int
    capabilities: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def is_status(self) -> bool:
        """Whether it is of peer-to-peer status rather than of path classes."""
        cells = [cell for row in self.rows for cell in row.cells if cell and cell != _SELF]
        return any(map(is_status, cells)) or (not cells and bool(self.capabilities))


@dataclass(slots=True)
class _RawRow:
    """A row before its columns are known: cells with their places in the line."""

    label: str
    text: str
    start: int
    line: int
    tabbed: bool


@dataclass(slots=True)
class _Header:
    """Names over the columns, and where the affinity columns begin."""

    names: list[str]
    affinity: list[tuple[str, int]]


def find_blocks(text: str, *, file: str) -> list[Block]:
    """All matrices in a text, in order.

    Raises
    ------
    FormatError
        When a matrix has a cell that is no code.
    """
    lines = [separated(line) for line in plain_lines(text)]
    blocks: list[Block] = []
    for first, raw in islice(_runs(lines), _MOST_RUNS):
        block = _Reading(raw, _headers_above(lines, first), file=file).block()
        if block is not None:
            block.capabilities = _command_above(lines, first)
            blocks.append(block)
    return blocks


def _runs(lines: Sequence[str]) -> Iterator[tuple[int, list[_RawRow]]]:
    """Rows that follow each other, blank lines aside, with the number of the first line."""
    first, run, seen = 0, list[_RawRow](), set[str]()
    after_blank = False
    for number, line in enumerate(lines):
        if not line:
            after_blank = True
            continue
        row = _raw_row(line, number + 1)
        if row is None and run and not after_blank and _continues(line):
            run[-1].text += " " + line.strip()
            run[-1].tabbed = False
            continue
        after_blank = False
        if run and (row is None or row.label in seen):
            yield first, run
            run, seen = [], set()
        if row is not None:
            if not run:
                first = number
            run.append(row)
            seen.add(row.label)
    if run:
        yield first, run


def _raw_row(line: str, number: int) -> _RawRow | None:
    """A line as a row, if it is one."""
    head = list(islice(re.finditer(r"\S+", line), _MOST_PREFIX + 2))
    for k, (label, code) in enumerate(pairwise(head)):
        name = label[0].strip(">*`")
        sure = _SURE_DEVICE.fullmatch(name) is not None
        if not _codes(code[0]) or not (sure or (k == 0 and _DEVICE.fullmatch(name))):
            continue
        start = label.start() + label[0].index(name)
        text = line[start:].rstrip("`")
        tabbed = "\t" in text and text.split("\t", 1)[0].strip() == name
        return _RawRow(name, text, start, number, tabbed)
    return None


def _continues(line: str) -> bool:
    """Whether a line is the rest of a row that a narrow terminal broke."""
    tokens = [m[0] for m in islice(re.finditer(r"\S+", line), 2)]
    if len(tokens) == 2 and tokens[1].startswith("="):
        return False
    return bool(_codes(tokens[0])) or _CPU_LIST.fullmatch(tokens[0]) is not None


def _headers_above(lines: Sequence[str], first: int) -> list[_Header]:
    """Headers that may belong to a run of rows: the line above, and several such lines as one.

    A narrow terminal breaks a long header into lines.
    """
    k = first - 1
    while k >= 0 and not lines[k]:
        k -= 1
    parts: list[str] = []
    found: list[_Header] = []
    while k >= 0 and len(parts) < _MOST_HEADER_LINES and _raw_row(lines[k], 0) is None:
        if _read_header(lines[k]) is None:
            break
        parts.insert(0, lines[k])
        header = _read_header(" ".join(parts))
        if header is not None:
            found.append(header)
        k -= 1
    return found


def _read_header(line: str) -> _Header | None:
    columns = list(islice(_COLUMN.finditer(line), 4))
    begin = columns[0].start() if columns else len(line)
    names: list[str] = []
    for match in re.finditer(r"\S+", line[:begin]):
        found = _SURE_DEVICE.findall(match[0])
        if found and "".join(found) == match[0]:
            if not any(_SURE_DEVICE.fullmatch(n) for n in names):
                # What stands before the first sure name is a prompt or a launcher's prefix.
                names = []
            names += found
        elif _DEVICE.fullmatch(match[0]):
            names.append(match[0])
    if not any(_SURE_DEVICE.fullmatch(name) for name in names):
        return None
    kinds = {"C": "cpu", "G": "gpu_numa", "N": "numa"}
    return _Header(names, [(kinds[column[0][0]], column.start()) for column in columns])


def _command_above(lines: Sequence[str], first: int) -> str:
    """Letters of the nearest ``-p2p`` above, unless another matrix stands between."""
    for line in reversed(lines[max(0, first - 12) : first]):
        found = _P2P_COMMAND.search(line[:2000])
        if found:
            return found[1]
        if line and _raw_row(line, 0) is not None:
            break
    return ""


class _Reading:
    """One run of rows on its way to a :class:`Block`."""

    def __init__(self, raw: list[_RawRow], headers: list[_Header], *, file: str) -> None:
        self._raw = raw
        self._file = file
        self._notes: list[str] = []
        longest = max(len(self._cells(row, None)[0]) for row in raw)
        whole = [h for h in headers if len(h.names) == longest]
        self._header = next(iter(whole or headers), None)

    def block(self) -> Block | None:
        """The matrix, or ``None`` when no row says X of itself."""
        width = None if self._header is None else len(self._header.names)
        read = [self._cells(row, width) for row in self._raw]
        longest = max(len(cells) for cells, _ in read)
        columns = self._columns(read, longest)
        if columns is None:
            return None
        rows: list[Row] = []
        tails = self._affinities([tail for _, tail in read])
        for raw, (cells, _), affinity in zip(self._raw, read, tails, strict=True):
            at = columns.index(raw.label) if raw.label in columns else -1
            marks = [k for k, cell in enumerate(cells) if cell == _SELF]
            if at < 0 or (marks and marks != [at]) or (not marks and len(cells) > at):
                self._notes.append(
                    f"line {raw.line}: row {raw.label} does not fit the columns (its X is not "
                    "under its own name): left out, what the other rows say of it is taken"
                )
                continue
            rows.append(Row(label=raw.label, cells=cells, affinity=affinity, line=raw.line))
        if not rows:
            return None
        return Block(columns=columns, rows=rows, line=self._raw[0].line, notes=self._notes)

    # Codes

    def _cells(self, row: _RawRow, width: int | None) -> tuple[list[str], list[tuple[str, int]]]:
        """Codes of a row, and the words behind them with their places."""
        if row.tabbed:
            fields = row.text.split("\t", _MOST_WORDS)[1:]
            limit = len(fields) if width is None else width
            cells = [field.strip() for field in fields[:limit]]
            if width is None:
                cells = cells[: next((k for k, c in enumerate(cells) if not _codes(c)), limit)]
            if all(not cell or len(_codes(cell)) == 1 for cell in cells):
                place = [(f.strip(), k) for k, f in enumerate(fields[len(cells) :])]
                return self._trimmed(cells), place
            if width is not None:
                row.tabbed = False
        tokens = list(islice(re.finditer(r"\S+", row.text), 1, _MOST_WORDS))
        found: list[str] = []
        for k, token in enumerate(tokens):
            if width is not None and len(found) >= width:
                return found[:width], [(t[0], row.start + t.start()) for t in tokens[k:]]
            codes = _codes(token[0])
            if not codes:
                rest = tokens[k + 1 :]
                if width is not None and any(_codes(t[0]) for t in rest):
                    if token[0] == _NOT_AVAILABLE:
                        found.append("")
                        continue
                    raise FormatError(
                        f"cell {one_line(token[0])!r} of row {row.label} is no path class",
                        where=Where(file=self._file, line=row.line),
                        remedy="give the output of nvidia-smi topo as it was printed",
                    )
                return found, [(t[0], row.start + t.start()) for t in tokens[k:]]
            found += codes
        return (found if width is None else found[:width]), []

    @staticmethod
    def _trimmed(cells: list[str]) -> list[str]:
        """Without empty cells at the end: a row that is cut off."""
        while cells and not cells[-1]:
            cells = cells[:-1]
        return cells

    def _columns(
        self, read: list[tuple[list[str], list[tuple[str, int]]]], longest: int
    ) -> list[str] | None:
        """Device names of the columns: the header's, or what the rows' X tell."""
        at = {
            row.label: cells.index(_SELF)
            for row, (cells, _) in zip(self._raw, read, strict=True)
            if _SELF in cells
        }
        if not at:
            return None
        if self._header is not None:
            names = self._header.names
            fits = sum(k < len(names) and names[k] == label for label, k in at.items())
            if 2 * fits > len(at) and len(set(names)) == len(names):
                return list(names)
            self._notes.append(
                f"the header above line {self._raw[0].line} does not fit the rows: columns are "
                "named by the rows themselves"
            )
        else:
            self._notes.append(
                f"no header above line {self._raw[0].line}: columns are named by the rows "
                "themselves, and as NICs where no row names them"
            )
        if len(set(at.values())) < len(at):
            return None
        names = [""] * longest
        for label, k in at.items():
            names[k] = label
        linked = {
            k
            for cells, _ in read
            for k, cell in enumerate(cells)
            if cell.startswith("NV") or is_status(cell)
        }
        taken, nics = set(at), 0
        for k, name in enumerate(names):
            if name:
                continue
            if k in linked and f"GPU{k}" not in taken:
                names[k] = f"GPU{k}"
            else:
                while f"NIC{nics}" in taken:
                    nics += 1
                names[k] = f"NIC{nics}"
            taken.add(names[k])
        return names

    # Affinity

    def _affinities(self, tails: list[list[tuple[str, int]]]) -> list[Affinity]:
        kinds = [kind for kind, _ in self._header.affinity] if self._header else []
        if not kinds:
            most = max((sum(1 for t, _ in tail if t) for tail in tails), default=0)
            kinds = ["cpu", "numa", "gpu_numa"][:most]
        starts = [
            next(place for text, place in tail if text)
            for row, tail in zip(self._raw, tails, strict=True)
            if not row.tabbed and any(text for text, _ in tail)
        ]
        edge = min(starts, default=0)
        above = self._header.affinity if self._header else []
        if above and above[0][0] == "cpu" and edge - above[0][1] >= _TAB_STOP:
            edge = above[0][1]
        return [
            self._by_tabs(tail, kinds) if row.tabbed else self._by_blanks(tail, kinds, edge)
            for row, tail in zip(self._raw, tails, strict=True)
        ]

    @staticmethod
    def _by_tabs(tail: list[tuple[str, int]], kinds: list[str]) -> Affinity:
        """Cells behind tabs: empty ones count, and NUMA takes two of them in new drivers."""
        if kinds and kinds[0] != "cpu":
            return _affinity(dict(zip(kinds, (t for t, _ in tail if t), strict=False)))
        found = {"cpu": tail[0][0] if tail else ""}
        rest = [(text, place) for text, place in tail[1:] if text]
        if len(rest) >= 2 and "gpu_numa" in kinds:
            found |= {"numa": rest[0][0], "gpu_numa": rest[1][0]}
        elif rest:
            text, place = rest[0]
            last = "gpu_numa" in kinds and place - tail[0][1] >= 3
            found["gpu_numa" if last else "numa"] = text
        return _affinity(found)

    @staticmethod
    def _by_blanks(tail: list[tuple[str, int]], kinds: list[str], edge: int) -> Affinity:
        """Words behind blanks, which stand for tabs: an empty cell shows as a wider gap."""
        words = [text for text, _ in tail]
        if len(words) >= len(kinds) or not kinds:
            return _affinity(dict(zip(kinds, words, strict=False)))
        if not words:
            return Affinity()
        gap = kinds[0] == "cpu" and tail[0][1] - edge >= _TAB_STOP
        if len(kinds) == 3 and len(words) == 2:
            if gap or (set(words[0]).isdisjoint("-,") and words[1] == _NOT_AVAILABLE):
                return _affinity({"numa": words[0], "gpu_numa": words[1]})
            second = "gpu_numa" if words[1] == _NOT_AVAILABLE else "numa"
            return _affinity({"cpu": words[0], second: words[1]})
        if gap:
            last = len(kinds) == 3 and words[0] == _NOT_AVAILABLE
            return _affinity({"gpu_numa" if last else "numa": words[0]})
        return _affinity({kinds[0]: words[0]})


def _affinity(found: dict[str, str]) -> Affinity:
    """Only words that are lists of numbers."""

    def listed(kind: str) -> str:
        word = found.get(kind, "")
        return word if _CPU_LIST.fullmatch(word) else ""

    return Affinity(cpu_list=listed("cpu"), numa=listed("numa"), gpu_numa=listed("gpu_numa"))

"""Tables of figures by device and device, as tools print them.

A header names the columns (bare numbers, ``GPU 0``, ``CPU 01``), each row begins with a
device of its own.  Cells are numbers or stand for "not measured": ``N/A``, dashes of any
length, ``X``.  Pastes cut such tables anywhere; what is whole is kept and the rest named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import to_number
from topocal.topo.errors import FormatError, Where

__all__ = ["MAX_COLUMNS", "Matrix", "MatrixRow", "device_name", "header_names", "read_matrix"]

MAX_COLUMNS: Final = 1024
"""More devices than any tool measures in one table."""

_NOT_MEASURED: Final = frozenset(
    {"n/a", "na", "nan", "-nan", "x", "*", "-", "--", "---", "\u2010", "\u2011", "\u2013", "\u2014",
     "\u2015", "\u2212"}
)  # fmt: skip
_WORDS: Final = "GPU|CPU|Device|Dev|NPU|XPU|DCU|HCU|MLU|Rank|Card"
_DEVICE: Final = re.compile(rf"\b({_WORDS})[ \t]{{0,8}}_?#?([0-9]{{1,4}})(?![0-9.])", re.IGNORECASE)
_LABEL: Final = re.compile(
    rf"[ \t]{{0,200}}(?:({_WORDS})[ \t]{{0,8}}_?#?)?([0-9]{{1,4}})(?![0-9.:])"
    r"(?:[ \t]{0,8}(<->|->|<-|min|max|sd))?(?=[ \t]|$)",
    re.IGNORECASE,
)
_CORNER: Final = re.compile(r"[^\W\d_](?:[^\W\d_]|\+){0,15}(?:[\\/]{1,2}(?:[^\W\d_]|\+){1,16})?")
_WIDE_CORNER: Final = re.compile(
    r"^(\s{0,200}[^\W\d_]{1,16})\s{0,4}(?:[\\/]{1,2}|→|->|=>)\s{0,4}([^\W\d_]{1,16})(?=\s)"
)
"""``from \\ to``, ``von -> nach`` before the names of the columns."""

_DECIMAL_COMMA: Final = re.compile(r"[0-9]{1,5},[0-9]{1,3}")
_SUMMARIES: Final = frozenset(
    {"total", "stotal", "actual", "sum", "avg", "mean", "average", "min", "max", "aggregate"}
)
"""Names of columns that summarise a row, behind those of the devices."""

_UNIT: Final = re.compile(r"[KMGT]i?[Bb](?:/s|ps|/sec)")


@dataclass(slots=True, kw_only=True)
class MatrixRow:
    """One row.

    Attributes
    ----------
    name
        As the columns are named; ``arrow`` is what stood behind it.
    cells
        ``None`` where not measured; as many as there are columns.
    line
        Number of the line.
    """

    name: str
    arrow: str
    cells: list[float | None]
    line: int


@dataclass(slots=True, kw_only=True)
class Matrix:
    """One table.

    Attributes
    ----------
    columns
        Names by :func:`device_name`; bare numbers stay bare.
    rows
        The whole ones.
    line
        Number of the header's line.
    cut
        ``(line, row, cells, of)`` of a row that is cut.
    cut_figure
        Line whose last figure is cut.
    unit
        Unit that stands behind the figures; empty where none does.
    """

    columns: list[str]
    line: int
    rows: list[MatrixRow] = field(default_factory=list)
    cut: tuple[int, str, int, int] | None = None
    cut_figure: int | None = None
    unit: str = ""

    def missing_rows(self) -> list[str]:
        """Columns of a square table that have no whole row."""
        present = {row.name for row in self.rows}
        return [name for name in self.columns if name not in present]

    def damage(self, what: str) -> list[str]:
        """Sentences on what is not whole, for a user."""
        found = []
        if self.cut is not None:
            line, row, cells, of = self.cut
            found.append(
                f"line {line}: row {row} of {what} is cut after {cells} of {of} figures: "
                "it is left out"
            )
        if self.cut_figure is not None:
            found.append(
                f"line {self.cut_figure}: the last figure of {what} is cut: it is left out"
            )
        missing = [m for m in self.missing_rows() if self.cut is None or m != self.cut[1]]
        if missing:
            shown = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
            found.append(f"{what} has no row {shown}")
        return found


def device_name(kind: str | None, number: str) -> str:
    """``gpu3`` or ``cpu0`` from a tool's word and number; a bare number stays one.

    >>> device_name("GPU", "03"), device_name(None, "3")
    ('gpu3', '3')
    """
    bare = str(int(number))
    if kind is None:
        return bare
    return f"{'cpu' if kind.lower() == 'cpu' else 'gpu'}{bare}"


def header_names(line: str) -> list[str] | None:
    """The names of the columns, when a line is a header; ``None`` when it is none.

    >>> header_names("   D\\\\D     0      1"), header_names("  GPU 0  GPU10")
    (['0', '1'], ['gpu0', 'gpu10'])
    >>> header_names(" SRC+EXE\\\\DST  CPU 00   GPU 00"), header_names("     0  1.5")
    (['cpu0', 'gpu0'], None)
    """
    line = _WIDE_CORNER.sub(r"\1\\\\\2", line)
    words = line.split()
    summaries = _summaries(words)
    if summaries:
        words = words[:-summaries]
        line = " ".join(words)
    if not words:
        return None
    bare = words[1:] if _CORNER.fullmatch(words[0]) else words
    if bare and all(w.isascii() and w.isdecimal() and len(w) <= 4 for w in bare):
        names = [str(int(w)) for w in bare]
    else:
        found = _DEVICE.findall(line)
        rest = _DEVICE.sub(" ", line).split()
        if not found or len(rest) > 1 or (rest and _CORNER.fullmatch(rest[0]) is None):
            return None
        names = [device_name(kind, number) for kind, number in found]
    return names if len(set(names)) == len(names) else None


def _summaries(words: Sequence[str]) -> int:
    """How many columns at the end of a header summarise the others."""
    count = 0
    while count < len(words) and words[-1 - count].strip("*`").lower() in _SUMMARIES:
        count += 1
    return count


def read_matrix(
    lines: Sequence[str], at: int, *, file: str, row_kind: str | None = None
) -> tuple[Matrix, int] | None:
    """The table whose header is line ``at`` (from 0), and the line after its last row.

    Parameters
    ----------
    row_kind
        What the rows are where they are not the same devices as the columns; such a row
        needs no column of its name.

    Raises
    ------
    FormatError
        When it has more columns than any tool prints.
    """
    names = header_names(lines[at])
    if names is None:
        return None
    if len(names) > MAX_COLUMNS:
        raise FormatError(
            f"has a table of {len(names)} columns",
            where=Where(file=file, line=at + 1),
            remedy=f"give a table of {MAX_COLUMNS} devices at most",
        )
    matrix = Matrix(columns=names, line=at + 1)
    known, seen = set(names), set[tuple[str, str]]()
    summaries = _summaries(lines[at].split())
    here = at + 1
    end = here
    decimals = 0
    while here < len(lines):
        line = lines[here]
        if not line.strip():
            here += 1
            continue
        match = _LABEL.match(line)
        if match is None:
            break
        name, arrow = device_name(match[1], match[2]), (match[3] or "").lower()
        if name not in known:
            # Columns may be named where rows are numbered, and the other way round.
            other = name.removeprefix("gpu") if name.startswith("gpu") else f"gpu{name}"
            name = other if other in known else name
        words = line[match.end() :].split()
        units = [word for word in words if _UNIT.fullmatch(word)]
        if units:
            words = [word for word in words if _UNIT.fullmatch(word) is None]
            matrix.unit = matrix.unit or units[0]
        words = _with_points(words)
        if len(words) > len(names):
            words = words[: max(len(names), len(words) - summaries)]
        if (row_kind is None and name not in known) or (name, arrow) in seen:
            break
        cells = _cells(words, len(names))
        if cells is None:
            break
        here += 1
        end = here
        last_of_text = len(lines) - here <= 2 and not any(s.strip() for s in lines[here:])
        if len(cells) < len(names):
            matrix.cut = (here, name, len(cells), len(names))
            break
        if last_of_text and _is_cut(words[-1], decimals):
            cells[-1] = None
            matrix.cut_figure = here
        decimals = max(decimals, *(len(w.partition(".")[2]) for w in words))
        seen.add((name, arrow))
        matrix.rows.append(MatrixRow(name=name, arrow=arrow, cells=cells, line=here))
    return matrix, end


def _with_points(words: list[str]) -> list[str]:
    """Figures with points where a row has commas in them, as much of Europe writes.

    >>> _with_points(["-", "25,1", "12,45"]), _with_points(["1,250", "2,500"])
    (['-', '25.1', '12.45'], ['1,250', '2,500'])
    """
    figures = [word for word in words if word.lower() not in _NOT_MEASURED]
    commas = [word for word in figures if _DECIMAL_COMMA.fullmatch(word)]
    if not commas or any(not w.isdecimal() for w in figures if w not in commas):
        return words
    if all(len(word.partition(",")[2]) == 3 for word in commas):
        return words  # thousands, as likely as not
    return [word.replace(",", ".") for word in words]


def _cells(words: list[str], columns: int) -> list[float | None] | None:
    """The figures of a row; ``None`` when it is no row of the table."""
    if not words or len(words) > columns:
        return None
    cells: list[float | None] = []
    for word in words:
        value = to_number(word)
        if value is None and word.lower() not in _NOT_MEASURED:
            return None
        cells.append(value)
    return cells


def _is_cut(word: str, decimals: int) -> bool:
    """Whether the last figure of a text has fewer decimals than the table's others."""
    return decimals > 0 and to_number(word) is not None and (
        len(word.partition(".")[2]) < decimals
    )  # fmt: skip

"""Tables of pairs as people write them, made into the one that is read.

Markdown with bold figures, a title above and rules below the header; columns called ``src_gpu``,
``GPU A`` or ``From``; ``GPU 0 → GPU 1``; units behind each figure instead of in the header.
What comes out is comma-separated, each row in the line it stood in.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.table_columns import classify
from topocal.topo.readers.paste import MAX_LINES

__all__ = ["ambiguous_unit", "tidy_table"]

_SOURCE: Final = re.compile(
    r"(?:gpu|device|dev|card|node|rank|npu)?_?(?:source|src|from|sender)_?(?:gpu|device|dev|id|card|node|rank"
    r"|npu|index)?|(?:gpu|device|npu|card)_?(?:a|i|1)"
)
_DESTINATION: Final = re.compile(
    r"(?:gpu|device|dev|card|node|rank|npu)?_?(?:destination|dest|dst|target|receiver|to|peer)_?(?:gpu|device"
    r"|dev|id|card|node|rank|npu|index)?|(?:gpu|device|npu|card)_?(?:b|j|2)"
)
_PAIR: Final = re.compile(
    r"(?:gpu|device|npu|card)?_?(?:pairs?|link|path|route|connection)|(?:gpus|devices)"
)
_BARE_RATE: Final = re.compile(
    r"(?:\w{1,30}_)?(?:bandwidth|bw|throughput|rate|speed)(?:_\w{1,30})?"
)
_FIGURE: Final = re.compile(
    r"[~≈]?\s{0,2}([0-9]{1,9}(?:\.[0-9]{1,9})?)\s{0,3}([KMGT]i?[Bb](?:/s|ps|/sec))"
)
_UNIT: Final = re.compile(r"[KMGT]i?[Bb](?:/s|ps|/sec)?\b|[KMGT]i?Bs\b")
_UNCLEAR: Final = re.compile(r"(?<![a-zA-Z])[kmgt]bps(?![a-zA-Z])|(?<![A-Z])[KMGT]BPS\b")
_RULE: Final = re.compile(r"[\s|:+=\-]{3,4000}")
_ENDS: Final = re.compile(
    r"((?:gpu|device|dev|card|npu)?\s?#?\S{1,30}?)\s{0,3}"
    r"(<->|<=>|->|=>|↔|⇄|⟷|→|\bto\b|[-–,/:])\s{0,3}((?:gpu|device|dev|card|npu)?\s?#?\S{1,30})",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(
    r"(?:gpu|device|dev|card|npu)?[\s_#:]{0,3}([0-9]{1,4})", re.IGNORECASE
)
_DEVICES: Final = re.compile(r"(?:gpu|device|npu|card)_?([0-9]{1,4})")
_BOTH: Final = frozenset({"<->", "↔", "⇄", "⟷", "<=>"})
_SEARCHED: Final = 200
_WIDEST: Final = 64


def tidy_table(text: str) -> str | None:
    """The table of pairs in a text; ``None`` where there is none."""
    lines = text.split("\n", MAX_LINES)[:MAX_LINES]
    for at, line in enumerate(lines[:_SEARCHED]):
        separator = _separator(line)
        if not separator:
            continue
        header = [_clean(cell) for cell in _cells(line, separator)]
        if not 2 <= len(header) <= _WIDEST:
            continue
        names = _names(header)
        if ("source" in names and "destination" in names) or "pair" in names:
            return _written(lines, at, separator, names)
    return None


def ambiguous_unit(text: str) -> str:
    """The column of a table of pairs whose unit may be bits or bytes; empty where none is."""
    tidied = tidy_table(text)
    if tidied is None:
        return ""
    header = next(csv.reader([next(line for line in tidied.split("\n") if line.strip())]))
    found = classify(header)
    if found.has_figures or not found.has_ends:
        return ""
    return next((name for name in header if _UNCLEAR.search(name)), "")


def _separator(line: str) -> str:
    for separator in ("|", "\t", ",", ";"):
        if line.count(separator) >= 1:
            return separator
    return "  " if re.search(r"\S {2,}\S", line) else ""


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip("\r")
    if separator == "  ":
        return re.split(r" {2,}", line.strip())
    cells = line.split(separator)
    if separator == "|":
        cells = cells[not cells[0].strip() :]
        cells = cells[: len(cells) - (bool(cells) and not cells[-1].strip())]
    return cells


def _clean(cell: str) -> str:
    return cell.strip().strip("*`\"'_ ").strip()


def _names(header: Sequence[str]) -> list[str]:
    """The header with the ends' columns called as they are known."""
    words = [re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_") for column in header]
    # A matrix names more devices than the two ends of a row, or others.
    if not {m[1] for word in words if (m := _DEVICES.fullmatch(word))} <= {"1", "2"}:
        return list(header)
    names: list[str] = []
    for column, word in zip(header, words, strict=True):
        role = next(
            (
                role
                for role, form in (
                    ("source", _SOURCE),
                    ("destination", _DESTINATION),
                    ("pair", _PAIR),
                )
                if role not in names and form.fullmatch(word)
            ),
            None,
        )
        names.append(role or column)
    return names


def _written(lines: Sequence[str], at: int, separator: str, names: list[str]) -> str | None:
    """The table with its header in line ``at``, as comma-separated text."""
    rows: list[tuple[int, list[str]]] = []
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if not line.strip() or _RULE.fullmatch(line):
            if rows and not line.strip():
                break
            continue
        cells = [_clean(cell) for cell in _cells(line, separator)]
        if len(cells) != len(names):
            break
        rows.append((number, cells))
    if not rows:
        return None
    both = _pair_cells(names, rows)
    for role in ("source", "destination"):
        if role in names:
            for _, cells in rows:
                cells[names.index(role)] = _end(cells[names.index(role)])
    names = _with_units(names, rows, both=both)
    if len(set(names)) < len(names):
        return None
    written = dict(rows) | {at: names}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number in range(rows[-1][0] + 1):
        if number in written:
            writer.writerow(written[number])
        else:
            out.write("\n")
    return out.getvalue()


def _pair_cells(names: Sequence[str], rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Writes the pairs as they are known; returns whether all stand for both directions."""
    if "pair" not in names:
        return False
    at, both = names.index("pair"), True
    for _, cells in rows:
        found = _ENDS.fullmatch(cells[at])
        if found is None:
            return False
        both = both and found[2] in _BOTH
        cells[at] = f"{_end(found[1])}->{_end(found[3])}"
    return both


def _end(name: str) -> str:
    """``GPU 3`` and ``3`` as ``gpu3``, other names as they are."""
    found = _NUMBERED.fullmatch(name.strip())
    return name.strip() if found is None else f"gpu{int(found[1])}"


def _with_units(
    names: Sequence[str], rows: Sequence[tuple[int, list[str]]], *, both: bool
) -> list[str]:
    """Units that stand behind the figures of a column move to its name."""
    found = []
    for at, name in enumerate(names):
        word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        figures = [_FIGURE.fullmatch(cells[at]) for _, cells in rows]
        units = {figure[2] for figure in figures if figure is not None}
        if len(units) == 1 and _UNIT.search(name) is None:
            for (_, cells), figure in zip(rows, figures, strict=True):
                cells[at] = figure[1] if figure is not None else cells[at]
            name = f"{name} ({units.pop()})"
        elif (match := _UNIT.search(name)) is not None and not _BARE_RATE.search(word):
            name = f"{name[: match.start()].strip(' (_[')} bandwidth ({match[0]})".strip()
        if both and "both" not in name and classify([name]).rates and "uni" not in name.lower():
            name = f"both ways {name}"
        found.append(name)
    return found

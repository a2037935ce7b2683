"""Matrices of figures as programs print them, made into the table that is read.

Comma-separated, with names in the first row and column, whose corner may hold a title; and
arrays in brackets (NumPy, PyTorch, Python's lists), whose rows and columns are devices in
order and whose variable is their title.  Lines stay where they are, but those below such a
title move one further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["plain_matrices"]

_NAME: Final = re.compile(
    r"(?:(?:GPU|CPU|Device|Dev|NPU|XPU|DCU|Rank|Card)[ _#:]{0,2})?[0-9]{1,4}", re.IGNORECASE
)
_FIGURE: Final = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{0,12})?(?:e[+-]?[0-9]{1,2})?|nan|inf|", re.I)
_NOTHING: Final = re.compile(r"n/?a|nan|inf|x|-{1,3}|", re.I)
_BRACKETED: Final = re.compile(
    r"\s{0,40}(?:\w{1,40}\s{0,2}[=:]\s{0,2})?(?:np\.|torch\.)?(?:(?:array|tensor)\()?"
    r"(\[{1,2})([^\[\]]{1,20000})(\]{1,2})[,)]{0,2}.{0,60}"
)
_ASSIGNED: Final = re.compile(r"\s{0,40}(\w{1,40})\s{0,2}[=:]")
_MOST: Final = 256


def plain_matrices(lines: Sequence[str]) -> list[str]:
    """The lines, with such matrices as columns between blanks under a header."""
    found = list(lines)
    at = 0
    while at < len(found):
        line = found[at]
        if line.count(",") > 1 and "[" not in line:
            at = _comma_separated(found, at)
        elif "[" in line and (first := _BRACKETED.fullmatch(line)) and first[1] == "[[":
            at = _bracketed(found, at)
        else:
            at += 1
    return found


def _comma_separated(lines: list[str], at: int) -> int:
    """Rewrites the matrix whose header is line ``at``; returns the line after it."""
    header = [c.strip().strip('"') for c in lines[at].split(",")]
    names = header[1:]
    if names and not names[-1]:
        names = names[:-1]
    if not 2 <= len(names) <= _MOST or not all(_NAME.fullmatch(n) for n in names):
        return at + 1
    corner = header[0]
    if _NAME.fullmatch(corner):
        return at + 1
    rows = []
    end = at + 1
    while end < len(lines):
        cells = [c.strip().strip('"') for c in lines[end].split(",")]
        figures = cells[1 : len(names) + 1]
        if (
            len(figures) != len(names)
            or any(cells[len(names) + 1 :])
            or _NAME.fullmatch(cells[0]) is None
            or not all(_FIGURE.fullmatch(f) or _NOTHING.fullmatch(f) for f in figures)
        ):
            break
        rows.append(_row(cells[0], figures))
        end += 1
    if len(rows) != len(names):
        return at + 1
    lines[at:end] = ["  ".join(["", *map(_joined, names)]), *rows]
    title = corner if len(corner.split()) > 1 or "/" in corner else ""
    if title and "\\" not in title:
        # The title goes above, into a blank line where there is one.
        if at and not lines[at - 1].strip():
            lines[at - 1] = title
        else:
            lines.insert(at, title)
            end += 1
    return end


def _bracketed(lines: list[str], at: int) -> int:
    """Rewrites the array that begins in line ``at``; returns the line after it."""
    rows: list[list[str]] = []
    end, closed = at, False
    while end < len(lines) and (found := _BRACKETED.fullmatch(lines[end])) is not None:
        if (found[1] == "[[") is not (end == at):
            break
        rows.append(found[2].replace(",", " ").split())
        end += 1
        closed = found[3] == "]]"
        if closed:
            break
    size = len(rows)
    square = all(len(r) == size and all(_FIGURE.fullmatch(c) for c in r) for r in rows)
    if not closed or not square or not 2 <= size <= _MOST:
        return at + 1
    assigned = _ASSIGNED.match(lines[at])
    written = [
        *([] if assigned is None else [assigned[1].replace("_", " ")]),
        "  ".join(["", *map(str, range(size))]),
        *(_row(str(k), cells) for k, cells in enumerate(rows)),
    ]
    lines[at:end] = written
    return at + len(written)


def _row(name: str, cells: Sequence[str]) -> str:
    figures = ("-" if _NOTHING.fullmatch(c) else f"{c}0" if c.endswith(".") else c for c in cells)
    return "  ".join([_joined(name), *figures])


def _joined(name: str) -> str:
    return re.sub(r"[ _#:]", "", name)

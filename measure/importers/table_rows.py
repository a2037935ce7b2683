"""The rows of a table of rates, by column, whatever separates its cells.

The separator is the one that the header has most of; a row in which one text holds commas
and no quotes is read where it is clear which text that is.
"""

from __future__ import annotations

import csv
import re
from typing import Final

from topocal.measure.importers.figures import to_number
from topocal.measure.importers.imported import Draft
from topocal.measure.importers.table_columns import classify
from topocal.topo.errors import one_line

__all__ = ["NOTHING", "RANGE", "REMEDY", "delimiter_of", "rows_by_column"]

REMEDY: Final = "begin with a header such as source,destination,bandwidth_GBps"
"""For a text that is no such table."""

RANGE: Final = re.compile(r"[~≈]?\s{0,4}([0-9.]{1,20})\s{0,4}(?:-|–|\.\.)\s{0,4}([0-9.]{1,20})")
NOTHING: Final = frozenset({"", "-", "n/a", "na", "nan", "none", "–", "—", "null"})
"""Cells that hold no figure."""

_MOST_ROWS: Final = 200_000
"""Pairs of 400 devices and some; no hand and no tool writes so many."""


def rows_by_column(draft: Draft, text: str) -> tuple[list[tuple[int, dict[str, str]]], list[str]]:
    """Rows by column with their line, and the header.

    Raises
    ------
    FormatError
        When there is no header, or no row, or one is cut.
    """
    header: list[str] = []
    delimiter = ","
    rows: list[tuple[int, dict[str, str]]] = []
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        if not header:
            delimiter = delimiter_of(content) or ","
        try:
            (cells,) = csv.reader([content], delimiter=delimiter, strict=True)
        except (csv.Error, ValueError) as error:
            raise draft.fail(
                f"is no row of a table: {one_line(error)}", line=line, remedy="check the quotes"
            ) from error
        cells = [c.strip() for c in cells]
        if not header:
            header = cells
            if len(set(header)) < len(header):
                raise draft.fail("names a column twice", line=line, remedy=REMEDY)
            continue
        if len(cells) > len(header):
            cells = _with_loose_commas(draft, header, cells, delimiter)
        if len(cells) != len(header):
            raise draft.fail(
                f"has {len(cells)} cells where the header has {len(header)}",
                line=line,
                remedy="give every column a cell; quote a cell that holds a comma",
            )
        if len(rows) >= _MOST_ROWS:
            raise draft.fail(f"has more than {_MOST_ROWS} rows", line=line, remedy="split it")
        rows.append((line, dict(zip(header, cells, strict=True))))
    if not header:
        raise draft.fail("has no header", remedy=REMEDY)
    if not rows:
        raise draft.fail("has a header but no rows", remedy="add rows")
    return rows, header


def _with_loose_commas(
    draft: Draft, header: list[str], cells: list[str], delimiter: str
) -> list[str]:
    """The cells of a row in which one text has commas and no quotes, when it is clear which."""
    columns = classify(header)
    surplus = len(cells) - len(header)
    found = []
    for text in columns.texts:
        at = header.index(text)
        joined = (delimiter + " ").join(cells[at : at + surplus + 1])
        tried = [*cells[:at], joined, *cells[at + surplus + 1 :]]
        row = dict(zip(header, tried, strict=True))
        flows = row.get(columns.flows, "")
        rates = [row[c.name] for c in columns.rates]
        if (flows and ">" not in flows and "<" not in flows) or not all(
            r.lower() in NOTHING or to_number(r) is not None or RANGE.fullmatch(r) for r in rates
        ):
            continue
        found.append((text, tried))
    if len(found) != 1:
        return cells
    draft.note("some texts hold commas and have no quotes: they are read as far as it is clear how")
    return found[0][1]


def delimiter_of(header: str) -> str:
    """What separates the cells of a header; empty where nothing does.

    >>> delimiter_of("flow\\tGB/s\\tnote, if any"), delimiter_of("flow")
    ('\\t', '')
    """
    counts = {d: header.count(d) for d in (",", "\t", ";", "|")}
    best = max(counts, key=lambda d: counts[d])
    return best if counts[best] else ""

"""Tables that people write: CSV with a header, divided by commas, semicolons or tabs.

Lines that begin with ``#`` and empty ones are skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from topocal.topo.errors import FormatError, Where, one_line

__all__ = ["table_rows"]

_DIVIDERS = ",;\t"


def table_rows(text: str, *, file: str) -> Iterator[tuple[Where, list[str]]]:
    """The header and every row, each with its place; nothing where there is no header.

    Raises
    ------
    FormatError
        When a line is no CSV, or does not fit the header.

    >>> [cells for _, cells in table_rows("a; b\\n# no\\n1; 2", file="f")]
    [['a', 'b'], ['1', '2']]
    """
    numbered = [
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        return
    divider = max(_DIVIDERS, key=numbered[0][1].count)
    reader = csv.reader((line for _, line in numbered), delimiter=divider, strict=True)
    width = 0
    while True:
        # A quoted field may run over several lines: a row stands where it begins.
        begin = numbered[min(reader.line_num, len(numbered) - 1)][0]
        where = Where(file=file, line=begin)
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise FormatError(
                f"not a line of CSV: {one_line(error)}", where=where, remedy="close all quotes"
            ) from error
        width = width or len(cells)
        if len(cells) != width:
            raise FormatError(
                f"has {len(cells)} fields where the header has {width}",
                where=where,
                remedy="give every line all its fields",
            )
        yield where, cells

"""Columns of tables and fields of JSON that people write: each is known, a note, or a slip.

A column that nobody knows may be a misspelt one, whose values would then be missing without a
word: it is refused, with the name that it resembles.  Columns that are notes by their name are
passed over, and that is told.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from topocal.topo.errors import FormatError, Where, one_line

__all__ = ["Tell", "close_name", "is_note", "know_columns", "plain_name"]

Tell = Callable[[str], None]
"""Takes a sentence for the user."""

_NOTES: Final = frozenset(
    {"note", "notes", "comment", "comments", "remark", "remarks", "description", "label", "title",
     "name", "id", "index", "row", "line", "", "#", "unnamed:_0"}
)  # fmt: skip
"""Names of what is there for people; the last three are what spreadsheets and pandas write."""

_CLOSE: Final = 0.7
"""A name is near another from this ratio of difflib's on: one letter of three is wrong."""


def plain_name(name: str) -> str:
    """A column's name in lower case, blanks and dashes as underscores.

    >>> plain_name(" Size-Bytes ")
    'size_bytes'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_note(name: str) -> bool:
    """Whether a column is for people, by its name."""
    return plain_name(name) in _NOTES


def close_name(name: str, known: Iterable[str]) -> str:
    """The known name that a name resembles; empty: none.

    >>> close_name("strat", ["start", "size"])
    'start'
    """
    found = difflib.get_close_matches(plain_name(name), list(known), n=1, cutoff=_CLOSE)
    return found[0] if found else ""


def know_columns(
    header: Sequence[str],
    names: Mapping[str, str],
    *,
    where: Where,
    what: str = "column",
    tell: Tell | None = None,
) -> list[str]:
    """Our name of each column; empty for notes.

    Parameters
    ----------
    header
        The columns as they stand in the file.
    names
        Our name of every name that a column may have.
    what
        What it is called: a column, or a field of JSON.
    tell
        Is told which columns are notes.

    Raises
    ------
    FormatError
        When a column is unknown, or two are the same.

    >>> know_columns(["From", "to", "note"], {"from": "source", "to": "destination"},
    ...              where=Where(file="f"))
    ['source', 'destination', '']
    """
    found: list[str] = []
    notes: list[str] = []
    for column in header:
        name = names.get(plain_name(column), "")
        if name and name in found:
            raise FormatError(f"two {what}s for {name}", where=where, remedy="keep one of them")
        if not name and not is_note(column):
            close = close_name(column, names)
            known = ", ".join(dict.fromkeys(names.values()))
            raise FormatError(
                f"unknown {what} {one_line(column)!r}",
                where=where,
                remedy=(f"did you mean {close}?" if close else f"the {what}s are {known}")
                + f"; a {what} called note may say anything",
            )
        found.append(name)
        if not name:
            notes.append(one_line(column) if column.strip() else "without a name")
    if notes and tell is not None:
        tell(f"{what} {', '.join(notes)}: taken for notes and passed over")
    return found

"""Flows that people write down: CSV or JSON, read with the line of every mistake.

CSV has a header line with the columns ``source``, ``destination``, ``size`` and,
where wanted, ``start`` and ``pattern``; fields are divided by commas, semicolons or
tabs; lines that begin with ``#`` are skipped.  Other columns are refused, but for those that
are notes by their name (:mod:`topocal.topo.columns`).  JSON is a list of objects with the
same names, or an object whose ``flows`` is that list.  Sizes are bytes or texts
such as ``256MiB``, starts are seconds or texts such as ``5us``.  Flows run
together; those with different ``pattern`` run in patterns of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from topocal.topo.columns import Tell, close_name, know_columns, plain_name
from topocal.topo.endpoint_names import resolve_endpoint
from topocal.topo.errors import FormatError, InputError, UnitError, Where, one_line
from topocal.topo.flow import Flow, Pattern
from topocal.topo.io import read_bytes
from topocal.topo.strict_json import decode_json
from topocal.topo.units import parse_bytes, parse_seconds
from topocal.topo.user_table import table_rows
from topocal.topo.user_text import user_text

__all__ = ["parse_flows", "read_flows"]

_SYNONYMS: Final = {
    "source": ("source", "src", "from", "sender"),
    "destination": ("destination", "dst", "dest", "to", "receiver"),
    "size": ("size", "bytes", "size_bytes"),
    "start": ("start", "start_s"),
    "pattern": ("pattern",),
}
_NAME: Final = {alias: name for name, aliases in _SYNONYMS.items() for alias in aliases}
_REQUIRED: Final = ("source", "destination", "size")
_REMEDY: Final = "give source, destination and size, and if need be start and pattern"


@dataclass(slots=True)
class _Row:
    """One flow as it stands in a file; ``line`` finds its line when it is asked for."""

    fields: dict[str, Any]
    line: Callable[[], int]


def read_flows(
    path: str | Path, endpoints: Sequence[str], *, tell: Tell | None = None
) -> list[Pattern]:
    """Patterns of a flow file, in the order in which they first occur.

    Parameters
    ----------
    endpoints
        Endpoint ids that the flows may name; bare numbers stand for GPUs.
    tell
        Is told in sentences what is passed over: columns of notes.

    Raises
    ------
    InputError
        When the file cannot be read.
    FormatError
        When it is neither CSV nor JSON, lacks a column, has one that is unknown or a field that
        cannot be read.
    UnknownEndpointError
        When a flow names no endpoint.
    """
    text = user_text(read_bytes(path), file=str(path), remedy="give CSV or JSON in UTF-8")
    return parse_flows(text, endpoints, file=str(path), tell=tell)


def parse_flows(
    text: str, endpoints: Sequence[str], *, file: str, tell: Tell | None = None
) -> list[Pattern]:
    """As :func:`read_flows`, from text."""
    is_json = text.lstrip()[:1] in ("[", "{")
    rows = _json_rows(text, file, tell) if is_json else _csv_rows(text, file, tell)
    ids: dict[str, str] = {}
    by_pattern: dict[str, list[Flow]] = {}
    for row in rows:
        try:
            flow = _flow(row.fields, ids, endpoints)
        except InputError as error:
            error.where = Where(file=file, line=row.line())
            raise
        name = row.fields.get("pattern")
        by_pattern.setdefault("" if name is None else str(name).strip(), []).append(flow)
    if not by_pattern:
        raise FormatError("has no flows", where=Where(file=file), remedy=_REMEDY)
    return [Pattern(flows=tuple(flows), name=name) for name, flows in by_pattern.items()]


def _flow(fields: dict[str, Any], ids: dict[str, str], endpoints: Sequence[str]) -> Flow:
    """The flow of a row.

    Raises
    ------
    InputError
        Without a place, which the caller knows.
    """
    ends = []
    for column in ("source", "destination"):
        name = fields.get(column)
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name.strip():
            raise FormatError(f"flow without a {column}", remedy=_REMEDY)
        if name not in ids:
            ids[name] = resolve_endpoint(name, endpoints)
        ends.append(ids[name])
    size = _quantity(fields.get("size"), "size", parse_bytes)
    start = fields.get("start")
    if isinstance(start, str) and not start.strip():
        start = None
    start_s = 0.0 if start is None else _quantity(start, "start", parse_seconds)
    return Flow(source=ends[0], destination=ends[1], size_bytes=size, start_s=start_s)


def _quantity(value: object, column: str, parse: Callable[[str | float], float]) -> float:
    if value is None or value == "":
        raise FormatError(f"flow without a {column}", remedy=_REMEDY)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(
            f"{one_line(value)!r} is not a {column}", remedy="give a number, or a text with a unit"
        )
    try:
        return parse(value)
    except OverflowError as error:
        raise UnitError(
            f"{one_line(value)!r} is not a {column}", remedy="give a smaller number"
        ) from error


def _csv_rows(text: str, file: str, tell: Tell | None) -> Iterator[_Row]:
    """Rows of a CSV file.

    Raises
    ------
    FormatError
        When the header lacks a column or has an unknown one, or a line does not fit it.
    """
    header: list[str] = []
    for where, cells in table_rows(text, file=file):
        if not header:
            header = _columns(cells, where, "column", tell)
            continue
        fields: dict[str, Any] = dict(zip(header, cells, strict=True))
        yield _Row(fields, partial(int, where.line or 0))


def _columns(header: Sequence[str], where: Where, what: str, tell: Tell | None) -> list[str]:
    """Our names of the columns, or of the fields of an object; empty for notes.

    Raises
    ------
    FormatError
        When a column is missing, unknown or stands twice.
    """
    present = {_NAME.get(plain_name(name)) for name in header}
    missing = [name for name in _REQUIRED if name not in present]
    if missing and what == "column":
        # What it may have been meant to be: another name that is none of ours.
        near = [name for name in header if close_name(name, _SYNONYMS[missing[0]])]
        raise FormatError(
            f"no column {missing[0]} in the header {one_line(','.join(header))!r}",
            where=where,
            remedy=f"call {one_line(near[0])!r} {missing[0]}" if near else _REMEDY,
        )
    return know_columns(header, _NAME, where=where, what=what, tell=tell)


def _json_rows(text: str, file: str, tell: Tell | None) -> Iterator[_Row]:
    """Rows of a JSON file.

    Raises
    ------
    FormatError
        When it is not JSON, or not a list of flows, or a flow has an unknown field.
    """
    document = decode_json(text, file=file, remedy="give a list of flows")
    items = document.get("flows") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise FormatError("has no list of flows", where=Where(file=file), remedy=_REMEDY)
    if isinstance(document, dict):
        _outside(document, file, tell)
    known: dict[tuple[str, ...], list[str]] = {}
    for number, item in enumerate(items):
        line_of = partial(_line_of_item, text, number)
        if not isinstance(item, dict):
            raise FormatError(
                f"{one_line(item)!r} is not a flow",
                where=Where(file=file, line=line_of()),
                remedy="give objects with source, destination and size",
            )
        fields = tuple(item)
        if fields not in known:
            place = Where(file=file, line=line_of())
            known[fields] = _columns(fields, place, "field", None if known else tell)
        yield _Row(dict(zip(known[fields], item.values(), strict=True)), line_of)


def _outside(document: dict[str, Any], file: str, tell: Tell | None) -> None:
    """What stands beside the list of flows is passed over, unless it is what a flow says.

    Raises
    ------
    FormatError
        When it is.
    """
    others = [name for name in document if name != "flows"]
    for name in others:
        if plain_name(name) in _NAME:
            raise FormatError(
                f"field {one_line(name)!r} stands outside of the flows",
                where=Where(file=file),
                remedy="say it of each flow",
            )
    if others and tell is not None:
        tell(f"field {', '.join(map(one_line, others))}: beside the flows, passed over")


def _line_of_item(text: str, number: int) -> int:
    """Line on which item ``number`` of the list of flows begins, in a text that is valid JSON."""
    decoder = json.JSONDecoder()
    blank = re.compile(r"[\s,:]*")

    def skip(at: int) -> int:
        match = blank.match(text, at)
        return at if match is None else match.end()

    at = skip(0)
    if text[at] == "{":
        at = skip(at + 1)
        while True:
            key, at = decoder.raw_decode(text, at)
            at = skip(at)
            if key == "flows":
                break
            at = skip(decoder.raw_decode(text, at)[1])
    at = skip(at + 1)
    for _ in range(number):
        at = skip(decoder.raw_decode(text, at)[1])
    return text.count("\n", 0, at) + 1

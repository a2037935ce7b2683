"""Flows that people write down: CSV or JSON, read with the line of every mistake.

CSV has a header line with the columns ``source``, ``destination``, ``size`` and,
where wanted, ``start`` and ``pattern``; fields are divided by commas, semicolons or
tabs; lines that begin with ``#`` are skipped.  JSON is a list of objects with the
same names, or an object whose ``flows`` is that list.  Sizes are bytes or texts
such as ``256MiB``, starts are seconds or texts such as ``5us``.  Flows run
together; those with different ``pattern`` run in patterns of their own.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from topocal.topo.endpoint_names import resolve_endpoint
from topocal.topo.errors import FormatError, InputError, UnitError, Where, one_line
from topocal.topo.flow import Flow, Pattern
from topocal.topo.io import read_bytes
from topocal.topo.strict_json import decode_json
from topocal.topo.units import parse_bytes, parse_seconds

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


def read_flows(path: str | Path, endpoints: Sequence[str]) -> list[Pattern]:
    """Patterns of a flow file, in the order in which they first occur.

    Parameters
    ----------
    endpoints
        Endpoint ids that the flows may name; bare numbers stand for GPUs.

    Raises
    ------
    InputError
        When the file cannot be read.
    FormatError
        When it is neither CSV nor JSON, lacks a column or has a field that cannot be read.
    UnknownEndpointError
        When a flow names no endpoint.
    """
    return parse_flows(_text(read_bytes(path), str(path)), endpoints, file=str(path))


def parse_flows(text: str, endpoints: Sequence[str], *, file: str) -> list[Pattern]:
    """As :func:`read_flows`, from text."""
    rows = _json_rows(text, file) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text, file)
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


def _text(content: bytes, file: str) -> str:
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            text = content.decode("utf-16")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(
            "is not text", where=Where(file=file, line=line), remedy="give CSV or JSON in UTF-8"
        ) from error
    if "\0" in text:
        raise FormatError(
            "is a binary file", where=Where(file=file), remedy="give CSV or JSON in UTF-8"
        )
    return text


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


def _csv_rows(text: str, file: str) -> Iterator[_Row]:
    """Rows of a CSV file.

    Raises
    ------
    FormatError
        When the header lacks a column, or a line does not fit the header.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    numbered = [
        (number, line)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        return
    first = numbered[0][1]
    divider = max(",;\t", key=first.count)
    reader = csv.reader((line for _, line in numbered), delimiter=divider, strict=True)
    header: list[str] = []
    while True:
        # A quoted field may run over several lines: a row stands where it begins.
        begin = numbered[min(reader.line_num, len(numbered) - 1)][0]
        where = Where(file=file, line=begin)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise FormatError(
                f"not a line of CSV: {one_line(error)}", where=where, remedy="close all quotes"
            ) from error
        if not header:
            header = _columns([cell.strip() for cell in cells], where)
            continue
        if len(cells) != len(header):
            raise FormatError(
                f"has {len(cells)} fields where the header has {len(header)}",
                where=where,
                remedy="give every line all its fields",
            )
        fields: dict[str, Any] = dict(zip(header, map(str.strip, cells), strict=True))
        yield _Row(fields, partial(int, begin))


def _columns(header: list[str], where: Where) -> list[str]:
    """Our names of the columns; unknown ones keep theirs.

    Raises
    ------
    FormatError
        When one is missing or stands twice.
    """
    names = [_NAME.get(cell.lower(), cell) for cell in header]
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise FormatError(
            f"no column {missing[0]} in the header {one_line(','.join(header))!r}",
            where=where,
            remedy=_REMEDY,
        )
    twice = [name for name in _NAME.values() if names.count(name) > 1]
    if twice:
        raise FormatError(f"two columns for {twice[0]}", where=where, remedy="keep one of them")
    return names


def _json_rows(text: str, file: str) -> Iterator[_Row]:
    """Rows of a JSON file.

    Raises
    ------
    FormatError
        When it is not JSON, or not a list of flows.
    """
    document = decode_json(text, file=file, remedy="give a list of flows")
    items = document.get("flows") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise FormatError("has no list of flows", where=Where(file=file), remedy=_REMEDY)
    for number, item in enumerate(items):
        line_of = partial(_line_of_item, text, number)
        if not isinstance(item, dict):
            raise FormatError(
                f"{one_line(item)!r} is not a flow",
                where=Where(file=file, line=line_of()),
                remedy="give objects with source, destination and size",
            )
        yield _Row({_NAME.get(str(k).lower(), str(k)): v for k, v in item.items()}, line_of)


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

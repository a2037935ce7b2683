"""Requests on disk: JSON or CSV, read with the place of every mistake.

JSON::

    {"format": "topocal/requests", "version": 1, "element_bytes": 2,
     "requests": [{"parameter": "wq", "target": "gpu4", "holders": ["gpu0", "gpu1"],
                   "origin": [0, 0], "shape": [1024, 4096]}]}

``element_bytes`` stands at the top, in a request, or in both (the request's counts).
``origin`` may be left out, or empty in a table: zeros.  CSV has a header line with ``parameter``,
``target``, ``holders``, ``shape`` and ``element_bytes``, and if need be ``origin``; what is several
numbers or names is divided by blanks; lines that begin with ``#`` and empty lines are
passed over.  A bare number names a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.solve.policy.requests import Request
from topocal.topo.columns import Tell, know_columns
from topocal.topo.endpoint_names import resolve_endpoint
from topocal.topo.errors import FormatError, InputError, Where, one_line
from topocal.topo.io import decode_document, read_bytes
from topocal.topo.user_table import table_rows
from topocal.topo.user_text import user_text

__all__ = ["FORMAT", "VERSION", "parse_requests", "read_requests", "requests_to_document"]

FORMAT: Final = "topocal/requests"
VERSION: Final = 1

_COLUMNS: Final = ("parameter", "target", "holders", "origin", "shape", "element_bytes")
_REQUIRED: Final = ("parameter", "target", "holders", "shape", "element_bytes")
_REMEDY: Final = "give parameter, target, holders, shape and element_bytes, and if need be origin"
_INTEGER: Final = re.compile(r"[0-9]{1,18}")


def read_requests(
    path: str | Path, endpoints: Sequence[str], *, tell: Tell | None = None
) -> list[Request]:
    """The requests of a file.

    Parameters
    ----------
    endpoints
        Endpoint ids that requests may name.
    tell
        Is told in sentences what is passed over: columns of notes.

    Raises
    ------
    InputError
        When the file cannot be read.
    FormatError
        When it is neither form, or a field is missing, unknown or cannot be read.
    UnknownEndpointError
        When a request names no endpoint.
    """
    return parse_requests(read_bytes(path), endpoints, file=str(path), tell=tell)


def parse_requests(
    content: bytes, endpoints: Sequence[str], *, file: str, tell: Tell | None = None
) -> list[Request]:
    """As :func:`read_requests`, from the content of a file."""
    text = user_text(content, file=file, remedy="give JSON or CSV in UTF-8")
    names: dict[str, str] = {}

    def resolve(name: object) -> str:
        text = str(name) if type(name) is int else name
        if not isinstance(text, str) or not text.strip():
            raise FormatError(f"{one_line(name)!r} is no endpoint", remedy="give its id")
        if text not in names:
            names[text] = resolve_endpoint(text, endpoints)
        return names[text]

    if text.lstrip()[:1] in ("{", "["):
        rows = _json_rows(text.encode(), file, tell)
    else:
        rows = _csv_rows(text, file, tell)
    found = []
    for where, what, fields in rows:
        try:
            found.append(_request(fields, resolve))
        except InputError as error:
            if error.where is None:
                error.where = where
            error.what = f"{what}{error.what}"
            raise
    if not found:
        raise FormatError("has no requests", where=Where(file=file), remedy=_REMEDY)
    return found


def requests_to_document(requests: Sequence[Request]) -> dict[str, Any]:
    """Requests as the JSON values that :func:`read_requests` reads."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "requests": [
            {
                "parameter": request.parameter,
                "target": request.target,
                "holders": list(request.holders),
                "origin": list(request.origin),
                "shape": list(request.shape),
                "element_bytes": request.element_bytes,
            }
            for request in requests
        ],
    }


def _request(fields: dict[str, Any], resolve: Callable[[object], str]) -> Request:
    """One request.

    Raises
    ------
    InputError
        Without a place, which the caller knows.
    """
    for name in _REQUIRED:
        if fields.get(name) is None:
            raise FormatError(f"no {name}", remedy=_REMEDY)
    if not isinstance(fields["parameter"], str):
        raise FormatError("parameter is no text", remedy="give its name")
    if not isinstance(fields["holders"], list):
        raise FormatError("holders is no list", remedy="give a list of endpoints")
    shape = _integers(fields["shape"], "shape")
    origin = fields.get("origin")
    element_bytes = fields["element_bytes"]
    if type(element_bytes) is not int:
        raise FormatError("element_bytes is no whole number", remedy="give one, such as 2")
    return Request(
        parameter=fields["parameter"],
        target=resolve(fields["target"]),
        holders=tuple([resolve(name) for name in fields["holders"]]),
        origin=(0,) * len(shape) if origin is None else _integers(origin, "origin"),
        shape=shape,
        element_bytes=element_bytes,
    )


def _integers(value: object, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise FormatError(f"{name} is no list of whole numbers", remedy="give one, such as [0, 0]")
    return tuple(value)


def _json_rows(
    content: bytes, file: str, tell: Tell | None
) -> Iterator[tuple[Where, str, dict[str, Any]]]:
    """Place, words to name it, and fields of every request.

    Raises
    ------
    FormatError
        When it is not a file of requests.
    """
    where = Where(file=file)
    if f'"{FORMAT}"'.encode() not in content and b'"topocal/' not in content:
        _refuse_unmarked(content, where)
    document = decode_document(content, format=FORMAT, version=VERSION, file=file)
    for name in document:
        if name not in ("format", "version", "digest", "element_bytes", "requests"):
            raise FormatError(
                f"unknown field {one_line(name)!r}", where=where, remedy="leave it out"
            )
    items = document.get("requests")
    if not isinstance(items, list):
        raise FormatError("has no list of requests", where=where, remedy=_REMEDY)
    common = document.get("element_bytes")
    known: dict[tuple[str, ...], list[str]] = {}
    for number, item in enumerate(items):
        what = f"requests[{number}]: "
        if not isinstance(item, dict):
            raise FormatError(f"{what}is no object", where=where, remedy=_REMEDY)
        keys = tuple(item)
        if keys not in known:
            try:
                known[keys] = _known(keys, where, "field", None if known else tell)
            except FormatError as error:
                error.what = f"{what}{error.what}"
                raise
        fields = {key: item[own] for key, own in zip(known[keys], keys, strict=True) if key}
        if common is not None:
            fields.setdefault("element_bytes", common)
        yield where, what, fields


def _refuse_unmarked(content: bytes, where: Where) -> None:
    """JSON that does not say what it is; what is no JSON at all, its decoder tells better.

    Raises
    ------
    FormatError
        When it is JSON.
    """
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return
    raise FormatError(
        "does not say that it holds requests",
        where=where,
        remedy=f'write {{"format": "{FORMAT}", "version": {VERSION}, "requests": [...]}}',
    )


def _csv_rows(
    text: str, file: str, tell: Tell | None
) -> Iterator[tuple[Where, str, dict[str, Any]]]:
    """As :func:`_json_rows`, from a table.

    Raises
    ------
    FormatError
        When it is no table of requests.
    """
    header: list[str] = []
    for where, cells in table_rows(text, file=file):
        if not header:
            header = _known(cells, where, "column", tell)
            missing = [name for name in _REQUIRED if name not in header]
            if missing:
                raise FormatError(
                    f"no column {missing[0]} in the header {one_line(','.join(cells))!r}",
                    where=where,
                    remedy=_REMEDY,
                )
            continue
        fields = {name: cell for name, cell in zip(header, cells, strict=True) if name}
        yield where, "", {name: _cell(name, cell, where) for name, cell in fields.items()}


def _known(names: Sequence[str], where: Where, what: str, tell: Tell | None) -> list[str]:
    """Our names of columns or fields; empty for notes.

    Raises
    ------
    FormatError
        When one is unknown, or stands twice.
    """
    return know_columns(names, {name: name for name in _COLUMNS}, where=where, what=what, tell=tell)


def _cell(name: str, cell: str, where: Where) -> Any:
    """A cell as JSON would have it."""
    if name == "holders":
        return cell.split()
    if name not in ("origin", "shape", "element_bytes"):
        return cell
    words = cell.split()
    if not all(_INTEGER.fullmatch(word) for word in words):
        raise FormatError(
            f"{name} {one_line(cell)!r} is not whole numbers", where=where, remedy="such as 1024"
        )
    numbers = [int(word) for word in words]
    if name == "origin" and not numbers:
        return None
    if name != "element_bytes":
        return numbers
    return numbers[0] if len(numbers) == 1 else None

"""JSON that people write or change by hand: nothing in it stands twice, and mistakes have lines.

JSON itself lets an object name a field twice, and every decoder then takes one of the values
without a word.  A value that somebody thought was in force is then not: such a file is refused.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.user_text import user_text

__all__ = ["decode_json", "decoded_if_marked", "refuse_repeated_fields"]

_OFFSET: Final = re.compile(r" \(byte (\d+)\)")
"""Where msgspec says that it stopped."""

_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Byte order marks, which editors on Windows write."""

_TOKEN: Final = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}]', re.DOTALL)
"""A text, a field's name, or where an object begins or ends."""


class _RepeatedError(Exception):
    """An object names a field twice."""


def decode_json(content: str | bytes, *, file: str, remedy: str) -> Any:
    """The value that a text of JSON holds.

    Raises
    ------
    FormatError
        When it is not JSON, or an object in it names a field twice; with the line.
    """
    if isinstance(content, bytes) and content.startswith(_MARKS):
        content = user_text(content, file=file, remedy=remedy)
    try:
        value: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise FormatError(
            f"not a JSON file: {_OFFSET.sub('', one_line(error))}",
            where=Where(file=file, line=_line_of(error, content)),
            remedy=remedy,
        ) from error
    refuse_repeated_fields(content, file=file)
    return value


def decoded_if_marked(content: bytes) -> str | bytes:
    """Text, where a byte order mark says how bytes are to be read; else the bytes.

    >>> decoded_if_marked("{}".encode("utf-16")), decoded_if_marked(b"{}")
    ('{}', b'{}')
    """
    if not content.startswith(_MARKS):
        return content
    utf8 = content.startswith(_MARKS[0])
    return content.decode("utf-8-sig" if utf8 else "utf-16", errors="replace")


def refuse_repeated_fields(content: str | bytes, *, file: str) -> None:
    """Look through a text that is known to be JSON.

    Raises
    ------
    FormatError
        When an object names a field twice.
    """
    text = content if isinstance(content, str) else content.decode()
    # Numbers stay text: they are not looked at, and there is no number that is too long.
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_int=str, parse_float=str)
    try:
        decoder.decode(text)
    except _RepeatedError:
        name, line = _find_repeated(text)
        raise FormatError(
            f"field {one_line(name)!r} stands twice in one object",
            where=Where(file=file, line=line),
            remedy="keep one of the two",
        ) from None
    except RecursionError as error:
        raise FormatError(
            "is nested too deep", where=Where(file=file), remedy="nest it less"
        ) from error


def _once(fields: list[tuple[str, Any]]) -> None:
    if len(fields) > 1 and len({name for name, _ in fields}) < len(fields):
        raise _RepeatedError


def _find_repeated(text: str) -> tuple[str, int]:
    """The first field that stands twice in its object, and the line of the second."""
    open_objects: list[set[str]] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            open_objects.append(set())
        elif token[0] == "}":
            open_objects.pop()
        elif token[2]:
            name = json.loads(token[1])
            if name in open_objects[-1]:
                return name, text.count("\n", 0, token.start()) + 1
            open_objects[-1].add(name)
    raise AssertionError("no field stands twice")


def _line_of(error: Exception, content: str | bytes) -> int | None:
    offset = _OFFSET.search(str(error))
    if offset is None:
        return None
    encoded = content.encode() if isinstance(content, str) else content
    return encoded.count(b"\n", 0, int(offset[1])) + 1

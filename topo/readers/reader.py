"""What a reader is, and how a file becomes text that is safe to hand to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from topocal.topo.errors import FormatError, Where
from topocal.topo.files import read_limited
from topocal.topo.topology import Topology

__all__ = ["MAX_FILE_BYTES", "MAX_LINE_CHARACTERS", "Reader", "decode_text", "read_text"]

MAX_FILE_BYTES: Final = 16 * 2**20
"""Larger than any tool's output: hwloc writes 0.1 MB per node, lspci -vvv 0.5 MB."""

MAX_LINE_CHARACTERS: Final = 200_000
"""Longer than any tool's line; a row of ``topo -m`` takes 8 characters per device."""


class Parse(Protocol):
    """A pure parser: raises :class:`FormatError` and nothing else on any text."""

    def __call__(self, text: str, *, file: str) -> Topology: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One kind of output.

    Attributes
    ----------
    name
        What people write after ``--as``.
    title
        The command that prints it.
    looks_like
        Whether a text is of this kind; must be cheap and never raise.
    parse
        The parser.
    """

    name: str
    title: str
    looks_like: Callable[[str], bool]
    parse: Parse


def read_text(path: str | Path) -> str:
    """The text of a file that is small enough and is text at all.

    Raises
    ------
    InputError
        When it cannot be read.
    FormatError
        When it is empty, binary, too large or has a line longer than any tool writes.
    """
    content = read_limited(path, MAX_FILE_BYTES + 1)
    return decode_text(content, file=str(path))


def decode_text(content: bytes, *, file: str) -> str:
    """Text from bytes: UTF-8 with or without BOM, UTF-16 with BOM (Windows), else Latin-1.

    Line ends become ``\\n``.

    Raises
    ------
    FormatError
        As :func:`read_text`.
    """
    where = Where(file=file)
    if len(content) > MAX_FILE_BYTES:
        raise FormatError(
            f"larger than {MAX_FILE_BYTES >> 20} MiB",
            where=where,
            remedy="give the output of one tool",
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
    if "\0" in text:
        raise FormatError("is a binary file", where=where, remedy="give a tool's text output")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise FormatError("is empty", where=where, remedy="give a tool's output")
    longest = max(map(len, text.split("\n")))
    if longest > MAX_LINE_CHARACTERS:
        raise FormatError(
            f"has a line of {longest} characters",
            where=where,
            remedy="give a tool's output as it was printed",
        )
    return text

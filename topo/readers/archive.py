"""Reading a tar archive from strangers into memory: nothing is unpacked to disk.

Sizes are bounded before and after unpacking; links, devices and names that
lead out of the archive are refused.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Final

from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.files import read_limited

__all__ = [
    "MAX_MEMBERS",
    "MAX_PACKED_BYTES",
    "MAX_UNPACKED_BYTES",
    "inflate",
    "is_tar",
    "read_archive",
    "unpack",
]

MAX_PACKED_BYTES: Final = 16 * 2**20
MAX_UNPACKED_BYTES: Final = 64 * 2**20
"""A machine with 1000 PCI functions makes 10,000 small files, about 10 MB in blocks of tar."""

MAX_MEMBERS: Final = 50_000
_LONGEST_NAME: Final = 1024
_LONGEST_HEADER: Final = 65_536
_BLOCK: Final = 512
_PLAIN: Final = (b"0", b"\0", b"7")
"""Types of plain files: POSIX's, the oldest, and "contiguous", which nobody distinguishes."""

_GZIP: Final = b"\x1f\x8b"
_USTAR: Final = (257, b"ustar")
_REMEDY: Final = "give a file that `topocal gather` wrote"


def is_tar(content: bytes) -> bool:
    """Whether a content that is not compressed is a tar archive.

    >>> is_tar(b"GPU0")
    False
    """
    place, magic = _USTAR
    return content[place : place + len(magic)] == magic


def read_archive(path: str | Path) -> dict[str, bytes]:
    """The files in an archive, by name.

    Raises
    ------
    InputError
        When it cannot be read.
    FormatError
        As :func:`unpack`.
    """
    return unpack(read_limited(path, MAX_PACKED_BYTES + 1), file=str(path))


def unpack(content: bytes, *, file: str) -> dict[str, bytes]:
    """The files in an archive, by name.

    Parameters
    ----------
    content
        A tar archive, compressed by gzip or not.
    file
        What messages call it.

    Raises
    ------
    FormatError
        When it is damaged, too large, or holds anything but plain files and
        directories with names inside it.
    """
    return _members(inflate(content, file=file), Where(file=file))


def inflate(content: bytes, *, file: str) -> bytes:
    """What a gzip file holds; any other content as it is.

    Raises
    ------
    FormatError
        When it is damaged or too large.
    """
    where = Where(file=file)
    if not content.startswith(_GZIP):
        return content
    if len(content) > MAX_PACKED_BYTES:
        raise FormatError(f"larger than {MAX_PACKED_BYTES >> 20} MiB", where=where, remedy=_REMEDY)
    return _inflate(content, where)


def _inflate(content: bytes, where: Where) -> bytes:
    """Unpack gzip up to the limit, so that a bomb costs no more than that."""
    parts: list[bytes] = []
    room = MAX_UNPACKED_BYTES
    waiting = content
    while waiting:
        machine = zlib.decompressobj(wbits=31)
        try:
            part = machine.decompress(waiting, room + 1)
        except zlib.error as error:
            raise FormatError(
                f"a damaged archive: {one_line(error)}", where=where, remedy="get it again"
            ) from error
        room -= len(part)
        if room < 0:
            raise FormatError(
                f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB", where=where, remedy=_REMEDY
            )
        if not machine.eof:
            raise FormatError("the archive is cut off", where=where, remedy="get it again")
        parts.append(part)
        # Several streams may follow each other; zeros after the last are padding.
        waiting = machine.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _members(content: bytes, where: Where) -> dict[str, bytes]:
    """Files of a POSIX or GNU tar archive.

    Python's own tarfile can be made to search or loop for minutes by a damaged
    header (CVE-2024-6232, CVE-2025-8194) in releases that this project runs on;
    plain files need only this.
    """

    def refuse(what: str) -> FormatError:
        return FormatError(what, where=where, remedy=_REMEDY)

    found: dict[str, bytes] = {}
    long_name: str | None = None
    position = count = 0
    while True:
        header = content[position : position + _BLOCK]
        if len(header) < _BLOCK:
            raise FormatError("the archive is cut off", where=where, remedy="get it again")
        if not any(header):
            return found
        if not _checksum_holds(header):
            raise refuse("is no tar archive, or a damaged one")
        count += 1
        if count > MAX_MEMBERS:
            raise refuse(f"holds more than {MAX_MEMBERS} files")
        size = _octal(header[124:136])
        if size is None:
            raise refuse("a damaged archive: a file without a size")
        start = position + _BLOCK
        data = content[start : start + size]
        position = start + -(-size // _BLOCK) * _BLOCK
        kind = header[156:157]
        if kind in (b"L", b"x", b"g"):
            if size > _LONGEST_HEADER:
                raise refuse("a damaged archive: a header of " + str(size) + " bytes")
            long_name = _long_name(kind, data) or long_name
            continue
        name, long_name = long_name or _header_name(header), None
        inner = _inner_name(name)
        if inner is None:
            raise refuse(f"holds a file named {one_line(name)!r}, outside of itself")
        if kind == b"5" or (kind in _PLAIN and name.endswith("/")):
            continue
        if kind not in _PLAIN:
            raise refuse(f"{one_line(inner)} in it is a link or device, not a plain file")
        if inner in found:
            raise refuse(f"holds {one_line(inner)} twice")
        if len(data) < size:
            raise FormatError("the archive is cut off", where=where, remedy="get it again")
        found[inner] = data


def _checksum_holds(header: bytes) -> bool:
    stated = _octal(header[148:156])
    return stated == sum(header[:148]) + 8 * ord(" ") + sum(header[156:])


def _octal(digits: bytes) -> int | None:
    text = digits.strip(b" \0")
    return int(text, 8) if re.fullmatch(rb"[0-7]{1,12}", text) else None


def _header_name(header: bytes) -> str:
    name = _text(header[:100])
    # Only POSIX archives ("ustar", NUL) keep the beginning of a long name here.
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _long_name(kind: bytes, data: bytes) -> str | None:
    """The name of the next file: GNU's ``L`` holds it alone, POSIX's ``x`` as a record."""
    if kind == b"L":
        return _text(data)
    if kind == b"g":
        return None
    match = re.search(rb"(?:^|\n)[0-9]{1,6} path=([^\n]{1,4096})\n", data)
    return None if match is None else _text(match[1])


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", errors="replace")


def _inner_name(name: str) -> str | None:
    """A name without ``./``; ``None`` for one that leads out of the archive."""
    parts = name.split("/")
    odd = len(name) > _LONGEST_NAME or "\0" in name or "\\" in name or name.startswith("/")
    if odd or ".." in parts:
        return None
    return "/".join(p for p in parts if p not in ("", "."))

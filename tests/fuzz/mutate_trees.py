"""Changing what holds other things: elements of XML, members of an archive."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from xml.etree import ElementTree

__all__ = ["changed_archive", "changed_xml"]

_ODD_NAMES: Final = (
    "", ".", "..", "/", "../x", "/etc/passwd", "a/../../b", "sys/../../x", "x" * 300, "a\x1bb",
    "outputs/..", "sys//bus/pci", "topocal.json", "TOPOCAL.JSON", "C:\\x", "é" * 90, "./sys/bus",
)  # fmt: skip
_TYPES: Final = (
    tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE,
    tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
)  # fmt: skip

_MOST: Final = 2**20
"""Bytes of an archive that is changed by its members."""


def changed_xml(
    content: bytes, rng: random.Random, word: Callable[[random.Random], str]
) -> bytes | None:
    """A document with elements or attributes that are gone, doubled, moved or others."""
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError):
        return None
    for _ in range(rng.randint(1, 3)):
        inner = [(parent, child) for parent in root.iter() for child in parent]
        every = list(root.iter())
        element = rng.choice(every)
        kind = rng.randrange(8)
        if kind < 4 and element.attrib:
            name = rng.choice(sorted(element.attrib))
            other = rng.choice(every)
            match kind:
                case 0:
                    element.attrib[name] = word(rng)
                case 1:
                    del element.attrib[name]
                case 2:
                    values = list(other.attrib.values()) or ["0"]
                    element.attrib[name] = rng.choice(values)
                case _:
                    element.attrib[name] = _nudged(element.attrib[name], rng)
        elif kind == 4 and inner:
            parent, child = rng.choice(inner)
            parent.remove(child)
        elif kind == 5 and inner:
            parent, child = rng.choice(inner)
            parent.append(child)
        elif kind == 6 and inner:
            _, child = rng.choice(inner)
            if element not in child.iter():
                element.append(child)
        else:
            element.tag = rng.choice(every).tag
    try:
        return ElementTree.tostring(root, encoding="utf-8")
    except (ValueError, TypeError, RecursionError):
        return None


def _nudged(text: str, rng: random.Random) -> str:
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return str(int(text) + rng.choice((-1, 1, 1 << 40)))
    return rng.choice((text[:-1], text + text, text.swapcase(), "0x" + text, "-" + text))


def changed_archive(
    content: bytes, rng: random.Random, change: Callable[[bytes, random.Random], bytes]
) -> bytes | None:
    """An archive with members that are gone, doubled, renamed, changed, or no files at all."""
    if len(content) < 20 or (content[:2] != b"\x1f\x8b" and content[257:262] != b"ustar"):
        return None
    members: list[tuple[tarfile.TarInfo, bytes]] = []
    with suppress(tarfile.TarError, OSError, EOFError, ValueError, zlib.error):
        raw = content[:_MOST]
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as packed_file:
                raw = packed_file.read(_MOST)
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                held = archive.extractfile(member) if member.isreg() else None
                members.append((member, held.read(_MOST) if held else b""))
    if not members:
        return None
    for _ in range(rng.randint(1, 3)):
        k = rng.randrange(len(members))
        member, held_bytes = members[k]
        match rng.randrange(8):
            case 0:
                members.append(members[k])
            case 1 if len(members) > 1:
                del members[k]
            case 2:
                member.name = rng.choice((*_ODD_NAMES, rng.choice(members)[0].name))
            case 3:
                member.type = rng.choice(_TYPES)
                member.linkname = rng.choice(("/etc/passwd", "../x", member.name))
            case 4:
                member.name = change(member.name.encode(), rng).decode("utf-8", "replace")[:400]
            case _:
                members[k] = (member, change(held_bytes, rng))
    packed = io.BytesIO()
    try:
        with tarfile.open(fileobj=packed, mode="w", format=rng.choice((0, 1, 2))) as archive:
            for member, held_bytes in members:
                member.size = len(held_bytes) if member.isreg() else 0
                archive.addfile(member, io.BytesIO(held_bytes))
    except (ValueError, UnicodeError, OverflowError, OSError):
        return None
    plain = packed.getvalue()
    return plain if rng.random() < 0.5 else gzip.compress(plain, 1, mtime=0)

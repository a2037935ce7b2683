"""Digests of files that we write: whether what is read is what was written.

The digest of a document is the SHA-256 of it without the digest, written as
``json.dumps(document, sort_keys=True, separators=(",", ":"))`` of Python's standard library:
ASCII only, no blanks, floats in their shortest form.  It does not depend on layout or on the
order of keys, and anybody can check it in one line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from topocal.topo.errors import FormatError, Where, one_line

__all__ = ["DIGEST", "check_digest", "digest_of", "digest_of_bytes", "with_digest"]

DIGEST: Final = "digest"
"""The field of a document that holds its digest."""

_PREFIX: Final = "sha256:"
_SHOWN: Final = len(_PREFIX) + 8


def digest_of_bytes(content: bytes) -> str:
    """Digest of bytes as they are.

    >>> digest_of_bytes(b"")[:15]
    'sha256:e3b0c442'
    """
    return _PREFIX + hashlib.sha256(content).hexdigest()


def digest_of(document: Mapping[str, Any]) -> str:
    """Digest of a document of JSON values, whatever digest it states itself.

    Raises
    ------
    ValueError, TypeError, RecursionError
        When it has no JSON form: a figure that is not finite, a nesting without end.
    """
    content = {k: v for k, v in document.items() if k != DIGEST}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return digest_of_bytes(text.encode("ascii"))


def with_digest(document: dict[str, Any]) -> dict[str, Any]:
    """A document that names its format, with the digest of what will be read back.

    Any other stays as it is, and so does one whose digest means something else.

    Raises
    ------
    ValueError, TypeError, RecursionError
        When the document holds what JSON cannot.
    """
    if "format" not in document or DIGEST in document:
        return document
    head: dict[str, Any] = {k: v for k, v in document.items() if k in ("format", "version")}
    stated = digest_of(msgspec.json.decode(msgspec.json.encode(document)))
    return {**head, DIGEST: stated, **document}


def check_digest(
    document: Mapping[str, Any], *, where: Where, remedy: str, required: bool = False
) -> None:
    """Refuse a document whose content is not what its digest says.

    Parameters
    ----------
    remedy
        What to do about it.
    required
        Whether one without a digest is refused too.

    Raises
    ------
    FormatError
        When it was changed or damaged since it was written.
    """
    if DIGEST not in document and not required:
        return
    stated = document.get(DIGEST)
    try:
        found = digest_of(document)
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            "was changed or damaged: its content has no digest", where=where, remedy=remedy
        ) from error
    if stated != found:
        raise FormatError(
            f"was changed or damaged: its content has digest {found[:_SHOWN]}… and it says "
            f"{one_line(stated)[:_SHOWN]}…",
            where=where,
            remedy=remedy,
        )

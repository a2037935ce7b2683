"""Text that people write: tables and JSON, whichever editor saved them.

Byte order marks, UTF-16 (Windows) and any line ends are understood; anything else is not text.
What tools print is another matter (:func:`topocal.topo.readers.reader.decode_text`).
"""

from __future__ import annotations

from topocal.topo.errors import FormatError, Where

__all__ = ["user_text"]

_REMEDY = "give text in UTF-8"


def user_text(content: bytes, *, file: str, remedy: str = _REMEDY) -> str:
    """The text of a file, its lines ending in ``\\n``.

    Raises
    ------
    FormatError
        When it is not text.
    """
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            text = content.decode("utf-16")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(
            "is not text", where=Where(file=file, line=line), remedy=remedy
        ) from error
    if "\0" in text:
        raise FormatError("is a binary file", where=Where(file=file), remedy=remedy)
    return text.replace("\r\n", "\n").replace("\r", "\n")

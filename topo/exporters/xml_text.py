"""Text in XML: names come from files, and may hold anything."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import quoteattr

__all__ = ["comment_lines", "quoted", "xml_safe"]

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may hold, escaped or not (XML 1.0, section 2.2)."""


def xml_safe(text: object) -> str:
    """Text with what XML cannot hold replaced, on one line.

    >>> xml_safe("a\\x00b\\nc")
    'a?b c'
    """
    return " ".join(_NOT_XML.sub("?", str(text)).split("\n")).replace("\r", " ").replace("\t", " ")


def quoted(text: object) -> str:
    """An attribute's value with its quotes.

    >>> quoted('a->"b"')
    '\\'a-&gt;"b"\\''
    """
    return quoteattr(xml_safe(text))


def comment_lines(lines: list[str]) -> list[str]:
    """Lines as an XML comment, which may hold no double hyphen.

    >>> comment_lines(["a -- b"])
    ['<!--', '  a - - b', '-->']
    """
    clean = [re.sub("-(?=-)", "- ", xml_safe(line)) for line in lines]
    return ["<!--", *(f"  {line}" for line in clean), "-->"]

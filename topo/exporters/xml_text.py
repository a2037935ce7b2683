"""Text in XML: names come from files, and may hold anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

__all__ = ["attributes", "comment_lines", "quoted", "xml_safe"]

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may hold, escaped or not (XML 1.0, section 2.2)."""


def xml_safe(text: object) -> str:
    """Text with what XML cannot hold replaced, on one line.

    >>> xml_safe("a\\x00b\\nc")
    'a?b c'
    """
    return " ".join(_NOT_XML.sub("?", str(text)).split("\n")).replace("\r", " ").replace("\t", " ")


def quoted(text: object) -> str:
    """An attribute's value with its quotes; always double ones, which is all that NCCL reads.

    >>> print(quoted("a->'b'"), quoted(chr(34)))
    "a-&gt;'b'" "&quot;"
    """
    return f'"{escape(xml_safe(text), {chr(34): "&quot;"})}"'


def attributes(found: Mapping[str, Any]) -> str:
    """Attributes of an element, each after a blank; those that are ``None`` are left out.

    >>> attributes({"a": 1, "b": None, "c": 2.5})
    ' a="1" c="2.5"'
    """
    return "".join(f" {key}={quoted(value)}" for key, value in found.items() if value is not None)


def comment_lines(lines: list[str]) -> list[str]:
    """Lines as an XML comment, which may hold no double hyphen.

    >>> comment_lines(["a -- b"])
    ['<!-- a - - b', '-->']
    """
    clean = [re.sub("-(?=-)", "- ", xml_safe(line)) for line in lines]
    first, *others = clean
    return [f"<!-- {first}", *(f"     {line}" for line in others), "-->"]

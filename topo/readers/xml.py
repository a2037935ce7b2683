"""XML from strangers, read safely: a small tree of elements with line numbers.

Nothing outside the text is ever opened: a document type may be named (hwloc
names one) but is not fetched, and declaring an entity is refused, which rules
out both external entities and entity bombs.  Depth and size are limited, so
that whoever walks the tree may recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from topocal.topo.errors import FormatError, Where, one_line

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "Element", "parse_xml"]

MAX_DEPTH: Final = 200
"""Deeper than any machine: hwloc nests about 20 levels, NCCL about 10."""

MAX_ELEMENTS: Final = 200_000
"""More than any machine: hwloc writes about 20 elements per hardware thread."""

_CUT_OFF: Final = frozenset(
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


@dataclass(slots=True, eq=False)
class Element:
    """One element.

    Attributes
    ----------
    tag
        Its name.
    attributes
        Its attributes, in the order they are written.
    line
        Line of its start tag, from 1.
    children
        Elements in it, in order.
    text
        All character data directly in it, joined.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def get(self, name: str, default: str = "") -> str:
        """An attribute without surrounding blanks, or ``default`` where it is missing."""
        return self.attributes.get(name, default).strip()

    def all(self, *tags: str) -> list[Element]:
        """Children of these names, in order."""
        return [child for child in self.children if child.tag in tags]

    def walk(self) -> Iterator[Element]:
        """This element and everything below it, in document order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))


class _TreeBuilder:
    """Collects what expat reports."""

    def __init__(self, parser: expat.XMLParserType, file: str, first_line: int) -> None:
        self._parser = parser
        self._file = file
        self._first_line = first_line
        self._open: list[tuple[Element, list[str]]] = []
        self._count = 0
        self.root: Element | None = None
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped

    @property
    def line(self) -> int:
        return self._first_line + self._parser.CurrentLineNumber - 1

    @property
    def unclosed(self) -> Element | None:
        """The innermost element that has not ended."""
        return self._open[-1][0] if self._open else None

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise FormatError(what, where=Where(file=self._file, line=self.line), remedy=remedy)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            self._refuse(f"has more than {MAX_ELEMENTS} elements", "give the output of one machine")
        if len(self._open) >= MAX_DEPTH:
            self._refuse(
                f"nests elements deeper than {MAX_DEPTH}", "give a tool's output as it was written"
            )
        element = Element(tag, attributes, self.line)
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.root = element
        self._open.append((element, []))

    def _end(self, _tag: str) -> None:
        element, parts = self._open.pop()
        element.text = "".join(parts)

    def _data(self, data: str) -> None:
        self._open[-1][1].append(data)

    def _entity(self, name: str, *_declaration: object) -> None:
        self._refuse(
            f"declares the entity {one_line(name)!r}, which no topology tool does",
            "remove the declaration, or get the file from the tool itself",
        )

    def _skipped(self, name: str, _is_parameter: object) -> None:
        self._refuse(f"uses the unknown entity {one_line(name)!r}", "write the character itself")


def parse_xml(text: str, *, file: str) -> Element:
    """The root element of an XML document.

    Lines before the first that begins with ``<`` and after the last ``>`` (a
    shell prompt around a paste) are passed over.

    Parameters
    ----------
    text
        The document.
    file
        What messages call it.

    Raises
    ------
    FormatError
        When it is not well-formed or is cut off (with the line), declares an
        entity, or is nested deeper or has more elements than any tool writes.
    """
    if "<" not in text:
        raise FormatError("is not XML", where=Where(file=file), remedy="give an XML file")
    start, first_line = _first_tag(text)
    tail = text.rfind(">") + 1
    body = text[start:] if "<" in text[tail:] else text[start:tail]
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    builder = _TreeBuilder(parser, file, first_line)
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        line = first_line + error.lineno - 1
        raise _malformed(error, builder.unclosed, Where(file=file, line=line)) from error
    except UnicodeEncodeError as error:
        raise FormatError(
            "contains characters that no text has",
            where=Where(file=file),
            remedy="give a tool's output as it was written",
        ) from error
    if builder.root is None:  # expat reports a document without an element itself
        raise FormatError("has no element", where=Where(file=file), remedy="give an XML file")
    return builder.root


def _first_tag(text: str) -> tuple[int, int]:
    """Where the document begins, and on which line (from 1)."""
    start, line = 0, 1
    for number, row in enumerate(text.split("\n"), start=1):
        stripped = row.lstrip(" \t\ufeff")
        if stripped.startswith("<"):
            return start + len(row) - len(stripped), number
        start += len(row) + 1
    return 0, line


def _malformed(error: expat.ExpatError, unclosed: Element | None, where: Where) -> FormatError:
    """What expat found, in words that name the remedy."""
    if error.code in _CUT_OFF:
        inside = f" inside <{one_line(unclosed.tag)}> of line {unclosed.line}" if unclosed else ""
        return FormatError(
            f"the XML is cut off{inside}", where=where, remedy="get the whole file again"
        )
    return FormatError(
        f"not well-formed XML: {expat.ErrorString(error.code)}",
        where=where,
        remedy="get the file from the tool again, or mend that line",
    )

"""What a drawing is made of: boxes, lines and texts at places, without any format.

Lengths are pixels.  Text widths are estimated from above for common sans-serif
fonts, so that what does not overlap here does not overlap on screen.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

__all__ = [
    "Box",
    "Curve",
    "Drawing",
    "Line",
    "Text",
    "each_way",
    "shorten",
    "shorten_apart",
    "text_width",
]

FONT: Final = 12.0
"""Size of ordinary text."""
SMALL: Final = 11.0
"""Size of what is said of links; nothing is smaller."""

_EM: Final = 0.62
"""Width of an average character in DejaVu Sans, the widest of the usual fonts, by its size."""
_WIDE: Final = 1.05
"""The same for East Asian and other wide characters."""


def text_width(text: str, size: float = FONT) -> float:
    """An upper estimate of how wide a text is."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (_EM * (len(text) - wide) + _WIDE * wide)


def shorten(text: str, longest: int = 40) -> str:
    """A text on one printable line, cut in its middle to at most ``longest`` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(flat) <= longest:
        return flat
    head = longest // 2
    return f"{flat[:head]}…{flat[len(flat) - (longest - head - 1) :]}"


def shorten_apart(texts: Sequence[str], longest: int = 40) -> list[str]:
    """As :func:`shorten`, but so that texts which differ still do: in place of their middle,
    what they begin with in common is cut.

    >>> shorten_apart(["accelerator-0-of-the-first-row", "accelerator-1-of-the-first-row"], 14)
    ['acce…0-of-the…', 'acce…1-of-the…']
    """
    cut = [shorten(text, longest) for text in texts]
    if len(set(cut)) == len(set(texts)):
        return cut
    first, last = min(texts), max(texts)
    alike = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    common = first[:alike].rstrip("0123456789")
    head = common[: longest // 3]
    if len(head) + 1 >= len(common):
        return cut
    found = []
    for text in texts:
        apart = f"{head}…{text[len(common) :]}"
        found.append(shorten(apart[: longest - 1] + "…" * (len(apart) >= longest), longest))
    return found if len(set(found)) > len(set(cut)) else cut


def each_way(text: str, count: int) -> str:
    """A link's description for a legend: per direction, and how many there are."""
    direction = " each way" if text.endswith("B/s") else ""
    return f"{text or 'link'}{direction}" + (f" ({count} links)" if count > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle; ``style`` names its look."""

    x: float
    y: float
    width: float
    height: float
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A straight line; ``thick`` is its width."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: str
    thick: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve from one point to another by a control point (quadratic Bézier)."""

    x1: float
    y1: float
    cx: float
    cy: float
    x2: float
    y2: float
    style: str
    thick: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One line of text; x is its start, middle or end as ``anchor`` says, y its baseline.

    ``turn`` is degrees clockwise around (x, y).
    """

    x: float
    y: float
    text: str
    style: str = "text"
    size: float = FONT
    anchor: str = "start"
    turn: float = 0.0

    @property
    def left(self) -> float:
        """Where the text begins, when it is not turned."""
        width = text_width(self.text, self.size)
        return self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]


@dataclass(slots=True)
class Drawing:
    """Shapes on a page of a certain size, painted in the order lines, boxes, texts."""

    width: float = 0.0
    height: float = 0.0
    lines: list[Line] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)

    def label(self, box: Box, text: str, size: float = FONT) -> None:
        """Add a box with a text in its middle."""
        self.boxes.append(box)
        self.texts.append(
            Text(
                x=box.x + box.width / 2,
                y=box.y + box.height / 2 + 0.36 * size,
                text=text,
                size=size,
                anchor="middle",
                style="on-box",
            )
        )

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Add all of another drawing, moved."""
        self.lines += (
            replace(s, x1=s.x1 + x, y1=s.y1 + y, x2=s.x2 + x, y2=s.y2 + y) for s in other.lines
        )
        self.curves += (
            replace(
                s,
                x1=s.x1 + x,
                y1=s.y1 + y,
                cx=s.cx + x,
                cy=s.cy + y,
                x2=s.x2 + x,
                y2=s.y2 + y,
            )
            for s in other.curves
        )
        self.boxes += (replace(s, x=s.x + x, y=s.y + y) for s in other.boxes)
        self.texts += (replace(s, x=s.x + x, y=s.y + y) for s in other.texts)

    def fit(self, margin: float) -> None:
        """Make the page hold everything, with a margin to the right and below."""
        right = [b.x + b.width for b in self.boxes]
        right += [t.left + text_width(t.text, t.size) for t in self.texts if not t.turn]
        right += [max(line.x1, line.x2) for line in self.lines]
        right += [max(c.x1, c.x2, (c.x1 + 2 * c.cx + c.x2) / 4) for c in self.curves]
        below = [b.y + b.height for b in self.boxes] + [t.y + 4 for t in self.texts if not t.turn]
        below += [max(line.y1, line.y2) for line in self.lines]
        self.width = max([self.width, *(r + margin for r in right)])
        self.height = max([self.height, *(b + margin for b in below)])

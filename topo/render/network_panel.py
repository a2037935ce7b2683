"""The switches of a network in columns: those with ports nearest to the machines first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from topocal.topo.naming import natural_key
from topocal.topo.render.drawing import SMALL, Box, Curve, Drawing, Line, Text, each_way, text_width
from topocal.topo.render.outline import Connection, Outline
from topocal.topo.render.sharing import list_names

__all__ = ["Tier", "draw_network", "tiers_of"]

_MOST_BOXES: Final = 40
"""A tier of more switches is one box that says how many they are."""
_HEIGHT: Final = 40.0
_GAP: Final = 12.0
_COLUMN_GAP: Final = 110.0


@dataclass(frozen=True, slots=True)
class Tier:
    """Switches equally far from the machines.

    Attributes
    ----------
    switches
        Their ids, in natural order.
    attached
        For each, what is said of the endpoints plugged into it.
    """

    switches: tuple[str, ...]
    attached: dict[str, str]

    @property
    def is_folded(self) -> bool:
        """Whether it is drawn as one box."""
        return len(self.switches) > _MOST_BOXES


def tiers_of(outline: Outline) -> list[Tier]:
    """Switches by their distance from endpoints, nearest first."""
    switches = set(outline.switches)
    beside: dict[str, set[str]] = defaultdict(set)
    ports: dict[str, set[str]] = defaultdict(set)
    for link in outline.network:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if end in switches:
                (beside if other in switches else ports)[end].add(other)
    left = set(outline.switches)
    rank = [s for s in outline.switches if ports[s]] or list(outline.switches[:1])
    tiers = []
    while rank:
        left -= set(rank)
        attached = {s: list_names(ports[s]) for s in rank if ports[s]}
        tiers.append(Tier(tuple(rank), attached))
        rank = sorted({n for s in rank for n in beside[s]} & left, key=natural_key)
    if left:
        tiers.append(Tier(tuple(sorted(left, key=natural_key)), {}))
    return tiers


def draw_network(
    outline: Outline, name_of: Callable[[str], str], height: float
) -> tuple[Drawing, dict[str, tuple[float, float]]]:
    """The switches and the links among them.

    Parameters
    ----------
    outline
        With at least one switch.
    name_of
        What is written in a switch's box.
    height
        Height to spread the columns over, where they need less.

    Returns
    -------
    The drawing, and the middle of the left edge of each switch's box.
    """
    tiers = tiers_of(outline)
    drawing = Drawing()
    boxes: dict[str, Box] = {}
    full = max(
        [height, *((_HEIGHT + _GAP) * (1 if t.is_folded else len(t.switches)) for t in tiers)]
    )
    x = 0.0
    for tier in tiers:
        x += _draw_tier(drawing, tier, name_of, x, full, boxes) + _COLUMN_GAP
    _draw_links(drawing, outline.network, boxes)
    _legend(drawing, outline.network, full)
    drawing.fit(0.0)
    return drawing, {s: (b.x, b.y + b.height / 2) for s, b in boxes.items()}


def _draw_tier(
    drawing: Drawing,
    tier: Tier,
    name_of: Callable[[str], str],
    x: float,
    full: float,
    boxes: dict[str, Box],
) -> float:
    """Boxes of one tier in a column; its width."""
    rows = (
        [(list_names(tier.switches), "")]
        if tier.is_folded
        else [(name_of(s), tier.attached.get(s, "")) for s in tier.switches]
    )
    rows = [(name, _cut(words)) for name, words in rows]
    width = max(max(text_width(name) + 18, text_width(words, SMALL)) for name, words in rows)
    step = full / len(rows)
    for k, (name, words) in enumerate(rows):
        y = step * (k + 0.5) - 11
        box = Box(x=x, y=y, width=width, height=22, style="node net-switch")
        drawing.label(box, name)
        if words:
            drawing.texts.append(
                Text(x=x, y=y + 22 + SMALL + 1, text=words, style="quiet", size=SMALL)
            )
        boxes.update(
            dict.fromkeys(tier.switches, box) if tier.is_folded else {tier.switches[k]: box}
        )
    return width


def _cut(words: str) -> str:
    return words if len(words) <= 34 else words[:33] + "…"


def _draw_links(drawing: Drawing, links: tuple[Connection, ...], boxes: dict[str, Box]) -> None:
    drawn = set()
    for link in links:
        if link.a not in boxes or link.b not in boxes:
            continue
        a, b = sorted((boxes[link.a], boxes[link.b]), key=lambda box: (box.x, box.y))
        ends = (a.x, a.y, b.x, b.y)
        if a == b or ends in drawn:
            continue
        drawn.add(ends)
        y1, y2 = a.y + a.height / 2, b.y + b.height / 2
        if a.x == b.x:
            # Of one tier: a bow at the right, the further apart the wider.
            right = a.x + a.width
            reach = min(24 + 0.35 * (y2 - y1), 1.8 * _COLUMN_GAP)
            drawing.curves.append(
                Curve(
                    x1=right,
                    y1=y1,
                    cx=right + reach,
                    cy=(y1 + y2) / 2,
                    x2=right,
                    y2=y2,
                    style="net",
                    thick=1.2,
                )
            )
        else:
            drawing.lines.append(
                Line(x1=a.x + a.width, y1=y1, x2=b.x, y2=y2, style="net", thick=1.2)
            )


def _legend(drawing: Drawing, links: tuple[Connection, ...], top: float) -> None:
    counts: dict[str, int] = defaultdict(int)
    for link in links:
        counts[link.text] += 1
    y = top + 20
    for text, count in sorted(counts.items(), key=lambda item: -item[1])[:6]:
        drawing.lines.append(Line(x1=0, y1=y - 4, x2=22, y2=y - 4, style="net", thick=1.5))
        words = each_way(text, count)
        drawing.texts.append(Text(x=28, y=y, text=words, style="quiet", size=SMALL))
        y += 17

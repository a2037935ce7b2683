"""Cards that are joined to each other directly, as a ring: an arc for each direction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from topocal.report.cells import Cell, Cells
from topocal.topo.naming import natural_key
from topocal.topo.render.outline import Connection

__all__ = ["MOST_ON_A_RING", "RING_HEIGHT", "Arc", "Dot", "Ring", "draw_ring"]

MOST_ON_A_RING: Final = 32
RING_HEIGHT: Final = 290.0
_CENTRE_X: Final = 172.0
_RADIUS: Final = 104.0
_BOW: Final = 0.10
"""How far an arc stands out from the straight line, by its length; the other direction of a
connection stands out at the other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """One direction of a connection, from its tail to its head."""

    x1: float
    y1: float
    cx: float
    cy: float
    x2: float
    y2: float
    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A card on the ring; its name stands outside."""

    x: float
    y: float
    node: str
    name: str
    name_x: float
    name_y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Ring:
    """Arcs and dots, in the coordinates of the drawing."""

    arcs: tuple[Arc, ...]
    dots: tuple[Dot, ...]


def draw_ring(peers: tuple[Connection, ...], names: dict[str, str], cells: Cells) -> Ring:
    """The ring of a fabric without switches.

    Parameters
    ----------
    peers
        Its connections.
    names
        What to call each card.
    """
    ends = sorted({end for link in peers for end in (link.a, link.b)}, key=natural_key)
    centre_y = RING_HEIGHT / 2
    turn = {e: 2 * math.pi * (k + 0.5) / len(ends) - math.pi / 2 for k, e in enumerate(ends)}

    def at(angle: float, radius: float) -> tuple[float, float]:
        return _CENTRE_X + radius * math.cos(angle), centre_y + radius * math.sin(angle)

    arcs = []
    for link in peers:
        for tail, head in ((link.a, link.b), (link.b, link.a)):
            cell = cells.between(tail, head)
            if cell is None:
                continue
            (x1, y1), (x2, y2) = at(turn[tail], _RADIUS), at(turn[head], _RADIUS)
            arcs.append(
                Arc(
                    x1=x1,
                    y1=y1,
                    cx=(x1 + x2) / 2 - _BOW * (y2 - y1),
                    cy=(y1 + y2) / 2 + _BOW * (x2 - x1),
                    x2=x2,
                    y2=y2,
                    cell=cell,
                )
            )
    dots = []
    for end, angle in turn.items():
        (x, y), (name_x, name_y) = at(angle, _RADIUS), at(angle, _RADIUS + 13)
        across = math.cos(angle)
        anchor = "middle" if abs(across) < 0.3 else "start" if across > 0 else "end"
        drop = 4 + 5 * math.sin(angle) if anchor == "middle" else 4
        dots.append(
            Dot(
                x=x,
                y=y,
                node=end,
                name=names[end],
                name_x=name_x,
                name_y=name_y + drop,
                anchor=anchor,
            )
        )
    return Ring(tuple(arcs), tuple(dots))

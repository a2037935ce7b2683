"""The trees of a machine, drawn from left to right: sockets, bridges, switches, endpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from topocal.topo.render.drawing import SMALL, Box, Curve, Drawing, Line, Text, text_width
from topocal.topo.render.outline import Branch, Machine

__all__ = ["Ends", "draw_trees"]

_ROW: Final = 26.0
"""Height that an endpoint takes."""
_INNER: Final = 50.0
"""Height that a switch, bridge or socket takes at least."""
_BOX: Final = 20.0
_COLUMN_GAP: Final = 34.0
_ROOT_GAP: Final = 14.0
_BOW: Final = 28.0
"""How far the control point of a bow stands out; the bow itself half as far."""
_BOWS: Final = 4
"""Bows further out than so many begin again at the first."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a line to the right of a node may begin: behind its box and what is said of it."""

    right: dict[str, tuple[float, float]]


def draw_trees(
    machine: Machine, name_of: Callable[[str], str], note_of: Callable[[str], str]
) -> tuple[Drawing, Ends]:
    """Trees of a machine and the links between its sockets.

    Parameters
    ----------
    machine
        What to draw.
    name_of
        What is written in a node's box.
    note_of
        What is written beside an endpoint, after its link.

    Returns
    -------
    The drawing, and where lines to the right of each node may begin.
    """
    return _Trees(machine, name_of, note_of).draw()


class _Trees:
    def __init__(
        self, machine: Machine, name_of: Callable[[str], str], note_of: Callable[[str], str]
    ) -> None:
        self._machine = machine
        self._name, self._note = name_of, note_of
        self._drawing = Drawing()
        self._heights: dict[str, float] = {}
        self._middle: dict[str, float] = {}
        self._boxes: dict[str, Box] = {}
        self._columns: list[float] = []
        self._ends: dict[str, tuple[float, float]] = {}

    def draw(self) -> tuple[Drawing, Ends]:
        ranks: list[list[Branch]] = []
        rank = list(self._machine.roots)
        while rank:
            ranks.append(rank)
            rank = [child for branch in rank for child in branch.children]
        self._measure(ranks)
        left = self._socket_margin()
        top = 0.0
        for root in self._machine.roots:
            self._middle[root.node] = top + self._heights[root.node] / 2
            top += self._heights[root.node] + _ROOT_GAP
        for level in ranks:
            self._place_children(level)
        for level in ranks:
            boxed = max(text_width(self._name(branch.node)) for branch in level) + 18
            for branch in level:
                self._node(branch, left, boxed)
            left += max(boxed, *map(self._words_below, level)) + _COLUMN_GAP
            self._columns.append(left)
        for level, column in zip(ranks, self._columns, strict=True):
            for branch in level:
                self._stems(branch, column)
        for level in ranks:
            for branch in level:
                self._words(branch)
        self._between_sockets()
        self._second_parents()
        self._drawing.fit(0.0)
        return self._drawing, Ends(self._ends)

    def _measure(self, ranks: list[list[Branch]]) -> None:
        for level in reversed(ranks):
            for branch in level:
                below = sum(self._heights[child.node] for child in branch.children)
                own = _ROW if branch.kind.is_endpoint and not branch.children else _INNER
                self._heights[branch.node] = max(own, below)

    @staticmethod
    def _words_below(branch: Branch) -> float:
        """Width of what is written under a switch, bridge or socket."""
        if branch.connection is None or branch.kind.is_endpoint:
            return 0.0
        return text_width(branch.connection.text, SMALL)

    def _place_children(self, level: list[Branch]) -> None:
        for branch in level:
            below = sum(self._heights[child.node] for child in branch.children)
            top = self._middle[branch.node] - below / 2
            for child in branch.children:
                self._middle[child.node] = top + self._heights[child.node] / 2
                top += self._heights[child.node]

    def _node(self, branch: Branch, x: float, width: float) -> None:
        y = self._middle[branch.node] - _BOX / 2
        box = Box(x=x, y=y, width=width, height=_BOX, style=f"node {branch.kind}")
        self._boxes[branch.node] = box
        self._ends[branch.node] = (x + width, self._middle[branch.node])
        self._drawing.label(box, self._name(branch.node))

    def _stems(self, branch: Branch, column: float) -> None:
        """Lines to the children by right angles, so that they cross no box."""
        if not branch.children:
            return
        box = self._boxes[branch.node]
        start, y = box.x + box.width, self._middle[branch.node]
        turn = column - _COLUMN_GAP / 2 - 2
        heights = [self._middle[child.node] for child in branch.children]
        line = self._drawing.lines.append
        line(Line(x1=start, y1=y, x2=turn, y2=y, style="link"))
        line(Line(x1=turn, y1=min([y, *heights]), x2=turn, y2=max([y, *heights]), style="link"))
        for child, at in zip(branch.children, heights, strict=True):
            line(Line(x1=turn, y1=at, x2=self._boxes[child.node].x, y2=at, style="link"))

    def _words(self, branch: Branch) -> None:
        """What a node's link passes: beside an endpoint, under anything else."""
        box = self._boxes[branch.node]
        words = branch.connection.text if branch.connection is not None else ""
        if branch.kind.is_endpoint:
            note = self._note(branch.node)
            text = " · ".join(part for part in (words, note) if part)
            x, y = box.x + box.width + 8, self._middle[branch.node] + 0.36 * SMALL
            if branch.children:
                x, y = box.x, box.y + box.height + SMALL
        else:
            text, x, y = words, box.x, box.y + box.height + SMALL + 1
        if text:
            self._drawing.texts.append(Text(x=x, y=y, text=text, style="quiet", size=SMALL))
            if x > box.x:
                right = x + text_width(text, SMALL) + 6
                self._ends[branch.node] = (right, self._middle[branch.node])

    def _socket_margin(self) -> float:
        """Room left of the sockets for the links between them."""
        words = [text_width(c.text, SMALL) for c in self._machine.sockets]
        return max(words) + 12 + self._bow_room() if words else 0.0

    def _bow_room(self) -> float:
        far = sum(not self._are_neighbours(c.a, c.b) for c in self._machine.sockets)
        return _BOW / 2 * min(far, _BOWS) + 6 if far else 0.0

    def _are_neighbours(self, a: str, b: str) -> bool:
        roots = [root.node for root in self._machine.roots]
        return a in roots and b in roots and abs(roots.index(a) - roots.index(b)) == 1

    def _between_sockets(self) -> None:
        """Neighbours by a straight line, others by a bow at the left; each wording once."""
        said: set[str] = set()
        bows = 0
        for link in self._machine.sockets:
            if link.a not in self._boxes or link.b not in self._boxes:
                continue
            upper, lower = sorted((self._boxes[link.a], self._boxes[link.b]), key=lambda b: b.y)
            if not self._are_neighbours(link.a, link.b):
                bows += 1
                self._bow(upper, lower, (bows - 1) % _BOWS + 1)
                continue
            x, y1, y2 = upper.x + 8, upper.y + upper.height, lower.y
            self._drawing.lines.append(Line(x1=x, y1=y1, x2=x, y2=y2, style="smp", thick=2.5))
            if link.text not in said:
                said.add(link.text)
                self._drawing.texts.append(
                    Text(
                        x=upper.x - 4 - self._bow_room(),
                        y=(y1 + y2) / 2 + 4,
                        text=link.text,
                        style="quiet",
                        size=SMALL,
                        anchor="end",
                    )
                )

    def _bow(self, upper: Box, lower: Box, step: int) -> None:
        y1, y2 = upper.y + upper.height / 2, lower.y + lower.height / 2
        self._drawing.curves.append(
            Curve(
                x1=upper.x,
                y1=y1,
                cx=upper.x - _BOW * step,
                cy=(y1 + y2) / 2,
                x2=lower.x,
                y2=y2,
                style="smp",
                thick=2.0,
            )
        )

    def _second_parents(self) -> None:
        for link in self._machine.others:
            if link.a in self._boxes and link.b in self._boxes:
                a, b = self._boxes[link.a], self._boxes[link.b]
                self._drawing.lines.append(
                    Line(
                        x1=a.x + a.width / 2,
                        y1=a.y + a.height / 2,
                        x2=b.x + b.width / 2,
                        y2=b.y + b.height / 2,
                        style="link dashed",
                    )
                )

"""What a drawing says of the resources at one place: their capacity, how well it is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from topocal.report.families import Families
from topocal.report.words import OPEN, Unit, capacity_words
from topocal.solve.model import FittedResource, Model
from topocal.solve.status import Status
from topocal.topo.render.sharing import list_names
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["NETWORK", "Cell", "Cells"]

NETWORK: Final = "*"
"""Stands for every network switch where a machine that is drawn once meets the network."""

_THINNEST: Final = 1.5
_THICKEST: Final = 4.0
_WEAKEST_FIRST: Final = (
    Status.UNKNOWN,
    Status.ASSUMED,
    Status.ALIKE,
    Status.BOUNDED,
    Status.SERIES,
    Status.CONFOUNDED,
    Status.PINNED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The resources at one place of a drawing, in one direction.

    Attributes
    ----------
    resources
        Their ids.
    text
        What they pass, in the report's unit.
    status
        What that rests on; where they differ, the weakest.
    thick
        Width of their line: the more they pass the wider.
    hint
        Everything in words.
    """

    resources: tuple[str, ...]
    text: str
    status: Status
    thick: float
    hint: str


class Cells:
    """Makes the cells of one model, links of machines that look alike together.

    Parameters
    ----------
    model, unit, families
        What is drawn, and how.
    """

    def __init__(self, model: Model, unit: Unit, families: Families) -> None:
        self._model, self._unit = model, unit
        known = [r.capacity_Bps for r in model.resources.values() if r.capacity_Bps]
        self._most_Bps = max(known, default=1.0)
        self._on_links: dict[tuple[str, str], list[str]] = defaultdict(list)
        places: dict[str, set[frozenset[str]]] = defaultdict(set)
        graph = model.topology.graph
        switches = {n for n, k in graph.nodes(data="kind") if k is NodeKind.NET_SWITCH}
        for link in model.topology.links.values():
            ends = [families.node(link.tail), families.node(link.head)]
            if link.kind is LinkKind.NET and sum(e in switches for e in ends) == 1:
                ends = [NETWORK if e in switches else e for e in ends]
            for name, _ in link.uses:
                self._on_links[ends[0], ends[1]].append(name)
                places[name].add(frozenset((link.tail, link.head)))
        self.shared = tuple(name for name, where in places.items() if len(where) > 1)
        """Resources that several links load."""

    def between(self, tail: str, head: str) -> Cell | None:
        """What links from one drawn node to another pass; ``None`` where there are none."""
        return self.of(self._on_links.get((tail, head), ()))

    def among(self, pairs: Iterable[tuple[str, str]]) -> Cell | None:
        """The same for several links at once."""
        return self.of([name for pair in pairs for name in self._on_links.get(pair, ())])

    def of(self, names: Iterable[str]) -> Cell | None:
        """The cell of some resources; ``None`` where there are none."""
        ids = tuple(dict.fromkeys(names))
        if not ids:
            return None
        table = [self._model.resources[name] for name in ids]
        rates = [r.capacity_Bps for r in table if r.capacity_Bps is not None]
        found = Counter(r.status for r in table)
        status = min(found, key=_WEAKEST_FIRST.index)
        return Cell(
            resources=ids,
            text=self._text(table, rates, set(found)),
            status=status,
            thick=self._thickness(max(rates, default=0.0)),
            hint=self._hint(table, rates, found),
        )

    def _text(self, table: list[FittedResource], rates: list[float], statuses: set[Status]) -> str:
        kappas = [r.kappa for r in table if r.kappa is not None]
        if kappas:
            low, high = f"{min(kappas):.2f}", f"{max(kappas):.2f}"
            return f"× {low}" if low == high else f"× {low}–{high}"
        if not rates:
            return "?"
        least = "≥ " if statuses <= set(OPEN) else ""
        return least + self._unit.span(min(rates), max(rates))

    def _thickness(self, rate_Bps: float) -> float:
        return _THINNEST + (_THICKEST - _THINNEST) * math.sqrt(rate_Bps / self._most_Bps)

    def _hint(self, table: list[FittedResource], rates: list[float], found: Counter[Status]) -> str:
        if len(table) == 1:
            (one,) = table
            return f"{one.label}: {capacity_words(one, self._unit)}, {one.status}"
        span = (
            f"{self._unit.span(min(rates), max(rates))} {self._unit.name}" if rates else "unknown"
        )
        statuses = ", ".join(f"{n} {status}" for status, n in found.most_common())
        return f"{list_names([r.id for r in table][:40])}: {span}; {statuses}"

"""Resources that no link shows, at the endpoint that loads them, or by themselves.

A sender's routes inside its socket, a receiver that serves one flow at a time: the law
knows them by :class:`topocal.topo.resource.Use`, the drawing puts them under their endpoint.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from topocal.report.cells import Cell, Cells
from topocal.report.families import Families
from topocal.solve.model import Model
from topocal.topo.render.sharing import list_names
from topocal.topo.resource import Sharing

__all__ = ["Part", "Rules", "find_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A line about an endpoint, or about something shared.

    Attributes
    ----------
    words
        What it is.
    sends, receives
        What it passes, on the side that it is about.
    """

    words: str
    sends: Cell | None = None
    receives: Cell | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Lines by endpoint, and those of no single endpoint."""

    of_endpoint: dict[str, tuple[Part, ...]]
    shared: tuple[Part, ...]


_SHORTER: Final = (("inside its ", "within "), ("to another ", "to other "))
"""Words that are too long for a line of a card."""


def find_rules(model: Model, families: Families, cells: Cells) -> Rules:
    """Sort the resources that no link shows."""
    senders: dict[str, set[str] | None] = {}
    receivers: dict[str, set[str] | None] = {}
    for use in model.topology.uses:
        for table, names in ((senders, use.sources), (receivers, use.destinations)):
            known = table.get(use.resource, set())
            table[use.resource] = None if names is None or known is None else known | set(names)
    own: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    shared = list(cells.shared)
    for name in senders:
        for side, ends in ((True, senders[name]), (False, receivers[name])):
            if ends is not None and len(ends) == 1:
                (end,) = ends
                words = _words(model, name, end, sends=side)
                own[families.node(end), words, side].append(name)
                break
        else:
            shared.append(name)
    found: dict[str, list[Part]] = defaultdict(list)
    alike = {folded.names[0]: len(folded.names) for folded in families.machines}
    for (end, words, side), members in own.items():
        cell = cells.of(members)
        if len(members) < alike.get(end.rpartition("/")[0], 1):
            # Of like hosts only some have it.
            hosts = list_names({member.rpartition("/")[0] for member in members} - {""})
            words = f"{words.removesuffix(' in all')}, {hosts}" if hosts else words
        found[end].append(
            Part(words=words, sends=cell) if side else Part(words=words, receives=cell)
        )
    parts = [
        Part(words=model.resources[name].label, receives=cells.of([name]))
        for name in dict.fromkeys(shared)
    ]
    return Rules({end: tuple(lines) for end, lines in found.items()}, tuple(parts))


def _words(model: Model, name: str, end: str, *, sends: bool) -> str:
    """A resource's label without the endpoint that it stands under."""
    verb = "sends" if sends else "receives"
    if model.resources[name].sharing is Sharing.TIME_SHARED:
        return f"{verb} by turns"
    rest = " ".join(model.resources[name].label.replace(end, " ").split())
    role = "sender" if sends else "receiver"
    rest = rest.removeprefix(role).strip()
    for long, short in _SHORTER:
        rest = rest.replace(long, short)
    return rest or f"{verb} in all"

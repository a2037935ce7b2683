"""Cards that sit apart by their rates alone, where no topology says where they sit.

The groups are those of :mod:`topocal.solve.groups`; they are a finding where everything inside
them is faster than anything between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity, Shown
from topocal.solve.words import ranges
from topocal.topo.resource import NodeKind

__all__ = ["find_groups_apart"]

APART: Final = math.log(1.1)
"""Like pairs of steady machines agree within 5 %; twice that is another way."""

HALF: Final = 0.5
"""Less than half between groups is more than a hop between sockets costs on sound machines."""

_MOST: Final = 4


def find_groups_apart(evidence: Evidence) -> list[Finding]:
    """Groups of cards that are near each other, and what is lost between them."""
    groups = [g for g in _groups(evidence) if len(g) > 1]
    members = {card: k for k, group in enumerate(groups) for card in group}
    cards = [e for e in evidence.endpoints if not evidence.is_host(e)]
    if len(groups) < 2 or len(members) < len(cards):
        return []
    inside: list[float] = []
    between: list[float] = []
    for (a, b), rate in evidence.rates.items():
        if a in members and b in members:
            (inside if members[a] == members[b] else between).append(rate)
    threshold = max(APART, evidence.margin(len(evidence.rates)))
    if not inside or not between or math.log(min(inside) / max(between)) < threshold:
        return []
    middle = sorted(between)[len(between) // 2] / sorted(inside)[len(inside) // 2]
    shown = "; ".join(ranges(g) for g in groups[:_MOST]) + "; …" * (len(groups) > _MOST)
    why = (
        "links of their own, or a poor way between sockets, make it so"
        if middle < HALF
        else "sockets or switches make it so"
    )
    text = (
        f"By their rates the cards sit in groups ({shown}): {evidence.span(inside)} inside, "
        f"{evidence.span(between)} between ({1 - middle:.0%} less). {why[0].upper()}{why[1:]}; a "
        "topology would tell which."
    )
    return [
        Finding(
            kind=FindingKind.APART,
            severity=Severity.WARNING if middle < HALF else Severity.NOTE,
            about=tuple(members),
            text=text,
            evidence=tuple(
                Shown(name=f"{side} the groups", rate_Bps=rate)
                for side, rate in (("inside", min(inside)), ("between", max(between)))
            ),
        )
    ]


def _groups(evidence: Evidence) -> Iterator[list[str]]:
    """Cards by the group that was made of the figures."""
    graph = evidence.topology.graph
    for name, kind in graph.nodes(data="kind"):
        if kind is NodeKind.GROUP:
            mine = [e for e in evidence.endpoints if graph.has_edge(e, name)]
            yield [e for e in mine if not evidence.is_host(e)]

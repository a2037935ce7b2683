"""Cards that are slow with everybody but each other: what they share on the way out is slow.

Such cards sit behind one switch, or are fast with each other alone.  Each of them has a fast
partner, so that none is slow by itself, and every pair of theirs that leaves is slow, so that
they all seem to be.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from topocal.solve.alike_pairs import by_ends, in_groups
from topocal.solve.evidence import Evidence, Finding, FindingKind, Pair, Severity
from topocal.solve.words import ranges
from topocal.topo.resource import NodeKind, PathClass

__all__ = ["find_slow_uplinks", "ways_out"]

SLOW: Final = math.log(0.8)
"""The next lower width or generation of a link halves it; ordinary scatter takes a tenth."""

FEWEST_OUTSIDE: Final = 3
"""Cards besides the group; of two nothing tells which of the two groups is slow."""

_CLASSES: Final = (PathClass.PIX, PathClass.PXB, PathClass.PHB)
_SHOWN: Final = 8


def ways_out(evidence: Evidence, group: Collection[str]) -> list[Pair]:
    """Pairs of cards of which one is in a group and the other is not."""
    inside = set(group)
    return [
        p
        for p in evidence.rates
        if (p[0] in inside) != (p[1] in inside) and not any(map(evidence.is_host, p))
    ]


def find_slow_uplinks(evidence: Evidence) -> list[Finding]:
    """Groups of cards of which every pair that leaves is slower than its like, both ways, and
    every pair inside is not."""
    cards = [e for e in evidence.endpoints if not evidence.is_host(e)]
    found: list[Finding] = []
    told: set[str] = set()
    for group in _candidates(evidence, cards):
        others = len(cards) - len(group)
        # Of two halves that nobody but their rates tells apart neither is the slow one.
        smaller = len(group) < others or (len(group) == others and not evidence.has_groups)
        if len(group) < 2 or not smaller or others < FEWEST_OUTSIDE:
            continue
        finding = _slow_uplink(evidence, group, cards)
        if finding is not None and not told & set(group):
            told.update(group)
            found.append(finding)
    return found


def _slow_uplink(evidence: Evidence, group: list[str], cards: list[str]) -> Finding | None:
    rates, mine = evidence.rates, set(group)
    inside = [rates[p] for p in rates if set(p) <= mine]
    out = ways_out(evidence, group)
    everyone = 2 * len(group) * (len(cards) - len(group))
    threshold = max(-SLOW, evidence.margin(len(rates)))
    if not inside or len(out) < everyone or evidence.no_peer & set(out):
        return None
    leaving = set(out)
    compared: list[Pair] = []
    like: list[Pair] = []
    for pairs in (by_ends if evidence.has_groups else in_groups)(evidence).values():
        ours = [p for p in pairs if p in leaving]
        others = [p for p in pairs if not mine & set(p)]
        if not ours or not others:
            continue
        if math.log(min(rates[p] for p in others) / max(rates[p] for p in ours)) < threshold:
            return None
        compared += ours
        like += others
    if not compared or math.log(min(inside) / max(rates[p] for p in out)) < threshold:
        return None
    reads = [rates[p] for p in out]
    switch = _switch(evidence, group)
    shared = "what joins them to the rest, such as an uplink"
    where = f"the uplink of {switch}" if switch else shared
    share = max(rates[p] for p in compared) / min(rates[p] for p in like)
    return Finding(
        kind=FindingKind.SLOW_UPLINK,
        severity=Severity.SERIOUS if share <= 0.55 else Severity.WARNING,
        about=tuple(group),
        text=(
            f"{ranges(group)} send to and receive from everybody else at {evidence.span(reads)}, "
            f"where like pairs of the others read {evidence.span([rates[p] for p in like])}, and "
            f"read {evidence.span(inside)} between them. The limit is what they share on the way "
            f"out: look at {where} (width, generation, riser, slot), not at their own links."
        ),
        evidence=tuple(evidence.shown(p) for p in out[:_SHOWN]),
    )


def _candidates(evidence: Evidence, cards: list[str]) -> Iterator[list[str]]:
    """Cards near each other by the topology, the nearest first, then by their rates."""
    if evidence.has_groups:
        yield from _fast_together(evidence, cards)
        return
    routes = evidence.topology.routes(tuple(cards)) if cards else None
    for code in _CLASSES:
        left = list(cards)
        while left and routes is not None:
            first = left[0]
            near = [
                c
                for c in left
                if c == first
                or PathClass.PIX <= int(routes.path_class.flat[routes.pair_index(first, c)]) <= code
            ]
            left = [c for c in left if c not in near]
            yield near
    yield from _fast_together(evidence, cards)


def _fast_together(evidence: Evidence, cards: list[str]) -> Iterator[list[str]]:
    """Cards that are faster with each other than each of them is with any of the rest."""
    rates = evidence.rates
    by_card: dict[str, dict[str, float]] = defaultdict(dict)
    for a in cards:
        for b in cards:
            if (a, b) in rates and (b, a) in rates:
                by_card[a][b] = min(rates[a, b], rates[b, a])
    fast: dict[str, frozenset[str]] = {}
    for card, with_others in by_card.items():
        limit = min(with_others.values()) * math.exp(-SLOW)
        fast[card] = frozenset({card} | {c for c, rate in with_others.items() if rate > limit})
    for group in dict.fromkeys(fast.values()):
        if all(fast.get(c) == group for c in group):
            yield [c for c in cards if c in group]


def _switch(evidence: Evidence, group: list[str]) -> str:
    """The one PCIe switch that all of a group hang below; empty where none is known."""
    graph = evidence.topology.graph
    above = [
        {n for n in graph.successors(c) if graph.nodes[n]["kind"] is NodeKind.PCIE_SWITCH}
        for c in group
    ]
    common = set.intersection(*above)
    return common.pop() if len(common) == 1 else ""

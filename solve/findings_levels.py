"""Pairs that should read alike and do not: which read what.

Stragglers and slow directions aside, like pairs are sorted by rate.  Where a few differ they
are named; otherwise the levels are told that the pairs fall into, with the pairs of each, and
whether the levels are multiples of the lowest, as parallel links make them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final

from topocal.solve.alike_pairs import by_ends, in_groups
from topocal.solve.evidence import Evidence, Finding, FindingKind, Pair, Severity, listed
from topocal.solve.findings_host import find_slow_host_links
from topocal.solve.findings_pairs import UNLIKE, named_before
from topocal.solve.words import pairs_in_words
from topocal.topo.resource import NodeKind, PathClass

__all__ = ["find_unlike_pairs", "levels"]

FEW: Final = 0.25
"""Up to this share of a group deviate; above it, the group as a whole varies."""

STEP: Final = math.log(1.05)
"""Rates further apart than this are two levels: like pairs of steady machines agree within 5 %
(docs/model.md)."""

MOST_LEVELS: Final = 6
"""With more levels than this the step is widened: nobody reads more."""

WHOLE: Final = 0.08
"""Parallel links pass whole multiples of one but for this: published MI250X cards read 4.05,
2.05 and 1.90 times what one link passes."""

MOST_LINKS: Final = 8
"""No published card has more links to one other."""

DOUBLE: Final = math.log(2.0)

_SHOWN: Final = 8


def levels(rates: Sequence[float], step: float = STEP) -> list[list[int]]:
    """Numbers of the rates in groups that a step apart from each other, the fastest first.

    >>> levels([50.0, 26.0, 51.0])
    [[2, 0], [1]]
    """
    order = sorted(range(len(rates)), key=lambda k: -rates[k])
    while True:
        found: list[list[int]] = []
        for k in order:
            if found and math.log(rates[found[-1][-1]] / rates[k]) <= step:
                found[-1].append(k)
            else:
                found.append([k])
        if len(found) <= MOST_LEVELS:
            return found
        step *= 1.5


def find_unlike_pairs(evidence: Evidence) -> list[Finding]:
    """Pairs that the topology says are alike and that do not read alike."""
    found = _unlike_of(evidence, _groups(evidence))
    cards = [f for f in found if not any(map(evidence.is_host, f.about))]
    if evidence.has_groups and len(cards) > 1:
        # What sets the groups apart is as much of the answer as what differs inside them.
        return _unlike_of(evidence, list(by_ends(evidence).values()))
    return found


def _unlike_of(evidence: Evidence, by_kind: list[list[Pair]]) -> list[Finding]:
    named = named_before(evidence)
    placed = any(f.kind is FindingKind.FAR_HOST for f in find_slow_host_links(evidence))
    groups = [
        kept
        for pairs in by_kind
        if len(kept := [p for p in pairs if p not in named]) > 2
        and not (placed and any(map(evidence.is_host, kept[0])))
        # Sums of both directions stand twice, once for each.
        and not (evidence.is_both_ways and evidence.is_host(kept[0][1]))
    ]
    threshold = max(UNLIKE, evidence.margin(sum(len(g) for g in groups)))
    found = []
    for group in groups:
        usual = median(evidence.rates[p] for p in group)
        off = {p: math.log(evidence.rates[p] / usual) for p in group}
        odd = sorted((p for p in group if abs(off[p]) > threshold), key=lambda p: -abs(off[p]))
        if odd:
            found.append(_unlike(evidence, group, odd, threshold))
    return found


def _groups(evidence: Evidence) -> list[list[Pair]]:
    """Pairs that are compared with each other.

    Sums of both directions say nothing of senders, and groups that were made out of them promise
    nothing: then all cards are compared, and their levels are the answer.  So are they where two
    cards were made a group because they are slow together.
    """
    merged = evidence.has_groups and (evidence.is_both_ways or _has_a_slow_group(evidence))
    return list((by_ends if merged else in_groups)(evidence).values())


def _has_a_slow_group(evidence: Evidence) -> bool:
    """Whether a single group that was made out of the figures is two cards that are slow together,
    and fast with all others."""
    graph, rates = evidence.topology.graph, evidence.rates
    groups = [
        [e for e in evidence.endpoints if graph.has_edge(e, n) and not evidence.is_host(e)]
        for n, kind in graph.nodes(data="kind")
        if kind is NodeKind.GROUP
    ]
    pairs = [group for group in groups if len(group) == 2]
    slow = 0
    for a, b in pairs:
        inside = [rates[p] for p in ((a, b), (b, a)) if p in rates]
        out = [
            r
            for p, r in rates.items()
            if len({a, b} & set(p)) == 1 and not any(map(evidence.is_host, p))
        ]
        slow += bool(inside and out and max(inside) < min(out))
    return slow == 1


def _unlike(evidence: Evidence, group: list[Pair], odd: list[Pair], threshold: float) -> Finding:
    rates = [evidence.rates[p] for p in group]
    spread = math.log(max(rates) / min(rates))
    if len(odd) <= FEW * len(group):
        apart = set(odd)
        others = [evidence.rates[p] for p in group if p not in apart]
        read = "reads" if _count(evidence, odd) == 1 else "read"
        text = (
            f"Of {_what(evidence, group)}, {_which(evidence, odd)} {read} "
            f"{evidence.span([evidence.rates[p] for p in odd])}, where the others read "
            f"{evidence.span(others)}."
        )
    else:
        text = f"{_by_level(evidence, group)}{_whose(evidence, group, threshold)}."
    return Finding(
        kind=FindingKind.UNLIKE,
        # Without a topology many that differ may be built so.
        severity=Severity.SERIOUS
        if spread >= DOUBLE and (len(odd) <= FEW * len(group) or not evidence.has_groups)
        else Severity.WARNING,
        about=tuple(dict.fromkeys(n for p in odd for n in p))[:_SHOWN],
        text=text[0].upper() + text[1:] if not text.startswith("gpu") else text,
        evidence=tuple(evidence.shown(p) for p in odd[:_SHOWN]),
    )


def _which(evidence: Evidence, pairs: Sequence[Pair]) -> str:
    both = [p[::-1] for p in pairs] if evidence.is_both_ways else []
    return pairs_in_words({*pairs, *both})


def _count(evidence: Evidence, pairs: Sequence[Pair]) -> int:
    return len({frozenset(p) for p in pairs}) if evidence.is_both_ways else len(pairs)


def _what(evidence: Evidence, group: Sequence[Pair]) -> str:
    host = any(evidence.is_host(n) for n in group[0])
    pairs = f"{_count(evidence, group)} {'pairs with the host' if host else 'pairs'}"
    if evidence.has_groups:
        return f"the {pairs} that no topology tells apart"
    routes = evidence.topology.routes(evidence.endpoints)
    code = PathClass(int(routes.path_class.flat[routes.pair_index(*group[0])]))
    return f"the {pairs} over {code.name} that the topology makes alike"


def _by_level(evidence: Evidence, group: Sequence[Pair]) -> str:
    rates = [evidence.rates[p] for p in group]
    found = levels(rates)
    if len(found) == 1:
        return f"{_what(evidence, group)} read {evidence.span(rates)}"
    parts = []
    for level in found:
        pairs = [group[k] for k in level]
        which = _which(evidence, pairs)
        parts.append(f"{evidence.span([rates[k] for k in level])} ({which})")
    text = f"{_what(evidence, group)} read at {len(found)} levels: {listed(parts)}"
    return text + _as_links([median(rates[k] for k in level) for level in found])


def _as_links(rates: Sequence[float]) -> str:
    """Whether the levels are as many parallel links would make them, and how many."""
    least = rates[-1]
    times = [max(1, round(rate / least)) for rate in rates]
    off = [abs(rate / least / n - 1.0) for rate, n in zip(rates, times, strict=True)]
    several = dict.fromkeys(times)
    if max(off) > WHOLE or max(times) > MOST_LINKS or len(several) < 2:
        return ""
    return f". That is about {listed(map(str, several))} times the least, as so many links do"


def _whose(evidence: Evidence, group: Sequence[Pair], threshold: float) -> str:
    """Whether the rate depends on one end alone, which then is what limits it."""
    if evidence.is_both_ways:
        return ""
    for end, word in ((0, "sender"), (1, "receiver")):
        by_end: dict[str, list[float]] = defaultdict(list)
        for pair in group:
            by_end[pair[end]].append(evidence.rates[pair])
        several = {name: rates for name, rates in by_end.items() if len(rates) > 1}
        apart = [n for n, r in several.items() if max(r) / min(r) > math.exp(threshold)]
        if len(several) > 2 and len(apart) <= FEW * len(several):
            but = f" but {listed(apart)}" if apart else ""
            return f"; those of each {word}{but} agree, so the limit is the {word}'s"
    return ""

"""What was measured, in a few lines: the figures by kind, and what they cannot show.

Always told, also where nothing is wrong: somebody who asks why a machine is slow wants to
know first how fast it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from topocal.measure.patterns import PatternKind, kind_of
from topocal.solve.evidence import Concurrent, Evidence, Pair, listed, span
from topocal.solve.findings_levels import levels
from topocal.solve.findings_links import pcie_states
from topocal.solve.words import pairs_in_words, pattern_in_words
from topocal.topo.resource import PathClass
from topocal.topo.units import format_rate

__all__ = ["blind_spot", "overview", "quiet"]

_MOST: Final = 4

LESS: Final = 0.05
"""What a class of routes reads less than the nearest: like pairs agree within that."""

NARROW_BPS: Final = 8e9
"""Less than what PCIe generation 3 x16 or any newer x8 passes to half: cards of this age that read
less sit on narrow links."""

LEAST_CARDS: Final = 4
"""Two pairs without a common card need four."""


def overview(evidence: Evidence) -> tuple[str, ...]:
    """The figures by kind, each in a line."""
    return (*_pairs(evidence), *_both_ways(evidence), *_several(evidence))


def _pairs(evidence: Evidence) -> Iterator[str]:
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(evidence.pair_rates_Bps):
        by_kind[_way(evidence, pair)].append(pair)
    for what, pairs in by_kind.items():
        rates = [evidence.rates[p] for p in pairs]
        if len(pairs) == 1:
            yield f"{'->'.join(pairs[0])}: {span(rates)}{_as_pcie(evidence, pairs)}"
            continue
        line = f"{len(pairs)} {what}, one at a time: {span(rates)}"
        if by_class := _by_class(evidence, pairs):
            line += f" ({by_class})"
        elif len(found := levels(rates)) > 1:
            line += f" ({_by_level(evidence, pairs, found)})"
        yield line + _as_pcie(evidence, pairs)


def _as_pcie(evidence: Evidence, pairs: Sequence[Pair]) -> str:
    """Narrow links that would pass what the slowest pairs read; empty where some are fast."""
    staged = evidence.no_peer or evidence.topology.graph.graph.get("peer_access") is False
    rates = [evidence.rates[p] for p in pairs]
    slowest = min(rates)
    host = any(map(evidence.is_host, pairs[0]))
    if (staged and not host) or max(rates) > NARROW_BPS:
        return ""
    states = pcie_states(slowest)
    return f"; {format_rate(slowest)} is what PCIe {' or '.join(states)} passes" if states else ""


def _way(evidence: Evidence, pair: Pair) -> str:
    host = [evidence.is_host(end) for end in pair]
    if all(host):
        return "pairs of host memories"
    if host[0]:
        return "copies from the host"
    return "copies to the host" if host[1] else "pairs"


def _by_class(evidence: Evidence, pairs: Sequence[Pair]) -> str:
    """Spans by path class, where a topology was given and has several."""
    topology = evidence.topology
    if evidence.has_groups:
        return ""
    routes = topology.routes(evidence.endpoints)
    found: dict[int, list[float]] = defaultdict(list)
    for pair in pairs:
        code = int(routes.path_class.flat[routes.pair_index(*pair)])
        found[code].append(evidence.rates[pair])
    if len(found) < 2:
        return ""
    ordered = sorted(found.items())
    first = median(ordered[0][1])
    parts = []
    for code, rates in ordered:
        less = 1.0 - median(rates) / first
        off = f", {less:.0%} less" if less > LESS else ""
        parts.append(f"{PathClass(code).name} {span(rates)}{off}")
    return "; ".join(parts)


def _by_level(evidence: Evidence, pairs: Sequence[Pair], found: Sequence[Sequence[int]]) -> str:
    parts = []
    for level in found:
        which = _which(found, level, pairs_in_words([pairs[k] for k in level], evidence.endpoints))
        parts.append(f"{span([evidence.rates[pairs[k]] for k in level])} {which}")
    return "; ".join(parts[:_MOST]) + ("; …" if len(parts) > _MOST else "")


def _which(found: Sequence[Sequence[int]], level: Sequence[int], words: str) -> str:
    """A level's pairs in words; "the others" for the most of them, where words would be cut."""
    is_most = len(level) == max(map(len, found)) and len(level) > 1
    return "the others" if is_most and words.endswith(" more") else words


def _both_ways(evidence: Evidence) -> Iterator[str]:
    by_kind: dict[bool, dict[frozenset[str], Concurrent]] = {False: {}, True: {}}
    for c in evidence.concurrent:
        if kind_of(c.pattern) is PatternKind.BOTH_WAYS:
            ends = c.pattern.pairs[0]
            by_kind[any(map(evidence.is_host, ends))].setdefault(frozenset(ends), c)
    for host, found in by_kind.items():
        if not found:
            continue
        rates = [c.throughput_Bps for c in found.values()]
        if len(found) == 1:
            yield f"{next(iter(found.values())).pattern.name}: {span(rates)} in all"
            continue
        line = f"{len(found)} pairs{' with the host' * host}, both ways at once: "
        line += f"{span(rates)} in all"
        pairs = [sorted(c.pattern.pairs[0]) for c in found.values()]
        both = [(a, b) for a, b in pairs]
        if len(groups := levels(rates)) > 1:
            parts = []
            for level in groups:
                mutual = [p for k in level for p in (both[k], both[k][::-1])]
                which = _which(groups, level, pairs_in_words(mutual, evidence.endpoints))
                parts.append(f"{span([rates[k] for k in level])} {which}")
            line += f" ({'; '.join(parts[:_MOST])}{'; …' * (len(parts) > _MOST)})"
        yield line


def _several(evidence: Evidence) -> Iterator[str]:
    found = [
        c
        for c in evidence.concurrent
        if len(c.pattern.flows) > 1 and kind_of(c.pattern) is not PatternKind.BOTH_WAYS
    ]
    if not found:
        return
    if len(found) <= _MOST:
        shown = [f"{pattern_in_words(c.pattern)} {span([c.throughput_Bps])}" for c in found]
        yield f"several at once: {'; '.join(shown)} in all"
        return
    rates = [c.throughput_Bps for c in found]
    yield f"{len(found)} patterns of several transfers at once: {span(rates)} in all"


def quiet(evidence: Evidence) -> str:
    """What to say where nothing was found: no more than the figures could have shown."""
    said = ["nothing reads slower than its like"] if len(evidence.rates) > 1 else []
    if any(all(p in evidence.rates for p in c.pattern.pairs) for c in evidence.concurrent):
        said.append("no transfer loses by another")
    return ", and ".join(said) or "the figures are too few to be compared with each other"


def blind_spot(evidence: Evidence) -> str:
    """What no figure of one transfer at a time shows, and which pattern would; empty where
    several were measured."""
    cards = [e for e in evidence.endpoints if not evidence.is_host(e)]
    several = any(len({n for p in c.pattern.pairs for n in p}) > 2 for c in evidence.concurrent)
    if several or len(cards) < LEAST_CARDS:
        return ""
    here = "here only the two directions of one pair" if evidence.concurrent else "none here"
    return (
        "Whether transfers share something shows only where several run at once, and "
        f"{here} did. Measure {_question(evidence, cards)} at once: less than twice one of them "
        "says so."
    )


def _question(evidence: Evidence, cards: Sequence[str]) -> str:
    """Two pairs that would share an uplink if there is one: near to near, as far as can be."""
    routes = evidence.topology.routes(tuple(cards))

    def distance(a: str, b: str) -> int:
        return int(routes.path_class.flat[routes.pair_index(a, b)])

    everyone = {distance(a, b) for a in cards for b in cards if a != b}
    if len(everyone) == 1:
        half = len(cards) // 2
        return listed([f"{cards[k]}->{cards[half + k]}" for k in (0, 1)])
    first = cards[0]
    partner = min((c for c in cards if c != first), key=lambda c: distance(first, c))
    rest = [c for c in cards if c not in (first, partner)]
    far = max(distance(first, c) for c in rest)
    # The last of the farthest: tables number the cards by where they sit.
    there = [c for c in rest if distance(first, c) == far]
    middle = there[len(there) // 2 :] if len(there) > 3 else there
    target = middle[0]
    other = min((c for c in rest if c != target), key=lambda c: distance(target, c))
    return listed([f"{first}->{target}", f"{partner}->{other}"])

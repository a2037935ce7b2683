"""Transfers that share more than the ports at their ends: which, and what they pass in all.

A transfer alone shows no sharing.  What several at once could pass is bounded by each one's
own rate and by the ports of the endpoints, as fast as each was ever seen.  Patterns that pass
less share something else: an uplink, a socket hop, the host's memory.  Those that pass the
same in all, from the same senders, are told as one place.

A topology that gives the links their nominal capacities says so itself; then there is nothing
to find.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from topocal.measure.patterns import PatternKind, kind_of
from topocal.solve.collapse import COLLAPSES
from topocal.solve.evidence import (
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
    Pair,
    Severity,
    listed,
    span,
)
from topocal.solve.words import pattern_in_words, ranges, sentence
from topocal.topo.incidence import incidence
from topocal.topo.units import format_rate

__all__ = ["find_shared"]

SHARES: Final = math.log(1.10)
"""Ports of published machines pass up to 6 % less for two flows than for one; more is sharing."""

SAME: Final = math.log(1.12)
"""Patterns over one place pass the same in all but for this: published uplinks pass 54.5 GB/s
for two flows and 51.6 for sixteen."""

EXPLAINED: Final = math.log(1.25)
"""A place accounts for a pattern of many flows that it would let pass so much more at most:
dozens of flows lose 10 % on published uplinks, for which nothing accounts."""

_SHOWN: Final = 8


@dataclass(slots=True)
class _Place:
    """Patterns that share one thing."""

    figures: list[Concurrent] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    destinations: set[str] = field(default_factory=set)
    free_Bps: list[float] = field(default_factory=list)
    explained: list[tuple[Concurrent, float]] = field(default_factory=list)

    @property
    def most_Bps(self) -> float:
        return max(f.throughput_Bps for f in self.figures)

    def add(self, figure: Concurrent, free_Bps: float) -> None:
        self.figures.append(figure)
        self.free_Bps.append(free_Bps)
        self.sources |= {a for a, _ in figure.pattern.pairs}
        self.destinations |= {b for _, b in figure.pattern.pairs}

    def allowed_Bps(self, figure: Concurrent) -> float:
        """What a pattern passes in all if nothing but this place held it up."""
        load = sum(
            f.size_bytes
            for f in figure.pattern.flows
            if f.source in self.sources and f.destination in self.destinations
        )
        return math.inf if load == 0 else figure.pattern.total_bytes * self.most_Bps / load

    def continues(self, figure: Concurrent) -> bool:
        """Whether a pattern from the same senders passes the same in all."""
        sources = {a for a, _ in figure.pattern.pairs}
        destinations = {b for _, b in figure.pattern.pairs}
        rates = [f.throughput_Bps for f in (*self.figures, figure)]
        return (
            bool(sources & self.sources)
            and not destinations & self.sources
            and (len(sources | self.sources) > 1 or destinations == self.destinations)
            and math.log(max(rates) / min(rates)) <= SAME
        )


def find_shared(evidence: Evidence) -> list[Finding]:
    """Places that several transfers share and no single one shows."""
    nominal = any(r.nominal_Bps is not None for r in evidence.topology.resources.values())
    if nominal or not evidence.pair_rates_Bps:
        return []
    ports = _Ports(evidence)
    figures = [c for c in evidence.concurrent if _is_told(evidence, c)]
    limit = max(SHARES, evidence.margin(len(figures)))
    places: list[_Place] = []
    free: list[Concurrent] = []
    for c in sorted(figures, key=lambda c: (len(c.pattern.flows), c.pattern.name)):
        possible = ports.free_Bps(c)
        if math.log(possible / c.throughput_Bps) <= limit:
            free.append(c)
            continue
        place = next((p for p in places if p.continues(c)), None)
        if place is None:
            allowed, tightest = min(
                ((p.allowed_Bps(c), k) for k, p in enumerate(places)), default=(math.inf, 0)
            )
            if abs(math.log(allowed / c.throughput_Bps)) <= EXPLAINED:
                places[tightest].explained.append((c, allowed))
                continue
            place = _Place()
            places.append(place)
        place.add(c, possible)
    return [_finding(evidence, group, free) for group in _together(evidence, places)]


def _is_told(evidence: Evidence, c: Concurrent) -> bool:
    """Not what other finders are about: fans into a card, both ways of a pair, collapses."""
    flows = c.pattern.flows
    if len(flows) < 2 or kind_of(c.pattern) is PatternKind.BOTH_WAYS:
        return False
    sources, destinations = {f.source for f in flows}, {f.destination for f in flows}
    for root in (sources, destinations):
        if len(root) == 1 and not evidence.is_host(next(iter(root))):
            return False
    if sources & destinations and any(map(evidence.is_host, sources & destinations)):
        return False
    alone = evidence.pair_rates_Bps
    if all(p in alone for p in c.pattern.pairs):
        serial_s = math.fsum(f.size_bytes / alone[f.source, f.destination] for f in flows)
        return math.log(c.seconds / serial_s) <= COLLAPSES
    return True


class _Ports:
    """What the endpoints pass at most, as far as any figure shows.

    A card that never ran alone is taken to pass what the others do.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.alone = evidence.pair_rates_Bps
        self.is_host = evidence.is_host
        self.best: dict[tuple[int, str], float] = defaultdict(float)
        for pair, rate in self.alone.items():
            for side, end in enumerate(pair):
                self.best[side, end] = max(self.best[side, end], rate)
        self.known = set(self.best)
        for c in evidence.concurrent:
            for key, size in _loads(c).items():
                self.best[key] = max(self.best[key], size / c.seconds)
        cards = {key: rate for key, rate in self.best.items() if not self.is_host(key[1])}
        ran_alone = [rate for key, rate in cards.items() if key in self.known]
        self.usual = median(ran_alone) if ran_alone else max(cards.values(), default=math.inf)

    def port_Bps(self, key: tuple[int, str]) -> float:
        """What an endpoint sends (0) or receives (1); host memory has no port."""
        if self.is_host(key[1]):
            return math.inf
        return self.best[key] if key in self.known else max(self.best[key], self.usual)

    def free_Bps(self, c: Concurrent) -> float:
        """What a pattern would pass if nothing but its ports were shared."""
        seconds = [size / self.port_Bps(key) for key, size in _loads(c).items()]
        seconds += [
            f.size_bytes / self.alone.get((f.source, f.destination), self.usual)
            for f in c.pattern.flows
            if self.usual < math.inf or (f.source, f.destination) in self.alone
        ]
        return c.pattern.total_bytes / max(seconds)


def _loads(c: Concurrent) -> dict[tuple[int, str], float]:
    """Bytes that each endpoint sends (0) and receives (1)."""
    found: dict[tuple[int, str], float] = defaultdict(float)
    for f in c.pattern.flows:
        found[0, f.source] += f.size_bytes
        found[1, f.destination] += f.size_bytes
    return found


def _together(evidence: Evidence, places: Sequence[_Place]) -> list[list[_Place]]:
    """Places at one end of the host's memory are compared with each other; others that pass the
    same are told in one breath."""
    found: list[list[_Place]] = []
    for place in places:
        for group in found:
            if _host_of(evidence, group[0]) == _host_of(evidence, place) and (
                _host_of(evidence, place) is not None or _alike(group[0], place)
            ):
                group.append(place)
                break
        else:
            found.append([place])
    return found


def _host_of(evidence: Evidence, place: _Place) -> tuple[str, str] | None:
    """The host's memory and its side, where that is one end of all flows."""
    for side, ends in (("out", place.sources), ("in", place.destinations)):
        if len(ends) == 1 and all(map(evidence.is_host, ends)):
            return side, next(iter(ends))
    return None


def _alike(one: _Place, other: _Place) -> bool:
    rates = [[(len(f.pattern.flows), f.throughput_Bps) for f in p.figures] for p in (one, other)]
    return [n for n, _ in rates[0]] == [n for n, _ in rates[1]] and all(
        abs(math.log(a / b)) <= SAME for (_, a), (_, b) in zip(*rates, strict=True)
    )


def _finding(evidence: Evidence, group: Sequence[_Place], free: Sequence[Concurrent]) -> Finding:
    loss = max(
        math.log(possible / f.throughput_Bps)
        for place in group
        for f, possible in zip(place.figures, place.free_Bps, strict=True)
    )
    figures = [f for place in group for f in place.figures]
    text = " ".join(
        [*_told(evidence, group), *_apart(evidence, group, free), *_where(evidence, group)]
    )
    return Finding(
        kind=FindingKind.SHARED,
        severity=Severity.WARNING if loss > math.log(1.3) else Severity.NOTE,
        about=tuple(dict.fromkeys(n for f in figures for p in f.pattern.pairs for n in p))[:_SHOWN],
        text=text,
        evidence=tuple(f.shown for f in figures[:_SHOWN]),
    )


def _told(evidence: Evidence, group: Sequence[_Place]) -> Iterator[str]:
    if len(group) > 1 and _host_of(evidence, group[0]) is not None:
        yield _compared(evidence, group)
        return
    figures = [f for place in group for f in place.figures]
    alone = _alone(evidence, figures)
    if len(figures) == 1:
        (figure,) = figures
        yield sentence(
            f"{pattern_in_words(figure.pattern)} passes {format_rate(figure.throughput_Bps)} "
            f"in all, where {format_rate(group[0].free_Bps[0])} would pass if nothing were "
            f"shared{alone}."
        )
        return
    ways = [f"{ranges(p.sources)} to {ranges(p.destinations)}" for p in group]
    numbers = _by_number(figures)
    however = f", however many flows{alone}: {listed(numbers, 4)}" if len(numbers) > 1 else alone
    yield (
        f"{' (or '.join(ways)}{')' * (len(ways) - 1)} share something that passes "
        f"{span([f.throughput_Bps for f in figures])} in all{however}."
    )
    many = [(c, allowed) for p in group for c, allowed in p.explained]
    if many:
        shown = [
            f"{pattern_in_words(c.pattern)} {format_rate(c.throughput_Bps)} (it would allow "
            f"{format_rate(allowed)})"
            for c, allowed in many
        ]
        yield f"That also holds up {listed(shown, 2)}."


def _compared(evidence: Evidence, group: Sequence[_Place]) -> str:
    """The same copies to or from the host by different ways."""
    figures = [max(place.figures, key=lambda f: len(f.pattern.flows)) for place in group]
    parts = [f"{pattern_in_words(f.pattern)} {format_rate(f.throughput_Bps)}" for f in figures]
    free = [place.free_Bps[place.figures.index(f)] for place, f in zip(group, figures, strict=True)]
    rates = [f.throughput_Bps for f in figures]
    text = f"At once, {listed(parts)} in all; {span(free)} would pass if nothing were shared"
    if math.log(max(rates) / min(rates)) > SAME:
        slow = figures[rates.index(min(rates))]
        ends = {n for p in slow.pattern.pairs for n in p if not evidence.is_host(n)}
        text += f". The ways of {ranges(ends)} share more than those of the others"
        if alone := _alone(evidence, figures):
            text += f", which no single copy shows{alone}"
    return f"{text}."


def _alone(evidence: Evidence, figures: Iterable[Concurrent]) -> str:
    rates = [
        evidence.pair_rates_Bps[p]
        for f in figures
        for p in f.pattern.pairs
        if p in evidence.pair_rates_Bps
    ]
    return f" (one alone reads {span(rates)})" if rates else ""


def _by_number(figures: Sequence[Concurrent]) -> list[str]:
    by_number: dict[int, list[float]] = defaultdict(list)
    for f in figures:
        by_number[len(f.pattern.flows)].append(f.throughput_Bps)
    return [f"{n} flows pass {span(rates)}" for n, rates in sorted(by_number.items())]


def _apart(
    evidence: Evidence, group: Sequence[_Place], free: Sequence[Concurrent]
) -> Iterator[str]:
    """Patterns from the same endpoints that do not share it."""
    ends = set().union(*(place.sources | place.destinations for place in group))
    if _host_of(evidence, group[0]) is not None:
        backward = {frozenset((b, a) for a, b in f.pattern.pairs) for p in group for f in p.figures}
        for c in free:
            if frozenset(c.pattern.pairs) in backward:
                yield sentence(
                    f"{pattern_in_words(c.pattern)} passes {format_rate(c.throughput_Bps)}: the "
                    "other direction shares nothing."
                )
        return
    found = [
        c
        for c in free
        if {n for p in c.pattern.pairs for n in p} & ends
        and all(v == 1 or evidence.is_host(key[1]) for key, v in _numbers(c).items())
    ]
    found.sort(key=lambda c: (-c.throughput_Bps, c.pattern.name))
    if found:
        shown = [f"{pattern_in_words(c.pattern)} ({format_rate(c.throughput_Bps)})" for c in found]
        verb = "does" if len(found) == 1 else "do"
        yield sentence(f"{listed(shown, 2)} {verb} not share it.")


def _numbers(c: Concurrent) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = defaultdict(int)
    for a, b in c.pattern.pairs:
        found[0, a] += 1
        found[1, b] += 1
    return found


def _where(evidence: Evidence, group: Sequence[_Place]) -> Iterator[str]:
    """What all flows of a place cross in a topology that was given."""
    if len(group) > 1 or evidence.has_groups:
        return
    pairs: list[Pair] = sorted({p for f in group[0].figures for p in f.pattern.pairs})
    lines = incidence(evidence.topology, pairs)
    matrix = lines.matrix
    crossed = [
        {lines.resources[c] for c in matrix.indices[matrix.indptr[k] : matrix.indptr[k + 1]]}
        for k in range(len(pairs))
    ]
    table = evidence.topology.resources
    most = _most_through(evidence)
    # What passed more in any other pattern is not what holds these up.
    common = [
        r
        for r in sorted(set.intersection(*crossed))
        if most.get(r, 0.0) <= group[0].most_Bps * math.exp(SAME)
    ]
    crossing = set.intersection(*crossed)
    if common:
        yield f"In the topology all of these cross {listed(table[r].name for r in common)}."
    elif crossing:
        yield (
            f"It is no link of the topology: {listed(table[r].name for r in sorted(crossing))}, "
            "which all of these cross, passed more in other patterns."
        )


def _most_through(evidence: Evidence) -> dict[str, float]:
    """The most that any figure shows each resource to pass."""
    found: dict[str, float] = defaultdict(float)
    for c in evidence.concurrent:
        lines = incidence(evidence.topology, c.pattern.pairs)
        sizes = np.array([f.size_bytes for f in c.pattern.flows])
        for name, size in zip(lines.resources, (lines.matrix.T @ sizes).tolist(), strict=True):
            found[name] = max(found[name], size / c.seconds)
    return found

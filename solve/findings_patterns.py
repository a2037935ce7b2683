"""Findings from patterns of several flows: what adds up, what is lost, what cannot be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final

from topocal.measure.patterns import PatternKind, kind_of
from topocal.solve.certificate import ALLOWANCE
from topocal.solve.collapse import COLLAPSES
from topocal.solve.conflicts import CONTRADICTS
from topocal.solve.evidence import (
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
    Judged,
    Pair,
    Severity,
    Shown,
    listed,
)
from topocal.solve.words import pattern_in_words, ranges
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing
from topocal.topo.units import format_rate, format_seconds

__all__ = [
    "find_collapses",
    "find_contradictions",
    "find_fading",
    "find_time_shared",
]

LEAST_KAPPA: Final = 0.8
"""Time-shared receivers on published machines overlap by 2 % (docs/model.md); a fan that takes
less than this of its flows one after another is explained by something else."""

FADES: Final = math.log(1.03)
"""A resource that passes 3 % less with more flows on it (published for eight Gen5
cards: four flows across the boundary 52.3 GB/s, eight 49.6)."""

_SHOWN: Final = 8


def find_time_shared(evidence: Evidence) -> list[Finding]:
    """Receivers, and senders, that serve one flow at a time.

    A fan says so when it takes longer than any capacities allow that pass its pairs alone
    (:mod:`topocal.solve.certificate`) and about as long as its flows one after another.
    """
    judged = evidence.judged
    allowance = max(math.log1p(ALLOWANCE), evidence.margin(len(judged)))
    found = []
    for kind, end, word in (
        (PatternKind.FAN_IN, 1, "receiver"),
        (PatternKind.FAN_OUT, 0, "sender"),
    ):
        fans = [j for j in judged if kind_of(j.figure.pattern) is kind and j.tells]
        yes = [j for j in fans if _is_time_shared(j, allowance)]
        if not yes:
            continue
        roots = list(dict.fromkeys(j.pairs[0][end] for j in yes))
        others = {j.pairs[0][end] for j in fans} - set(roots)
        kappa = median(j.seconds / j.serial_s for j in yes)
        clearest = max(yes, key=lambda j: j.seconds / j.capacity_s)
        text = (
            f"{word}{'s' * (len(roots) > 1)} {ranges(roots)} "
            f"{'serve' if len(roots) > 1 else 'serves'} one flow at a time: a fan takes "
            f"{kappa:.2f} times the sum of what its flows take alone. {clearest.name} takes "
            f"{format_seconds(clearest.seconds)}, and no capacities that pass its pairs "
            f"alone make it longer than {format_seconds(clearest.capacity_s)}; the slowest sender "
            "holds all others up."
        )
        if others:
            text += f" Fans of {ranges(others)} do not show it."
        found.append(
            Finding(
                kind=FindingKind.TIME_SHARED,
                severity=Severity.WARNING,
                about=tuple(roots),
                text=text[0].upper() + text[1:],
                evidence=(clearest.figure.shown, *_alone(evidence, clearest)),
            )
        )
    return found


def _is_time_shared(judged: Judged, allowance: float) -> bool:
    kappa = judged.seconds / judged.serial_s
    refuted = math.log(judged.seconds / judged.capacity_s) > allowance
    return refuted and LEAST_KAPPA <= kappa <= math.exp(allowance)


def _alone(evidence: Evidence, judged: Judged) -> tuple[Shown, ...]:
    pairs = sorted(judged.pairs, key=lambda p: evidence.rates[p])
    return tuple(evidence.shown(p) for p in pairs[: _SHOWN - 1])


def find_collapses(evidence: Evidence) -> list[Finding]:
    """Patterns that take longer than their flows one after another: no sharing does that."""
    judged = evidence.judged
    threshold = max(COLLAPSES, evidence.margin(len(judged)))
    found = []
    for j in judged:
        excess = math.log(j.seconds / j.serial_s)
        if excess <= threshold:
            continue
        found.append(
            Finding(
                kind=FindingKind.COLLAPSE,
                severity=Severity.SERIOUS,
                about=tuple(dict.fromkeys(n for p in j.pairs for n in p))[:_SHOWN],
                text=(
                    f"{j.name} collapses to "
                    f"{format_rate(j.figure.throughput_Bps)}: {math.exp(excess):.1f} times as long "
                    "as its flows one after another. No capacity explains that and none is "
                    "fitted to it; look for congestion control, interrupts or a driver's fault, "
                    "and measure it again."
                ),
                evidence=(j.figure.shown, *_alone(evidence, j)),
            )
        )
    return found


def find_contradictions(evidence: Evidence) -> list[Finding]:
    """Figures that cannot both be right.

    A pattern that is done before one of its flows alone would be, and a pair that reads
    otherwise when it is measured once more.
    """
    rates = evidence.pair_rates_Bps
    compared: list[tuple[Concurrent, Pair, float]] = []
    for figure in evidence.concurrent:
        for flow in figure.pattern.flows:
            pair = (flow.source, flow.destination)
            if pair in rates and flow.size_bytes > 0:
                ratio = flow.size_bytes / rates[pair] / figure.seconds
                compared.append((figure, pair, math.log(ratio)))
    threshold = max(CONTRADICTS, evidence.margin(len(compared)))
    by_pair: dict[Pair, list[tuple[Concurrent, float]]] = defaultdict(list)
    for figure, pair, excess in compared:
        again = len(figure.pattern.flows) == 1
        if excess > threshold or (again and -excess > threshold):
            by_pair[pair].append((figure, abs(excess)))
    found = []
    for pair, against in by_pair.items():
        against.sort(key=lambda item: -item[1])
        worst, excess = against[0]
        alone = format_rate(rates[pair])
        if len(worst.pattern.flows) == 1:
            text = (
                f"{pair[0]}->{pair[1]} reads {alone}, and when measured once more "
                f"{format_rate(worst.throughput_Bps)}."
            )
        else:
            text = (
                f"{pair[0]}->{pair[1]} reads {alone} alone, yet "
                f"{pattern_in_words(worst.pattern)}, of which it is a part, is done "
                f"{math.expm1(excess):.0%} sooner than it alone could be."
            )
        more = len(against) - 1
        if more:
            text += f" {more} more pattern{'s' * (more > 1)} contradict{'s' * (more == 1)} it."
        text += " One of the figures is wrong or unstable: measure again."
        found.append(
            Finding(
                kind=FindingKind.CONTRADICTION,
                severity=Severity.WARNING,
                about=pair,
                text=text,
                evidence=(
                    Shown(name=f"{pair[0]}->{pair[1]}", rate_Bps=rates[pair]),
                    *(figure.shown for figure, _ in against[: _SHOWN - 1]),
                ),
            )
        )
    return found


def find_fading(evidence: Evidence) -> list[Finding]:
    """Resources that pass less when more flows share them.

    Compared are patterns of which one contains the other and whose flows all cross the
    resource: what the smaller one reached, the resource can pass; that the larger one
    reached less, and less than its pairs explain, is the resource's doing.
    """
    judged = [
        j
        for j in evidence.judged
        if j.figure.is_even and kind_of(j.figure.pattern) is not PatternKind.BOTH_WAYS
    ]
    common = _common_resources(evidence, judged)
    loading: dict[str, list[Judged]] = defaultdict(list)
    for j in judged:
        for resource in common[id(j)]:
            loading[resource].append(j)
    smaller: dict[int, list[Judged]] = {}
    for j in judged:
        # What is contained in j loads all that j does.
        others = loading[common[id(j)][0]] if common[id(j)] else []
        mine = set(j.pairs)
        smaller[id(j)] = [o for o in others if set(o.pairs) < mine]
    by_resource: dict[str, list[tuple[Judged, Concurrent | None, float]]] = defaultdict(list)
    compared = sum(1 + len(inside) for inside in smaller.values())
    threshold = max(FADES, evidence.margin(compared))
    for j in judged:
        if not common[id(j)]:
            continue
        best = max(smaller[id(j)], key=lambda o: o.figure.throughput_Bps, default=None)
        passes = max(j.rates)
        if best is not None and best.figure.throughput_Bps > passes:
            passes = best.figure.throughput_Bps
        else:
            best = None
        ordered = sorted(j.rates)
        flows = len(ordered)
        # All flows on what passes that much, or fewer of them on something else.
        allowed = max([flows / passes, *(k / p for k, p in enumerate(ordered[:-1], start=1))])
        loss = math.log(flows / j.figure.throughput_Bps / allowed)
        serial = j.seconds / j.serial_s
        if loss <= threshold or serial > math.exp(COLLAPSES):
            continue
        if j.tells and serial >= LEAST_KAPPA:
            continue  # time adds up there, not bytes
        for resource in common[id(j)]:
            by_resource[resource].append((j, best.figure if best else None, loss))
    return _fading(evidence, by_resource)


def _common_resources(evidence: Evidence, judged: Sequence[Judged]) -> dict[int, list[str]]:
    """Resources that every flow of a pattern crosses, per pattern."""
    pairs = sorted({p for j in judged for p in j.pairs})
    if not pairs:
        return {}
    lines = incidence(evidence.topology, pairs)
    table = evidence.topology.resources
    row = {pair: k for k, pair in enumerate(pairs)}
    matrix = lines.matrix
    crossed = {
        pair: {lines.resources[c] for c in matrix.indices[matrix.indptr[k] : matrix.indptr[k + 1]]}
        for pair, k in row.items()
    }
    shared = (Sharing.CAPACITY, Sharing.DUPLEX)
    return {
        id(j): sorted(
            r
            for r in set.intersection(*(crossed[p] for p in j.pairs))
            if table[r].sharing in shared
        )
        for j in judged
    }


def _fading(
    evidence: Evidence,
    by_resource: dict[str, list[tuple[Judged, Concurrent | None, float]]],
) -> list[Finding]:
    """One finding per kind and number of flows.

    Resources that the same patterns load are one place; several places that fade alike are
    told together.
    """
    places: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for resource, cases in by_resource.items():
        places[tuple(id(j) for j, _, _ in cases)].append(resource)
    alike: dict[tuple[str, int], list[list[str]]] = defaultdict(list)
    worst = {r: max(cases, key=lambda case: case[2]) for r, cases in by_resource.items()}
    for resources in places.values():
        j = worst[resources[0]][0]
        alike[str(kind_of(j.figure.pattern)), len(j.rates)].append(resources)
    return [_one_fading(evidence, members, worst) for members in alike.values()]


def _one_fading(
    evidence: Evidence,
    places: list[list[str]],
    worst: dict[str, tuple[Judged, Concurrent | None, float]],
) -> Finding:
    table = evidence.topology.resources
    places = sorted(places, key=lambda resources: -worst[resources[0]][2])
    j, best, loss = worst[places[0][0]]
    flows = len(j.rates)
    fewer = len(best.pattern.flows) if best is not None else 1
    passes = best.throughput_Bps if best is not None else max(j.rates)
    names = listed(" or ".join(table[r].name for r in resources) for resources in places)
    text = (
        f"{names} {'passes' if len(places) == 1 else 'each pass'} less the more flows share it: "
        f"{format_rate(j.figure.throughput_Bps)} with {flows} ({j.name}), where {fewer} alone "
        f"{'reach' if fewer > 1 else 'reaches'} {format_rate(passes)}."
    )
    shown = [j.figure.shown, *([best.shown] if best is not None else _alone(evidence, j))]
    return Finding(
        kind=FindingKind.FADING,
        severity=Severity.WARNING if loss > math.log(1.15) else Severity.NOTE,
        about=tuple(r for resources in places for r in resources),
        text=text,
        evidence=tuple(shown[:_SHOWN]),
    )

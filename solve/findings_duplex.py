"""Findings from pairs that ran both ways at once: what the two directions take from each other.

Three things happen on published machines.  One resource carries both directions, which then
pass in all what one passes alone; both lose a little; or one direction keeps its rate and the
other gives way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from topocal.measure.patterns import PatternKind, kind_of
from topocal.solve.evidence import (
    Evidence,
    Finding,
    FindingKind,
    Judged,
    Pair,
    Severity,
    Shown,
    span,
)
from topocal.solve.words import pairs_in_words, pattern_in_words, ranges, sentence
from topocal.topo.units import format_rate

__all__ = ["find_both_ways_of_all", "find_duplex_loss", "find_one_sided", "find_staged_copies"]

DUPLEX_LOSS: Final = -math.log(0.95)
"""Both ways at once pass 1.94 to 2 times one way on sound links of public boxes, and less where
something is lost: published per direction 618 of 664 GB/s (B300), 282 of 333 (H20)."""

ALIKE: Final = 0.03
"""Shares that differ by less are of one kind of pairs, some of which chance puts below a limit."""

STAGED: Final = (0.43, 0.575)
"""Share of twice one way that both ways pass when one resource carries both: public boxes with
staged copies move 1.02 to 1.07 times one way in all; 0.86 to 1.15 allows for their errors."""

GIVES_WAY: Final = 0.8
"""A direction gives way when it keeps less of its rate than this, and at least so much less than
the other: published host links of A100 and H800 keep 0.45 and 0.63 against 0.95 to 1."""

_SHOWN: Final = 8


def _both_ways(evidence: Evidence) -> list[tuple[Judged, float]]:
    """Both-ways patterns, each pair once, with the share of what two free directions would pass.

    Of several figures of one pair the first counts: tools print the matrix twice over.
    """
    found: dict[frozenset[str], Judged] = {}
    for j in evidence.judged:
        if kind_of(j.figure.pattern) is PatternKind.BOTH_WAYS:
            found.setdefault(frozenset(j.pairs[0]), j)
    return [(j, j.longest_s / j.seconds) for j in found.values()]


def find_one_sided(evidence: Evidence) -> list[Finding]:
    """Pairs of which one direction keeps its rate while the other gives way.

    Only where a tool said what each direction passed: its flows then differ in size.
    """
    by_way: dict[tuple[bool, bool], list[_Sided]] = defaultdict(list)
    for one in _sided(evidence):
        by_way[evidence.is_host(one.slow[0]), evidence.is_host(one.slow[1])].append(one)
    return [_one_sided(evidence, cases) for cases in by_way.values()]


@dataclass(frozen=True, slots=True)
class _Sided:
    """A pattern with the direction that gives way, the other, and what each passes."""

    judged: Judged
    slow: Pair
    fast: Pair
    slow_Bps: float
    fast_Bps: float


def _sided(evidence: Evidence) -> list[_Sided]:
    found = []
    threshold = max(-math.log(GIVES_WAY), evidence.margin(len(evidence.judged)))
    for j, _ in _both_ways(evidence):
        if j.figure.is_even:
            continue
        flows = j.figure.pattern.flows
        kept = [f.size_bytes / j.seconds / r for f, r in zip(flows, j.rates, strict=True)]
        loser = 0 if kept[0] < kept[1] else 1
        if -math.log(kept[loser]) > threshold and math.log(kept[1 - loser] / kept[loser]) > (
            threshold
        ):
            rates = [f.size_bytes / j.seconds for f in flows]
            found.append(
                _Sided(j, j.pairs[loser], j.pairs[1 - loser], rates[loser], rates[1 - loser])
            )
    return found


def _one_sided(evidence: Evidence, cases: Sequence[_Sided]) -> Finding:
    alone = evidence.pair_rates_Bps
    slow, fast = [c.slow for c in cases], [c.fast for c in cases]
    text = (
        f"Both ways at once, {pairs_in_words(slow)} {'falls' if len(slow) == 1 else 'fall'} to "
        f"{span([c.slow_Bps for c in cases])} (alone {span([alone[p] for p in slow])}), while "
        f"{'the other direction keeps' if len(slow) == 1 else 'the other directions keep'} "
        f"{span([c.fast_Bps for c in cases])} of {span([alone[p] for p in fast])}: "
        f"{span([c.slow_Bps + c.fast_Bps for c in cases])} in all. The directions "
        "share something that the other direction wins."
    )
    exempt = _exempt(evidence, {frozenset(p) for p in slow}, slow[0])
    if exempt:
        text += f" {ranges(exempt)} {'does' if len(exempt) == 1 else 'do'} not give way."
    worst = min(c.slow_Bps / alone[c.slow] for c in cases)
    return Finding(
        kind=FindingKind.ONE_SIDED,
        severity=Severity.SERIOUS if worst <= 0.5 else Severity.WARNING,
        about=tuple(dict.fromkeys(n for p in slow for n in p))[:_SHOWN],
        text=text,
        evidence=tuple(
            shown
            for c in cases
            for shown in (
                Shown(name=f"{'->'.join(c.slow)} of {c.judged.name}", rate_Bps=c.slow_Bps),
                Shown(name=f"{'->'.join(c.fast)} of {c.judged.name}", rate_Bps=c.fast_Bps),
            )
        )[:_SHOWN],
    )


def _exempt(evidence: Evidence, slow: set[frozenset[str]], like: Pair) -> list[str]:
    """Partners of the same host that ran both ways and did not give way."""
    host = [n for n in like if evidence.is_host(n)]
    if len(host) != 1:
        return []
    tried = {frozenset(j.pairs[0]) for j, _ in _both_ways(evidence)}
    return [next(iter(p - set(host))) for p in tried - slow if host[0] in p]


def find_both_ways_of_all(evidence: Evidence) -> list[Finding]:
    """The host's memory both ways with many cards at once: what each direction then passes."""
    found = []
    for c in evidence.concurrent:
        flows, pairs = c.pattern.flows, set(c.pattern.pairs)
        hubs = [n for n in {a for a, _ in pairs} if all(n in p for p in pairs)]
        if len(pairs) < 4 or len(hubs) != 1 or not evidence.is_host(hubs[0]):
            continue
        (hub,) = hubs
        parts = []
        for side, word in ((0, "from"), (1, "to")):
            mine = [f for f in flows if (f.source, f.destination)[side] == hub]
            passes = sum(f.size_bytes for f in mine) / c.seconds
            alone = _one_direction(evidence, {(f.source, f.destination) for f in mine})
            of = f" of {format_rate(alone)}" if alone else ""
            parts.append((f"{format_rate(passes)}{of} {word} the host", passes, alone))
        if all(alone and passes < GIVES_WAY * alone for _, passes, alone in parts):
            lost = "Both directions lose"
        elif any(alone and passes < GIVES_WAY * alone for _, passes, alone in parts):
            lost = "One direction loses"
        else:
            continue
        found.append(
            Finding(
                kind=FindingKind.ONE_SIDED,
                severity=Severity.WARNING,
                about=(hub,),
                text=sentence(
                    f"{pattern_in_words(c.pattern)} passes {format_rate(c.throughput_Bps)}: "
                    f"{parts[0][0]}, {parts[1][0]}. {lost}: the ways to the host's memory are "
                    "shared by its directions and by the cards."
                ),
                evidence=(c.shown,),
            )
        )
    return found


def _one_direction(evidence: Evidence, pairs: set[Pair]) -> float | None:
    """What these flows pass at once without the other direction, or else in sum alone."""
    for c in evidence.concurrent:
        if set(c.pattern.pairs) == pairs:
            return c.throughput_Bps
    rates = [evidence.pair_rates_Bps.get(p) for p in pairs]
    return None if None in rates else math.fsum(r for r in rates if r is not None)


def find_duplex_loss(evidence: Evidence) -> list[Finding]:
    """Pairs that both ways at once pass less than twice one way, though more than one."""
    sided = {frozenset(one.slow) for one in _sided(evidence)}
    both = _both_ways(evidence)
    threshold = max(DUPLEX_LOSS, evidence.margin(len(both)))
    lossy = [
        (j, s)
        for j, s in both
        if s > STAGED[1] and -math.log(s) > threshold and frozenset(j.pairs[0]) not in sided
    ]
    found = []
    for host in (False, True):
        mine = [(j, s) for j, s in lossy if _has_host(evidence, j) is host]
        shares = [s for j, s in both if _has_host(evidence, j) is host]
        if mine and len(mine) < len(shares) / 2 and max(shares) - min(shares) < ALIKE:
            continue  # one and the same, and most of it passes
        if mine:
            found.append(
                _duplex_loss(evidence, mine, [b for b in both if _has_host(evidence, b[0]) is host])
            )
    return found


def _has_host(evidence: Evidence, judged: Judged) -> bool:
    return any(evidence.is_host(n) for n in judged.pairs[0])


def _duplex_loss(
    evidence: Evidence, lossy: Sequence[tuple[Judged, float]], both: Sequence[tuple[Judged, float]]
) -> Finding:
    ordered = sorted(lossy, key=lambda item: item[1])
    shares = [s for _, s in ordered]
    worst, share = ordered[0]
    text = f"{_of(evidence, lossy, both)} {_times(shares)} one way in all, not 2 times"
    if len(lossy) > 1:
        text += (
            f"; the least is {worst.name}, {span([worst.figure.throughput_Bps])} against "
            f"{span([worst.figure.throughput_Bps / share])}"
        )
    else:
        text += f" ({span([worst.figure.throughput_Bps])} against "
        text += f"{span([worst.figure.throughput_Bps / share])})"
    text += ". The directions share something: count on less wherever traffic runs both ways."
    return Finding(
        kind=FindingKind.DUPLEX_LOSS,
        severity=Severity.WARNING if median(shares) < 0.8 else Severity.NOTE,
        about=_ends(j for j, _ in lossy),
        text=text,
        evidence=_shown_both(evidence, [j for j, _ in ordered]),
    )


def _times(shares: Sequence[float]) -> str:
    low, high = f"{2 * min(shares):.2f}", f"{2 * max(shares):.2f}"
    return f"{low} times" if low == high else f"{low} to {high} times"


def find_staged_copies(evidence: Evidence) -> list[Finding]:
    """Pairs that both ways at once pass in all what they pass one way.

    That is one resource for both directions: copies staged in host memory cross the uplink
    that both cards lie under once up and once down, whichever way they go.
    """
    both = _both_ways(evidence)
    noise = math.exp(evidence.margin(len(both)))
    sided = {frozenset(one.slow) for one in _sided(evidence)}
    staged = [
        (j, s)
        for j, s in both
        if STAGED[0] <= s <= STAGED[1] and s * noise < 1 and frozenset(j.pairs[0]) not in sided
    ]
    if not staged:
        return []
    total = span([j.figure.throughput_Bps for j, _ in staged])
    text = (
        f"{_of(evidence, staged, both)} {total}, {_times([s for _, s in staged])} what one way "
        f"passes alone: one resource carries both directions. {_why_staged(evidence, staged)}"
    )
    return [
        Finding(
            kind=FindingKind.STAGED,
            severity=Severity.SERIOUS,
            about=_ends(j for j, _ in staged),
            text=text,
            evidence=_shown_both(evidence, [j for j, _ in staged]),
        )
    ]


def _why_staged(evidence: Evidence, staged: Sequence[tuple[Judged, float]]) -> str:
    if all(_has_host(evidence, j) for j, _ in staged):
        return (
            "With the host's memory at one end that is the memory, or the way to it, which reads "
            "and writes draw from together."
        )
    access = evidence.topology.graph.graph.get("peer_access")
    said = evidence.staged_pairs | evidence.no_peer
    if all(set(j.pairs) & said for j, _ in staged):
        who = "The tool" if evidence.no_peer else "The topology"
        return (
            f"{who} says that there is no peer access, so that these copies are staged in host "
            "memory: they cross the uplink that both cards lie under twice, up and down."
        )
    why = "Copies that are staged in host memory do so: they cross one uplink twice, up and down."
    return why + (" Peer access is said to be on; check it." if access is True else "")


def _of(
    evidence: Evidence,
    some: Sequence[tuple[Judged, float]],
    of: Sequence[tuple[Judged, float]],
) -> str:
    """Subject and verb: which of the pairs pass …"""
    pairs = [p for j, _ in some for p in j.pairs]
    which = pairs_in_words(pairs)
    if len(some) == 1:
        return f"{which}, both directions at once, passes"
    number = f"all {len(of)}" if len(some) == len(of) else f"{len(some)} of {len(of)} pairs"
    return f"Both ways at once, {which} ({number}) pass"


def _ends(judged: Iterable[Judged]) -> tuple[str, ...]:
    found = dict.fromkeys(n for j in judged for p in j.pairs for n in p)
    return tuple(found)[:_SHOWN]


def _shown_both(evidence: Evidence, judged: Sequence[Judged]) -> tuple[Shown, ...]:
    shown: list[Shown] = []
    for j in judged:
        shown += [j.figure.shown, *(evidence.shown(p) for p in j.pairs)]
    return tuple(shown[:_SHOWN])

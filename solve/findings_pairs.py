"""Findings from the table of pairs: stragglers, asymmetric and near-slow ones.

What one slow card, or one slow direction of it, does to its pairs is told once: the finders
that compare the other pairs leave its pairs aside (:func:`named_before`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import median
from typing import Final

from topocal.solve.alike_pairs import by_ends, in_groups
from topocal.solve.evidence import Evidence, Finding, FindingKind, Pair, Severity, Shown
from topocal.solve.findings_links import pcie_states
from topocal.solve.findings_uplinks import find_slow_uplinks, ways_out
from topocal.solve.words import ranges
from topocal.topo.resource import LinkKind, PathClass

__all__ = [
    "find_asymmetric_directions",
    "find_near_slower_than_far",
    "find_stragglers",
    "named_before",
]

STRAGGLES: Final = 0.7
"""A card straggles when even its best pair reaches less than this of what like pairs reach:
the next lower width or generation of a link halves it, ordinary scatter takes a tenth."""

READS_LESS: Final = 0.92
"""A card whose best pair reaches less than this of what like pairs reach is told as well: of 18
parallel links two are down at 0.89, and like pairs of steady machines agree within 5 %."""

MOST_STRAGGLERS: Final = 1 / 3
"""More than this share of the cards are no stragglers: then the machine has two kinds."""

SMALL: Final = 0.05
"""Up to this share of a group, a card's own pairs may stay in what it is compared with."""

UNLIKE: Final = math.log(1.10)
"""Like pairs of steady machines agree within 5 % (docs/model.md); twice that matters."""

ASYMMETRIC: Final = math.log(1.15)
"""The two directions of a pair differ by a few per cent on published machines whose links
are sound; above 15 % one of them has another limit."""

NEAR_SLOWER: Final = math.log(1.15)
"""As :data:`ASYMMETRIC`: what stays inside should be no slower than what leaves."""

HALF: Final = (0.4, 0.65)
"""Share of the far rate that staged copies inside a socket reach: half, since they cross the
uplink twice (maintainers' diagnosis in NCCL issues 1086 and 1309), give or take the rest."""

FEWEST_OF_GROUPS: Final = 3
"""Cards of groups that were made out of the figures: of one slow pair two are made a group."""

DOUBLE: Final = math.log(2.0)

ALL_BUT_FEW: Final = 0.75
"""A direction of a card is slow, and not a way that some of its pairs take, when at least so
many of its pairs are."""

_SHOWN: Final = 8


def find_stragglers(evidence: Evidence) -> list[Finding]:
    """Cards that are slow with every partner where like pairs of others are not."""
    # Groups that were made out of the figures set a slow card apart, where nothing is like it.
    groups = by_ends(evidence) if evidence.has_groups else in_groups(evidence)
    slow = {}
    ends = evidence.endpoints
    threshold = min(math.log(READS_LESS), -evidence.margin(2 * len(ends)))
    usual_of = {key: median(evidence.rates[p] for p in pairs) for key, pairs in groups.items()}
    own: dict[str, dict[Hashable, list[Pair]]] = {end: defaultdict(list) for end in ends}
    for key, pairs in groups.items():
        for pair in pairs:
            for end in pair:
                own[end][key].append(pair)
    for end in ends:
        shares: list[float] = []
        mine: list[Pair] = []
        for key, pairs in own[end].items():
            usual = usual_of[key]
            # Among many its own do not move the median.
            if len(pairs) > SMALL * len(groups[key]):
                others = [evidence.rates[p] for p in groups[key] if end not in p]
                if not others:
                    continue
                usual = median(others)
            shares += [evidence.rates[p] / usual for p in pairs]
            mine += pairs
        if len(shares) >= 2 and math.log(max(shares)) < threshold:
            slow[end] = (median(shares), mine)
    if not slow or len(slow) > MOST_STRAGGLERS * len(ends):
        return []
    return [_straggler(evidence, end, *found) for end, found in slow.items()]


def _straggler(evidence: Evidence, end: str, share: float, mine: list[Pair]) -> Finding:
    rates = [evidence.rates[p] for p in mine]
    others = [rate for pair, rate in evidence.rates.items() if end not in pair]
    partners = {e for pair in mine for e in pair} - {end}
    link = "the way to it" if evidence.is_host(end) else "its link (width, generation, riser, slot)"
    if share > STRAGGLES:
        return Finding(
            kind=FindingKind.STRAGGLER,
            severity=Severity.WARNING,
            about=(end,),
            text=(
                f"{end} reads {1 - share:.0%} less with every partner: {evidence.span(rates)} with "
                f"each of {len(partners)}, where like pairs of the others read "
                f"{evidence.span(others)}. {_why_less(evidence, end)}"
            ),
            evidence=tuple(evidence.shown(p) for p in mine[:_SHOWN]),
        )
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.SERIOUS if share <= 0.5 else Severity.WARNING,
        about=(end,),
        text=(
            f"{end} is slow with every partner: {evidence.span(rates)} with each of "
            f"{len(partners)}, where like pairs of the others read {evidence.span(others)}. The "
            f"limit is its own: look at {link}, not at theirs{_as_pcie(evidence, end, rates)}."
        ),
        evidence=tuple(evidence.shown(p) for p in mine[:_SHOWN]),
    )


def _why_less(evidence: Evidence, end: str) -> str:
    """Where to look where a card is slower by a part, and not by half."""
    if evidence.is_host(end):
        return "Look at the way to it and at its memory."
    why = "Look at its links: some of several parallel ones may be down"
    return why + (", or it sits farther away." if evidence.has_groups else ".")


def _as_pcie(evidence: Evidence, end: str, rates: list[float]) -> str:
    """What the link of a card would have to be, where nothing faster than PCIe is in play."""
    states = [] if evidence.is_host(end) else pcie_states(median(rates))
    return f"; PCIe {' or '.join(states)} passes as much" if states else ""


def find_asymmetric_directions(evidence: Evidence) -> list[Finding]:
    """Endpoints (or single pairs) whose one direction is slower than the other."""
    return [_asymmetric(evidence, *cluster) for cluster in _slower_directions(evidence)]


def _slower_directions(evidence: Evidence) -> list[tuple[int, str, list[Pair]]]:
    """For each end (0 sends, 1 receives) and endpoint that accounts for them, the slower pairs."""
    rates = evidence.rates
    both = [(a, b) for a, b in rates if (b, a) in rates and rates[a, b] < rates[b, a]]
    threshold = max(ASYMMETRIC, evidence.margin(len(both)))
    slow = [p for p in both if math.log(rates[p[::-1]] / rates[p]) > threshold]
    found = []
    while slow:
        # The end and direction that account for most of what is left by one and the same rate.
        clusters = [
            (end, name, cluster)
            for end in (0, 1)
            for name in dict.fromkeys(p[end] for p in slow)
            for cluster in [_largest_cluster(evidence, [p for p in slow if p[end] == name])]
        ]
        end, name, pairs = max(clusters, key=lambda c: len(c[2]))
        found.append((end, name, pairs))
        slow = [p for p in slow if p not in pairs]
    return found


def named_before(evidence: Evidence) -> frozenset[Pair]:
    """Pairs that are slow because of a card, a direction of it, or what several cards share, that
    a finding names."""
    slow = {f.about[0] for f in find_stragglers(evidence)}
    found = {p for p in evidence.rates if slow & set(p)}
    for finding in find_slow_uplinks(evidence):
        found.update(ways_out(evidence, finding.about))
    for end, name, pairs in _slower_directions(evidence):
        mine = [p for p in evidence.rates if p[end] == name]
        if len(pairs) > 1 and len(pairs) >= ALL_BUT_FEW * len(mine):
            found.update(mine)
    return frozenset(found)


def _largest_cluster(evidence: Evidence, pairs: Sequence[Pair]) -> list[Pair]:
    """The most pairs that read alike."""
    best: list[Pair] = []
    for lowest in pairs:
        low = evidence.rates[lowest]
        inside = [p for p in pairs if 0 <= math.log(evidence.rates[p] / low) <= UNLIKE]
        best = max(best, inside, key=len)
    return best


def _asymmetric(evidence: Evidence, end: int, name: str, pairs: list[Pair]) -> Finding:
    rates = evidence.rates
    worst = max(math.log(rates[p[::-1]] / rates[p]) for p in pairs)
    ordered = sorted(pairs, key=lambda p: rates[p] / rates[p[::-1]])
    forth = evidence.span([rates[p] for p in pairs])
    back = evidence.span([rates[p[::-1]] for p in pairs])
    if len(pairs) == 1:
        (pair,) = pairs
        text = f"{pair[0]}->{pair[1]} reads {forth}, the other direction {back}."
        about: tuple[str, ...] = pair
    else:
        peers = ranges(p[1 - end] for p in pairs)
        verb, other = ("sends to", "receives") if end == 0 else ("receives from", "sends")
        text = f"{name} {verb} {peers} at {forth}, but {other} at {back}."
        about = (name,)
    return Finding(
        kind=FindingKind.ASYMMETRIC,
        severity=_by_factor(worst),
        about=about,
        text=text,
        evidence=_interleaved(evidence, ordered),
    )


def _interleaved(evidence: Evidence, pairs: Sequence[Pair]) -> tuple[Shown, ...]:
    shown = [evidence.shown(q) for p in pairs for q in (p, p[::-1])]
    return tuple(shown[:_SHOWN])


def find_near_slower_than_far(evidence: Evidence) -> list[Finding]:
    """Senders whose pairs inside the socket are slower than those that leave it.

    Where the specifications of the links on the way say so themselves there is nothing to
    find.  GPU fabrics are neither near nor far.
    """
    if not evidence.rates:
        return []
    named = named_before(evidence)
    near, far = (
        {s: kept for s, pairs in side.items() if (kept := [p for p in pairs if p not in named])}
        for side in _near_and_far(evidence)
    )
    senders = [s for s in evidence.endpoints if near.get(s) and far.get(s)]
    threshold = max(NEAR_SLOWER, evidence.margin(len(senders)))
    rates = evidence.rates
    slow = {}
    for s in senders:
        ratio = median(rates[p] for p in near[s]) / median(rates[p] for p in far[s])
        if evidence.has_groups and max(rates[p] for p in near[s]) > min(rates[p] for p in far[s]):
            continue  # groups that were made out of these figures
        if math.log(ratio) < -threshold:
            slow[s] = ratio
    if not slow or (evidence.has_groups and len(slow) < FEWEST_OF_GROUPS):
        return []
    pairs_near = [p for s in slow for p in near[s]]
    pairs_far = [p for s in slow for p in far[s]]
    usual = median(slow.values())
    around = "group" if evidence.has_groups else "socket"
    text = (
        f"{ranges(slow)} {'reaches' if len(slow) == 1 else 'reach'} cards of the same {around} at "
        f"{evidence.span([rates[p] for p in pairs_near])} and cards of another at "
        f"{evidence.span([rates[p] for p in pairs_far])}: near is slower than far "
        f"({usual:.2f} times). "
    )
    if HALF[0] <= usual <= HALF[1]:
        text += "Copies staged in host memory do so: they cross an uplink that both lie under twice"
    else:
        text += f"Copies inside the {around} take another way than the topology shows"
    text += f"{_peer_access(evidence)}."
    finding = Finding(
        kind=FindingKind.NEAR_SLOWER,
        severity=_by_factor(-math.log(min(slow.values()))),
        about=tuple(slow),
        text=text,
        evidence=tuple(evidence.shown(p) for s in slow for p in (near[s][0], far[s][0]))[:_SHOWN],
    )
    return [finding]


def _near_and_far(evidence: Evidence) -> tuple[Mapping[str, list[Pair]], Mapping[str, list[Pair]]]:
    """Pairs by sender; far ones only where no link of theirs is nominally faster than the
    slowest of the near ones."""
    topology = evidence.topology
    routes = topology.routes(evidence.endpoints)
    fabric = {LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK, LinkKind.C2C}
    near: dict[str, list[Pair]] = defaultdict(list)
    far: dict[str, list[Pair]] = defaultdict(list)
    least: dict[Pair, float] = {}
    for pair in evidence.rates:
        if any(map(evidence.is_host, pair)):
            continue  # the host's memory is no card
        index = routes.pair_index(*pair)
        code = int(routes.path_class.flat[index])
        route = [topology.links[k] for k in routes.route(*pair)]
        known = [link.nominal_Bps for link in route if link.nominal_Bps is not None]
        least[pair] = min(known, default=math.inf)
        if any(link.kind in fabric for link in route):
            continue
        if PathClass.PIX <= code <= PathClass.NODE:
            near[pair[0]].append(pair)
        elif code == PathClass.SYS:
            far[pair[0]].append(pair)
    expected: dict[str, list[Pair]] = {}
    for sender, pairs in far.items():
        slowest = min((least[p] for p in near.get(sender, ())), default=math.inf)
        expected[sender] = [p for p in pairs if least[p] <= slowest]
    return near, expected


def _peer_access(evidence: Evidence) -> str:
    said = evidence.topology.graph.graph.get("peer_access")
    if said is False:
        return " (peer access is off here)"
    if said is True:
        return ", but peer access is on here"
    return "; check whether peer access is on"


def _by_factor(log_ratio: float) -> Severity:
    if log_ratio >= DOUBLE:
        return Severity.SERIOUS
    return Severity.WARNING if log_ratio >= math.log(1.3) else Severity.NOTE

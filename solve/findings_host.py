"""A card whose own way to the host is slow, told from copies with the host's memory.

Each card has a link of its own there, so that two cards are enough to compare, which the finders
of stragglers need more for.  What says that it is the card's link and no noise is that both
directions agree: the scatter is estimated from how far they do not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity, Shown, listed, span
from topocal.solve.findings_links import pcie_states
from topocal.solve.findings_pairs import STRAGGLES, find_stragglers
from topocal.solve.words import ranges
from topocal.topo.resource import NodeKind

__all__ = ["find_slow_host_links"]

CLEAR: Final = 4.0
"""A card is slow by so many times what the directions of the cards differ among themselves."""

FAR: Final = math.log(1.1)
"""Memory that is far is slower by more: published MI250 and MI300 boxes lose 20 to 35 %."""

_SHOWN: Final = 8


def find_slow_host_links(evidence: Evidence) -> list[Finding]:
    """Cards whose copies with the host are slow both ways, where another's are not."""
    told = {name for f in find_stragglers(evidence) for name in f.about}
    found = []
    by_host = _by_host(evidence)
    if len(by_host) > 1:
        return _near_and_far(by_host)
    for host, rates in by_host.items():
        mine = {c: both for c, both in rates.items() if c not in told}
        if len(mine) < 2:
            continue
        level = {c: math.sqrt(to * back) for c, (to, back) in mine.items()}
        best = max(level.values())
        # The two directions of one link may differ by themselves, by the same on every card.
        logs = [math.log(to / back) for to, back in mine.values()]
        off = max(abs(x - median(logs)) for x in logs)
        least = max(-math.log(STRAGGLES), CLEAR * off)
        slow = [c for c, rate in level.items() if math.log(best / rate) > least]
        if slow and 2 * len(slow) <= len(mine):
            found.append(_slow_link(evidence, host, slow, mine))
    return found


def _near_and_far(
    by_host: Mapping[str, Mapping[str, tuple[float, float]]],
) -> list[Finding]:
    """Which card is near to which of several host memories, where all of them tell."""
    hosts = list(by_host)
    cards = [c for c in by_host[hosts[0]] if all(c in rates for rates in by_host.values())]
    level = {(h, c): math.sqrt(by_host[h][c][0] * by_host[h][c][1]) for h in hosts for c in cards}
    nearest = {c: max(hosts, key=lambda h: level[h, c]) for c in cards}
    far = {(h, c) for h in hosts for c in cards if h != nearest[c]}
    if len(cards) < 2 or len(set(nearest.values())) < 2:
        return []
    if any(math.log(level[nearest[c], c] / level[h, c]) < FAR for h, c in far):
        return []
    parts = [
        f"{ranges(mine)} {'is' if len(mine) == 1 else 'are'} near {h}"
        for h in hosts
        if (mine := [c for c in cards if nearest[c] == h])
    ]
    near = [r for c in cards for r in by_host[nearest[c]][c]]
    others = [r for h, c in far for r in by_host[h][c]]
    return [
        Finding(
            kind=FindingKind.FAR_HOST,
            severity=Severity.NOTE,
            about=tuple(cards)[:_SHOWN],
            text=(
                f"{listed(parts)}: copies with the near memory run at {span(near)}, with the far "
                f"one at {span(others)}, across what joins the sockets. Keep a card's buffers and "
                "processes on its own socket."
            ),
            evidence=tuple(
                Shown(name=f"{h}->{c}", rate_Bps=by_host[h][c][0]) for c in cards for h in hosts
            )[:_SHOWN],
        )
    ]


def _by_host(evidence: Evidence) -> dict[str, dict[str, tuple[float, float]]]:
    """By host memory and card: rates from the host and back, alone, where both were measured."""
    kinds = dict(evidence.topology.graph.nodes(data="kind"))
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    alone = evidence.pair_rates_Bps
    for (a, b), rate in alone.items():
        if not evidence.is_host(a) or evidence.is_host(b) or kinds[b] is NodeKind.NIC:
            continue
        if (back := alone.get((b, a))) is not None:
            found[a][b] = (rate, back)
    return found


def _slow_link(
    evidence: Evidence,
    host: str,
    slow: Sequence[str],
    rates: Mapping[str, tuple[float, float]],
) -> Finding:
    others = [c for c in rates if c not in slow]
    mine = [r for c in slow for r in rates[c]]
    usual = [r for c in others for r in rates[c]]
    worst = min(mine)
    states = pcie_states(median(mine)) if max(mine) < 1.3 * worst else []
    passes = f"; PCIe {' or '.join(states)} passes as much" if states else ""
    verb, its, it = ("copies", "its", "it") if len(slow) == 1 else ("copy", "their", "they")
    share = median(mine) / median(usual)
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.SERIOUS if share <= 0.5 else Severity.WARNING,
        about=tuple(slow),
        text=(
            f"{ranges(slow)} {verb} to and from the host at {evidence.span(mine)}, "
            f"{ranges(others)} at {evidence.span(usual)}: the limit is {its} own way to {host}. "
            f"Look at {its} link (width, generation, riser, slot){passes}; or {it} "
            f"{'sits' if len(slow) == 1 else 'sit'} on another socket than the memory."
        ),
        evidence=tuple(
            Shown(name=f"{a}->{b}", rate_Bps=evidence.pair_rates_Bps[a, b])
            for c in (*slow, *others)
            for a, b in ((host, c), (c, host))
        )[:_SHOWN],
    )

"""A card that is slow among many that run at once, where a tool prints the rate of each flow.

The time of the whole pattern is that of its slowest flow, so that the fit sees one figure and not
who made it late.  The flows' own rates tell: one card's are all slower than those of all others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from topocal.measure.samples import Sample
from topocal.solve.evidence import Finding, FindingKind, Pair, Severity, Shown, listed, span
from topocal.solve.findings_links import pcie_states
from topocal.solve.findings_pairs import MOST_STRAGGLERS, STRAGGLES
from topocal.solve.settings import Setting
from topocal.solve.words import is_host, ranges
from topocal.topo.naming import natural_key

__all__ = ["find_slow_at_once"]

FEWEST_FLOWS: Final = 6
"""All to all of three cards; of fewer flows the others are no measure."""

FEW: Final = 1 / 6
"""More of the flows than this take another way, as those of a ring that cross sockets."""

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class _Slow:
    """A card, the rates of its flows, and those of the flows between the others."""

    card: str
    mine: dict[Pair, float]
    others: list[float]


def find_slow_at_once(settings: Sequence[Setting]) -> list[Finding]:
    """Cards whose flows are all slower than those of the others, in any pattern."""
    found: dict[str, _Slow] = {}
    for setting in settings:
        patterns: dict[tuple[str, ...], dict[Pair, float]] = defaultdict(dict)
        for sample in setting.measurements.samples:
            # Patterns that ran at once stand in one table, ring by ring or plane by plane.
            key = (setting.label, str(len(sample.pattern.flows)))
            patterns[key] |= _rates(sample)
        for rates in patterns.values():
            for slow in _slow(rates):
                before = found.get(slow.card)
                if before is None or _share(slow) < _share(before):
                    found[slow.card] = slow
    return [_finding(slow) for slow in found.values()] + _single(settings)


def _single(settings: Sequence[Setting]) -> list[Finding]:
    """Flows of a ring, or of pairs one to one, that are slower than all others of it."""
    found = []
    for setting in settings:
        for sample in setting.measurements.samples:
            rates = _rates(sample)
            ends = [{pair[side] for pair in rates} for side in (0, 1)]
            if len(rates) < FEWEST_FLOWS or any(len(e) < len(rates) for e in ends):
                continue
            usual = median(rates.values())
            slow = {pair: rate for pair, rate in rates.items() if rate < STRAGGLES * usual}
            if not 0 < len(slow) <= FEW * len(rates):
                continue
            rest = [rate for pair, rate in rates.items() if pair not in slow]
            found.append(
                Finding(
                    kind=FindingKind.STRAGGLER,
                    severity=Severity.WARNING,
                    about=tuple(dict.fromkeys(n for pair in slow for n in pair))[:_SHOWN],
                    text=(
                        f"With all {len(rates)} at once {listed([f'{a}->{b}' for a, b in slow])} "
                        f"{'runs' if len(slow) == 1 else 'run'} at {span(list(slow.values()))}, "
                        f"the others at {span(rest)}: the last to finish sets the time of all."
                    ),
                    evidence=tuple(
                        Shown(name=f"{a}->{b}, all at once", rate_Bps=rate)
                        for (a, b), rate in list(slow.items())[:_SHOWN]
                    ),
                )
            )
    return found


def _rates(sample: Sample) -> dict[Pair, float]:
    """The rate of each flow of a pattern, over its own time; none where only the whole is known."""
    flows, finish = sample.pattern.flows, sample.flow_finish_s
    if len(flows) < 2 or finish is None:
        return {}
    return {
        (f.source, f.destination): f.size_bytes / seconds
        for f, seconds in zip(flows, finish, strict=True)
        if seconds > 0
    }


def _slow(rates: dict[Pair, float]) -> list[_Slow]:
    cards = sorted({n for pair in rates for n in pair if not is_host(n)}, key=natural_key)
    if len(rates) < FEWEST_FLOWS or any(is_host(n) for pair in rates for n in pair):
        return []
    found = []
    for card in cards:
        mine = {pair: rate for pair, rate in rates.items() if card in pair}
        others = [rate for pair, rate in rates.items() if card not in pair]
        if len(mine) >= 2 and others and max(mine.values()) < STRAGGLES * median(others):
            found.append(_Slow(card, mine, others))
    return found if len(found) <= MOST_STRAGGLERS * len(cards) else []


def _share(slow: _Slow) -> float:
    return median(slow.mine.values()) / median(slow.others)


def _finding(slow: _Slow) -> Finding:
    share = _share(slow)
    rates: Iterable[float] = slow.mine.values()
    partners = {n for pair in slow.mine for n in pair} - {slow.card}
    total = math.fsum(rate for (a, _), rate in slow.mine.items() if a == slow.card)
    states = pcie_states(total) if total else []
    passes = f"; what it sends is {span([total])} in all" if total else ""
    passes += f", as PCIe {' or '.join(states)} passes" if states else ""
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.SERIOUS if share <= 0.5 else Severity.WARNING,
        about=(slow.card,),
        text=(
            f"With all at once {slow.card} is slow with every partner: {span(list(rates))} a flow "
            f"with {ranges(partners)}, where flows between the others run at "
            f"{span(slow.others)}. The limit is its own: look at its link, not at theirs{passes}."
        ),
        evidence=tuple(
            Shown(name=f"{a}->{b}, all at once", rate_Bps=rate)
            for (a, b), rate in list(slow.mine.items())[:_SHOWN]
        ),
    )

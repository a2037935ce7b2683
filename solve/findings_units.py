"""Figures of which the unit cannot be right: bits for bytes, megabytes for gigabytes.

Somebody's table has a wrong heading, or a script divides once too often.  All its figures are then
off by one and the same factor, and what the machine's links pass (or another file of the same
transfers) says by which.  A factor of 8 that slows is none of these: links are trained down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity, Shown, span

__all__ = ["find_wrong_unit", "unit_between"]

_FACTORS: Final = (
    (8.0, "Gb/s and GB/s"),
    (1000.0, "MB/s and GB/s"),
    (1024.0, "MiB/s and GiB/s"),
    (125.0, "Mb/s and GB/s"),
)

CLOSE: Final = math.log(1.06)
"""Two files of the same transfers agree within so much once their units do."""

REACHED: Final = (0.55, 1.12)
"""Share of what links pass nominally that transfers reach, in the right unit."""

FASTEST_BPS: Final = 4e12
"""No card's links pass more: 1.8 TB/s of NVLink 5, both ways."""

SLOWEST_BPS: Final = 40e6
"""A lane of PCIe generation 1 passes 200 MB/s, and copies through the host's memory a fifth."""

_FEWEST: Final = 2


def unit_between(ratio: float) -> str:
    """The units that a factor lies between, as the end of a sentence; empty where it is none.

    >>> unit_between(8.1)
    'Gb/s and GB/s'
    >>> unit_between(3.0)
    ''
    """
    ratio = max(ratio, 1.0 / ratio)
    near = min(_FACTORS, key=lambda item: abs(math.log(ratio / item[0])))
    return near[1] if abs(math.log(ratio / near[0])) <= CLOSE else ""


def find_wrong_unit(evidence: Evidence) -> list[Finding]:
    """Pairs that all read as no link can, or as one would in another unit."""
    rates = list(evidence.pair_rates_Bps.values())
    if len(rates) < _FEWEST:
        return []
    shares = _shares(evidence)
    if min(rates) > FASTEST_BPS:
        what = "no link of a card passes so much"
    elif max(rates) < SLOWEST_BPS:
        what = "no link of a card is so slow"
    elif len(shares) == len(rates) and min(shares) > 2.0 and _meant(shares):
        what = f"{median(shares):.2g} times what the links on the way pass nominally"
    else:
        return []
    unit = _meant(shares) or _plain(rates)
    return [
        Finding(
            kind=FindingKind.UNITS,
            severity=Severity.WARNING,
            about=tuple(dict.fromkeys(n for p in evidence.pair_rates_Bps for n in p))[:8],
            text=(
                f"All {len(rates)} figures are {span(rates)}: {what}. They may be {unit}; check "
                "the heading of the table, or the script that made it, before anything else."
            ),
            evidence=tuple(
                Shown(name=f"{a}->{b}", rate_Bps=rate)
                for (a, b), rate in list(evidence.pair_rates_Bps.items())[:8]
            ),
        )
    ]


def _shares(evidence: Evidence) -> list[float]:
    """Rates over what the slowest link on the way passes nominally, where that is known."""
    topology = evidence.topology
    routes = topology.routes(evidence.endpoints)
    found = []
    for pair, rate in evidence.pair_rates_Bps.items():
        known = [topology.links[k].nominal_Bps for k in routes.route(*pair)]
        if known and None not in known:
            found.append(rate / min(x for x in known if x is not None))
    return found


def _plain(rates: Sequence[float]) -> str:
    """The nearest unit in which a card could pass so much."""
    if min(rates) > FASTEST_BPS:
        return f"megabytes per second, {span([r / 1e3 for r in rates])}"
    return f"gigabytes per second, {span([r * 1e3 for r in rates])}"


def _meant(shares: Sequence[float]) -> str:
    """Which unit would bring the figures to what the links pass."""
    if not shares:
        return ""
    middle = median(shares)
    for factor, words in (
        (8.0, "gigabits per second that are called gigabytes"),
        (1000.0, "megabytes per second that are called gigabytes"),
        (1e-3, "gigabytes per second that are called megabytes"),
    ):
        if REACHED[0] <= middle / factor <= REACHED[1]:
            return words
    return ""

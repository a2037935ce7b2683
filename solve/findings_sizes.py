"""Rates that fall where messages grow.

A transfer costs a start-up and then its bytes, so that the rate of a sweep rises and levels off.
Where it falls again, what large messages outgrow is the limit, and no resource of a fit is: a
fit's rate is that of the largest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from topocal.solve.evidence import Finding, FindingKind, Severity, Shown, listed
from topocal.solve.settings import Setting
from topocal.solve.words import pattern_in_words
from topocal.topo.errors import TopocalError
from topocal.topo.units import format_bytes, format_rate, parse_bytes

__all__ = ["SIZED", "find_falling_rates"]

FALLS: Final = 0.75
"""The rate of the largest messages over the best: sound sweeps level off within a tenth, with one
timing of each size within two."""

FEWEST_SIZES: Final = 3
"""Two are no sweep."""

LEAST_BYTES: Final = 65_536
"""A best below this is one of start-up, as of a cache that holds the whole message."""

SIZED: Final = re.compile(r"(?P<metric>.+) at (?P<size>[0-9.]+ \w+)")
"""A reading by size: ``all_reduce bus bandwidth at 16 MiB``."""

_MOST_TOLD: Final = 3


def find_falling_rates(settings: Sequence[Setting]) -> list[Finding]:
    """Sweeps whose largest messages are slower than smaller ones, those of one file in one."""
    found: dict[str, list[tuple[str, float, float, float, float]]] = defaultdict(list)
    for setting in settings:
        for name, by_size in _sweeps(setting).items():
            if (fall := _fall(by_size)) is not None:
                found[setting.source].append((name, *fall))
    return [_falling(mine) for mine in found.values()]


def _sweeps(setting: Setting) -> dict[str, dict[float, float]]:
    """Rates by size, of each pattern and of each collective."""
    several: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in setting.measurements.samples:
        if sample.size_known:
            size = max(f.size_bytes for f in sample.pattern.flows)
            several[pattern_in_words(sample.pattern)][size].append(sample.throughput_Bps)
    for reading in setting.readings:
        match = SIZED.fullmatch(reading.what)
        if match is None or reading.unit != "B/s" or reading.pattern is not None:
            continue
        try:
            several[match["metric"]][parse_bytes(match["size"])].append(reading.value)
        except TopocalError:  # no size after all
            continue
    return {
        name: {size: median(rates) for size, rates in by_size.items()}
        for name, by_size in several.items()
    }


def _fall(by_size: Mapping[float, float]) -> tuple[float, float, float, float] | None:
    """Best size and rate, largest size and rate, where the rate falls."""
    if len(by_size) < FEWEST_SIZES:
        return None
    best = max(by_size, key=lambda size: by_size[size])
    largest = max(by_size)
    if best < LEAST_BYTES or by_size[largest] >= FALLS * by_size[best]:
        return None
    return best, by_size[best], largest, by_size[largest]


def _falling(found: Sequence[tuple[str, float, float, float, float]]) -> Finding:
    first = {name: rest for name, *rest in reversed(found)}
    shown = [
        f"{name} reaches {format_rate(rate)} at {format_bytes(best)} and falls to "
        f"{format_rate(last)} at {format_bytes(largest)}"
        for name, (best, rate, largest, last) in reversed(first.items())
    ]
    return Finding(
        kind=FindingKind.SIZES,
        severity=Severity.WARNING,
        about=tuple(reversed(first))[:_MOST_TOLD],
        text=(
            f"{listed(shown, _MOST_TOLD)}. Links do not do that: large messages outgrow something "
            "that smaller ones do not fill, such as a buffer, a cache of addresses or a queue of a "
            "switch."
        ),
        evidence=tuple(
            Shown(name=f"{name} at {format_bytes(size)}", rate_Bps=rate)
            for name, best, high, largest, low in found[:_MOST_TOLD]
            for size, rate in ((best, high), (largest, low))
        ),
    )

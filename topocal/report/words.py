"""Numbers and statuses as the report writes them: one unit of rate for the whole page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from topocal.solve.model import FittedResource
from topocal.solve.status import Status
from topocal.topo.units import rate_unit_Bps

__all__ = [
    "OPEN",
    "STATUS_WORDS",
    "Unit",
    "capacity_words",
    "file_name",
    "kept_together",
    "unit_for",
    "with_arrows",
]

STATUS_WORDS: Final = {
    Status.PINNED: "some pattern has it as its clear bottleneck",
    Status.CONFOUNDED: "it explains patterns that another resource may explain as well",
    Status.BOUNDED: "it never had to be the bottleneck: at least so much",
    Status.SERIES: "the same flows load it as another one, which stands for both",
    Status.ALIKE: "never the bottleneck, but others of its make were",
    Status.ASSUMED: "nothing measured loads it; its nominal value is taken",
    Status.UNKNOWN: "nothing measured loads it and nothing says what it passes",
}
"""What each status means (docs/fitting.md has the same table)."""

_QUANTITY: Final = re.compile(r"(?<=\d) (?=(?:[kMGT]?i?B(?:/s)?|[mun]?s|%|times)(?![^\W_]))")
"""The blank between a number and its unit."""

OPEN: Final = (Status.BOUNDED, Status.SERIES, Status.ALIKE)
"""Statuses whose capacity is a least one."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of rate: its name, and bytes per second in one of it."""

    name: str
    Bps: float

    def number(self, value_Bps: float, *, fine: bool = True) -> str:
        """A rate without its unit; with one decimal, or two digits where it is small.

        >>> unit = Unit("GB/s", 1e9)
        >>> unit.number(27.44e9), unit.number(0.734e9), unit.number(0.0123e9)
        ('27.4', '0.73', '0.012')
        """
        value = value_Bps / self.Bps
        if math.isinf(value):
            return "∞"
        if 0 < value < 0.095:
            return f"{value:.2g}"
        if 0 < value < 0.95:
            return f"{value:.2f}"
        return f"{value:.1f}" if fine and value < 10_000 else f"{value:.0f}"

    def span(self, low_Bps: float, high_Bps: float) -> str:
        """Two rates as a range, or one where they read the same."""
        fine = high_Bps < 100 * self.Bps
        low, high = self.number(low_Bps, fine=fine), self.number(high_Bps, fine=fine)
        return self.number(high_Bps) if low == high else f"{low}–{high}"


def unit_for(rates_Bps: Iterable[float]) -> Unit:
    """The unit in which most of the rates read well.

    >>> unit_for([27e9, 54e9]).name, unit_for([1.2e8]).name
    ('GB/s', 'MB/s')
    """
    known = [r for r in rates_Bps if 0 < r < math.inf]
    middle = float(np.median(known)) if known else rate_unit_Bps("GBps")
    for name in ("GB/s", "MB/s", "kB/s"):
        factor = rate_unit_Bps(name)
        if middle >= 0.3 * factor:
            return Unit(name, factor)
    return Unit("B/s", 1.0)


def capacity_words(resource: FittedResource, unit: Unit) -> str:
    """What a resource passes, with its unit and how far that is known."""
    if resource.kappa is not None:
        return f"time-shared × {resource.kappa:.3f}"
    if resource.capacity_Bps is None:
        return "unknown"
    least = "at least " if resource.status in OPEN else ""
    return f"{least}{unit.number(resource.capacity_Bps)} {unit.name}"


def file_name(path: str) -> str:
    """The last part of a path: where somebody keeps a file is not for the report."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def with_arrows(text: str) -> str:
    """Notation as the page shows it.

    >>> with_arrows("gpu0->gpu1, gpu2<-gpu3, gpu4<->gpu5")
    'gpu0→gpu1, gpu2←gpu3, gpu4↔gpu5'
    """
    return text.replace("<->", "↔").replace("->", "→").replace("<-", "←")


def kept_together(text: str) -> str:
    """Numbers and their units, with a blank between them that no line breaks at.

    >>> kept_together("14.4 GB/s and 2 more")
    '14.4\\xa0GB/s and 2 more'
    """
    return _QUANTITY.sub("\N{NO-BREAK SPACE}", text)

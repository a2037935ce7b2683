"""What the line above a table of figures says: of what they are, in which unit, which way.

People print matrices with titles of their own; what counts is whether a title names a rate,
a time or something else (weights, hops, distances, who may access whom), the unit in it, and
words such as *bidirectional*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topocal.topo.errors import UnitError, one_line
from topocal.topo.units import rate_unit_Bps

__all__ = ["Title", "title_above"]

_UNIT: Final = re.compile(r"(?<![A-Za-z])([KMGT]i?[Bb])(?:/s(?:ec)?|ps|_per_s)\b")
_TIME: Final = re.compile(r"latenc|\(\s{0,4}(?:us|µs|μs|ns|ms|usec)\s{0,4}\)|\btime\b", re.I)
_SECONDS: Final = re.compile(r"\b(ns|us|µs|μs|usec|ms)\b")
_SCALE: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "ms": 1e-3}
_OTHER: Final = re.compile(
    r"\bweights?\b|\bhops?\b|distances?\b|link type|accessib|inter-device access|connectivity"
    r"|can access|peer access|support(?:ed)? matrix|numa node",
    re.I,
)
_BOTH: Final = re.compile(r"bi-?directional|both ways|full.?duplex|two.?way|simultaneous", re.I)
_ONE: Final = re.compile(r"uni-?directional|one.?way", re.I)
_NAMED: Final = re.compile(r"bandwidth|throughput|\brates?\b|speed|transfer|\bbw\b", re.I)
_LOOK_BACK: Final = 3
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """What a title says.

    Attributes
    ----------
    text
        The line; empty where there is none.
    what
        ``rate``, ``time`` or ``other``.
    unit_Bps
        Bytes per second in one, where it names a unit.
    unit_s
        Seconds in one, of a time.
    both_ways
        Whether figures are of both directions at once; ``None`` where it does not say.
    """

    text: str = ""
    what: str = "rate"
    unit_Bps: float | None = None
    unit_s: float = 1e-6
    both_ways: bool | None = None


def title_above(lines: Sequence[str], at: int) -> Title:
    """The title of the table whose header is line ``at``.

    >>> title_above(["Bidirectional Bandwidth (MB/s)", "", "  0 1"], 2).both_ways
    True
    >>> title_above(["=== Weight between two GPUs ===", "  GPU0 GPU1"], 1).what
    'other'
    """
    above = [line for line in lines[max(0, at - 8) : at] if line.strip(" \t=-#*+:")]
    for line in reversed(above[-_LOOK_BACK:]):
        text = line.strip(" \t=-#*:")
        if len(text) > _LONGEST or _is_row(text):
            break
        found = _read(text)
        if found is not None:
            return found
    return Title()


def _is_row(text: str) -> bool:
    """Whether a line is of another table rather than a title."""
    words = text.split()
    figures = sum(1 for word in words if word.replace(".", "", 1).isdigit())
    return len(words) > 2 and 2 * figures > len(words)


def _read(text: str) -> Title | None:
    unit = _UNIT.search(text)
    shown = one_line(text)
    if unit is None and _OTHER.search(text):
        return Title(text=shown, what="other")
    if unit is None and _TIME.search(text):
        scale = _SECONDS.search(text)
        return Title(text=shown, what="time", unit_s=_SCALE[scale[1]] if scale else 1e-6)
    if unit is None and _NAMED.search(text) is None:
        return None
    both = True if _BOTH.search(text) else False if _ONE.search(text) else None
    try:
        unit_Bps = None if unit is None else rate_unit_Bps(unit[1] + "/s")
    except UnitError:
        unit_Bps = None
    return Title(text=shown, unit_Bps=unit_Bps, both_ways=both)

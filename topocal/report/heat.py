"""Pair matrices as heat maps: which shade each cell has, and what is written in it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.report.figures import Pairs
from topocal.report.words import Unit
from topocal.topo.render.drawing import shorten, shorten_apart

__all__ = ["SHADES", "Heat", "HeatCell", "Heats", "heat_maps"]

SHADES: Final = 9
"""Of each scale; the style sheet has as many."""

_LONGEST_HEAD: Final = 4
"""Longer names do not head columns."""
_LEAST_SPREAD: Final = 0.2
"""Rates that differ by less than this share are shown in like shades."""
_WIDE: Final = 4.0
"""Where the fastest pair is so many times as fast as the slowest, shades are logarithmic."""
_LEAST_ERROR: Final = 0.045
"""Errors up to so much never reach the darkest shades."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """Class of the shade, and text."""

    shade: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """One matrix.

    Attributes
    ----------
    title
        What it shows.
    rows
        Cells, row by row.
    scale
        ``shade, text`` from the least to the greatest, for the legend.
    """

    title: str
    rows: list[list[HeatCell]]
    scale: list[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heats:
    """Matrices of the same endpoints.

    Attributes
    ----------
    rows, columns
        How endpoints head them: by name; columns by number where names are long.
    ids
        Their full names.
    hosts
        ``(host, number of endpoints)`` in order, where there are several hosts.
    are_long
        Whether names are too long for the head of a column.
    size
        ``s`` (figures fit on a phone), ``m`` (figures fit on a screen), ``l``, ``xl``: none do.
    maps
        Measured, predicted, error; only the predicted one where nothing was measured.
    left_out
        Reason of each pair that the fit left out, by what to call it.
    """

    rows: list[str]
    columns: list[str]
    ids: list[str]
    hosts: list[tuple[str, int]]
    are_long: bool
    size: str
    maps: list[Heat]
    left_out: dict[str, str]


def heat_maps(pairs: Pairs, unit: Unit) -> Heats:
    """The matrices of a machine's pairs."""
    measured, predicted = pairs.measured_Bps, pairs.predicted_Bps
    both = np.concatenate([measured.ravel(), predicted.ravel()])
    both = both[np.isfinite(both)]
    low, high = (float(both.min()), float(both.max())) if len(both) else (0.0, 1.0)
    low = min(low, high * (1 - _LEAST_SPREAD))
    names, hosts = _heads(pairs.endpoints)
    marked = {(pairs.endpoints.index(a), pairs.endpoints.index(b)) for a, b in pairs.left_out}
    fine = high < 100 * unit.Bps
    maps = [_rates("Predicted", predicted, low, high, unit, set(), fine)]
    if np.isfinite(measured).any():
        maps = [
            _rates("Measured", measured, low, high, unit, marked, fine),
            *maps,
            _errors(pairs.error),
        ]
    n = len(pairs.endpoints)
    are_long = max(map(len, names), default=0) > _LONGEST_HEAD
    return Heats(
        rows=[f"{k} {name}" for k, name in enumerate(names, 1)] if are_long else names,
        columns=[str(k) for k in range(1, n + 1)] if are_long else names,
        ids=list(pairs.endpoints),
        hosts=hosts,
        are_long=are_long,
        size="s" if n <= 8 else "m" if n <= 16 else "l" if n <= 32 else "xl",
        maps=maps,
        left_out={f"{a}->{b}": why for (a, b), why in pairs.left_out.items()},
    )


def _heads(endpoints: tuple[str, ...]) -> tuple[list[str], list[tuple[str, int]]]:
    """Short names, and hosts where there are several of several endpoints each."""
    split = [end.rpartition("/") for end in endpoints]
    hosts = [(host, len(list(group))) for host, group in itertools.groupby(s[0] for s in split)]
    grouped = len(hosts) > 1 and len(hosts) < len(endpoints) and all(h for h, _ in hosts)
    own = [s[2] for s in split] if grouped else list(endpoints)
    if all(name.startswith("gpu") and name[3:].isdecimal() for name in own):
        own = [name[3:] for name in own]
    # A host's name has the room of its endpoints.
    hosts = [(shorten(host, max(6, 4 * n)), n) for host, n in hosts]
    return shorten_apart(own, 12), hosts if grouped else []


def _rates(
    title: str,
    values: NDArray[np.float64],
    low: float,
    high: float,
    unit: Unit,
    marked: set[tuple[int, int]],
    fine: bool,
) -> Heat:
    logarithmic = low > 0 and high > _WIDE * low

    def place(value: float) -> float:
        if logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low) if high > low else 0.5

    def shade(value: float) -> str:
        share = place(value)
        return f"q{min(SHADES - 1, int(share * SHADES))}"

    rows = []
    for i, row in enumerate(values.tolist()):
        cells = []
        for j, value in enumerate(row):
            mark = "†" if (i, j) in marked else ""
            if i == j:
                cells.append(HeatCell("x", ""))
            elif math.isnan(value):
                cells.append(HeatCell("z", mark or "·"))
            else:
                cells.append(HeatCell(shade(value), unit.number(value, fine=fine) + mark))
        rows.append(cells)
    middle = math.sqrt(low * high) if logarithmic else (low + high) / 2
    ends = {0: low, SHADES // 2: middle, SHADES - 1: high}
    scale = [
        HeatCell(f"q{k}", unit.number(ends[k], fine=fine) if k in ends else "")
        for k in range(SHADES)
    ]
    return Heat(title=f"{title}, {unit.name}", rows=rows, scale=scale)


def _errors(values: NDArray[np.float64]) -> Heat:
    known = np.abs(values[np.isfinite(values)])
    limit = max(_LEAST_ERROR, min(0.5, float(known.max(initial=0.0))))
    half = SHADES / 2
    rows = []
    for i, row in enumerate(values.tolist()):
        cells = []
        for j, value in enumerate(row):
            if i == j:
                cells.append(HeatCell("x", ""))
            elif math.isnan(value):
                cells.append(HeatCell("z", "·"))
            else:
                step = int(half + max(-1.0, min(1.0, value / limit)) * half * (1 - 1e-9))
                cells.append(HeatCell(f"d{step}", _percent(value)))
        rows.append(cells)
    ends = {0: _percent(-limit), SHADES // 2: "0", SHADES - 1: _percent(limit)}
    scale = [HeatCell(f"d{k}", ends.get(k, "")) for k in range(SHADES)]
    return Heat(title="Error of the prediction, %", rows=rows, scale=scale)


def _percent(value: float) -> str:
    """Signed percent in at most four characters."""
    shown = f"{100 * value:+.1f}" if abs(value) < 0.0995 else f"{100 * value:+.0f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown.replace("-", "−")

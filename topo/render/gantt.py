"""Flows over time as an SVG drawing: who moves when, how fast, and what limits it.

One row per flow; each bar is as tall as the flow is fast, beside its own best, and
has the colour of its bottleneck in that interval.  Waiting in line for an in-order resource is an
outline.  Below, how busy the resources are that limit most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.topo.render.drawing import SMALL, shorten, shorten_apart, text_width
from topocal.topo.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from jinja2 import Environment

    from topocal.topo.fluid import FluidResult, Segment

__all__ = ["MOST_FLOWS", "colours_of", "gantt_html", "gantt_svg"]

MOST_FLOWS: Final = 200
"""So many rows are drawn: of more flows those that finish last."""

_COLOURS: Final = 8
"""Resources with a colour of their own; the template has as many, and one for all others."""
_STRIPS: Final = 6
_STRIP_HEIGHT: Final = 26.0
_MARGIN: Final = 20.0
_TITLE: Final = 16.0
_LONGEST_LABEL: Final = 34
_LONGEST_END: Final = 16
"""Characters of a resource, and of an end of a flow."""
_TICKS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    x: float
    y: float
    width: float
    height: float
    colour: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    label: str
    y: float
    height: float
    bars: list[_Bar]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Strip:
    label: str
    colour: str
    y: float
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    x: float
    y: float
    text: str
    colour: str = ""


def colours_of(*results: FluidResult) -> dict[str, str]:
    """A colour for each of the resources that limit most, the same in all drawings.

    Raises
    ------
    SimulationError
        When a simulation kept no record.
    """
    limits: Counter[str] = Counter()
    for result in results:
        limits.update(_time_limited([result.segments(k) for k in _shown(result)]))
    return {name: f"c{k}" for k, (name, _) in enumerate(limits.most_common(_COLOURS))}


def gantt_svg(
    result: FluidResult,
    *,
    title: str,
    labels: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    until_s: float | None = None,
    width: float = 960.0,
) -> str:
    """Draw a recorded simulation.

    Parameters
    ----------
    result
        From ``simulate(…, record=True)``.
    title
        What stands above.
    labels
        Names of resources for people, by id; the id where there is none.
    colours
        From :func:`colours_of`; ``None``: those of this result alone.
    until_s
        Where the axis ends; ``None``: when the last flow finishes.  Give the same to
        drawings that are to be compared.
    width
        Width of the page in pixels, 480 or more.

    Raises
    ------
    SimulationError
        When the simulation kept no record.
    """
    if colours is None:
        colours = colours_of(result)
    page = _page(result, title, labels or {}, colours, until_s, max(width, 480.0))
    return _environment().get_template("gantt.svg.j2").render(page)


def gantt_html(
    drawings: list[str], *, title: str, sentences: list[str], table: list[list[str]]
) -> str:
    """One self-contained page: drawings, what they say in sentences, and a table.

    Parameters
    ----------
    drawings
        From :func:`gantt_svg`.
    table
        Rows of cells; the first is the header.
    """
    return (
        _environment()
        .get_template("gantt.html.j2")
        .render(drawings=drawings, title=title, sentences=sentences, table=table)
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("topocal.topo.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["px"] = lambda value: f"{value:.2f}".rstrip("0").rstrip(".")
    return environment


def _page(
    result: FluidResult,
    title: str,
    labels: Mapping[str, str],
    colours: Mapping[str, str],
    until_s: float | None,
    width: float,
) -> dict[str, object]:
    """Everything that the template draws, with its place."""
    shown = _shown(result)
    segments = [result.segments(k) for k in shown]
    limits = _time_limited(segments)
    end = until_s or result.seconds
    ends = sorted({e for k in shown for e in (result.flows[k].source, result.flows[k].destination)})
    short = dict(zip(ends, shorten_apart(ends, _LONGEST_END), strict=True))
    texts = [_flow_label(result, k, short) for k in shown]
    busiest = [name for name, _ in limits.most_common(_STRIPS)]
    called = [labels.get(name) or name for name in limits]
    names = dict(zip(limits, shorten_apart(called, _LONGEST_LABEL), strict=True))
    widest = max(text_width(text, SMALL) for text in [*texts, *(names[n] for n in busiest)])
    left = _MARGIN + widest + 10.0
    scale = (width - left - _MARGIN - 12.0) / end if end > 0 else 0.0
    height = _row_height(len(shown))
    top = 74.0
    rows = []
    for k, (text, parts) in enumerate(zip(texts, segments, strict=True)):
        y = top + k * height
        fastest = max((s.rate_Bps for s in parts), default=0.0)
        bars = [_bar(s, left, scale, y, height, fastest, colours, names) for s in parts]
        rows.append(_Row(label=text, y=y, height=height, bars=bars))
    below = top + len(rows) * height
    strips = [
        _Strip(
            label=names[name],
            colour=colours.get(name, "other"),
            y=below + 52.0 + k * (_STRIP_HEIGHT + 8.0),
            path=_steps(result, name, left, scale, below + 52.0 + k * (_STRIP_HEIGHT + 8.0), end),
        )
        for k, name in enumerate(busiest)
    ]
    legend_top = below + 52.0 + len(strips) * (_STRIP_HEIGHT + 8.0) + 16.0
    legend, bottom = _legend(limits, colours, names, legend_top, width)
    return {
        "title": shorten(title, int((width - 2 * _MARGIN) / text_width("n", _TITLE))),
        "subtitle": _subtitle(result, len(shown)),
        "width": width,
        "height": bottom + _MARGIN,
        "left": left,
        "right": left + end * scale,
        "top": top,
        "below": below,
        "row_height": height,
        "text_size": min(SMALL, max(6.0, height - 2.0)),
        "ticks": _ticks(end, left, scale),
        "rows": rows,
        "strips": strips,
        "strip_height": _STRIP_HEIGHT,
        "legend": legend,
        "small": SMALL,
    }


def _shown(result: FluidResult) -> list[int]:
    """Flows that get a row: all, or those that finish last, in the order they were given."""
    last = np.argsort(-result.finish_s, kind="stable")[:MOST_FLOWS]
    return sorted(int(k) for k in last)


def _time_limited(segments: list[list[Segment]]) -> Counter[str]:
    """For how long each resource limits a flow, summed over flows."""
    found: Counter[str] = Counter()
    for parts in segments:
        for s in parts:
            if s.bottleneck is not None:
                found[s.bottleneck] += s.end_s - s.begin_s  # type: ignore[assignment]
    return found


def _flow_label(result: FluidResult, flow: int, names: Mapping[str, str]) -> str:
    f = result.flows[flow]
    return f"{names[f.source]} → {names[f.destination]}  {format_bytes(f.size_bytes)}"


def _subtitle(result: FluidResult, rows: int) -> str:
    count = len(result.flows)
    flows = f"{count} flow" + ("s" if count != 1 else "")
    if rows < count:
        flows = f"the {rows} of {count} flows that finish last"
    return (
        f"{flows}; done after {format_seconds(result.seconds)}. Colour: what limits the flow. "
        "Height: its rate, beside its own best."
    )


def _row_height(rows: int) -> float:
    """Tall rows for few flows; many stay legible to the end."""
    return 24.0 if rows <= 24 else 16.0 if rows <= 64 else 11.0


def _bar(
    s: Segment,
    left: float,
    scale: float,
    y: float,
    height: float,
    fastest: float,
    colours: Mapping[str, str],
    names: Mapping[str, str],
) -> _Bar:
    room = height - 3.0
    tall = room if s.rate_Bps == 0 else max(2.0, room * s.rate_Bps / fastest)
    limit = names.get(s.bottleneck or "", "nothing")
    doing = (
        f"waits for {limit}"
        if s.rate_Bps == 0
        else f"{format_rate(s.rate_Bps)}, limited by {limit}"
    )
    return _Bar(
        x=left + s.begin_s * scale,
        y=y + height - 1.5 - tall,
        width=max(0.6, (s.end_s - s.begin_s) * scale),
        height=tall,
        colour=("wait " if s.rate_Bps == 0 else "") + colours.get(s.bottleneck or "", "other"),
        hint=f"{format_seconds(s.begin_s)} to {format_seconds(s.end_s)}: {doing}",
    )


def _steps(result: FluidResult, name: str, left: float, scale: float, y: float, end: float) -> str:
    """The utilisation of a resource as a filled stair."""
    times, used = result.utilisation(name)
    ground = y + _STRIP_HEIGHT
    parts = [f"M{left:.2f} {ground:.2f}"]
    for k, time in enumerate(times):
        until = float(times[k + 1]) if k + 1 < len(times) else end
        level = ground - _STRIP_HEIGHT * min(1.0, float(used[k]))
        parts.append(f"L{left + time * scale:.2f} {level:.2f}H{left + until * scale:.2f}")
    return "".join(parts) + f"V{ground:.2f}Z"


def _ticks(end: float, left: float, scale: float) -> list[_Mark]:
    """Round times along the axis."""
    if end <= 0:
        return [_Mark(x=left, y=0.0, text="0")]
    raw = end / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
    count = math.floor(end / step * (1 + 1e-9))
    return [
        _Mark(x=left + k * step * scale, y=0.0, text=format_seconds(k * step) if k else "0")
        for k in range(count + 1)
    ]


def _legend(
    limits: Counter[str],
    colours: Mapping[str, str],
    names: Mapping[str, str],
    top: float,
    width: float,
) -> tuple[list[_Mark], float]:
    """Colours and what they mean, in lines as wide as the page; and where they end."""
    entries = [(colour, names[name]) for name, colour in colours.items() if name in limits]
    others = len(limits) - len(entries)
    if others:
        entries.append(("other", f"{others} other resource" + ("s" if others > 1 else "")))
    marks, x, y = [], _MARGIN, top + 14.0
    for colour, text in entries:
        wide = 18.0 + text_width(text, SMALL) + 16.0
        if x + wide > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + 20.0
        marks.append(_Mark(x=x, y=y, text=text, colour=colour))
        x += wide
    return marks, y

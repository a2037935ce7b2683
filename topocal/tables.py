"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from topocal.console import safe
from topocal.solve.status import Status
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from rich.table import Table

    from topocal.solve.model import FittedResource, Model

__all__ = ["basis", "capacity_table", "percent", "plain_table"]

_MOST_NAMES = 2
_WIDE = 100
"""Terminals of so many columns hold a table of capacities with all that it says."""


def percent(ratio: float) -> str:
    """A signed percentage with one decimal; what rounds to nothing has no sign.

    >>> percent(0.0123), percent(-0.0002)
    ('+1.2%', '0.0%')
    """
    shown = f"{ratio:+.1%}"
    return "0.0%" if shown in ("+0.0%", "-0.0%") else shown


def plain_table(
    title: str, columns: Iterable[str], right: Iterable[int] = (), whole: Iterable[int] = ()
) -> Table:
    """An empty table in the house style.

    Parameters
    ----------
    right
        Numbers of the columns that align right.
    whole
        Numbers of those that no line breaks, as long as they fit the terminal at all.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="",
        pad_edge=False,
    )
    aligned, kept = set(right), set(whole)
    for k, name in enumerate(columns):
        table.add_column(
            name,
            justify="right" if k in aligned else "left",
            overflow="fold",
            no_wrap=k in kept,
        )
    return table


def capacity_table(model: Model, width: int) -> Table:
    """Every resource that explains a sample, with its interval and what it rests on.

    Parameters
    ----------
    width
        Of the terminal: in a narrow one what each rests on is left out. An interval with two
        ends is one of what is pinned.
    """
    columns = ("resource", "capacity", "95 % interval", "rests on")
    shown = [r for r in model.resources.values() if r.status in ("pinned", "confounded")]
    count = 4 if width >= _WIDE else 3
    table = plain_table("Fitted capacities", columns[:count], right=(1, 2))
    for r in shown:
        cells = (safe(r.label), _capacity(r), _interval(r), safe(basis(r)))
        table.add_row(*cells[:count])
    return table


def _capacity(resource: FittedResource) -> str:
    if resource.kappa is not None:
        return f"time-shared × {resource.kappa:.3f}"
    return format_rate(resource.capacity_Bps)


def _interval(resource: FittedResource) -> str:
    if resource.kappa is not None:
        return ""
    low = "0" if resource.low_Bps is None else format_rate(resource.low_Bps).removesuffix(" GB/s")
    if resource.high_Bps is None:
        if resource.low_Bps is None:
            return "unknown"
        return f"at least {format_rate(resource.low_Bps)}"
    return f"{low} – {format_rate(resource.high_Bps)}"


def basis(resource: FittedResource) -> str:
    """What a capacity rests on, in words."""
    if resource.pinned_by:
        return "pinned by " + _some(resource.pinned_by)
    if resource.confounded_with:
        return "or else " + _some(resource.confounded_with)
    if resource.status is Status.CONFOUNDED:
        return "or else its flows take turns"
    return str(resource.status)


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

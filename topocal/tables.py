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


def percent(ratio: float) -> str:
    """A signed percentage with one decimal; what rounds to nothing has no sign.

    >>> percent(0.0123), percent(-0.0002)
    ('+1.2%', '0.0%')
    """
    shown = f"{ratio:+.1%}"
    return "0.0%" if shown in ("+0.0%", "-0.0%") else shown


def plain_table(title: str, columns: Iterable[str], right: Iterable[int] = ()) -> Table:
    """An empty table in the house style; columns numbered in ``right`` align right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    aligned = set(right)
    for k, name in enumerate(columns):
        table.add_column(name, justify="right" if k in aligned else "left", overflow="fold")
    return table


def capacity_table(model: Model) -> Table:
    """Every resource that explains a sample, with its interval and what it rests on."""
    table = plain_table(
        "Fitted capacities", ("resource", "capacity", "95 % interval", "rests on"), right=(1, 2)
    )
    for resource in model.resources.values():
        if resource.status in ("pinned", "confounded"):
            table.add_row(
                safe(resource.label),
                _capacity(resource),
                _interval(resource),
                safe(basis(resource)),
            )
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

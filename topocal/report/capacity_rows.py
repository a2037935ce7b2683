"""The table of capacities: one row for each resource, or for those of like machines together."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topocal.report.words import Unit, capacity_words
from topocal.solve.status import Status
from topocal.tables import basis

if TYPE_CHECKING:
    from topocal.report.families import Families
    from topocal.solve.model import FittedResource, Model

__all__ = ["CapacityRow", "capacity_rows"]

_MOST_ROWS: Final = 400
"""Of more resources, those of like machines stand together; and so many rows in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """A resource, or several alike.

    Attributes
    ----------
    name
        Its label.
    capacity, interval
        In words.
    status
        What it rests on.
    basis
        The same in words, with names.
    nominal
        Its share of the nominal capacity in percent, where there is one.
    """

    name: str
    capacity: str
    interval: str
    status: Status
    basis: str
    nominal: str


def capacity_rows(
    model: Model, families: Families, unit: Unit
) -> tuple[list[CapacityRow], list[str]]:
    """Rows by status, what is known best first; and sentences on what is left out."""
    table = list(model.resources.values())
    order = list(Status)
    left_out = []
    if len(table) > _MOST_ROWS:
        rows = _by_family(model, families, table, unit)
        left_out.append(
            f"{len(table)} capacities stand in {len(rows)} rows, those of like hosts together; "
            "model.json has each."
        )
    else:
        rows = [_row(model, r, unit) for r in table]
    rows.sort(key=lambda row: order.index(row.status))
    if len(rows) > _MOST_ROWS:
        left_out.append(f"{len(rows) - _MOST_ROWS} of {len(rows)} rows of capacities are left out.")
    return rows[:_MOST_ROWS], left_out


def _row(model: Model, r: FittedResource, unit: Unit) -> CapacityRow:
    nominal_Bps = model.topology.resources[r.id].nominal_Bps
    share = (
        f"{r.capacity_Bps / nominal_Bps:.0%}"
        if nominal_Bps and r.capacity_Bps and r.status is not Status.ASSUMED
        else ""
    )
    return CapacityRow(
        name=r.label,
        capacity=capacity_words(r, unit),
        interval=_interval(r, unit),
        status=r.status,
        basis="" if basis(r) == str(r.status) else basis(r),
        nominal=share,
    )


def _interval(r: FittedResource, unit: Unit) -> str:
    if r.kappa is not None or r.low_Bps is None:
        return ""
    if r.high_Bps is None:
        return f"≥ {unit.number(r.low_Bps)}" if r.status is Status.CONFOUNDED else ""
    return f"{unit.number(r.low_Bps)} – {unit.number(r.high_Bps)}"


def _by_family(
    model: Model, families: Families, table: list[FittedResource], unit: Unit
) -> list[CapacityRow]:
    """Resources of one label but for their host, and of one status."""
    hosts = sorted(
        {name for folded in families.machines for name in folded.names if name},
        key=len,
        reverse=True,
    )
    known = set(hosts)
    groups: dict[tuple[str, Status], list[FittedResource]] = defaultdict(list)
    for r in table:
        groups[_without_hosts(r.label, known), r.status].append(r)
    rows = []
    for (label, status), members in groups.items():
        if len(members) == 1:
            rows.append(_row(model, members[0], unit))
            continue
        rates = [r.capacity_Bps for r in members if r.capacity_Bps is not None]
        middle = f", median {unit.number(statistics.median(rates))}" if rates else ""
        rows.append(
            CapacityRow(
                name=f"{label} ({len(members)} alike)",
                capacity=f"{unit.span(min(rates), max(rates))} {unit.name}" if rates else "unknown",
                interval="",
                status=status,
                basis=f"{len(members)} resources{middle}",
                nominal="",
            )
        )
    return rows


def _without_hosts(label: str, hosts: set[str]) -> str:
    """A label with ``…`` in place of hosts, such as ``…/gpu0->…/nvswitch0``."""
    parts = label.replace("->", " -> ").split(" ")
    shown = []
    for part in parts:
        host, slash, own = part.rpartition("/")
        shown.append(f"…/{own}" if slash and host in hosts else part)
    return " ".join(shown).replace(" -> ", "->")

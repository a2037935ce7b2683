"""``topocal diff``: what drifted between two models of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.options import AsJson

if TYPE_CHECKING:
    from topocal.solve.drift import Drift, Drifted

__all__ = ["diff"]

_MOST_ROWS = 30
"""Of each table; all stand in the JSON."""


def diff(
    before: Annotated[Path, typer.Argument(metavar="MODEL", help="model.json, the older one.")],
    after: Annotated[Path, typer.Argument(metavar="MODEL", help="model.json, the newer one.")],
    least: Annotated[
        float,
        typer.Option("--at-least", metavar="PERCENT", help="Smaller changes do not count."),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Say what drifted between two models beyond its interval; exit status 1 if anything did.

    Capacities by resource, and the figures of patterns that both models were fitted to.

    topocal diff monday.json friday.json

    topocal diff monday.json friday.json --at-least 5 --json
    """
    from topocal.console import print_json
    from topocal.solve.drift import compare
    from topocal.solve.model import read_model

    found = compare(read_model(before), read_model(after), least=least / 100)
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    raise typer.Exit(1 if found.found else 0)


def _print(found: Drift) -> None:
    from topocal.console import console, safe
    from topocal.tables import percent, plain_table

    out = console()
    counts = (
        f"{found.compared_resources} capacities and {found.compared_patterns} patterns compared"
    )
    if not found.found:
        out.print(f"[bold]nothing drifted[/bold]: {counts}")
    else:
        number = len(found.resources) + len(found.patterns)
        out.print(f"[bold]{number} drifted[/bold]: {counts}")
    for title, rows in (("Capacities", found.resources), ("Patterns", found.patterns)):
        if not rows:
            continue
        table = plain_table(
            f"{title} that drifted",
            ("resource" if title == "Capacities" else "pattern", "before", "after", "change"),
            right=(1, 2, 3),
        )
        for row in rows[:_MOST_ROWS]:
            table.add_row(
                safe(row.label),
                _value(row, row.before, row.before_interval),
                _value(row, row.after, row.after_interval),
                percent(row.ratio - 1),
            )
        out.print(table)
        if len(rows) > _MOST_ROWS:
            out.print(f"and {len(rows) - _MOST_ROWS} more; --json lists all")
    for text in found.changes:
        out.print(safe(text))
    for names, when in ((found.only_before, "before"), (found.only_after, "after")):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            out.print(f"only in the model {when}: {safe(', '.join(names[:6]))}{more}")


def _value(row: Drifted, value: float, interval: tuple[float | None, float | None]) -> str:
    """A capacity with its interval, or an overlap factor."""
    from topocal.solve.drift import Quantity
    from topocal.topo.units import format_rate

    if row.quantity is Quantity.OVERLAP:
        return f"× {value:.3f}"
    low, high = interval
    if high is None:
        if low is None:
            return format_rate(value)
        return f"at least {format_rate(low)}"
    if low is None:
        return f"at most {format_rate(high)}"
    half = (high - low) / (2 * value)
    return f"{format_rate(value)} ± {half:.1%}"


def _document(found: Drift) -> dict[str, Any]:
    return {
        "drifted": found.found,
        "resources": [_row(r) for r in found.resources],
        "patterns": [_row(r) for r in found.patterns],
        "compared_resources": found.compared_resources,
        "compared_patterns": found.compared_patterns,
        "only_before": list(found.only_before),
        "only_after": list(found.only_after),
        "changes": list(found.changes),
    }


def _row(row: Drifted) -> dict[str, Any]:
    unit = "" if row.quantity.value == "overlap factor" else "_Bps"
    return {
        "name": row.name,
        "label": row.label,
        "quantity": str(row.quantity),
        f"before{unit}": row.before,
        f"after{unit}": row.after,
        "before_interval": list(row.before_interval),
        "after_interval": list(row.after_interval),
        "ratio": row.ratio,
    }

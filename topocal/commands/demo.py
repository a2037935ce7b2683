"""``topocal demo``: the whole chain on a published machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.options import AsJson

if TYPE_CHECKING:
    from topocal.live_demo import Live
    from topocal.published import Comparison, Story

__all__ = ["demo"]


def demo(
    live: Annotated[
        bool,
        typer.Option("--live", help="Also calibrate an emulated fabric with real messages."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a published 8-card machine and predict the fans that were kept from the fit.

    topocal demo

    topocal demo --live
    """
    from topocal.console import print_json
    from topocal.published import tell

    story = tell()
    if not as_json:
        _print(story)
    found = _live(quiet=as_json) if live else None
    if as_json:
        document = _document(story)
        print_json(document if found is None else document | {"live": _live_document(found)})
    elif found is not None:
        _print_live(found)


def _live(*, quiet: bool) -> Live:
    from topocal.console import console
    from topocal.live_demo import run_live

    def say(text: str) -> None:
        if not quiet:
            console().print(text, markup=False)
            sys.stdout.flush()

    say(
        "\nNow live: eight processes, one per network namespace, send real messages over an "
        "emulated fabric of that shape, a thousand times slower, whose true capacities are known."
    )
    return run_live(say)


def _print_live(live: Live) -> None:
    from topocal.console import console, safe
    from topocal.tables import percent, plain_table
    from topocal.topo.units import format_rate, format_seconds

    out = console()
    table = plain_table(
        f"Fitted to {live.patterns} patterns, against the truth",
        ("resource", "true", "fitted", "error", "status"),
        right=(1, 2, 3),
    )
    for row in live.capacities:
        fitted = "" if row.fitted_Bps is None else format_rate(row.fitted_Bps)
        error = "" if row.error is None else percent(row.error)
        table.add_row(safe(row.resource), format_rate(row.true_Bps), fitted, error, row.status)
    out.print(table)
    errors = sorted(abs(row.error) for row in live.capacities if row.error is not None)
    out.print(
        f"{len(errors)} of {len(live.capacities)} capacities known; the middle one is off by "
        f"{errors[len(errors) // 2]:.1%}, the worst by {errors[-1]:.1%}.\n"
    )
    table = plain_table(
        "Fans that nobody measured",
        ("fan", "predicted", "measured", "error", "what binds"),
        right=(1, 2, 3),
    )
    for fan in live.fans:
        table.add_row(
            safe(fan.name),
            format_seconds(fan.predicted_s),
            format_seconds(fan.measured_s),
            percent(fan.error),
            safe(fan.binds),
        )
    out.print(table)
    how = "by a model in place of real messages" if live.instead else "with real messages"
    out.print(f"All of it {how}, in {live.seconds:.0f} s.")


def _live_document(live: Live) -> dict[str, Any]:
    return {
        "real": not live.instead,
        "instead": live.instead or None,
        "patterns": live.patterns,
        "seconds": live.seconds,
        "capacities": [
            {
                "resource": row.resource,
                "true_Bps": row.true_Bps,
                "fitted_Bps": row.fitted_Bps,
                "error": row.error,
                "status": row.status,
            }
            for row in live.capacities
        ],
        "fans": [
            {
                "fan": fan.name,
                "predicted_s": fan.predicted_s,
                "measured_s": fan.measured_s,
                "error": fan.error,
                "binds": fan.binds,
            }
            for fan in live.fans
        ],
    }


def _print(story: Story) -> None:
    from topocal.console import console
    from topocal.tables import capacity_table, percent, plain_table
    from topocal.topo.units import format_rate

    out, model = console(), story.model
    out.print(
        "[bold]The published 8-card B70 machine[/bold]: 8 cards, 4 PCIe switches, 2 sockets.\n"
        f"Fitted to {len(model.residuals)} figures (pairs and three named fans); "
        f"noise of one figure {model.noise:.1%}.\n"
    )
    out.print("[bold]What the data says about itself[/bold]")
    for reason in dict.fromkeys(model.left_out.values()):
        names = ", ".join(n for n, r in model.left_out.items() if r == reason)
        out.print(f"left out {names}: {reason}")
    out.print(f"{model.sharing}\n")
    out.print(capacity_table(model))
    out.print("[bold]Pairs[/bold]: " + _pairs(story) + "\n")
    for title, rows in (
        ("Fans that the fit has seen", story.named),
        ("Fans that it has not: the extremes over all eight roots", story.extremes),
    ):
        table = plain_table(
            title, ("fan", "published", "predicted", "error", "what binds"), right=(1, 2, 3)
        )
        for row in rows:
            table.add_row(
                row.title,
                format_rate(row.published_Bps),
                format_rate(row.prediction.throughput_Bps),
                percent(row.error),
                row.prediction.reason,
            )
        out.print(table)
    for line in story.verdicts:
        out.print(line)


def _pairs(story: Story) -> str:
    pairs = [r for r in story.model.residuals if "<-" not in r.name]
    worst = max(pairs, key=lambda r: abs(r.error))
    return (
        f"{len(pairs)} of {len(pairs) + len(story.model.left_out)} reproduced, the worst "
        f"{worst.name} within {abs(worst.error):.1%}"
    )


def _document(story: Story) -> dict[str, Any]:
    from topocal.solve.model import model_to_document

    def row(comparison: Comparison) -> dict[str, Any]:
        return {
            "fan": comparison.title,
            "pattern": comparison.prediction.pattern.name,
            "published_GBps": comparison.published_Bps / 1e9,
            "predicted_GBps": comparison.prediction.throughput_Bps / 1e9,
            "error": comparison.error,
            "binds": comparison.prediction.reason,
        }

    return {
        "named": [row(c) for c in story.named],
        "extremes": [row(c) for c in story.extremes],
        "verdicts": list(story.verdicts),
        "model": model_to_document(story.model),
    }

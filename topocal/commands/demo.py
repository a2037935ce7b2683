"""``topocal demo``: the whole chain on a published machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

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
        return
    if found is not None:
        _print_live(found)
    _invite()


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
    """The story in steps, each with what it shows first."""
    from topocal.console import console, safe
    from topocal.tables import capacity_table

    out, model = console(), story.model
    out.print(
        "A machine published with its figures: 8 cards, 4 PCIe switches, 2 sockets.\n"
        "Its pairs, and three fans of several senders, are all that the fit will see.\n"
    )
    out.print("[bold]1. What pairs say[/bold]: GB/s of one flow at a time; rows send")
    for line in _matrix(story):
        out.print(line, markup=False, soft_wrap=True)
    out.print("\n[bold]2. What does not agree with the rest[/bold]")
    for reason in dict.fromkeys(model.left_out.values()):
        names = ", ".join(n for n, r in model.left_out.items() if r == reason)
        out.print(f"left out {safe(names)}: {safe(reason)}")
    out.print("\n[bold]3. What each resource passes[/bold]: the fit")
    out.print(f"{safe(model.sharing)}\n")
    out.print(capacity_table(model, out.width))
    out.print(_pairs(story) + "\n")
    out.print("[bold]4. Fans that the fit has not seen[/bold], the extremes over all eight roots")
    out.print(_fans(story.extremes))
    out.print("[bold]5. What no model of shared links explains[/bold]")
    for line in story.verdicts:
        out.print(safe(line))


def _invite() -> None:
    """The last word, whatever came before it."""
    from topocal.console import console

    console().print(
        "\n[bold]Now yours[/bold]: two pastes are enough.\n"
        "  topocal explain topo.txt p2p.txt --html answer.html"
    )


def _matrix(story: Story) -> Iterator[str]:
    """The measured pairs as people print them."""
    ends = story.model.topology.accelerators
    names = [end.removeprefix("gpu") for end in ends]
    yield "     " + "".join(f"{name:>6}" for name in names)
    for a, name in zip(ends, names, strict=True):
        cells = (story.pair_rates_Bps.get((a, b)) for b in ends)
        shown = "".join(f"{'-' if c is None else f'{c / 1e9:.1f}':>6}" for c in cells)
        yield f"{name:>5}{shown}"


def _fans(rows: Sequence[Comparison]) -> Table:
    """Published against predicted; what binds stands under each."""
    from topocal.console import safe
    from topocal.tables import percent, plain_table
    from topocal.topo.units import format_rate

    table = plain_table(
        "", ("fan, and what binds", "published", "predicted", "error"), right=(1, 2, 3), whole=(0,)
    )
    for row in rows:
        binds = row.prediction.bottleneck
        table.add_row(
            f"{safe(row.title)}\n  [dim]{'' if binds is None else safe(binds.label)}[/dim]",
            format_rate(row.published_Bps),
            format_rate(row.prediction.throughput_Bps),
            percent(row.error),
        )
    return table


def _pairs(story: Story) -> str:
    pairs = [r for r in story.model.residuals if "<-" not in r.name]
    worst = max(pairs, key=lambda r: abs(r.error))
    seen = max(story.named, key=lambda c: abs(c.error))
    return (
        f"{len(pairs)} of {len(pairs) + len(story.model.left_out)} pairs are reproduced, the "
        f"worst within {abs(worst.error):.1%} ({worst.name}); the three fans within "
        f"{abs(seen.error):.1%}."
    )


def _document(story: Story) -> dict[str, Any]:
    from topocal.solve.model import model_to_document

    def row(comparison: Comparison) -> dict[str, Any]:
        return {
            "fan": comparison.title,
            "pattern": comparison.prediction.pattern.name,
            "published_Bps": comparison.published_Bps,
            "predicted_Bps": comparison.prediction.throughput_Bps,
            "error": comparison.error,
            "binds": comparison.prediction.reason,
        }

    return {
        "named": [row(c) for c in story.named],
        "extremes": [row(c) for c in story.extremes],
        "verdicts": list(story.verdicts),
        "model": model_to_document(story.model),
    }

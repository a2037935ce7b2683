"""``topocal demo``: the whole chain on a published machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from topocal.published import Comparison, Story

__all__ = ["demo"]


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit a published 8-card machine and predict the fans that were kept from the fit.

    topocal demo
    """
    from topocal.console import print_json
    from topocal.published import tell

    story = tell()
    if as_json:
        print_json(_document(story))
    else:
        _print(story)


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

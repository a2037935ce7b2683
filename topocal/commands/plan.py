"""``topocal plan``: which patterns to measure, what each is for, and what it costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topocal.completing import endpoints, machines

if TYPE_CHECKING:
    from rich.console import Console

    from topocal.measure.plan import Plan

__all__ = ["plan"]

_MOST_ROWS = 60
"""Rows of the table without ``--all``."""

_MOST_REASONS = 4
"""Reasons of one sort without ``--all``, and names with one reason."""

_MOST_NAMES = 3


def plan(
    topology: Annotated[
        str,
        typer.Argument(
            autocompletion=machines,
            help="topology.json, another tool's output, or a reference machine (b70).",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the plan.")
    ] = None,
    endpoints: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            autocompletion=endpoints,
            help="Who takes part, such as 0,1,nic0; default: all GPUs.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES", help="Bytes of every flow; default: 4KiB,16KiB,64KiB … 256MiB."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed runs of each pattern and size.")] = 5,
    budget_patterns: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keep the most informative N patterns."),
    ] = None,
    budget_seconds: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep the most informative ones that take so long."),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option("--exhaustive", help="Plan what a sweep would do, for comparison."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every resource, however many; --json always does.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Choose what to measure, so that every resource is some pattern's clear bottleneck.

    Times are by nominal capacities; nothing runs.

        topocal plan topology.json -o plan.json

        topocal plan b70 --budget-patterns 20 --sizes 1MiB,256MiB

        topocal plan dgx-h100 --exhaustive
    """
    from topocal.console import console, print_json
    from topocal.machine import find_topology
    from topocal.measure.design import design
    from topocal.measure.exhaustive import exhaustive
    from topocal.measure.plan import DEFAULT_SIZES_BYTES, plan_to_document, write_plan
    from topocal.outputs import check_outputs
    from topocal.pattern_options import size_list
    from topocal.progress import progress
    from topocal.topo.endpoint_names import endpoint_list
    from topocal.topo.units import parse_seconds

    check_outputs(output, [topology])
    machine = find_topology(topology)
    who = None if endpoints is None else endpoint_list(endpoints, machine.endpoints)
    sizes_bytes = DEFAULT_SIZES_BYTES if sizes is None else size_list(sizes)
    budget_s = None if budget_seconds is None else parse_seconds(budget_seconds)
    with progress("planning") as bar:
        if sweep:
            made = exhaustive(
                machine,
                endpoints=who,
                sizes_bytes=sizes_bytes,
                repeats=repeats,
                budget_patterns=budget_patterns,
                budget_s=budget_s,
            )
        else:
            made = design(
                machine,
                endpoints=who,
                sizes_bytes=sizes_bytes,
                repeats=repeats,
                budget_patterns=budget_patterns,
                budget_s=budget_s,
                advance=bar.reach,
            )
    if output is not None:
        write_plan(made, output)
    if as_json:
        print_json(plan_to_document(made))
        return
    out = console()
    _print_summary(made, out)
    _print_measured(made, out, everything)
    _print_others(made, out, everything)
    if output is not None:
        out.print(f"wrote {output}", markup=False)


def _print_summary(made: Plan, out: Console) -> None:
    from topocal.measure.exhaustive import sweep_size
    from topocal.topo.units import format_bytes, format_seconds

    count = len(made.endpoints)
    out.print(
        f"{made.machine or 'machine'}: {len(made.patterns)} patterns between {count} endpoints in "
        f"{len(made.rounds)} rounds; an exhaustive sweep has {sweep_size(count):,}",
        markup=False,
    )
    sizes = [format_bytes(size) for size in made.sizes_bytes]
    shown = sizes[0] if len(sizes) == 1 else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    out.print(
        f"expected: {format_seconds(made.seconds)}, and {format_bytes(made.memory_bytes)} of "
        f"buffers on the endpoint that needs most ({shown}, {made.repeats} repeats and "
        f"{made.warm_ups} warm-up each)"
    )
    kinds = Counter(str(p.kind) for p in made.patterns)
    out.print("patterns: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    purposes = Counter(str(r.purpose) for p in made.patterns for r in p.reasons)
    out.print("purposes: " + ", ".join(f"{n} {word}" for word, n in purposes.most_common()))
    for note in made.notes:
        out.print(f"note: {note}", markup=False)


def _print_measured(made: Plan, out: Console, everything: bool) -> None:
    """Each resource that a pattern is for."""
    from rich.text import Text

    from topocal.tables import plain_table

    rows = [f for f in made.resources if f.outcome.is_measured]
    if not rows:
        return
    table = plain_table("Measured", ("resource", "pattern", "ratio", ""), right=(2,))
    for finding in rows if everything else rows[:_MOST_ROWS]:
        name = "" if finding.pattern is None else made.patterns[finding.pattern].name
        ratio = "alone" if finding.ratio is None else f"{finding.ratio:.2f}"
        word = "" if finding.outcome == "clear" else str(finding.outcome)
        table.add_row(Text(finding.label), Text(name), ratio, word)
    out.print(table)
    if len(rows) > _MOST_ROWS and not everything:
        out.print(f"and {len(rows) - _MOST_ROWS} more (--all prints them)")


def _print_others(made: Plan, out: Console, everything: bool) -> None:
    """Each resource that no pattern is for, with the reason; a few of each sort."""
    sorts: dict[str, dict[str, list[str]]] = {}
    for finding in made.resources:
        if not finding.outcome.is_measured:
            by_reason = sorts.setdefault(str(finding.outcome), {})
            by_reason.setdefault(finding.reason, []).append(finding.label)
    if not sorts:
        return
    out.print("Not measured", style="bold")
    for by_reason in sorts.values():
        entries = list(by_reason.items())
        shown = entries if everything else entries[:_MOST_REASONS]
        for reason, labels in shown:
            out.print(f"- {_some(labels, everything)}: {reason}", markup=False)
        rest = sum(len(labels) for _, labels in entries[len(shown) :])
        if rest:
            out.print(f"- and {rest} more for such a reason (--all prints them)")


def _some(names: list[str], everything: bool) -> str:
    more = len(names) - _MOST_NAMES
    if everything or more <= 0:
        return ", ".join(names)
    return ", ".join(names[:_MOST_NAMES]) + f" and {more} more"

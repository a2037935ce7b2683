"""``topocal assign``: who sends what, so that everything has arrived as soon as possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topocal.completing import machines
from topocal.options import (
    AllowStale,
    Digest,
    TransferBackend,
    TransferGroup,
    TransferSetting,
)

if TYPE_CHECKING:
    from rich.table import Table

    from topocal.solve.caps import Caps
    from topocal.solve.policy.answer import Assignment

__all__ = ["assign"]

_MIN_SPLIT = "1MiB"

_NOTHING = 5e-4
"""Relative gap to the bound that is printed as none."""


def assign(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=machines,
            help="model.json, or caps.json of the processes.",
        ),
    ],
    requests: Annotated[
        Path,
        typer.Argument(
            metavar="REQUESTS",
            help="JSON or CSV: parameter, target, holders, shape (docs/policy.md).",
        ),
    ],
    split: Annotated[
        bool,
        typer.Option("--split/--whole", help="Whether several holders may share a region."),
    ] = True,
    min_split: Annotated[
        str | None,
        typer.Option(
            "--min-split", metavar="SIZE", help="Least size of a part of a region; default: 1MiB."
        ),
    ] = None,
    group_size: TransferGroup = None,
    backend: TransferBackend = None,
    setting: TransferSetting = None,
    allow_stale: AllowStale = False,
    digest: Digest = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the parts to this .json or .csv file."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, all parts included.")
    ] = False,
) -> None:
    """Choose who sends what, so that everything has arrived as soon as possible.

    The bound that is printed is proven: no answer finishes sooner on this machine.

    topocal assign model.json requests.json -o assignment.json

    topocal assign caps.json requests.csv --whole --json
    """
    from dataclasses import replace

    from topocal.caps_source import conditions_of, find_caps
    from topocal.console import console, print_json, safe
    from topocal.expected import assigning_s
    from topocal.outputs import check_outputs
    from topocal.progress import progress
    from topocal.solve.policy.assign import assign as assign_requests
    from topocal.solve.policy.document import assignment_to_document, write_assignment
    from topocal.solve.policy.files import read_requests
    from topocal.topo.errors import InputError
    from topocal.topo.units import parse_bytes

    if min_split is not None and not split:
        raise InputError("--whole cuts nothing", remedy="leave out --whole or --min-split")
    min_split = _MIN_SPLIT if min_split is None else min_split
    least = parse_bytes(min_split)
    if least < 1 or least != int(least):
        raise InputError(f"--min-split {min_split} is no whole number of bytes", remedy="give one")
    check_outputs(output, [model, requests], formats=("JSON or CSV",))
    under = conditions_of(group_size, backend, setting)
    caps = find_caps(model, digest=digest)
    notes: list[str] = []
    wanted = read_requests(requests, caps.endpoints, tell=notes.append)
    with progress("assigning", expected_s=assigning_s(len(wanted))):
        answer = assign_requests(
            caps,
            wanted,
            split=split,
            min_split_bytes=int(least),
            under=under,
            allow_stale=allow_stale,
        )
    answer = replace(answer, notes=(*notes, *answer.notes))
    if output is not None:
        write_assignment(answer, output)
    if as_json:
        print_json(assignment_to_document(answer))
        return
    out = console()
    for line in _lines(answer, caps):
        out.print(line)
    if answer.is_known:
        out.print(_table(answer))
    if output is not None:
        out.print(f"wrote {safe(output)}")


def _lines(answer: Assignment, caps: Caps) -> list[str]:
    from topocal.console import safe
    from topocal.solve.price import NOT_KNOWN
    from topocal.topo.units import format_bytes, format_seconds

    moved = float(answer.bytes_of_pair.sum())
    labels = {cap.id: cap.label or cap.id for cap in caps.resources}
    what = f"{len(answer.requests)} request" + "s" * (len(answer.requests) != 1)
    if not answer.is_known:
        lines = [f"[bold]{what}[/bold], {format_bytes(moved)} move: {NOT_KNOWN}"]
    else:
        lines = [
            f"[bold]{what}[/bold], {format_bytes(moved)} move in "
            f"[bold]{format_seconds(answer.finish_s)}[/bold]"
        ]
    if moved and answer.is_known:
        lines.append(
            "  no answer finishes sooner"
            if answer.gap < _NOTHING
            else f"  no answer finishes before {format_seconds(answer.bound_s)}: "
            f"this one is within {answer.gap:.1%} of the best"
        )
    if answer.bottleneck is not None:
        lines.append(f"  busiest: {safe(labels.get(answer.bottleneck, answer.bottleneck))}")
    price = answer.price
    if price is not None and price.high_s > price.low_s:
        lines.append(
            f"  the data allows {format_seconds(price.low_s)} to {format_seconds(price.high_s)}"
        )
    if price is not None and price.dependence.resources:
        names = ", ".join(
            f"{load.label} ({load.status})" for load in price.dependence.resources[:4]
        )
        lines.append(
            f"  {price.dependence.share:.0%} of the busiest time rests on what no measurement "
            f"had as its bottleneck: {safe(names)}"
        )
    if price is not None and price.unmeasured:
        lines.append(
            (
                "  never measured, so that it may take longer than said: "
                if answer.is_known
                else "  nothing is known of "
            )
            + safe(", ".join(price.unmeasured))
        )
    if price is not None and price.by_turns:
        lines.append(f"  longer if these serve by turns: {safe(', '.join(price.by_turns))}")
    lines += [f"  note: {safe(note)}" for note in answer.notes]
    lines.append(f"  answer digest {answer.digest}")
    return lines


def _table(answer: Assignment) -> Table:
    """Every candidate beside the one chosen."""
    from rich.table import Table

    from topocal.console import safe
    from topocal.topo.units import format_seconds

    table = Table(box=None)
    for name in ("", "candidate", "finish", "parts"):
        table.add_column(name, justify="left" if name in ("", "candidate") else "right")
    for one in answer.candidates:
        late = f"{format_seconds(answer.with_start_up(one.busy_s))} or more"
        table.add_row(
            "*" if one is answer.chosen else "",
            safe(one.name),
            late if one.fair_s is None else format_seconds(answer.with_start_up(one.fair_s)),
            str(one.parts),
        )
    return table

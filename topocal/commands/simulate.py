"""``topocal simulate``: what flows of one's own take, and what if the machine were another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.completing import machines
from topocal.options import AsJson

if TYPE_CHECKING:
    from topocal.simulation import Outcome
    from topocal.topo.flow import Pattern
    from topocal.topo.sweep import Swept
    from topocal.topo.what_if import Case, Change

__all__ = ["simulate"]

_MOST_ROWS = 40
"""Flows or patterns that are printed; all are written with -o and printed with --json."""


def simulate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=machines,
            help="model.json, topology.json, a tool's output, or a reference machine's name.",
        ),
    ],
    flows: Annotated[
        Path,
        typer.Argument(
            metavar="FLOWS",
            help="CSV or JSON: source, destination, size, and if need be start and pattern.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="What if: NAME=2x, NAME=25GB/s or NAME=inf."
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="NAME", help="What if this link, or this resource, were not there."
        ),
    ] = None,
    add_link: Annotated[
        list[str] | None,
        typer.Option(
            "--add-link",
            metavar="A->B=RATE",
            help="What if there were one more link (A<->B=RATE: each way; RATE:nvlink: its kind).",
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option(
            "--route", metavar="A->B=NODE,…", help="What if these flows went through other nodes."
        ),
    ] = None,
    alpha: Annotated[
        str,
        typer.Option("--alpha", metavar="TIME", help="Time from a flow's start to its first byte."),
    ] = "0s",
    default: Annotated[
        str | None,
        typer.Option("--default", metavar="RATE", help="Capacity of what has none known."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the results to this .csv or .json file."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the flows over time.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="The drawing with a table, as a page."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate flows with sizes and starts of one's own.

    Flows share resources max-min fairly. With changes, the machine is simulated with
    and without them: links are added first, then removed, then routes and capacities set.

    topocal simulate dgx-h100 flows.csv

    topocal simulate model.json flows.csv --set gpu0.sender.near=2x --svg flows.svg

    topocal simulate dgx-h100 flows.json --remove 'gpu0->nvswitch0' --default 50GB/s -o f.csv
    """
    from topocal.case import find_case
    from topocal.outputs import check_outputs
    from topocal.topo.errors import InputError
    from topocal.topo.flow_files import read_flows
    from topocal.topo.units import parse_rate, parse_seconds

    check_outputs((output, svg, html), (model, flows), formats=("JSON or CSV", "SVG", "HTML"))
    alpha_s = parse_seconds(alpha)
    default_Bps = None if default is None else parse_rate(default)
    if default_Bps == 0:
        raise InputError("--default of nothing passes nothing", remedy="give a rate above zero")
    found = find_case(model, default_Bps=default_Bps)
    base, changes, changed = _change(found.case, settings, remove, add_link, route)
    notes: list[str] = []
    patterns = read_flows(flows, base.topology.endpoints, tell=notes.append)
    about = {
        "machine": base.topology.name or model,
        "capacities": found.capacities,
        "changes": [str(change) for change in changes],
        "notes": notes,
    }
    if len(patterns) > 1:
        if svg is not None or html is not None:
            raise InputError(
                f"{flows} has {len(patterns)} patterns and a drawing shows one",
                remedy="give a file without the column pattern",
            )
        _many(about, patterns, base, changed, alpha_s, output, as_json=as_json)
    else:
        _one(about, patterns[0], base, changed, alpha_s, output, svg, html, as_json=as_json)


def _change(
    case: Case,
    settings: list[str] | None,
    remove: list[str] | None,
    add_link: list[str] | None,
    route: list[str] | None,
) -> tuple[Case, list[Change], Case | None]:
    """The case to begin with, what changes, and the case then (``None``: nothing changes).

    A capacity for a resource that has none known is no change but completes the case.
    """
    import math

    from topocal.topo.endpoint_names import plain_arrows
    from topocal.topo.what_if import (
        Remove,
        SetCapacity,
        apply,
        find_resource,
        parse_link,
        parse_route,
        parse_setting,
    )

    settings, remove, add_link, route = (
        [plain_arrows(text) for text in texts or ()]
        for texts in (settings, remove, add_link, route)
    )
    structure: list[Change] = [parse_link(text) for text in add_link]
    structure += [Remove(name=name) for name in remove]
    sets = [parse_setting(text) for text in settings]
    _refuse_twice([("--remove", name) for name in remove] + [("--set", s.resource) for s in sets])
    unknown = {
        name
        for name, value in zip(case.capacities.resources, case.capacities.capacity_Bps, strict=True)
        if math.isnan(value)
    }
    given = [
        change
        for change in sets
        if isinstance(change, SetCapacity)
        and change.resource in unknown
        and find_resource(case.topology, change.resource) in unknown
    ]
    base = apply(case, given)
    changed = apply(base, structure)
    rest: list[Change] = [parse_route(text, changed.topology) for text in route]
    rest += [change for change in sets if change not in given]
    changes = structure + rest
    return base, changes, apply(changed, rest) if changes else None


def _refuse_twice(changes: Sequence[tuple[str, str]]) -> None:
    """What is set twice, or removed and set, is a slip: which one was meant is not known.

    Raises
    ------
    InputError
        When something is.
    """
    from topocal.topo.errors import InputError, one_line

    said: dict[str, str] = {}
    for option, name in changes:
        plain = name.strip().lower()
        if plain in said:
            first = said[plain]
            raise InputError(
                f"{option} {one_line(name)} twice"
                if first == option
                else f"{first} and {option} {one_line(name)}",
                remedy="say one of them",
            )
        said[plain] = option


def _one(
    about: dict[str, Any],
    pattern: Pattern,
    base: Case,
    changed: Case | None,
    alpha_s: float,
    output: Path | None,
    svg: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    from topocal.console import print_json
    from topocal.expected import simulating_s
    from topocal.progress import progress
    from topocal.simulation import flow_rows, run_one

    drawn = svg is not None or html is not None
    before = None
    runs = 1 if changed is None else 2
    expected_s = runs * simulating_s(pattern.flows, len(set(pattern.pairs)))
    with progress("simulating", expected_s=expected_s):
        if changed is not None:
            before = run_one(base, pattern, alpha_s=alpha_s, record=drawn)
        after = run_one(changed or base, pattern, alpha_s=alpha_s, record=drawn)
    document = about | after.document()
    rows = flow_rows(after)
    if before is not None:
        document["before"] = before.document()
        for row, old in zip(rows, flow_rows(before), strict=True):
            row["finish_before_s"] = old["finish_s"]
    _write_rows(output, document, rows)
    if drawn:
        _draw(about, after, before, rows, svg, html)
    if as_json:
        print_json(document)
        return
    _print_one(about, after, before, rows)
    _print_written(output, svg, html)


def _many(
    about: dict[str, Any],
    patterns: list[Pattern],
    base: Case,
    changed: Case | None,
    alpha_s: float,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    from topocal.console import print_json
    from topocal.progress import progress
    from topocal.simulation import pattern_rows, run_many

    cases = [changed or base] if changed is None else [changed, base]
    found: list[Swept] = []
    with progress("simulating patterns", len(cases) * len(patterns)) as advance:
        for case in cases:
            found.append(run_many(case, patterns, alpha_s=alpha_s, progress=advance))
    before = found[1] if changed is not None else None
    rows = pattern_rows(patterns, found[0], before)
    document = about | {"patterns": rows}
    _write_rows(output, document, rows)
    if as_json:
        print_json(document)
        return
    _print_many(about, rows)
    _print_written(output)


def _write_rows(
    output: Path | None, document: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> None:
    if output is None:
        return
    from topocal.simulation import rows_as_csv
    from topocal.topo.io import encode_document, write_atomically

    is_csv = output.suffix.lower() == ".csv"
    write_atomically(output, rows_as_csv(rows) if is_csv else encode_document(document))


def _draw(
    about: dict[str, Any],
    after: Outcome,
    before: Outcome | None,
    rows: list[dict[str, Any]],
    svg: Path | None,
    html: Path | None,
) -> None:
    from topocal.topo.io import write_atomically
    from topocal.topo.render.gantt import MOST_FLOWS, colours_of, gantt_html, gantt_svg

    outcomes = [after] if before is None else [before, after]
    until_s = max(outcome.result.seconds for outcome in outcomes)
    titles = [f"{about['machine']}, {about['capacities']} capacities"]
    if before is not None:
        titles.append("what if: " + "; ".join(about["changes"]))
    colours = colours_of(*(outcome.result for outcome in outcomes))
    drawings = [
        gantt_svg(
            outcome.result,
            title=title,
            labels={r.id: r.name for r in outcome.case.topology.resources.values()},
            colours=colours,
            until_s=until_s,
        )
        for outcome, title in zip(outcomes, titles, strict=True)
    ]
    if svg is not None:
        write_atomically(svg, drawings[-1].encode())
    if html is not None:
        page = gantt_html(
            drawings,
            title=f"Flows on {about['machine']}",
            sentences=_sentences(about, after, before),
            table=_flow_cells(after, rows[:MOST_FLOWS], before is not None),
        )
        write_atomically(html, page.encode())


def _sentences(about: dict[str, Any], after: Outcome, before: Outcome | None) -> list[str]:
    """What came out, for people."""
    from topocal.tables import percent
    from topocal.topo.units import format_seconds

    count = len(after.result.flows)
    flows = f"{count} flow" + ("s" if count != 1 else "")
    found = [
        f"{flows} on {about['machine']} ({about['capacities']} capacities): "
        f"done after {format_seconds(after.result.seconds)}."
    ]
    if before is not None:
        change = after.result.seconds / before.result.seconds - 1 if before.result.seconds else 0.0
        found.append(
            f"What if {'; '.join(about['changes'])}: {format_seconds(before.result.seconds)} "
            f"before, {format_seconds(after.result.seconds)} after ({percent(change)})."
        )
    closed = after.closed
    busiest, runner_up = closed.bottleneck_of(0), int(closed.runner_up[0])
    if busiest is not None:
        word = "exactly" if closed.exact[0] else "at least"
        text = (
            f"Closed form: {word} {format_seconds(float(closed.seconds[0]))}, "
            f"busiest {after.label(busiest)}"
        )
        if runner_up >= 0:
            text += (
                f"; without it {format_seconds(float(closed.runner_up_s[0]))}, "
                f"{after.label(closed.resources[runner_up])}"
            )
        found.append(text + ".")
    return found


def _print_one(
    about: dict[str, Any], after: Outcome, before: Outcome | None, rows: list[dict[str, Any]]
) -> None:
    from topocal.console import console, safe
    from topocal.tables import plain_table

    out = console()
    for sentence in _sentences(about, after, before):
        out.print(safe(sentence))
    _print_notes(about)
    header, *body = _flow_cells(after, rows[:_MOST_ROWS], before is not None)
    table = plain_table("", header, right=range(1, len(header) - 1))
    table.title = None
    for cells in body:
        table.add_row(*map(safe, cells))
    out.print(table)
    _print_rest(len(rows), "flows")


def _flow_cells(
    outcome: Outcome, rows: Sequence[dict[str, Any]], compared: bool
) -> list[list[str]]:
    """A header, and the cells of each flow, for people."""
    from topocal.topo.units import format_bytes, format_rate

    table = [["flow", "size", "start", "finish", "throughput", "limited by"]]
    for row in rows:
        rate = row["throughput_Bps"]
        table.append(
            [
                f"{row['source']} -> {row['destination']}",
                format_bytes(row["size_bytes"]),
                _time(row["start_s"]),
                _time(row["finish_s"]),
                "" if rate is None else format_rate(rate),
                outcome.label(row["bottleneck"]) or "nothing",
            ]
        )
    if compared:
        table[0].insert(4, "before")
        for cells, row in zip(table[1:], rows, strict=True):
            cells.insert(4, _time(row["finish_before_s"]))
    return table


def _print_many(about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from topocal.console import console, safe
    from topocal.tables import plain_table

    out = console()
    simulated = sum(row["simulated"] for row in rows)
    out.print(
        safe(
            f"{len(rows)} patterns on {about['machine']} ({about['capacities']} capacities): "
            f"{len(rows) - simulated} by the closed form, which is exact for them, "
            f"{simulated} simulated."
        )
    )
    if about["changes"]:
        out.print(safe(f"What if {'; '.join(about['changes'])}."))
    _print_notes(about)
    columns = ["pattern", "flows", "seconds", "limited by"]
    if about["changes"]:
        columns.insert(3, "before")
    table = plain_table("", columns, right=range(1, len(columns) - 1))
    table.title = None
    for row in rows[:_MOST_ROWS]:
        cells = [
            row["pattern"] or "(no name)",
            str(row["flows"]),
            _time(row["seconds"]),
            row["bottleneck"] or "nothing",
        ]
        if about["changes"]:
            cells.insert(3, _time(row["seconds_before"]))
        table.add_row(*map(safe, cells))
    out.print(table)
    _print_rest(len(rows), "patterns")


def _time(seconds: float | None) -> str:
    from topocal.topo.units import format_seconds

    if seconds is None:
        return "never"
    return format_seconds(seconds) if seconds else "0"


def _print_notes(about: dict[str, Any]) -> None:
    from topocal.console import console, safe

    for note in about["notes"]:
        console().print(f"note: {safe(note)}")


def _print_rest(count: int, what: str) -> None:
    from topocal.console import console

    if count > _MOST_ROWS:
        console().print(f"and {count - _MOST_ROWS} more {what}; -o or --json gives all")


def _print_written(*files: Path | None) -> None:
    from topocal.console import console, safe

    for file in files:
        if file is not None:
            console().print(f"wrote {safe(str(file))}")

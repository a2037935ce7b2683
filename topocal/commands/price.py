"""``topocal price``: what a set of transfers takes by a machine's caps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.options import (
    AllowStale,
    AsJson,
    Digest,
    TransferBackend,
    TransferGroup,
    TransferSetting,
)

if TYPE_CHECKING:
    from topocal.solve.caps import Caps
    from topocal.solve.conditions import Conditions
    from topocal.solve.price import Load, Price
    from topocal.solve.price_totals import PriceBounds
    from topocal.solve.transfers import Flows, Totals

__all__ = ["price"]


def price(
    caps: Annotated[
        str,
        typer.Argument(metavar="CAPS", help="caps.json or model.json."),
    ],
    transfers: Annotated[
        Path,
        typer.Argument(
            metavar="TRANSFERS",
            help="Flows (CSV, JSON), a transfer plan, or sent and received bytes by process.",
        ),
    ],
    element_size: Annotated[
        int | None,
        typer.Option("--element-size", help="Bytes of an element, for plans in elements."),
    ] = None,
    group_size: TransferGroup = None,
    backend: TransferBackend = None,
    setting: TransferSetting = None,
    allow_stale: AllowStale = False,
    digest: Digest = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the result as JSON to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price transfers that start together: seconds, and the resource that says so.

    With totals by process alone, who sends to whom is unknown, and the price has bounds.

    topocal price caps.json flows.csv

    topocal price caps.json transfers.json --element-size 2 --group-size 8 --backend nccl

    topocal price model.json totals.csv --json
    """
    from topocal.caps_source import conditions_of, find_caps
    from topocal.console import console, print_indented, print_json, safe
    from topocal.outputs import check_outputs
    from topocal.solve.caps_document import caps_digest
    from topocal.solve.transfer_files import read_transfers
    from topocal.solve.transfers import Totals
    from topocal.topo.errors import InputError
    from topocal.topo.io import encode_document, write_atomically

    if element_size is not None and not 0 < element_size <= 64:
        raise InputError(f"an element of {element_size} bytes", remedy="give 1, 2, 4 or 8")
    check_outputs(output, [caps, transfers])
    under = conditions_of(group_size, backend, setting)
    known = find_caps(caps, digest=digest)
    notes: list[str] = []
    given = read_transfers(transfers, known.endpoints, element_size=element_size, tell=notes.append)
    several = [given] if isinstance(given, Totals) else given
    priced = [_priced(known, one, under, allow_stale) for one in several]
    document = {
        "machine": known.machine,
        "caps_digest": caps_digest(known),
        "transfers": [found for found, _ in priced],
        "notes": notes,
    }
    if output is not None:
        write_atomically(output, encode_document(document))
    if as_json:
        print_json(document)
        return
    out = console()
    for note in notes:
        out.print(f"note: {safe(note)}")
    for _, lines in priced:
        out.print(f"[bold]{safe(lines[0])}[/bold]")
        for line in lines[1:]:
            print_indented(out, line)
    if output is not None:
        out.print(f"wrote {safe(output)}")


def _priced(
    caps: Caps, one: Flows | Totals, under: Conditions | None, allow_stale: bool
) -> tuple[dict[str, Any], list[str]]:
    """The price of one set of transfers, for programs and for people."""
    from topocal.solve.price import price as price_flows
    from topocal.solve.price_totals import price_bounds
    from topocal.solve.transfers import Totals

    if isinstance(one, Totals):
        bounds = price_bounds(caps, one, under=under, allow_stale=allow_stale)
        return _bounds_document(bounds), _bounds_lines(bounds)
    found = price_flows(caps, one, under=under, allow_stale=allow_stale)
    return {"name": one.name, **_price_document(found)}, _price_lines(found, one.name)


def _price_lines(found: Price, name: str) -> list[str]:
    from topocal.solve.price import NOT_KNOWN
    from topocal.topo.units import format_bytes, format_rate, format_seconds

    what = f"{found.flows} transfer" + "s" * (found.flows != 1)
    took = format_seconds(found.seconds)
    if found.moved_bytes:
        took += f", {format_rate(found.throughput_Bps)} in all"
    if not found.is_known:
        took = NOT_KNOWN
    lines = [f"{name + ': ' if name else ''}{what}, {format_bytes(found.moved_bytes)}: {took}"]
    if found.busiest is None:
        lines.append("nothing known limits it")
    else:
        lines.append(f"busiest: {_load_words(found.busiest)}")
    if found.runner_up is not None:
        lines.append(f"next: {_load_words(found.runner_up)}")
    if found.high_s > found.low_s:
        span = f"{format_seconds(found.low_s)} to {format_seconds(found.high_s)}"
        lines.append(f"the data allows {span}")
    rest = found.dependence
    if rest.share > 0:
        without, least = format_seconds(rest.seconds_without), format_seconds(rest.seconds_at_least)
        names = ", ".join(one.label for one in rest.resources[:3])
        more = len(rest.resources) - 3
        lines.append(
            f"{rest.share:.0%} of that rests on caps that no measurement had as its bottleneck "
            f"({names}{f' and {more} more' if more > 0 else ''}): {without} by the others, "
            f"{least} at the least that is proven of these"
        )
    elif found.busiest is not None:
        lines.append("no cap that decides is unproven")
    if not found.exact:
        lines.append(
            "simulated: the busiest resource alone would say " + format_seconds(found.busiest_s)
            if found.simulated
            else "at least so long: sizes are unlike, and there are too many flows to simulate"
        )
    if found.by_turns:
        lines.append("not known to serve their flows at once: " + ", ".join(found.by_turns[:5]))
    if found.unmeasured:
        lines.append("nothing is known of " + ", ".join(found.unmeasured[:5]))
    if found.local_bytes:
        lines.append(f"{format_bytes(found.local_bytes)} stay where they are")
    return lines + list(found.notes)


def _load_words(one: Load) -> str:
    from topocal.topo.units import format_seconds

    how = f"{one.sharing}, " if one.sharing != "capacity" else ""
    return f"{one.label} ({how}{one.status}), {format_seconds(one.seconds)}"


def _bounds_lines(found: PriceBounds) -> list[str]:
    from topocal.topo.units import format_bytes, format_seconds

    lines = [
        f"{format_bytes(found.moved_bytes)} in all: {format_seconds(found.at_least_s)} to "
        f"{format_seconds(found.at_most_s)}, depending on who sends to whom"
    ]
    if found.because:
        lines.append(f"at least: {found.because}")
    if found.busiest is not None:
        lines.append(f"must be busy longest: {_load_words(found.busiest)}")
    if found.worst is not None:
        lines.append(f"may be busy longest: {_load_words(found.worst)}")
    lines.append(
        f"the data proves {format_seconds(found.proven_s)}; the rest is as sure as the caps"
        if found.proven_s > 0
        else "the data proves no bound: no cap on the way is bounded from above"
    )
    return lines + list(found.notes)


def _price_document(found: Price) -> dict[str, Any]:
    from topocal.solve.price import NOT_KNOWN

    rest, known = found.dependence, found.is_known
    return {
        "seconds": found.seconds if known else None,
        "alpha_s": found.alpha_s,
        "busiest_s": found.busiest_s if known else None,
        "interval_s": [found.low_s, found.high_s] if known else None,
        "method": "closed form"
        if found.exact
        else "fluid simulation"
        if found.simulated
        else "closed form, a lower bound",
        "bottleneck": _load_document(found.busiest),
        "runner_up": _load_document(found.runner_up),
        "dependence": {
            "share": rest.share,
            "seconds_without": rest.seconds_without,
            "seconds_at_least": rest.seconds_at_least,
            "resources": [_load_document(one) for one in rest.resources],
        },
        "unmeasured": list(found.unmeasured),
        "by_turns": list(found.by_turns),
        "moved_bytes": found.moved_bytes,
        "local_bytes": found.local_bytes,
        "flows": found.flows,
        "throughput_Bps": found.throughput_Bps if known else None,
        "notes": [*found.notes, *([] if known else [NOT_KNOWN])],
    }


def _bounds_document(found: PriceBounds) -> dict[str, Any]:
    return {
        "at_least_s": found.at_least_s,
        "at_most_s": found.at_most_s,
        "proven_s": found.proven_s,
        "because": found.because,
        "bottleneck": _load_document(found.busiest),
        "runner_up": _load_document(found.runner_up),
        "worst": _load_document(found.worst),
        "moved_bytes": found.moved_bytes,
        "notes": list(found.notes),
    }


def _load_document(one: Load | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "resource": one.resource,
        "label": one.label,
        "sharing": str(one.sharing),
        "status": str(one.status),
        "seconds": one.seconds,
    }

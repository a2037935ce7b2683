"""``topocal caps``: what a policy needs to price transfers on a fitted machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topocal.completing import endpoints, machines

if TYPE_CHECKING:
    from rich.table import Table

    from topocal.solve.caps import Caps

__all__ = ["caps"]

_MOST_ROWS = 32


def caps(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=machines,
            help="model.json; or a topology or reference machine (by specification); or caps.json.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write caps.json.")
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME",
            autocompletion=endpoints,
            help="Endpoint of process 0, 1, … (repeatable); default: the calibration's ranks.",
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", help="Processes in the calibration, if it is not said."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", help="Its backend, if it is not said.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="NAME=VALUE", help="A variable that it set, if it is not said."
        ),
    ] = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Refuse caps that have another digest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the caps as JSON.")] = False,
) -> None:
    """Say what every resource and process passes, for policies that choose senders.

    The file can be used without topocal; processes with the same digest hold the same caps.

    topocal caps model.json -o caps.json

    topocal caps model.json --backend nccl --group-size 8 -o caps.json

    topocal caps caps.json --digest sha256:9866cbb3
    """
    from topocal.caps_source import conditions_of, find_caps
    from topocal.console import console, print_file, safe
    from topocal.expected import of_model_s
    from topocal.outputs import check_outputs
    from topocal.progress import progress
    from topocal.solve.caps_document import caps_digest, encode_caps, write_caps

    check_outputs(output, [model])
    measured = conditions_of(group_size, backend, setting)
    with progress("reading the model", expected_s=of_model_s(model, "caps")):
        found = find_caps(model, endpoints=endpoint, measured=measured, digest=digest)
    if output is not None:
        write_caps(found, output)
    if as_json:
        print_file(encode_caps(found))
        return
    out = console()
    for sentence in _sentences(found):
        out.print(safe(sentence))
    out.print(_process_table(found))
    if len(found.endpoints) > _MOST_ROWS:
        out.print(f"and {len(found.endpoints) - _MOST_ROWS} more processes; --json gives all")
    out.print(f"digest {caps_digest(found)}")
    if output is not None:
        out.print(f"wrote {safe(output)}")


def _sentences(caps: Caps) -> list[str]:
    """What the caps are of, and what they rest on."""
    from topocal.solve.price import UNPROVEN

    proven = sum(cap.status not in UNPROVEN for cap in caps.resources)
    found = [
        f"{len(caps.endpoints)} processes on {caps.machine or 'a machine'}: "
        f"{len(caps.resources)} resources between them, {proven} of them measured as a bottleneck"
    ]
    said = caps.calibration
    words = [
        f"a group of {said.group_size}" if said.group_size is not None else "",
        f"backend {said.backend}" if said.backend is not None else "",
        ", ".join(f"{k}={v}" for k, v in (said.settings or {}).items()),
    ]
    known = ", ".join(filter(None, words))
    found.append(
        f"calibrated with {known}" if known else "the calibration does not say its conditions"
    )
    unknown = [
        cap.id for cap in caps.resources if cap.cap_Bps is None and cap.sharing != "time-shared"
    ]
    if unknown:
        found.append(
            f"nothing is known of {len(unknown)} resources, which are taken not to limit anything: "
            + ", ".join(unknown[:3])
            + (", …" if len(unknown) > 3 else "")
        )
    return found


def _process_table(caps: Caps) -> Table:
    from topocal.console import safe
    from topocal.tables import plain_table

    table = caps.processes
    shown = [k for k, count in enumerate(table.senders) if count in (1, 2, 4, 7, table.senders[-1])]
    header = ["process", "sends", "receives"]
    header += [f"from {table.senders[k]}" for k in shown] + ["enough senders"]
    found = plain_table(
        "GB/s at most, and in all from so many senders", header, right=range(1, len(header))
    )
    for k, name in enumerate(caps.endpoints[:_MOST_ROWS]):
        cells = [f"{k} {name}", _rate(table.send_Bps[k]), _rate(table.receive_Bps[k])]
        for column in shown:
            least, most = table.receive_least_Bps[k][column], table.receive_most_Bps[k][column]
            words = dict.fromkeys((_rate(least), _rate(most)))
            cells.append(" to ".join(words))
        found.add_row(*map(safe, cells), str(table.enough_senders[k]))
    return found


def _rate(value_Bps: float | None) -> str:
    from topocal.topo.units import BYTES_PER_GB

    return "no limit" if value_Bps is None else f"{value_Bps / BYTES_PER_GB:.3g}"

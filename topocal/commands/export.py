"""``topocal export``: a machine and its capacities for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.completing import choices, endpoints, machines

__all__ = ["export"]


def _formats() -> tuple[str, ...]:
    from topocal.exporting import FORMATS

    return FORMATS


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=machines,
            help="model.json, topology.json, a tool's output, or a reference machine's name.",
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            autocompletion=choices(_formats),
            help="simgrid, nccl, graphml or dot.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it; without, it is printed."),
    ] = None,
    endpoints: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            autocompletion=endpoints,
            help="simgrid: between whom, such as 0,1,nic0; default: all GPUs.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="nccl: which of several hosts.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written, and its notes, as JSON.")
    ] = False,
) -> None:
    """Write a machine with its capacities for SimGrid, NCCL, or a graph program.

    Of a model the fitted capacities, else the nominal ones. What a format cannot say is told.

    topocal export model.json --as simgrid -o platform.xml

    topocal export model.json --as nccl -o topo.xml

    topocal export dgx-h100 --as dot | dot -Tsvg -o machine.svg
    """
    from topocal.console import console, print_file, print_json, safe, tell
    from topocal.exporting import export as write
    from topocal.exporting import find_source, held_by
    from topocal.outputs import check_outputs
    from topocal.topo.errors import printable
    from topocal.topo.files import write_atomically

    check_outputs(output, [model], formats=(held_by(format),))
    source = find_source(model)
    made = write(source, format, endpoints=endpoints, host=host)
    content = made.text.encode("utf-8", "replace")
    if output is not None:
        write_atomically(output, content)
    if as_json:
        print_json(
            {
                "machine": source.topology.name,
                "as": format,
                "capacities": source.capacities,
                "output": None if output is None else str(output),
                "notes": list(made.notes),
                **({"content": made.text} if output is None else {}),
            }
        )
        return
    if output is None:
        # Only the file: it may be piped into the program that reads it.
        print_file(content)
        for note in made.notes:
            tell(f"note: {printable(note)}")
        return
    out = console()
    for note in made.notes:
        out.print(f"note: {safe(note)}")
    out.print(f"wrote {safe(output)} ({source.capacities} capacities)")

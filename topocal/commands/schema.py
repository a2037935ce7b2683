"""``topocal schema``: what stands in a file, as JSON Schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.completing import choices

__all__ = ["schema"]


def _names() -> tuple[str, ...]:
    from topocal.schemas.generate import NAMES

    return tuple(NAMES)


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=choices(_names),
            help="One of topology, plan, calibration, model, caps; without it, the list.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it; without, it is printed."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; a schema is JSON in any case.")
    ] = False,
) -> None:
    """Print the JSON Schema of a file that topocal writes, for editors and other programs.

    topocal schema model -o model.schema.json

    topocal schema
    """
    from topocal.console import console, print_file, print_json, safe
    from topocal.outputs import check_outputs
    from topocal.schemas.generate import NAMES, encode_schema, schema_of
    from topocal.topo.errors import InputError
    from topocal.topo.files import write_atomically

    check_outputs(output)
    if name is None:
        if output is not None:
            raise InputError("no schema is named", remedy=f"give one of {', '.join(NAMES)}")
        about = {known: schema_of(known)["description"] for known in NAMES}
        if as_json:
            print_json({"schemas": about})
            return
        for known, words in about.items():
            console().print(f"{known:12} {safe(words)}")
        return
    content = encode_schema(name)
    if output is None:
        print_file(content)
        return
    write_atomically(output, content)
    if as_json:
        print_json({"schema": name, "output": str(output)})
        return
    console().print(f"wrote {safe(output)}")

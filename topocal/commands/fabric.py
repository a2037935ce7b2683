"""``topocal fabric``: run a command inside an emulated fabric whose capacities are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.completing import endpoints, machines
from topocal.console import tell
from topocal.options import checked_seed, refuse_idle

if TYPE_CHECKING:
    from topocal.measure.fabric.shape import Shape

__all__ = ["fabric"]

_SIGNALLED = 128
"""A shell's status of a command that a signal ended is this and the signal's number."""


def fabric(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: what runs once per endpoint.", metavar="COMMAND"),
    ] = None,
    like: Annotated[
        str,
        typer.Option(
            autocompletion=machines,
            help="What it is modelled on: a file, a reference machine, or two-nodes.",
        ),
    ] = "b70",
    endpoints: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            autocompletion=endpoints,
            help="Who takes part, by rank; default: all GPUs.",
        ),
    ] = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="LINK=FACTOR", help="A direction that passes less than it should."),
    ] = None,
    half_duplex: Annotated[
        list[str] | None,
        typer.Option(metavar="LINK", help="A connection whose directions share one capacity."),
    ] = None,
    ingress: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT=RATE", help="A limit that no topology shows."),
    ] = None,
    scale: Annotated[float, typer.Option(help="Times as fast as it would be.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the draw of true capacities.")] = 0,
    first: Annotated[
        bool,
        typer.Option("--first", help="Let the commands run before all else here, if permitted."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write its topology, for topocal plan."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the true capacities as JSON.")
    ] = False,
) -> None:
    """Run a command at every endpoint of an emulated fabric, or show what it would be.

    Each endpoint is a network namespace of its own; links pass what they are said to. The
    command gets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and gloo's interface,
    so that any script of torch.distributed runs as it is. Nothing is left behind.

        topocal fabric --like b70 --json

        topocal fabric --like b70 --slow 'switch0->socket0=0.5' -- python train.py

        topocal fabric --like two-nodes -- topocal measure plan.json -o calibration.json
    """
    from topocal.console import console, print_json
    from topocal.fabrics import find_shape, with_faults
    from topocal.outputs import check_outputs
    from topocal.topo.errors import InputError

    if not command:
        refuse_idle(context, ("--first",), "without a command")
    elif as_json:
        raise InputError(
            "--json and a command, which prints what it likes",
            remedy="ask for the capacities alone: they are the same for the same options",
        )
    check_outputs(output, [like])
    shape = find_shape(like, endpoints=endpoints, scale=scale, seed=checked_seed(seed))
    shape = with_faults(
        shape, slow=slow or (), half_duplex=half_duplex or (), ingress=ingress or ()
    )
    if output is not None:
        from topocal.topo.io import write_topology

        write_topology(shape.topology, output)
    if as_json:
        print_json(_document(shape))
    elif not command:
        _print(shape)
        if output is not None:
            console().print(f"wrote {output}", markup=False)
    if command:
        status = _run(shape, command, preferred=first)
        if status:
            raise typer.Exit(status)


def _document(shape: Shape) -> dict[str, Any]:
    blueprint = shape.blueprint
    return {
        "like": blueprint.name,
        "endpoints": list(blueprint.endpoints),
        "hosts": list(blueprint.hosts),
        "true_Bps": blueprint.truth,
        "visible_Bps": shape.visible_Bps,
        "nominal_Bps": {
            name: shape.topology.resources[name].nominal_Bps for name in shape.visible_Bps
        },
        "half_duplex": [pool.id for pool in blueprint.pools],
        "ingress": [
            {
                "endpoint": limit.endpoint,
                "true_Bps": limit.capacity_Bps,
                "sources": list(limit.sources),
            }
            for limit in blueprint.ingress
        ],
        "notes": list(shape.notes),
    }


def _print(shape: Shape) -> None:
    from topocal.console import console, safe
    from topocal.tables import plain_table
    from topocal.topo.units import format_rate

    out, blueprint = console(), shape.blueprint
    table = plain_table(
        f"A fabric like {safe(blueprint.name)}: {len(blueprint.endpoints)} endpoints",
        ("resource", "nominal", "true", ""),
        right=(1, 2),
    )
    visible = shape.visible_Bps
    for name, true in blueprint.truth.items():
        known = shape.topology.resources.get(name)
        nominal = None if known is None else known.nominal_Bps
        hidden = visible.get(name, true) < true
        word = "behind a slower one" if hidden else "" if known else "not in the topology"
        table.add_row(
            safe(name),
            "" if nominal is None else format_rate(nominal),
            format_rate(true),
            word,
        )
    for limit in blueprint.ingress:
        whose = f"ingress of {safe(limit.endpoint)}"
        if limit.sources:
            whose += f" from {safe(', '.join(limit.sources))}"
        table.add_row(whose, "", format_rate(limit.capacity_Bps), "not in the topology")
    out.print(table)
    for note in shape.notes:
        out.print(f"note: {note}", markup=False)


def _run(shape: Shape, command: list[str], *, preferred: bool) -> int:
    """Run the command everywhere; the first status that is not zero ends the others."""
    import os
    import sys

    from topocal.measure.fabric.emulated import Fabric

    environment = dict(os.environ)
    # Commands of this environment (topocal, torchrun, python) are the ones that are meant.
    own = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join(filter(None, (own, environment.get("PATH"))))
    sys.stdout.flush()
    with Fabric(shape.blueprint) as fabric:
        ranks = range(len(shape.blueprint.endpoints))
        running = [
            fabric.run(rank, command, environment=environment, preferred=preferred)
            for rank in ranks
        ]
        while True:
            for rank, ended in enumerate(running):
                if ended.status:
                    return _tell(shape, rank, ended.status)
            if all(c.status is not None for c in running):
                return 0
            fabric.wait()


def _tell(shape: Shape, rank: int, status: int) -> int:
    import signal

    from topocal.topo.errors import printable

    by = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
    name = printable(shape.blueprint.endpoints[rank])
    tell(f"topocal: rank {rank} ({name}) {by}; the others were ended")
    return _SIGNALLED - status if status < 0 else status

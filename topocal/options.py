"""Options that several commands have, said once; and options that do nothing where they are given.

Options by which patterns are named stand in :mod:`topocal.pattern_options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from topocal.completing import endpoints, machines

__all__ = [
    "AllowStale",
    "AsJson",
    "Backend",
    "Device",
    "Digest",
    "MinDuration",
    "RankEndpoints",
    "Resume",
    "Spawn",
    "Timeout",
    "TopologyOption",
    "TransferBackend",
    "TransferGroup",
    "TransferSetting",
    "Verify",
    "checked_seed",
    "refuse_idle",
]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

TopologyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topology",
        autocompletion=machines,
        help="topology.json, or a reference machine such as b70.",
    ),
]

# Measuring.

Spawn: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start N processes on this host; else torchrun or srun do."),
]
Backend: TypeAlias = Annotated[
    str | None,
    typer.Option(help="gloo, nccl, xccl …; default: by the devices that there are."),
]
Device: TypeAlias = Annotated[
    str | None, typer.Option(help="cpu, cuda or xpu, where the backend does not say it.")
]
RankEndpoints: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", autocompletion=endpoints, help="Endpoint of each rank, such as 0,1,nic0."
    ),
]
Verify: TypeAlias = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Read every payload back and compare.")
]
MinDuration: TypeAlias = Annotated[
    str,
    typer.Option(
        "--min-duration", metavar="TIME", help="Short patterns are repeated until so long."
    ),
]
Timeout: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="How long a process may be silent before it counts as hung; five times as long to "
        "come at the start.",
    ),
]
Resume: TypeAlias = Annotated[
    bool,
    typer.Option("--resume", help="Go on where it was cut off; from the start if it never began."),
]

# Pricing and assigning transfers by caps.

TransferGroup: TypeAlias = Annotated[
    int | None, typer.Option("--group-size", help="Processes in the transfer's group.")
]
TransferBackend: TypeAlias = Annotated[
    str | None, typer.Option("--backend", help="The transfer's backend.")
]
TransferSetting: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="NAME=VALUE", help="A variable that the transfer sets."),
]
AllowStale: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-stale", help="Use caps even if they were calibrated under other conditions."
    ),
]
Digest: TypeAlias = Annotated[
    str | None, typer.Option("--digest", help="Refuse caps that have another digest.")
]


def checked_seed(seed: int) -> int:
    """A seed of random numbers.

    Raises
    ------
    InputError
        When it is negative.
    """
    if seed < 0:
        from topocal.topo.errors import InputError

        raise InputError(f"--seed {seed}", remedy="give a whole number, zero or more")
    return seed


def refuse_idle(context: typer.Context, options: Sequence[str], where: str) -> None:
    """Tell of options that were given and do nothing here.

    Parameters
    ----------
    context
        Of the command, which knows what was given and what is a default.
    options
        Options of the command, as people write them, such as ``--noise``; or the metavar of an
        argument.
    where
        When they do nothing: ``without --simulate``.

    Raises
    ------
    InputError
        When one of them was given.
    """
    given = []
    for parameter in context.command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            names = [str(parameter.metavar or parameter.name)]
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            given += [name for name in names[:1] if set(names) & set(options)]
    if given:
        from topocal.topo.errors import InputError

        many = len(given) > 1
        raise InputError(
            f"{', '.join(given)} {'do' if many else 'does'} nothing {where}",
            remedy=f"leave {'them' if many else 'it'} out",
        )

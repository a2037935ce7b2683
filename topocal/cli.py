"""The ``topocal`` command: its verbs, and what every one of them does with errors.

Exit status: 0 done, 1 the answer is "no", 2 bad input (one line on standard
error), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from topocal.commands.demo import demo
from topocal.commands.discover import discover
from topocal.commands.fit import fit
from topocal.commands.gather import gather
from topocal.commands.plan import plan
from topocal.commands.predict import predict
from topocal.commands.read import read
from topocal.commands.show import show
from topocal.topo.errors import TopocalError

__all__ = ["app", "main"]

app = typer.Typer(
    name="topocal",
    help="How long concurrent transfers take on a machine of accelerators, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"topocal {installed_version('topocal')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


app.command(name="discover")(discover)
app.command(name="gather")(gather)
app.command(name="read")(read)
app.command(name="show")(show)
app.command(name="plan")(plan)
app.command(name="fit")(fit)
app.command(name="predict")(predict)
app.command(name="demo")(demo)


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except TopocalError as error:
        typer.echo(f"topocal: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("topocal: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`topocal … | head`); that is not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

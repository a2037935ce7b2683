"""The ``topocal`` command: its verbs, and what every one of them does with errors.

Exit status: 0 done, 1 the answer is "no", 2 bad input (one line on standard error), 130
interrupted, 143 ended by SIGTERM while measuring.  A reader that leaves (``| head``) is no
error: 0, and nothing is said.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, TextIO

import typer

from topocal.console import tell
from topocal.help_pages import Command, Group
from topocal.topo.errors import TopocalError

__all__ = ["VERBS", "command_line", "main"]

_LEAST_WIDTH: Final = 20
"""Characters."""

VERBS: Final = (
    "discover",
    "gather",
    "read",
    "show",
    "plan",
    "measure",
    "calibrate",
    "fabric",
    "fit",
    "predict",
    "explain",
    "simulate",
    "caps",
    "price",
    "diff",
    "report",
    "export",
    "schema",
    "assign",
    "demo",
    "completion",
)
"""The commands, each a function in a module of its name, in the order of the work."""

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for a command line that it cannot read."""


def command_line(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The command line, or as much of it as a single command needs."""
    app = typer.Typer(
        name="topocal",
        cls=Group,
        help="How long concurrent transfers take on a machine of accelerators, and why.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        function = getattr(import_module(f"topocal.commands.{verb}"), verb)
        app.command(name=verb, cls=Command)(function)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as installed_version

        typer.echo(f"topocal {installed_version('topocal')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed by the caller: `topocal … >&-`.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            # A character that the encoding lacks, as in `LANG=C`, becomes a question mark.
            stream.reconfigure(errors="replace")
    _check_width()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # As topocal.__main__ left it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = _status()
    except (KeyboardInterrupt, typer.Abort):
        status = 130
        tell("topocal: interrupted")
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    sys.exit(status)


def _check_width() -> None:
    """A terminal is as wide as it says, but for widths in which nothing can be written."""
    said = os.environ.get("COLUMNS", "")
    if said and not (said.isascii() and said.isdecimal() and int(said[:6]) > 0):
        del os.environ["COLUMNS"]
    elif said and int(said[:6]) < _LEAST_WIDTH:
        os.environ["COLUMNS"] = str(_LEAST_WIDTH)


def _let_go(stream: TextIO) -> None:
    """What cannot be written is not tried again by Python's own end, which has another status."""
    try:
        stream.flush()
    except (OSError, ValueError):
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Whatever is still written there goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _status() -> int:
    """The exit status, all output written."""
    try:
        try:
            # All commands take a tenth of a second to prepare.
            asked = [word for word in sys.argv[1:2] if word in VERBS] or VERBS
            status = command_line(asked)(standalone_mode=False, prog_name="topocal")
        except SystemExit as stop:
            # Rich's own answer to a pipe that nobody reads.
            if isinstance(stop.__context__, BrokenPipeError):
                raise stop.__context__ from None
            status = stop.code
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except TopocalError as error:
        tell(f"topocal: {error}")
        return 2
    except _UsageError as error:
        return _tell_usage(error)
    except BrokenPipeError:
        # The reader of our output has gone (`topocal … | head`); that is not an error of ours.
        _silence(sys.stdout)
        return 0
    except OSError as error:
        # Files have errors of their own; what is left is the output: a full disk.
        what = f"{error.filename or 'standard output'}: {error.strerror}".lower()
        tell(f"topocal: {what}; make room, or choose another place")
        _silence(sys.stdout)
        return 2


def _tell_usage(error: Any) -> int:
    """One line on what is wrong with the command line; help where it says nothing at all."""
    context = getattr(error, "ctx", None)
    words = error.format_message().strip()
    if "\n" in words:
        tell(words)
    elif words:  # Without any argument, typer has printed the help itself.
        command = "topocal" if context is None else context.command_path
        tell(f"{command}: {words.rstrip('.')}; see {command} --help")
    return int(error.exit_code)

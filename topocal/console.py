"""How commands print: text for people on standard output, JSON with ``--json``, progress aside.

Rich decides on colour: none when the output is not a terminal or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "print_file", "print_json", "safe", "tell"]

_WIDTH_WHEN_PIPED = 120


def console() -> Console:
    """Standard output for people: as wide as the terminal, or a fixed width in a pipe.

    A character that the output's encoding lacks becomes a question mark.
    """
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    width = None if sys.stdout.isatty() else _WIDTH_WHEN_PIPED
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False)


def safe(text: object) -> str:
    """Text from a user's file for Rich: no markup, and nothing that a terminal would act upon.

    >>> safe("[red]\\x1b[31m")
    '\\\\[red]?[31m'
    """
    from rich.markup import escape

    from topocal.topo.errors import printable

    return escape(printable(text))


def tell(text: str) -> None:
    """A line on standard error, if there is somebody to read it.

    Where there is nobody (a pipe whose reader has gone, a full disk) the exit status still says
    how it went.
    """
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def print_indented(out: Console, text: object, first: str = "  ", bold: str = "") -> None:
    """Print plain text that begins with ``first`` and goes on below its beginning.

    Parameters
    ----------
    first
        Blanks, or the sign of an item of a list.
    bold
        Printed bold before the text.
    """
    import textwrap

    from rich.text import Text

    from topocal.topo.errors import printable

    lines = textwrap.wrap(
        bold + printable(text),
        out.width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        shown = Text(line)
        if bold and line.startswith(first + bold):
            shown.stylize("bold", len(first), len(first + bold))
        out.print(shown, soft_wrap=True)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output, with its digest where it names a format of ours."""
    import msgspec

    from topocal.topo.digest import with_digest

    content = msgspec.json.encode(with_digest(document))
    print_file(msgspec.json.format(content, indent=2) + b"\n")


def print_file(content: bytes) -> None:
    """A file on standard output as it would be on disk, whatever the terminal's encoding."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # A stream of text alone, as tests and notebooks put there.
        sys.stdout.write(content.decode())
    else:
        buffer.write(content)
        buffer.flush()

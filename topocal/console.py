"""How commands print: text for people on standard output, JSON with ``--json``, progress aside.

Rich decides on colour: none when the output is not a terminal or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "print_json"]

_WIDTH_WHEN_PIPED = 120


def console() -> Console:
    """Standard output for people; as wide as the terminal, or a fixed width in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_WHEN_PIPED
    return Console(width=width, highlight=False, soft_wrap=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")

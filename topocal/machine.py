"""A machine as people name it on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["find_topology", "read_source"]


def find_topology(name: str) -> Topology:
    """A topology from a file, standard input (``-``) or by a reference machine's name.

    A file of that name comes first.

    Raises
    ------
    InputError
        When it is neither a file that can be read nor a known machine.
    """
    from difflib import get_close_matches

    from topocal.topo.errors import FormatError, InputError, one_line
    from topocal.topo.machines import MACHINES, build_machine

    is_file = name == "-" or os.path.lexists(name) or "/" in name or bool(Path(name).suffix)
    if is_file:
        try:
            return read_source(name)
        except FormatError as error:
            if error.what.startswith("is of no known kind"):
                # Commands that take any machine have no --as.
                error.remedy = (
                    "give topology.json, or what a tool prints about the machine; "
                    "topocal read --as says its kind, where that is not told by content"
                )
            raise
    try:
        return build_machine(name)
    except InputError as error:
        close = get_close_matches(name, MACHINES, n=1)
        raise InputError(
            f"no file and no reference machine {one_line(name)!r}",
            remedy=f"did you mean {close[0]}?"
            if close
            else f"give a file, or one of {', '.join(MACHINES)}",
            about=name,
        ) from error


def read_source(path: str | Path, kind: str | None = None) -> Topology:
    """A topology from topocal's own file or another tool's output; ``-`` is standard input.

    Parameters
    ----------
    kind
        What it is, where that is not told by content.

    Raises
    ------
    InputError
        When it cannot be read, or is nothing that is known.
    """
    from topocal.topo.errors import InputError, Where
    from topocal.topo.readers.reader import MAX_FILE_BYTES
    from topocal.topo.readers.registry import parse_content, read_any

    if str(path) != "-":
        return read_any(path, kind=kind)
    name = "standard input"
    try:
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    except (AttributeError, OSError, ValueError) as error:
        # Closed, or a directory: `topocal read - <&-`, `topocal read - < .`.
        raise InputError(
            "cannot be read", where=Where(file=name), remedy="give a file, or pipe a tool into it"
        ) from error
    return parse_content(content, file=name, kind=kind)

"""A machine as people name it on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["find_topology", "is_file", "topology_of_file"]


def is_file(name: str) -> bool:
    """Whether a name means a file (``-`` is standard input) rather than something known by name."""
    return name == "-" or os.path.lexists(name) or "/" in name or bool(Path(name).suffix)


def topology_of_file(name: str) -> Topology:
    """A topology from a file or standard input, for commands that take any machine.

    Raises
    ------
    InputError
        When it cannot be read.
    """
    from topocal.topo.errors import FormatError
    from topocal.topo.readers.registry import read_any

    try:
        return read_any(name)
    except FormatError as error:
        if error.what.startswith("is of no known kind"):
            # Only topocal read has --as.
            error.remedy = (
                "give topology.json, or what a tool prints about the machine; "
                "topocal read --as says its kind, where that is not told by content"
            )
        raise


def find_topology(name: str) -> Topology:
    """A topology from a file, standard input (``-``) or by a reference machine's name.

    A file of that name comes first.

    Raises
    ------
    InputError
        When it is neither a file that can be read nor a known machine.
    """
    from difflib import get_close_matches

    from topocal.topo.errors import InputError, one_line
    from topocal.topo.machines import MACHINES, build_machine

    if is_file(name):
        return topology_of_file(name)
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

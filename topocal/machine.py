"""A machine as people name it on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["find_topology"]


def find_topology(name: str) -> Topology:
    """A topology from topology.json, another tool's output, or a reference machine's name.

    A file of that name comes first.

    Raises
    ------
    InputError
        When it is neither a file that can be read nor a known machine.
    """
    from topocal.topo.machines.catalogue import build_machine
    from topocal.topo.readers.registry import read_any

    return read_any(name) if Path(name).exists() else build_machine(name)

"""Machines of one shape are shown once: which node, and which resource, stands for which.

A cluster of 128 like hosts is drawn as one of them; each figure in the drawing is then the
range over all hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topocal.topo.render.outline import Machine, Outline
from topocal.topo.topology import Topology

__all__ = ["Families", "Folded", "fold"]

_MOST_ALIKE: Final = 2
"""More machines of one shape are drawn once, as :mod:`topocal.topo.render.svg` does."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A machine that is drawn, and the names of all that look like it, itself first."""

    machine: Machine
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Families:
    """What stands for what.

    Attributes
    ----------
    machines
        Those that are drawn.
    drawn
        The node that stands for each node of a machine that is not; others are missing.
    """

    machines: tuple[Folded, ...]
    drawn: Mapping[str, str]

    def node(self, name: str) -> str:
        """The node that stands for this one: often itself."""
        return self.drawn.get(name, name)


def fold(topology: Topology, parts: Outline) -> Families:
    """Find the machines of one shape."""
    by_shape: dict[str, list[Machine]] = {}
    for machine in parts.machines:
        by_shape.setdefault(machine.shape, []).append(machine)
    machines: list[Folded] = []
    drawn: dict[str, str] = {}
    for alike in by_shape.values():
        if len(alike) <= _MOST_ALIKE or not all(m.name for m in alike):
            machines += [Folded(m, (m.name,)) for m in alike]
            continue
        first = alike[0]
        machines.append(Folded(first, tuple(m.name for m in alike)))
        for other in alike[1:]:
            for node in _nodes(other):
                own = f"{first.name}/{node.removeprefix(other.name + '/')}"
                if own in topology.graph:
                    drawn[node] = own
    return Families(tuple(machines), drawn)


def _nodes(machine: Machine) -> set[str]:
    """All of a machine, its fabric switches included."""
    links = (*machine.peers, *machine.sockets, *machine.others)
    return {*machine.nodes, *(end for link in links for end in (link.a, link.b))}

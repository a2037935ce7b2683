"""All reference machines by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from topocal.topo.errors import InputError, one_line
from topocal.topo.machines.amd import mi250x, mi300x
from topocal.topo.machines.clusters import fat_tree_cluster, rail_pod
from topocal.topo.machines.nvidia import dgx1, dgx_a100, dgx_h100, gh200, h20_pair
from topocal.topo.machines.pcie_boxes import b70, l20, l40s
from topocal.topo.topology import Topology

__all__ = ["MACHINES", "Machine", "build_machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One reference machine.

    Attributes
    ----------
    name
        What people write.
    title
        What it is, in a line.
    source
        Where it is published.
    build
        Makes its topology.
    """

    name: str
    title: str
    source: str
    build: Callable[[], Topology]

    @classmethod
    def of(cls, name: str, build: Callable[[], Topology]) -> Machine:
        """A machine whose title and source stand in its function's docstring."""
        title, _, more = inspect.cleandoc(build.__doc__ or "").partition("\n")
        _, _, source = more.partition("References\n----------\n")
        return cls(name=name, title=title.strip(), source=" ".join(source.split()), build=build)


MACHINES: Final[dict[str, Machine]] = {
    name: Machine.of(name, build)
    for name, build in (
        ("b70", b70),
        ("l20", l20),
        ("l40s", l40s),
        ("dgx1", dgx1),
        ("dgx-a100", dgx_a100),
        ("dgx-h100", dgx_h100),
        ("gh200", gh200),
        ("mi250x", mi250x),
        ("mi300x", mi300x),
        ("h20-pair", h20_pair),
        ("fat-tree", fat_tree_cluster),
        ("rail-pod", rail_pod),
    )
}
"""Every reference machine by its name."""


def build_machine(name: str) -> Topology:
    """The topology of a reference machine; case, ``_`` and ``-`` do not matter.

    Raises
    ------
    InputError
        When there is none of that name.
    """
    plain = {key.replace("-", ""): key for key in MACHINES}
    wanted = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    if wanted not in plain:
        close = difflib.get_close_matches(wanted, plain, n=1)
        remedy = f"did you mean {plain[close[0]]}?" if close else "known: " + ", ".join(MACHINES)
        raise InputError(f"no reference machine {one_line(name)!r}", remedy=remedy)
    return MACHINES[plain[wanted]].build()

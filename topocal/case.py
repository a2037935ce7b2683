"""A machine with capacities, as people name it on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topocal.topo.what_if import Case

__all__ = ["Found", "find_case"]


@dataclass(frozen=True, slots=True)
class Found:
    """A case, and where its capacities come from, in words: ``fitted`` or ``nominal``."""

    case: Case
    capacities: str


def find_case(name: str, *, default_Bps: float | None = None) -> Found:
    """The machine of a fitted model, a topology file, a tool's output or a reference machine.

    Parameters
    ----------
    name
        A file, or the name of a reference machine.
    default_Bps
        Capacity of resources that nothing else says; ``None``: they stay unknown,
        which is an error as soon as a flow loads one.

    Raises
    ------
    InputError
        When it is none of these, or cannot be read.
    """
    import numpy as np

    from topocal.machine import find_topology
    from topocal.solve.model import is_model, read_model
    from topocal.topo.capacities import Capacities
    from topocal.topo.units import format_rate
    from topocal.topo.what_if import Case

    assumed = "" if default_Bps is None else f" or {format_rate(default_Bps)}"
    if is_model(name):
        model = read_model(name)
        capacities = model.capacities
        if default_Bps is not None:
            # What a model does not know never binds, unless told otherwise.
            unknown = np.array([r.capacity_Bps is None for r in model.resources.values()])
            values = np.where(unknown, default_Bps, capacities.capacity_Bps)
            capacities = replace(capacities, capacity_Bps=values)
        # Flow by flow nothing says when the loss sets in: what many flows cost is left out.
        loss = "" if model.fading is None else ", without its loss by many flows"
        case = Case(topology=model.topology, capacities=capacities)
        return Found(case, f"fitted{assumed}{loss}")
    topology = find_topology(name)
    capacities = Capacities.of(topology, default_Bps=default_Bps, needed=())
    return Found(Case(topology=topology, capacities=capacities), f"nominal{assumed}")

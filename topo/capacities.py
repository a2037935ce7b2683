"""What every resource of a machine passes, as arrays in the order of the incidence's columns."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.errors import TopologyError, one_line
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["SHARING_CODE", "Capacities"]

SHARING_CODE: Final[dict[Sharing, int]] = {sharing: code for code, sharing in enumerate(Sharing)}
"""Number of each :class:`Sharing` in :attr:`Capacities.sharing`, in the order of its members."""

_NAMES_IN_A_MESSAGE: Final = 5


@dataclass(frozen=True, eq=False)
class Capacities:
    """Known capacity of every resource, in the order of ``topology.resources``.

    Attributes
    ----------
    resources
        Resource ids, R of them: the columns of an incidence.
    capacity_Bps
        Shape (R,), bytes per second.  ``inf`` never binds; ``nan`` is unknown, and
        an error as soon as a flow loads it.  Ignored for time-shared resources.
    sharing
        Shape (R,), codes of :data:`SHARING_CODE`.
    kappa
        Shape (R,), overlap of time-shared resources, 1 elsewhere.
    in_order
        Shape (R,), time-shared resources that run messages in order of arrival.
    """

    resources: tuple[str, ...]
    capacity_Bps: NDArray[np.float64]
    sharing: NDArray[np.int8]
    kappa: NDArray[np.float64]
    in_order: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        topology: Topology,
        capacity_Bps: Mapping[str, float] | None = None,
        *,
        kappa: Mapping[str, float] | None = None,
        default_Bps: float | None = None,
        needed: Collection[str] | None = None,
    ) -> Capacities:
        """Capacities of a topology: those given, else nominal ones, else a default.

        Parameters
        ----------
        topology
            Its resources fix the order, how each is shared, and the nominal values.
        capacity_Bps
            Bytes per second by resource id.
        kappa
            Overlap by id of time-shared resources; theirs in the topology where not given.
        default_Bps
            For resources that are neither given nor have a nominal capacity.
        needed
            Resources that must be known; ``None``: all.  Others may stay unknown.

        Raises
        ------
        TopologyError
            When an id is not a resource, a value is not a capacity or an overlap, or
            the capacity of a needed resource is unknown.
        """
        given, overlap = capacity_Bps or {}, kappa or {}
        known = topology.resources
        for name in (*given, *overlap):
            if name not in known:
                raise unknown_resource(name, known)
        values, unknown = np.full(len(known), math.inf), []
        for k, (name, resource) in enumerate(known.items()):
            if resource.sharing is Sharing.TIME_SHARED:
                continue
            found = given.get(name, resource.nominal_Bps)
            found = default_Bps if found is None else found
            values[k] = math.nan if found is None else checked_capacity(name, found)
            if found is None and (needed is None or name in needed):
                unknown.append(name)
        if unknown:
            raise unknown_capacity(unknown)
        overlaps = [
            _checked_kappa(name, overlap.get(name, resource.kappa))
            if resource.sharing is Sharing.TIME_SHARED
            else 1.0
            for name, resource in known.items()
        ]
        return cls(
            resources=tuple(known),
            capacity_Bps=values,
            sharing=np.array([SHARING_CODE[r.sharing] for r in known.values()], dtype=np.int8),
            kappa=np.array(overlaps, dtype=np.float64),
            in_order=np.array(
                [r.in_order and r.sharing is Sharing.TIME_SHARED for r in known.values()],
                dtype=np.bool_,
            ),
        )

    def changed(self, capacity_Bps: Mapping[str, float]) -> Capacities:
        """The same with other capacities for some resources.

        Raises
        ------
        TopologyError
            When an id is not a resource, or a value is not a capacity.
        """
        column = {name: k for k, name in enumerate(self.resources)}
        values = self.capacity_Bps.copy()
        for name, value in capacity_Bps.items():
            if name not in column:
                raise unknown_resource(name, self.resources)
            values[column[name]] = checked_capacity(name, value)
        return replace(self, capacity_Bps=values)


def unknown_resource(name: str, known: Collection[str]) -> TopologyError:
    """The error for an id that is not a resource; its remedy names the closest that is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    shown = _listed(list(known)) or "none"
    return TopologyError(
        f"unknown resource {one_line(name)!r}",
        remedy=f"did you mean {close[0]}?" if close else f"the machine has {shown}",
        about=name,
    )


def unknown_capacity(names: list[str]) -> TopologyError:
    """The error for resources whose capacity nothing says."""
    verb = "is" if len(names) == 1 else "are"
    return TopologyError(
        f"the capacity of {_listed(names)} {verb} unknown",
        remedy=f"give it, for example --set '{names[0]}=25GB/s', or a default for all (--default)",
        about=names,
    )


def checked_capacity(name: str, value_Bps: float) -> float:
    """A capacity that is a number of bytes per second: zero or more, or infinite.

    Raises
    ------
    TopologyError
        When it is not.
    """
    if not value_Bps >= 0:
        raise TopologyError(
            f"{name} has capacity {value_Bps}", remedy="give bytes per second, zero or more"
        )
    return float(value_Bps)


def _checked_kappa(name: str, value: float) -> float:
    if not 0 < value <= 1:
        raise TopologyError(f"{name} has overlap factor {value}", remedy="give 0 < kappa <= 1")
    return float(value)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_IN_A_MESSAGE
    return ", ".join(names[:_NAMES_IN_A_MESSAGE]) + (f" and {more} more" if more > 0 else "")

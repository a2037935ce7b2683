"""What each resource is taken to pass before anything is measured.

In this order: what the caller gives (in adaptive rounds, the bound that the samples
so far prove); the nominal capacity; where nothing says it, the median of the nominal
capacities of resources of the same make (links of one kind between nodes of the same
kinds); else of all links of that kind; else of whatever the same transfers cross; and
where nothing at all is known, :data:`FALLBACK_Bps` for every resource alike.  What is
not nominal is said in :attr:`Prior.notes`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.capacities import unknown_resource
from topocal.topo.errors import TopologyError
from topocal.topo.nominal import pcie_Bps
from topocal.topo.resource import Resource, Sharing
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.topo.incidence import Incidence
    from topocal.topo.topology import Topology

__all__ = ["Basis", "FALLBACK_Bps", "Prior", "makes", "prior_of"]

FALLBACK_Bps: Final = pcie_Bps(4, 16) or math.nan
"""Taken for all resources alike where nothing is known: PCIe 4.0 x16
(:mod:`topocal.topo.nominal`).  Only expected times depend on its value."""

_NAMES: Final = 3


class Basis(StrEnum):
    """What an assumed capacity rests on."""

    GIVEN = "given"
    NOMINAL = "nominal"
    MAKE = "make"
    """The median of its make."""
    KIND = "kind"
    """The median of all links of its kind."""
    NEIGHBOURS = "neighbours"
    """The median of what the same transfers cross."""
    FALLBACK = "fallback"
    SHARING = "sharing"
    """Time-shared: it has no capacity of its own."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Assumed seconds per byte of every resource, in the order of ``topology.resources``.

    Attributes
    ----------
    resources
        Ids, R of them.
    seconds_per_byte
        Shape (R,); zero where no limit is known to exist, and for time-shared resources.
    nominal_s
        Shape (R,): the same by specification alone, NaN where nothing says it.
    basis
        What each rests on.
    notes
        What was assumed, in sentences.
    """

    resources: tuple[str, ...]
    seconds_per_byte: NDArray[np.float64]
    nominal_s: NDArray[np.float64]
    basis: tuple[Basis, ...]
    notes: tuple[str, ...]


def makes(topology: Topology) -> dict[str, tuple[str, str]]:
    """Make and link kind of every resource by id.

    Links of one kind between nodes of the same kinds are of one make.  Resources that no
    link shows are of one make when their ids differ in numbers only; their kind is empty.
    """
    kind = dict(topology.graph.nodes(data="kind"))
    found: dict[str, tuple[str, str]] = {}
    for link in topology.links.values():
        for resource, _ in link.uses:
            make = f"{link.kind} from {kind[link.tail]} to {kind[link.head]}"
            found.setdefault(resource, (make, str(link.kind)))
    return {
        name: found.get(name, (re.sub(r"[0-9]+", "*", name), "")) for name in topology.resources
    }


def prior_of(
    topology: Topology, lines: Incidence, given_s: Mapping[str, float] | None = None
) -> Prior:
    """Assumed seconds per byte of every resource.

    Parameters
    ----------
    lines
        Who crosses what, of the pairs that may be measured.
    given_s
        Seconds per byte by resource id, which win over nominal capacities.

    Raises
    ------
    TopologyError
        When an id is not a resource, or a value is not finite and zero or more.
    """
    given = dict(given_s or {})
    for name, value in given.items():
        if name not in topology.resources:
            raise unknown_resource(name, topology.resources)
        if not (math.isfinite(value) and value >= 0):
            raise TopologyError(
                f"{name} is given {value} seconds per byte",
                remedy="give a finite number, zero or more",
                about=name,
            )
    table = list(topology.resources.values())
    nominal = np.array([_nominal(r) for r in table])
    values = nominal.copy()
    basis = [Basis.NOMINAL] * len(table)
    for k, resource in enumerate(table):
        if resource.sharing is Sharing.TIME_SHARED:
            values[k], basis[k] = 0.0, Basis.SHARING
        elif resource.id in given:
            values[k], basis[k] = given[resource.id], Basis.GIVEN
    used = np.bincount(lines.matrix.indices, minlength=len(table)) > 0
    notes = _fill(topology, lines, nominal, used, values, basis)
    return Prior(tuple(topology.resources), values, nominal, tuple(basis), tuple(notes))


def _nominal(resource: Resource) -> float:
    rate = resource.nominal_Bps
    if resource.sharing is Sharing.TIME_SHARED or rate is None or not rate > 0:
        return math.nan
    return 1.0 / rate


def _fill(
    topology: Topology,
    lines: Incidence,
    nominal: NDArray[np.float64],
    used: NDArray[np.bool_],
    values: NDArray[np.float64],
    basis: list[Basis],
) -> list[str]:
    """Fill what is unknown in ``values`` and ``basis``; what was assumed of used ones."""
    made = list(makes(topology).values())
    by_make: dict[str, list[float]] = defaultdict(list)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for (make, kind), value in zip(made, nominal.tolist(), strict=True):
        if not math.isnan(value):
            by_make[make].append(value)
            if kind:
                by_kind[kind].append(value)
    columns = lines.matrix.tocsc()
    groups: dict[tuple[str, Basis, float], list[str]] = defaultdict(list)
    nothing_known = not by_make
    for k in np.flatnonzero(np.isnan(values)).tolist():
        make, kind = made[k]
        if by_make[make]:
            values[k], basis[k] = median(by_make[make]), Basis.MAKE
        elif by_kind[kind]:
            values[k], basis[k] = median(by_kind[kind]), Basis.KIND
        else:
            near = _neighbours(lines, columns.indices[columns.indptr[k] : columns.indptr[k + 1]])
            around = nominal[near][~np.isnan(nominal[near])]
            if len(around):
                values[k], basis[k] = float(np.median(around)), Basis.NEIGHBOURS
            else:
                values[k], basis[k] = 1.0 / FALLBACK_Bps, Basis.FALLBACK
        if used[k]:
            groups[make, basis[k], float(values[k])].append(lines.resources[k])
    if nothing_known and groups:
        return [
            f"no nominal capacity is known: all {sum(map(len, groups.values()))} resources are "
            f"taken to pass {format_rate(FALLBACK_Bps)} alike"
        ]
    return [_note(*key, names) for key, names in groups.items()]


def _neighbours(lines: Incidence, rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Columns that the pairs of ``rows`` load, once for each."""
    matrix = lines.matrix
    spans = [matrix.indices[matrix.indptr[p] : matrix.indptr[p + 1]] for p in rows[:1024].tolist()]
    return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int32)


def _note(make: str, basis: Basis, value: float, names: list[str]) -> str:
    more = len(names) - _NAMES
    shown = ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
    why = {
        Basis.MAKE: "the median of their make",
        Basis.KIND: "the median of all links of their kind",
        Basis.NEIGHBOURS: "the median of what the same transfers cross",
        Basis.FALLBACK: "for want of anything known",
    }[basis]
    return f"capacity unknown ({make}: {shown}): taken as {format_rate(1 / value)}, {why}"

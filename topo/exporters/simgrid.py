"""A SimGrid platform: hosts, links with the machine's capacities, and every route by name.

SimGrid shares links as topocal does, max-min fairly, and its links count a flow as often as
its route names them.  Data flows so::

    Topology + Figures ──> Loads: seconds per byte of every pair on every resource
        ──> per resource: how often each route names its link, and the link's bandwidth
        ──> platform

- *capacity* and *duplex*: one SHARED link; a flow of weight 2 names it twice.
- *fatpipe*: a FATPIPE link, one for each weight that occurs.
- *time-shared*: one SHARED link on which a byte costs each flow as much as it takes alone.
  SimGrid has no such costs, so a route names the link in proportion, in whole numbers.
  That is exact where the flows' own rates have whole ratios, and else rounded; the comment on
  top says by how much.

Every latency is 0: SimGrid gives flows of longer latency smaller shares, which no machine of
this kind does.  The start-up time goes before the transfer instead; the comment says how much.
Versions 3.2x to 4.x read the platform; its ``<config>`` asks for plain max-min sharing, of
message bytes as they are.

References
----------
SimGrid documentation, "Platform Reference" (DTD version 4.1) and "Configuring SimGrid".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, TopologyError
from topocal.topo.exporters.ids import distinct_ids
from topocal.topo.exporters.xml_text import comment_lines, quoted, xml_safe
from topocal.topo.incidence import incidence
from topocal.topo.loads import Loads
from topocal.topo.resource import PathClass, Sharing

if TYPE_CHECKING:
    from topocal.topo.exporters.figures import Figures
    from topocal.topo.topology import Topology

__all__ = ["MOST_ENDPOINTS", "Platform", "simgrid_platform", "to_simgrid"]

MOST_ENDPOINTS: Final = 256
"""Routes grow with the square: 65,000 of them are some ten megabytes."""

_MOST_TIMES: Final = 128
"""How often a route names one link at most."""

_CLOSE: Final = 0.005
"""Rounding of shares of time that is not worth naming links more often."""

_EXACT: Final = 1e-12

_CONFIG: Final = (
    ("network/model", "CM02"),
    ("network/TCP-gamma", "0"),
    ("network/weight-S", "0"),
    ("network/crosstraffic", "0"),
    ("network/latency-factor", "1"),
    ("network/bandwidth-factor", "1"),
)
"""No TCP window, no weights by round trip, no traffic back, no factors on the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform and what it does not say.

    Attributes
    ----------
    text
        The file.
    notes
        What SimGrid cannot express, and what was left out, in sentences.
    hosts, links, routes
        How many.
    """

    text: str
    notes: tuple[str, ...]
    hosts: int
    links: int
    routes: int


def to_simgrid(
    topology: Topology,
    figures: Figures,
    *,
    endpoints: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The platform file; see :func:`simgrid_platform`."""
    return simgrid_platform(topology, figures, endpoints=endpoints, notes=notes).text


def simgrid_platform(
    topology: Topology,
    figures: Figures,
    *,
    endpoints: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Platform:
    """The platform between some endpoints (default: the accelerators, else all).

    Parameters
    ----------
    figures
        What each resource passes.
    notes
        Further sentences for the comment on top.

    Raises
    ------
    UnknownEndpointError
        When an endpoint is none.
    InputError
        When there are fewer than two endpoints, or too many.
    TopologyError
        When a resource passes nothing at all.
    """
    chosen = tuple(dict.fromkeys(endpoints or topology.accelerators or topology.endpoints))
    topology.require_endpoints(chosen)
    if not 2 <= len(chosen) <= MOST_ENDPOINTS:
        raise InputError(
            f"{len(chosen)} endpoints for a SimGrid platform, which names every route",
            remedy=f"choose 2 to {MOST_ENDPOINTS} of them",
        )
    pairs, lost = _pairs(topology, chosen)
    loads = _loads(topology, figures, pairs)
    links, routes, said = _links(topology, loads)
    if lost:
        said.append(f"{lost} of the pairs have no route, and none here")
    said.append("a host sending to itself: SimGrid uses a loopback link of its own")
    lines = _document(topology, chosen, links, dict(zip(pairs, routes, strict=True)))
    everything = tuple(notes) + tuple(said)
    head = comment_lines(
        [
            f"{topology.name or 'machine'}: SimGrid platform, from topocal.",
            "Latencies are 0, since SimGrid would weigh shares by them: begin a transfer later",
            "by its start-up time instead. Message sizes are payload bytes.",
            *(f"* {note}" for note in everything),
        ]
    )
    text = "\n".join(['<?xml version="1.0"?>', _DOCTYPE, *head, *lines]) + "\n"
    return Platform(
        text=text, notes=everything, hosts=len(chosen), links=len(links), routes=len(pairs)
    )


_DOCTYPE: Final = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'


def _pairs(topology: Topology, chosen: tuple[str, ...]) -> tuple[list[tuple[str, str]], int]:
    """Ordered pairs that a route joins, and how many none does."""
    classes = topology.routes(chosen).path_class.reshape(len(chosen), len(chosen))
    found = [
        (a, b)
        for i, a in enumerate(chosen)
        for j, b in enumerate(chosen)
        if i != j and classes[i, j] != PathClass.DIS
    ]
    if not found:
        raise InputError("nothing joins the endpoints", remedy="choose others")
    return found, len(chosen) * (len(chosen) - 1) - len(found)


def _loads(topology: Topology, figures: Figures, pairs: list[tuple[str, str]]) -> Loads:
    capacities = Capacities.of(
        topology,
        {
            name: np.inf if figure.capacity_Bps is None else figure.capacity_Bps
            for name, figure in figures.items()
            if topology.resources[name].sharing is not Sharing.TIME_SHARED
        },
        kappa={
            name: figure.kappa
            for name, figure in figures.items()
            if topology.resources[name].sharing is Sharing.TIME_SHARED
        },
    )
    return Loads.of(incidence(topology, pairs), capacities)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    id: str
    bandwidth_Bps: float
    is_pipe: bool


def _links(
    topology: Topology, loads: Loads
) -> tuple[list[_Link], list[list[tuple[str, int]]], list[str]]:
    """The links, how often each pair's route names them, and what is lost."""
    rows = np.repeat(np.arange(len(loads.pairs)), np.diff(loads.indptr))
    routes: list[list[tuple[str, int]]] = [[] for _ in loads.pairs]
    links: list[_Link] = []
    notes: list[str] = []
    names: set[str] = set()
    unknown, in_order, rounded, largest = [], [], [], 0.0
    by_column = np.argsort(loads.indices, kind="stable")
    ends = np.searchsorted(loads.indices[by_column], np.arange(len(topology.resources) + 1))
    for column, (name, resource) in enumerate(topology.resources.items()):
        at = by_column[ends[column] : ends[column + 1]]
        cost = loads.cost_s[at] * loads.capacities.kappa[column]
        capacity = float(loads.capacities.capacity_Bps[column])
        if np.isinf(cost).any():
            raise TopologyError(
                f"{name} passes nothing", remedy="remove what is broken before exporting"
            )
        used = cost > 0
        pair, cost = rows[at][used], cost[used]
        if not len(cost):
            if len(at):
                unknown.append(resource.name)
            continue
        if resource.in_order:
            in_order.append(resource.name)
        if resource.sharing is Sharing.FATPIPE:
            for value in np.unique(cost):
                link = _new(name, names, _bandwidth(value, capacity), is_pipe=True)
                links.append(link)
                for p in pair[cost == value]:
                    routes[p].append((link.id, 1))
            continue
        unit, times, error = _whole(cost)
        link = _new(name, names, _bandwidth(unit, capacity), is_pipe=False)
        links.append(link)
        for p, n in zip(pair.tolist(), times.tolist(), strict=True):
            routes[p].append((link.id, n))
        if error > _EXACT:
            rounded.append(resource.name)
            largest = max(largest, error)
    if rounded:
        notes.append(
            f"{_some(rounded)}: one flow at a time, of unlike speeds; SimGrid has no such "
            "resource. Routes name their link in proportion to the time that a byte takes, "
            f"rounded by {largest:.1%} at most"
        )
    if in_order:
        notes.append(f"{_some(in_order)}: messages pass in order of arrival; here they interleave")
    if unknown:
        notes.append(f"{_some(unknown)}: nothing says what they pass, so nothing limits them here")
    bare = [p for p, route in enumerate(routes) if not route]
    if bare:
        link = _new("unlimited", names, 1e18, is_pipe=True)
        links.append(link)
        for p in bare:
            routes[p].append((link.id, 1))
        notes.append(f"{len(bare)} routes cross nothing that is known: they take no time here")
    return links, routes, notes


def _bandwidth(cost: float, capacity_Bps: float) -> float:
    """What a link passes where a byte takes ``cost`` seconds; the capacity itself for weight 1."""
    if not np.isfinite(capacity_Bps):  # Time-shared.
        return 1.0 / cost
    weight = float(f"{cost * capacity_Bps:.12g}")
    return capacity_Bps / weight


def _new(name: str, names: set[str], bandwidth_Bps: float, *, is_pipe: bool) -> _Link:
    """A link whose id no other has once XML's limits are met."""
    base = link = xml_safe(name)
    number = 1
    while link in names:
        number += 1
        link = f"{base}#{number}"
    names.add(link)
    return _Link(id=link, bandwidth_Bps=float(bandwidth_Bps), is_pipe=is_pipe)


def _whole(cost: NDArray[np.float64]) -> tuple[float, NDArray[np.int64], float]:
    """Costs as whole multiples of one unit: the unit, the multiples, the largest relative error.

    The coarsest unit that is exact; else the coarsest that is close; else the best.
    """
    least = float(cost.min())
    most = max(1, int(_MOST_TIMES * least / float(cost.max())))
    found: list[tuple[float, float, NDArray[np.int64]]] = []
    for parts in range(1, most + 1):
        unit = least / parts
        times = np.maximum(np.rint(cost / unit), 1.0)
        error = float(np.abs(times * unit / cost - 1.0).max())
        if error <= _EXACT:
            return unit, times.astype(np.int64), 0.0
        found.append((error, unit, times.astype(np.int64)))
    error, unit, times = next((f for f in found if f[0] <= _CLOSE), min(found, key=lambda f: f[0]))
    return unit, times, error


def _document(
    topology: Topology,
    hosts: Sequence[str],
    links: Sequence[_Link],
    routes: dict[tuple[str, str], list[tuple[str, int]]],
) -> list[str]:
    names = distinct_ids(hosts)
    lines = ['<platform version="4.1">', "  <config>"]
    lines += [f'    <prop id="{name}" value="{value}"/>' for name, value in _CONFIG]
    lines += ["  </config>", f'  <zone id={quoted(topology.name or "machine")} routing="Full">']
    lines += [f'    <host id={quoted(names[host])} speed="1Gf"/>' for host in hosts]
    for link in links:
        policy = ' sharing_policy="FATPIPE"' if link.is_pipe else ""
        lines.append(
            f'    <link id={quoted(link.id)} bandwidth="{link.bandwidth_Bps!r}Bps" '
            f'latency="0s"{policy}/>'
        )
    for (source, destination), route in routes.items():
        ends = f"src={quoted(names[source])} dst={quoted(names[destination])}"
        lines.append(f'    <route {ends} symmetrical="NO">')
        for link_id, times in route:
            lines += [f"      <link_ctn id={quoted(link_id)}/>"] * times
        lines.append("    </route>")
    return [*lines, "  </zone>", "</platform>"]


def _some(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

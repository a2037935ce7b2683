"""What fabric a machine becomes: the links on its routes, and capacities that two cores carry.

A fabric is about a thousand times slower than the machine it is modelled on.  Nominal
capacities keep their proportions; what nothing says is guessed by place: a link that more
endpoints lie behind passes more, though less than they could send, so that it can be a
bottleneck.  The truth is drawn around that, so that no two links are alike and a fit cannot
live on what it was told.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.measure.fabric.blueprint import MOST_ENDPOINTS, Blueprint, FabricLink, Pool
from topocal.topo.errors import InputError, NoRouteError
from topocal.topo.incidence import incidence
from topocal.topo.resource import Link, PathClass, Sharing
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["SPREAD", "MOST_TOTAL_Bps", "Shape", "shape_of"]

MOST_TOTAL_Bps: Final = 800e6
"""Of all flows at once, on two cores; at twice as much a fabric errs by 16 %."""

_TOTAL_Bps: Final = 400e6
"""Of all endpoints together unless told: room for a machine that does other things too."""

_ENDPOINT_Bps: Final = 50e6
"""Of one endpoint at most: slower lets short messages be long enough to time."""

_DOWN: Final = 1.2
"""Where nothing is known: towards the side with fewer endpoints over away from it."""

_BACK: Final = 0.75
"""The same between sides with as many endpoints each: the second direction over the first."""

_CROWD: Final = 0.585
"""A link that n endpoints lie behind is taken to pass n**0.585 times what one has: half as
much again for two, 2.25 times as much for four."""

_MOST_SCALE: Final = 1e6
"""What a kernel passes is far below: it would be told with the speeds."""

SPREAD: Final = 0.1
"""The truth is within so much of nominal, either way."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A fabric and what may be known of it.

    Attributes
    ----------
    topology
        The machine at the fabric's speed: every resource's nominal capacity is what its
        builder would promise.  Plans and fits get this.
    blueprint
        What is built; its ``truth`` differs from nominal.
    notes
        What was guessed or left out, in sentences.
    """

    topology: Topology
    blueprint: Blueprint
    notes: tuple[str, ...] = ()

    @property
    def visible_Bps(self) -> dict[str, float]:
        """What shows of every resource's truth: of those in series only the slowest does."""
        ends = self.blueprint.endpoints
        lines = incidence(self.topology, [(a, b) for a in ends for b in ends if a != b])
        columns = lines.matrix.tocsc()
        truth, slowest = self.blueprint.truth, dict[bytes, float]()
        crossed: dict[str, bytes] = {}
        for k, name in enumerate(lines.resources):
            if name in truth:
                span = slice(columns.indptr[k], columns.indptr[k + 1])
                key = columns.indices[span].tobytes() + columns.data[span].tobytes()
                crossed[name] = key
                slowest[key] = min(truth[name], slowest.get(key, math.inf))
        return {name: slowest[key] for name, key in crossed.items()}


def shape_of(
    topology: Topology,
    *,
    endpoints: Sequence[str] | None = None,
    capacity_Bps: Mapping[str, float] | None = None,
    scale: float = 1.0,
    spread: float = SPREAD,
    seed: int = 0,
) -> Shape:
    """The fabric that is modelled on a machine.

    Parameters
    ----------
    topology
        The machine.
    endpoints
        Who takes part, in the order of ranks: the accelerators unless told, or all endpoints
        where there are none.
    capacity_Bps
        True payload bytes per second by resource, as they are to be built; the rest is
        derived from nominal capacities.
    scale
        Times as fast as what is derived.
    spread
        How far truth may be from nominal, relative.
    seed
        Of the draw; the same gives the same.

    Raises
    ------
    InputError
        When there are fewer than two endpoints or too many, routes depend on more than their
        destination, a resource works in a way that a fabric cannot, or it would be too fast.
    NoRouteError
        When nothing connects two endpoints.
    TopologyError
        When ``capacity_Bps`` names no resource.
    """
    chosen = tuple(endpoints or topology.accelerators or topology.endpoints)
    if not 2 <= len(chosen) <= MOST_ENDPOINTS:
        raise InputError(
            f"a fabric of {len(chosen)} endpoints", remedy=f"name 2 to {MOST_ENDPOINTS} of them"
        )
    for name, value in (("scale", scale), ("spread", 1 - spread)):
        if not 0 < value <= _MOST_SCALE:  # Nor is a number that is none.
            raise InputError(f"no fabric has this {name}", remedy="give a sensible number")
    links, hops, behind = _routed(topology, chosen)
    notes: list[str] = []
    nominal = _nominal(topology, links, behind, len(chosen), scale, notes)
    given = dict(capacity_Bps or {})
    _require(topology, given)
    rng = np.random.default_rng(seed)
    # Drawn for every resource in turn, so that what is given does not move the others.
    drawn = {name: float(rng.uniform(1 - spread, 1 + spread)) for name in nominal}
    true = {name: given.get(name, rate * drawn[name]) for name, rate in nominal.items()}
    lanes, pools = _carriers(topology, links, true)
    blueprint = Blueprint(
        name=topology.name,
        endpoints=chosen,
        hosts=tuple(_host(topology, name) for name in chosen),
        links=lanes,
        hops=tuple(hops),
        pools=pools,
    )
    _check_total(blueprint)
    resources = [replace(topology.resources[n], nominal_Bps=rate) for n, rate in nominal.items()]
    scaled = topology.with_resources(resources)
    return Shape(topology=scaled, blueprint=blueprint, notes=tuple(notes))


def _routed(
    topology: Topology, endpoints: tuple[str, ...]
) -> tuple[dict[str, Link], list[tuple[str, str, str]], dict[str, tuple[int, int]]]:
    """Links that routes use, with their reverses; next hops; and of each link how many
    endpoints send over it and how many receive."""
    routes = topology.routes(endpoints)
    hops: dict[tuple[str, str], str] = {}
    used: dict[str, Link] = {}
    senders: dict[str, set[str]] = defaultdict(set)
    receivers: dict[str, set[str]] = defaultdict(set)
    for source, destination, path_class in routes.classes():
        if path_class is PathClass.DIS:
            raise NoRouteError(
                f"no route from {source} to {destination}", remedy="add the link that joins them"
            )
        for name in routes.route(source, destination):
            link = topology.links[name]
            used[name] = link
            senders[name].add(source)
            receivers[name].add(destination)
            known = hops.setdefault((link.tail, destination), name)
            if known != name:
                raise InputError(
                    f"what is for {destination} leaves {link.tail} by {known} and by {name}",
                    remedy="a fabric forwards by destination alone: name fewer endpoints",
                )
    for link in list(used.values()):
        if link.reverse is None:
            raise InputError(
                f"{link.id} has no way back", remedy="a fabric needs both directions of a link"
            )
        used.setdefault(link.reverse, topology.links[link.reverse])
    behind = {name: (len(senders[name]), len(receivers[name])) for name in used}
    return (
        {name: used[name] for name in topology.links if name in used},
        [(node, destination, name) for (node, destination), name in sorted(hops.items())],
        behind,
    )


def _nominal(
    topology: Topology,
    links: Mapping[str, Link],
    behind: Mapping[str, tuple[int, int]],
    count: int,
    scale: float,
    notes: list[str],
) -> dict[str, float]:
    """Nominal capacity at the fabric's speed of every resource that a route loads."""
    stated: dict[str, float] = {}
    guessed: dict[str, float] = {}
    endpoint_Bps = min(_ENDPOINT_Bps, _TOTAL_Bps / count) * scale
    for link in links.values():
        for resource, weight in link.uses:
            known = topology.resources[resource]
            if known.sharing not in (Sharing.CAPACITY, Sharing.DUPLEX):
                raise InputError(
                    f"{resource} is {known.sharing}, which a fabric cannot be",
                    remedy="take it out of the topology",
                )
            if known.nominal_Bps is not None:
                stated[resource] = known.nominal_Bps / weight
            elif resource not in guessed:
                guessed[resource] = endpoint_Bps * _guess(*behind[link.id], link)
    _refuse_rules(topology)
    if stated:
        # The links of endpoints set the pace: the median of theirs becomes the fabric's.
        own = [
            stated[resource]
            for link in links.values()
            if 1 in behind[link.id]
            for resource, _ in link.uses
            if resource in stated
        ]
        factor = endpoint_Bps / statistics.median(own or list(stated.values()))
        stated = {name: rate * factor for name, rate in stated.items()}
        notes.append(
            f"one byte per second of the fabric stands for {1 / factor:,.0f} of the machine"
        )
    if guessed:
        notes.append(
            f"nothing says what {len(guessed)} of {len(guessed) + len(stated)} resources pass: "
            "guessed by place"
        )
    both = {**guessed, **stated}
    return {name: both[name] for name in topology.resources if name in both}


def _guess(sending: int, receiving: int, link: Link) -> float:
    """Times an endpoint's capacity, by how many endpoints lie on either side."""
    if sending == receiving:
        back = link.reverse is not None and link.reverse < link.id
        return math.pow(sending, _CROWD) * (_BACK if back else 1.0)
    few = max(1, min(sending, receiving))
    return math.pow(few, _CROWD) * (_DOWN if receiving < sending else 1.0)


def _refuse_rules(topology: Topology) -> None:
    for use in topology.uses:
        known = topology.resources[use.resource]
        # Of what nothing is known nothing says that it limits.
        if known.sharing is Sharing.TIME_SHARED or known.nominal_Bps is not None:
            raise InputError(
                f"{use.resource} is loaded by rule, not by a link, which a fabric cannot do",
                remedy="take it out of the topology",
            )


def _carriers(
    topology: Topology, links: Mapping[str, Link], true: Mapping[str, float]
) -> tuple[tuple[FabricLink, ...], tuple[Pool, ...]]:
    """Links as they are built, and half-duplex connections."""
    users: dict[str, list[str]] = defaultdict(list)
    for link in links.values():
        for resource, _ in link.uses:
            users[resource].append(link.id)
    lanes: list[FabricLink] = []
    pools: dict[str, Pool] = {}
    for link in links.values():
        own: list[str] = []
        for resource, _ in link.uses:
            sharers = users[resource]
            if len(sharers) == 1:
                own.append(resource)
            elif set(sharers) == {link.id, link.reverse}:
                pools[resource] = Pool(id=resource, link=sharers[0], capacity_Bps=true[resource])
            else:
                raise InputError(
                    f"{resource} is shared by {', '.join(sharers[:3])}",
                    remedy="a fabric can share a capacity between two directions of a link only",
                )
        slowest = min(own, key=lambda name: true[name], default=None)
        lanes.append(
            FabricLink(
                id=link.id,
                tail=link.tail,
                head=link.head,
                reverse=str(link.reverse),
                resource=slowest or "",
                capacity_Bps=None if slowest is None else true[slowest],
            )
        )
    taken = {p.link for p in pools.values()} | {str(links[p.link].reverse) for p in pools.values()}
    for lane in lanes:
        if lane.id in taken and lane.capacity_Bps is not None:
            raise InputError(
                f"{lane.id} has a capacity of its own besides the one of both directions",
                remedy="keep one of them in the topology",
            )
    return tuple(lanes), tuple(pools.values())


def _check_total(blueprint: Blueprint) -> None:
    """Whether two cores carry it: every endpoint sending at once is the most there can be."""
    rates = {
        side: math.fsum(
            link.capacity_Bps or 0.0
            for link in blueprint.links
            if getattr(link, side) in blueprint.single
        )
        for side in ("tail", "head")
    }
    total = min(rates.values())
    if total > MOST_TOTAL_Bps:
        raise InputError(
            f"the endpoints of this fabric would send {format_rate(total)} in all",
            remedy=f"give a scale that keeps it below {format_rate(MOST_TOTAL_Bps)}",
        )


def _require(topology: Topology, given: Mapping[str, float]) -> None:
    from topocal.topo.capacities import checked_capacity, unknown_resource

    for name, value in given.items():
        if name not in topology.resources:
            raise unknown_resource(name, topology.resources)
        if not 0 < checked_capacity(name, value) < math.inf:
            raise InputError(f"{name} with {value} bytes per second", remedy="give more than zero")


def _host(topology: Topology, endpoint: str) -> str:
    """Name of the host an endpoint is in, as the topology says; one for all where it does not."""
    host = topology.graph.nodes[endpoint].get("host")
    if host is None and "/" in endpoint:
        host = endpoint.rpartition("/")[0].replace("/", "-")
    return str(host or "machine")

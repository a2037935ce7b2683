"""What if: another capacity, a resource or link less, a link more, another route.

A :class:`Case` is all that a simulation needs to know of a machine; a change
makes another case of it, and the two are simulated and compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topocal.topo.capacities import Capacities, checked_capacity, unknown_resource
from topocal.topo.errors import InputError, TopologyError, one_line
from topocal.topo.flow import Pattern
from topocal.topo.incidence import Incidence, incidence
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.naming import natural_key
from topocal.topo.reroute import ChosenRoutes, check_route, links_along, with_routes
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate, parse_rate

__all__ = [
    "AddLink",
    "Case",
    "Change",
    "Remove",
    "Reroute",
    "Scale",
    "SetCapacity",
    "apply",
    "parse_link",
    "parse_route",
    "parse_setting",
]

_FACTOR: Final = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*[x×]\s*")
_UNLIMITED: Final = ("inf", "unlimited")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A machine as it is, or as it might be.

    Attributes
    ----------
    topology
        Links and resources.
    capacities
        Of this topology.
    routes
        Link ids by pair, where flows take other routes than the topology's own.
    """

    topology: Topology
    capacities: Capacities
    routes: ChosenRoutes = field(default_factory=dict)

    def incidence(self, pairs: Sequence[tuple[str, str]]) -> Incidence:
        """As :func:`topocal.topo.incidence.incidence`, along this case's routes."""
        return with_routes(incidence(self.topology, pairs), self.topology, self.routes)

    def batch(self, patterns: Sequence[Pattern]) -> tuple[Loads, Batch]:
        """Patterns and their loads, for the simulators.

        Raises
        ------
        FlowError, UnknownEndpointError, NoRouteError
            When a flow cannot be carried.
        TopologyError
            When the capacity of a loaded resource is unknown.
        """
        lines, batch = batch_of(self.topology, patterns)
        lines = with_routes(lines, self.topology, self.routes)
        return Loads.of(lines, self.capacities), batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Multiply a resource's capacity."""

    resource: str
    factor: float

    def __str__(self) -> str:
        return f"{self.resource} × {self.factor:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCapacity:
    """Give a resource another capacity; infinite: it never binds."""

    resource: str
    capacity_Bps: float

    def __str__(self) -> str:
        return f"{self.resource} = {format_rate(self.capacity_Bps)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Take a link away, so that its flows go elsewhere; or a resource, so that it never binds.

    A name that is both is the link; ``a<->b`` is both directions.
    """

    name: str

    def __str__(self) -> str:
        return f"without {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLink:
    """Join two nodes by one more link, with a resource of its own id.

    ``kind`` decides what routes prefer; ``None``: what nodes like these are joined by.
    """

    tail: str
    head: str
    capacity_Bps: float
    both_ways: bool = False
    kind: LinkKind | None = None

    def __str__(self) -> str:
        arrow = "<->" if self.both_ways else "->"
        return f"with {self.tail}{arrow}{self.head} at {format_rate(self.capacity_Bps)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    """Send the flows of a pair along other links."""

    source: str
    destination: str
    links: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source}->{self.destination} along {', '.join(self.links)}"


Change = Scale | SetCapacity | Remove | AddLink | Reroute


def apply(case: Case, changes: Iterable[Change]) -> Case:
    """The case after all changes, one after another.

    Raises
    ------
    TopologyError
        When a name does not exist, or a capacity or factor is not one.
    UnknownEndpointError, NoRouteError
        When a route does not lead where it should.
    """
    for change in changes:
        match change:
            case Scale():
                case = _scaled(case, change)
            case SetCapacity():
                name = find_resource(case.topology, change.resource)
                value = {name: change.capacity_Bps}
                case = replace(case, capacities=case.capacities.changed(value))
            case Remove():
                case = _without(case, change.name)
            case AddLink():
                case = _with_link(case, change)
            case Reroute(source=source, destination=destination, links=links):
                links = check_route(case.topology, source, destination, links)
                case = replace(case, routes={**case.routes, (source, destination): links})
    return case


def find_resource(topology: Topology, name: str) -> str:
    """Id of the resource of that id or label, in any case; or of the link's own resource.

    Raises
    ------
    TopologyError
        When there is none, or it is time-shared and has no capacity.
    """
    found = _id_of(topology, name)
    if topology.resources[found].sharing is Sharing.TIME_SHARED:
        raise TopologyError(
            f"{found} is shared by time and has no capacity",
            remedy="change what its flows cross, or remove it",
        )
    return found


def _id_of(topology: Topology, name: str) -> str:
    known = topology.resources
    if name in known:
        return name
    low = name.strip().lower()
    alike = [r.id for r in known.values() if low in (r.id.lower(), r.label.lower())]
    if len(alike) == 1:
        return alike[0]
    if name in topology.links and len(topology.links[name].uses) == 1:
        return topology.links[name].uses[0][0]
    raise unknown_resource(name, known)


def _scaled(case: Case, change: Scale) -> Case:
    name = find_resource(case.topology, change.resource)
    if not (change.factor >= 0 and math.isfinite(change.factor)):
        raise TopologyError(
            f"{name} is scaled by {change.factor}", remedy="give a factor, zero or more"
        )
    before = float(case.capacities.capacity_Bps[case.capacities.resources.index(name)])
    if math.isnan(before):
        raise TopologyError(
            f"the capacity of {name} is unknown and cannot be scaled",
            remedy=f"give it, for example --set '{name}=25GB/s'",
        )
    after = before * change.factor if math.isfinite(before) else before
    return replace(case, capacities=case.capacities.changed({name: after}))


def _without(case: Case, name: str) -> Case:
    links = case.topology.links
    a, arrow, b = name.partition("<->")
    gone = [name] if name in links else [f"{a}->{b}", f"{b}->{a}"] if arrow else []
    if gone and all(link in links for link in gone):
        for pair, route in case.routes.items():
            crossed = [link for link in gone if link in route]
            if crossed:
                raise TopologyError(
                    f"the route of {'->'.join(pair)} crosses {crossed[0]}, which is removed",
                    remedy="choose another route",
                )
        graph = case.topology.graph.copy()
        for link in gone:
            graph.remove_edge(links[link].tail, links[link].head, key=link)
        return replace(case, topology=Topology(graph))
    found = _id_of(case.topology, name)
    return _on(case, case.topology.without_resources([found]))


def _with_link(case: Case, change: AddLink) -> Case:
    topology = case.topology
    for node in (change.tail, change.head):
        if node not in topology.graph:
            raise TopologyError(
                f"unknown node {one_line(node)!r}", remedy="name nodes as topocal show prints them"
            )
    if change.tail == change.head:
        raise TopologyError(
            f"a link from {change.tail} to itself", remedy="name two different nodes"
        )
    capacity = checked_capacity("the new link", change.capacity_Bps)
    kinds = [topology.graph.nodes[n]["kind"] for n in (change.tail, change.head)]
    kind = change.kind or _usual_kind(*kinds)
    graph = topology.graph.copy()
    ends = [(change.tail, change.head)]
    if change.both_ways:
        ends.append((change.head, change.tail))
    taken = set(topology.links) | set(topology.resources)
    number = 1
    while any(f"{a}->{b}{_suffix(number)}" in taken for a, b in ends):
        number += 1
    ids = [f"{a}->{b}{_suffix(number)}" for a, b in ends]
    table = dict(topology.resources)
    for (tail, head), link, other in zip(ends, ids, [*ids[1:], *ids[:1]], strict=True):
        table[link] = Resource(id=link, nominal_Bps=capacity, source="what if")
        graph.add_edge(
            tail,
            head,
            key=link,
            kind=kind,
            nominal_Bps=capacity,
            uses=((link, 1.0),),
            reverse=other if len(ids) == 2 else None,
        )
    graph.graph["resources"] = dict(sorted(table.items(), key=lambda item: natural_key(item[0])))
    return _on(case, Topology(graph))


def _suffix(number: int) -> str:
    return "" if number == 1 else f"#{number}"


def _usual_kind(a: NodeKind, b: NodeKind) -> LinkKind:
    """What joins two nodes of these kinds."""
    both = {a, b}
    if both <= {NodeKind.GPU, NodeKind.NVSWITCH}:
        return LinkKind.NVLINK
    if NodeKind.NET_SWITCH in both:
        return LinkKind.NET
    if both == {NodeKind.SOCKET}:
        return LinkKind.SMP
    return LinkKind.MEMORY if NodeKind.MEMORY in both else LinkKind.PCIE


def _on(case: Case, topology: Topology) -> Case:
    """The case on a topology with other resources; those that remain keep their capacities."""
    old = case.capacities
    known: Mapping[str, float] = {
        name: float(value)
        for name, value in zip(old.resources, old.capacity_Bps, strict=True)
        if name in topology.resources and not math.isnan(value)
    }
    overlap = {
        name: float(kappa)
        for name, kappa in zip(old.resources, old.kappa, strict=True)
        if name in topology.resources and topology.resources[name].sharing is Sharing.TIME_SHARED
    }
    capacities = Capacities.of(topology, known, kappa=overlap, needed=())
    # What was unknown stays so, even where the topology has a nominal value for it.
    unknown = [
        name
        for name, value in zip(old.resources, old.capacity_Bps, strict=True)
        if math.isnan(value) and name in topology.resources
    ]
    values = capacities.capacity_Bps.copy()
    values[[capacities.resources.index(name) for name in unknown]] = math.nan
    return replace(case, topology=topology, capacities=replace(capacities, capacity_Bps=values))


def parse_setting(text: str) -> Scale | SetCapacity:
    """A change of capacity as people write it: ``cross0=2x``, ``cross0=25GB/s``, ``cross0=inf``.

    >>> parse_setting("cross0=2x")
    Scale(resource='cross0', factor=2.0)
    >>> parse_setting("gpu0->switch0=25GB/s")
    SetCapacity(resource='gpu0->switch0', capacity_Bps=25000000000.0)

    Raises
    ------
    InputError
        When it is of no such form.
    UnitError
        When the capacity cannot be read.
    """
    name, equals, value = text.rpartition("=")
    if not (name.strip() and equals and value.strip()):
        raise InputError(
            f"{one_line(text)!r} sets nothing",
            remedy="write it as NAME=2x or NAME=25GB/s",
        )
    scaled = _FACTOR.fullmatch(value)
    if scaled is not None:
        return Scale(resource=name.strip(), factor=float(scaled[1]))
    return SetCapacity(resource=name.strip(), capacity_Bps=_parse_capacity(value))


def _parse_capacity(text: str) -> float:
    return math.inf if text.strip().lower() in _UNLIMITED else parse_rate(text)


def parse_link(text: str) -> AddLink:
    """A new link as people write it: ``gpu0->gpu1=25GB/s``, ``gpu0<->gpu1=25GB/s:nvlink``.

    >>> parse_link("gpu0<->gpu1=25GB/s").both_ways
    True

    Raises
    ------
    InputError
        When it is of no such form.
    UnitError
        When the capacity cannot be read.
    """
    ends, _, value = text.rpartition("=")
    arrow = "<->" if "<->" in ends else "->"
    tail, _, head = ends.partition(arrow)
    if not (tail.strip() and head.strip()):
        raise InputError(
            f"{one_line(text)!r} is no link",
            remedy="write it as gpu0->gpu1=25GB/s, or gpu0<->gpu1=25GB/s for both directions",
        )
    value, _, kind = value.partition(":")
    if kind and kind not in list(LinkKind):
        raise InputError(
            f"{one_line(kind)!r} is no kind of link", remedy="use one of " + ", ".join(LinkKind)
        )
    return AddLink(
        tail=tail.strip(),
        head=head.strip(),
        capacity_Bps=_parse_capacity(value),
        both_ways=arrow == "<->",
        kind=LinkKind(kind) if kind else None,
    )


def parse_route(text: str, topology: Topology) -> Reroute:
    """A route as people write it: ``gpu0->gpu4=switch0,socket0,socket1,switch2``.

    The nodes between source and destination, one by one.

    Raises
    ------
    InputError
        When it is of no such form.
    TopologyError, NoRouteError
        When a node does not exist, or no link leads from one to the next.
    """
    ends, equals, between = text.partition("=")
    source, arrow, destination = (part.strip() for part in ends.partition("->"))
    if not (source and arrow and destination and equals):
        raise InputError(
            f"{one_line(text)!r} is no route",
            remedy="write it as gpu0->gpu4=switch0,socket0,switch1",
        )
    via = [node.strip() for node in between.split(",") if node.strip()]
    links = links_along(topology, [source, *via, destination])
    return Reroute(source=source, destination=destination, links=links)

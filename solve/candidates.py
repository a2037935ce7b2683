"""What may limit a transfer although no link shows it.

On published machines the rate of a pair depends on the sender and on whether the
route leaves the socket, and hardly on the receiver; links alone cannot say that.
So every sender gets a resource for each side of that line, and every endpoint a
capacity and an engine for all that it takes in, and for all that it sends, and one that
both directions draw from.  The host's memory is no such sender: what a copy from it reads
is taken for its card's doing, until several at once say otherwise.  Where the
same pairs load one of these and a link, the link stands for both
(:attr:`topocal.solve.rows.Rows.series`): nothing could tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from topocal.solve.unseen import Unseen
from topocal.solve.words import is_host
from topocal.topo.incidence import incidence, routes_of_pairs
from topocal.topo.resource import FAR, NEAR, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.topology import Topology

__all__ = ["RECEIVER", "SENDER", "Candidates", "hosts_of", "like", "with_candidates"]

RECEIVER, SENDER = 0, 1
"""Sides of an endpoint."""

MOST_FOR_ALL_PAIRS = 2048
"""Endpoints up to which the kinds of routes between all of them are looked at."""

MOST_FOR_ENCLOSURES = 64
"""Endpoints up to which traffic classes of whole switches are tried: a search over all pairs."""


@dataclass(frozen=True)
class Candidates:
    """A topology with what may limit transfers on it.

    Attributes
    ----------
    topology
        With the candidates as further resources.
    rank
        Of the candidates, what is only supposed where the rest is there: 1 of those that
        explain pairs before others are tried, 2 of the others.
    senders
        Ids of what each sender passes near and far, and each card from the host.
    classes
        These, and what each sender passes in single classes of routes.
    ports, engines
        Id of the capacity, and of the time-shared engine, of all that an endpoint takes
        in or sends, by (endpoint, side).
    unseen
        What the limits that nothing shows are, by the ids of their resources.
    """

    topology: Topology
    rank: Mapping[str, int]
    senders: frozenset[str]
    classes: frozenset[str]
    ports: Mapping[tuple[str, int], str]
    engines: Mapping[tuple[str, int], str]
    unseen: Mapping[str, Unseen]


def with_candidates(
    topology: Topology,
    endpoints: Sequence[str],
    own_paths: Sequence[tuple[str, str]] = (),
    measured: Iterable[tuple[str, str]] | None = None,
    unseen: Sequence[Unseen] = (),
) -> Candidates:
    """Add the candidates of ``endpoints``.

    Parameters
    ----------
    own_paths
        Pairs that get a limit of their own, because like pairs behave otherwise.
    measured
        The pairs that were measured: of more than :data:`MOST_FOR_ALL_PAIRS` endpoints what
        kinds of routes there are is asked of these alone.
    unseen
        Limits that figures need although nothing shows them.
    """
    resources: list[Resource] = []
    uses: list[Use] = []
    senders: set[str] = set()
    single: set[str] = set()
    ports: dict[tuple[str, int], str] = {}
    engines: dict[tuple[str, int], str] = {}

    def add(resource: Resource, use: Use) -> str:
        resources.append(resource)
        uses.append(use)
        return resource.id

    grouped = any(k is NodeKind.GROUP for _, k in topology.graph.nodes(data="kind"))
    around = "group" if grouped else "socket"
    sides = (("near", NEAR, f"inside its {around}"), ("far", FAR, f"to another {around}"))
    if measured is None or len(endpoints) <= MOST_FOR_ALL_PAIRS:
        classes = _classes(topology, endpoints)
    else:
        classes = _classes_of(topology, endpoints, sorted(set(measured)))
    hosts = hosts_of(topology, endpoints)
    for endpoint in endpoints:
        for side, word in ((RECEIVER, "receiver"), (SENDER, "sender")):
            name = f"{endpoint}.{word}"
            ports[endpoint, side] = add(
                Resource(id=name, label=f"{word} {endpoint}"), _all_flows(name, endpoint, side)
            )
            name = f"{endpoint}.{word}.engine"
            engines[endpoint, side] = add(
                Resource(id=name, sharing=Sharing.TIME_SHARED, label=f"{word} {endpoint}"),
                _all_flows(name, endpoint, side),
            )
        for where, members, words in sides:
            present = tuple(c for c in members if int(c) in classes[endpoint])
            if present:
                name = f"{endpoint}.sender.{where}"
                label = f"sender {endpoint} {words}"
                use = Use(resource=name, sources=(endpoint,), path_classes=present)
                added = add(Resource(id=name, label=label), use)
                if endpoint not in hosts:
                    senders.add(added)
            for one in present if len(present) > 1 else ():
                name = f"{endpoint}.sender.{one.name}"
                label = f"sender {endpoint} to {one.name} peers"
                use = Use(resource=name, sources=(endpoint,), path_classes=(one,))
                single.add(add(Resource(id=name, label=label), use))
        for host in hosts:
            if host == endpoint:
                continue
            # What a card takes from the host's memory says what the card's way passes.
            name = f"{endpoint}.from.{host}"
            label = f"copies from {host} to {endpoint}"
            use = Use(resource=name, sources=(host,), destinations=(endpoint,))
            senders.add(add(Resource(id=name, label=label), use))
        name = f"{endpoint}.both-ways"
        add(
            Resource(id=name, sharing=Sharing.DUPLEX, label=f"both directions of {endpoint}"),
            _all_flows(name, endpoint, RECEIVER),
        )
        uses.append(_all_flows(name, endpoint, SENDER))
    for node, below in _enclosures(topology, endpoints).items():
        for code in sorted({c for e in below for c in classes[e]}):
            inside, kind = tuple(below), PathClass(code)
            outside = tuple(e for e in endpoints if e not in below)
            for way, words, begin, end in (
                ("out", "out of", inside, outside),
                ("in", "into", outside, inside),
            ):
                name = f"{node}.{way}.{kind.name}"
                add(
                    Resource(id=name, label=f"{kind.name} traffic {words} {node}"),
                    Use(resource=name, sources=begin, destinations=end, path_classes=(kind,)),
                )
    far = tuple(c for c in FAR if any(int(c) in codes for codes in classes.values()))
    if far:
        # All that crosses between sockets or groups, whichever way.
        name = "between.both-ways"
        label = f"both directions between {around}s"
        add(
            Resource(id=name, sharing=Sharing.DUPLEX, label=label),
            Use(resource=name, path_classes=far),
        )
    for source, destination in own_paths:
        name = f"{source}->{destination}.path"
        label = f"path {source}->{destination} itself"
        add(
            Resource(id=name, sharing=Sharing.FATPIPE, label=label),
            Use(resource=name, sources=(source,), destinations=(destination,)),
        )
    limits: dict[str, Unseen] = {}
    for number, limit in enumerate(unseen, start=1):
        name = f"unseen.{number}"
        resources.append(Resource(id=name, label=limit.label))
        uses += [Use(resource=name, sources=s, destinations=d) for s, d in limit.blocks]
        limits[name] = limit
    first = {*senders, *ports.values(), *engines.values()}
    rank = {r.id: 1 if r.id in first else 2 for r in resources}
    return Candidates(
        topology.with_resources(resources, uses),
        rank,
        frozenset(senders),
        frozenset(senders | single),
        ports,
        engines,
        limits,
    )


def hosts_of(topology: Topology, endpoints: Sequence[str]) -> tuple[str, ...]:
    """Endpoints that are the host's memory, where several cards were measured with it.

    It passes what all its copies take together; a copy alone shows what its card takes.
    """
    kind = topology.graph.nodes
    hosts = tuple(
        e for e in endpoints if kind[e]["kind"] in (NodeKind.CPU, NodeKind.MEMORY) or is_host(e)
    )
    return hosts if len(endpoints) - len(hosts) > 1 else ()


def _classes(topology: Topology, endpoints: Sequence[str]) -> dict[str, set[int]]:
    """Path classes of each endpoint's pairs with the others."""
    inside = set(endpoints) <= set(topology.accelerators)
    routes = topology.routes(None if inside else topology.endpoints)
    place = [routes.position[e] for e in endpoints]
    return {
        e: set(np.unique(routes.path_class[i, place]).tolist())
        for e, i in zip(endpoints, place, strict=True)
    }


def _classes_of(
    topology: Topology, endpoints: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> dict[str, set[int]]:
    """Path classes of those pairs, by the endpoint where they start."""
    number = np.array([[topology.router.number[name] for name in pair] for pair in pairs])
    routes = routes_of_pairs(topology, number[:, 0], number[:, 1])
    found: dict[str, set[int]] = {e: set() for e in endpoints}
    for (source, _), code in zip(pairs, routes.path_class.tolist(), strict=True):
        found[source].add(code)
    return found


def _enclosures(topology: Topology, endpoints: Sequence[str]) -> dict[str, list[str]]:
    """Endpoints below each inner node that some link leads out of; small machines only.

    A link that all of a set's outward flows and no others cross leads out of it.
    """
    if not 3 <= len(endpoints) <= MOST_FOR_ENCLOSURES:
        return {}
    pairs = [(a, b) for a in endpoints for b in endpoints if a != b]
    lines = incidence(topology, pairs)
    columns = lines.matrix.tocsc()
    tails = {use[0]: link.tail for link in topology.links.values() for use in link.uses}
    found: dict[frozenset[str], str] = {}
    for k, name in enumerate(lines.resources):
        crossing = [pairs[p] for p in columns.indices[columns.indptr[k] : columns.indptr[k + 1]]]
        sources, destinations = {a for a, _ in crossing}, {b for _, b in crossing}
        if len(sources) > 1 and not sources & destinations and name in tails:
            found.setdefault(frozenset(sources), tails[name])
    return {node: [e for e in endpoints if e in members] for members, node in found.items()}


def _all_flows(resource: str, endpoint: str, side: int) -> Use:
    """All that an endpoint takes in, or sends, loads a resource."""
    if side == RECEIVER:
        return Use(resource=resource, destinations=(endpoint,))
    return Use(resource=resource, sources=(endpoint,))


def like(topology: Topology) -> dict[str, str]:
    """Which resources are of one make, by id: the same role in the machine.

    Links of one kind between nodes of the same kinds are alike, and so are all
    senders on one side, and all receivers.
    """
    kind = dict(topology.graph.nodes(data="kind"))
    found: dict[str, str] = {}
    for link in topology.links.values():
        for resource, _ in link.uses:
            found.setdefault(resource, f"{kind[link.tail]} {link.kind} {kind[link.head]}")
    return {name: found.get(name, name.partition(".")[2]) for name in topology.resources}

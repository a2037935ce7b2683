"""What may limit a transfer although no link shows it.

On published machines the rate of a pair depends on the sender and on whether the
route leaves the socket, and hardly on the receiver; links alone cannot say that.
So every sender gets a resource for each side of that line, and every endpoint a
capacity and an engine for all that it takes in, and for all that it sends.  A capacity
that the same pairs load as an existing resource is not added: nothing could ever tell
the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.topo.incidence import incidence
from topocal.topo.resource import FAR, NEAR, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.topology import Topology

__all__ = ["RECEIVER", "SENDER", "Candidates", "like", "with_candidates"]

RECEIVER, SENDER = 0, 1
"""Sides of an endpoint."""

_WORD = ("receiver", "sender")


@dataclass(frozen=True)
class Candidates:
    """A topology with what may limit transfers on it.

    Attributes
    ----------
    topology
        With the candidates as further resources.
    added
        Ids of the candidates: what is only supposed, where the rest is there.
    senders
        Ids of what each sender passes near and far: candidates, or the existing
        resource that the same pairs load.
    ports, engines
        Id of the capacity, and of the time-shared engine, of all that an endpoint takes
        in or sends, by (endpoint, side).
    """

    topology: Topology
    added: frozenset[str]
    senders: frozenset[str]
    ports: Mapping[tuple[str, int], str]
    engines: Mapping[tuple[str, int], str]


def with_candidates(
    topology: Topology, endpoints: Sequence[str], own_paths: Sequence[tuple[str, str]] = ()
) -> Candidates:
    """Add the candidates of ``endpoints``.

    Parameters
    ----------
    own_paths
        Pairs that get a limit of their own, because like pairs behave otherwise.
    """
    known = _Known(topology, endpoints)
    resources: list[Resource] = []
    uses: list[Use] = []
    senders: set[str] = set()
    ports: dict[tuple[str, int], str] = {}
    engines: dict[tuple[str, int], str] = {}

    def add(resource: Resource, use: Use) -> str:
        resources.append(resource)
        uses.append(use)
        return resource.id

    grouped = any(k is NodeKind.GROUP for _, k in topology.graph.nodes(data="kind"))
    around = "group" if grouped else "socket"
    for endpoint in endpoints:
        for side in (RECEIVER, SENDER):
            word = _WORD[side]
            port = known.port(endpoint, side)
            if port is None:
                name = f"{endpoint}.{word}"
                port = add(
                    Resource(id=name, label=f"{word} {endpoint}"), _all_flows(name, endpoint, side)
                )
            ports[endpoint, side] = port
            name = f"{endpoint}.{word}.engine"
            engines[endpoint, side] = add(
                Resource(id=name, sharing=Sharing.TIME_SHARED, label=f"{word} {endpoint}"),
                _all_flows(name, endpoint, side),
            )
        for far, words in ((False, f"inside its {around}"), (True, f"to another {around}")):
            classes = known.classes(endpoint, far)
            if not classes:
                continue
            existing = known.sender(endpoint, far)
            if existing is not None:
                senders.add(existing)
                continue
            if not known.classes(endpoint, not far):
                senders.add(ports[endpoint, SENDER])
                continue
            name = f"{endpoint}.sender.{'far' if far else 'near'}"
            senders.add(
                add(
                    Resource(id=name, label=f"sender {endpoint} {words}"),
                    Use(resource=name, sources=(endpoint,), path_classes=classes),
                )
            )
    for source, destination in own_paths:
        name = f"{source}->{destination}.path"
        add(
            Resource(
                id=name,
                sharing=Sharing.FATPIPE,
                label=f"path {source}->{destination} itself",
            ),
            Use(resource=name, sources=(source,), destinations=(destination,)),
        )
    added = frozenset(r.id for r in resources)
    return Candidates(
        topology.with_resources(resources, uses), added, frozenset(senders), ports, engines
    )


def _all_flows(resource: str, endpoint: str, side: int) -> Use:
    """All that an endpoint takes in, or sends, loads a resource."""
    if side == RECEIVER:
        return Use(resource=resource, destinations=(endpoint,))
    return Use(resource=resource, sources=(endpoint,))


class _Known:
    """Which existing capacities carry exactly what an endpoint takes in, sends, or sends far."""

    def __init__(self, topology: Topology, endpoints: Sequence[str]) -> None:
        routes = topology.routes(
            None if set(endpoints) <= set(topology.accelerators) else (topology.endpoints)
        )
        place = np.array([routes.position[e] for e in endpoints], dtype=np.int64)
        self._row = {e: k for k, e in enumerate(endpoints)}
        self._class = routes.path_class[np.ix_(place, place)]
        self._far = np.isin(self._class, [int(c) for c in FAR])
        n = len(endpoints)
        joined = (self._class != PathClass.DIS) & ~np.eye(n, dtype=bool)
        source, destination = np.nonzero(joined)
        self._owner: dict[tuple[str, str, int], str] = {}
        if not len(source):
            return
        lines = incidence(
            topology,
            [
                (endpoints[s], endpoints[d])
                for s, d in zip(source.tolist(), destination.tolist(), strict=True)
            ],
        )
        entries = lines.matrix.tocoo()
        pair, column = (axis.astype(np.int64) for axis in entries.coords)
        count = np.bincount(column, minlength=len(lines.resources))
        span = _Span(column, len(lines.resources))
        plain = span.same(entries.data)
        far = self._far[source, destination]
        one_source, one_destination = span.same(source[pair]), span.same(destination[pair])
        one_side = span.same(far[pair].astype(np.int64))
        arriving, leaving = joined.sum(axis=0), joined.sum(axis=1)
        leaving_far = (joined & self._far).sum(axis=1)
        first = span.first
        for k, name in enumerate(lines.resources):
            if not count[k] or not plain[k]:
                continue
            if topology.resources[name].sharing not in (Sharing.CAPACITY, Sharing.DUPLEX):
                continue
            s, d = int(source[pair[first[k]]]), int(destination[pair[first[k]]])
            if one_destination[k] and count[k] == arriving[d]:
                self._owner.setdefault((endpoints[d], "in", 0), name)
            if one_source[k] and count[k] == leaving[s]:
                self._owner.setdefault((endpoints[s], "out", 0), name)
            elif one_source[k] and one_side[k]:
                is_far = bool(far[pair[first[k]]])
                whole = leaving_far[s] if is_far else leaving[s] - leaving_far[s]
                if count[k] == whole:
                    self._owner.setdefault((endpoints[s], "side", int(is_far)), name)

    def port(self, endpoint: str, side: int) -> str | None:
        """The capacity of all that an endpoint takes in, or sends."""
        return self._owner.get((endpoint, "out" if side == SENDER else "in", 0))

    def sender(self, endpoint: str, far: bool) -> str | None:
        """The capacity of all that an endpoint sends on one side."""
        return self._owner.get((endpoint, "side", int(far)))

    def classes(self, endpoint: str, far: bool) -> tuple[PathClass, ...]:
        """Path classes of an endpoint's pairs on one side."""
        row = self._class[self._row[endpoint]]
        codes = {int(c) for c in row}
        return tuple(c for c in (FAR if far else NEAR) if int(c) in codes)


class _Span:
    """Entries by column."""

    def __init__(self, column: NDArray[np.int64], columns: int) -> None:
        self._order = np.argsort(column, kind="stable")
        ordered = column[self._order]
        self._begin = np.searchsorted(ordered, np.arange(columns))
        self._filled = np.bincount(column, minlength=columns) > 0
        self.first = np.full(columns, -1, dtype=np.int64)
        self.first[self._filled] = self._order[self._begin[self._filled]]

    def same(self, value: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Whether all entries of a column have one value; true of an empty column."""
        ordered = value[self._order]
        result = np.ones(len(self._filled), dtype=bool)
        begin = self._begin[self._filled]
        low, high = np.minimum.reduceat(ordered, begin), np.maximum.reduceat(ordered, begin)
        result[self._filled] = low == high
        return result


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

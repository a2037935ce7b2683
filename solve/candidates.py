"""What may limit a transfer although no link shows it.

On published machines the rate of a pair depends on the sender and on whether the
route leaves the socket, and hardly on the receiver; links alone cannot say that.
So every sender gets a resource for each side of that line, and every receiver
one for all that it takes in.  A candidate that the same pairs load as an existing
resource is not added: nothing could ever tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topocal.topo.incidence import incidence
from topocal.topo.resource import FAR, NEAR, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

__all__ = ["Candidates", "like", "with_candidates"]

_SIDES = (("near", NEAR), ("far", FAR))


@dataclass(frozen=True)
class Candidates:
    """A topology with what may limit transfers on it.

    Attributes
    ----------
    topology
        With the candidates as further resources.
    senders
        Ids of what each sender passes on each side: candidates, or the existing
        resource that the same pairs load.
    """

    topology: Topology
    senders: frozenset[str]


def with_candidates(
    topology: Topology,
    endpoints: Sequence[str],
    *,
    time_shared_receivers: bool,
    own_paths: Sequence[tuple[str, str]] = (),
) -> Candidates:
    """Add a resource per sender and side, and a receive engine per receiver.

    Parameters
    ----------
    time_shared_receivers
        Receive engines are time-shared; otherwise they pass so many bytes per second.
    own_paths
        Pairs that get a limit of their own, because like pairs behave otherwise.
    """
    routes = topology.routes()
    place = [routes.position[e] for e in endpoints]
    present = {int(c) for i in place for c in routes.path_class[i, place]}
    known = _by_pairs(topology, endpoints)
    grouped = any(k is NodeKind.GROUP for _, k in topology.graph.nodes(data="kind"))
    around = "group" if grouped else "socket"
    words = {"near": f"inside its {around}", "far": f"to another {around}"}
    resources: list[Resource] = []
    uses: list[Use] = []
    senders: set[str] = set()
    for i, endpoint in zip(place, endpoints, strict=True):
        for side, members in _SIDES:
            classes = tuple(c for c in members if int(c) in present)
            pairs = frozenset(
                (endpoint, other)
                for j, other in zip(place, endpoints, strict=True)
                if routes.path_class[i, j] in classes
            )
            if not pairs:
                continue
            if pairs in known:
                senders.add(known[pairs])
                continue
            sender = Resource(
                id=f"{endpoint}.sender.{side}", label=f"sender {endpoint} {words[side]}"
            )
            senders.add(sender.id)
            resources.append(sender)
            uses.append(Use(resource=sender.id, sources=(endpoint,), path_classes=classes))
        arriving = frozenset((other, endpoint) for other in endpoints if other != endpoint)
        if not time_shared_receivers and arriving in known:
            continue
        receiver = Resource(
            id=f"{endpoint}.receiver",
            sharing=Sharing.TIME_SHARED if time_shared_receivers else Sharing.CAPACITY,
            label=f"receiver {endpoint}",
        )
        resources.append(receiver)
        uses.append(Use(resource=receiver.id, destinations=(endpoint,)))
    for source, destination in own_paths:
        path = Resource(
            id=f"{source}->{destination}.path",
            sharing=Sharing.FATPIPE,
            label=f"path {source}->{destination} itself",
        )
        resources.append(path)
        uses.append(Use(resource=path.id, sources=(source,), destinations=(destination,)))
    return Candidates(topology.with_resources(resources, uses), frozenset(senders))


def _by_pairs(
    topology: Topology, endpoints: Sequence[str]
) -> dict[frozenset[tuple[str, str]], str]:
    """An existing capacity of weight one by the set of pairs that load it."""
    pairs = [(a, b) for a in endpoints for b in endpoints if a != b]
    if not pairs:
        return {}
    lines = incidence(topology, pairs)
    columns = lines.matrix.tocsc()
    found: dict[frozenset[tuple[str, str]], str] = {}
    for k, name in enumerate(lines.resources):
        span = slice(columns.indptr[k], columns.indptr[k + 1])
        if (columns.data[span] == 1.0).all() and topology.resources[name].sharing in (
            Sharing.CAPACITY,
            Sharing.DUPLEX,
        ):
            found.setdefault(frozenset(pairs[p] for p in columns.indices[span]), name)
    return found


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
    return {name: found.get(name, name.rpartition(".")[2]) for name in topology.resources}

"""Which messages leave their host: per process of a relay, in each direction.

In a relay every process receives from one neighbour while it sends to the other, and on
several hosts each of the two may be on the same host or not; the two directions are told
apart, since a process at a border has one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topocal.measure.patterns import PatternKind, kind_of

if TYPE_CHECKING:
    from topocal.topo.flow import Pattern
    from topocal.topo.topology import Topology

__all__ = ["INTER_NODE", "INTRA_NODE", "Neighbours", "hosts_of", "relay_reach"]

INTER_NODE: Final = "inter_node"
INTRA_NODE: Final = "intra_node"


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A process of a relay: where what it receives comes from, and where it sends."""

    endpoint: str
    receives: str
    sends: str


def relay_reach(pattern: Pattern, host_of: Mapping[str, str]) -> tuple[Neighbours, ...]:
    """Both directions of every process, in the order of the relay's flows; none for other
    patterns, or where a host is not known.

    >>> from topocal.measure.patterns import relay
    >>> ring = relay(["gpu0", "gpu1", "gpu2"])
    >>> for n in relay_reach(ring, {"gpu0": "a", "gpu1": "a", "gpu2": "b"}):
    ...     print(n.endpoint, n.receives, n.sends)
    gpu0 inter_node intra_node
    gpu1 intra_node inter_node
    gpu2 inter_node inter_node
    """
    if kind_of(pattern) is not PatternKind.RELAY:
        return ()
    if any(end not in host_of for pair in pattern.pairs for end in pair):
        return ()
    source_of = {d: s for s, d in pattern.pairs}

    def reach(one: str, other: str) -> str:
        return INTRA_NODE if host_of[one] == host_of[other] else INTER_NODE

    return tuple(
        Neighbours(endpoint=s, receives=reach(source_of[s], s), sends=reach(s, d))
        for s, d in pattern.pairs
    )


def hosts_of(topology: Topology) -> dict[str, str]:
    """The host of each endpoint, where the topology says it."""
    nodes = topology.graph.nodes
    return {
        name: str(nodes[name]["host"]) for name in topology.endpoints if nodes[name].get("host")
    }

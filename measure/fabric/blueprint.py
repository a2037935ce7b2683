"""What a fabric is made of: endpoints, directed links with their capacities, and next hops.

Plain values only.  The process that builds the fabric gets a blueprint as JSON and imports
nothing else of ours that is heavy.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

__all__ = [
    "INTERFACE",
    "MASTER_PORT",
    "MOST_ENDPOINTS",
    "Blueprint",
    "FabricLink",
    "Ingress",
    "Pool",
    "blueprint_from_json",
    "blueprint_to_json",
]

INTERFACE: Final = "eth0"
"""The one network interface of every endpoint's namespace."""

MASTER_PORT: Final = 29500
"""Where rank 0 listens in its own namespace; torch's own default."""

MOST_ENDPOINTS: Final = 64
"""More need more cores than a fabric is meant for; every link also has a queue per endpoint."""

_FIRST_ADDRESS: Final = ipaddress.IPv4Address("10.77.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLink:
    """One direction of one connection.

    Attributes
    ----------
    id
        The link's id in the topology.
    tail, head
        Nodes.
    reverse
        Id of the other direction, which is always there.
    resource
        The resource that its capacity is the truth for; empty where the topology shows none.
    capacity_Bps
        Payload bytes per second; ``None``: not limited by itself.
    """

    id: str
    tail: str
    head: str
    reverse: str
    resource: str = ""
    capacity_Bps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A capacity that both directions of a connection draw from.

    Attributes
    ----------
    id
        What it is called in changes and in the truth.
    link
        Either of the two directions.
    capacity_Bps
        Payload bytes per second of both together.
    """

    id: str
    link: str
    capacity_Bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingress:
    """What an endpoint takes in at most; no topology shows it.

    Attributes
    ----------
    endpoint
        Who.
    capacity_Bps
        Payload bytes per second.
    sources
        From these endpoints only; from all where empty.  A limit for all is in series with
        the endpoint's own link and looks like a slower one; a limit for some is not, and no
        tree explains it.
    """

    endpoint: str
    capacity_Bps: float
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """A fabric before it is built.

    Attributes
    ----------
    name
        What it is modelled on.
    endpoints
        Ids by rank; each gets a namespace.
    hosts
        Host of each endpoint; all the same on one machine.
    links
        Directed links, each with its reverse.
    hops
        ``(node, destination endpoint, link)``: where a node sends what is for an endpoint.
    pools
        Half-duplex connections.
    ingress
        Hidden limits, at most one for an endpoint.
    """

    name: str
    endpoints: tuple[str, ...]
    hosts: tuple[str, ...]
    links: tuple[FabricLink, ...]
    hops: tuple[tuple[str, str, str], ...]
    pools: tuple[Pool, ...] = ()
    ingress: tuple[Ingress, ...] = ()

    @cached_property
    def link(self) -> dict[str, FabricLink]:
        """Every link by id."""
        return {link.id: link for link in self.links}

    @cached_property
    def number(self) -> dict[str, int]:
        """Place of every link."""
        return {link.id: k for k, link in enumerate(self.links)}

    @cached_property
    def rank(self) -> dict[str, int]:
        """Rank of every endpoint."""
        return {name: k for k, name in enumerate(self.endpoints)}

    @cached_property
    def single(self) -> frozenset[str]:
        """Endpoints with one connection, to something that is not an endpoint.

        Their end of it is the namespace's own interface.  Every other endpoint stands behind
        a bridge of its own, which the interface is joined to without a limit.
        """
        leaving: dict[str, list[FabricLink]] = {name: [] for name in self.endpoints}
        for link in self.links:
            if link.tail in leaving:
                leaving[link.tail].append(link)
        return frozenset(
            name
            for name, links in leaving.items()
            if len(links) == 1 and links[0].head not in leaving
        )

    @cached_property
    def bridges(self) -> tuple[str, ...]:
        """Nodes that pass traffic on, in the order of their first link."""
        nodes = dict.fromkeys(node for link in self.links for node in (link.tail, link.head))
        return tuple(node for node in nodes if node not in self.single)

    def ingress_of(self, endpoint: str) -> Ingress | None:
        """The hidden limit of an endpoint, if it has one."""
        return next((limit for limit in self.ingress if limit.endpoint == endpoint), None)

    @property
    def has_hosts(self) -> bool:
        """Whether there are several hosts, which then have names of their own."""
        return len(set(self.hosts)) > 1

    @property
    def truth(self) -> dict[str, float]:
        """Bytes per second that each resource of the topology really passes."""
        found = {p.id: p.capacity_Bps for p in self.pools}
        for link in self.links:
            if link.resource and link.capacity_Bps is not None:
                found.setdefault(link.resource, link.capacity_Bps)
        return dict(sorted(found.items()))

    def address(self, rank: int) -> str:
        """Network address of a rank."""
        return str(_FIRST_ADDRESS + rank)

    @property
    def host_addresses(self) -> dict[str, str]:
        """An address of every host: that of its first rank."""
        found: dict[str, str] = {}
        for rank, host in enumerate(self.hosts):
            found.setdefault(host, self.address(rank))
        return found

    def hardware_address(self, rank: int) -> str:
        """The same, one layer down."""
        return f"02:00:00:00:{rank >> 8:02x}:{rank & 255:02x}"

    def environment(self, rank: int) -> dict[str, str]:
        """What a process of this rank needs to know: torch's names, gloo's interface, ours."""
        host = self.hosts[rank]
        local = [k for k, other in enumerate(self.hosts) if other == host]
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.endpoints)),
            "LOCAL_RANK": str(local.index(rank)),
            "LOCAL_WORLD_SIZE": str(len(local)),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": str(MASTER_PORT),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "TP_SOCKET_IFNAME": INTERFACE,
            "TOPOCAL_ENDPOINT": self.endpoints[rank],
            "TOPOCAL_ADDRESS": self.address(rank),
        }


def blueprint_to_json(blueprint: Blueprint) -> str:
    """The blueprint on one line."""
    return json.dumps(asdict(blueprint))


def blueprint_from_json(text: str) -> Blueprint:
    """The blueprint that :func:`blueprint_to_json` wrote."""
    raw: dict[str, Any] = json.loads(text)
    return Blueprint(
        name=raw["name"],
        endpoints=tuple(raw["endpoints"]),
        hosts=tuple(raw["hosts"]),
        links=tuple(FabricLink(**link) for link in raw["links"]),
        hops=tuple((node, destination, link) for node, destination, link in raw["hops"]),
        pools=tuple(Pool(**pool) for pool in raw["pools"]),
        ingress=tuple(
            Ingress(**{**limit, "sources": tuple(limit["sources"])}) for limit in raw["ingress"]
        ),
    )

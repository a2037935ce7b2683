"""What has a capacity, what carries bytes, and who loads what.

Frozen records only; :mod:`topocal.topo.topology` keeps them in a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

__all__ = ["FAR", "NEAR", "Link", "LinkKind", "NodeKind", "PathClass", "Resource", "Sharing", "Use"]


class Sharing(StrEnum):
    """How the flows on a resource divide it (the law: docs/model.md)."""

    CAPACITY = "capacity"
    """So many bytes per second in all, however many flows: sum(weight * rate) <= C."""

    DUPLEX = "duplex"
    """A capacity that both directions of a link draw from."""

    TIME_SHARED = "time-shared"
    """One flow at a time: what adds up is time, kappa * sum(rate / solo rate) <= 1."""

    FATPIPE = "fatpipe"
    """A limit on each flow alone, not shared (SimGrid's word): weight * rate <= C."""


class NodeKind(StrEnum):
    """What a node of the graph is."""

    GPU = "gpu"
    MEMORY = "memory"
    NIC = "nic"
    CPU = "cpu"
    PCIE_SWITCH = "pcie-switch"
    HOST_BRIDGE = "host-bridge"
    SOCKET = "socket"
    NVSWITCH = "nvswitch"
    NET_SWITCH = "net-switch"
    GROUP = "group"
    """Endpoints that measurements say belong together, when no topology is known."""

    @property
    def is_endpoint(self) -> bool:
        """Whether bytes may begin or end here; switches and sockets only pass them on."""
        return self in (NodeKind.GPU, NodeKind.MEMORY, NodeKind.NIC, NodeKind.CPU)


class LinkKind(StrEnum):
    """What a link is made of."""

    PCIE = "pcie"
    NVLINK = "nvlink"
    XGMI = "xgmi"
    XELINK = "xelink"
    FABRIC = "fabric"
    """Direct links between accelerators of another make, which the link's attribute
    ``fabric`` names: HCCS, MetaXLink, MTLink, MLU-Link."""
    C2C = "c2c"
    SMP = "smp"
    """Between sockets or NUMA nodes: UPI, QPI, xGMI between processors, X-bus."""
    MEMORY = "memory"
    NET = "net"
    UNKNOWN = "unknown"
    """Nothing tells.  How far apart two endpoints are that it joins is unknown, too: they
    count as SYS, the farthest inside a machine."""


class PathClass(IntEnum):
    """How far apart two endpoints are, in NCCL's words (src/graph/topo.h), near to far.

    ``NODE`` is the name that ``nvidia-smi topo -m`` gives to two host bridges of
    one NUMA node; NCCL itself calls that ``PHB``.
    """

    LOC = 0
    """The endpoint itself."""
    NVL = 1
    """A direct GPU fabric: NVLink, NVSwitch, xGMI, Xe Link, or another make's."""
    NVB = 2
    """A GPU fabric, relayed by another GPU; only where there is no other way."""
    C2C = 3
    """A chip-to-chip link between a processor and its GPU."""
    PIX = 4
    """At most one PCIe switch."""
    PXB = 5
    """Several PCIe switches, no host bridge."""
    PHB = 6
    """One host bridge (root complex)."""
    NODE = 7
    """Several host bridges of one NUMA node."""
    SYS = 8
    """The hop between sockets or NUMA nodes."""
    NET = 9
    """A network."""
    DIS = 10
    """No route."""


NEAR = tuple(c for c in PathClass if PathClass.LOC < c < PathClass.SYS)
"""Path classes that stay inside one socket."""
FAR = (PathClass.SYS, PathClass.NET)
"""Path classes that leave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something with a capacity: a link direction, or a shared thing that no link shows.

    Attributes
    ----------
    id
        Stable, readable, unique in its topology.
    sharing
        How flows divide it.
    nominal_Bps
        Bytes per second by specification, ``None`` where nothing says it.
        Meaningless for a time-shared resource.
    kappa
        Measured overlap of a time-shared resource, 0 < kappa <= 1.
    in_order
        For a time-shared resource: its engine is known to run messages one
        after another in order of arrival, rather than interleaved.
    label
        Words for people; the id where empty.
    source
        Where ``nominal_Bps`` comes from (specification, file).
    """

    id: str
    sharing: Sharing = Sharing.CAPACITY
    nominal_Bps: float | None = None
    kappa: float = 1.0
    in_order: bool = False
    label: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The label, or the id where there is none."""
        return self.label or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of one physical connection.

    Attributes
    ----------
    id
        ``tail->head``, with ``#2`` and so on where several run in parallel.
    tail, head
        Node ids; bytes go from tail to head.
    kind
        What it is made of.
    nominal_Bps
        Payload bytes per second by specification, ``None`` where unknown.
    uses
        ``(resource id, weight)`` of every resource that bytes on it load.
    reverse
        Id of the link that is the other direction of the same connection.
    """

    id: str
    tail: str
    head: str
    kind: LinkKind = LinkKind.UNKNOWN
    nominal_Bps: float | None = None
    uses: tuple[tuple[str, float], ...] = ()
    reverse: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Flows that load a resource which no link shows (an engine, a sender's class of routes).

    A flow loads ``resource`` with ``weight`` when its source, destination and
    path class are all among those named; ``None`` names all.
    """

    resource: str
    sources: tuple[str, ...] | None = None
    destinations: tuple[str, ...] | None = None
    path_classes: tuple[PathClass, ...] | None = None
    weight: float = 1.0

"""What AMD's tools say of pairs of GPUs, and the topology that follows.

``rocm-smi``, ``amd-smi`` and TransferBench all pass on what the kernel driver
knows: a link type, a number of "hops" and a weight.  None of them knows PCIe
switches.

References
----------
Hops are steps of an abstract topology, not links: 1 over xGMI, 2 by one
processor, 3 from one processor to another (AMD Instinct documentation, MI200
system optimization, hardware verification with ROCm).  Weights are 15 per xGMI
hop, 20 from a GPU to its processor plus the distance of the processors'
memories (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_crat.c).
Bandwidths are megabytes per second of one link and of all links together
(rocm-smi, ``--shownodesbw``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.naming import natural_key
from topocal.topo.readers.class_matrix import ClassMatrix, FabricLink, MatrixDevice, some
from topocal.topo.readers.from_classes import topology_from_classes
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["AmdGpu", "AmdPair", "build_amd_topology", "whole_number"]

_ONE_CARD: Final = "XXX"
"""Beginning of the link type that rocm-smi prints between partitions of one card."""

_OTHER_FABRICS: Final = frozenset({"HSW", "XHCL", "HLINK"})
"""Links of Hygon's accelerators, whose ``hy-smi`` prints what ``rocm-smi`` does."""

_WEIGHT_PER_HOP: Final = 15
_WEIGHT_ONE_PROCESSOR: Final = 40
_HOPS_ONE_PROCESSOR: Final = 2


@dataclass(slots=True, kw_only=True)
class AmdGpu:
    """A GPU, or a partition of one.

    Attributes
    ----------
    number
        The tool's own.
    bus_id
        PCI address, where it is known.
    numa, numa_affinity
        NUMA nodes that the tool names, ``None`` where it names none (or -1).
    attributes
        Further node attributes.
    """

    number: int
    bus_id: str | None = None
    numa: int | None = None
    numa_affinity: int | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class AmdPair:
    """What is said of two GPUs; ``None`` where nothing is.

    Attributes
    ----------
    link_type
        ``XGMI``, ``PCIE``, or the tool's word for a type it does not know.
    hops, weight
        As the tool prints them.
    least_MBps, most_MBps
        Megabytes per second of one link, and of all.
    accessible
        Whether the two are peers.
    """

    link_type: str | None = None
    hops: int | None = None
    weight: int | None = None
    least_MBps: int | None = None
    most_MBps: int | None = None
    accessible: bool | None = None


def whole_number(value: object) -> int | None:
    """A number that a tool wrote as a number or in words; ``None`` for anything else.

    >>> whole_number("15"), whole_number(2), whole_number("N/A"), whole_number(True)
    (15, 2, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**12 else None
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else None


def build_amd_topology(
    builder: TopologyBuilder,
    gpus: Sequence[AmdGpu],
    pairs: Mapping[tuple[int, int], AmdPair],
    *,
    nics: Sequence[MatrixDevice] = (),
    file: str,
    tool: str,
) -> Topology:
    """The topology of GPUs of which pairs are described.

    Parameters
    ----------
    builder
        With nothing but a name and notes yet.
    gpus
        Ordered by number.
    pairs
        By the places of two GPUs in ``gpus``, the lower first.
    nics
        NICs that the tool lists.
    tool
        Its name, as the source of bandwidths.

    Raises
    ------
    FormatError
        When there are more GPUs than any system has.
    """
    cards = _cards(len(gpus), pairs)
    matrix = ClassMatrix(
        [*(_device(gpu, cards.get(k)) for k, gpu in enumerate(gpus)), *nics], file=file
    )
    builder.peer_access, builder.no_peer_pairs = _peers(matrix, pairs)
    relayed, unknown = [], []
    rated = any(pair.most_MBps for pair in pairs.values())
    for (a, b), pair in sorted(pairs.items()):
        said = f"{matrix.devices[a].id}-{matrix.devices[b].id}"
        word = (pair.link_type or "").upper()
        if word == "XGMI":
            if _relayed(pair, rated=rated):
                relayed.append(said)
                matrix.relay(a, b)
            else:
                matrix.join(a, b, _xgmi(pair, tool))
        elif word in ("PCIE", "PCI"):
            _place(matrix, a, b, pair)
        elif word in _OTHER_FABRICS:
            matrix.join(a, b, FabricLink(kind=LinkKind.FABRIC, attributes={"fabric": word}))
        elif word:
            unknown.append(said)
            if word.startswith(_ONE_CARD):
                # One card has one PCIe link, which its partitions share.
                matrix.state(a, b, PathClass.PIX, assumed=True)
            matrix.join(a, b, FabricLink(kind=LinkKind.UNKNOWN, attributes={"link_type": word}))
    if relayed:
        builder.note(
            f"xGMI joins {some(relayed)}, but not directly: other GPUs relay; the output does not "
            "tell which, so the fewest links are taken"
        )
    if unknown:
        builder.note(
            f"the link type of {some(unknown)} is unknown to the tool: they are parts of one card, "
            "or it could not ask; joined by links of unknown kind, and how far apart they are is "
            "unknown, too: they count as SYS"
        )
    if builder.no_peer_pairs or builder.peer_access is False:
        whom = (
            "any two GPUs"
            if builder.peer_access is False
            else some("-".join(pair) for pair in builder.no_peer_pairs)
        )
        builder.note(f"no peer access between {whom}: copies go through the host")
    return topology_from_classes(builder, matrix)


def _device(gpu: AmdGpu, card: int | None) -> MatrixDevice:
    stated: dict[str, Any] = {"index": gpu.number}
    if gpu.bus_id:
        stated["bus_id"] = gpu.bus_id
    if gpu.numa_affinity is not None and gpu.numa_affinity != gpu.numa:
        stated["numa_affinity"] = gpu.numa_affinity
    if card is not None:
        stated["card"] = card
    numa = gpu.numa if gpu.numa is not None else gpu.numa_affinity
    return MatrixDevice(
        id=f"gpu{gpu.number}",
        kind=NodeKind.GPU,
        label=f"GPU{gpu.number}",
        numa=() if numa is None else (numa,),
        attributes=stated | gpu.attributes,
    )


def _cards(count: int, pairs: Mapping[tuple[int, int], AmdPair]) -> dict[int, int]:
    """Partitions of one card, whose link type the driver does not know, by a number per card."""
    above = list(range(count))

    def find(a: int) -> int:
        while above[a] != a:
            a = above[a]
        return a

    for (a, b), pair in sorted(pairs.items()):
        if pair.link_type is not None and pair.link_type.upper().startswith(_ONE_CARD):
            low, high = sorted((find(a), find(b)))
            above[high] = low
    shared = {find(a) for a in range(count) if find(a) != a}
    numbers = {root: k for k, root in enumerate(sorted(shared))}
    return {a: numbers[find(a)] for a in range(count) if find(a) in shared}


def _relayed(pair: AmdPair, *, rated: bool) -> bool:
    """By its weight; a bandwidth of 0 says so only where the tool knows that of other pairs."""
    if pair.weight is not None:
        return pair.weight > _WEIGHT_PER_HOP
    return rated and pair.most_MBps == 0


def _xgmi(pair: AmdPair, tool: str) -> FabricLink:
    said = {"hops": pair.hops, "weight": pair.weight}
    count = None
    if pair.most_MBps and pair.least_MBps and pair.most_MBps % pair.least_MBps == 0:
        count = pair.most_MBps // pair.least_MBps
    return FabricLink(
        kind=LinkKind.XGMI,
        count=count,
        nominal_Bps=pair.most_MBps * 1e6 if pair.most_MBps else None,
        source=f"{tool}, maximum bandwidth of the pair" if pair.most_MBps else "",
        attributes={key: value for key, value in said.items() if value is not None},
    )


def _place(matrix: ClassMatrix, a: int, b: int, pair: AmdPair) -> None:
    """A PCIe pair: on one processor or on two.  Which switches lie between, nothing tells."""
    if pair.hops is not None:
        far = pair.hops > _HOPS_ONE_PROCESSOR
    elif pair.weight is not None:
        far = pair.weight > _WEIGHT_ONE_PROCESSOR
    else:
        return
    if far:
        matrix.state(a, b, PathClass.SYS)
    else:
        matrix.state(a, b, PathClass.PHB, assumed=True)


def _peers(
    matrix: ClassMatrix, pairs: Mapping[tuple[int, int], AmdPair]
) -> tuple[bool | None, list[list[str]]]:
    """Whether all GPUs are peers, and those that are none if some are."""
    said: Iterable[AmdPair] = [p for p in pairs.values() if p.accessible is not None]
    denied = [
        sorted((matrix.devices[a].id, matrix.devices[b].id), key=natural_key)
        for (a, b), pair in pairs.items()
        if pair.accessible is False
    ]
    if not denied:
        return (True if said else None), []
    count = sum(device.kind is NodeKind.GPU for device in matrix.devices)
    if len(denied) == count * (count - 1) // 2:
        return False, []
    return None, sorted(denied, key=lambda pair: [natural_key(name) for name in pair])

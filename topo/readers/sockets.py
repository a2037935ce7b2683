"""Sockets, their memory and their processors, as hwloc, numactl and sysfs list them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["MemoryNode", "Sockets", "add_sockets", "commonest"]

_MOST_IN_A_MESH: Final = 64
"""Beyond so many memory nodes a link per pair says little and costs much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNode:
    """One NUMA node.

    Attributes
    ----------
    number
        The operating system's number of it.
    cpu_list
        Its hardware threads (``0-23,48-71``); empty for none, ``None`` where unknown.
    memory_bytes
        What it holds, ``None`` where unknown.
    package
        The operating system's number of the processor package it is part of.
    """

    number: int
    cpu_list: str | None = None
    memory_bytes: int | None = None
    package: int | None = None


class Sockets:
    """The socket nodes of a topology under construction."""

    def __init__(self, builder: TopologyBuilder, ids: Mapping[int, str]) -> None:
        self._builder = builder
        self._ids = dict(ids)
        self._coarse: dict[tuple[int, ...], str] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._ids

    def of(self, *numbers: int) -> str:
        """The socket of one memory node, or a node between those of several.

        Devices whose place the source gives as "one of these" (a package with
        several memory nodes; the whole machine, with no ``numbers``) hang off a
        node of their own that is joined to each of them.
        """
        known = tuple(sorted(n for n in set(numbers) if n in self._ids)) or tuple(self._ids)
        if len(known) == 1:
            return self._ids[known[0]]
        if known not in self._coarse:
            whole = len(known) == len(self._ids)
            name = "socket-unknown" if whole else f"socket{known[0]}-{known[-1]}"
            while name in self._builder:
                name += "'"
            listed = ", ".join(map(str, known))
            self._builder.node(
                name,
                NodeKind.SOCKET,
                label="socket not stated" if whole else f"one of NUMA nodes {listed}",
            )
            for number in known:
                self._builder.connect(self._ids[number], name, LinkKind.SMP)
            self._coarse[known] = name
        return self._coarse[known]


def add_sockets(
    builder: TopologyBuilder,
    nodes: Sequence[MemoryNode],
    *,
    distances: Mapping[tuple[int, int], float] | None = None,
    endpoints: bool = True,
) -> Sockets:
    """Add a socket per memory node that has processors, joined to each other.

    Parameters
    ----------
    nodes
        In the order of their numbers.  None at all makes one socket that nothing is said of.
    distances
        The firmware's relative distances; a note of them stands at the links.
    endpoints
        Whether to add ``cpu…`` and ``memory…`` endpoints, too.
    """
    with_cpus = [n for n in nodes if n.cpu_list != ""]
    if not with_cpus:
        return Sockets(builder, {0: builder.node("socket0", NodeKind.SOCKET)})
    if bare := [n for n in nodes if n.cpu_list == ""]:
        holding = [n.number for n in bare if n.memory_bytes != 0]
        if holding:
            listed = ", ".join(map(str, holding[:8])) + (", …" if len(holding) > 8 else "")
            builder.note(
                f"memory nodes {listed} have no processor (a GPU's own memory, HBM or CXL): "
                "they are left out"
            )
    ids = {}
    for node in with_cpus:
        ids[node.number] = builder.node(
            f"socket{node.number}",
            NodeKind.SOCKET,
            label=f"NUMA node {node.number}",
            **_stated(numa=node.number, cpu_list=node.cpu_list, package=node.package),
        )
        if endpoints:
            _add_endpoints(builder, node, ids[node.number])
    if len(ids) <= _MOST_IN_A_MESH:
        for a, b in combinations(ids, 2):
            distance = None if distances is None else distances.get((a, b))
            builder.connect(ids[a], ids[b], LinkKind.SMP, **_stated(distance=distance))
    else:
        builder.node("interconnect", NodeKind.SOCKET, label="between the sockets")
        for socket in ids.values():
            builder.connect(socket, "interconnect", LinkKind.SMP)
    return Sockets(builder, ids)


def commonest(numbers: Iterable[int | None]) -> int | None:
    """The number that most of many say, the smallest of equals; ``None`` where none does."""
    counted = Counter(n for n in numbers if n is not None)
    return min(counted, key=lambda n: (-counted[n], n), default=None)


def _add_endpoints(builder: TopologyBuilder, node: MemoryNode, socket: str) -> None:
    cpu = builder.node(
        f"cpu{node.number}",
        NodeKind.CPU,
        **_stated(numa=node.number, cpu_list=node.cpu_list),
    )
    builder.connect(cpu, socket, LinkKind.MEMORY)
    if node.memory_bytes != 0:
        memory = builder.node(
            f"memory{node.number}",
            NodeKind.MEMORY,
            **_stated(numa=node.number, memory_bytes=node.memory_bytes),
        )
        builder.connect(memory, socket, LinkKind.MEMORY)


def _stated(**attributes: Any) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}

"""What a matrix of path classes hides or overstates, told to the user."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.readers.class_matrix import ClassMatrix, some
from topocal.topo.readers.class_tree import ClassTree
from topocal.topo.resource import LinkKind, NodeKind, PathClass

__all__ = ["note_oddities"]

_FEW: Final = 4
"""GPUs of a socket from which on a matrix without any switch is worth a word."""


def note_oddities(builder: TopologyBuilder, matrix: ClassMatrix, tree: ClassTree) -> None:
    """Add notes to a builder on what its topology does not show."""
    _note_far_neighbours(builder, matrix, tree)
    _note_loose(builder, matrix, tree)
    _note_flat(builder, matrix, tree)
    _note_hidden(builder, matrix)
    _note_lost(builder, matrix)
    _note_coherent(builder, matrix)


def _names(matrix: ClassMatrix, devices: list[int]) -> str:
    return some(matrix.devices[d].id for d in devices)


def _note_far_neighbours(builder: TopologyBuilder, matrix: ClassMatrix, tree: ClassTree) -> None:
    for socket in tree.sockets:
        if socket.apart:
            builder.note(
                f"{_names(matrix, socket.devices)} share a NUMA node or CPU list, yet the letters "
                "put a socket hop (SYS) between some of them: grouped by NUMA node, with a hop "
                "from each group of host bridges to the socket"
            )


def _note_loose(builder: TopologyBuilder, matrix: ClassMatrix, tree: ClassTree) -> None:
    for part in tree.loose:
        builder.note(
            f"the table does not tell the socket of {_names(matrix, part.devices)}: joined to "
            + ("every socket by a hop" if len(tree.sockets) > 1 else "the socket by a hop")
        )


def _note_flat(builder: TopologyBuilder, matrix: ClassMatrix, tree: ClassTree) -> None:
    """All GPUs of a socket equally far: a virtual machine shows no switches."""
    flat = []
    for socket in tree.sockets:
        gpus = [d for d in socket.devices if matrix.devices[d].kind is NodeKind.GPU]
        classes = {matrix.pcie_class(a, b) for a, b in combinations(gpus, 2)}
        if len(gpus) >= _FEW and len(classes) == 1:
            only = classes.pop()
            if only in (PathClass.PHB, PathClass.NODE, PathClass.SYS):
                flat.append(f"{_names(matrix, gpus)} ({only.name})")
    if flat:
        builder.note(
            f"all equally far from each other: {'; '.join(flat)}: no PCIe switch shows, as in a "
            "virtual machine; they may share an uplink, which only measurements tell"
        )


def _note_hidden(builder: TopologyBuilder, matrix: ClassMatrix) -> None:
    hidden = [
        (a, b)
        for a, b, link in matrix.joined()
        if link.kind is not LinkKind.UNKNOWN and matrix.pcie_class(a, b) is None
    ]
    if hidden:
        a, b = hidden[0]
        rest = len(hidden) - 1
        more = f" and {rest} more pair{'s' * (rest > 1)}" if rest else ""
        builder.note(
            f"the GPU link of {matrix.devices[a].id}-{matrix.devices[b].id}{more} hides how far "
            "apart they are in PCIe: placed as far apart as NICs and NUMA nodes allow"
        )


def _note_lost(builder: TopologyBuilder, matrix: ClassMatrix) -> None:
    """A GPU without NVLink among GPUs that all have it."""
    gpus = [d for d, device in enumerate(matrix.devices) if device.kind is NodeKind.GPU]
    degree: Counter[int] = Counter()
    for a, b, link in matrix.joined():
        if link.kind is LinkKind.NVLINK:
            degree.update((a, b))
    without = [d for d in gpus if not degree[d]]
    linked = [d for d in gpus if degree[d]]
    if len(linked) > 2 and without and len(without) < len(linked):
        builder.note(
            f"{_names(matrix, without)} has no NVLink while {len(linked)} other GPUs have: lost "
            "or not fitted; whatever includes it runs at PCIe speed"
        )


def _note_coherent(builder: TopologyBuilder, matrix: ClassMatrix) -> None:
    coherent = [d for d, device in enumerate(matrix.devices) if device.coherent]
    if coherent:
        builder.note(
            f"the memory of {_names(matrix, coherent)} is a NUMA node of the system: joined to "
            "the processor by a chip-to-chip link, whose capacity the matrix does not tell; SYS "
            "to a NIC means that link, not a second socket"
        )

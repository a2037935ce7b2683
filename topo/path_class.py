"""Which path class a route has, from what it crosses.

The classes are NCCL's (``src/graph/topo.h``) and ``nvidia-smi topo -m``'s; one
sentence each stands at :class:`~topocal.topo.resource.PathClass`.  What a link
adds to a route is a row of counts; rows add up along a route, so that routes
are classified all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.resource import LinkKind, NodeKind, PathClass

__all__ = ["COUNTS", "FABRIC", "classify", "count_table", "hops_of", "pack"]

FABRIC: Final = (LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK, LinkKind.FABRIC)
"""Links that GPUs have among themselves."""

COUNTS: Final = ("hops", "fabric", "c2c", "memory", "smp", "net", "switches", "bridges", "sockets")
"""Columns of the table of counts."""

_BITS: Final = 7
_MASK: Final = (1 << _BITS) - 1
_MOST: Final = 40
"""Three of it fit into seven bits."""


def count_table(links: Sequence[LinkKind], heads: Sequence[NodeKind]) -> NDArray[np.int16]:
    """What each link adds to a route.

    Parameters
    ----------
    links
        Kind of each link.
    heads
        Kind of the node that each link leads to.

    Returns
    -------
    Shape (links + 1, ``len(COUNTS)``); the last row is zero, for "no link".
    """
    table = np.zeros((len(links) + 1, len(COUNTS)), dtype=np.int16)
    column = {name: table[:, k] for k, name in enumerate(COUNTS)}
    for k, (kind, head) in enumerate(zip(links, heads, strict=True)):
        column["hops"][k] = 1
        column["fabric"][k] = kind in FABRIC
        column["c2c"][k] = kind is LinkKind.C2C
        column["memory"][k] = kind is LinkKind.MEMORY
        column["smp"][k] = kind is LinkKind.SMP
        column["net"][k] = kind is LinkKind.NET
        column["switches"][k] = head is NodeKind.PCIE_SWITCH
        column["bridges"][k] = head is NodeKind.HOST_BRIDGE
        column["sockets"][k] = head in (NodeKind.SOCKET, NodeKind.GROUP)
    return table


def pack(counts: NDArray[np.int16]) -> NDArray[np.int64]:
    """Rows of counts as one number each; sums of a few of them can be unpacked again.

    Parameters
    ----------
    counts
        Shape (…, ``len(COUNTS)``).

    Returns
    -------
    Shape (…).  No class depends on whether a count is 40 or more, so it stops there.
    """
    shifts = _BITS * np.arange(len(COUNTS))
    found: NDArray[np.int64] = (np.minimum(counts, _MOST).astype(np.int64) << shifts).sum(axis=-1)
    return found


def hops_of(packed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of links, as far as it was counted."""
    return packed & _MASK


def classify(packed: NDArray[np.int64]) -> NDArray[np.int8]:
    """Path classes of routes.

    A chain of GPU fabric (or chip-to-chip) links keeps its class when it ends in
    the memory of the socket it leads to; when it leads on from a socket, what
    counts is the socket.

    Parameters
    ----------
    packed
        Shape (routes,), up to three packed counts added up.

    Returns
    -------
    Shape (routes,), :class:`PathClass` codes; ``DIS`` for a route without links.
    """
    of = {name: (packed >> _BITS * k) & _MASK for k, name in enumerate(COUNTS)}
    code = np.where(of["switches"] <= 1, PathClass.PIX, PathClass.PXB).astype(np.int8)
    code[(of["bridges"] == 1) | (of["sockets"] >= 1)] = PathClass.PHB
    code[of["bridges"] >= 2] = PathClass.NODE
    code[(of["smp"] >= 1) | (of["sockets"] >= 2)] = PathClass.SYS
    local = (of["sockets"] == 0) | (of["memory"] >= 1) | (of["hops"] == 1)
    local &= (of["sockets"] <= 1) & (of["smp"] == 0)
    for name, reached in (("c2c", PathClass.C2C), ("fabric", PathClass.NVL)):
        pure = (of[name] >= 1) & (of[name] + of["memory"] == of["hops"])
        code[pure & local] = reached
    code[of["net"] >= 1] = PathClass.NET
    code[of["hops"] == 0] = PathClass.DIS
    return code

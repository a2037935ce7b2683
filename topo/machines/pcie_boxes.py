"""Reference machines whose cards talk over PCIe only."""

from __future__ import annotations

from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["b70"]


def b70() -> Topology:
    """Eight Intel Arc Pro B70 cards, two to a PCIe switch, two switches to a socket.

    Cards 0 and 1 hang off ``switch0``, 2 and 3 off ``switch1`` (both under
    ``socket0``), 4 to 7 off ``switch2`` and ``switch3`` (under ``socket1``).  No
    link speed is published, so none is given: the machine is known by the
    transfers that were timed on it (docs/model.md).

    References
    ----------
    Pair and fan-in rates of an 8-card B70 box over xccl, published with the layout
    of its switches and sockets; figures in docs/model.md.
    """
    build = TopologyBuilder("b70")
    build.source("published layout: 8 cards, 4 PCIe switches, 2 sockets; no link speeds")
    for socket in range(2):
        build.node(f"socket{socket}", NodeKind.SOCKET, label=f"socket {socket}", numa=socket)
    build.connect("socket0", "socket1", LinkKind.SMP)
    for switch in range(4):
        build.node(f"switch{switch}", NodeKind.PCIE_SWITCH, label=f"PCIe switch {switch}")
        build.connect(f"switch{switch}", f"socket{switch // 2}", LinkKind.PCIE)
    for card in range(8):
        build.node(f"gpu{card}", NodeKind.GPU, index=card, model="Arc Pro B70", numa=card // 4)
        build.connect(f"gpu{card}", f"switch{card // 2}", LinkKind.PCIE)
    return build.build()

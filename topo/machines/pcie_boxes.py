"""Reference machines whose cards talk over PCIe only."""

from __future__ import annotations

from topocal.topo.machines.server import Server
from topocal.topo.topology import Topology

__all__ = ["b70", "l20", "l40s"]


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
    server = Server(
        "b70",
        source="published layout: 8 cards, 4 PCIe switches, 2 sockets; no link speeds",
        memory=False,
    )
    switches = [server.switch(f"socket{k // 2}", None, None) for k in range(4)]
    for card in range(8):
        server.gpu(switches[card // 2], None, None, model="Arc Pro B70", numa=card // 4)
    return server.done()


def l20() -> Topology:
    """Eight NVIDIA L20 cards on PCIe 4.0 x16, four to a switch, a switch to a socket.

    References
    ----------
    NVIDIA L20 product brief (PCIe 4.0 x16).  The switches are those of common
    dual-root servers; what their uplinks pass is not published.
    """
    return _dual_root("l20", "L20", "NVIDIA L20 product brief: PCIe 4.0 x16")


def l40s() -> Topology:
    """Eight NVIDIA L40S cards on PCIe 4.0 x16, four to a switch, a switch to a socket.

    References
    ----------
    NVIDIA L40S data sheet (PCIe 4.0 x16).  The switches are those of common
    dual-root servers; what their uplinks pass is not published.
    """
    return _dual_root("l40s", "L40S", "NVIDIA L40S data sheet: PCIe 4.0 x16")


def _dual_root(name: str, model: str, source: str) -> Topology:
    server = Server(name, source=source)
    server.build.note(
        "the two islands of four cards are those of common dual-root servers, not published"
    )
    for socket in range(2):
        switch = server.switch(f"socket{socket}", None, None)
        for _ in range(4):
            server.gpu(switch, 4, 16, model=model, numa=socket)
    return server.done()

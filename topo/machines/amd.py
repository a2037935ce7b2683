"""Reference machines with AMD GPUs."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from topocal.topo.machines.server import Server
from topocal.topo.nominal import ethernet_Bps, source_of, xgmi_Bps
from topocal.topo.resource import LinkKind
from topocal.topo.topology import Topology

__all__ = ["mi250x", "mi300x"]

_FRONTIER: Final = {
    (0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4, (0, 6): 2, (2, 4): 2,
    (0, 2): 1, (1, 3): 1, (1, 5): 1, (3, 7): 1, (4, 6): 1, (5, 7): 1,
}  # fmt: skip
"""xGMI links between the dies of a Frontier node."""

_CPU_TO_DIE_Bps: Final = 36e9
"""Infinity Fabric between processor and die in one direction (Frontier user guide)."""


def mi250x() -> Topology:
    """A Frontier node: four MI250X of two dies each, one processor, four Slingshot NICs.

    Dies of one package are joined by four links, others by two, one or none; those
    without a link reach each other through the processor here, whereas the hardware
    may relay them over other dies.

    References
    ----------
    OLCF, Frontier user guide, node diagram: links of 50 GB/s in one direction,
    36 GB/s to the processor, NICs on the odd dies.  C. Pearson, Interconnect
    bandwidth heterogeneity on AMD MI250x and Infinity Fabric, arXiv:2302.14827.
    """
    server = Server("mi250x", source="OLCF, Frontier user guide, node diagram", sockets=1)
    dies = []
    for k in range(8):
        die = server.gpu(None, None, None, model="MI250X", numa=0, architecture="gfx90a")
        server.build.connect(
            die,
            "socket0",
            LinkKind.C2C,
            nominal_Bps=_CPU_TO_DIE_Bps,
            source="OLCF, Frontier user guide: 36 GB/s in one direction",
        )
        dies.append(die)
        if k % 2:
            server.nic("socket0", 4, 16, network_Bps=ethernet_Bps(200), numa=0)
    for (a, b), count in _FRONTIER.items():
        _xgmi(server, dies[a], dies[b], "gfx90a", count)
    return server.done()


def mi300x() -> Topology:
    """Eight MI300X, each joined to every other, each on a PCIe switch with one NIC.

    References
    ----------
    AMD CDNA 3 whitepaper (2023) and Instinct MI300X platform data sheet: seven
    xGMI links of 64 GB/s in one direction, PCIe 5.0 x16, 400 Gb/s NICs.
    """
    server = Server("mi300x", source="AMD CDNA 3 whitepaper; MI300X platform data sheet")
    gpus = []
    for k in range(8):
        switch = server.switch(f"socket{k // 4}", 5, 16)
        gpus.append(server.gpu(switch, 5, 16, model="MI300X", numa=k // 4, architecture="gfx942"))
        server.nic(switch, 5, 16, network_Bps=ethernet_Bps(400), numa=k // 4)
    for a, b in combinations(gpus, 2):
        _xgmi(server, a, b, "gfx942", 1)
    return server.done()


def _xgmi(server: Server, a: str, b: str, architecture: str, count: int) -> None:
    server.build.connect(
        a,
        b,
        LinkKind.XGMI,
        nominal_Bps=xgmi_Bps(architecture, count),
        source=source_of(f"xgmi {architecture}"),
        count=count,
    )

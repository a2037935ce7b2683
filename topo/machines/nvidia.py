"""Reference machines with NVLink."""

from __future__ import annotations

from typing import Final

from topocal.topo.fabric import plain_switch
from topocal.topo.machines.server import Server
from topocal.topo.nominal import c2c_Bps, ethernet_Bps, infiniband_Bps, smp_Bps, source_of
from topocal.topo.resource import LinkKind
from topocal.topo.topology import Topology

__all__ = ["dgx1", "dgx_a100", "dgx_h100", "gh200", "h20_pair"]

_CUBE_MESH: Final = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
"""NVLinks of each pair in a DGX-1 with V100, six to a GPU."""


def dgx1() -> Topology:
    """Eight V100 in a hybrid cube mesh, two to a PCIe switch with one InfiniBand NIC.

    References
    ----------
    NVIDIA, DGX-1 with Tesla V100 system architecture, WP-08437-002 (2017): cube
    mesh, PCIe 3.0 switches, four EDR ports.  Intel Xeon E5-2698 v4: two QPI links.
    """
    server = Server(
        "dgx1",
        source="NVIDIA DGX-1 with Tesla V100 system architecture, WP-08437-002",
        smp_Bps=smp_Bps("qpi 9.6", 2),
        smp_source=source_of("smp qpi 9.6"),
    )
    gpus = []
    for k in range(4):
        switch = server.switch(f"socket{k // 2}", 3, 16)
        gpus += [server.gpu(switch, 3, 16, model="V100", numa=k // 2) for _ in range(2)]
        server.nic(switch, 3, 16, network_Bps=infiniband_Bps("EDR"), numa=k // 2)
    for (a, b), count in _CUBE_MESH.items():
        server.nvlink(gpus[a], gpus[b], 2, count)
    return server.done()


def dgx_a100() -> Topology:
    """Eight A100 on NVSwitch, two to a PCIe switch with two InfiniBand NICs.

    References
    ----------
    NVIDIA DGX A100 system architecture, WP-10083-001 (2020): twelve NVLinks of a
    GPU on six NVSwitches, PCIe 4.0, eight HDR ports for computing.
    """
    server = Server("dgx-a100", source="NVIDIA DGX A100 system architecture, WP-10083-001")
    gpus = []
    for k in range(4):
        switch = server.switch(f"socket{k // 2}", 4, 16)
        gpus += [server.gpu(switch, 4, 16, model="A100", numa=k // 2) for _ in range(2)]
        for _ in range(2):
            server.nic(switch, 4, 16, network_Bps=infiniband_Bps("HDR"), numa=k // 2)
    server.nvswitch(gpus, 3, 12)
    return server.done()


def dgx_h100() -> Topology:
    """Eight H100 on NVSwitch, each under its own PCIe switch and root complex with one NIC.

    References
    ----------
    NVIDIA DGX H100 user guide and system architecture, WP-11308-001 (2022):
    eighteen NVLinks of a GPU on four NVSwitches, PCIe 5.0, eight NDR ports.
    """
    return _hgx("dgx-h100", "H100", "NVIDIA DGX H100 system architecture, WP-11308-001", "NDR")


def _hgx(name: str, model: str, source: str, port: str | None) -> Topology:
    server = Server(name, source=source)
    gpus = []
    for k in range(8):
        switch = server.switch(server.bridge(k // 4), 5, 16)
        gpus.append(server.gpu(switch, 5, 16, model=model, numa=k // 4))
        if port is None:
            server.nic(switch, None, None, numa=k // 4)
        else:
            server.nic(switch, 5, 16, network_Bps=infiniband_Bps(port), numa=k // 4)
    server.nvswitch(gpus, 4, 18)
    if port is None:
        server.build.note("number and speed of the NICs are not published; one per GPU is assumed")
    return server.done()


def gh200() -> Topology:
    """Four Grace Hopper superchips, all GPUs joined by NVLink, one Slingshot NIC each.

    References
    ----------
    L. Fusco et al., Understanding data movement in tightly coupled heterogeneous
    systems, arXiv:2408.11556 (2024): the quad GH200 node of Alps; six of eighteen
    NVLinks to each peer, NVLink-C2C to the own processor.
    """
    server = Server("gh200", source="quad GH200 node of Alps, arXiv:2408.11556", sockets=4)
    gpus = []
    for k in range(4):
        gpu = server.gpu(None, None, None, model="GH200", numa=k)
        server.build.connect(
            gpu, f"socket{k}", LinkKind.C2C, nominal_Bps=c2c_Bps(), source=source_of("c2c grace")
        )
        server.nic(f"socket{k}", None, None, network_Bps=ethernet_Bps(200), numa=k)
        gpus.append(gpu)
    for b in range(4):
        for a in range(b):
            server.nvlink(gpus[a], gpus[b], 4, 6)
    return server.done()


def h20_pair() -> Topology:
    """Two nodes of eight H20 on NVSwitch, joined by RoCE.

    References
    ----------
    NVIDIA H20 data sheet (NVLink 900 GB/s both ways, PCIe 5.0 x16); the layout of
    HGX boards.  Number and speed of the NICs are not published: one per GPU, of
    unknown speed.
    """
    node = _hgx("h20", "H20", "NVIDIA H20 data sheet; HGX layout", None)
    return plain_switch([node] * 2, name="h20-pair")

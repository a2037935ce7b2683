"""Random machines for tests: every shape that a reader or a user might bring."""

from __future__ import annotations

import numpy as np

from topocal.topo.builder import TopologyBuilder
from topocal.topo.fabric import dragonfly, fat_tree, plain_switch, rails
from topocal.topo.machines.server import Server
from topocal.topo.nominal import ethernet_Bps
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["random_cluster", "random_fabric_set", "random_pcie_tree"]


def random_pcie_tree(rng: np.random.Generator, *, gpus: int = 8, nics: int = 0) -> Topology:
    """Cards under a random tree of switches, bridges and one to four sockets.

    Parameters
    ----------
    rng
        Decides everything; equal generators give equal machines.
    gpus, nics
        How many cards.
    """
    server = Server("random tree", source="random", sockets=int(rng.integers(1, 5)))
    sockets = [k for k in range(4) if f"socket{k}" in server.build]
    parents = []
    for socket in sockets:
        roots = int(rng.integers(0, 3))
        parents += [server.bridge(socket) for _ in range(roots)] or [f"socket{socket}"]
    for _ in range(int(rng.integers(0, 2 + gpus // 2))):
        parents.append(server.switch(str(rng.choice(parents)), *_speed(rng)))
    for _ in range(gpus):
        server.gpu(str(rng.choice(parents)), *_speed(rng))
    for _ in range(nics):
        rate = ethernet_Bps(float(rng.choice([100, 200, 400])))
        server.nic(str(rng.choice(parents)), *_speed(rng), network_Bps=rate)
    return server.done()


def _speed(rng: np.random.Generator) -> tuple[int | None, int | None]:
    if rng.random() < 0.1:
        return None, None
    return int(rng.integers(1, 7)), int(rng.choice([1, 4, 8, 16]))


def random_fabric_set(rng: np.random.Generator, *, gpus: int = 8) -> Topology:
    """GPUs on one socket with direct GPU links between some pairs, or on an NVSwitch.

    Parameters
    ----------
    rng
        Decides everything.
    gpus
        How many.
    """
    build = TopologyBuilder("random fabric")
    build.node("socket0", NodeKind.SOCKET)
    kind = LinkKind(str(rng.choice([LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK])))
    names = [build.node(f"gpu{k}", NodeKind.GPU, index=k) for k in range(gpus)]
    for name in names:
        build.connect(name, "socket0", LinkKind.PCIE, generation=4, width=16)
    if kind is LinkKind.NVLINK and rng.random() < 0.3:
        build.node("nvswitch0", NodeKind.NVSWITCH)
        for name in names:
            if rng.random() < 0.9:
                build.connect(name, "nvswitch0", kind, nominal_Bps=450e9, count=18)
        return build.build()
    chance = rng.random()
    for j in range(gpus):
        for i in range(j):
            if rng.random() < chance:
                count = int(rng.integers(1, 5))
                build.connect(names[i], names[j], kind, nominal_Bps=25e9 * count, count=count)
    return build.build()


def random_cluster(rng: np.random.Generator, *, nodes: int = 3, gpus: int = 4) -> Topology:
    """Random nodes on a random fabric.

    Parameters
    ----------
    rng
        Decides everything.
    nodes, gpus
        How many nodes, and GPUs in each.
    """
    nics = int(rng.integers(1, gpus + 1))
    node = random_pcie_tree(rng, gpus=gpus, nics=nics)
    copies = [node] * nodes
    match int(rng.integers(4)):
        case 0:
            return plain_switch(copies)
        case 1:
            return rails(copies, spines=int(rng.integers(0, 3)))
        case 2:
            return fat_tree(
                copies,
                nodes_per_leaf=int(rng.integers(1, nodes + 1)),
                spines=int(rng.integers(1, 4)),
                oversubscription=float(rng.choice([1, 2, 4])),
            )
        case _:
            return dragonfly(
                copies,
                nodes_per_router=int(rng.integers(1, nodes + 1)),
                routers_per_group=int(rng.integers(1, 4)),
            )

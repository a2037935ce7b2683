"""Frozen cases of benchmarks/simulator.py and tests/test_simgrid.py: machines and flows.

Changing one makes its figures incomparable with those printed before; add another
instead.  Capacities are uneven on purpose, so that many resources fill up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from topocal.topo.builder import TopologyBuilder
from topocal.topo.flow import Flow, Pattern
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = [
    "KINDS",
    "PLATFORMS",
    "Platform",
    "cluster",
    "fat_tree",
    "flows_for",
    "nvswitch",
    "pcie_tree",
    "star",
]

KINDS: Final = ("equal", "unequal", "staggered")
"""Equal sizes at once; unequal sizes at once; unequal sizes and starts."""

_GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A machine, how many flows it is given, and how its name is printed."""

    name: str
    build: Callable[[], Topology]
    flows: int
    slow: bool = False
    """Whether it is left out of a smoke run."""


def pcie_tree() -> Topology:
    """8 GPUs, four PCIe switches, two sockets."""
    build = TopologyBuilder("pcie8")
    for socket in range(2):
        build.node(f"socket{socket}", NodeKind.SOCKET)
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=31.2 * _GB)
    for switch in range(4):
        build.node(f"switch{switch}", NodeKind.PCIE_SWITCH)
        build.connect(
            f"switch{switch}", f"socket{switch // 2}", LinkKind.PCIE, nominal_Bps=26.3 * _GB
        )
    for gpu in range(8):
        build.node(f"gpu{gpu}", NodeKind.GPU)
        build.connect(
            f"gpu{gpu}", f"switch{gpu // 2}", LinkKind.PCIE, nominal_Bps=(25.0 + 0.3 * gpu) * _GB
        )
    return build.build()


def nvswitch() -> Topology:
    """8 GPUs on one NVSwitch plane."""
    build = TopologyBuilder("nvswitch8")
    build.node("nvswitch0", NodeKind.NVSWITCH)
    for gpu in range(8):
        build.node(f"gpu{gpu}", NodeKind.GPU)
        build.connect(f"gpu{gpu}", "nvswitch0", LinkKind.NVLINK, nominal_Bps=(271.0 + gpu) * _GB)
    return build.build()


def cluster() -> Topology:
    """Four NVSwitch nodes of 8 GPUs, a NIC to each GPU, two leaf switches and a spine."""
    build = TopologyBuilder("4x8")
    build.node("spine0", NodeKind.NET_SWITCH)
    for leaf in range(2):
        build.node(f"leaf{leaf}", NodeKind.NET_SWITCH)
        build.connect(f"leaf{leaf}", "spine0", LinkKind.NET, nominal_Bps=310.0 * _GB)
    for node in range(4):
        host = f"node{node}"
        build.node(f"{host}/nvswitch0", NodeKind.NVSWITCH, host=host)
        for gpu in range(8):
            build.node(f"{host}/gpu{gpu}", NodeKind.GPU, host=host, index=gpu)
            build.node(f"{host}/nic{gpu}", NodeKind.NIC, host=host, index=gpu)
            build.node(f"{host}/switch{gpu}", NodeKind.PCIE_SWITCH, host=host)
            build.connect(
                f"{host}/gpu{gpu}",
                f"{host}/nvswitch0",
                LinkKind.NVLINK,
                nominal_Bps=(225.0 + gpu) * _GB,
            )
            for end in ("gpu", "nic"):
                build.connect(
                    f"{host}/{end}{gpu}",
                    f"{host}/switch{gpu}",
                    LinkKind.PCIE,
                    nominal_Bps=52.0 * _GB,
                )
            build.connect(
                f"{host}/nic{gpu}",
                f"leaf{node // 2}",
                LinkKind.NET,
                nominal_Bps=(24.0 + 0.2 * gpu + 0.1 * node) * _GB,
            )
    return build.build()


def star(hosts: int) -> Topology:
    """Hosts around one network switch."""
    build = TopologyBuilder(f"star{hosts}")
    build.node("core0", NodeKind.NET_SWITCH)
    for host in range(hosts):
        build.node(f"nic{host}", NodeKind.NIC)
        build.connect(
            f"nic{host}", "core0", LinkKind.NET, nominal_Bps=(12.0 + 0.5 * (host % 7)) * _GB
        )
    return build.build()


def fat_tree(leaves: int) -> Topology:
    """As many hosts to a leaf switch as there are leaves, and half as many spines."""
    build = TopologyBuilder(f"fat{leaves * leaves}")
    for spine in range(leaves // 2):
        build.node(f"spine{spine}", NodeKind.NET_SWITCH)
    for leaf in range(leaves):
        build.node(f"leaf{leaf}", NodeKind.NET_SWITCH)
        for spine in range(leaves // 2):
            build.connect(
                f"leaf{leaf}",
                f"spine{spine}",
                LinkKind.NET,
                nominal_Bps=(24.0 + 0.5 * (spine % 3)) * _GB,
            )
        for slot in range(leaves):
            host = f"nic{leaf * leaves + slot}"
            build.node(host, NodeKind.NIC)
            build.connect(
                host, f"leaf{leaf}", LinkKind.NET, nominal_Bps=(12.0 + 0.5 * (slot % 5)) * _GB
            )
    return build.build()


PLATFORMS: Final = {
    p.name: p
    for p in (
        Platform(name="pcie8", build=pcie_tree, flows=16),
        Platform(name="nvswitch8", build=nvswitch, flows=32),
        Platform(name="4x8", build=cluster, flows=128),
        Platform(name="star64", build=lambda: star(64), flows=256),
        Platform(name="star256", build=lambda: star(256), flows=1024),
        Platform(name="star1024", build=lambda: star(1024), flows=4096, slow=True),
        Platform(name="fat64", build=lambda: fat_tree(8), flows=256),
        Platform(name="fat256", build=lambda: fat_tree(16), flows=1024),
        Platform(name="fat1024", build=lambda: fat_tree(32), flows=4096, slow=True),
    )
}


def flows_for(topology: Topology, count: int, kind: str, seed: int = 1) -> Pattern:
    """``count`` flows between random different endpoints; sizes are whole numbers of bytes."""
    random = np.random.default_rng([seed, count, KINDS.index(kind)])
    names = topology.accelerators or topology.endpoints
    source = random.integers(0, len(names), count)
    destination = (source + random.integers(1, len(names), count)) % len(names)
    size = np.full(count, 256 * 2**20)
    start = np.zeros(count)
    if kind != "equal":
        size = random.integers(2**20, 2**30, count)
    if kind == "staggered":
        # Over about the time that a flow takes on a busy 10 GB/s resource.
        start = np.sort(random.uniform(0.0, 0.2, count))
    return Pattern(
        flows=tuple(
            Flow(
                source=names[s],
                destination=names[d],
                size_bytes=float(b),
                start_s=float(t),
            )
            for s, d, b, t in zip(source, destination, size, start, strict=True)
        ),
        name=f"{count} {kind} flows on {topology.name}",
    )

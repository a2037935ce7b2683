"""Machines of a few resources in a row, and flows through them."""

from __future__ import annotations

import math

from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow
from topocal.topo.fluid import FluidResult, simulate
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology


def chain(*rates: float) -> Topology:
    """GPUs ``a``, ``b``, … in a row of switches, each on its own; rates of the links between.

    ::

        a     b     c
        |     |     |        access links never bind
        s0 -- s1 -- s2       rates[0], rates[1], each way
    """
    build = TopologyBuilder("chain")
    for k in range(len(rates) + 1):
        build.node(f"s{k}", NodeKind.PCIE_SWITCH)
        build.node("abcdefgh"[k], NodeKind.GPU)
        build.connect("abcdefgh"[k], f"s{k}", LinkKind.PCIE, nominal_Bps=math.inf)
    for k, rate in enumerate(rates):
        build.connect(f"s{k}", f"s{k + 1}", LinkKind.PCIE, nominal_Bps=rate)
    return build.build()


def flow(ends: str, size: float, start: float = 0.0) -> Flow:
    return Flow(source=ends[0], destination=ends[1], size_bytes=size, start_s=start)


def run(topology: Topology, *flows: Flow, alpha_s: float = 0.0) -> FluidResult:
    return simulate(topology, flows, Capacities.of(topology), alpha_s=alpha_s, record=True)

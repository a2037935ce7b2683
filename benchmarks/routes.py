"""Seconds for all-pairs routes and their incidence, next to networkx in the same run.

Run as ``python benchmarks/routes.py`` (about a minute) or with ``--smoke`` (a few
seconds).  Every case is built afresh for each repeat and the best of the repeats
counts; networkx finds cheapest paths by the same costs (Dijkstra) from a part of the
sources, and its time is scaled to all of them.  Ratios are the result; seconds belong
to the machine they were taken on.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np

from topocal.topo.fabric import fat_tree
from topocal.topo.incidence import incidence
from topocal.topo.machines import dgx_a100, rail_pod
from topocal.topo.machines.server import Server
from topocal.topo.router import LINK_COST
from topocal.topo.topology import Topology

REPEATS = 3
NETWORKX_SOURCES = 16


def pcie_tree(gpus: int) -> Topology:
    """Four GPUs to a switch, sixteen such switches to an upper one, two sockets."""
    server = Server("tree", source="benchmark")
    for k in range(gpus):
        if k % 64 == 0:
            upper = server.switch(f"socket{2 * k // gpus}", 5, 16)
        if k % 4 == 0:
            lower = server.switch(upper, 5, 16)
        server.gpu(lower, 5, 16)
    return server.done()


def tree_of_nodes(gpus: int) -> Topology:
    """Nodes of eight GPUs and eight NICs on leaves and spines."""
    return fat_tree([dgx_a100()] * (gpus // 8), nodes_per_leaf=8, spines=8, name="nodes")


def pod(gpus: int) -> Topology:
    """Nodes of eight GPUs and eight NICs on rails and spines."""
    return rail_pod(gpus // 8)


CASES: dict[str, Callable[[int], Topology]] = {
    "PCIe tree": pcie_tree,
    "8-GPU nodes, fat tree": tree_of_nodes,
    "8-GPU nodes, rails": pod,
}


@dataclass(frozen=True)
class Timing:
    routes_s: float
    incidence_s: float
    networkx_s: float


def fresh(topology: Topology) -> Topology:
    """The same machine with nothing worked out yet but its links."""
    again = Topology(topology.graph)
    assert again.links
    return again


def measure(topology: Topology, repeats: int) -> Timing:
    routes_s = incidence_s = math.inf
    ends = topology.accelerators
    pairs = [(a, b) for a in ends for b in ends if a != b]
    for _ in range(repeats):
        again = fresh(topology)
        start = time.perf_counter()
        again.routes()
        middle = time.perf_counter()
        incidence(again, pairs)
        stop = time.perf_counter()
        routes_s = min(routes_s, middle - start)
        incidence_s = min(incidence_s, stop - middle)
    graph = nx.DiGraph(topology.graph)
    for _, _, data in graph.edges(data=True):
        data["cost"] = LINK_COST[data["kind"]]
    chosen = ends[:: max(1, len(ends) // NETWORKX_SOURCES)]
    start = time.perf_counter()
    for source in chosen:
        nx.single_source_dijkstra_path(graph, source, weight="cost")
    networkx_s = (time.perf_counter() - start) * len(ends) / len(chosen)
    return Timing(routes_s, incidence_s, networkx_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small cases, one repeat")
    smoke = parser.parse_args().smoke
    sizes = [64, 128] if smoke else [256, 512, 1024]
    head = (
        f"{'case':24}{'GPUs':>6}{'routes s':>10}{'incidence s':>12}{'networkx s':>11}{'ratio':>8}"
    )
    print(head)
    for name, build in CASES.items():
        seconds = []
        for size in sizes:
            timing = measure(build(size), 1 if smoke else REPEATS)
            seconds.append(timing.routes_s)
            print(
                f"{name:24}{size:6}{timing.routes_s:10.3f}{timing.incidence_s:12.3f}"
                f"{timing.networkx_s:11.2f}{timing.networkx_s / timing.routes_s:8.1f}"
            )
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        print(f"{name:24}routes grow with GPUs to the power {slope:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()

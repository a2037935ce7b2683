"""Small machines, figures of their transfers, and what is found in them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from topocal.measure.patterns import fan_in, fan_out
from topocal.solve.evidence import (
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
)
from topocal.topo.builder import TopologyBuilder
from topocal.topo.flow import Pattern
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"


SIZE = 2.0**28


GB = 1e9


Pair = tuple[str, str]


def box(
    gpus: int = 4, sockets: int = 2, *, peer_access: bool | None = None, **link: object
) -> Topology:
    """Cards spread evenly over sockets that are joined to each other."""
    builder = TopologyBuilder("box")
    builder.peer_access = peer_access
    for k in range(sockets):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        builder.connect(f"switch{k}", f"socket{k}", LinkKind.PCIE)
    for k in range(gpus):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", f"switch{k * sockets // gpus}", LinkKind.PCIE, **link)  # type: ignore[arg-type]
    for a, b in itertools.combinations(range(sockets), 2):
        builder.connect(f"socket{a}", f"socket{b}", LinkKind.SMP)
    return builder.build()


def evenly(topology: Topology, rate: float) -> dict[Pair, float]:
    return dict.fromkeys(itertools.permutations(topology.accelerators, 2), rate * GB)


def measured(pattern: Pattern, total: float) -> Concurrent:
    return Concurrent(pattern=pattern, throughput_Bps=total * GB)


def evidence(
    topology: Topology,
    rates: Mapping[Pair, float],
    *concurrent: Concurrent,
    fitted: Mapping[str, float] | None = None,
    noise: float = 0.01,
) -> Evidence:
    return Evidence(
        topology=topology,
        pair_rates_Bps=rates,
        concurrent=concurrent,
        fitted_Bps=fitted or {},
        noise=noise,
    )


def only(found: list[Finding], kind: FindingKind) -> Finding:
    assert [f.kind for f in found] == [kind]
    return found[0]


# --- time-shared ---------------------------------------------------------------------------


def fan_evidence(total_in: float, total_out: float, noise: float = 0.01) -> Evidence:
    """gpu0 takes in from 10, 20 and 40 GB/s, and sends alike; fans of three both ways."""
    topology = box(4, 1)
    rates = evenly(topology, 50)
    for k, rate in ((1, 10.0), (2, 20.0), (3, 40.0)):
        rates[f"gpu{k}", "gpu0"] = rates["gpu0", f"gpu{k}"] = rate * GB
    peers = ["gpu1", "gpu2", "gpu3"]
    return evidence(
        topology,
        rates,
        measured(fan_in("gpu0", peers, SIZE), total_in),
        measured(fan_out("gpu0", peers, SIZE), total_out),
        noise=noise,
    )

"""A small machine with caps, and what they say of pairs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from topocal.solve.caps import Caps
from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

ROOT = Path(__file__).parents[1]


B70 = ROOT / "examples" / "b70"


GB = 1e9


def small() -> Topology:
    """Two cards under each of two switches that share a duplex, and what links do not show.

    ::

        gpu0 gpu1      gpu2 gpu3     10 GB/s each, each way
         switch0 ------ switch1      8 GB/s, both ways together

    gpu3 serves its senders by turns (0.9); gpu1 sends to gpu0 at 3 GB/s at most.
    """
    build = TopologyBuilder("small")
    for k in range(2):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=10 * GB)
    build.connect("switch0", "switch1", LinkKind.PCIE, nominal_Bps=8 * GB, sharing=Sharing.DUPLEX)
    return build.build().with_resources(
        [
            Resource(id="turns", sharing=Sharing.TIME_SHARED, kappa=0.9),
            Resource(id="path", sharing=Sharing.FATPIPE, nominal_Bps=3 * GB),
        ],
        [
            Use(resource="turns", destinations=("gpu3",)),
            Use(resource="path", sources=("gpu1",), destinations=("gpu0",)),
        ],
    )


def rates(blocks: Any, caps: Caps) -> dict[tuple[int, int], float]:
    """What blocks say of each pair."""
    return {
        (a, b): value / GB
        for senders, receivers, value in blocks
        for a in caps.sets[senders]
        for b in caps.sets[receivers]
        if a != b
    }


def with_digest(document: dict[str, Any]) -> dict[str, Any]:
    """A document whose digest is right whatever stands in it."""
    content = {k: v for k, v in document.items() if k != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return content | {"digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest()}

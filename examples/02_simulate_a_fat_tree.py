"""A fat tree whose spine is half as fast as its leaves: which traffic notices?

Sixteen hosts on four leaf switches, two spines.  Three patterns with their own sizes and starts run
in the fluid simulator (max-min fair shares, from event to event), then again with a spine twice as
fast.  On the command line, `topocal simulate … --set 'leaf0->spine0=2x'`.
"""

from __future__ import annotations

from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow
from topocal.topo.fluid import simulate
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate, format_seconds

GB = 1e9
SIZE = 256 * 2.0**20
HOSTS, LEAVES, SPINES = 16, 4, 2


def fat_tree(spine_Bps: float) -> Topology:
    """Each leaf serves four hosts at 12.5 GB/s and reaches each spine at ``spine_Bps``."""
    build = TopologyBuilder("fat tree")
    for spine in range(SPINES):
        build.node(f"spine{spine}", NodeKind.NET_SWITCH)
    for leaf in range(LEAVES):
        build.node(f"leaf{leaf}", NodeKind.NET_SWITCH)
        for spine in range(SPINES):
            build.connect(f"leaf{leaf}", f"spine{spine}", LinkKind.NET, nominal_Bps=spine_Bps)
    for host in range(HOSTS):
        build.node(f"nic{host}", NodeKind.NIC)
        build.connect(f"nic{host}", f"leaf{host % LEAVES}", LinkKind.NET, nominal_Bps=12.5 * GB)
    return build.build()


def flow(source: int, destination: int, size_bytes: float = SIZE, start_s: float = 0.0) -> Flow:
    """A flow between two hosts."""
    return Flow(
        source=f"nic{source}",
        destination=f"nic{destination}",
        size_bytes=size_bytes,
        start_s=start_s,
    )


PATTERNS = {
    "neighbours under one leaf": [flow(k, (k + LEAVES) % HOSTS) for k in range(HOSTS)],
    "everybody to the next leaf": [flow(k, (k + 1) % HOSTS) for k in range(HOSTS)],
    "seven into one": [flow(k, 0) for k in range(1, 8)],
    "the same, one after another": [flow(k, 0, start_s=0.01 * k) for k in range(1, 8)],
    "large beside small": [flow(1, 0, 4 * SIZE), *(flow(k, k - 1, SIZE / 16) for k in (5, 9, 13))],
}


def main() -> None:
    """Print what each pattern takes, who binds, and what a faster spine would change."""
    slow, fast = fat_tree(12.5 * GB), fat_tree(25 * GB)
    print(f"{'pattern':30} {'time':>9} {'in all':>11}  {'last flow waits for':22} faster spine")
    for name, flows in PATTERNS.items():
        before = simulate(slow, flows, Capacities.of(slow))
        after = simulate(fast, flows, Capacities.of(fast))
        rate = sum(f.size_bytes for f in flows) / before.seconds
        last = int(before.finish_s.argmax())
        print(
            f"{name:30} {format_seconds(before.seconds):>9} {format_rate(rate):>11}  "
            f"{before.bottleneck_of(last) or '':22} {before.seconds / after.seconds:.2f}x"
        )


if __name__ == "__main__":
    main()

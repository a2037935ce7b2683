"""Models of every kind that a report is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from topocal.measure.load import load
from topocal.measure.patterns import fan_in, fan_out, peer
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.fading import Crowd, Fading
from topocal.solve.fit import fit
from topocal.solve.model import FittedResource, Model
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.machines import b70, dgx1, l40s, rail_pod
from topocal.topo.resource import NEAR, LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"


def pairs_of(topology: Topology) -> list[tuple[str, str]]:
    ends = topology.accelerators
    return [(a, b) for a in ends for b in ends if a != b]


def fitted(topology: Topology, *, seed: int, sizes: tuple[float, ...], most: int = 90) -> Model:
    """A model of a machine whose capacities are drawn at random, measured with noise."""
    rng = np.random.default_rng(seed)
    capacities = {
        r.id: (r.nominal_Bps or 2e10) * rng.uniform(0.6, 0.95)
        for r in topology.resources.values()
        if r.sharing is not Sharing.TIME_SHARED
    }
    machine = SimulatedMachine(
        topology=topology,
        capacities=Capacities.of(topology, capacities),
        alpha_s=2e-5,
        noise=0.01,
    )
    ends = topology.accelerators
    pairs = pairs_of(topology)
    chosen = [pairs[k] for k in rng.permutation(len(pairs))[:most]]
    patterns = [peer(a, b, size) for a, b in chosen for size in sizes]
    for k, root in enumerate(ends[:8]):
        peers = [ends[(k + 1 + j) % len(ends)] for j in range(min(4, len(ends) - 1))]
        for size in sizes:
            patterns += [fan_in(root, peers, size), fan_out(root, peers, size)]
    return fit(machine.time(patterns, 3, rng), topology)


def _time_shared() -> Model:
    """The published machine with receivers that take turns, and capacities of every status.

    By hand, so that it does not depend on what the fit makes of the figures.
    """
    rng = np.random.default_rng(5)
    plain = b70()
    engines = [
        Resource(id=f"{end}.receiver.engine", sharing=Sharing.TIME_SHARED, label=f"receiver {end}")
        for end in plain.accelerators
    ]
    near = [
        Resource(id=f"{end}.sender.near", label=f"sender {end} inside its socket")
        for end in plain.accelerators
    ]
    uses = [
        *(Use(resource=e.id, destinations=(e.id.partition(".")[0],)) for e in engines),
        *(Use(resource=n.id, sources=(n.id.partition(".")[0],), path_classes=NEAR) for n in near),
    ]
    topology = plain.with_resources([*engines, *near], uses)
    statuses = [*Status, *[Status.PINNED] * 12]
    table = {}
    for k, r in enumerate(topology.resources.values()):
        timed = r.sharing is Sharing.TIME_SHARED
        status = Status.PINNED if timed and k % 2 else statuses[k % len(statuses)]
        status = Status.BOUNDED if status is Status.SERIES else status
        rate = float(rng.uniform(7e9, 6e10))
        known = not timed and status is not Status.UNKNOWN
        table[r.id] = FittedResource(
            id=r.id,
            label=r.name,
            sharing=r.sharing,
            capacity_Bps=rate if known else None,
            low_Bps=rate * (0.98 if status is Status.PINNED else 0.8) if known else None,
            high_Bps=rate * 1.02 if known and status is Status.PINNED else None,
            kappa=0.9775 if timed else None,
            error=float(rng.uniform(0.005, 0.05)) if status is Status.PINNED else None,
            status=status,
        )
    # One that stands for another where the same flows load both.
    for follower, leader in (
        ("gpu5->switch2", "switch2->socket1"),
        ("gpu4->switch2", "gpu4.sender.near"),
    ):
        table[follower] = replace(
            table[follower], status=Status.SERIES, error=None, confounded_with=(leader,)
        )
    of_figures = fit(load([B70 / "pairs.csv", B70 / "fans.csv"]), plain)
    return replace(
        of_figures,
        topology=topology,
        resources=table,
        undecided=(),
        undecided_endpoints=(),
        noise=0.009,
    )


def _fading(by: Crowd) -> Model:
    """The published machine, as if everything took longer with every further flow."""
    model = _time_shared()
    fading = Fading(loss=0.013, error=0.002, by=by, most_flows=4, advantage=9.0)
    table = {
        r.id: replace(r, crowding=0.3 * k if r.status is Status.PINNED else None)
        for k, r in enumerate(model.resources.values())
    }
    return replace(model, fading=fading, resources=table, undecided=(1,))


def _long_names() -> Model:
    """Two hosts with names that no column holds, and cards named by their address."""
    build = TopologyBuilder("a-machine-with-a-name-that-nobody-would-want-to-type-twice-in-a-day")
    build.node("leaf-switch-of-the-second-row-of-racks", NodeKind.NET_SWITCH)
    for host in ("first-of-two-compute-nodes.cluster.example.org", "second.cluster.example.org"):
        build.node(f"{host}/socket0", NodeKind.SOCKET, host=host)
        for k in range(3):
            card = f"{host}/pcie:0000:{k}a:00.0-accelerator-card-{k}"
            build.node(card, NodeKind.GPU, host=host)
            build.connect(card, f"{host}/socket0", LinkKind.PCIE, nominal_Bps=2.5e10)
        build.node(f"{host}/nic0", NodeKind.NIC, host=host)
        build.connect(f"{host}/nic0", f"{host}/socket0", LinkKind.PCIE, nominal_Bps=2.5e10)
        switch = "leaf-switch-of-the-second-row-of-racks"
        build.connect(f"{host}/nic0", switch, LinkKind.NET, nominal_Bps=2.5e10)
    return fitted(build.build(), seed=6, sizes=(2.0**28,))


MODELS: dict[str, Callable[[], Model]] = {
    "time-shared": _time_shared,
    "published": lambda: fit(load([B70 / "pairs.csv", B70 / "fans.csv"]), b70()),
    "groups": lambda: fit(load([B70 / "pairs.csv"])),
    "tree": lambda: fitted(l40s(), seed=1, sizes=(2.0**16, 2.0**20, 2.0**24, 2.0**28)),
    "mesh": lambda: fitted(dgx1(), seed=2, sizes=(2.0**28,)),
    "pod": lambda: fitted(rail_pod(2), seed=3, sizes=(2.0**28,)),
    "long names": lambda: _long_names(),
    "fading": lambda: _fading(Crowd.RESOURCE),
    "fading by pattern": lambda: _fading(Crowd.PATTERN),
}

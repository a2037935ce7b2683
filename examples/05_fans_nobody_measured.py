"""Calibrate a machine whose truth is known, then predict a hundred fans that were never measured.

The truth: eight GPUs on four switches and two sockets, receivers that serve one sender at a time,
1 % noise.  The loop plans, measures and fits until nothing is open.  Beside the model: what two
rules of thumb on the slowest pair say.
"""

from __future__ import annotations

import numpy as np

import topocal as tc
from topocal.measure.design import design
from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.adaptive import calibrate
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Pattern
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

SIZE = 2.0**28
GB = 1e9


def box() -> Topology:
    """The machine as its topology files show it; capacities that nobody knows yet are nominal."""
    build = TopologyBuilder("box")
    for socket in range(2):
        build.node(f"socket{socket}", NodeKind.SOCKET)
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=32 * GB)
    for switch in range(4):
        build.node(f"switch{switch}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{switch}", f"socket{switch // 2}", LinkKind.PCIE, nominal_Bps=55 * GB)
    for gpu in range(8):
        build.node(f"gpu{gpu}", NodeKind.GPU)
        build.connect(f"gpu{gpu}", f"switch{gpu // 2}", LinkKind.PCIE, nominal_Bps=28 * GB)
    return build.build()


def truth(machine: Topology) -> SimulatedMachine:
    """What it is really like: slower links here and there, and receivers that take turns."""
    engines = [Resource(id=f"engine{k}", sharing=Sharing.TIME_SHARED, kappa=0.95) for k in range(8)]
    uses = [Use(resource=f"engine{k}", destinations=(f"gpu{k}",)) for k in range(8)]
    real = machine.with_resources(engines, uses)
    rng = np.random.default_rng(3)
    rates = {
        name: float(resource.nominal_Bps * rng.uniform(0.7, 0.95))
        for name, resource in machine.resources.items()
        if resource.nominal_Bps is not None
    }
    return SimulatedMachine(topology=real, capacities=Capacities.of(real, rates), noise=0.01)


def fans(rng: np.random.Generator, count: int) -> list[Pattern]:
    """Random fans of two to seven senders."""
    found = []
    for _ in range(count):
        root, *others = rng.permutation(8)
        senders = sorted(others[: rng.integers(2, 8)])
        found.append(tc.fan_in(f"gpu{root}", [f"gpu{k}" for k in senders], SIZE))
    return found


def main() -> None:
    """Calibrate, predict, compare."""
    machine = box()
    real = truth(machine)
    rng = np.random.default_rng(4)

    def measure(plan: Plan) -> Measurements:
        return real.run(plan, rng)

    *_, last = calibrate(machine, measure, sizes_bytes=[SIZE], repeats=3)
    measured = {sample.name for sample in last.measurements.samples}
    unseen = [fan for fan in fans(rng, 140) if fan.name not in measured][:100]
    print(
        f"measured {len(measured)} patterns (a first plan of {len(design(machine).patterns)}); "
        f"{last.model.sharing}"
    )
    true = real.true_seconds(unseen)
    ours = np.array([p.seconds for p in tc.predict(last.model, unseen)])
    slowest = np.array(
        [
            len(fan.flows)
            * max(real.true_seconds([tc.peer(*p).scaled(SIZE)])[0] for p in fan.pairs)
            for fan in unseen
        ]
    )
    alone = slowest / np.array([len(fan.flows) for fan in unseen])
    for name, guess in (
        ("topocal", ours),
        ("as long as its slowest pair alone", alone),
        ("one after another, all like its slowest pair", slowest),
    ):
        error = np.abs(guess / true - 1)
        print(f"{name:46} off by {np.median(error):6.1%} in the middle, {error.max():6.1%} at most")


if __name__ == "__main__":
    main()

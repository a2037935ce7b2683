"""What to measure so that every shared resource shows, and measuring it.

By default a model answers in place of a machine, with 1 % noise.  With `--spawn`, four processes
send real messages to each other on this host (gloo; needs torch: `pip install 'topocal[measure]'`).
On the command line: `topocal plan`, `topocal measure`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import topocal as tc
from topocal.measure.design import design
from topocal.measure.exhaustive import sweep_size
from topocal.measure.plan import Plan, write_plan
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate, format_seconds


def box() -> Topology:
    """Four GPUs on two PCIe switches of one socket."""
    build = TopologyBuilder("box")
    build.node("socket0", NodeKind.SOCKET)
    for switch in range(2):
        build.node(f"switch{switch}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{switch}", "socket0", LinkKind.PCIE, nominal_Bps=26e9)
        for gpu in (2 * switch, 2 * switch + 1):
            build.node(f"gpu{gpu}", NodeKind.GPU)
            build.connect(f"gpu{gpu}", f"switch{switch}", LinkKind.PCIE, nominal_Bps=25e9)
    return build.build()


def simulated(machine: Topology, plan: Plan) -> Measurements:
    """Timings of a model with the machine's nominal capacities."""
    truth = SimulatedMachine(
        topology=machine, capacities=Capacities.of(machine), alpha_s=2e-5, noise=0.01
    )
    return truth.run(plan, np.random.default_rng(1))


def spawned(plan: Plan) -> Measurements:
    """Timings of real messages between processes of this host."""
    with tempfile.TemporaryDirectory() as folder:
        write_plan(plan, Path(folder, "plan.json"))
        command = "-m topocal measure plan.json -o calibration.json --spawn 4 --json"
        subprocess.run(
            [sys.executable, *command.split()], cwd=folder, check=True, stdout=subprocess.PIPE
        )
        return tc.load(Path(folder, "calibration.json"))


def main() -> None:
    """Plan, measure, and print what each pattern reached."""
    machine = box()
    plan = design(machine, sizes_bytes=[2.0**20, 2.0**23], repeats=3)
    print(
        f"{len(plan.patterns)} patterns in {len(plan.rounds)} rounds; a sweep has "
        f"{sweep_size(len(plan.endpoints)):,}. Expected: {format_seconds(plan.seconds)}."
    )
    purposes = Counter(str(reason.purpose) for p in plan.patterns for reason in p.reasons)
    print("for: " + ", ".join(f"{n} x {what}" for what, n in purposes.most_common()) + "\n")
    measured = spawned(plan) if "--spawn" in sys.argv else simulated(machine, plan)
    best: dict[str, float] = {}
    for sample in measured.samples:
        if sample.set_aside is None:
            best[sample.name] = max(best.get(sample.name, 0.0), sample.throughput_Bps)
    for planned in plan.patterns[:8]:
        about = planned.reasons[0]
        print(
            f"{planned.name:28} {format_rate(best[planned.name]):>10}   "
            f"{about.purpose}: {about.about}"
        )
    print(f"and {max(0, len(plan.patterns) - 8)} more; {len(measured.samples)} timings in all")


if __name__ == "__main__":
    main()

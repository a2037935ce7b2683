"""What to measure so that every shared resource shows, and measuring it.

By default a model answers in place of a machine, with 1 % noise.  With `--spawn`, four processes
send real messages to each other on this host (gloo; needs torch: `pip install 'topocal[measure]'`).
On the command line: `topocal plan`, `topocal measure`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import topocal as tc
from topocal.measure.design import design
from topocal.measure.exhaustive import sweep_size
from topocal.measure.plan import Plan, Purpose, write_plan
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate, format_seconds

WORDS = {
    Purpose.BOTTLENECK: "pins {}",
    Purpose.FAN_IN_SHARING: "does {} receive at once or by turns?",
    Purpose.FAN_OUT_SHARING: "does {} send at once or by turns?",
    Purpose.ALONE: "what {} gets alone",
    Purpose.BOTH_WAYS: "are both directions of {} independent?",
    Purpose.CROWD: "do many flows get less than few?",
}
"""What each kind of pattern is for."""


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
        f"{len(plan.patterns)} patterns in {len(plan.rounds)} rounds show every resource; a sweep "
        f"of pairs and fans has {sweep_size(len(plan.endpoints)):,}. "
        f"Expected: {format_seconds(plan.seconds)}."
    )
    measured = spawned(plan) if "--spawn" in sys.argv else simulated(machine, plan)
    best: dict[str, float] = {}
    for sample in measured.samples:
        if sample.set_aside is None:
            best[sample.name] = max(best.get(sample.name, 0.0), sample.throughput_Bps)
    print()
    shown: dict[str, str] = {}
    for planned in plan.patterns:
        for reason in planned.reasons:
            shown.setdefault(f"{reason.purpose} {len(planned.pattern.flows)}", planned.name)
    for planned in plan.patterns:
        if planned.name in shown.values():
            why = [WORDS[r.purpose].format(r.about) for r in planned.reasons]
            more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
            print(f"{planned.name:24} {format_rate(best[planned.name]):>10}   {why[0]}{more}")
    print(
        f"\nand {len(plan.patterns) - len(set(shown.values()))} patterns of the same kinds; "
        f"{len(measured.samples)} timings in all"
    )


if __name__ == "__main__":
    main()

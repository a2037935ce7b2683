"""A long run in one process: is its memory flat, and does it leave anything behind?

Again and again: simulated measurements, a fit, predictions, caps, a price, a report, a machine
discovered from the system; every few rounds real messages between spawned processes on gloo,
where torch is installed.  What is counted after each round: resident memory, open files and
sockets, threads, children, mounts and namespaces of the process, files in its temporary
folder.  The exit status is 1 when the second half of the run shows a trend.

    python benchmarks/soak.py --minutes 60
    python benchmarks/soak.py --smoke      a few rounds, under 50 s
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import topocal as tc
from topocal.measure.calibration import read_calibration, write_calibration
from topocal.measure.design import design
from topocal.measure.plan import write_plan
from topocal.measure.simulated import SimulatedMachine
from topocal.report.page import build_report, render_report
from topocal.solve.caps_document import read_caps, write_caps
from topocal.topo.capacities import Capacities
from topocal.topo.discover import discover
from topocal.topo.files import write_atomically
from topocal.topo.topology import Topology

MOST_MB_PER_HOUR: Final = 20.0
"""Growth that counts as a trend, over what the fit of a line itself is unsure of."""

REAL_EVERY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the process holds."""

    seconds: float
    resident_MB: float
    open_files: int
    sockets: int
    threads: int
    children: int
    mounts: int
    namespaces: tuple[str, ...]
    left_files: int


def _state(began: float, folder: Path) -> State:
    gc.collect()
    me = Path("/proc/self")
    opened = []
    for entry in (me / "fd").iterdir():
        with contextlib.suppress(OSError):
            opened.append(str(entry.readlink()))
    children = [
        child
        for task in (me / "task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    pages = int((me / "statm").read_text().split()[1])
    return State(
        seconds=time.monotonic() - began,
        resident_MB=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        open_files=len(opened),
        sockets=sum(name.startswith("socket:") for name in opened),
        threads=threading.active_count(),
        children=len(children),
        mounts=len((me / "mountinfo").read_text().splitlines()),
        namespaces=tuple(sorted(str(p.readlink()) for p in (me / "ns").iterdir())),
        left_files=sum(1 for _ in folder.rglob("*")),
    )


def _round(topology: Topology, folder: Path, seed: int) -> None:
    """Everything once, from files to files."""
    rng = np.random.default_rng(seed)
    truth = SimulatedMachine(
        topology=topology,
        capacities=Capacities.of(
            topology, {name: float(rng.uniform(5e9, 3e10)) for name in _bytes_shared(topology)}
        ),
        noise=0.02,
        stragglers=0.02,
        alpha_s=2e-5,
        faults=0.01,
    )
    write_calibration(truth.run(design(topology, sizes_bytes=[2.0**26]), rng), folder / "c.json")
    model = tc.fit(read_calibration(folder / "c.json"), topology)
    tc.write_model(model, folder / "m.json")
    model = tc.read_model(folder / "m.json")
    ends = model.topology.accelerators
    tc.predict(model, [tc.relay(ends, 1, 2.0**26), tc.fan_in(ends[0], ends[1:], 2.0**26)])
    write_caps(model.caps(), folder / "caps.json")
    tc.price(read_caps(folder / "caps.json"), [(ends[0], ends[1], 2.0**20)])
    page = render_report(build_report(model, read_calibration(folder / "c.json")))
    write_atomically(folder / "report.html", page.encode())
    with contextlib.suppress(tc.TopocalError):
        discover()
    with contextlib.suppress(tc.TopocalError):
        tc.read_model(folder / "c.json")


def _bytes_shared(topology: Topology) -> list[str]:
    return [r.id for r in topology.resources.values() if r.sharing != "time-shared"]


def _real(folder: Path) -> None:
    """Two processes that exchange real messages on gloo."""
    from topocal.commands.measure import measure

    topology = tc.machines.l40s()
    ends = topology.accelerators[:2]
    plan = design(topology, endpoints=ends, sizes_bytes=[2.0**16], repeats=2)
    write_plan(plan, folder / "plan.json")
    with contextlib.redirect_stdout(io.StringIO()):
        measure(
            folder / "plan.json",
            folder / "real.json",
            spawn=2,
            backend="gloo",
            shortest="1ms",
            as_json=True,
        )
    (folder / "real.json").unlink()


def _trend(states: list[State]) -> tuple[float, float]:
    """Growth of memory in MB per hour over the second half, and its standard error."""
    half = states[len(states) // 2 :]
    if len(half) < 4:
        return 0.0, float("inf")
    hours = np.array([s.seconds for s in half]) / 3600
    memory = np.array([s.resident_MB for s in half])
    (slope, _), covariance = np.polyfit(hours, memory, 1, cov=True)
    return float(slope), float(np.sqrt(covariance[0, 0]))


def main() -> int:
    """Run, print what is held now and then, and judge the second half."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    minutes = 0.5 if given.smoke else given.minutes
    real = importlib.util.find_spec("torch") is not None
    began = time.monotonic()
    states: list[State] = []
    measured = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tempfile.tempdir = made
        topology = tc.machines.b70()
        print("minutes  rounds  resident MB  files  sockets  threads  children  left files")
        while time.monotonic() - began < 60 * minutes or len(states) < 2:
            _round(topology, folder, len(states))
            if real and len(states) % REAL_EVERY == 0:
                _real(folder)
                measured += 1
            states.append(_state(began, folder))
            now = states[-1]
            if len(states) in (1, 2, 5) or len(states) % 20 == 0:
                print(
                    f"{now.seconds / 60:7.1f} {len(states):7} {now.resident_MB:12.1f} "
                    f"{now.open_files:6} {now.sockets:8} {now.threads:8} {now.children:9} "
                    f"{now.left_files:11}",
                    flush=True,
                )
    slope, error = _trend(states)
    print(f"{len(states)} rounds, {measured} of them with real messages, ", end="")
    print(f"{states[-1].seconds / 60:.1f} minutes")
    print(f"second half: {slope:+.1f} ± {error:.1f} MB per hour")
    first, last = states[min(len(states) // 2, REAL_EVERY)], states[-1]
    grown = [
        f"{name} {getattr(first, name)} -> {getattr(last, name)}"
        for name in ("open_files", "sockets", "threads", "children", "mounts", "left_files")
        if getattr(last, name) > getattr(first, name)
    ]
    if first.namespaces != last.namespaces:
        grown.append("namespaces")
    print("left behind: " + (", ".join(grown) or "nothing"))
    return 1 if grown or slope - 2 * error > MOST_MB_PER_HOUR else 0


if __name__ == "__main__":
    sys.exit(main())

"""How time and memory grow with the machine: every stage from a topology to a report.

A cluster of eight-card nodes behind a fat tree; what its designed plan asks for is timed by
simulation, with noise, until the number of scenarios is reached.  Each stage runs in a process
of its own, from files to files, so that time and peak memory are its own (interpreter, imports
and reading its input included); with ``--smoke`` all stages of a size share one, and the first
to import something has it counted.  Exponents are fitted to log time and log memory.

    python benchmarks/scale.py              8 … 1,024 endpoints, up to 100,000 scenarios
    python benchmarks/scale.py --smoke      8 and 32 endpoints, under 50 s
    python benchmarks/scale.py --sizes 256 --scenarios 20000
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

STAGES: Final = (
    "topology", "plan", "measure", "fit", "predict", "explain", "caps", "report",
)  # fmt: skip
SIZES: Final = (8, 32, 128, 512, 1024)
MOST_SCENARIOS: Final = 100_000
SCENARIOS_EACH: Final = 100
"""Scenarios for each endpoint: 1,024 endpoints have the most."""

LIMIT_S: Final = 900
"""Seconds after which a stage is given up."""

LIMIT_MB: Final = 24_000


def _topology(folder: Path, endpoints: int, _: int) -> str:
    from topocal.topo.fabric import fat_tree
    from topocal.topo.io import write_topology
    from topocal.topo.machines.nvidia import dgx_a100

    nodes = max(1, endpoints // 8)
    machine = (
        dgx_a100() if nodes == 1 else fat_tree([dgx_a100()] * nodes, nodes_per_leaf=2, spines=4)
    )
    write_topology(machine, folder / "topology.json")
    return f"{len(machine.accelerators)} accelerators, {len(machine.resources)} resources"


def _plan(folder: Path, _: int, __: int) -> str:
    from topocal.measure.design import design
    from topocal.measure.plan import write_plan
    from topocal.topo.io import read_topology

    topology = read_topology(folder / "topology.json")
    plan = design(topology, sizes_bytes=[2.0**26], repeats=3)
    write_plan(plan, folder / "plan.json")
    return f"{len(plan.patterns)} patterns"


def _measure(folder: Path, endpoints: int, scenarios: int) -> str:
    """What the plan asks for, then pairs and small fans at random, each timed three times."""
    from topocal.measure.calibration import write_calibration
    from topocal.measure.patterns import bundle, fan_in, fan_out
    from topocal.measure.plan import read_plan
    from topocal.measure.samples import Measurements
    from topocal.measure.simulated import SimulatedMachine
    from topocal.topo.capacities import Capacities
    from topocal.topo.io import read_topology
    from topocal.topo.resource import Sharing

    topology = read_topology(folder / "topology.json")
    plan = read_plan(folder / "plan.json")
    rng = np.random.default_rng(endpoints)
    capacities = {
        r.id: (r.nominal_Bps or 2e11) * float(rng.uniform(0.6, 0.95))
        for r in topology.resources.values()
        if r.sharing is not Sharing.TIME_SHARED
    }
    truth = SimulatedMachine(
        topology=topology, capacities=Capacities.of(topology, capacities), noise=0.02, alpha_s=2e-5
    )
    size = plan.sizes_bytes[-1]
    patterns = [p.pattern.scaled(size) for p in plan.patterns]
    names = {p.name for p in patterns}
    ends = topology.accelerators
    while len(patterns) < scenarios:
        many = int(rng.choice([1, 1, 2, 3, 4]))
        one, *rest = (ends[k] for k in rng.choice(len(ends), many + 1, replace=False))
        kind = int(rng.integers(2))
        made = (fan_in, fan_out)[kind](one, rest) if many > 1 else bundle([(one, rest[0])])
        if made.name not in names or len(names) > len(ends) * (len(ends) - 1) // 2:
            names.add(made.name)
            patterns.append(made.scaled(size))
    found: Measurements = truth.time(patterns, 3, rng)
    write_calibration(found, folder / "calibration.json")
    return f"{len(patterns)} scenarios, {len(found.samples)} samples"


def _fit(folder: Path, _: int, __: int) -> str:
    from topocal.measure.load import load
    from topocal.solve.fit import fit
    from topocal.solve.model import write_model
    from topocal.topo.io import read_topology

    measured = load(folder / "calibration.json")
    model = fit(measured, read_topology(folder / "topology.json"))
    write_model(model, folder / "model.json")
    pinned = sum(r.status == "pinned" for r in model.resources.values())
    return f"{pinned} of {len(model.resources)} pinned"


def _predict(folder: Path, _: int, __: int) -> str:
    from topocal.measure.patterns import fan_in, relay
    from topocal.solve.model import read_model
    from topocal.solve.predict import predict

    model = read_model(folder / "model.json")
    ends = model.topology.accelerators
    wanted = [relay(ends, 1, 2.0**26), fan_in(ends[0], ends[1:], 2.0**20)]
    rng = np.random.default_rng(1)
    for _repeat in range(98):
        one, *rest = (ends[k] for k in rng.choice(len(ends), min(len(ends), 8), replace=False))
        wanted.append(fan_in(one, rest, 2.0**26))
    return f"{len(predict(model, wanted))} patterns"


def _explain(folder: Path, _: int, __: int) -> str:
    from topocal.measure.load import load
    from topocal.solve.explain import explain
    from topocal.topo.io import read_topology

    found = explain(load(folder / "calibration.json"), read_topology(folder / "topology.json"))
    return f"{len(found.findings)} findings"


def _caps(folder: Path, _: int, __: int) -> str:
    from topocal.solve.caps_document import write_caps
    from topocal.solve.model import read_model

    caps = read_model(folder / "model.json").caps()
    write_caps(caps, folder / "caps.json")
    return f"{len(caps.resources)} resources"


def _report(folder: Path, _: int, __: int) -> str:
    from topocal.measure.load import load
    from topocal.report.page import build_report, render_report
    from topocal.solve.model import read_model

    found = build_report(read_model(folder / "model.json"), load(folder / "calibration.json"))
    content = render_report(found).encode()
    (folder / "report.html").write_bytes(content)
    return "self-contained page"


_RUN: Final[dict[str, Callable[[Path, int, int], str]]] = {
    "topology": _topology,
    "plan": _plan,
    "measure": _measure,
    "fit": _fit,
    "predict": _predict,
    "explain": _explain,
    "caps": _caps,
    "report": _report,
}
_WRITES: Final = {
    "topology": "topology.json",
    "plan": "plan.json",
    "measure": "calibration.json",
    "fit": "model.json",
    "caps": "caps.json",
    "report": "report.html",
}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _inside(stages: Sequence[str], folder: Path, endpoints: int, scenarios: int) -> None:
    """Stages one after another; the figures of each are a line of standard output."""
    cpu_s = 0.0  # What the interpreter took to start counts, too.
    for stage in stages:
        began = time.perf_counter()
        said = _RUN[stage](folder, endpoints, scenarios)
        now_s = _cpu_s()
        figures = {
            "wall_s": time.perf_counter() - began,
            "cpu_s": now_s - cpu_s,
            "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "said": said,
        }
        cpu_s = now_s
        print(json.dumps(figures), flush=True)


def _run(
    stages: Sequence[str], folder: Path, endpoints: int, scenarios: int
) -> list[dict[str, float | str]]:
    """Figures of stages that share a process; ``problem`` says why there are none."""
    command = [sys.executable, __file__, "--inside", str(folder), "--stages", *stages]
    problem = ""
    with subprocess.Popen(
        [*command, "--sizes", str(endpoints), "--scenarios", str(scenarios)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=LIMIT_S * len(stages))
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            problem = f"given up after {LIMIT_S * len(stages)} s"
    if process.returncode and not problem:
        last = errors.strip().splitlines()[-1:] or ["no reason given"]
        problem = f"exit status {process.returncode}: {last[0][:120]}"
    found: list[dict[str, float | str]] = [json.loads(line) for line in out.splitlines()]
    for stage, figures in zip(stages, found, strict=False):
        path = folder / _WRITES.get(stage, "")
        figures["file_MB"] = path.stat().st_size / 1e6 if path.is_file() else 0.0
    return [*found, *({"problem": problem} for _ in stages[len(found) :])]


def _figures(
    stages: Sequence[str], folder: Path, endpoints: int, scenarios: int, together: bool
) -> Iterator[tuple[str, dict[str, float | str]]]:
    """Each stage with its figures, as they come."""
    for shared in [stages] if together else [[stage] for stage in stages]:
        yield from zip(shared, _run(shared, folder, endpoints, scenarios), strict=True)


def _exponent(sizes: list[int], values: list[float]) -> str:
    """Slope of log value against log size over the larger half of the sizes."""
    if len(sizes) < 2:
        return ""
    some = slice(-max(2, (len(sizes) + 1) // 2), None)
    x = np.log(np.array(sizes[some], dtype=float))
    y = np.log(np.maximum(values[some], 1e-3))
    return f"{np.polyfit(x, y, 1)[0]:.2f}"


def main() -> int:
    """Print a line for each stage and size, then the exponents."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--scenarios", type=int, default=None, help="default: 100 per endpoint")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--folder", type=Path, default=None, help="keep the files here")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        _inside(given.stages, given.inside, given.sizes[0], given.scenarios)
        return 0
    sizes = [8, 32] if given.smoke else given.sizes
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"{'endpoints':>9} {'stage':9} {'CPU s':>8} {'wall s':>8} {'peak MB':>8} {'file MB':>8}")
    figures: dict[str, list[tuple[int, float, float]]] = {s: [] for s in given.stages}
    bad = 0
    for endpoints in sizes:
        scenarios = given.scenarios or min(MOST_SCENARIOS, SCENARIOS_EACH * endpoints)
        if given.smoke:
            scenarios = 20 * endpoints
        with tempfile.TemporaryDirectory() as made:
            folder = given.folder or Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            for stage, found in _figures(given.stages, folder, endpoints, scenarios, given.smoke):
                if "problem" in found:
                    print(f"{endpoints:9} {stage:9} {found['problem']}", flush=True)
                    bad += 1
                    continue
                cpu, wall, peak, size = (
                    float(found[k]) for k in ("cpu_s", "wall_s", "peak_MB", "file_MB")
                )
                figures[stage].append((endpoints, cpu, peak))
                print(
                    f"{endpoints:9} {stage:9} {cpu:8.1f} {wall:8.1f} {peak:8.0f} {size:8.2f}"
                    f"  {found['said']}",
                    flush=True,
                )
    print("\nexponents over the larger sizes (CPU time, peak memory)")
    for stage, rows in figures.items():
        sizes_run = [n for n, _, _ in rows]
        time_exponent = _exponent(sizes_run, [cpu for _, cpu, _ in rows])
        print(f"  {stage:9} {time_exponent:>6} {_exponent(sizes_run, [p for *_, p in rows]):>6}")
    over = [
        f"{stage} at {n}"
        for stage, rows in figures.items()
        for n, _, peak in rows
        if peak > LIMIT_MB
    ]
    print(f"beyond {LIMIT_MB / 1000:.0f} GB: {', '.join(over) or 'nothing'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

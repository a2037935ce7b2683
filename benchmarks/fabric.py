"""What the adaptive plan buys against an exhaustive sweep, with real messages.

Both are measured on one emulated fabric, one after the other, at the same sizes and repeats;
then patterns that neither has measured.  The truth is known: errors of capacities are against
it, errors of predictions against what was measured.

    python benchmarks/fabric.py            eight endpoints like the B70's, about five minutes
    python benchmarks/fabric.py --smoke    four of them, under 50 s

Needs torch, iproute2 and namespaces (docs/fabric.md), and a machine that does little else.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from topocal.calibration import Calibration
from topocal.fabrics import SIZES_BYTES, find_shape, on_fabric, plan_of
from topocal.measure.calibration import read_calibration, write_calibration
from topocal.measure.exhaustive import exhaustive
from topocal.measure.fabric.shape import Shape
from topocal.measure.machine import Machine
from topocal.measure.patterns import bundle, fan_in, fan_out
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.topo.flow import Pattern

REPEATS: Final = 2
ROUNDS: Final = 4
HELD_OUT_BYTES: Final = 2.0**21
SHARE: Final = 0.5
"""Of a sweep's patterns at eight endpoints, the most that the adaptive plan may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one way of measuring came to."""

    patterns: int
    seconds: float
    capacities: list[float]
    predictions: list[float]
    unknown: int


def held_out(endpoints: Sequence[str], count: int, rng: np.random.Generator) -> list[Pattern]:
    """Fans of any root and width, and bundles of pairs, as an application may have them."""
    found: dict[str, Pattern] = {}
    n = len(endpoints)
    while len(found) < count:
        order = [str(e) for e in rng.permutation(endpoints)]
        width = int(rng.integers(2, n))
        match int(rng.integers(3)):
            case 0:
                made = fan_in(order[0], order[1 : 1 + width])
            case 1:
                made = fan_out(order[0], order[1 : 1 + width])
            case _:
                half = n // 2
                made = bundle(list(zip(order[:half], order[half:], strict=False)))
        found[made.name] = made
    return list(found.values())


def measure(shape: Shape, patterns: Sequence[Pattern], folder: Path) -> None:
    """Adaptive, exhaustive, held out; samples and seconds go into the folder."""

    def work(machine: Machine) -> None:
        seconds = {}
        calibration = Calibration(
            topology=shape.topology,
            endpoints=shape.blueprint.endpoints,
            sizes_bytes=SIZES_BYTES,
            repeats=REPEATS,
            rounds=ROUNDS,
            model=folder / "model.json",
            samples=folder / "adaptive.json",
        )
        begin = time.monotonic()
        calibration.run(machine, lambda text: print(f"adaptive, {text}", flush=True))
        seconds["adaptive"] = time.monotonic() - begin
        begin = time.monotonic()
        sweep = exhaustive(
            shape.topology,
            endpoints=shape.blueprint.endpoints,
            sizes_bytes=SIZES_BYTES,
            repeats=REPEATS,
        )
        write_calibration(machine.run(sweep), folder / "exhaustive.json")
        seconds["exhaustive"] = time.monotonic() - begin
        print(f"exhaustive: {len(sweep.patterns)} patterns", flush=True)
        plan = plan_of(shape, patterns, sizes_bytes=[HELD_OUT_BYTES], repeats=3)
        write_calibration(machine.run(plan), folder / "held-out.json")
        (folder / "seconds.json").write_text(json.dumps(seconds))

    on_fabric(shape, work)


def judge(
    shape: Shape, model: Model, seen: Measurements, new: Sequence[Sample], seconds: float
) -> Outcome:
    """Errors against the truth, and against what neither has measured."""
    truth = shape.visible_Bps
    known = {
        name: r.capacity_Bps
        for name, r in model.resources.items()
        if name in truth and r.capacity_Bps and r.status in ("pinned", "confounded", "series")
    }
    measured = {frozenset(x.pattern.pairs) for x in seen.samples}
    times: dict[frozenset[tuple[str, str]], list[float]] = {}
    patterns = {}
    for sample in new:
        key = frozenset(sample.pattern.pairs)
        times.setdefault(key, []).append(sample.seconds)
        patterns[key] = sample.pattern
    predicted = predict(model, list(patterns.values()))
    return Outcome(
        patterns=len(measured),
        seconds=seconds,
        capacities=[abs(rate / truth[name] - 1) for name, rate in known.items()],
        predictions=[
            abs(p.seconds / median(times[key]) - 1)
            for key, p in zip(patterns, predicted, strict=True)
        ],
        unknown=len(truth) - len(known),
    )


def show(name: str, found: Outcome) -> None:
    """One row of the table."""
    print(
        f"{name:12}{found.patterns:9}{found.seconds:9.1f}{found.unknown:9}"
        f"{median(found.capacities):9.2%}{max(found.capacities):8.2%}"
        f"{median(found.predictions):10.2%}{np.quantile(found.predictions, 0.9):8.2%}"
        f"{max(found.predictions):8.2%}"
    )


def main() -> None:
    """Print the table; exit status 1 when the adaptive plan takes more than its share."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="four endpoints, under 50 s")
    parser.add_argument("--seed", type=int, default=7, help="of truth and held-out patterns")
    arguments = parser.parse_args()
    shape = find_shape("b70", endpoints="0,1,4,5" if arguments.smoke else None, seed=arguments.seed)
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores, load {load:.1f} before this; {len(shape.visible_Bps)} resources"
    )
    rng = np.random.default_rng(arguments.seed)
    patterns = held_out(shape.blueprint.endpoints, 6 if arguments.smoke else 30, rng)
    with tempfile.TemporaryDirectory(prefix="topocal-") as name:
        folder = Path(name)
        measure(shape, patterns, folder)
        seconds = json.loads((folder / "seconds.json").read_text())
        seen = {way: read_calibration(folder / f"{way}.json") for way in seconds}
        known = {frozenset(s.pattern.pairs) for m in seen.values() for s in m.samples}
        new = [
            sample
            for sample in read_calibration(folder / "held-out.json").samples
            if frozenset(sample.pattern.pairs) not in known
        ]
        found = {
            way: judge(shape, fit(m, shape.topology), m, new, seconds[way])
            for way, m in seen.items()
        }
    count = len(found["adaptive"].predictions)
    print(f"\n{'':39}capacities        {count} patterns that neither measured")
    print(
        f"{'':12}{'patterns':>9}{'seconds':>9}{'unknown':>9}{'median':>9}{'worst':>8}"
        f"{'median':>10}{'p90':>8}{'worst':>8}"
    )
    for way, outcome in found.items():
        show(way, outcome)
    share = found["adaptive"].patterns / found["exhaustive"].patterns
    print(
        f"\nadaptive takes {share:.2f} of the sweep's patterns (at most {SHARE} at eight endpoints)"
    )
    raise SystemExit(0 if arguments.smoke or share <= SHARE else 1)


if __name__ == "__main__":
    main()

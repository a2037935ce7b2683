"""Seconds to write, load and boil down a hundred thousand raw timings.

Run as ``python benchmarks/samples.py`` or with ``--smoke`` (a few seconds).  Beside each
load stands what the standard library takes to parse the same text alone, in the same
run; that ratio is the result, seconds belong to the machine they were taken on.  The
best of the repeats counts, in processor time, as other programs may run beside it.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from topocal.measure.calibration import decode_calibration, encode_calibration
from topocal.measure.patterns import fan_in
from topocal.measure.samples import Measurements, Run, Sample
from topocal.solve.scenarios import build_scenarios
from topocal.topo.flow import Pattern

ENDPOINTS = 64
WIDTH = 4
SMALLEST_BYTES = 4096.0
REPEATS = 3
SEED = 20261103

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """So many fans, each at so many sizes, so often; with each flow's finish or without."""

    name: str
    fans: int
    sizes: int
    repeats: int
    finishes: bool


CASES = (
    Case(name="1,000 fans × 5 sizes × 20", fans=1000, sizes=5, repeats=20, finishes=False),
    Case(name="… with finishes", fans=1000, sizes=5, repeats=20, finishes=True),
    Case(name="600 fans × 17 sizes × 10", fans=600, sizes=17, repeats=10, finishes=False),
    Case(name="20,000 fans × 5", fans=20_000, sizes=1, repeats=5, finishes=False),
    Case(name="… with finishes", fans=20_000, sizes=1, repeats=5, finishes=True),
    Case(name="100,000 fans once", fans=100_000, sizes=1, repeats=1, finishes=False),
)


def measured(case: Case) -> Measurements:
    """Timings of 5 us + bytes / 25 GB/s with 2 % noise."""
    rng = np.random.default_rng(SEED)
    samples = []
    for fan in range(case.fans):
        root, *peers = rng.permutation(ENDPOINTS)[: WIDTH + 1].tolist()
        pattern = fan_in(f"gpu{root}", [f"gpu{p}" for p in peers])
        for k in range(case.sizes):
            sized: Pattern = pattern.scaled(SMALLEST_BYTES * 2.0**k)
            line = 5e-6 + WIDTH * SMALLEST_BYTES * 2.0**k / 25e9
            for repeat in range(case.repeats):
                seconds = line * float(np.exp(0.02 * rng.standard_normal()))
                finishes = tuple((seconds * rng.uniform(0.5, 1, WIDTH)).tolist())
                samples.append(
                    Sample(
                        pattern=sized,
                        seconds=seconds,
                        repeat=repeat,
                        round=fan % 50,
                        issue="group",
                        flow_finish_s=finishes if case.finishes else None,
                        run=0,
                    )
                )
    return Measurements.of(samples, [], [Run(provenance={"backend": "simulated"})])


def best(action: Callable[[], Result]) -> tuple[float, Result]:
    """Least processor seconds of the repeats, and the result."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        result = action()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="the first two cases only")
    arguments = parser.parse_args()
    print(
        f"{'timings':26} {'samples':>8} {'MB':>6} {'write s':>8} {'load s':>7} "
        f"{'json s':>7} {'ratio':>6} {'scenarios':>9} {'s':>6}"
    )
    for case in CASES[:2] if arguments.smoke else CASES:
        measurements = measured(case)
        write_s, content = best(lambda m=measurements: encode_calibration(m))
        load_s, loaded = best(lambda c=content: decode_calibration(c, file="calibration.json"))
        json_s, _ = best(lambda c=content: json.loads(c))
        build_s, scenarios = best(lambda m=loaded: build_scenarios(m))
        print(
            f"{case.name:26} {len(loaded.samples):8,} {len(content) / 1e6:6.1f} {write_s:8.2f} "
            f"{load_s:7.2f} {json_s:7.2f} {load_s / json_s:6.1f} {len(scenarios):9,} {build_s:6.2f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()

"""The simulator against SimGrid's C++ engine, and the closed form's rate.

Both run the same flows on the same routes, on one core, in one run of this
program; a time is the least of several, for each of the two.  Ours is the compiled
simulator called on many copies of a pattern (as a sweep does), SimGrid's is one
engine that runs the pattern again and again; neither time has the machine's
construction in it.  "one call" is what a user waits for in Python who has a
topology and flows: routes, loads, simulation, result.

    python benchmarks/simulator.py            everything, some minutes
    python benchmarks/simulator.py --smoke    small cases, under 50 s

SimGrid comes from ``apt-get install libsimgrid-dev g++``; where it is missing,
ours is timed alone.
"""

from __future__ import annotations

import argparse
import os
import platform as host
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numba
import numpy as np
import simgrid_peer as peer
from platforms import KINDS, PLATFORMS, Platform, fat_tree, flows_for, star

from topocal.topo.busiest import busiest_of_batch
from topocal.topo.capacities import Capacities
from topocal.topo.fluid import simulate, simulate_batch
from topocal.topo.incidence import incidence
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.topology import Topology

_SECONDS_OF_A_CALL: Final = 0.002
"""Copies of a pattern are simulated in one call until it takes about this long."""

_LARGEST_DIFFERENCE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case, both engines."""

    case: str
    kind: str
    flows: int
    ours_s: float
    call_s: float
    ours_bytes: int
    theirs_s: float | None = None
    theirs_kib: int | None = None
    difference: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times quicker ours is."""
        return None if self.theirs_s is None else self.theirs_s / self.ours_s


def machine() -> str:
    """What this ran on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model}, {os.cpu_count()} cores; {host.system()} {host.release()}; "
        f"Python {host.python_version()}, numpy {np.__version__}, numba {numba.__version__}"
    )


def least(work: Callable[[], object], seconds: float, most: int = 1000) -> float:
    """Least wall time of a call, tried for about so many seconds."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or (time.perf_counter() < until and len(times) < most):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def copies(batch: Batch, count: int) -> Batch:
    """A pattern so many times."""
    flows = len(batch.pair)
    return Batch(
        np.arange(count + 1, dtype=np.int64) * flows,
        np.tile(batch.pair, count),
        np.tile(batch.size_bytes, count),
        np.tile(batch.start_s, count),
    )


def array_bytes(*holders: object) -> int:
    """Memory of all arrays that objects hold."""
    arrays = [v for h in holders for v in vars(h).values() if isinstance(v, np.ndarray)]
    return sum(a.nbytes for a in arrays)


def compare(platform: Platform, kind: str, seconds: float, *, simgrid: bool) -> Row:
    """Time one case on both engines."""
    topology = platform.build()
    capacities = Capacities.of(topology)
    pattern = flows_for(topology, platform.flows, kind)
    lines, batch = batch_of(topology, [pattern])
    loads = Loads.of(lines, capacities)
    some = copies(batch, max(1, 2000 // platform.flows))
    once = least(lambda: simulate_batch(loads, some, threads=1), 0.0, 2) / some.patterns
    many = copies(batch, max(1, min(4000, int(_SECONDS_OF_A_CALL / once))))

    def time_ours() -> float:
        return least(lambda: simulate_batch(loads, many, threads=1), seconds / 2) / many.patterns

    ours = time_ours()
    found = simulate_batch(loads, batch, threads=1)
    call = least(lambda: simulate(topology, pattern.flows, capacities), seconds / 4, 20)
    row = Row(
        case=platform.name,
        kind=kind,
        flows=platform.flows,
        ours_s=ours,
        call_s=call,
        ours_bytes=array_bytes(loads, batch, found) + room_bytes(loads, batch),
    )
    if not simgrid:
        return row
    guess = peer.run_peer(loads, batch)
    repeats = max(1, min(2000, int(seconds / guess.wall_s[0])))
    theirs = peer.run_peer(loads, batch, repeats=repeats) if repeats > 1 else guess
    return Row(
        case=row.case,
        kind=row.kind,
        flows=row.flows,
        # Again afterwards: what else the machine does should not hit one of the two alone.
        ours_s=min(row.ours_s, time_ours()),
        call_s=row.call_s,
        ours_bytes=row.ours_bytes,
        theirs_s=min(float(theirs.wall_s.min()), float(guess.wall_s.min())),
        theirs_kib=theirs.peak_kib,
        difference=float(np.max(np.abs(found.finish_s - theirs.finish_s) / theirs.finish_s)),
    )


def room_bytes(loads: Loads, batch: Batch) -> int:
    """What the compiled loop works in."""
    from topocal.topo.fluid import _Room

    return array_bytes(_Room(loads, batch))


def print_rows(rows: Sequence[Row]) -> None:
    """The table, and what must hold."""
    print(
        f"{'case':10} {'flows':>5} {'kind':9} {'SimGrid ms':>11} {'ours ms':>10} {'ratio':>7} "
        f"{'difference':>10} {'one call ms':>11} {'SimGrid MB':>10} {'ours MB':>8}"
    )
    for r in rows:
        theirs = "-" if r.theirs_s is None else f"{r.theirs_s * 1e3:.4f}"
        ratio = "-" if r.ratio is None else f"{r.ratio:.1f}"
        memory = "-" if r.theirs_kib is None else f"{r.theirs_kib / 1024:.0f}"
        difference = "-" if r.difference is None else f"{r.difference:.0e}"
        print(
            f"{r.case:10} {r.flows:5} {r.kind:9} {theirs:>11} {r.ours_s * 1e3:10.4f} {ratio:>7} "
            f"{difference:>10} {r.call_s * 1e3:11.2f} {memory:>10} {r.ours_bytes / 1e6:8.2f}"
        )
    compared = [r for r in rows if r.ratio is not None]
    for name, wanted, chosen in (
        ("every case", 3.0, compared),
        ("equal sizes", 10.0, [r for r in compared if r.kind == "equal"]),
        (
            "1,024 hosts, 4,096 unequal flows",
            8.0,
            [r for r in compared if r.flows == 4096 and r.kind == "unequal"],
        ),
    ):
        if chosen:
            worst = min(chosen, key=lambda r: r.ratio or 0.0)
            print(
                f"  {name}: at least {worst.ratio:.1f} times quicker than SimGrid "
                f"({worst.case}, {worst.kind}); wanted {wanted:g}"
            )
    if compared:
        worst = max(compared, key=lambda r: r.difference or 0.0)
        print(
            f"  largest relative difference of a finish: {worst.difference:.1e} ({worst.case}, "
            f"{worst.kind}); allowed {_LARGEST_DIFFERENCE:g}"
        )


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def growth(rows: Sequence[Row], *, smoke: bool, seconds: float) -> None:
    """How time grows with hosts (four flows each), and with flows alone."""
    print("\nGrowth: time ~ size^e")
    for family in ("star", "fat"):
        for kind in KINDS:
            chosen = [r for r in rows if r.case.startswith(family) and r.kind == kind]
            if len(chosen) < 2:
                continue
            sizes = [r.flows for r in chosen]
            theirs = [r.theirs_s for r in chosen if r.theirs_s is not None]
            shown = f"{exponent(sizes, theirs):.2f}" if len(theirs) == len(sizes) else "-"
            print(
                f"  {family}, hosts and flows together, {kind}: "
                f"ours {exponent(sizes, [r.ours_s for r in chosen]):.2f}, SimGrid {shown}"
            )
    counts = (256, 512, 1024) if smoke else (512, 1024, 2048, 4096, 8192)
    machines = {"star256": star(256), "fat256": fat_tree(16)}
    for name, topology in machines.items():
        for kind in KINDS:
            took = [flows_alone(topology, count, kind, seconds) for count in counts]
            print(
                f"  {name}, flows alone from {counts[0]} to {counts[-1]}, {kind}: "
                f"ours {exponent(counts, took):.2f}"
            )


def flows_alone(topology: Topology, count: int, kind: str, seconds: float) -> float:
    """Our time for so many flows on one machine."""
    lines, batch = batch_of(topology, [flows_for(topology, count, kind)])
    loads = Loads.of(lines, Capacities.of(topology))
    return least(lambda: simulate_batch(loads, batch, threads=1), seconds / 4)


def closed_form(*, smoke: bool) -> None:
    """Patterns per second of the batched closed form."""
    print("\nClosed form, patterns per second (million), one core and all")
    random = np.random.default_rng(1)
    for name, wanted in (("pcie8", 1.0), ("4x8", 0.3), ("fat64", None)):
        topology = PLATFORMS[name].build()
        names = topology.accelerators or topology.endpoints
        pairs = [(a, b) for a in names for b in names if a != b]
        loads = Loads.of(incidence(topology, pairs), Capacities.of(topology))
        for what, most in (("1 to 8 flows", 8), (f"{PLATFORMS[name].flows} flows", 0)):
            count = (200_000 if most else 8_000_000 // PLATFORMS[name].flows) // (4 if smoke else 1)
            lengths = (
                random.integers(1, most + 1, count)
                if most
                else np.full(count, PLATFORMS[name].flows)
            )
            ends = np.concatenate(([0], np.cumsum(lengths)))
            batch = Batch(
                ends,
                random.integers(0, len(pairs), ends[-1]),
                np.full(ends[-1], 1e8),
                np.zeros(ends[-1]),
            )
            one, every = (
                least(busy_work(loads, batch, threads), 0.3 if smoke else 2.0)
                for threads in (1, None)
            )
            goal = "" if wanted is None else f"   wanted {wanted:g}"
            print(f"  {name:6} {what:13} {count / one / 1e6:6.2f} {count / every / 1e6:6.2f}{goal}")


def busy_work(loads: Loads, batch: Batch, threads: int | None) -> Callable[[], object]:
    """A call to time."""
    return lambda: busiest_of_batch(loads, batch, utilisation=False, threads=threads)


def compile_first() -> float:
    """Seconds until both simulators have run once: compiled, or loaded from the cache."""
    begin = time.perf_counter()
    topology = PLATFORMS["pcie8"].build()
    lines, batch = batch_of(topology, [flows_for(topology, 4, "unequal")])
    loads = Loads.of(lines, Capacities.of(topology))
    simulate_batch(loads, batch)
    busiest_of_batch(loads, batch)
    return time.perf_counter() - begin


def main() -> None:
    """Run everything, or the smoke part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small cases, under 50 s")
    smoke = bool(parser.parse_args().smoke)
    begin = time.perf_counter()
    missing = peer.why_not()
    print(machine())
    # g++ and numba compile at the same time.
    with ThreadPoolExecutor(1) as pool:
        built = None if missing else pool.submit(peer.build_peer)
        print(f"first call, compiled or from the cache: {compile_first():.1f} s")
        if built is not None:
            built.result()
    if missing:
        print(f"ours alone: {missing}")
    seconds = 0.25 if smoke else 2.0
    rows = []
    for platform in PLATFORMS.values():
        if smoke and platform.slow:
            continue
        for kind in KINDS:
            rows.append(compare(platform, kind, seconds, simgrid=not missing))
    print_rows(rows)
    growth(rows, smoke=smoke, seconds=seconds)
    closed_form(smoke=smoke)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\npeak memory of this process {peak:.0f} MB; {time.perf_counter() - begin:.0f} s in all"
    )
    bad = [r for r in rows if r.difference is not None and r.difference > _LARGEST_DIFFERENCE]
    if bad:
        raise SystemExit(f"{bad[0].case}, {bad[0].kind}: differs by {bad[0].difference:.1e}")


if __name__ == "__main__":
    main()

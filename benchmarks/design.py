"""What design buys against a sweep, and whether its claims hold on machines that differ from
their specification.

1. Patterns and expected seconds, designed and swept, at the same sizes and repeats.
2. Truth drawn around nominal: of the resources that the plan calls clear, how many really
   are the bottleneck of their pattern; how many resources are a clear bottleneck (by 3 %)
   of any pattern, designed and swept; and how far off a capacity is that is read off
   the designed pattern as bytes over seconds, timed by fluid simulation with 1 % noise.
3. Seconds that a design takes, by number of endpoints.

    python benchmarks/design.py            everything, a few minutes
    python benchmarks/design.py --smoke    a part of each, under 50 s
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from platforms import cluster, nvswitch, pcie_tree

from topocal.measure.design import design
from topocal.measure.exhaustive import exhaustive, sweep_size
from topocal.measure.plan import Finding, Outcome, Plan
from topocal.measure.setting import LEAST_RATIO
from topocal.measure.simulated import SimulatedMachine
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.fabric import fat_tree
from topocal.topo.incidence import incidence
from topocal.topo.machines import b70, dgx1, dgx_a100, dgx_h100, mi250x, mi300x, rail_pod
from topocal.topo.topology import Topology

SIZE: Final = 2.0**28
NOISE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A machine, and the share of a sweep's patterns that a design may take."""

    name: str
    build: Callable[[], Topology]
    share: float | None
    slow: bool = False
    """Whether it is left out of a smoke run."""


def eight_by_eight() -> Topology:
    """Eight DGX A100 on a two-level fat tree, twofold oversubscribed."""
    return fat_tree([dgx_a100()] * 8, nodes_per_leaf=2, spines=4, oversubscription=2)


CASES: Final = (
    Case(name="B70", build=b70, share=1 / 2),
    Case(name="PCIe tree", build=pcie_tree, share=1 / 2),
    Case(name="NVSwitch node", build=nvswitch, share=1 / 2),
    Case(name="MI250X node", build=mi250x, share=1 / 2),
    Case(name="DGX-1", build=dgx1, share=None),
    Case(name="MI300X node", build=mi300x, share=None),
    Case(name="4×8 with NICs", build=cluster, share=1 / 6),
    Case(name="4×8 on rails", build=lambda: rail_pod(4), share=1 / 6),
    Case(name="8×8 with NICs", build=eight_by_eight, share=1 / 6, slow=True),
)


def compare() -> bool:
    """Print patterns and seconds of design against sweep; whether all stay within their share."""
    print("patterns and expected seconds (9 sizes, 5 repeats and a warm-up each)")
    print(
        f"{'machine':16}{'design':>8}{'sweep':>8}{'ratio':>8}{'at most':>8}"
        f"{'rounds':>8}{'used':>6}{'design s':>10}{'sweep s':>9}{'ratio':>7}"
    )
    well = True
    for case in CASES:
        topology = case.build()
        plan, swept = design(topology), exhaustive(topology)
        ratio = len(plan.patterns) / len(swept.patterns)
        used = sum(f.outcome is not Outcome.UNUSED for f in plan.resources)
        fits = case.share is None or ratio <= case.share
        well &= fits and (case.share != 1 / 6 or len(plan.rounds) <= 0.25 * used)
        limit = "" if case.share is None else f"{case.share:.3f}"
        print(
            f"{case.name:16}{len(plan.patterns):8}{len(swept.patterns):8}{ratio:8.3f}{limit:>8}"
            f"{len(plan.rounds):8}{used:6}{plan.seconds:10.1f}{swept.seconds:9.1f}"
            f"{plan.seconds / swept.seconds:7.3f}{'' if fits else '  TOO MANY'}"
        )
    return well


def truth(topology: Topology, plan: Plan, spread: float, rng: np.random.Generator) -> Capacities:
    """Capacities around what the plan assumed, log-normal with a relative spread."""
    values = {}
    for finding in plan.resources:
        factor = float(np.exp(spread * rng.standard_normal()))
        values[finding.resource] = (finding.assumed_Bps or np.inf) * factor
    return Capacities.of(topology, values)


def classes(topology: Topology, plan: Plan) -> np.ndarray:
    """A number for each resource, the same for those in series."""
    ends = plan.endpoints
    lines = incidence(topology, [(a, b) for a in ends for b in ends if a != b]).matrix.tocsc()
    spans = [lines.indices[lines.indptr[k] : lines.indptr[k + 1]] for k in range(lines.shape[1])]
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(span.tobytes(), len(numbers)) for span in spans])


def clear_in_any(
    topology: Topology, plan: Plan, true: Capacities, group: np.ndarray
) -> dict[int, float]:
    """Per class of resources: how far ahead it truly is in its best pattern, where it is first."""
    patterns = [p.pattern.scaled(SIZE) for p in plan.patterns]
    busy = busiest(topology, patterns, true).utilisation_s
    best: dict[int, float] = {}
    for p in range(len(patterns)):
        span = slice(busy.indptr[p], busy.indptr[p + 1])
        of, seconds = group[busy.indices[span]], busy.data[span]
        first = int(np.argmax(seconds))
        rest = seconds[of != of[first]]
        ratio = float(seconds[first] / rest.max()) if len(rest) else np.inf
        best[int(of[first])] = max(best.get(int(of[first]), 0.0), ratio)
    return best


def check_truth(seeds: int, smoke: bool) -> bool:
    """Print how the claims fare when capacities are not nominal."""
    print(f"\ntruth drawn around nominal, {seeds} machines each; worst and median over them")
    print(
        f"{'machine':16}{'spread':>8}{'claims true':>13}{'worst':>7}"
        f"{'clear: design':>15}{'sweep':>7}{'of':>5}{'capacity error p50':>20}{'p95':>7}"
    )
    well = True
    for case in CASES:
        if smoke and case.slow:
            continue
        topology = case.build()
        plan = design(topology)
        swept = exhaustive(topology)
        group = classes(topology, plan)
        column = {name: k for k, name in enumerate(topology.resources)}
        claims = [f for f in plan.resources if f.outcome is Outcome.CLEAR]
        number = len(
            {int(group[column[f.resource]]) for f in plan.resources if f.pattern is not None}
        )
        patterns = [plan.patterns[f.pattern or 0].pattern.scaled(SIZE) for f in claims]
        for spread in (0.05, 0.1, 0.2):
            rng = np.random.default_rng([2026, round(1000 * spread)])
            share, designed, by_sweep, errors = [], [], [], []
            for _ in range(seeds):
                true = truth(topology, plan, spread, rng)
                found = busiest(topology, patterns, true)
                wanted = np.array([group[column[f.resource]] for f in claims])
                holds = group[found.bottleneck] == wanted
                share.append(holds.mean())
                for plan_, into in ((plan, designed), (swept, by_sweep)):
                    best = clear_in_any(topology, plan_, true, group)
                    into.append(sum(r >= LEAST_RATIO for r in best.values()))
                errors.append(_read_off(topology, plan, claims, true, group, rng))
            flat = np.concatenate(errors)
            well &= spread > 0.05 or min(share) > 0.95
            print(
                f"{case.name:16}{spread:8.0%}{np.median(share):13.1%}{min(share):7.1%}"
                f"{np.median(designed):15.0f}{np.median(by_sweep):7.0f}{number:5}"
                f"{np.median(flat):20.2%}{np.quantile(flat, 0.95):7.1%}"
            )
    return well


def _read_off(
    topology: Topology,
    plan: Plan,
    claims: list[Finding],
    true: Capacities,
    group: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Relative errors of capacities taken as load over seconds from the clear patterns."""
    machine = SimulatedMachine(topology=topology, capacities=true, noise=NOISE)
    patterns = [plan.patterns[f.pattern or 0].pattern.scaled(SIZE) for f in claims]
    seconds = machine.true_seconds(patterns) * np.exp(NOISE * rng.standard_normal(len(patterns)))
    column = {name: k for k, name in enumerate(topology.resources)}
    errors = []
    for finding, pattern, taken in zip(claims, patterns, seconds, strict=True):
        at = column[finding.resource]
        load = float(incidence(topology, pattern.pairs).matrix[:, [at]].sum()) * SIZE
        members = np.flatnonzero(group == group[at])
        slowest = float(true.capacity_Bps[members].min())
        errors.append(abs(load / taken / slowest - 1))
    return np.array(errors)


def time_designs() -> bool:
    """Print how long a design takes; whether 1,024 endpoints stay within a minute."""
    print("\nseconds of a design: DGX H100 nodes on a fat tree, twofold oversubscribed")
    print(
        f"{'endpoints':>9}{'resources':>10}{'seconds':>9}{'patterns':>10}{'sweep':>11}{'rounds':>8}{'clear':>7}"
    )
    well = True
    for nodes in (1, 2, 4, 8, 32, 128):
        node = dgx_h100()
        topology = (
            node
            if nodes == 1
            else fat_tree(
                [node] * nodes, nodes_per_leaf=min(16, nodes), spines=8, oversubscription=2
            )
        )
        begin = time.perf_counter()
        plan = design(topology)
        seconds = time.perf_counter() - begin
        n = len(plan.endpoints)
        clear = sum(f.outcome is Outcome.CLEAR for f in plan.resources)
        well &= seconds <= 60
        print(
            f"{n:9}{len(topology.resources):10}{seconds:9.2f}{len(plan.patterns):10}"
            f"{sweep_size(n):11,}{len(plan.rounds):8}{clear:7}"
        )
    return well


def main() -> None:
    """Print everything; exit status 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a part of each, under 50 s")
    smoke = parser.parse_args().smoke
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one is used\n")
    design(b70())  # compiles, where nothing is cached yet
    begin = time.perf_counter()
    well = compare()
    well &= check_truth(2 if smoke else 20, smoke)
    well &= time_designs()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{time.perf_counter() - begin:.0f} s, {peak:.1f} GiB at most")
    raise SystemExit(0 if well else 1)


if __name__ == "__main__":
    main()

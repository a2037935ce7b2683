"""Loops that a small call does as Python: the compiled ones say the same, to the last bit."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import topocal as tc
from topocal.measure.ceilings import feeding
from topocal.measure.design import design
from topocal.measure.samples import Measurements
from topocal.measure.setting import Setting
from topocal.measure.simulated import time_patterns
from topocal.solve import hypotheses
from topocal.solve.fit import fit
from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.assign import assign
from topocal.solve.policy.baselines import BASELINES, baseline
from topocal.solve.policy.requests import Request
from topocal.solve.policy.table import table_of
from topocal.topo import jit
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.cheapest import _by_dijkstra, _by_rounds, components
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate
from topocal.topo.machines import random_cluster, random_pcie_tree
from topocal.topo.resource import Resource, Sharing, Use
from topocal.topo.topology import Topology

ROOT = Path(__file__).parents[1]
B70 = ROOT / "examples" / "b70"
SEEDS = st.integers(0, 2**32 - 1)


class BothWays:
    """Kernels that may be Python run twice, and must find and write the same."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, kernel: Any, *arguments: Any) -> Any:
        if kernel._steps is None:
            return kernel.made(*arguments)
        name = f"{kernel.__module__}.{kernel.__qualname__}"
        self.calls[name] += 1
        assert kernel._steps(*arguments) >= 0
        mine = copy.deepcopy(arguments)
        by_python = kernel.as_python(*mine)
        found = kernel.made(*arguments)
        if name == "topocal.topo.fluid_kernel.run":
            # What stands beyond the changes that were recorded is room, and may be anything.
            by_python, found = ((changes[:n], n) for changes, n in (by_python, found))
        assert_same(by_python, found, name)
        assert_same(mine, arguments, name)
        return found


def assert_same(one: Any, other: Any, name: str) -> None:
    if isinstance(other, tuple):
        assert isinstance(one, tuple)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b, name)
    elif isinstance(other, np.ndarray) and other.dtype.names is not None:
        for field in other.dtype.names:  # between fields may be anything
            assert_same(one[field], other[field], f"{name}, {field}")
    elif isinstance(other, np.ndarray):
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes(), f"{name} as Python and compiled"
    else:
        assert type(one) is type(other)
        assert one == other or (one != one and other != other), name


def both_ways() -> tuple[Any, BothWays]:
    both = BothWays()
    return patch.object(jit.Kernel, "__call__", lambda self, *a: both(self, *a)), both


def machine(seed: int) -> Topology:
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return random_cluster(rng, nodes=2, gpus=3)
    return random_pcie_tree(rng, gpus=int(rng.integers(2, 7)))


def flows(topology: Topology, rng: np.random.Generator) -> tuple[Flow, ...]:
    ends = topology.accelerators
    alike = bool(rng.integers(2))
    return tuple(
        Flow(
            source=str(source),
            destination=str(destination),
            size_bytes=1e9 if alike else float(rng.choice([0.0, 1e6, 3e9])),
            start_s=0.0 if alike else float(rng.choice([0.0, 0.1])),
        )
        for source, destination in (
            rng.choice(ends, size=2, replace=bool(rng.integers(4) == 0))
            for _ in range(int(rng.integers(1, 9)))
        )
    )


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_simulations_and_the_closed_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = machine(seed)
    rates = {name: float(rng.choice([1e9, 2e9, 1e10])) for name in topology.resources}
    rates = {
        name: rate
        for name, rate in rates.items()
        if topology.resources[name].sharing is not Sharing.TIME_SHARED
    }
    capacities = Capacities.of(topology, rates)
    patched, both = both_ways()
    with patched:
        these = flows(topology, rng)
        simulate(topology, these, capacities, record=bool(seed % 2))
        busiest(topology, [Pattern(flows=these), Pattern(flows=these[:1])], capacities)
    assert both.calls["topocal.topo.fluid_kernel.run"] == 1
    assert both.calls["topocal.topo.busiest_kernel.run"] == 1
    assert both.calls["topocal.topo.incidence_kernel.load_entries"] == 2


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_simulations_with_engines_that_serve_flows_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = machine(seed)
    ends = topology.accelerators
    topology = topology.with_resources(
        [
            Resource(
                id=f"engine {name}",
                sharing=Sharing.TIME_SHARED,
                kappa=float(rng.choice([0.9, 1.0])),
                in_order=bool(rng.integers(4)),
            )
            for name in ends
        ],
        [Use(resource=f"engine {name}", destinations=(name,)) for name in ends],
    )
    capacities = Capacities.of(topology, default_Bps=1e10)
    patched, both = both_ways()
    with patched:
        these = flows(topology, rng)
        simulate(topology, these, capacities, record=bool(seed % 2))
        busiest(topology, [Pattern(flows=these)], capacities)
    assert both.calls["topocal.topo.fluid_kernel.run"] == 1


def plan_both_ways(seed: int) -> Counter[str]:
    topology = machine(seed)
    patched, both = both_ways()
    with patched:
        design(topology)
        crossings = Setting.of(topology, None).crossings
        for group in range(crossings.classes):
            feeding(crossings, group)
    return Counter({name.rpartition(".")[2]: n for name, n in both.calls.items()})


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_plans_and_proofs(seed: int) -> None:
    assert plan_both_ways(seed)["load_entries"]


def test_plans_call_every_loop_of_the_design() -> None:
    expected = {"grow", "grow_contrast", "second_of_two", "weigh", "both_ways_value"}
    found = sum((plan_both_ways(seed) for seed in (1, 2, 3)), Counter[str]())
    assert expected | {"dominators", "feeders", "load_entries"} == set(found)


def fit_both_ways(topology: Topology, measured: Measurements) -> Counter[str]:
    patched, both = both_ways()
    # Both ways of telling time-shared endpoints from others, which is chosen by size.
    with patched:
        fit(measured, topology)
        with patch.object(hypotheses, "MOST_OBSERVATIONS", 0):
            fit(measured, topology)
    return both.calls


@pytest.mark.heavy
@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = machine(seed)
    patterns = [
        Pattern(flows=these)
        for these in (flows(topology, rng) for _ in range(30))
        if all(f.source != f.destination and f.size_bytes and not f.start_s for f in these)
    ]
    truth = Capacities.of(topology, default_Bps=1e10)
    assume(patterns)
    measured = time_patterns(topology, patterns, truth, noise=0.02, rng=rng)
    assert fit_both_ways(topology, measured)


def test_fits_and_assignments_call_every_loop_of_the_solver() -> None:
    measured = tc.read_tables([str(B70 / "pairs.csv"), str(B70 / "fans.csv")])
    called = fit_both_ways(tc.machines.b70(), measured)
    model = fit(measured, tc.machines.b70())
    asked = [
        Request(
            parameter=str(k),
            target=f"gpu{k}",
            holders=tuple(f"gpu{j}" for j in range(8) if j != k)[: 2 + k % 3],
            origin=(0, 0),
            shape=(1024 + k, 64),
            element_bytes=2,
        )
        for k in range(8)
    ]
    patched, both = both_ways()
    with patched:
        assign(PairCosts.of(model), asked, split=False)
        for name in BASELINES:
            costs = PairCosts.of(model)
            baseline(name, costs, table_of(costs, asked))
    wanted = {name for name in may_be_python() if ".solve." in name}
    assert wanted - (called + both.calls).keys() == set()


def may_be_python() -> set[str]:
    """All kernels that tell their steps."""
    found = set()
    for path in (ROOT / layer for layer in ("topo", "measure", "solve")):
        for file in path.rglob("*_kernel.py"):
            module = import_module(
                ".".join(("topocal", *file.relative_to(ROOT).with_suffix("").parts))
            )
            found |= {
                f"{value.__module__}.{value.__qualname__}"
                for value in vars(module).values()
                if isinstance(value, jit.Kernel) and value._steps is not None
            }
    return found


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_cheapest_ways_and_parts_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 40))
    links = int(rng.integers(0, min(3 * nodes, nodes * (nodes - 1) + 1)))
    key = rng.choice(nodes * nodes, size=links, replace=False)
    tail, head = key // nodes, key % nodes
    cost = rng.choice([1.0, 10.0, 100.0, 1e6], size=links)
    sources = np.flatnonzero(rng.integers(2, size=nodes))
    assert np.array_equal(
        _by_rounds(nodes, sources, tail, head, cost),
        _by_dijkstra(nodes, sources, tail, head, cost),
    )
    matrix = csr_array((cost, (tail, head)), shape=(nodes, nodes))
    _, expected = connected_components(matrix, directed=False)
    assert np.array_equal(components(nodes, tail, head), expected)


@jit.compiled_when_long(lambda n: n)
def _count(n: int) -> int:
    total = 0
    for k in range(n):
        total += k
    return total


def test_only_what_is_short_is_done_as_python() -> None:
    with (
        patch.object(jit.Kernel, "_all_done", 0),
        patch.object(jit, "_WORTH_LOADING_ONE", 100),
        patch.object(jit, "_WORTH_LOADING", 100),
    ):
        kernel: Any = _count
        assert kernel(60) == 1770
        assert kernel._made is None
        # The second call makes it 120 steps in all.
        assert kernel(60) == 1770
        assert kernel._made is not None
        assert kernel(5) == 10


# A small simulation is done before numba would have been loaded; a large one loads it.
@pytest.mark.parametrize(("count", "loaded"), [(4, False), (400, True)])
def test_numba_is_loaded_where_there_is_enough_to_do(count: int, loaded: bool) -> None:
    code = f"""
import sys
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow
from topocal.topo.fluid import simulate
from topocal.topo.machines import dgx_h100
machine = dgx_h100()
flows = [Flow(source=f"gpu{{k % 8}}", destination=f"gpu{{(k + 1) % 8}}", size_bytes=1e9 + k)
         for k in range({count})]
simulate(machine, flows, Capacities.of(machine, default_Bps=1e9))
print("numba" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == str(loaded)

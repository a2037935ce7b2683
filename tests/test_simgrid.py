"""Finishes agree with SimGrid's C++ engine on the frozen platforms of the benchmark."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.fluid import simulate_batch
from topocal.topo.loads import Loads, batch_of
from topocal.topo.resource import Sharing

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> Any:
    """A module of benchmarks/, which is no package."""
    specification = importlib.util.spec_from_file_location(
        f"topocal_benchmarks_{name}", BENCHMARKS / f"{name}.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module: ModuleType = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


platforms = load("platforms")
peer = load("simgrid_peer")

needs_simgrid = pytest.mark.skipif(peer.why_not() is not None, reason=str(peer.why_not()))


def largest_difference(loads: Loads, batch: Any) -> float:
    ours = simulate_batch(loads, batch).finish_s
    theirs = peer.run_peer(loads, batch).finish_s
    return float(np.max(np.abs(ours - theirs) / theirs))


# SimGrid takes 5 to 13 seconds for 4,096 flows: those of unequal starts, which are the
# hardest, run in full, the others in part; the benchmark compares all of them in full.
CASES = [
    pytest.param(
        p.name,
        kind,
        p.flows // 4 if p.slow and kind != "staggered" else p.flows,
        marks=[pytest.mark.heavy] if p.slow and kind == "staggered" else [],
        id=f"{p.name}-{kind}",
    )
    for p in platforms.PLATFORMS.values()
    for kind in platforms.KINDS
]


@needs_simgrid
@pytest.mark.parametrize(("name", "kind", "count"), CASES)
def test_frozen_platforms(name: str, kind: str, count: int) -> None:
    topology = platforms.PLATFORMS[name].build()
    lines, batch = batch_of(topology, [platforms.flows_for(topology, count, kind)])
    assert largest_difference(Loads.of(lines, Capacities.of(topology)), batch) <= 1e-9


@needs_simgrid
@pytest.mark.parametrize("seed", range(8))
def test_random_capacities_with_fatpipes(seed: int) -> None:
    random = np.random.default_rng(seed)
    topology = platforms.PLATFORMS["4x8"].build()
    capacities = Capacities.of(topology)
    count = len(capacities.resources)
    pipes = random.random(count) < 0.2
    capacities = replace(
        capacities,
        capacity_Bps=random.uniform(1e9, 1e11, count),
        sharing=np.where(pipes, SHARING_CODE[Sharing.FATPIPE], 0).astype(np.int8),
    )
    pattern = platforms.flows_for(topology, 96, "staggered", seed=seed)
    lines, batch = batch_of(topology, [pattern])
    assert largest_difference(Loads.of(lines, capacities), batch) <= 1e-9


def test_cases_are_those_that_are_promised() -> None:
    assert set(platforms.PLATFORMS) >= {
        "pcie8",
        "nvswitch8",
        "4x8",
        *(f"{kind}{hosts}" for kind in ("fat", "star") for hosts in (64, 256, 1024)),
    }
    for name, hosts in (("pcie8", 8), ("4x8", 32), ("star64", 64), ("fat256", 256)):
        topology = platforms.PLATFORMS[name].build()
        assert len(topology.accelerators or topology.endpoints) == hosts

"""A machine that answers from a model: its errors are those that were asked for."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from topocal.measure.patterns import fan_in, peer
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.resource import LinkKind, NodeKind

SIZE = 1e9


def machine(**more: float) -> SimulatedMachine:
    """Three GPUs behind a switch, each link 10 GB/s."""
    builder = TopologyBuilder("star")
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    for k in range(3):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=10e9)
    topology = builder.build()
    return SimulatedMachine(topology=topology, capacities=Capacities.of(topology), **more)


def timed(simulated: SimulatedMachine, repeats: int = 400) -> Measurements:
    return simulated.time([peer("gpu0", "gpu1", SIZE)], repeats, np.random.default_rng(1))


def test_without_errors_it_is_the_law() -> None:
    #   1 GB at 10 GB/s; two of them into one link take twice as long.
    both = [peer("gpu0", "gpu1", SIZE), fan_in("gpu2", ["gpu0", "gpu1"], SIZE)]
    found = machine().time(both, 2, np.random.default_rng(0))
    assert [s.seconds for s in found.samples] == pytest.approx([0.1, 0.1, 0.2, 0.2])
    assert machine(alpha_s=0.5).true_seconds(both).tolist() == pytest.approx([0.6, 0.7])
    assert machine(fading=0.1).true_seconds(both).tolist() == pytest.approx([0.1, 0.22])


def test_noise_and_stragglers_are_as_large_as_asked_for() -> None:
    seconds = np.array([s.seconds for s in timed(machine(noise=0.05)).samples])
    assert np.std(np.log(seconds)) == pytest.approx(0.05, rel=0.15)
    assert median(seconds) == pytest.approx(0.1, rel=0.01)
    late = np.array([s.seconds for s in timed(machine(stragglers=0.2)).samples]) > 0.12
    assert late.mean() == pytest.approx(0.2, abs=0.06)


def test_drift_grows_evenly_to_the_end() -> None:
    found = timed(machine(drift=0.5), 3)
    by_repeat = {s.repeat: s.seconds for s in found.samples}
    assert [by_repeat[k] for k in range(3)] == pytest.approx([0.1, 0.125, 0.15])


def test_what_fails_is_set_aside() -> None:
    found = timed(machine(faults=0.25))
    assert len(found.samples) + len(found.set_aside) == 400
    assert len(found.set_aside) == pytest.approx(100, abs=30)
    assert {s.set_aside for s in found.set_aside} == {"a rank did not answer"}
    # All others are as they would have been.
    assert {s.seconds for s in found.samples} == {s.seconds for s in timed(machine()).samples}

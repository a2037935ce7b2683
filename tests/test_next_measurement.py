"""What would make a prediction narrow: measure what is said, and it is; or nothing can."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from topocal.measure.patterns import bundle, fan_in, peer, relay
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.fit import fit
from topocal.solve.model import Model, write_model
from topocal.solve.next_measurement import MOST_RESOURCES, Advice, Adviser
from topocal.solve.predict import Prediction, predict
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Pattern
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.machines.clusters import fat_tree_cluster
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

SIZE = 2.0**28
GB = 1e9


def two_sockets() -> Topology:
    builder = TopologyBuilder("two sockets")
    for k in range(2):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        for j in range(3):
            builder.node(f"gpu{3 * k + j}", NodeKind.GPU)
            builder.connect(f"gpu{3 * k + j}", f"socket{k}", LinkKind.PCIE)
    builder.connect("socket0", "socket1", LinkKind.SMP)
    return builder.build()


def pairs_of(ends: tuple[str, ...]) -> list[Pattern]:
    return [peer(a, b, SIZE) for a, b in itertools.permutations(ends, 2)]


def machine(topology: Topology, rates: dict[str, float], noise: float = 0.01) -> SimulatedMachine:
    found = Capacities.of(topology, default_Bps=50 * GB)
    return SimulatedMachine(
        topology=topology,
        capacities=found.changed({k: v * GB for k, v in rates.items()}),
        noise=noise,
    )


def predicted(model: Model, pattern: Pattern) -> Prediction:
    (found,) = predict(model, [pattern])
    return found


def measured_more(
    simulated: SimulatedMachine,
    samples: Measurements,
    advice: tuple[Advice, ...],
    rng: np.random.Generator,
) -> Measurements:
    new = [a.pattern.scaled(SIZE) for a in advice if a.pattern is not None]
    return Measurements.of((*samples.samples, *simulated.time(new, 5, rng).samples))


def test_pairs_leave_the_hop_open_and_flows_across_it_settle_it() -> None:
    # Pairs pass 50 GB/s, so the hop passes 50 or more: three flows across it may take three
    # times as long as one, or no longer.
    topology = two_sockets()
    simulated = machine(topology, {"socket0->socket1": 70.0})
    rng = np.random.default_rng(0)
    samples = simulated.time(pairs_of(topology.accelerators), 5, rng)
    model = fit(samples, topology)
    wanted = bundle([("gpu0", "gpu3"), ("gpu1", "gpu4"), ("gpu2", "gpu5")], SIZE)
    before = predicted(model, wanted)
    assert not before.narrow
    advice = Adviser(model).advise(before)
    hop = next(a for a in advice if a.about == "socket0->socket1")
    assert hop.pattern is not None
    assert not hop.repeat
    crossing = [(a, b) for a, b in hop.pattern.pairs if a < "gpu3" <= b]
    assert len(crossing) >= 2
    after = predicted(fit(measured_more(simulated, samples, advice, rng), topology), wanted)
    assert after.narrow
    assert after.seconds == pytest.approx(3 * SIZE / (70 * GB), rel=0.02)
    assert Adviser(model).advise(after) == ()


@pytest.mark.parametrize("name", ["l40s", "mi250x", "dgx-h100"])
def test_asking_again_makes_it_narrow(name: str) -> None:
    rng = np.random.default_rng(11)
    topology = build_machine(name)
    base = Capacities.of(topology, default_Bps=50 * GB)
    rates = {
        r: float(rate * rng.uniform(0.5, 1)) / GB
        for r, rate in zip(base.resources, base.capacity_Bps, strict=True)
    }
    simulated = machine(topology, rates)
    ends = list(topology.accelerators)
    wanted = [relay(ends[:6], 1, SIZE), fan_in(ends[2], ends[3:7], SIZE)]
    for pattern in wanted:
        samples = simulated.time(pairs_of(topology.accelerators), 5, rng)
        for _ in range(5):
            model = fit(samples, topology)
            found = predicted(model, pattern)
            advice = Adviser(model).advise(found)
            if not any(a.pattern for a in advice):
                break
            samples = measured_more(simulated, samples, advice, rng)
        # Narrow, or nothing is left but what no pattern tells.
        assert found.narrow or advice
        assert all(a.pattern is None for a in advice)
        (true,) = simulated.true_seconds([pattern])
        assert found.low_s * 0.99 <= true <= found.high_s * 1.01


def test_equal_flows_never_tell_bytes_from_turns() -> None:
    topology = two_sockets()
    ends = topology.accelerators
    rng = np.random.default_rng(1)
    simulated = machine(topology, {})
    fans = [fan_in(e, [o for o in ends if o != e], SIZE) for e in ends]
    model = fit(simulated.time([*pairs_of(ends), *fans], 5, rng), topology)
    found = predicted(model, fan_in("gpu0", ["gpu1", "gpu2"], SIZE))
    assert not found.narrow
    told = [a for a in Adviser(model).advise(found) if a.about == "receiver gpu0"]
    assert [a.pattern for a in told] == [None]
    assert "equally long alone" in told[0].reason


def test_it_works_without_a_topology() -> None:
    topology = two_sockets()
    rates = {f"socket{j // 3}->gpu{j}": 40.0 + 2 * j for j in range(6)}
    simulated = machine(topology, rates | {"socket0->socket1": 30.0, "socket1->socket0": 30.0})
    rng = np.random.default_rng(2)
    samples = simulated.time(pairs_of(topology.accelerators), 5, rng)
    model = fit(samples)
    wanted = bundle([("gpu0", "gpu3"), ("gpu1", "gpu4"), ("gpu2", "gpu5")], SIZE)
    found = predicted(model, wanted)
    assert not found.narrow
    advice = Adviser(model).advise(found)
    assert any(a.pattern is not None and len(a.pattern.flows) > 1 for a in advice)
    # What is measured next crosses between the groups at once.
    after = predicted(fit(measured_more(simulated, samples, advice, rng)), wanted)
    assert after.seconds == pytest.approx(3 * SIZE / (30 * GB), rel=0.03)


def test_a_pattern_that_was_measured_is_measured_again() -> None:
    # One reading of each at 10 % noise pins little; what pins more is more of the same.
    topology = two_sockets()
    simulated = machine(topology, {"socket0->socket1": 60.0}, noise=0.1)
    rng = np.random.default_rng(3)
    crossing = bundle([("gpu0", "gpu3"), ("gpu1", "gpu4"), ("gpu2", "gpu5")], SIZE)
    model = fit(simulated.time([*pairs_of(topology.accelerators), crossing], 3, rng), topology)
    adviser = Adviser(model)
    seen = [
        a
        for pattern in (crossing, relay(["gpu0", "gpu3", "gpu1"], 1, SIZE))
        for a in adviser.advise(predicted(model, pattern))
    ]
    measured = {frozenset(p.pairs) for p in (*pairs_of(topology.accelerators), crossing)}
    assert seen
    for a in seen:
        if a.pattern is not None:
            assert a.repeat == (frozenset(a.pattern.pairs) in measured)


def test_a_large_machine_is_asked_in_part() -> None:
    topology = fat_tree_cluster(16)
    ends = topology.accelerators
    simulated = machine(topology, {})
    rng = np.random.default_rng(4)
    few = [peer(ends[0], e, SIZE) for e in ends[1:40]]
    model = fit(simulated.time(few, 2, rng), topology)
    found = predicted(model, relay(list(ends), 1, SIZE))
    advice = Adviser(model).advise(found)
    assert 0 < len(advice) <= MOST_RESOURCES


def test_the_command_says_what_to_measure(tmp_path: Path) -> None:
    topology = two_sockets()
    rng = np.random.default_rng(5)
    samples = machine(topology, {}).time(pairs_of(topology.accelerators), 5, rng)
    file = tmp_path / "model.json"
    write_model(fit(samples, topology), file)
    command = [sys.executable, "-m", "topocal", "predict", str(file)]
    command += ["--flow", "0:3", "--flow", "1:4"]
    people = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "to make it narrow, measure" in people.stdout
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    (document,) = json.loads(ran.stdout)["predictions"]
    assert {"about", "pattern", "reason"} <= document["measure_next"][0].keys()

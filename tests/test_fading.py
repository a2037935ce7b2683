"""Losses by many flows: found where they are, fitted as they are, and nowhere else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from topocal.measure.design import design
from topocal.measure.patterns import bundle, fan_in, fan_out, peer, relay
from topocal.measure.samples import Measurements, Sample
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.fading import Crowd
from topocal.solve.fit import fit
from topocal.solve.model import Model, model_to_document, read_model, write_model
from topocal.solve.predict import predict
from topocal.solve.speedup import speed_up
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import FormatError
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

SIZE = 2.0**28
GB = 1e9
LOSS = 0.004


def simulated(
    name: str, seed: int, *, fading: float = LOSS, noise: float = 0.02
) -> tuple[Topology, SimulatedMachine, np.random.Generator]:
    """A reference machine with capacities of 0.75 to 1 times nominal."""
    rng = np.random.default_rng(seed)
    topology = build_machine(name)
    base = Capacities.of(topology, default_Bps=50 * GB)
    rates = {
        r: float(rate * rng.uniform(0.75, 1.0))
        for r, rate in zip(base.resources, base.capacity_Bps, strict=True)
    }
    machine = SimulatedMachine(
        topology=topology, capacities=base.changed(rates), noise=noise, fading=fading
    )
    return topology, machine, rng


def held_out(ends: list[str]) -> list[Pattern]:
    return [
        relay(ends, 3, SIZE),
        fan_in(ends[1], ends[2:8], SIZE),
        fan_out(ends[3], ends[4:8], SIZE),
        bundle(list(zip(ends[:4], ends[4:8], strict=True)), SIZE),
        peer(ends[2], ends[6], SIZE),
    ]


@pytest.mark.parametrize("name", ["l40s", "dgx-h100", "mi250x", "h20-pair"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_loss_is_found_and_predicted(name: str, seed: int) -> None:
    topology, machine, rng = simulated(name, seed)
    model = fit(machine.run(design(topology, sizes_bytes=[SIZE], repeats=10), rng), topology)
    assert model.fading is not None
    assert model.fading.by is Crowd.PATTERN
    assert abs(model.fading.loss - LOSS) < 3 * model.fading.error
    assert model.fading.error < LOSS / 4
    # What shows it: patterns of many flows, each slower than few flows would make it.
    assert model.fading.evidence
    assert all(e.measured_Bps < e.without_Bps for e in model.fading.evidence)
    assert any("the more flows, the less they get" in f for f in model.findings)
    patterns = held_out(list(topology.accelerators))
    true = machine.true_seconds(patterns)
    for p, seconds in zip(predict(model, patterns), true, strict=True):
        assert p.low_s * 0.99 <= seconds <= p.high_s * 1.01
        if p.narrow:
            assert p.seconds == pytest.approx(seconds, rel=0.02)
    inside = list(inside_intervals(model, machine))
    assert len(inside) > 8
    assert np.mean(inside) > 0.8


def inside_intervals(model: Model, machine: SimulatedMachine) -> Iterator[bool]:
    """Of each pinned capacity; of resources in series the slowest is what shows."""
    rates = zip(machine.capacities.resources, machine.capacities.capacity_Bps, strict=True)
    truth = dict(rates)
    slowest: dict[str, float] = {}
    for r in model.resources.values():
        shows = r.confounded_with[0] if r.status is Status.SERIES else r.id
        if r.id in truth:
            slowest[shows] = min(slowest.get(shows, np.inf), float(truth[r.id]))
    for r in model.resources.values():
        if r.status is Status.PINNED and r.id in slowest and r.low_Bps and r.high_Bps:
            yield r.low_Bps <= slowest[r.id] <= r.high_Bps


@pytest.mark.parametrize("name", ["l40s", "dgx-h100", "mi250x", "h20-pair"])
@pytest.mark.parametrize("seed", range(3))
def test_sound_machines_have_none(name: str, seed: int) -> None:
    topology, machine, rng = simulated(name, seed, fading=0.0)
    model = fit(machine.run(design(topology, sizes_bytes=[SIZE], repeats=10), rng), topology)
    assert model.fading is None
    assert all(r.crowding is None for r in model.resources.values())


def sides() -> Topology:
    builder = TopologyBuilder("sides")
    for k in range(2):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        for j in range(8):
            builder.node(f"gpu{8 * k + j}", NodeKind.GPU)
            builder.connect(f"gpu{8 * k + j}", f"socket{k}", LinkKind.PCIE, nominal_Bps=50 * GB)
    builder.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=55 * GB)
    return builder.build()


def crossing(n: int, shift: int = 0) -> Pattern:
    return bundle([(f"gpu{k}", f"gpu{8 + (k + shift) % 8}") for k in range(n)], SIZE)


def on_resources(
    topology: Topology, patterns: list[Pattern], loss: float, noise: float, seed: int
) -> Measurements:
    """Each resource passes less the more flows are on it: u_r · (1 + loss · (n_r − 1))."""
    rng = np.random.default_rng(seed)
    rate = np.array([r.nominal_Bps or np.inf for r in topology.resources.values()])
    samples = []
    for pattern in patterns:
        matrix = incidence(topology, pattern.pairs).matrix.toarray()
        count = np.count_nonzero(matrix, axis=0)
        busy = matrix.sum(axis=0) * SIZE / rate * (1 + loss * np.maximum(0, count - 1))
        samples += [
            Sample(
                pattern=pattern,
                seconds=float(busy.max() * np.exp(noise * rng.standard_normal())),
                repeat=k,
            )
            for k in range(10)
        ]
    return Measurements.of(samples)


def test_what_fades_with_its_own_flows_is_told_from_what_fades_with_all() -> None:
    # Pairs inside the sockets that run at once are as quick as alone; across the hop eight
    # flows get 5 % less than four do.
    topology = sides()
    ends = topology.accelerators
    inside = [
        bundle([(f"gpu{k}", f"gpu{k ^ 1}") for k in range(n)], SIZE) for n in (2, 4, 8, 12, 16)
    ]
    across = [crossing(n, shift) for n in (2, 3, 4, 6, 8) for shift in (0, 3)]
    pairs = [peer(a, b, SIZE) for a, b in itertools.pairwise(ends)]
    back = [bundle([(b, a) for a, b in p.pairs], SIZE) for p in across]
    data = on_resources(topology, [*pairs, *inside, *across, *back], 0.0125, 0.01, 5)
    model = fit(data, topology)
    assert model.fading is not None
    assert model.fading.by is Crowd.RESOURCE
    assert model.fading.loss == pytest.approx(0.0125, abs=3 * model.fading.error)
    many, alone = predict(model, [crossing(7, 1), inside[4]])
    assert many.seconds == pytest.approx(7 * SIZE / (55 * GB) * (1 + 6 * 0.0125), rel=0.01)
    assert alone.seconds == pytest.approx(SIZE / (50 * GB), rel=0.01)


def test_beyond_what_was_measured_the_loss_may_end() -> None:
    topology = sides()
    alone = [peer(f"gpu{a}", f"gpu{8 + b}", SIZE) for a in range(8) for b in range(8)]
    many = [crossing(n, s) for n in (2, 3, 4, 5) for s in range(4)]
    model = fit(on_resources(topology, [*alone, *many], 0.03, 0.005, 3), topology)
    assert model.fading is not None
    assert model.fading.most_flows == 5
    five, eight = predict(model, [crossing(5, 6), crossing(8, 6)])
    base = 8 * SIZE / (55 * GB)
    assert five.high_s / five.low_s < 1.03
    # No slower than with five flows, or three further losses.
    assert eight.low_s < base * 1.12 < base * 1.21 < eight.high_s
    assert eight.seconds == pytest.approx(base * 1.21, rel=0.02)


def test_a_slow_link_is_not_made_up_where_a_loss_explains_it() -> None:
    # No flow of the bundles was measured alone: the third, fourth and fifth sender might be
    # slow.  One loss explains what takes three slow links.
    topology = sides()
    many = [crossing(n, s) for n in (2, 3, 4, 5) for s in range(4)]
    model = fit(
        on_resources(topology, [peer("gpu0", "gpu1", SIZE), *many], 0.03, 0.005, 3), topology
    )
    assert model.fading is not None
    assert model.fading.loss == pytest.approx(0.03, abs=3 * model.fading.error)
    for r in model.resources.values():
        if r.id.endswith("->socket0"):
            assert r.capacity_Bps is None or r.capacity_Bps > 45 * GB


def test_twice_as_fast_counts_the_loss() -> None:
    topology, machine, rng = simulated("dgx-h100", 1)
    model = fit(machine.run(design(topology, sizes_bytes=[SIZE], repeats=10), rng), topology)
    assert model.fading is not None
    ends = list(topology.accelerators)
    found = speed_up(model, fan_in(ends[0], ends[1:], SIZE))
    assert found.demands[0].factor == pytest.approx(2.0)
    assert found.demands[0].seconds == pytest.approx(found.prediction.seconds)


def test_it_is_kept_in_the_file_and_old_files_have_none(tmp_path: Path) -> None:
    topology, machine, rng = simulated("l40s", 1)
    model = fit(machine.run(design(topology, sizes_bytes=[SIZE], repeats=10), rng), topology)
    path = tmp_path / "model.json"
    write_model(model, path)
    again = read_model(path)
    assert again.fading == model.fading
    assert again.resources == model.resources
    document = model_to_document(model)
    old = json.loads(json.dumps(document))
    del old["fading"]
    for r in old["resources"]:
        del r["crowding"]
    path.write_text(json.dumps(old))
    assert read_model(path).fading is None
    for key, value in (("loss", -0.1), ("loss", 2), ("error", 0), ("most_flows", 1)):
        bad = json.loads(json.dumps(document))
        bad["fading"][key] = value
        path.write_text(json.dumps(bad))
        with pytest.raises(FormatError, match="a loss"):
            read_model(path)

"""Whether single endpoints share bytes or time, on machines whose truth is known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from topocal.measure.patterns import fan_in, peer
from topocal.measure.samples import Measurements, Sample
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.adaptive import calibrate
from topocal.solve.candidates import RECEIVER, with_candidates
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.solve.status import Status
from topocal.topo.capacities import Capacities
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.topology import Topology

GB = 1e9
SIZE = 2.0**28


def timed_receivers(topology: Topology, timed: list[str]) -> Topology:
    """With receivers that serve one flow at a time."""
    candidates = with_candidates(topology, topology.accelerators)
    kept = {candidates.engines[e, RECEIVER] for e in timed}
    return candidates.topology.without_resources([n for n in candidates.rank if n not in kept])


def calibrated(timed: list[str], sent_GBps: dict[str, float], seed: int) -> tuple[Model, Topology]:
    """An l40s whose senders differ, measured by the adaptive plan at 3 % noise."""
    topology = build_machine("l40s")
    truth = timed_receivers(topology, timed)
    rates = Capacities.of(truth, default_Bps=50 * GB).changed(
        {
            name: sent_GBps[name.partition("->")[0]] * GB
            for name in topology.resources
            if name.partition("->")[0] in sent_GBps
        }
    )
    machine = SimulatedMachine(topology=truth, capacities=rates, noise=0.03)
    measure = partial(machine.run, rng=np.random.default_rng(seed))
    *_, last = calibrate(topology, measure, sizes_bytes=(SIZE,), repeats=10)
    return last.model, topology


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(5))
def test_each_receiver_is_told_for_itself(seed: int) -> None:
    """Half of them take turns, half share bytes; senders from 8 to 28 GB/s."""
    rng = np.random.default_rng(9000 + seed)
    names = [f"gpu{k}" for k in range(8)]
    timed = sorted(rng.choice(names, 4, replace=False).tolist())
    model, _ = calibrated(timed, {n: 8 * 3.5 ** rng.random() for n in names}, seed)
    found = sorted(r.removesuffix(".receiver.engine") for r in model.resources if "engine" in r)
    said = {e for e, side in model.undecided_endpoints if side == RECEIVER}
    assert set(found) | said >= set(timed)
    assert not set(found) - set(timed)
    assert len(said) <= 1


def test_equal_senders_are_never_a_coin_toss() -> None:
    model, _ = calibrated(["gpu0", "gpu3"], {f"gpu{k}": 12.0 for k in range(8)}, 4)
    assert not [r for r in model.resources if "receiver.engine" in r]


# Both senders reach the port's rate alone, and their fan reads what the port passes: whether
# it takes turns does not show.  What is known of the others decides, or it is said to be open.
def test_a_port_that_limits_every_flow_alone_is_no_evidence_for_bytes() -> None:
    model, _ = calibrated([f"gpu{k}" for k in range(8)], {}, 5)
    for name in ("gpu0", "gpu5"):
        assert f"{name}.receiver.engine" in model.resources or 0 in model.undecided


def test_a_port_that_only_a_fan_pins_stays_open_where_turns_would_do() -> None:
    """One fan of alike senders: a port of 20 GB/s, or turns."""
    topology = build_machine("l40s")
    samples = [
        Sample(pattern=peer(f"gpu{k}", "gpu0", SIZE), seconds=SIZE / (20 * GB), repeat=r)
        for k in (1, 2)
        for r in range(4)
    ] + [
        Sample(pattern=fan_in("gpu0", ["gpu1", "gpu2"], SIZE), seconds=2 * SIZE / (20.4 * GB))
        for _ in range(4)
    ]
    model = fit(Measurements.of(samples), topology)
    port = model.resources["switch0->gpu0"]
    assert port.status is not Status.PINNED
    (fan,) = predict(model, [fan_in("gpu0", ["gpu1", "gpu2", "gpu3"], SIZE)])
    assert not fan.narrow

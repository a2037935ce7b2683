"""What a tree does not explain is said, with the endpoint that it happens at."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from topocal.measure.simulated import SimulatedMachine
from topocal.solve.adaptive import calibrate
from topocal.solve.model import Model
from topocal.topo.capacities import Capacities
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.resource import Resource, Sharing, Use
from topocal.topo.topology import Topology

GB = 1e9


def calibrated(truth: Topology, rates: dict[str, float], seed: int) -> Model:
    """Fitted to the l40s as its data sheet has it, measured on the truth at 1 % noise."""
    topology = build_machine("l40s")
    machine = SimulatedMachine(
        topology=truth,
        capacities=Capacities.of(truth, default_Bps=40 * GB).changed(rates),
        noise=0.01,
    )
    measure = partial(machine.run, rng=np.random.default_rng(seed))
    *_, last = calibrate(topology, measure, sizes_bytes=(2.0**28,), repeats=10)
    return last.model


def limited(sources: tuple[str, ...] | None) -> Topology:
    """What gpu5 receives, from everybody or from some, passes a limit that no link shows."""
    return build_machine("l40s").with_resources(
        [Resource(id="hidden", label="hidden", sharing=Sharing.CAPACITY, nominal_Bps=None)],
        [Use(resource="hidden", sources=sources, destinations=("gpu5",))],
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_on_all_that_an_endpoint_receives_names_it(seed: int) -> None:
    model = calibrated(limited(None), {"hidden": 14 * GB}, seed)
    (said,) = [f for f in model.findings if "topology does not explain" in f]
    assert "a limit at gpu5" in said


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_on_what_it_receives_from_some_names_it(seed: int) -> None:
    senders = ("gpu0", "gpu1", "gpu2", "gpu3")
    model = calibrated(limited(senders), {"hidden": 12 * GB}, seed)
    said = [f for f in model.findings if "topology does not explain" in f]
    assert said
    assert any("gpu5 receives" in f or "a limit at gpu5" in f for f in said)


@pytest.mark.parametrize("seed", range(6))
def test_a_machine_that_is_as_its_topology_says_has_no_such_finding(seed: int) -> None:
    truth = build_machine("l40s")
    rng = np.random.default_rng(100 + seed)
    rates = {
        n: r.nominal_Bps * rng.uniform(0.8, 0.95)
        for n, r in truth.resources.items()
        if r.nominal_Bps
    }
    model = calibrated(truth, rates, seed)
    assert not [f for f in model.findings if "topology does not explain" in f]

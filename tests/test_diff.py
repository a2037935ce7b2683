"""What drifted between two models: found where it is, and nothing where nothing changed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from topocal import cli
from topocal.measure.patterns import bundle, fan_in, fan_out, peer
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.drift import Quantity, compare
from topocal.solve.fit import fit
from topocal.solve.model import FittedResource, Model, Residual, write_model
from topocal.solve.status import Status
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError
from topocal.topo.machines import dgx1, l40s
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

SIZE = 2.0**28


@cache
def _machine(name: str) -> Topology:
    return {"l40s": l40s, "dgx1": dgx1}[name]()


@cache
def _truth(name: str) -> dict[str, float]:
    rng = np.random.default_rng(5)
    return {
        r.id: (r.nominal_Bps or 2e10) * rng.uniform(0.7, 0.95)
        for r in _machine(name).resources.values()
    }


def _model(name: str, seed: int, **changed: float) -> Model:
    """Fitted to fresh measurements of the machine, some capacities scaled."""
    topology = _machine(name)
    capacities = dict(_truth(name))
    for resource, factor in changed.items():
        capacities[resource] *= factor
    machine = SimulatedMachine(
        topology=topology, capacities=Capacities.of(topology, capacities), noise=0.01
    )
    ends = topology.accelerators
    patterns = [peer(a, b, SIZE) for a in ends for b in ends if a != b]
    for k, root in enumerate(ends):
        peers = [ends[(k + 1 + j) % len(ends)] for j in range(3)]
        patterns += [fan_in(root, peers, SIZE), fan_out(root, peers, SIZE)]
    patterns.append(bundle(list(zip(ends[:4], ends[4:], strict=True)), SIZE))
    return fit(machine.time(patterns, 5, np.random.default_rng(seed)), topology)


@pytest.mark.parametrize("name", ["l40s", "dgx1"])
def test_a_machine_that_did_not_change_has_not_drifted(name: str) -> None:
    first = _model(name, 0)
    alarms = sum(compare(first, _model(name, seed)).found for seed in range(1, 13))
    assert alarms == 0
    assert compare(first, first).found is False


@pytest.mark.parametrize("factor", [0.9, 1.12])
def test_a_link_that_changed_is_named(factor: float) -> None:
    before = _model("dgx1", 0)
    after = _model("dgx1", 1, **{"gpu0->gpu3": factor})
    found = compare(before, after)
    assert [r.name for r in found.resources] == ["gpu0->gpu3"]
    (drifted,) = found.resources
    assert drifted.ratio == pytest.approx(factor, rel=0.02)
    assert drifted.quantity is Quantity.CAPACITY
    assert {p.name for p in found.patterns} <= {
        r.name for r in after.residuals if "gpu0" in r.name and "gpu3" in r.name
    }
    assert "gpu0->gpu3" in {p.name for p in found.patterns}
    back = compare(after, before)
    assert [r.name for r in back.resources] == ["gpu0->gpu3"]
    assert back.resources[0].ratio == pytest.approx(1 / drifted.ratio)


def test_a_small_change_counts_only_if_it_is_asked_for() -> None:
    before, after = _model("dgx1", 0), _model("dgx1", 1, **{"gpu0->gpu3": 0.9})
    assert compare(before, after, least=0.2).found is False


def test_both_intervals_hold_the_truth_that_they_compare() -> None:
    found = compare(_model("dgx1", 0), _model("dgx1", 1, **{"gpu0->gpu3": 0.9}))
    (drifted,) = found.resources
    truth = _truth("dgx1")["gpu0->gpu3"]
    for (low, high), value in (
        (drifted.before_interval, truth),
        (drifted.after_interval, 0.9 * truth),
    ):
        assert low is not None
        assert high is not None
        assert low * 0.99 < value < high * 1.01


def _with(model: Model, **values: FittedResource) -> Model:
    return replace(model, resources={**model.resources, **values}, residuals=())


def _capacity(
    low: float | None, best: float, high: float | None, error: float | None
) -> FittedResource:
    return FittedResource(
        id="gpu0->gpu3",
        label="gpu0->gpu3",
        sharing=Sharing.CAPACITY,
        capacity_Bps=best,
        low_Bps=low,
        high_Bps=high,
        kappa=None,
        error=error,
        status=Status.PINNED if error is not None else Status.BOUNDED,
    )


PINNED = _capacity(19.6, 20.0, 20.4, 0.01)
CASES: dict[str, tuple[FittedResource, FittedResource, bool]] = {
    # Noise of the models is 1 % throughout; some seventy comparisons: 3.8 deviations.
    "the same": (PINNED, PINNED, False),
    "within the errors together": (PINNED, _capacity(20.6, 21.0, 21.4, 0.01), False),
    "beyond them": (PINNED, _capacity(22.5, 23.0, 23.5, 0.01), True),
    "far beyond, but known badly": (PINNED, _capacity(15.0, 25.0, 41.0, 0.25), False),
    "above a bound": (_capacity(10.0, 10.0, None, None), PINNED, False),
    "below a bound": (_capacity(30.0, 30.0, None, None), PINNED, True),
    "just below a bound": (_capacity(20.5, 20.5, None, None), PINNED, False),
    "two bounds": (_capacity(10.0, 10.0, None, None), _capacity(30.0, 30.0, None, None), False),
    "nothing known": (replace(PINNED, status=Status.ASSUMED), _capacity(1, 1, 1, 0.01), False),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_by_hand(name: str) -> None:
    a, b, drifts = CASES[name]
    model = _quiet(_model("dgx1", 0))
    before, after = _with(model, **{a.id: a}), _with(model, **{b.id: b})
    assert [r.name for r in compare(before, after).resources] == (["gpu0->gpu3"] if drifts else [])
    assert compare(after, before).found is drifts


def _quiet(model: Model) -> Model:
    """With a noise that the cases know."""
    return replace(model, noise=0.01)


def test_a_pattern_that_drifted_is_found_whatever_explains_it() -> None:
    model = replace(_quiet(_model("dgx1", 0)), residuals=())
    old = Residual(name="gpu0->gpu1", measured_Bps=20e9, predicted_Bps=20e9)
    for factor, drifts in ((1.04, False), (1.1, True), (0.9, True)):
        new = replace(old, measured_Bps=20e9 * factor)
        found = compare(replace(model, residuals=(old,)), replace(model, residuals=(new,)))
        assert [p.name for p in found.patterns] == (["gpu0->gpu1"] if drifts else [])
        assert found.compared_patterns == 1


def test_what_one_model_lacks_is_listed_and_is_no_drift() -> None:
    model = _model("dgx1", 0)
    engine = replace(
        PINNED, id="gpu0.receiver.engine", sharing=Sharing.TIME_SHARED, kappa=0.9, label="engine"
    )
    more = replace(model, resources={**model.resources, engine.id: engine})
    found = compare(model, more)
    assert found.only_after == ("gpu0.receiver.engine",)
    assert found.only_before == ()
    assert found.found is False
    assert found.changes == ("receivers now serve their flows by turns; before, they shared bytes",)
    slower = replace(engine, kappa=0.7)
    less = replace(model, resources={**model.resources, engine.id: slower})
    (drifted,) = compare(more, less).resources
    assert drifted.quantity is Quantity.OVERLAP
    assert drifted.ratio == pytest.approx(0.7 / 0.9)


def test_other_machines_and_other_limits_are_refused() -> None:
    model = _model("dgx1", 0)
    other = replace(model, topology=_renamed(model.topology))
    with pytest.raises(InputError, match="no endpoint in common"):
        compare(model, other)
    for least in (-0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="least change"):
            compare(model, model, least=least)


def _renamed(topology: Topology) -> Topology:
    import networkx as nx

    names = {node: f"other/{node}" for node in topology.graph}
    # Limits by rule name their endpoints as they were.
    topology = topology.without_resources(use.resource for use in topology.uses)
    return Topology(nx.relabel_nodes(topology.graph, names))


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for name, model in (
        ("monday", _model("dgx1", 0)),
        ("tuesday", _model("dgx1", 1)),
        ("friday", _model("dgx1", 2, **{"gpu0->gpu3": 0.8})),
    ):
        found[name] = str(folder / f"{name}.json")
        write_model(model, found[name])
    return found


def test_exit_status_tells_whether_anything_drifted(
    run: Callable[..., Ran], files: dict[str, str]
) -> None:
    calm = run("diff", files["monday"], files["tuesday"])
    assert calm.status == 0
    assert "nothing drifted" in calm.out
    found = run("diff", files["monday"], files["friday"])
    assert found.status == 1
    assert found.err == ""
    assert "Capacities that drifted" in found.out
    line = next(line for line in found.out.splitlines() if line.strip().startswith("gpu0->gpu3"))
    assert "-20" in line or "-19" in line
    calm = run("diff", files["monday"], files["friday"], "--at-least", "30")
    assert calm.status == 0


def test_as_json(run: Callable[..., Ran], files: dict[str, str]) -> None:
    ran = run("diff", files["monday"], files["friday"], "--json")
    assert ran.status == 1
    document = json.loads(ran.out)
    assert document["drifted"] is True
    (row,) = document["resources"]
    assert row["name"] == "gpu0->gpu3"
    assert row["after_Bps"] / row["before_Bps"] == pytest.approx(row["ratio"])
    assert row["ratio"] == pytest.approx(0.8, rel=0.02)


@pytest.mark.parametrize("text", ["hello", "{}"])
def test_what_is_no_model_is_refused(
    text: str, run: Callable[..., Ran], files: dict[str, str], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text)
    ran = run("diff", files["monday"], str(wrong))
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "wrong.json" in ran.err

"""What it takes to be so many times as fast: by hand, and by raising what is said to be raised."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.patterns import PatternKind, both_ways, bundle, fan_in, fan_out, peer
from topocal.solve.model import Certificate, FittedResource, Model, write_model
from topocal.solve.predict import predict
from topocal.solve.speedup import Speedup, speed_up
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate
from topocal.topo.machines import random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

GB = 1e9
SIZE = 1e9


def two_sockets(cards: int = 2) -> Topology:
    """As many cards in each socket, and one hop between the sockets."""
    builder = TopologyBuilder("two sockets")
    for k in range(2):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        for j in range(cards):
            builder.node(f"gpu{k * cards + j}", NodeKind.GPU)
            builder.connect(f"gpu{k * cards + j}", f"socket{k}", LinkKind.PCIE)
    builder.connect("socket0", "socket1", LinkKind.SMP)
    return builder.build()


def model_of(
    topology: Topology,
    rates: Mapping[str, float],
    *,
    default: float = 100.0,
    kappa: float = 1.0,
    alpha_s: Mapping[PatternKind, float] | None = None,
) -> Model:
    """A model that knows every capacity (GB/s) to a per mille."""
    found = {}
    for r in topology.resources.values():
        timed = r.sharing is Sharing.TIME_SHARED
        rate = None if timed else rates.get(r.id, default) * GB
        found[r.id] = FittedResource(
            id=r.id,
            label=r.name,
            sharing=r.sharing,
            capacity_Bps=rate,
            low_Bps=None if rate is None else rate * 0.998,
            high_Bps=None if rate is None else rate * 1.002,
            kappa=kappa if timed else None,
            error=1e-3,
            status=Status.PINNED,
        )
    engines = [replace(r, kappa=kappa) for r in topology.resources.values() if found[r.id].kappa]
    return Model(
        topology=topology.with_resources(engines) if engines else topology,
        resources=found,
        noise=1e-3,
        sharing="",
        undecided=(),
        findings=(),
        left_out={},
        residuals=(),
        alpha_s=alpha_s or {},
        offset_s=alpha_s or {},
        certificate=Certificate(least_largest_error=0.0, largest_error=0.0, text=()),
        notes=(),
        sources=(),
    )


def raised(model: Model, found: Speedup) -> dict[str, float]:
    """All that is said to be needed, series included."""
    changes: dict[str, float] = {}
    for d in found.demands:
        for n in (*([d.needed] if d.needed else []), *d.faster):
            for name in (n.resource, *(d.in_series if n is d.needed else ())):
                changes[name] = max(changes.get(name, 0.0), n.needed_Bps)
    return changes


def test_a_hop_and_the_links_behind_it() -> None:
    # Two flows of 1 GB over a hop of 30 GB/s take 66.7 ms.  In half of that the hop must pass
    # 60; a link of 25 takes 40 ms alone and must pass 30; one of 40 takes 25 ms and is quick.
    topology = two_sockets()
    rates = {"socket0->socket1": 30, "gpu0->socket0": 25, "gpu1->socket0": 40}
    model = model_of(topology, rates)
    found = speed_up(model, bundle([("gpu0", "gpu2"), ("gpu1", "gpu3")], SIZE))
    assert found.target_s == pytest.approx(1 / 30)
    needed = {d.resource: d.needed.needed_Bps for d in found.demands if d.needed}
    assert list(needed) == ["socket0->socket1", "gpu0->socket0"]
    assert list(needed.values()) == [pytest.approx(60 * GB), pytest.approx(30 * GB)]
    assert [d.factor for d in found.demands] == [pytest.approx(2), pytest.approx(1.2)]
    # Without the hop the link of 25 binds: 66.7 ms against 40.
    assert found.relief == pytest.approx(66.667 / 40, rel=1e-4)
    assert "must pass 60 GB/s in place of 30 GB/s (2.00 times), for 2 flows" in (
        found.demands[0].text
    )


def test_start_up_time_does_not_shrink() -> None:
    # 10 ms of start-up and 100 ms of transfer: in 55 ms, 45 are left for the bytes.
    model = model_of(two_sockets(), {"gpu0->socket0": 10}, alpha_s={PatternKind.PEER: 0.01})
    found = speed_up(model, peer("gpu0", "gpu1", SIZE))
    assert found.target_s == pytest.approx(0.055)
    assert [d.factor for d in found.demands] == [pytest.approx(100 / 45)]
    # Twelve times as fast is less than the start-up alone.
    impossible = speed_up(model, peer("gpu0", "gpu1", SIZE), 12.0)
    assert not impossible.possible
    assert impossible.demands == ()


@pytest.mark.parametrize("factor", [1.0, 0.5, math.inf, math.nan, -2.0])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="above 1"):
        speed_up(model_of(two_sockets(), {}), peer("gpu0", "gpu1", SIZE), factor)


def test_nothing_to_move_needs_nothing() -> None:
    found = speed_up(model_of(two_sockets(), {}), peer("gpu0", "gpu1", 0.0))
    assert found.demands == ()
    assert found.relief is None


def with_engine(topology: Topology, end: str) -> Topology:
    name = f"{end}.receiver.engine"
    return topology.with_resources(
        [Resource(id=name, sharing=Sharing.TIME_SHARED, label=f"receiver {end}")],
        [Use(resource=name, destinations=(end,))],
    )


def test_a_receiver_that_takes_turns_needs_fewer_flows_or_faster_ones() -> None:
    # Flows that take 100, 50 and 20 ms alone take 170 by turns.  In 85 ms the slowest link
    # must do its own flow, 100 / 85 times as fast; the turns then are 85 + 50 + 20 = 155.
    # Without the slowest flow they are 70, which will do; with all, each must be 155 / 85
    # times as fast.
    topology = with_engine(two_sockets(), "gpu0")
    rates = {"gpu1->socket0": 10, "gpu2->socket1": 20, "gpu3->socket1": 50}
    model = model_of(topology, rates, default=1000)
    found = speed_up(model, fan_in("gpu0", ["gpu1", "gpu2", "gpu3"], SIZE))
    turns = next(d for d in found.demands if d.resource == "gpu0.receiver.engine")
    assert turns.needed is None
    assert turns.seconds == pytest.approx(0.155)
    assert turns.factor == pytest.approx(155 / 85)
    assert turns.leave_out == ("gpu1->gpu0",)
    needed = {n.resource: n.needed_Bps / GB for n in turns.faster}
    assert needed == {
        "gpu1->socket0": pytest.approx(10 * 100 / 85 * 155 / 85),
        "gpu2->socket1": pytest.approx(20 * 155 / 85),
        "gpu3->socket1": pytest.approx(50 * 155 / 85),
    }
    assert "by turns" in turns.text
    assert "without gpu1->gpu0" in turns.text
    changed = model.capacities.changed(raised(model, found))
    flows = found.prediction.pattern.flows
    assert simulate(topology, flows, changed).seconds == pytest.approx(0.085)
    fewer = [f for f in flows if f"{f.source}->{f.destination}" not in turns.leave_out]
    assert simulate(topology, fewer, model.capacities).seconds <= 0.085


def test_a_duplex_says_what_one_direction_takes() -> None:
    # Both directions of gpu0 draw from 30 GB/s: 1 GB each way takes 66.7 ms, one way 33.3.
    topology = two_sockets().with_resources(
        [Resource(id="both", sharing=Sharing.DUPLEX, label="both directions of gpu0")],
        [Use(resource="both", destinations=("gpu0",)), Use(resource="both", sources=("gpu0",))],
    )
    model = model_of(topology, {"both": 30})
    found = speed_up(model, both_ways("gpu0", "gpu1", SIZE))
    (demand,) = found.demands
    assert demand.one_way_s == pytest.approx(1 / 30)
    assert "both directions add up" in demand.text
    # Flows of one direction alone add up by themselves.
    (same,) = speed_up(model, fan_out("gpu0", ["gpu1", "gpu2"], SIZE)).demands
    assert same.one_way_s is None


def test_a_link_of_both_directions_says_so_too() -> None:
    builder = TopologyBuilder("half duplex")
    builder.node("gpu0", NodeKind.GPU)
    builder.node("gpu1", NodeKind.GPU)
    builder.connect("gpu0", "gpu1", LinkKind.PCIE, sharing=Sharing.DUPLEX)
    model = model_of(builder.build(), {}, default=20)
    (demand,) = speed_up(model, both_ways("gpu0", "gpu1", SIZE)).demands
    assert demand.factor == pytest.approx(2)
    assert demand.one_way_s == pytest.approx(0.05)


def test_what_is_crossed_twice_is_said() -> None:
    # Staged copies: each byte counts twice on the uplink.
    topology = two_sockets().with_resources(
        [Resource(id="uplink", label="uplink of socket 0")],
        [Use(resource="uplink", sources=("gpu0",), weight=2.0)],
    )
    (demand,) = speed_up(model_of(topology, {"uplink": 20}), peer("gpu0", "gpu1", SIZE)).demands
    assert demand.twice == ("gpu0->gpu1",)
    assert demand.needed is not None
    assert demand.needed.needed_Bps == pytest.approx(40 * GB)
    assert "crosses it twice" in demand.text


def random_case(
    seed: int, *, engines: bool, unequal: bool
) -> tuple[Model, Pattern, np.random.Generator]:
    rng = np.random.default_rng(seed)
    topology = random_pcie_tree(rng, gpus=int(rng.integers(3, 8)))
    ends = topology.accelerators
    if engines:
        topology = with_engine(topology, str(ends[0]))
    rates = {name: float(rng.uniform(5, 60)) for name in topology.resources}
    model = model_of(topology, rates, kappa=0.95)
    pairs = list(itertools.permutations(ends, 2))
    chosen = rng.choice(len(pairs), size=min(len(pairs), int(rng.integers(2, 9))), replace=False)
    flows = tuple(
        Flow(
            source=pairs[k][0],
            destination=pairs[k][1],
            size_bytes=float(SIZE * (rng.uniform(0.2, 1) if unequal else 1)),
        )
        for k in chosen
    )
    return model, Pattern(flows=flows, name="any"), rng


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 30), st.booleans(), st.booleans(), st.floats(1.05, 6.0))
def test_what_is_asked_for_suffices(seed: int, engines: bool, unequal: bool, factor: float) -> None:
    model, pattern, _ = random_case(seed, engines=engines, unequal=unequal)
    found = speed_up(model, pattern, factor)
    assert found.target_s * factor == pytest.approx(predict(model, [pattern])[0].seconds)
    assert found.demands
    changed = model.capacities.changed(raised(model, found))
    seconds = simulate(model.topology, pattern.flows, changed).seconds
    assert seconds <= found.target_s * (1 + 1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 30), st.floats(1.05, 6.0))
def test_nothing_is_asked_for_that_is_not_needed(seed: int, factor: float) -> None:
    model, pattern, _ = random_case(seed, engines=False, unequal=False)
    found = speed_up(model, pattern, factor)
    changes = raised(model, found)
    for name in changes:
        less = changes | {name: changes[name] * 0.99}
        seconds = simulate(model.topology, pattern.flows, model.capacities.changed(less)).seconds
        assert seconds > found.target_s * 1.005


def test_the_command_tells_it(tmp_path: Path) -> None:
    topology = two_sockets()
    model = model_of(topology, {"socket0->socket1": 30, "gpu0->socket0": 25, "gpu1->socket0": 40})
    file = tmp_path / "model.json"
    write_model(model, file)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "topocal", "explain", str(file), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    asked = ("--flow", "0:2", "--flow", "1:3", "--size", "1GB")
    people = run(*asked, "--faster", "2")
    assert people.returncode == 0, people.stderr
    for words in ("to be 2 times as fast", "socket0->socket1 must pass 60 GB/s", "1.67 times"):
        assert words in people.stdout
    (document,) = json.loads(run(*asked, "--json").stdout)["patterns"]
    assert document["faster"]["resources"][0]["needed"]["needed_Bps"] == pytest.approx(60 * GB)
    assert document["relief"] == pytest.approx(66.667 / 40, rel=1e-4)
    for arguments, words in (
        ((), "name a pattern"),
        (("--flow", "0:2", "--faster", "1"), "above 1"),
        (("-t", "b70", "--flow", "0:2"), "its own topology"),
        (("--flow", "0:9"), "unknown endpoint '9'"),
    ):
        refused = run(*arguments)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1

"""The fluid simulator on any machine: fair shares, and what changes nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from fluid_cases import flow, run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from topocal.topo import fluid_kernel
from topocal.topo.builder import TopologyBuilder
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate, simulate_batch
from topocal.topo.incidence import incidence
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.machines import random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


@pytest.mark.parametrize("kind", ["equal", "unequal", "staggered"])
def test_a_million_flows(kind: str) -> None:
    topology = random_pcie_tree(np.random.default_rng(3), gpus=4)
    capacities = Capacities.of(topology, default_Bps=25e9)
    names = topology.accelerators
    pairs = [(a, b) for a in names for b in names if a != b]
    loads = Loads.of(incidence(topology, pairs), capacities)
    random = np.random.default_rng(1)
    count = 10**6
    pair = random.integers(0, len(pairs), count).astype(np.int64)
    size = np.full(count, 1e6) if kind == "equal" else random.uniform(1e5, 2e6, count)
    start = np.sort(random.uniform(0, 10, count)) if kind == "staggered" else np.zeros(count)
    found = simulate_batch(loads, Batch.single(pair, size, start))
    # All bytes of the busiest resource cannot pass sooner, and late ones not before they start.
    least = float((loads.solo_s[pair] * size + start).max())
    busy = np.bincount(pair, weights=size)
    rows = np.repeat(np.arange(len(pairs)), np.diff(loads.indptr))
    load = np.bincount(loads.indices, weights=busy[rows] * loads.cost_s)
    assert found.seconds[0] >= max(least, float(load.max())) * (1 - 1e-9)
    if kind == "equal":
        assert found.seconds[0] == pytest.approx(float(load.max()), rel=1e-9)
    assert found.seconds[0] <= start.max() + float(load.sum())


def random_case(seed: int) -> tuple[Topology, Capacities, list[Flow]]:
    """A random tree with some time-shared receivers and a dozen flows."""
    random = np.random.default_rng(seed)
    topology = random_pcie_tree(random, gpus=6)
    engines = [g for g in topology.accelerators if random.random() < 0.3]
    topology = topology.with_resources(
        [
            Resource(
                id=f"engine {g}",
                sharing=Sharing.TIME_SHARED,
                kappa=float(random.uniform(0.5, 1.0)),
                in_order=bool(random.random() < 0.2),
            )
            for g in engines
        ],
        [Use(resource=f"engine {g}", destinations=(g,)) for g in engines],
    )
    capacities = Capacities.of(
        topology,
        {
            name: float(random.uniform(1, 10))
            for name, r in topology.resources.items()
            if r.sharing is not Sharing.TIME_SHARED
        },
    )
    flows = [
        Flow(
            source=str(a),
            destination=str(b),
            size_bytes=float(random.uniform(0, 10)),
            start_s=float(random.choice([0.0, random.uniform(0, 3)])),
        )
        for a, b in random.choice(topology.accelerators, (12, 2))
    ]
    return topology, capacities, flows


SEEDS = st.integers(0, 2**32)


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_at_any_moment_shares_are_max_min_fair(seed: int) -> None:
    topology, capacities, flows = random_case(seed)
    result = simulate(topology, flows, capacities, record=True)
    loads = Loads.of(incidence(topology, [(f.source, f.destination) for f in flows]), capacities)
    dense = np.zeros((len(flows), len(capacities.resources)))
    rows = np.repeat(np.arange(len(flows)), np.diff(loads.indptr))
    dense[rows, loads.indices] = loads.cost_s * capacities.kappa[loads.indices]
    dense[:, capacities.in_order] = 0.0
    moments = np.unique(np.concatenate([result.begin_s, result.finish_s]))
    for moment in (moments[:-1] + moments[1:]) / 2:
        rates = result.rates_Bps(float(moment))
        used = rates @ dense
        assert used.max() <= 1 + 1e-12
        moving = np.flatnonzero((result.begin_s < moment) & (moment < result.finish_s))
        for f in moving:
            full = np.flatnonzero((used >= 1 - 1e-9) & (dense[f] > 0))
            assert any(
                (rates[moving][dense[moving, r] > 0] <= rates[f] * (1 + 1e-9)).all() for r in full
            )
    for k, one in enumerate(flows):
        moved = sum((s.end_s - s.begin_s) * s.rate_Bps for s in result.segments(k))
        if one.source != one.destination:
            assert moved == pytest.approx(one.size_bytes, rel=1e-9, abs=1e-12)


def spine_and_leaves(leaves: int, seed: int) -> Topology:
    """As many hosts to a leaf as leaves, half as many spines; every link its own rate."""
    random = np.random.default_rng(seed)

    def rate() -> float:
        # Few values: many resources fill up at the same level.
        return float(random.choice([1.0, 1.5, 2.0, 3.0]))

    build = TopologyBuilder("leaves")
    for spine in range(leaves // 2):
        build.node(f"spine{spine}", NodeKind.NET_SWITCH)
    for leaf in range(leaves):
        build.node(f"leaf{leaf}", NodeKind.NET_SWITCH)
        for spine in range(leaves // 2):
            build.connect(f"leaf{leaf}", f"spine{spine}", LinkKind.NET, nominal_Bps=rate())
        for k in range(leaves):
            host = build.node(f"nic{leaf * leaves + k}", NodeKind.NIC)
            build.connect(host, f"leaf{leaf}", LinkKind.NET, nominal_Bps=rate())
    return build.build()


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_max_min_fair_on_large_machines(seed: int) -> None:
    topology = spine_and_leaves(16, seed)
    random = np.random.default_rng(seed)
    flows = [
        Flow(
            source=str(a),
            destination=str(b),
            size_bytes=float(random.choice([1.0, 2.0, random.uniform(0, 3)])),
            start_s=float(random.choice([0.0, 0.5, random.uniform(0, 2)])),
        )
        for a, b in random.choice(topology.endpoints, (1500, 2))
    ]
    result = simulate(topology, flows, Capacities.of(topology), record=True)
    # Replay all changes of rates and look at the machine after every event.
    loads, changes = result._loads, result._changes
    pairs = len(loads.pairs)
    shape = (pairs, len(result.resources))
    cost = csr_array((loads.cost_s, loads.indices, loads.indptr), shape=shape)
    rows = np.repeat(np.arange(pairs), np.diff(loads.indptr))
    rate, count = np.zeros(pairs), np.zeros(pairs)
    ends = np.flatnonzero(np.diff(changes["time_s"], append=np.inf)) + 1
    for begin, end in pairwise([0, *ends.tolist()]):
        now = changes[begin:end]
        rate[now["pair"]], count[now["pair"]] = now["rate_Bps"], now["flows"]
        moving = np.where(count > 0, rate, 0.0)
        used = np.asarray(cost.T @ (moving * count))
        assert used.max() <= 1 + 1e-12
        # For each pair: the least that its full resources let their fastest pair have.
        fastest = np.zeros(len(used))
        np.maximum.at(fastest, loads.indices, moving[rows])
        most = np.where(used >= 1 - 1e-9, fastest, np.inf)
        limit = np.full(pairs, np.inf)
        np.minimum.at(limit, rows, most[loads.indices])
        assert (moving[count > 0] >= limit[count > 0] * (1 - 1e-9)).all()
    assert len(ends) > 1500


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_utilisation_is_what_the_flows_use(seed: int) -> None:
    topology, capacities, flows = random_case(seed)
    result = simulate(topology, flows, capacities, record=True)
    lines = incidence(topology, [(f.source, f.destination) for f in flows])
    loaded = lines.matrix.T @ np.array([f.size_bytes for f in flows])
    for column, name in enumerate(capacities.resources):
        if topology.resources[name].sharing is Sharing.TIME_SHARED:
            continue
        times, used = result.utilisation(name)
        passed = float(np.sum(np.diff(times) * used[:-1]) * capacities.capacity_Bps[column])
        assert passed == pytest.approx(loaded[column], abs=1e-9)
        assert used.max() <= 1 + 1e-12


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_finish_is_no_sooner_than_the_closed_form(seed: int) -> None:
    topology, capacities, flows = random_case(seed)
    finish = simulate(topology, flows, capacities).seconds
    bound = busiest(topology, [Pattern(flows=tuple(flows))], capacities)
    assert finish >= bound.seconds[0] * (1 - 1e-12)
    alike = Pattern(flows=tuple(flows)).scaled(3.0)
    alike = Pattern(
        flows=tuple(
            Flow(source=f.source, destination=f.destination, size_bytes=3.0) for f in alike.flows
        )
    )
    bound = busiest(topology, [alike], capacities)
    if bound.exact[0]:
        finish = simulate(topology, alike.flows, capacities).seconds
        assert finish == pytest.approx(bound.seconds[0], rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.sampled_from([0.001, 3.7, 1e6]))
def test_scaling_sizes_and_times_scales_finishes(seed: int, factor: float) -> None:
    topology, capacities, flows = random_case(seed)
    scaled = [
        Flow(
            source=f.source,
            destination=f.destination,
            size_bytes=f.size_bytes * factor,
            start_s=f.start_s * factor,
        )
        for f in flows
    ]
    one, other = (simulate(topology, fs, capacities) for fs in (flows, scaled))
    np.testing.assert_allclose(other.finish_s, one.finish_s * factor, rtol=1e-11)


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.randoms(use_true_random=False))
def test_order_and_record_change_nothing(seed: int, shuffle: object) -> None:
    topology, capacities, flows = random_case(seed)
    if any(r.in_order for r in topology.resources.values()):
        return  # there, the order of flows that arrive at once decides
    order = list(range(len(flows)))
    shuffle.shuffle(order)  # type: ignore[attr-defined]
    one = simulate(topology, flows, capacities)
    other = simulate(topology, [flows[k] for k in order], capacities, record=True)
    np.testing.assert_allclose(other.finish_s, one.finish_s[order], rtol=1e-11)


def test_names_change_nothing() -> None:
    rates = np.random.default_rng(5).uniform(1, 9, 8)
    pairs = np.random.default_rng(6).integers(0, 8, (20, 2))
    finishes = []
    for names in ("abcdefgh", "hgfedcba", "zyxwvuts"):
        build = TopologyBuilder("named")
        build.node("switch0", NodeKind.PCIE_SWITCH)
        for name, rate in zip(names, rates, strict=True):
            build.node(name, NodeKind.GPU)
            build.connect(name, "switch0", LinkKind.PCIE, nominal_Bps=float(rate))
        flows = [flow(names[a] + names[b], 5.0 + k) for k, (a, b) in enumerate(pairs)]
        finishes.append(run(build.build(), *flows).finish_s)
    np.testing.assert_allclose(finishes[1], finishes[0], rtol=1e-12)
    np.testing.assert_allclose(finishes[2], finishes[0], rtol=1e-12)


def test_threads_and_progress_change_nothing() -> None:
    topology, capacities, _ = random_case(11)
    names = topology.accelerators
    random = np.random.default_rng(2)
    patterns = [
        Pattern(
            flows=tuple(
                Flow(source=str(a), destination=str(b), size_bytes=float(random.uniform(1, 9)))
                for a, b in random.choice(names, (40, 2))
            )
        )
        for _ in range(4000)
    ]
    lines, batch = batch_of(topology, patterns)
    loads = Loads.of(lines, capacities)
    told: list[int] = []
    one = simulate_batch(loads, batch, threads=1)
    three = simulate_batch(loads, batch, threads=3, progress=told.append)
    assert len(told) > 1
    assert sum(told) == 4000
    for name in ("seconds", "finish_s", "begin_s", "bottleneck"):
        assert np.array_equal(getattr(one, name), getattr(three, name))
    for k in (0, 1999, 3999):
        alone = simulate(topology, patterns[k].flows, capacities)
        assert alone.seconds == one.seconds[k]


def test_records_have_the_fields_of_their_documentation() -> None:
    assert fluid_kernel.CHANGE.names == ("time_s", "rate_Bps", "pair", "flows", "stop")

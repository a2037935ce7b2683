"""The fluid simulator, by hand and by property: finishes, rates, lines, errors."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from topocal.topo import fluid_kernel, jit
from topocal.topo.builder import TopologyBuilder
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.errors import FlowError, SimulationError, TopologyError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import FluidResult, Segment, simulate, simulate_batch
from topocal.topo.incidence import incidence
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.machines import random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


def chain(*rates: float) -> Topology:
    """GPUs ``a``, ``b``, … in a row of switches, each on its own; rates of the links between.

    ::

        a     b     c
        |     |     |        access links never bind
        s0 -- s1 -- s2       rates[0], rates[1], each way
    """
    build = TopologyBuilder("chain")
    for k in range(len(rates) + 1):
        build.node(f"s{k}", NodeKind.PCIE_SWITCH)
        build.node("abcdefgh"[k], NodeKind.GPU)
        build.connect("abcdefgh"[k], f"s{k}", LinkKind.PCIE, nominal_Bps=math.inf)
    for k, rate in enumerate(rates):
        build.connect(f"s{k}", f"s{k + 1}", LinkKind.PCIE, nominal_Bps=rate)
    return build.build()


def flow(ends: str, size: float, start: float = 0.0) -> Flow:
    return Flow(source=ends[0], destination=ends[1], size_bytes=size, start_s=start)


def run(topology: Topology, *flows: Flow, alpha_s: float = 0.0) -> FluidResult:
    return simulate(topology, flows, Capacities.of(topology), alpha_s=alpha_s, record=True)


def test_the_example_of_the_textbook() -> None:
    # Bertsekas and Gallager's kind of chain: ab and ac share s0->s1 (2 B/s), ac and bc
    # share s1->s2 (6 B/s).  Level 1: s0->s1 is full, ab = ac = 1.  Then bc = 5.
    result = run(chain(2.0, 6.0), flow("ab", 10), flow("ac", 10), flow("bc", 10))
    assert result.rates_Bps(0.0).tolist() == pytest.approx([1.0, 1.0, 5.0])
    assert result.finish_s.tolist() == pytest.approx([10.0, 10.0, 2.0])
    assert [result.bottleneck_of(k) for k in range(3)] == ["s0->s1", "s0->s1", "s1->s2"]


def test_who_finishes_leaves_its_share() -> None:
    # Both at 3 B/s; b's 6 bytes are through at 2, a's other 6 go at 6 B/s: 2 + 1.
    result = run(chain(6.0), flow("ab", 12), flow("ab", 6))
    assert result.finish_s.tolist() == [3.0, 2.0]
    assert result.segments(0) == [
        Segment(begin_s=0.0, end_s=2.0, rate_Bps=3.0, bottleneck="s0->s1"),
        Segment(begin_s=2.0, end_s=3.0, rate_Bps=6.0, bottleneck="s0->s1"),
    ]


def test_who_starts_takes_its_share() -> None:
    # Alone at 6 B/s until 1, then 3 each: the first has 6 left, done at 3; the other
    # has 12 - 6 left then and goes on at 6 B/s: done at 4.
    result = run(chain(6.0), flow("ab", 12), flow("ab", 12, start=1.0))
    assert result.finish_s.tolist() == [3.0, 4.0]
    assert result.rates_Bps(0.5).tolist() == pytest.approx([6.0, 0.0])
    assert result.rates_Bps(1.0).tolist() == pytest.approx([3.0, 3.0])
    assert result.rates_Bps(3.0).tolist() == pytest.approx([0.0, 6.0])
    times, used = result.utilisation("s0->s1")
    assert times.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert used.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0])


def test_a_share_that_is_not_used_goes_to_the_others_and_back() -> None:
    # ac is held to 1 B/s by s1->s2, so ab gets 9 of s0->s1.  When bc starts at 1,
    # ac falls to 0.5 and ab rises to 9.5.
    result = run(chain(10.0, 1.0), flow("ab", 100), flow("ac", 100), flow("bc", 1, start=1.0))
    assert result.rates_Bps(0.0).tolist() == pytest.approx([9.0, 1.0, 0.0])
    assert result.rates_Bps(1.0).tolist() == pytest.approx([9.5, 0.5, 0.5])
    assert result.rates_Bps(3.5).tolist() == pytest.approx([9.0, 1.0, 0.0])


def test_alpha_delays_the_first_byte() -> None:
    result = run(chain(6.0), flow("ab", 12, start=1.0), flow("ab", 0), flow("aa", 5), alpha_s=0.25)
    assert result.finish_s.tolist() == [3.25, 0.25, 0.25]
    assert result.begin_s.tolist() == [1.25, 0.25, 0.25]
    assert result.seconds == 3.25
    assert [result.bottleneck_of(k) for k in range(3)] == ["s0->s1", None, None]
    assert result.segments(1) == []


def test_fatpipe_bounds_each_flow() -> None:
    build = TopologyBuilder("pipe")
    for name in "ab":
        build.node(name, NodeKind.GPU)
    build.connect("a", "b", LinkKind.NVLINK, nominal_Bps=2.0, sharing=Sharing.FATPIPE)
    result = run(build.build(), flow("ab", 6), flow("ab", 8))
    assert result.finish_s.tolist() == [3.0, 4.0]
    assert result.bottleneck_of(0) == "a->b"
    assert result.utilisation("a->b")[1].tolist() == [1.0, 1.0, 0.0]


def receivers(*, kappa: float = 1.0, in_order: bool) -> Topology:
    """``a`` (4 B/s), ``c`` (2 B/s) and ``d`` (8 B/s) send to ``b``, which serves one at a time."""
    build = TopologyBuilder("receiver")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for name, rate in (("a", 4.0), ("b", 100.0), ("c", 2.0), ("d", 8.0), ("e", 100.0)):
        build.node(name, NodeKind.GPU)
        build.connect(name, "switch0", LinkKind.PCIE, nominal_Bps=rate)
    for name in "be":
        build.resource(
            Resource(
                id=f"receive {name}", sharing=Sharing.TIME_SHARED, kappa=kappa, in_order=in_order
            )
        )
        build.use(Use(resource=f"receive {name}", destinations=(name,)))
    return build.build()


def test_time_shared_by_turns_of_any_length() -> None:
    # Solo 4 and 2 B/s, equal rates x: x/4 + x/2 = 1, x = 4/3 until the first 8 bytes
    # are through at 6; then the other has 8 left at its solo 2 B/s: 6 + 4.
    result = run(receivers(in_order=False), flow("ab", 8), flow("cb", 16))
    assert result.finish_s.tolist() == pytest.approx([6.0, 10.0])
    assert result.utilisation("receive b")[1].tolist() == pytest.approx([1.0, 1.0, 0.0])
    # Half of it overlaps: x/4 + x/2 = 2 would be 8/3, but c has 2 B/s: x = 2, y/4 + 2/2 = 2: 4.
    result = run(receivers(kappa=0.5, in_order=False), flow("ab", 8), flow("cb", 8))
    assert result.rates_Bps(0.0).tolist() == pytest.approx([4.0, 2.0])


def test_in_order_one_after_another() -> None:
    # a: 8 bytes at 4 B/s, done at 2; c waits, then 8 at 2 B/s, done at 6; d, third, at 7.
    result = run(receivers(in_order=True), flow("ab", 8), flow("cb", 8), flow("db", 8, start=1.0))
    assert result.finish_s.tolist() == [2.0, 6.0, 7.0]
    assert result.begin_s.tolist() == [0.0, 2.0, 6.0]
    assert result.segments(1) == [
        Segment(begin_s=0.0, end_s=2.0, rate_Bps=0.0, bottleneck="receive b"),
        Segment(begin_s=2.0, end_s=6.0, rate_Bps=2.0, bottleneck="c->switch0"),
    ]
    # Who waits longer than it moves names the line; else what limits it.
    assert [result.bottleneck_of(k) for k in range(3)] == [
        "a->switch0",
        "c->switch0",
        "receive b",
    ]
    times, used = result.utilisation("receive b")
    assert used.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert times.tolist() == [0.0, 2.0, 6.0, 7.0]


def test_in_order_overlap_lets_the_next_begin() -> None:
    # kappa = 0.75: c may begin when 6 of a's 8 bytes are through, at 1.5.
    result = run(receivers(kappa=0.75, in_order=True), flow("ab", 8), flow("cb", 8))
    assert result.begin_s.tolist() == [0.0, 1.5]
    assert result.finish_s.tolist() == [2.0, 5.5]


def test_the_first_in_line_may_be_slowed_down_elsewhere() -> None:
    # ae takes half of a's link: ab moves at 2 B/s, not 4, and cb waits all that time.
    result = run(receivers(in_order=True), flow("ab", 8), flow("cb", 2), flow("ae", 100))
    assert result.finish_s[:2].tolist() == [4.0, 5.0]


def test_in_order_arrivals_at_once_go_by_place() -> None:
    result = run(receivers(in_order=True), flow("cb", 2), flow("ab", 4), flow("ab", 4))
    assert result.begin_s.tolist() == [0.0, 1.0, 2.0]
    # Flows of nothing take no place in the line.
    result = run(receivers(in_order=True), flow("cb", 0), flow("ab", 4))
    assert result.finish_s.tolist() == [0.0, 1.0]


def test_flows_through_two_lines_wait_for_both() -> None:
    build = TopologyBuilder("two engines")
    for name in "abcd":
        build.node(name, NodeKind.GPU)
    for a, b in combinations("abcd", 2):
        build.connect(a, b, LinkKind.NVLINK, nominal_Bps=1.0)
    for name in "abcd":
        for side in ("send", "receive"):
            engine = Resource(id=f"{side} {name}", sharing=Sharing.TIME_SHARED, in_order=True)
            build.resource(engine)
            ends = {"sources": (name,)} if side == "send" else {"destinations": (name,)}
            build.use(Use(resource=engine.id, **ends))  # type: ignore[arg-type]
    # ab first; cb behind it at b; cd behind cb at c although d is idle; all one second long.
    result = run(build.build(), flow("ab", 1), flow("cb", 1), flow("cd", 1), flow("da", 1))
    assert result.finish_s.tolist() == [1.0, 2.0, 3.0, 1.0]


def test_zero_capacity_is_an_error_that_names_it() -> None:
    topology = chain(6.0)
    dead = Capacities.of(topology, {"s0->s1": 0.0})
    with pytest.raises(SimulationError, match="a->b never finishes: s0->s1 passes 0 B/s"):
        simulate(topology, [flow("ba", 1), flow("ab", 1)], dead)
    assert simulate(topology, [flow("ba", 12), flow("ab", 0)], dead).finish_s.tolist() == [2.0, 0.0]
    lines, batch = batch_of(
        topology, [Pattern(flows=(flow("ab", 1),)), Pattern(flows=(flow("ba", 12),))]
    )
    assert simulate_batch(Loads.of(lines, dead), batch).seconds.tolist() == [math.inf, 2.0]


def test_without_any_limit_it_is_over_at_once() -> None:
    topology = chain(math.inf)
    result = run(topology, flow("ab", 1e18, start=2.0), alpha_s=0.5)
    assert result.finish_s.tolist() == [2.5]
    assert result.bottleneck_of(0) is None


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_tiny_and_huge_times(scale: float) -> None:
    topology = chain(6.0)
    result = run(topology, flow("ab", 12 * scale), flow("ab", 12 * scale, start=scale))
    np.testing.assert_allclose(result.finish_s, [3 * scale, 4 * scale], rtol=1e-14)


def test_both_at_once() -> None:
    # A nanosecond's transfer a thousand million seconds late.
    topology = chain(6.0)
    result = run(topology, flow("ab", 6e-9), flow("ab", 6e-9, start=1e9), flow("ab", 6e9))
    assert result.finish_s.tolist() == pytest.approx([2e-9, 1e9, 1e9])


def test_beyond_floating_point_is_an_error() -> None:
    topology = chain(1e-300)
    with pytest.raises(SimulationError, match="no progress"):
        simulate(topology, [flow("ab", 1e300)], Capacities.of(topology))
    with pytest.raises(SimulationError, match="no progress"):
        simulate(topology, [flow("ab", 1e300), flow("ab", 1e299)], Capacities.of(topology))


def test_questions_without_an_answer() -> None:
    topology = chain(6.0)
    bare = simulate(topology, [flow("ab", 1)], Capacities.of(topology))
    with pytest.raises(SimulationError, match="not recorded; call simulate"):
        bare.segments(0)
    with pytest.raises(TopologyError, match="unknown resource 's0->s9'; did you mean s0->s1"):
        run(topology, flow("ab", 1)).utilisation("s0->s9")
    with pytest.raises(FlowError, match="has no flows"):
        simulate(topology, [], Capacities.of(topology))


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


CALL = """
import sys
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate
from topocal.topo import fluid_kernel, jit
from topocal.topo.machines import dgx_h100
jit._WORTH_LOADING = jit._WORTH_LOADING_ONE = 0  # so that even this is compiled
machine = dgx_h100()
flows = (Flow(source="gpu0", destination="gpu1", size_bytes=1e9),)
capacities = Capacities.of(machine, default_Bps=1e9)
assert busiest(machine, [Pattern(flows=flows)], capacities).seconds[0] == \
    simulate(machine, flows, capacities).seconds
stats = fluid_kernel.run.made.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def call(**environment: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.heavy
def test_machine_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    assert call(NUMBA_CACHE_DIR=str(tmp_path)) == [0, 1]
    assert call(NUMBA_CACHE_DIR=str(tmp_path)) == [1, 0]


def test_where_machine_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jit._directory.cache_clear()
    try:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "here"))
        found = jit._directory()
        assert found is not None
        assert found.parent == tmp_path / "here"
        jit._directory.cache_clear()
        monkeypatch.delenv("NUMBA_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = jit._directory()
        assert found is not None
        assert found.parent == tmp_path / "topocal"
        # Nowhere to write: no directory, and each process compiles for itself.
        jit._directory.cache_clear()
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
        assert jit._directory() is None
    finally:
        jit._directory.cache_clear()


def test_records_have_the_fields_of_their_documentation() -> None:
    assert fluid_kernel.CHANGE.names == ("time_s", "rate_Bps", "pair", "flows", "stop")

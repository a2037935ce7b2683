"""The closed form, by hand: small machines, every sharing, bounds and exactness."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo import busiest_kernel, setup_kernel
from topocal.topo.builder import TopologyBuilder
from topocal.topo.busiest import busiest, busiest_of_batch
from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.errors import FlowError, NoRouteError, TopologyError, UnknownEndpointError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


def star(rates: Mapping[str, float | None], sharing: Sharing = Sharing.CAPACITY) -> Topology:
    """GPUs around a switch; each link passes its rate in each direction."""
    build = TopologyBuilder("star")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for name, rate in rates.items():
        build.node(name, NodeKind.GPU)
        build.connect(name, "switch0", LinkKind.PCIE, nominal_Bps=rate, sharing=sharing)
    return build.build()


def flows(*pairs: str, size: float = 12.0, start: float = 0.0) -> Pattern:
    """One flow for each text: ``"a>b"``, of ``size`` bytes, or ``"a>b:3"``, of three."""
    made = []
    for text in pairs:
        ends, _, own = text.partition(":")
        source, destination = ends.split(">")
        made.append(
            Flow(
                source=source,
                destination=destination,
                size_bytes=float(own or size),
                start_s=start,
            )
        )
    return Pattern(flows=tuple(made), name=" ".join(pairs))


ABCD = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 6.0}

# pattern, seconds, bottleneck, runner-up, what it would take without the bottleneck
BY_HAND = [
    # One flow: its slowest link.
    (flows("a>b"), 12 / 3, "switch0->b", "a->switch0", 12 / 4),
    (flows("c>d"), 12 / 2, "c->switch0", "switch0->d", 12 / 6),
    # Fan in: 24 bytes into b (3 B/s) against 12 out of c (2 B/s).
    (flows("a>b", "c>b"), 24 / 3, "switch0->b", "c->switch0", 12 / 2),
    # Fan out: 36 bytes out of a.
    (flows("a>b", "a>c", "a>d"), 36 / 4, "a->switch0", "switch0->c", 12 / 2),
    # Unequal sizes: 5 + 4 bytes into d at 6 B/s are nothing beside 4 bytes out of c at 2.
    (flows("a>d:5", "c>d:4"), 4 / 2, "c->switch0", "switch0->d", 9 / 6),
    # Both ways at once: directions do not meet.
    (flows("a>b", "b>a"), 12 / 3, "b->switch0", "switch0->b", 12 / 3),
    # Nothing to carry.
    (flows("a>b:0"), 0.0, None, None, 0.0),
    (flows("a>a"), 0.0, None, None, 0.0),
]


@pytest.mark.parametrize(
    ("pattern", "seconds", "bottleneck", "runner_up", "without"), BY_HAND, ids=lambda v: str(v)[:40]
)
def test_by_hand(
    pattern: Pattern, seconds: float, bottleneck: str | None, runner_up: str | None, without: float
) -> None:
    topology = star(ABCD)
    found = busiest(topology, [pattern], Capacities.of(topology), alpha_s=0.5)
    names = (*found.resources, None)
    assert found.seconds[0] == 0.5 + seconds
    assert found.bottleneck_of(0) == bottleneck
    assert names[found.runner_up[0]] == runner_up
    assert found.runner_up_s[0] == 0.5 + without


def test_a_pattern_of_many_is_as_alone() -> None:
    topology = star(ABCD)
    patterns = [row[0] for row in BY_HAND]
    found = busiest(topology, patterns, Capacities.of(topology))
    assert found.seconds.tolist() == [row[1] for row in BY_HAND]
    busy = found.utilisation_s.toarray()
    assert busy.max(axis=1).tolist() == [row[1] for row in BY_HAND]
    assert busy[3, found.resources.index("switch0->d")] == 12 / 6


def test_duplex_adds_both_directions_up() -> None:
    topology = star(ABCD, Sharing.DUPLEX)
    found = busiest(topology, [flows("a>b", "b>a")], Capacities.of(topology))
    assert found.seconds[0] == 24 / 3
    assert found.bottleneck_of(0) == "b<->switch0"


def test_fatpipe_limits_each_flow_alone() -> None:
    topology = star(ABCD, Sharing.FATPIPE)
    found = busiest(topology, [flows("a>b:12", "a>b:9", "c>b:1")], Capacities.of(topology))
    assert found.seconds[0] == 12 / 3
    assert found.exact[0] == np.False_


def test_weight_counts_a_byte_twice() -> None:
    build = TopologyBuilder("staged")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    build.resource(Resource(id="uplink", nominal_Bps=5.0))
    for name in "ab":
        build.node(name, NodeKind.GPU)
        build.connect(name, "switch0", LinkKind.PCIE, nominal_Bps=4.0, uses=(("uplink", 1.0),))
    topology = build.build()
    found = busiest(topology, [flows("a>b")], Capacities.of(topology))
    assert found.bottleneck_of(0) == "uplink"
    assert found.seconds[0] == pytest.approx(2 * 12 / 5)


def receivers(kappa: float = 1.0, *, in_order: bool = False, names: str = "b") -> Topology:
    """The star with receive engines that serve one flow at a time."""
    engines = [
        Resource(id=f"receive {n}", sharing=Sharing.TIME_SHARED, kappa=kappa, in_order=in_order)
        for n in names
    ]
    uses = [Use(resource=f"receive {n}", destinations=(n,)) for n in names]
    return star(ABCD | {"e": 12.0, "b": 12.0}).with_resources(engines, uses)


def test_time_shared_adds_solo_times_up() -> None:
    # Solo: a 4 B/s, c 2 B/s, d 6 B/s into b (12 B/s): 3 + 6 + 2 = 11 seconds, with overlap 0.5.
    topology = receivers(0.5)
    capacities = Capacities.of(topology)
    found = busiest(topology, [flows("a>b", "c>b", "d>b"), flows("c>b")], capacities)
    assert found.seconds.tolist() == pytest.approx([6.0, 6.0])
    assert found.bottleneck_of(0) == "c->switch0"  # 6 seconds, against 5.5 of the engine
    whole = Capacities.of(topology, kappa={"receive b": 1.0})
    found = busiest(topology, [flows("a>b", "c>b", "d>b"), flows("c>b")], whole)
    assert found.seconds.tolist() == [11.0, 6.0]
    assert found.bottleneck_of(0) == "receive b"
    # A lone flow takes its solo time, which is its slowest link's.
    assert found.bottleneck_of(1) == "c->switch0"


@pytest.mark.parametrize(
    ("topology", "pattern", "exact"),
    [
        (star(ABCD), flows("a>b", "c>b"), True),
        (star(ABCD), flows("a>b", "c>b:3"), False),
        (star(ABCD), flows("a>b", "c>b:0", "a>a:77"), True),
        (star(ABCD), Pattern(flows=(*flows("a>b").flows, *flows("c>d", start=1.0).flows)), False),
        (star(ABCD), flows("a>b", "c>d", start=1.0), True),
        (receivers(0.9), flows("a>b", "c>b"), True),
        # Several engines at once run their messages in an order that nobody promises.
        (receivers(names="be"), flows("a>b", "c>b", "a>e"), True),
        (receivers(names="be"), flows("a>b", "c>b", "a>e", "d>e"), False),
        (receivers(in_order=True), flows("a>b", "c>b", "d>e"), True),
        # a's link idles towards e while a waits for its turn at b.
        (receivers(in_order=True), flows("a>b", "c>b", "a>e"), False),
        (receivers(0.9, in_order=True), flows("a>b", "c>b"), False),
    ],
)
def test_exact_or_bound(topology: Topology, pattern: Pattern, exact: bool) -> None:
    assert bool(busiest(topology, [pattern], Capacities.of(topology)).exact[0]) is exact


def test_late_flows_count_from_their_start() -> None:
    late = Pattern(flows=(*flows("a>b").flows, *flows("c>d", start=5.0).flows))
    topology = star(ABCD)
    found = busiest(topology, [late], Capacities.of(topology))
    assert found.seconds[0] == 5 + 12 / 2
    nothing = Pattern(flows=(*flows("a>b").flows, *flows("c>d:0", start=50.0).flows))
    assert busiest(topology, [nothing], Capacities.of(topology)).seconds[0] == 50.0


def test_zero_and_infinite_capacity() -> None:
    topology = star(ABCD)
    capacities = Capacities.of(topology, {"a->switch0": 0.0, "switch0->b": math.inf})
    found = busiest(topology, [flows("a>b"), flows("a>b:0"), flows("c>b")], capacities)
    assert found.seconds.tolist() == [math.inf, 0.0, 6.0]
    free = Capacities.of(topology, dict.fromkeys(topology.resources, math.inf))
    found = busiest(topology, [flows("a>b")], free)
    assert found.seconds[0] == 0.0
    assert found.bottleneck[0] == -1


def test_idle_resources_change_nothing() -> None:
    # Many flows on few resources are added up in another way than few on many.
    small = star(ABCD)
    large = star(ABCD | {f"idle{k}": 1.0 for k in range(100)})
    random = np.random.default_rng(3)
    patterns = [
        flows(*(f"{a}>{b}:{random.integers(0, 4)}" for a, b in random.choice(list("abcd"), (9, 2))))
        for _ in range(200)
    ]
    dead = {"c->switch0": 0.0}
    few = busiest(small, patterns, Capacities.of(small, dead), alpha_s=0.5)
    many = busiest(large, patterns, Capacities.of(large, dead), alpha_s=0.5)
    assert np.array_equal(few.seconds, many.seconds)
    assert np.isinf(few.seconds).any()
    assert np.array_equal(few.runner_up_s, many.runner_up_s)
    assert np.array_equal(few.exact, many.exact)
    for k in range(200):
        assert few.bottleneck_of(k) == many.bottleneck_of(k)


def test_capacities_are_given_nominal_default_or_an_error() -> None:
    topology = star({"a": 4.0, "b": None})
    with pytest.raises(
        TopologyError,
        match="of b->switch0, switch0->b are unknown; give it, for example --set 'b->s",
    ):
        Capacities.of(topology)
    assert Capacities.of(topology, default_Bps=7.0).capacity_Bps.tolist() == [4.0, 7.0, 4.0, 7.0]
    assert Capacities.of(topology, {"b->switch0": 1.0}, default_Bps=7.0).capacity_Bps[1] == 1.0
    with pytest.raises(TopologyError, match="did you mean b->switch0"):
        Capacities.of(topology, {"b->switch": 1.0}, default_Bps=7.0)
    for wrong in (-1.0, math.nan):
        with pytest.raises(TopologyError, match="has capacity"):
            Capacities.of(topology, {"b->switch0": wrong}, default_Bps=7.0)
    with pytest.raises(TopologyError, match="overlap factor"):
        Capacities.of(receivers(), kappa={"receive b": 1.5})


def test_unknown_capacities_matter_only_where_a_flow_goes() -> None:
    topology = star(ABCD | {"x": None})
    capacities = Capacities.of(topology, needed=())
    assert busiest(topology, [flows("a>b")], capacities).seconds[0] == 4.0
    with pytest.raises(TopologyError, match="the capacity of x->switch0 is unknown"):
        busiest(topology, [flows("x>b")], capacities)


def test_bad_flows() -> None:
    topology = star(ABCD)
    capacities = Capacities.of(topology)
    with pytest.raises(FlowError, match="no patterns"):
        busiest(topology, [], capacities)
    with pytest.raises(FlowError, match="fan has no flows"):
        busiest(topology, [Pattern(flows=(), name="fan")], capacities)
    with pytest.raises(UnknownEndpointError, match="unknown endpoint 'z'"):
        busiest(topology, [flows("a>z")], capacities)
    build = TopologyBuilder("apart")
    build.node("a", NodeKind.GPU)
    build.node("b", NodeKind.GPU)
    apart = build.build()
    with pytest.raises(NoRouteError, match="no route from a to b"):
        busiest(apart, [flows("a>b")], Capacities.of(apart))
    with pytest.raises(FlowError, match="has no flows"):
        Batch(np.array([0, 1, 1]), np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))


def test_threads_change_nothing() -> None:
    topology = star(ABCD | {f"g{k}": 1.0 + k for k in range(12)})
    names = topology.accelerators
    random = np.random.default_rng(7)
    many = [
        flows(*(f"{a}>{b}" for a, b in random.choice(names, (random.integers(1, 9), 2))))
        for _ in range(9000)
    ]
    lines, batch = batch_of(topology, many)
    loads = Loads.of(lines, Capacities.of(topology))
    one = busiest_of_batch(loads, batch, threads=1)
    three = busiest_of_batch(loads, batch, threads=3)
    for name in ("seconds", "bottleneck", "runner_up", "runner_up_s", "exact"):
        assert np.array_equal(getattr(one, name), getattr(three, name))
    assert abs(one.utilisation_s - three.utilisation_s).max() == 0
    assert np.array_equal(one.utilisation_s.max(axis=1).toarray().ravel(), one.seconds)
    bare = busiest_of_batch(loads, batch, utilisation=False)
    assert np.array_equal(bare.seconds, one.seconds)
    assert bare.utilisation_s.nnz == 0


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.floats(1.0, 50.0))
def test_more_capacity_never_delays(seed: int, factor: float) -> None:
    random = np.random.default_rng(seed)
    topology = star({n: float(random.uniform(1, 9)) for n in "abcdef"})
    pattern = flows(
        *(f"{a}>{b}:{random.uniform(0, 9)}" for a, b in random.choice(list("abcdef"), (8, 2)))
    )
    before = Capacities.of(topology)
    name = str(random.choice(before.resources))
    after = before.changed({name: factor * before.capacity_Bps[before.resources.index(name)]})
    slow, fast = (busiest(topology, [pattern], c).seconds[0] for c in (before, after))
    assert fast <= slow


def test_the_kernels_know_the_codes() -> None:
    for kernel in (busiest_kernel, setup_kernel):
        assert SHARING_CODE[Sharing.TIME_SHARED] == kernel._TIME_SHARED
        assert SHARING_CODE[Sharing.FATPIPE] == kernel._FATPIPE

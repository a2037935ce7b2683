"""The fluid simulator by hand: finishes, rates, lines, errors."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from fluid_cases import chain, flow, run

from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import FlowError, SimulationError, TopologyError
from topocal.topo.flow import Pattern
from topocal.topo.fluid import Segment, simulate, simulate_batch
from topocal.topo.loads import Loads, batch_of
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


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

"""Designs: by hand on small machines, by brute force on tiny random ones."""

from __future__ import annotations

import math

import pytest

from topocal.measure.design import design
from topocal.measure.exhaustive import exhaustive, sweep_size
from topocal.measure.patterns import PatternKind, both_ways, fan_in, fan_out, peer
from topocal.measure.plan import Outcome, Plan, Purpose
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, InputError, TopologyError, UnknownEndpointError
from topocal.topo.fabric import fat_tree
from topocal.topo.flow import Pattern
from topocal.topo.machines import (
    b70,
    dgx1,
    dgx_a100,
    dgx_h100,
    l40s,
    mi250x,
    rail_pod,
)
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

GB = 1e9


def star(*rates_GBps: float | None) -> Topology:
    """GPUs on one PCIe switch, each with its own link of the given rate."""
    build = TopologyBuilder("star")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for k, rate in enumerate(rates_GBps):
        build.node(f"gpu{k}", NodeKind.GPU)
        Bps = None if rate is None else rate * GB
        build.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=Bps)
    return build.build()


def two_sides(
    per_side: int, link: float, middle: float | None, sharing: Sharing = Sharing.CAPACITY
) -> Topology:
    """Two sockets with GPUs of ``link`` GB/s each, joined by ``middle`` GB/s."""
    build = TopologyBuilder("two sides")
    for side in range(2):
        build.node(f"socket{side}", NodeKind.SOCKET)
    build.connect(
        "socket0",
        "socket1",
        LinkKind.SMP,
        nominal_Bps=None if middle is None else middle * GB,
        sharing=sharing,
    )
    for k in range(2 * per_side):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"socket{k // per_side}", LinkKind.PCIE, nominal_Bps=link * GB)
    return build.build()


def _flows(plan: Plan, purpose: Purpose) -> list[frozenset[tuple[str, str]]]:
    return [frozenset(p.flows) for p in plan.patterns for r in p.reasons if r.purpose is purpose]


def _pattern_for(plan: Plan, resource: str) -> Pattern:
    finding = plan.finding(resource)
    assert finding.pattern is not None, finding
    return plan.patterns[finding.pattern].pattern


# Three cards of 20 GB/s on a switch.  A lone flow keeps two links equally busy; two
# flows into one card keep its link busy twice as long as any other: ratio 2.
def test_three_equal_links_are_pinned_by_fans_of_two() -> None:
    plan = design(star(20, 20, 20))
    for k in range(3):
        others = [f"gpu{j}" for j in range(3) if j != k]
        for link, pattern in (
            (f"gpu{k}->switch0", fan_out(f"gpu{k}", others)),
            (f"switch0->gpu{k}", fan_in(f"gpu{k}", others)),
        ):
            finding = plan.finding(link)
            assert finding.outcome is Outcome.CLEAR
            assert finding.ratio == pytest.approx(2)
            assert set(_pattern_for(plan, link).pairs) == set(pattern.pairs)
    # Those six, a lone flow from each, and two both ways: the first tries two links each way.
    assert len(_flows(plan, Purpose.ALONE)) == 3
    assert len(_flows(plan, Purpose.BOTH_WAYS)) == 2
    assert len(plan.patterns) == 6 + 3 + 2


# Links of 10 and 40 GB/s: a flow between gpu0 and any other takes four times as long on
# gpu0's link as on the other one.
def test_a_slow_link_is_pinned_by_one_flow() -> None:
    plan = design(star(10, 40, 40, 40), supplements=False)
    finding = plan.finding("gpu0->switch0")
    assert finding.ratio == pytest.approx(4)
    assert plan.patterns[finding.pattern or 0].kind is PatternKind.PEER
    # Of two flows from a fast card to fast ones, its own link is the bottleneck.
    assert plan.finding("gpu1->switch0").ratio == pytest.approx(2)


def test_two_cards_leave_one_class_for_each_direction() -> None:
    plan = design(star(20, 20))
    assert plan.finding("gpu0->switch0").outcome is Outcome.CLEAR
    assert plan.finding("gpu0->switch0").ratio is None
    series = plan.finding("switch0->gpu1")
    assert series.outcome is Outcome.SERIES
    assert series.others == ("gpu0->switch0",)
    assert "only the slower of them shows" in series.reason


def test_of_links_in_series_the_slowest_stands_for_all() -> None:
    plan = design(star(40, 20))
    assert plan.finding("switch0->gpu1").outcome is Outcome.CLEAR
    series = plan.finding("gpu0->switch0")
    assert series.outcome is Outcome.SERIES
    assert series.others == ("switch0->gpu1",)
    assert "which is taken to be slower" in series.reason


# Two cards of 10 GB/s under an uplink of 30 GB/s: at most 20 GB/s reach it.
def test_an_uplink_that_is_never_full_is_fed() -> None:
    plan = design(two_sides(2, 10, 30))
    finding = plan.finding("socket0->socket1")
    assert finding.outcome is Outcome.FED
    assert finding.pattern is None
    assert finding.ceiling == pytest.approx(20 / 30)
    assert set(finding.others) == {"gpu0->socket0", "gpu1->socket0"}
    assert "which pass 20 GB/s in all; it passes 30 GB/s" in finding.reason


# Four cards of 20 GB/s a side and 40 GB/s between the sides: two flows fill it exactly, three
# are 1.5 times as long on it as on any card's link, and a fan never gets that far.
def test_a_hop_between_sockets_needs_a_bundle() -> None:
    plan = design(two_sides(4, 20, 40))
    finding = plan.finding("socket0->socket1")
    assert finding.outcome is Outcome.CLEAR
    assert finding.ratio == pytest.approx(1.5)
    pattern = _pattern_for(plan, "socket0->socket1")
    assert len(pattern.flows) == 3
    assert len({end for pair in pattern.pairs for end in pair}) == 6
    # The other way at the same time: six flows, which would take twice as long were they one.
    there = frozenset(pattern.pairs)
    back = frozenset((d, s) for s, d in pattern.pairs)
    assert there | back in _flows(plan, Purpose.BOTH_WAYS)


# Two cards of 10 GB/s, a single pair each way between two cards of 40 and an uplink of 20:
# every flow through a card's link also crosses the slower uplink.
def test_what_is_behind_something_slower_is_dominated() -> None:
    build = TopologyBuilder("behind")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(3):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{k}", "socket0", LinkKind.PCIE, nominal_Bps=20 * GB)
    for k in range(6):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=20 * GB)
    topology = build.build()
    # Copies between cards of one switch are made to go by the root, as without peer access.
    topology.graph.graph["peer_access"] = False
    plan = design(topology)
    finding = plan.finding("gpu0->switch0")
    assert finding.outcome is Outcome.DOMINATED
    assert finding.others == ("switch0->socket0",)
    assert finding.reason.endswith("also crosses switch0->socket0, which is no faster")


# A half-duplex hop of 20 GB/s between cards of 20 GB/s: opposing flows load it twice.
def test_a_duplex_resource_is_pinned_by_both_ways() -> None:
    plan = design(two_sides(1, 20, 20, Sharing.DUPLEX))
    finding = plan.finding("socket0<->socket1")
    assert finding.ratio == pytest.approx(2)
    assert set(_pattern_for(plan, "socket0<->socket1").pairs) == set(
        both_ways("gpu0", "gpu1").pairs
    )


# A half-duplex hop of 30 GB/s, two cards of 20 GB/s a side: two opposing flows keep it busy
# (2/30)/(1/20) = 1.33 times as long as a card's link, a ring of four 2.67 times.
def test_a_faster_duplex_resource_is_pinned_by_a_relay() -> None:
    plan = design(two_sides(2, 20, 30, Sharing.DUPLEX))
    finding = plan.finding("socket0<->socket1")
    assert finding.ratio == pytest.approx(4 / 30 * 20)
    assert finding.pattern is not None
    assert plan.patterns[finding.pattern].kind is PatternKind.RELAY


# Each flow is limited to 10 GB/s between the sides, however many there are.
def test_a_fatpipe_is_pinned_by_one_flow_or_not_at_all() -> None:
    slow = design(two_sides(2, 20, 10, Sharing.FATPIPE)).finding("socket0->socket1")
    assert slow.ratio == pytest.approx(2)
    fast = design(two_sides(2, 20, 40, Sharing.FATPIPE)).finding("socket0->socket1")
    assert fast.outcome in (Outcome.DOMINATED, Outcome.TRIED, Outcome.FED)
    assert fast.ceiling is not None
    assert fast.ceiling <= 0.5 + 1e-9


# Cards receive one flow at a time: then a fan's time is that of the engine, not of the link.
def test_time_shared_receivers_are_measured_by_their_fans() -> None:
    engines = [Resource(id=f"gpu{k}.engine", sharing=Sharing.TIME_SHARED) for k in range(4)]
    uses = [Use(resource=f"gpu{k}.engine", destinations=(f"gpu{k}",)) for k in range(4)]
    plan = design(star(10, 20, 40, 40).with_resources(engines, uses))
    finding = plan.finding("gpu2.engine")
    assert finding.outcome is Outcome.SHARING
    # From all others 1/10 + 1/20 + 1/40 by turns; at once 1/10, the slowest one's own link.
    assert finding.ratio == pytest.approx(1.75)
    assert len(_pattern_for(plan, "gpu2.engine").flows) == 3
    assert {d for _, d in _pattern_for(plan, "gpu2.engine").pairs} == {"gpu2"}


# Senders of 40, 40, 10 and 20 GB/s into a card of 40 GB/s.  The two fastest take 2/40 either
# way.  All four take 1/40 + 1/40 + 1/10 + 1/20 = 0.2 by turns, and by capacities as long as
# the slowest alone, 0.1: 4/40 at the receiver, 1/10 at the sender.
def test_the_second_fan_is_the_set_that_tells_most() -> None:
    plan = design(star(40, 40, 40, 10, 20))
    fans = {
        frozenset(p.flows): r.ratio
        for p in plan.patterns
        for r in p.reasons
        if r.purpose is Purpose.FAN_IN_SHARING and r.about == "gpu0"
    }
    fastest = frozenset(fan_in("gpu0", ["gpu1", "gpu2"]).pairs)
    telling = frozenset(fan_in("gpu0", ["gpu1", "gpu2", "gpu3", "gpu4"]).pairs)
    assert fans == {fastest: None, telling: pytest.approx(2)}


# Cards joined to gpu0 by direct links of 40, 40, 20 and 20 GB/s.  If gpu0 takes turns, the two
# fast ones take 2/40: just as if it received 40 GB/s in all.  That would take 2/40 for the
# slow two, too, which by turns take 2/20.
def test_a_hidden_limit_is_told_from_taking_turns() -> None:
    build = TopologyBuilder("direct")
    for k in range(5):
        build.node(f"gpu{k}", NodeKind.GPU)
    for k, rate in enumerate((40, 40, 20, 20), start=1):
        build.connect("gpu0", f"gpu{k}", LinkKind.NVLINK, nominal_Bps=rate * GB)
    plan = design(build.build())
    fans = {
        tuple(sorted(s for s, _ in p.flows)): r.ratio
        for p in plan.patterns
        for r in p.reasons
        if r.purpose is Purpose.FAN_IN_SHARING and r.about == "gpu0"
    }
    assert fans == {("gpu1", "gpu2"): None, ("gpu3", "gpu4"): pytest.approx(2)}


def test_equal_senders_get_one_fan() -> None:
    plan = design(star(20, 20, 20, 20))
    about = [
        r.about for p in plan.patterns for r in p.reasons if r.purpose is Purpose.FAN_IN_SHARING
    ]
    assert sorted(about) == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_what_nothing_crosses_is_unused_and_what_has_no_limit_never_binds() -> None:
    topology = star(20, 20, 20)
    spare = [Resource(id="spare", nominal_Bps=GB), Resource(id="open", nominal_Bps=math.inf)]
    plan = design(topology.with_resources(spare, [Use(resource="open")]))
    assert plan.finding("spare").outcome is Outcome.UNUSED
    assert plan.finding("open").outcome is Outcome.UNLIMITED
    assert plan.finding("open").assumed_Bps is None


def test_unknown_capacities_are_guessed_by_make_and_said_so() -> None:
    plan = design(star(20, 30, None, 40))
    guess = plan.finding("gpu2->switch0")
    assert guess.assumed_Bps == pytest.approx(30 * GB)
    assert guess.basis == "make"
    assert any("gpu2->switch0" in note and "30 GB/s" in note for note in plan.notes)
    around = design(two_sides(2, 20, None)).finding("socket0->socket1")
    assert around.assumed_Bps == pytest.approx(20 * GB)
    assert around.basis == "neighbours"


def test_where_nothing_is_known_all_are_taken_alike() -> None:
    plan = design(b70())
    assert {f.basis for f in plan.resources} == {"fallback"}
    assert len({f.assumed_Bps for f in plan.resources}) == 1
    assert plan.notes[0].startswith("no nominal capacity is known: all 26 resources")
    assert all(f.outcome is Outcome.CLEAR for f in plan.resources)


# After a first round: gpu0's egress is pinned at 20, but the samples allow the hop to be as
# slow as 15 GB/s.  At its bound one flow makes it the bottleneck by 20/15.
def test_a_bound_in_place_of_the_nominal_capacity_changes_the_pattern() -> None:
    topology = two_sides(2, 20, 60)
    assert design(topology).finding("socket0->socket1").outcome is Outcome.FED
    known = [name for name in topology.resources if name != "socket0->socket1"]
    plan = design(
        topology,
        theta={"socket0->socket1": 1 / (15 * GB)},
        pinned=known,
        supplements=False,
    )
    finding = plan.finding("socket0->socket1")
    assert finding.basis == "given"
    assert finding.outcome is Outcome.CLEAR
    # Two flows: 2/15 against 1/20.
    assert finding.ratio == pytest.approx(2 / 15 * 20)
    assert len(plan.patterns) == 1
    assert all(plan.finding(name).outcome is Outcome.PINNED for name in known)


def test_when_all_is_pinned_nothing_is_left() -> None:
    topology = star(20, 20, 20)
    plan = design(topology, pinned=topology.resources, supplements=False)
    assert plan.patterns == ()
    assert plan.rounds == ()
    assert plan.seconds == 0
    assert plan.memory_bytes == 0


def test_supplements_that_were_measured_are_not_repeated() -> None:
    topology = star(20, 20, 20, 20)
    first = design(topology)
    measured = [p.pattern for p in first.patterns]
    assert design(topology, pinned=topology.resources, measured=measured).patterns == ()
    # What names endpoints that do not take part says nothing.
    assert design(topology, measured=[peer("gpu0", "nic9")]) == first


# A fit finds gpu3 to send and receive 10 GB/s where all were thought to pass 20.  The fans of
# the first round, at gpu0 from gpu1 and gpu2, tell nothing of turns: equal senders never do.
# With gpu3 among them, 1/20 + 1/10 by turns, against 1/10 at once; where the first fan was one
# of gpu3, that of the two fastest comes to compare it with.  And the card that was tried
# both ways with gpu3 was not filled by it: it is tried again with another.
def test_after_a_fit_only_what_it_makes_worthwhile_is_new() -> None:
    topology = star(20, 20, 20, 20)
    first = design(topology)
    fitted = dict.fromkeys(topology.resources, 1 / (20 * GB))
    slow = {"gpu3->switch0": 1 / (10 * GB), "switch0->gpu3": 1 / (10 * GB)}
    again = design(
        topology,
        theta=fitted | slow,
        pinned=topology.resources,
        measured=[p.pattern for p in first.patterns],
    )
    fans = [p for p in again.patterns if p.reasons[0].purpose is not Purpose.BOTH_WAYS]
    telling = [p for p in fans if p.reasons[0].ratio is not None]
    assert 0 < len(telling) <= 6
    for planned in fans:
        (reason,) = planned.reasons
        assert reason.purpose in (Purpose.FAN_IN_SHARING, Purpose.FAN_OUT_SHARING)
        assert ("gpu3" in {end for pair in planned.flows for end in pair}) == (planned in telling)
        assert reason.ratio == (pytest.approx(1.5) if planned in telling else None)
    (check,) = [p for p in again.patterns if p not in fans]
    assert "gpu3" not in {end for pair in check.flows for end in pair}


def test_only_the_endpoints_named_take_part() -> None:
    plan = design(star(20, 20, 20, 20), endpoints=["gpu3", "gpu1"])
    assert plan.endpoints == ("gpu3", "gpu1")
    assert {end for p in plan.patterns for pair in p.flows for end in pair} == {"gpu1", "gpu3"}
    assert plan.finding("gpu0->switch0").outcome is Outcome.UNUSED


def test_endpoints_that_no_route_joins_are_passed_over() -> None:
    build = TopologyBuilder("islands")
    for island in range(2):
        build.node(f"switch{island}", NodeKind.PCIE_SWITCH)
        for k in range(2):
            gpu = build.node(f"gpu{2 * island + k}", NodeKind.GPU)
            build.connect(gpu, f"switch{island}", LinkKind.PCIE, nominal_Bps=GB)
    plan = design(build.build())
    for planned in plan.patterns:
        for source, destination in planned.flows:
            assert int(source[3:]) // 2 == int(destination[3:]) // 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"endpoints": ["gpu0"]}, FlowError, "needs two endpoints, not 1"),
        ({"endpoints": ["gpu0", "gpu0"]}, InputError, "gpu0 is named twice"),
        ({"endpoints": ["gpu0", "gpu9"]}, UnknownEndpointError, "unknown endpoint 'gpu9'"),
        ({"theta": {"gpu0->switch": 1.0}}, TopologyError, "did you mean gpu0->switch0"),
        ({"theta": {"gpu0->switch0": math.nan}}, TopologyError, "nan seconds per byte"),
        ({"theta": {"gpu0->switch0": -1.0}}, TopologyError, "-1.0 seconds per byte"),
        ({"pinned": ["what"]}, TopologyError, "unknown resource 'what'"),
        ({"sizes_bytes": []}, InputError, "no sizes"),
        ({"sizes_bytes": [4096, 0]}, InputError, "a size of 0 bytes"),
        ({"repeats": 0}, InputError, "0 repeats"),
        ({"warm_ups": -1}, InputError, "-1 warm-ups"),
        ({"clear_ratio": 0.5}, InputError, "a clear ratio of 0.5"),
        ({"budget_patterns": 0}, InputError, "a budget of 0 patterns"),
        ({"budget_s": 0}, InputError, "a budget of 0 s"),
        ({"budget_s": 1e-9}, InputError, "one pattern takes"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        design(star(20, 20, 20), **arguments)  # type: ignore[arg-type]


def test_endpoints_without_any_route_are_refused() -> None:
    build = TopologyBuilder("apart")
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
    with pytest.raises(FlowError, match="no route joins any two"):
        design(build.build())


def test_a_budget_keeps_the_first_of_each_make_and_says_what_it_left_out() -> None:
    topology = two_sides(4, 20, 40)
    whole = design(topology)
    small = design(topology, budget_patterns=4)
    assert len(small.patterns) == 4
    assert {frozenset(p.flows) for p in small.patterns} < {
        frozenset(p.flows) for p in whole.patterns
    }
    kept = [f.resource for f in small.resources if f.outcome is Outcome.CLEAR]
    # The hop carries most; after it come the first link up and the first link down.
    assert any("socket0->socket1" in name or "socket1->socket0" in name for name in kept)
    assert any(name.startswith("gpu") for name in kept)
    left = [f for f in small.resources if f.outcome is Outcome.LEFT_OUT]
    assert left
    assert all(f.pattern is None for f in left)
    assert any("leaves out" in note for note in small.notes)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_budget_of_time_is_kept_and_used(share: float) -> None:
    topology = l40s()
    whole = design(topology)
    part = design(topology, budget_s=whole.seconds * share)
    assert part.seconds <= whole.seconds * share
    assert len(part.patterns) >= 0.5 * share * len(whole.patterns)


def test_a_larger_budget_keeps_what_a_smaller_one_does() -> None:
    topology = l40s()
    kept: set[frozenset[tuple[str, str]]] = set()
    for number in (1, 5, 10, 20, 100):
        plan = design(topology, budget_patterns=number)
        now = {frozenset(p.flows) for p in plan.patterns}
        assert kept <= now
        kept = now
    assert len(kept) == len(design(topology).patterns)


@pytest.mark.parametrize("endpoints", [2, 3, 4, 5, 8])
def test_the_sweep_has_the_number_of_patterns_it_says(endpoints: int) -> None:
    plan = exhaustive(star(*[20.0] * endpoints))
    # Of three endpoints a relay is one ring; of two it is both ways, counted once.
    assert len(plan.patterns) == sweep_size(endpoints)
    assert plan.rounds == tuple((k,) for k in range(len(plan.patterns)))


def test_a_sweep_of_very_many_endpoints_is_refused() -> None:
    with pytest.raises(InputError, match="patterns; name fewer endpoints"):
        exhaustive(star(*[20.0] * 400))


def test_what_a_sweep_pins_by_chance_is_said() -> None:
    plan = exhaustive(two_sides(4, 20, 60))
    assert plan.finding("gpu0->socket0").outcome is Outcome.CLEAR
    hop = plan.finding("socket0->socket1")
    assert hop.outcome is not Outcome.TRIED


MACHINES = {
    "star": lambda: star(*[20.0] * 8),
    "tree": lambda: two_sides(4, 20, 40),
    "b70": b70,
    "l40s": l40s,
    "dgx1": dgx1,
    "dgx-h100": dgx_h100,
    "mi250x": mi250x,
}


# A DGX-1 has 40 resources that only patterns of their own can pin, most of them direct links.
@pytest.mark.parametrize("name", [name for name in MACHINES if name != "dgx1"])
def test_eight_endpoints_take_at_most_half_of_the_sweep(name: str) -> None:
    plan = design(MACHINES[name]())
    assert 2 * len(plan.patterns) <= sweep_size(8) == 155
    assert all(f.outcome is not Outcome.NOT_FOUND for f in plan.resources)


CLUSTERS = {
    "4x8": lambda: fat_tree([dgx_h100()] * 4, nodes_per_leaf=2, spines=2, oversubscription=2),
    "4x8 on rails": lambda: rail_pod(4),
    "8x8": lambda: fat_tree([dgx_a100()] * 8, nodes_per_leaf=2, spines=4, oversubscription=2),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_take_at_most_a_sixth_of_the_sweep(name: str) -> None:
    plan = design(CLUSTERS[name]())
    assert 6 * len(plan.patterns) <= sweep_size(len(plan.endpoints))
    used = [f for f in plan.resources if f.outcome is not Outcome.UNUSED]
    assert len(plan.rounds) <= 0.25 * len(used)

"""Findings: each on figures that show it, on figures that do not, and none on clean machines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any
from topocal.measure.importers.tables import parse_table
from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer, relay
from topocal.solve.evidence import (
    FALSE_ALARM,
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
    Severity,
    listed,
    margin,
)
from topocal.solve.findings import FINDERS, find_all
from topocal.solve.findings_duplex import find_duplex_loss, find_staged_copies
from topocal.solve.findings_levels import find_unlike_pairs
from topocal.solve.findings_links import find_slow_links
from topocal.solve.findings_pairs import (
    find_asymmetric_directions,
    find_near_slower_than_far,
    find_stragglers,
)
from topocal.solve.findings_patterns import (
    find_collapses,
    find_contradictions,
    find_fading,
    find_time_shared,
)
from topocal.topo.builder import TopologyBuilder
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, UnknownEndpointError
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70, dgx1, dgx_h100, l40s, random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"
SIZE = 2.0**28
GB = 1e9
Pair = tuple[str, str]


def box(
    gpus: int = 4, sockets: int = 2, *, peer_access: bool | None = None, **link: object
) -> Topology:
    """Cards spread evenly over sockets that are joined to each other."""
    builder = TopologyBuilder("box")
    builder.peer_access = peer_access
    for k in range(sockets):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        builder.connect(f"switch{k}", f"socket{k}", LinkKind.PCIE)
    for k in range(gpus):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", f"switch{k * sockets // gpus}", LinkKind.PCIE, **link)  # type: ignore[arg-type]
    for a, b in itertools.combinations(range(sockets), 2):
        builder.connect(f"socket{a}", f"socket{b}", LinkKind.SMP)
    return builder.build()


def evenly(topology: Topology, rate: float) -> dict[Pair, float]:
    return dict.fromkeys(itertools.permutations(topology.accelerators, 2), rate * GB)


def measured(pattern: Pattern, total: float) -> Concurrent:
    return Concurrent(pattern=pattern, throughput_Bps=total * GB)


def evidence(
    topology: Topology,
    rates: Mapping[Pair, float],
    *concurrent: Concurrent,
    fitted: Mapping[str, float] | None = None,
    noise: float = 0.01,
) -> Evidence:
    return Evidence(
        topology=topology,
        pair_rates_Bps=rates,
        concurrent=concurrent,
        fitted_Bps=fitted or {},
        noise=noise,
    )


def only(found: list[Finding], kind: FindingKind) -> Finding:
    assert [f.kind for f in found] == [kind]
    return found[0]


# --- clean machines are told nothing -----------------------------------------------------


def patterns_of(topology: Topology, rng: np.random.Generator) -> list[Pattern]:
    ends = list(topology.accelerators)
    found = [both_ways(a, b, SIZE) for a, b in itertools.combinations(ends, 2)]
    found += [relay(ends, k, SIZE) for k in range(1, min(4, len(ends) - 1))] if ends[3:] else []
    for end in ends:
        others = [e for e in ends if e != end]
        for width in {2, len(others)} - {1}:
            if width <= len(others):
                chosen = [str(n) for n in rng.choice(others, width, replace=False)]
                found += [fan_in(end, chosen, SIZE), fan_out(end, chosen, SIZE)]
    half = len(ends) // 2
    if half > 1:
        crossing = list(zip(ends[:half], ends[half:], strict=False))
        found += [bundle(crossing[:k], SIZE) for k in range(2, half + 1)]
    return found


def clean(topology: Topology, seed: int, noise: float) -> Evidence:
    """A machine of capacities at 90 % of nominal (40 GB/s where unknown), timed with noise."""
    rng = np.random.default_rng(seed)
    capacity = {name: 0.9 * (r.nominal_Bps or 40 * GB) for name, r in topology.resources.items()}
    ends = topology.accelerators
    pairs = list(itertools.permutations(ends, 2))
    patterns = patterns_of(topology, rng)
    singles = [peer(a, b, SIZE) for a, b in pairs]
    seconds = busiest(topology, [*singles, *patterns], Capacities.of(topology, capacity)).seconds
    seconds = seconds * np.exp(noise * rng.standard_normal(len(seconds)))
    rates = {p: SIZE / s for p, s in zip(pairs, seconds, strict=False)}
    concurrent = [
        Concurrent(pattern=p, throughput_Bps=float(p.total_bytes / s))
        for p, s in zip(patterns, seconds[len(pairs) :], strict=True)
    ]
    fitted = {n: c * math.exp(noise * rng.standard_normal()) for n, c in capacity.items()}
    return evidence(topology, rates, *concurrent, fitted=fitted, noise=noise)


MACHINES = {m().name: m for m in (b70, dgx_h100, l40s, dgx1)} | {"box": box}


# Noise makes a finding once in ten thousand machines, and a search for one would find it:
# these two draw the same machines every time.
@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(MACHINES)), st.sampled_from([0.0, 0.03]))
def test_a_clean_machine_is_told_nothing(seed: int, name: str, noise: float) -> None:
    assert find_all(clean(MACHINES[name](), seed, noise)) == []


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
def test_nor_is_any_clean_tree(seed: int, gpus: int) -> None:
    topology = random_pcie_tree(np.random.default_rng(seed), gpus=gpus)
    # What the specifications make different must not be called different.
    assert find_all(clean(topology, seed, 0.03)) == []


def test_nothing_measured_is_nothing_found() -> None:
    assert find_all(evidence(box(), {})) == []
    assert find_all(evidence(box(), {("gpu0", "gpu1"): GB})) == []


# --- stragglers --------------------------------------------------------------------------


def test_one_slow_card_is_one_finding_and_not_six() -> None:
    # Seven cards; every pair with gpu6 reads 2, all others 25 (a public box with an x1 slot).
    topology = box(7, 1)
    rates = {p: (2.0 if "gpu6" in p else 25.0) * GB for p in evenly(topology, 1)}
    found = only(find_all(evidence(topology, rates)), FindingKind.STRAGGLER)
    assert found.about == ("gpu6",)
    assert found.severity is Severity.SERIOUS
    assert "2 GB/s with each of 6, where like pairs of the others read 25 GB/s" in found.text
    assert found.evidence[0].name == "gpu0->gpu6"


def test_both_ways_figures_alone_show_it_too() -> None:
    topology = box(7, 1)
    concurrent = [
        measured(both_ways(a, b, SIZE), 3.9 if "gpu6" in (a, b) else 50.5)
        for a, b in itertools.combinations(topology.accelerators, 2)
    ]
    found = only(find_stragglers(evidence(topology, {}, *concurrent)), FindingKind.STRAGGLER)
    assert found.about == ("gpu6",)


def test_a_card_behind_a_chipset_among_three() -> None:
    # Public desktop board: 1-2 13.17, 0-1 and 0-2 about 6.5; all three report PCIe 4.0 x8.
    topology = box(3, 1)
    rates = {p: (13.17 if set(p) == {"gpu1", "gpu2"} else 6.5) * GB for p in evenly(topology, 1)}
    found = only(find_stragglers(evidence(topology, rates)), FindingKind.STRAGGLER)
    assert found.about == ("gpu0",)


def test_the_same_from_one_figure_per_pair() -> None:
    topology = box(3, 1)
    rates = {("gpu0", "gpu1"): 6.5 * GB, ("gpu0", "gpu2"): 6.5 * GB, ("gpu1", "gpu2"): 13.2 * GB}
    found = only(find_all(evidence(topology, rates)), FindingKind.STRAGGLER)
    assert found.about == ("gpu0",)


def test_two_kinds_of_cards_are_no_stragglers() -> None:
    topology = box(4, 1)
    slow = {"gpu0", "gpu1"}
    rates = {p: (10.0 if slow & set(p) else 25.0) * GB for p in evenly(topology, 1)}
    assert find_stragglers(evidence(topology, rates)) == []


def test_one_fast_partner_is_enough_not_to_straggle() -> None:
    topology = box(4, 1)
    rates = {p: (10.0 if "gpu0" in p else 25.0) * GB for p in evenly(topology, 1)}
    rates["gpu0", "gpu1"] = 25 * GB
    assert find_stragglers(evidence(topology, rates)) == []


# --- unlike pairs --------------------------------------------------------------------------


def test_one_odd_pair_is_named() -> None:
    topology = box(4, 1)
    rates = evenly(topology, 25) | {("gpu1", "gpu2"): 20 * GB}
    found = only(find_unlike_pairs(evidence(topology, rates)), FindingKind.UNLIKE)
    assert found.text == (
        "Of the 12 pairs over PIX that the topology makes alike, gpu1->gpu2 reads 20 GB/s, where "
        "the others read 25 GB/s."
    )
    assert found.severity is Severity.WARNING


def test_a_group_that_varies_by_sender_says_so() -> None:
    topology = box(4, 1)
    by_sender = {"gpu0": 8.0, "gpu1": 12.0, "gpu2": 25.0, "gpu3": 50.0}
    rates = {p: by_sender[p[0]] * GB for p in evenly(topology, 1)}
    found = only(find_unlike_pairs(evidence(topology, rates)), FindingKind.UNLIKE)
    assert "read at 3 levels: 50 GB/s (gpu3 to gpu0-gpu2)" in found.text
    assert "; those of each sender agree" in found.text
    assert found.severity is Severity.SERIOUS


def test_other_links_make_other_pairs() -> None:
    builder = TopologyBuilder("two speeds")
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    for k, rate in enumerate((25e9, 25e9, 12e9, 12e9)):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=rate)
    topology = builder.build()
    rates = {p: (25.0 if set(p) == {"gpu0", "gpu1"} else 12.0) * GB for p in evenly(topology, 1)}
    assert find_unlike_pairs(evidence(topology, rates)) == []


def test_noise_is_no_difference() -> None:
    topology = box(4, 1)
    rates = evenly(topology, 25) | {("gpu1", "gpu2"): 22 * GB}
    assert find_unlike_pairs(evidence(topology, rates, noise=0.03)) == []
    assert len(find_unlike_pairs(evidence(topology, rates, noise=0.005))) == 1


# --- asymmetric directions -----------------------------------------------------------------


def test_a_slow_sender_accounts_for_all_its_pairs() -> None:
    topology = box(4, 1)
    rates = evenly(topology, 25)
    rates |= {p: 10 * GB for p in rates if p[0] == "gpu2"}
    found = only(find_asymmetric_directions(evidence(topology, rates)), FindingKind.ASYMMETRIC)
    assert found.about == ("gpu2",)
    assert found.text == ("gpu2 sends to gpu0, gpu1 and gpu3 at 10 GB/s, but receives at 25 GB/s.")
    assert found.severity is Severity.SERIOUS
    assert [str(s) for s in found.evidence[:2]] == ["gpu2->gpu0 10 GB/s", "gpu0->gpu2 25 GB/s"]


def test_a_slow_receiver_and_a_single_pair() -> None:
    topology = box(4, 1)
    rates = evenly(topology, 25)
    rates |= {p: 20 * GB for p in rates if p[1] == "gpu3"}
    (found,) = find_asymmetric_directions(evidence(topology, rates))
    assert found.text.startswith("gpu3 receives from gpu0-gpu2 at 20 GB/s, but sends at")
    assert found.severity is Severity.NOTE
    lone = evenly(topology, 25) | {("gpu0", "gpu1"): 15 * GB}
    (found,) = find_asymmetric_directions(evidence(topology, lone))
    assert found.text == "gpu0->gpu1 reads 15 GB/s, the other direction 25 GB/s."
    assert found.severity is Severity.WARNING


def test_ten_per_cent_between_directions_are_not_mentioned() -> None:
    topology = box(4, 1)
    rates = evenly(topology, 25) | {("gpu0", "gpu1"): 22.5 * GB}
    assert find_asymmetric_directions(evidence(topology, rates)) == []


# --- near slower than far, staged copies ---------------------------------------------------


@pytest.mark.parametrize(
    ("peer_access", "words"),
    [
        (None, "twice; check whether peer access is on."),
        (False, "twice (peer access is off here)."),
        (True, "twice, but peer access is on here."),
    ],
)
def test_near_slower_than_far(peer_access: bool | None, words: str) -> None:
    # Published: without peer access near is half of far where the uplink binds.
    topology = box(4, peer_access=peer_access)
    near = ({"gpu0", "gpu1"}, {"gpu2", "gpu3"})
    rates = {p: (10.0 if set(p) in near else 20.0) * GB for p in evenly(topology, 1)}
    found = only(find_near_slower_than_far(evidence(topology, rates)), FindingKind.NEAR_SLOWER)
    assert found.about == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert "near is slower than far (0.50 times)" in found.text
    assert found.text.endswith(words)
    assert found.severity is Severity.SERIOUS


def test_near_faster_than_far_is_as_it_should_be() -> None:
    topology = box(4)
    near = ({"gpu0", "gpu1"}, {"gpu2", "gpu3"})
    rates = {p: (20.0 if set(p) in near else 10.0) * GB for p in evenly(topology, 1)}
    assert find_near_slower_than_far(evidence(topology, rates)) == []


def test_a_slow_neighbour_by_specification_is_nothing_to_find() -> None:
    builder = TopologyBuilder("slow neighbour")
    for k in range(2):
        builder.node(f"socket{k}", NodeKind.SOCKET)
    builder.connect("socket0", "socket1", LinkKind.SMP)
    for k, (socket, rate) in enumerate(((0, 25e9), (0, 6e9), (1, 25e9))):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", f"socket{socket}", LinkKind.PCIE, nominal_Bps=rate)
    rates = {("gpu0", "gpu1"): 6 * GB, ("gpu0", "gpu2"): 24 * GB}
    assert find_near_slower_than_far(evidence(builder.build(), rates)) == []


def test_both_ways_no_more_than_one_way_is_one_uplink_crossed_twice() -> None:
    # Two RTX 2080 Ti behind one switch, no peer access: 5.71 one way, 6.10 both ways.
    topology = box(2, 1, peer_access=False)
    rates = evenly(topology, 5.71)
    asked = evidence(topology, rates, measured(both_ways("gpu0", "gpu1", SIZE), 6.10))
    found = only(find_all(asked), FindingKind.STAGED)
    assert found.text == (
        "gpu0<->gpu1, both directions at once, passes 6.1 GB/s, 1.07 times what one way passes "
        "alone: one resource carries both directions. The topology says that there is no peer "
        "access, so that these copies are staged in host memory: they cross the uplink that both "
        "cards lie under twice, up and down."
    )
    assert found.severity is Severity.SERIOUS
    unsaid = evidence(box(2, 1), rates, measured(both_ways("gpu0", "gpu1", SIZE), 6.10))
    (found,) = find_staged_copies(unsaid)
    assert found.text.endswith(
        "Copies that are staged in host memory do so: they cross one uplink twice, up and down."
    )


def test_full_duplex_is_not_staged() -> None:
    topology = box(2, 1)
    asked = evidence(topology, evenly(topology, 25), measured(both_ways("gpu0", "gpu1", SIZE), 49))
    assert find_staged_copies(asked) == []
    assert find_duplex_loss(asked) == []


# --- duplex loss ---------------------------------------------------------------------------


def test_duplex_loss() -> None:
    # H20: 333 one way, 2 x 282 both ways, and a pair in order.
    topology = box(4, 1)
    asked = evidence(
        topology,
        evenly(topology, 333),
        measured(both_ways("gpu0", "gpu1", SIZE), 564),
        measured(both_ways("gpu0", "gpu2", SIZE), 660),
        noise=0.005,
    )
    found = only(find_duplex_loss(asked), FindingKind.DUPLEX_LOSS)
    assert found.about == ("gpu0", "gpu1")
    assert found.text.startswith(
        "gpu0<->gpu1, both directions at once, passes 1.69 times one way in all, not 2 times (564 "
        "GB/s against 666 GB/s)."
    )
    assert find_staged_copies(asked) == []


def test_the_slower_direction_is_what_both_ways_is_compared_with() -> None:
    # 10 and 40: both at once cannot be done before the slow one, 20 in all is full duplex.
    topology = box(2, 1)
    rates = {("gpu0", "gpu1"): 10 * GB, ("gpu1", "gpu0"): 40 * GB}
    asked = evidence(topology, rates, measured(both_ways("gpu0", "gpu1", SIZE), 19.8))
    assert find_duplex_loss(asked) == []


# --- time-shared ---------------------------------------------------------------------------


def fan_evidence(total_in: float, total_out: float, noise: float = 0.01) -> Evidence:
    """gpu0 takes in from 10, 20 and 40 GB/s, and sends alike; fans of three both ways."""
    topology = box(4, 1)
    rates = evenly(topology, 50)
    for k, rate in ((1, 10.0), (2, 20.0), (3, 40.0)):
        rates[f"gpu{k}", "gpu0"] = rates["gpu0", f"gpu{k}"] = rate * GB
    peers = ["gpu1", "gpu2", "gpu3"]
    return evidence(
        topology,
        rates,
        measured(fan_in("gpu0", peers, SIZE), total_in),
        measured(fan_out("gpu0", peers, SIZE), total_out),
        noise=noise,
    )


def test_time_shared_receiver_and_sender() -> None:
    # One after another: 3 / (1/10 + 1/20 + 1/40) = 17.1; any capacities: 3 / (1/10) = 30.
    found = find_time_shared(fan_evidence(17.5, 30.0))
    one = only(found, FindingKind.TIME_SHARED)
    assert one.about == ("gpu0",)
    assert one.text.startswith("Receiver gpu0 serves one flow at a time: a fan takes 0.98 times")
    assert one.evidence[0].name == "gpu0<-gpu1,gpu2,gpu3"
    assert one.evidence[1].name == "gpu1->gpu0"
    (other,) = find_time_shared(fan_evidence(30.0, 17.0))
    assert other.text.startswith("Sender gpu0 serves one flow at a time")
    assert len(find_time_shared(fan_evidence(17.5, 17.0))) == 2


@pytest.mark.parametrize("total", [30.0, 28.0, 24.0])
def test_capacities_are_not_called_time_shared(total: float) -> None:
    # 24 takes 0.71 of one after another: neither bytes nor time, and not called time.
    assert find_time_shared(fan_evidence(total, 30.0)) == []


def test_equal_senders_never_tell() -> None:
    topology = box(4, 1)
    peers = ["gpu1", "gpu2", "gpu3"]
    asked = evidence(topology, evenly(topology, 25), measured(fan_in("gpu0", peers, SIZE), 25.0))
    assert find_all(asked) == []


def test_roots_that_do_not_show_it_are_named() -> None:
    asked = fan_evidence(17.5, 30.0)
    rates = dict(asked.pair_rates_Bps)
    for k, rate in ((0, 10.0), (2, 20.0), (3, 40.0)):
        rates[f"gpu{k}", "gpu1"] = rate * GB
    other = measured(fan_in("gpu1", ["gpu0", "gpu2", "gpu3"], SIZE), 29.0)
    (found,) = find_time_shared(evidence(box(4, 1), rates, *asked.concurrent, other))
    assert found.text.endswith("Fans of gpu1 do not show it.")


# --- collapses -----------------------------------------------------------------------------


def test_a_collapse_is_flagged_and_nothing_else_is_made_of_it() -> None:
    # Published: 37 -> 2.7.
    topology = box(4, 1)
    slow = measured(fan_in("gpu0", ["gpu1", "gpu2", "gpu3"], SIZE), 2.7)
    found = find_all(evidence(topology, evenly(topology, 37), slow))
    one = only(found, FindingKind.COLLAPSE)
    assert "collapses to 2.7 GB/s: 13.7 times as long" in one.text
    assert one.severity is Severity.SERIOUS


def test_one_after_another_is_no_collapse() -> None:
    assert find_collapses(fan_evidence(17.1, 17.1)) == []
    assert find_collapses(fan_evidence(14.0, 17.1)) == []
    assert len(find_collapses(fan_evidence(11.0, 17.1))) == 1


# --- contradictions ------------------------------------------------------------------------


def test_a_pattern_sooner_than_its_flow_alone() -> None:
    # Published: 1->0 reads 6.0 alone; with 2->0 both are done at 12.6, the flow at 6.3.
    rates = {("gpu1", "gpu0"): 6.0 * GB, ("gpu2", "gpu0"): 53.9 * GB}
    fan = measured(fan_in("gpu0", ["gpu1", "gpu2"], SIZE), 12.6)
    again = measured(peer("gpu1", "gpu0", SIZE), 7.0)
    (found,) = find_contradictions(evidence(b70(), rates, fan, noise=0.005))
    assert found.about == ("gpu1", "gpu0")
    assert "is done 5% sooner than it alone could be" in found.text
    (found,) = find_contradictions(evidence(b70(), rates, fan, again, noise=0.005))
    assert found.text == (
        "gpu1->gpu0 reads 6 GB/s, and when measured once more 7 GB/s. 1 more pattern contradicts "
        "it. One of the figures is wrong or unstable: measure again."
    )
    assert [s.name for s in found.evidence] == ["gpu1->gpu0", "gpu1->gpu0", "gpu0<-gpu1,gpu2"]


def test_slower_together_is_no_contradiction() -> None:
    rates = {("gpu1", "gpu0"): 6.0 * GB, ("gpu2", "gpu0"): 53.9 * GB}
    fan = measured(fan_in("gpu0", ["gpu1", "gpu2"], SIZE), 11.9)
    assert find_contradictions(evidence(b70(), rates, fan)) == []
    # Unequal sizes: 1 byte at 6 and 9 at 54 both take 1/6; 10 bytes in 1/6 are 60 in all.
    sizes = Pattern(
        flows=(*peer("gpu1", "gpu0", 1e9).flows, *peer("gpu2", "gpu0", 9e9).flows), name="uneven"
    )
    assert find_contradictions(evidence(b70(), rates, measured(sizes, 60.0))) == []
    assert len(find_contradictions(evidence(b70(), rates, measured(sizes, 72.0)))) == 2


# --- fading --------------------------------------------------------------------------------


def crossing(count: int, gpus: int = 16) -> Pattern:
    half = gpus // 2
    return bundle([(f"gpu{k}", f"gpu{k + half}") for k in range(count)], SIZE)


def test_a_hop_that_passes_less_with_more_flows() -> None:
    # Published: four flows across the hop 52.3, eight 49.6.
    topology = box(16)
    asked = evidence(
        topology,
        evenly(topology, 53),
        measured(crossing(4), 52.3),
        measured(crossing(8), 49.6),
        noise=0.005,
    )
    found = only(find_all(asked), FindingKind.FADING)
    assert "socket0->socket1" in found.about
    assert "49.6 GB/s with 8" in found.text
    assert found.severity is Severity.NOTE
    assert found.evidence[0].rate_Bps == pytest.approx(49.6 * GB)


def test_places_that_fade_alike_are_told_together() -> None:
    # Eight GPUs on one switch: alone 172, one to all others 142 in all, from each of two roots.
    topology = box(4, 1)
    ends = list(topology.accelerators)
    fans = [
        measured(fan_out(root, [e for e in ends if e != root], SIZE), total)
        for root, total in (("gpu0", 142), ("gpu1", 140))
    ]
    found = only(find_all(evidence(topology, evenly(topology, 172), *fans)), FindingKind.FADING)
    assert found.text == (
        "gpu1->switch0 and gpu0->switch0 each pass less the more flows share it: 140 GB/s with 3 "
        "(gpu1->gpu0,gpu2,gpu3), where 1 alone reaches 172 GB/s."
    )
    assert found.about == ("gpu1->switch0", "gpu0->switch0")
    assert found.severity is Severity.WARNING


def test_a_pair_measured_both_ways_twice_is_one_pair() -> None:
    topology = box(2, 1)
    both = [
        measured(both_ways("gpu0", "gpu1", SIZE), 26),
        measured(both_ways("gpu1", "gpu0", SIZE), 26),
    ]
    (found,) = find_staged_copies(evidence(topology, evenly(topology, 25), *both))
    assert "passes 26 GB/s, 1.04 times what one way passes alone" in found.text


def test_a_hop_that_passes_the_same_does_not_fade() -> None:
    topology = box(16)
    asked = evidence(
        topology, evenly(topology, 53), measured(crossing(4), 52.3), measured(crossing(8), 52.0)
    )
    assert find_fading(asked) == []


def test_a_slow_flow_that_joins_is_no_fading() -> None:
    # Four flows of 53 across a hop of 100: 100; the fifth alone passes 10 and holds all up.
    topology = box(16)
    rates = evenly(topology, 53) | {("gpu4", "gpu12"): 10 * GB}
    asked = evidence(topology, rates, measured(crossing(4), 100.0), measured(crossing(5), 49.0))
    assert find_fading(asked) == []


# --- links ---------------------------------------------------------------------------------


def test_a_link_at_half_its_nominal_is_named_with_the_state_it_looks_like() -> None:
    topology = l40s()
    name = next(n for n in topology.resources if n.startswith("gpu3->"))
    nominal = topology.resources[name].nominal_Bps
    assert nominal is not None
    found = only(
        find_slow_links(evidence(topology, {}, fitted={name: 0.46 * nominal})),
        FindingKind.SLOW_LINK,
    )
    assert found.about == (name,)
    assert found.text == (
        f"{name} passes 13.3 GB/s, 46% of its nominal 28.8 GB/s, as one trained down to PCIe "
        "generation 4 x8 or generation 3 x16 would (14.4 GB/s; it should be generation 4 x16)."
    )
    assert found.severity is Severity.SERIOUS
    assert find_slow_links(evidence(topology, {}, fitted={name: 0.85 * nominal})) == []


def test_lost_nvlinks_are_counted() -> None:
    topology = dgx_h100()
    name = next(n for n in topology.resources if n.startswith("gpu0->nvswitch"))
    (found,) = find_slow_links(evidence(topology, {}, fitted={name: 190 * GB}))
    assert found.text.endswith("as 8 of its 18 parallel links would.")


def test_an_unknown_nominal_is_not_judged() -> None:
    topology = b70()
    fitted = dict.fromkeys(topology.resources, 1 * GB)
    assert find_slow_links(evidence(topology, {}, fitted=fitted)) == []


def test_what_a_file_says_of_a_link_is_told_once_per_connection() -> None:
    narrow = box(2, 1, generation=4, width=8, max_width=16, max_generation=4)
    found = find_slow_links(evidence(narrow, {}))
    assert [f.about for f in found] == [("gpu0", "switch0"), ("gpu1", "switch0")]
    assert found[0].text == "The link gpu0–switch0 runs at x8 though x16 is possible."
    assert found[0].severity is Severity.WARNING
    idle = box(2, 1, generation=1, width=16, max_width=16, max_generation=4)
    found = find_slow_links(evidence(idle, {}))
    assert "Idle cards lower the generation" in found[0].text
    assert found[0].severity is Severity.NOTE
    fine = box(2, 1, generation=4, width=16, max_width=16, max_generation=4)
    assert find_slow_links(evidence(fine, {})) == []


# --- the published machine -----------------------------------------------------------------


def test_the_published_machine() -> None:
    samples = [
        s
        for name in ("pairs.csv", "fans.csv")
        for s in parse_table((B70 / name).read_text(), file=name)
    ]
    rates = {s.pattern.pairs[0]: s.throughput_Bps for s in samples if len(s.pattern.flows) == 1}
    concurrent = [
        Concurrent(pattern=s.pattern, throughput_Bps=s.throughput_Bps)
        for s in samples
        if len(s.pattern.flows) > 1
    ]
    found = find_all(evidence(b70(), rates, *concurrent))
    by_kind = {k: [f for f in found if f.kind is k] for k in FindingKind}
    near = only(by_kind[FindingKind.NEAR_SLOWER], FindingKind.NEAR_SLOWER)
    assert near.about == ("gpu0", "gpu1", "gpu4", "gpu6")
    assert any(
        "those of each sender but gpu1 agree, so the limit is the sender's" in f.text
        for f in by_kind[FindingKind.UNLIKE]
    )
    assert any(
        f.text.startswith("gpu2 sends to gpu4-gpu7 at 14.6 GB/s")
        for f in by_kind[FindingKind.ASYMMETRIC]
    )
    assert [f.severity for f in found] == sorted(
        (f.severity for f in found), key=list(reversed(Severity)).index
    )
    # With 1->0 at the 7.0 of the published extreme, the fan of two tells time from bytes.
    settled = rates | {("gpu1", "gpu0"): 7.0 * GB}
    (shared,) = find_time_shared(evidence(b70(), settled, *concurrent))
    assert shared.about == ("gpu0",)


# --- public boxes --------------------------------------------------------------------------

CASES = Path(__file__).parents[2] / "shared" / "cases"


def public(case: str, file: str, **conditions: str) -> Evidence:
    """The figures between GPUs under some conditions, on a machine of which nothing is known."""
    path = CASES / case / file
    if not path.exists():
        pytest.skip(f"{case} is not here")
    groups = import_any(path.read_text(), file=file).groups
    samples = [
        s
        for g in groups
        if all(g.conditions.get(k) == v for k, v in conditions.items())
        for s in g.measurements.samples
        if all(n.startswith("gpu") for pair in s.pattern.pairs for n in pair)
    ]
    rates = {s.pattern.pairs[0]: s.throughput_Bps for s in samples if len(s.pattern.flows) == 1}
    concurrent = [
        Concurrent(pattern=s.pattern, throughput_Bps=s.throughput_Bps)
        for s in samples
        if len(s.pattern.flows) > 1
    ]
    names = {n for s in samples for pair in s.pattern.pairs for n in pair}
    return evidence(box(len(names), 1), rates, *concurrent)


def test_public_box_of_seven_has_one_slow_card() -> None:
    asked = public("p2p-straggler-and-small-boxes", "p2p_7gpu.txt", p2p="on")
    assert only(find_all(asked), FindingKind.STRAGGLER).about == ("gpu6",)


def test_public_pair_without_peer_access_crosses_its_uplink_twice() -> None:
    asked = public("pix-no-p2p-2080ti", "p2p.txt", p2p="off")
    found = only(find_all(asked), FindingKind.STAGED)
    assert "passes 6.12 GB/s, 1.07 times what one way passes alone" in found.text


def test_public_virtual_machine_shares_something_between_two_pairs() -> None:
    asked = public("old-azure-m60-vm", "p2p_4gpu.txt", p2p="on")
    (found,) = find_staged_copies(asked)
    assert set(found.about) == {"gpu0", "gpu2", "gpu1", "gpu3"}
    assert {s.name for s in found.evidence if "<->" in s.name} == {"gpu0<->gpu2", "gpu1<->gpu3"}


def test_public_hgx_passes_less_from_one_to_all() -> None:
    asked = public("nvbw-h800-8gpu", "nvbandwidth.txt", engine="copy engine", operation="read")
    found = only(find_all(asked), FindingKind.FADING)
    assert len(found.about) == 8


# --- evidence ------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_figures_does_not_matter(seed: int) -> None:
    samples = parse_table((B70 / "pairs.csv").read_text(), file="pairs.csv")
    rng = np.random.default_rng(seed)
    rates = {s.pattern.pairs[0]: s.throughput_Bps for s in samples}
    shuffled = dict(list(rates.items())[int(k)] for k in rng.permutation(len(rates)))
    assert find_all(evidence(b70(), shuffled)) == find_all(evidence(b70(), rates))


def test_every_text_is_a_sentence_with_figures() -> None:
    asked = fan_evidence(17.5, 11.0)
    found = find_all(asked)
    assert len(found) >= 3
    for f in found:
        assert f.text.endswith(".")
        assert f.text[0].isupper() or f.text.startswith("gpu")
        assert "\n" not in f.text
        assert "nan" not in f.text
        assert f.about
    assert len(set(FINDERS)) == len(FINDERS)


def test_margin_is_exceeded_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(0)
    ratios = np.log(np.exp(0.03 * rng.standard_normal((2, 200_000))))
    limit = margin(0.03, 28)
    # In all 28 comparisons 1e-5, so in 200,000 single ones less than one.
    assert FALSE_ALARM / 28 * 200_000 < 1
    assert (np.abs(ratios[0] - ratios[1]) > limit).sum() <= 3
    assert (np.abs(ratios[0] - ratios[1]) > limit / 2).sum() > 100


def test_names_are_listed() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"


def test_bad_evidence_is_refused() -> None:
    with pytest.raises(UnknownEndpointError, match="gpu9"):
        evidence(box(), {("gpu0", "gpu9"): GB})
    with pytest.raises(InputError, match="gpu0->gpu1 has rate 0"):
        evidence(box(), {("gpu0", "gpu1"): 0.0})
    with pytest.raises(InputError, match="has rate inf"):
        evidence(box(), {}, measured(both_ways("gpu0", "gpu1", SIZE), math.inf))
    with pytest.raises(InputError, match="noise -1"):
        evidence(box(), {}, noise=-1.0)

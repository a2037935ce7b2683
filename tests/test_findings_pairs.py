"""Findings of pairs, one way and both ways: on figures that show them, and none on others."""

from __future__ import annotations

import itertools

import pytest
from finding_figures import GB, SIZE, box, evenly, evidence, measured, only

from topocal.measure.patterns import both_ways
from topocal.solve.evidence import (
    FindingKind,
    Severity,
)
from topocal.solve.findings import find_all
from topocal.solve.findings_duplex import find_duplex_loss, find_staged_copies
from topocal.solve.findings_levels import find_unlike_pairs
from topocal.solve.findings_pairs import (
    find_asymmetric_directions,
    find_near_slower_than_far,
    find_stragglers,
)
from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, NodeKind

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

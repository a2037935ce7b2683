"""Findings of flows at the same time: on figures that show them, and none on others."""

from __future__ import annotations

import pytest
from finding_figures import GB, SIZE, box, evenly, evidence, fan_evidence, measured, only

from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer
from topocal.solve.evidence import (
    FindingKind,
    Severity,
)
from topocal.solve.findings import find_all
from topocal.solve.findings_duplex import find_staged_copies
from topocal.solve.findings_patterns import (
    find_collapses,
    find_contradictions,
    find_fading,
    find_time_shared,
)
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70


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

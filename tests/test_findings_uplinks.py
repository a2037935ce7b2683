"""Cards that are slow with everybody but each other."""

from __future__ import annotations

from finding_figures import Pair, box, evenly, evidence, only

from topocal.measure.importers.figures import alone
from topocal.measure.samples import Measurements
from topocal.solve.evidence import FindingKind, Severity
from topocal.solve.explain import find
from topocal.solve.findings import find_all
from topocal.solve.findings_uplinks import find_slow_uplinks
from topocal.topo.errors import Where
from topocal.topo.topology import Topology

GB = 1e9


def _behind_a_slow_uplink(machine: Topology, group: set[str], rate: float) -> dict[Pair, float]:
    """Pairs of which one card is in the group read ``rate`` GB/s, all others 26."""
    found = evenly(machine, 26.0)
    return {p: rate * GB if len(group & set(p)) == 1 else was for p, was in found.items()}


def test_a_switch_at_half_width_is_named_and_nothing_else() -> None:
    machine = box(8, 4)
    rates = _behind_a_slow_uplink(machine, {"gpu2", "gpu3"}, 13.0)
    found = only(find_all(evidence(machine, rates)), FindingKind.SLOW_UPLINK)
    assert found.about == ("gpu2", "gpu3")
    assert found.severity is Severity.SERIOUS
    assert found.text == (
        "gpu2 and gpu3 send to and receive from everybody else at 13 GB/s, where like pairs of the "
        "others read 26 GB/s, and read 26 GB/s between them. The limit is what they share on the "
        "way out: look at the uplink of switch1 (width, generation, riser, slot), not at their "
        "own links."
    )


def test_without_a_topology_it_is_told_first() -> None:
    rates = _behind_a_slow_uplink(box(8, 4), {"gpu2", "gpu3"}, 13.0)
    samples = tuple(alone(a, b, rate, where=Where(file="x")) for (a, b), rate in rates.items())
    _, found = find(Measurements.of(samples, ["x"]))
    assert found[0].kind is FindingKind.SLOW_UPLINK
    assert found[0].about == ("gpu2", "gpu3")


def test_a_hop_between_sockets_is_no_uplink() -> None:
    machine = box(8, 2)
    near = {f"gpu{k}" for k in range(4)}
    rates = _behind_a_slow_uplink(machine, near, 13.0)
    assert find_slow_uplinks(evidence(machine, rates)) == []


def test_one_slow_card_is_no_uplink() -> None:
    machine = box(8, 4)
    rates = {p: 13 * GB if "gpu2" in p else was for p, was in evenly(machine, 26.0).items()}
    assert find_slow_uplinks(evidence(machine, rates)) == []


def test_cards_that_are_fast_because_of_a_bridge_between_them_are_not_slow() -> None:
    machine = box(8, 4)
    rates = evenly(machine, 26.0)
    rates["gpu2", "gpu3"] = rates["gpu3", "gpu2"] = 100 * GB
    assert find_slow_uplinks(evidence(machine, rates)) == []

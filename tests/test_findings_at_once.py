"""Who is slow when all send at once, by the rates of the flows."""

from __future__ import annotations

from itertools import permutations

from topocal.measure.importers.figures import finishing
from topocal.measure.importers.imported import Draft
from topocal.solve.evidence import Finding, Severity
from topocal.solve.findings_at_once import find_slow_at_once
from topocal.solve.settings import settings_of
from topocal.topo.errors import Where

CARDS = tuple(f"gpu{k}" for k in range(4))
Pair = tuple[str, str]


def found(rates_GBps: dict[Pair, float]) -> list[Finding]:
    draft = Draft(kind="t", title="t", file="t.txt")
    sample = finishing(
        list(rates_GBps), [r * 1e9 for r in rates_GBps.values()], where=Where(file="t.txt")
    )
    draft.add("all to all", [sample], conditions={"direction": "several at once"})
    return find_slow_at_once(settings_of(draft.done(), "t.txt"))


def all_to_all(**slow: float) -> dict[Pair, float]:
    return {(a, b): min(slow.get(a, 16.0), slow.get(b, 16.0)) for a, b in permutations(CARDS, 2)}


def test_a_card_that_is_slow_with_all_is_named() -> None:
    (one,) = found(all_to_all(gpu2=8.0))
    assert one.about == ("gpu2",)
    assert one.severity is Severity.SERIOUS
    assert "8 GB/s a flow with gpu0, gpu1 and gpu3, where flows between the others run at 16" in (
        one.text
    )
    assert "what it sends is 24 GB/s in all, as PCIe" in one.text


def test_alike_cards_are_told_nothing() -> None:
    assert found(all_to_all()) == []
    assert found(all_to_all(gpu2=14.0)) == []


def test_a_card_with_one_fast_partner_has_no_slow_link() -> None:
    rates = all_to_all(gpu2=8.0) | {("gpu2", "gpu3"): 16.0, ("gpu3", "gpu2"): 16.0}
    assert found(rates) == []


def test_half_of_the_cards_are_of_another_kind() -> None:
    assert found(all_to_all(gpu2=8.0, gpu3=8.0)) == []


def ring(n: int, **slow: float) -> dict[Pair, float]:
    return {(f"gpu{k}", f"gpu{(k + 1) % n}"): slow.get(f"gpu{k}", 48.0) for k in range(n)}


def test_one_flow_of_a_ring_that_is_late() -> None:
    (one,) = found(ring(12, gpu4=24.1))
    assert "With all 12 at once gpu4->gpu5 runs at 24.1 GB/s, the others at 48 GB/s" in one.text


def test_flows_of_a_ring_that_cross_are_no_fault() -> None:
    assert found(ring(8, gpu3=24.1, gpu7=24.2)) == []
    assert found(ring(4, gpu3=24.1)) == []

"""One card, one pair, or one socket that differs: who is named, and who is not."""

from __future__ import annotations

from itertools import permutations

import pytest

from topocal.measure.importers.figures import alone
from topocal.measure.importers.registry import import_any
from topocal.measure.samples import Measurements
from topocal.solve.evidence import Finding, FindingKind, Severity
from topocal.solve.explain import explain
from topocal.topo.errors import Where

Pair = tuple[str, str]


def found(rates_GBps: dict[Pair, float]) -> list[Finding]:
    where = Where(file="t.csv")
    samples = [alone(a, b, rate * 1e9, where=where) for (a, b), rate in rates_GBps.items()]
    return list(explain(Measurements.of(samples), time_limit_s=0).findings)


def among(n: int, usual: float, **others: float) -> dict[Pair, float]:
    """All pairs of n cards, those of some cards at another rate; a jitter of 0.2 %."""
    cards = [f"gpu{k}" for k in range(n)]
    jitter = (1.0, 1.002, 0.998, 1.001)
    return {
        (a, b): min(others.get(a, usual), others.get(b, usual)) * jitter[k % 4]
        for k, (a, b) in enumerate(permutations(cards, 2))
    }


@pytest.mark.parametrize(("rate", "told"), [(230.0, True), (244.0, True), (268.0, False)])
def test_a_card_that_lost_a_few_links_reads_a_little_less(rate: float, told: bool) -> None:
    findings = [f for f in found(among(8, 274, gpu6=rate)) if f.kind is FindingKind.STRAGGLER]
    assert [f.about for f in findings] == ([("gpu6",)] if told else [])
    for f in findings:
        assert f.severity is Severity.WARNING
        assert f"gpu6 reads {1 - rate / 274:.0%} less with every partner" in f.text
        assert "parallel ones may be down" in f.text


def test_one_slow_pair_is_no_group_that_is_near() -> None:
    rates = among(4, 49)
    for pair in (("gpu0", "gpu3"), ("gpu3", "gpu0")):
        rates[pair] = 24.1
    (finding,) = found(rates)
    assert finding.kind is FindingKind.UNLIKE
    assert finding.text.startswith("Of the 12 pairs that no topology tells apart, gpu0<->gpu3 read")


def test_two_slow_pairs_may_be_two_boards() -> None:
    """Halves of a board that share its uplink: near is slower than far, and stays a finding."""
    rates = among(4, 10)
    for a, b in (("gpu0", "gpu2"), ("gpu1", "gpu3")):
        rates[a, b] = rates[b, a] = 5.2
    kinds = {f.kind for f in found(rates)}
    assert FindingKind.NEAR_SLOWER in kinds


def test_cards_near_to_one_of_two_host_memories() -> None:
    near = {("cpu0", "gpu0"), ("cpu0", "gpu1"), ("cpu1", "gpu2"), ("cpu1", "gpu3")}
    rates = {}
    for host in ("cpu0", "cpu1"):
        for k in range(4):
            pair = (host, f"gpu{k}")
            rates[pair] = rates[pair[::-1]] = 55.4 if pair in near else 38.1
    (finding,) = found(rates)
    assert finding.kind is FindingKind.FAR_HOST
    assert finding.text.startswith(
        "gpu0 and gpu1 are near cpu0 and gpu2 and gpu3 are near cpu1: copies with the near memory "
        "run at 55.4 GB/s, with the far one at 38.1 GB/s"
    )


def test_memories_that_are_as_near_to_all_are_no_finding() -> None:
    rates = {}
    for host in ("cpu0", "cpu1"):
        for k in range(4):
            rates[host, f"gpu{k}"] = rates[f"gpu{k}", host] = 55.0
    assert found(rates) == []


GERMAN = """\
Messung der Bandbreite zwischen den Karten (GB/s):

| von \\ nach | GPU 0 | GPU 1 | GPU 2 |
|---|---|---|---|
| GPU 0 | – | 25,1 | 12,4 |
| GPU 1 | 25,2 | – | 12,45 |
| GPU 2 | 12,3 | 12,4 | – |
"""


def test_commas_for_points_and_corners_of_two_words() -> None:
    rates = {
        s.pattern.pairs[0]: s.throughput_Bps for s in import_any(GERMAN, file="t.md").best().samples
    }
    assert rates["gpu0", "gpu1"] == pytest.approx(25.1e9)
    assert rates["gpu1", "gpu2"] == pytest.approx(12.45e9)
    assert len(rates) == 6


@pytest.mark.parametrize("corner", ["from \\ to", "src / dst", "From -> To", "D\\D", "源→目标"])
def test_corners_of_any_words(corner: str) -> None:
    text = f"P2P bandwidth (GB/s)\n{corner}   GPU0  GPU1\nGPU0   -   25.1\nGPU1   24.9  -\n"
    assert len(import_any(text, file="t.txt").best().samples) == 2


def in_two(between: float) -> dict[Pair, float]:
    left = {"gpu0", "gpu1", "gpu2"}
    return {
        (a, b): rate if (a in left) == (b in left) else rate * between
        for (a, b), rate in among(6, 13.1).items()
    }


@pytest.mark.parametrize(
    ("between", "severity", "why"),
    [
        (0.7, Severity.NOTE, "Sockets or switches make it so"),
        (0.25, Severity.WARNING, "Links of their own, or a poor way between sockets"),
    ],
)
def test_cards_that_sit_in_groups(between: float, severity: Severity, why: str) -> None:
    (finding,) = found(in_two(between))
    assert finding.kind is FindingKind.APART
    assert finding.severity is severity
    assert finding.text.startswith("By their rates the cards sit in groups (gpu0-gpu2; gpu3-gpu5)")
    assert why in finding.text


def test_a_mesh_of_links_is_told_level_by_level() -> None:
    double = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    single = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    rates = {
        (f"gpu{a}", f"gpu{b}"): 48.4
        if (pair := (min(a, b), max(a, b))) in double
        else 24.2
        if pair in single
        else 8.1
        for a, b in permutations(range(8), 2)
    }
    (finding,) = found(rates)
    assert finding.severity is Severity.WARNING, "it may be built so"
    assert "read at 3 levels: 48.4 GB/s" in finding.text

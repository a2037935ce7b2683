"""Findings as a whole: none on clean machines, those of published ones, what all have in common."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from finding_figures import B70, GB, SIZE, box, evidence, fan_evidence, measured, only
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any
from topocal.measure.importers.tables import parse_table
from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer, relay
from topocal.solve.evidence import (
    FALSE_ALARM,
    Concurrent,
    Evidence,
    FindingKind,
    Severity,
    listed,
    margin,
)
from topocal.solve.findings import FINDERS, find_all
from topocal.solve.findings_duplex import find_staged_copies
from topocal.solve.findings_patterns import (
    find_time_shared,
)
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, UnknownEndpointError
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70, dgx1, dgx_h100, l40s, random_pcie_tree
from topocal.topo.topology import Topology

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

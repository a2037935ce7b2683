"""Each kind of finding on a simulated machine that has what it is about, and on none that has not.

Truth is timed by fluid simulation with 3 % noise; what is found comes through the fit.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer, relay
from topocal.measure.samples import Measurements, Sample
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.candidates import RECEIVER, SENDER, with_candidates
from topocal.solve.evidence import Finding, FindingKind, Severity
from topocal.solve.explain import find
from topocal.solve.model import Model
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import Where
from topocal.topo.flow import Pattern
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

SIZE = 2.0**28
GB = 1e9
NOISE = 0.03
REPEATS = 5
L40S = build_machine("l40s")


def singles(topology: Topology) -> list[Pattern]:
    return [peer(a, b, SIZE) for a, b in itertools.permutations(topology.accelerators, 2)]


def concurrent(topology: Topology) -> list[Pattern]:
    """Both ways between all, fans of three widths at every card, rings, bundles."""
    ends = list(topology.accelerators)
    found = [both_ways(a, b, SIZE) for a, b in itertools.combinations(ends, 2)]
    for k, end in enumerate(ends):
        others = ends[k + 1 :] + ends[:k]
        for width in (2, 4, len(others)):
            found += [fan_in(end, others[:width], SIZE), fan_out(end, others[:width], SIZE)]
    half = len(ends) // 2
    across = list(zip(ends[:half], ends[half:], strict=True))
    found += [bundle(across[:n], SIZE) for n in range(2, half + 1)]
    found += [relay(ends, k, SIZE) for k in (1, 3)]
    return list({frozenset(p.pairs): p for p in found}.values())


def machine(
    truth: Topology, rates: dict[str, float] | None = None, *, fading: float = 0.0
) -> SimulatedMachine:
    """All links at 0.9 of nominal (40 GB/s where unknown), but for those given in GB/s."""
    capacities = Capacities.of(
        truth,
        {
            r.id: 0.9 * (r.nominal_Bps or 40 * GB)
            for r in truth.resources.values()
            if r.sharing is not Sharing.TIME_SHARED
        },
    ).changed({name: rate * GB for name, rate in (rates or {}).items()})
    return SimulatedMachine(topology=truth, capacities=capacities, noise=NOISE, fading=fading)


def measured(simulated: SimulatedMachine, seed: int) -> Measurements:
    topology = simulated.topology
    patterns = [*singles(topology), *concurrent(topology)]
    return simulated.time(patterns, REPEATS, np.random.default_rng(seed))


def kinds(found: Sequence[Finding]) -> set[FindingKind]:
    return {f.kind for f in found}


def one(found: Sequence[Finding], kind: FindingKind) -> Finding:
    (finding,) = [f for f in found if f.kind is kind]
    assert finding.evidence
    assert all(np.isfinite(s.rate_Bps) and s.rate_Bps > 0 for s in finding.evidence)
    return finding


SEEDS = pytest.mark.parametrize("seed", range(3))


@SEEDS
def test_a_link_trained_down_is_slow_and_makes_directions_unlike(seed: int) -> None:
    # Generation 4 x16 passes 28.8 GB/s nominally; what gpu2 sends is down to 11.
    model, found = find(measured(machine(L40S, {"gpu2->switch0": 11.0}), seed), L40S)
    slow = one(found, FindingKind.SLOW_LINK)
    assert slow.about == ("gpu2->switch0",)
    assert "trained down to PCIe" in slow.text
    asymmetric = one(found, FindingKind.ASYMMETRIC)
    assert asymmetric.about == ("gpu2",)
    assert "gpu2 sends to" in asymmetric.text
    assert model.resources["gpu2->switch0"].capacity_Bps == pytest.approx(11 * GB, rel=0.02)
    # What follows from it is no finding of its own kind.
    assert kinds(found) <= {FindingKind.SLOW_LINK, FindingKind.ASYMMETRIC, FindingKind.UNLIKE}


def with_engines(side: int) -> Topology:
    """All receivers, or all senders, serve one flow at a time."""
    candidates = with_candidates(L40S, L40S.accelerators)
    kept = {name for (_, s), name in candidates.engines.items() if s == side}
    unused = [name for name in candidates.rank if name not in kept]
    truth = candidates.topology.without_resources(unused)
    return truth.with_resources(replace(truth.resources[e], kappa=0.97) for e in kept)


@SEEDS
@pytest.mark.parametrize(("side", "word"), [(RECEIVER, "Receivers"), (SENDER, "Senders")])
def test_endpoints_that_serve_by_turns(side: int, word: str, seed: int) -> None:
    # Card k sends, or receives, 6 + 2.5 k GB/s, so that flows differ and fans can tell.
    link = "gpu{}->switch{}" if side == RECEIVER else "switch{1}->gpu{0}"
    rates = {link.format(k, k // 4): 6 + 2.5 * k for k in range(8)}
    model, found = find(measured(machine(with_engines(side), rates), seed), L40S)
    shared = one(found, FindingKind.TIME_SHARED)
    assert shared.text.startswith(word)
    assert len(shared.about) >= 6
    assert sum(r.kappa is not None for r in model.resources.values()) == 8
    assert FindingKind.COLLAPSE not in kinds(found)
    assert FindingKind.FADING not in kinds(found)


def duplex(total: float) -> Topology:
    """Both directions of every card draw from one capacity (GB/s)."""
    ends = L40S.accelerators
    return L40S.with_resources(
        [
            Resource(id=f"{e}.both", sharing=Sharing.DUPLEX, nominal_Bps=total / 0.9 * GB)
            for e in ends
        ],
        [
            use
            for e in ends
            for use in (
                Use(resource=f"{e}.both", sources=(e,)),
                Use(resource=f"{e}.both", destinations=(e,)),
            )
        ],
    )


@SEEDS
def test_duplex_loss(seed: int) -> None:
    # One way passes 25.9 GB/s, both ways 40 in all: 1.54 times.
    _, found = find(measured(machine(duplex(40.0)), seed), L40S)
    loss = one(found, FindingKind.DUPLEX_LOSS)
    assert "1.5" in loss.text
    assert loss.severity is Severity.WARNING
    assert FindingKind.STAGED not in kinds(found)


@SEEDS
def test_staged_copies_cross_their_uplink_twice(seed: int) -> None:
    # Without peer access a copy goes up to host memory and down again: behind one uplink,
    # both ways pass what one way does.
    builder = TopologyBuilder("staged")
    builder.peer_access = False
    builder.node("socket0", NodeKind.SOCKET)
    builder.node("mem0", NodeKind.MEMORY)
    builder.connect("socket0", "mem0", LinkKind.MEMORY, nominal_Bps=200 * GB)
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    builder.connect("switch0", "socket0", LinkKind.PCIE, nominal_Bps=28 * GB)
    for k in range(4):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=28 * GB)
    topology = builder.build()
    _, found = find(measured(machine(topology), seed), topology)
    staged = one(found, FindingKind.STAGED)
    assert "twice" in staged.text
    assert staged.severity is Severity.SERIOUS
    assert FindingKind.DUPLEX_LOSS not in kinds(found)


@SEEDS
@pytest.mark.parametrize("name", ["l40s", "dgx-h100"])
def test_resources_that_fade(name: str, seed: int) -> None:
    topology = build_machine(name)
    model, found = find(measured(machine(topology, fading=0.006), seed), topology)
    assert model.fading is not None
    assert model.fading.loss == pytest.approx(0.006, abs=3 * model.fading.error)
    fading = [f for f in found if f.kind is FindingKind.FADING and "every further flow" in f.text]
    assert len(fading) == 1
    with_it, without = fading[0].evidence[:2]
    assert with_it.rate_Bps < without.rate_Bps
    assert kinds(found) == {FindingKind.FADING}


def changed(data: Measurements, name: str, factor: Callable[[Sample], float]) -> Measurements:
    return Measurements.of(
        replace_seconds(s, s.seconds * factor(s)) if s.name == name else s for s in data.samples
    )


def replace_seconds(sample: Sample, seconds: float) -> Sample:
    return Sample(pattern=sample.pattern, seconds=seconds, repeat=sample.repeat)


@SEEDS
def test_a_collapse_is_told_and_not_fitted(seed: int) -> None:
    # 37 GB/s that became 2.7 (published): one fan takes 13 times as long.
    data = measured(machine(L40S), seed)
    name = "gpu0->gpu4 + gpu1->gpu5 + gpu2->gpu6"
    assert name in {s.name for s in data.samples}
    model, found = find(changed(data, name, lambda _: 13.0), L40S)
    clean, _ = find(data, L40S)
    collapse = one(found, FindingKind.COLLAPSE)
    assert name in collapse.text
    assert collapse.evidence[0].name == name
    assert model.left_out.keys() == {name}
    assert kinds(found) == {FindingKind.COLLAPSE}
    for r in model.resources.values():
        other = clean.resources[r.id].capacity_Bps
        if r.capacity_Bps and other:
            assert r.capacity_Bps == pytest.approx(other, rel=0.02)


@SEEDS
def test_a_pair_that_its_pattern_contradicts(seed: int) -> None:
    # gpu1->gpu0 reads half alone of what the fan shows that it passes.
    data = changed(measured(machine(L40S), seed), "gpu1->gpu0", lambda _: 4.0)
    model, found = find(data, L40S)
    texts = [f.text for f in found if f.kind is FindingKind.CONTRADICTION]
    texts += list(model.left_out.values())
    assert any("gpu1->gpu0" in t for t in texts)
    assert not {FindingKind.FADING, FindingKind.COLLAPSE} & kinds(found)


def in_file(data: Measurements, file: str) -> list[Sample]:
    return [
        Sample(pattern=s.pattern, seconds=s.seconds, repeat=s.repeat, where=Where(file=file))
        for s in data.samples
    ]


@SEEDS
def test_two_files_that_do_not_agree_on_one_pattern(seed: int) -> None:
    simulated = machine(L40S)
    first = measured(simulated, seed)
    second = changed(measured(simulated, seed + 100), "gpu3->gpu6", lambda _: 1.4)
    data = Measurements.of([*in_file(first, "a/monday.csv"), *in_file(second, "b/friday.csv")])
    model, found = find(data, L40S)
    conflict = one(found, FindingKind.CONTRADICTION)
    assert conflict.about == ("gpu3->gpu6",)
    assert "friday.csv" in conflict.text
    assert "40% apart" in conflict.text or "apart, where the others agree" in conflict.text
    assert {s.name for s in conflict.evidence} == {
        "gpu3->gpu6 in monday.csv",
        "gpu3->gpu6 in friday.csv",
    }
    assert conflict.text in model.findings


@SEEDS
def test_two_files_that_differ_throughout_are_told_once(seed: int) -> None:
    first = measured(machine(L40S), seed)
    second = measured(machine(L40S), seed + 100)
    slower = [replace_seconds(s, s.seconds * 1.25) for s in second.samples]
    other = Measurements.of(slower)
    data = Measurements.of([*in_file(first, "one.csv"), *in_file(other, "two.csv")])
    _, found = find(data, L40S)
    conflict = one(found, FindingKind.CONTRADICTION)
    assert "throughout" in conflict.text
    assert re.search(r"one.csv reads 2[3-7]% more than two.csv throughout", conflict.text)


@SEEDS
def test_a_pair_that_its_like_do_not_resemble(seed: int) -> None:
    # One pair has a limit of its own that no topology shows.
    truth = L40S.with_resources(
        [Resource(id="own", sharing=Sharing.FATPIPE, nominal_Bps=17 * GB)],
        [Use(resource="own", sources=("gpu1",), destinations=("gpu3",))],
    )
    _, found = find(measured(machine(truth), seed), L40S)
    unlike = one(found, FindingKind.UNLIKE)
    assert "gpu1->gpu3" in unlike.text
    assert unlike.evidence[0].name == "gpu1->gpu3"


CLEAN = ["l40s", "b70", "dgx-h100", "mi250x"]


def clean(seed: int, repeats: int) -> tuple[Model, tuple[Finding, ...]]:
    """A sound machine, all links equally good."""
    rng = np.random.default_rng(seed)
    topology = build_machine(CLEAN[seed % len(CLEAN)])
    good = float(rng.uniform(0.85, 1.0))
    base = Capacities.of(topology, default_Bps=50 * GB)
    rates = zip(base.resources, base.capacity_Bps, strict=True)
    simulated = SimulatedMachine(
        topology=topology,
        capacities=base.changed({name: float(rate) * good for name, rate in rates}),
        noise=NOISE,
    )
    patterns = [*singles(topology), *concurrent(topology)]
    return find(simulated.time(patterns, repeats, rng), topology)


# Drawn once and kept: noise makes a finding now and then on some machine.
@pytest.mark.parametrize("seed", range(500, 508))
@pytest.mark.parametrize("repeats", [1, 5])
def test_a_clean_machine_is_told_nothing(seed: int, repeats: int) -> None:
    model, found = clean(seed, repeats)
    assert [f.text for f in found] == []
    assert model.fading is None
    assert model.left_out == {}

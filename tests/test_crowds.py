"""Patterns of many flows at once: wide fans and a ring, where few flows pin what they load."""

from __future__ import annotations

import pytest

from topocal.measure.crowds import LEAST_ENDPOINTS
from topocal.measure.design import design
from topocal.measure.patterns import PatternKind
from topocal.measure.plan import Plan, PlannedPattern, Purpose
from topocal.topo.builder import TopologyBuilder
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.machines.clusters import fat_tree_cluster
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology


def star(cards: int) -> Topology:
    builder = TopologyBuilder("star")
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    for k in range(cards):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=20e9)
    return builder.build()


def crowds_of(plan: Plan) -> list[PlannedPattern]:
    return [p for p in plan.patterns if any(r.purpose is Purpose.CROWD for r in p.reasons)]


def test_four_fans_and_a_ring() -> None:
    found = crowds_of(design(star(8)))
    kinds = [p.kind for p in found]
    assert sorted(kinds) == [
        *[PatternKind.FAN_IN] * 2,
        *[PatternKind.FAN_OUT] * 2,
        PatternKind.RELAY,
    ]
    assert {len(p.flows) for p in found} == {7, 8}
    assert all(r.ratio == len(p.flows) for p in found for r in p.reasons if r.purpose == "crowd")
    # Each is at an endpoint of its own.
    roots = {r.about for p in found for r in p.reasons if r.purpose is Purpose.CROWD}
    assert len(roots) == 5


@pytest.mark.parametrize("cards", range(2, 8))
def test_few_endpoints_make_no_crowd(cards: int) -> None:
    assert bool(crowds_of(design(star(cards)))) == (cards >= LEAST_ENDPOINTS)


def test_a_large_machine_has_no_wider_ones() -> None:
    found = crowds_of(design(fat_tree_cluster(8)))
    assert 4 <= len(found) <= 5
    assert max(len(p.flows) for p in found) == 16


def test_what_was_measured_is_not_wanted_again() -> None:
    topology = build_machine("l40s")
    first = design(topology)
    assert crowds_of(first)
    again = design(topology, measured=[p.pattern for p in first.patterns])
    assert not crowds_of(again)


def test_without_supplements_there_is_none() -> None:
    assert not crowds_of(design(star(8), supplements=False))

"""Which patterns share a round: by hand, and on random machines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.design import design
from topocal.measure.patterns import bundle
from topocal.measure.plan import Plan
from topocal.measure.rounds import MOST_UTILISATION, pack, utilisation
from topocal.measure.setting import Setting
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.fluid import simulate
from topocal.topo.incidence import incidence
from topocal.topo.machines import random_cluster, random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology

GB = 1e9


def two_sides(per_side: int, middle: float | None, sharing: Sharing = Sharing.CAPACITY) -> Topology:
    """GPUs of 10 GB/s on both sides of a hop of ``middle`` GB/s."""
    build = TopologyBuilder("two sides")
    for side in range(2):
        build.node(f"socket{side}", NodeKind.SOCKET)
    Bps = None if middle is None else middle * GB
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=Bps, sharing=sharing)
    for k in range(2 * per_side):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"socket{k // per_side}", LinkKind.PCIE, nominal_Bps=10 * GB)
    return build.build()


def _rows(setting: Setting, *patterns: list[tuple[int, int]]) -> list[list[int]]:
    return [[int(setting.crossings.row[s, d]) for s, d in flows] for flows in patterns]


# Cards 0 to 2 send to cards 3 to 5, one flow per pattern.  Each keeps its links busy all the
# time and the hop of 30 GB/s for a third of it: two fit (0.67), three do not (1.0).
@pytest.mark.parametrize(
    ("middle", "sharing", "rounds"),
    [
        (30, Sharing.CAPACITY, ((0, 1), (2,))),
        (10 / 0.35, Sharing.CAPACITY, ((0, 1), (2,))),
        (10 / 0.36, Sharing.CAPACITY, ((0,), (1,), (2,))),
        (60, Sharing.CAPACITY, ((0, 1, 2),)),
        (10, Sharing.FATPIPE, ((0, 1, 2),)),
        (None, Sharing.CAPACITY, ((0,), (1,), (2,))),
    ],
)
def test_patterns_share_what_they_leave_idle(
    middle: float | None, sharing: Sharing, rounds: tuple[tuple[int, ...], ...]
) -> None:
    setting = Setting.of(two_sides(3, middle, sharing), None)
    patterns = _rows(setting, [(0, 3)], [(1, 4)], [(2, 5)])
    assert pack(setting.crossings, patterns, [1.0, 1.0, 1.0]) == rounds


def test_patterns_with_a_common_endpoint_never_share_a_round() -> None:
    setting = Setting.of(two_sides(3, 1000), None)
    # Into gpu0 and out of it load different links, and still meet in one card.
    patterns = _rows(setting, [(1, 0)], [(0, 2)], [(3, 4)])
    assert pack(setting.crossings, patterns, [1.0, 1.0, 1.0]) == ((0, 2), (1,))


def test_the_longest_begin() -> None:
    setting = Setting.of(two_sides(3, 1000), None)
    patterns = _rows(setting, [(0, 1)], [(0, 2)], [(3, 4)], [(3, 5)])
    assert pack(setting.crossings, patterns, [1.0, 5.0, 2.0, 6.0]) == ((1, 3), (0, 2))


# Two flows into one card of 10 GB/s: its link is busy all the time, theirs half of it.
def test_utilisation_is_of_the_pattern_s_own_time() -> None:
    setting = Setting.of(two_sides(3, 40), None)
    (rows,) = _rows(setting, [(1, 0), (3, 0)])
    classes, share = utilisation(setting.crossings, rows)
    by_name = {setting.name(k): float(u) for k, u in zip(classes, share, strict=True)}
    assert by_name == pytest.approx(
        {
            "socket0->gpu0": 1.0,
            "gpu1->socket0": 0.5,
            "gpu3->socket1": 0.5,
            "socket1->socket0": 2 / 40 / (2 / 10) / 2,
        }
    )


def test_what_was_fitted_makes_no_difference() -> None:
    """A hop that is said to be fast is still packed by its nominal capacity."""
    setting = Setting.of(two_sides(3, 30), None, {"socket0->socket1": 1e-15})
    patterns = _rows(setting, [(0, 3)], [(1, 4)], [(2, 5)])
    assert pack(setting.crossings, patterns, [1.0, 1.0, 1.0]) == ((0, 1), (2,))


# Card 0 to 1 takes 2 s.  What fits beside it for no more than that is added, what takes longer
# or meets one of its cards is not.
def test_what_takes_no_more_time_is_added_for_free() -> None:
    setting = Setting.of(two_sides(3, 1000), None)
    patterns = _rows(setting, [(0, 1)], [(3, 4)], [(3, 5)], [(1, 2)], [(2, 5)])
    rounds = pack(
        setting.crossings,
        patterns,
        [2.0, 3.0, 2.0, 1.0, 1.0],
        chosen=[0],
        if_free=[1, 2, 3, 4],
    )
    assert rounds == ((0, 2),)


def test_no_patterns_make_no_rounds() -> None:
    setting = Setting.of(two_sides(1, 30), None)
    assert pack(setting.crossings, [], []) == ()


def _check_rounds(topology: Topology, plan: Plan) -> int:
    """Every rule, from the topology itself; how often two patterns share a resource."""
    assert sorted(k for members in plan.rounds for k in members) == list(range(len(plan.patterns)))
    nominal = np.array([r.nominal_Bps or math.nan for r in topology.resources.values()])
    shareable = np.array([r.sharing is not Sharing.FATPIPE for r in topology.resources.values()])
    shared = 0
    for members in plan.rounds:
        ends = [{end for pair in plan.patterns[k].flows for end in pair} for k in members]
        assert sum(map(len, ends)) == len(set().union(*ends))
        total = np.zeros(len(nominal))
        loaded = np.zeros(len(nominal), dtype=int)
        for k in members:
            load = incidence(topology, plan.patterns[k].flows).matrix.sum(axis=0)
            busy = load / nominal
            longest = np.nanmax(busy) if not np.isnan(busy[load > 0]).all() else math.nan
            total += np.where(load > 0, busy / longest, 0.0)
            loaded += load > 0
        both = (loaded > 1) & shareable
        shared += int(both.sum())
        # NaN where a nominal capacity is unknown: then nothing is shared at all.
        assert (total[both] <= MOST_UTILISATION + 1e-9).all()
    return shared


def test_rounds_on_a_machine_that_shares() -> None:
    topology = two_sides(6, 100)
    plan = design(topology)
    assert _check_rounds(topology, plan) > 0
    assert len(plan.rounds) < len(plan.patterns) / 2


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_packing_never_exceeds_the_limit(seed: int, cluster: bool) -> None:
    rng = np.random.default_rng(seed)
    topology = random_cluster(rng) if cluster else random_pcie_tree(rng, gpus=8)
    if len(topology.accelerators) >= 2:
        _check_rounds(topology, design(topology))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(20, 200))
def test_sharing_a_round_slows_nothing_down(seed: int, middle: float) -> None:
    """By fluid simulation at nominal capacities: 0.6 % at most."""
    topology = two_sides(2 + seed % 4, middle)
    plan = design(topology)
    capacities = Capacities.of(topology)
    for members in plan.rounds:
        flows = [pair for k in members for pair in plan.patterns[k].flows]
        together = simulate(topology, bundle(flows, GB).flows, capacities).finish_s
        at = 0
        for k in members:
            alone = plan.patterns[k].pattern.scaled(GB)
            end = at + len(alone.flows)
            seconds = simulate(topology, alone.flows, capacities).finish_s.max()
            assert together[at:end].max() <= 1.006 * seconds
            at = end

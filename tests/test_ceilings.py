"""Proofs of how far a resource can be ahead: by hand, and checked pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure import ceilings_kernel, design_kernel
from topocal.measure.ceilings import best_subset, dominated, feeding, fractional
from topocal.measure.crossings import CAPACITY, FATPIPE, TIME_SHARED
from topocal.measure.pinning import weigh
from topocal.measure.setting import Setting
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import SHARING_CODE
from topocal.topo.machines import random_cluster, random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology

GB = 1e9


def two_sides(links: list[float], middle: float) -> Topology:
    """GPUs on two sockets, the first half of ``links`` GB/s on one, joined by ``middle`` GB/s."""
    build = TopologyBuilder("two sides")
    for side in range(2):
        build.node(f"socket{side}", NodeKind.SOCKET)
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=middle * GB)
    for k, rate in enumerate(links):
        build.node(f"gpu{k}", NodeKind.GPU)
        side = 2 * k // len(links)
        build.connect(f"gpu{k}", f"socket{side}", LinkKind.PCIE, nominal_Bps=rate * GB)
    return build.build()


def _class(setting: Setting, name: str) -> int:
    return int(setting.crossings.class_of[list(setting.topology.resources).index(name)])


def test_the_codes_of_the_compiled_loops_are_those_of_the_simulator() -> None:
    for kernel in (design_kernel, ceilings_kernel):
        assert kernel._TIME_SHARED == SHARING_CODE[Sharing.TIME_SHARED] == TIME_SHARED
        assert kernel._FATPIPE == SHARING_CODE[Sharing.FATPIPE] == FATPIPE
    assert ceilings_kernel._CAPACITY == SHARING_CODE[Sharing.CAPACITY] == CAPACITY


# Cards of 10 and 20 GB/s send over a hop of 60 GB/s, to cards of 40 GB/s: at most 30 of 60.
def test_the_sending_ends_bound_a_hop() -> None:
    setting = Setting.of(two_sides([10, 20, 40, 40], 60), None)
    proof = feeding(setting.crossings, _class(setting, "socket0->socket1"))
    assert proof is not None
    assert proof.ceiling == pytest.approx(30 / 60)
    # The greater contribution first: 20 of 60, then 10.
    assert [setting.name(k) for k in proof.classes] == ["gpu1->socket0", "gpu0->socket0"]


# The same the other way: at most 30 GB/s arrive.
def test_the_receiving_ends_bound_a_hop() -> None:
    setting = Setting.of(two_sides([10, 20, 40, 40], 60), None)
    proof = feeding(setting.crossings, _class(setting, "socket1->socket0"))
    assert proof is not None
    assert proof.ceiling == pytest.approx(30 / 60)
    assert {setting.name(k) for k in proof.classes} == {"socket0->gpu0", "socket0->gpu1"}


# Cards of 30 and 60 GB/s send over a hop of 45 GB/s to cards of 40 GB/s: 90 could be sent, but
# no more than 80 arrives.
def test_the_linear_program_finds_the_best_proof() -> None:
    setting = Setting.of(two_sides([30, 60, 40, 40], 45), None)
    hop = _class(setting, "socket0->socket1")
    by_ends, best = feeding(setting.crossings, hop), fractional(setting.crossings, hop)
    assert by_ends is not None
    assert best is not None
    assert by_ends.ceiling == pytest.approx(80 / 45)
    assert best.ceiling == pytest.approx(80 / 45)
    assert sum(best.weights.values()) == pytest.approx(best.ceiling)


# Cards of 20 GB/s behind a switch whose uplink passes 10 GB/s.
def test_one_class_bounds_another_that_it_contains() -> None:
    build = TopologyBuilder("behind")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    build.node("socket0", NodeKind.SOCKET)
    build.connect("switch0", "socket0", LinkKind.PCIE, nominal_Bps=10 * GB)
    for k, parent in enumerate(("switch0", "socket0", "socket0", "switch0")):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", parent, LinkKind.PCIE, nominal_Bps=20 * GB)
    setting = Setting.of(build.build(), ["gpu0", "gpu1", "gpu2"])
    # gpu0 is alone behind the switch: its link and the uplink are one class, the slower one's.
    assert _class(setting, "gpu0->switch0") == _class(setting, "switch0->socket0")
    assert setting.name(_class(setting, "gpu0->switch0")) == "switch0->socket0"
    both = Setting.of(setting.topology, ["gpu0", "gpu3", "gpu1"])
    by, ceiling = dominated(both.crossings)
    uplink = _class(both, "switch0->socket0")
    # With gpu3 beside it, gpu0 also sends past the uplink, which then does not bound its link.
    assert by[_class(both, "gpu0->switch0")] == -1
    assert np.isinf(ceiling[_class(both, "gpu0->switch0")])
    assert uplink != _class(both, "gpu0->switch0")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_every_proof_holds_on_every_pair(seed: int, cluster: bool) -> None:
    rng = np.random.default_rng(seed)
    topology = random_cluster(rng, nodes=2, gpus=3) if cluster else random_pcie_tree(rng, gpus=5)
    c = Setting.of(topology, None).crossings
    cost = np.zeros((c.pairs, c.classes))
    cost[np.repeat(np.arange(c.pairs), np.diff(c.indptr)), c.indices] = c.cost_s
    by, ceiling = dominated(c)
    for target in range(c.classes):
        mine = cost[:, target]
        if by[target] >= 0:
            assert (mine <= ceiling[target] * cost[:, by[target]] * (1 + 1e-9)).all()
        proof = feeding(c, target)
        if proof is not None:
            assert target not in proof.classes
        best = fractional(c, target)
        if best is None:
            continue
        bound = sum(w * cost[:, s] for s, w in best.weights.items())
        assert (mine <= bound * (1 + 1e-6) + 1e-30).all()
        assert best.ceiling == pytest.approx(sum(best.weights.values()), rel=1e-4)
        # The best proof is no weaker than the simple ones, and no pattern beats it.
        assert best.ceiling <= ceiling[target] * (1 + 1e-6)
        if proof is not None:
            assert best.ceiling <= proof.ceiling * (1 + 1e-6)
        rows = c.rows_of(target)
        some = [rng.choice(rows, int(rng.integers(1, len(rows) + 1)), False) for _ in range(20)]
        weights = weigh(c, [p.tolist() for p in some])
        ahead = np.where(weights.busiest == target, weights.ratio, 0.0)
        assert ahead.max() <= best.ceiling * (1 + 1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_the_best_subset_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c = Setting.of(random_pcie_tree(rng, gpus=3), None).crossings
    for target in range(c.classes):
        rows = c.rows_of(target).tolist()
        found = best_subset(c, target)
        assert found is not None
        patterns = [
            [p for k, p in enumerate(rows) if mask >> k & 1] for mask in range(1, 2 ** len(rows))
        ]
        weights = weigh(c, patterns)
        ahead = np.where(weights.busiest == target, weights.ratio, 0.0)
        if ahead.max() > 1:
            assert found[1] == pytest.approx(ahead.max(), rel=1e-9)
        else:
            assert found[1] <= 1 + 1e-9

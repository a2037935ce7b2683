"""Replica policies for DeepSpeed's planner, on requests of the same shape; no DeepSpeed needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from topocal.deepspeed import ReplicaPart, ReplicaPolicy, ReplicaSelector
from topocal.solve.caps import Caps
from topocal.solve.conditions import Conditions
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.topo.errors import InputError, NoRouteError, UnknownEndpointError
from topocal.topo.machines import dgx_h100
from topocal.topo.resource import Sharing


def senders(rates: list[float]) -> PairCosts:
    """Sender k passes ``rates[k]`` bytes per second in all."""
    n = len(rates)
    rows = [k * n + b for k in range(n) for b in range(n) if b != k]
    columns = [k for k in range(n) for b in range(n) if b != k]
    weights = csr_array(coo_array((np.ones(len(rows)), (rows, columns)), shape=(n * n, n)))
    resources = [(f"sender{k}", Sharing.CAPACITY, rate, 1.0) for k, rate in enumerate(rates)]
    return PairCosts.build([f"gpu{k}" for k in range(n)], resources, weights)


@dataclass(frozen=True)
class Candidate:
    source_rank: int
    source_offset: int = 0
    source_strides: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class One:
    """As plan_transfer asks: ``ReplicaSelectionRequest``."""

    target_rank: int
    candidates: tuple[Candidate, ...]
    logical_origin: tuple[int, ...] = (0,)
    shape: tuple[int, ...] = (8,)
    target_offset: int = 0
    target_strides: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Batched(One):
    """As a planner of whole syncs asks."""

    parameter: str = "p"


def one(target: int, *holders: int, elements: int = 8) -> One:
    return One(target, tuple(map(Candidate, holders)), shape=(elements,))


def batched(target: int, *holders: int, shape: tuple[int, ...], name: str = "p") -> Batched:
    origin = tuple(10 * (axis + 1) for axis in range(len(shape)))
    return Batched(target, tuple(map(Candidate, holders)), origin, shape, parameter=name)


def test_the_selector_keeps_count_of_what_it_chose() -> None:
    # Senders of 10 and 30 elements per second, regions of 8: the fast one until it is as busy.
    select = ReplicaSelector(senders([10.0, 30.0, 1.0]), element_bytes=1)
    chosen = [select(one(2, 0, 1)) for _ in range(8)]
    assert chosen.count(0) == 2
    assert chosen.count(1) == 6
    assert select.busiest_s == pytest.approx(1.6)
    select.reset()
    assert select.busiest_s == 0.0
    assert [select(one(2, 0, 1)) for _ in range(8)] == chosen


def test_the_selector_returns_true_integers_and_prefers_what_is_local() -> None:
    select = ReplicaSelector(senders([1.0, 1.0, 1.0]), element_bytes=2)
    found = select(SimpleNamespace(target_rank=np.int64(1), shape=(4,), candidates=[0, 1, 2]))
    assert (found, type(found)) == (1, int)
    assert select.busiest_s == 0.0
    remote = select(SimpleNamespace(target_rank=2, shape=(4,), candidates=[np.int32(1), 0]))
    assert (remote, type(remote)) == (0, int)
    assert select.busiest_s == pytest.approx(8.0)


def test_the_selector_counts_what_it_was_not_asked() -> None:
    select = ReplicaSelector(senders([1.0, 1.0, 1.0]), element_bytes=1)
    select.add(0, 2, 100)
    assert select(one(2, 0, 1)) == 1


def test_ranks_may_be_elsewhere_and_targets_numbered_apart() -> None:
    costs = senders([10.0, 30.0, 10.0])
    # Trainer ranks 0 and 1 are on gpu1 and gpu2; rollout rank 0 is on gpu0.
    select = ReplicaSelector(
        costs, element_bytes=1, endpoints=["gpu1", "gpu2"], target_endpoints={0: "gpu0"}
    )
    assert select(one(0, 0, 1)) == 0
    policy = ReplicaPolicy(
        costs, element_bytes=1, endpoints=["gpu1", "gpu2"], target_endpoints={0: "gpu0"}
    )
    assert policy([batched(0, 0, 1, shape=(8,))]) == [0]


def test_ranks_on_one_endpoint_are_one_holder() -> None:
    # Ranks 0 and 1 share gpu0 with target 2: a copy of theirs is local.
    ranks = {0: "gpu0", 1: "gpu0", 2: "gpu0", 3: "gpu1"}
    costs = senders([10.0, 30.0, 10.0])
    select = ReplicaSelector(costs, element_bytes=1, endpoints=ranks)
    assert select(one(2, 1, 0, 3)) == 0
    assert select(one(2, 1, 2, 3)) == 2
    policy = ReplicaPolicy(costs, element_bytes=1, endpoints=ranks)
    answers = policy([batched(2, 1, 0, 3, shape=(8,)), batched(2, 1, 2, 3, shape=(8,), name="q")])
    assert answers == [0, 2]


def test_the_policy_answers_all_at_once_with_parts_where_that_pays() -> None:
    # 40 rows of one byte from senders of 10 and 30: 10 and 30 rows.
    policy = ReplicaPolicy(senders([10.0, 30.0, 1.0]), element_bytes=1, min_split_bytes=1)
    only, shared = policy([batched(2, 2, shape=(5,), name="a"), batched(2, 0, 1, shape=(40, 1))])
    assert only == 2
    assert [type(part) for part in shared] == [ReplicaPart, ReplicaPart]
    assert {part.source_rank: part.shape for part in shared} == {0: (10, 1), 1: (30, 1)}
    first, second = shared
    assert first.logical_origin == (10, 20)
    assert second.logical_origin == (10 + first.shape[0], 20)
    assert policy.assignment is not None
    assert policy.assignment.finish_s == pytest.approx(1.0)
    assert policy.assignment.digest.startswith("sha256:")


def test_the_policy_makes_parts_of_the_planners_own_kind() -> None:
    policy = ReplicaPolicy(
        senders([10.0, 10.0, 1.0]),
        element_bytes=1,
        min_split_bytes=1,
        make_part=lambda rank, origin, shape: (origin, shape, rank),
    )
    (parts,) = policy([batched(2, 0, 1, shape=(8,))])
    assert [(shape, rank) for _, shape, rank in parts] == [((4,), 0), ((4,), 1)]


def test_the_policy_without_splits_answers_with_ranks() -> None:
    policy = ReplicaPolicy(senders([10.0, 10.0, 1.0]), element_bytes=1, split=False)
    answers = policy([batched(2, 0, 1, shape=(8,), name=name) for name in "abcd"])
    assert sorted(answers) == [0, 0, 1, 1]
    assert all(type(rank) is int for rank in answers)
    assert policy([]) == []


def test_bytes_of_an_element_come_from_the_request_or_the_parameter() -> None:
    costs = senders([10.0, 1.0])
    policy = ReplicaPolicy(costs, element_bytes=lambda name: {"p": 4}[name])
    policy([batched(1, 0, shape=(10,))])
    assert policy.assignment is not None
    assert policy.assignment.finish_s == pytest.approx(4.0)
    request = {"name": "x", "target": 1, "holders": [0], "origin": [0], "shape": [10]}
    policy([request | {"itemsize": 2}])
    assert policy.assignment.finish_s == pytest.approx(2.0)


def test_what_cannot_be_answered_is_refused() -> None:
    costs = senders([10.0, 0.0, 1.0])
    select = ReplicaSelector(costs, element_bytes=1)
    with pytest.raises(NoRouteError, match="nothing gets to rank 2 from ranks 1"):
        select(one(2, 1))
    with pytest.raises(
        InputError, match="target rank 7 is at no endpoint; the machine has ranks 0"
    ):
        select(one(7, 0, 1))
    with pytest.raises(InputError, match="source rank 9 is at no endpoint"):
        select(one(2, 9))
    with pytest.raises(InputError, match="a request has no holders"):
        select(one(2))
    with pytest.raises(InputError, match="has no target_rank; give requests with target_rank or"):
        select(SimpleNamespace(candidates=[0], shape=(1,)))
    with pytest.raises(InputError, match=r"shape 1\.5 is no whole number"):
        select(SimpleNamespace(target_rank=2, candidates=[0], shape=(1.5,)))
    with pytest.raises(UnknownEndpointError, match="unknown endpoint 'gpu8'"):
        ReplicaSelector(costs, element_bytes=1, endpoints=["gpu8"])
    with pytest.raises(InputError, match="element_bytes is 0"):
        ReplicaSelector(costs, element_bytes=0)


def test_a_stale_calibration_is_refused_unless_allowed() -> None:
    caps: Caps = nominal_model(dgx_h100()).caps()
    object.__setattr__(caps, "calibration", Conditions(group_size=8, backend="nccl"))
    other = Conditions(group_size=16, backend="nccl")
    for make in (ReplicaSelector, ReplicaPolicy):
        with pytest.raises(InputError, match="stale caps"):
            make(caps, element_bytes=2, under=other)
        make(caps, element_bytes=2, under=other, allow_stale=True)
        make(caps, element_bytes=2, under=Conditions(group_size=8, backend="nccl"))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.integers(0, 3), min_size=1, unique=True),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_the_selector_only_chooses_candidates_and_counts_right(
    asked: list[tuple[int, list[int], int]],
) -> None:
    rates = [10.0, 20.0, 30.0, 40.0]
    select = ReplicaSelector(senders(rates), element_bytes=2)
    sent = np.zeros(4)
    for target, holders, elements in asked:
        rank = select(one(target, *holders, elements=elements))
        assert rank in holders
        if target in holders:
            assert rank == target
        else:
            sent[rank] += 2 * elements
    assert select.busiest_s == pytest.approx((sent / rates).max())


def test_deepspeed_and_torch_are_not_imported() -> None:
    program = "import sys, topocal.deepspeed; print({'deepspeed', 'torch'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "set()\n", ran.stderr

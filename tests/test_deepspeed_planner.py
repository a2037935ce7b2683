"""Replica policies with the real planner: ``make test-deepspeed`` installs deepspeed 0.19.8.

``plan_transfer`` takes a selector.  A planner of whole syncs is not in that release; what it
asks is built here from the same maps, and its answers are held against the plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topocal as tc
from topocal.deepspeed import ReplicaPolicy, ReplicaSelector
from topocal.solve.caps import Caps

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transfer = pytest.importorskip(
        "deepspeed.checkpoint.affine_transfer",
        reason="deepspeed is not installed (make test-deepspeed)",
        exc_type=ImportError,
    )
    affine = pytest.importorskip("deepspeed.checkpoint.affine", exc_type=ImportError)

EXAMPLES = Path(__file__).parents[1] / "examples" / "b70"
CARDS = 8
ROWS, COLUMNS = 768, 64
ELEMENT_BYTES = 2


@pytest.fixture(scope="module")
def caps() -> Caps:
    measured = tc.read_tables([str(EXAMPLES / "pairs.csv"), str(EXAMPLES / "fans.csv")])
    return tc.fit(measured, tc.machines.b70()).caps()


def _map(blocks: dict[int, tuple[int, int]]) -> Any:
    """Rank r holds rows ``blocks[r]`` of the parameter, and nothing else."""
    pieces = {}
    for rank, (low, high) in blocks.items():
        holders = [other for other, block in blocks.items() if block == (low, high)]
        pieces[rank] = [
            affine.AffinePiece(
                shape=(high - low, COLUMNS),
                source_offset=low * COLUMNS,
                source_strides=(COLUMNS, 1),
                dest_offset=0,
                dest_strides=(COLUMNS, 1),
                locations=holders,
            )
        ]
    shapes = {rank: (high - low, COLUMNS) for rank, (low, high) in blocks.items()}
    return affine.ParamAffineMap((ROWS, COLUMNS), shapes, pieces)


def trainer(replicas: int) -> Any:
    """ZeRO-3 shards along the rows, each on so many cards."""
    shards = CARDS // replicas
    step = ROWS // shards
    return _map({r: ((r % shards) * step, (r % shards + 1) * step) for r in range(CARDS)})


def rollout(tp: int) -> Any:
    """Tensor parallel along the rows, in the other order of cards."""
    step = ROWS // tp
    return _map({r: ((7 - r) % tp * step, ((7 - r) % tp + 1) * step) for r in range(CARDS)})


@pytest.mark.parametrize(("replicas", "tp"), [(2, 2), (2, 4), (4, 4), (4, 1)])
def test_the_planner_takes_the_selector(caps: Caps, replicas: int, tp: int) -> None:
    select = ReplicaSelector(caps, element_bytes=ELEMENT_BYTES)
    asked: list[tuple[Any, int]] = []

    def watched(request: Any) -> int:
        asked.append((request, select(request)))
        return asked[-1][1]

    plan = transfer.plan_transfer(rollout(tp), trainer(replicas), replica_selector=watched)
    assert asked
    for request, rank in asked:
        holders = [candidate.source_rank for candidate in request.candidates]
        assert type(rank) is int
        assert rank in holders
        if request.target_rank in holders:
            assert rank == request.target_rank
    plain = transfer.plan_transfer(rollout(tp), trainer(replicas))
    assert plan.moved_elements == plain.moved_elements
    ours, theirs = (_busiest_s(caps, one) for one in (plan, plain))
    assert ours == pytest.approx(select.busiest_s)
    assert ours <= theirs


def _busiest_s(caps: Caps, plan: Any) -> float:
    costs = caps.pair_costs
    moved = {}
    for segment in plan.segments:
        pair = segment.source_rank * CARDS + segment.target_rank
        moved[pair] = moved.get(pair, 0) + segment.numel * ELEMENT_BYTES
    bytes_of = [float(moved.get(p, 0)) if p % (CARDS + 1) else 0.0 for p in range(CARDS**2)]
    import numpy as np

    return float(costs.busy_s(np.array(bytes_of)).max())


class _Region:
    """What a planner of whole syncs asks: the selector's request, and the parameter."""

    def __init__(self, parameter: str, request: Any) -> None:
        self.parameter = parameter
        self.target_rank = request.target_rank
        self.logical_origin = request.logical_origin
        self.shape = request.shape
        self.candidates = request.candidates


def _regions(replicas: int, tp: int) -> Iterator[Any]:
    """Every region of one parameter, single holders included, in the planner's order."""
    found: list[Any] = []

    def first(request: Any) -> int:
        found.append(request)
        return int(request.candidates[0].source_rank)

    transfer.plan_transfer(rollout(tp), trainer(replicas), replica_selector=first)
    yield from found


@pytest.mark.parametrize(("replicas", "tp"), [(2, 2), (4, 4), (4, 1)])
def test_the_batch_policy_answers_the_planners_regions(caps: Caps, replicas: int, tp: int) -> None:
    asked = [_Region(f"layer{k}", request) for k in range(4) for request in _regions(replicas, tp)]
    policy = ReplicaPolicy(caps, element_bytes=ELEMENT_BYTES, min_split_bytes=1024)
    answers = policy(asked)
    assert len(answers) == len(asked)
    for region, answer in zip(asked, answers, strict=True):
        holders = {candidate.source_rank for candidate in region.candidates}
        if isinstance(answer, int):
            assert answer in holders
            continue
        at = region.logical_origin[0]
        for part in answer:
            assert part.source_rank in holders
            assert part.logical_origin == (at, *region.logical_origin[1:])
            assert part.shape[0] * COLUMNS * ELEMENT_BYTES >= 1024
            at += part.shape[0]
        assert at == region.logical_origin[0] + region.shape[0]
    # All at once is never behind one after another.
    select = ReplicaSelector(caps, element_bytes=ELEMENT_BYTES)
    for region in asked:
        select(region)
    assert policy.assignment is not None
    assert policy.assignment.bound_s <= policy.assignment.finish_s
    online = next(c for c in policy.assignment.candidates if c.name == "online")
    assert policy.assignment.fair_s <= (online.fair_s or float("inf"))
    assert online.busy_s == pytest.approx(select.busiest_s)

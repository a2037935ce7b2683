"""A replica selector for DeepSpeed's transfer planner, and a policy for whole syncs.

Where deepspeed is installed, its own `plan_transfer` asks the selector; where it is not, a stand-in
asks the same questions, and says so.  `topocal.deepspeed` itself needs no deepspeed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import topocal as tc
from topocal.deepspeed import ReplicaPolicy, ReplicaSelector
from topocal.topo.units import format_seconds

TABLES = Path(__file__).with_name("b70")
CARDS, ROWS, COLUMNS, ELEMENT_BYTES = 8, 768, 4096, 2


@dataclass(frozen=True)
class Candidate:
    """A rank that holds a region."""

    source_rank: int


@dataclass(frozen=True)
class Asked:
    """One region of a parameter, as a planner asks for it."""

    parameter: str
    target_rank: int
    candidates: Sequence[Candidate]
    logical_origin: tuple[int, int]
    shape: tuple[int, int]


def regions() -> list[Asked]:
    """Shards along the rows, each on two cards; every card wants the rows of another one."""
    step = ROWS // 4
    return [
        Asked("q_proj", target, [Candidate(s), Candidate(s + 4)], (s * step, 0), (step, COLUMNS))
        for target in range(CARDS)
        for s in ((target + 1) % 4,)
    ]


def ask(select: Callable[[Any], int]) -> str:
    """Let the real planner ask, or a stand-in; returns who asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from deepspeed.checkpoint import affine, affine_transfer
    except ImportError:
        for region in regions():
            select(region)
        return "a stand-in for deepspeed, which is not installed here (make test-deepspeed)"

    def placed(blocks: dict[int, tuple[int, int]]) -> Any:
        """Rank r holds rows ``blocks[r]``."""
        pieces = {
            rank: [
                affine.AffinePiece(
                    shape=(high - low, COLUMNS),
                    source_offset=low * COLUMNS,
                    source_strides=(COLUMNS, 1),
                    dest_offset=0,
                    dest_strides=(COLUMNS, 1),
                    locations=[r for r, block in blocks.items() if block == (low, high)],
                )
            ]
            for rank, (low, high) in blocks.items()
        }
        shapes = {rank: (high - low, COLUMNS) for rank, (low, high) in blocks.items()}
        return affine.ParamAffineMap((ROWS, COLUMNS), shapes, pieces)

    step = ROWS // 4
    held = placed({r: (r % 4 * step, (r % 4 + 1) * step) for r in range(CARDS)})
    wanted = placed({r: ((r + 1) % 4 * step, ((r + 1) % 4 + 1) * step) for r in range(CARDS)})
    affine_transfer.plan_transfer(wanted, held, replica_selector=select)
    return "deepspeed's plan_transfer"


def main() -> None:
    """Select one region at a time, then all of a sync at once."""
    tables = [TABLES / "pairs.csv", TABLES / "fans.csv"]
    caps = tc.fit(tc.read_tables(tables), tc.machines.b70()).caps()
    select = ReplicaSelector(caps, element_bytes=ELEMENT_BYTES)
    chosen: list[int] = []

    def watched(request: Any) -> int:
        chosen.append(select(request))
        return chosen[-1]

    print(f"asked by {ask(watched)}\n")
    ranks = " ".join(map(str, chosen))
    print(f"one region at a time, as the planner asks: {format_seconds(select.busiest_s)}")
    print(f"  from ranks {ranks}")
    policy = ReplicaPolicy(caps, element_bytes=ELEMENT_BYTES)
    sent = policy(regions())
    assert policy.assignment is not None
    whole = sum(isinstance(one, int) for one in sent)
    print(f"all regions of the sync at once: {format_seconds(policy.assignment.finish_s)}")
    print(f"  {whole} from one rank, {len(sent) - whole} split between ranks")
    print(f"no choice finishes before {format_seconds(policy.assignment.bound_s)}")


if __name__ == "__main__":
    main()

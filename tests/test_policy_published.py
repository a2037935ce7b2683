"""Who sends what on the published eight-card machine, as the simulator judges it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from policy_cases import table_bytes, wanted

import topocal as tc
from topocal.solve.conditions import Conditions
from topocal.solve.fading import Crowd, Fading
from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.assign import assign
from topocal.solve.policy.baselines import BASELINES, baseline
from topocal.solve.policy.requests import Request
from topocal.solve.policy.table import table_of
from topocal.topo.errors import InputError
from topocal.topo.fluid import simulate


def sync(replicas: int, tp: int, layers: int) -> list[Request]:
    """ZeRO-3 shards in so many replicas to a tensor-parallel rollout on the same cards."""
    shards = 8 // replicas
    found = []
    for layer in range(layers):
        for name, rows, columns in (("qkv", 3072, 2048), ("out", 2048, 2048), ("up", 8192, 2048)):
            for shard in range(shards):
                holders = tuple(f"gpu{shard + k * shards}" for k in range(replicas))
                low, high = rows * shard // shards, rows * (shard + 1) // shards
                for card in range(8):
                    block = (7 - card) % tp
                    begin, end = rows * block // tp, rows * (block + 1) // tp
                    a, b = max(low, begin), min(high, end)
                    if a < b:
                        found.append(
                            Request(
                                parameter=f"{layer}.{name}",
                                target=f"gpu{card}",
                                holders=holders,
                                origin=(a, 0),
                                shape=(b - a, columns),
                                element_bytes=2,
                            )
                        )
    return found


@pytest.mark.parametrize(
    ("replicas", "tp", "gap"),
    # Several receivers that serve by turns: with everybody starting at once, fair sharing
    # itself may keep all answers from the bound (2, 4).
    [(2, 4, 0.12), (4, 2, 0.08), (2, 8, 0.08), (2, 2, 0.08), (4, 4, 0.08)],
)
def test_on_the_published_machine_the_simulator_agrees_and_the_bound_is_near(
    b70: tc.Model, replicas: int, tp: int, gap: float
) -> None:
    asked = sync(replicas, tp, 6)
    answer = assign(b70, asked)
    simulated = simulate(b70.topology, answer.flows(), b70.capacities).seconds
    assert simulated == pytest.approx(answer.fair_s, rel=1e-6)
    assert answer.gap < gap
    table = table_of(PairCosts.of(b70), asked)
    costs = PairCosts.of(b70)
    for name in BASELINES:
        moved = table_bytes(costs, table, baseline(name, costs, table))
        n = len(costs.endpoints)
        flows = [
            tc.Flow(
                source=costs.endpoints[p // n],
                destination=costs.endpoints[p % n],
                size_bytes=moved[p],
            )
            for p in np.flatnonzero(moved).tolist()
        ]
        theirs = simulate(b70.topology, flows, b70.capacities).seconds
        assert simulated <= theirs * (1 + 1e-6), name


def test_the_answer_says_how_far_it_rests_on_what_was_not_measured(b70: tc.Model) -> None:
    # All from one socket to the other: the hop between them was never a clear bottleneck.
    asked = [
        Request(
            parameter=f"p{k}",
            target=f"gpu{4 + k % 4}",
            holders=("gpu0", "gpu1", "gpu2", "gpu3"),
            origin=(0,),
            shape=(2**26,),
        )
        for k in range(8)
    ]
    answer = assign(b70, asked)
    price = answer.price
    assert price is not None
    assert price.seconds == pytest.approx(answer.finish_s, rel=1e-6)
    busiest = answer.bottleneck
    assert busiest is not None
    status = b70.resources[busiest].status
    assert (status == "pinned") == (price.dependence.share == 0)
    assert 0 <= price.dependence.share <= 1
    assert assign(PairCosts.of(b70), asked).price is None


def test_where_flows_get_less_the_more_there_are_the_finish_allows_for_it(b70: tc.Model) -> None:
    asked = sync(2, 2, 1)
    caps = b70.caps()
    plain = assign(caps, asked)
    fading = Fading(loss=0.01, error=0.001, by=Crowd.PATTERN, most_flows=8, advantage=20.0)
    faded = assign(replace(caps, fading=fading), asked)
    # One flow for each pair: 1 % longer for each beyond the first.
    longer = 1.0 + 0.01 * (len(faded.flows()) - 1)
    assert faded.finish_s == pytest.approx(plain.finish_s * longer, rel=1e-6)
    assert "flows get less the more of them there are" in faded.notes[0]
    assert plain.notes == ()


def test_a_stale_calibration_is_refused_unless_allowed(b70: tc.Model) -> None:
    caps = replace(b70.caps(), calibration=Conditions(group_size=8, backend="xccl"))
    asked = [wanted(1, [0], (8,))]
    with pytest.raises(InputError, match="stale caps"):
        assign(caps, asked, under=Conditions(group_size=16))
    allowed = assign(caps, asked, under=Conditions(group_size=16), allow_stale=True)
    assert any("16" in note for note in allowed.notes)
    assert assign(caps, asked, under=Conditions(group_size=8, backend="xccl")).notes == ()
    bare = assign(PairCosts.of(caps), asked, under=Conditions(group_size=16))
    assert bare.notes == ("the calibration's conditions are unknown",)

"""The fewest resources by hand: how many, which ones, and why there are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from minimum_cases import SIZE, b70_demands, everyone, figure, labels, plain, star
from scipy.sparse import csr_array

from topocal.measure.patterns import both_ways, fan_in, peer
from topocal.solve.demands import AnyOf, Demands, Extremes, Receivers, demands
from topocal.solve.explanation_columns import explanation_columns
from topocal.solve.integer import ProgramStatus
from topocal.solve.minimum import (
    explain_by_fewest,
    loosest_refutation,
    refute,
)
from topocal.solve.minimum_program import Program, slowest_allowed
from topocal.topo.errors import InputError


def test_one_shared_resource_explains_two_alone_and_both_together() -> None:
    # a is each flow's own, b the other's, c is shared: 1 s alone, 2 s together.
    found = explain_by_fewest(plain([[1, 0, 1], [0, 1, 1], [1, 1, 2]], [1.0, 1.0, 2.0]))
    assert found.status is ProgramStatus.OPTIMAL
    assert labels(found) == ["c"]
    assert found.chosen[0].capacity_Bps == pytest.approx(1.0, rel=1e-4)
    assert found.unique is True
    assert found.explanation == {"s0": "c", "s1": "c", "s2": "c"}
    assert found.worst == pytest.approx(0.0, abs=1e-4)
    assert found.sentences == (
        "1 resource explains all; no fewer do.",
        "c: 1 B/s (3 figures)",
        "No other set of the same size does.",
    )


def test_a_shared_resource_cannot_explain_that_nothing_adds_up() -> None:
    # Both together take as long as each alone: two separate resources, not one shared.
    found = explain_by_fewest(plain([[1, 0, 1], [0, 1, 1], [1, 1, 2]], [1.0, 1.0, 1.0]))
    assert labels(found) == ["a", "b"]
    assert found.at_least == 2
    assert found.gap == 0.0


def test_two_ways_to_say_it_are_told() -> None:
    found = explain_by_fewest(plain([[1, 1]], [1.0]))
    assert found.unique is False
    assert {*labels(found), *found.other} == {"a", "b"}
    assert found.sentences[-1] == (
        f"The choice is not unique: {found.other[0]} in place of {labels(found)[0]} does as well."
    )


def test_the_less_odd_of_two_is_preferred() -> None:
    base = plain([[1, 1]], [1.0])
    for oddity, expected in (((0, 1), "a"), ((1, 0), "b")):
        asked = Demands(
            scenarios=base.scenarios,
            resources=base.resources,
            log_load=base.log_load,
            low=base.low,
            high=base.high,
            oddity=np.array(oddity),
        )
        assert labels(explain_by_fewest(asked)) == [expected]


def test_what_nothing_can_explain_is_named_with_the_reason() -> None:
    # The only resource passes 1 byte in 1 s, says s0; so s1 cannot take 3 s for 1 byte.
    asked = plain([[1], [1]], [1.0, 3.0])
    found = explain_by_fewest(asked)
    assert found.status is ProgramStatus.INFEASIBLE
    assert found.chosen == ()
    (proof,) = found.refutations
    assert (proof.scenario, proof.busiest, proof.held_by) == ("s1", "a", "s0")
    assert proof.least_s == pytest.approx(3.0 / 1.05)
    assert proof.most_s == pytest.approx(1.05)
    assert proof.excess == pytest.approx(3.0 / 1.05**2 - 1)
    assert found.sentences == (
        "No capacities of the 1 candidates can explain all.",
        "Proof: s1 takes 2.86 s or more, but no candidate can be busy with it for longer than "
        "1.05 s: that is a, and s0 says that it is no slower.",
    )
    # At sqrt(3) - 1 = 73.2 % either way the two meet.
    loosest = loosest_refutation(lambda t: plain([[1], [1]], [1.0, 3.0], t))
    assert loosest == pytest.approx(math.sqrt(3) - 1, abs=2e-3)
    assert loosest_refutation(lambda t: plain([[1]], [1.0], t)) is None


def test_some_one_of_several_reaches_an_extreme() -> None:
    # Between 1 and 4 s each; one takes 4 s, one 1 s. Resource a is in both, b in s1 only.
    matrix = csr_array(np.array([[1.0, 0.0], [1.0, 1.0]]))
    matrix.eliminate_zeros()
    matrix.data = np.log(matrix.data)
    low, high = np.zeros(2), np.full(2, math.log(4.0))
    ends = (AnyOf(scenarios=(0, 1), low=high[0] - 0.01), AnyOf(scenarios=(0, 1), high=0.01))
    asked = Demands(
        scenarios=("s0", "s1"),
        resources=("a", "b"),
        log_load=matrix,
        low=low - 0.01,
        high=high + 0.01,
        any_of=ends,
    )
    assert not Program(asked).is_cover
    found = explain_by_fewest(asked)
    # With a alone both take the same; so b makes s1 the slow one and a keeps s0 at 1 s.
    assert labels(found) == ["a", "b"]
    assert found.explanation == {"s0": "a", "s1": "b"}
    assert found.chosen[0].capacity_Bps == pytest.approx(1.0, rel=0.02)
    assert found.chosen[1].capacity_Bps == pytest.approx(0.25, rel=0.02)


def test_both_directions_that_share_need_a_resource_of_both() -> None:
    # 10 each way alone and 10 in all both ways: no resource of one direction adds up to that.
    topology = star(2)
    figures = [
        figure((peer("gpu0", "gpu1", SIZE), 10e9)),
        figure((peer("gpu1", "gpu0", SIZE), 10e9)),
        figure((both_ways("gpu0", "gpu1", SIZE), 10e9)),
    ]
    assert refute(demands(explanation_columns(topology), figures))
    found = explain_by_fewest(
        demands(explanation_columns(topology, opposed=everyone(topology)), figures)
    )
    assert labels(found) == ["both directions of gpu0"]
    assert found.chosen[0].capacity_Bps == pytest.approx(10e9, rel=0.01)


def test_time_shared_receiver_by_hand() -> None:
    # 10 and 40 alone; both into gpu0 take 1/10 + 1/40 = 1/8 per byte: 16 in all.
    columns = explanation_columns(star(3))
    figures = [
        figure((peer("gpu1", "gpu0", SIZE), 10e9)),
        figure((peer("gpu2", "gpu0", SIZE), 40e9)),
        figure((fan_in("gpu0", ["gpu1", "gpu2"], SIZE), 16e9)),
    ]
    none = explain_by_fewest(demands(columns, figures))
    assert none.status is ProgramStatus.INFEASIBLE
    for receivers in (Receivers.TIME_SHARED, Receivers.FREE):
        found = explain_by_fewest(demands(columns, figures, receivers=receivers))
        assert found.status is ProgramStatus.OPTIMAL
        assert len(found.chosen) == 2
        assert found.explanation["gpu0<-gpu1,gpu2"] == "receiver gpu0"
        assert found.time_shared[0] == "receiver gpu0"
        assert found.worst < 0.021
    # With an overlap of 0.8 the fan takes 1/10 per byte: 20 in all; 16 is then too long.
    late = explain_by_fewest(demands(columns, figures, receivers=Receivers.TIME_SHARED, kappa=0.8))
    assert late.status is ProgramStatus.INFEASIBLE
    assert late.sentences[0].startswith("No choice among the")


def test_a_pair_that_was_not_measured_needs_no_resource_of_its_own() -> None:
    # gpu2->gpu0 was not timed alone; the fan takes what gpu1->gpu0 takes, to 2 %.
    figures = [
        figure((peer("gpu1", "gpu0", SIZE), 10e9)),
        figure((fan_in("gpu0", ["gpu1", "gpu2"], SIZE), 20e9)),
    ]
    columns = explanation_columns(star(3))
    for receivers in Receivers:
        found = explain_by_fewest(demands(columns, figures, receivers=receivers))
        assert found.status is ProgramStatus.OPTIMAL
        assert len(found.chosen) == 1
        assert math.isfinite(found.chosen[0].capacity_Bps)


def test_without_a_fan_nothing_is_said_of_receivers() -> None:
    figures = [figure((peer("gpu1", "gpu0", SIZE), 20e9))]
    columns = explanation_columns(star(3))
    for receivers in Receivers:
        found = explain_by_fewest(demands(columns, figures, receivers=receivers))
        assert len(found.chosen) == 1
        assert found.time_shared == ()


def test_a_receiver_that_would_take_too_long_is_a_proof_too() -> None:
    # Bytes are shared: 20 and 20 alone, 20 in all together; one at a time would make 10.
    columns = explanation_columns(star(3))
    figures = [
        figure((peer("gpu1", "gpu0", SIZE), 20e9)),
        figure((peer("gpu2", "gpu0", SIZE), 20e9)),
        figure((fan_in("gpu0", ["gpu1", "gpu2"], SIZE), 40e9)),
    ]
    (proof,) = refute(demands(columns, figures, receivers=Receivers.TIME_SHARED))
    assert proof.receiver == "receiver gpu0"
    assert proof.sentence == (
        "gpu0<-gpu1,gpu2 passes 39.2 GB/s or more, but one after another its flows into a "
        "time-shared receiver gpu0 pass 20.4 GB/s at most"
    )
    free = explain_by_fewest(demands(columns, figures, receivers=Receivers.FREE))
    assert free.status is ProgramStatus.OPTIMAL
    assert free.time_shared == ()
    assert len(free.chosen) == 2


# --- time ----------------------------------------------------------------------------------


def test_no_time_at_all_is_said_and_nothing_is_claimed() -> None:
    found = explain_by_fewest(b70_demands(Receivers.TIME_SHARED), time_limit_s=0.0)
    assert found.status in (ProgramStatus.TIME_LIMIT, ProgramStatus.FEASIBLE)
    assert found.gap > 0.0
    assert found.unique is None
    assert "time" in found.sentences[0]


# --- refusals ------------------------------------------------------------------------------


def test_bad_figures_are_refused() -> None:
    columns = explanation_columns(star(3))
    pattern = peer("gpu1", "gpu0", SIZE)
    with pytest.raises(InputError, match="throughput 0"):
        demands(columns, [figure((pattern, 0.0))])
    with pytest.raises(InputError, match="tolerance -1"):
        demands(columns, [figure((pattern, 1.0), -1.0)])
    with pytest.raises(InputError, match=r"overlap factor 1\.5"):
        demands(columns, [figure((pattern, 1.0))], kappa=1.5)
    with pytest.raises(InputError, match="nothing is to be explained"):
        demands(columns, [])
    with pytest.raises(InputError, match="has a flow of no bytes"):
        columns.log_load([peer("gpu1", "gpu0", 0.0)])
    uneven = Extremes(
        patterns=(pattern, peer("gpu1", "gpu0", 1.0)),
        smallest_Bps=1.0,
        largest_Bps=2.0,
        tolerance=0.1,
    )
    with pytest.raises(InputError, match="different size"):
        demands(columns, [], [uneven])


def test_a_pattern_that_loads_nothing_is_a_refutation() -> None:
    asked = plain([[1], [1]], [1.0, 1.0])
    empty = Demands(
        scenarios=("full", "empty"),
        resources=("a",),
        log_load=csr_array((np.zeros(1), ([0], [0])), shape=(2, 1)),
        low=asked.low,
        high=asked.high,
    )
    (proof,) = refute(empty)
    assert proof.sentence == "empty loads none of the candidates"
    assert proof.excess == math.inf
    assert slowest_allowed(empty).tolist() == pytest.approx([math.log(1.05)])

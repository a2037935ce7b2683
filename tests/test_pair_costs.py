"""The linear form of the law, by hand and against the model's own busy times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import topocal as tc
from topocal.solve.occupancy import occupancies
from topocal.solve.pair_costs import PairCosts
from topocal.topo.errors import UnknownEndpointError
from topocal.topo.resource import Sharing

B70 = Path(__file__).parents[1] / "examples" / "b70"


def _costs(*resources: tuple[str, Sharing, float | None, float, dict[int, float]]) -> PairCosts:
    """Three endpoints a, b, c: pair ab is 1, ac 2, ba 3, bc 5, ca 6, cb 7."""
    weights = np.zeros((9, len(resources)))
    for k, (*_, own) in enumerate(resources):
        for pair, weight in own.items():
            weights[pair, k] = weight
    return PairCosts.build("abc", [r[:4] for r in resources], csr_array(weights), alpha_s=0.5)


def test_capacity_and_weight() -> None:
    # Out of a: 10 B/s, and a byte to c counts twice.
    costs = _costs(("a.out", Sharing.CAPACITY, 10.0, 1.0, {1: 1.0, 2: 2.0}))
    assert costs.seconds_per_byte.toarray().tolist() == [[0, 0.1, 0.2, 0, 0, 0, 0, 0, 0]]
    moved = np.zeros(9)
    moved[1], moved[2] = 100.0, 50.0
    assert costs.busy_s(moved).tolist() == [20.0]
    assert costs.finish_s(moved) == 20.5


def test_time_shared_adds_the_pairs_own_times() -> None:
    # c takes from a at 10 B/s alone and from b at 5; kappa 0.9: 0.9 (100/10 + 100/5) = 27.
    costs = _costs(
        ("a.out", Sharing.CAPACITY, 10.0, 1.0, {1: 1.0, 2: 1.0}),
        ("b.out", Sharing.CAPACITY, 5.0, 1.0, {3: 1.0, 5: 1.0}),
        ("c.in", Sharing.TIME_SHARED, None, 0.9, {2: 1.0, 5: 1.0}),
    )
    moved = np.zeros(9)
    moved[2] = moved[5] = 100.0
    assert costs.busy_s(moved).tolist() == pytest.approx([10.0, 20.0, 27.0])
    alone = np.zeros(9)
    alone[2] = 100.0
    assert costs.finish_s(alone) == 0.5 + 10.0  # its own time, not 0.9 of it


def test_a_fatpipe_limits_each_pair_and_only_where_nothing_else_does() -> None:
    costs = _costs(
        ("out", Sharing.CAPACITY, 10.0, 1.0, {1: 1.0, 2: 1.0, 5: 1.0}),
        ("slow", Sharing.FATPIPE, 4.0, 1.0, {1: 1.0, 2: 1.0, 7: 1.0}),
        ("fast", Sharing.FATPIPE, 40.0, 1.0, {1: 1.0, 5: 1.0}),
    )
    assert costs.resources == ("out", "slow", "slow", "slow")
    moved = np.zeros(9)
    moved[1] = moved[2] = 8.0
    assert costs.busy_s(moved).tolist() == pytest.approx([1.6, 2.0, 2.0, 0.0])


def test_what_never_binds_and_what_passes_nothing() -> None:
    costs = _costs(
        ("unknown", Sharing.CAPACITY, None, 1.0, {1: 1.0, 2: 1.0}),
        ("broken", Sharing.CAPACITY, 0.0, 1.0, {2: 1.0}),
    )
    assert costs.resources == ()
    assert costs.blocked.tolist() == [p == 2 for p in range(9)]
    assert costs.finish_s(np.ones(9)) == 0.0
    assert np.isfinite(costs.seconds_per_byte.data).all()


def test_local_copies_cost_nothing(b70: tc.Model) -> None:
    costs = PairCosts.of(b70)
    local = np.zeros(64)
    local[::9] = 1e12
    assert costs.finish_s(local) == 0.0


def test_pairs_are_found_by_name(b70: tc.Model) -> None:
    costs = PairCosts.of(b70.caps())
    assert costs.pair("gpu2", "gpu5") == 2 * 8 + 5
    with pytest.raises(UnknownEndpointError, match="gpu9"):
        costs.pair("gpu2", "gpu9")


def test_it_agrees_with_the_model(b70: tc.Model) -> None:
    costs = PairCosts.of(b70)
    random = np.random.default_rng(7)
    for _ in range(60):
        chosen = random.choice([p for p in range(64) if p % 9], random.integers(1, 12), False)
        moved = np.zeros(64)
        moved[chosen] = random.integers(1, 2**30, len(chosen))
        flows = tuple(
            tc.Flow(
                source=costs.endpoints[p // 8],
                destination=costs.endpoints[p % 8],
                size_bytes=float(moved[p]),
            )
            for p in chosen.tolist()
        )
        ((_, busy),) = occupancies(b70, [tc.Pattern(flows=flows)])
        assert costs.finish_s(moved) == pytest.approx(busy.seconds.max(), rel=1e-12)

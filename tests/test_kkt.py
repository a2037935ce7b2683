"""Optima are believed only when the conditions of optimality say so."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from topocal.solve import convex
from topocal.solve.convex import solve_convex
from topocal.solve.kkt import optimality_error
from topocal.topo.errors import SolverError

# minimise x² / 2 − x subject to x <= 0.25, as x + s = 0.25: x = 0.25, s = 0, and
# x − 1 + z = 0 makes z = 0.75.
P, A = csc_array([[1.0]]), csc_array([[1.0]])
C, B = np.array([-1.0]), np.array([0.25])


def error_at(x: float, s: float, z: float) -> float:
    return optimality_error(P, C, A, B, 0, np.array([x]), np.array([s]), np.array([z]))


def test_the_optimum_by_hand() -> None:
    assert error_at(0.25, 0.0, 0.75) == 0.0


@pytest.mark.parametrize(
    ("x", "s", "z"),
    [(0.3, 0.0, 0.7), (0.25, 0.0, 0.5), (0.2, 0.05, 0.8), (1.0, -0.75, 0.0), (0.0, 0.25, 1.0)],
    ids=["infeasible", "not stationary", "slack and price", "outside", "slack at a price"],
)
def test_other_points_miss_a_condition(x: float, s: float, z: float) -> None:
    assert error_at(x, s, z) > 0.01


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_what_comes_back_is_an_optimum(seed: int) -> None:
    """Random robust fits under bounds: no random feasible point is better."""
    rng = np.random.default_rng(seed)
    matrix, wanted = rng.normal(size=(8, 4)), rng.normal(size=8)
    x = cp.Variable(4)
    cost = cp.sum(cp.huber(matrix @ x - wanted, 1.345)) + 0.3 * cp.norm1(x)
    solve_convex(cp.Problem(cp.Minimize(cost), [x <= 0.5, x >= -0.5]), "fit")
    best = float(cost.value)
    for _ in range(50):
        x.value = rng.uniform(-0.5, 0.5, 4)
        assert float(cost.value) >= best - 1e-6


def test_an_answer_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that calls anything optimal: the trap that docs/model.md tells of."""
    monkeypatch.setattr(convex, "optimality_error", lambda *_: 0.5)
    x = cp.Variable()
    with pytest.raises(SolverError, match=r"conditions of optimality missed by 0\.5"):
        solve_convex(cp.Problem(cp.Minimize(cp.square(x - 1))), "test")


def test_what_has_no_optimum_is_refused() -> None:
    x = cp.Variable()
    with pytest.raises(SolverError, match="unbounded"):
        solve_convex(cp.Problem(cp.Minimize(x)), "test")
    with pytest.raises(SolverError, match="infeasible"):
        solve_convex(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]), "test")

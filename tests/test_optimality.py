"""Certificates against independent programs: closed form, oracle, brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, lil_array

from topocal.solve.integer import ProgramStatus, relative_gap
from topocal.solve.l1_presolve import Group, groups_of, reduce
from topocal.solve.optimality import (
    certify_l1,
    least_largest_error,
    predicted_log_seconds,
)
from topocal.topo.errors import InputError

Floats = NDArray[np.float64]


def system(
    seed: int, scenarios: int, resources: int, noise: float, repeats: int = 1
) -> tuple[csr_array, Floats, Floats]:
    """Loads, log seconds and true x of a machine that obeys the law, timed with errors."""
    rng = np.random.default_rng(seed)
    loads = rng.random((scenarios, resources)) < 0.5
    loads[np.arange(scenarios), rng.integers(0, resources, scenarios)] = True
    bytes_there = np.where(loads, 2.0 ** rng.integers(0, 4, loads.shape), 0.0)
    bytes_there = np.repeat(bytes_there, repeats, axis=0)
    matrix = csr_array(bytes_there)
    matrix.data = np.log(matrix.data)
    x = rng.uniform(-1.0, 1.0, resources)
    y = predicted_log_seconds(matrix, x) + noise * rng.standard_normal(len(bytes_there))
    return matrix, y, x


ORACLE = 3e-4
"""15 (the largest that anything in these systems is apart) times 1e-6 times 18 scenarios."""


def binary_program(
    log_load: csr_array, y: Floats, weight: Floats, largest: float | None, epsilon: float
) -> float:
    """Least largest error (``largest`` None) or least sum of errors within it, by scipy's HiGHS.

    Variables: x (R), one error per scenario (S), one yes-or-no per entry (N), the maximum.
    A yes-or-no may be off by 1e-6, so the answer by ``ORACLE``.
    """
    entries = log_load.tocoo()
    row, column = entries.coords
    s, r, n = log_load.shape[0], log_load.shape[1], len(row)
    big = 15.0
    rows = lil_array((2 * n + 2 * s, r + s + n + 1))
    low = np.full(2 * n + 2 * s, -np.inf)
    high = np.full(2 * n + 2 * s, np.inf)
    for k in range(n):
        # a + x - y <= e and y - a - x <= e + big (1 - z)
        rows[2 * k, column[k]], rows[2 * k, r + row[k]] = 1.0, -1.0
        high[2 * k] = y[row[k]] - entries.data[k]
        rows[2 * k + 1, column[k]], rows[2 * k + 1, r + row[k]] = -1.0, -1.0
        rows[2 * k + 1, r + s + k] = big
        high[2 * k + 1] = big - y[row[k]] + entries.data[k]
        rows[2 * n + row[k], r + s + k] = 1.0
    low[2 * n : 2 * n + s] = 1.0
    for k in range(s):
        rows[2 * n + s + k, r + k], rows[2 * n + s + k, r + s + n] = 1.0, -1.0
        high[2 * n + s + k] = 0.0
    cost = np.zeros(r + s + n + 1)
    upper = np.full(r + s + n + 1, np.inf)
    if largest is None:
        cost[-1] = 1.0
    else:
        cost[r : r + s] = weight
        upper[r : r + s] = epsilon
    lower = np.zeros(r + s + n + 1)
    lower[:r], upper[:r] = -5.0, 5.0
    upper[r + s : r + s + n] = 1.0
    solution = milp(
        cost,
        constraints=LinearConstraint(rows.tocsr(), low, high),
        bounds=Bounds(lower, upper),
        integrality=np.concatenate((np.zeros(r + s), np.ones(n), [0])),
        options={"mip_rel_gap": 0.0},
    )
    assert solution.success
    return float(solution.fun)


def test_largest_error_by_hand() -> None:
    # One resource of one byte in two scenarios that took 1 s and e s: x = 0.5 misses both by 0.5.
    loads = csr_array((np.zeros(2), (np.arange(2), np.zeros(2, dtype=int))), shape=(2, 1))
    best = least_largest_error(loads, np.array([0.0, 1.0]))
    assert best.error == pytest.approx(0.5)
    assert best.x.tolist() == pytest.approx([0.5])
    assert (best.scenario, best.held_by) == (1, ((0, 0),))
    assert best.sentence(["short", "long"], ["wire"]) == (
        "every fit misses some scenario by 64.9% or more: long took longer than all that it "
        "loads is allowed to take (wire by short)"
    )


def test_a_second_resource_takes_the_blame() -> None:
    # The long scenario also loads a resource that nothing else does: no error at all.
    loads = csr_array((np.zeros(3), ([0, 1, 1], [0, 0, 1])), shape=(2, 2))
    best = least_largest_error(loads, np.array([0.0, 1.0]))
    assert best.error == 0.0
    assert best.x.tolist() == [0.0, 1.0]
    assert best.sentence(["a", "b"], ["r", "t"]) == "some capacities explain every scenario exactly"


def test_a_floor_above_the_time_is_the_whole_reason() -> None:
    loads = csr_array((np.zeros(1), ([0], [0])), shape=(1, 1))
    best = least_largest_error(loads, np.zeros(1), floor=np.array([0.3]))
    assert best.error == pytest.approx(0.3)
    assert best.held_by == ()
    assert "time-shared" in best.sentence(["fan"], ["wire"])


def test_a_floor_explains_what_no_resource_may() -> None:
    # As by hand above, but the long scenario has a floor 0.1 below its time: 0.1 is reached.
    loads = csr_array((np.zeros(2), (np.arange(2), np.zeros(2, dtype=int))), shape=(2, 1))
    floor = np.array([-np.inf, 0.9])
    best = least_largest_error(loads, np.array([0.0, 1.0]), floor)
    assert best.error == pytest.approx(0.1)
    reached = predicted_log_seconds(loads, best.x, floor)
    assert np.abs(reached - [0.0, 1.0]).max() == pytest.approx(0.1)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.floats(0.0, 0.5))
def test_largest_error_is_what_the_program_finds(
    seed: int, scenarios: int, resources: int, noise: float
) -> None:
    loads, y, _ = system(seed, scenarios, resources, noise)
    best = least_largest_error(loads, y)
    assert best.error == pytest.approx(
        binary_program(loads, y, np.ones(len(y)), None, math.inf), abs=ORACLE
    )
    x = np.where(np.isfinite(best.x), best.x, -np.inf)
    assert np.abs(predicted_log_seconds(loads, x) - y).max() == pytest.approx(best.error, abs=1e-9)
    # The witness is a proof by itself: its scenarios alone are as far apart.
    alone = sorted({best.scenario, *(s for _, s in best.held_by)})
    again = least_largest_error(csr_array(loads[alone]), y[alone])
    assert again.error == pytest.approx(best.error, abs=1e-9)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_no_x_has_a_smaller_largest_error(seed: int, scenarios: int, resources: int) -> None:
    loads, y, truth = system(seed, scenarios, resources, 0.3)
    rng = np.random.default_rng(seed)
    floor = np.where(rng.random(len(y)) < 0.4, y + 0.3 * rng.standard_normal(len(y)), -np.inf)
    for given_floor in (None, floor):
        best = least_largest_error(loads, y, given_floor)
        reached = predicted_log_seconds(
            loads, np.where(np.isfinite(best.x), best.x, -np.inf), given_floor
        )
        assert np.abs(reached - y).max() == pytest.approx(best.error, abs=1e-9)
        for _ in range(20):
            other = truth + 0.3 * rng.standard_normal(resources)
            error = np.abs(predicted_log_seconds(loads, other, given_floor) - y).max()
            assert error >= best.error - 1e-9


def fitted(loads: csr_array, y: Floats) -> Floats:
    """Some x that misses nothing by more than it must: the centre of the closed form."""
    x = least_largest_error(loads, y).x
    return np.where(np.isfinite(x), x, -np.inf)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.floats(0.01, 0.4),
    st.floats(1.0, 3.0),
)
def test_the_bound_is_the_least_sum_that_the_program_finds(
    seed: int, scenarios: int, resources: int, repeats: int, noise: float, factor: float
) -> None:
    loads, y, _ = system(seed, scenarios, resources, noise, repeats)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, len(y))
    x = fitted(loads, y)
    largest = float(np.abs(predicted_log_seconds(loads, x) - y).max())
    assume(largest > 1e-6)
    epsilon = factor * largest
    found = certify_l1(loads, y, x, weight=weight, epsilon=epsilon, time_limit_s=60)
    least = binary_program(loads, y, weight, 0.0, epsilon + 1e-9)
    assert found.status is ProgramStatus.OPTIMAL
    assert found.bound == pytest.approx(least, rel=1e-4, abs=ORACLE)
    assert found.best_objective == pytest.approx(least, rel=1e-3, abs=ORACLE)
    error = np.abs(predicted_log_seconds(loads, found.best_x) - y)
    assert found.best_objective == pytest.approx(float(weight @ error))
    assert found.bound <= found.best_objective <= found.objective


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_bound_is_the_least_over_all_choices_of_the_busiest(seed: int) -> None:
    loads, y, _ = system(seed, 3, 3, 0.2)
    x = fitted(loads, y)
    epsilon = float(np.abs(predicted_log_seconds(loads, x) - y).max()) * 1.5 + 1e-3
    entries = [loads.indices[loads.indptr[s] : loads.indptr[s + 1]] for s in range(3)]
    values = [loads.data[loads.indptr[s] : loads.indptr[s + 1]] for s in range(3)]
    least = math.inf
    for busiest in itertools.product(*(range(len(e)) for e in entries)):
        rows, limits = [], []
        for s, b in enumerate(busiest):
            for k, (r, a) in enumerate(zip(entries[s], values[s], strict=True)):
                line = np.zeros(6)
                line[r], line[3 + s] = 1.0, -1.0
                rows.append(line)
                limits.append(y[s] - a)
                if k == b:
                    line = np.zeros(6)
                    line[r], line[3 + s] = -1.0, -1.0
                    rows.append(line)
                    limits.append(a - y[s])
        bounds = [(-20, 20)] * 3 + [(0, epsilon)] * 3
        solution = linprog([0] * 3 + [1] * 3, A_ub=rows, b_ub=limits, bounds=bounds)
        if solution.status == 0:
            least = min(least, float(solution.fun or 0.0))
    found = certify_l1(loads, y, x, epsilon=epsilon, time_limit_s=60)
    assert found.bound == pytest.approx(least, rel=1e-4, abs=1e-6)


def test_a_perfect_fit_is_optimal_without_a_search() -> None:
    loads, y, x = system(3, 20, 5, 0.0)
    found = certify_l1(loads, y, x)
    assert found.objective == pytest.approx(0.0, abs=1e-12)
    assert found.is_optimal
    assert found.decisions == 0
    assert found.sentence.startswith("no capacities have a smaller sum of errors")


def test_a_worse_fit_is_told_by_how_much() -> None:
    # One resource, times 1, 1 and e: the median is best (sum 1); x = 0.25 has 0.25+0.25+0.75.
    loads = csr_array((np.zeros(3), (np.arange(3), np.zeros(3, dtype=int))), shape=(3, 1))
    found = certify_l1(loads, np.array([0.0, 0.0, 1.0]), np.array([0.25]), epsilon=1.0)
    assert found.objective == pytest.approx(1.25)
    assert found.best_objective == pytest.approx(1.0)
    assert found.best_x.tolist() == pytest.approx([0.0], abs=1e-6)
    assert found.gap == pytest.approx(0.2)
    assert not found.is_optimal
    # An error above epsilon = 1 in one scenario could still come with a sum below 1.25.
    assert found.conditional
    assert found.sentence == (
        "other capacities have a sum of errors 20.0% smaller (conditional on no scenario being "
        "missed by more than 172%)"
    )


def test_epsilon_above_the_whole_sum_makes_the_bound_unconditional() -> None:
    loads = csr_array((np.zeros(3), (np.arange(3), np.zeros(3, dtype=int))), shape=(3, 1))
    found = certify_l1(loads, np.array([0.0, 0.0, 1.0]), np.array([0.0]), epsilon=1.5)
    assert not found.conditional
    assert found.sentence == "no capacities have a smaller sum of errors"


def test_epsilon_excludes_what_misses_more() -> None:
    # Times 0, 0, 1: within 0.6 of all, x in [0.4, 0.6], the best is 0.4: 0.4 + 0.4 + 0.6.
    loads = csr_array((np.zeros(3), (np.arange(3), np.zeros(3, dtype=int))), shape=(3, 1))
    found = certify_l1(loads, np.array([0.0, 0.0, 1.0]), np.array([0.5]), epsilon=0.6)
    assert found.bound == pytest.approx(1.4)
    with pytest.raises(InputError, match=r"epsilon 0\.4 is below the largest error"):
        certify_l1(loads, np.array([0.0, 0.0, 1.0]), np.array([0.5]), epsilon=0.4)


def hard_system() -> tuple[csr_array, Floats, Floats]:
    """300 scenarios of nearly equal candidates, far more than a second can settle."""
    rng = np.random.default_rng(11)
    dense = (rng.random((300, 60)) < 0.2) * 1.0
    dense[np.arange(300), rng.integers(0, 60, 300)] = 1.0
    loads = csr_array(dense)
    loads.data = np.log(loads.data)
    x = 0.02 * rng.standard_normal(60)
    y = predicted_log_seconds(loads, x) + 0.1 * rng.standard_normal(300)
    return loads, y, x


@pytest.mark.heavy
def test_time_runs_out_with_a_bound_and_a_gap() -> None:
    loads, y, x = hard_system()
    # Without the limit this runs for many minutes.
    found = certify_l1(loads, y, x, time_limit_s=2.0)
    assert found.status is ProgramStatus.FEASIBLE
    assert 0.0 <= found.bound < found.objective
    assert 0.0 < found.gap <= 1.0
    assert "time ran out" in found.sentence


def test_no_time_at_all_still_gives_a_bound() -> None:
    loads, y, x = system(5, 40, 6, 0.05)
    none = certify_l1(loads, y, x, time_limit_s=0.0)
    full = certify_l1(loads, y, x, time_limit_s=60.0)
    assert none.status is ProgramStatus.FEASIBLE
    assert none.best_objective == none.objective
    assert 0.0 <= none.bound <= full.bound + 1e-6
    assert full.bound == pytest.approx(full.best_objective, rel=1e-3)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_scenarios_and_resources_does_not_matter(seed: int) -> None:
    loads, y, x = system(seed, 12, 4, 0.1)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(12), rng.permutation(4)
    shuffled = csr_array(loads[rows][:, columns])
    one = certify_l1(loads, y, x, time_limit_s=60)
    other = certify_l1(shuffled, y[rows], x[columns], time_limit_s=60)
    assert other.bound == pytest.approx(one.bound, rel=2e-5, abs=1e-9)
    largest = least_largest_error(loads, y).error
    assert least_largest_error(shuffled, y[rows]).error == pytest.approx(largest, abs=1e-12)


def test_repeats_of_a_scenario_are_one_group() -> None:
    # Scenario 1 moves twice the bytes of 0 on the same resources, 2 has other proportions.
    dense = np.array([[1.0, 2.0], [2.0, 4.0], [1.0, 1.0]])
    loads = csr_array(dense)
    loads.data = np.log(loads.data)
    grouped = groups_of(loads, np.array([0.0, 1.0, 0.0]), np.ones(3))
    assert grouped.of_scenario.tolist() == [0, 0, 1]
    assert grouped.groups[0].y.tolist() == pytest.approx([0.0, 1.0 - math.log(2.0)])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.floats(-4, 4),
)
def test_the_pieces_of_a_group_are_its_cost(values: list[float], seed: int, at: float) -> None:
    weight = np.random.default_rng(seed).uniform(0.1, 2.0, len(values))
    group = Group(y=np.sort(values), weight=weight)
    highest = max(slope * at + level for slope, level in group.pieces(-4.0, 4.0))
    assert highest == pytest.approx(group.cost(at), abs=1e-6)
    assert group.cost(group.median) <= group.cost(at) + 1e-9


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 10), st.integers(2, 6))
def test_the_presolve_keeps_the_fit_at_hand(seed: int, scenarios: int, resources: int) -> None:
    loads, y, x = system(seed, scenarios, resources, 0.1)
    error = np.abs(predicted_log_seconds(loads, x) - y)
    grouped = groups_of(loads, y, np.ones(len(y)))
    reduced = reduce(grouped, x, float(error.max()) + 1e-6)
    assert sum(p.bound for p in reduced.parts) <= error.sum() + 1e-6
    assert (x <= reduced.high + 1e-6).all()
    reached = predicted_log_seconds(loads, x)
    for s, g in enumerate(grouped.of_scenario):
        members = grouped.groups[g].y
        if len(members) == 1:
            assert reduced.p_low[g] <= reached[s] - y[s] + members[0] + 1e-6


@pytest.mark.parametrize(
    ("loads", "y", "message"),
    [
        (csr_array((1, 1)), np.zeros(1), "scenario 0 loads no resource"),
        (csr_array(np.ones((1, 1))), np.array([np.nan]), "not finite"),
        (csr_array((0, 1)), np.zeros(0), "there are no scenarios"),
    ],
)
def test_bad_input_is_refused(loads: csr_array, y: Floats, message: str) -> None:
    with pytest.raises(InputError, match=message):
        least_largest_error(loads, y)


def test_relative_gap() -> None:
    assert relative_gap(2.0, 1.0) == 0.5
    assert relative_gap(1.0, 2.0) == 0.0
    assert relative_gap(0.0, -1.0) == math.inf

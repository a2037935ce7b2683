"""The fluid simulator against a linear program, and what must hold on any machine.

The oracle shares no code with the simulator: at every event it finds the
lexicographically largest rates by a chain of linear programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from topocal.topo.busiest import busiest_of_batch
from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.fluid import simulate_batch
from topocal.topo.incidence import Incidence
from topocal.topo.loads import Batch, Loads
from topocal.topo.resource import Sharing

Floats = NDArray[np.float64]

FATPIPE = SHARING_CODE[Sharing.FATPIPE]
TIME_SHARED = SHARING_CODE[Sharing.TIME_SHARED]


@dataclass(frozen=True, kw_only=True)
class System:
    """Flows on resources: weights (flows × resources), how each resource is shared."""

    weight: Floats
    capacity: Floats
    sharing: NDArray[np.int8]
    kappa: Floats
    in_order: NDArray[np.bool_]
    size: Floats
    start: Floats
    pair: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def loads(self) -> Loads:
        capacities = Capacities(
            tuple(f"r{k}" for k in range(len(self.capacity))),
            np.where(self.sharing == TIME_SHARED, np.inf, self.capacity),
            self.sharing,
            self.kappa,
            self.in_order,
        )
        pairs = tuple((f"s{k}", f"d{k}") for k in range(len(self.weight)))
        return Loads.of(Incidence(pairs, capacities.resources, csr_array(self.weight)), capacities)

    def finish(self) -> Floats:
        return simulate_batch(self.loads, Batch.single(self.pair, self.size, self.start)).finish_s

    def constraints(self) -> Floats:
        """Shape (resources + flows, flows): each row times the rates is at most 1.

        Straight from the law: weight / C, and kappa / solo rate; then each flow's
        fatpipes.  In-order resources have none.
        """
        weight = self.weight[self.pair]
        cost = np.where(self.sharing == TIME_SHARED, 0.0, weight / self.capacity)
        solo = cost.max(axis=1)
        shared = cost.copy()
        shared[:, self.sharing == FATPIPE] = 0.0
        timed = (self.sharing == TIME_SHARED) & ~self.in_order
        shared[:, timed] = (weight[:, timed] > 0) * solo[:, None] * self.kappa[timed]
        pipe = np.where(self.sharing == FATPIPE, cost, 0.0).max(axis=1)
        return np.vstack([shared.T, np.diag(pipe)])


def lexicographic(rows: Floats) -> Floats:
    """Max-min fair rates under ``rows @ rates <= 1``."""
    n = rows.shape[1]
    rates = np.full(n, np.nan)
    while np.isnan(rates).any():
        free = np.flatnonzero(np.isnan(rates))
        left = 1.0 - rows[:, ~np.isnan(rates)] @ rates[~np.isnan(rates)]
        # Variables: the free rates, then the level t; t - x <= 0 for each.
        level = np.hstack([-np.eye(len(free)), np.ones((len(free), 1))])
        resource = np.hstack([rows[:, free], np.zeros((len(rows), 1))])
        found = linprog(
            np.append(np.zeros(len(free)), -1.0),
            A_ub=np.vstack([level, resource]),
            b_ub=np.append(np.zeros(len(free)), left),
            bounds=[(0, None)] * (len(free) + 1),
            method="highs",
        )
        assert found.fun is not None
        # Whose lower bound has a price can have no more than the level.
        stuck = found.ineqlin.marginals[: len(free)] < -1e-9
        assert stuck.any()
        rates[free[stuck]] = -found.fun
    return rates


def oracle(system: System) -> Floats:
    """Finish of every flow."""
    rows = system.constraints()
    engines = (system.weight[system.pair] > 0) & system.in_order
    left = system.size.copy()
    finish = np.where(system.size == 0, system.start, np.nan)
    held = engines & (system.size > 0)[:, None]
    begun = np.zeros(len(left), dtype=bool)
    turn = np.lexsort((np.arange(len(left)), system.start))
    now = float(system.start.min())
    while np.isnan(finish).any():
        open_ = np.isnan(finish)
        for f in turn:
            if open_[f] and not begun[f] and system.start[f] <= now:
                ahead = turn[: int(np.flatnonzero(turn == f)[0])]
                begun[f] = not (held[ahead] & engines[f]).any()
        moving = np.flatnonzero(begun & open_)
        instant = moving[rows[:, moving].max(axis=0) == 0]
        if len(instant):
            finish[instant], held[instant] = now, False
            continue
        later = system.start[np.isnan(finish) & ~begun & (system.start > now)]
        step = float(later.min()) - now if len(later) else math.inf
        if len(moving):
            rate = lexicographic(rows[:, moving])
            step = min(step, float((left[moving] / rate).min()))
            keep = system.kappa[None, :] * held[moving]
            for f, r, speed in (
                (f, r, rate[i]) for i, f in enumerate(moving) for r in np.flatnonzero(keep[i])
            ):
                if system.kappa[r] < 1:
                    target = (1 - system.kappa[r]) * system.size[f]
                    step = min(step, max(0.0, (left[f] - target) / speed))
            left[moving] -= rate * step
        now += step
        tiny = 1e-12 * system.size
        done = np.isnan(finish) & begun & (left <= tiny)
        finish[done], held[done] = now, False
        for f in moving:
            released = left[f] <= (1 - system.kappa) * system.size[f] + tiny[f]
            held[f] &= ~released
    return finish


@st.composite
def systems(draw: st.DrawFn, *, timed: bool = True, queued: bool = False) -> System:
    """Few resources, small numbers: many ties and many bottlenecks."""
    resources, pairs = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    flows = draw(st.integers(1, 7))
    kinds = [SHARING_CODE[s] for s in Sharing if timed or s is not Sharing.TIME_SHARED]
    sharing = draw(st.lists(st.sampled_from(kinds), min_size=resources, max_size=resources))
    numbers = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 7.0])
    weights = st.sampled_from([0.0, 0.0, 1.0, 1.0, 1.0, 2.0])

    def array(elements: st.SearchStrategy[float], n: int) -> Floats:
        return np.array(draw(st.lists(elements, min_size=n, max_size=n)))

    codes = np.array(sharing, dtype=np.int8)
    is_timed = codes == TIME_SHARED
    return System(
        weight=array(weights, pairs * resources).reshape(pairs, resources),
        capacity=array(numbers, resources),
        sharing=codes,
        kappa=np.where(is_timed, array(st.sampled_from([0.4, 0.9, 1.0]), resources), 1.0),
        in_order=is_timed & queued,
        size=array(st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.5]), flows),
        start=array(st.sampled_from([0.0, 0.0, 0.0, 0.25, 1.0]), flows),
        pair=np.array(
            draw(st.lists(st.integers(0, pairs - 1), min_size=flows, max_size=flows)),
            dtype=np.int64,
        ),
    )


@settings(deadline=None, max_examples=120)
@given(systems())
def test_agrees_with_the_linear_program(system: System) -> None:
    np.testing.assert_allclose(system.finish(), oracle(system), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=120)
@given(systems(queued=True))
def test_agrees_with_the_linear_program_where_engines_run_in_order(system: System) -> None:
    np.testing.assert_allclose(system.finish(), oracle(system), rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=150)
@given(systems(), st.booleans())
def test_never_sooner_than_the_closed_form_and_equal_where_that_is_exact(
    system: System, alike: bool
) -> None:
    if alike:
        system = replace(system, size=np.full(len(system.size), 3.0), start=0.0 * system.start)
    batch = Batch.single(system.pair, system.size, system.start)
    bound = busiest_of_batch(system.loads, batch)
    finish = simulate_batch(system.loads, batch).seconds[0]
    assert finish >= bound.seconds[0] * (1 - 1e-12)
    if bound.exact[0]:
        assert finish == pytest.approx(bound.seconds[0], rel=1e-12)


@settings(deadline=None, max_examples=100)
@given(systems(queued=True), st.booleans())
def test_in_order_engines_are_never_sooner_and_exact_where_promised(
    system: System, alike: bool
) -> None:
    if alike:
        system = replace(system, size=np.full(len(system.size), 3.0), start=0.0 * system.start)
    batch = Batch.single(system.pair, system.size, system.start)
    bound = busiest_of_batch(system.loads, batch)
    finish = simulate_batch(system.loads, batch).seconds[0]
    assert finish >= bound.seconds[0] * (1 - 1e-12)
    if bound.exact[0]:
        assert finish == pytest.approx(bound.seconds[0], rel=1e-12)

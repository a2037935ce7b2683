"""The fewest resources against brute force, and what holds of any machine."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minimum_cases import SIZE, figure, plain, star
from scipy.optimize import linprog
from scipy.sparse import csr_array

from topocal.measure.patterns import both_ways, fan_in, peer
from topocal.solve.certificate import least_throughput_Bps
from topocal.solve.demands import AnyOf, Demands, Receivers, demands
from topocal.solve.explanation_columns import Columns, explanation_columns
from topocal.solve.integer import ProgramStatus
from topocal.solve.minimum import (
    explain_by_fewest,
    refute,
)


def brute_force(asked: Demands) -> int | None:
    """Fewest resources of a small capacity-only problem, by trying every set and every choice
    of what is busiest where."""
    dense = np.full(asked.log_load.shape, -np.inf)
    entries = asked.log_load.tocoo()
    dense[entries.coords[0], entries.coords[1]] = entries.data
    scenarios, resources = dense.shape
    selections = list(itertools.product(*(g.scenarios for g in asked.any_of)))
    for size in range(resources + 1):
        for chosen in itertools.combinations(range(resources), size):
            options = [[r for r in chosen if dense[s, r] > -np.inf] for s in range(scenarios)]
            for selected in selections:
                low, high = asked.low.copy(), asked.high.copy()
                for g, s in zip(asked.any_of, selected, strict=True):
                    low[s], high[s] = max(low[s], g.low), min(high[s], g.high)
                for busiest in itertools.product(*options):
                    if all(
                        max(
                            (low[s] - dense[s, r] for s, b in enumerate(busiest) if b == r),
                            default=-math.inf,
                        )
                        <= (high - dense[:, r]).min() + 1e-9
                        for r in chosen
                    ):
                        return size
    return None


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 4),
    st.floats(0.01, 0.5),
    st.booleans(),
)
def test_the_number_is_that_of_brute_force(
    seed: int, scenarios: int, resources: int, tolerance: float, extremes: bool
) -> None:
    rng = np.random.default_rng(seed)
    loads = rng.integers(0, 3, (scenarios, resources)).astype(float)
    loads[np.arange(scenarios), rng.integers(0, resources, scenarios)] = 1.0
    seconds = 2.0 ** rng.integers(0, 3, scenarios)
    any_of: tuple[AnyOf, ...] = ()
    if extremes and scenarios > 1:
        members = tuple(range(scenarios))
        any_of = (
            AnyOf(scenarios=members, low=float(rng.uniform(0, 1))),
            AnyOf(scenarios=members, high=float(rng.uniform(0.5, 1.5))),
        )
    asked = plain(loads.tolist(), seconds.tolist(), tolerance, any_of)
    least = brute_force(asked)
    found = explain_by_fewest(asked, time_limit_s=60)
    if least is None:
        assert found.status is ProgramStatus.INFEASIBLE
    else:
        assert found.status is ProgramStatus.OPTIMAL
        assert len(found.chosen) == found.at_least == least
        assert found.worst <= math.log1p(tolerance) + 2e-5
    if refute(asked):
        assert least is None


def time_shared_brute_force(asked: Demands) -> int | None:
    """Fewest resources with time-shared receivers, a linear program for every set of resources
    and every choice of what is busiest of each pair and each scenario."""
    engines = asked.engines
    assert engines is not None
    resources = len(asked.resources)
    load = np.zeros(asked.log_load.shape)
    entries = asked.log_load.tocoo()
    load[entries.coords[0], entries.coords[1]] = np.exp(entries.data)
    weight = np.zeros(engines.pair_log_weight.shape)
    entries = engines.pair_log_weight.tocoo()
    weight[entries.coords[0], entries.coords[1]] = np.exp(entries.data)
    kappa = math.exp(engines.log_kappa)
    low, high = np.exp(asked.low), np.exp(asked.high)
    pairs = len(weight)
    rows_of = {int(s): k for k, s in enumerate(engines.scenario)}
    fans = [s for s in range(len(low)) if s in rows_of]
    singles = [s for s in range(len(low)) if s not in rows_of]

    def engine_row(k: int) -> np.ndarray:
        row = np.zeros(resources + pairs)
        for at in range(engines.indptr[k], engines.indptr[k + 1]):
            row[resources + engines.pair[at]] += kappa * math.exp(engines.log_bytes[at])
        return row

    for size in range(resources + 1):
        for chosen in itertools.combinations(range(resources), size):
            of_pair = [[r for r in chosen if weight[p, r]] for p in range(pairs)]
            of_fan = [[r for r in chosen if load[s, r]] + [-1] for s in fans]
            of_single = [[r for r in chosen if load[s, r]] for s in singles]
            for picks in itertools.product(*of_pair, *of_fan, *of_single):
                by_pair, rest = picks[:pairs], picks[pairs:]
                upper: list[np.ndarray] = []
                equal: list[np.ndarray] = []
                limits: list[float] = []
                values: list[float] = []
                for p, r in enumerate(by_pair):
                    for c in of_pair[p]:
                        row = np.zeros(resources + pairs)
                        row[c], row[resources + p] = weight[p, c], -1.0
                        (equal if c == r else upper).append(row)
                        (values if c == r else limits).append(0.0)
                for s, r in zip([*fans, *singles], rest, strict=True):
                    for c in chosen:
                        row = np.zeros(resources + pairs)
                        row[c] = load[s, c] / high[s]
                        upper.append(row)
                        limits.append(1.0)
                        if c == r:
                            upper.append(-row)
                            limits.append(-low[s] / high[s])
                    if s in rows_of:
                        row = engine_row(rows_of[s]) / high[s]
                        upper.append(row)
                        limits.append(1.0)
                        if r == -1:
                            upper.append(-row)
                            limits.append(-low[s] / high[s])
                solution = linprog(
                    np.zeros(resources + pairs),
                    A_ub=upper or None,
                    b_ub=limits or None,
                    A_eq=equal or None,
                    b_eq=values or None,
                )
                if solution.status == 0:
                    return size
    return None


@pytest.mark.parametrize("seed", range(6))
def test_time_shared_number_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = np.zeros((2, 3))
    weight[0, 0] = weight[1, 1] = weight[:, 2] = 1.0
    columns = Columns(
        labels=("own1", "own2", "both"),
        oddity=np.zeros(3, dtype=np.int64),
        pairs=(("gpu1", "gpu0"), ("gpu2", "gpu0")),
        weight=csr_array(weight),
    )
    one, two = rng.choice([1.0, 2.0, 2.1], 2)
    fan = 2 / (1 / one + 1 / two) * float(rng.choice([1.0, 1.3, 2.0]))
    figures = [
        figure((peer("gpu1", "gpu0", 1.0), one), 0.06),
        figure((peer("gpu2", "gpu0", 1.0), two), 0.06),
        figure((fan_in("gpu0", ["gpu1", "gpu2"], 1.0), fan), 0.03),
    ]
    asked = demands(columns, figures, receivers=Receivers.TIME_SHARED, kappa=0.97)
    least = time_shared_brute_force(asked)
    found = explain_by_fewest(asked, time_limit_s=60)
    if least is None:
        assert found.status is ProgramStatus.INFEASIBLE
    else:
        assert len(found.chosen) == least
        assert found.status is ProgramStatus.OPTIMAL


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans())
def test_a_machine_of_k_resources_needs_no_more_than_k(
    seed: int, k: int, time_shared: bool
) -> None:
    rng = np.random.default_rng(seed)
    topology = star(3)
    columns = explanation_columns(topology)
    ends = topology.accelerators
    patterns = [peer(a, b, SIZE) for a, b in itertools.permutations(ends, 2)]
    patterns += [fan_in(e, [o for o in ends if o != e], SIZE) for e in ends]
    patterns += [both_ways(ends[0], ends[1], SIZE)]
    load = columns.log_load(patterns).tocoo()
    # Every pair takes some time: each sender (columns of the links away) and k more.
    senders = [columns.labels.index(f"{e}->socket0") for e in ends]
    others = [c for c in range(len(columns.labels)) if c not in senders]
    truth = [*senders, *rng.choice(others, k, replace=False)]
    x = np.full(len(columns.labels), -np.inf)
    x[truth] = np.log(1 / rng.uniform(5e9, 50e9, len(truth)))
    seconds = np.zeros(len(patterns))
    np.maximum.at(seconds, load.coords[0], np.exp(load.data + x[load.coords[1]]))
    singles = zip(patterns[:6], seconds[:6], strict=True)
    alone = {p.pairs[0]: s / SIZE for p, s in singles}
    if time_shared:
        for s, p in enumerate(patterns):
            into: dict[str, float] = {}
            for f in p.flows:
                into[f.destination] = (
                    into.get(f.destination, 0.0) + SIZE * alone[f.source, f.destination]
                )
            seconds[s] = max([seconds[s], *(0.95 * t for t in into.values() if len(p.flows) > 1)])
    figures = [figure((p, p.total_bytes / s), 1e-3) for p, s in zip(patterns, seconds, strict=True)]
    receivers = Receivers.TIME_SHARED if time_shared else Receivers.CAPACITY
    asked = demands(columns, figures, receivers=receivers, kappa=0.95)
    found = explain_by_fewest(asked, time_limit_s=60, check_unique=False)
    assert found.status is ProgramStatus.OPTIMAL
    assert len(found.chosen) <= len(truth)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.floats(0.0, 0.3), st.floats(0.0, 0.3))
def test_candidates_never_do_what_no_capacities_can(
    seed: int, senders: int, pair_tolerance: float, fan_tolerance: float
) -> None:
    # The bound of topocal.solve.certificate needs no candidates; any candidates obey it.
    rng = np.random.default_rng(seed)
    topology = star(senders + 1)
    rates = 10.0 ** rng.uniform(9, 11, senders)
    root, peers = "gpu0", [f"gpu{k}" for k in range(1, senders + 1)]
    slack = (1 + pair_tolerance) * (1 + fan_tolerance)
    too_little = least_throughput_Bps(rates.tolist()) / slack * float(rng.uniform(0.5, 0.999))
    figures = [
        figure((peer(p, root, SIZE), float(r)), pair_tolerance)
        for p, r in zip(peers, rates, strict=True)
    ]
    figures.append(figure((fan_in(root, peers, SIZE), too_little), fan_tolerance))
    asked = demands(explanation_columns(topology), figures)
    assert refute(asked)
    assert explain_by_fewest(asked).status is ProgramStatus.INFEASIBLE

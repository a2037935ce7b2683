"""What is left out of large fits changes nothing: forced on small machines, and against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from topocal.measure.patterns import bundle, fan_in, fan_out, peer, relay
from topocal.measure.simulated import SimulatedMachine
from topocal.solve import estimate, hypotheses, sharing
from topocal.solve.candidates import RECEIVER, SENDER, Candidates, with_candidates
from topocal.solve.coordinate_kernel import sweep
from topocal.solve.cost import HUBER, LEAST_LOG_KAPPA, huber
from topocal.solve.hypotheses import Hypotheses
from topocal.solve.intervals import what_is_known
from topocal.solve.judge import SAME_SIGMAS, prefer_time
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Observation, Rows, build_rows, first_busiest, two_largest
from topocal.solve.sharing import fit_sharing
from topocal.solve.status import CLEAR_SIGMAS, Status
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow, Pattern
from topocal.topo.incidence import incidence
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

SIZE = 2.0**28
NAMES = ("l40s", "dgx1", "h20-pair", "mi250x", "l20")


def machine(seed: int) -> tuple[Candidates, list[Observation]]:
    """A small machine, half of the time with some time-shared ends, and what it measures."""
    rng = np.random.default_rng(seed)
    topology = build_machine(NAMES[seed % len(NAMES)])
    ends = list(topology.accelerators)[:8]
    candidates = with_candidates(topology, ends)
    timed = [
        (e, side)
        for side in (RECEIVER, SENDER)
        for e in ends
        if rng.random() < (0.0, 0.0, 0.3, 1.0)[(seed // len(NAMES) + side) % 4]
    ]
    kept = {candidates.engines[key] for key in timed}
    truth = candidates.topology.without_resources([n for n in candidates.rank if n not in kept])
    truth = truth.with_resources(
        replace(truth.resources[e], kappa=float(rng.uniform(0.9, 1.0))) for e in sorted(kept)
    )
    base = Capacities.of(truth, default_Bps=50e9)
    factor = rng.uniform(rng.choice([0.3, 0.7]), 1.0, len(base.resources))
    capacities = base.changed(
        {
            name: float(rate * f)
            for name, rate, f in zip(base.resources, base.capacity_Bps, factor, strict=True)
            if truth.resources[name].sharing is not Sharing.TIME_SHARED
        }
    )
    patterns = {p.name: p for p in _patterns(ends, rng)}
    noise = float(rng.choice([0.003, 0.01, 0.03]))
    seconds = SimulatedMachine(topology=truth, capacities=capacities).true_seconds(
        list(patterns.values())
    )
    seconds = seconds * np.exp(noise * rng.standard_normal(len(seconds)))
    return candidates, [
        Observation(name=p.name, pattern=p, seconds=float(s), sigma=noise)
        for p, s in zip(patterns.values(), seconds, strict=True)
    ]


def _patterns(ends: list[str], rng: np.random.Generator) -> list[Pattern]:
    found = [peer(a, b, SIZE) for a in ends for b in ends if a != b and rng.random() < 0.7]
    for k in range(int(rng.integers(8, 40))):
        names = [ends[i] for i in rng.permutation(len(ends))[: int(rng.integers(3, len(ends)))]]
        make = (
            lambda n: fan_in(n[0], n[1:], SIZE),
            lambda n: fan_out(n[0], n[1:], SIZE),
            lambda n: bundle([(n[0], n[1])], SIZE),
            lambda n: relay(n, 1, SIZE),
        )[k % 4]
        pattern = make(names)
        if k % 5 == 0:
            sizes = rng.choice([0.0, 0.25, 0.3, 1.0], len(pattern.flows))
            pattern = Pattern(
                flows=tuple(
                    Flow(source=f.source, destination=f.destination, size_bytes=float(s * SIZE))
                    for f, s in zip(pattern.flows, [1.0, *sizes[1:]], strict=True)
                ),
                name=pattern.name + " unequal",
            )
        found.append(pattern)
    return found


def rows_of(seed: int) -> tuple[Hypotheses, Rows]:
    candidates, observations = machine(seed)
    rows = build_rows(candidates.topology, observations, candidates.rank)
    return Hypotheses(candidates, rows), rows


@pytest.mark.parametrize("seed", range(40))
def test_shortcuts_of_large_fits_change_no_verdict(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates, observations = machine(seed)
    monkeypatch.setattr(sharing, "MOST_OBSERVATIONS", 0)
    whole, verdict = fit_sharing(candidates, observations)
    monkeypatch.setattr(hypotheses, "ASK_NEARBY_FROM", 0)
    monkeypatch.setattr(hypotheses, "ASK_NEARBY_SHARE", 2.0)
    short, again = fit_sharing(candidates, observations)
    assert again == verdict
    assert np.array_equal(short.estimate.x, whole.estimate.x)
    assert np.array_equal(short.estimate.log_kappa, whole.estimate.log_kappa)
    assert np.array_equal(short.active, whole.active)


def test_a_fit_that_gives_up_says_what_it_cost_by_then() -> None:
    problem, rows = rows_of(3)
    engines = problem.engines_of(RECEIVER)
    found = problem.fit(engines, give_up=0.0).estimate
    misfit = huber((found.log_predicted - rows.log_seconds) / rows.sigma).sum()
    assert 0.0 < misfit <= found.objective < math.inf
    # What is not hopeless is brought to its end as if nothing had been said.
    whole = problem.fit(engines).estimate
    assert np.array_equal(problem.fit(engines, give_up=1e12).estimate.x, whole.x)


def dense(topology: Topology, observations: list[Observation]) -> NDArray[np.float64]:
    """Bytes of each observation on each capacity, the long way."""
    table = list(topology.resources.values())
    loads = np.zeros((len(observations), len(table)))
    for s, o in enumerate(observations):
        weight = incidence(topology, o.pattern.pairs).matrix.toarray()
        sizes = np.array([f.size_bytes for f in o.pattern.flows])
        fat = np.array([r.sharing is Sharing.FATPIPE for r in table])
        each = weight * sizes[:, None]
        loads[s] = np.where(fat, each.max(axis=0), each.sum(axis=0))
    loads[:, [r.sharing is Sharing.TIME_SHARED for r in table]] = 0.0
    return loads


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_rows_are_the_loads_of_all_flows(seed: int) -> None:
    candidates, observations = machine(seed)
    topology = with_candidates(
        build_machine(NAMES[seed % len(NAMES)]),
        list(candidates.topology.accelerators)[:8],
        [observations[0].pattern.pairs[0]],
    ).topology
    rows = build_rows(topology, observations)
    expected = dense(topology, observations)
    found = np.zeros_like(expected)
    entries = rows.log_load.tocoo()
    found[entries.coords] = np.exp(entries.data)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.array_equal(rows.crowd, (expected > 0).sum(axis=0))
    # Of every row the columns that the fewest observations load come first.
    for s in range(len(observations)):
        own = rows.log_load.indices[rows.log_load.indptr[s] : rows.log_load.indptr[s + 1]]
        keys = [(int(rows.crowd[c]), int(c)) for c in own]
        assert keys == sorted(keys)
    # Engines with two flows or more, by observation and number, their flows in order.
    shared = rows.shared
    wanted = []
    for s, o in enumerate(observations):
        weight = incidence(topology, o.pattern.pairs).matrix.toarray()
        for r, resource in enumerate(topology.resources.values()):
            flows = [
                f.size_bytes
                for f, w in zip(o.pattern.flows, weight[:, r], strict=True)
                if w and f.size_bytes > 0
            ]
            if resource.sharing is Sharing.TIME_SHARED and len(flows) > 1:
                wanted.append((s, r, flows))
    got = [
        (int(s), int(r), np.exp(shared.log_bytes[a:b]).tolist())
        for s, r, a, b in zip(
            shared.row, shared.resource, shared.indptr[:-1], shared.indptr[1:], strict=True
        )
    ]
    assert [g[:2] for g in got] == [w[:2] for w in wanted]
    for (_, _, a), (_, _, b) in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    # Residuation, and the two largest, the long way.
    logs = np.where(expected > 0, np.log(np.maximum(expected, 1e-300)), -np.inf)
    slack = rows.log_seconds[:, None] - logs
    np.testing.assert_allclose(upper_bounds(rows), slack.min(axis=0), rtol=1e-9)
    x = np.random.default_rng(seed).normal(size=logs.shape[1])
    first, second, holder = two_largest(rows.log_load, x)
    ordered = np.sort(logs + x, axis=1)
    np.testing.assert_allclose(first, ordered[:, -1], rtol=1e-9)
    np.testing.assert_allclose(second, ordered[:, -2], rtol=1e-9)
    assert np.array_equal(holder, np.argmax(logs + x, axis=1))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_fewer_columns_and_fewer_engines_leave_the_rest_as_it_was(seed: int) -> None:
    problem, rows = rows_of(seed)
    rng = np.random.default_rng(seed)
    keep = rng.random(len(rows.resources)) < 0.5
    x = np.where(keep, rng.normal(size=len(keep)), -np.inf)
    assert np.array_equal(rows.only(keep).highest(x), rows.highest(x))
    assert np.array_equal(rows.only(keep).solo(x), rows.solo(x))
    engines = problem.engines_of(SENDER)
    some = rows.with_engines(engines)
    mine = engines[rows.shared.resource]
    busy, _ = rows.shared.busy(rows.solo(x), np.zeros(2))
    again, _ = some.shared.busy(some.solo(x), np.zeros(2))
    assert np.array_equal(again, busy[mine])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_endpoints_are_asked_as_the_definition_says(seed: int) -> None:
    problem, rows = rows_of(seed)
    fit = problem.fit(problem.engines_of(RECEIVER) if seed % 2 else problem.none)
    asked = [
        (rows.resources.index(name), problem.port_of(key), key[1])
        for key, name in problem.candidates.engines.items()
    ]
    found = prefer_time(rows, fit.estimate, fit.active, fit.engines, problem.prior, asked)
    x = np.where(fit.active, fit.estimate.x, -np.inf)
    entries = rows.log_load.tocoo()
    load = np.full(rows.log_load.shape, -np.inf)
    load[entries.coords] = entries.data
    busy, _ = rows.shared.busy(rows.solo(x), fit.estimate.log_kappa)
    price = math.log(len(rows.observations))
    for preference, (engine, port, side) in zip(found.tolist(), asked, strict=True):
        mine = np.flatnonzero(rows.shared.resource == engine)
        here = rows.shared.row[mine]
        if not len(mine) or not np.isfinite(busy[mine]).all():
            assert preference == 0.0
            continue
        others = x.copy()
        others[port] = -np.inf
        level = (load[here] + others).max(axis=1)
        for k, s in enumerate(here):
            for j in np.flatnonzero(rows.shared.row == s):
                if j != mine[k] and fit.engines[rows.shared.resource[j]]:
                    level[k] = max(level[k], busy[j])
        y, sigma = rows.log_seconds[here], rows.sigma[here]
        elsewhere = np.setdiff1d(np.flatnonzero(np.isfinite(load[:, port])), here)
        bound = float((rows.log_seconds - load[:, port])[elsewhere].min(initial=np.inf))
        has_kappa = bool((fit.engines[rows.shared.resource] & (rows.shared.side == side)).any())
        shifts = [0.0] if has_kappa else np.clip(np.append(y - busy[mine], 0.0), LEAST_LOG_KAPPA, 0)
        by_bytes = by_time = math.inf
        for try_x in np.minimum(np.append(y - load[here, port], -np.inf), bound):
            near = abs(try_x - problem.prior[port]) <= SAME_SIGMAS * np.median(rows.sigma)
            own = 0.0 if not np.isfinite(try_x) or try_x >= bound or near else price
            alone = np.maximum(level, load[here, port] + try_x)
            by_bytes = min(by_bytes, huber((alone - y) / sigma).sum() + own)
            for shift in shifts:
                turns = np.maximum(alone, busy[mine] + shift)
                more = own + (0.0 if has_kappa else price)
                by_time = min(by_time, huber((turns - y) / sigma).sum() + more)
        assert preference == pytest.approx(by_bytes - by_time, rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_each_capacity_gets_the_best_of_all_values_that_meet_an_observation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, rows = rows_of(seed)
    n = len(rows.resources)
    bound = upper_bounds(rows)
    limit = bound + 0.1
    x = np.where(np.isfinite(bound), bound - rng.exponential(0.3, n), -np.inf)
    pull_to, pull = np.where(np.isfinite(bound), bound, 0.0), np.full(n, 0.1)
    engine = np.where(rng.random(len(rows.sigma)) < 0.2, rows.log_seconds - 0.05, -np.inf)
    entries = rows.log_load.tocoo()
    load = np.full(rows.log_load.shape, -np.inf)
    load[entries.coords] = entries.data

    def cost(at: NDArray[np.float64], r: int) -> float:
        predicted = np.maximum((load + at).max(axis=1), engine)
        mine = np.isfinite(load[:, r])
        misfit = huber((predicted - rows.log_seconds)[mine] / rows.sigma[mine]).sum()
        return float(misfit + pull[r] * abs(at[r] - pull_to[r]))

    columns = rows.log_load.tocsc()
    for r in rng.permutation(np.flatnonzero(np.isfinite(bound)))[:6].tolist():
        tries = np.minimum(limit[r], (rows.log_seconds - load[:, r])[np.isfinite(load[:, r])])
        best = math.inf
        for value in (x[r], pull_to[r], *tries):
            there = x.copy()
            there[r] = value
            best = min(best, cost(there, r))
        swept = x.copy()
        moved = sweep(
            np.array([r]),
            rows.log_load.indptr,
            rows.log_load.indices,
            rows.log_load.data,
            columns.indptr,
            columns.indices,
            columns.data,
            swept,
            rows.log_seconds,
            rows.sigma,
            engine,
            pull_to,
            pull,
            limit,
            HUBER,
        )
        assert cost(swept, r) == pytest.approx(best, rel=1e-8)
        assert moved == (swept[r] != x[r])
        assert np.array_equal(np.delete(swept, r), np.delete(x, r))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_what_pins_and_what_rivals_the_long_way(seed: int) -> None:
    problem, rows = rows_of(seed)
    fit = problem.fit(problem.none)
    nothing = np.zeros(len(rows.resources), dtype=bool)
    known = what_is_known(fit.rows, fit.estimate, fit.active, nothing, nothing)
    x = np.where(fit.active, fit.estimate.x, -np.inf)
    top = first_busiest(rows.log_load, x)
    error = np.abs(fit.estimate.log_predicted - rows.log_seconds)
    missed = error > np.maximum(0.05, CLEAR_SIGMAS * rows.sigma)
    for r, one in enumerate(known):
        binds = [s for s in range(len(top)) if top[s] >= 0 and rows.log_load.indices[top[s]] == r]
        if one.status is Status.PINNED:
            assert set(one.pinned_by) <= set(binds)
            assert not missed[binds].any()
        if one.status is Status.CONFOUNDED:
            assert r not in one.confounded_with
            for other in one.confounded_with:
                assert rows.log_load[binds][:, [other]].nnz


def test_the_order_of_a_large_system_changes_its_rounding_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    #   All machines above some hundred endpoints take it; here the smallest do, too.
    for seed in range(6):
        candidates, observed = machine(seed)
        found, _ = fit_sharing(candidates, observed)
        with monkeypatch.context() as patched:
            patched.setattr(estimate, "_LARGE", 0)
            other, _ = fit_sharing(candidates, observed)
        assert [r.id for r in other.topology.resources.values()] == [
            r.id for r in found.topology.resources.values()
        ]
        assert other.estimate.objective == pytest.approx(found.estimate.objective, rel=1e-6)
        assert other.estimate.log_predicted == pytest.approx(found.estimate.log_predicted, abs=1e-6)

"""The proof about capacities, against machines that do consist of capacities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.solve.certificate import capacity_bound, least_throughput_Bps


def test_by_hand() -> None:
    # Rates 8, 27, 54: k/p = 1/8, 2/27, 3/54; the largest is 1/8, so 3 flows give >= 24.
    assert least_throughput_Bps([54.0, 8.0, 27.0]) == pytest.approx(24.0)
    # Four of 27: 4/27 is the largest: all four may share one resource of 27.
    assert least_throughput_Bps([27.0] * 4) == pytest.approx(27.0)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 12))
def test_no_machine_of_capacities_goes_below(seed: int, flows: int, resources: int) -> None:
    rng = np.random.default_rng(seed)
    crosses = rng.random((flows, resources)) < 0.5
    crosses[:, 0] |= ~crosses.any(axis=1)
    capacity = 10.0 ** rng.uniform(0, 3, resources)
    rates = [float(capacity[row].min()) for row in crosses]
    seconds = float((crosses.sum(axis=0) / capacity).max())
    assert flows / seconds >= least_throughput_Bps(rates) * (1 - 1e-12)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=8))
def test_some_machine_of_capacities_reaches_it(rates: list[float]) -> None:
    # Let the k slowest flows that give the bound share one resource as fast as the fastest of them.
    ordered = sorted(rates)
    k = max(range(1, len(ordered) + 1), key=lambda k: k / ordered[k - 1])
    seconds = max(k / ordered[k - 1], 1 / ordered[0])
    assert len(rates) / seconds == pytest.approx(least_throughput_Bps(rates))


def test_time_sharing_is_refuted_and_sharing_of_bytes_is_not() -> None:
    rates = {("a", "r"): 10.0, ("b", "r"): 50.0}
    flows = list(rates)
    time_shared = 2 / (1 / 10 + 1 / 50)
    refuted = capacity_bound("r<-a,b", flows, time_shared, rates)
    assert refuted is not None
    assert refuted.refutes_capacities
    shared = capacity_bound("r<-a,b", flows, 20.0, rates)
    assert shared is not None
    assert not shared.refutes_capacities


def test_without_all_pair_rates_there_is_no_bound() -> None:
    assert capacity_bound("r<-a,b", [("a", "r"), ("b", "r")], 1.0, {("a", "r"): 10.0}) is None

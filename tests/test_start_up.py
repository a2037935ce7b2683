"""What scenarios of one kind have in common in their start-up times, and what it is worth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from topocal.measure.patterns import fan_in, peer
from topocal.measure.samples import Measurements, Sample
from topocal.solve.scenarios import build_scenarios
from topocal.solve.start_up import refit

SIZES = 2.0 ** np.array([24, 26, 28])


def points(
    starts: NDArray[np.float64], rates: NDArray[np.float64], sigma: float, seed: int
) -> tuple[NDArray[np.float64], ...]:
    """Sizes, seconds and sigmas of one scenario after the other."""
    rng = np.random.default_rng(seed)
    true = starts[:, None] + SIZES / rates[:, None]
    seconds = true * np.exp(sigma * rng.standard_normal(true.shape))
    return np.tile(SIZES, len(starts)), seconds.ravel(), np.full(true.size, sigma)


def errors_of(starts: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float64], ...]:
    """Log errors of the refitted slopes, their stated errors, and the starts."""
    rates = np.random.default_rng(seed + 1).uniform(10e9, 50e9, len(starts))
    begin = np.arange(len(starts)) * len(SIZES)
    kind = np.zeros(len(starts), dtype=np.int64)
    lines = refit(*points(starts, rates, 0.007, seed), begin, kind)
    beta = lines.beta_s_per_byte
    return np.log(beta * rates), lines.slope_error_s_per_byte / beta, lines.alpha_s


def test_starts_that_are_alike_make_slopes_as_good_as_known_starts() -> None:
    """0.7 % per point: a free line knows its slope to 0.59 %, one with a known start to 0.40 %."""
    error, stated, start = errors_of(np.full(400, 2e-5), 3)
    assert np.std(error) == pytest.approx(0.007 / np.sqrt(3), rel=0.12)
    assert np.std(error / stated) == pytest.approx(1, abs=0.1)
    assert np.median(start) == pytest.approx(2e-5, rel=0.2)


def test_starts_that_differ_are_left_to_each() -> None:
    """From 0 to 2 ms where a line's own start is good to a tenth of that: errors stay true."""
    starts = np.random.default_rng(5).uniform(0.0, 2e-3, 400)
    error, stated, found = errors_of(starts, 7)
    assert np.std(error / stated) == pytest.approx(1, abs=0.15)
    assert abs(np.mean(error)) < 0.001
    assert np.median(np.abs(found - starts)) < 1e-4


def test_few_scenarios_and_other_kinds_are_left_alone() -> None:
    starts, rates = np.full(6, 2e-5), np.full(6, 25e9)
    begin = np.arange(6) * len(SIZES)
    lines = refit(*points(starts, rates, 0.01, 1), begin, np.array([0, 0, 0, -1, -1, -1]))
    assert np.isnan(lines.beta_s_per_byte).all()


def test_kinds_have_starts_of_their_own() -> None:
    """Peers start in 20 us, fans in 500: each slope comes out right through the scenarios."""
    rng = np.random.default_rng(2)
    samples = []
    for k in range(12):
        for pattern, start in ((peer(f"a{k}", "z"), 2e-5), (fan_in(f"b{k}", ["y", "x"]), 5e-4)):
            for size in SIZES:
                for repeat in range(20):
                    seconds = (start + size / 25e9) * np.exp(0.03 * rng.standard_normal())
                    samples.append(
                        Sample(pattern=pattern.scaled(size), seconds=seconds, repeat=repeat)
                    )
    for found in build_scenarios(Measurements.of(samples)):
        assert found.seconds_per_byte == pytest.approx(1 / 25e9, rel=0.015)
        assert found.alpha_s == pytest.approx(5e-4 if len(found.pattern.flows) > 1 else 2e-5, rel=2)

"""Seconds against bytes: lines by hand, the truth recovered, and nothing non-finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from topocal.solve.sizes import Hockney, fit_batch, fit_sizes
from topocal.topo.errors import InputError

KiB, MiB = 2.0**10, 2.0**20
SLOPE = 1 / 25e9
"""Seconds per byte of all the curves below, at their largest sizes."""

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def test_two_sizes_make_a_line() -> None:
    #  T(1000) = 3 us, T(3000) = 5 us:  alpha = 2 us, beta = 1 ns per byte.
    found = fit_sizes([1000, 3000], [3e-6, 5e-6])
    assert found.start_s == pytest.approx(2e-6)
    assert found.top.beta_s_per_byte == pytest.approx(1e-9)
    assert found.predict(2000) == pytest.approx(4e-6)
    assert found.predict(0) == pytest.approx(2e-6)
    assert [s.points for s in found.segments] == [2]
    assert found.misfit == pytest.approx(0, abs=1e-12)


def test_one_size_makes_a_line_through_the_origin() -> None:
    found = fit_sizes([2000], [4e-6], sigma=0.01)
    (only,) = found.segments
    assert (only.from_bytes, only.to_bytes, only.alpha_s, only.points) == (0.0, None, 0.0, 1)
    assert only.beta_s_per_byte == pytest.approx(2e-9)
    assert found.slope_error_s_per_byte == pytest.approx(0.01 * 2e-9)
    assert fit_sizes([2000], [4e-6]).slope_error_s_per_byte is None


def test_an_empty_message_tells_the_start() -> None:
    alone = fit_sizes([0], [5e-6])
    assert (alone.start_s, alone.top.beta_s_per_byte) == (5e-6, 0.0)
    found = fit_sizes([0, 1000], [5e-6, 6e-6])
    assert found.start_s == pytest.approx(5e-6)
    assert found.top.beta_s_per_byte == pytest.approx(1e-9)


def test_the_start_is_never_below_zero() -> None:
    #  The line through the points crosses the axis at -1 us; the best that starts at zero
    #  minimises (1 - 1000 b / 1e-6)^2 + (1 - 2000 b / 3e-6)^2:  with b in ns,
    #  (1 - b)^2 + (1 - 2b/3)^2 is least at b = (1 + 2/3) / (1 + 4/9) = 15/13.
    found = fit_sizes([1000, 2000], [1e-6, 3e-6])
    assert found.start_s == 0
    assert found.top.beta_s_per_byte == pytest.approx(15 / 13 * 1e-9)


def test_times_that_do_not_grow_have_no_slope() -> None:
    #  sum (1 - a / t)^2 over t = 4, 2 us is least at a = (1/4 + 1/2) / (1/16 + 1/4) = 2.4 us.
    found = fit_sizes([1000, 2000], [4e-6, 2e-6])
    assert found.top.beta_s_per_byte == 0
    assert found.start_s == pytest.approx(2.4e-6)


def test_the_error_of_the_slope_is_that_of_weighted_least_squares() -> None:
    #  Rows (1, x) / (0.01 T) for T = 1.5, 2.5 at x = 1, 2; with their normal matrix
    #  1e4 · [[a, b], [b, c]] the slope has variance 1e-4 · a / (a c - b²).
    found = fit_sizes([1, 2], [1.5, 2.5], sigma=0.01)
    a, b = 1 / 1.5**2 + 1 / 2.5**2, 1 / 1.5**2 + 2 / 2.5**2
    c = 1 / 1.5**2 + 4 / 2.5**2
    assert found.slope_error_s_per_byte == pytest.approx(0.01 * math.sqrt(a / (a * c - b * b)))


def hockney(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """One line."""
    return 10e-6 + SLOPE * x


def rendezvous(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Another protocol above 64 KiB: later start, better rate."""
    return np.where(x <= 64 * KiB, 5e-6 + x / 6e9, 30e-6 + SLOPE * x)


def cached(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first 32 MiB are four times as fast."""
    return 8e-6 + np.minimum(x, 32 * MiB) * SLOPE / 4 + np.maximum(x - 32 * MiB, 0) * SLOPE


def ramp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rate of the next byte grows from a fifth to all of it between 256 KiB and 16 MiB."""
    low, high = np.log(256 * KiB), np.log(16 * MiB)
    grid = np.concatenate(([0.0], np.geomspace(1.0, 1024 * MiB, 20_000)))
    middle = (grid[1:] + grid[:-1]) / 2
    share = 0.2 + 0.8 * np.clip((np.log(middle) - low) / (high - low), 0, 1)
    seconds = np.concatenate(([0.0], np.cumsum(np.diff(grid) * SLOPE / share)))
    return 10e-6 + np.interp(x, grid, seconds)


def saturating(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rate of the whole message approaches its limit exponentially."""
    return 5e-6 - SLOPE * x / np.expm1(-x / (2 * MiB))


def three_protocols(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Short, eager, rendezvous."""
    eager = np.where(x <= 512 * KiB, 9e-6 + x / 8e9, 25e-6 + SLOPE * x)
    return np.where(x <= 8 * KiB, 4e-6 + x / 2e9, eager)


CURVES: dict[str, Curve] = {
    "hockney": hockney,
    "rendezvous": rendezvous,
    "cached": cached,
    "ramp": ramp,
    "saturating": saturating,
    "three protocols": three_protocols,
}


def sizes(factor: int) -> NDArray[np.float64]:
    """4 KiB to 256 MiB, or the next above it."""
    steps = math.ceil(16 / math.log2(factor))
    return 4 * KiB * float(factor) ** np.arange(steps + 1)


def one_line(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Slope of the single line of least relative squares."""
    rows = np.column_stack([1 / y, x / y])
    return float(np.linalg.lstsq(rows, np.ones_like(y))[0][1])


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("name", CURVES)
def test_the_slope_at_the_top_is_right_within_one_percent(name: str, factor: int) -> None:
    x = sizes(factor)
    y = CURVES[name](x)
    found = fit_sizes(x.tolist(), y.tolist(), sigma=0.0)
    assert found.top.beta_s_per_byte == pytest.approx(SLOPE, rel=0.01)
    assert len(found.segments) <= 3


@pytest.mark.parametrize("name", [n for n in CURVES if n != "hockney"])
def test_where_a_single_line_is_wrong(name: str) -> None:
    x = sizes(2)
    error = abs(one_line(x, CURVES[name](x)) / SLOPE - 1)
    assert 0.03 < error < 0.75


@pytest.mark.parametrize("name", CURVES)
def test_with_noise_the_slope_is_right_and_its_error_honest(name: str) -> None:
    """200 draws of 0.5 % noise: the median error is below 1 %, and errors are as announced."""
    rng = np.random.default_rng(20261103)
    x = np.tile(sizes(2), (200, 1))
    y = CURVES[name](x) * np.exp(0.005 * rng.standard_normal(x.shape))
    batch = fit_batch(x, y, np.full(x.shape, 0.005))
    error = batch.top_slope_s_per_byte / SLOPE - 1
    assert np.median(np.abs(error)) < 0.008
    assert np.quantile(np.abs(error), 0.95) < 0.015
    announced = batch.slope_error_s_per_byte / SLOPE
    assert 0.8 < np.sqrt(np.mean((error / announced) ** 2)) < 1.4


def test_without_structure_there_is_one_segment() -> None:
    rng = np.random.default_rng(7)
    x = np.tile(sizes(2), (400, 1))
    y = hockney(x) * np.exp(0.02 * rng.standard_normal(x.shape))
    batch = fit_batch(x, y, np.full(x.shape, 0.02))
    assert (batch.count == 1).mean() > 0.9
    guessed = fit_batch(x, hockney(x) * np.exp(0.005 * rng.standard_normal(x.shape)))
    assert (guessed.count == 1).mean() > 0.9


def test_segments_meet_where_the_protocol_changes() -> None:
    x = sizes(2)
    found = fit_sizes(x.tolist(), rendezvous(x).tolist(), sigma=0.0)
    low, high = found.segments
    assert low.to_bytes == high.from_bytes
    assert low.to_bytes is not None
    assert 64 * KiB <= low.to_bytes <= 128 * KiB
    assert (low.alpha_s, high.alpha_s) == (pytest.approx(5e-6), pytest.approx(30e-6))
    for size in (4 * KiB, 64 * KiB, 128 * KiB, 256 * MiB):
        assert found.predict(size) == pytest.approx(float(rendezvous(np.array([size]))[0]))


def test_an_upper_segment_may_start_below_zero() -> None:
    x = sizes(2)
    found = fit_sizes(x.tolist(), cached(x).tolist(), sigma=0.0)
    assert found.top.alpha_s < 0
    assert found.start_s == pytest.approx(8e-6)
    assert found.top.from_bytes == pytest.approx(32 * MiB, rel=1e-6)


def test_the_order_of_points_does_not_matter() -> None:
    x = sizes(4)
    y = three_protocols(x)
    assert fit_sizes(x[::-1].tolist(), y[::-1].tolist()) == fit_sizes(x.tolist(), y.tolist())


def test_one_fit_is_the_same_alone_and_among_others() -> None:
    x = sizes(2)
    curves = np.array([CURVES[name](x) for name in CURVES])
    batch = fit_batch(np.tile(x, (len(curves), 1)), curves)
    for k, y in enumerate(curves):
        assert batch[k] == fit_sizes(x.tolist(), y.tolist())


@pytest.mark.parametrize(
    ("size", "seconds", "sigma", "message"),
    [
        ([], [], None, "sizes without seconds"),
        ([1.0], [1.0, 2.0], None, "sizes without seconds"),
        ([-1.0], [1.0], None, "not possible"),
        ([math.nan], [1.0], None, "not possible"),
        ([1.0], [0.0], None, "not possible"),
        ([1.0], [math.inf], None, "not possible"),
        ([1.0, 1.0], [1.0, 2.0], None, "a size stands twice"),
        ([1.0], [1.0], -1.0, "a scatter that is not possible"),
        ([1.0], [1.0], math.nan, "a scatter that is not possible"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    size: list[float], seconds: list[float], sigma: float | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit_sizes(size, seconds, sigma)


@pytest.mark.parametrize("size", [-1.0, math.nan, math.inf])
def test_a_size_to_predict_must_be_possible(size: float) -> None:
    with pytest.raises(InputError, match="give a finite number"):
        fit_sizes([1.0], [1.0]).predict(size)


POINTS = st.lists(
    st.tuples(
        st.floats(0, 1e15) | st.sampled_from([0.0, 4096.0, 1e300, 5e-324]),
        st.floats(1e-12, 1e9) | st.sampled_from([1e-300, 1e300, 5e-324]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda p: p[0],
)


@settings(deadline=None, max_examples=150)
@given(POINTS, st.none() | st.floats(0, 10))
def test_whatever_the_points_the_fit_is_finite_and_whole(
    points: list[tuple[float, float]], sigma: float | None
) -> None:
    x, y = zip(*points, strict=True)
    found = fit_sizes(x, y, sigma)
    assert 1 <= len(found.segments) <= 3
    assert found.segments[0].from_bytes == 0
    assert found.segments[0].alpha_s >= 0
    assert found.segments[-1].to_bytes is None
    assert sum(s.points for s in found.segments) == len(points)
    for below, above in zip(found.segments, found.segments[1:], strict=False):
        assert below.to_bytes == above.from_bytes
    for s in found.segments:
        assert math.isfinite(s.alpha_s)
        assert math.isfinite(s.beta_s_per_byte)
        assert s.beta_s_per_byte >= 0
    assert math.isfinite(found.misfit)
    error = found.slope_error_s_per_byte
    assert error is None or (math.isfinite(error) and error >= 0)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=17),
    st.sampled_from(list(CURVES)),
    st.floats(1e-3, 1e3),
)
def test_units_do_not_matter(noise: list[float], name: str, unit: float) -> None:
    """Bytes or seconds in another unit scale the lines, and nothing else."""
    x = sizes(2)[-len(noise) :]
    y = CURVES[name](x) * np.exp(0.05 * np.array(noise))
    one = fit_sizes(x.tolist(), y.tolist(), sigma=0.01)
    other = fit_sizes((x * unit).tolist(), (y / unit).tolist(), sigma=0.01)
    assert [s.points for s in other.segments] == [s.points for s in one.segments]
    for a, b in zip(one.segments, other.segments, strict=True):
        assert b.alpha_s == pytest.approx(a.alpha_s / unit, rel=1e-6, abs=1e-12 / unit)
        assert b.beta_s_per_byte == pytest.approx(a.beta_s_per_byte / unit**2, rel=1e-6)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(-0.3, 0.3), min_size=4, max_size=10), st.sampled_from(list(CURVES)))
def test_predictions_are_never_below_zero(noise: list[float], name: str) -> None:
    x = sizes(2)[-len(noise) :]
    y = CURVES[name](x) * np.exp(np.array(noise))
    found = fit_sizes(x.tolist(), y.tolist(), sigma=0.02)
    for size in np.linspace(0, 2 * x[-1], 500):
        assert found.predict(float(size)) >= 0


def test_the_best_partition_of_three_is_found() -> None:
    """Against every partition, each line by numpy's least squares."""
    rng = np.random.default_rng(11)
    x = sizes(4)
    compared = 0
    for _ in range(20):
        y = three_protocols(x) * np.exp(0.1 * rng.standard_normal(len(x)))
        found = fit_sizes(x.tolist(), y.tolist(), sigma=0.001)
        if len(found.segments) < 3 or found.start_s == 0 or found.segments[0].beta_s_per_byte == 0:
            continue
        compared += 1
        cuts = np.cumsum([s.points for s in found.segments])[:-1]
        assert _cost(x, y, cuts.tolist(), found) == pytest.approx(_least_cost(x, y), rel=1e-6)
    assert compared >= 5


def _weights(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / np.maximum(0.001, 0.002 * (x / x[-1]) ** (-1 / 3))


def _cost(x: NDArray[np.float64], y: NDArray[np.float64], cuts: list[int], fit: Hockney) -> float:
    lines = np.repeat(
        [[s.alpha_s, s.beta_s_per_byte] for s in fit.segments], np.diff([0, *cuts, len(x)]), axis=0
    )
    return float(np.sum((_weights(x) * (1 - (lines[:, 0] + lines[:, 1] * x) / y)) ** 2))


def _least_cost(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    best = math.inf
    for one in range(2, len(x) - 3):
        for two in range(one + 2, len(x) - 1):
            total = 0.0
            for k, (i, j) in enumerate([(0, one), (one, two), (two, len(x))]):
                w = _weights(x)[i:j]
                rows = np.column_stack([w / y[i:j], w * x[i:j] / y[i:j]])
                (alpha, beta), *_ = np.linalg.lstsq(rows, w)
                if beta <= 0 or (k == 0 and alpha < 0):
                    total = math.inf
                    break
                total += float(np.sum((w - rows @ [alpha, beta]) ** 2))
            best = min(best, total)
    return best

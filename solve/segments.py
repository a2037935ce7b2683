"""The best one, two or three lines through the points of many scenarios at once.

The cost of every line through points i … j is a closed form of sums over them; which
lines follow each other is then a shortest path over where they meet (Bellman 1961).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

__all__ = [
    "MOST_SEGMENTS",
    "SCATTER_FLOOR",
    "Choice",
    "accepted_spread",
    "choose_lines",
    "weights",
]

MOST_SEGMENTS: Final = 3

SCATTER_FLOOR: Final = 0.002
"""Relative misfit that is never worth a segment: clocks and straight lines are no better."""

FLOOR_GROWTH: Final = 1 / 3
"""Power of the size at which that misfit grows below the largest: what is asked of the lines
is the slope at the top, and at 4 KiB, where clocks jitter, 8 % is still well met."""

GUESSED_SCATTER: Final = 0.01
"""Relative standard error where no repeats tell it: medians on the published machines are
about so good."""

MISFIT_CHANCE: Final = 0.01
"""A line whose errors are right is found to misfit that often."""

FEW_FREE: Final = 4
"""With fewer degrees of freedom the scatter about the lines is no estimate of their error."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """Lines of B scenarios of n points each.

    Attributes
    ----------
    first
        Shape (B, 3): first point of each segment, n where there is none.
    alpha, beta
        Shape (B, 3): intercept and slope of each, zero where there is none.
    slope_error
        Shape (B,): standard error of the last slope, NaN where nothing tells it.
    """

    first: Integers
    alpha: Floats
    beta: Floats
    slope_error: Floats


@dataclass(frozen=True)
class _Lines:
    """One line per entry; the last axis is the last point of the line.

    ``cost`` is the sum of squared weighted residuals, infinite where there is no such
    line; ``variance`` that of the slope when weighted residuals have variance one.
    """

    alpha: Floats
    beta: Floats
    cost: Floats
    variance: Floats


def choose_lines(x: Floats, y: Floats, sigma: Floats | None) -> Choice:
    """The lines that the Bayesian information criterion prefers.

    Parameters
    ----------
    x, y
        Shape (B, n): points by ascending x >= 0, y > 0.
    sigma
        Shape (B, n): relative standard error of y; ``None`` where unknown.
    """
    b, n = y.shape
    if sigma is None:
        weight = np.full_like(y, 1.0 / GUESSED_SCATTER)
    else:
        weight = weights(x / np.where(x[:, -1:] > 0, x[:, -1:], 1.0), sigma)
    if n == 1:
        return _single(x, weight, known=sigma is not None)
    with np.errstate(all="ignore"):
        free = _free_lines(x, y, weight)
        started = _started_lines(x, y, weight, free)
        first, cost = _partition(
            started.cost, free.cost, started.beta[:, -1] > 0, known=sigma is not None
        )
        count = (first < n).sum(axis=1)
        rows = np.arange(b)
        ends = np.column_stack([first[:, 1:], np.full(b, n)]) - 1
        alpha, beta = np.zeros((b, MOST_SEGMENTS)), np.zeros((b, MOST_SEGMENTS))
        alpha[:, 0], beta[:, 0] = started.alpha[rows, ends[:, 0]], started.beta[rows, ends[:, 0]]
        variance = started.variance[rows, ends[:, 0]]
        for k in range(1, MOST_SEGMENTS):
            there = np.flatnonzero(count > k)
            at = there, first[there, k], ends[there, k]
            alpha[there, k], beta[there, k] = free.alpha[at], free.beta[at]
            variance[there] = free.variance[at]
        freedom = n - 2 * count
        if sigma is None:
            spread = np.where(freedom > 0, cost / np.maximum(freedom, 1), 0.0)
            least = np.where(freedom < FEW_FREE, 1.0, (SCATTER_FLOOR / GUESSED_SCATTER) ** 2)
            spread = np.maximum(spread, least)
        else:
            spread = accepted_spread(cost, freedom)
        error = np.sqrt(variance * spread)
        return Choice(first=first, alpha=alpha, beta=beta, slope_error=error)


def weights(scale: Floats, sigma: Floats) -> Floats:
    """Weight of the relative residual of each point.

    Parameters
    ----------
    scale
        Its size in units of the largest of its scenario.
    sigma
        Its relative standard error.
    """
    floor = SCATTER_FLOOR * np.clip(scale, 1e-6, 1.0) ** -FLOOR_GROWTH
    return np.asarray(1.0 / np.maximum(sigma, floor))


def accepted_spread(cost: Floats, freedom: Integers) -> Floats:
    """Variance of the weighted residuals: one, unless lines fit worse than chance allows.

    Then they are wrong in some other way too, and what is said of them is that much worse.
    """
    free = np.maximum(freedom, 1)
    by_chance = (freedom < 1) | (cost <= chdtri(free, MISFIT_CHANCE))
    return np.asarray(np.where(by_chance, 1.0, cost / free))


def _single(x: Floats, weight: Floats, *, known: bool) -> Choice:
    """One point: a line through the origin, or a constant where its size is zero."""
    b = len(x)
    alpha, beta = np.zeros((b, MOST_SEGMENTS)), np.zeros((b, MOST_SEGMENTS))
    positive = x[:, 0] > 0
    alpha[:, 0], beta[:, 0] = np.where(positive, 0.0, 1.0), np.where(positive, 1.0, 0.0)
    error = np.where(positive, 1.0 / weight[:, 0], np.nan) if known else np.full(b, np.nan)
    first = np.tile(np.array([0, 1, 1], dtype=np.int64), (b, 1))
    return Choice(first=first, alpha=alpha, beta=beta, slope_error=error)


def _sums(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, ...]:
    """Sums over the first k points of the products that a line's closed form needs."""
    one, a, b = weight, weight / y, weight * x / y
    products = (a * a, a * b, b * b, one * a, one * b, one * one)
    return tuple(np.cumsum(p, axis=1) for p in products)


def _free_lines(x: Floats, y: Floats, weight: Floats) -> _Lines:
    """Lines through points i … j for all i < j, index [b, i, j]; their slope is above zero."""
    b, n = y.shape
    shape = (b, n, n)
    found = _Lines(
        alpha=np.zeros(shape),
        beta=np.zeros(shape),
        cost=np.full(shape, np.inf),
        variance=np.full(shape, np.nan),
    )
    for i in range(n - 1):
        aa, ab, bb, sa, sb, ss = _sums(x[:, i:], y[:, i:], weight[:, i:])
        determinant = aa * bb - ab * ab
        alpha = (sa * bb - sb * ab) / determinant
        beta = (sb * aa - sa * ab) / determinant
        cost = np.maximum(ss - alpha * sa - beta * sb, 0.0)
        usable = np.isfinite(alpha) & np.isfinite(beta) & (beta > 0)
        usable[:, 0] = False
        found.alpha[:, i, i:], found.beta[:, i, i:] = alpha, beta
        found.cost[:, i, i:] = np.where(usable, cost, np.inf)
        found.variance[:, i, i:] = aa / determinant
    return found


def _started_lines(x: Floats, y: Floats, weight: Floats, free: _Lines) -> _Lines:
    """Lines through points 0 … j, index [b, j]; neither start nor slope is below zero."""
    aa, _, bb, sa, sb, ss = _sums(x, y, weight)
    alpha, beta = free.alpha[:, 0].copy(), free.beta[:, 0].copy()
    cost, variance = ss - alpha * sa - beta * sb, free.variance[:, 0].copy()
    through_origin = ~(alpha >= 0)
    flat = ~(beta >= 0) & ~through_origin
    for where, new_alpha, new_beta, new_variance in (
        (through_origin, np.zeros_like(aa), sb / bb, 1.0 / bb),
        (flat, sa / aa, np.zeros_like(aa), np.full_like(aa, np.nan)),
    ):
        alpha, beta = np.where(where, new_alpha, alpha), np.where(where, new_beta, beta)
        variance = np.where(where, new_variance, variance)
    cost = np.maximum(ss - alpha * sa - beta * sb, 0.0)
    cost[:, 0] = np.inf
    return _Lines(
        alpha=alpha, beta=beta, cost=np.where(np.isfinite(cost), cost, np.inf), variance=variance
    )


def _partition(
    started: Floats, free: Floats, grows: NDArray[np.bool_], *, known: bool
) -> tuple[Integers, Floats]:
    """First point of each segment of the best one to three, and the cost of those.

    ``started`` [b, j] is the cost of the line through 0 … j, ``free`` [b, i, j] of the one
    through i … j.
    """
    b, n = started.shape
    rows = np.arange(b)
    meet = started[:, :-1, None] + free[:, 1:, :]
    second = np.argmin(meet, axis=1) + 1
    two = np.take_along_axis(meet, second[:, None, :] - 1, axis=1)[:, 0]
    last = two[:, :-1] + free[:, 1:, n - 1]
    third = np.argmin(last, axis=1) + 1
    costs = np.column_stack(
        [np.where(grows, started[:, -1], np.inf), two[:, -1], last[rows, third - 1]]
    )
    parameters = 3.0 * np.arange(1, MOST_SEGMENTS + 1) - 1.0
    spread = np.ones((b, 1))
    if not known:
        richest = costs.min(axis=1, keepdims=True) / max(n - parameters[-1], 1.0)
        spread = np.where(np.isfinite(richest), np.maximum(richest, 1.0), 1.0)
    score = costs / spread + parameters * np.log(n)
    best = np.argmin(score, axis=1)
    first = np.full((b, MOST_SEGMENTS), n, dtype=np.int64)
    first[:, 0] = 0
    first[best == 1, 1] = second[best == 1, n - 1]
    is_three = best == 2
    first[is_three, 2] = third[is_three]
    first[is_three, 1] = second[is_three, third[is_three] - 1]
    chosen = costs[rows, best]
    return first, np.where(np.isfinite(chosen), chosen, started[:, -1])

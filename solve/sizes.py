"""Seconds against bytes: a line per regime of message sizes (piecewise Hockney).

``T(m) = alpha + beta · m`` (Hockney 1994) holds within one regime only: libraries
switch protocol with the size (eager, rendezvous), copies fall out of a cache, a rate
ramps up.  So up to three segments are fitted, each a line of its own, by dynamic
programming over where they meet; how many, the Bayesian information criterion says
(Schwarz 1978).  Errors are relative, as timing noise is.  The first segment starts at
a time of zero or more; a line further up may well cross the axis below zero: what is
asked of it is its slope, the seconds that one more byte takes.

All scenarios with equally many sizes are fitted at once, in whole arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topocal.solve.segments import choose_lines
from topocal.topo.errors import InputError

__all__ = ["Hockney", "HockneyBatch", "Segment", "fit_batch", "fit_sizes"]

_WORST_MISFIT: Final = 1e9
"""Stands for whatever is beyond it."""

_LARGEST_BATCH: Final = 2_000_000
"""Entries of one array of all segments of a batch, 16 MB."""

Floats = NDArray[np.float64]


class Segment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One regime: ``seconds = alpha_s + beta_s_per_byte · bytes``.

    Attributes
    ----------
    from_bytes, to_bytes
        The sizes it holds for; the last has no end (``None``).
    alpha_s
        Where the line meets the axis; below zero is possible in all but the first.
    beta_s_per_byte
        Seconds that one more byte takes.
    points
        How many measured sizes it rests on.
    """

    from_bytes: float
    to_bytes: float | None
    alpha_s: float
    beta_s_per_byte: float
    points: int

    def seconds(self, size_bytes: float) -> float:
        """On its line."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes


class Hockney(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds against bytes of one scenario.

    Attributes
    ----------
    segments
        By size, without gaps: the first begins at zero bytes.
    slope_error_s_per_byte
        Standard error of the last segment's slope; ``None`` where nothing tells it.
    misfit
        Root mean square of the relative residuals.
    """

    segments: tuple[Segment, ...]
    slope_error_s_per_byte: float | None
    misfit: float

    @property
    def top(self) -> Segment:
        """The segment of the largest sizes."""
        return self.segments[-1]

    @property
    def start_s(self) -> float:
        """Time of an empty message."""
        return self.segments[0].alpha_s

    def predict(self, size_bytes: float) -> float:
        """Seconds at a size, zero or more.

        Raises
        ------
        InputError
            When the size is negative or not finite.
        """
        if not (math.isfinite(size_bytes) and size_bytes >= 0):
            raise InputError(
                f"a size of {size_bytes} bytes", remedy="give a finite number, zero or more"
            )
        for segment in self.segments:
            if segment.to_bytes is None or size_bytes < segment.to_bytes:
                return segment.seconds(size_bytes)
        raise AssertionError("the last segment has no end")


@dataclass(frozen=True)
class HockneyBatch:
    """The fits of B scenarios of n sizes each.

    Attributes
    ----------
    size_bytes, seconds
        What was fitted, shape (B, n), sizes ascending.
    first
        Shape (B, 3): number of the first point of each segment, n where there is none.
    alpha_s, beta_s_per_byte
        Shape (B, 3): of each segment, zero where there is none.
    slope_error_s_per_byte
        Shape (B,): standard error of the top segment's slope, NaN where nothing tells it.
    misfit
        Shape (B,): root mean square relative residual.
    """

    size_bytes: Floats
    seconds: Floats
    first: NDArray[np.int64]
    alpha_s: Floats
    beta_s_per_byte: Floats
    slope_error_s_per_byte: Floats
    misfit: Floats

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """Segments of each fit, shape (B,)."""
        return np.asarray((self.first < self.seconds.shape[1]).sum(axis=1))

    @property
    def top_slope_s_per_byte(self) -> Floats:
        """Slope of each last segment, shape (B,)."""
        found: Floats = self.beta_s_per_byte[np.arange(len(self.first)), self.count - 1]
        return found

    def with_lines(self, alpha_s: Floats, beta_s_per_byte: Floats, error: Floats) -> HockneyBatch:
        """With other lines, shape (B,), for fits of one segment; as it is where they are NaN."""
        other = np.isfinite(beta_s_per_byte)
        if not other.any():
            return self
        alpha, beta = self.alpha_s.copy(), self.beta_s_per_byte.copy()
        alpha[other, 0], beta[other, 0] = alpha_s[other], beta_s_per_byte[other]
        line = alpha[:, :1] + beta[:, :1] * self.size_bytes
        misfit = np.sqrt(((line / self.seconds - 1.0) ** 2).mean(axis=1))
        return replace(
            self,
            alpha_s=alpha,
            beta_s_per_byte=beta,
            slope_error_s_per_byte=np.where(other, error, self.slope_error_s_per_byte),
            misfit=np.where(other, np.minimum(misfit, _WORST_MISFIT), self.misfit),
        )

    @cached_property
    def _columns(self) -> tuple[list[Any], ...]:
        columns = (self.first, self.alpha_s, self.beta_s_per_byte)
        single = (self.count, self.slope_error_s_per_byte, self.misfit)
        return tuple(column.tolist() for column in (*columns, *single))

    def __getitem__(self, number: int) -> Hockney:
        """One of the fits."""
        first, alpha, beta, count, error, misfit = [c[number] for c in self._columns]
        if count == 1:
            only = Segment(
                from_bytes=0.0,
                to_bytes=None,
                alpha_s=alpha[0],
                beta_s_per_byte=beta[0],
                points=self.seconds.shape[1],
            )
            return Hockney(
                segments=(only,),
                slope_error_s_per_byte=error if math.isfinite(error) else None,
                misfit=misfit,
            )
        ends = [*first[1:count], self.seconds.shape[1]]
        borders: list[float | None] = [0.0]
        for k in range(1, count):
            near = slice(first[k] - 1, first[k] + 1)
            below, above = (alpha[k - 1], beta[k - 1]), (alpha[k], beta[k])
            sizes, times = self.size_bytes[number, near], self.seconds[number, near]
            borders.append(_border(below, above, sizes.tolist(), times.tolist()))
        return Hockney(
            segments=tuple(
                Segment(
                    from_bytes=begin or 0.0,
                    to_bytes=end,
                    alpha_s=alpha[k],
                    beta_s_per_byte=beta[k],
                    points=ends[k] - first[k],
                )
                for k, (begin, end) in enumerate(itertools.pairwise([*borders, None]))
            ),
            slope_error_s_per_byte=error if math.isfinite(error) else None,
            misfit=misfit,
        )


def _border(
    below: tuple[float, float],
    above: tuple[float, float],
    sizes: Sequence[float],
    times: Sequence[float],
) -> float:
    """Where two lines take over, between the last point of one and the first of the other.

    Where they cross, if it is there; else half way in logs, unless the upper line would
    be far below both points there.
    """
    low, high = sizes
    if above[1] != below[1]:
        crossing = (below[0] - above[0]) / (above[1] - below[1])
        if low <= crossing <= high:
            return crossing
    middle = math.sqrt(low) * math.sqrt(high)
    return middle if above[0] + above[1] * middle > min(times) / 2 else high


def fit_sizes(
    size_bytes: Sequence[float],
    seconds: Sequence[float],
    sigma: Sequence[float] | float | None = None,
) -> Hockney:
    """Fit one scenario.

    Parameters
    ----------
    size_bytes
        Zero or more, in any order, none twice.
    seconds
        Above zero, one per size.
    sigma
        Relative standard error of each; ``None`` where unknown, then the scatter about
        the lines tells it.

    Raises
    ------
    InputError
        When there is nothing to fit, or a figure is not possible.
    """
    x, y = np.array(size_bytes, dtype=float), np.array(seconds, dtype=float)
    if x.shape != y.shape or x.ndim != 1 or not len(x):
        raise InputError("sizes without seconds", remedy="give one time per size, at least one")
    if not (np.isfinite(x).all() and (x >= 0).all() and np.isfinite(y).all() and (y > 0).all()):
        raise InputError(
            "a size or a time that is not possible",
            remedy="give sizes of zero or more and times above zero, all finite",
        )
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if (np.diff(x) <= 0).any():
        raise InputError("a size stands twice", remedy="give the median of its repeats")
    scatter = None
    if sigma is not None:
        scatter = np.broadcast_to(np.asarray(sigma, dtype=float), x.shape)[order][None]
        if not (np.isfinite(scatter).all() and (scatter >= 0).all()):
            raise InputError("a scatter that is not possible", remedy="give zero or more")
    return fit_batch(x[None], y[None], scatter)[0]


def fit_batch(size_bytes: Floats, seconds: Floats, sigma: Floats | None = None) -> HockneyBatch:
    """Fit B scenarios of n sizes each; sizes ascend strictly, times are above zero.

    Parameters
    ----------
    size_bytes, seconds
        Shape (B, n).
    sigma
        Shape (B, n): relative standard error of each time, ``None`` where unknown.
    """
    b, n = seconds.shape
    step = max(1, _LARGEST_BATCH // (n * n))
    parts = [
        _fit(
            size_bytes[k : k + step],
            seconds[k : k + step],
            None if sigma is None else sigma[k : k + step],
        )
        for k in range(0, b, step)
    ]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _fit(size_bytes, seconds, sigma)
    return HockneyBatch(
        size_bytes=size_bytes,
        seconds=seconds,
        first=np.concatenate([p.first for p in parts]),
        alpha_s=np.concatenate([p.alpha_s for p in parts]),
        beta_s_per_byte=np.concatenate([p.beta_s_per_byte for p in parts]),
        slope_error_s_per_byte=np.concatenate([p.slope_error_s_per_byte for p in parts]),
        misfit=np.concatenate([p.misfit for p in parts]),
    )


def _fit(size: Floats, seconds: Floats, sigma: Floats | None) -> HockneyBatch:
    """All arrays at once.  Sizes and times are in units of the largest, to stay in range.

    Where figures are so far apart that a line leaves that range, what comes out is a
    constant: its slope of zero says that none was found.
    """
    n = seconds.shape[1]
    with np.errstate(all="ignore"):
        top_size = np.where(size[:, -1:] > 0, size[:, -1:], 1.0)
        top_time = seconds[:, -1:]
        x, y = size / top_size, seconds / top_time
        unit = top_time / top_size
        chosen = choose_lines(x, y, sigma)
        alpha, beta = chosen.alpha * top_time, chosen.beta * unit
        wrong = ~np.asarray(np.isfinite(np.concatenate([alpha, beta], axis=1)).all(axis=1))
        first = np.where(wrong[:, None], [0, n, n], chosen.first)
        alpha = np.where(wrong[:, None], top_time * [1.0, 0.0, 0.0], alpha)
        beta = np.where(wrong[:, None], 0.0, beta)
        segment = (np.arange(n)[None, :, None] >= first[:, None, :]).sum(axis=2) - 1
        line = np.take_along_axis(alpha, segment, 1) + np.take_along_axis(beta, segment, 1) * size
        misfit = np.sqrt(((line / seconds - 1.0) ** 2).mean(axis=1))
        error = np.where(wrong, np.nan, chosen.slope_error * unit[:, 0])
    return HockneyBatch(
        size_bytes=size,
        seconds=seconds,
        first=first,
        alpha_s=alpha,
        beta_s_per_byte=beta,
        slope_error_s_per_byte=error,
        misfit=np.where(np.isfinite(misfit), misfit, _WORST_MISFIT),
    )

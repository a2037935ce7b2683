"""Repeats of one pattern at one size: their centre, their scatter, the ones that stand apart.

The centre is Huber's: the mean of the logs, with what lies far out weighing less.  A median
would throw away a third of what the repeats know once stragglers are gone.

How far a timing scatters is pooled over the machine, one figure per octave of sizes:
short messages jitter more.  It is robust: the median, over all timings, of the distance
from the median of their siblings, each divided by what that distance is for normal
errors among so few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Points", "pool_repeats"]

STRAGGLER_SIGMAS: Final = 5.0
"""A normal error is beyond this once in two million timings."""

STRAGGLER_LEAST: Final = 0.05
"""…and a repeat within 5 % of its siblings is no straggler, however well they agree."""

STRAGGLER_SIBLINGS: Final = 3
"""Below this many siblings nothing says which of them is the odd one."""

SAME_SIZE: Final = 1e-3
"""Sizes closer than this tell nothing about a slope between them: they count as one."""

POOL: Final = 30
"""Timings that an octave needs for a scatter of its own; with fewer it takes the machine's."""

_SHRINKAGE: Final = (
    *(np.nan, np.nan, 0.4769, 0.3138, 0.4863, 0.4906, 0.5278),
    *(0.5516, 0.5636, 0.5826, 0.5879, 0.6010, 0.6039),
)
_NORMAL: Final = 0.67449
"""Median distance of n normal errors of unit deviation from their own median, by n; and its
limit.  By simulation of six million draws each, good to 0.001 (tests/test_scenarios.py
repeats it); beyond twelve the limit × (1 − 1.13 / n)."""

_HUBER: Final = 1.345
"""Deviations from which a repeat weighs less: 95 % efficient on normal errors (Huber 1981,
table 4.1)."""

_STEPS: Final = 6
"""Renewals of the weights; from the median, each leaves a tenth of the way or less."""

CENTRE_EFFICIENCY: Final = 0.95**-0.5
"""Standard error of that centre against that of a mean."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """One point per group and size, P of them, by group and then by size.

    Attributes
    ----------
    group, size_bytes
        Shape (P,).
    seconds
        Shape (P,): centre of the repeats that are kept.
    count
        Shape (P,): how many are kept.
    scatter
        Shape (P,): relative deviation of one timing at such sizes; NaN where no size of
        the machine has repeats.
    of_sample
        Shape (N,): point of each timing.
    straggler
        Shape (N,): timings that are left out.
    """

    group: Integers
    size_bytes: Floats
    seconds: Floats
    count: Integers
    scatter: Floats
    of_sample: Integers
    straggler: Flags

    @property
    def sigma(self) -> Floats:
        """Relative standard error of each centre, shape (P,)."""
        factor = np.where(self.count > 2, CENTRE_EFFICIENCY, 1.0)
        return np.asarray(self.scatter * factor / np.sqrt(self.count))


def pool_repeats(group: Integers, size_bytes: Floats, seconds: Floats) -> Points:
    """Points of N timings, each with its group, its size and its seconds above zero."""
    order = np.lexsort((seconds, size_bytes, group))
    group_, size, time = group[order], size_bytes[order], seconds[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(group_) != 0) | (size[1:] > size[:-1] * (1 + SAME_SIZE))
    point = np.cumsum(new) - 1
    begin = np.flatnonzero(new)
    count = np.diff(np.append(begin, len(order)))
    log_time = np.log(time)
    distance = np.abs(log_time - _medians(log_time, begin, count)[point])
    mean_size = np.add.reduceat(size, begin) / count if len(begin) else np.zeros(0)
    # Sums may round away from the size that all share.
    mean_size = np.where(size[begin] == size[begin + count - 1], size[begin], mean_size)
    scatter = _scatter(distance / _shrinkage(count)[point], count[point] > 1, mean_size, point)
    usual = _usual(distance, point, begin, count, scatter)
    straggler = _stragglers(distance, point, count, usual)
    kept = ~straggler
    kept_count = np.bincount(point[kept], minlength=len(begin))
    of_sample, is_straggler = np.empty_like(point), np.zeros(len(order), dtype=bool)
    of_sample[order], is_straggler[order] = point, straggler
    return Points(
        group=group_[begin],
        size_bytes=mean_size,
        seconds=_centres(time[kept], point[kept], kept_count, usual),
        count=kept_count,
        scatter=scatter,
        of_sample=of_sample,
        straggler=is_straggler,
    )


def _medians(values: Floats, begin: Integers, count: Integers) -> Floats:
    """Median of each run of ascending values."""
    low, high = values[begin + (count - 1) // 2], values[begin + count // 2]
    return np.asarray(low + (high - low) / 2)


def _shrinkage(count: Integers) -> Floats:
    known = len(_SHRINKAGE)
    few = np.array(_SHRINKAGE)[np.minimum(count, known - 1)]
    return np.where(count < known, few, _NORMAL * (1 - 1.13 / np.maximum(count, known)))


def _scatter(scaled: Floats, repeated: Flags, size: Floats, point: Integers) -> Floats:
    """Relative deviation of one timing at each point."""
    if not repeated.any():
        return np.full(len(size), np.nan)
    octave = np.floor(np.log2(np.maximum(size, 0.5))).astype(np.int64)
    of_timing = octave[point]
    everywhere = float(np.median(scaled[repeated]))
    result = np.full(len(size), everywhere)
    for one in np.unique(of_timing[repeated]).tolist():
        here = scaled[repeated & (of_timing == one)]
        if len(here) >= POOL:
            result[octave == one] = float(np.median(here))
    return result


def _centres(time: Floats, point: Integers, count: Integers, usual: Floats) -> Floats:
    """Huber's centre of the logs of each point's times, which ascend."""
    if not len(time):
        return np.zeros(0)
    begin = np.concatenate(([0], np.cumsum(count)))[:-1]
    median = _medians(time, begin, count)
    # Deviations rather than times are summed, so that equal repeats keep their value.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        away, reach = np.log(time / median[point]), _HUBER * usual[point]
    shift = np.zeros(len(count))
    for _ in range(_STEPS):
        left = away - shift[point]
        with np.errstate(all="ignore"):
            weight = np.where(np.abs(left) > reach, reach / np.abs(left), 1.0)
            shift += np.add.reduceat(weight * left, begin) / np.add.reduceat(weight, begin)
    # Times too far apart for a quotient keep their median.
    return np.asarray(median * np.exp(np.where(np.isfinite(shift), shift, 0.0)))


def _usual(
    distance: Floats, point: Integers, begin: Integers, count: Integers, scatter: Floats
) -> Floats:
    """Deviation of one timing of each point: the machine's, or the siblings' own where larger."""
    if not len(distance):
        return np.zeros(0)
    order = np.lexsort((distance, point))
    own = _medians(distance[order], begin, count) / _shrinkage(np.maximum(count, 2))
    return np.asarray(np.fmax(scatter, own))


def _stragglers(distance: Floats, point: Integers, count: Integers, usual: Floats) -> Flags:
    """Timings far from their siblings."""
    return np.asarray(
        (distance > np.maximum(STRAGGLER_SIGMAS * usual[point], STRAGGLER_LEAST))
        & (count[point] > STRAGGLER_SIBLINGS)
    )

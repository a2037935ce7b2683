"""Which timings look wrong, and whether the machine is still what it was.

A timing is doubtful when it stands apart from the other repeats, or when its ranks did
not start together.  Doubtful ones are measured again; when many of the repeats are
doubtful, then that is how the machine is, and none is set aside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from topocal.measure.samples import Sample

__all__ = ["DRIFT", "apart_from", "are_mixed", "doubts", "drifted", "is_spread", "steady"]

_FEWEST: Final = 3
"""Of two timings that differ, nobody can tell which is wrong."""

_MADS: Final = 5.0
"""Deviations from the median, in units of the spread, that make a timing stand apart; of
normal errors one in two million does."""

_MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of normal errors over their median absolute deviation: 1/Φ⁻¹(3/4)."""

_LEAST: Final = 0.1
"""Relative deviation below which nothing is called wrong: timings of a transfer on a shared
host scatter by a few per cent."""

_SKEW: Final = 0.1
"""Of the time that was measured, the part by which starts may lie apart."""

_MOST_DOUBTS: Final = 1 / 3
"""Share of the repeats above which what stands apart is part of the machine."""

DRIFT: Final = 0.1
"""Relative change of the reference pattern that counts as another state of the machine."""


def doubts(samples: Sequence[Sample]) -> dict[int, str]:
    """The numbers of doubtful repeats of one scenario, each with the reason."""
    found: dict[int, str] = {}
    logs = [math.log(s.seconds) if s.seconds > 0 else -math.inf for s in samples]
    if len(samples) >= _FEWEST:
        middle, limit = _middle(logs)
        for k, value in enumerate(logs):
            if abs(value - middle) > limit:
                found[k] = f"it took {math.exp(value - middle):.3g} times the median of its repeats"
    for k, sample in enumerate(samples):
        starts = sample.endpoint_start_s
        if starts and max(starts) - min(starts) > _SKEW * sample.seconds:
            share = (max(starts) - min(starts)) / sample.seconds
            found.setdefault(k, f"its ranks started apart by {share:.0%} of its time")
    return found


def is_spread(count: int, of: int) -> bool:
    """Whether so many doubtful repeats are the rule rather than the exception."""
    return count > _MOST_DOUBTS * of


def drifted(before: Sequence[float], now: Sequence[float]) -> float | None:
    """How much longer the reference takes now, where that is more than chance; else ``None``.

    >>> drifted([1.0, 1.01, 0.99], [1.3, 1.31, 1.29])
    1.3
    >>> drifted([1.0, 1.01, 0.99], [1.02, 1.0, 1.3])
    """
    ratio = median(now) / median(before)
    apart = min(now) > max(before) or max(now) < min(before)
    return ratio if apart and abs(math.log(ratio)) > math.log1p(DRIFT) else None


def steady(times: Sequence[float]) -> tuple[float, ...]:
    """Timings without what stands apart, unless that is the rule.

    >>> steady([1.0, 1.01, 0.99, 7.0])
    (1.0, 1.01, 0.99)
    """
    logs = [math.log(seconds) for seconds in times]
    middle, limit = _middle(logs)
    kept = tuple(t for t, x in zip(times, logs, strict=True) if abs(x - middle) <= limit)
    return tuple(times) if is_spread(len(times) - len(kept), len(times)) else kept


def are_mixed(times: Sequence[float]) -> bool:
    """Whether timings are of two kinds, as when the machine changes in between.

    >>> are_mixed([1.0, 1.01, 2.0, 2.02, 1.99]), are_mixed([1.0, 1.01, 0.99])
    (True, False)
    """
    return len(times) >= _FEWEST and _between_kinds(sorted(map(math.log, times))) is not None


def apart_from(before: Sequence[float], now: float) -> float | None:
    """How many times as long a timing took as those before, where it is not like most of them.

    It stands apart from them all; or they are of two kinds, as when the machine changed in
    between, and it is of the other kind than their median.  Those before have to be enough to
    tell; else ``None``.

    >>> apart_from([1.0, 1.02, 0.99], 2.0)
    2.0
    >>> apart_from([1.0, 2.0, 2.02], 1.0)
    0.5
    >>> apart_from([1.0, 1.02, 0.99], 1.1) is apart_from([1.0, 1.0], 2.0) is None
    True
    """
    if len(before) < _FEWEST or now <= 0:
        return None
    logs = sorted(math.log(seconds) for seconds in before)
    middle, limit = _middle(logs)
    value = math.log(now)
    beyond = max(value - logs[-1], logs[0] - value)
    if beyond > math.log1p(_LEAST) and abs(value - middle) > limit:
        return math.exp(value - middle)
    between = _between_kinds(logs)
    if between is not None and (value < between) != (middle < between):
        return math.exp(value - middle)
    return None


def _middle(logs: Sequence[float]) -> tuple[float, float]:
    """The median, and how far from it a timing may lie."""
    middle = median(logs)
    spread = _MAD_TO_SIGMA * median(abs(x - middle) for x in logs)
    return middle, max(_MADS * spread, math.log1p(_LEAST))


def _between_kinds(logs: Sequence[float]) -> float | None:
    """Where logarithms in ascending order part into two kinds; ``None`` where they do not."""
    gaps = [(b - a, k) for k, (a, b) in enumerate(pairwise(logs))]
    (widest, k), *others = sorted(gaps, reverse=True)
    if widest <= max(math.log1p(_LEAST), _MADS * max(gap for gap, _ in others)):
        return None
    return (logs[k] + logs[k + 1]) / 2

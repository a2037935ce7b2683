"""Which timings look wrong, and whether the machine is still what it was.

A timing is doubtful when it stands apart from the other repeats, or when its ranks did
not start together.  Doubtful ones are measured again; when many of the repeats are
doubtful, then that is how the machine is, and none is set aside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from topocal.measure.samples import Sample

__all__ = ["DRIFT", "doubts", "drifted", "is_spread"]

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
        middle = median(logs)
        spread = _MAD_TO_SIGMA * median(abs(x - middle) for x in logs)
        limit = max(_MADS * spread, math.log1p(_LEAST))
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

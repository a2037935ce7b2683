"""Figures of one pattern at several sizes, and whether they tell a rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import is_rate, moved
from topocal.measure.importers.imported import Draft, Reading
from topocal.measure.samples import Sample
from topocal.topo.units import format_bytes

__all__ = [
    "FEWEST_BYTES",
    "TELLS_A_RATE",
    "largest_message",
    "only_start_up",
    "start_up",
    "sweep_samples",
]

TELLS_A_RATE: Final = 32_768
"""Bytes: of one message at a time, to start a smaller one takes longer than its bytes do."""

FEWEST_BYTES: Final = 512
"""Even of many under way at once, smaller messages tell how many start in a second."""

_FEW: Final = 3
_FLAT: Final = 2.0
"""A sweep whose largest message takes less than this times the smallest shows no rate."""


def sweep_samples(
    draft: Draft, pairs: Sequence[tuple[str, str]], figures: Sequence[tuple[int, float, int]]
) -> list[Sample]:
    """Samples of a pattern by size: the size of each flow, the total rate, the line.

    Raises
    ------
    InputError
        When a size is none of a transfer.
    """
    return [
        moved(pairs, rate, where=draft.where(line), size_bytes=float(size))
        for size, rate, line in figures
        if is_rate(rate)
    ]


def only_start_up(samples: Sequence[Sample], least: int = FEWEST_BYTES) -> list[Reading]:
    """Samples as readings, where their messages are so small that they tell no rate.

    Parameters
    ----------
    least
        Bytes that the largest message must have.
    """
    if not samples:
        return []
    ordered = sorted(samples, key=lambda s: s.pattern.total_bytes)
    sizes = len({s.pattern.total_bytes for s in samples})
    flat = sizes >= _FEW and ordered[-1].seconds <= _FLAT * ordered[0].seconds
    if not flat and largest_message(ordered) >= least:
        return []
    return [start_up(s) for s in samples]


def largest_message(samples: Sequence[Sample]) -> float:
    """Bytes of the largest flow."""
    return max(f.size_bytes for s in samples for f in s.pattern.flows)


def start_up(sample: Sample) -> Reading:
    """A sample as the reading that it is where its messages are small."""
    return Reading(
        what=f"{sample.name} at {format_bytes(sample.pattern.flows[0].size_bytes)}",
        value=sample.seconds,
        unit="s",
        reason="its messages are so small that they tell how long one takes to start, and no rate",
        pattern=sample.pattern,
        where=sample.where,
    )

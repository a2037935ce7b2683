"""Figures of one pattern that several files, or several runs, do not agree on.

Repeats within a run scatter by the noise; their medians should agree between runs but for
that.  Where most patterns differ by the same factor the runs themselves differ (another
setting, another machine), and that is said once; what differs beyond that is a figure
that is wrong in one of them, or a transfer that is not steady.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, TypeAlias

import numpy as np
from scipy.special import ndtri

from topocal.measure.samples import Measurements, Sample
from topocal.topo.units import format_bytes, format_rate

__all__ = ["Conflict", "conflicts"]

CONTRADICTS: Final = math.log(1.03)
"""Two figures contradict each other from 3 %: like pairs of steady machines are within 2.5 %
of each other (docs/model.md)."""

FALSE_ALARM: Final = 1e-5
"""Chance that noise alone makes one on a machine, all comparisons together."""

LEAST_NOISE: Final = 0.005
"""Medians of ten repeats on the published machines scatter by half a percent."""

FEW: Final = 5
"""With fewer common patterns nothing says whether one differs or the files do."""

_MEDIAN: Final = 1.2533
"""Standard error of a median against that of a mean, sqrt(pi / 2)."""

_NORMAL: Final = 0.67449
"""Median distance of normal errors of unit deviation from their median."""

Key: TypeAlias = tuple[frozenset[tuple[str, str]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Figures of two sources that cannot both be right.

    Attributes
    ----------
    name
        The pattern; empty where all patterns of two sources differ alike.
    figures
        ``(source, bytes per second)`` of both, the lower first; of a whole source, the median
        over the common patterns.
    text
        In words.
    """

    name: str
    figures: tuple[tuple[str, float], ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Point:
    """One pattern at one size in one source."""

    rate_Bps: float
    repeats: int


def conflicts(measurements: Measurements, noise: float) -> list[Conflict]:
    """All of them, in the order of sources and samples.

    Parameters
    ----------
    noise
        Relative standard deviation of a figure, where no repeats within a source tell.
    """
    if len({_source(s) for s in measurements.samples}) < 2:
        return []
    by_source: dict[str, dict[Key, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in measurements.samples:
        size = sample.pattern.total_bytes if sample.size_known else 0.0
        key = (frozenset(sample.pattern.pairs), size)
        by_source[_source(sample)][key].append(sample)
    scatter = _scatter(by_source)
    points = {
        source: {
            key: _Point(float(np.median([s.throughput_Bps for s in samples])), len(samples))
            for key, samples in found.items()
        }
        for source, found in by_source.items()
    }
    names = {key: samples[0].name for found in by_source.values() for key, samples in found.items()}
    words = _short(list(points))
    return [
        conflict
        for one, other in itertools.combinations(points, 2)
        for conflict in _between(
            (words[one], words[other]), points[one], points[other], names, scatter, noise
        )
    ]


def _source(sample: Sample) -> str:
    file = "" if sample.where is None else str(sample.where.file or "")
    return file if sample.run is None else f"{file}#{sample.run + 1}"


def _short(sources: Sequence[str]) -> dict[str, str]:
    """File names without their folders where that tells them apart."""
    short = {s: PurePath(s).name or s for s in sources}
    if len(set(short.values())) < len(short):
        return {s: s for s in sources}
    return short


def _scatter(by_source: Mapping[str, Mapping[Key, Sequence[Sample]]]) -> float | None:
    """Relative deviation of one repeat within a source; ``None`` where there are none."""
    distances = []
    for found in by_source.values():
        for samples in found.values():
            if len(samples) > 2:
                logs = np.log([s.throughput_Bps for s in samples])
                distances += np.abs(logs - np.median(logs)).tolist()
    if not distances:
        return None
    # Few siblings pull their median to themselves; 0.8 stands for three to ten of them.
    return float(np.median(distances)) / (_NORMAL * 0.8)


def _between(
    sources: tuple[str, str],
    one: Mapping[Key, _Point],
    other: Mapping[Key, _Point],
    names: Mapping[Key, str],
    scatter: float | None,
    noise: float,
) -> Iterator[Conflict]:
    common = [key for key in one if key in other]
    if not common:
        return
    apart = np.array([math.log(one[k].rate_Bps / other[k].rate_Bps) for k in common])
    shift = float(np.median(apart)) if len(common) >= FEW else 0.0
    if scatter is not None:
        sigma = np.array(
            [
                scatter * math.hypot(*(_MEDIAN / math.sqrt(p[k].repeats) for p in (one, other)))
                for k in common
            ]
        )
    else:
        sigma = np.full(len(common), noise * math.sqrt(2))
    if len(common) >= FEW:
        # How far the files agree elsewhere counts as well: drift between runs is no error.
        usual = float(np.median(np.abs(apart - shift))) / _NORMAL
        sigma = np.maximum(sigma, usual)
    sigma = np.maximum(sigma, LEAST_NOISE)
    quantile = -float(ndtri(FALSE_ALARM / (2 * (len(common) + 1))))
    of_shift = quantile * float(np.median(sigma)) * _MEDIAN / math.sqrt(len(common))
    moved = abs(shift) > max(CONTRADICTS, of_shift)
    if moved:
        yield _whole(sources, [one[k] for k in common], [other[k] for k in common], shift)
    off = apart - shift if moved else apart
    for k, difference, error in zip(common, off.tolist(), sigma.tolist(), strict=True):
        if abs(difference) > max(CONTRADICTS, quantile * error):
            agreeing = float(np.median(np.abs(off))) if len(common) >= FEW else None
            yield _one(sources, k, names[k], one[k], other[k], agreeing)


def _one(
    sources: tuple[str, str],
    key: Key,
    name: str,
    one: _Point,
    other: _Point,
    agreeing: float | None,
) -> Conflict:
    (slow, slow_from), (fast, fast_from) = sorted(
        [(one.rate_Bps, sources[0]), (other.rate_Bps, sources[1])]
    )
    at = f" at {format_bytes(key[1] / len(key[0]))} per flow" if key[1] else ""
    text = (
        f"{name}{at} reads {format_rate(slow)} in {slow_from} and {format_rate(fast)} in "
        f"{fast_from}, {fast / slow - 1:.0%} apart"
    )
    if agreeing is not None:
        text += f", where the others agree within {math.expm1(agreeing):.1%}"
    text += ": one of them is wrong or it is not steady, measure again"
    return Conflict(name=name, figures=((slow_from, slow), (fast_from, fast)), text=text)


def _whole(
    sources: tuple[str, str], one: Sequence[_Point], other: Sequence[_Point], shift: float
) -> Conflict:
    rates = [
        (float(np.median([p.rate_Bps for p in points])), source)
        for points, source in ((one, sources[0]), (other, sources[1]))
    ]
    slower, faster = sources if shift < 0 else sources[::-1]
    text = (
        f"{faster} reads {math.expm1(abs(shift)):.0%} more than {slower} throughout, over "
        f"{len(one)} patterns that both hold: another setting, or another machine; fit them apart"
    )
    rates.sort()
    return Conflict(name="", figures=tuple((source, rate) for rate, source in rates), text=text)

"""From raw timings to scenarios: one pattern each, with the seconds that a byte takes.

Samples belong to one scenario when they have the same flows in the same proportions of
size, issued the same way.  A scenario's unit is the **bytes of its largest flow**: its
pattern is scaled so that this flow has one byte, and ``seconds_per_byte`` is what the
whole pattern takes for each.  In logs that is the left side of the max-plus system, and
the pattern's own sizes are its loads: ``log seconds_per_byte = max_r (log load_r + x_r)``.

A repeat that stands far apart from its siblings is left out, and listed with the reason.
A scenario that as a whole is off stays: what it contradicts is for the fit to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure.patterns import PatternKind, kind_of
from topocal.measure.samples import Measurements, Sample
from topocal.solve.grouping import Groups, group_samples
from topocal.solve.repeats import Points, pool_repeats
from topocal.solve.sizes import Hockney, HockneyBatch, fit_batch
from topocal.solve.start_up import refit
from topocal.topo.errors import InputError, Where, one_line
from topocal.topo.flow import Pattern
from topocal.topo.units import format_seconds

__all__ = ["LeftOut", "Scenario", "build_scenarios"]

MOST_SIZES: Final = 256
"""More sizes than this are averaged in bins of neighbours before lines are fitted."""

MOST_ERROR: Final = 0.5
"""Standard error of a slope, as a share of it, beyond which it may as well be zero: that is
less than two deviations away."""

_SMALLEST: Final = float(np.finfo(float).tiny)
_LARGEST: Final = float(np.finfo(float).max)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A sample that is not used, and why."""

    sample: Sample
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All samples of one pattern, at every size.

    Attributes
    ----------
    pattern
        Its flows, scaled so that the largest has one byte; starts are kept as they are.
    kind
        What the pattern is.
    issue
        How its messages were issued, ``None`` where unknown.
    size_known
        False where only rates are known, without the size they were measured at.
    alpha_s
        Time of an empty message; ``None`` where a single size cannot tell.
    seconds_per_byte
        Seconds per byte of the largest flow, at the largest sizes; ``None`` where the
        samples do not say it (see ``doubt``).
    sigma
        Standard error of its logarithm, from the scatter of repeats over the whole machine;
        ``None`` where nothing was repeated.
    scatter
        Relative deviation of one timing at its largest size, pooled as above.
    flow_seconds_per_byte
        The same as ``seconds_per_byte`` until each flow's own last byte, in the order of
        the pattern's flows, per byte of the *largest* flow; ``None`` for a flow where it is
        not known, and altogether where no finish was recorded.
    sizes_bytes
        Sizes of the largest flow that were measured, ascending.
    samples
        How many timings it rests on.
    fit
        Seconds against bytes of the largest flow; its last segment's intercept, not
        ``alpha_s``, goes with ``seconds_per_byte``.
    left_out
        Stragglers.
    doubt
        Why there is no ``seconds_per_byte``.
    where
        Where its first sample comes from.
    """

    pattern: Pattern
    kind: PatternKind
    issue: str | None
    size_known: bool
    alpha_s: float | None
    seconds_per_byte: float | None
    sigma: float | None
    scatter: float | None
    flow_seconds_per_byte: tuple[float | None, ...] | None
    sizes_bytes: tuple[float, ...]
    samples: int
    fit: Hockney
    left_out: tuple[LeftOut, ...] = ()
    doubt: str | None = None
    where: Where | None = None

    @property
    def name(self) -> str:
        """The pattern's notation."""
        return self.pattern.name

    @property
    def throughput_Bps(self) -> float | None:
        """Bytes of all flows per second, at the largest sizes and without start-up time."""
        if self.seconds_per_byte is None:
            return None
        return self.pattern.total_bytes / self.seconds_per_byte


def build_scenarios(measurements: Measurements) -> tuple[Scenario, ...]:
    """The scenarios of a machine, in the order of their first samples.

    Raises
    ------
    InputError
        When a sample has no flows, or its time is not a finite number above zero.
    """
    samples = measurements.samples
    if not samples:
        return ()
    seconds = np.array([s.seconds for s in samples])
    if not ((seconds > 0) & (seconds < np.inf)).all():
        wrong = next(s for s in samples if not 0 < s.seconds < np.inf)
        raise InputError(
            f"a sample of {one_line(wrong.name)} took {wrong.seconds} s",
            where=wrong.where,
            remedy="set it aside, with the reason",
            about=wrong,
        )
    groups = group_samples(samples)
    scale = groups.scale
    # Of a rate without a size only seconds per byte mean something, at whatever size.
    unsized = ~np.array([s.size_known for s in samples]) & (scale > 0)
    unit = np.where(unsized, scale, 1.0)
    size = np.where(unsized, 1.0, scale)
    points = pool_repeats(groups.of_sample, size, _per_unit(seconds, unit))
    patterns = [groups.scaled_pattern(g) for g in range(len(groups.first))]
    kinds = [kind_of(p) for p in patterns]
    number = {kind: k for k, kind in enumerate(sorted(set(kinds)))}
    kind = np.array([number[one] for one in kinds])
    fits = _Fits(points, kind)
    flows = _flow_slopes(groups, samples, points, size, unit, kind)
    left_out = _left_out(groups, samples, points)
    return tuple(_scenarios(groups, samples, patterns, kinds, points, fits, flows, left_out))


def _per_unit(seconds: Floats, unit: Floats) -> Floats:
    """Quotients, kept where they have a logarithm."""
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(seconds / unit, _SMALLEST, _LARGEST)


class _Fits:
    """Seconds against bytes of G groups whose points stand in order of group.

    Groups of one kind start alike (:mod:`topocal.solve.start_up`).
    """

    def __init__(self, points: Points, kind: Integers) -> None:
        counts = np.bincount(points.group)
        begin = np.concatenate(([0], np.cumsum(counts)))[:-1]
        self.begin, self.count = begin, counts
        self._batches: list[HockneyBatch] = []
        place = np.zeros((len(counts), 2), dtype=np.int64)
        self.slope = np.zeros(len(counts))
        self.slope_error = np.zeros(len(counts))
        sigma = points.sigma
        for n in np.unique(counts).tolist():
            members = np.flatnonzero(counts == n)
            at = begin[members][:, None] + np.arange(n)
            columns = [points.size_bytes[at], points.seconds[at], sigma[at]]
            if n > MOST_SIZES:
                columns = [_in_bins(column) for column in columns]
            known = bool(np.isfinite(columns[2]).all())
            batch = fit_batch(columns[0], columns[1], columns[2] if known else None)
            place[members, 0], place[members, 1] = len(self._batches), np.arange(len(members))
            self._batches.append(batch)
        self._pool_starts(points, kind, place)
        for k, batch in enumerate(self._batches):
            members = np.flatnonzero(place[:, 0] == k)
            self.slope[members] = batch.top_slope_s_per_byte
            self.slope_error[members] = batch.slope_error_s_per_byte
        self._place: list[tuple[int, int]] = [(k, row) for k, row in place.tolist()]

    def _pool_starts(self, points: Points, kind: Integers, place: Integers) -> None:
        """Fit lines again that are the only one of their scenario and rest on repeats."""
        segments = np.zeros(len(self.count), dtype=np.int64)
        for k, batch in enumerate(self._batches):
            segments[place[:, 0] == k] = batch.count
        repeated = np.isfinite(np.add.reduceat(points.sigma, self.begin))
        single = (segments == 1) & (self.count > 1) & (self.count <= MOST_SIZES) & repeated
        lines = refit(
            points.size_bytes,
            points.seconds,
            points.sigma,
            self.begin,
            np.where(single, kind, -1),
        )
        for k, batch in enumerate(self._batches):
            members = np.flatnonzero(place[:, 0] == k)
            self._batches[k] = batch.with_lines(
                lines.alpha_s[members],
                lines.beta_s_per_byte[members],
                lines.slope_error_s_per_byte[members],
            )

    def __getitem__(self, group: int) -> Hockney:
        """The fit of one group."""
        batch, row = self._place[group]
        return self._batches[batch][row]


def _in_bins(columns: Floats) -> Floats:
    """Neighbours averaged, so that :data:`MOST_SIZES` columns stay; lines stay lines."""
    edges = np.linspace(0, columns.shape[1], MOST_SIZES + 1).astype(np.int64)[:-1]
    counts = np.diff(np.append(edges, columns.shape[1]))
    return np.asarray(np.add.reduceat(columns, edges, axis=1) / counts)


def _flow_slopes(
    groups: Groups,
    samples: Sequence[Sample],
    points: Points,
    size: Floats,
    unit: Floats,
    kind: Integers,
) -> list[tuple[float | None, ...] | None]:
    """Of each scenario, the seconds per byte until each flow's own finish."""
    none: list[tuple[float | None, ...] | None] = [None] * len(groups.first)
    timed = [
        k
        for k, s in enumerate(samples)
        if s.flow_finish_s is not None
        and len(s.flow_finish_s) == len(s.pattern.flows)
        and not points.straggler[k]
    ]
    if not timed:
        return none
    width = np.array([len(samples[k].pattern.flows) for k in groups.first])
    begin = np.concatenate(([0], np.cumsum(width)))
    place = np.concatenate([groups.place[groups.pattern[k]] for k in timed])
    owner = np.repeat(timed, [len(samples[k].pattern.flows) for k in timed])
    finish = np.fromiter(chain.from_iterable(samples[k].flow_finish_s or () for k in timed), float)
    usable = (finish > 0) & (finish < np.inf)
    owner, place, finish = owner[usable], place[usable], finish[usable]
    if not len(finish):
        return none
    flow = begin[groups.of_sample[owner]] + place
    timed_flows, compact = np.unique(flow, return_inverse=True)
    own_kind = np.empty(len(timed_flows), dtype=np.int64)
    own_kind[compact] = kind[groups.of_sample[owner]]
    fits = _Fits(pool_repeats(compact, size[owner], _per_unit(finish, unit[owner])), own_kind)
    slopes = np.full(begin[-1], np.nan)
    slopes[timed_flows] = np.where(fits.slope > 0, fits.slope, np.nan)
    for group in np.unique(groups.of_sample[owner]).tolist():
        own_order = groups.place[groups.pattern[groups.first[group]]]
        found = slopes[begin[group] + own_order].tolist()
        none[group] = tuple(value if value == value else None for value in found)
    return none


def _left_out(
    groups: Groups, samples: Sequence[Sample], points: Points
) -> dict[int, tuple[LeftOut, ...]]:
    """Stragglers by scenario, each with its figures."""
    found: dict[int, list[LeftOut]] = {}
    for k in np.flatnonzero(points.straggler).tolist():
        point = points.of_sample[k]
        sample, siblings = samples[k], int(points.count[point])
        group = int(groups.of_sample[k])
        usual = float(points.seconds[point])
        if not sample.size_known and groups.scale[k] > 0:
            usual *= float(groups.scale[k])
        reason = (
            f"took {format_seconds(sample.seconds)} where its {siblings} siblings took "
            f"{format_seconds(usual)}"
        )
        found.setdefault(group, []).append(LeftOut(sample=sample, reason=reason))
    return {group: tuple(members) for group, members in found.items()}


def _scenarios(
    groups: Groups,
    samples: Sequence[Sample],
    patterns: Sequence[Pattern],
    kinds: Sequence[PatternKind],
    points: Points,
    fits: _Fits,
    flows: Sequence[tuple[float | None, ...] | None],
    left_out: Mapping[int, tuple[LeftOut, ...]],
) -> Iterator[Scenario]:
    sizes_bytes, scatters = points.size_bytes.tolist(), points.scatter.tolist()
    slopes, errors = fits.slope.tolist(), fits.slope_error.tolist()
    timings = np.add.reduceat(points.count, fits.begin).tolist()
    ends = np.cumsum(fits.count).tolist()
    begin = 0
    for number, end in enumerate(ends):
        first = samples[groups.first[number]]
        sizes = sizes_bytes[begin:end]
        slope, error, scatter = slopes[number], errors[number], scatters[end - 1]
        begin = end
        doubt = None
        if not sizes[-1] > 0:
            doubt = "only empty messages were measured"
        elif not slope > 0:
            doubt = "its time does not grow with the size"
        elif len(sizes) > 1 and isfinite(error) and error > MOST_ERROR * slope:
            doubt = "its time does not clearly grow with the size; measure larger messages"
        fit = fits[number]
        yield Scenario(
            pattern=patterns[number],
            kind=kinds[number],
            issue=first.issue,
            size_known=first.size_known,
            alpha_s=fit.start_s if len(sizes) > 1 or not sizes[0] > 0 else None,
            seconds_per_byte=None if doubt else slope,
            sigma=error / slope if not doubt and isfinite(scatter) and isfinite(error) else None,
            scatter=scatter if isfinite(scatter) else None,
            flow_seconds_per_byte=flows[number],
            sizes_bytes=tuple(sizes) if first.size_known else (),
            samples=timings[number],
            fit=fit,
            left_out=left_out.get(number, ()),
            doubt=doubt,
            where=first.where,
        )

"""What was measured: a pattern with its sizes and the seconds it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from topocal.measure.patterns import PatternKind, kind_of
from topocal.topo.errors import Where
from topocal.topo.flow import Pattern
from topocal.topo.topology import natural_key

__all__ = ["Measurements", "Run", "Sample"]


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One timing of one pattern.

    Attributes
    ----------
    pattern
        The flows with their sizes.
    seconds
        From the common start to the last byte's arrival.
    size_known
        False where the source gave a rate without saying at what size; the
        pattern then carries a size of our choosing, and only the ratio of
        bytes to seconds means something.
    where
        The file and line it came from.
    flow_finish_s
        From the common start to each flow's own last byte, in the order of the
        pattern's flows.
    endpoint_start_s, endpoint_end_s
        Each endpoint's own start and end, from the common start, in natural order of
        the pattern's endpoints.
    repeat, round
        Which repeat of its pattern and size it is, and in which round of the plan.
    issue
        How the messages were issued: ``"group"`` or ``"one-by-one"``.
    iterations
        How often the pattern ran back to back in what was timed; all times are those of
        the whole over this number.
    run
        Number of the run it belongs to, in :attr:`Measurements.runs`.
    set_aside
        Why it is not to be used (a warm-up, a rank that failed); such a sample is kept,
        but apart from the others.
    """

    pattern: Pattern
    seconds: float
    size_known: bool = True
    where: Where | None = None
    flow_finish_s: tuple[float, ...] | None = None
    endpoint_start_s: tuple[float, ...] | None = None
    endpoint_end_s: tuple[float, ...] | None = None
    repeat: int = 0
    round: int | None = None
    issue: str | None = None
    iterations: int = 1
    run: int | None = None
    set_aside: str | None = None

    @property
    def kind(self) -> PatternKind:
        """What the pattern is."""
        return kind_of(self.pattern)

    @property
    def name(self) -> str:
        """The pattern's notation."""
        return self.pattern.name

    @property
    def throughput_Bps(self) -> float:
        """Bytes of all flows over the seconds."""
        return self.pattern.total_bytes / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One session of measuring, in one group of processes with one set of settings.

    Attributes
    ----------
    provenance
        Where and how, by the keys of :mod:`topocal.measure.provenance`.
    source
        The file it was read from.
    """

    provenance: Mapping[str, Any]
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Samples of one machine.

    Attributes
    ----------
    samples
        In a canonical order that does not depend on the order of the input.
    sources
        What they were read from.
    set_aside
        Samples that are kept but not to be used, each with its reason; in the same order.
    runs
        Where and how they were measured, where that is known.
    """

    samples: tuple[Sample, ...]
    sources: tuple[str, ...] = ()
    set_aside: tuple[Sample, ...] = ()
    runs: tuple[Run, ...] = ()

    @classmethod
    def of(
        cls,
        samples: Iterable[Sample],
        sources: Sequence[str] = (),
        runs: Sequence[Run] = (),
    ) -> Measurements:
        """Measurements in canonical order: by number of flows, name, size, seconds, the rest."""
        ordered = _in_canonical_order(list(samples))
        return cls(
            samples=tuple(s for s in ordered if s.set_aside is None),
            sources=tuple(sources),
            set_aside=tuple(s for s in ordered if s.set_aside is not None),
            runs=tuple(runs),
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Every endpoint that some sample names, in natural order."""
        patterns = {id(s.pattern): s.pattern for s in self.samples}
        names = {n for p in patterns.values() for pair in p.pairs for n in pair}
        return tuple(sorted(names, key=natural_key))

    @property
    def pairs(self) -> tuple[Sample, ...]:
        """The samples of one flow alone."""
        return tuple(s for s in self.samples if len(s.pattern.flows) == 1)

    @property
    def concurrent(self) -> tuple[Sample, ...]:
        """The samples of several flows at once."""
        return tuple(s for s in self.samples if len(s.pattern.flows) > 1)


def _in_canonical_order(samples: list[Sample]) -> list[Sample]:
    """Sorted by everything that tells two samples apart, patterns first."""
    place = _pattern_ranks(samples)
    seconds = np.array([s.seconds for s in samples])
    order = np.lexsort((seconds, place))
    result = [samples[k] for k in order.tolist()]
    alike = (np.diff(place[order]) == 0) & (np.diff(seconds[order]) == 0)
    bounds = np.flatnonzero(np.diff(np.concatenate(([False], alike, [False])).astype(np.int8)))
    for start, end in bounds.reshape(-1, 2).tolist():
        result[start : end + 1] = sorted(result[start : end + 1], key=_detail_key)
    return result


def _pattern_ranks(samples: list[Sample]) -> NDArray[np.int64]:
    """For each sample the place of its pattern among all; equal patterns share theirs.

    Samples of a big file share their pattern objects: each is looked at once.
    """
    number: dict[int, int] = {}
    patterns: list[Pattern] = []
    of_sample = np.empty(len(samples), dtype=np.int64)
    for k, sample in enumerate(samples):
        found = number.get(id(sample.pattern))
        if found is None:
            found = number[id(sample.pattern)] = len(patterns)
            patterns.append(sample.pattern)
        of_sample[k] = found
    named = {p.name: natural_key(p.name) for p in patterns}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for k, pattern in enumerate(patterns):
        key = (len(pattern.flows), named[pattern.name], pattern.total_bytes)
        groups.setdefault(key, []).append(k)
    ranks = np.empty(len(patterns), dtype=np.int64)
    rank = 0
    for key in sorted(groups):
        members = groups[key]
        if len(members) == 1:
            ranks[members[0]] = rank
            rank += 1
            continue
        flows = [_flow_key(patterns[k]) for k in members]
        within = {value: rank + k for k, value in enumerate(sorted(set(flows)))}
        ranks[members] = [within[value] for value in flows]
        rank += len(within)
    return ranks[of_sample]


def _flow_key(pattern: Pattern) -> tuple[tuple[str, str, float, float], ...]:
    return tuple((f.source, f.destination, f.size_bytes, f.start_s) for f in pattern.flows)


def _detail_key(sample: Sample) -> tuple[Any, ...]:
    """What else may tell apart two samples of one pattern with the same seconds."""
    return (
        sample.issue or "",
        -1 if sample.round is None else sample.round,
        sample.repeat,
        sample.iterations,
        not sample.size_known,
        sample.flow_finish_s or (),
        sample.endpoint_start_s or (),
        sample.endpoint_end_s or (),
        -1 if sample.run is None else sample.run,
        sample.set_aside or "",
        str(sample.where or ""),
    )

"""Whether the machine is still what it was, and what to measure again when it is not.

Two things tell.  Now and then a few quick patterns, the reference, which have all ranks in them,
are timed.  When one takes another time than before, and not by chance, the machine has come into
another state: what was measured since the last look may be of either and is measured again.  When
it comes back to a state in which it was before, as after a rank that was slow for a while,
everything that was measured in between is measured again too.  So is, in the end, what the fewer
of all were measured in: a machine that was slow when it began, say.  What remains of several
states is told.

Where the reference is what it was, every batch since the last look is timed once more.  What was
slow for less than the time between two looks has spoiled the batch then, or this timing now, but
not both: from one to the other lies the look, which would have shown it.  A batch that takes
another time now, twice, is measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from topocal.measure.checks import apart_from, are_mixed, drifted, steady
from topocal.measure.schedule import Batch
from topocal.topo.flow import Pattern
from topocal.topo.naming import natural_key
from topocal.topo.units import format_bytes

__all__ = ["MOST_ITERATIONS", "Change", "Job", "Levels", "Reference", "looked_at_again"]

MOST_ITERATIONS: Final = 1000
"""For a message of 5 us, which no backend beats, this is as long as a timing lasts."""

_CHECKS: Final = 5
"""Five before and five now that do not overlap are chance once in 126 times; twice in a row,
once in 16,000."""

_MANY: Final = 16
"""From so many patterns on, three times in a row: one of them is chance sooner."""

_UNCOUNTED: Final = 2
_RESTLESS: Final = 3
"""So often a look is taken anew in which the machine changes."""

_REFERENCE_S: Final = 20e-3
"""The reference is measured at the smallest size that takes so long, or at the largest as often
as that takes: quick, and still more than chance."""

_KEPT: Final = 100
"""Timings of a batch, the latest, that one more is compared with."""

Timer = Callable[[Batch, Sequence[int]], list[float]]
"""Times the patterns of a batch at the same time, each run so often; their seconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """A pattern that takes another time than before.

    Attributes
    ----------
    name
        Pattern and size.
    ratio
        How many times as long.
    """

    name: str
    ratio: float


@dataclass(slots=True, eq=False)
class Job:
    """A batch, and how many of its repeats are to come.

    Attributes
    ----------
    iterations
        How often each pattern runs in one timing, once that is known.
    """

    batch: Batch
    left: int
    iterations: Sequence[int] = ()
    _recent: list[list[float]] = field(default_factory=list)

    def took(self, timings: Sequence[Sequence[float]], iterations: Sequence[int]) -> None:
        """Keep what was measured, by pattern, for a second look."""
        self.iterations = iterations
        before = self._recent or [[] for _ in timings]
        self._recent = [[*old, *new][-_KEPT:] for old, new in zip(before, timings, strict=True)]

    def recent(self) -> list[list[float]]:
        """What was measured since this was last asked, by pattern."""
        found, self._recent = self._recent, []
        return found


def looked_at_again(job: Job, seconds: Timer) -> Change | None:
    """What took another time since the last look than it takes now, twice in a row."""
    before = job.recent()
    found: list[float | None] = [None] * len(before)
    for attempt in range(2):
        if not any(before):
            return None
        now = seconds(job.batch, job.iterations)
        ratios = [apart_from(old, new) for old, new in zip(before, now, strict=True)]
        found = [
            new if attempt == 0 or (new and old and (new > 1) == (old > 1)) else None
            for new, old in zip(ratios, found, strict=True)
        ]
        if not any(found):
            return None
    return _most([_named(p) for p in job.batch.patterns], found)


def _named(pattern: Pattern) -> str:
    return f"{pattern.name} of {format_bytes(pattern.flows[0].size_bytes)}"


def _most(names: Sequence[str], ratios: Sequence[float | None]) -> Change | None:
    """The greatest of the changes that there are."""
    changes = [Change(n, r) for n, r in zip(names, ratios, strict=True) if r is not None]
    return max(changes, key=lambda c: abs(math.log(c.ratio)), default=None)


State = tuple[tuple[float, ...], ...]
"""What the patterns of the reference take, each several times."""


def _changed(before: State, now: State) -> list[float | None]:
    return [drifted(old, new) for old, new in zip(before, now, strict=True)]


class Reference:
    """Quick patterns that are timed now and then.

    Parameters
    ----------
    seconds
        Times a batch.
    due
        What will be measured; the patterns are some of these, as few as have all endpoints in
        them, and those with the fewest flows.
    """

    def __init__(self, seconds: Timer, due: Sequence[Batch]) -> None:
        self._seconds = seconds
        self._batches: list[tuple[Batch, list[int]]] = []
        for patterns in _covering(p for batch in due for p in batch.patterns):
            self._batches.append(self._sized(patterns, due))
        self._names = [_named(p) for batch, _ in self._batches for p in batch.patterns]
        self.before = self._settled()
        """What they took when the machine came into its present state."""

    def _sized(self, patterns: Sequence[Pattern], due: Sequence[Batch]) -> tuple[Batch, list[int]]:
        """Patterns at a size, and so often, that they take long enough to tell."""
        once = [1] * len(patterns)
        took = [0.0]
        for size in sorted({batch.size_bytes for batch in due}):
            scaled = tuple(p.scaled(size) for p in patterns)
            batch = Batch(due[0].round, due[0].issue, scaled, 1)
            took = [median(times) for times in self._of(batch, once)]
            if max(took) >= _REFERENCE_S:
                break
        return batch, [min(MOST_ITERATIONS, math.ceil(_REFERENCE_S / s)) for s in took]

    def _of(self, batch: Batch, iterations: Sequence[int]) -> State:
        found = [self._seconds(batch, iterations) for _ in range(_UNCOUNTED + _CHECKS)]
        return tuple(steady(times) for times in zip(*found[_UNCOUNTED:], strict=True))

    def _times(self) -> State:
        began = time.monotonic()
        found = tuple(times for batch, often in self._batches for times in self._of(batch, often))
        self.look_s = time.monotonic() - began
        """How long a look takes."""
        return found

    def _settled(self, now: State | None = None) -> State:
        """What they take when the machine does not change meanwhile, as far as it ever rests."""
        now = self._times() if now is None else now
        for _ in range(_RESTLESS):
            if not any(are_mixed(times) for times in now):
                break
            now = self._times()
        return now

    def change(self) -> Change | None:
        """What takes another time now, if that is more than chance, and lasts."""
        lasting = [True] * len(self._names)
        for _ in range(2 if len(self._names) < _MANY else 3):
            now = self._times()
            ratios = _changed(self.before, now)
            lasting = [old and new is not None for old, new in zip(lasting, ratios, strict=True)]
            if not any(lasting):
                return None
        self.before = self._settled(now)
        return _most(
            self._names, [r if old else None for r, old in zip(ratios, lasting, strict=True)]
        )


def _covering(patterns: Iterable[Pattern]) -> list[list[Pattern]]:
    """Groups of patterns without an endpoint in common, until every endpoint is in one."""
    known = {p.name: p for p in sorted(patterns, key=lambda p: (len(p.flows), natural_key(p.name)))}
    ends = {p.name: {end for pair in p.pairs for end in pair} for p in known.values()}
    missing = set().union(*ends.values())
    groups = []
    while missing:
        group: list[Pattern] = []
        taken: set[str] = set()
        for name, pattern in known.items():
            # Who is in another group already is taken along where that costs nothing.
            if ends[name] & missing and not ends[name] & taken:
                group.append(pattern)
                taken |= ends[name]
        missing -= taken
        groups.append(group)
    return groups


class Levels:
    """The states that the machine has been in, and what was measured in each.

    Parameters
    ----------
    times
        What the reference took at first.
    """

    def __init__(self, times: State) -> None:
        self._levels: list[tuple[State, list[Job]]] = [(times, [])]

    def stay(self, jobs: Iterable[Job]) -> None:
        """These were measured in the present state."""
        self._levels[-1][1].extend(jobs)

    def leave(self, times: State, since: Sequence[Job]) -> list[Job]:
        """The machine is in another state now; what to measure again.

        Parameters
        ----------
        times
            What the reference takes now.
        since
            What was measured since the last look.
        """
        for k, (before, _) in enumerate(self._levels[:-1]):
            if not any(_changed(before, times)):
                passed = [job for _, jobs in self._levels[k + 1 :] for job in jobs]
                del self._levels[k + 1 :]
                return list(dict.fromkeys([*passed, *since]))
        self._levels.append((times, []))
        return list(since)

    @property
    def is_passing(self) -> bool:
        """Whether the present state may pass: less was measured in it than in others."""
        others = {job for _, jobs in self._levels[:-1] for job in jobs}
        return len(set(self._levels[-1][1]) - others) < len(others)

    def few_of_others(self) -> list[Job]:
        """What was measured in other states than the present one, if that is the smaller part;
        from now on there is no other one."""
        present = dict.fromkeys(self._levels[-1][1])
        others = {job: None for _, jobs in self._levels[:-1] for job in jobs if job not in present}
        if len(others) > len(present):
            return []
        del self._levels[:-1]
        return list(others)

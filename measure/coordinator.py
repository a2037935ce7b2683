"""Runs plans on a group of processes: the first rank's work besides its own messages.

For each batch: one warm-up (from which follows how often a short pattern is repeated
within one timing), the repeats, more of them in place of what looks wrong; then the
timings go to the journal, and only then comes the next batch.  Many repeats are taken in
parts of a few seconds, each like a batch of its own.  Between them, now and then, looks at
reference patterns and at what was measured tell whether the machine is still what it was
(:mod:`topocal.measure.steadiness`).

How short patterns are timed
    A timing lasts :data:`SHORTEST_S` or longer: the pattern runs back to back so often,
    every rank beginning anew as soon as its own messages are done, and the time is divided
    by the number.  What is added to it once (a start that is late, the first wake-up)
    weighs little then; ranks do not run ahead of each other by more than one message, as
    none has more than one under way.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from topocal.measure.checks import doubts, is_spread
from topocal.measure.crew import Crew, WrongBytesError
from topocal.measure.journal import Journal
from topocal.measure.memory import refuse_too_much
from topocal.measure.orders import Prepare, Report
from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements, Sample
from topocal.measure.schedule import Batch, absent_patterns, batches, buffers, exchanges
from topocal.measure.steadiness import (
    MOST_ITERATIONS,
    Job,
    Levels,
    Reference,
    looked_at_again,
)
from topocal.topo.errors import InputError
from topocal.topo.flow import Pattern
from topocal.topo.naming import natural_key
from topocal.topo.units import format_bytes

__all__ = ["SHORTEST_S", "TIMEOUT_S", "Coordinator", "Settings"]

SHORTEST_S: Final = 5e-3
"""Starts of ranks on one host lie 0.1 to 0.5 ms apart; of this that is a tenth at most."""

TIMEOUT_S: Final = 60.0
"""A rank that sets up a backend's connections to many others takes seconds; nothing that is well
takes a minute."""

_JOINING: Final = 5
"""Of such waits five minutes, as torch.distributed takes them for enough, unless told."""

_SLOWEST_BPS: Final = 10e6
"""What passes less than Fast Ethernet (100 Mbit/s, 12.5 MB/s) is taken for stuck."""

_THINK_S: Final = 3600.0
"""How long ranks wait between plans, while the first one fits, designs and prepares."""

_CHECK_EVERY_S: Final = 20.0
_CHECK_SHARE: Final = 0.05
"""Looks at the reference come so often that they take this part of the time, at least."""

_LAST_LOOKS: Final = 10
"""So often, or for that part of the time, a machine that has changed is looked at in the end."""

_PART_S: Final = 2.0
_PART_REPEATS: Final = 5
_PART_VALUES: Final = 100_000
"""A part of a batch ends after so long, or with so many times of flows to write, but has enough
repeats to tell which ones stand apart."""

_FEWEST_AGAIN: Final = 10
"""So many batches may be measured again, or as many as there are: what changes more often is
taken as it is, and that is told."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a plan is run.

    Attributes
    ----------
    issues
        How messages are handed over: ``group``, ``one-by-one``, or both in turn.
    verify
        Whether every payload is read back and compared.
    shortest_s
        What a timing lasts at least.
    timeout_s
        How long a rank may take for anything besides moving bytes.
    check_every_s
        How often the reference pattern is measured, at least.
    """

    issues: tuple[str, ...] = ("group",)
    verify: bool = True
    shortest_s: float = SHORTEST_S
    timeout_s: float = TIMEOUT_S
    check_every_s: float = _CHECK_EVERY_S

    @property
    def join_s(self) -> float:
        """How long ranks may take to find each other: a large job starts them over minutes."""
        return _JOINING * self.timeout_s


class Coordinator:
    """A group of processes as a :class:`~topocal.measure.machine.Machine`.

    Parameters
    ----------
    crew
        All ranks; this process is the first.
    settings
        How plans are run.
    journal
        Where timings go; its session has begun.
    advance
        Called with the number of batches that are done, in parts too, and of those to do.
    tell
        Called with sentences for the user.
    """

    def __init__(
        self,
        crew: Crew,
        *,
        settings: Settings,
        journal: Journal,
        advance: Callable[[float, int], None] = lambda done, total: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._crew, self._settings, self._journal = crew, settings, journal
        self._advance, self._tell = advance, tell
        self._rank_of = {name: rank for rank, name in enumerate(crew.names)}
        self._began = time.monotonic()
        self._step = -1

    def run(self, plan: Plan) -> Measurements:
        """Time every pattern of the plan, but for what the journal has of it.

        Raises
        ------
        MeasurementError
            When a rank dies, hangs, or gets other bytes than were sent; what was measured
            before is in the journal.
        InputError
            When there is not enough memory, or the journal cannot be written.
        """
        self._step += 1
        present = self._crew.names
        absent = absent_patterns(plan, present)
        if len(absent) == len(plan.patterns):
            raise InputError(
                "no pattern of the plan has all its endpoints in the group",
                remedy="make a plan for these endpoints (topocal plan --endpoints)",
            )
        if absent:
            self._note(
                f"left out {len(absent)} patterns of endpoints that are not in the group, "
                f"such as {absent[0]}"
            )
        measured = self._journal.measured(self._step)
        left = self._journal.left(self._step)
        due = list(batches(plan, self._settings.issues, present, measured, left))
        if due:
            self._crew.wait(_THINK_S)
            self._prepare(plan)
            self._crew.set_clocks()
            self._measure_all(plan, due)
        self._crew.wait(_THINK_S)
        return self._journal.measurements(self._step)

    def _note(self, text: str) -> None:
        self._journal.remark(text)
        self._tell(text)

    def _prepare(self, plan: Plan) -> None:
        """Buffers everywhere, after a look at what is free."""
        counts = buffers(plan, self._crew.names)
        each = int(plan.sizes_bytes[-1])
        needs = {self._rank_of[name]: (s + r) * each for name, (s, r) in counts.items()}
        refuse_too_much(needs, self._crew.survey(), self._crew.names)
        most = max(needs, key=lambda rank: needs[rank])
        self._tell(
            f"buffers: {format_bytes(needs[most])} on {self._crew.name(most)}, "
            f"{format_bytes(sum(needs.values()))} in all"
        )
        self._crew.prepare(
            {
                self._rank_of[name]: Prepare(sends=s, receives=r, bytes_each=each)
                for name, (s, r) in counts.items()
            }
        )
        if self._step == 0:
            rates = self._crew.copy()
            self._journal.copies({self._crew.names[r]: rate for r, rate in rates.items()})

    def _measure_all(self, plan: Plan, due: Sequence[Batch]) -> None:
        reference = Reference(self._seconds, due)
        levels = Levels(reference.before)
        waiting = deque(Job(batch, batch.repeats) for batch in due)
        since: dict[Job, None] = {}
        budget, finished = max(_FEWEST_AGAIN, len(due)), 0.0
        checked = time.monotonic()
        while waiting:
            job = waiting[0]
            self._measure(plan, job)
            since[job] = None
            if not job.left:
                waiting.popleft()
            finished = max(finished, len(due) - sum(j.left / j.batch.repeats for j in waiting))
            self._advance(finished, len(due))
            every_s = min(self._settings.check_every_s, reference.look_s / _CHECK_SHARE)
            if waiting and time.monotonic() - checked < every_s:
                continue
            change = reference.change()
            if change is not None:
                what = f"{change.name} took {change.ratio:.3g} times as long"
                again = dict.fromkeys(
                    levels.leave(reference.before, list(since)),
                    f"the reference took {change.ratio:.3g} times as long afterwards",
                )
                what += f" after round {job.batch.round}"
            else:
                what, again = self._look_again(since)
                levels.stay(j for j in since if j not in again)
                if not waiting and not again and levels.is_passing:
                    what, again = self._come_back(reference, levels)
                elif not waiting and not again:
                    what = "the reference took another time when few of the rounds were measured"
                    again = dict.fromkeys(
                        levels.few_of_others(), "the reference took another time then"
                    )
            if again:
                budget -= len(again)
                self._tell_of_change(what, again, taken=budget < 0)
                if budget >= 0:
                    self._set_aside(plan, again)
                    waiting = deque([*again, *(j for j in waiting if j not in again)])
            since, checked = {}, time.monotonic()

    def _come_back(self, reference: Reference, levels: Levels) -> tuple[str, dict[Job, str]]:
        """Wait a moment for the state that most was measured in; what to measure again then."""
        patience_s = _CHECK_SHARE * (time.monotonic() - self._began)
        until = time.monotonic() + patience_s
        for look in itertools.count():
            if look >= _LAST_LOOKS and time.monotonic() > until:
                break
            change = reference.change()
            again = [] if change is None else levels.leave(reference.before, [])
            if change is not None and again:
                what = f"{change.name} took {change.ratio:.3g} times as long in the end"
                return what, dict.fromkeys(again, "the reference took another time then")
        return "", {}

    def _seconds(self, batch: Batch, iterations: Sequence[int]) -> list[float]:
        """What the patterns of a batch take, which goes into no journal."""
        limit = self._limit(batch.patterns, iterations)
        self._crew.wait(2 * (limit + self._settings.timeout_s))
        return [s.seconds for s in self.time(batch, batch.patterns, iterations, [])]

    def _look_again(self, jobs: Iterable[Job]) -> tuple[str, dict[Job, str]]:
        """What does not take as long as when it was measured, each with what to say of it."""
        what, again = "", {}
        for job in jobs:
            change = looked_at_again(job, self._seconds)
            if change is not None:
                words = f"took {change.ratio:.3g} times as long when it was looked at again"
                what = what or f"{change.name} {words}"
                again[job] = f"it, or what ran beside it, {words}"
        return what, again

    def _tell_of_change(self, what: str, again: Iterable[Job], *, taken: bool) -> None:
        numbers = sorted({job.batch.round for job in again})
        self._note(
            f"drift: {what}; the machine keeps changing, and is taken as it is"
            if taken
            else f"drift: {what}; measured again: rounds {numbers[0]} to {numbers[-1]}"
        )

    def _set_aside(self, plan: Plan, jobs: Mapping[Job, str]) -> None:
        """What was measured of them is not to be used: they begin anew."""
        for job, reason in jobs.items():
            self._journal.set_aside(
                self._step,
                job.batch.round,
                [p.name for p in job.batch.patterns],
                job.batch.size_bytes,
                job.batch.issue,
                reason,
            )
            job.batch = replace(job.batch, repeats=plan.repeats)
            job.left = plan.repeats
            job.recent()

    def _measure(self, plan: Plan, job: Job) -> None:
        """A batch, or a part of it, and its line in the journal."""
        batch = job.batch
        # From an order to the next one there is one timing, and what is said about it.
        limit = self._limit(batch.patterns, [1] * len(batch.patterns))
        self._crew.wait(2 * (limit + self._settings.timeout_s))
        samples: list[Sample] = []
        done = 0
        try:
            iterations = self._warm_up(plan, job, samples)
            done = self._repeat(plan, job, iterations, samples)
        except BaseException:
            # Too few repeats are not to pass for enough when measuring goes on.
            samples[:] = [
                s if s.set_aside else _aside(s, "its repeats were cut off") for s in samples
            ]
            raise
        finally:
            job.left -= done
            self._write(job, samples)

    def _write(self, job: Job, samples: Sequence[Sample]) -> None:
        if samples:
            after_s = time.monotonic() - self._began
            self._journal.add(self._step, job.batch.round, samples, after_s=after_s, left=job.left)

    def _warm_up(self, plan: Plan, job: Job, samples: list[Sample]) -> list[int]:
        """Runs that do not count; how often each pattern has to run in one timing."""
        batch = job.batch
        iterations = [1] * len(batch.patterns)
        part = _Part()
        for _ in range(max(1, plan.warm_ups)):
            found = self.time(batch, batch.patterns, iterations, samples)
            samples += (_aside(s, "warm-up") for s in found)
            if part.is_full(samples):
                self._write(job, samples)
                samples.clear()
                part = _Part()
        for _ in range(2):  # The first run may be slow, and tells too few.
            wanted = [
                min(MOST_ITERATIONS, math.ceil(self._settings.shortest_s / s.seconds))
                for s in found
            ]
            if all(w <= 1.5 * k for w, k in zip(wanted, iterations, strict=True)):
                break
            iterations = [max(w, k) for w, k in zip(wanted, iterations, strict=True)]
            found = self.time(batch, batch.patterns, iterations, samples)
            samples += (_aside(s, "warm-up") for s in found)
        return iterations

    def _repeat(
        self, plan: Plan, job: Job, iterations: Sequence[int], samples: list[Sample]
    ) -> int:
        """Repeats, all that are left or a part of them, and more in place of doubtful ones.

        All go to ``samples``; returns how many there were to be.
        """
        batch, first = job.batch, plan.repeats - job.left
        timed: list[list[Sample]] = [[] for _ in batch.patterns]
        part, done = _Part(), 0
        try:
            while done < job.left:
                found = self.time(batch, batch.patterns, iterations, samples)
                done += 1
                for ours, sample in zip(timed, found, strict=True):
                    ours.append(msgspec.structs.replace(sample, repeat=first + len(ours)))
                # Neither this part nor the next is to have too few.
                enough = min(done, job.left - done) >= _PART_REPEATS
                if enough and part.is_full(s for ours in timed for s in ours):
                    break
            for _ in range(done):
                again = [k for k, ours in enumerate(timed) if len(ours) - len(doubts(ours)) < done]
                if not again:
                    break
                patterns = [batch.patterns[k] for k in again]
                found = self.time(batch, patterns, [iterations[k] for k in again], samples)
                for k, sample in zip(again, found, strict=True):
                    ours = timed[k]
                    ours.append(msgspec.structs.replace(sample, repeat=first + len(ours)))
        finally:
            good: list[list[float]] = []
            for ours in timed:
                wrong = doubts(ours)
                if is_spread(len(wrong), len(ours)):
                    wrong = {}
                samples += (
                    _aside(s, f"measured again: {wrong[k]}") if k in wrong else s
                    for k, s in enumerate(ours)
                )
                good.append([s.seconds for k, s in enumerate(ours) if k not in wrong])
            job.took(good, iterations)
        return done

    def _limit(self, patterns: Sequence[Pattern], iterations: Sequence[int]) -> float:
        """How long a timing may take before somebody counts as stuck."""
        most = 0.0
        for pattern, times in zip(patterns, iterations, strict=True):
            total: dict[str, float] = {}
            for flow in pattern.flows:
                for end in (flow.source, flow.destination):
                    total[end] = total.get(end, 0.0) + times * flow.size_bytes
            most = max(most, *total.values())
        return self._settings.timeout_s + most / _SLOWEST_BPS

    def time(
        self,
        batch: Batch,
        patterns: Sequence[Pattern],
        iterations: Sequence[int],
        failed: list[Sample],
    ) -> list[Sample]:
        """One timing of patterns at the same time; what went wrong goes to ``failed`` too."""
        orders = exchanges(
            patterns,
            self._rank_of,
            issue=batch.issue,
            iterations=iterations,
            verify=self._settings.verify,
            limit_s=self._limit(patterns, iterations),
        )
        try:
            reports = self._crew.exchange(orders)
        except WrongBytesError as error:
            failed += (
                Sample(
                    pattern=p,
                    seconds=0.0,
                    issue=batch.issue,
                    round=batch.round,
                    set_aside=error.what,
                )
                for p in patterns
            )
            raise
        links = {self._crew.names[r]: x.link for r, x in reports.items() if x.link}
        if links and batch.size_bytes >= 1 << 20:
            self._journal.links(links)
        flow = 0
        found = []
        for pattern, times in zip(patterns, iterations, strict=True):
            found.append(self._sample(batch, pattern, times, orders, reports, flow))
            flow += len(pattern.flows)
        return found

    def _sample(
        self,
        batch: Batch,
        pattern: Pattern,
        iterations: int,
        orders: Mapping[int, Any],
        reports: Mapping[int, Report],
        first_flow: int,
    ) -> Sample:
        names = sorted({end for pair in pattern.pairs for end in pair}, key=natural_key)
        ours = [reports[self._rank_of[name]] for name in names]
        start = min(r.start for r in ours)
        arrival: dict[int, float] = {}
        for name in names:
            rank = self._rank_of[name]
            for message, at in zip(orders[rank].receives, reports[rank].finish, strict=True):
                arrival[message.flow] = at
        flows = range(first_flow, first_flow + len(pattern.flows))
        return Sample(
            pattern=pattern,
            seconds=(max(r.end for r in ours) - start) / iterations,
            flow_finish_s=tuple(max(arrival[k] - start, 0.0) / iterations for k in flows),
            endpoint_start_s=tuple((r.start - start) / iterations for r in ours),
            endpoint_end_s=tuple((r.end - start) / iterations for r in ours),
            round=batch.round,
            issue=batch.issue,
            iterations=iterations,
        )


class _Part:
    """What is taken between two lines of the journal."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _PART_S

    def is_full(self, samples: Iterable[Sample]) -> bool:
        """Whether it is time to write."""
        if time.monotonic() > self._until:
            return True
        return sum(len(s.pattern.flows) for s in samples) > _PART_VALUES


def _aside(sample: Sample, reason: str) -> Sample:
    return msgspec.structs.replace(sample, set_aside=reason)

"""Whether the machine is still what it was, and what to measure again when it is not.

A quick pattern, the reference, is measured now and then.  When it takes another time than
before, and not by chance, the machine has come into another state: what was measured since
the last look may be of either and is measured again.  When it comes back to a state in which
it was before, as after a rank that was slow for a while, everything that was measured in
between is measured again too.  So is, in the end, what the fewer of all were measured in: a
machine that was slow when it began, say.  What remains of several states is told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from topocal.measure.checks import drifted
from topocal.measure.schedule import Batch
from topocal.topo.naming import natural_key
from topocal.topo.units import format_bytes

__all__ = ["MOST_ITERATIONS", "Job", "Levels", "Reference"]

MOST_ITERATIONS: Final = 1000
"""For a message of 5 us, which no backend beats, this is as long as a timing lasts."""

_CHECKS: Final = 5
"""Five before and five now that do not overlap are chance once in 126 times; twice in a row,
once in 16,000."""

_UNCOUNTED: Final = 2
_REFERENCE_S: Final = 20e-3
"""The reference is measured at the smallest size that takes so long, or at the largest as often
as that takes: quick, and still more than chance."""


@dataclass(slots=True, eq=False)
class Job:
    """A batch, and how many of its repeats are to come."""

    batch: Batch
    left: int


class Reference:
    """A quick pattern that is measured now and then.

    Parameters
    ----------
    seconds
        Times a batch of one pattern that runs so often.
    due
        What will be measured; the pattern is one of these.
    """

    def __init__(self, seconds: Callable[[Batch, int], float], due: Sequence[Batch]) -> None:
        self._seconds = seconds
        pattern = min(
            (p for batch in due for p in batch.patterns),
            key=lambda p: (len(p.flows), natural_key(p.name)),
        )
        took = 0.0
        for size in sorted({batch.size_bytes for batch in due}):
            self._batch = Batch(due[0].round, due[0].issue, (pattern.scaled(size),), 1)
            self._iterations = 1
            took = median(self._times())
            if took >= _REFERENCE_S:
                break
        self._iterations = min(MOST_ITERATIONS, math.ceil(_REFERENCE_S / took))
        self.before = self._times()
        """What it took when the machine came into its present state."""

    @property
    def name(self) -> str:
        """Pattern and size."""
        return f"{self._batch.patterns[0].name} of {format_bytes(self._batch.size_bytes)}"

    def _times(self) -> list[float]:
        began = time.monotonic()
        found = [self._seconds(self._batch, self._iterations) for _ in range(_UNCOUNTED + _CHECKS)]
        self.look_s = time.monotonic() - began
        """How long a look takes."""
        return found[_UNCOUNTED:]

    def change(self) -> float | None:
        """How many times as long it takes now, if that is more than chance, and lasts."""
        for _ in range(2):
            now = self._times()
            ratio = drifted(self.before, now)
            if ratio is None:
                return None
        self.before = now
        return ratio


class Levels:
    """The states that the machine has been in, and what was measured in each.

    Parameters
    ----------
    times
        What the reference took at first.
    """

    def __init__(self, times: Sequence[float]) -> None:
        self._levels: list[tuple[Sequence[float], list[Job]]] = [(times, [])]

    def stay(self, jobs: Iterable[Job]) -> None:
        """These were measured in the present state."""
        self._levels[-1][1].extend(jobs)

    def leave(self, times: Sequence[float], since: Sequence[Job]) -> list[Job]:
        """The machine is in another state now; what to measure again.

        Parameters
        ----------
        times
            What the reference takes now.
        since
            What was measured since the last look.
        """
        for k, (before, _) in enumerate(self._levels[:-1]):
            if drifted(before, times) is None:
                passed = [job for _, jobs in self._levels[k + 1 :] for job in jobs]
                del self._levels[k + 1 :]
                return list(dict.fromkeys([*passed, *since]))
        self._levels.append((times, []))
        return list(since)

    def few_of_others(self) -> list[Job]:
        """What was measured in other states than the present one, if that is the smaller part;
        from now on there is no other one."""
        present = dict.fromkeys(self._levels[-1][1])
        others = {job: None for _, jobs in self._levels[:-1] for job in jobs if job not in present}
        if len(others) > len(present):
            return []
        del self._levels[:-1]
        return list(others)

"""Which patterns may run at the same time.

Patterns share a round when they have no endpoint in common and, on every resource
that more than one of them loads, their utilisations add up to no more than
:data:`MOST_UTILISATION`.  A pattern's utilisation of a resource is the part of the
pattern's own time for which it keeps the resource busy.  Where the sum stays below
one, max-min fair sharing gives every flow the rate it has in its own pattern; the
rest is room for capacities below their nominal value (measured by fluid simulation:
a slowdown of 0.6 % at most).

Only nominal capacities count, never fitted or assumed ones, which may be far off: a
resource of unknown nominal capacity is loaded by one pattern of a round only, and so
is a time-shared one, which cannot be shared without waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure.crossings import FATPIPE, TIME_SHARED

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings

__all__ = ["MOST_UTILISATION", "Packing", "pack", "utilisation"]

MOST_UTILISATION: Final = 0.7


def utilisation(
    crossings: Crossings, rows: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Classes that a pattern loads and can disturb others on, and its utilisation of each.

    Infinite where the class is time-shared or its nominal capacity is unknown.
    """
    c = crossings
    spans = [slice(c.indptr[p], c.indptr[p + 1]) for p in rows]
    column = np.concatenate([c.indices[span] for span in spans])
    nominal = np.concatenate([c.nominal_s[span] for span in spans])
    classes, at = np.unique(column, return_inverse=True)
    law = c.law[classes]
    longest = np.zeros(len(classes))
    np.fmax.at(longest, at, nominal)
    busy = np.where(law == FATPIPE, longest, np.bincount(at, weights=nominal))
    # What is unknown only makes the pattern slower than the known part says.
    timed = law == TIME_SHARED
    whole = float(np.nanmax(busy[~timed], initial=0.0))
    share = busy / whole if whole > 0 else np.full(len(classes), np.inf)
    share[np.isnan(busy) | timed] = np.inf
    shared = law != FATPIPE
    return classes[shared].astype(np.int32), share[shared]


class Packing:
    """Rounds in the making.

    Parameters
    ----------
    crossings
        Who crosses what.
    patterns
        Rows of each pattern.
    seconds
        Expected time of each.
    """

    def __init__(
        self,
        crossings: Crossings,
        patterns: Sequence[Sequence[int]],
        seconds: Sequence[float],
    ) -> None:
        self._crossings = crossings
        self._patterns = patterns
        self._seconds = seconds
        self._rounds: list[list[int]] = []
        # Per round: how long it takes, utilisation of each class (zero where nothing loads it),
        # and who takes part.
        self._longest = np.zeros(0)
        self._total = np.zeros((0, crossings.classes))
        self._taken = np.zeros((0, len(crossings.endpoints)), dtype=np.bool_)

    @property
    def rounds(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the patterns in each round, ascending."""
        return tuple(tuple(sorted(members)) for members in self._rounds)

    def add(self, number: int, *, only_for_free: bool = False) -> bool:
        """Put a pattern into the first round that has room, else into a new one.

        Parameters
        ----------
        only_for_free
            Whether to leave it out where that would take more time.
        """
        c = self._crossings
        rows = np.asarray(self._patterns[number])
        seconds = self._seconds[number]
        classes, share = utilisation(c, self._patterns[number])
        ends = np.unique(np.concatenate((c.source[rows], c.destination[rows])))
        count = len(self._rounds)
        free = ~self._taken[:count, ends].any(axis=1)
        here = self._total[:count, classes]
        free &= ((here == 0) | (here + share <= MOST_UTILISATION)).all(axis=1)
        if only_for_free:
            free &= seconds <= self._longest[:count]
        if free.any():
            at = int(np.argmax(free))
        elif only_for_free:
            return False
        else:
            at = count
            self._open()
        self._rounds[at].append(number)
        self._longest[at] = max(self._longest[at], seconds)
        self._total[at, classes] += share
        self._taken[at, ends] = True
        return True

    def _open(self) -> None:
        """Another round, with room for as many again."""
        self._rounds.append([])
        if len(self._rounds) > len(self._longest):
            more = max(8, len(self._longest))
            self._longest = np.pad(self._longest, (0, more))
            self._total = np.pad(self._total, ((0, more), (0, 0)))
            self._taken = np.pad(self._taken, ((0, more), (0, 0)))


def pack(
    crossings: Crossings,
    patterns: Sequence[Sequence[int]],
    seconds: Sequence[float],
    *,
    chosen: Iterable[int] | None = None,
    if_free: Iterable[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """Patterns in rounds, the longest first, each into the first round that has room.

    Parameters
    ----------
    patterns
        Rows of each pattern.
    seconds
        Expected time of each.
    chosen
        Numbers of those to pack; all unless told.
    if_free
        Numbers of others, that are added where they take no more time.

    Returns
    -------
    Numbers of the patterns in each round, ascending.
    """
    packing = Packing(crossings, patterns, seconds)
    wanted = range(len(patterns)) if chosen is None else chosen
    for k in sorted(wanted, key=lambda k: (-seconds[k], k)):
        packing.add(k)
    for k in if_free:
        packing.add(k, only_for_free=True)
    return packing.rounds

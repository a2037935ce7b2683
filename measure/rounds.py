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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure.crossings import FATPIPE, TIME_SHARED

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings

__all__ = ["MOST_UTILISATION", "pack", "utilisation"]

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


def pack(
    crossings: Crossings, patterns: Sequence[Sequence[int]], seconds: Sequence[float]
) -> tuple[tuple[int, ...], ...]:
    """Patterns in rounds, the longest first, each into the first round that has room.

    Parameters
    ----------
    patterns
        Rows of each pattern.
    seconds
        Expected time of each.

    Returns
    -------
    Numbers of the patterns in each round, ascending.
    """
    c = crossings
    order = sorted(range(len(patterns)), key=lambda k: (-seconds[k], k))
    rounds: list[list[int]] = []
    # Per round: utilisation of each class so far, zero where nothing loads it; who takes part.
    total = np.zeros((0, c.classes))
    taken = np.zeros((0, len(c.endpoints)), dtype=np.bool_)
    for k in order:
        rows = np.asarray(patterns[k])
        classes, share = utilisation(c, patterns[k])
        ends = np.unique(np.concatenate((c.source[rows], c.destination[rows])))
        free = ~taken[: len(rounds), ends].any(axis=1)
        here = total[: len(rounds), classes]
        free &= ((here == 0) | (here + share <= MOST_UTILISATION)).all(axis=1)
        at = int(np.argmax(free)) if free.any() else len(rounds)
        if at == len(rounds):
            rounds.append([])
            if at == len(total):
                more = max(8, len(total))
                total = np.concatenate((total, np.zeros((more, c.classes))))
                taken = np.concatenate((taken, np.zeros((more, len(c.endpoints)), dtype=np.bool_)))
        rounds[at].append(k)
        total[at, classes] += share
        taken[at, ends] = True
    return tuple(tuple(sorted(members)) for members in rounds)

"""Patterns about what no topology says.

sharing
    Whether an endpoint serves the flows of a fan at once or one after another: by turns a
    fan takes the sum of what its flows take alone, by capacities the time of its busiest
    resource, which may be one that no topology shows.  Two fans at each end tell.  That of
    the two fastest partners says how slow such a hidden capacity can be: if they take turns,
    it looks as if it took half of their times alone per flow.  The second is the set that
    maximises the time by turns over the time by capacities, that one included.  Where all
    partners are equally fast no set tells, and there is no second fan.
alone
    What one flow reaches.  Some machines give a lone flow less than they give several
    flows together, which no sum of loads explains.

Whether both directions of a connection are independent is the third such thing
(:mod:`topocal.measure.opposed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure import design_kernel
from topocal.measure.pinning import SLACK

if TYPE_CHECKING:
    from topocal.measure.pinning import Search

__all__ = ["TELLS", "Alone", "Contrast", "contrasts", "lone_flows"]

TELLS: Final = 1.1
"""A second fan must differ by 10 % between taking turns and sharing: twice what two figures of
5 % noise and twenty repeats differ by in one of a thousand cases, and what two senders make
that are 10 % slower than the two fastest."""

_WIDEST: Final = 8

_EACH_SENDS: Final = 16
"""Up to so many endpoints each one sends alone on each side of its socket; of more, each is at
one end of a lone flow there."""

_SENDING_BY_TURNS: Final = 4
"""Of more endpoints than that, every so manieth gets the second fan out: receivers that serve
one flow at a time are published, senders that do are not."""

_AS_FAST: Final = 1.05
"""A fan of partners within 5 % of the two fastest bounds a hidden capacity as well as theirs."""

_SAME: Final = 1e-9

Ints = NDArray[np.int32]
Rows = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contrast:
    """A fan at an endpoint, and how much longer it takes by turns than by capacities.

    The fan of the fastest two has no ratio: it is what others are compared with.
    """

    endpoint: int
    receives: bool
    rows: tuple[int, ...]
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Alone:
    """One flow, from inside a socket or out of it."""

    row: int
    is_far: bool


def contrasts(
    search: Search, endpoints: Iterable[int], measured: Iterable[Rows] = ()
) -> Iterator[Contrast]:
    """One or two fans into each endpoint, and out of it.

    Parameters
    ----------
    measured
        Patterns that need not be repeated: where a fan is among them there is no fan of the
        fastest two, and where one of them tells there is no second.
    """
    c = search.crossings
    done = _fans(search, measured)
    for endpoint in endpoints:
        for receives in (True, False):
            rows = c.receiving(endpoint) if receives else c.sending(endpoint)
            if len(rows) < 2:
                continue
            known = done.get((endpoint, receives), [])
            first = _fastest_two(search, rows)
            hidden = float(c.solo_s[list(first)].mean())
            bounded = any(float(c.solo_s[list(f)].mean()) <= hidden * _AS_FAST for f in known)
            if not known:
                search.take(first)
                yield Contrast(endpoint, receives, first, None)
            if len(c.endpoints) > _EACH_SENDS and not receives and endpoint % _SENDING_BY_TURNS:
                continue
            told = any(_ratio(search, fan, hidden) >= TELLS for fan in known)
            if told and bounded:
                continue
            second, ratio = _most_telling(search, rows, first[0], hidden)
            if ratio < TELLS:
                continue
            if known and not bounded:
                # What is known bounds a hidden capacity too loosely to be told from turns.
                search.take(first)
                yield Contrast(endpoint, receives, first, None)
            if not told:
                search.take(second)
                yield Contrast(endpoint, receives, second, ratio)


def _fans(search: Search, patterns: Iterable[Rows]) -> dict[tuple[int, bool], list[Rows]]:
    """The fans among patterns, by their root and whether it receives."""
    c = search.crossings
    found: dict[tuple[int, bool], list[Rows]] = defaultdict(list)
    for rows in patterns:
        if len(rows) < 2:
            continue
        for receives, ends in ((True, c.destination), (False, c.source)):
            roots = {int(ends[p]) for p in rows}
            if len(roots) == 1:
                found[roots.pop(), receives].append(rows)
    return found


def _ratio(search: Search, rows: Rows, hidden: float) -> float:
    """Time by turns over time by capacities, one that is hidden included."""
    c = search.crossings
    solo = [float(c.solo_s[p]) for p in rows]
    longest = max(*solo, search.capacity_s(rows), len(rows) * hidden)
    return sum(solo) / longest if longest > 0 else 0.0


def _fastest_two(search: Search, rows: Ints) -> tuple[int, int]:
    c = search.crossings
    solo = c.solo_s[rows]
    order = np.sort(solo)
    price = search.price(rows)
    fastest = np.flatnonzero(solo <= order[0] * (1 + SLACK))
    first = int(rows[fastest[np.argmin(price[fastest])]])
    rest = rows[(solo <= order[1] * (1 + SLACK)) & (rows != first)]
    second = design_kernel.second_of_two(
        first,
        rest,
        search.clear,
        SLACK,
        c.indptr,
        c.indices,
        c.cost_s,
        c.law,
        c.source,
        c.destination,
        search.used,
        search.load,
        search.count,
    )
    return first, int(second)


def _most_telling(search: Search, rows: Ints, fastest: int, hidden: float) -> tuple[Rows, float]:
    """The set that tells most, and its ratio."""
    c = search.crossings
    solo = c.solo_s[rows]
    slowest = rows[solo >= solo.max() * (1 - SLACK)]
    chosen = np.empty(_WIDEST, dtype=np.int32)
    best: Rows = ()
    best_ratio = 0.0
    for first in (fastest, int(slowest[np.argmin(search.price(slowest))])):
        n, ratio = design_kernel.grow_contrast(
            first,
            rows,
            _WIDEST,
            hidden,
            SLACK,
            c.indptr,
            c.indices,
            c.cost_s,
            c.law,
            c.solo_s,
            c.source,
            c.destination,
            search.used,
            search.load,
            search.count,
            chosen,
        )
        if ratio > best_ratio * (1 + _SAME):
            best, best_ratio = tuple(chosen[:n].tolist()), float(ratio)
    return best, best_ratio


def lone_flows(
    search: Search, wanted: Iterable[int] = (), measured: Iterable[int] = ()
) -> Iterator[Alone]:
    """Flows alone, inside each endpoint's socket and out of it.

    Parameters
    ----------
    wanted
        Flows that are measured alone anyway, and preferred.
    measured
        Flows that were, and count.
    """
    c = search.crossings
    n = len(c.endpoints)
    preferred = np.zeros(c.pairs, dtype=np.bool_)
    preferred[list(wanted)] = True
    done = np.array(list(measured), dtype=np.int32)
    for is_far in (False, True):
        here = done[c.is_far[done] == is_far]
        sends = np.bincount(c.source[here], minlength=n)
        receives = np.bincount(c.destination[here], minlength=n)
        for endpoint in range(n):
            if sends[endpoint] or (n > _EACH_SENDS and receives[endpoint]):
                continue
            rows = c.sending(endpoint)
            rows = rows[c.is_far[rows] == is_far]
            if not len(rows):
                continue
            to = c.destination[rows]
            met = receives[to] if n <= _EACH_SENDS else receives[to] + sends[to]
            row = int(rows[np.lexsort((search.price(rows), met, ~preferred[rows]))[0]])
            sends[endpoint] += 1
            receives[c.destination[row]] += 1
            search.take((row,))
            yield Alone(row, is_far)

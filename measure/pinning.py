"""For one resource, the pattern in which it is the clear bottleneck.

Only flows that cross it can help, since any other only keeps something else busy.
The simplest kind that does is taken: one flow, two that oppose each other, the
narrowest fan, a ring, else a bundle of flows that share no endpoint, else any flows.
Within a kind flows are added greedily, each the one that puts the resource furthest
ahead of everything else.  Where few pairs cross the resource, all their subsets are
tried; where the greedy choice falls short of what a linear program says is possible,
its solution is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure import design_kernel
from topocal.measure.ceilings import Fractional, best_subset, fractional
from topocal.measure.crossings import FATPIPE

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings

__all__ = ["SLACK", "Found", "Search", "Weights"]

_MOST_CANDIDATES: Final = 4096
"""Of more pairs that cross a resource, a well-spread choice of so many is considered."""

_MOST_FLOWS: Final = 512
_FAN_WIDTH: Final = 8
_ROOTS: Final = 4
"""Roots tried for a fan where many could be one."""

_PATIENCE: Final = 8
"""Flows added without a better ratio before the greedy choice gives up."""

SLACK: Final = 0.1
"""Flows that do equally well but for this share are exchanged for those that cross less and
whose endpoints are used less: nominal capacities are no better than that."""

_WORTH: Final = 1.001
"""A pattern of a less simple kind must be better by so much."""

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern and how far one class is ahead of all others in it (infinite: it is alone)."""

    rows: tuple[int, ...]
    ratio: float


@dataclass(frozen=True, eq=False)
class Weights:
    """Busy seconds per byte in patterns, one row each.

    Attributes
    ----------
    busiest, runner_up
        The busiest class and the next, -1 where there is none.
    busy_s, next_s
        What they take.
    """

    busiest: Ints
    runner_up: Ints
    busy_s: NDArray[np.float64]
    next_s: NDArray[np.float64]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """How far the busiest is ahead of the next; infinite where nothing else is busy."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.busy_s / self.next_s
        return np.where(self.next_s > 0, ratio, np.where(self.busy_s > 0, math.inf, 0.0))


class Search:
    """Finds patterns on one machine, and remembers which endpoints they use.

    Parameters
    ----------
    crossings
        Who crosses what.
    clear
        Ratio from which a bottleneck is clear.
    """

    def __init__(self, crossings: Crossings, *, clear: float) -> None:
        self.crossings = crossings
        self.clear = clear
        n, K = len(crossings.endpoints), crossings.classes
        self.used = np.zeros(n, dtype=np.int64)
        """How often each endpoint is used by the patterns chosen so far."""
        self.load = np.zeros(K)
        self.count = np.zeros(K, dtype=np.int32)
        self._taken = np.zeros(n, dtype=np.bool_)
        self._fractional: dict[int, Fractional | None] = {}
        self._chosen = np.empty(_MOST_FLOWS, dtype=np.int32)

    def take(self, rows: Sequence[int]) -> None:
        """Note that a pattern was chosen."""
        for p in rows:
            self.used[self.crossings.source[p]] += 1
            self.used[self.crossings.destination[p]] += 1

    def price(self, rows: Ints) -> NDArray[np.int64]:
        """What decides among equally good pairs, as in :mod:`topocal.measure.design_kernel`."""
        c = self.crossings
        crossed = c.indptr[rows + 1] - c.indptr[rows]
        return (crossed << 40) + self.used[c.source[rows]] + self.used[c.destination[rows]]

    def weigh(self, patterns: Sequence[Sequence[int]]) -> Weights:
        """Busiest and next busiest class of each pattern."""
        return weigh(self.crossings, patterns)

    def ratio_of(self, target: int, rows: Sequence[int]) -> float:
        """How far a class is ahead of all others in a pattern; zero where it is behind."""
        weights = self.weigh([rows])
        return float(weights.ratio[0]) if weights.busiest[0] == target else 0.0

    def capacity_s(self, rows: Sequence[int]) -> float:
        """Busy seconds per byte of the busiest class of a pattern, if nothing took turns."""
        return float(weigh(self.crossings, [rows], turns=False).busy_s[0])

    def best(self, target: int) -> Found:
        """The simplest pattern in which a class is the clear bottleneck, else the best found."""
        best = Found((), 0.0)
        candidates = self._candidates(target)
        for found in self._kinds(target, candidates):
            if found.ratio > best.ratio * _WORTH:
                best = found
            if best.ratio >= self.clear:
                break
        else:
            for found in self._thorough(target, best):
                if found.ratio > best.ratio * _WORTH:
                    best = found
        return self._leaner(target, best)

    def fractional(self, target: int) -> Fractional | None:
        """As :func:`topocal.measure.ceilings.fractional`, kept after the first call."""
        if target not in self._fractional:
            self._fractional[target] = fractional(self.crossings, target)
        return self._fractional[target]

    def _candidates(self, target: int) -> Ints:
        """Pairs that cross a class, those between nearby numbers first."""
        c = self.crossings
        rows = c.rows_of(target)
        if len(rows) > _MOST_CANDIDATES:
            # Neither pattern of the numbering may decide which are left out.
            scrambled = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            rows = np.sort(rows[np.argpartition(scrambled, _MOST_CANDIDATES)[:_MOST_CANDIDATES]])
        ahead = (c.destination[rows] - c.source[rows]) % len(c.endpoints)
        return rows[np.argsort(ahead, kind="stable")]

    def _kinds(self, target: int, candidates: Ints) -> Iterator[Found]:
        """Patterns of each kind, the simplest first."""
        yield self._grow(target, candidates, most=1)
        if self.crossings.law[target] == FATPIPE:
            return
        yield self._both_ways(target, candidates)
        fans = list(self._fans(target, candidates))
        if fans:
            yield min(fans, key=lambda f: (f.ratio < self.clear, len(f.rows), -f.ratio))
        bundle = self._grow(target, candidates, disjoint=True)
        yield self._ring(target, bundle)
        one_way = self._one_way(candidates)
        if len(one_way) < len(candidates):
            yield self._ring(target, self._grow(target, one_way, disjoint=True))
        yield bundle
        yield self._grow(target, candidates)

    def _grow(
        self,
        target: int,
        candidates: Ints,
        *,
        disjoint: bool = False,
        most: int = _MOST_FLOWS,
        patience: int = _PATIENCE,
    ) -> Found:
        """Flows added greedily: at leisure, and strictly where that is not enough."""
        found = Found((), 0.0)
        for slack in (SLACK, 0.0):
            again = self._grown(target, candidates, disjoint, slack, most, patience)
            found = again if again.ratio > found.ratio else found
            if found.ratio >= self.clear:
                break
        return found

    def _grown(
        self,
        target: int,
        candidates: Ints,
        disjoint: bool,
        slack: float,
        most: int,
        patience: int,
    ) -> Found:
        c = self.crossings
        n, ratio = design_kernel.grow(
            target,
            candidates,
            disjoint,
            self.clear,
            slack,
            most,
            patience,
            c.source,
            c.destination,
            c.indptr,
            c.indices,
            c.cost_s,
            c.law,
            c.kappa,
            self.used,
            self.load,
            self.count,
            self._taken,
            self._chosen,
        )
        return Found(tuple(self._chosen[:n].tolist()), float(ratio))

    def _both_ways(self, target: int, candidates: Ints) -> Found:
        """Two flows that oppose each other, where both cross the class."""
        c = self.crossings
        back = c.reverse[candidates]
        both = (back >= 0) & np.isin(back, candidates) & (candidates < back)
        if not both.any():
            return Found((), 0.0)
        patterns = np.stack([candidates[both], back[both]], axis=1).tolist()
        weights = self.weigh(patterns)
        ratio = np.where(weights.busiest == target, weights.ratio, 0.0)
        at = int(np.argmax(ratio))
        return Found(tuple(patterns[at]), float(ratio[at]))

    def _fans(self, target: int, candidates: Ints) -> Iterator[Found]:
        c = self.crossings
        for ends in (c.source, c.destination):
            roots, counts = np.unique(ends[candidates], return_counts=True)
            roots = roots[counts > 1]
            if len(roots) > _ROOTS:
                # Those whose own links are least in the way; the least used of them.
                alone = np.full(len(c.endpoints), np.inf)
                np.minimum.at(alone, ends[candidates], c.solo_s[candidates])
                roots = roots[np.lexsort((roots, self.used[roots], alone[roots]))[:_ROOTS]]
            for root in roots.tolist():
                of_root = candidates[ends[candidates] == root]
                found = self._grow(target, of_root, most=_FAN_WIDTH, patience=_FAN_WIDTH)
                if len(found.rows) > 1:
                    yield found

    def _one_way(self, candidates: Ints) -> Ints:
        """Candidates from where those start that end where the first one does."""
        c = self.crossings
        beside = c.source[candidates[c.destination[candidates] == c.destination[candidates[0]]]]
        return candidates[np.isin(c.source[candidates], beside)]

    def _ring(self, target: int, bundle: Found) -> Found:
        """A bundle closed to a ring; nothing where the class is not clearly ahead in it."""
        c = self.crossings
        nothing = Found((), 0.0)
        if len(bundle.rows) < 2:
            return nothing
        rows = list(bundle.rows)
        closing = [
            int(c.row[c.destination[p], c.source[q]])
            for p, q in zip(rows, rows[1:] + rows[:1], strict=True)
        ]
        if min(closing) < 0:
            return nothing
        ring = tuple(p for both in zip(rows, closing, strict=True) for p in both)
        ratio = self.ratio_of(target, ring)
        return Found(ring, ratio) if ratio >= self.clear else nothing

    def _thorough(self, target: int, best: Found) -> Iterator[Found]:
        """What takes longer: every subset of few pairs, or a linear program's solution."""
        c = self.crossings
        rows = c.rows_of(target)
        subset = best_subset(c, target)
        if subset is not None:
            yield Found(*subset)
            return
        share = self.fractional(target)
        if share is None or share.ceiling < max(best.ratio * _WORTH, 1.0):
            return
        for copies in (1.0, 2.0, 3.0):
            scaled = copies * share.flows / share.flows.max()
            kept = rows[scaled >= 0.5]
            order = np.argsort(-share.flows[scaled >= 0.5], kind="stable")
            yield Found(tuple(kept.tolist()), self.ratio_of(target, kept.tolist()))
            yield self._grow(target, kept[order], patience=len(kept))

    def _leaner(self, target: int, found: Found) -> Found:
        """Without the flows that it does not need to be as good."""
        if len(found.rows) < 3 or self._is_ring(found.rows):
            return found
        rows = list(found.rows)
        enough = min(found.ratio, self.clear)
        for p in found.rows:
            fewer = [q for q in rows if q != p]
            if len(fewer) > 1 and self.ratio_of(target, fewer) >= enough:
                rows = fewer
        if len(rows) == len(found.rows):
            return found
        return Found(tuple(rows), self.ratio_of(target, rows))

    def _is_ring(self, rows: Iterable[int]) -> bool:
        c = self.crossings
        rows = list(rows)
        sources = {int(c.source[p]) for p in rows}
        return len(sources) == len(rows) and sources == {int(c.destination[p]) for p in rows}


def weigh(
    crossings: Crossings, patterns: Sequence[Sequence[int]], *, turns: bool = True
) -> Weights:
    """Busiest and next busiest class of each pattern, given by its rows.

    Parameters
    ----------
    turns
        Whether time-shared classes count.
    """
    sizes = [len(rows) for rows in patterns]
    flow_indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    flows = np.array([p for rows in patterns for p in rows], dtype=np.int32)
    P = len(patterns)
    weights = Weights(
        np.empty(P, dtype=np.int32), np.empty(P, dtype=np.int32), np.empty(P), np.empty(P)
    )
    c = crossings
    design_kernel.weigh(
        flow_indptr,
        flows,
        c.indptr,
        c.indices,
        c.cost_s,
        c.law,
        c.kappa if turns else np.zeros(c.classes),
        weights.busiest,
        weights.busy_s,
        weights.runner_up,
        weights.next_s,
    )
    return weights

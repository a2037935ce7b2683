"""Which resource can be the busiest of which scenario, and how slow each can be.

The program that proves an L1 fit optimal (:mod:`topocal.solve.optimality`) has a
yes-or-no for every resource that a scenario loads.  Nearly all of them are decided
before it is solved, by reasoning that holds for every solution worth finding: one
that misses no scenario by more than epsilon and costs no more than the fit at hand.

*Residuation.*  No scenario may be predicted above ``y + epsilon``, so no resource is
slower than the least of ``y + epsilon - a`` over its scenarios; what cannot reach
``y - epsilon`` at its slowest is never the busiest.

*Cost.*  A scenario that only one resource can explain costs |y - a - x| whatever the
others do.  Summed per resource that is a convex function of x with a known minimum;
the minima add up to a lower bound on every solution, and no x may exceed its own
minimum by more than the fit exceeds that bound.

*Dominance.*  Two resources in series, or told apart only by scenarios that neither can
explain: one of them can do all that the other does, so the other is left out.

Each makes the others stronger, so they are repeated until nothing changes.  What is
left falls apart into independent parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from topocal.topo.errors import SolverError

__all__ = ["TIE", "Group", "Grouped", "Part", "Reduced", "groups_of", "reduce"]

TIE: Final = 1e-9
"""Log seconds below which two times are the same."""

SLACK: Final = 1e-6
"""Bounds that cross by more than this contradict each other; by less, they round."""

MOST_ROUNDS: Final = 30
"""Rounds of any one reasoning; most systems settle within five."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Group:
    """Scenarios that load the same resources in the same proportion: one prediction for all.

    Attributes
    ----------
    y
        Their log seconds, shifted to the group's first, ascending.
    weight
        What a unit of error costs at each.
    """

    y: Floats
    weight: Floats

    def cost(self, predicted: float) -> float:
        """Weighted sum of the errors when the group is predicted so."""
        return float(self.weight @ np.abs(self.y - predicted))

    @property
    def median(self) -> float:
        """A prediction of least cost."""
        half = np.searchsorted(np.cumsum(self.weight), self.weight.sum() / 2)
        return float(self.y[min(int(half), len(self.y) - 1)])

    def pieces(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        """The cost on [low, high] as the largest of lines ``slope * p + intercept``."""
        inside = self.y[(self.y > low + TIE) & (self.y < high - TIE)]
        ends = [low, *inside, high]
        for left, right in itertools.pairwise(ends):
            middle = (left + right) / 2
            sign = np.sign(middle - self.y)
            yield float(self.weight @ sign), float(-(self.weight * sign) @ self.y)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A system of groups × resources.

    Attributes
    ----------
    groups
        G of them.
    row, column, load
        Its entries, shape (N,), sorted by row, then column.
    of_scenario
        Group of each scenario, shape (S,).
    resources
        R, also those that nothing loads.
    """

    groups: tuple[Group, ...]
    row: Ints
    column: Ints
    load: Floats
    of_scenario: Ints
    resources: int


@dataclass(frozen=True, eq=False)
class Part:
    """Groups and resources that have nothing to do with the rest.

    Attributes
    ----------
    groups, columns
        Their numbers.
    entries
        Numbers of the entries that matter.
    bound
        No solution costs less here.
    """

    groups: Ints
    columns: Ints
    entries: Ints
    bound: float


@dataclass(frozen=True, eq=False)
class Reduced:
    """What is left to decide.

    Attributes
    ----------
    system
        The groups.
    low, high
        Shape (R,): log seconds per byte that a resource can have.
    p_low, p_high
        Shape (G,): what a group can be predicted as.
    rest
        Shape (G,): the prediction of least cost within those limits.
    over, under
        Shape (N,): the resource can make the prediction longer than ``rest``; it can keep it
        from being shorter, and something has to.
    parts
        Independent ones, those where nothing needs deciding included.
    """

    system: Grouped
    low: Floats
    high: Floats
    p_low: Floats
    p_high: Floats
    rest: Floats
    over: NDArray[np.bool_]
    under: NDArray[np.bool_]
    parts: tuple[Part, ...]


def groups_of(log_load: csr_array, y: Floats, weight: Floats) -> Grouped:
    """Put scenarios with proportional loads together."""
    entries = csr_array(log_load)
    entries.sort_indices()
    found: dict[tuple[bytes, bytes], int] = {}
    first: list[int] = []
    of_scenario = np.zeros(len(y), dtype=np.int64)
    shifted = np.array(y, dtype=np.float64)
    for s in range(len(y)):
        span = slice(entries.indptr[s], entries.indptr[s + 1])
        loads = entries.data[span]
        shape = np.round(loads - loads[0], 9) + 0.0
        key = (entries.indices[span].tobytes(), shape.tobytes())
        g = found.setdefault(key, len(first))
        if g == len(first):
            first.append(s)
        of_scenario[s] = g
        shifted[s] -= loads[0] - entries.data[entries.indptr[first[g]]]
    order = np.lexsort((shifted, of_scenario))
    cuts = np.flatnonzero(np.diff(of_scenario[order])) + 1
    groups = tuple(
        Group(y=shifted[members], weight=weight[members]) for members in np.split(order, cuts)
    )
    kept = entries[first].tocoo()
    return Grouped(
        groups=groups,
        row=kept.coords[0].astype(np.int64),
        column=kept.coords[1].astype(np.int64),
        load=kept.data,
        of_scenario=of_scenario,
        resources=log_load.shape[1],
    )


def reduce(system: Grouped, x: Floats, epsilon: float) -> Reduced:
    """Decide all that follows from epsilon and from the cost of ``x``.

    ``x`` must itself miss no scenario by more than epsilon.
    """
    work = _Reduction(system, epsilon)
    at_hand = work.cost_at(x)
    work.settle()
    work.drop_dominated()
    for _ in range(MOST_ROUNDS):
        before = work.progress()
        work.cut_by_cost(work.parts(), at_hand)
        work.settle()
        if work.progress() == before:
            break
        work.drop_dominated()
    return work.result()


class _Reduction:
    """Bounds and candidates in the making."""

    def __init__(self, system: Grouped, epsilon: float) -> None:
        self.system = system
        r = system.resources
        self.p_low = np.array([group.y[-1] - epsilon for group in system.groups])
        self.p_high = np.array([group.y[0] + epsilon for group in system.groups])
        self.median = np.array([group.median for group in system.groups])
        self.alive = np.ones(len(system.row), dtype=bool)
        self.able = np.ones(len(system.row), dtype=bool)
        self.low = np.full(r, -np.inf)
        self.high = np.full(r, np.inf)

    def progress(self) -> tuple[int, float]:
        """Something that changes while the reasoning gets anywhere."""
        width = self.high - self.low
        return int(self.able.sum()), round(float(width[np.isfinite(width)].sum()), 3)

    def cost_at(self, x: Floats) -> Floats:
        """Cost of each group at ``x``."""
        reached = self._highest(np.ones(len(self.alive), dtype=bool), x)
        groups = self.system.groups
        return np.array([g.cost(p) for g, p in zip(groups, reached, strict=True)])

    def settle(self) -> None:
        """Bounds from candidates and candidates from bounds, until neither changes.

        Around a circle of resources they can creep for ever by less and less, or by little;
        what holds after any number of rounds holds.
        """
        row, column, load = self.system.row, self.system.column, self.system.load
        for _ in range(MOST_ROUNDS):
            on = self.alive
            np.minimum.at(self.high, column[on], self.p_high[row[on]] - load[on])
            reach = self.able & on & (load + self.high[column] >= self.p_low[row] - TIE)
            count = self._count(reach)
            # Below the least that would make it the busiest anywhere, x may as well be there.
            useful = np.full(len(self.low), np.inf)
            np.minimum.at(useful, column[reach], (self.p_low[row] - load)[reach])
            low = np.maximum(self.low, np.where(np.isfinite(useful), useful, -np.inf))
            only = reach & (count[row] == 1)
            np.maximum.at(low, column[only], (self.p_low[row] - load)[only])
            if not count.all() or (low > self.high + SLACK).any():
                raise SolverError(
                    "the figures are too far apart to tell what can bind",
                    remedy="leave out those that are out by orders of magnitude",
                )
            low = np.minimum(low, self.high)
            self.p_low = np.maximum(self.p_low, self._highest(on, low))
            beaten = reach & (load + self.high[column] < self.p_low[row] - TIE)
            same = np.array_equal(low, self.low) and np.array_equal(reach & ~beaten, self.able)
            self.able, self.low = reach & ~beaten, low
            if same:
                return

    def cut_by_cost(self, parts: list[Part], at_hand: Floats) -> None:
        """Narrow every x to where its own scenarios leave the part's cost below the fit's."""
        row, column, load = self.system.row, self.system.column, self.system.load
        alone = self.able & (self._count(self.able)[row] == 1)
        order = np.lexsort((row, column))
        order = order[alone[order]]
        starts = np.searchsorted(column[order], np.arange(self.system.resources + 1))
        for part in parts:
            room = float(at_hand[part.groups].sum()) - part.bound
            room = max(room, 0.0) + TIE * max(1.0, part.bound)
            for r in part.columns:
                entries = order[starts[r] : starts[r + 1]]
                if len(entries):
                    at, weight = self._breakpoints(row[entries], load[entries])
                    low, high = _within(at, weight, self._least(int(r), at, weight) + room)
                    self.low[r] = max(self.low[r], low)
                    self.high[r] = min(self.high[r], high)

    def _breakpoints(self, rows: Ints, loads: Floats) -> tuple[Floats, Floats]:
        """Where the cost of scenarios that r alone explains bends, in x, and by how much."""
        groups = [self.system.groups[g] for g in rows]
        at = np.concatenate([g.y - a for g, a in zip(groups, loads, strict=True)])
        weight = np.concatenate([g.weight for g in groups])
        order = np.argsort(at, kind="stable")
        return at[order], weight[order]

    def drop_dominated(self) -> None:
        """Leave out resources whose part another can play everywhere."""
        row, column, load = self.system.row, self.system.column, self.system.load
        loads: dict[int, dict[int, float]] = {}
        for k in np.flatnonzero(self.alive):
            loads.setdefault(int(column[k]), {})[int(row[k])] = float(load[k])
        wanted: dict[int, list[int]] = {}
        rivals: dict[int, list[int]] = {}
        for k in np.flatnonzero(self.able):
            wanted.setdefault(int(column[k]), []).append(int(row[k]))
            rivals.setdefault(int(row[k]), []).append(int(column[k]))
        dropped = {r for r in loads if r not in wanted}
        for r, groups in wanted.items():
            common = set(rivals[groups[0]]).intersection(*(rivals[g] for g in groups[1:]))
            for other in sorted(common - dropped - {r}):
                if self._plays(loads[other], loads[r], groups, float(self.high[r])):
                    dropped.add(r)
                    break
        if dropped:
            gone = np.isin(column, sorted(dropped))
            self.alive &= ~gone
            self.able &= ~gone

    def _plays(
        self, other: dict[int, float], mine: dict[int, float], groups: list[int], slowest: float
    ) -> bool:
        """Whether ``other`` can take my place: same loads where I may bind, no harm elsewhere."""
        shift = mine[groups[0]] - other[groups[0]]
        if any(abs(mine[g] - other[g] - shift) > TIE for g in groups):
            return False
        return all(
            (g in mine and a + shift <= mine[g] + TIE) or a + shift + slowest <= self.p_low[g]
            for g, a in other.items()
        )

    def parts(self) -> list[Part]:
        """Independent parts, with a lower bound on the cost of each."""
        row, column = self.system.row, self.system.column
        over, under = self._matters()
        relevant = np.flatnonzero(over | under)
        g, r = len(self.system.groups), self.system.resources
        links = (np.ones(len(relevant)), (row[relevant], g + column[relevant]))
        graph = coo_array(links, shape=(g + r, g + r))
        count, label = connected_components(graph, directed=False)
        floor = self._least_costs()
        by_label = np.argsort(label[:g], kind="stable")
        members = np.split(by_label, np.searchsorted(label[:g][by_label], np.arange(1, count)))
        of_entry = label[row[relevant]]
        order = np.argsort(of_entry, kind="stable")
        entries = np.split(relevant[order], np.searchsorted(of_entry[order], np.arange(1, count)))
        found = []
        for groups, inside in zip(members, entries, strict=True):
            if len(groups):
                columns = np.unique(column[inside])
                found.append(Part(groups, columns, inside, self._bound(groups, columns, floor)))
        return found

    def _matters(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Entries that can make a prediction too long, and those that can keep it from being
        too short."""
        row, column, load = self.system.row, self.system.column, self.system.load
        rest = self.resting()
        over = self.alive & (load + self.high[column] > rest[row] + TIE)
        short = self._highest(self.alive, self.low) < rest - TIE
        return over, self.able & short[row]

    def resting(self) -> Floats:
        """The prediction of least cost that each group can have at all."""
        rest: Floats = np.minimum(np.maximum(self.median, self.p_low), self.p_high)
        return rest

    def _least_costs(self) -> Floats:
        """What each group costs at least, for what it can be predicted as."""
        top = np.minimum(self._highest(self.alive, self.high), self.p_high)
        nearest = np.clip(self.median, self.p_low, np.maximum(top, self.p_low))
        groups = self.system.groups
        return np.array([g.cost(p) for g, p in zip(groups, nearest, strict=True)])

    def _bound(self, groups: Ints, columns: Ints, floor: Floats) -> float:
        """Sum of what the resources' own scenarios cost at least, and the others by themselves."""
        row, column, load = self.system.row, self.system.column, self.system.load
        mine = np.zeros(len(self.system.groups), dtype=bool)
        mine[groups] = True
        alone = np.flatnonzero(self.able & (self._count(self.able)[row] == 1) & mine[row])
        total = float(floor[groups].sum() - floor[row[alone]].sum())
        order = alone[np.argsort(column[alone], kind="stable")]
        for entries in np.split(order, np.flatnonzero(np.diff(column[order])) + 1):
            if len(entries):
                at, weight = self._breakpoints(row[entries], load[entries])
                total += self._least(int(column[entries[0]]), at, weight)
        return total

    def _least(self, r: int, at: Floats, weight: Floats) -> float:
        """The least that a resource's own scenarios cost while it stays within its bounds."""
        best = np.clip(_weighted_median(at, weight), self.low[r], self.high[r])
        return float(weight @ np.abs(at - best))

    def _count(self, which: NDArray[np.bool_]) -> Ints:
        return np.bincount(self.system.row[which], minlength=len(self.system.groups))

    def _highest(self, which: NDArray[np.bool_], x: Floats) -> Floats:
        highest = np.full(len(self.system.groups), -np.inf)
        row, column, load = self.system.row, self.system.column, self.system.load
        np.maximum.at(highest, row[which], load[which] + x[column[which]])
        return highest

    def result(self) -> Reduced:
        """What is known now."""
        over, under = self._matters()
        return Reduced(
            system=self.system,
            low=self.low,
            high=self.high,
            p_low=self.p_low,
            p_high=self.p_high,
            rest=self.resting(),
            over=over,
            under=under,
            parts=tuple(self.parts()),
        )


def _weighted_median(at: Floats, weight: Floats) -> float:
    half = int(np.searchsorted(np.cumsum(weight), weight.sum() / 2))
    return float(at[min(half, len(at) - 1)])


def _within(at: Floats, weight: Floats, limit: float) -> tuple[float, float]:
    """Where ``sum weight |at - x|``, ``at`` ascending, is at most a ``limit`` that it reaches."""
    total, upto = weight.sum(), np.cumsum(weight)
    value = np.array([float(weight @ np.abs(at - b)) for b in at])
    inside = np.flatnonzero(value <= max(limit, value.min()))
    first, last = int(inside[0]), int(inside[-1])
    # Left of breakpoint k the slope is twice the weight before it, less the total.
    slope = total - 2 * (upto[first] - weight[first])
    low = at[first] - max(limit - value[first], 0.0) / max(slope, TIE)
    slope = 2 * upto[last] - total
    high = at[last] + max(limit - value[last], 0.0) / max(slope, TIE)
    return float(low), float(high)

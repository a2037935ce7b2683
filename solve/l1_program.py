"""The mixed-integer program of the least sum of errors, after its presolve.

Per group of scenarios there is a prediction of least cost, ``rest``.  Two amounts say how
far above and below it the group comes out; each costs what the group's scenarios make of
it, a convex function that is the largest of a few lines::

    minimise    sum over groups of  cost_over(over) + cost_under(under)
    such that   a + x - rest <= over              wherever x can be that slow
                rest - a - x <= under             where one resource alone can be busiest
                rest - a - x <= under + M (1 - z) where several can, and their z sum to 1

with x within the bounds of the presolve, which also give every M.  Parts that have nothing
to do with each other are solved one by one, those without a z together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from topocal.solve.integer import Outcome, ProgramStatus, solve_integer
from topocal.solve.l1_presolve import TIE, Part, Reduced
from topocal.solve.modeller import cvxpy
from topocal.topo.errors import SolverError

__all__ = ["SOLVER_GAP", "Search"]

SOLVER_GAP: Final = 1e-5
"""Relative gap at which HiGHS may stop: a tenth of what a certificate calls optimal."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Search:
    """The programs of the independent parts, one after another."""

    def __init__(self, reduced: Reduced, x: Floats, deadline: float) -> None:
        self._reduced = reduced
        self._x = np.array(x, dtype=np.float64)
        self._deadline = deadline
        row = reduced.system.row
        able = np.bincount(row[reduced.under], minlength=len(reduced.system.groups))
        self._open = reduced.under & (able[row] > 1)
        self.decisions = 0

    def run(self) -> tuple[float, bool, Floats]:
        """Lower bound, whether it is the least, and the best x found."""
        plain = [p for p in self._reduced.parts if not len(self._undecided(p))]
        hard = [p for p in self._reduced.parts if len(self._undecided(p))]
        hard.sort(key=lambda p: (len(self._undecided(p)), int(p.groups[0])))
        # Parts without decisions are one linear program together.
        batches = [plain] if plain else []
        batches += [[p] for p in hard]
        bound, ended = 0.0, True
        found = self._x.copy()
        effort = [1 + sum(len(self._undecided(p)) for p in batch) for batch in batches]
        for k, batch in enumerate(batches):
            proven = sum(p.bound for p in batch)
            # Every part gets its share of what is left, and what it leaves goes to the next.
            left = self._deadline - time.perf_counter()
            if left > 0:
                share = effort[k] / sum(effort[k:])
                outcome, offset = self._solve(batch, left * share, found)
                proven = max(proven, outcome.bound + offset)
                ended &= outcome.status is ProgramStatus.OPTIMAL
            else:
                ended = False
            bound += proven
        return bound, ended, self._complete(found)

    def _undecided(self, part: Part) -> Ints:
        return part.entries[self._open[part.entries]]

    def _solve(
        self, parts: Sequence[Part], time_limit_s: float, found: Floats
    ) -> tuple[Outcome, float]:
        """Solve the program of some parts and write its x into ``found``."""
        cp = cvxpy()

        reduced = self._reduced
        groups = np.concatenate([p.groups for p in parts])
        entries = np.concatenate([p.entries for p in parts])
        columns = np.unique(reduced.system.column[entries])
        offset = sum(reduced.system.groups[g].cost(float(reduced.rest[g])) for g in groups)
        if not len(columns):
            return (
                Outcome(status=ProgramStatus.OPTIMAL, objective=0.0, bound=0.0, seconds=0.0),
                offset,
            )
        objective, constraints, x = self._program(groups, entries, columns)
        outcome = solve_integer(
            cp.Problem(cp.Minimize(objective), constraints),
            "least sum of errors",
            time_limit_s=time_limit_s,
            gap=SOLVER_GAP,
        )
        if outcome.status is ProgramStatus.INFEASIBLE:
            raise SolverError("HiGHS finds no fit within epsilon, though one is at hand")
        if outcome.objective is not None:
            found[columns] = x.value
        return outcome, offset

    def _program(self, groups: Ints, entries: Ints, columns: Ints) -> tuple[Any, list[Any], Any]:
        """Costs above the resting cost of each group, by how far above (``over``) and below
        (``under``) its resting prediction it comes out."""
        cp = cvxpy()

        reduced, system = self._reduced, self._reduced.system
        row, column, load = system.row, system.column, system.load
        place = {int(g): k for k, g in enumerate(groups)}
        rest = reduced.rest[groups]
        none = np.zeros(len(groups))
        # Bounds that meet may have rounded past each other.
        low, high = reduced.low[columns] - TIE, reduced.high[columns] + TIE
        x = cp.Variable(len(columns), bounds=[low, high])
        over = cp.Variable(
            len(groups), bounds=[none, np.maximum(reduced.p_high[groups] - rest, 0.0)]
        )
        under = cp.Variable(
            len(groups), bounds=[none, np.maximum(rest - reduced.p_low[groups], 0.0)]
        )
        cost = cp.Variable(2 * len(groups), nonneg=True)
        at = np.array([place[int(g)] for g in row[entries]], dtype=np.int64)
        of = np.searchsorted(columns, column[entries])
        constraints: list[Any] = []
        up = np.flatnonzero(reduced.over[entries])
        if len(up):
            constraints.append(load[entries[up]] + x[of[up]] - rest[at[up]] <= over[at[up]])
        one = np.flatnonzero(reduced.under[entries] & ~self._open[entries])
        if len(one):
            constraints.append(rest[at[one]] - load[entries[one]] - x[of[one]] <= under[at[one]])
        any_of = np.flatnonzero(self._open[entries])
        if len(any_of):
            self.decisions += len(any_of)
            is_busiest = cp.Variable(len(any_of), boolean=True)
            lacking = rest[at[any_of]] - load[entries[any_of]]
            most = np.maximum(lacking - low[of[any_of]], 0.0)
            constraints.append(
                lacking - x[of[any_of]] <= under[at[any_of]] + cp.multiply(most, 1 - is_busiest)
            )
            which, position = np.unique(at[any_of], return_inverse=True)
            sums = coo_array(
                (np.ones(len(position)), (position, np.arange(len(position)))),
                shape=(len(which), len(position)),
            )
            constraints.append(sums.tocsr() @ is_busiest == 1)
        constraints += self._costs(groups, rest, over, under, cost)
        return cp.sum(cost), constraints, x

    def _costs(self, groups: Ints, rest: Floats, over: Any, under: Any, cost: Any) -> list[Any]:
        """Cost of each group as the largest of the lines it consists of."""
        reduced = self._reduced
        slopes: tuple[list[float], list[float]] = ([], [])
        levels: tuple[list[float], list[float]] = ([], [])
        members: tuple[list[int], list[int]] = ([], [])
        for k, g in enumerate(groups):
            group = reduced.system.groups[g]
            least = group.cost(float(rest[k]))
            for side, (low, high) in enumerate(
                ((rest[k], reduced.p_high[g]), (reduced.p_low[g], rest[k]))
            ):
                if high <= low:
                    continue
                for slope, intercept in group.pieces(float(low), float(high)):
                    members[side].append(k)
                    slopes[side].append(slope if side == 0 else -slope)
                    levels[side].append(slope * float(rest[k]) + intercept - least)
        constraints = []
        for side, amount in ((0, over), (1, under)):
            if members[side]:
                at = np.array(members[side])
                lines = _lines(np.array(slopes[side]), amount[at], np.array(levels[side]))
                constraints.append(lines <= cost[2 * at + side])
        return constraints

    def _complete(self, found: Floats) -> Floats:
        """Resources that were left out, as slow as the predictions of the others allow."""
        reduced, system = self._reduced, self._reduced.system
        kept = np.zeros(len(found), dtype=bool)
        for part in reduced.parts:
            kept[part.columns] = True
        reached = np.full(len(system.groups), -np.inf)
        on = kept[system.column]
        np.maximum.at(reached, system.row[on], system.load[on] + found[system.column[on]])
        reached = np.maximum(reached, reduced.p_low)
        slowest = np.full(len(found), np.inf)
        np.minimum.at(slowest, system.column, reached[system.row] - system.load)
        # Where every group rests, what explains it is as slow as it is allowed to be.
        return np.where(kept | ~np.isfinite(slowest), found, slowest)


def _lines(slope: Floats, amount: Any, level: Floats) -> Any:
    """``slope * amount + level`` of cvxpy expressions."""
    cp = cvxpy()

    return cp.multiply(slope, amount) + level

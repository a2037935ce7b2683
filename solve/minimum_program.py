"""The mixed-integer program of the fewest resources.

Residuation comes first: with h_r the slowest that every scenario allows (the least of
``high_s - a_sr``), a chosen resource can always be as slow as h_r unless something else
that is to be met gains from its being faster.  Where all share bytes nothing does, and
what is left is a set cover: pick the fewest resources such that every scenario has one
that is, at h_r, busy for long enough.

Where receivers are time-shared a fan takes kappa times the sum of what its flows take
alone, and those times are what the chosen resources say.  The program then has, all
relative to their largest allowed values,

* ``chosen`` (yes or no) and ``slowness`` 0..1 of every resource, slowness <= chosen;
* ``alone`` 0..1 of every pair in such a fan: at least what each of its resources takes,
  and no more than what one of them (yes-or-nos that add up to one) takes;
* for everything that is to take at least so long: yes-or-nos for what makes it so;
* for "some one of these": a yes-or-no for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.solve.demands import Demands
from topocal.solve.integer import Outcome, ProgramStatus, solve_integer
from topocal.solve.modeller import cvxpy

__all__ = ["Choice", "Need", "Program", "slowest_allowed"]

ROUNDING: Final = 1e-9
"""Relative difference below which a resource is still slow enough."""

WHOLE: Final = 0.99
"""Where only the number counts, a bound within less than one of the solution is enough."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Need:
    """A scenario has to take at least so long.

    Attributes
    ----------
    scenario
        Its number.
    least
        Relative to the longest it may take.
    one_of
        Number of the :class:`~topocal.solve.demands.AnyOf` that wants it of some scenario, -1
        where it is wanted of this one in any case.
    columns
        Resources that can be busy for so long.
    engines
        Rows of the time-shared receivers that can.
    pair
        The pair whose time alone this is, -1 where it is none.
    """

    scenario: int
    least: float
    one_of: int
    columns: Ints
    engines: Ints
    pair: int

    @property
    def is_met_by_nothing(self) -> bool:
        """Whether no candidate can be busy for so long."""
        return not len(self.columns) and not len(self.engines)


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """A solution.

    Attributes
    ----------
    columns
        Resources chosen, ascending.
    x
        Shape (R,): log seconds per byte of those, -inf elsewhere.
    time_shared
        Shape (E,): which receivers are time-shared.
    """

    columns: Ints
    x: Floats
    time_shared: NDArray[np.bool_]


def slowest_allowed(demands: Demands) -> Floats:
    """Log seconds per byte of each resource that every scenario allows; +inf where unloaded."""
    entries = demands.log_load.tocoo()
    slowest = np.full(demands.log_load.shape[1], np.inf)
    np.minimum.at(slowest, entries.coords[1], demands.high[entries.coords[0]] - entries.data)
    return slowest


class Program:
    """The program of some demands; solved several times with different cuts."""

    def __init__(self, demands: Demands) -> None:
        self.demands = demands
        self.slowest = slowest_allowed(demands)
        entries = demands.log_load.tocoo()
        row, column = entries.coords[0].astype(np.int64), entries.coords[1].astype(np.int64)
        self._row, self._column = row, column
        self._busy = np.exp(entries.data + self.slowest[column] - demands.high[row])
        engines = demands.engines
        if engines is not None and not len(engines.scenario):
            engines = None
        self._engines = engines
        self._used = np.zeros(0, dtype=np.int64)
        if engines is not None:
            self._set_up_pairs()
        self.needs = self._needs()

    @property
    def hopeless(self) -> list[Need]:
        """Demands that no candidate can meet: a proof, without any search, that none do."""
        found = [n for n in self.needs if n.is_met_by_nothing and n.one_of < 0]
        for k in range(len(self.demands.any_of)):
            members = [n for n in self.needs if n.one_of == k]
            if members and all(n.is_met_by_nothing for n in members):
                found.append(members[0])
        return found

    @property
    def overfull(self) -> list[tuple[int, float]]:
        """Rows of time-shared receivers that take longer than their scenario may, however fast
        its pairs are within their tolerances; and the least they take, relative to that."""
        if self._engines is None or self._engines.free:
            return []
        least = self._engine_share @ self._pair_least
        return [(int(k), float(least[k])) for k in np.flatnonzero(least > 1 + ROUNDING)]

    @property
    def is_cover(self) -> bool:
        """Whether it is a set cover: nothing gains from a chosen resource being faster."""
        return self._engines is None and not any(np.isfinite(a.high) for a in self.demands.any_of)

    def _set_up_pairs(self) -> None:
        """Pairs that flow into time-shared receivers, each in units of the most it may take."""
        engines = self._engines
        assert engines is not None
        self._used = np.unique(engines.pair)
        weight = csr_array(engines.pair_log_weight[self._used])
        self._pair_row = np.repeat(np.arange(len(self._used)), np.diff(weight.indptr))
        self._pair_column = weight.indices.astype(np.int64)
        at_slowest = weight.data + self.slowest[self._pair_column]
        most = np.full(len(self._used), -np.inf)
        np.maximum.at(most, self._pair_row, at_slowest)
        scenario = engines.pair_scenario[self._used]
        known = scenario >= 0
        size = engines.pair_log_bytes[self._used]
        most[known] = self.demands.high[scenario[known]] - size[known]
        self._pair_scenario = scenario
        self._pair_most = most
        self._pair_least = np.zeros(len(self._used))
        low = self.demands.low[scenario[known]] - self.demands.high[scenario[known]]
        self._pair_least[known] = np.exp(low)
        self._pair_busy = np.exp(at_slowest - most[self._pair_row])
        flow_row = np.repeat(np.arange(len(engines.scenario)), np.diff(engines.indptr))
        place = np.searchsorted(self._used, engines.pair)
        share = np.exp(
            engines.log_kappa
            + engines.log_bytes
            + most[place]
            - self.demands.high[engines.scenario[flow_row]]
        )
        shape = (len(engines.scenario), len(self._used))
        self._engine_share = coo_array((share, (flow_row, place)), shape=shape).tocsr()

    def _needs(self) -> tuple[Need, ...]:
        demands = self.demands
        order = np.lexsort((self._column, self._row))
        row, column, busy = self._row[order], self._column[order], self._busy[order]
        starts = np.searchsorted(row, np.arange(len(demands.scenarios) + 1))
        pair_of = {int(s): k for k, s in enumerate(self._alone()) if s >= 0}
        rows_of: dict[int, list[int]] = {}
        engine_most: Floats = np.zeros(0)
        if self._engines is not None:
            engine_most = np.asarray(self._engine_share.sum(axis=1), dtype=np.float64)
            for k, s in enumerate(self._engines.scenario):
                rows_of.setdefault(int(s), []).append(k)

        def need(scenario: int, low: float, one_of: int) -> Need:
            least = float(np.exp(low - demands.high[scenario]))
            span = slice(starts[scenario], starts[scenario + 1])
            enough = busy[span] >= least * (1 - ROUNDING)
            able = [
                k for k in rows_of.get(scenario, []) if engine_most[k] >= least * (1 - ROUNDING)
            ]
            return Need(
                scenario=scenario,
                least=least,
                one_of=one_of,
                columns=column[span][enough],
                engines=np.array(able, dtype=np.int64),
                pair=pair_of.get(scenario, -1),
            )

        found = [need(s, float(demands.low[s]), -1) for s in range(len(demands.scenarios))]
        for k, group in enumerate(demands.any_of):
            if np.isfinite(group.low):
                found += [need(s, group.low, k) for s in group.scenarios]
        return tuple(found)

    def _alone(self) -> Ints:
        if self._engines is None:
            return np.zeros(0, dtype=np.int64)
        return self._pair_scenario

    def solve(
        self,
        *,
        time_limit_s: float,
        at_most: int | None = None,
        other_than: Sequence[Ints] = (),
    ) -> tuple[Outcome, Choice | None]:
        """The fewest resources.

        Parameters
        ----------
        time_limit_s
            Wall time.
        at_most
            Only solutions of so many resources.
        other_than
            Solutions that are excluded, and all that contain them.
        """
        cp = cvxpy()

        if self.hopeless or self.overfull:
            nothing = Outcome(
                status=ProgramStatus.INFEASIBLE, objective=None, bound=np.inf, seconds=0.0
            )
            return nothing, None
        chosen = cp.Variable(len(self.demands.resources), boolean=True)
        constraints: list[Any] = []
        if at_most is not None:
            constraints.append(cp.sum(chosen) <= at_most)
        constraints += [cp.sum(chosen[c]) <= len(c) - 1 for c in other_than]
        if self.is_cover:
            slowness, time_shared = chosen, None
            constraints += self._cover(chosen)
        else:
            slowness, time_shared = self._full(chosen, constraints)
        price, step = self._price()
        cost = price @ chosen
        if time_shared is not None:
            cost = cost + step * cp.sum(time_shared)
        outcome = solve_integer(
            cp.Problem(cp.Minimize(cost), constraints),
            "fewest resources",
            time_limit_s=time_limit_s,
            absolute_gap=WHOLE * step,
        )
        if outcome.objective is None:
            return outcome, None
        columns = np.flatnonzero(chosen.value > 0.5)
        x = np.full(len(self.slowest), -np.inf)
        with np.errstate(divide="ignore"):
            x[columns] = self.slowest[columns] + np.log(np.maximum(slowness.value[columns], 0.0))
        given = self.demands.engines
        # Without a fan, nothing says how receivers share.
        flags = np.full(0 if given is None else len(given.names), self._engines is not None)
        if time_shared is not None:
            flags = time_shared.value > 0.5
        return outcome, Choice(columns=columns, x=x, time_shared=flags)

    def _price(self) -> tuple[Floats, float]:
        """One for each resource, and so little for its oddity (and for a free receiver that is
        time-shared) that it decides only between explanations of one size; and that little."""
        oddity = np.zeros(len(self.slowest))
        if self.demands.oddity is not None:
            oddity += self.demands.oddity
        engines = self._engines
        receivers = len(engines.names) if engines is not None and engines.free else 0
        # An explanation never needs more resources than there are scenarios and pairs in them.
        needed = len(self.demands.scenarios) + len(self._used)
        most = float(oddity.max(initial=0.0)) * needed + receivers
        if not most:
            return np.ones(len(oddity)), 1.0
        step = 1.0 / (1.0 + most)
        return 1.0 + step * oddity, step

    def _cover(self, chosen: Any) -> list[Any]:
        """Every need has a chosen resource; of "some one of these", one scenario does."""
        cp = cvxpy()

        sure = [n for n in self.needs if n.one_of < 0]
        constraints = [_sums([n.columns for n in sure], len(self.slowest)) @ chosen >= 1]
        for members in self._alternatives().values():
            is_one = cp.Variable(len(members), boolean=True)
            covers = _sums([n.columns for n in members], len(self.slowest))
            constraints += [covers @ chosen >= is_one, cp.sum(is_one) >= 1]
        return constraints

    def _alternatives(self) -> dict[int, list[Need]]:
        found: dict[int, list[Need]] = {}
        for n in self.needs:
            if n.one_of >= 0:
                found.setdefault(n.one_of, []).append(n)
        return found

    def _full(self, chosen: Any, constraints: list[Any]) -> tuple[Any, Any]:
        """Everything; appends to ``constraints``, returns slowness and receivers."""
        cp = cvxpy()

        slowness = cp.Variable(len(self.slowest), bounds=[0, 1])
        constraints.append(slowness <= chosen)
        alone, busy, time_shared = None, None, None
        engines = self._engines
        if engines is not None:
            alone = cp.Variable(len(self._used), bounds=[self._pair_least, 1])
            constraints += self._pair_times(chosen, slowness, alone)
            busy = self._engine_share @ alone
            if engines.free:
                time_shared = cp.Variable(len(engines.names), boolean=True)
                excess = np.maximum(self._engine_share.sum(axis=1) - 1, 0.0)
                constraints.append(busy <= 1 + cp.multiply(excess, 1 - time_shared[engines.engine]))
            else:
                constraints.append(busy <= 1)
        is_one: dict[tuple[int, int], Any] = {}
        for k, group in enumerate(self.demands.any_of):
            flags = cp.Variable(len(group.scenarios), boolean=True)
            constraints.append(cp.sum(flags) >= 1)
            is_one |= {(k, s): flags[j] for j, s in enumerate(group.scenarios)}
            if np.isfinite(group.high):
                constraints += self._ceilings(k, is_one, slowness, alone, busy, time_shared)
        constraints += self._reached(is_one, chosen, slowness, alone, busy, time_shared)
        return slowness, time_shared

    def _pair_times(self, chosen: Any, slowness: Any, alone: Any) -> list[Any]:
        """Each pair takes what its slowest chosen resource takes."""
        cp = cvxpy()

        row, column, busy = self._pair_row, self._pair_column, self._pair_busy
        # What cannot reach the least that the pair takes anyway says nothing.
        felt = np.flatnonzero(busy > self._pair_least[row])
        able = np.flatnonzero(busy >= self._pair_least[row] * (1 - ROUNDING))
        is_slowest = cp.Variable(len(able), boolean=True)
        at, of = row[able], column[able]
        by_pair = [np.flatnonzero(at == k) for k in range(len(self._used))]
        found = [
            alone[row[felt]] >= cp.multiply(busy[felt], slowness[column[felt]]),
            alone[at] <= cp.multiply(busy[able], slowness[of]) + 1 - is_slowest,
            is_slowest <= chosen[of],
        ]
        slowest = _sums(by_pair, len(able)) @ is_slowest
        unmeasured = np.flatnonzero(self._pair_scenario < 0)
        if len(unmeasured):
            # Nothing chosen need limit a pair that was not measured: it then takes no time.
            is_free = cp.Variable(len(unmeasured), boolean=True)
            found.append(alone[unmeasured] <= 1 - is_free)
            place = coo_array(
                (np.ones(len(unmeasured)), (unmeasured, np.arange(len(unmeasured)))),
                shape=(len(self._used), len(unmeasured)),
            )
            slowest = slowest + place.tocsr() @ is_free
        return [*found, slowest == 1]

    def _ceilings(
        self,
        group: int,
        is_one: dict[tuple[int, int], Any],
        slowness: Any,
        alone: Any,
        busy: Any,
        time_shared: Any,
    ) -> list[Any]:
        """Where a scenario is the one that is fast enough, nothing in it is too slow."""
        cp = cvxpy()

        found = []
        limit = self.demands.any_of[group]
        pair_of = {int(s): k for k, s in enumerate(self._alone()) if s >= 0}
        for s in limit.scenarios:
            most = float(np.exp(limit.high - self.demands.high[s]))
            room = most + (1 - most) * (1 - is_one[group, s])
            here = np.flatnonzero((self._row == s) & (self._busy > most))
            if len(here):
                found.append(cp.multiply(self._busy[here], slowness[self._column[here]]) <= room)
            if s in pair_of:
                found.append(alone[pair_of[s]] <= room)
            if self._engines is not None:
                for k in np.flatnonzero(self._engines.scenario == s):
                    slack = 0.0
                    if time_shared is not None:
                        whole = float(self._engine_share[[k]].sum())
                        slack = max(whole - most, 0.0) * (
                            1 - time_shared[int(self._engines.engine[k])]
                        )
                    found.append(busy[int(k)] <= room + slack)
        return found

    def _reached(
        self,
        is_one: dict[tuple[int, int], Any],
        chosen: Any,
        slowness: Any,
        alone: Any,
        busy: Any,
        time_shared: Any,
    ) -> list[Any]:
        """Every need has something that takes long enough."""
        cp = cvxpy()

        found: list[Any] = []
        busy_at = {
            (int(r), int(c)): b for r, c, b in zip(self._row, self._column, self._busy, strict=True)
        }
        columns: list[int] = []
        threshold: list[float] = []
        rows: list[int] = []
        least: list[float] = []
        of_column: list[Ints] = []
        of_engine: list[Ints] = []
        wanted: list[Any] = []
        for n in self.needs:
            flag = 1 if n.one_of < 0 else is_one[n.one_of, n.scenario]
            if n.pair >= 0:
                if n.one_of >= 0:
                    found.append(alone[n.pair] >= n.least * flag)
                continue
            of_column.append(np.arange(len(columns), len(columns) + len(n.columns)))
            of_engine.append(np.arange(len(rows), len(rows) + len(n.engines)))
            wanted.append(flag)
            columns += n.columns.tolist()
            threshold += [min(1.0, n.least / busy_at[n.scenario, c]) for c in n.columns.tolist()]
            rows += n.engines.tolist()
            least += [n.least] * len(n.engines)
        if not wanted:
            return found
        total: Any = 0
        if columns:
            makes = cp.Variable(len(columns), boolean=True)
            found += [
                slowness[columns] >= cp.multiply(np.array(threshold), makes),
                makes <= chosen[columns],
            ]
            total = total + _sums(of_column, len(columns)) @ makes
        if rows:
            engine_makes = cp.Variable(len(rows), boolean=True)
            found.append(busy[rows] >= cp.multiply(np.array(least), engine_makes))
            if time_shared is not None:
                assert self._engines is not None
                found.append(engine_makes <= time_shared[self._engines.engine[rows]])
            total = total + _sums(of_engine, len(rows)) @ engine_makes
        found.append(total >= cp.hstack(wanted))
        return found


def _sums(members: Sequence[Ints], length: int) -> csr_array:
    """A matrix that adds up the members of each set."""
    row = np.repeat(np.arange(len(members)), [len(m) for m in members])
    column = np.concatenate(members) if members else np.zeros(0, dtype=np.int64)
    shape = (len(members), length)
    return coo_array((np.ones(len(column)), (row, column)), shape=shape).tocsr()

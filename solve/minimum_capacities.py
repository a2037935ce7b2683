"""A choice of resources under the law: what every scenario takes, and better capacities.

The program of the fewest resources says which, and some capacities that will do.
:func:`evaluate` works out the time of every scenario from them and refuses what is no
explanation; :func:`settle` then moves the capacities so that the figures come near the
middle of their tolerances, a linear program in which what is busiest where stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.integer import ProgramStatus, solve_integer
from topocal.solve.minimum_program import Choice, Program
from topocal.solve.modeller import cvxpy
from topocal.topo.errors import SolverError

__all__ = ["SLACK", "Evaluated", "evaluate", "is_explanation", "settle"]

SLACK: Final = 1e-5
"""Log seconds by which an evaluated scenario may lie outside its tolerance: ten times the
solver's own, and a thousandth of the tightest tolerance that measurements warrant."""

LONGEST_S: Final = 60.0
"""Time limit of the linear program, which takes milliseconds."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A choice under the law.

    ``log_s`` shape (S,); ``column`` the busiest resource of each, -1 where ``engine`` (row of
    the time-shared receivers) is, which is -1 elsewhere; ``pair_column`` the slowest resource of
    each pair.
    """

    log_s: Floats
    column: NDArray[np.int64]
    engine: NDArray[np.int64]
    pair_column: NDArray[np.int64]


def evaluate(program: Program, choice: Choice) -> Evaluated:
    """The time of every scenario.

    Raises
    ------
    SolverError
        When one is outside what it may take.
    """
    demands = program.demands
    log_s, column = _highest(demands.log_load, choice.x)
    engine = np.full(len(log_s), -1, dtype=np.int64)
    pair_column = np.zeros(0, dtype=np.int64)
    engines = demands.engines
    if engines is not None and len(engines.scenario):
        solo, pair_column = _highest(engines.pair_log_weight, choice.x)
        with np.errstate(divide="ignore"):
            busy = np.log(engines.seconds(np.exp(solo)))
        for k in np.flatnonzero(choice.time_shared[engines.engine]):
            s = int(engines.scenario[k])
            if busy[k] > log_s[s]:
                log_s[s], column[s], engine[s] = busy[k], -1, k
    off = np.maximum(demands.low - log_s, log_s - demands.high)
    for group in demands.any_of:
        values = log_s[list(group.scenarios)]
        nearest = np.maximum(group.low - values, values - group.high).min()
        off = np.append(off, nearest)
    if not off.max() <= SLACK:
        raise SolverError(
            f"HiGHS calls the fewest resources found, but a figure is off by {off.max():.1e} "
            "beyond its tolerance",
            remedy="widen the tolerance a little",
            about=choice,
        )
    return Evaluated(log_s, column, engine, pair_column)


def is_explanation(program: Program, choice: Choice) -> bool:
    try:
        evaluate(program, choice)
    except SolverError:
        return False
    return True


def _highest(matrix: Any, x: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Largest ``entry + x`` of each row and its first column; -inf and -1 where none."""
    entries = matrix.tocoo()
    row, column = entries.coords
    value = entries.data + x[column]
    highest = np.full(matrix.shape[0], -np.inf)
    np.maximum.at(highest, row, value)
    found = np.full(matrix.shape[0], -1, dtype=np.int64)
    at = np.flatnonzero(np.isfinite(value) & (value >= highest[row]))[::-1]
    found[row[at]] = column[at]
    return highest, found


def settle(program: Program, choice: Choice) -> Choice:
    """The same resources with capacities that bring the figures near their middle.

    A linear program: what is busiest where stays as it is.
    """
    cp = cvxpy()

    first = evaluate(program, choice)
    demands = program.demands
    kept = choice.columns
    place = {int(c): k for k, c in enumerate(kept)}
    unit = np.exp(program.slowest[kept])
    slowness = cp.Variable(len(kept), bounds=[0, 1])
    s_count = len(demands.scenarios)
    scale = np.exp(-demands.high)
    least = np.exp(demands.low - demands.high)
    limits = [[float(least[s]), 1.0] for s in range(s_count)]
    for group in demands.any_of:
        members = list(group.scenarios)
        off = np.maximum(group.low - first.log_s[members], first.log_s[members] - group.high)
        s = members[int(np.argmin(off))]
        limits[s][0] = max(limits[s][0], math.exp(group.low - demands.high[s]))
        limits[s][1] = min(limits[s][1], math.exp(group.high - demands.high[s]))
    low, high = np.array(limits).T
    seconds = cp.Variable(s_count, bounds=[np.minimum(low, high), high])
    entries = demands.log_load.tocoo()
    row, column = entries.coords
    mine = np.isin(column, kept)
    busy = np.exp(entries.data[mine]) * scale[row[mine]]
    at = np.array([place[int(c)] for c in column[mine]], dtype=np.int64)
    busy = busy * unit[at]
    constraints: list[Any] = [cp.multiply(busy, slowness[at]) <= seconds[row[mine]]]
    is_busiest = first.column[row[mine]] == column[mine]
    constraints.append(
        cp.multiply(busy[is_busiest], slowness[at[is_busiest]]) == seconds[row[mine][is_busiest]]
    )
    engines = demands.engines
    if engines is not None and len(engines.scenario):
        constraints += _engine_times(program, choice, first, slowness, seconds, unit, place)
    # In units of each figure's own tolerance, which any-of scenarios do not have.
    middle = np.sqrt(low * high)
    width = np.maximum(high - low, SLACK)
    free = {s for g in demands.any_of for s in g.scenarios if limits[s] == [least[s], 1.0]}
    counts = np.array([s not in free for s in range(s_count)])
    cost = cp.sum(cp.multiply(counts / width, cp.abs(seconds - middle)))
    try:
        outcome = solve_integer(
            cp.Problem(cp.Minimize(cost), constraints), "capacities", time_limit_s=LONGEST_S
        )
        if outcome.status is not ProgramStatus.OPTIMAL:
            return choice
        x = np.full(len(choice.x), -np.inf)
        with np.errstate(divide="ignore"):
            x[kept] = program.slowest[kept] + np.log(np.maximum(slowness.value, 0.0))
        settled = Choice(columns=kept, x=x, time_shared=choice.time_shared)
        evaluate(program, settled)
    except SolverError:
        # The choice itself has been evaluated and stands.
        return choice
    return settled


def _engine_times(
    program: Program,
    choice: Choice,
    first: Evaluated,
    slowness: Any,
    seconds: Any,
    unit: Floats,
    place: dict[int, int],
) -> list[Any]:
    """Time-shared receivers in the program of :func:`settle`."""
    cp = cvxpy()

    demands, engines = program.demands, program.demands.engines
    assert engines is not None
    pairs = np.unique(engines.pair)
    alone = cp.Variable(len(pairs), nonneg=True)
    most = np.exp(_highest(engines.pair_log_weight, program.slowest)[0][pairs])
    entries = engines.pair_log_weight[pairs].tocoo()
    row, column = entries.coords
    mine = np.isin(column, choice.columns)
    at = np.array([place[int(c)] for c in column[mine]], dtype=np.int64)
    pair_row = row[mine]
    busy = np.exp(entries.data[mine]) * unit[at] / most[pair_row]
    slowest = first.pair_column[pairs][pair_row] == column[mine]
    constraints: list[Any] = [
        cp.multiply(busy, slowness[at]) <= alone[pair_row],
        cp.multiply(busy[slowest], slowness[at[slowest]]) == alone[pair_row[slowest]],
    ]
    unknown = np.flatnonzero(first.pair_column[pairs] < 0)
    if len(unknown):
        constraints.append(alone[unknown] == 0)
    for k in np.flatnonzero(choice.time_shared[engines.engine]):
        span = slice(engines.indptr[k], engines.indptr[k + 1])
        of = np.searchsorted(pairs, engines.pair[span])
        s = int(engines.scenario[k])
        share = np.exp(engines.log_kappa + engines.log_bytes[span] - demands.high[s]) * most[of]
        total = share @ alone[of]
        constraints.append(total == seconds[s] if first.engine[s] == k else total <= seconds[s])
    return constraints

"""Solving a mixed-integer program under a time limit, and saying what was proven.

A solver's word is not taken for its answer: a solution counts only when it
satisfies every constraint and is integral where it must be, and a bound only when no
solution lies below it.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

import numpy as np

from topocal.solve.modeller import cvxpy
from topocal.topo.errors import SolverError

__all__ = ["Outcome", "ProgramStatus", "relative_gap", "solve_integer"]

FEASIBILITY: Final = 1e-6
"""Largest violation of a constraint that counts as none: HiGHS's own default
(``mip_feasibility_tolerance``), and programs here are scaled to order one."""

SHORTEST_S: Final = 1e-3
"""A time limit of nothing would keep the solver from even reading the program."""


class ProgramStatus(StrEnum):
    """What a solve proved."""

    OPTIMAL = "optimal"
    """The solution is the best there is, to the gap asked for."""
    FEASIBLE = "feasible"
    """A solution, but time ran out before it was proven best; the bound says how far off."""
    INFEASIBLE = "infeasible"
    """No solution exists."""
    TIME_LIMIT = "time limit"
    """Time ran out with neither a solution nor a proof that there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a mixed-integer minimisation ended; the solution is in the program's variables.

    Attributes
    ----------
    status
        What was proven.
    objective
        Value of the solution, ``None`` without one.
    bound
        No solution has a lower value; ``inf`` when there is none, ``-inf`` when nothing
        was proven.
    seconds
        Wall time, the set-up by cvxpy included.
    """

    status: ProgramStatus
    objective: float | None
    bound: float
    seconds: float


def relative_gap(objective: float, bound: float) -> float:
    """How far a value may be from the best, relative to itself.

    >>> relative_gap(10.0, 9.0)
    0.1
    >>> relative_gap(0.0, 0.0)
    0.0
    """
    if bound >= objective:
        return 0.0
    return (objective - bound) / abs(objective) if objective else math.inf


def solve_integer(
    problem: Any,
    what: str,
    *,
    time_limit_s: float,
    gap: float = 0.0,
    absolute_gap: float = 1e-9,
    options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Minimise a cvxpy program with HiGHS.

    The objective must be bounded from below and without a constant term.

    Parameters
    ----------
    problem
        A :class:`cvxpy.Problem`.
    what
        What is being solved for, for messages.
    time_limit_s
        Wall time for set-up and solver together.  The solver looks at its clock between
        steps, so that it may run over by the length of one.
    gap, absolute_gap
        Stop when solution and bound are this close, relative and absolute.
    options
        Further options of HiGHS.

    Raises
    ------
    SolverError
        When the solver fails, or returns what is no solution or contradicts its bound.
    """
    cp = cvxpy()

    _print_no_banner()
    begin = time.perf_counter()
    try:
        data, chain, inverse = problem.get_problem_data(cp.HIGHS)
        left = time_limit_s - (time.perf_counter() - begin)
        options = {
            "time_limit": max(left, SHORTEST_S),
            "mip_rel_gap": gap,
            "mip_abs_gap": absolute_gap,
            **(options or {}),
        }
        with warnings.catch_warnings():
            # That a limit was reached is told by the status, not by a warning.
            warnings.simplefilter("ignore")
            raw = chain.solve_via_data(problem, data, solver_opts=options)
            problem.unpack_results(raw, chain, inverse)
    except (cp.error.SolverError, ValueError) as error:
        raise SolverError(f"no answer for the {what}: {error}") from error
    seconds = time.perf_counter() - begin
    info = raw["info"]
    if problem.status in (cp.INFEASIBLE, cp.settings.INFEASIBLE_OR_UNBOUNDED):
        return Outcome(
            status=ProgramStatus.INFEASIBLE, objective=None, bound=math.inf, seconds=seconds
        )
    if problem.status not in (cp.OPTIMAL, cp.settings.USER_LIMIT):
        raise SolverError(f"no answer for the {what}: HiGHS says {problem.status}", about=problem)
    bound = _bound(info, problem)
    found = info.primal_solution_status == _FEASIBLE
    if not found:
        if problem.status == cp.OPTIMAL:
            raise SolverError(f"HiGHS calls the {what} solved without a solution", about=problem)
        return Outcome(
            status=ProgramStatus.TIME_LIMIT, objective=None, bound=bound, seconds=seconds
        )
    objective = float(problem.objective.value)
    _require_solution(problem, objective, bound, what)
    return Outcome(
        status=ProgramStatus.OPTIMAL if problem.status == cp.OPTIMAL else ProgramStatus.FEASIBLE,
        objective=objective,
        bound=min(bound, objective),
        seconds=seconds,
    )


_FEASIBLE: Final = 2
"""``highspy.SolutionStatus.kSolutionStatusFeasible``."""


def _bound(info: Any, problem: Any) -> float:
    """What the solver proved; a program without integers has no bound of its own."""
    if problem.is_mixed_integer():
        return float(info.mip_dual_bound)
    return float(info.objective_function_value) if problem.status == "optimal" else -math.inf


def _require_solution(problem: Any, objective: float, bound: float, what: str) -> None:
    """Check a claimed solution against the program itself."""
    worst = max((float(np.max(c.violation())) for c in problem.constraints), default=0.0)
    for variable in problem.variables():
        value = np.asarray(variable.value)
        if variable.attributes["boolean"]:
            worst = max(worst, float(np.max(np.abs(value - np.round(value)), initial=0.0)))
        worst = max(worst, float(np.max(np.abs(value - variable.project(value)), initial=0.0)))
    slack = FEASIBILITY * max(1.0, abs(objective))
    if not (math.isfinite(objective) and worst <= 10 * FEASIBILITY):
        raise SolverError(
            f"HiGHS calls the {what} solved, but a constraint is violated by {worst:.1e}",
            remedy="check the figures for some that are out by orders of magnitude",
            about=problem,
        )
    if problem.status == "optimal" and bound > objective + slack:
        raise SolverError(
            f"HiGHS claims a bound of {bound:g} for the {what}, above a solution of {objective:g}",
            about=problem,
        )


@cache
def _print_no_banner() -> None:
    """HiGHS prints a line of its own on standard output when it is first used in a process."""
    import highspy

    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        highspy.Highs()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)

"""Solving a cvxpy problem and believing the answer only when it is one."""

from __future__ import annotations

import math
import warnings
from typing import Any, Final

from topocal.topo.errors import SolverError

__all__ = ["solve_convex"]

_SOLVERS: Final = ("CLARABEL", "SCS")


def solve_convex(problem: Any, what: str) -> None:
    """Solve a convex cvxpy problem in place, with a second solver where the first gives up.

    Parameters
    ----------
    problem
        A :class:`cvxpy.Problem`.
    what
        What is being solved for, for the message.

    Raises
    ------
    SolverError
        When no solver returns an optimum with a finite objective.
    """
    import cvxpy as cp

    tried = []
    for solver in _SOLVERS:
        try:
            with warnings.catch_warnings():
                # An inaccurate solution is judged by its status below, not by a warning.
                warnings.simplefilter("ignore")
                problem.solve(solver=solver)
        except cp.error.SolverError as error:
            tried.append(f"{solver}: {error}")
            continue
        if problem.status == cp.OPTIMAL and math.isfinite(problem.value):
            return
        tried.append(f"{solver}: {problem.status}")
    raise SolverError(
        f"no optimum for the {what} ({'; '.join(tried)})",
        remedy="check the measurements for figures that are out by orders of magnitude",
        about=problem,
    )

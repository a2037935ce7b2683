"""Solving a cvxpy problem and believing the answer only when it is one."""

from __future__ import annotations

import math
import warnings
from typing import Any, Final

import numpy as np
from scipy.sparse import csc_array

from topocal.solve.kkt import optimality_error
from topocal.solve.modeller import cvxpy
from topocal.topo.errors import SolverError

__all__ = ["OPTIMAL_WITHIN", "solve_convex"]

OPTIMAL_WITHIN: Final = 1e-5
"""Relative error of the optimality conditions that is still an optimum: solvers stop at 1e-8 of
the program as they scale it."""


def solve_convex(problem: Any, what: str) -> None:
    """Solve a convex cvxpy problem in place, with a second solver where the first gives up.

    The conditions of optimality are checked on what comes back
    (:mod:`topocal.solve.kkt`), whatever the solver says of it.

    Parameters
    ----------
    problem
        A :class:`cvxpy.Problem` of linear and quadratic terms, absolute values and the like.
    what
        What is being solved for, for the message.

    Raises
    ------
    SolverError
        When no solver returns an optimum with a finite objective.
    """
    cp = cvxpy()

    tried = []
    for solver in (cp.CLARABEL, cp.SCS):
        try:
            with warnings.catch_warnings():
                # An inaccurate solution is judged by what it is, not by a warning.
                warnings.simplefilter("ignore")
                error = _solve(problem, solver)
        except cp.error.SolverError as failure:
            tried.append(f"{solver}: {failure}")
            continue
        if problem.status != cp.OPTIMAL:
            tried.append(f"{solver}: {problem.status}")
        elif not (math.isfinite(problem.value) and error <= OPTIMAL_WITHIN):
            tried.append(f"{solver}: conditions of optimality missed by {error:.1g}")
        else:
            return
    raise SolverError(
        f"no optimum for the {what} ({'; '.join(tried)})",
        remedy="check the measurements for figures that are out by orders of magnitude",
        about=problem,
    )


def _solve(problem: Any, solver: str) -> float:
    """Solve with one solver; by how much its answer misses the conditions of optimality."""
    data, chain, inverse = problem.get_problem_data(solver, solver_opts={})
    answer = chain.solve_via_data(problem, data, warm_start=False, verbose=False, solver_opts={})
    problem.unpack_results(answer, chain, inverse)
    # One solver gives an object, the other a dictionary that calls the multipliers y.
    found = answer if isinstance(answer, dict) else {k: getattr(answer, k) for k in "xsz"}
    x, s, z = (np.asarray(found[k], dtype=float) for k in ("x", "s", "z" if "z" in found else "y"))
    dims, n = data["dims"], len(data["c"])
    if dims.soc or dims.exp or dims.psd or dims.p3d:
        raise ValueError("conditions of optimality are checked for linear constraints only")
    P = csc_array((n, n)) if data.get("P") is None else data["P"]
    with np.errstate(all="ignore"):
        return optimality_error(P, data["c"], data["A"], data["b"], dims.zero, x, s, z)

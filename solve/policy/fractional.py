"""The least busy time that any shares reach, proven, and shares that spread the bytes.

Minimise the busiest resource over the shares: a linear program.  Its value need not be
believed: for any weights w >= 0 of the resources that add up to 1,

    max over r of u_r  >=  sum w_r u_r  >=  w·fixed + sum over groups of
                                            size · min over holders of (w·K)_pair

whatever the shares, and the solver's dual prices make the right side the largest.  That sum
is computed here and is the bound; the finish by fair sharing is never below the busiest
resource, so it holds for that as well.

Of all shares that are (nearly) as good, those of least squares are taken: equal flows end
together under fair sharing, and the answer is unique, whereas the corners that a linear
program returns are neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from topocal.solve.convex import solve_convex
from topocal.solve.integer import solve_integer
from topocal.solve.policy.choice import Choice
from topocal.topo.errors import SolverError

__all__ = ["Fractional", "evenly", "least_busy", "least_work"]

Floats = NDArray[np.float64]

_SOLVER: Final = {"solver": "simplex", "parallel": "off"}
"""One deterministic method, whatever the number of cores."""

_PATIENCE_S: Final = 3600.0
"""Never reached in use: a solve that time cut short would differ from machine to machine."""

SLACK: Final = 1e-6
"""How much busier than the least the spread shares may be, relative."""

_ROUNDING: Final = 1e-12
"""Relative error of the sums in the bound: thousands of terms, each exact to 2e-16."""

MOST_SPREAD: Final = 20_000
"""Entries above which the quadratic program is left out; it takes seconds from there on."""


@dataclass(frozen=True, eq=False)
class Fractional:
    """Shape (E,) shares, their busiest resource, and what no shares can undercut."""

    shares: Floats
    busiest_s: float
    bound_s: float


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The program in units in which the even shares take 1."""

    unit_s: float
    matrix: csr_array
    fixed: Floats
    sums: csr_array


def _scaled(choice: Choice) -> _Scaled:
    unit_s = choice.busiest_s(choice.even)
    entries = len(choice.entry_pair)
    of_entry = choice.cost_s.tocsc()[:, choice.entry_pair]
    matrix = csr_array(of_entry @ diags_array(choice.size_bytes[choice.entry_group]))
    ones = csr_array(
        (np.ones(entries), (choice.entry_group, np.arange(entries))),
        shape=(len(choice.groups), entries),
    )
    fixed = choice.cost_s @ choice.fixed_bytes
    used = np.flatnonzero((np.diff(matrix.indptr) > 0) | (fixed > 0))
    return _Scaled(unit_s, csr_array(matrix[used] / unit_s), fixed[used] / unit_s, ones)


def least_busy(choice: Choice) -> Fractional:
    """Solve the linear program and prove its value.

    Raises
    ------
    SolverError
        When the solver returns no solution.
    """
    fixed_s = float((choice.cost_s @ choice.fixed_bytes).max(initial=0.0))
    if not len(choice.groups) or choice.busiest_s(choice.even) <= fixed_s:
        return Fractional(choice.even, fixed_s, fixed_s)
    import cvxpy as cp

    scaled = _scaled(choice)
    shares, busiest = cp.Variable(len(choice.entry_pair), nonneg=True), cp.Variable()
    epigraph = scaled.matrix @ shares + scaled.fixed <= busiest
    problem = cp.Problem(cp.Minimize(busiest), [epigraph, scaled.sums @ shares == 1])
    solve_integer(problem, "shares of the holders", time_limit_s=_PATIENCE_S, options=_SOLVER)
    found = choice.normalised(np.asarray(shares.value))
    bound = scaled.unit_s * _proven(choice, scaled, np.asarray(epigraph.dual_value))
    busiest_s = choice.busiest_s(found)
    return Fractional(found, busiest_s, min(max(bound, fixed_s), busiest_s))


def _proven(choice: Choice, scaled: _Scaled, prices: Floats) -> float:
    """The bound that weights of the resources prove, whatever they are."""
    weight = np.maximum(prices, 0.0)
    total = float(weight.sum())
    if not total > 0:
        return 0.0
    weight = weight / total
    price = scaled.matrix.T @ weight
    least = np.minimum.reduceat(price, choice.start[:-1])
    proven = float((weight * scaled.fixed).sum()) + float(least.sum())
    return proven * (1.0 - _ROUNDING)


def _second(choice: Choice, best: Fractional, *, even: bool) -> Floats | None:
    import cvxpy as cp

    if not len(choice.groups) or best.busiest_s <= 0:
        return None
    scaled = _scaled(choice)
    shares = cp.Variable(len(choice.entry_pair), nonneg=True)
    room = best.busiest_s / scaled.unit_s * (1.0 + SLACK)
    limits = [scaled.matrix @ shares + scaled.fixed <= room, scaled.sums @ shares == 1]
    size = choice.size_bytes[choice.entry_group] / choice.size_bytes.max()
    try:
        if even:
            problem = cp.Problem(
                cp.Minimize(cp.sum_squares(cp.multiply(np.sqrt(size), shares))), limits
            )
            solve_convex(problem, "spread of the shares")
        else:
            work = np.asarray(scaled.matrix.sum(axis=0)).ravel()
            problem = cp.Problem(cp.Minimize(work @ shares), limits)
            solve_integer(
                problem, "least work of the shares", time_limit_s=_PATIENCE_S, options=_SOLVER
            )
    except SolverError:
        # A start less: the shares of the first program stay.
        return None
    return choice.normalised(np.asarray(shares.value))


def evenly(choice: Choice, best: Fractional) -> Floats | None:
    """Of the shares that are as good as ``best``, those nearest to equal; ``None`` without."""
    if len(choice.entry_pair) > MOST_SPREAD:
        return None
    return _second(choice, best, even=True)


def least_work(choice: Choice, best: Fractional) -> Floats | None:
    """Of the shares that are as good, those that keep all resources busy for the least time."""
    return _second(choice, best, even=False)

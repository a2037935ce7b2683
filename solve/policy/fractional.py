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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from topocal.solve.convex import solve_convex
from topocal.solve.integer import solve_integer
from topocal.solve.modeller import cvxpy
from topocal.solve.policy.choice import Choice
from topocal.topo.errors import SolverError

__all__ = ["Fractional", "evenly", "least_busy", "least_work"]

Floats = NDArray[np.float64]

_SOLVER: Final = {"solver": "simplex", "parallel": "off"}
"""One deterministic method, whatever the number of cores."""

_PATIENCE_S: Final = 3600.0
"""Never reached in use: a solve that time cut short would differ from machine to machine."""

_HOPELESS: Final = 1e5
"""HiGHS works to 1e-7; a holder this slow could send a millionth of its group at best."""

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
    """The program in units in which the better of two simple answers takes 1.

    A holder that alone would take :data:`_HOPELESS` units for a group is left out: the program
    would weigh what it cannot tell from zero.
    """

    unit_s: float
    kept: NDArray[np.int64]
    matrix: csr_array
    fixed: Floats
    sums: csr_array


def _scaled(choice: Choice) -> _Scaled:
    unit_s = min(choice.busiest_s(choice.even), choice.busiest_s(choice.quickest))
    kept = np.flatnonzero((choice.whole_s <= _HOPELESS * unit_s) | (choice.quickest > 0))
    of_entry = choice.cost_s.tocsc()[:, choice.entry_pair[kept]]
    matrix = csr_array(of_entry @ diags_array(choice.size_bytes[choice.entry_group[kept]]))
    ones = csr_array(
        (np.ones(len(kept)), (choice.entry_group[kept], np.arange(len(kept)))),
        shape=(len(choice.groups), len(kept)),
    )
    fixed = choice.cost_s @ choice.fixed_bytes
    return _Scaled(unit_s, kept, csr_array(matrix / unit_s), fixed / unit_s, ones)


def least_busy(choice: Choice) -> Fractional:
    """Solve the linear program and prove its value.

    Where the solver fails, the better of two simple answers and the bound of single resources
    stand in.
    """
    fixed_s = float((choice.cost_s @ choice.fixed_bytes).max(initial=0.0))
    if not len(choice.groups):
        return Fractional(choice.even, fixed_s, fixed_s)
    simple = min((choice.even, choice.quickest), key=choice.busiest_s)
    if choice.busiest_s(simple) <= fixed_s:
        return Fractional(simple, fixed_s, fixed_s)
    cp = cvxpy()

    scaled = _scaled(choice)
    shares, busiest = cp.Variable(len(scaled.kept), nonneg=True), cp.Variable()
    epigraph = scaled.matrix @ shares + scaled.fixed <= busiest
    problem = cp.Problem(cp.Minimize(busiest), [epigraph, scaled.sums @ shares == 1])
    found = _solved(choice, scaled, problem, shares, "shares of the holders")
    prices = epigraph.dual_value if found is not None else None
    bound = max(fixed_s, *(_proven(choice, w) for w in _weights(choice, scaled, prices)))
    if found is None or choice.busiest_s(found) > choice.busiest_s(simple):
        found = simple
    busiest_s = choice.busiest_s(found)
    return Fractional(found, busiest_s, min(bound, busiest_s))


def _solved(choice: Choice, scaled: _Scaled, problem: Any, shares: Any, what: str) -> Floats | None:
    """Shares of all entries; ``None`` where the solver has none."""
    try:
        solve_integer(problem, what, time_limit_s=_PATIENCE_S, options=_SOLVER)
    except SolverError:
        return None
    return _all_entries(choice, scaled, shares.value)


def _all_entries(choice: Choice, scaled: _Scaled, value: Any) -> Floats | None:
    if value is None or not np.isfinite(value).all():
        return None
    found = np.zeros(len(choice.entry_pair))
    found[scaled.kept] = np.asarray(value)
    return choice.normalised(found)


def _weights(choice: Choice, scaled: _Scaled, prices: Any) -> list[Floats]:
    """Weights of the resources to prove a bound with: the busiest alone, and the solver's prices.

    The program did not see the holders that it left out: their slowest resources get as much
    weight as makes them no cheaper than the others of their group.
    """
    simple = choice.cost_s @ choice.bytes_of(choice.quickest)
    alone = np.zeros(len(simple))
    alone[int(np.argmax(simple))] = 1.0
    if prices is None:
        return [alone]
    weight = np.maximum(np.asarray(prices), 0.0)
    weight = weight / (weight.sum() or 1.0)
    out = np.ones(len(choice.entry_pair), dtype=bool)
    out[scaled.kept] = False
    if not out.any():
        return [alone, weight]
    price = _prices(choice, weight)
    least = np.minimum.reduceat(np.where(out, np.inf, price), choice.start[:-1])
    by_pair = choice.cost_s.tocsc()
    more = np.zeros(len(weight))
    for entry in np.flatnonzero(out).tolist():
        pair = int(choice.entry_pair[entry])
        lines = slice(int(by_pair.indptr[pair]), int(by_pair.indptr[pair + 1]))
        slowest = int(by_pair.indices[lines][np.argmax(by_pair.data[lines])])
        lacks = float(least[choice.entry_group[entry]] - price[entry])
        more[slowest] = max(more[slowest], lacks / float(choice.whole_s[entry]))
    return [alone, weight, weight + more]


def _prices(choice: Choice, weight: Floats) -> Floats:
    """Shape (E,): the weighted busy time of a whole group from one holder."""
    price: Floats = choice.cost_s.T @ weight
    return price[choice.entry_pair] * choice.size_bytes[choice.entry_group]


def _proven(choice: Choice, weight: Floats) -> float:
    """The bound that weights of the resources prove, whatever they are."""
    total = float(weight.sum())
    if not total > 0:
        return 0.0
    weight = weight / total
    least = np.minimum.reduceat(_prices(choice, weight), choice.start[:-1])
    fixed = choice.cost_s @ choice.fixed_bytes
    proven = float((weight * fixed).sum()) + float(least.sum())
    return proven * (1.0 - _ROUNDING)


def _second(choice: Choice, best: Fractional, *, even: bool) -> Floats | None:
    cp = cvxpy()

    if not len(choice.groups) or best.busiest_s <= 0:
        return None
    scaled = _scaled(choice)
    if scaled.unit_s <= 0:
        return None
    shares = cp.Variable(len(scaled.kept), nonneg=True)
    room = best.busiest_s / scaled.unit_s * (1.0 + SLACK)
    limits = [scaled.matrix @ shares + scaled.fixed <= room, scaled.sums @ shares == 1]
    if not even:
        work = np.asarray(scaled.matrix.sum(axis=0)).ravel()
        problem = cp.Problem(cp.Minimize(work @ shares), limits)
        return _solved(choice, scaled, problem, shares, "least work of the shares")
    size = choice.size_bytes[choice.entry_group[scaled.kept]] / choice.size_bytes.max()
    problem = cp.Problem(cp.Minimize(cp.sum_squares(cp.multiply(np.sqrt(size), shares))), limits)
    try:
        solve_convex(problem, "spread of the shares")
    except SolverError:
        # A start less: the shares of the other programs stay.
        return None
    return _all_entries(choice, scaled, shares.value)


def evenly(choice: Choice, best: Fractional) -> Floats | None:
    """Of the shares that are as good as ``best``, those nearest to equal; ``None`` without."""
    if len(choice.entry_pair) > MOST_SPREAD:
        return None
    return _second(choice, best, even=True)


def least_work(choice: Choice, best: Fractional) -> Floats | None:
    """Of the shares that are as good, those that keep all resources busy for the least time."""
    return _second(choice, best, even=False)

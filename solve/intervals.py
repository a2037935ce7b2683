"""How well the data knows each capacity.

A capacity is *pinned* when some observation cannot be explained by anything else: its
busy time there exceeds, by three deviations of the noise, what every other resource
would take were it as slow as all observations allow at 95 %.  Fitted times are compared, not
measured ones, which would select on noise.  Otherwise the data proves only that it
is *at least* so much (:mod:`topocal.solve.residuation`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import splu
from scipy.special import ndtri, stdtrit

from topocal.solve.cost import Cost, Estimate, largest_sigma
from topocal.solve.estimate import soft_slopes
from topocal.solve.intervals_kernel import count_rivals, list_rivals
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest
from topocal.solve.status import CLEAR_SIGMAS, CONFIDENCE, Status

__all__ = ["Knowledge", "what_is_known"]

UNEXPLAINED: Final = 0.05
"""Error (log) from which an observation counts as unexplained, if it is clear of the noise."""

WITNESSES: Final = 3
"""Patterns of several flows that tell of what was only supposed for their sake."""

EFFICIENCY: Final = 0.95
"""Of the Huber estimate on Gaussian noise, against least squares (Huber 1981, table 4.1)."""


@dataclass(frozen=True)
class Knowledge:
    """What the observations say of one resource.

    Attributes
    ----------
    status
        As :class:`Status`.
    low_x, high_x
        95 % interval of its log seconds per byte; -inf where nothing bounds it.
    error
        Standard error of its log seconds per byte (of a time-shared engine: of its log
        overlap factor) where it is pinned; NaN elsewhere.
    pinned_by
        Rows of the observations that have it as their clear bottleneck.
    confounded_with
        Columns of the resources that may explain its observations as well.
    """

    status: Status
    low_x: float
    high_x: float
    error: float = math.nan
    pinned_by: tuple[int, ...] = ()
    confounded_with: tuple[int, ...] = ()


def what_is_known(
    rows: Rows,
    result: Estimate,
    active: NDArray[np.bool_],
    is_nominal: NDArray[np.bool_],
    supposed: NDArray[np.bool_],
    *,
    doubted: NDArray[np.bool_] | None = None,
    freedom: float = math.inf,
) -> list[Knowledge]:
    """Status and interval of every resource, in the order of ``rows.resources``.

    Parameters
    ----------
    active
        Shape (R,): the resources that the fit was allowed to explain observations by.
    is_nominal
        Shape (R,): whether a specification gives the capacity.
    supposed
        Shape (R,): what no specification or link shows.  It rivals others only where the
        fit needed it: what may be there but never had to be is not a reason to doubt.
    doubted
        Shape (R,): what a few patterns of several flows are not enough for; default: nothing.
    freedom
        Degrees of freedom that the noise is known by: of few, errors are as much larger as 95 %
        of Student's t reach farther.
    """
    bound = upper_bounds(rows)
    noise = largest_sigma(rows)
    # Many observations bound a resource, and the lowest is the luckiest: Bonferroni.
    tail = (1 - CONFIDENCE) / (2 * np.maximum(1, rows.crowd))
    limit = bound - ndtri(tail) * noise
    clear, rivals = _evidence(rows, result, active, np.where(supposed & ~active, -np.inf, limit))
    nothing = np.zeros_like(supposed)
    for r in _hanging_on_few(rows, clear, nothing if doubted is None else doubted):
        del clear[r]
        rivals.setdefault(r, set())
    error, kappa_error = _standard_errors(rows, result, active)
    side = dict(zip(rows.shared.resource.tolist(), rows.shared.side.tolist(), strict=True))
    level = float(ndtri(0.5 + CONFIDENCE / 2))
    unsure = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) / level if freedom < math.inf else 1.0
    known: list[Knowledge] = []
    for r in range(len(bound)):
        x = float(result.x[r])
        one = float(kappa_error[side[r]] if r in side else error[r]) * unsure
        if r in clear and math.isfinite(one):
            half = level * one
            known.append(Knowledge(Status.PINNED, x - half, x + half, one, tuple(clear[r])))
        elif rows.crowd[r] == 0 and r not in rivals and r not in clear:
            status = Status.ASSUMED if is_nominal[r] else Status.UNKNOWN
            known.append(Knowledge(status, x if is_nominal[r] else -math.inf, x))
        else:
            high = float(limit[r]) if math.isfinite(limit[r]) else x
            status = Status.CONFOUNDED if r in rivals else Status.BOUNDED
            others = tuple(sorted(rivals.get(r, ())))
            known.append(Knowledge(status, -math.inf, high, confounded_with=others))
    return [
        known[r]
        if first == r
        else Knowledge(Status.SERIES, -math.inf, known[first].high_x, confounded_with=(first,))
        for r, first in enumerate(rows.series.tolist())
    ]


def _standard_errors(
    rows: Rows, result: Estimate, active: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each fitted x, shape (R,), and of both log kappa, from the curvature of the cost;
    infinite where nothing bends it."""
    fitted = active & np.isfinite(upper_bounds(rows))
    cost = Cost(rows.only(fitted), fitted, np.full(len(active), np.nan))
    n = len(cost.columns)
    slopes, predicted = soft_slopes(cost, np.where(active, result.x, -np.inf), result.log_kappa, 0)
    carried = np.isfinite(predicted)
    scaled = diags_array(np.where(carried, 1.0 / rows.sigma, 0.0)) @ slopes
    information = csr_array(scaled.T @ scaled)
    diagonal = information.diagonal()
    used = np.flatnonzero(diagonal > 0)
    variance = np.full(n + 2, np.inf)
    inner = information[used][:, used].tocsc()
    coupled = np.flatnonzero(np.diff(inner.indptr) > 1)
    variance[used] = 1.0 / diagonal[used]
    if len(coupled):
        ridge = diags_array(np.full(len(coupled), 1e-9 * diagonal.max()))
        block = (inner[coupled][:, coupled] + ridge).tocsc()
        inverse = splu(block).solve(np.eye(len(coupled)))
        variance[used[coupled]] = np.diagonal(inverse)
    error = np.full(len(rows.resources), np.inf)
    error[cost.columns] = np.sqrt(variance[:n] / EFFICIENCY)
    return error, np.sqrt(variance[n:] / EFFICIENCY)


def _evidence(
    rows: Rows, result: Estimate, active: NDArray[np.bool_], bound: NDArray[np.float64]
) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
    """Per resource: observations that it clearly binds, and its rivals in the others it binds."""
    x = np.where(active, result.x, -np.inf)
    shared = rows.shared
    busy, shares = shared.busy(rows.solo(x), result.log_kappa)
    engines_of: dict[int, list[int]] = {}
    for k, row in enumerate(shared.row.tolist()):
        engines_of.setdefault(row, []).append(k)
    binding = first_busiest(rows.pair_weight, x)
    top = first_busiest(rows.log_load, x)
    highest = rows.highest(x)
    alone = rows.series == np.arange(len(bound))

    # What the fit does not explain pins nothing, and nothing that it hangs on is sure.
    missed = np.abs(result.log_predicted - rows.log_seconds) > np.maximum(
        UNEXPLAINED, CLEAR_SIGMAS * rows.sigma
    )
    slowest_of = np.where(alone, bound, -np.inf)
    plain = top >= 0
    plain[shared.row] = False
    clear, rivals, doubtful = _by_capacities(
        rows, np.flatnonzero(plain), top, highest, slowest_of, missed
    )

    def note(resource: int, row: int, others: set[int]) -> None:
        if missed[row]:
            doubtful.add(resource)
        elif others:
            rivals.setdefault(resource, set()).update(others)
        else:
            clear.setdefault(resource, []).append(row)

    def own_rivals(pair: int, margin: float) -> set[int]:
        """What else a flow crosses that may set its pace alone."""
        span = slice(rows.pair_weight.indptr[pair], rows.pair_weight.indptr[pair + 1])
        columns, weight = rows.pair_weight.indices[span], rows.pair_weight.data[span]
        pace = float(weight[binding[pair] - span.start] + x[columns[binding[pair] - span.start]])
        return set(columns[weight + slowest_of[columns] > pace - margin].tolist())

    for s, engines in engines_of.items():
        span = slice(rows.log_load.indptr[s], rows.log_load.indptr[s + 1])
        columns = rows.log_load.indices[span]
        slowest = rows.log_load.data[span] + slowest_of[columns]
        margin = CLEAR_SIGMAS * float(rows.sigma[s])
        longest = max(engines, key=lambda k: busy[k])
        if busy[longest] > highest[s]:
            close = set(columns[slowest > busy[longest] - margin].tolist())
            note(int(shared.resource[longest]), s, close)
            # The engine's time is mostly that of one flow: then it tells what that one passes.
            for at in range(shared.indptr[longest], shared.indptr[longest + 1]):
                if shares[at] >= 0.5:
                    pair = int(shared.pair[at])
                    r = int(rows.pair_weight.indices[binding[pair]])
                    note(r, s, (close | own_rivals(pair, margin)) - {r})
        elif top[s] >= 0:
            r = int(rows.log_load.indices[top[s]])
            others = set(columns[slowest > highest[s] - margin].tolist()) - {r}
            others |= {int(shared.resource[k]) for k in engines if busy[k] > highest[s] - margin}
            note(r, s, others)
    clear = {r: sorted(by) for r, by in clear.items() if r not in doubtful}
    return clear, {r: others for r, others in rivals.items() if r not in clear}


def _hanging_on_few(
    rows: Rows, clear: Mapping[int, Sequence[int]], doubted: NDArray[np.bool_]
) -> list[int]:
    """What is doubted, and only a few patterns of several flows have as their clear bottleneck.

    Whatever else those flows have in common explains them as well, with hardly a number more:
    nothing says that others meet it.
    """
    found = []
    for r, by in clear.items():
        if doubted[r]:
            patterns = {tuple(rows.observations[s].pattern.pairs) for s in by}
            if len(patterns) < WITNESSES and all(len(pairs) > 1 for pairs in patterns):
                found.append(r)
    return found


def _by_capacities(
    rows: Rows,
    asked: NDArray[np.int64],
    top: NDArray[np.int64],
    highest: NDArray[np.float64],
    slowest: NDArray[np.float64],
    missed: NDArray[np.bool_],
) -> tuple[dict[int, list[int]], dict[int, set[int]], set[int]]:
    """The same of observations without time-shared rows; and what binds those that are missed.

    Parameters
    ----------
    asked
        The observations.
    top, highest
        Shape (S,): where in ``rows.log_load`` each one's busiest entry stands, and its time.
    slowest
        Shape (R,): as slow as each resource may be.
    missed
        Shape (S,): whether the fit does not explain it.
    """
    load = rows.log_load
    binds = load.indices[top[asked]].astype(np.int64)
    doubtful = set(np.unique(binds[missed[asked]]).tolist())
    kept = ~missed[asked]
    asked, binds = asked[kept], binds[kept]
    least = highest - CLEAR_SIGMAS * rows.sigma
    entries = (load.indptr, load.indices, load.data, slowest, asked, top, least)
    counts = np.empty(len(asked), dtype=np.int64)
    count_rivals(*entries, counts)
    others = np.empty(counts.sum(), dtype=np.int32)
    list_rivals(*entries, others)
    rivals: dict[int, set[int]] = {}
    pairs = np.unique(np.repeat(binds, counts) * load.shape[1] + others)
    for r, other in zip(*(one.tolist() for one in divmod(pairs, load.shape[1])), strict=True):
        rivals.setdefault(r, set()).add(other)
    clear: dict[int, list[int]] = {}
    for r, row in zip(binds[counts == 0].tolist(), asked[counts == 0].tolist(), strict=True):
        clear.setdefault(r, []).append(row)
    return clear, rivals, doubtful

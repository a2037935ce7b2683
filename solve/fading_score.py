"""Do the errors of a fit grow with the flows?  The score test of a further parameter.

Everything that capacities and overlap factors could do about it is taken off, with robust
weights.  Two further questions guard the answer.  What only patterns of many flows ever
needed stands aside, since a resource of their own hides any loss.  And where capacities of
one make agree, so that few numbers explain the figures better than one for each, the test
must hold with those few: the busiest of several noisy equals is biased to the slow side, and
fits to single flows bear that while wide fans, of which one resource is the bottleneck, do
not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from topocal.solve.candidates import like
from topocal.solve.cost import HUBER, Cost, huber
from topocal.solve.estimate import soft_slopes
from topocal.solve.fading import Crowd
from topocal.solve.hypotheses import Fit, nominal_prior
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest
from topocal.topo.incidence import incidence
from topocal.topo.topology import Topology

__all__ = ["FEW", "Counts", "Score", "pooled_scores", "score", "scores"]

FEW: Final = 2
"""Patterns of more flows than this make a crowd; without any there is nothing to tell."""

AGREE: Final = (2.0, 3.0, 4.0)
"""Capacities of one make within so many deviations of a figure may be one number."""

EFFICIENCY: Final = 0.95
"""Of the Huber estimate on Gaussian noise, against least squares (Huber 1981, table 4.1)."""

_NORMAL: Final = 0.4549
"""Median of a squared normal error of unit deviation."""

_STEPS: Final = 6

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """How many flows count for every load.

    Attributes
    ----------
    entry
        Shape of ``Rows.log_load.data``.
    by_key
        The same by row × R + column, time-shared loads included; ``None`` where the flows of
        the whole pattern count.
    whole
        Flows of each observation.
    """

    entry: Ints
    by_key: tuple[Ints, Ints] | None
    whole: Ints

    @classmethod
    def of(cls, by: Crowd, rows: Rows, topology: Topology) -> Counts:
        """Of all loads of the observations."""
        whole = np.array([len(o.pattern.flows) for o in rows.observations], dtype=np.int64)
        owner = np.repeat(np.arange(len(whole)), np.diff(rows.log_load.indptr))
        if by is Crowd.PATTERN:
            return cls(whole[owner], None, whole)
        pairs = sorted({pair for o in rows.observations for pair in o.pattern.pairs})
        number = {pair: k for k, pair in enumerate(pairs)}
        flow = np.array([number[p] for o in rows.observations for p in o.pattern.pairs])
        of_row = np.repeat(np.arange(len(whole)), whole)
        shape = (len(whole), len(pairs))
        flows = coo_array((np.ones(len(flow)), (of_row, flow)), shape=shape).tocsr()
        lines = incidence(topology, pairs).matrix
        loaded = csr_array((np.ones(len(lines.data)), lines.indices, lines.indptr), lines.shape)
        table = csr_array(flows @ loaded).tocoo()
        row, column = (axis.astype(np.int64) for axis in table.coords)
        keys, values = row * len(rows.resources) + column, np.rint(table.data).astype(np.int64)
        order = np.argsort(keys)
        by_key = keys[order], values[order]
        entry = _looked_up(by_key, owner * len(rows.resources) + rows.log_load.indices)
        return cls(entry, by_key, whole)

    def of_engines(self, rows: Rows) -> Ints:
        """Of each time-shared row."""
        shared = rows.shared
        if self.by_key is None:
            return self.whole[shared.row]
        return _looked_up(self.by_key, shared.row * len(rows.resources) + shared.resource)

    def on_bottleneck(self, fit: Fit, active: NDArray[np.bool_] | None = None) -> Ints:
        """Of what binds each observation; 1 where nothing does."""
        rows = fit.rows
        x = np.where(fit.active if active is None else active, fit.estimate.x, -np.inf)
        top = first_busiest(rows.log_load, x)
        found = np.where(top >= 0, self.entry[np.maximum(top, 0)], 1)
        shared = rows.shared
        if len(shared):
            busy, _ = shared.busy(rows.solo(x), fit.estimate.log_kappa)
            longer = busy > rows.highest(x)[shared.row]
            found[shared.row[longer]] = self.of_engines(rows)[longer]
        return found


def _looked_up(by_key: tuple[Ints, Ints], wanted: Ints) -> Ints:
    keys, values = by_key
    if not len(keys):
        return np.ones(len(wanted), dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 1)


@dataclass(frozen=True)
class Score:
    """A step of the loss, its standard error, and what the other numbers do meanwhile."""

    loss: float
    error: float
    crowding: Floats


def scores(fit: Fit, counts: Counts) -> Iterator[tuple[Score, Fit]]:
    """Of the fit as it is, and without what only many flows at once ever needed; each with
    where to fit on from."""
    yield score(fit, counts, 0.0, fit.active), fit
    rows = fit.rows
    x = np.where(fit.active, fit.estimate.x, -np.inf)
    top = first_busiest(rows.log_load, x)
    column = np.where(top >= 0, rows.log_load.indices[np.maximum(top, 0)], -1)
    narrow = counts.whole <= FEW
    needed = np.zeros(len(fit.active), dtype=bool)
    needed[np.unique(column[narrow & (column >= 0)])] = True
    crowded = np.zeros(len(fit.active), dtype=bool)
    crowded[np.unique(column[~narrow & (column >= 0)])] = True
    aside = crowded & ~needed
    if not aside.any() or not (needed & fit.active).any():
        return
    prior = nominal_prior(fit.topology)
    moved = fit.estimate.x.copy()
    moved[aside] = np.where(np.isfinite(prior[aside]), prior[aside], -np.inf)
    active = fit.active & np.isfinite(moved)
    without = replace(
        fit,
        estimate=replace(fit.estimate, x=moved),
        active=active,
        numbers=max(0, fit.numbers - int(np.count_nonzero(fit.active & ~active))),
    )
    yield score(without, counts, 0.0, active, fixed=aside), without


def score(
    fit: Fit,
    counts: Counts,
    loss: float,
    active: NDArray[np.bool_],
    fixed: NDArray[np.bool_] | None = None,
) -> Score:
    """The Gauss-Newton step of the loss, everything else but ``fixed`` free to follow."""
    rows = fit.rows
    nothing = Score(0.0, math.inf, np.zeros(len(rows.resources)))
    further = counts.on_bottleneck(fit, active) - 1
    slope = further / (1.0 + loss * further)
    fitted = active & np.isfinite(upper_bounds(rows))
    cost = Cost(rows, fitted, np.full(len(active), np.nan))
    slopes, predicted = soft_slopes(
        cost, np.where(active, fit.estimate.x, -np.inf), fit.estimate.log_kappa, 0
    )
    if not np.isfinite(predicted).any():
        return nothing
    if fixed is not None:
        free = np.append(~fixed[cost.columns], [True, True]).astype(float)
        slopes = csr_array(slopes @ diags_array(free))
    found = _step(rows, slopes, predicted, slope)
    if found is None:
        return nothing
    crowding = np.zeros(len(rows.resources))
    crowding[cost.columns] = found.along[: len(cost.columns)]
    crowding = crowding[rows.series]
    for side in (0, 1):
        engines = np.unique(rows.shared.resource[rows.shared.side == side])
        crowding[engines] = found.along[len(cost.columns) + side]
    return Score(loss=found.loss, error=found.error, crowding=crowding)


@dataclass(frozen=True)
class _Step:
    """Of the loss, with its error; and what the other numbers do against each unit of it."""

    loss: float
    error: float
    along: Floats


class _Normal:
    """Weighted least squares of the errors of a fit, linear where it stands.

    Parameters
    ----------
    slopes
        Shape (S, numbers): of every predicted log time.
    predicted
        Shape (S,): log seconds; -inf where nothing carries an observation.
    """

    def __init__(self, rows: Rows, slopes: csr_array, predicted: Floats) -> None:
        self.carried = np.isfinite(predicted)
        self.slopes, self.sigma = slopes, rows.sigma
        self.error = np.where(
            self.carried, rows.log_seconds - np.where(self.carried, predicted, 0.0), 0.0
        )
        far = np.maximum(np.abs(self.error / rows.sigma), 1e-12)
        self.root = np.sqrt(np.where(self.carried, np.minimum(1.0, HUBER / far), 0.0)) / rows.sigma
        self.design = csr_array(diags_array(self.root) @ slopes)
        information = csr_array(self.design.T @ self.design)
        self._used = np.flatnonzero(information.diagonal() > 0)
        if len(self._used):
            ridge = 1e-9 * information.diagonal().max()
            inner = information[self._used][:, self._used]
            self._factors = splu((inner + ridge * diags_array(np.ones(len(self._used)))).tocsc())

    def solve(self, target: Floats) -> Floats:
        """The numbers that follow a change of the log times best, shape (numbers,)."""
        found = np.zeros(self.slopes.shape[1])
        if len(self._used):
            right = np.asarray(self.design.T @ (self.root * target))[self._used]
            found[self._used] = self._factors.solve(right)
        return found


def _step(rows: Rows, slopes: csr_array, predicted: Floats, slope: Floats) -> _Step | None:
    """The Gauss-Newton step; ``None`` where the other numbers do all that the loss could."""
    normal = _Normal(rows, slopes, predicted)
    along, follow = normal.solve(slope), normal.solve(normal.error)
    g = normal.root * slope
    left = g - normal.design @ along
    curvature = float(left @ left)
    if not curvature > 1e-9 * float(g @ g):
        return None
    loss = float(left @ (normal.root * normal.error)) / curvature
    # What is still not met after the step makes the loss less sure as well.
    unmet = (normal.error - loss * slope - slopes @ (follow - loss * along)) / rows.sigma
    spread = math.sqrt(max(1.0, float(np.median(unmet[normal.carried] ** 2)) / _NORMAL))
    return _Step(loss, spread / math.sqrt(curvature * EFFICIENCY), along)


def pooled_scores(fit: Fit, counts: Counts, loss: float) -> Iterator[Score]:
    """The same with one number for capacities of one make that agree, by all measures of
    agreement with which that explains the figures better than one for each.

    What agrees are capacities within :data:`AGREE` deviations, relative to what they are by
    specification.
    """
    for width in AGREE:
        found = _pooled(fit, counts, loss, width)
        if found is not None:
            yield found


def _pooled(fit: Fit, counts: Counts, loss: float, width: float) -> Score | None:
    rows = fit.rows
    fitted = fit.active & np.isfinite(upper_bounds(rows)) & np.isfinite(fit.estimate.x)
    cost = Cost(rows, fitted, np.full(len(fitted), np.nan))
    prior = nominal_prior(fit.topology)
    base = np.where(np.isfinite(prior), prior, 0.0)[cost.columns]
    group = _agreeing(fit, cost.columns, fit.estimate.x[cost.columns] - base, width)
    n, k = len(cost.columns), int(group.max(initial=-1)) + 1
    if not n:
        return None
    place = np.append(group, [k, k + 1])
    pool = coo_array((np.ones(n + 2), (np.arange(n + 2), place)), shape=(n + 2, k + 2)).tocsr()
    common = np.array(
        [np.median((fit.estimate.x[cost.columns] - base)[group == g]) for g in range(k)]
    )
    x, log_kappa = np.full(len(fitted), -np.inf), fit.estimate.log_kappa.copy()
    binding = 0
    for last in range(_STEPS, -1, -1):
        x[cost.columns] = base + common[group]
        slopes, predicted = soft_slopes(cost, x, log_kappa, 0)
        slopes = csr_array(slopes @ pool)
        binding = int(np.count_nonzero(np.diff(slopes.tocsc().indptr)))
        if not last:
            break
        normal = _Normal(rows, slopes, predicted)
        follow = normal.solve(normal.error)
        common = common + follow[:k]
        log_kappa = np.minimum(0.0, log_kappa + follow[k:])
    price = math.log(max(2, len(rows.observations)))
    misfit = float(huber((predicted - rows.log_seconds) / rows.sigma).sum())
    alone = float(huber((fit.estimate.log_predicted - rows.log_seconds) / rows.sigma).sum())
    top = first_busiest(rows.log_load, np.where(fit.active, fit.estimate.x, -np.inf))
    each = len(np.unique(rows.log_load.indices[top[top >= 0]]))
    if misfit + binding * price > alone + each * price:
        return None
    moved = replace(fit, estimate=replace(fit.estimate, x=x, log_kappa=log_kappa))
    further = counts.on_bottleneck(moved, fitted) - 1
    found = _step(rows, slopes, predicted, further / (1.0 + loss * further))
    if found is None:
        return Score(0.0, math.inf, np.zeros(len(rows.resources)))
    return Score(found.loss, found.error, np.zeros(len(rows.resources)))


def _agreeing(fit: Fit, columns: Ints, away: Floats, deviations: float) -> Ints:
    """Number of the group of each column: of one make, and within a width."""
    make = like(fit.topology)
    names = [make[fit.rows.resources[c]] for c in columns.tolist()]
    width = deviations * float(np.median(fit.rows.sigma))
    group = np.full(len(columns), -1, dtype=np.int64)
    count = 0
    for name in dict.fromkeys(names):
        mine = np.array([k for k, other in enumerate(names) if other == name])
        mine = mine[np.argsort(away[mine], kind="stable")]
        begin = -math.inf
        for k in mine.tolist():
            if away[k] > begin + width:
                begin, count = float(away[k]), count + 1
            group[k] = count - 1
    return group

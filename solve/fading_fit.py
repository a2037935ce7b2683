"""The fit, with the loss by many flows where the data demands it.

A first fit without it is asked whether its errors grow with the flows, once everything
that capacities and overlap factors could do about that is taken off: the score test of a
further parameter, with robust weights.  What only patterns of many flows ever needed
stands aside in it, since a resource of their own hides any loss.  Only where that is
suspicious the machine is fitted again, every load lengthened by the loss, until the loss
stays; and the model has it only where that is better by more than 10 in BIC, its own
number paid for (Kass & Raftery 1995: very strong).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from topocal.solve.candidates import Candidates
from topocal.solve.estimate import HUBER, PRIOR, PRIOR_UNIT, Cost, huber, soft_slopes
from topocal.solve.fading import TWO_SIDED, Crowd, Faded, Fading
from topocal.solve.intervals import Knowledge
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Observation, Rows, first_busiest
from topocal.solve.sharing import Fit, SharingVerdict, fit_sharing, nominal_prior
from topocal.topo.incidence import incidence
from topocal.topo.topology import Topology

__all__ = ["Crowded", "fit_with_fading"]

SUSPICIOUS: Final = 2.5
"""Deviations of the score from which the machine is fitted again."""

VERY_STRONG: Final = 10.0
"""Difference of BIC that decides (Kass & Raftery 1995, section 3.2)."""

LARGEST_LOSS: Final = 0.2
"""For each further flow; what falls faster is no crowd but a collapse."""

FEW: Final = 2
"""Patterns of more flows than this make a crowd; without any there is nothing to tell."""

ROUNDS: Final = 4
"""Fits at most of one machine with a loss."""

SETTLED: Final = 0.25
"""Steps of less than a quarter of its error do not matter."""

HOPELESS: Final = 0.7
"""A loss that buys less than this of what it must is not tried further."""

MANY: Final = 5000
"""Observations from which only the flows of whole patterns are counted, and one further fit
has to do."""

EFFICIENCY: Final = 0.95
"""Of the Huber estimate on Gaussian noise, against least squares (Huber 1981, table 4.1)."""

_NORMAL: Final = 0.4549
"""Median of a squared normal error of unit deviation."""

_SHOWN: Final = 3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Crowded:
    """A fit, and what it says of many flows.

    Attributes
    ----------
    fit, verdict
        Of the figures, the loss in its loads where there is one.
    fading
        The loss; ``None`` where the data does not demand it.
    crowding
        Shape (R,): how far each log capacity rises for each unit that the loss does; of
        time-shared resources, how far the log overlap factor falls.
    """

    fit: Fit
    verdict: SharingVerdict
    fading: Fading | None
    crowding: Floats

    def knowing(self, known: Sequence[Knowledge]) -> list[Knowledge]:
        """What is known of each resource, the loss being known only within its error."""
        if self.fading is None:
            return list(known)
        found = []
        for r, one in enumerate(known):
            unsure = abs(float(self.crowding[r])) * self.fading.error
            if math.isfinite(one.error):
                error = math.hypot(one.error, unsure)
                middle, half = (one.low_x + one.high_x) / 2, (one.high_x - one.low_x) / 2
                half *= error / one.error
                one = replace(one, error=error, low_x=middle - half, high_x=middle + half)
            elif math.isfinite(one.high_x):
                one = replace(one, high_x=one.high_x + TWO_SIDED * unsure)
            found.append(one)
        return found


def fit_with_fading(candidates: Candidates, observations: Sequence[Observation]) -> Crowded:
    """Fit all hypotheses of sharing, without a loss by many flows and, if need be, with one.

    Raises
    ------
    SolverError
        When an optimiser fails.
    """
    fit, verdict = fit_sharing(candidates, observations)
    best = Crowded(fit, verdict, None, np.zeros(len(fit.rows.resources)))
    width = np.array([len(o.pattern.flows) for o in observations])
    if width.max(initial=0) <= FEW:
        return best
    plain, suspects = best.fit, []
    for by in Crowd if len(observations) <= MANY else (Crowd.PATTERN,):
        counts = _Counts.of(by, plain.rows, candidates.topology)
        score = max(_scores(plain, counts), key=lambda s: s.loss / s.error)
        if SUSPICIOUS * score.error < score.loss < LARGEST_LOSS:
            suspects.append((score.loss / score.error, by, counts, score.loss))
    for _, by, counts, loss in sorted(suspects, key=lambda one: -one[0]):
        least = best.fading.advantage if best.fading else VERY_STRONG
        found = _fitted(plain, by, counts, loss, observations, least)
        best = best if found is None else found
    return best


def _fitted(
    plain: Fit,
    by: Crowd,
    counts: _Counts,
    loss: float,
    observations: Sequence[Observation],
    least: float,
) -> Crowded | None:
    """The fit with one loss; ``None`` where it is not better by more than ``least`` in BIC."""
    price = math.log(max(2, len(observations)))
    before = _cost(plain)
    best: tuple[float, float, Fit, SharingVerdict] | None = None
    for _ in range(1 if len(observations) > MANY else ROUNDS):
        loss = min(max(loss, 0.0), LARGEST_LOSS)
        fit, verdict = fit_sharing(plain.candidates, observations, _Lengthened(counts, loss))
        cost = _cost(fit)
        if best is None or cost < best[0]:
            best = (cost, loss, fit, verdict)
        score = _score(fit, counts, loss, fit.active)
        loss += score.loss
        settled = abs(score.loss) < SETTLED * score.error
        if settled or before - best[0] - price < HOPELESS * least:
            break
    if best is None:
        return None
    cost, loss, fit, verdict = best
    advantage = before - cost - price
    score = _score(fit, counts, loss, fit.active)
    if not (advantage > least and loss > 0 and math.isfinite(score.error)):
        return None
    fading = Fading(
        loss=loss,
        error=score.error,
        by=by,
        most_flows=int(counts.on_bottleneck(fit).max()),
        advantage=advantage,
        evidence=tuple(_shown(fit, counts, loss)),
    )
    return Crowded(fit, verdict, fading, score.crowding)


def _cost(fit: Fit) -> float:
    """BIC of a fit, capacities compared with how good the machine is in all.

    The pull to specifications falls when a loss makes all capacities a little better; that
    says nothing for the loss.  One link far worse than the others says much against.
    """
    rows = fit.rows
    error = (fit.estimate.log_predicted - rows.log_seconds) / rows.sigma
    prior = nominal_prior(fit.topology)
    alone = rows.series == np.arange(len(prior))
    known = fit.active & alone & (rows.crowd > 0) & np.isfinite(prior)
    away = (fit.estimate.x - prior)[known]
    pull = float(np.abs(away - np.median(away)).sum()) if len(away) else 0.0
    unit = max(PRIOR_UNIT, float(np.median(rows.sigma)))
    price = math.log(max(2, len(rows.observations)))
    return float(huber(error).sum()) + PRIOR * pull / unit + fit.numbers * price


@dataclass(frozen=True)
class _Counts:
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
    def of(cls, by: Crowd, rows: Rows, topology: Topology) -> _Counts:
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
class _Lengthened:
    """Every load as long as the loss makes it."""

    counts: _Counts
    loss: float

    def __call__(self, rows: Rows) -> Rows:
        load = rows.log_load.copy()
        load.data = load.data + np.log1p(self.loss * (self.counts.entry - 1))
        shared = rows.shared
        further = np.log1p(self.loss * (self.counts.of_engines(rows) - 1))
        load.has_sorted_indices = False
        return replace(
            rows,
            log_load=load,
            shared=replace(shared, log_bytes=shared.log_bytes + further[shared.owner]),
        )


@dataclass(frozen=True)
class _Score:
    """A step of the loss, its standard error, and what the other numbers do meanwhile."""

    loss: float
    error: float
    crowding: Floats


def _scores(fit: Fit, counts: _Counts) -> Iterator[_Score]:
    """Of the fit as it is, and without what only many flows at once ever needed."""
    yield _score(fit, counts, 0.0, fit.active)
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
    without = replace(fit, estimate=replace(fit.estimate, x=moved))
    yield _score(without, counts, 0.0, fit.active & np.isfinite(moved), fixed=aside)


def _score(
    fit: Fit,
    counts: _Counts,
    loss: float,
    active: NDArray[np.bool_],
    fixed: NDArray[np.bool_] | None = None,
) -> _Score:
    """The Gauss-Newton step of the loss, everything else but ``fixed`` free to follow."""
    rows = fit.rows
    nothing = _Score(0.0, math.inf, np.zeros(len(rows.resources)))
    further = counts.on_bottleneck(fit, active) - 1
    slope = further / (1.0 + loss * further)
    fitted = active & np.isfinite(upper_bounds(rows))
    cost = Cost(rows, fitted, np.full(len(active), np.nan))
    slopes, predicted = soft_slopes(
        cost, np.where(active, fit.estimate.x, -np.inf), fit.estimate.log_kappa, 0
    )
    carried = np.isfinite(predicted)
    if not carried.any():
        return nothing
    error = np.where(carried, rows.log_seconds - np.where(carried, predicted, 0.0), 0.0)
    scaled = error / rows.sigma
    weight = np.where(carried, np.minimum(1.0, HUBER / np.maximum(np.abs(scaled), 1e-12)), 0.0)
    root = np.sqrt(weight) / rows.sigma
    design = csr_array(diags_array(root) @ slopes)
    if fixed is not None:
        free = np.append(~fixed[cost.columns], [True, True]).astype(float)
        design = csr_array(design @ diags_array(free))
    g, e = root * slope, root * error
    information = csr_array(design.T @ design)
    used = np.flatnonzero(information.diagonal() > 0)
    along, follow = np.zeros((2, information.shape[0]))
    if len(used):
        ridge = 1e-9 * information.diagonal().max()
        matrix = information[used][:, used] + ridge * diags_array(np.ones(len(used)))
        solved = splu(matrix.tocsc()).solve(np.asarray(design.T @ np.stack([g, e], axis=1))[used])
        along[used], follow[used] = solved.T
    left = g - design @ along
    curvature = float(left @ left)
    if not curvature > 1e-9 * float(g @ g):
        return nothing
    step = float(left @ e) / curvature
    # What is still not met after the step makes the loss less sure as well.
    unmet = (error - step * slope - slopes @ (follow - step * along)) / rows.sigma
    spread = math.sqrt(max(1.0, float(np.median(unmet[carried] ** 2)) / _NORMAL))
    crowding = np.zeros(len(rows.resources))
    crowding[cost.columns] = along[: len(cost.columns)]
    crowding = crowding[rows.series]
    for side in (0, 1):
        engines = np.unique(rows.shared.resource[rows.shared.side == side])
        crowding[engines] = along[len(cost.columns) + side]
    return _Score(
        loss=step,
        error=spread / math.sqrt(curvature * EFFICIENCY),
        crowding=crowding,
    )


def _shown(fit: Fit, counts: _Counts, loss: float) -> Iterator[Faded]:
    """The figures of most flows, each as it was measured and as few flows would make it."""
    observations, flows = fit.rows.observations, counts.on_bottleneck(fit)
    order = sorted(range(len(observations)), key=lambda s: (-int(flows[s]), observations[s].name))
    for s in order[:_SHOWN]:
        o = observations[s]
        seconds = math.exp(float(fit.estimate.log_predicted[s]))
        if flows[s] > FEW and seconds > 0:
            without = seconds / (1.0 + loss * (int(flows[s]) - 1))
            yield Faded(
                name=o.name,
                measured_Bps=o.throughput_Bps,
                without_Bps=o.pattern.total_bytes / without,
            )

"""The fit, with the loss by many flows where the data demands it.

A first fit without it is asked whether its errors grow with the flows, once everything
that capacities and overlap factors could do about that is taken off: the score test of a
further parameter, with robust weights.  Only where that is suspicious the machine is
fitted again, the loss taken off the figures, until the loss stays; and the model has it
only where that is better by more than 10 in BIC, its own number paid for (Kass & Raftery
1995: very strong).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import splu

from topocal.solve.candidates import Candidates
from topocal.solve.estimate import HUBER, Cost, soft_slopes
from topocal.solve.fading import TWO_SIDED, Crowd, Faded, Fading
from topocal.solve.intervals import Knowledge
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Observation, Rows, first_busiest
from topocal.solve.sharing import Fit, SharingVerdict, fit_sharing
from topocal.topo.incidence import incidence

__all__ = ["Crowded", "fit_with_fading"]

SUSPICIOUS: Final = 2.5
"""Deviations of the score from which the machine is fitted again."""

VERY_STRONG: Final = 10.0
"""Difference of BIC that decides (Kass & Raftery 1995, section 3.2)."""

LARGEST_LOSS: Final = 0.2
"""For each further flow; what falls faster is no crowd but a collapse."""

MOST_FLOWS: Final = 2
"""Patterns of more flows than this make a crowd; without any there is nothing to tell."""

ROUNDS: Final = 4
"""Fits at most of one machine with a loss."""

SETTLED: Final = 0.25
"""Steps of less than a quarter of its error do not matter."""

HOPELESS: Final = 0.7
"""A loss that buys less than this of what it must is not tried further."""

MANY: Final = 5000
"""Observations from which one further fit has to do."""

EFFICIENCY: Final = 0.95
"""Of the Huber estimate on Gaussian noise, against least squares (Huber 1981, table 4.1)."""

_NORMAL: Final = 0.4549
"""Median of a squared normal error of unit deviation."""

_SHOWN: Final = 3


@dataclass(frozen=True)
class Crowded:
    """A fit, and what it says of many flows.

    Attributes
    ----------
    fit, verdict
        Of the figures, the loss taken off where there is one.
    fading
        The loss; ``None`` where the data does not demand it.
    factor
        Shape (S,): what the figures were divided by.
    crowding
        Shape (R,): how far each log capacity rises for each unit that the loss does; of
        time-shared resources, how far the log overlap factor falls.
    """

    fit: Fit
    verdict: SharingVerdict
    fading: Fading | None
    factor: NDArray[np.float64]
    crowding: NDArray[np.float64]

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
    best, verdict = fit_sharing(candidates, observations)
    plain = Crowded(
        best, verdict, None, np.ones(len(observations)), np.zeros(len(best.rows.resources))
    )
    width = np.array([len(o.pattern.flows) for o in observations])
    if width.max(initial=0) <= MOST_FLOWS:
        return plain
    suspects = []
    for by in Crowd:
        flows = _flows(by, best, width)
        score = _score(best, flows, 0.0)
        if score.loss > SUSPICIOUS * score.error:
            suspects.append((by, score.loss, score.loss / score.error))
    suspects.sort(key=lambda one: -one[2])
    best_of_all = plain
    for by, loss, _ in suspects[: 1 if len(observations) > MANY else None]:
        least = best_of_all.fading.advantage if best_of_all.fading else VERY_STRONG
        found = _fitted(plain, by, loss, observations, least)
        best_of_all = best_of_all if found is None else found
    return best_of_all


def _fitted(
    plain: Crowded, by: Crowd, loss: float, observations: Sequence[Observation], least: float
) -> Crowded | None:
    """The fit with one loss; ``None`` where it is not better by more than ``least`` in BIC."""
    width = np.array([len(o.pattern.flows) for o in observations])
    fit, verdict, flows = plain.fit, plain.verdict, _flows(by, plain.fit, width)
    best: tuple[float, Fit, SharingVerdict, float, NDArray[np.int64]] | None = None
    for _ in range(1 if len(observations) > MANY else ROUNDS):
        loss = min(max(loss, 0.0), LARGEST_LOSS)
        flows = _flows(by, fit, width)
        factor = 1.0 + loss * np.maximum(0, flows - 1)
        fit, verdict = fit_sharing(
            plain.fit.candidates,
            [
                replace(o, seconds=o.seconds / k)
                for o, k in zip(observations, factor.tolist(), strict=True)
            ],
        )
        if best is None or fit.bic < best[0]:
            best = (fit.bic, fit, verdict, loss, flows)
        score = _score(fit, flows, loss)
        advantage = plain.fit.bic - best[0] - math.log(max(2, len(observations)))
        loss += score.loss
        if abs(score.loss) < SETTLED * score.error or advantage < HOPELESS * least:
            break
    if best is None:
        return None
    bic, fit, verdict, loss, flows = best
    advantage = plain.fit.bic - bic - math.log(max(2, len(observations)))
    score = _score(fit, flows, loss)
    if advantage < least or not loss > 0 or not math.isfinite(score.error):
        return None
    factor = 1.0 + loss * np.maximum(0, flows - 1)
    fading = Fading(
        loss=loss,
        error=score.error,
        by=by,
        most_flows=int(flows.max()),
        advantage=advantage,
        evidence=tuple(_shown(fit, observations, flows)),
    )
    return Crowded(fit, verdict, fading, factor, score.crowding)


def _flows(by: Crowd, fit: Fit, width: NDArray[np.int64]) -> NDArray[np.int64]:
    """The flows that count in each observation."""
    return width if by is Crowd.PATTERN else _on_bottleneck(fit)


def _on_bottleneck(fit: Fit) -> NDArray[np.int64]:
    """How many flows each observation has on the resource that binds it."""
    rows = fit.rows
    x = np.where(fit.active, fit.estimate.x, -np.inf)
    top = first_busiest(rows.log_load, x)
    column = np.where(top >= 0, rows.log_load.indices[np.maximum(top, 0)], -1)
    pairs = sorted({pair for o in rows.observations for pair in o.pattern.pairs})
    number = {pair: k for k, pair in enumerate(pairs)}
    owner = np.repeat(
        np.arange(len(rows.observations)), [len(o.pattern.flows) for o in rows.observations]
    )
    pair = np.array([number[p] for o in rows.observations for p in o.pattern.pairs])
    lines = incidence(fit.topology, pairs).matrix
    stored = np.repeat(np.arange(len(pairs)), np.diff(lines.indptr))
    keys = np.sort(stored * len(rows.resources) + lines.indices)
    wanted = pair * len(rows.resources) + column[owner]
    at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    crosses = (keys[at] == wanted) & (column[owner] >= 0) if len(keys) else np.zeros(0, bool)
    found = np.bincount(owner[crosses], minlength=len(rows.observations))
    shared = rows.shared
    if len(shared):
        busy, _ = shared.busy(rows.solo(x), fit.estimate.log_kappa)
        highest = rows.highest(x)
        longer = busy > highest[shared.row]
        found[shared.row[longer]] = np.diff(shared.indptr)[longer]
    return np.maximum(found, 1).astype(np.int64)


@dataclass(frozen=True)
class _Score:
    """A step of the loss, its standard error, and what the other numbers do meanwhile."""

    loss: float
    error: float
    crowding: NDArray[np.float64]


def _score(fit: Fit, flows: NDArray[np.int64], loss: float) -> _Score:
    """The Gauss-Newton step of the loss, everything else free to follow."""
    rows: Rows = fit.rows
    nothing = _Score(0.0, math.inf, np.zeros(len(rows.resources)))
    further = np.maximum(0, flows - 1)
    slope = further / (1.0 + loss * further)
    fitted = fit.active & np.isfinite(upper_bounds(rows))
    cost = Cost(rows, fitted, np.full(len(fit.active), np.nan))
    slopes, predicted = soft_slopes(
        cost, np.where(fit.active, fit.estimate.x, -np.inf), fit.estimate.log_kappa, 0
    )
    carried = np.isfinite(predicted)
    error = np.where(carried, rows.log_seconds - np.where(carried, predicted, 0.0), 0.0)
    scaled = error / rows.sigma
    weight = np.where(carried, np.minimum(1.0, HUBER / np.maximum(np.abs(scaled), 1e-12)), 0.0)
    root = np.sqrt(weight) / rows.sigma
    design = csr_array(diags_array(root) @ slopes)
    g, e = root * slope, root * error
    information = csr_array(design.T @ design)
    used = np.flatnonzero(information.diagonal() > 0)
    if not len(used):
        return nothing
    along = np.zeros(information.shape[0])
    ridge = 1e-9 * information.diagonal().max()
    matrix = (information[used][:, used] + ridge * diags_array(np.ones(len(used)))).tocsc()
    along[used] = splu(matrix).solve(np.asarray(design.T @ g)[used])
    left = g - design @ along
    curvature = float(left @ left)
    if not curvature > 1e-9 * float(g @ g):
        return nothing
    # Misfit beyond the noise makes the loss less sure as well.
    spread = math.sqrt(max(1.0, float(np.median(scaled[carried] ** 2)) / _NORMAL))
    crowding = np.zeros(len(rows.resources))
    crowding[cost.columns] = along[: len(cost.columns)]
    crowding = crowding[rows.series]
    for side in (0, 1):
        crowding[np.unique(rows.shared.resource[rows.shared.side == side])] = along[
            len(cost.columns) + side
        ]
    return _Score(
        loss=float(left @ e) / curvature,
        error=spread / math.sqrt(curvature * EFFICIENCY),
        crowding=crowding,
    )


def _shown(
    fit: Fit, observations: Sequence[Observation], flows: NDArray[np.int64]
) -> Iterator[Faded]:
    """The figures of most flows, each as it was measured and as few flows would make it."""
    order = sorted(range(len(observations)), key=lambda s: (-int(flows[s]), observations[s].name))
    for s in order[:_SHOWN]:
        o = observations[s]
        predicted = float(fit.estimate.log_predicted[s])
        if flows[s] > MOST_FLOWS and math.isfinite(predicted):
            yield Faded(
                name=o.name,
                measured_Bps=o.throughput_Bps,
                without_Bps=o.pattern.total_bytes / math.exp(predicted),
            )

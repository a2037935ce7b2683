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

from topocal.solve.candidates import Candidates
from topocal.solve.cost import PRIOR, PRIOR_UNIT, huber
from topocal.solve.estimate import estimate
from topocal.solve.fading import TWO_SIDED, Crowd, Faded, Fading
from topocal.solve.fading_score import FEW, Counts, pooled_scores, score, scores
from topocal.solve.hypotheses import Fit, nominal_prior
from topocal.solve.intervals import Knowledge
from topocal.solve.rows import Observation, Rows
from topocal.solve.sharing import SharingVerdict, fit_sharing

__all__ = ["Crowded", "fit_with_fading"]

SUSPICIOUS: Final = 2.5
"""Deviations of the score from which the machine is fitted again."""

VERY_STRONG: Final = 10.0
"""Difference of BIC that decides (Kass & Raftery 1995, section 3.2)."""

LARGEST_LOSS: Final = 0.2
"""For each further flow; what falls faster is no crowd but a collapse."""

ROUNDS: Final = 4
"""Fits at most of one machine with a loss."""

SURE: Final = 3.0
"""Of its own errors that a loss is above zero: what BIC favours may still be anything, where
another resource would do as well."""

SETTLED: Final = 0.25
"""Steps of less than a quarter of its error do not matter."""

HOPELESS: Final = 0.5
"""A loss that buys less than this of what it must is not tried further."""

MANY: Final = 5000
"""Observations from which only the flows of whole patterns are counted, and one further fit
has to do."""

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
        counts = Counts.of(by, plain.rows, candidates.topology)
        seen = [
            one
            for one, start in scores(plain, counts)
            if SUSPICIOUS * one.error < one.loss < LARGEST_LOSS
            and _promises(plain, start, counts, one.loss)
        ]
        if seen:
            surest = max(seen, key=lambda one: one.loss / one.error)
            suspects.append((surest.loss / surest.error, by, counts, surest.loss))
    for _, by, counts, loss in sorted(suspects, key=lambda one: -one[0]):
        least = best.fading.advantage if best.fading else VERY_STRONG
        found = _fitted(plain, by, counts, loss, observations, least)
        best = best if found is None else found
    return best


def _promises(plain: Fit, start: Fit, counts: Counts, loss: float) -> bool:
    """Whether a quick fit, from where the loss looked best and with no more resources than
    there, comes near to being worth it."""
    rows = _Lengthened(counts, loss)(start.rows)
    quick = estimate(rows, nominal_prior(start.topology), start.active, start.estimate)
    tried = replace(start, rows=rows, estimate=quick)
    return _cost(plain) - _cost(tried) > HOPELESS * VERY_STRONG


def _fitted(
    plain: Fit,
    by: Crowd,
    counts: Counts,
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
        ahead = score(fit, counts, loss, fit.active)
        loss += ahead.loss
        settled = abs(ahead.loss) < SETTLED * ahead.error
        if settled or before - best[0] - price < HOPELESS * least:
            break
    if best is None:
        return None
    cost, loss, fit, verdict = best
    advantage = before - cost - price
    at = score(fit, counts, loss, fit.active)
    if not (advantage > least and loss > SURE * at.error and math.isfinite(at.error)):
        return None
    sure = math.sqrt(VERY_STRONG + price)
    if not all(loss + p.loss > sure * p.error for p in pooled_scores(fit, counts, loss)):
        return None
    fading = Fading(
        loss=loss,
        error=at.error,
        by=by,
        most_flows=int(counts.on_bottleneck(fit).max()),
        advantage=advantage,
        evidence=tuple(_shown(fit, counts, loss)),
    )
    return Crowded(fit, verdict, fading, at.crowding)


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
class _Lengthened:
    """Every load as long as the loss makes it."""

    counts: Counts
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


def _shown(fit: Fit, counts: Counts, loss: float) -> Iterator[Faded]:
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

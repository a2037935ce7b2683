"""Do receivers share bytes or time?  Both are fitted; the simpler sufficient one wins.

Pairs alone cannot tell: a receiver matters only when several flows reach it.  So the
pairs are explained first, by the senders (one rate on each side of the machine) and
by whatever else they demand.  Then, once with receivers that pass so many bytes per
second and once with receivers that serve one flow at a time (one overlap factor for
all), resources are added only while some sample is still predicted too short, the one
that can explain most of those first.  What each hypothesis costs is its misfit plus
log(samples) for each number that only the concurrent samples needed (BIC; Kass &
Raftery 1995: a difference below 2 is not worth a mention).  Resources whose
capacities agree count as one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure.samples import Measurements, Sample
from topocal.solve.candidates import Candidates, with_candidates
from topocal.solve.estimate import Estimate, estimate, huber
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, build_rows
from topocal.topo.topology import Topology

__all__ = ["WORTH_A_MENTION", "Fit", "SharingVerdict", "fit_sharing"]

WORTH_A_MENTION: Final = 2.0
"""Smallest difference of BIC that decides (Kass & Raftery 1995, section 3.2)."""

SPREAD: Final = 1.3
"""Senders whose rates alone differ by 30 % tell sharing of bytes from sharing of time; equal
ones never do (docs/model.md)."""

SIGMAS: Final = 3.0
"""A sample is still unexplained when it is predicted too short by this many deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingVerdict:
    """Which hypothesis was chosen and by how much.

    Attributes
    ----------
    time_shared
        Receivers serve one flow at a time.
    decided
        The data prefers the choice by more than :data:`WORTH_A_MENTION`.
    advantage
        BIC of the other hypothesis less that of the chosen one.
    numbers
        Fitted numbers that only concurrent samples needed, under the chosen and the other.
    text
        The same in a sentence.
    """

    time_shared: bool
    decided: bool
    advantage: float
    numbers: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Fit:
    """One hypothesis, fitted."""

    topology: Topology
    rows: Rows
    estimate: Estimate
    active: NDArray[np.bool_]
    numbers: int
    bic: float


def fit_sharing(
    topology: Topology,
    measurements: Measurements,
    samples: Sequence[Sample],
    noise: float,
    own_paths: Sequence[tuple[str, str]] = (),
) -> tuple[Fit, SharingVerdict]:
    """Fit both hypotheses to ``samples`` and choose.

    Raises
    ------
    SolverError
        When an optimiser fails.
    """
    fits = {
        time_shared: _fit(
            with_candidates(
                topology,
                measurements.endpoints,
                time_shared_receivers=time_shared,
                own_paths=own_paths,
            ),
            samples,
            noise,
        )
        for time_shared in (False, True)
    }
    advantage = fits[False].bic - fits[True].bic
    tells = _can_tell(fits[True])
    chosen = tells and advantage > WORTH_A_MENTION
    return fits[chosen], _verdict(fits, chosen, advantage, tells)


def _can_tell(fit: Fit) -> bool:
    """Whether some fan's senders differ enough alone for bytes and time to differ."""
    shared = fit.rows.shared
    if not len(shared):
        return False
    _, shares = shared.busy(fit.rows.solo(fit.estimate.x), 0.0)
    per_byte = shares / np.exp(shared.log_bytes)
    longest = np.maximum.reduceat(per_byte, shared.indptr[:-1])
    shortest = np.minimum.reduceat(per_byte, shared.indptr[:-1])
    return bool((longest > SPREAD * shortest).any())


def _fit(candidates: Candidates, samples: Sequence[Sample], noise: float) -> Fit:
    topology = candidates.topology
    prior = nominal_prior(topology)
    active = np.array([name in candidates.senders for name in topology.resources])
    singles = [s for s in samples if len(s.pattern.flows) == 1]
    if singles:
        _select(build_rows(topology, singles), noise, prior, active)
    by_pairs = active.copy()
    rows = build_rows(topology, samples)
    result = _select(rows, noise, prior, active)
    unpaired = upper_bounds(rows if not singles else build_rows(topology, singles))
    by_pairs &= np.isfinite(unpaired) | (not singles)
    numbers = _count(rows, result, active & ~by_pairs, noise)
    size = max(2, len(samples))
    bic = result.objective + numbers * math.log(size)
    return Fit(topology, rows, result, active, numbers, bic)


def nominal_prior(topology: Topology) -> NDArray[np.float64]:
    """Log seconds per byte of every resource by specification, NaN where unknown."""
    return np.array(
        [
            -math.log(r.nominal_Bps) if r.nominal_Bps else math.nan
            for r in topology.resources.values()
        ]
    )


def _select(
    rows: Rows, noise: float, prior: NDArray[np.float64], active: NDArray[np.bool_]
) -> Estimate:
    """Fit, and add to ``active`` what the samples demand, until they demand nothing more.

    A resource stays only when it buys more than the log(samples) that a number costs.
    """
    price = math.log(max(2, len(rows.samples)))
    bound = upper_bounds(rows)
    refused = np.zeros(len(active), dtype=bool)
    result = estimate(rows, noise, prior, active)
    while True:
        wanted = _most_wanted(rows, result, bound, active | refused, noise)
        if wanted is None:
            return result
        active[wanted] = True
        extended = estimate(rows, noise, prior, active)
        if result.objective - extended.objective > price:
            result = extended
        else:
            active[wanted], refused[wanted] = False, True


def _most_wanted(
    rows: Rows,
    result: Estimate,
    bound: NDArray[np.float64],
    excluded: NDArray[np.bool_],
    noise: float,
) -> int | None:
    """The resource outside ``excluded`` that promises most for samples predicted too short.

    A resource promises, for each of those, what the cost falls by when it passes as little
    as all samples allow.
    """
    lacking = (rows.log_seconds - result.log_predicted) / noise
    entries = rows.log_load.tocoo()
    row, column = entries.coords
    able = (lacking[row] > SIGMAS) & ~excluded[column]
    row, column, load = row[able], column[able], entries.data[able]
    left = (rows.log_seconds[row] - load - bound[column]) / noise
    gain = huber(lacking[row]) - huber(np.minimum(left, lacking[row]))
    promise = np.bincount(column, weights=gain, minlength=len(bound))
    ranked = np.lexsort((np.arange(len(promise)), rows.crowd, -np.round(promise, 6)))
    best = int(ranked[0])
    return best if promise[best] > math.log(max(2, len(rows.samples))) else None


def _count(rows: Rows, result: Estimate, added: NDArray[np.bool_], noise: float) -> int:
    """Numbers that only concurrent samples needed: capacities that agree count once."""
    alike, distinct = np.sort(result.x[added]), 0
    while len(alike):
        distinct += 1
        alike = alike[alike > alike[0] + 2 * SIGMAS * noise]
    return distinct + (len(rows.shared) > 0)


def _verdict(fits: dict[bool, Fit], chosen: bool, advantage: float, tells: bool) -> SharingVerdict:
    numbers = (fits[chosen].numbers, fits[not chosen].numbers)
    concurrent = sum(len(s.pattern.flows) > 1 for s in fits[True].rows.samples)
    if not len(fits[True].rows.shared):
        text = (
            "receivers: no fan was measured, so whether they share bytes or time is unknown; "
            "they are taken to share bytes"
        )
        return SharingVerdict(
            time_shared=False, decided=False, advantage=0.0, numbers=numbers, text=text
        )
    kappa = math.exp(fits[True].estimate.log_kappa)
    if chosen:
        text = (
            f"receivers are time-shared: one overlap factor ({kappa:.3f}) with {numbers[0]} "
            f"fitted number{'s' * (numbers[0] != 1)} in all explains the {concurrent} concurrent "
            f"figures, where capacities take {numbers[1]} (BIC {advantage:.1f} better)"
        )
    elif tells and -advantage > WORTH_A_MENTION:
        text = (
            f"receivers share bytes: capacities explain the {concurrent} concurrent figures "
            f"better than time-sharing (BIC {-advantage:.1f} better)"
        )
    else:
        text = (
            "receivers: the data cannot tell whether they share bytes or time (BIC differs by "
            f"{abs(advantage):.1f}); they are taken to share bytes. A fan whose senders differ "
            "by 30 % or more alone would tell"
        )
    return SharingVerdict(
        time_shared=chosen,
        decided=tells and abs(advantage) > WORTH_A_MENTION,
        advantage=advantage if chosen else -advantage,
        numbers=numbers,
        text=text,
    )

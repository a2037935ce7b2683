"""How well the data knows each capacity.

A capacity is *pinned* when some sample cannot be explained by anything else: its
busy time there exceeds, by three deviations of the noise, what every other resource
would take were it as slow as all samples allow.  Fitted times are compared, not
measured ones, which would select on noise.  Otherwise the data proves only that it
is *at least* so much (:mod:`topocal.solve.residuation`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from topocal.solve.estimate import Estimate
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest

__all__ = ["CLEAR_SIGMAS", "Knowledge", "Status", "what_is_known"]

CLEAR_SIGMAS: Final = 3.0
"""A bottleneck is clear when nothing else comes within this many deviations."""

EFFICIENCY: Final = 1.25
"""Standard error of a median against a mean on Gaussian noise, sqrt(pi/2)."""

CONFIDENCE: Final = 0.95


class Status(StrEnum):
    """What a fitted capacity rests on."""

    PINNED = "pinned"
    """Some sample has it as its clear bottleneck."""
    CONFOUNDED = "confounded"
    """It explains samples that another resource may explain as well."""
    BOUNDED = "bounded"
    """It never had to be the bottleneck: at least so much."""
    ALIKE = "alike"
    """It never had to be the bottleneck, but others of its make were: taken to be like them."""
    ASSUMED = "assumed"
    """No sample loads it; its nominal capacity is taken (of a time-shared receiver: the
    overlap factor of those that were measured)."""
    UNKNOWN = "unknown"
    """No sample loads it and nothing says what it passes."""


@dataclass(frozen=True)
class Knowledge:
    """What the samples say of one resource.

    Attributes
    ----------
    status
        As :class:`Status`.
    low_x, high_x
        95 % interval of its log seconds per byte; -inf where nothing bounds it.
    pinned_by
        Rows of the samples that have it as their clear bottleneck.
    confounded_with
        Columns of the resources that may explain its samples as well.
    """

    status: Status
    low_x: float
    high_x: float
    pinned_by: tuple[int, ...] = ()
    confounded_with: tuple[int, ...] = ()


def what_is_known(
    rows: Rows,
    result: Estimate,
    active: NDArray[np.bool_],
    noise: float,
    is_nominal: NDArray[np.bool_],
) -> list[Knowledge]:
    """Status and interval of every resource, in the order of ``rows.resources``.

    Parameters
    ----------
    active
        Shape (R,): the resources that the fit was allowed to explain samples by.
    is_nominal
        Shape (R,): whether a specification gives the capacity.
    """
    bound = upper_bounds(rows)
    evidence = _evidence(rows, result, active, bound, noise)
    counts = rows.crowd
    known = []
    for r in range(len(bound)):
        clear, rivals, information = evidence.get(r, ([], set(), 0.0))
        if counts[r] == 0 and r not in evidence:
            status = Status.ASSUMED if is_nominal[r] else Status.UNKNOWN
            level = float(result.x[r])
            known.append(Knowledge(status, -math.inf if not is_nominal[r] else level, level))
            continue
        if clear:
            half = float(ndtri(0.5 + CONFIDENCE / 2)) * EFFICIENCY * noise / math.sqrt(information)
            x = float(result.x[r])
            known.append(Knowledge(Status.PINNED, x - half, x + half, tuple(clear)))
            continue
        # Many samples bound it, and the lowest is the luckiest: Bonferroni.
        margin = float(-ndtri((1 - CONFIDENCE) / (2 * max(1, counts[r])))) * noise
        high = float(bound[r] if math.isfinite(bound[r]) else result.x[r]) + margin
        status = Status.CONFOUNDED if rivals else Status.BOUNDED
        known.append(Knowledge(status, -math.inf, high, confounded_with=tuple(sorted(rivals))))
    return known


def _evidence(
    rows: Rows,
    result: Estimate,
    active: NDArray[np.bool_],
    bound: NDArray[np.float64],
    noise: float,
) -> dict[int, tuple[list[int], set[int], float]]:
    """Per resource: samples it clearly binds, its rivals in the others it binds, and the
    information of the clear ones (samples, each weighted by its squared share)."""
    x = np.where(active, result.x, -np.inf)
    shared = rows.shared
    busy, shares = shared.busy(rows.solo(x), result.log_kappa)
    engines_of: dict[int, list[int]] = {}
    for k, sample in enumerate(shared.sample):
        engines_of.setdefault(int(sample), []).append(k)
    binding = first_busiest(rows.pair_weight, x)
    margin = CLEAR_SIGMAS * noise
    found: dict[int, tuple[list[int], set[int], float]] = {}
    for s in range(len(rows.samples)):
        span = slice(rows.log_load.indptr[s], rows.log_load.indptr[s + 1])
        columns = rows.log_load.indices[span]
        loads = rows.log_load.data[span]
        slowest = loads + bound[columns]
        fitted = loads + x[columns]
        capacity = float(fitted.max()) if len(fitted) else -math.inf
        engines = engines_of.get(s, [])
        longest = max(engines, key=lambda k: busy[k]) if engines else -1
        if engines and busy[longest] > capacity:
            level = float(busy[longest])
            close = set(columns[slowest > level - margin].tolist())
            _add(found, int(shared.resource[longest]), s, not close, close, 1.0)
            # The engine's time is mostly that of one flow: then it also says what that one passes.
            for at in range(shared.indptr[longest], shared.indptr[longest + 1]):
                if shares[at] >= 0.5:
                    r = int(rows.pair_weight.indices[binding[shared.pair[at]]])
                    _add(found, r, s, not close - {r}, close - {r}, float(shares[at]))
        elif math.isfinite(capacity):
            r = int(columns[np.argmax(fitted)])
            rivals = set(columns[slowest > capacity - margin].tolist()) - {r}
            rivals |= {int(shared.resource[k]) for k in engines if busy[k] > capacity - margin}
            _add(found, r, s, not rivals, rivals, 1.0)
    return found


def _add(
    found: dict[int, tuple[list[int], set[int], float]],
    resource: int,
    sample: int,
    clear: bool,
    rivals: set[int],
    share: float,
) -> None:
    samples, known_rivals, information = found.setdefault(resource, ([], set(), 0.0))
    if clear:
        samples.append(sample)
        information += share**2
    else:
        known_rivals |= rivals
    found[resource] = (samples, known_rivals, information)

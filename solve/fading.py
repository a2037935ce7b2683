"""Resources that pass less the more flows share them, as far as the data demands it.

On several published machines eight flows across a boundary pass less together than four do,
and a ring of sixteen less per flow than pairs.  A fading machine takes

    T = alpha + max over r of u_r · (1 + f · (n − 1))

with one loss f for all, and n the flows of the whole pattern, or those on the resource,
whichever the figures favour.  :mod:`topocal.solve.fading_fit` says when it is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.words import name_in_words
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.solve.occupancy import Occupancy

__all__ = ["TWO_SIDED", "Crowd", "Faded", "Fading", "faded"]

TWO_SIDED: Final = 1.96
"""Deviations of a 95 % interval."""


class Crowd(StrEnum):
    """Which flows count."""

    PATTERN = "pattern"
    """All that run at once."""
    RESOURCE = "resource"
    """Those on the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faded:
    """A figure that shows it: total throughput as measured, and as few flows would make it."""

    name: str
    measured_Bps: float
    without_Bps: float

    @property
    def text(self) -> str:
        """Both figures."""
        return (
            f"{name_in_words(self.name)} passes {format_rate(self.measured_Bps)}, "
            f"{format_rate(self.without_Bps)} without it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fading:
    """How much longer everything takes for each further flow.

    Attributes
    ----------
    loss
        Relative, for each flow beyond the first.
    error
        Its standard error.
    by
        Which flows count.
    most_flows
        Of them in any sample; beyond that many the loss is not known to go on.
    advantage
        BIC without less that with the loss, its price included.
    evidence
        The figures that show it best.
    """

    loss: float
    error: float
    by: Crowd
    most_flows: int
    advantage: float
    evidence: tuple[Faded, ...] = ()

    def factor(self, flows: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many times as long as one flow's law says."""
        return np.asarray(1.0 + self.loss * np.maximum(0, flows - 1))

    def of(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The factor of each resource of a pattern.

        Parameters
        ----------
        parts
            Shape (flows that move bytes, resources): above zero where a flow loads one.
        """
        count = np.count_nonzero(parts, axis=0)
        if self.by is Crowd.PATTERN:
            count = np.full(parts.shape[1], len(parts))
        return self.factor(count)

    @property
    def text(self) -> str:
        """The loss, and what shows it."""
        whose = "of a pattern" if self.by is Crowd.PATTERN else "on a resource"
        shown = "; ".join(one.text for one in self.evidence)
        return (
            f"the more flows, the less they get: every further flow {whose} costs "
            f"{self.loss:.2%} (give or take {TWO_SIDED * self.error:.2%}), measured with up to "
            f"{self.most_flows} flows: {shown}"
        )


def faded(busy: Occupancy, fading: Fading, model: Model) -> Occupancy:
    """Busy times with the loss, and intervals that its error widens.

    What a resource takes is ``x + f · (n − 1)`` in logs.  Both are fitted to the same
    samples, so that their errors go together: a capacity that comes from samples of m + 1
    flows is off by −m for each unit that f is off (:attr:`FittedResource.crowding`).  Beyond
    the most flows of any sample the loss may go on or not.
    """
    if not len(busy.seconds):
        return busy
    factor = fading.of(busy.parts)
    further = (factor - 1.0) / fading.loss
    m = np.array([model.resources[name].crowding or 0.0 for name in busy.resources])
    seconds = busy.seconds * factor
    known = np.minimum(factor, 1.0 + fading.loss * max(0, fading.most_flows - 1))
    ends = []
    for end, scale, sign in ((busy.low_s, known, -1.0), (busy.high_s, factor, 1.0)):
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(end > 0, np.abs(np.log(end / busy.seconds)), np.nan) / TWO_SIDED
        alone = (half**2 - (fading.error * m) ** 2).clip(0.0)
        width = TWO_SIDED * np.sqrt(alone + (fading.error * (further - m)) ** 2)
        loose = end * scale * np.exp(sign * TWO_SIDED * fading.error * further)
        with np.errstate(invalid="ignore"):  # what is left open takes no time at its best
            tight = busy.seconds * scale * np.exp(sign * width)
        ends.append(np.where(busy.pinned & np.isfinite(half), tight, loose))
    return replace(
        busy,
        seconds=seconds,
        low_s=ends[0],
        high_s=np.maximum(ends[1], seconds),
        parts=busy.parts * factor,
        crowd=factor,
        by_turns=tuple((who, turns * float(factor.max())) for who, turns in busy.by_turns),
    )

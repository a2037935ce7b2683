"""Start-up times that scenarios of one kind have in common, and what that says of their slopes.

Few sizes leave a line free to trade its start against its slope: with sizes of 16, 64 and
256 MiB the slope is known one and a half times better once the start is.  Scenarios of one
kind start alike, more or less.  How much more or less, the data says: the variance between
them beyond their own errors (DerSimonian and Laird 1986), and each line is fitted again
with that as what is known of its start.  Where starts differ widely nothing is borrowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.segments import accepted_spread, weights

__all__ = ["Lines", "refit"]

FEWEST: Final = 4
"""Scenarios of a kind from which the variance between them is worth asking for."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Lines:
    """One line per scenario, shape (G,) each; NaN where it was not fitted again."""

    alpha_s: Floats
    beta_s_per_byte: Floats
    slope_error_s_per_byte: Floats


def refit(
    size_bytes: Floats, seconds: Floats, sigma: Floats, begin: Integers, kind: Integers
) -> Lines:
    """Lines of G scenarios whose points stand one after the other.

    Parameters
    ----------
    size_bytes, seconds, sigma
        Shape (P,): points, each scenario's by ascending size; sigma is relative.
    begin
        Shape (G,): first point of each scenario, which has two or more.
    kind
        Shape (G,): number of its kind, below zero where it is to be left as it is.
    """
    lines = Lines(*(np.full(len(begin), np.nan) for _ in range(3)))
    with np.errstate(all="ignore"):
        sums = _Sums.of(size_bytes, seconds, sigma, begin)
        for one in np.unique(kind[kind >= 0]).tolist():
            members = np.flatnonzero((kind == one) & sums.usable)
            if len(members) >= FEWEST:
                _refit_kind(sums, members, lines)
    return lines


@dataclass(frozen=True)
class _Sums:
    """Normal equations of each scenario's weighted line, and its start without any prior."""

    aa: Floats
    ab: Floats
    bb: Floats
    sa: Floats
    sb: Floats
    spread: Floats
    alpha: Floats
    variance: Floats

    @property
    def usable(self) -> Flags:
        """Scenarios with a start and an error of it."""
        return np.asarray(np.isfinite(self.alpha) & (self.variance > 0) & (self.variance < np.inf))

    @classmethod
    def of(cls, size: Floats, seconds: Floats, sigma: Floats, begin: Integers) -> _Sums:
        count = np.diff(np.append(begin, len(size)))
        top = np.repeat(size[begin + count - 1], count)
        weight = weights(size / top, sigma)
        a, b = weight / seconds, weight * size / seconds
        products = (a * a, a * b, b * b, weight * a, weight * b, weight * weight)
        aa, ab, bb, sa, sb, ss = (np.add.reduceat(p, begin) for p in products)
        determinant = aa * bb - ab * ab
        alpha = (sa * bb - sb * ab) / determinant
        beta = (sb * aa - sa * ab) / determinant
        cost = np.maximum(ss - alpha * sa - beta * sb, 0.0)
        spread = accepted_spread(cost, count - 2)
        return cls(aa, ab, bb, sa, sb, spread, alpha, spread * bb / determinant)


def _refit_kind(sums: _Sums, members: Integers, lines: Lines) -> None:
    """Writes the lines of the members."""
    start, variance = sums.alpha[members], sums.variance[members]
    between = _variance_between(start, variance)
    weight = 1.0 / (variance + between)
    mean = float((weight * start).sum() / weight.sum())
    # The mean itself is not known exactly.
    known = 1.0 / (between + 1.0 / weight.sum())
    spread = sums.spread[members]
    # Weighted residuals of a line that fits badly are worth that much less.
    pull = known * spread
    aa, ab, bb = sums.aa[members] + pull, sums.ab[members], sums.bb[members]
    sa, sb = sums.sa[members] + pull * mean, sums.sb[members]
    determinant = aa * bb - ab * ab
    alpha = (sa * bb - sb * ab) / determinant
    beta = (sb * aa - sa * ab) / determinant
    early = alpha < 0
    alpha, beta = np.where(early, 0.0, alpha), np.where(early, sb / bb, beta)
    error = np.sqrt(aa / determinant * spread)
    sound = np.isfinite(alpha) & np.isfinite(error) & (beta > 0)
    at = members[sound]
    lines.alpha_s[at], lines.beta_s_per_byte[at] = alpha[sound], beta[sound]
    lines.slope_error_s_per_byte[at] = error[sound]


def _variance_between(value: Floats, variance: Floats) -> float:
    """Of what is estimated with errors, beyond these: DerSimonian and Laird (1986)."""
    weight = 1.0 / variance
    total = float(weight.sum())
    mean = float((weight * value).sum() / total)
    excess = float((weight * (value - mean) ** 2).sum()) - (len(value) - 1)
    scale = total - float((weight**2).sum()) / total
    return max(0.0, excess / scale) if scale > 0 else 0.0

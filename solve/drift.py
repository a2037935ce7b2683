"""What changed between two models of one machine, beyond what their errors allow.

Resources are compared by id.  Two pinned capacities have drifted when they differ by more
than their errors together make likely; where one is only bounded, when the other lies beyond
its bound.  So many resources are compared at once that a 95 % interval alone would call
several of them drifted on a machine that did not change: intervals are widened until all
comparisons together raise a false alarm once in a hundred times (Bonferroni).  The same goes
for the patterns that both models were fitted to, whose measured figures need no explanation
and so tell also what the choice of resources may hide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scipy.special import ndtri

from topocal.solve.model import FittedResource, Model
from topocal.solve.status import Status
from topocal.topo.errors import InputError
from topocal.topo.resource import Sharing

__all__ = ["FALSE_ALARM", "LEAST", "Drift", "Drifted", "Quantity", "compare"]

FALSE_ALARM: Final = 0.01
"""Chance that anything is called drifted on a machine that did not change."""

LEAST: Final = 0.01
"""Smaller changes are not worth a word, however sure: clocks and background traffic drift that
much (:data:`topocal.solve.observe.SIGMA_FLOOR` is a standard error)."""

_TWO_SIDED: Final = 1.96
"""Deviations of the 95 % interval that models hold."""


class Quantity(StrEnum):
    """What is compared."""

    CAPACITY = "capacity"
    OVERLAP = "overlap factor"
    PATTERN = "measured throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted:
    """Something that changed.

    Attributes
    ----------
    name, label
        Id of the resource, or notation of the pattern; and in words.
    quantity
        What of it: in bytes per second, or an overlap factor.
    before, after
        Its values; of what is only bounded, the bound.
    before_interval, after_interval
        95 %; ``None`` is an open end.
    ratio
        ``after / before``.
    """

    name: str
    label: str
    quantity: Quantity
    before: float
    after: float
    before_interval: tuple[float | None, float | None]
    after_interval: tuple[float | None, float | None]

    @property
    def ratio(self) -> float:
        """``after / before``."""
        return self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A comparison of two models.

    Attributes
    ----------
    resources, patterns
        What drifted, the largest change first.
    compared_resources, compared_patterns
        How many were compared.
    only_before, only_after
        Resources that one of the models lacks: what was only supposed and never needed is no
        part of a model.
    changes
        Other differences, in sentences: how receivers share, noise.
    """

    resources: tuple[Drifted, ...]
    patterns: tuple[Drifted, ...]
    compared_resources: int
    compared_patterns: int
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether anything drifted."""
        return bool(self.resources or self.patterns)


def compare(before: Model, after: Model, *, least: float = LEAST) -> Drift:
    """Compare two models of one machine.

    Parameters
    ----------
    least
        Relative change from which on a difference counts.

    Raises
    ------
    InputError
        When the models have no endpoint in common, or ``least`` is no share.
    """
    if not (math.isfinite(least) and least >= 0):
        raise InputError(f"least change {least:g}", remedy="give a share of zero or more")
    if not set(before.topology.endpoints) & set(after.topology.endpoints):
        raise InputError(
            "the models have no endpoint in common",
            remedy="compare models of one machine, fitted with the same topology",
        )
    common = [name for name in before.resources if name in after.resources]
    both = [(before.resources[name], after.resources[name]) for name in common]
    both = [(a, b) for a, b in both if _is_known(a) and _is_known(b)]
    figures = _figures(before, after)
    quantile = -float(ndtri(FALSE_ALARM / (2 * max(1, len(both) + len(figures)))))
    resources = [
        drifted
        for a, b in both
        if (drifted := _resource(a, b, before.noise, after.noise, quantile, least)) is not None
    ]
    patterns = [
        drifted
        for name, (old, new) in figures.items()
        if (drifted := _pattern(name, old, new, before.noise, after.noise, quantile, least))
        is not None
    ]
    return Drift(
        resources=tuple(_largest_first(resources)),
        patterns=tuple(_largest_first(patterns)),
        compared_resources=len(both),
        compared_patterns=len(figures),
        only_before=tuple(n for n in before.resources if n not in after.resources),
        only_after=tuple(n for n in after.resources if n not in before.resources),
        changes=tuple(_changes(before, after)),
    )


def _is_known(r: FittedResource) -> bool:
    """Whether measurements say something of it."""
    if r.status in (Status.ASSUMED, Status.UNKNOWN, Status.ALIKE):
        return False
    if r.sharing is Sharing.TIME_SHARED:
        return r.kappa is not None and r.error is not None
    return r.low_Bps is not None


def _resource(
    a: FittedResource,
    b: FittedResource,
    noise_a: float,
    noise_b: float,
    quantile: float,
    least: float,
) -> Drifted | None:
    timed = a.sharing is Sharing.TIME_SHARED
    if timed != (b.sharing is Sharing.TIME_SHARED):
        return None
    old = a.kappa if timed else a.capacity_Bps
    new = b.kappa if timed else b.capacity_Bps
    if old is None or new is None:
        return None
    if a.error is not None and b.error is not None:
        deviation = math.hypot(a.error, b.error)
        apart = abs(math.log(new / old)) > max(quantile * deviation, math.log1p(least))
    else:
        low_a, high_a = _widened(a, noise_a, quantile)
        low_b, high_b = _widened(b, noise_b, quantile)
        apart = max(low_b - high_a, low_a - high_b) > math.log1p(least)
    if not apart:
        return None
    return Drifted(
        name=a.id,
        label=a.label,
        quantity=Quantity.OVERLAP if timed else Quantity.CAPACITY,
        before=old,
        after=new,
        before_interval=(a.low_Bps, a.high_Bps),
        after_interval=(b.low_Bps, b.high_Bps),
    )


def _widened(r: FittedResource, noise: float, quantile: float) -> tuple[float, float]:
    """The interval of a log capacity at the level of all comparisons together."""
    further = (quantile - _TWO_SIDED) * (noise if r.error is None else r.error)
    low = -math.inf if r.low_Bps is None else math.log(r.low_Bps) - further
    high = math.inf if r.high_Bps is None else math.log(r.high_Bps) + further
    return low, high


def _figures(before: Model, after: Model) -> dict[str, tuple[float, float]]:
    """Measured throughput of the patterns that both were fitted to."""
    old = {r.name: r.measured_Bps for r in before.residuals}
    return {r.name: (old[r.name], r.measured_Bps) for r in after.residuals if r.name in old}


def _pattern(
    name: str,
    old_Bps: float,
    new_Bps: float,
    noise_a: float,
    noise_b: float,
    quantile: float,
    least: float,
) -> Drifted | None:
    limit = max(quantile * math.hypot(noise_a, noise_b), math.log1p(least))
    if abs(math.log(new_Bps / old_Bps)) <= limit:
        return None
    return Drifted(
        name=name,
        label=name,
        quantity=Quantity.PATTERN,
        before=old_Bps,
        after=new_Bps,
        before_interval=_around(old_Bps, noise_a),
        after_interval=_around(new_Bps, noise_b),
    )


def _around(value: float, noise: float) -> tuple[float, float]:
    return value * math.exp(-_TWO_SIDED * noise), value * math.exp(_TWO_SIDED * noise)


def _largest_first(found: list[Drifted]) -> list[Drifted]:
    return sorted(found, key=lambda d: (-abs(math.log(d.ratio)), d.name))


def _changes(before: Model, after: Model) -> Iterator[str]:
    """What else differs, in sentences."""
    for side, word in ((0, "receivers"), (1, "senders")):
        suffix = f".{word[:-1]}.engine"
        old, new = (
            sum(name.endswith(suffix) for name in model.resources) for model in (before, after)
        )
        if bool(old) != bool(new) and side not in (*before.undecided, *after.undecided):
            law = "serve their flows by turns" if new else "share bytes"
            yield f"{word} now {law}; before, they {'shared bytes' if new else 'took turns'}"
    if after.noise > 2 * before.noise:
        yield f"figures scatter more: noise {before.noise:.1%} before, {after.noise:.1%} after"
    gone = set(before.topology.endpoints) - set(after.topology.endpoints)
    fresh = set(after.topology.endpoints) - set(before.topology.endpoints)
    for names, words in ((gone, "are gone"), (fresh, "are new")):
        if names:
            yield f"endpoints that {words}: {', '.join(sorted(names)[:12])}"

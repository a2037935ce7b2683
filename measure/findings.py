"""What a plan does for every resource, and why it cannot do more, in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topocal.measure.plan import Finding, Outcome
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings
    from topocal.measure.prior import Prior
    from topocal.topo.topology import Topology

__all__ = ["Verdict", "findings"]

_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be done for one class of resources.

    Attributes
    ----------
    outcome
        As :class:`~topocal.measure.plan.Outcome`.
    pattern
        Number of its pattern.
    ratio
        How far ahead it is there, or in the best pattern that was found.
    ceiling
        How far ahead it can be at most; infinite where nothing is proven.
    others
        Classes that say so, or that are close behind.
    """

    outcome: Outcome
    pattern: int | None = None
    ratio: float = 0.0
    ceiling: float = math.inf
    others: tuple[int, ...] = ()


def findings(
    topology: Topology,
    crossings: Crossings,
    prior: Prior,
    verdicts: Sequence[Verdict],
    pinned: Collection[str] = (),
) -> tuple[Finding, ...]:
    """A finding for every resource, in the order of ``topology.resources``.

    Parameters
    ----------
    verdicts
        One for each class.
    pinned
        Resources that are known already.
    """
    labels = {name: r.name for name, r in topology.resources.items()}
    words = _Words(crossings, prior, labels)
    found = []
    for k, name in enumerate(prior.resources):
        seconds = float(prior.seconds_per_byte[k])
        assumed = 1.0 / seconds if seconds > 0 else None
        group = int(crossings.class_of[k])
        others: tuple[int, ...] = ()
        if group < 0:
            verdict = Verdict(Outcome.UNUSED)
            text = "no transfer between these endpoints crosses it"
        elif (first := crossings.members[group][0]) != k and name not in pinned:
            verdict = Verdict(Outcome.SERIES)
            others = (first,)
            text = words.series(k, first)
        else:
            verdict = verdicts[group]
            others = tuple(crossings.members[s][0] for s in verdict.others)
            text = words.of(k, group, verdict)
        found.append(
            Finding(
                resource=name,
                label=labels[name],
                outcome=verdict.outcome,
                reason=text,
                pattern=verdict.pattern,
                ratio=verdict.ratio if 0 < verdict.ratio < math.inf else None,
                ceiling=verdict.ceiling if verdict.ceiling < math.inf else None,
                others=tuple(prior.resources[s] for s in others),
                assumed_Bps=assumed,
                basis=str(prior.basis[k]),
            )
        )
    return tuple(found)


class _Words:
    """Sentences about resources."""

    def __init__(self, crossings: Crossings, prior: Prior, labels: Mapping[str, str]) -> None:
        self._crossings = crossings
        self._prior = prior
        self._labels = list(labels.values())

    def series(self, resource: int, slowest: int) -> str:
        """Why a member of a class that is not its slowest cannot be told."""
        seconds = self._prior.seconds_per_byte
        other = self._labels[slowest]
        if seconds[resource] == seconds[slowest]:
            return f"in series with {other} on every route: only the slower of them shows"
        return f"in series on every route with {other}, which is taken to be slower"

    def of(self, resource: int, group: int, verdict: Verdict) -> str:
        """Why a class has the verdict that it has."""
        others = [self._crossings.members[s][0] for s in verdict.others]
        names = self._listed(others)
        behind = f"{verdict.ratio:.2f} times as long busy as {names or 'anything else'}"
        match verdict.outcome:
            case Outcome.CLEAR:
                alone = verdict.ratio == math.inf
                return "the only busy resource there" if alone else behind
            case Outcome.NARROW:
                return f"no clearer pattern was found: {behind}"
            case Outcome.DOMINATED:
                return f"every transfer through it also crosses {names}, which is no faster"
            case Outcome.FED:
                return self._fed(resource, verdict, others)
            case Outcome.TRIED:
                number = len(self._crossings.rows_of(group))
                return (
                    f"of all patterns of the {number} pair{'s' * (number != 1)} through it "
                    f"the best keeps it {verdict.ratio:.2f} times as long busy as anything else"
                )
            case Outcome.NOT_FOUND:
                best = f" (at best {verdict.ratio:.2f} times)" if verdict.ratio > 0 else ""
                return f"no pattern was found in which it is busier than anything else{best}"
            case Outcome.SHARING:
                return "time-shared: the fans at its endpoint measure it"
            case Outcome.UNLIMITED:
                return "taken to have no limit"
            case Outcome.PINNED:
                return "known already"
            case Outcome.LEFT_OUT:
                return "a pattern would do, but the budget leaves it out"
            case _:
                return str(verdict.outcome)

    def _fed(self, resource: int, verdict: Verdict, others: Sequence[int]) -> str:
        seconds = self._prior.seconds_per_byte
        total = math.fsum(1.0 / float(seconds[s]) for s in others)
        own = 1.0 / float(seconds[resource])
        if not math.isclose(total / own, verdict.ceiling, rel_tol=1e-6):
            return (
                f"whatever crosses it keeps {self._listed(others)} busy: it can be at most "
                f"{verdict.ceiling:.2f} times as long busy as the busiest of them"
            )
        return (
            f"all that crosses it comes by {self._listed(others)}, which pass "
            f"{format_rate(total)} in all; it passes {format_rate(own)}"
        )

    def _listed(self, resources: Sequence[int]) -> str:
        names = [self._labels[s] for s in resources]
        more = len(names) - _NAMES
        if more > 0:
            return ", ".join(names[:_NAMES]) + f" and {more} more"
        return " and ".join(", ".join(names).rsplit(", ", 1))

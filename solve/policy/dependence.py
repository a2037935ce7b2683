"""How far a finish rests on what was not measured.

A resource that no pattern ever had as its bottleneck counts at what is proven of it, or at its
specification.  What that does to an answer is told by taking it away: the busiest
resource's time, and that time were the resource never to bind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.solve.pair_costs import PairCosts
from topocal.solve.status import Status

__all__ = ["Dependence", "Reliance", "dependence"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliance:
    """A resource that is not pinned and busier than all that are.

    Attributes
    ----------
    resource, status
        As in the model.
    busy_s
        How long the answer keeps it busy.
    without_s
        The busiest resource's time were this one never to bind.
    """

    resource: str
    status: Status
    busy_s: float
    without_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """What the busiest time rests on.

    Attributes
    ----------
    pinned_s
        The busiest time of pinned resources alone; ``None`` where no status is known.
    on
        Resources that are not pinned and busier, the busiest first.
    by_turns_s
        Where the data does not tell whether endpoints serve their flows at once or by turns:
        what the longest of them takes by turns, if that is longer than the busiest time.
    """

    pinned_s: float | None
    on: tuple[Reliance, ...] = ()
    by_turns_s: float | None = None

    @property
    def share(self) -> float:
        """Part of the busiest time that rests on resources that are not pinned, 0 to 1."""
        longest = max((reliance.busy_s for reliance in self.on), default=0.0)
        if self.pinned_s is None or longest <= 0:
            return 0.0
        return max(0.0, 1.0 - self.pinned_s / longest)


def dependence(
    costs: PairCosts,
    bytes_of_pair: Floats,
    status: Mapping[str, Status] | None,
    undecided: Sequence[Sequence[int]] = ((), ()),
) -> Dependence:
    """Of an answer.

    Parameters
    ----------
    bytes_of_pair
        Shape (n * n,).
    status
        Of each resource by id; ``None`` where nothing is known.
    undecided
        Endpoints of which the data cannot tell bytes from time: receiving, sending.
    """
    busy = costs.busy_s(bytes_of_pair)
    turns = _longest_turn(costs, bytes_of_pair, undecided)
    by_turns = turns if turns > busy.max(initial=0.0) * (1.0 + 1e-9) else None
    if status is None:
        return Dependence(pinned_s=None, by_turns_s=by_turns)
    # Rows of one resource (a fatpipe has one for each pair) count as one.
    longest: dict[str, float] = {}
    for name, seconds in zip(costs.resources, busy.tolist(), strict=True):
        longest[name] = max(longest.get(name, 0.0), seconds)
    pinned = max((s for n, s in longest.items() if status[n] is Status.PINNED), default=0.0)
    ranked = sorted(longest.items(), key=lambda item: -item[1])
    runner_up = ranked[1][1] if len(ranked) > 1 else 0.0
    on = [
        Reliance(
            resource=name,
            status=status[name],
            busy_s=seconds,
            without_s=runner_up if name == ranked[0][0] else ranked[0][1],
        )
        for name, seconds in ranked
        if status[name] is not Status.PINNED and seconds > pinned
    ]
    return Dependence(pinned_s=pinned, on=tuple(on), by_turns_s=by_turns)


def _longest_turn(
    costs: PairCosts, bytes_of_pair: Floats, undecided: Sequence[Sequence[int]]
) -> float:
    """The longest that an undecided endpoint takes one flow after another."""
    n = len(costs.endpoints)
    alone = (bytes_of_pair * costs.alone_s).reshape(n, n)
    # Rows are senders: what a receiver takes is the sum of its column.
    turns = [float(alone[:, end].sum()) for end in undecided[0]]
    turns += [float(alone[end, :].sum()) for end in undecided[1]]
    return max(turns, default=0.0)

"""Proof that no set of capacities explains a pattern.

Take any set of capacity resources whatever, each loaded alike by every flow that
crosses it.  A pair that reads p alone proves C >= p for every resource it crosses.  So
a resource that k flows of a pattern share, m of them counted from the slowest, has
C >= p_(m) >= p_(k), the k-th smallest of the pattern's pair rates, and is busy for at
most k / p_(k) per byte.  The pattern therefore takes at most

    max over k of  k / p_(k)      (p_(1) <= p_(2) <= … the pair rates of its flows)

seconds per byte of one flow.  When it took longer than that, with an allowance for
errors, no capacities can say why: something else adds up, such as time at a receiver.
The bound needs no list of candidate resources.  It does not cover resources that some
flows cross twice (host-staged copies), whose bound is twice as long at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["ALLOWANCE", "CapacityBound", "capacity_bound", "least_throughput_Bps"]

ALLOWANCE: Final = 0.10
"""How far pair rates and the pattern may together be off before the proof stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityBound:
    """The least throughput of a pattern under any capacities, against what it reached.

    Attributes
    ----------
    name
        The pattern.
    least_Bps
        No set of capacities that passes the pair rates gives less.
    reached_Bps
        What was measured (or an upper limit to it).
    """

    name: str
    least_Bps: float
    reached_Bps: float

    @property
    def excess(self) -> float:
        """How much more any capacities give than was reached, relative."""
        return self.least_Bps / self.reached_Bps - 1.0

    @property
    def refutes_capacities(self) -> bool:
        """Whether this is a proof, allowing for errors of :data:`ALLOWANCE`."""
        return self.excess > ALLOWANCE


def least_throughput_Bps(pair_rates_Bps: Sequence[float]) -> float:
    """The least total throughput of equal flows that any capacities allow.

    >>> least_throughput_Bps([10.0, 10.0])  # one shared resource of 10
    10.0
    >>> least_throughput_Bps([10.0, 50.0])  # the slow flow holds nobody up
    20.0
    """
    ordered = sorted(pair_rates_Bps)
    longest = max(k / p for k, p in enumerate(ordered, start=1))
    return len(ordered) / longest


def capacity_bound(
    name: str,
    flows: Sequence[tuple[str, str]],
    reached_Bps: float,
    pair_rates_Bps: Mapping[tuple[str, str], float],
) -> CapacityBound | None:
    """The bound for a pattern of equal flows; ``None`` when a pair rate is missing."""
    rates = [pair_rates_Bps[f] for f in flows if f in pair_rates_Bps]
    if len(rates) < len(flows):
        return None
    return CapacityBound(name=name, least_Bps=least_throughput_Bps(rates), reached_Bps=reached_Bps)

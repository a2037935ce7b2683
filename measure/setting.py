"""One machine as every plan for it sees it: who crosses what, how fast, and what can bind."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.measure.budget import Worth
from topocal.measure.ceilings import dominated, feeding
from topocal.measure.crossings import TIME_SHARED, Crossings, lines_between
from topocal.measure.findings import Verdict
from topocal.measure.plan import Outcome, Purpose, Reason
from topocal.measure.prior import Prior, makes, prior_of
from topocal.topo.capacities import unknown_resource

if TYPE_CHECKING:
    from topocal.measure.pinning import Search
    from topocal.topo.topology import Topology

__all__ = ["LEAST_RATIO", "Setting"]

LEAST_RATIO: Final = 1.03
"""A resource that no pattern puts 3 % ahead of everything else cannot bind in practice."""

_FEW: Final = 12
"""Of so few pairs every pattern is tried (:func:`topocal.measure.ceilings.best_subset`)."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A machine, the endpoints that take part, and what its resources are taken to pass.

    Attributes
    ----------
    topology
        The machine.
    crossings
        Who crosses what.
    prior
        Assumed speeds.
    make
        What each resource is alike with.
    """

    topology: Topology
    crossings: Crossings
    prior: Prior
    make: Mapping[str, tuple[str, str]]

    @classmethod
    def of(
        cls,
        topology: Topology,
        endpoints: Sequence[str] | None,
        theta: Mapping[str, float] | None = None,
    ) -> Setting:
        """Routes, loads and speeds between endpoints (default: the accelerators).

        Raises
        ------
        InputError, TopologyError
            As :func:`~topocal.measure.crossings.lines_between` and
            :func:`~topocal.measure.prior.prior_of`.
        """
        chosen = endpoints if endpoints is not None else topology.accelerators
        chosen = tuple(chosen) or topology.endpoints
        lines, source, destination = lines_between(topology, chosen)
        prior = prior_of(topology, lines, theta)
        crossings = Crossings.of(topology, chosen, lines, source, destination, prior)
        return cls(topology, crossings, prior, makes(topology))

    def name(self, group: int) -> str:
        """Id of the slowest member of a class."""
        return self.crossings.resources[self.crossings.members[group][0]]

    def known_verdicts(self, pinned: Collection[str]) -> list[Verdict | None]:
        """Of each class what is clear without any pattern; ``None`` where a search is worth it.

        Raises
        ------
        TopologyError
            When ``pinned`` names no resource.
        """
        for name in pinned:
            if name not in self.topology.resources:
                raise unknown_resource(name, self.topology.resources)
        c = self.crossings
        by, ceiling = dominated(c)
        found: list[Verdict | None] = []
        for group, members in enumerate(c.members):
            if any(c.resources[k] in pinned for k in members):
                found.append(Verdict(Outcome.PINNED))
            elif c.law[group] == TIME_SHARED:
                found.append(Verdict(Outcome.SHARING))
            elif self.prior.seconds_per_byte[members[0]] == 0:
                found.append(Verdict(Outcome.UNLIMITED))
            elif ceiling[group] < LEAST_RATIO:
                others = (int(by[group]),)
                found.append(
                    Verdict(Outcome.DOMINATED, ceiling=float(ceiling[group]), others=others)
                )
            else:
                found.append(self._fed(group))
        return found

    def _fed(self, group: int) -> Verdict | None:
        proof = feeding(self.crossings, group)
        if proof is None or proof.ceiling >= LEAST_RATIO:
            return None
        return Verdict(Outcome.FED, ceiling=proof.ceiling, others=proof.classes)

    def verdict(
        self,
        search: Search,
        group: int,
        ratio: float,
        pattern: int | None,
        *,
        searched: bool = True,
    ) -> Verdict:
        """What the best pattern found for a class amounts to, and what is proven of better ones.

        Parameters
        ----------
        ratio
            How far ahead of everything else it puts the class.
        pattern
            Its number; ``None`` where it is not worth measuring.
        searched
            Whether it is the best of :meth:`~topocal.measure.pinning.Search.best`.
        """
        c = self.crossings
        if ratio >= search.clear and pattern is not None:
            return Verdict(Outcome.CLEAR, pattern=pattern, ratio=ratio)
        few = searched and len(c.rows_of(group)) <= _FEW
        proof = feeding(c, group)
        ceiling = math.inf if proof is None else proof.ceiling
        others = () if proof is None else proof.classes
        better = None if few else search.fractional(group)
        if better is not None and better.ceiling < ceiling:
            ceiling = better.ceiling
            ranked = sorted(better.weights.items(), key=lambda item: (-item[1], item[0]))
            others = tuple(s for s, _ in ranked)
        if pattern is not None:
            ceiling = ratio if few else ceiling
            return Verdict(Outcome.NARROW, pattern=pattern, ratio=ratio, ceiling=ceiling)
        if few:
            return Verdict(Outcome.TRIED, ratio=ratio, ceiling=ratio)
        if ceiling < LEAST_RATIO:
            return Verdict(Outcome.FED, ratio=ratio, ceiling=ceiling, others=others)
        return Verdict(Outcome.NOT_FOUND, ratio=ratio, ceiling=ceiling)

    def bottleneck(self, group: int, ratio: float) -> tuple[Reason, Worth]:
        """The purpose of a pattern that has a class as its clear bottleneck."""
        reason = Reason(
            purpose=Purpose.BOTTLENECK,
            about=self.name(group),
            ratio=None if math.isinf(ratio) else ratio,
        )
        make = (Purpose.BOTTLENECK, self.make[self.name(group)][0])
        return reason, Worth(make, self._crowd(group))

    def fan(self, endpoint: int, receives: bool, ratio: float | None) -> tuple[Reason, Worth]:
        """The purpose of a fan that tells how an endpoint shares."""
        purpose = Purpose.FAN_IN_SHARING if receives else Purpose.FAN_OUT_SHARING
        name = self.crossings.endpoints[endpoint]
        kind = self.topology.graph.nodes[name]["kind"]
        worth = Worth((purpose, kind, ratio is None), 0.5 / len(self.crossings.endpoints))
        return Reason(purpose=purpose, about=name, ratio=ratio), worth

    def alone(self, row: int, is_far: bool) -> tuple[Reason, Worth]:
        """The purpose of a lone flow."""
        c = self.crossings
        ((source, destination),) = c.names([row])
        share = np.count_nonzero(c.is_far[c.sending(int(c.source[row]))] == is_far) / c.pairs
        reason = Reason(purpose=Purpose.ALONE, about=f"{source}->{destination}")
        return reason, Worth((Purpose.ALONE, is_far), 0.5 * float(share))

    def crowd(self, endpoint: int, flows: int) -> tuple[Reason, Worth]:
        """The purpose of many flows at one endpoint, or (-1) at all."""
        ends = self.crossings.endpoints
        about = ends[endpoint] if endpoint >= 0 else f"{ends[0]} to {ends[-1]}"
        reason = Reason(purpose=Purpose.CROWD, about=about, ratio=float(flows))
        return reason, Worth((Purpose.CROWD, endpoint >= 0), 0.5 / len(ends))

    def both_ways(self, groups: tuple[int, int], ratio: float) -> tuple[Reason, Worth]:
        """The purpose of flows that oppose each other on a connection."""
        one, other = groups
        about = f"{self.name(one)} and {self.name(other)}"
        make = (Purpose.BOTH_WAYS, self.make[self.name(one)][0])
        reason = Reason(purpose=Purpose.BOTH_WAYS, about=about, ratio=ratio)
        return reason, Worth(make, 0.5 * self._crowd(one))

    def _crowd(self, group: int) -> float:
        """Share of all pairs that cross a class."""
        return len(self.crossings.rows_of(group)) / self.crossings.pairs

"""Measurements that contradict each other, and how far like ones scatter.

Three questions, all answered before anything is fitted:

* How noisy is the data?  Pairs that start at one sender and take the same side
  of the machine should read alike; their scatter is the noise level.
* Does a pattern finish sooner than one of its own flows alone?  No sharing law
  allows that, so one of the two figures is wrong.
* Does one group of like pairs disagree while all others agree?  Together with a
  contradiction that marks the group as unstable: it is left out, and said so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy.special import ndtri

from topocal.solve.rows import Observation
from topocal.topo.incidence import routes_of_pairs
from topocal.topo.resource import PathClass
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate

__all__ = ["Consistency", "Contradiction", "LikePairs", "check_consistency"]

NOISE_FLOOR: Final = 0.005
"""Half a percent: medians of ten repeats on the published machines scatter by no less."""

FALSE_ALARM: Final = 1e-3
"""Chance that noise alone makes a contradiction on a machine, all comparisons together."""

SIGMAS: Final = 3.0
"""A contradiction must exceed the noise of both figures by this many deviations; by more
where nothing else speaks against the pair (:data:`FALSE_ALARM`)."""

DISAGREEMENT: Final = math.log(1.10)
"""Like pairs disagree when they spread by more than 10 %, twice what the published
machines' steady pairs do."""

LEAST_FREEDOM: Final = 2.0
"""Of the noise, where hardly any pairs are alike: the floor below it is some knowledge as well."""

SLOW: Final = 0.75
"""A card is slow to take in when it reads less than this of its like from every sender."""

RELATIVE_DISAGREEMENT: Final = 5.0
"""…and by more than this many times the median spread of all such groups, so that a
machine whose pairs all differ by receiver does not look unstable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A pattern that finished sooner than one of its flows alone."""

    pattern: Observation
    flow: Observation
    sure: bool = True
    """Whether chance makes none so large on a whole machine."""

    @property
    def text(self) -> str:
        """Both figures in a sentence."""
        own_bytes = sum(
            f.size_bytes
            for f in self.pattern.pattern.flows
            if (f.source, f.destination) == self.flow.pattern.pairs[0]
        )
        return (
            f"{self.flow.name} reads {format_rate(self.flow.throughput_Bps)} alone, yet within "
            f"{self.pattern.name} ({format_rate(self.pattern.throughput_Bps)} in all) it passed "
            f"{format_rate(own_bytes / self.pattern.seconds)} or more: no flow is faster in company"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LikePairs:
    """Pairs that the topology says are alike: one sender, one side of the machine."""

    sender: str
    side: str
    samples: tuple[Observation, ...]

    @property
    def spread(self) -> float:
        """Log of the largest over the smallest rate."""
        rates = [s.throughput_Bps for s in self.samples]
        return math.log(max(rates) / min(rates))

    @property
    def unlike(self) -> list[tuple[str, str]]:
        """Pairs more than 10 % off the median of the group."""
        middle = float(np.median([s.throughput_Bps for s in self.samples]))
        return [
            s.pattern.pairs[0]
            for s in self.samples
            if abs(math.log(s.throughput_Bps / middle)) > DISAGREEMENT
        ]

    def without(self, receivers: frozenset[str]) -> LikePairs:
        """The group without the pairs into some endpoints."""
        kept = tuple(s for s in self.samples if s.pattern.pairs[0][1] not in receivers)
        return replace(self, samples=kept)

    @property
    def text(self) -> str:
        """The group and its figures."""
        rates = ", ".join(f"{s.name} {format_rate(s.throughput_Bps)}" for s in self.samples)
        return f"the {self.side} pairs of {self.sender} ({rates})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """What the data says about itself.

    Attributes
    ----------
    noise
        Relative standard deviation of one figure.
    freedom
        Degrees of freedom that it is known by; infinite where repeats tell it.
    contradictions
        Patterns against their own flows.
    disagreeing
        Groups of like pairs that spread far more than the others.
    left_out
        Samples that the fit must not see, with the reason.
    unlike
        Pairs that read otherwise than their like: what they cross may be theirs alone.
    """

    noise: float
    freedom: float = math.inf
    contradictions: tuple[Contradiction, ...] = ()
    disagreeing: tuple[LikePairs, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    unlike: tuple[tuple[str, str], ...] = ()

    def keep(self, samples: Iterable[Observation]) -> tuple[Observation, ...]:
        """The samples that are not left out."""
        return tuple(s for s in samples if s.name not in self.left_out)


def check_consistency(topology: Topology, observations: Sequence[Observation]) -> Consistency:
    """Look for contradictions, unstable pairs and the noise level.

    Raises
    ------
    UnknownEndpointError
        When a sample names an endpoint that the topology does not have.
    """
    singles = [o for o in observations if len(o.pattern.flows) == 1]
    whole = _like_pairs(topology, singles)
    # What a slow card takes in is one thing; that its senders' pairs differ by it is no other.
    slow = _slow_receivers(whole)
    groups = [less for g in whole if len((less := g.without(slow)).samples) > 1]
    spreads = [g.spread for g in groups]
    usual = float(np.median(spreads)) if spreads else 0.0
    threshold = max(DISAGREEMENT, RELATIVE_DISAGREEMENT * usual)
    disagreeing = tuple(g for g in groups if g.spread > threshold)
    repeated = [o.sigma for o in observations if math.isfinite(o.sigma)]
    # Repeats tell the noise best; without them, pairs that should be alike do.
    noise = (
        float(np.median(repeated))
        if 2 * len(repeated) > len(observations)
        else _noise([g for g in groups if g not in disagreeing])
    )
    freedom = (
        math.inf
        if 2 * len(repeated) > len(observations)
        else max(
            LEAST_FREEDOM, float(sum(len(g.samples) - 1 for g in groups if g not in disagreeing))
        )
    )
    contradictions = _contradictions(observations, noise)
    left_out: dict[str, str] = {}
    for group in disagreeing:
        names = {s.name for s in group.samples}
        against = [c for c in contradictions if c.flow.name in names]
        if not against:
            continue
        # Where all others agree, those that their own company contradicts are wrong by themselves.
        wrong = {c.flow.name for c in against}
        others = replace(group, samples=tuple(s for s in group.samples if s.name not in wrong))
        if len(others.samples) > 1 and others.spread <= threshold:
            for one in against:
                left_out[one.flow.name] = f"contradicted: {one.text}; and {others.text} agree"
            continue
        reason = (
            f"unstable: {group.text} disagree by {math.expm1(group.spread):.0%} while "
            f"{len(groups) - len(disagreeing)} other groups of like pairs agree within "
            f"{math.expm1(max((g.spread for g in groups if g not in disagreeing), default=0)):.0%}"
            f"; and {against[0].text}"
        )
        left_out |= dict.fromkeys(sorted(names), reason)
    doubted = {o.name for group in disagreeing for o in group.samples}
    contradictions = tuple(c for c in contradictions if c.sure or c.flow.name in doubted)
    agreeing = {
        o.name: group for group in groups if group not in disagreeing for o in group.samples
    }
    for one in contradictions:
        # The flow reads like its like, so that it is the pattern that is wrong.
        if one.flow.name in agreeing and one.pattern.name not in left_out:
            left_out[one.pattern.name] = (
                f"contradicted: {one.text}; and {agreeing[one.flow.name].text} agree with each "
                "other"
            )
    for name, against in _by_flow(contradictions).items():
        # One pair against several patterns: where nothing else speaks for it, it is the pair.
        if len(against) > 1 and name not in agreeing and name not in left_out:
            left_out[name] = f"contradicted {len(against)} times: {against[0].text}"
    return Consistency(
        noise=noise,
        freedom=freedom,
        contradictions=contradictions,
        disagreeing=disagreeing,
        left_out=left_out,
        unlike=tuple(
            pair
            for group in whole
            for pair in group.unlike
            if f"{pair[0]}->{pair[1]}" not in left_out
        ),
    )


def _by_flow(contradictions: Iterable[Contradiction]) -> dict[str, list[Contradiction]]:
    """Those that chance does not make, by the name of the pair alone."""
    found: dict[str, list[Contradiction]] = {}
    for one in contradictions:
        if one.sure:
            found.setdefault(one.flow.name, []).append(one)
    return found


def _like_pairs(topology: Topology, pairs: Sequence[Observation]) -> list[LikePairs]:
    """Groups of two pairs or more, in the order of the samples."""
    if not pairs:
        return []
    ends = [o.pattern.pairs[0] for o in pairs]
    topology.require_endpoints(name for pair in ends for name in pair)
    number = np.array([[topology.router.number[name] for name in pair] for pair in ends])
    routes = routes_of_pairs(topology, number[:, 0], number[:, 1])
    nominal = np.array([topology.links[k].nominal_Bps or math.inf for k in topology.router.links])
    begin, end = routes.indptr[routes.route], routes.indptr[routes.route + 1]
    found: dict[tuple[str, str, float], list[Observation]] = {}
    for k, sample in enumerate(pairs):
        source = ends[k][0]
        far = routes.path_class[k] >= PathClass.SYS
        # Cards with more links between them are no like of those with fewer.
        way = routes.links[begin[k] : end[k]]
        slowest = float(nominal[way].min(initial=math.inf))
        found.setdefault((source, "far" if far else "near", slowest), []).append(sample)
    return [
        LikePairs(sender=sender, side=side, samples=tuple(members))
        for (sender, side, _), members in found.items()
        if len(members) > 1
    ]


def _slow_receivers(groups: Sequence[LikePairs]) -> frozenset[str]:
    """Endpoints that read far slower than their like from every sender."""
    shares: dict[str, list[float]] = {}
    for group in groups:
        rates = {s.pattern.pairs[0][1]: s.throughput_Bps for s in group.samples}
        for receiver, rate in rates.items():
            others = [r for name, r in rates.items() if name != receiver]
            if not others:  # One pair, told several times.
                continue
            shares.setdefault(receiver, []).append(rate / float(np.median(others)))
    return frozenset(
        receiver for receiver, found in shares.items() if len(found) > 1 and max(found) < SLOW
    )


def _noise(groups: Sequence[LikePairs]) -> float:
    """Pooled standard deviation inside the groups, not below the floor."""
    squares, freedom = 0.0, 0
    for group in groups:
        logs = [math.log(s.throughput_Bps) for s in group.samples]
        squares += float(np.var(logs)) * len(logs)
        freedom += len(logs) - 1
    return max(NOISE_FLOOR, math.sqrt(squares / freedom)) if freedom else NOISE_FLOOR


def _contradictions(observations: Sequence[Observation], noise: float) -> tuple[Contradiction, ...]:
    alone = {o.pattern.pairs[0]: o for o in observations if len(o.pattern.flows) == 1}
    compared = sum(len(o.pattern.flows) for o in observations)
    surely = -float(ndtri(FALSE_ALARM / max(1, compared)))
    found = []
    for pattern in observations:
        for flow in pattern.pattern.flows:
            single = alone.get((flow.source, flow.destination))
            if single is None or single is pattern:
                continue
            errors = [o.sigma if math.isfinite(o.sigma) else noise for o in (pattern, single)]
            margin = math.hypot(*errors)
            scale = flow.size_bytes / single.pattern.total_bytes
            excess = math.log(single.seconds * scale / pattern.seconds) / margin
            if excess > SIGMAS:
                found.append(Contradiction(pattern=pattern, flow=single, sure=excess > surely))
    return tuple(found)

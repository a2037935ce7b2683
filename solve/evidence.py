"""What findings are drawn from, and what one is.

Every threshold has two parts: how large an effect must be to matter, and how large it must
be so that noise alone does not make it.  The second follows from the noise of one figure and
the number of comparisons (:func:`margin`), so that a clean machine is told nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from statistics import median
from typing import Final

from scipy.special import ndtri

from topocal.measure.patterns import PatternKind, kind_of
from topocal.solve.certificate import ALLOWANCE, least_throughput_Bps
from topocal.solve.words import is_host, pattern_in_words
from topocal.topo.errors import InputError
from topocal.topo.flow import Pattern
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology, natural_key
from topocal.topo.units import format_rate

__all__ = [
    "FALSE_ALARM",
    "NOISE_FLOOR",
    "Concurrent",
    "Evidence",
    "Finding",
    "FindingKind",
    "Judged",
    "Pair",
    "Severity",
    "Shown",
    "listed",
    "margin",
    "span",
]

FALSE_ALARM: Final = 1e-5
"""Chance that noise alone makes one kind of finding on a machine, all comparisons together:
a dozen kinds on a thousand machines then still say nothing false nine times in ten."""

NOISE_FLOOR: Final = 0.005
"""Relative noise of a figure at least: medians of ten repeats on the published machines
scatter by half a percent (docs/model.md)."""

TELLS: Final = math.log1p(ALLOWANCE)
"""A fan tells bytes from time when any capacities would finish it sooner, by more than what
is allowed for errors, than its flows one after another."""

Pair = tuple[str, str]


class Severity(StrEnum):
    """How much a finding costs."""

    NOTE = "note"
    """Good to know."""
    WARNING = "warning"
    """Transfers are slower than they could be, or figures cannot be trusted."""
    SERIOUS = "serious"
    """By a factor of two or more."""


class FindingKind(StrEnum):
    """What was found."""

    STRAGGLER = "straggler"
    SLOW_LINK = "slow link"
    SLOW_UPLINK = "slow uplink"
    COLLAPSE = "collapse"
    CONTRADICTION = "contradiction"
    STAGED = "staged copies"
    NEAR_SLOWER = "near slower than far"
    UNLIKE = "unlike pairs"
    ASYMMETRIC = "asymmetric directions"
    TIME_SHARED = "time-shared"
    DUPLEX_LOSS = "duplex loss"
    FADING = "fading"
    SHARED = "shared"
    ONE_SIDED = "one direction gives way"
    SETTINGS = "settings differ"
    NO_PEER = "no peer access"
    COLLECTIVES = "collectives"
    COSTS = "costs"
    NO_FABRIC = "no fabric"
    SIZES = "rates fall with size"
    UNITS = "wrong unit"
    FAR_HOST = "far host memory"
    APART = "groups apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A figure that a finding rests on: a sample's name and its rate."""

    name: str
    rate_Bps: float

    def __str__(self) -> str:
        return f"{self.name} {format_rate(self.rate_Bps)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that the figures say about the machine.

    Attributes
    ----------
    kind, severity
        What and how bad.
    about
        Ids of the endpoints or resources that it is about.
    text
        One or two sentences.
    evidence
        The figures, the most telling first.
    """

    kind: FindingKind
    severity: Severity
    about: tuple[str, ...]
    text: str
    evidence: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrent:
    """A pattern and its throughput: bytes of all flows over the time until the last is done."""

    pattern: Pattern
    throughput_Bps: float

    @property
    def seconds(self) -> float:
        """Time until the last flow is done."""
        return self.pattern.total_bytes / self.throughput_Bps

    @property
    def shown(self) -> Shown:
        """The figure with its name."""
        return Shown(name=pattern_in_words(self.pattern), rate_Bps=self.throughput_Bps)

    @property
    def is_even(self) -> bool:
        """Whether all flows have the same size, as closed forms assume."""
        sizes = [f.size_bytes for f in self.pattern.flows]
        return min(sizes) > 0 and max(sizes) <= 1.01 * min(sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged:
    """A pattern of several flows with what its pairs alone say about it.

    Attributes
    ----------
    figure
        The pattern.
    rates
        Rate of each flow's pair alone.
    serial_s
        What its flows take one after another.
    longest_s
        What the longest of them takes alone.
    capacity_s
        The longest that any capacities allow which pass its pairs; inf where sizes differ.
    """

    figure: Concurrent
    rates: tuple[float, ...]
    serial_s: float
    longest_s: float
    capacity_s: float

    @property
    def name(self) -> str:
        """The pattern, in its notation where that is short."""
        return pattern_in_words(self.figure.pattern)

    @property
    def pairs(self) -> list[Pair]:
        """Source and destination of each flow."""
        return self.figure.pattern.pairs

    @property
    def seconds(self) -> float:
        """What it took."""
        return self.figure.seconds

    @property
    def tells(self) -> bool:
        """Whether it takes longer one after another than under any capacities."""
        return self.serial_s > self.capacity_s * math.exp(TELLS)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that findings are drawn from.

    Attributes
    ----------
    topology
        Of the machine, with nominal capacities where known.
    pair_rates_Bps
        Rate of each ordered pair alone.
    concurrent
        Patterns of several flows; of one flow where a pair was measured once more.
    fitted_Bps
        Fitted capacity by resource id, of those that some sample pins.
    noise
        Relative standard deviation of one figure.
    no_peer
        Pairs of which a tool said that they have no peer access.

    Raises
    ------
    UnknownEndpointError
        When a figure names an endpoint that the topology lacks.
    InputError
        When a figure is not a finite number above zero.
    """

    topology: Topology
    pair_rates_Bps: Mapping[Pair, float]
    concurrent: tuple[Concurrent, ...] = ()
    fitted_Bps: Mapping[str, float] = field(default_factory=dict)
    noise: float = NOISE_FLOOR
    no_peer: frozenset[Pair] = frozenset()

    def __post_init__(self) -> None:
        names = {n for pair in self.pair_rates_Bps for n in pair}
        names |= {n for c in self.concurrent for pair in c.pattern.pairs for n in pair}
        self.topology.require_endpoints(sorted(names, key=natural_key))
        figures = [(f"{a}->{b}", rate) for (a, b), rate in self.pair_rates_Bps.items()]
        figures += [(c.pattern.name, c.throughput_Bps) for c in self.concurrent]
        figures += list(self.fitted_Bps.items())
        for name, rate in figures:
            if not (math.isfinite(rate) and rate > 0):
                raise InputError(
                    f"{name} has rate {rate:g}", remedy="give a finite number above zero"
                )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise {self.noise:g}", remedy="give zero or more")

    @cached_property
    def rates(self) -> dict[Pair, float]:
        """Rate of each pair, in natural order; where no pair was measured alone, half of what
        both ways at once pass."""
        found = dict(self.pair_rates_Bps)
        if not found:
            for c in self.concurrent:
                if kind_of(c.pattern) is PatternKind.BOTH_WAYS:
                    found |= dict.fromkeys(c.pattern.pairs, c.throughput_Bps / 2)
        order = sorted(found, key=lambda p: (natural_key(p[0]), natural_key(p[1])))
        return {pair: found[pair] for pair in order}

    @cached_property
    def endpoints(self) -> tuple[str, ...]:
        """Endpoints that some pair names, in natural order."""
        return tuple(sorted({n for pair in self.rates for n in pair}, key=natural_key))

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Patterns of two flows or more whose pairs were all measured alone."""
        rates, found = self.pair_rates_Bps, []
        for figure in self.concurrent:
            flows, pairs = figure.pattern.flows, figure.pattern.pairs
            if len(flows) < 2 or not all(p in rates for p in pairs):
                continue
            alone = [f.size_bytes / rates[p] for f, p in zip(flows, pairs, strict=True)]
            longest = math.inf
            if figure.is_even:
                least = least_throughput_Bps([rates[p] for p in pairs])
                # A resource that some flows cross twice may be busy for twice as long.
                twice = 2.0 if self.staged_pairs & set(pairs) else 1.0
                longest = figure.pattern.total_bytes / least * twice
            found.append(
                Judged(
                    figure=figure,
                    rates=tuple(rates[p] for p in pairs),
                    serial_s=math.fsum(alone),
                    longest_s=max(alone),
                    capacity_s=longest,
                )
            )
        return tuple(found)

    @cached_property
    def staged_pairs(self) -> frozenset[Pair]:
        """Pairs of the patterns whose copies the topology stages in host memory."""
        pairs = {p for c in self.concurrent for p in c.pattern.pairs}
        ends = tuple(sorted({n for p in pairs for n in p}, key=natural_key))
        staged = self.topology.routes(ends).staged if ends else None
        if staged is None:
            return frozenset()
        place = {name: k for k, name in enumerate(ends)}
        return frozenset((a, b) for a, b in pairs if staged[place[a], place[b]])

    @cached_property
    def has_groups(self) -> bool:
        """Whether the topology was made out of the figures themselves."""
        return NodeKind.GROUP in {kind for _, kind in self.topology.graph.nodes(data="kind")}

    @cached_property
    def is_both_ways(self) -> bool:
        """Whether the rates of pairs are halves of what both ways at once pass."""
        return not self.pair_rates_Bps and bool(self.rates)

    def shown(self, pair: Pair) -> Shown:
        """The figure of a pair, as it was measured."""
        if self.is_both_ways:
            return Shown(name=f"{pair[0]}<->{pair[1]}", rate_Bps=2 * self.rates[pair])
        return Shown(name=f"{pair[0]}->{pair[1]}", rate_Bps=self.rates[pair])

    def span(self, rates: Sequence[float]) -> str:
        """Rates of pairs from the least to the greatest, as they were measured."""
        if self.is_both_ways:
            return f"{span([2 * rate for rate in rates])} both ways"
        return span(rates)

    def is_host(self, end: str) -> bool:
        """Whether an endpoint is the host's memory."""
        kind = self.topology.graph.nodes[end]["kind"]
        return kind in (NodeKind.CPU, NodeKind.MEMORY) or is_host(end)

    def margin(self, comparisons: int, figures: int = 2) -> float:
        """:func:`margin` at this noise."""
        return margin(self.noise, comparisons, figures)


def margin(noise: float, comparisons: int, figures: int = 2) -> float:
    """Log ratio of figures that noise alone exceeds in none of many comparisons.

    Parameters
    ----------
    noise
        Relative standard deviation of one figure.
    comparisons
        How many are made (Bonferroni).
    figures
        How many figures enter one comparison with equal weight.

    Returns
    -------
    Exceeded with a chance of :data:`FALSE_ALARM` in all.

    >>> round(margin(0.01, 28), 3)
    0.072
    """
    quantile = -float(ndtri(FALSE_ALARM / (2 * max(1, comparisons))))
    return quantile * max(noise, NOISE_FLOOR) * math.sqrt(figures)


def span(rates: Sequence[float]) -> str:
    """Smallest to largest, or the one figure where they agree within a per cent.

    >>> span([26.2e9, 26.2e9]), span([13.2e9, 26.1e9])
    ('26.2 GB/s', '13.2 to 26.1 GB/s')
    """
    low, high = min(rates), max(rates)
    if high <= 1.01 * low:
        return format_rate(median(rates))
    least, most = format_rate(low), format_rate(high)
    number, _, unit = least.partition(" ")
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names as a phrase: "a, b and c", cut where there are many.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    >>> listed("abcdefgh", most=3)
    'a, b, c and 5 more'
    """
    given = list(names)
    if len(given) > most:
        return f"{', '.join(given[:most])} and {len(given) - most} more"
    return f"{', '.join(given[:-1])} and {given[-1]}" if len(given) > 1 else "".join(given)

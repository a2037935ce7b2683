"""Raw timings to observations: one figure per pattern, with its standard error.

Repeats and sizes are boiled down by :mod:`topocal.solve.scenarios`.  Where each flow's own
finish was recorded, a pattern whose parts share no resource is as many observations as it
has parts: they ran side by side and say nothing of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse import csr_array, hstack
from scipy.sparse.csgraph import connected_components

from topocal.measure.patterns import PatternKind, notation
from topocal.measure.samples import Measurements
from topocal.solve.rows import Observation
from topocal.solve.scenarios import Scenario, build_scenarios
from topocal.solve.words import name_in_words
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.topology import Topology

__all__ = ["Observed", "observe"]

SIGMA_FLOOR: Final = 1e-3
"""No capacity is known better than this: clocks and background traffic drift that much
between patterns however often each is repeated."""

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a machine's samples say.

    Attributes
    ----------
    observations
        One per pattern, or per part of a pattern that touches no other.
    alpha_s
        Time of an empty message by kind of pattern; empty where single sizes cannot tell.
    offset_s
        The intercept that belongs to the slope of large messages, by kind; below zero where
        messages get faster with their size.
    notes
        What was left out, what is unknown.
    """

    observations: tuple[Observation, ...]
    alpha_s: dict[PatternKind, float]
    offset_s: dict[PatternKind, float]
    notes: tuple[str, ...]


def observe(measurements: Measurements, topology: Topology) -> Observed:
    """Boil the samples down.

    Raises
    ------
    InputError
        When a sample took no time, or has no flows.
    UnknownEndpointError, NoRouteError
        When a flow cannot be carried on the topology.
    """
    scenarios = build_scenarios(measurements)
    parts = _Parts(topology, [s for s in scenarios if _finishes(s) is not None])
    observations = [o for s in scenarios for o in _observations(s, parts)]
    return Observed(
        observations=tuple(observations),
        alpha_s=_medians((s.kind, s.alpha_s) for s in scenarios),
        offset_s=_medians(
            (s.kind, s.fit.top.alpha_s if s.alpha_s is not None else None) for s in scenarios
        ),
        notes=tuple(_notes(measurements, scenarios)),
    )


def _finishes(scenario: Scenario) -> list[float] | None:
    """Each flow's own finish, where several flows all have one."""
    finish = scenario.flow_seconds_per_byte
    if finish is None or len(finish) < 2:
        return None
    known = [f for f in finish if f is not None]
    return known if len(known) == len(finish) else None


class _Parts:
    """Which flows of a pattern share a resource or an endpoint, directly or through others.

    Two ways between the same endpoints share no link, but may share what no link shows.
    """

    def __init__(self, topology: Topology, scenarios: list[Scenario]) -> None:
        pairs = sorted({pair for s in scenarios for pair in s.pattern.pairs})
        self._row = {pair: k for k, pair in enumerate(pairs)}
        if not pairs:
            return
        number = {e: k for k, e in enumerate(sorted({e for pair in pairs for e in pair}))}
        ends = np.array([[number[a], number[b]] for a, b in pairs])
        at_ends = csr_array(
            (np.ones(2 * len(pairs)), (np.repeat(np.arange(len(pairs)), 2), ends.ravel())),
            shape=(len(pairs), len(number)),
        )
        self._lines = hstack([incidence(topology, pairs).matrix, at_ends], format="csr")

    def of(self, pattern: Pattern) -> list[list[int]]:
        """Numbers of the flows of each part."""
        lines = self._lines[[self._row[pair] for pair in pattern.pairs]]
        count, part = connected_components(lines @ lines.T, directed=False)
        return [np.flatnonzero(part == k).tolist() for k in range(count)]


def _observations(scenario: Scenario, parts: _Parts) -> Iterator[Observation]:
    if scenario.seconds_per_byte is None:
        return
    sigma = math.nan if scenario.sigma is None else math.hypot(scenario.sigma, SIGMA_FLOOR)
    whole = Observation(
        name=scenario.name,
        pattern=scenario.pattern,
        seconds=scenario.seconds_per_byte,
        sigma=sigma,
        where=scenario.where,
    )
    finish = _finishes(scenario)
    separate = [] if finish is None else parts.of(scenario.pattern)
    if finish is None or len(separate) < 2:
        yield whole
        return
    for members in separate:
        own = tuple(scenario.pattern.flows[m] for m in members)
        name = notation((f.source, f.destination) for f in own)
        yield Observation(
            name=name,
            pattern=Pattern(flows=own, name=name),
            seconds=max(finish[m] for m in members),
            sigma=sigma,
            where=scenario.where,
        )


def _medians(figures: Iterable[tuple[PatternKind, float | None]]) -> dict[PatternKind, float]:
    """Median by kind of those that are known."""
    found: dict[PatternKind, list[float]] = {}
    for kind, value in figures:
        if value is not None:
            found.setdefault(kind, []).append(value)
    return {kind: float(np.median(values)) for kind, values in sorted(found.items())}


def _notes(measurements: Measurements, scenarios: tuple[Scenario, ...]) -> Iterator[str]:
    if not all(s.size_known for s in measurements.samples):
        yield (
            "no sizes were given with the rates: start-up time (alpha) is unknown and taken as "
            "zero, so small transfers take longer than predicted"
        )
    stragglers = [one for s in scenarios for one in s.left_out]
    if stragglers:
        first = stragglers[0]
        yield (
            f"{len(stragglers)} of {len(measurements.samples)} timings left out as stragglers, "
            f"such as one of {first.sample.name}: {first.reason}"
        )
    doubted: dict[str, list[str]] = {}
    for scenario in scenarios:
        if scenario.doubt is not None:
            doubted.setdefault(scenario.doubt, []).append(scenario.name)
    for doubt, names in doubted.items():
        shown = ", ".join(name_in_words(name) for name in names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{shown}{more} {'is' if len(names) == 1 else 'are'} not used: {doubt}"

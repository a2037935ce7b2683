"""What an explanation has to reproduce, as arrays.

A *figure* is a pattern and the throughput it may have; *extremes* are patterns of which
only the slowest and the fastest were published, and not which ones those are: each lies
between, and some one of them reaches each end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.evidence import listed
from topocal.solve.explanation_columns import Columns
from topocal.topo.errors import InputError
from topocal.topo.flow import Pattern

__all__ = ["AnyOf", "Demands", "Engines", "Extremes", "Figure", "Receivers", "demands"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Receivers(StrEnum):
    """How flows share a receiver."""

    CAPACITY = "capacity"
    """They share bytes; a receiver is a candidate resource like any other."""
    TIME_SHARED = "time-shared"
    """Every receiver serves one flow at a time."""
    FREE = "free"
    """Each receiver may do either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A pattern with what was measured of it and how far an explanation may be off.

    Attributes
    ----------
    pattern
        Flows with their sizes.
    throughput_Bps
        Bytes of all flows over the seconds.
    tolerance
        An explanation may be off by a factor of 1 + tolerance either way.
    """

    pattern: Pattern
    throughput_Bps: float
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """Patterns of which the smallest and the largest throughput are known.

    Attributes
    ----------
    patterns
        Such as the fans of one width into every root.
    smallest_Bps, largest_Bps
        Some one of them has the one, some one the other, and all lie between.
    tolerance
        As in :class:`Figure`.
    """

    patterns: tuple[Pattern, ...]
    smallest_Bps: float
    largest_Bps: float
    tolerance: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AnyOf:
    """Some one of several scenarios lies in a narrower range.

    Attributes
    ----------
    scenarios
        Their numbers.
    low, high
        Log seconds; infinite where open.
    """

    scenarios: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class Engines:
    """Time-shared receivers: K rows, each the flows of one scenario into one of them.

    Attributes
    ----------
    names
        Of the receivers, E of them.
    scenario, engine
        Shape (K,).
    indptr
        Shape (K + 1,): the flows of row k are ``pair[indptr[k]:indptr[k + 1]]``.
    pair, log_bytes
        Row of ``pair_log_weight`` of each flow, and its bytes.
    pair_log_weight
        Shape (P, R): log of how often a byte of the pair counts on each resource.
    pair_scenario
        Shape (P,): scenario that is the pair alone, -1 where none is.
    pair_log_bytes
        Shape (P,): its bytes there.
    log_kappa
        Overlap.
    free
        Whether a receiver may also turn out not to be time-shared.
    """

    names: tuple[str, ...]
    scenario: Ints
    engine: Ints
    indptr: Ints
    pair: Ints
    log_bytes: Floats
    pair_log_weight: csr_array
    pair_scenario: Ints
    pair_log_bytes: Floats
    log_kappa: float
    free: bool = False

    def seconds(self, solo: Floats) -> Floats:
        """Busy seconds of each row from the seconds per byte of each pair alone."""
        if not len(self.scenario):
            return np.zeros(0)
        parts = np.exp(self.log_bytes + self.log_kappa) * solo[self.pair]
        return np.add.reduceat(parts, self.indptr[:-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Demands:
    """Scenarios × candidate resources, and the seconds that each scenario may take.

    Attributes
    ----------
    scenarios
        Names, S of them.
    resources
        Labels, R of them.
    log_load
        Shape (S, R), sparse: log of the bytes; a stored zero is a load of one byte.
    low, high
        Shape (S,): log seconds.
    any_of
        What some one of several scenarios has to do.
    engines
        Time-shared receivers; ``None``: all share bytes.
    oddity
        Shape (R,): among explanations of one size the one of the least sum is preferred; whole
        numbers, zero or more. ``None``: all alike.
    what
        What is to be explained, for sentences: "53 pairs within 5 %".
    sizes
        Bytes of each scenario, for sentences; empty where unknown.
    """

    scenarios: tuple[str, ...]
    resources: tuple[str, ...]
    log_load: csr_array
    low: Floats
    high: Floats
    any_of: tuple[AnyOf, ...] = ()
    engines: Engines | None = None
    oddity: Ints | None = None
    what: str = "all figures"
    sizes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        s, r = len(self.scenarios), len(self.resources)
        shapes = (self.log_load.shape, self.low.shape, self.high.shape)
        if shapes != ((s, r), (s,), (s,)):
            raise InputError("names and figures differ in number", about=shapes)
        if not s:
            raise InputError("nothing is to be explained", remedy="give at least one figure")
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        if not (finite.all() and np.isfinite(self.log_load.data).all()):
            raise InputError("a figure is not finite", about=self)
        if (self.low > self.high).any():
            raise InputError(
                f"{self.scenarios[int(np.argmax(self.low > self.high))]} may take no time at all",
                about=self,
            )


def demands(
    columns: Columns,
    figures: Sequence[Figure],
    extremes: Sequence[Extremes] = (),
    *,
    receivers: Receivers = Receivers.CAPACITY,
    kappa: float = 1.0,
) -> Demands:
    """The arrays of an explanation.

    Parameters
    ----------
    receivers
        How flows share a receiver.
    kappa
        Overlap of time-shared receivers: a fan takes kappa times the sum of what its
        flows take alone.

    Raises
    ------
    InputError
        When a throughput, a tolerance or kappa is out of range, or there is no figure.
    UnknownEndpointError
        When a pattern names an endpoint that the columns were not made for.
    """
    if not 0 < kappa <= 1:
        raise InputError(f"overlap factor {kappa:g}", remedy="give a number above 0, 1 at most")
    patterns, low, high, any_of = [], [], [], []
    for f in figures:
        _check(f.pattern.name, f.throughput_Bps, f.tolerance)
        log_s = math.log(f.pattern.total_bytes / f.throughput_Bps)
        patterns.append(f.pattern)
        low.append(log_s - math.log1p(f.tolerance))
        high.append(log_s + math.log1p(f.tolerance))
    for e in extremes:
        slack = math.log1p(e.tolerance)
        members = tuple(range(len(patterns), len(patterns) + len(e.patterns)))
        for pattern in e.patterns:
            _check(pattern.name, e.smallest_Bps, e.tolerance)
            _check(pattern.name, e.largest_Bps, e.tolerance)
            patterns.append(pattern)
            low.append(math.log(pattern.total_bytes / e.largest_Bps) - slack)
            high.append(math.log(pattern.total_bytes / e.smallest_Bps) + slack)
        if len({p.total_bytes for p in e.patterns}) != 1:
            raise InputError(
                "extremes over patterns of different size say nothing about their times",
                remedy="give patterns of one size",
            )
        total = e.patterns[0].total_bytes
        any_of.append(AnyOf(scenarios=members, low=math.log(total / e.smallest_Bps) - slack))
        any_of.append(AnyOf(scenarios=members, high=math.log(total / e.largest_Bps) + slack))
    engines = None
    if receivers is not Receivers.CAPACITY:
        engines = _engines(columns, patterns, math.log(kappa), receivers is Receivers.FREE)
    return Demands(
        scenarios=tuple(p.name for p in patterns),
        resources=columns.labels,
        log_load=columns.log_load(patterns),
        low=np.array(low),
        high=np.array(high),
        any_of=tuple(any_of),
        engines=engines,
        oddity=columns.oddity,
        what=_what(figures, extremes),
        sizes=tuple(p.total_bytes for p in patterns),
    )


def _check(name: str, throughput_Bps: float, tolerance: float) -> None:
    if not (math.isfinite(throughput_Bps) and throughput_Bps > 0):
        raise InputError(
            f"{name} has throughput {throughput_Bps:g}", remedy="give a finite number above zero"
        )
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise InputError(f"{name} has tolerance {tolerance:g}", remedy="give zero or more")


def _engines(
    columns: Columns, patterns: Sequence[Pattern], log_kappa: float, free: bool
) -> Engines:
    position = {pair: k for k, pair in enumerate(columns.pairs)}
    used = sorted({position[p] for pattern in patterns for p in pattern.pairs})
    row_of = {k: i for i, k in enumerate(used)}
    weight = csr_array(columns.weight[used])
    weight.data = np.log(weight.data)
    alone = np.full(len(used), -1, dtype=np.int64)
    alone_bytes = np.zeros(len(used))
    names = sorted({d for pattern in patterns for _, d in pattern.pairs})
    scenario, engine, indptr, pair, size = [], [], [0], [], []
    for s, pattern in enumerate(patterns):
        if len(pattern.flows) == 1:
            (flow,) = pattern.flows
            k = row_of[position[flow.source, flow.destination]]
            if alone[k] < 0:
                alone[k], alone_bytes[k] = s, math.log(flow.size_bytes)
        into: dict[str, list[int]] = {}
        for k, flow in enumerate(pattern.flows):
            into.setdefault(flow.destination, []).append(k)
        for root, members in into.items():
            if len(members) < 2:
                continue
            scenario.append(s)
            engine.append(names.index(root))
            for k in members:
                flow = pattern.flows[k]
                pair.append(row_of[position[flow.source, flow.destination]])
                size.append(math.log(flow.size_bytes))
            indptr.append(len(pair))
    return Engines(
        names=tuple(f"receiver {n}" for n in names),
        scenario=np.array(scenario, dtype=np.int64),
        engine=np.array(engine, dtype=np.int64),
        indptr=np.array(indptr, dtype=np.int64),
        pair=np.array(pair, dtype=np.int64),
        log_bytes=np.array(size, dtype=np.float64),
        pair_log_weight=weight,
        pair_scenario=alone,
        pair_log_bytes=alone_bytes,
        log_kappa=log_kappa,
        free=free,
    )


def _what(figures: Sequence[Figure], extremes: Sequence[Extremes]) -> str:
    alone = [f.tolerance for f in figures if len(f.pattern.flows) == 1]
    concurrent = [f.tolerance for f in figures if len(f.pattern.flows) > 1]
    ends = [e.tolerance for e in extremes for _ in range(2)]
    kinds = ((alone, "pair"), (concurrent, "concurrent figure"), (ends, "published extreme"))
    return listed(
        f"{len(found)} {word}{'s' * (len(found) != 1)} within {100 * max(found):.3g}%"
        for found, word in kinds
        if found
    )

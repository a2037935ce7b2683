"""What was measured beside what is predicted: the pair matrix, and patterns of several flows.

Measured figures come from the samples where they are given, else from those that the model
keeps (its residuals).  Predictions are those of :func:`topocal.solve.predict.predict` without
start-up time, which is what the fit compares: bytes of large messages over their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.measure.patterns import PatternKind, kind_of, parse_pattern
from topocal.solve.observe import observe
from topocal.solve.predict import predict
from topocal.solve.status import Status
from topocal.topo.errors import TopocalError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.incidence import incidence
from topocal.topo.naming import natural_key
from topocal.topo.resource import PathClass, Sharing

if TYPE_CHECKING:
    from topocal.measure.samples import Measurements
    from topocal.solve.model import Model

__all__ = [
    "MOST_ENDPOINTS",
    "Figures",
    "Measured",
    "Pairs",
    "Several",
    "find_figures",
    "lone_rates_Bps",
    "measured_of",
    "reachable",
    "shown_endpoints",
]

MOST_ENDPOINTS: Final = 64
"""The matrix and the calculator cover so many: of more a choice, spread over hosts."""
_MOST_PATTERNS: Final = 2_000
"""Patterns that are predicted; more are left out, and the report says so."""
_SIZE_BYTES: Final = 2.0**28


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure: a pattern, its total throughput, and why the fit left it out if it did."""

    pattern: Pattern
    throughput_Bps: float | None
    left_out: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs:
    """One flow alone, for each ordered pair of the shown endpoints.

    Attributes
    ----------
    endpoints
        Rows (senders) and columns (receivers).
    measured_Bps, predicted_Bps
        Shape (n, n); nan where unknown.
    left_out
        Why the fit did not use a measured pair.
    """

    endpoints: tuple[str, ...]
    measured_Bps: NDArray[np.float64]
    predicted_Bps: NDArray[np.float64]
    left_out: Mapping[tuple[str, str], str]

    @property
    def error(self) -> NDArray[np.float64]:
        """Relative error of the prediction; nan where not measured."""
        return self.predicted_Bps / self.measured_Bps - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A pattern of several flows, measured and predicted (total throughput)."""

    pattern: Pattern
    kind: PatternKind
    measured_Bps: float
    predicted_Bps: float
    left_out: str = ""

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_Bps / self.measured_Bps - 1.0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything measured beside everything predicted.

    Attributes
    ----------
    pairs, several
        One flow alone; several at once, by kind and number of flows.
    measured
        What they are drawn from.
    left_out
        Sentences on what is not shown.
    """

    pairs: Pairs
    several: tuple[Several, ...]
    measured: tuple[Measured, ...]
    left_out: tuple[str, ...]


def measured_of(model: Model, measurements: Measurements | None = None) -> list[Measured]:
    """The figures that a model rests on: from its samples where given, else as it keeps them.

    Raises
    ------
    InputError
        When the samples cannot have come from the machine of the model.
    """
    if measurements is not None:
        return [
            Measured(
                pattern=o.pattern,
                throughput_Bps=o.throughput_Bps,
                left_out=model.left_out.get(o.name, ""),
            )
            for o in observe(measurements, model.topology).observations
        ]
    found = [
        Measured(pattern=pattern, throughput_Bps=r.measured_Bps)
        for r in model.residuals
        if (pattern := _parsed(model, r.name)) is not None
    ]
    found += [
        Measured(pattern=pattern, throughput_Bps=None, left_out=why)
        for name, why in model.left_out.items()
        if (pattern := _parsed(model, name)) is not None
    ]
    return found


def _parsed(model: Model, name: str) -> Pattern | None:
    """The pattern of a kept figure; ``None`` where its name is no notation."""
    try:
        pattern = parse_pattern(name, _SIZE_BYTES, resolve=lambda end: end.strip())
        model.topology.require_endpoints([e for pair in pattern.pairs for e in pair])
    except TopocalError:
        return None
    return pattern


def shown_endpoints(model: Model, measured: Sequence[Measured]) -> tuple[str, ...]:
    """Accelerators, and whatever else was measured; of many a choice, spread over hosts."""
    ends = set(model.topology.accelerators or model.topology.endpoints)
    ends |= {end for m in measured for pair in m.pattern.pairs for end in pair}
    ordered = sorted(ends, key=natural_key)
    if len(ordered) <= MOST_ENDPOINTS:
        return tuple(ordered)
    hosts: dict[str, list[str]] = defaultdict(list)
    for end in ordered:
        hosts[end.rpartition("/")[0]].append(end)
    names = list(hosts)
    largest = max(map(len, hosts.values()))
    count = max(1, min(len(names), MOST_ENDPOINTS // largest))
    chosen = [names[k * len(names) // count] for k in range(count)]
    found = [end for host in chosen for end in hosts[host]]
    if len(found) > MOST_ENDPOINTS:
        found = [found[k * len(found) // MOST_ENDPOINTS] for k in range(MOST_ENDPOINTS)]
    return tuple(found)


def reachable(model: Model, endpoints: Sequence[str]) -> list[tuple[str, str]]:
    """Ordered pairs of the endpoints that something connects, senders first."""
    classes = model.topology.routes(tuple(endpoints)).classes()
    return [(a, b) for a, b, code in classes if a != b and code is not PathClass.DIS]


def find_figures(model: Model, measurements: Measurements | None = None) -> Figures:
    """Line up what was measured with what is predicted.

    Raises
    ------
    InputError
        When the samples cannot have come from the machine of the model.
    """
    measured = measured_of(model, measurements)
    ends = shown_endpoints(model, measured)
    left_out = []
    number = len(set(model.topology.accelerators or model.topology.endpoints))
    if number > len(ends):
        left_out.append(
            f"The pair matrix and the calculator cover {len(ends)} of {number} endpoints, "
            "spread evenly over the hosts."
        )
    several = [m for m in measured if len(m.pattern.flows) > 1 and m.throughput_Bps is not None]
    if len(several) > _MOST_PATTERNS:
        left_out.append(
            f"Of {len(several)} patterns of several flows, {_MOST_PATTERNS} are compared."
        )
        several = [several[k * len(several) // _MOST_PATTERNS] for k in range(_MOST_PATTERNS)]
    return Figures(
        pairs=_pairs(model, ends, measured),
        several=tuple(_several(model, several)),
        measured=tuple(measured),
        left_out=tuple(left_out),
    )


def _pairs(model: Model, ends: tuple[str, ...], measured: Sequence[Measured]) -> Pairs:
    place = {end: k for k, end in enumerate(ends)}
    shape = (len(ends), len(ends))
    found, predicted = np.full(shape, np.nan), np.full(shape, np.nan)
    left_out: dict[tuple[str, str], str] = {}
    for m in measured:
        if len(m.pattern.flows) != 1:
            continue
        pair = m.pattern.pairs[0]
        if pair[0] not in place or pair[1] not in place:
            continue
        if m.throughput_Bps is not None:
            found[place[pair[0]], place[pair[1]]] = m.throughput_Bps
        if m.left_out:
            left_out[pair] = m.left_out
    pairs = reachable(model, ends)
    if pairs:
        rows = [place[a] for a, _ in pairs]
        columns = [place[b] for _, b in pairs]
        predicted[rows, columns] = lone_rates_Bps(model, pairs)
    return Pairs(endpoints=ends, measured_Bps=found, predicted_Bps=predicted, left_out=left_out)


def lone_rates_Bps(model: Model, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """What each pair alone is predicted to pass; nan where nothing says it.

    The same as :func:`topocal.solve.predict.predict` one by one, for many pairs at once.
    """
    lines = incidence(model.topology, pairs)
    table = [model.resources[name] for name in lines.resources]
    slow = np.array(
        [
            0.0
            if r.sharing is Sharing.TIME_SHARED or r.capacity_Bps is None
            else 1.0 / r.capacity_Bps
            for r in table
        ]
    )
    number = {name: k for k, name in enumerate(lines.resources)}
    matrix = csr_array(lines.matrix, copy=True)
    series = [
        (k, number[r.confounded_with[0]])
        for k, r in enumerate(table)
        if r.status is Status.SERIES and r.confounded_with[0] in number
    ]
    if series:
        # What stands for a resource in series counts in its place where both are loaded alike.
        own, other = (np.array(side) for side in zip(*series, strict=True))
        dense = matrix.tocsc()
        here, there = dense[:, own].toarray(), dense[:, other].toarray()
        row, column = np.nonzero((here == there) & (here > 0))
        editable = matrix.tolil()
        editable[row, own[column]] = 0.0
        matrix = csr_array(editable)
    cost = csr_array(matrix.multiply(slow))
    seconds = np.asarray(cost.max(axis=1).todense()).ravel()
    with np.errstate(divide="ignore"):
        rates = 1.0 / seconds
    return np.where(np.isfinite(rates), rates, np.nan)


def _several(model: Model, measured: Sequence[Measured]) -> list[Several]:
    found = []
    # Sizes are as measured; where the source gave none, any will do.
    patterns = [_sized(m.pattern) for m in measured]
    for m, p in zip(measured, predict(model, patterns), strict=True):
        busy_s = p.seconds - p.alpha_s
        if m.throughput_Bps is None or busy_s <= 0:
            continue
        found.append(
            Several(
                pattern=p.pattern,
                kind=kind_of(p.pattern),
                measured_Bps=m.throughput_Bps,
                predicted_Bps=p.pattern.total_bytes / busy_s,
                left_out=m.left_out,
            )
        )
    order = list(PatternKind)
    return sorted(
        found,
        key=lambda s: (order.index(s.kind), len(s.pattern.flows), natural_key(s.pattern.name)),
    )


def _sized(pattern: Pattern) -> Pattern:
    """The pattern, its flows no smaller than counts: rates are those of large messages."""
    total = max(f.size_bytes for f in pattern.flows)
    factor = _SIZE_BYTES / total if total else 1.0
    flows = tuple(
        Flow(
            source=f.source,
            destination=f.destination,
            size_bytes=f.size_bytes * factor if total else _SIZE_BYTES,
        )
        for f in pattern.flows
    )
    return replace(pattern, flows=flows)

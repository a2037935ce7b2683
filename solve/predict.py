"""What a pattern takes on a fitted machine, which resource says so, and what else may.

The closed form where it is exact, the fluid simulation otherwise; the prediction
says which.  Resources within three deviations of the busiest cannot be told apart by
the data and are named together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.solve.intervals import CLEAR_SIGMAS, Status
from topocal.topo.busiest import busiest
from topocal.topo.errors import FlowError
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topocal.solve.model import Model
    from topocal.topo.busiest import Busiest

__all__ = ["DOMINATES", "Binding", "Prediction", "predict"]

DOMINATES: Final = 0.6
"""Share of a resource's time above which one flow of several is said to dominate it."""

_OPEN_ABOVE: Final = (Status.BOUNDED, Status.ALIKE, Status.UNKNOWN)
"""What explains no sample by itself; nothing says that it is no faster."""

_TWO_SIDED: Final = 1.96
"""Deviations of a 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A resource's part in a prediction.

    Attributes
    ----------
    resource, label, sharing, status
        As in the model.
    seconds
        How long the pattern keeps it busy.
    dominated_by
        Of several flows on it, the one that takes at least :data:`DOMINATES` of that
        time, and its share.
    in_series
        Resources that the same flows load and that are as busy, as far as the data tells.
    """

    resource: str
    label: str
    sharing: Sharing
    status: Status
    seconds: float
    dominated_by: tuple[str, float] | None = None
    in_series: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Name, how it is shared, what dominates it and what stands in series with it."""
        parts = []
        if self.in_series:
            parts.append("or in series with it " + ", ".join(self.in_series))
        if self.sharing is Sharing.TIME_SHARED:
            parts.append("time-shared")
        if self.dominated_by is not None:
            parts.append(f"{self.dominated_by[1]:.0%} of its time {self.dominated_by[0]}")
        return self.label + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A pattern's time on a fitted machine.

    Attributes
    ----------
    pattern
        With its sizes.
    seconds
        From the common start to the last byte.
    low_s, high_s
        With every capacity as fast, and as slow, as the data allows.
    bottleneck
        The busiest resource; ``None`` when there are no bytes to move.
    indistinguishable
        Resources that may be the bottleneck as well, as far as the data tells.
    runner_up
        The busiest of the others.
    exact
        Whether the closed form is exact for this pattern; else it was simulated.
    unmeasured
        Resources on the way that no sample ever loaded and that have no nominal value.
    """

    pattern: Pattern
    seconds: float
    low_s: float
    high_s: float
    bottleneck: Binding | None
    indistinguishable: tuple[Binding, ...]
    runner_up: Binding | None
    exact: bool
    unmeasured: tuple[str, ...]

    @property
    def throughput_Bps(self) -> float:
        """Bytes of all flows over the seconds; 0 when nothing moves."""
        return self.pattern.total_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def reason(self) -> str:
        """What binds, in words."""
        if self.bottleneck is None:
            return "nothing to move"
        if not self.indistinguishable:
            return self.bottleneck.text
        others = " or ".join(b.text for b in self.indistinguishable)
        return f"{self.bottleneck.text} or {others}: the data cannot tell these apart"


def predict(model: Model, patterns: Sequence[Pattern]) -> list[Prediction]:
    """Predict patterns; their sizes are those of their flows.

    Raises
    ------
    UnknownEndpointError, NoRouteError, FlowError
        When a flow cannot be carried on the machine.
    """
    for pattern in patterns:
        for flow in pattern.flows:
            model.topology.require_endpoints((flow.source, flow.destination))
            if flow.source == flow.destination:
                raise FlowError(
                    f"flow from {flow.source} to itself", remedy="name two different endpoints"
                )
    best = busiest(model.topology, patterns, model.capacities)
    fast = busiest(model.topology, patterns, model.fastest)
    slow = busiest(model.topology, patterns, model.slowest)
    result = []
    for k, pattern in enumerate(patterns):
        loads = _Loads(model, pattern, _row(best, k))
        seconds = float(best.seconds[k])
        if not best.exact[k]:
            from topocal.topo.fluid import simulate

            fluid = simulate(model.topology, pattern.flows, model.capacities)
            seconds = float(np.max(fluid.finish_s))
        ranked = loads.ranked()
        tied = _tied(model, ranked)
        named = _merge_series(tied, loads)
        shortest = max(
            float(fast.seconds[k]), loads.longest_known() * math.exp(-_TWO_SIDED * model.noise)
        )
        result.append(
            Prediction(
                pattern=pattern,
                seconds=seconds,
                low_s=min(shortest, seconds),
                high_s=max(float(slow.seconds[k]), seconds),
                bottleneck=named[0] if named else None,
                indistinguishable=tuple(named[1:]),
                runner_up=ranked[len(tied)] if len(ranked) > len(tied) else None,
                exact=bool(best.exact[k]),
                unmeasured=tuple(
                    name for name in loads.busy if model.resources[name].status is Status.UNKNOWN
                ),
            )
        )
    return result


def _row(result: Busiest, k: int) -> dict[str, float]:
    """Busy seconds of the resources that pattern k loads."""
    span = slice(result.utilisation_s.indptr[k], result.utilisation_s.indptr[k + 1])
    columns, values = result.utilisation_s.indices[span], result.utilisation_s.data[span]
    return {result.resources[c]: float(u) for c, u in zip(columns, values, strict=True)}


def _tied(model: Model, ranked: list[Binding]) -> list[Binding]:
    """The busiest resources that the noise cannot separate, what explains samples first.

    A resource that is only bounded comes last: at its bound it ties with what set the bound.
    """
    if not ranked:
        return []
    least = ranked[0].seconds * math.exp(-CLEAR_SIGMAS * model.noise)
    tied = [b for b in ranked if b.seconds >= least]
    return sorted(tied, key=lambda b: b.status in _OPEN_ABOVE)


def _merge_series(tied: list[Binding], loads: _Loads) -> list[Binding]:
    """Bounded resources that the same flows load become one, named by the most shared."""
    found: dict[object, list[Binding]] = {}
    for binding in tied:
        same_flows = tuple((loads.crossing(binding.resource) > 0).tolist())
        bounded = binding.status in _OPEN_ABOVE
        found.setdefault(same_flows if bounded else binding.resource, []).append(binding)
    merged = []
    for members in found.values():
        first, *others = sorted(members, key=lambda b: (-loads.crowd(b.resource), b.resource))
        merged.append(replace(first, in_series=tuple(b.resource for b in others)))
    return merged


class _Loads:
    """What the flows of one pattern do to every resource."""

    def __init__(self, model: Model, pattern: Pattern, busy: dict[str, float]) -> None:
        self.busy = busy
        self._model = model
        self._flows = [f for f in pattern.flows if f.size_bytes > 0]
        if not self._flows:
            return
        lines = incidence(model.topology, [(f.source, f.destination) for f in self._flows])
        self._column = {name: k for k, name in enumerate(lines.resources)}
        self._weights = lines.matrix.toarray()
        capacity = model.capacities.capacity_Bps
        with np.errstate(divide="ignore"):
            slowness = np.where(np.isfinite(capacity), 1.0 / capacity, 0.0)
        self._solo_s = (self._weights * slowness).max(axis=1) * np.array(
            [f.size_bytes for f in self._flows]
        )

    def crossing(self, resource: str) -> NDArray[np.float64]:
        """Weight of each flow on a resource."""
        return np.asarray(self._weights[:, self._column[resource]])

    def crowd(self, resource: str) -> int:
        """How many pairs of the whole machine load a resource."""
        return self._model.crowd[resource]

    def longest_known(self) -> float:
        """Seconds that no capacity left open by the data can undercut: a flow's own time
        alone, and the time of a receiver that serves one flow at a time."""
        if not self._flows:
            return 0.0
        engines = [
            seconds
            for name, seconds in self.busy.items()
            if self._model.resources[name].sharing is Sharing.TIME_SHARED
        ]
        return max(float(self._solo_s.max()), *engines, 0.0)

    def ranked(self) -> list[Binding]:
        """Every loaded resource by its busy time, longest first; equal ones by name."""
        found = []
        for name, seconds in self.busy.items() if self._flows else ():
            resource = self._model.resources[name]
            crossing = self.crossing(name)
            time_shared = resource.sharing is Sharing.TIME_SHARED
            size = np.array([f.size_bytes for f in self._flows])
            part = (crossing > 0) * self._solo_s if time_shared else crossing * size
            several = np.count_nonzero(part) > 1
            if seconds <= 0 or (time_shared and not several):
                continue
            share = part / part.sum()
            top = int(np.argmax(share))
            flow = self._flows[top]
            dominant = (f"{flow.source}->{flow.destination}", float(share[top]))
            found.append(
                Binding(
                    resource=name,
                    label=resource.label,
                    sharing=resource.sharing,
                    status=resource.status,
                    seconds=seconds,
                    dominated_by=dominant if several and share[top] >= DOMINATES else None,
                )
            )
        return sorted(found, key=lambda b: (-b.seconds, b.resource))

"""What a pattern takes on a fitted machine, which resource says so, and what else may.

The closed form where it is exact, the fluid simulation otherwise; the prediction
says which.  Resources within three deviations of the busiest cannot be told apart by
the data and are named together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topocal.measure.patterns import kind_of
from topocal.solve.occupancy import Occupancy, occupancies
from topocal.solve.status import CLEAR_SIGMAS, OPEN_ABOVE, Status
from topocal.topo.errors import FlowError
from topocal.topo.flow import Pattern
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.model import Model

__all__ = ["Binding", "Prediction", "predict"]


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
        Of several flows on it, the one that takes most of that time, and its share,
        where it is at least :data:`topocal.solve.occupancy.DOMINATES`.
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
        From the common start to the last byte, start-up time included.
    alpha_s
        The start-up time in it; below zero where messages get faster with their size.
    low_s, high_s
        What the data allows at 95 %: pinned resources within their intervals, all others
        as fast, and as slow, as the observations leave open.
    narrow
        Only pinned resources can bind, so that the interval is the noise's alone.
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
    would_narrow
        What is not known and may decide: resources that are not pinned, and endpoints of
        which the data does not tell whether they serve their flows at once or by turns.
    """

    pattern: Pattern
    seconds: float
    alpha_s: float
    low_s: float
    high_s: float
    narrow: bool
    bottleneck: Binding | None
    indistinguishable: tuple[Binding, ...]
    runner_up: Binding | None
    exact: bool
    unmeasured: tuple[str, ...]
    would_narrow: tuple[str, ...]

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
        tied = (self.bottleneck, *self.indistinguishable)
        names = " or ".join(b.text for b in tied)
        if all(b.status is Status.PINNED for b in tied):
            return f"{names}, which are equally busy as far as the data tells"
        return f"{names}: the data cannot tell these apart"


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
    return [_one(model, pattern, busy) for pattern, busy in occupancies(model, patterns)]


def _one(model: Model, pattern: Pattern, busy: Occupancy) -> Prediction:
    # Several time-shared resources at once, unequal sizes or late starts: no closed form.
    longest = float(busy.seconds.max(initial=0.0))
    seconds = longest
    if not busy.exact:
        from topocal.topo.fluid import simulate

        seconds = simulate(model.topology, pattern.flows, model.capacities).seconds * busy.stretch
    stretch = seconds / longest if longest > 0 else 1.0
    alpha_s = model.start_up_s(kind_of(pattern), seconds) if longest > 0 else 0.0
    low, high = busy.low_s.max(initial=0.0), busy.high_s.max(initial=0.0)
    # What is not pinned may bind unless, as slow as the data allows, it still is quicker
    # than something else is at its fastest.
    never = np.array(
        [model.resources[name].status is Status.UNKNOWN for name in busy.resources], dtype=bool
    )
    # What nothing measured may take any time.
    open_ones = np.flatnonzero(~busy.pinned & (never | (busy.high_s > low)))
    by_turns = [(who, turns) for who, turns in busy.by_turns if turns > high]
    high = max([float(high), *(turns for _, turns in by_turns)])
    ranked = _ranked(model, busy)
    tied = _tied(model, ranked)
    named = _merge_series(model, tied, busy)
    return Prediction(
        pattern=pattern,
        seconds=alpha_s + seconds,
        alpha_s=alpha_s,
        low_s=max(0.0, alpha_s + min(float(low) * stretch, seconds)),
        high_s=alpha_s + max(float(high) * stretch, seconds),
        narrow=not len(open_ones) and not by_turns and longest > 0,
        bottleneck=named[0] if named else None,
        indistinguishable=tuple(named[1:]),
        runner_up=ranked[len(tied)] if len(ranked) > len(tied) else None,
        exact=busy.exact,
        unmeasured=tuple(busy.resources[k] for k in np.flatnonzero(never)),
        would_narrow=(
            *(busy.resources[k] for k in open_ones),
            *(f"whether {who} serves its flows at once or by turns" for who, _ in by_turns),
        ),
    )


def _ranked(model: Model, busy: Occupancy) -> list[Binding]:
    """Every resource by its busy time, longest first; equal ones by name."""
    found = [
        Binding(
            resource=name,
            label=model.resources[name].label,
            sharing=model.resources[name].sharing,
            status=model.resources[name].status,
            seconds=float(busy.seconds[k]),
            dominated_by=busy.dominant(k),
        )
        for k, name in enumerate(busy.resources)
        if busy.seconds[k] > 0
    ]
    return sorted(found, key=lambda b: (-b.seconds, b.resource))


def _tied(model: Model, ranked: list[Binding]) -> list[Binding]:
    """The busiest resources that the noise cannot separate, what explains samples first.

    A resource that is only bounded comes last: at its bound it ties with what set the bound.
    """
    if not ranked:
        return []
    least = ranked[0].seconds * float(np.exp(-CLEAR_SIGMAS * model.noise))
    tied = [b for b in ranked if b.seconds >= least]
    return sorted(tied, key=lambda b: b.status in OPEN_ABOVE)


def _merge_series(model: Model, tied: list[Binding], busy: Occupancy) -> list[Binding]:
    """Bounded resources that the same flows load become one, named by the most shared."""
    found: dict[object, list[Binding]] = {}
    for binding in tied:
        key = busy.flows_on(binding.resource) if binding.status in OPEN_ABOVE else binding.resource
        found.setdefault(key, []).append(binding)
    merged = []
    for members in found.values():
        first, *others = sorted(
            members, key=lambda b: (-model.crowd.get(b.resource, 0), b.resource)
        )
        merged.append(replace(first, in_series=tuple(b.resource for b in others)))
    return merged

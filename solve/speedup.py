"""What it would take for a pattern to be so many times as fast, and what it gains by less.

A pattern is done when its busiest resource is, so to finish within a given time every
resource that is busy for longer must be raised, each by its own factor and no other by any:
that is exact where the closed form is, and otherwise the factors are those that the fluid
simulation says suffice.  What a time-shared endpoint adds up is not bytes but the times of
its flows alone: it needs fewer flows, or flows that are faster alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.measure.patterns import kind_of
from topocal.solve.occupancy import Occupancy, occupancies
from topocal.solve.predict import Prediction, predict
from topocal.solve.status import OPEN_ABOVE, Status
from topocal.topo.errors import InputError
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing
from topocal.topo.units import format_rate, format_seconds

if TYPE_CHECKING:
    from topocal.solve.model import FittedResource, Model

__all__ = ["Demand", "Needed", "Speedup", "speed_up"]

_MOST_FACTOR: Final = 1e6
"""No machine becomes so much faster; figures above would leave the floats."""

_EXCEEDS: Final = 1 + 1e-9
"""Busy times this close to the time at hand are within it."""

_HALVINGS: Final = 24
"""Of the search for what suffices in the fluid simulation: 6e-8 of the time at hand."""

_LISTED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A capacity, and what it would have to be.

    Attributes
    ----------
    resource, label
        As in the model.
    now_Bps, needed_Bps
        Bytes per second; for a limit on single flows, of each of them.
    """

    resource: str
    label: str
    now_Bps: float
    needed_Bps: float

    @property
    def factor(self) -> float:
        """How many times what it passes now."""
        return self.needed_Bps / self.now_Bps

    @property
    def text(self) -> str:
        """Both figures."""
        return (
            f"{self.label} {format_rate(self.needed_Bps)} in place of {format_rate(self.now_Bps)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A resource that is busy for too long, and what it takes.

    Attributes
    ----------
    resource, label, sharing, status
        As in the model.
    seconds
        How long it is busy; of a time-shared one, once all capacities are raised that must be.
    factor
        How many times as fast it must serve these flows.
    flows
        Those on it, as ``source->destination``.
    needed
        What it must pass; ``None`` for a time-shared one.
    in_series
        Resources that the same flows load and that must pass as much.
    one_way_s
        Of a duplex with flows both ways: how long those of the busier way alone keep it busy.
    twice
        Flows that cross it more than once.
    leave_out
        Of a time-shared one: the fewest flows without which it is quick enough.
    faster
        Of a time-shared one: the capacities that limit its flows alone, raised so that all of
        them stay and are quick enough.
    """

    resource: str
    label: str
    sharing: Sharing
    status: Status
    seconds: float
    factor: float
    flows: tuple[str, ...]
    needed: Needed | None = None
    in_series: tuple[str, ...] = ()
    one_way_s: float | None = None
    twice: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    faster: tuple[Needed, ...] = ()

    @property
    def text(self) -> str:
        """What it takes, in a sentence."""
        return self.text_with(())

    def text_with(self, alike: Sequence[Demand]) -> str:
        """The same for others as well that take just as much (:attr:`key`)."""
        if self.needed is None:
            return self._of_time()
        return self._of_bytes(self.needed, [self.label, *(d.label for d in alike)])

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for demands that one sentence tells."""
        if self.needed is None or self.one_way_s is not None:
            return (self.resource,)
        rates = (self.needed.now_Bps, self.needed.needed_Bps)
        figures = tuple(float(f"{rate:.4g}") for rate in rates)
        return (self.flows, self.twice, self.sharing, self.status in OPEN_ABOVE, *figures)

    def _of_bytes(self, needed: Needed, labels: Sequence[str]) -> str:
        now = "at least " * (self.status in OPEN_ABOVE) + format_rate(needed.now_Bps)
        count = len(self.flows)
        whose = " of each flow" if self.sharing is Sharing.FATPIPE and count > 1 else ""
        must = "must each pass" if len(labels) > 1 else "must pass"
        parts = [
            f"{_some(labels)} {must} {format_rate(needed.needed_Bps)}{whose} in place of {now} "
            f"({self.factor:.2f} times), for {count} flow{'s' * (count > 1)}"
        ]
        if self.in_series:
            parts.append("in series with it " + _some(self.in_series) + " as much")
        if self.one_way_s is not None:
            parts.append(
                "flows of both directions add up there; those of one direction alone keep it busy "
                f"for {format_seconds(self.one_way_s)}"
            )
        if self.twice:
            parts.append(
                f"{_some(self.twice)} {'crosses' if len(self.twice) == 1 else 'cross'} it twice, "
                "as copies staged in host memory do; direct copies would need half"
            )
        return "; ".join(parts)

    def _of_time(self) -> str:
        count = len(self.flows)
        ways = [f"fewer flows (without {_some(self.leave_out)})"] if self.leave_out else []
        if self.faster:
            ways.append(
                f"flows that are {self.factor:.2f} times as fast alone, that is "
                + _some([n.text for n in self.faster])
            )
        return (
            f"{self.label} serves its {count} flows by turns, {format_seconds(self.seconds)} in "
            f"all ({self.factor:.2f} times too long): it needs " + ", or ".join(ways)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """What it takes for a pattern to be so many times as fast.

    Attributes
    ----------
    prediction
        The pattern as it is.
    factor, target_s
        How many times as fast, and its time then.
    possible
        False where an empty message takes as long already.
    demands
        Every resource that must be raised, the busiest first; all of them are needed, and no
        other is.
    unsure
        Resources that are quick enough by their best value, but may not be, as far as the
        data tells.
    relieved_s
        What the pattern takes when its bottleneck alone (and what the data cannot tell from
        it) is out of the way; ``None`` where there is none.
    """

    prediction: Prediction
    factor: float
    target_s: float
    possible: bool
    demands: tuple[Demand, ...]
    unsure: tuple[str, ...]
    relieved_s: float | None

    @property
    def relief(self) -> float | None:
        """How many times as fast the pattern is without its bottleneck."""
        if self.relieved_s is None or not self.relieved_s > 0:
            return None
        return self.prediction.seconds / self.relieved_s


def speed_up(model: Model, pattern: Pattern, factor: float = 2.0) -> Speedup:
    """What must be raised, to what, for a pattern to be ``factor`` times as fast.

    Raises
    ------
    InputError
        When the factor is not a number above 1, or too large to mean anything.
    UnknownEndpointError, NoRouteError, FlowError
        As :func:`topocal.solve.predict.predict`.
    """
    if not 1 < factor <= _MOST_FACTOR:
        raise InputError(
            f"{factor:g} times as fast", remedy="give a number above 1, a million at most"
        )
    (prediction,) = predict(model, [pattern])
    ((_, busy),) = occupancies(model, [pattern])
    target = prediction.seconds / factor
    if not busy.resources or not prediction.seconds > 0:
        return Speedup(
            prediction=prediction,
            factor=factor,
            target_s=target,
            possible=False,
            demands=(),
            unsure=(),
            relieved_s=None,
        )
    kind = kind_of(pattern)
    at_hand = target - model.start_up_s(kind, math.inf)
    possible = at_hand > 0 and target > model.start_up_s(kind, 0.0)
    on = _OnPattern(model, busy)
    demands: list[Demand] = []
    if possible:
        level = at_hand if busy.exact else on.sufficient(at_hand)
        demands = on.demands(level)
    told = {d.resource for d in demands}
    return Speedup(
        prediction=prediction,
        factor=factor,
        target_s=target,
        possible=possible,
        demands=tuple(demands),
        unsure=tuple(
            name
            for k, name in enumerate(busy.resources)
            if possible and name not in told and not busy.pinned[k]
            if busy.high_s[k] > at_hand * _EXCEEDS or _says_nothing(model.resources[name])
            if model.resources[name].sharing is not Sharing.TIME_SHARED
        ),
        relieved_s=on.relieved(prediction),
    )


def _says_nothing(resource: FittedResource) -> bool:
    """Whether neither a best value nor a bound of it is known."""
    return resource.capacity_Bps is None and resource.low_Bps is None


class _OnPattern:
    """One pattern's resources, n of them, and how raising them changes what they take."""

    def __init__(self, model: Model, busy: Occupancy) -> None:
        self._model = model
        self._busy = busy
        self._names = busy.resources
        self._flows = [f"{f.source}->{f.destination}" for f in busy.flows]
        table = [model.resources[name] for name in busy.resources]
        self._engine = np.array([r.sharing is Sharing.TIME_SHARED for r in table], dtype=bool)
        self._kappa = np.array([r.kappa or 1.0 for r in table])
        rate = [r.capacity_Bps or math.inf for r in table]
        self._rate = np.where(self._engine, math.inf, rate)
        pairs = [(f.source, f.destination) for f in busy.flows]
        lines = incidence(model.topology, pairs)
        place = {name: k for k, name in enumerate(lines.resources)}
        self._weight = lines.matrix[:, [place[n] for n in busy.resources]].toarray()
        self._size = np.array([f.size_bytes for f in busy.flows])
        self._columns = lines
        self._crowd = np.ones(len(table)) if busy.crowd is None else busy.crowd

    def raised(self, level: float) -> tuple[NDArray[np.float64], dict[int, float]]:
        """What every capacity must pass for nothing to be busy longer than ``level``, shape (n,),
        and how long the engines take that then still need faster flows."""
        excess = np.where(self._engine, 0.0, self._busy.seconds / level)
        rate = self._rate * np.where(excess > _EXCEEDS, excess, 1.0)
        late = {
            k: total
            for k in np.flatnonzero(self._engine).tolist()
            if (total := float(self._turns(k, rate).sum())) > level * _EXCEEDS
        }
        return rate, late

    def _turns(self, engine: int, rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each flow adds to an engine's time; a lone flow is not held up there."""
        mine = self._weight[:, engine] > 0
        if np.count_nonzero(mine) < 2:
            return np.zeros(len(mine))
        solo = (self._weight / rate).max(axis=1)
        factor = self._kappa[engine] * self._crowd[engine]
        return np.asarray(np.where(mine, factor * self._size * solo, 0.0))

    def _faster(self, engine: int, factor: float, rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """Capacities with which the engine's flows alone are ``factor`` times as fast."""
        mine = self._weight[:, engine] > 0
        solo = (self._weight / rate).max(axis=1)
        wanted = np.divide(factor, solo, out=np.zeros(len(solo)), where=mine & (solo > 0))
        least = self._weight * wanted[:, None]
        return np.asarray(np.maximum(rate, least.max(axis=0)))

    def _all_raised(self, level: float) -> NDArray[np.float64]:
        rate, late = self.raised(level)
        found = rate.copy()
        for engine, total in late.items():
            found = np.maximum(found, self._faster(engine, total / level, rate))
        return found

    def sufficient(self, at_hand: float) -> float:
        """The longest busy time that lets the fluid simulation finish in the time at hand."""
        low, high = at_hand, at_hand
        while self._simulated(self._all_raised(low)) > at_hand * _EXCEEDS and low > at_hand / 1024:
            low, high = low / 2, low
        for _ in range(_HALVINGS if low < high else 0):
            middle = (low + high) / 2
            if self._simulated(self._all_raised(middle)) > at_hand * _EXCEEDS:
                high = middle
            else:
                low = middle
        return low

    def _simulated(self, rate: NDArray[np.float64]) -> float:
        from topocal.topo.fluid import simulate

        changed = {
            name: float(new)
            for k, name in enumerate(self._names)
            if (new := rate[k]) != self._rate[k]
        }
        for name in tuple(changed):
            changed |= dict.fromkeys(self._in_series(name), changed[name])
        capacities = self._model.capacities.changed(changed)
        found = simulate(self._model.topology, self._busy.flows, capacities).seconds
        return found * self._busy.stretch

    def relieved(self, prediction: Prediction) -> float | None:
        """Seconds without the bottleneck and what the data cannot tell from it."""
        if prediction.bottleneck is None:
            return None
        tied = (prediction.bottleneck, *prediction.indistinguishable)
        out = {name for b in tied for name in (b.resource, *b.in_series)}
        gone = np.array([name in out for name in self._names], dtype=bool)
        rate = np.where(gone & ~self._engine, math.inf, self._rate)
        if self._busy.exact:
            left = np.where(gone | self._engine, 0.0, self._busy.seconds)
            for k in np.flatnonzero(self._engine & ~gone).tolist():
                left[k] = self._turns(k, rate).sum()
            seconds = float(left.max(initial=0.0))
        elif (gone & self._engine).any():
            return None
        else:
            seconds = self._simulated(rate)
        kind = kind_of(prediction.pattern)
        return seconds + self._model.start_up_s(kind, seconds)

    def demands(self, level: float) -> list[Demand]:
        """What must be raised, the busiest first."""
        rate, late = self.raised(level)
        found = [
            self._of_bytes(k, float(rate[k])) for k in np.flatnonzero(rate > self._rate).tolist()
        ]
        found += [self._of_time(k, total, level, rate) for k, total in late.items()]
        return sorted(found, key=lambda d: (-d.factor, d.resource))

    def _of_bytes(self, k: int, needed_Bps: float) -> Demand:
        name, fitted = self._names[k], self._model.resources[self._names[k]]
        mine = np.flatnonzero(self._weight[:, k] > 0)
        now = float(self._rate[k])
        return Demand(
            resource=name,
            label=fitted.label,
            sharing=fitted.sharing,
            status=fitted.status,
            seconds=float(self._busy.seconds[k]),
            factor=needed_Bps / now,
            flows=tuple(self._flows[f] for f in mine),
            needed=Needed(resource=name, label=fitted.label, now_Bps=now, needed_Bps=needed_Bps),
            in_series=self._in_series(name),
            one_way_s=self._one_way(k) if fitted.sharing is Sharing.DUPLEX else None,
            twice=tuple(self._flows[f] for f in mine if self._weight[f, k] > 1),
        )

    def _of_time(self, k: int, total: float, level: float, rate: NDArray[np.float64]) -> Demand:
        name, fitted = self._names[k], self._model.resources[self._names[k]]
        turns = self._turns(k, rate)
        faster = self._faster(k, total / level, rate)
        labels = self._model.resources
        return Demand(
            resource=name,
            label=fitted.label,
            sharing=fitted.sharing,
            status=fitted.status,
            seconds=total,
            factor=total / level,
            flows=tuple(self._flows[f] for f in np.flatnonzero(turns > 0)),
            leave_out=tuple(self._flows[f] for f in _fewest(turns, level)),
            faster=tuple(
                Needed(
                    resource=self._names[r],
                    label=labels[self._names[r]].label,
                    now_Bps=float(self._rate[r]),
                    needed_Bps=float(faster[r]),
                )
                for r in np.flatnonzero(faster > rate * _EXCEEDS).tolist()
            ),
        )

    def _in_series(self, name: str) -> tuple[str, ...]:
        """Resources that stand in series with one and that the same of these flows load."""
        place = {other: k for k, other in enumerate(self._columns.resources)}
        column = self._columns.matrix[:, [place[name]]].toarray()
        return tuple(
            r.id
            for r in self._model.resources.values()
            if r.status is Status.SERIES and r.confounded_with[0] == name
            if r.id not in self._names
            if np.array_equal(column, self._columns.matrix[:, [place[r.id]]].toarray())
        )

    def _one_way(self, k: int) -> float | None:
        """How long a duplex is busy with the flows of the busier direction; ``None`` where all
        go one way."""
        topology, name = self._model.topology, self._names[k]
        mine = np.flatnonzero(self._weight[:, k] > 0)
        users = {link.id: link for link in topology.links.values() if name in dict(link.uses)}
        sending = {
            end for use in topology.uses if use.resource == name for end in use.sources or ()
        }
        forth: set[str] = set()
        ways: list[list[int]] = [[], []]
        ends = tuple(dict.fromkeys(e for f in self._busy.flows for e in (f.source, f.destination)))
        routes = topology.routes(ends) if users else None
        for f in mine.tolist():
            flow = self._busy.flows[f]
            crossed = (
                [link for link in routes.route(flow.source, flow.destination) if link in users]
                if routes is not None
                else []
            )
            if crossed and not forth:
                forth = {link for link in crossed if users[link].reverse not in crossed}
            back = (
                any(users[link].reverse in forth for link in crossed)
                if crossed
                else flow.source not in sending
            )
            ways[back].append(f)
        if not all(ways):
            return None
        return max(float(self._busy.parts[way, k].sum()) for way in ways)


def _fewest(turns: NDArray[np.float64], level: float) -> Sequence[int]:
    """The fewest entries without which the sum is within a level: the largest ones."""
    order = np.argsort(-turns, kind="stable")
    left = turns.sum() - np.cumsum(turns[order])
    enough = int(np.argmax(left <= level * _EXCEEDS)) + 1
    # One flow alone is not held up.
    return [int(f) for f in order[: min(enough, np.count_nonzero(turns) - 1)]]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")

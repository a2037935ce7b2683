"""What a set of transfers takes by a machine's caps, what makes it so, and how sure that is.

The busiest resource's time is the finish where flows are of one size and at most one
time-shared resource is at work; elsewhere it is a lower bound, and the flows are simulated
(max-min fair, :mod:`topocal.topo.fluid`).  Bytes with the same two ends are one flow.

The interval allows for what the data leaves open, as predictions do: pinned caps within
theirs, all others as fast and as slow as nothing refutes.  The *dependence* says how
much of the finish rests on caps that no measurement had as its bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.caps import Cap, Caps, as_caps, costs_of
from topocal.solve.conditions import Conditions
from topocal.solve.fading import Crowd
from topocal.solve.pair_costs import PairCosts
from topocal.solve.status import OPEN_ABOVE, Status
from topocal.solve.transfers import Flows, flows_between
from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.errors import FlowError
from topocal.topo.incidence import Incidence
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.model import Model

__all__ = [
    "NOT_KNOWN",
    "TWO_SIDED",
    "UNPROVEN",
    "Dependence",
    "Load",
    "Price",
    "price",
    "require_open",
]

Floats = NDArray[np.float64]

UNPROVEN: Final = (
    Status.BOUNDED,
    Status.SERIES,
    Status.ALIKE,
    Status.ASSUMED,
    Status.UNKNOWN,
)
"""What no measurement had as its bottleneck: used at what is proven of it, at its
specification, or at what its like pass."""

TWO_SIDED: Final = 1.96
"""Deviations of a 95 % interval."""

NOT_KNOWN: Final = "nothing says how long it takes"
"""Of transfers that no known cap limits."""

_SAME: Final = 1e-9
"""Relative difference below which two times are the same."""

MOST_SIMULATED: Final = 20_000
"""Pairs with bytes up to which unequal flows are simulated; more by the closed form alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A resource's part in a price."""

    resource: str
    label: str
    sharing: Sharing
    status: Status
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """How far a finish rests on caps that no measurement had as its bottleneck.

    Attributes
    ----------
    seconds_without
        The busiest resource's time, were these caps without limit.
    seconds_at_least
        The same at the least that is proven of each.
    share
        Of the busiest resource's time, what is due to them: 0 when a measured cap decides.
    resources
        Those that keep busy for longer than ``seconds_without``, longest first.
    """

    seconds_without: float
    seconds_at_least: float
    share: float
    resources: tuple[Load, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a set of transfers takes.

    Attributes
    ----------
    seconds
        Predicted finish, start-up included; 0, as all times, where nothing says how long it
        takes (``is_known``).
    busiest_s
        By the busiest resource alone: equal where ``exact``, else no more than ``seconds``.
    alpha_s
        The start-up time in ``seconds``.
    low_s, high_s
        What the data allows at 95 %.
    exact, simulated
        Whether the busiest resource's time is the finish; if not, whether it was simulated.
    busiest, runner_up
        ``None`` when nothing limits what moves, and when no other resource is busy.
    dependence
        What rests on caps that were not measured as a bottleneck.
    unmeasured
        Resources on the way of which nothing is known; they are taken not to limit anything.
    by_turns
        Endpoints that may serve their flows by turns, which ``high_s`` allows for.
    moved_bytes, local_bytes, flows
        What moves, what stays at its process, and how many transfers that is.
    notes
        On the conditions of the calibration.
    """

    seconds: float
    busiest_s: float
    alpha_s: float
    low_s: float
    high_s: float
    exact: bool
    simulated: bool
    busiest: Load | None
    runner_up: Load | None
    dependence: Dependence
    unmeasured: tuple[str, ...]
    by_turns: tuple[str, ...]
    moved_bytes: float
    local_bytes: float
    flows: int
    notes: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything says how long it takes: nothing moves, or some cap limits what does."""
        return self.busiest is not None or not self.moved_bytes

    @property
    def throughput_Bps(self) -> float:
        """Bytes that move over the seconds; 0 when nothing does."""
        return self.moved_bytes / self.seconds if self.seconds > 0 else 0.0


def price(
    caps: Caps | Model,
    transfers: Flows | Sequence[tuple[str | int, str | int, float]],
    *,
    under: Conditions | None = None,
    allow_stale: bool = False,
) -> Price:
    """Price transfers that start together.

    Parameters
    ----------
    caps
        Caps, or a model (its own are taken).
    transfers
        Bytes by pair, or (source, destination, bytes); a whole number is a process number.
    under
        How the transfers are to be carried; default: as was calibrated.
    allow_stale
        Price them all the same where the calibration was under other conditions.

    Raises
    ------
    InputError
        When a process is unknown, a size is none, no byte can take a pair's route, or the
        calibration was under other conditions.
    """
    known = as_caps(caps)
    n = len(known.endpoints)
    notes = () if under is None else known.calibration.require_same(under, allow_stale=allow_stale)
    flows = transfers if isinstance(transfers, Flows) else flows_between(known.endpoints, transfers)
    if len(flows.moved) != n * n:
        raise FlowError(
            f"flows between {round(len(flows.moved) ** 0.5)} processes, caps of {n}",
            remedy="give caps of the same processes",
        )
    return replace(_Pricer(known, flows).price(), notes=notes)


def require_open(caps: Caps, costs: PairCosts, pairs: NDArray[np.int64]) -> None:
    """Refuse bytes that nothing can carry.

    Raises
    ------
    FlowError
        Naming the first pair, and the resource that passes nothing.
    """
    shut = pairs[costs.blocked[pairs]]
    if not len(shut):
        return
    n = len(caps.endpoints)
    pair = int(shut[0])
    name = f"{caps.endpoints[pair // n]}->{caps.endpoints[pair % n]}"
    row = caps.weights[[pair]]
    closed = [caps.resources[k].id for k in row.indices.tolist() if caps.resources[k].cap_Bps == 0]
    why = f"{closed[0]} on its only route passes 0 B/s" if closed else "nothing joins them"
    raise FlowError(
        f"no byte gets from {name.replace('->', ' to ')}: {why}",
        remedy="take another sender, or calibrate again",
        about=name,
    )


class _Pricer:
    """One set of flows on one set of caps."""

    def __init__(self, caps: Caps, flows: Flows) -> None:
        self._caps = caps
        self._flows = flows
        self._moved = flows.moved
        self._pairs = np.flatnonzero(flows.moved > 0)
        self._of = {cap.id: cap for cap in caps.resources}
        self._costs = costs_of(caps, [c.cap_Bps for c in caps.resources], pairs=self._pairs)
        require_open(caps, self._costs, self._pairs)
        self._engines = [
            k
            for k, name in enumerate(self._costs.resources)
            if self._of[name].sharing is Sharing.TIME_SHARED
        ]
        crowd = np.diff(self._costs.seconds_per_byte.indptr)
        self._crowded = [k for k in self._engines if crowd[k] > 1]
        self._busy = self._busy_s(self._costs)
        # A lone flow takes its own time; sharing begins with the second.
        self._busy[np.setdiff1d(self._engines, self._crowded).astype(np.int64)] = 0.0

    def _busy_s(self, costs: PairCosts, deviations: float = 0.0) -> Floats:
        """Busy time of each row, what many flows lose included, so many deviations away."""
        return np.asarray(costs.busy_s(self._moved) * self._loss_factor(costs, deviations))

    def _loss_factor(self, costs: PairCosts, deviations: float = 0.0) -> Floats:
        """How many times as long each row takes for its flows, or for all flows."""
        fading = self._caps.fading
        further = np.diff(costs.seconds_per_byte.indptr) - 1
        if fading is None:
            return np.ones(len(further))
        if fading.by is Crowd.PATTERN:
            further = np.full(len(further), len(self._pairs) - 1)
        if deviations < 0:  # Beyond what was measured it may not go on.
            further = np.minimum(further, fading.most_flows - 1)
        loss = max(0.0, fading.loss + deviations * fading.error)
        return np.asarray(1.0 + loss * np.maximum(0, further))

    def price(self) -> Price:
        """All that there is to say."""
        longest = float(self._busy.max(initial=0.0))
        exact = self._is_exact()
        simulated = not exact and longest > 0 and len(self._pairs) <= MOST_SIMULATED
        moving = max(self._simulated_s(), longest) if simulated else longest
        stretch = moving / longest if longest > 0 else 1.0
        low, high, by_turns = self._range()
        ranked = self._ranked()
        alpha = self._start_up(moving) if longest > 0 else 0.0
        caps = self._caps
        return Price(
            seconds=alpha + moving,
            busiest_s=self._start_up(longest) + longest if longest > 0 else 0.0,
            alpha_s=alpha,
            low_s=max(0.0, alpha + min(low * stretch, moving)),
            high_s=alpha + max(high * stretch, moving),
            exact=exact,
            simulated=simulated,
            busiest=ranked[0] if ranked else None,
            runner_up=ranked[1] if len(ranked) > 1 else None,
            dependence=self._dependence(ranked, longest),
            unmeasured=tuple(
                caps.resources[k].id
                for k in np.unique(caps.weights[self._pairs].indices).tolist()
                if caps.resources[k].cap_Bps is None
                and caps.resources[k].sharing is not Sharing.TIME_SHARED
            ),
            by_turns=by_turns,
            moved_bytes=float(self._moved.sum()),
            local_bytes=self._flows.local_bytes,
            flows=self._flows.flows,
        )

    def _start_up(self, busy_s: float) -> float:
        return max(self._caps.offset_s, self._caps.least_s - busy_s)

    def _is_exact(self) -> bool:
        sizes = self._moved[self._pairs]
        if not len(sizes):
            return True
        return bool(np.ptp(sizes) <= 1e-12 * sizes.max() and len(self._crowded) < 2)

    def _simulated_s(self) -> float:
        """Finish by max-min fair shares, without start-up."""
        from topocal.topo.fluid import simulate_batch
        from topocal.topo.loads import Batch, Loads

        caps, n = self._caps, len(self._caps.endpoints)
        ends = [divmod(p, n) for p in self._pairs.tolist()]
        lines = Incidence(
            tuple((caps.endpoints[a], caps.endpoints[b]) for a, b in ends),
            tuple(cap.id for cap in caps.resources),
            caps.weights[self._pairs],
        )
        batch = Batch.single(np.arange(len(self._pairs)), self._moved[self._pairs])
        found = float(simulate_batch(Loads.of(lines, _capacities(caps)), batch).seconds[0])
        # What many flows lose is lost as on the busiest resource.
        plain = self._costs.busy_s(self._moved)
        top = int(np.argmax(self._busy))
        return found * float(self._busy[top] / plain[top])

    def _ranked(self) -> list[Load]:
        """Every busy resource, longest first; of equal ones what was measured, then by name."""
        longest: dict[str, float] = {}
        for name, seconds in zip(self._costs.resources, self._busy.tolist(), strict=True):
            longest[name] = max(seconds, longest.get(name, 0.0))
        loads = [_load(self._of[name], s) for name, s in longest.items() if s > 0]
        loads.sort(key=lambda one: (-one.seconds, one.resource))
        if loads:
            tied = [one for one in loads if one.seconds >= loads[0].seconds * (1 - _SAME)]
            tied.sort(key=lambda one: (one.status in UNPROVEN, one.resource))
            loads[: len(tied)] = tied
        return loads

    def _range(self) -> tuple[float, float, tuple[str, ...]]:
        """Shortest and longest busy time that the data allows, and who may serve by turns."""
        caps = self._caps
        at_most = costs_of(
            caps,
            [cap.high_Bps for cap in caps.resources],
            [cap.kappa_low for cap in caps.resources],
            self._pairs,
        )
        busy = self._busy_s(at_most, -TWO_SIDED)
        timed = np.array(
            [self._of[n].sharing is Sharing.TIME_SHARED for n in at_most.resources], dtype=bool
        )
        low = float(busy[~timed].max(initial=0.0))
        if any(_is_open(self._of[name]) for name in self._costs.resources):
            # Whatever stands open, the slowest flow alone takes its own time, where that is
            # told, and an engine the sum of its flows' own times, which the pairs tell.
            told = [None if c.status in OPEN_ABOVE else c.cap_Bps for c in caps.resources]
            own_s = costs_of(caps, told, pairs=self._pairs).alone_s
            alone = float((self._moved * own_s).max(initial=0.0))
            engines = self._busy_s(self._costs, -TWO_SIDED)[self._crowded]
            alone = max(alone, float(engines.max(initial=0.0)))
            low = max(low, alone * float(np.exp(-TWO_SIDED * caps.noise)))
        else:
            low = max(low, float(busy.max(initial=0.0)))
        at_least = costs_of(
            caps,
            self._least_Bps(),
            [
                None if cap.kappa_high is None else min(1.0, cap.kappa_high)
                for cap in caps.resources
            ],
            self._pairs,
        )
        high = float(self._busy_s(at_least, TWO_SIDED).max(initial=0.0))
        lost = float(self._loss_factor(at_least).max(initial=1.0))
        own = (self._moved * at_least.alone_s * lost).reshape((len(caps.endpoints),) * 2)
        several = (self._moved > 0).reshape(own.shape)
        words, longest = [], high
        for word, axis, members in (
            ("receiver", 0, caps.undecided[0]),
            ("sender", 1, caps.undecided[1]),
        ):
            turns = np.where(several.sum(axis=axis) > 1, own.sum(axis=axis), 0.0)
            for k in members:
                if turns[k] > high * (1 + _SAME):
                    words.append(f"{word} {caps.endpoints[k]}")
                    longest = max(longest, float(turns[k]))
        return low, longest, tuple(words)

    def _least_Bps(self) -> list[float | None]:
        """What each resource passes at least; nothing tried what only several ways try."""
        ends = np.divmod(self._pairs, len(self._caps.endpoints))
        columns = self._caps.weights[self._pairs].tocsc()
        found = []
        for k, cap in enumerate(self._caps.resources):
            least = cap.cap_Bps if cap.low_Bps is None else cap.low_Bps
            if cap.sharing is Sharing.DUPLEX and cap.cap_Bps is None:
                rows = columns.indices[columns.indptr[k] : columns.indptr[k + 1]]
                if any(len(np.unique(end[rows])) < 2 for end in ends):
                    least = None
            found.append(least)
        return found

    def _dependence(self, ranked: list[Load], longest: float) -> Dependence:
        measured = [one.seconds for one in ranked if one.status not in UNPROVEN]
        without = max(measured, default=0.0)
        at_least = costs_of(
            self._caps,
            [
                cap.low_Bps if cap.status in UNPROVEN and cap.low_Bps is not None else cap.cap_Bps
                for cap in self._caps.resources
            ],
            pairs=self._pairs,
        )
        return Dependence(
            seconds_without=without,
            seconds_at_least=float(self._busy_s(at_least).max(initial=0.0)),
            share=1.0 - without / longest if longest > 0 else 0.0,
            resources=tuple(
                one
                for one in ranked
                if one.status in UNPROVEN and one.seconds > without * (1 + _SAME)
            ),
        )


def _is_open(cap: Cap) -> bool:
    """Whether nothing bounds from above what it passes."""
    if cap.sharing is Sharing.TIME_SHARED:
        return cap.kappa_low is None
    return cap.high_Bps is None


def _load(cap: Cap, seconds: float) -> Load:
    return Load(
        resource=cap.id, label=cap.label, sharing=cap.sharing, status=cap.status, seconds=seconds
    )


def _capacities(caps: Caps) -> Capacities:
    """The caps as the simulator takes them; what is unknown never binds."""
    return Capacities(
        resources=tuple(cap.id for cap in caps.resources),
        capacity_Bps=np.array(
            [np.inf if cap.cap_Bps is None else cap.cap_Bps for cap in caps.resources]
        ),
        sharing=np.array([SHARING_CODE[cap.sharing] for cap in caps.resources], dtype=np.int8),
        kappa=np.array([1.0 if cap.kappa is None else cap.kappa for cap in caps.resources]),
        in_order=np.zeros(len(caps.resources), dtype=np.bool_),
    )

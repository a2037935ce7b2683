"""How long a pattern keeps each resource of a fitted machine busy, and how well that is known.

The best value comes from the fitted capacities.  A pinned resource's busy time carries the
error of its fit; a time-shared engine's carries those of the rates that it adds up, each by
its share, and that of its overlap factor.  What is not pinned has as its longest time the
one at the least capacity that the data allows, and as its shortest one at the most, where its
like tell, or none at all; but no pattern undercuts the time of one of its flows alone, where
the data knows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.fading import faded
from topocal.solve.status import OPEN_ABOVE, Status
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.topo.flow import Flow, Pattern

__all__ = ["DOMINATES", "Occupancy", "occupancies"]

DOMINATES: Final = 0.6
"""Share of a resource's time above which one flow of several is said to dominate it."""

_TWO_SIDED: Final = 1.96
"""Deviations of a 95 % interval."""


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Busy times of the resources that one pattern loads, n of them, by f flows.

    Attributes
    ----------
    resources
        Ids, in the topology's order.
    seconds, low_s, high_s
        Shape (n,): best value, and the range that the data allows at 95 %.
    pinned
        Shape (n,): whether the range is that of the noise alone.
    parts
        Shape (f, n): what each flow contributes to the busy time.
    exact
        Whether the longest busy time is the pattern's finish.
    by_turns
        ``(endpoint, seconds)`` where the data does not tell whether it serves its flows at
        once or by turns: what it would take by turns.
    crowd
        Shape (n,): the factor by which many flows lengthen each busy time, in all of them
        already; ``None`` where nothing fades.
    """

    flows: tuple[Flow, ...]
    resources: tuple[str, ...]
    seconds: NDArray[np.float64]
    low_s: NDArray[np.float64]
    high_s: NDArray[np.float64]
    pinned: NDArray[np.bool_]
    parts: NDArray[np.float64]
    exact: bool
    by_turns: tuple[tuple[str, float], ...] = ()
    crowd: NDArray[np.float64] | None = None

    @property
    def stretch(self) -> float:
        """How many times as long a simulation without a loss by many flows would be: as on
        the busiest resource."""
        if self.crowd is None or not len(self.crowd):
            return 1.0
        return float(self.crowd[np.argmax(self.seconds)])

    def flows_on(self, resource: str) -> tuple[bool, ...]:
        """Which flows load a resource."""
        return tuple((self.parts[:, self.resources.index(resource)] > 0).tolist())

    def dominant(self, k: int) -> tuple[str, float] | None:
        """The flow that takes most of a resource's time, and its share, if it dominates."""
        part = self.parts[:, k]
        if np.count_nonzero(part) < 2:
            return None
        top = int(np.argmax(part))
        share = float(part[top] / part.sum())
        name = f"{self.flows[top].source}->{self.flows[top].destination}"
        return (name, share) if share >= DOMINATES else None


def occupancies(model: Model, patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, Occupancy]]:
    """The busy times of each pattern.

    Raises
    ------
    UnknownEndpointError, NoRouteError
        When a flow cannot be carried on the machine.
    """
    moving = [tuple(f for f in p.flows if f.size_bytes > 0) for p in patterns]
    pairs = sorted({(f.source, f.destination) for flows in moving for f in flows})
    if not pairs:
        nothing = np.zeros(0)
        empty = Occupancy(
            (), (), nothing, nothing, nothing, nothing.astype(bool), np.zeros((0, 0)), True
        )
        for pattern in patterns:
            yield pattern, empty
        return
    lines = incidence(model.topology, pairs)
    number = {pair: k for k, pair in enumerate(pairs)}
    rates = _Rates(model, lines.resources)
    for pattern, flows in zip(patterns, moving, strict=True):
        rows = [number[f.source, f.destination] for f in flows]
        busy = rates.occupancy(flows, csr_array(lines.matrix[rows]))
        yield pattern, busy if model.fading is None else faded(busy, model.fading, model)


class _Rates:
    """Slowness of every resource: fitted, least and greatest that the data allows."""

    def __init__(self, model: Model, resources: tuple[str, ...]) -> None:
        table = [model.resources[name] for name in resources]
        self._names = resources
        self._noise = model.noise
        self._undecided = model.undecided
        self._undecided_ends = frozenset(model.undecided_endpoints)
        self._fatpipe = np.array([r.sharing is Sharing.FATPIPE for r in table])
        # Only what goes several ways at once tries what nothing tried.
        self._untried = np.array(
            [r.sharing is Sharing.DUPLEX and r.capacity_Bps is None for r in table], dtype=bool
        )
        self._engine = np.array([r.sharing is Sharing.TIME_SHARED for r in table])
        self._kappa = np.array([1.0 if r.kappa is None else r.kappa for r in table])
        self._pinned = np.array([r.status is Status.PINNED for r in table])
        self._error = np.array([0.0 if r.error is None else r.error for r in table])
        self._best = _slowness([r.capacity_Bps for r in table])
        self._slowest = np.maximum(_slowness([r.low_Bps for r in table]), self._best)
        self._fastest = np.minimum(_slowness([r.high_Bps for r in table]), self._best)
        # What explains no sample by itself does not tell what a flow alone takes.
        self._told = np.array([r.status not in OPEN_ABOVE for r in table])
        # A value by specification is taken at its word.
        assumed = np.array([r.status is Status.ASSUMED for r in table])
        self._settled = self._pinned | (assumed & ~self._engine)
        # For a capacity in series: the column of the one that stands for it.
        number = {name: k for k, name in enumerate(resources)}
        self._stand_in = np.array(
            [
                number[r.confounded_with[0]] if r.status is Status.SERIES else k
                for k, r in enumerate(table)
            ]
        )

    def occupancy(self, flows: tuple[Flow, ...], matrix: csr_array) -> Occupancy:
        """Busy times of the resources that ``matrix`` (flows × resources) loads."""
        loaded = self._without_series(matrix)
        weight = matrix[:, loaded].toarray() if len(flows) else np.zeros((0, 0))
        size = np.array([f.size_bytes for f in flows])
        if not len(flows):
            none = np.zeros(0)
            return Occupancy(flows, (), none, none, none, none.astype(bool), weight, True)
        capacity = ~self._engine[loaded]
        best, slowest = self._best[loaded], self._slowest[loaded]
        parts = weight * size[:, None] * best
        solo = (weight * best * capacity).max(axis=1)
        solo_high = (weight * slowest * capacity).max(axis=1)
        solo_told = weight * best * (capacity & self._told[loaded])
        binding = (weight * best * capacity).argmax(axis=1)
        engines = np.flatnonzero(~capacity)
        parts[:, engines] = (
            (weight[:, engines] > 0) * (solo * size)[:, None] * (self._kappa[loaded][engines])
        )
        # A lone flow takes its own time; sharing begins with the second.
        lone = engines[np.count_nonzero(parts[:, engines], axis=0) < 2]
        parts[:, lone] = 0.0
        fat = self._fatpipe[loaded]
        seconds = np.where(fat, parts.max(axis=0), parts.sum(axis=0))
        error = self._error[loaded]
        pinned = self._settled[loaded].copy()
        at_slowest = weight * size[:, None] * slowest
        at_slowest[:, _one_way(flows, weight) & self._untried[loaded]] = 0.0
        at_fastest = weight * size[:, None] * self._fastest[loaded] * capacity
        low = np.where(
            pinned,
            seconds * np.exp(-_TWO_SIDED * error),
            np.where(fat, at_fastest.max(axis=0), at_fastest.sum(axis=0)),
        )
        high = np.where(
            pinned,
            seconds * np.exp(_TWO_SIDED * error),
            np.where(fat, at_slowest.max(axis=0), at_slowest.sum(axis=0)),
        )
        for k in engines:
            if not seconds[k]:
                continue
            share = parts[:, k] / seconds[k]
            of_flow = error[binding]
            known = self._settled[loaded][binding] | (share == 0)
            kappa_error = error[k] if self._pinned[loaded[k]] else self._noise
            whole = float(np.sqrt((share**2 * of_flow**2).sum() + kappa_error**2))
            pinned[k] = bool(known.all())
            low[k] = seconds[k] * np.exp(-_TWO_SIDED * (whole if pinned[k] else self._noise))
            longest = seconds[k] * np.exp(_TWO_SIDED * whole)
            if not pinned[k]:
                longest = max(longest, float(((parts[:, k] > 0) * solo_high * size).sum()))
            high[k] = longest
        low = np.maximum(low, 0.0)
        if not pinned.all():
            # Whatever stands open, the slowest flow alone takes its own time, where that is told.
            own = solo_told.max(axis=1) * size
            slow = int(np.argmax(own))
            tells = int(solo_told[slow].argmax())
            own_time = float(own[slow]) * float(np.exp(-_TWO_SIDED * self._noise))
            low[tells] = max(low[tells], own_time)
        equal = np.ptp(size) <= 1e-12 * size.max() and len({f.start_s for f in flows}) == 1
        busy_engines = int(np.count_nonzero(seconds[engines]))
        return Occupancy(
            flows=flows,
            resources=tuple(self._names[k] for k in loaded),
            seconds=seconds,
            low_s=low,
            high_s=np.maximum(high, seconds),
            pinned=pinned,
            parts=parts,
            exact=bool(equal and flows[0].start_s == 0 and busy_engines < 2),
            by_turns=tuple(
                self._by_turns(
                    flows, solo_high * size, set(np.array(self._names)[loaded[engines]].tolist())
                )
            ),
        )

    def _by_turns(
        self, flows: tuple[Flow, ...], own_s: NDArray[np.float64], engines: set[str]
    ) -> Iterator[tuple[str, float]]:
        """Undecided endpoints of two flows or more that have no engine."""
        for side, word in ((0, "receiver"), (1, "sender")):
            ends = [f.source if side else f.destination for f in flows]
            for end in dict.fromkeys(ends):
                open_ = side in self._undecided or (end, side) in self._undecided_ends
                mine = [k for k, e in enumerate(ends) if e == end]
                if open_ and len(mine) > 1 and f"{end}.{word}.engine" not in engines:
                    yield f"{word} {end}", float(own_s[mine].sum())

    def _without_series(self, matrix: csr_array) -> NDArray[np.int64]:
        """The loaded columns, less those whose stand-in the same flows load alike."""
        loaded = np.unique(matrix.indices).astype(np.int64)
        stand_in = self._stand_in[loaded]
        in_series = np.flatnonzero(stand_in != loaded)
        if not len(in_series):
            return loaded
        same = abs(matrix[:, loaded[in_series]] - matrix[:, stand_in[in_series]]).sum(axis=0) == 0
        return np.delete(loaded, in_series[np.asarray(same).ravel()])


def _one_way(flows: Sequence[Flow], weight: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each column of ``weight``, shape (f, n): whether its flows start, or end, together."""
    found = np.zeros(weight.shape[1], dtype=bool)
    for ends in ([f.source for f in flows], [f.destination for f in flows]):
        _, end = np.unique(ends, return_inverse=True)
        largest = np.where(weight > 0, end[:, None], -1).max(axis=0)
        least = np.where(weight > 0, end[:, None], len(flows)).min(axis=0)
        found |= largest == least
    return found


def _slowness(values_Bps: Sequence[float | None]) -> NDArray[np.float64]:
    """Seconds per byte, 0 where unknown."""
    return np.array([0.0 if v is None else 1.0 / v for v in values_Bps])

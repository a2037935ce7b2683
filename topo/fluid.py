"""The fluid simulator: max-min fair shares, from event to event.

At any moment every flow gets the rate of max-min fair sharing: no flow can be
given more without taking from one that has no more.  Rates change when a flow
starts or finishes, and the times of both follow exactly.  Every resource r holds

::

    capacity, duplex:  sum over its flows of weight * rate / C_r       <= 1
    fatpipe:           weight * rate / C_r                             <= 1 for each flow
    time-shared:       kappa * sum over its flows of rate / solo rate  <= 1

A time-shared resource that is known to run messages *in order* of arrival
instead lets one flow move at a time; a flow holds all in-order resources on its
route until a fraction kappa of its bytes has passed, and then lets the next in
line begin.  A lone flow takes its solo time in either case.

How rates are kept up to date is told in :mod:`topocal.topo.filling_kernel`.

References
----------
D. Bertsekas, R. Gallager, Data Networks, 2nd ed. (1992), section 6.5.2: max-min
fair flow control and the progressive filling that finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo import fluid_kernel
from topocal.topo.capacities import SHARING_CODE, unknown_resource
from topocal.topo.errors import SimulationError
from topocal.topo.filling_kernel import CLASS, ENTRY, LINE, RESOURCE
from topocal.topo.flow import Pattern
from topocal.topo.loads import Batch, Loads, batch_of
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.capacities import Capacities
    from topocal.topo.flow import Flow
    from topocal.topo.topology import Topology

__all__ = ["Finishes", "FluidResult", "Segment", "simulate", "simulate_batch", "simulate_loads"]

_FLOWS_PER_CALL: Final = 1 << 16
"""Flows of patterns that are simulated in one go; between two goes progress is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of time in which a flow keeps its rate and its bottleneck.

    ``rate_Bps`` is 0 while the flow waits in line for an in-order resource,
    which then is the ``bottleneck`` (a resource id; ``None``: nothing limits it).
    """

    begin_s: float
    end_s: float
    rate_Bps: float
    bottleneck: str | None


@dataclass(frozen=True, eq=False)
class Finishes:
    """What :func:`simulate_batch` found.

    Attributes
    ----------
    seconds
        Shape (patterns,): finish of each pattern's last flow; ``inf`` where it never does.
    finish_s, begin_s, bottleneck
        Shape (flows,), as in :class:`FluidResult`.
    """

    seconds: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    begin_s: NDArray[np.float64]
    bottleneck: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class FluidResult:
    """When each flow of a pattern finishes, and why.

    Attributes
    ----------
    flows
        F of them, in the order they were given.
    resources
        Resource ids, which ``bottleneck`` refers to.
    finish_s
        Shape (F,): seconds from the pattern's start; alpha included.
    begin_s
        Shape (F,): when its first byte moves: at its start plus alpha, or later where
        it waits in line.
    bottleneck
        Shape (F,): column of the resource that limits the flow when it finishes, or
        that it waited for longer than it moved; -1 where nothing limits it.
    """

    flows: tuple[Flow, ...]
    resources: tuple[str, ...]
    finish_s: NDArray[np.float64]
    begin_s: NDArray[np.float64]
    bottleneck: NDArray[np.int32]
    _held: NDArray[np.int32]
    _alpha_s: float
    _loads: Loads
    _pair: NDArray[np.int64]
    _changes: Any

    @property
    def seconds(self) -> float:
        """When the last flow finishes."""
        return float(self.finish_s.max())

    def bottleneck_of(self, flow: int) -> str | None:
        """Id of the resource that limits a flow; ``None`` where nothing does."""
        return self._name(int(self.bottleneck[flow]))

    def _name(self, column: int) -> str | None:
        return None if column < 0 else self.resources[column]

    @cached_property
    def _changes_of_pair(self) -> list[NDArray[np.int64]]:
        """Numbers of the changes of each pair, in order of time.

        Raises
        ------
        SimulationError
            When the simulation kept no record.
        """
        if self._changes is None:
            raise SimulationError(
                "the rates of this simulation were not recorded",
                remedy="call simulate(…, record=True)",
            )
        order = np.argsort(self._changes["pair"], kind="stable")
        ends = np.searchsorted(self._changes["pair"][order], np.arange(len(self._loads.pairs) + 1))
        return [order[a:b] for a, b in pairwise(ends)]

    def segments(self, flow: int) -> list[Segment]:
        """Rates and bottlenecks of a flow from its start plus alpha to its finish.

        Raises
        ------
        SimulationError
            When the simulation kept no record.
        """
        rows = self._changes[self._changes_of_pair[self._pair[flow]]]
        begin, finish = float(self.begin_s[flow]), float(self.finish_s[flow])
        arrival = self.flows[flow].start_s + self._alpha_s
        found: list[Segment] = []
        if begin > arrival:
            held = self._name(int(self._held[flow]))
            found.append(Segment(begin_s=arrival, end_s=begin, rate_Bps=0.0, bottleneck=held))
        since = rows["time_s"]
        first = max(0, int(np.searchsorted(since, begin, side="right")) - 1)
        for k in range(first, len(rows)):
            start = max(begin, float(since[k]))
            end = min(finish, float(since[k + 1])) if k + 1 < len(rows) else finish
            rate, stop = float(rows["rate_Bps"][k]), self._name(int(rows["stop"][k]))
            if start >= finish:
                break
            if end <= start:
                continue
            if found and (found[-1].rate_Bps, found[-1].bottleneck) == (rate, stop):
                start = found.pop().begin_s
            found.append(Segment(begin_s=start, end_s=end, rate_Bps=rate, bottleneck=stop))
        return found

    def rates_Bps(self, time_s: float) -> NDArray[np.float64]:
        """Shape (F,): rate of each flow at an instant; that of what begins there counts.

        Raises
        ------
        SimulationError
            When the simulation kept no record.
        """
        rate = np.zeros(len(self._loads.pairs))
        for row, mine in enumerate(self._changes_of_pair):
            changes = self._changes[mine]
            last = int(np.searchsorted(changes["time_s"], time_s, side="right")) - 1
            if last >= 0:
                rate[row] = changes["rate_Bps"][last]
        moves = (self.begin_s <= time_s) & (time_s < self.finish_s)
        return np.where(moves, rate[self._pair], 0.0)

    def utilisation(self, resource: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How busy a resource is over time.

        Returns
        -------
        Times at which that changes, in seconds, and the part of the resource that is
        in use from each of them until the next: 0 to 1.

        Raises
        ------
        TopologyError
            When there is no such resource.
        SimulationError
            When the simulation kept no record.
        """
        if resource not in self.resources:
            raise unknown_resource(resource, self.resources)
        column, loads = self.resources.index(resource), self._loads
        capacities = loads.capacities
        changes = self._changes_of_pair
        entries = np.flatnonzero(loads.indices == column)
        pairs = np.searchsorted(loads.indptr, entries, side="right") - 1
        rows = [self._changes[changes[row]] for row in pairs]
        times = np.unique(np.concatenate([np.zeros(1), *(r["time_s"] for r in rows)]))
        used = np.zeros(len(times))
        alone = capacities.sharing[column] == SHARING_CODE[Sharing.FATPIPE]
        for mine, cost in zip(rows, loads.cost_s[entries] * capacities.kappa[column], strict=True):
            if len(mine) == 0:
                continue
            part = mine["rate_Bps"] * cost * (mine["flows"] > 0 if alone else mine["flows"])
            # Of the changes at one time the last holds; before the first there is nothing.
            last = np.searchsorted(mine["time_s"], times, side="right") - 1
            now = np.where(last >= 0, part[np.maximum(last, 0)], 0.0)
            used = np.maximum(used, now) if alone else used + now
        return times, used


def simulate(
    topology: Topology,
    flows: Sequence[Flow],
    capacities: Capacities,
    *,
    alpha_s: float = 0.0,
    record: bool = False,
) -> FluidResult:
    """Let flows run and tell when each finishes.

    Parameters
    ----------
    topology, capacities
        The machine; ``capacities`` must be of this topology.
    flows
        A flow of no bytes, or from an endpoint to itself, is over after alpha.
    alpha_s
        Seconds between a flow's start and its first byte.
    record
        Whether to keep all rates, for :meth:`FluidResult.segments`,
        :meth:`FluidResult.rates_Bps` and :meth:`FluidResult.utilisation`.

    Raises
    ------
    FlowError
        When there are no flows.
    UnknownEndpointError, NoRouteError
        When a flow cannot be carried on the topology.
    TopologyError
        When the capacity of a loaded resource is unknown.
    SimulationError
        When a capacity of zero keeps a flow from ever finishing.
    """
    lines, batch = batch_of(topology, [Pattern(flows=tuple(flows), name="the pattern")])
    return simulate_loads(flows, Loads.of(lines, capacities), batch, alpha_s=alpha_s, record=record)


def simulate_loads(
    flows: Sequence[Flow],
    loads: Loads,
    batch: Batch,
    *,
    alpha_s: float = 0.0,
    record: bool = False,
) -> FluidResult:
    """As :func:`simulate`, where the loads of the flows are known: ``batch`` is those flows.

    Raises
    ------
    SimulationError
        When a capacity of zero keeps a flow from ever finishing.
    """
    capacities = loads.capacities
    room = _Room(loads, batch, record=record)
    room.run(alpha_s)
    outcome, (row, column) = int(room.outcome[0]), room.culprit[0]
    if outcome == fluid_kernel.NEVER:
        raise SimulationError(
            f"{'->'.join(loads.pairs[row])} never finishes: {capacities.resources[column]} "
            "passes 0 B/s",
            remedy="give it a capacity above 0",
            about=loads.pairs[row],
        )
    if outcome == fluid_kernel.STUCK or not np.isfinite(room.finish_s).all():
        raise SimulationError(
            "the simulation makes no progress",
            remedy="bring sizes, starts and capacities closer together: "
            "they span more than a floating-point number holds",
        )
    return FluidResult(
        flows=tuple(flows),
        resources=capacities.resources,
        finish_s=room.finish_s,
        begin_s=room.begin_s,
        bottleneck=room.bottleneck,
        _held=room.held,
        _alpha_s=alpha_s,
        _loads=loads,
        _pair=batch.pair,
        _changes=room.changes if record else None,
    )


def simulate_batch(
    loads: Loads,
    batch: Batch,
    *,
    alpha_s: float = 0.0,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Finishes:
    """As :func:`simulate`, on arrays: for many patterns.

    A pattern with a capacity of zero on the way, or without progress, never
    finishes: its ``seconds`` are infinite.

    Parameters
    ----------
    threads
        How many at most; ``None``: all cores.  The result does not depend on it.
    progress
        Called with how many patterns have been done since the last call.
    """
    tell = progress or (lambda _: None)
    ends = batch.indptr
    steps = np.unique(ends[1:] // _FLOWS_PER_CALL, return_index=True)[1]
    bounds = [*steps.tolist(), batch.patterns]
    finish, begin = np.empty(len(batch.pair)), np.empty(len(batch.pair))
    bottleneck = np.empty(len(batch.pair), dtype=np.int32)
    seconds = np.empty(batch.patterns)

    def work(first: int, last: int) -> int:
        part = batch.part(first, last)
        room = _Room(loads, part)
        room.run(alpha_s)
        low, high = ends[first], ends[last]
        finish[low:high], begin[low:high] = room.finish_s, room.begin_s
        bottleneck[low:high] = room.bottleneck
        seconds[first:last] = np.maximum.reduceat(room.finish_s, part.indptr[:-1])
        seconds[first:last][room.outcome != fluid_kernel.FINISHED] = np.inf
        return last - first

    workers = min(len(bounds) - 1, threads or os.cpu_count() or 1)
    if workers == 1:
        for done in map(work, bounds[:-1], bounds[1:]):
            tell(done)
    else:
        with ThreadPoolExecutor(workers) as pool:
            for done in pool.map(work, bounds[:-1], bounds[1:]):
                tell(done)
    return Finishes(seconds, finish, begin, bottleneck)


class _Room:
    """Results of a batch, and what the compiled loop needs to work in."""

    def __init__(self, loads: Loads, batch: Batch, *, record: bool = False) -> None:
        self.loads, self.batch, self.record = loads, batch, record
        flows, pairs = len(batch.pair), len(loads.pairs)
        columns = len(loads.capacities.resources)
        self.finish_s, self.begin_s = np.empty(flows), np.empty(flows)
        self.bottleneck = np.empty(flows, dtype=np.int32)
        self.held = np.empty(flows, dtype=np.int32)
        self.outcome = np.empty(batch.patterns, dtype=np.int8)
        self.culprit = np.empty((batch.patterns, 2), dtype=np.int64)
        self.changes = np.empty(4 * flows if record else 0, dtype=fluid_kernel.CHANGE)
        self._class_of = np.full(pairs, -1, dtype=np.int64)
        self._resources = np.zeros(columns, dtype=RESOURCE)
        # Room for the largest pattern.
        most_flows = _largest(np.ones(flows, dtype=np.int64), batch)
        most_lines = _largest(np.diff(loads.indptr)[batch.pair], batch)
        engines = np.concatenate(([0], np.cumsum(loads.capacities.in_order[loads.indices])))
        most_targets = _largest(1 + np.diff(engines[loads.indptr])[batch.pair], batch)
        most_lines = min(most_lines, len(loads.indices))
        self._classes = np.zeros(min(most_flows, pairs), dtype=CLASS)
        self._lines = np.zeros(most_lines, dtype=LINE)
        self._entries = np.zeros(most_lines, dtype=ENTRY)
        self._targets = np.zeros(most_targets, dtype=fluid_kernel.TARGET)

    def run(self, alpha_s: float) -> None:
        """Simulate the batch."""
        loads, batch, capacities = self.loads, self.batch, self.loads.capacities
        changes, length = fluid_kernel.run(
            0,
            batch.patterns,
            batch.indptr,
            batch.pair,
            batch.size_bytes,
            batch.start_s + alpha_s,
            loads.indptr,
            loads.indices,
            loads.cost_s,
            capacities.sharing,
            capacities.kappa,
            capacities.in_order,
            self._class_of,
            self._resources,
            self._classes,
            self._lines,
            self._entries,
            self._targets,
            self.finish_s,
            self.begin_s,
            self.bottleneck,
            self.held,
            self.outcome,
            self.culprit,
            self.changes,
            self.record,
        )
        self.changes = changes[:length]


def _largest(values: NDArray[np.int64], batch: Batch) -> int:
    """The largest sum of ``values`` over the flows of a pattern."""
    total = np.concatenate(([0], np.cumsum(values)))[batch.indptr]
    return int(np.diff(total).max())

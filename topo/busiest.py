"""The closed form: a pattern finishes when its busiest resource does.

::

    T = alpha + max over resources r of u_r
    capacity, duplex:  u_r = sum over its flows of weight * bytes / C_r
    fatpipe:           u_r = max over its flows of weight * bytes / C_r
    time-shared:       u_r = kappa * sum over its flows of bytes / solo rate

For flows of equal size that start together this *is* the finish of max-min fair
sharing (:mod:`topocal.topo.fluid`): the busiest resource is the first to fill
up, its flows keep the rate they get there, and all others are no slower.
Otherwise no byte can pass sooner, so that it is a lower bound.  A resource whose
flows start late counts from the earliest of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.topo import busiest_kernel
from topocal.topo.loads import Batch, Loads, batch_of

if TYPE_CHECKING:
    from topocal.topo.capacities import Capacities
    from topocal.topo.flow import Pattern
    from topocal.topo.topology import Topology

__all__ = ["Busiest", "busiest", "busiest_of_batch"]

_PATTERNS_PER_THREAD: Final = 2048
"""Fewer are done before a second thread has started."""


@dataclass(frozen=True, eq=False)
class Busiest:
    """What every pattern takes, and why; one row per pattern, P of them.

    Attributes
    ----------
    resources
        Resource ids, R of them, which the columns below refer to.
    seconds
        Shape (P,): when the busiest resource has passed its bytes, from the start of
        the pattern; alpha included.
    bottleneck
        Shape (P,): column of the busiest resource, -1 when nothing is loaded.  Of
        equally busy ones the first.
    runner_up, runner_up_s
        Shape (P,): the next busiest resource (-1: none), and what the pattern would
        take if the bottleneck alone were removed.
    exact
        Shape (P,): whether ``seconds`` is the max-min fair finish (sizes equal, start
        common, at most one time-shared resource contended); otherwise a lower bound.
    utilisation_s
        Shape (P, R): busy seconds of every resource, u_r; empty where not asked for.
    """

    resources: tuple[str, ...]
    seconds: NDArray[np.float64]
    bottleneck: NDArray[np.int32]
    runner_up: NDArray[np.int32]
    runner_up_s: NDArray[np.float64]
    exact: NDArray[np.bool_]
    utilisation_s: csr_array

    def bottleneck_of(self, pattern: int) -> str | None:
        """Id of the busiest resource of a pattern, ``None`` when nothing is loaded."""
        column = int(self.bottleneck[pattern])
        return None if column < 0 else self.resources[column]


def busiest(
    topology: Topology,
    patterns: Sequence[Pattern],
    capacities: Capacities,
    *,
    alpha_s: float = 0.0,
) -> Busiest:
    """Seconds of each pattern by the closed form.

    Parameters
    ----------
    topology, capacities
        The machine; ``capacities`` must be of this topology.
    patterns
        Any number of them.
    alpha_s
        Seconds before the first byte moves.

    Raises
    ------
    FlowError
        When there are no patterns, or one has no flows.
    UnknownEndpointError, NoRouteError
        When a flow cannot be carried on the topology.
    TopologyError
        When the capacity of a loaded resource is unknown.
    """
    lines, batch = batch_of(topology, patterns)
    return busiest_of_batch(Loads.of(lines, capacities), batch, alpha_s=alpha_s)


def busiest_of_batch(
    loads: Loads,
    batch: Batch,
    *,
    alpha_s: float = 0.0,
    utilisation: bool = True,
    threads: int | None = None,
) -> Busiest:
    """As :func:`busiest`, on arrays: for many patterns.

    Parameters
    ----------
    utilisation
        Whether to keep the busy seconds of every resource.
    threads
        How many at most; ``None``: all cores.  The result does not depend on it.
    """
    P, capacities = batch.patterns, loads.capacities
    seconds, runner_up_s = np.empty(P), np.empty(P)
    bottleneck, runner_up = np.empty(P, dtype=np.int32), np.empty(P, dtype=np.int32)
    exact = np.empty(P, dtype=np.bool_)
    # Where each pattern's busy seconds could begin at the latest: after those of all before it.
    room = np.zeros(P + 1, dtype=np.int64)
    if utilisation:
        flow_loads = np.diff(loads.indptr)[batch.pair]
        room = np.concatenate(([0], np.cumsum(flow_loads)))[batch.indptr]
    busy_indptr = np.zeros(P + 1 if utilisation else 0, dtype=np.int64)
    columns = np.empty(int(room[-1]) if utilisation else 0, dtype=np.int32)
    busy_s = np.empty(len(columns))

    def work(first: int, last: int) -> None:
        # A part's rows stand from room[first] on; they are moved together below.
        part = np.full(P + 1 if utilisation else 0, room[first], dtype=np.int64)
        busiest_kernel.run(
            first,
            last,
            batch.indptr,
            batch.pair,
            batch.size_bytes,
            batch.start_s,
            loads.indptr,
            loads.indices,
            loads.cost_s,
            capacities.sharing,
            capacities.kappa,
            capacities.in_order,
            alpha_s,
            seconds,
            bottleneck,
            runner_up,
            runner_up_s,
            exact,
            part,
            columns,
            busy_s,
        )
        if utilisation:
            busy_indptr[first + 1 : last + 1] = np.diff(part[first : last + 1])

    parts = max(1, min(threads or os.cpu_count() or 1, P // _PATTERNS_PER_THREAD))
    bounds = np.linspace(0, P, parts + 1).astype(int).tolist()
    if parts == 1:
        work(0, P)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(work, bounds[:-1], bounds[1:]))
    if utilisation:
        lengths = busy_indptr[1:].copy()
        np.cumsum(busy_indptr, out=busy_indptr)
        keep = np.zeros(len(columns), dtype=bool)
        for first, last in pairwise(bounds):
            keep[room[first] : room[first] + lengths[first:last].sum()] = True
        columns, busy_s = columns[keep], busy_s[keep]
    else:
        busy_indptr = np.zeros(P + 1, dtype=np.int64)
    return Busiest(
        resources=capacities.resources,
        seconds=seconds,
        bottleneck=bottleneck,
        runner_up=runner_up,
        runner_up_s=runner_up_s,
        exact=exact,
        utilisation_s=csr_array(
            (busy_s, columns, busy_indptr), shape=(P, len(capacities.resources))
        ),
    )

"""Observations × resources: the numbers that the fit works on.

For observation s and resource r the law says ``seconds_s >= load_sr / C_r``, and equality
for the busiest.  In logs, with x_r = -log C_r, that is the max-plus linear system
``y_s = max_r (a_sr + x_r)``.  A time-shared resource adds the row
``log kappa + log sum_f bytes_f · exp(z_f)`` where z_f is the largest ``x_r`` (plus
the log weight) over the capacities that flow f crosses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.rows_kernel import chosen, engine_times, first_largest, largest, top_two
from topocal.solve.system_kernel import (
    CAPACITY,
    FATPIPE,
    TIME_SHARED,
    column_keys,
    count_loads,
    fill_loads,
    ranked,
)
from topocal.topo.errors import FlowError, Where
from topocal.topo.flow import Pattern
from topocal.topo.incidence import loads
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

__all__ = [
    "Observation",
    "Rows",
    "SharedRows",
    "build_rows",
    "first_busiest",
    "row_max",
    "two_largest",
]

TIE: Final = 1e-9
"""Relative difference below which two busy times are the same."""

_KIND: Final = {Sharing.TIME_SHARED: TIME_SHARED, Sharing.FATPIPE: FATPIPE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was observed of one pattern, once repeats and sizes are boiled down.

    Attributes
    ----------
    name
        The pattern's notation.
    pattern
        Its flows with their sizes.
    seconds
        Busy time of the pattern at those sizes, start-up time (alpha) taken off.
    sigma
        Standard error of its logarithm; NaN until the noise is known.
    where
        Where it comes from.
    """

    name: str
    pattern: Pattern
    seconds: float
    sigma: float = math.nan
    where: Where | None = None

    @property
    def throughput_Bps(self) -> float:
        """Bytes of all flows over the seconds."""
        return self.pattern.total_bytes / self.seconds


@dataclass(frozen=True)
class SharedRows:
    """Time-shared resources with two flows or more in an observation, K of them.

    Attributes
    ----------
    row, resource
        Shape (K,): row and column of ``Rows``.
    side
        Shape (K,): which overlap factor counts, 0 where a receiver's, 1 where a sender's.
    indptr
        Shape (K + 1,): the flows of row k are ``pair[indptr[k]:indptr[k + 1]]``.
    pair
        Row of ``Rows.pair_weight`` of each flow.
    log_bytes
        Log of the bytes of each flow, shape of ``pair``.
    """

    row: NDArray[np.int64]
    resource: NDArray[np.int64]
    side: NDArray[np.int64]
    indptr: NDArray[np.int64]
    pair: NDArray[np.int64]
    log_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def owner(self) -> NDArray[np.int64]:
        """Which of the K rows each flow belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def only(self, keep: NDArray[np.bool_]) -> SharedRows:
        """Some of the rows."""
        flows = keep[self.owner]
        counts = np.diff(self.indptr)[keep]
        return SharedRows(
            row=self.row[keep],
            resource=self.resource[keep],
            side=self.side[keep],
            indptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            pair=self.pair[flows],
            log_bytes=self.log_bytes[flows],
        )

    def busy(
        self, solo: NDArray[np.float64], log_kappa: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log busy seconds of each row, shape (K,), and each flow's share of them.

        ``solo`` is the log seconds per byte of each pair alone, ``log_kappa`` the log
        overlap factor of each side.  A row with a flow whose solo time is unknown (-inf)
        is -inf, its shares equal.
        """
        busy, share = np.empty(len(self)), np.empty(len(self.pair))
        engine_times(
            self.indptr, self.pair, self.log_bytes, self.side, solo, log_kappa, busy, share
        )
        return busy, share


@dataclass(frozen=True)
class Rows:
    """The system of a set of observations.

    Attributes
    ----------
    observations
        One per row, S of them.
    resources
        Resource id of each column, R of them.
    log_seconds, sigma
        Shape (S,).
    log_load
        Shape (S, R), sparse: log of the bytes that count on a capacity; explicit zeros
        are loads of one byte, absent entries are no load.
    pair_weight
        Shape (P, R), sparse: log weight of each distinct pair on its capacities.
    shared
        Time-shared rows.
    crowd
        Shape (R,): how many observations load each capacity.
    series
        Shape (R,): the capacity that stands for all that the same flows load everywhere,
        itself when there is no other.  Capacities in series cannot be told apart: only
        the slowest shows.

    In every row of the two matrices the columns stand in order of ``crowd``, then of
    number: of equally busy resources the first is the one that the fewest observations
    load, which says the most about this one.
    """

    observations: tuple[Observation, ...]
    resources: tuple[str, ...]
    log_seconds: NDArray[np.float64]
    sigma: NDArray[np.float64]
    log_load: csr_array
    pair_weight: csr_array
    shared: SharedRows
    crowd: NDArray[np.int64]
    series: NDArray[np.int64]

    def with_engines(self, wanted: NDArray[np.bool_]) -> Rows:
        """The same with the time-shared rows of the wanted resources only, shape (R,), and
        with no other pairs than theirs."""
        shared = self.shared.only(wanted[self.shared.resource])
        pairs, pair = np.unique(shared.pair, return_inverse=True)
        return replace(
            self,
            pair_weight=csr_array(self.pair_weight[pairs]),
            shared=replace(shared, pair=pair),
        )

    def some(self, keep: NDArray[np.bool_]) -> Rows:
        """Some of the observations, shape (S,); the order of columns stays as it is."""
        number = np.cumsum(keep) - 1
        shared = self.shared.only(keep[self.shared.row])
        return replace(
            self,
            observations=tuple(o for o, k in zip(self.observations, keep, strict=True) if k),
            log_seconds=self.log_seconds[keep],
            sigma=self.sigma[keep],
            log_load=csr_array(self.log_load[keep]),
            shared=replace(shared, row=number[shared.row]),
        )

    def only(self, columns: NDArray[np.bool_]) -> Rows:
        """The same without the loads on other capacities, shape (R,); columns keep their
        numbers."""
        return replace(
            self,
            log_load=_chosen(self.log_load, columns),
            pair_weight=_chosen(self.pair_weight, columns),
        )

    def highest(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``max_r (a_sr + x_r)`` over capacities, shape (S,); -inf where nothing is loaded."""
        return row_max(self.log_load, x)

    def solo(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log seconds per byte of each distinct pair alone, shape (P,)."""
        return row_max(self.pair_weight, x)


def row_max(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest ``entries + x`` over the stored entries of each row; -inf for an empty row."""
    return largest(*_plain(entries), x)


def two_largest(
    entries: csr_array, x: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """Of each row the largest ``entries + x``, the next largest, and the column of the former.

    -inf, and -1, where there is none.
    """
    rows = entries.shape[0]
    first, second = np.empty(rows), np.empty(rows)
    column = np.empty(rows, dtype=np.int32)
    top_two(*_plain(entries), x, first, second, column)
    return first, second, column


def first_busiest(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position in ``entries.indices`` of the first largest ``entries + x`` of each row.

    -1 for a row that is empty or has no finite entry.
    """
    return first_largest(*_plain(entries), x, TIE)


def _plain(entries: csr_array) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    """Row starts, columns and values."""
    return entries.indptr, entries.indices, entries.data


def _chosen(entries: csr_array, columns: NDArray[np.bool_]) -> csr_array:
    """The matrix with the stored entries of the other columns dropped, the rest in order."""
    size = int(np.count_nonzero(columns[entries.indices]))
    indptr = np.empty_like(entries.indptr)
    column, value = np.empty(size, dtype=entries.indices.dtype), np.empty(size)
    chosen(*_plain(entries), columns, indptr, column, value)
    return _as_given(value, column, indptr, entries.shape)


def build_rows(
    topology: Topology,
    observations: Sequence[Observation],
    rank_of: Mapping[str, int] | None = None,
) -> Rows:
    """The system of ``observations`` on all resources of a topology.

    Parameters
    ----------
    rank_of
        Of resources in series the one of lowest rank stands for all; 0 where not given.

    Raises
    ------
    UnknownEndpointError
        When an observation names an endpoint that the topology does not have.
    NoRouteError
        When nothing connects a pair.
    """
    sources = [f.source for o in observations for f in o.pattern.flows]
    destinations = [f.destination for o in observations for f in o.pattern.flows]
    size = np.array([f.size_bytes for o in observations for f in o.pattern.flows])
    flow_ptr = np.zeros(len(observations) + 1, dtype=np.int64)
    np.cumsum([len(o.pattern.flows) for o in observations], out=flow_ptr[1:])
    pairs, pair = _pairs(topology, sources, destinations)
    weights = loads(topology, *pairs)
    table = list(topology.resources.values())
    kind = np.array([_KIND.get(r.sharing, CAPACITY) for r in table], dtype=np.int8)
    flows = (flow_ptr, pair, size, *_plain(weights), kind)
    shape = (len(observations), len(table))
    counts = np.zeros((3, len(observations)), dtype=np.int64)
    crowd = np.zeros(len(table), dtype=np.int64)
    count_loads(*flows, counts[0], counts[1], counts[2], crowd)
    of_rank = np.lexsort((np.arange(len(crowd)), crowd)).astype(np.int32)
    rank = np.empty_like(of_rank)
    rank[of_rank] = np.arange(len(of_rank), dtype=np.int32)
    entries, engines, engine_flows = counts.sum(axis=1).tolist()
    column, load = np.empty(entries, dtype=np.int32), np.empty(entries)
    row, resource, length = (np.empty(engines, dtype=np.int64) for _ in range(3))
    flow = np.empty(engine_flows, dtype=np.int64)
    fill_loads(*flows, rank, of_rank, column, load, row, resource, length, flow)
    starts = {use.resource for use in topology.uses if use.destinations is None}
    side = np.array([int(r.id in starts) for r in table])
    pair_weight = _by_rank(weights, kind, rank, of_rank)
    return Rows(
        observations=tuple(observations),
        resources=tuple(topology.resources),
        log_seconds=np.log([o.seconds for o in observations]),
        sigma=np.array([o.sigma for o in observations]),
        log_load=_as_given(np.log(load, out=load), column, _ends(counts[0]), shape),
        pair_weight=pair_weight,
        shared=SharedRows(
            row=row,
            resource=resource,
            side=side[resource],
            indptr=_ends(length),
            pair=pair[flow].astype(np.int64),
            log_bytes=np.log(size[flow]),
        ),
        crowd=crowd,
        series=_series(
            pair_weight,
            kind == FATPIPE,
            np.array([(rank_of or {}).get(r.id, 0) for r in table]),
        ),
    )


def _pairs(
    topology: Topology, sources: Sequence[str], destinations: Sequence[str]
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int32]]:
    """Distinct pairs in order of their names, as node numbers; and which of them each flow is."""
    names = sorted({*sources, *destinations})
    topology.require_endpoints(names)
    if not names:
        raise FlowError("no flows", remedy="give at least one source and destination")
    place = {name: k for k, name in enumerate(names)}
    start = np.fromiter(map(place.__getitem__, sources), dtype=np.int64, count=len(sources))
    end = np.fromiter(map(place.__getitem__, destinations), dtype=np.int64, count=len(sources))
    distinct, pair = np.unique(start * len(names) + end, return_inverse=True)
    node = np.array([topology.router.number[name] for name in names], dtype=np.int64)
    return (node[distinct // len(names)], node[distinct % len(names)]), pair.astype(np.int32)


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of so many begins, and where the last ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def _as_given(
    value: NDArray[np.float64],
    column: NDArray[np.int32],
    indptr: NDArray[np.int64] | NDArray[np.int32],
    shape: tuple[int, int],
) -> csr_array:
    """A matrix whose rows keep the order of their columns."""
    narrow = indptr[-1] <= np.iinfo(np.int32).max
    matrix = csr_array((value, column, indptr.astype(np.int32) if narrow else indptr), shape=shape)
    matrix.has_sorted_indices = False
    return matrix


def _by_rank(
    weights: csr_array,
    kind: NDArray[np.int8],
    rank: NDArray[np.int32],
    of_rank: NDArray[np.int32],
) -> csr_array:
    """Log weights on all but time-shared columns, in every row by rank."""
    size = int((kind != TIME_SHARED)[weights.indices].sum())
    indptr = np.empty_like(weights.indptr)
    column, value = np.empty(size, dtype=np.int32), np.empty(size)
    ranked(*_plain(weights), kind, rank, of_rank, indptr, column, value)
    return _as_given(np.log(value, out=value), column, indptr, weights.shape)


def _series(
    pair_weight: csr_array, is_fatpipe: NDArray[np.bool_], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each column the one of lowest rank, then number, with the same weights on the same
    pairs.

    Columns are compared by two random projections; equal columns agree to the last bit,
    since they are summed in the same order.
    """
    rows, n = pair_weight.shape
    key = np.random.default_rng(0).standard_normal((2, rows))
    counts, sums = np.zeros(n, dtype=np.int64), np.zeros((2, n))
    column_keys(*_plain(pair_weight), key, counts, sums)
    order = np.lexsort((np.arange(n), rank))
    table = np.stack([is_fatpipe.astype(float), counts.astype(float), *sums], axis=1)[order]
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    found = np.empty(n, dtype=np.int64)
    found[order] = order[first[group.ravel()]]
    return np.where(counts > 0, found, np.arange(n))

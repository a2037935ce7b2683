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
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.solve.rows_kernel import engine_times, first_largest, largest
from topocal.topo.errors import Where
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

__all__ = ["Observation", "Rows", "SharedRows", "build_rows", "first_busiest", "row_max"]

TIE: Final = 1e-9
"""Relative difference below which two busy times are the same."""


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
        """The same with the time-shared rows of the wanted resources only, shape (R,)."""
        return replace(self, shared=self.shared.only(wanted[self.shared.resource]))

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

    def highest(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``max_r (a_sr + x_r)`` over capacities, shape (S,); -inf where nothing is loaded."""
        return row_max(self.log_load, x)

    def solo(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log seconds per byte of each distinct pair alone, shape (P,)."""
        return row_max(self.pair_weight, x)


def row_max(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest ``entries + x`` over the stored entries of each row; -inf for an empty row."""
    return largest(*_plain(entries), x)


def first_busiest(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position in ``entries.indices`` of the first largest ``entries + x`` of each row.

    -1 for a row that is empty or has no finite entry.
    """
    return first_largest(*_plain(entries), x, TIE)


def _wide(matrix: csr_array) -> csr_array:
    """The same matrix with 64-bit indices, as the compiled loops take them without a copy."""
    matrix.indptr = matrix.indptr.astype(np.int64)
    matrix.indices = matrix.indices.astype(np.int64)
    return matrix


def _plain(entries: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Row starts, columns and values of one type each, so that one machine code serves all."""
    return (
        np.asarray(entries.indptr, dtype=np.int64),
        np.asarray(entries.indices, dtype=np.int64),
        np.asarray(entries.data, dtype=np.float64),
    )


def build_rows(
    topology: Topology,
    observations: Sequence[Observation],
    rank: Mapping[str, int] | None = None,
) -> Rows:
    """The system of ``observations`` on all resources of a topology.

    Parameters
    ----------
    rank
        Of resources in series the one of lowest rank stands for all; 0 where not given.

    Raises
    ------
    UnknownEndpointError
        When an observation names an endpoint that the topology does not have.
    NoRouteError
        When nothing connects a pair.
    """
    flows = [
        (s, f.source, f.destination, f.size_bytes)
        for s, o in enumerate(observations)
        for f in o.pattern.flows
    ]
    pairs = sorted({(source, destination) for _, source, destination, _ in flows})
    number = {pair: k for k, pair in enumerate(pairs)}
    weights = incidence(topology, pairs)
    table = list(topology.resources.values())
    is_shared = np.array([r.sharing is Sharing.TIME_SHARED for r in table])
    is_fatpipe = np.array([r.sharing is Sharing.FATPIPE for r in table])
    starts = {use.resource for use in topology.uses if use.destinations is None}
    side = np.array([int(r.id in starts) for r in table])

    row = np.array([s for s, _, _, _ in flows], dtype=np.int64)
    column = np.array([number[a, b] for _, a, b, _ in flows], dtype=np.int64)
    size = np.array([size for _, _, _, size in flows])
    of_flow = weights.matrix[column].tocoo()
    flow_row, resource = (axis.astype(np.int64) for axis in of_flow.coords)
    bytes_there = of_flow.data * size[flow_row]
    shape = (len(observations), len(table))
    loads = _loads(row[flow_row], resource, bytes_there, is_fatpipe, shape)
    loads = _only(loads, ~is_shared)
    loads.data = np.log(loads.data)
    crowd = np.bincount(loads.indices, minlength=len(table))
    pair_weight = _only(weights.matrix, ~is_shared)
    pair_weight.data = np.log(pair_weight.data)
    return Rows(
        observations=tuple(observations),
        resources=weights.resources,
        log_seconds=np.log([o.seconds for o in observations]),
        sigma=np.array([o.sigma for o in observations]),
        log_load=_wide(_by_crowd(loads, crowd)),
        pair_weight=_wide(_by_crowd(pair_weight, crowd)),
        shared=_shared(is_shared, side, row, column, size, flow_row, resource),
        crowd=crowd,
        series=_series(
            pair_weight, is_fatpipe, np.array([(rank or {}).get(r.id, 0) for r in table])
        ),
    )


def _series(
    pair_weight: csr_array, is_fatpipe: NDArray[np.bool_], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each column the one of lowest rank, then number, with the same weights on the same
    pairs.

    Columns are compared by two random projections; equal columns agree to the last bit,
    since they are summed in the same order.
    """
    columns = pair_weight.tocsc()
    columns.sort_indices()
    n = columns.shape[1]
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(n), np.diff(columns.indptr))
    keys = [is_fatpipe.astype(float), np.diff(columns.indptr).astype(float)]
    for _ in range(2):
        value = (2.0 + columns.data) * rng.standard_normal(columns.shape[0])[columns.indices]
        keys.append(np.bincount(owner, weights=value, minlength=n))
    order = np.lexsort((np.arange(n), rank))
    table = np.stack(keys, axis=1)[order]
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    found = np.empty(n, dtype=np.int64)
    found[order] = order[first[group.ravel()]]
    return np.where(np.diff(columns.indptr) > 0, found, np.arange(n))


def _shared(
    is_shared: NDArray[np.bool_],
    side: NDArray[np.int64],
    row: NDArray[np.int64],
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    flow: NDArray[np.int64],
    resource: NDArray[np.int64],
) -> SharedRows:
    """Group the flows at time-shared resources by (observation, resource); lone ones drop out."""
    here = is_shared[resource] & (size[flow] > 0)
    flow, resource = flow[here], resource[here]
    owner = row[flow]
    order = np.lexsort((flow, resource, owner))
    flow, resource, owner = flow[order], resource[order], owner[order]
    new = np.ones(len(flow), dtype=bool)
    new[1:] = (np.diff(owner) != 0) | (np.diff(resource) != 0)
    group = np.cumsum(new) - 1
    counts = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    keep = counts[group] > 1 if len(group) else np.zeros(0, dtype=bool)
    first = new & keep
    return SharedRows(
        row=owner[first],
        resource=resource[first],
        side=side[resource[first]],
        indptr=np.concatenate(([0], np.cumsum(counts[counts > 1]))).astype(np.int64),
        pair=pair[flow[keep]],
        log_bytes=np.log(size[flow[keep]]),
    )


def _by_crowd(matrix: csr_array, crowd: NDArray[np.int64]) -> csr_array:
    """The same matrix with the columns of every row in order of (crowd, number)."""
    order = np.lexsort((np.arange(len(crowd)), crowd))
    rank = np.empty(len(crowd), dtype=matrix.indices.dtype)
    rank[order] = np.arange(len(crowd))
    ranked = csr_array((matrix.data, rank[matrix.indices], matrix.indptr), shape=matrix.shape)
    ranked.sort_indices()
    # The columns get their numbers back; scipy must not sort them again.
    ranked.indices = order[ranked.indices].astype(matrix.indices.dtype)
    ranked.has_sorted_indices = False
    return ranked


def _loads(
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    value: NDArray[np.float64],
    is_fatpipe: NDArray[np.bool_],
    shape: tuple[int, int],
) -> csr_array:
    """Summed over flows; on a fatpipe the largest single flow counts."""
    summed = coo_array((value, (row, column)), shape=shape).tocsr()
    alone = is_fatpipe[column]
    if not alone.any():
        return summed
    key = row[alone].astype(np.int64) * shape[1] + column[alone]
    order = np.lexsort((value[alone], key))
    last = np.append(np.diff(key[order]) > 0, True)
    keys, values = key[order][last], value[alone][order][last]
    fat = coo_array((values, (keys // shape[1], keys % shape[1])), shape=shape).tocsr()
    return csr_array(_only(summed, ~is_fatpipe) + fat)


def _only(matrix: csr_array, columns: NDArray[np.bool_]) -> csr_array:
    """The matrix with the stored entries of the other columns dropped."""
    entries = matrix.tocoo()
    keep = columns[entries.coords[1]] & (entries.data > 0)
    chosen = (entries.data[keep], (entries.coords[0][keep], entries.coords[1][keep]))
    return coo_array(chosen, shape=matrix.shape).tocsr()

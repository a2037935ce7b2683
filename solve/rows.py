"""Samples × resources: the numbers that the fit works on.

For sample s and resource r the law says ``seconds_s >= load_sr / C_r``, and equality
for the busiest.  In logs, with x_r = -log C_r, that is the max-plus linear system
``y_s = max_r (a_sr + x_r)``.  A time-shared resource adds the row
``log kappa + log sum_f bytes_f · exp(z_f)`` where z_f is the largest ``x_r`` (plus
the log weight) over the capacities that flow f crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.measure.samples import Sample
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

__all__ = ["Rows", "SharedRows", "build_rows", "first_busiest", "row_max"]

TIE: Final = 1e-9
"""Relative difference below which two busy times are the same."""


@dataclass(frozen=True)
class SharedRows:
    """Time-shared resources with two flows or more in a sample, K of them.

    Attributes
    ----------
    sample, resource
        Shape (K,): row and column of ``Rows``.
    indptr
        Shape (K + 1,): the flows of row k are ``pair[indptr[k]:indptr[k + 1]]``.
    pair
        Row of ``Rows.pair_weight`` of each flow.
    log_bytes
        Log of the bytes of each flow, shape of ``pair``.
    """

    sample: NDArray[np.int64]
    resource: NDArray[np.int64]
    indptr: NDArray[np.int64]
    pair: NDArray[np.int64]
    log_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def row(self) -> NDArray[np.int64]:
        """Which of the K rows each flow belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def busy(
        self, solo: NDArray[np.float64], log_kappa: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log busy seconds of each row, shape (K,), and each flow's share of them.

        ``solo`` is the log seconds per byte of each pair alone.  A row with a flow whose
        solo time is unknown (-inf) is -inf, its shares equal.
        """
        if not len(self):
            return np.zeros(0), np.zeros(0)
        terms = self.log_bytes + solo[self.pair]
        begin, row = self.indptr[:-1], self.row
        known = np.minimum.reduceat(terms, begin) > -np.inf
        terms = np.where(known[row], terms, 0.0)
        top = np.maximum.reduceat(terms, begin)
        parts = np.exp(terms - top[row])
        total = np.add.reduceat(parts, begin)
        return np.where(known, log_kappa + top + np.log(total), -np.inf), parts / total[row]


@dataclass(frozen=True)
class Rows:
    """The system of a set of samples.

    Attributes
    ----------
    samples
        One per row, S of them.
    resources
        Resource id of each column, R of them.
    log_seconds
        Shape (S,).
    log_load
        Shape (S, R), sparse: log of the bytes that count on a capacity; explicit zeros
        are loads of one byte, absent entries are no load.
    pair_weight
        Shape (P, R), sparse: log weight of each distinct pair on its capacities.
    shared
        Time-shared rows.
    crowd
        Shape (R,): how many samples load each capacity.

    In every row of the two matrices the columns stand in order of ``crowd``, then of
    number: of equally busy resources the first is the one that the fewest samples load,
    which says the most about this one.
    """

    samples: tuple[Sample, ...]
    resources: tuple[str, ...]
    log_seconds: NDArray[np.float64]
    log_load: csr_array
    pair_weight: csr_array
    shared: SharedRows
    crowd: NDArray[np.int64]

    def highest(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """``max_r (a_sr + x_r)`` over capacities, shape (S,); -inf where nothing is loaded."""
        return row_max(self.log_load, x)

    def solo(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log seconds per byte of each distinct pair alone, shape (P,)."""
        return row_max(self.pair_weight, x)


def row_max(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest ``entries + x`` over the stored entries of each row; -inf for an empty row."""
    values = entries.data + x[entries.indices]
    result = np.full(entries.shape[0], -np.inf)
    filled = np.diff(entries.indptr) > 0
    if len(values):
        result[filled] = np.maximum.reduceat(values, entries.indptr[:-1][filled])
    return result


def first_busiest(entries: csr_array, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position in ``entries.indices`` of the first largest ``entries + x`` of each row.

    -1 for a row that is empty or has no finite entry.
    """
    highest = row_max(entries, x)
    row = np.repeat(np.arange(entries.shape[0]), np.diff(entries.indptr))
    at_top = entries.data + x[entries.indices] >= highest[row] - TIE
    at_top &= np.isfinite(highest[row])
    position = np.flatnonzero(at_top)
    rows, first = np.unique(row[position], return_index=True)
    found = np.full(entries.shape[0], -1, dtype=np.int64)
    found[rows] = position[first]
    return found


def build_rows(topology: Topology, samples: Sequence[Sample]) -> Rows:
    """The system of ``samples`` on all resources of a topology.

    Raises
    ------
    UnknownEndpointError
        When a sample names an endpoint that the topology does not have.
    NoRouteError
        When nothing connects a pair.
    """
    pairs = sorted({pair for s in samples for pair in s.pattern.pairs})
    number = {pair: k for k, pair in enumerate(pairs)}
    weights = incidence(topology, pairs)
    table = list(topology.resources.values())
    is_shared = np.array([r.sharing is Sharing.TIME_SHARED for r in table])
    is_fatpipe = np.array([r.sharing is Sharing.FATPIPE for r in table])

    row = np.repeat(np.arange(len(samples)), [len(s.pattern.flows) for s in samples])
    column = np.array([number[p] for s in samples for p in s.pattern.pairs], dtype=np.int64)
    size = np.array([f.size_bytes for s in samples for f in s.pattern.flows])
    of_flow = weights.matrix[column].tocoo()
    flow_row, resource = (axis.astype(np.int64) for axis in of_flow.coords)
    bytes_there = of_flow.data * size[flow_row]
    loads = _loads(row[flow_row], resource, bytes_there, is_fatpipe, (len(samples), len(table)))
    loads = _only(loads, ~is_shared)
    loads.data = np.log(loads.data)

    crowd = np.bincount(loads.indices, minlength=len(table))
    pair_weight = _only(weights.matrix, ~is_shared)
    pair_weight.data = np.log(pair_weight.data)
    return Rows(
        samples=tuple(samples),
        resources=weights.resources,
        log_seconds=np.log([s.seconds for s in samples]),
        log_load=_by_crowd(loads, crowd),
        pair_weight=_by_crowd(pair_weight, crowd),
        shared=_shared(is_shared, row, column, size, flow_row, resource),
        crowd=crowd,
    )


def _shared(
    is_shared: NDArray[np.bool_],
    row: NDArray[np.int64],
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    flow: NDArray[np.int64],
    resource: NDArray[np.int64],
) -> SharedRows:
    """Group the flows at time-shared resources by (sample, resource); lone ones drop out."""
    here = is_shared[resource] & (size[flow] > 0)
    flow, resource = flow[here], resource[here]
    sample = row[flow]
    order = np.lexsort((flow, resource, sample))
    flow, resource, sample = flow[order], resource[order], sample[order]
    new = np.ones(len(flow), dtype=bool)
    new[1:] = (np.diff(sample) != 0) | (np.diff(resource) != 0)
    group = np.cumsum(new) - 1
    counts = np.bincount(group) if len(group) else np.zeros(0, dtype=np.int64)
    keep = counts[group] > 1 if len(group) else np.zeros(0, dtype=bool)
    first = new & keep
    return SharedRows(
        sample=sample[first],
        resource=resource[first],
        indptr=np.concatenate(([0], np.cumsum(counts[counts > 1]))).astype(np.int64),
        pair=pair[flow[keep]],
        log_bytes=np.log(size[flow[keep]]),
    )


def _by_crowd(matrix: csr_array, crowd: NDArray[np.int64]) -> csr_array:
    """The same matrix with the columns of every row in order of (crowd, number)."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, crowd[matrix.indices], row))
    return csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), shape=matrix.shape)


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

"""Loads of every observation on every resource, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined, passes

__all__ = [
    "CAPACITY",
    "FATPIPE",
    "TIME_SHARED",
    "column_keys",
    "count_loads",
    "fill_loads",
    "ranked",
]

_B = NDArray[np.bool_]
_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]
_I8 = NDArray[np.int8]

CAPACITY, FATPIPE, TIME_SHARED = 0, 1, 2
"""What ``kind`` of a column means below; a duplex is a capacity."""


@inlined
def _sort(values: _I32, count: int) -> None:
    """Sort the first ``count``; most often they are few."""
    if count > 64:
        values[:count].sort()
        return
    for k in range(1, count):
        value, at = values[k], k
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@inlined
def _gather(
    s: int,
    flow_ptr: _I,
    pair: _I32,
    size: _F,
    pair_ptr: _I32,
    pair_column: _I32,
    pair_weight: _F,
    kind: _I8,
    total: _F,
    flows: _I32,
    touched: _I32,
) -> int:
    """Bytes of one observation on each column, and its flows there; how many are touched."""
    count = 0
    for f in range(flow_ptr[s], flow_ptr[s + 1]):
        if not size[f] > 0:
            continue
        for e in range(pair_ptr[pair[f]], pair_ptr[pair[f] + 1]):
            column = pair_column[e]
            if flows[column] == 0:
                touched[count] = column
                count += 1
                total[column] = 0.0
            flows[column] += 1
            load = pair_weight[e] * size[f]
            if kind[column] == FATPIPE:
                total[column] = max(total[column], load)
            else:
                total[column] += load
    return count


@compiled_when_long(passes(2))
def count_loads(
    flow_ptr: _I,
    pair: _I32,
    size: _F,
    pair_ptr: _I32,
    pair_column: _I32,
    pair_weight: _F,
    kind: _I8,
    counts: _I,
    engine_counts: _I,
    flow_counts: _I,
    crowd: _I,
) -> None:
    """Of every observation: its capacities, its engines with two flows or more, and the flows
    of those; of every capacity: its observations."""
    columns = len(kind)
    total, flows = np.empty(columns), np.zeros(columns, dtype=np.int32)
    touched = np.empty(columns, dtype=np.int32)
    for s in range(len(counts)):
        n = _gather(
            s, flow_ptr, pair, size, pair_ptr, pair_column, pair_weight, kind, total, flows, touched
        )
        for k in range(n):
            column = touched[k]
            if kind[column] != TIME_SHARED:
                if total[column] > 0:
                    counts[s] += 1
                    crowd[column] += 1
            elif flows[column] > 1:
                engine_counts[s] += 1
                flow_counts[s] += flows[column]
            flows[column] = 0


@compiled_when_long(passes(3))
def fill_loads(
    flow_ptr: _I,
    pair: _I32,
    size: _F,
    pair_ptr: _I32,
    pair_column: _I32,
    pair_weight: _F,
    kind: _I8,
    rank: _I32,
    of_rank: _I32,
    indices: _I32,
    data: _F,
    engine_row: _I,
    engine_column: _I,
    engine_flows: _I,
    engine_flow: _I,
) -> None:
    """Capacities of every observation by rank, with their bytes; its engines by number, each
    with its flows in order.  Nothing may be left to write that :func:`count_loads` did not count.
    """
    columns = len(kind)
    total, flows = np.empty(columns), np.zeros(columns, dtype=np.int32)
    touched, ranks = np.empty(columns, dtype=np.int32), np.empty(columns, dtype=np.int32)
    serial = np.empty(columns, dtype=np.int32)
    place = np.empty(columns, dtype=np.int64)
    at, engine, flow_at = 0, 0, 0
    for s in range(len(flow_ptr) - 1):
        n = _gather(
            s, flow_ptr, pair, size, pair_ptr, pair_column, pair_weight, kind, total, flows, touched
        )
        capacities, engines = 0, 0
        for k in range(n):
            column = touched[k]
            if kind[column] != TIME_SHARED:
                if total[column] > 0:
                    ranks[capacities] = rank[column]
                    capacities += 1
            elif flows[column] > 1:
                serial[engines] = column
                engines += 1
        _sort(ranks, capacities)
        for k in range(capacities):
            column = of_rank[ranks[k]]
            indices[at], data[at] = column, total[column]
            at += 1
        _sort(serial, engines)
        for k in range(engines):
            column = serial[k]
            engine_row[engine], engine_column[engine] = s, column
            engine_flows[engine] = flows[column]
            place[column] = flow_at
            flow_at += flows[column]
            engine += 1
        last = flow_ptr[s + 1] if engines else flow_ptr[s]
        for f in range(flow_ptr[s], last):
            if not size[f] > 0:
                continue
            for e in range(pair_ptr[pair[f]], pair_ptr[pair[f] + 1]):
                column = pair_column[e]
                if kind[column] == TIME_SHARED and flows[column] > 1:
                    engine_flow[place[column]] = f
                    place[column] += 1
        for k in range(n):
            flows[touched[k]] = 0


@compiled_when_long(passes(2))
def ranked(
    indptr: _I32,
    column: _I32,
    value: _F,
    kind: _I8,
    rank: _I32,
    of_rank: _I32,
    new_indptr: _I32,
    new_column: _I32,
    new_value: _F,
) -> None:
    """Every row without its time-shared columns, the others by rank."""
    there, ranks = np.empty(len(rank)), np.empty(len(rank), dtype=np.int32)
    at = 0
    for row in range(len(indptr) - 1):
        new_indptr[row] = at
        count = 0
        for e in range(indptr[row], indptr[row + 1]):
            if kind[column[e]] != TIME_SHARED:
                ranks[count] = rank[column[e]]
                there[ranks[count]] = value[e]
                count += 1
        _sort(ranks, count)
        for k in range(count):
            new_column[at], new_value[at] = of_rank[ranks[k]], there[ranks[k]]
            at += 1
    new_indptr[len(indptr) - 1] = at


@compiled_when_long(passes(3))
def column_keys(indptr: _I32, column: _I32, value: _F, key: _F, counts: _I, sums: _F) -> None:
    """Of every column: its entries, and their sum of (2 + value) times the row's key, in order
    of row."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            counts[column[e]] += 1
            for k in range(len(sums)):
                sums[k, column[e]] += (2.0 + value[e]) * key[k, row]

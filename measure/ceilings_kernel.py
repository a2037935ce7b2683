"""The compiled loops of :mod:`topocal.measure.ceilings`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long

__all__ = ["dominators", "feeders"]

# The codes of topocal.topo.capacities.SHARING_CODE (a test compares them).
_CAPACITY = 0
_TIME_SHARED = 2
_FATPIPE = 3


def _steps_of_dominators(
    column_indptr: NDArray[np.int64],
    column_rows: NDArray[np.int32],
    indptr: NDArray[np.int64],
    *_: object,
) -> int:
    return int(3 * np.diff(indptr)[column_rows].sum())


@compiled_when_long(_steps_of_dominators)
def dominators(
    column_indptr: NDArray[np.int64],
    column_rows: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    by: NDArray[np.int32],
    ceiling: NDArray[np.float64],
) -> None:
    """Per class: the one that all its pairs cross as well, and how far it can be ahead of it.

    Whatever runs, class r is at most ``ceiling[r]`` times as busy as class ``by[r]``;
    -1 and infinity where no one class bounds it.
    """
    K = len(law)
    crossed = np.zeros(K, np.int32)
    worst = np.zeros(K)
    for r in range(K):
        low, high = column_indptr[r], column_indptr[r + 1]
        by[r], ceiling[r] = -1, np.inf
        for i in range(low, high):
            p = column_rows[i]
            mine = 0.0
            for k in range(indptr[p], indptr[p + 1]):
                if indices[k] == r:
                    mine = cost[k]
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                crossed[s] += 1
                worst[s] = max(worst[s], mine / cost[k] if cost[k] > 0.0 else np.inf)
        for i in range(low, high):
            p = column_rows[i]
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                if crossed[s] == high - low and s != r and law[s] != _TIME_SHARED:
                    # A limit on each flow bounds no sum of flows.
                    bounds = law[s] != _FATPIPE or law[r] == _FATPIPE or high - low == 1
                    if bounds and (worst[s] < ceiling[r] or (worst[s] == ceiling[r] and s < by[r])):
                        by[r], ceiling[r] = s, worst[s]
                crossed[s] = 0
                worst[s] = 0.0


def _steps_of_feeders(
    target: int,
    rows: NDArray[np.int32],
    ends: NDArray[np.int32],
    indptr: NDArray[np.int64],
    *_: object,
) -> int:
    return int(3 * np.diff(indptr)[rows].sum())


@compiled_when_long(_steps_of_feeders)
def feeders(
    target: int,
    rows: NDArray[np.int32],
    ends: NDArray[np.int32],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    cost: NDArray[np.float64],
    law: NDArray[np.int8],
    share: NDArray[np.float64],
) -> bool:
    """Per end of the pairs ``rows``, sorted by it: the class that bounds its flows best.

    Fills ``share`` of each class so chosen with how far the target can be ahead of it;
    false where the flows of some end have no class in common.
    """
    K = len(law)
    crossed = np.zeros(K, np.int32)
    worst = np.zeros(K)
    low = 0
    while low < len(rows):
        high = low
        while high < len(rows) and ends[high] == ends[low]:
            p = rows[high]
            mine = 0.0
            for k in range(indptr[p], indptr[p + 1]):
                if indices[k] == target:
                    mine = cost[k]
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                crossed[s] += 1
                worst[s] = max(worst[s], mine / cost[k] if cost[k] > 0.0 else np.inf)
            high += 1
        best, least = -1, np.inf
        for i in range(low, high):
            p = rows[i]
            for k in range(indptr[p], indptr[p + 1]):
                s = indices[k]
                bounds = crossed[s] == high - low and s != target and law[s] == _CAPACITY
                if bounds and (worst[s] < least or (worst[s] == least and s < best)):
                    best, least = s, worst[s]
                crossed[s] = 0
                worst[s] = 0.0
        if best < 0:
            return False
        share[best] = max(share[best], least)
        low = high
    return True

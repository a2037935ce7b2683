"""Which nodes are joined, and what the cheapest ways between them cost.

Small graphs are gone through as whole arrays: to load scipy's graph routines takes longer than
that.  Costs are whole numbers, so that both give the same to the last bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["cheapest_costs", "components"]

Ints = NDArray[np.int64]

_SMALL: Final = 1 << 17
"""Sources times links: about a millisecond for each link of the longest way."""


def components(nodes: int, tail: Ints, head: Ints) -> Ints:
    """Number of the part that each node is in, parts in the order of their first nodes.

    Parameters
    ----------
    nodes
        How many there are.
    tail, head
        Ends of each link, whose direction does not matter.
    """
    least = np.arange(nodes)
    while True:
        one, other = least[tail], least[head]
        lower = np.minimum(one, other)
        joined = least.copy()
        np.minimum.at(joined, one, lower)
        np.minimum.at(joined, other, lower)
        while not np.array_equal(joined, further := joined[joined]):
            joined = further
        if np.array_equal(joined, least):
            return np.unique(least, return_inverse=True)[1].astype(np.int64)
        least = joined


def cheapest_costs(
    nodes: int, sources: Ints, tail: Ints, head: Ints, cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What the cheapest way from each source to each node costs; infinite where there is none.

    Parameters
    ----------
    tail, head, cost
        The links, at most one from a node to another; costs are whole numbers above zero.

    Returns
    -------
    Shape (sources, nodes).
    """
    if len(sources) * len(tail) > _SMALL:
        return _by_dijkstra(nodes, sources, tail, head, cost)
    return _by_rounds(nodes, sources, tail, head, cost)


def _by_rounds(
    nodes: int, sources: Ints, tail: Ints, head: Ints, cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bellman and Ford: all links in every round, until nothing gets cheaper."""
    found = np.full((len(sources), nodes), np.inf)
    found[np.arange(len(sources)), sources] = 0.0
    if not len(tail):
        return found
    order = np.argsort(head, kind="stable")
    tail, cost = tail[order], cost[order]
    entered, first = np.unique(head[order], return_index=True)
    while True:
        before = found[:, entered]
        now = np.minimum(before, np.minimum.reduceat(found[:, tail] + cost, first, axis=1))
        if np.array_equal(now, before):
            return found
        found[:, entered] = now


def _by_dijkstra(
    nodes: int, sources: Ints, tail: Ints, head: Ints, cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    weights = csr_array((cost, (tail, head)), shape=(nodes, nodes))
    return np.asarray(dijkstra(weights, indices=sources))

"""The soonest finish that any way to pair senders with receivers could have, by totals alone.

Over all bytes ``x`` by pair whose sums are what each process sends and receives, the busiest
resource's time is least::

    minimise T   with   K x <= T,   sum_d x[s, d] = sent[s],   sum_s x[s, d] = received[d],   x >= 0

A side that is not known has no sums to keep.  What comes back is not the solver's objective but a
bound that its multipliers prove, whatever their last digits: with weights y >= 0 of
sum 1 on the resources, a byte of pair p costs ``c = yᵀ K`` at least; and potentials u and v with
u[s] + v[d] <= c[s, d] give T >= sent · u + received · v.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.convex import solve_convex
from topocal.solve.modeller import cvxpy
from topocal.topo.errors import SolverError

if TYPE_CHECKING:
    from topocal.solve.pair_costs import PairCosts

__all__ = ["MOST_PROCESSES", "best_pairing_s"]

Floats = NDArray[np.float64]

MOST_PROCESSES: Final = 64
"""Processes up to which the program is solved: 4032 pairs, about a second at most."""


def best_pairing_s(costs: PairCosts, sent: Floats | None, received: Floats | None) -> float:
    """A proven lower bound on the busiest resource's time, in seconds; 0 where nothing binds.

    Parameters
    ----------
    sent, received
        Shape (n,): bytes by process; ``None``: not known.
    """
    cp = cvxpy()

    n = len(costs.endpoints)
    total = float(max(side.sum() for side in (sent, received) if side is not None))
    usable = ~costs.blocked & (np.arange(n * n) % (n + 1) != 0)
    for side, axis in ((sent, 1), (received, 0)):
        if side is not None:
            some = (side > 0)[:, None] if axis == 1 else side > 0
            usable &= np.broadcast_to(some, (n, n)).ravel()
    pairs = np.flatnonzero(usable)
    matrix = costs.seconds_per_byte[:, pairs]
    if not total > 0 or not len(pairs) or not matrix.nnz:
        return 0.0
    # In units of the total and of its slowest byte, so that the solver sees figures near 1.
    scale = float(matrix.data.max())
    x, finish = cp.Variable(len(pairs), nonneg=True), cp.Variable()
    busy = (matrix / scale) @ x <= finish
    sums: list[Any] = []
    for side, end in ((sent, pairs // n), (received, pairs % n)):
        if side is not None:
            of_process = np.zeros((n, len(pairs)))
            of_process[end, np.arange(len(pairs))] = 1.0
            sums.append(of_process @ x == side / total)
    try:
        solve_convex(cp.Problem(cp.Minimize(finish), [busy, *sums]), "best pairing")
    except SolverError:
        return 0.0  # Nothing is proven.
    weights = np.maximum(0.0, np.asarray(busy.dual_value, dtype=np.float64))
    if not weights.sum() > 0:
        return 0.0
    cost = np.full(n * n, np.inf)
    cost[pairs] = (weights / weights.sum()) @ matrix
    square = cost.reshape(n, n)
    if sent is None or received is None:
        side, cheapest = (
            (sent, square.min(axis=1))
            if received is None
            else (
                received,
                square.min(axis=0),
            )
        )
        return _sum(side, cheapest)
    # Whatever a sender's potential is, each receiver gets what its cheapest sender leaves.
    u = -scale * np.asarray(sums[0].dual_value, dtype=np.float64)
    u = np.where(sent > 0, u, 0.0)
    v = (square[sent > 0] - u[sent > 0][:, None]).min(axis=0)
    return max(0.0, float(sent @ u) + _sum(received, v))


def _sum(side: Floats | None, potential: Floats) -> float:
    """Bytes by potential, of processes that have any."""
    if side is None:
        return 0.0
    used = side > 0
    return float(side[used] @ potential[used]) if np.isfinite(potential[used]).all() else 0.0

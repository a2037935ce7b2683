"""What a byte of each pair costs every resource: the linear form of the law.

The policy, the price of a transfer and the tables in a caps file all compute with one
sparse matrix K, so that they cannot disagree: with b the bytes of every ordered pair, resource r
is busy for ``(K @ b)[r]`` seconds and the transfer takes ``alpha + max(K @ b)``.

::

    capacity, duplex:  K[r, p] = weight / C_r
    time-shared:       K[r, p] = kappa / (rate of p alone)
    fatpipe:           a row for each pair that nothing else limits more, weight / C_r

The bytes of one pair count as one flow.  A lone flow on a time-shared resource takes the
time that its capacities take, which is no less than kappa of it: the maximum is right.
What many flows lose together (:mod:`topocal.solve.fading`) is not linear in bytes, and not in K.
A fatpipe limits each pair by itself; where a capacity of the pair costs as much, its row says
so already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.topo.errors import UnknownEndpointError
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.caps import Caps
    from topocal.solve.model import Model

__all__ = ["PairCosts"]


@dataclass(frozen=True, eq=False)
class PairCosts:
    """Seconds that a byte of every ordered pair takes of every resource.

    Attributes
    ----------
    endpoints
        n of them; pair p is ``endpoints[p // n] -> endpoints[p % n]``.
    resources
        Id of each row, R of them; a fatpipe may have several rows.
    alpha_s
        What a transfer takes besides its busiest resource's time; may be below zero
        where messages get faster with their size.
    seconds_per_byte
        Shape (R, n * n), K above; finite, canonical.  Local copies (p // n == p % n) cost nothing.
    alone_s
        Shape (n * n,): seconds per byte of each pair by itself, 0 where nothing limits it.
    blocked
        Shape (n * n,): pairs that no byte can take: nothing joins them, or a resource
        on their route passes nothing.  Their columns of K are empty.
    """

    endpoints: tuple[str, ...]
    resources: tuple[str, ...]
    alpha_s: float
    seconds_per_byte: csr_array
    alone_s: NDArray[np.float64]
    blocked: NDArray[np.bool_]

    @classmethod
    def of(cls, source: Caps | Model) -> PairCosts:
        """The costs of a caps file, or of a fitted model (those of its caps)."""
        make: Callable[[], Caps] | None = getattr(source, "caps", None)
        caps = cast("Caps", source) if make is None else make()
        return caps.pair_costs

    @classmethod
    def build(
        cls,
        endpoints: Sequence[str],
        resources: Sequence[tuple[str, Sharing, float | None, float]],
        weights: csr_array,
        *,
        unreachable: NDArray[np.bool_] | None = None,
        alpha_s: float = 0.0,
    ) -> PairCosts:
        """From capacities and who loads them.

        Parameters
        ----------
        resources
            ``(id, sharing, bytes per second, kappa)``; ``None`` bytes per second never bind.
        weights
            Shape (n * n, resources): how often a byte of each pair counts.
        unreachable
            Shape (n * n,): pairs that nothing joins.
        """
        n = len(endpoints)
        matrix = csr_array(weights, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        row = np.repeat(np.arange(n * n), np.diff(matrix.indptr))
        column = matrix.indices.astype(np.int64)
        rate = np.array([np.inf if cap is None else cap for _, _, cap, _ in resources])
        kappa = np.array([k for _, _, _, k in resources])
        law = np.array([sharing for _, sharing, _, _ in resources], dtype=object)
        is_engine, is_fatpipe = law == Sharing.TIME_SHARED, law == Sharing.FATPIPE
        # What passes next to nothing passes nothing.
        with np.errstate(divide="ignore", over="ignore"):
            cost = np.where(is_engine[column], 0.0, matrix.data / rate[column])
        blocked = np.zeros(n * n, dtype=bool) if unreachable is None else unreachable.copy()
        blocked[row[np.isinf(cost)]] = True
        blocked[:: n + 1] = False
        nothing = blocked[row] | (row % (n + 1) == 0)
        cost[nothing] = 0.0
        alone = np.zeros(n * n)
        np.maximum.at(alone, row, cost)
        engine = is_engine[column] & ~nothing
        cost[engine] = kappa[column[engine]] * alone[row[engine]]

        # A fatpipe needs a row only where no shared capacity of the pair says as much.
        shared = np.zeros(n * n)
        of_fatpipe = is_fatpipe[column]
        np.maximum.at(shared, row[~of_fatpipe], cost[~of_fatpipe])
        keep = (cost > 0) & (~of_fatpipe | (cost > shared[row]))
        row, column, cost, of_fatpipe = row[keep], column[keep], cost[keep], of_fatpipe[keep]
        # Rows in the order of resources, those of a fatpipe in the order of its pairs.
        place = column * (n * n) + np.where(of_fatpipe, row, 0)
        rows, number = np.unique(place, return_inverse=True)
        names = tuple(resources[k][0] for k in (rows // (n * n)).tolist())
        costs = csr_array((cost, (number, row)), shape=(len(names), n * n))
        costs.sort_indices()
        return cls(tuple(endpoints), names, alpha_s, costs, alone, blocked)

    @cached_property
    def number(self) -> dict[str, int]:
        """Place of each endpoint."""
        return {name: k for k, name in enumerate(self.endpoints)}

    def pair(self, source: str, destination: str) -> int:
        """Column of a pair.

        Raises
        ------
        UnknownEndpointError
            When either is not among the endpoints.
        """
        for name in (source, destination):
            if name not in self.number:
                raise UnknownEndpointError(name, self.endpoints)
        return self.number[source] * len(self.endpoints) + self.number[destination]

    def busy_s(self, bytes_of_pair: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shape (R,): how long each row is busy with so many bytes of each pair."""
        busy: NDArray[np.float64] = self.seconds_per_byte @ bytes_of_pair
        return busy

    def finish_s(self, bytes_of_pair: NDArray[np.float64]) -> float:
        """When all bytes have arrived, by the busiest resource; 0 when none has to move."""
        longest = float(self.busy_s(bytes_of_pair).max(initial=0.0))
        return max(0.0, self.alpha_s + longest) if longest > 0 else 0.0

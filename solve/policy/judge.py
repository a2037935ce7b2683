"""When the bytes of each pair have arrived, by max-min fair sharing.

The busiest resource bounds the finish from below and is exact for equal flows only: flows
of unequal size, and several receivers that serve their flows by turns, take longer.  The
judge lets one flow per pair run on the same costs, event by event, so that candidates are
compared by what they take and not by what they take at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topocal.solve.policy.choice import Choice
from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.errors import SimulationError
from topocal.topo.fluid import simulate_batch
from topocal.topo.loads import Batch, Loads
from topocal.topo.resource import Sharing

__all__ = ["Judge", "effort"]

Floats = NDArray[np.float64]


def effort(flows: int) -> int:
    """What simulating so many flows costs: about half a microsecond each.

    >>> effort(25), effort(3600)
    (125, 216000)
    """
    return flows * math.isqrt(flows)


class Judge:
    """Simulates bytes per pair of a choice; one core, so that the result is always the same."""

    def __init__(self, choice: Choice) -> None:
        by_pair = csr_array(choice.cost_s.T)
        by_pair.sort_indices()
        rows = choice.cost_s.shape[0]
        # Every row of the costs is linear in bytes: a capacity of one second per second.
        capacities = Capacities(
            resources=tuple(map(str, range(rows))),
            capacity_Bps=np.ones(rows),
            sharing=np.full(rows, SHARING_CODE[Sharing.CAPACITY], dtype=np.int8),
            kappa=np.ones(rows),
            in_order=np.zeros(rows, dtype=np.bool_),
        )
        self._loads = Loads(
            pairs=tuple((str(pair), "") for pair in choice.pairs.tolist()),
            capacities=capacities,
            indptr=by_pair.indptr.astype(np.int64),
            indices=by_pair.indices.astype(np.int64),
            cost_s=by_pair.data.astype(np.float64),
        )
        self._cost_s = choice.cost_s
        self._seen: dict[bytes, float] = {}
        self.spent = 0
        """Effort so far: of each pattern its flows times their square root, which grows as
        the simulator's time does.  What a search may spend is counted, not timed."""

    def finishes_s(self, bytes_of: Floats) -> tuple[Floats, Floats]:
        """Finish of each pattern, and of each of its pairs.

        Parameters
        ----------
        bytes_of
            Shape (patterns, P).

        Returns
        -------
        Shape (patterns,) and (patterns, P), 0 where nothing moves.

        Raises
        ------
        SimulationError
            When the simulation makes no progress.
        """
        finish = np.zeros(bytes_of.shape)
        pattern, pair = np.nonzero(bytes_of > 0)
        lengths = np.bincount(pattern, minlength=len(bytes_of))
        self.spent += sum(effort(flows) for flows in lengths.tolist())
        if len(pair):
            ends = np.concatenate(([0], np.cumsum(lengths[lengths > 0])))
            size = bytes_of[pattern, pair]
            batch = Batch(ends, pair.astype(np.int64), size, np.zeros(len(pair)))
            found = simulate_batch(self._loads, batch, threads=1)
            finish[pattern, pair] = found.finish_s
        seconds: Floats = finish.max(axis=1, initial=0.0)
        if not np.isfinite(seconds).all():
            raise SimulationError(
                "the simulation of an assignment makes no progress",
                remedy="bring sizes and capacities closer together",
            )
        return seconds, finish

    def finish_s(self, bytes_of: Floats) -> float:
        """Finish of one pattern, shape (P,)."""
        return float(self.finishes_s(bytes_of[None, :])[0][0])

    def race(
        self, bytes_of: Sequence[Floats], limit_s: float = math.inf, enough_s: float = 0.0
    ) -> tuple[Floats, Floats]:
        """Busiest time and finish of patterns, of which only the soonest counts.

        A pattern whose busiest resource takes as long as another's finish cannot end sooner: it
        is not simulated.

        Parameters
        ----------
        bytes_of
            Shape (P,) each.
        limit_s
            Finishes from here on do not count either.
        enough_s
            A finish that is good enough: no other is looked for.

        Returns
        -------
        Shape (patterns,) each; the finish is infinite where it does not count.
        """
        busy = np.array([(self._cost_s @ row).max(initial=0.0) for row in bytes_of])
        finish = np.full(len(bytes_of), np.inf)
        # Rounding errors must not decide which of equals comes first.
        ranks = np.round(busy / (busy.max(initial=0.0) or 1.0), 9)
        for k in np.argsort(ranks, kind="stable").tolist():
            if busy[k] >= limit_s:
                continue
            key = bytes_of[k].tobytes()
            if key not in self._seen:
                self._seen[key] = self.finish_s(bytes_of[k])
            finish[k] = self._seen[key]
            limit_s = min(limit_s, float(finish[k]))
            if limit_s <= enough_s:
                break
        return busy, finish

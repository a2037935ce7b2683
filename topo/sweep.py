"""Many patterns: the closed form where it is exact, the simulator for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.topo.busiest import busiest_of_batch
from topocal.topo.fluid import simulate_batch
from topocal.topo.loads import Batch, Loads

__all__ = ["Swept", "sweep"]


@dataclass(frozen=True, eq=False)
class Swept:
    """What every pattern takes; one row per pattern, P of them.

    Attributes
    ----------
    resources
        Resource ids, which ``bottleneck`` refers to.
    seconds
        Shape (P,): finish of the last flow; ``inf`` where it never does.
    bottleneck
        Shape (P,): column of the resource that limits the last flow, -1 where nothing does.
    simulated
        Shape (P,): whether the simulator was needed; otherwise the closed form is exact.
    """

    resources: tuple[str, ...]
    seconds: NDArray[np.float64]
    bottleneck: NDArray[np.int32]
    simulated: NDArray[np.bool_]

    def bottleneck_of(self, pattern: int) -> str | None:
        """Id of the resource that limits a pattern's last flow; ``None`` where nothing does."""
        column = int(self.bottleneck[pattern])
        return None if column < 0 else self.resources[column]


def sweep(
    loads: Loads,
    batch: Batch,
    *,
    alpha_s: float = 0.0,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Swept:
    """Seconds and bottleneck of many patterns.

    Parameters
    ----------
    threads
        How many at most; ``None``: all cores.  The result does not depend on it.
    progress
        Called with how many patterns have been done since the last call.
    """
    closed = busiest_of_batch(loads, batch, alpha_s=alpha_s, utilisation=False, threads=threads)
    seconds, bottleneck = closed.seconds.copy(), closed.bottleneck.copy()
    rest = np.flatnonzero(~closed.exact)
    if progress is not None:
        progress(batch.patterns - len(rest))
    if len(rest):
        part = batch.select(rest)
        found = simulate_batch(loads, part, alpha_s=alpha_s, threads=threads, progress=progress)
        seconds[rest] = found.seconds
        bottleneck[rest] = found.bottleneck[_last_flows(part, found.finish_s)]
    return Swept(closed.resources, seconds, bottleneck, ~closed.exact)


def _last_flows(batch: Batch, finish_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of the flow that finishes last, of each pattern; of several the first."""
    pattern = np.repeat(np.arange(batch.patterns), np.diff(batch.indptr))
    order = np.lexsort((np.arange(len(finish_s)), -finish_s, pattern))
    return order[batch.indptr[:-1]]

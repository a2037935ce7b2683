"""Does one endpoint share bytes or time?  Its own fans are asked, all else as fitted.

Bytes: the best capacity of its port that all other observations allow.  Time: that, or the
engine's busy time where it is longer, with the overlap factor of its side (or, while that
side has none yet, the best single one).  Both answers are closed forms over the few
observations at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve import judge_kernel
from topocal.solve.cost import HUBER, LEAST_LOG_KAPPA, UNEXPLAINED, Estimate
from topocal.solve.rows import Rows, two_largest

__all__ = ["SAME_SIGMAS", "prefer_time"]

SAME_SIGMAS: Final = 3.0
"""Capacities closer than that, in deviations of an observation, are one number."""


def prefer_time(
    rows: Rows,
    found: Estimate,
    active: NDArray[np.bool_],
    engines: NDArray[np.bool_],
    prior: NDArray[np.float64],
    asked: Sequence[tuple[int, int, int]],
) -> NDArray[np.float64]:
    """How much cheaper each endpoint's observations are when it shares time, not bytes.

    0 while the solo time of one of its flows is unknown.

    Parameters
    ----------
    rows
        With all engines.
    found, active, engines
        The present fit: estimate, resources in it, engines at work; shapes (R,).
    prior
        Shape (R,): log seconds per byte by specification, NaN where unknown.
    asked
        Of each endpoint: the column of its engine, that of its port, and its side.
    """
    engine, port, side = (np.array(one, dtype=np.int64) for one in zip(*asked, strict=True))
    shared, x = rows.shared, np.where(active, found.x, -np.inf)
    busy, _ = shared.busy(rows.solo(x), found.log_kappa)
    working = engines[shared.resource]
    has_kappa = np.array([(working & (shared.side == s)).any() for s in (0, 1)])
    looked_at = active.copy()
    looked_at[port] = True
    load = rows.only(looked_at).log_load
    by_column = load.tocsc()
    preference = np.empty(len(engine))
    judge_kernel.prefer_time(
        engine,
        port,
        side,
        np.argsort(shared.resource, kind="stable"),
        np.searchsorted(np.sort(shared.resource), np.arange(len(active) + 1)),
        shared.row,
        busy,
        np.where(working, busy, -np.inf),
        np.searchsorted(shared.row, np.arange(len(rows.log_seconds) + 1)),
        *two_largest(load, x),
        by_column.indptr,
        by_column.indices,
        by_column.data,
        rows.log_seconds,
        rows.sigma,
        prior,
        has_kappa,
        LEAST_LOG_KAPPA,
        math.log(max(2, len(rows.log_seconds))),
        SAME_SIGMAS * float(np.median(rows.sigma)) if len(rows.sigma) else 0.0,
        HUBER,
        UNEXPLAINED,
        preference,
    )
    return preference

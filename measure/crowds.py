"""Patterns about resources that pass less the more flows share them.

What pins a resource has few flows: two into one card say what its link passes.  Whether
eight pass as much together no sum of loads tells, and on published machines they do not
always (docs/model.md).  So a few endpoints take in, or send, as many flows as there are
partners, and all endpoints send to the next one at once: against the patterns of few
flows that loss shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from topocal.measure.pinning import Search

__all__ = ["LEAST_ENDPOINTS", "Crowd", "crowds"]

LEAST_ENDPOINTS: Final = 5
"""With fewer, no pattern has many more flows than what pins a link, which takes two."""

_FANS: Final = 4
"""Fans, in and out by turns: their errors average, and the loss of one link is not all's."""

_WIDEST: Final = 16
"""Flows of a crowd at most; losses that grow with the flows show by then."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many flows at once: at one endpoint, or from each to the next (then ``endpoint`` is -1)."""

    endpoint: int
    rows: tuple[int, ...]


def crowds(search: Search, measured: Collection[frozenset[int]] = ()) -> Iterator[Crowd]:
    """Wide fans at a few endpoints spread over the machine, and one ring.

    Parameters
    ----------
    measured
        Patterns, by their rows, that need not be repeated.
    """
    c = search.crossings
    n = len(c.endpoints)
    if n < LEAST_ENDPOINTS:
        return
    count = min(_FANS, n)
    for k in range(count):
        endpoint = k * n // count
        rows = c.sending(endpoint) if k % 2 else c.receiving(endpoint)
        rows = rows[_spread(len(rows), _WIDEST)]
        if len(rows) >= LEAST_ENDPOINTS - 1 and frozenset(rows.tolist()) not in measured:
            yield Crowd(endpoint, tuple(rows.tolist()))
    members = _spread(n, _WIDEST)
    ring = c.row[members, np.roll(members, -1)]
    if ring.min() >= 0 and frozenset(ring.tolist()) not in measured:
        yield Crowd(-1, tuple(ring.tolist()))


def _spread(n: int, most: int) -> np.ndarray:
    """Numbers below n, at most so many, evenly spread."""
    return np.arange(min(n, most)) * n // min(n, most) if n else np.zeros(0, dtype=np.int64)

"""Which patterns to keep when not all can be measured.

A pattern is worth what its purposes are worth: the share of all pairs that the
resource, endpoint or connection carries, halved for what is not a bottleneck, and
divided among patterns of one make.  So the first of each make comes before the second
of any (what is alike is probably alike), and what carries more comes first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Worth", "by_information"]


@dataclass(frozen=True, slots=True)
class Worth:
    """One purpose of a pattern: what it is alike with, and what it is worth the first time."""

    make: Hashable
    value: float


def by_information(patterns: Sequence[Sequence[Worth]]) -> list[int]:
    """Numbers of the patterns, the most informative first; equally good ones in order."""
    chosen: Counter[Hashable] = Counter()

    def worth(k: int) -> float:
        return sum(w.value / (1 + chosen[w.make]) for w in patterns[k])

    # What a pattern is worth only falls while others are chosen: a stale top is put back.
    heap = [(-worth(k), k) for k in range(len(patterns))]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        stale, k = heapq.heappop(heap)
        now = -worth(k)
        if now > stale:
            heapq.heappush(heap, (now, k))
            continue
        order.append(k)
        chosen.update(w.make for w in patterns[k])
    return order

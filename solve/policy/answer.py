"""The answer: who sends which part of what, and what it takes.

The digest is of the requests in their fixed order with their parts, by name: equal
digests on all ranks mean that all send and expect the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topocal.solve.policy.requests import Part, Request
from topocal.topo.flow import Flow

if TYPE_CHECKING:
    from topocal.solve.caps import Caps
    from topocal.solve.price import Price

__all__ = ["Assignment", "Candidate"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to answer.

    Attributes
    ----------
    name
        How it was found.
    busy_s
        Time of its busiest resource.
    fair_s
        Until its last flow has ended under fair sharing; what is compared.  ``None`` where its
        busiest resource alone takes too long for it to be the answer.
    parts
        How many parts it has.
    """

    name: str
    busy_s: float
    fair_s: float | None
    parts: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """Who sends what.

    Attributes
    ----------
    endpoints
        Names of the endpoints that numbers refer to.
    requests
        As they were given.
    order
        Shape (N,): the fixed order, as places in ``requests``.
    part_row, part_holder, part_begin, part_rows
        Shape (S,): place in the fixed order, endpoint that sends, and the part along axis 0; in
        order of the first, then along the axis.
    chosen
        The candidate that this is.
    candidates
        All that were compared, the policies of others among them.
    fair_s
        Seconds until its last flow has ended under fair sharing, without start-up.
    start_up_s, least_s
        A transfer takes ``max(seconds + start_up_s, least_s)``; nothing where no byte moves.
    bound_s
        No answer finishes sooner, split or whole; proven.
    bytes_of_pair
        Shape (n * n,).
    bottleneck
        Id of the busiest resource; ``None`` where no byte moves.
    caps
        The machine's, where they were given; ``None`` for bare costs.
    notes
        On the conditions of the calibration, in sentences.
    """

    endpoints: tuple[str, ...]
    requests: Sequence[Request]
    order: Ints
    part_row: Ints
    part_holder: Ints
    part_begin: Ints
    part_rows: Ints
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    fair_s: float
    start_up_s: float
    least_s: float
    bound_s: float
    bytes_of_pair: NDArray[np.float64]
    bottleneck: str | None
    caps: Caps | None
    notes: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything says how long it takes: nothing moves, or some cost is known."""
        return self.bottleneck is not None or not self.bytes_of_pair.any()

    @property
    def finish_s(self) -> float:
        """Predicted seconds until everything has arrived, by fair sharing; 0 where nothing says.

        Where flows get less the more of them there are, that is allowed for.
        """
        if self.caps is not None and self.caps.fading is not None and self.price is not None:
            return self.price.seconds
        return self.with_start_up(self.fair_s)

    def with_start_up(self, seconds: float) -> float:
        """What a transfer takes whose flows take so long.

        >>> from types import SimpleNamespace
        >>> it = SimpleNamespace(start_up_s=0.5, least_s=2.0)
        >>> [Assignment.with_start_up(it, s) for s in (0.0, 1.0, 3.0)]
        [0.0, 2.0, 3.5]
        """
        return max(seconds + self.start_up_s, self.least_s, 0.0) if seconds > 0 else 0.0

    @cached_property
    def price(self) -> Price | None:
        """What it takes with the interval that the data allows, and how far that rests on
        resources used at a proven or nominal value; ``None`` for bare costs."""
        if self.caps is None:
            return None
        from topocal.solve.price import price
        from topocal.solve.transfers import Flows

        local = sum(request.size_bytes for request in self.requests) - self.bytes_of_pair.sum()
        return price(
            self.caps,
            Flows(
                moved=self.bytes_of_pair,
                local_bytes=max(0.0, float(local)),
                flows=len(self.part_row),
            ),
        )

    @property
    def gap(self) -> float:
        """How much longer than the bound, relative; 0 where no byte moves."""
        return self.finish_s / self.bound_s - 1.0 if self.bound_s > 0 else 0.0

    @cached_property
    def _rows(self) -> tuple[Ints, Ints]:
        """Where each request's parts begin, and the place of each request in the order."""
        ends = np.searchsorted(self.part_row, np.arange(len(self.requests) + 1))
        place = np.empty(len(self.requests), dtype=np.int64)
        place[self.order] = np.arange(len(self.requests))
        return ends, place

    def parts(self, request: int) -> tuple[Part, ...]:
        """The parts of a request, by its place in ``requests``, along axis 0."""
        ends, place = self._rows
        row = int(place[request])
        asked = self.requests[request]
        found = []
        for k in range(int(ends[row]), int(ends[row + 1])):
            begin, rows = int(self.part_begin[k]), int(self.part_rows[k])
            found.append(
                Part(
                    holder=self.endpoints[int(self.part_holder[k])],
                    origin=(asked.origin[0] + begin, *asked.origin[1:]) if asked.shape else (),
                    shape=(rows, *asked.shape[1:]) if asked.shape else (),
                )
            )
        return tuple(found)

    def __iter__(self) -> Iterator[tuple[Request, tuple[Part, ...]]]:
        """Every request with its parts, as they were given."""
        for k, request in enumerate(self.requests):
            yield request, self.parts(k)

    def flows(self) -> list[Flow]:
        """What moves, one flow for each pair."""
        n = len(self.endpoints)
        return [
            Flow(
                source=self.endpoints[pair // n],
                destination=self.endpoints[pair % n],
                size_bytes=float(self.bytes_of_pair[pair]),
            )
            for pair in np.flatnonzero(self.bytes_of_pair > 0).tolist()
        ]

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and that of requests and parts, in whatever order they were given."""
        content = hashlib.sha256(b"topocal/assignment 1\n")
        sorted_holders: dict[tuple[str, ...], list[str]] = {}
        for k in self.order.tolist():
            asked = self.requests[k]
            holders = sorted_holders.setdefault(asked.holders, sorted(asked.holders))
            line = (
                f"{asked.parameter!r} {asked.target!r} {asked.origin} {asked.shape} "
                f"{asked.element_bytes} {holders!r}\n"
            )
            content.update(line.encode("utf-8", "backslashreplace"))
        content.update(repr(self.endpoints).encode("utf-8", "backslashreplace"))
        for column in (self.part_row, self.part_holder, self.part_begin, self.part_rows):
            content.update(column.astype("<i8").tobytes())
        return f"sha256:{content.hexdigest()}"

"""What is to be moved between processes: who sends how much to whom, or only totals.

Flows that start together and have the same two ends are one amount of bytes; what stays at its
process is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.endpoint_names import resolve_endpoint
from topocal.topo.errors import FlowError, FormatError, one_line
from topocal.topo.units import MOST_BYTES, parse_bytes

__all__ = ["SAME", "Flows", "Gathered", "Totals", "bytes_of", "flows_between"]

Floats = NDArray[np.float64]

SAME: Final = 1e-6
"""Relative difference below which two amounts of bytes are the same."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Flows:
    """Bytes between processes, n of them, that start together.

    Attributes
    ----------
    moved
        Shape (n * n,): bytes of pair ``source * n + destination``; local copies aside.
    local_bytes
        What stays at its process: free.
    flows
        How many transfers that is.
    name
        Of the pattern, where it has one.
    """

    moved: Floats
    local_bytes: float = 0.0
    flows: int = 0
    name: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Totals:
    """Bytes that each process sends and receives; to and from whom is unknown.

    Attributes
    ----------
    sent, received
        Shape (n,), local copies not counted; ``None``: not known.
    """

    sent: Floats | None
    received: Floats | None

    def __post_init__(self) -> None:
        if self.sent is None and self.received is None:
            raise FlowError(
                "neither sent nor received bytes", remedy="give what each process sends or receives"
            )
        if self.sent is None or self.received is None:
            return
        out, into = float(self.sent.sum()), float(self.received.sum())
        if abs(out - into) > SAME * max(out, into):
            raise FlowError(
                f"{out:.0f} bytes are sent and {into:.0f} received in all",
                remedy="give totals of the same transfer, without local copies",
            )


def flows_between(
    endpoints: Sequence[str], flows: Sequence[tuple[str | int, str | int, float]]
) -> Flows:
    """From (source, destination, bytes); a whole number is a process number.

    Raises
    ------
    InputError
        When a process is unknown, or a size none.
    """
    gathered = Gathered(endpoints, None)
    for source, destination, size in _triples(flows):
        gathered.add("flows", (source, destination), bytes_of(size))
    (found,) = gathered.flows()
    return found


def _triples(flows: Any) -> Iterator[tuple[str | int, str | int, float]]:
    """Each (source, destination, bytes).

    Raises
    ------
    FlowError
        When something else is given.
    """
    remedy = "give (source, destination, bytes) of each, such as (0, 1, 2**20)"
    if isinstance(flows, str) or not isinstance(flows, Iterable):
        kind = type(flows).__name__
        raise FlowError(f"a {kind} is no list of transfers", remedy=remedy, about=flows)
    for number, flow in enumerate(flows):
        try:
            parts = () if isinstance(flow, str) else tuple(flow)
            source, destination, size = parts
        except (TypeError, ValueError) as error:
            raise FlowError(
                f"transfer {number} is {one_line(flow)}", remedy=remedy, about=flow
            ) from error
        yield source, destination, size


def bytes_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FormatError(f"{one_line(value)!r} is not a size", remedy="give bytes")
    return parse_bytes(value)


@dataclass
class Gathered:
    """Bytes by pair and by process while a document is walked through."""

    endpoints: Sequence[str]
    element_size: int | None
    pairs: dict[str, dict[int, float]] = field(default_factory=dict)
    count: int = 0
    counts_elements: bool = False
    sent: dict[int, float] = field(default_factory=dict)
    received: dict[int, float] = field(default_factory=dict)

    def place(self, value: Any) -> int:
        """Number of a process.

        Raises
        ------
        InputError
            When there is none of that number or name.
        """
        n = len(self.endpoints)
        if isinstance(value, str):
            text = value.strip()
            named = any(re.fullmatch(r"gpu\d+", e) for e in self.endpoints)
            if named or not re.fullmatch(r"\d{1,9}", text):
                return self.endpoints.index(resolve_endpoint(text, self.endpoints))
            value = int(text)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
            raise FlowError(
                f"no process {one_line(value)}",
                remedy=f"the caps are of {n} processes, 0 to {n - 1}",
                about=value,
            )
        return value

    def add(self, kind: str, ends: Iterable[Any], size: float) -> None:
        """Bytes of one transfer, whose ends are its source and its destination."""
        source, destination = map(self.place, ends)
        pair = source * len(self.endpoints) + destination
        table = self.pairs.setdefault(kind, {})
        table[pair] = table.get(pair, 0.0) + size
        self.count += size > 0
        if table[pair] > MOST_BYTES:
            raise FlowError("more than 1000 PB in one pair", remedy="give bytes")

    def flows(self) -> list[Flows]:
        """What moves; none when no pair was named.

        Raises
        ------
        FlowError
            When two descriptions of it contradict each other.
        """
        n = len(self.endpoints)
        found: dict[str, Floats] = {}
        for kind, table in self.pairs.items():
            found[kind] = np.zeros(n * n)
            for pair, size in table.items():
                found[kind][pair] = size
        tables = list(found.items()) or [("flows", np.zeros(n * n))]
        kind, moved = tables[0]
        for other, values in tables[1:]:
            if not np.allclose(values, moved, rtol=SAME, atol=0.5):
                raise FlowError(f"its {kind} and its {other} differ", remedy="keep one of them")
        local = float(moved[:: n + 1].sum())
        moved[:: n + 1] = 0.0
        return [Flows(moved=moved, local_bytes=local, flows=self.count)]

    def totals(self) -> Totals | None:
        """What each process sends and receives, if that was said."""
        if not self.sent and not self.received:
            return None
        return Totals(sent=self._column(self.sent), received=self._column(self.received))

    def _column(self, table: dict[int, float]) -> Floats | None:
        found = np.zeros(len(self.endpoints))
        found[list(table)] = list(table.values())
        return found if table else None

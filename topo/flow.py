"""Transfers: one flow, and flows that run at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from topocal.topo.errors import FlowError, one_line
from topocal.topo.wanted import is_amount

__all__ = ["Flow", "Pattern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Bytes from one endpoint to another.

    Attributes
    ----------
    source, destination
        Endpoint ids.
    size_bytes
        How much; zero is allowed and finishes at once.
    start_s
        When it starts, in seconds from the pattern's start.

    Raises
    ------
    FlowError
        When size or start is no finite number from zero on, or an endpoint is no text.
    """

    source: str
    destination: str
    size_bytes: float
    start_s: float = 0.0

    def __post_init__(self) -> None:
        names = isinstance(self.source, str) and isinstance(self.destination, str)
        size, start = self.size_bytes, self.start_s
        if names and type(size) is type(start) is float and 0 <= size < math.inf > start >= 0:
            return
        for end in (self.source, self.destination):
            if not isinstance(end, str):
                raise FlowError(
                    f"an endpoint is {one_line(repr(end))}",
                    remedy="name it by text, such as 'gpu0'",
                    about=self,
                )
        for name, value in (("size", self.size_bytes), ("start", self.start_s)):
            if not is_amount(value):
                raise FlowError(
                    f"flow {one_line(self.source)}->{one_line(self.destination)} "
                    f"has {name} {one_line(value)}",
                    remedy="give a finite number, zero or more",
                    about=self,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Flows that run at once.

    Attributes
    ----------
    flows
        In the order they were given.
    name
        The short notation people write, such as ``gpu3<-gpu4,gpu5``.
    """

    flows: tuple[Flow, ...]
    name: str = ""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """``(source, destination)`` of each flow."""
        return [(f.source, f.destination) for f in self.flows]

    @property
    def total_bytes(self) -> float:
        """Bytes of all flows together.

        Raises
        ------
        FlowError
            When they are more than a float holds.
        """
        try:
            return math.fsum([f.size_bytes for f in self.flows])
        except OverflowError as error:
            raise FlowError(
                f"the flows of {one_line(self.name)} move more bytes together than any number says",
                remedy="give their true sizes",
                about=self,
            ) from error

    def scaled(self, size_bytes: float) -> Pattern:
        """The same pattern with every flow of ``size_bytes``."""
        return Pattern(flows=tuple(_resized(self.flows, size_bytes)), name=self.name)


def _resized(flows: Iterable[Flow], size_bytes: float) -> Iterable[Flow]:
    for f in flows:
        yield Flow(
            source=f.source, destination=f.destination, size_bytes=size_bytes, start_s=f.start_s
        )

"""What a sync asks for, and what a policy answers, in plain records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from topocal.topo.errors import InputError, one_line

__all__ = ["Part", "Request"]

MOST_BYTES = 1 << 60
"""Sizes above are no region's; sums of many stay exact integers in 64 bits where checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A region of a parameter that a target wants and that several endpoints hold.

    Attributes
    ----------
    parameter
        Name of the parameter.
    target
        Endpoint that wants the region.
    holders
        Endpoints that hold all of it.  Where the target is among them, the copy is local
        and free.
    origin, shape
        The region in the whole parameter, in elements: its first coordinate and its extents.
        Without axes it is a single element.
    element_bytes
        Bytes of an element.

    Raises
    ------
    InputError
        When nobody holds it, a holder stands twice, or it is no region.
    """

    parameter: str
    target: str
    holders: tuple[str, ...]
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    element_bytes: int = 1

    def __post_init__(self) -> None:
        for name in ("holders", "origin", "shape"):
            value = getattr(self, name)
            if type(value) is not tuple and isinstance(value, Sequence) and type(value) is not str:
                object.__setattr__(self, name, tuple(value))
        problem = self._problem()
        if problem:
            asked = f"request for {one_line(self.parameter)!r} at {one_line(self.target)}"
            raise InputError(f"{asked}: {problem[0]}", remedy=problem[1], about=self)

    def _problem(self) -> tuple[str, str] | None:
        """What is wrong and what to do, ``None`` where nothing is."""
        if not all(type(name) is tuple for name in (self.holders, self.origin, self.shape)):
            return "holders, origin and shape must be sequences", "give tuples or lists"
        if not all(isinstance(name, str) for name in (self.parameter, self.target, *self.holders)):
            return "parameter, target and holders must be names", "give text"
        if not self.holders:
            return "nobody holds it", "name at least one holder"
        if len(self.holders) > 1 and len(set(self.holders)) < len(self.holders):
            return "a holder stands twice", "name each holder once"
        numbers = (*self.origin, *self.shape, self.element_bytes)
        if not all(type(number) is int and number >= 0 for number in numbers):
            return "origin, shape and element_bytes must be integers, zero or more", "give those"
        if len(self.origin) != len(self.shape):
            return (
                f"its origin has {len(self.origin)} axes and its shape {len(self.shape)}",
                "give both as many",
            )
        if self.element_bytes == 0:
            return "its elements have no bytes", "give element_bytes, such as 2 for bfloat16"
        if self.size_bytes > MOST_BYTES:
            return f"it has {self.size_bytes} bytes", "give a size that a machine can hold"
        return None

    @property
    def rows(self) -> int:
        """Extent of axis 0, along which a region may be cut; 1 without axes."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one step along axis 0."""
        return math.prod(self.shape[1:]) * self.element_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole region."""
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one holder sends of a request.

    Attributes
    ----------
    holder
        Endpoint that sends it; the target itself where the copy is local.
    origin, shape
        The part in the whole parameter, in elements.
    """

    holder: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]

"""What a fitted capacity rests on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["CLEAR_SIGMAS", "CONFIDENCE", "OPEN_ABOVE", "Status"]

CLEAR_SIGMAS: Final = 3.0
"""A bottleneck is clear when nothing else comes within this many deviations."""

CONFIDENCE: Final = 0.95
"""Of all intervals."""


class Status(StrEnum):
    """What a fitted capacity rests on."""

    PINNED = "pinned"
    """Some observation has it as its clear bottleneck."""
    CONFOUNDED = "confounded"
    """It explains observations that another resource may explain as well."""
    BOUNDED = "bounded"
    """It never had to be the bottleneck: at least so much."""
    SERIES = "series"
    """The same flows load it as another one, which stands for both: at least as much."""
    ALIKE = "alike"
    """It never had to be the bottleneck, but others of its make were: taken to be like them."""
    ASSUMED = "assumed"
    """No observation loads it; its nominal capacity is taken (of a time-shared receiver: the
    overlap factor of those that were measured)."""
    UNKNOWN = "unknown"
    """No observation loads it and nothing says what it passes."""


OPEN_ABOVE: Final = (Status.BOUNDED, Status.ALIKE, Status.SERIES, Status.UNKNOWN)
"""What explains no observation by itself; nothing proves that it is no faster."""

"""What stands in calibration.json, as types; :mod:`topocal.measure.calibration` tells the idea."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "FORMAT",
    "VERSION",
    "Columns",
    "PatternEntry",
    "RunEntry",
    "ScenarioEntry",
    "is_endpoint_name",
]

FORMAT: Final = "topocal/calibration"
VERSION: Final = 1


class PatternEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who sends to whom: numbers of endpoints, one pair per flow.

    ``kind`` is what the flows are, for people and other programs; ``name`` stands only
    where it is not the notation of the flows.
    """

    flows: list[tuple[int, int]]
    kind: str | None = None
    name: str | None = None


class ScenarioEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pattern with its sizes and starts: one for all flows, or one each; no start is zero."""

    pattern: int
    size_bytes: float | list[float]
    start_s: float | list[float] | None = None


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The timings, one entry each in every column; fields as in a ``Sample``."""

    scenario: list[int]
    seconds: list[float]
    size_known: bool | list[bool] = True
    repeat: int | list[int] = 0
    round: int | list[int | None] | None = None
    issue: str | list[str | None] | None = None
    iterations: int | list[int] = 1
    flow_finish_s: list[list[float] | None] | None = None
    endpoint_start_s: list[list[float] | None] | None = None
    endpoint_end_s: list[list[float] | None] | None = None
    set_aside: str | list[str | None] | None = None


class RunEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One run: its provenance, its tables, its timings."""

    provenance: dict[str, Any] = {}
    endpoints: list[str]
    patterns: list[PatternEntry]
    scenarios: list[ScenarioEntry]
    samples: Columns


def is_endpoint_name(name: str) -> bool:
    """Whether a name can stand in the file: printable, without blanks around it."""
    return bool(name) and name == name.strip() and name.isprintable()

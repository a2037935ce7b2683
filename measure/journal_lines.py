"""A journal's lines: what each of them holds, and how its own bytes are checked.

    {"format": "topocal/journal", "version": 1, "subject": "…", "run": "5f0c…"}
    {"session": {"backend": "gloo", "ranks": ["gpu0", "gpu1"], …}}
    {"batch": [0, 3], "after_s": 1.5, "left": 5, "samples": [{"flows": [["gpu0", "gpu1"]], …}]}
    {"aside": [0, 3], "patterns": ["gpu0->gpu1"], "size": 4096.0, "issue": "group", "reason": "…"}
    {"remark": "…", "check": 2890354718}

History of the schema: 1 (2026-11) first version.
"""

from __future__ import annotations

import re
import zlib
from typing import Annotated, Any, Final

import msgspec

from topocal.measure.patterns import notation
from topocal.measure.samples import Sample
from topocal.topo.flow import Flow, Pattern

__all__ = ["FORMAT", "VERSION", "Line", "Timing", "decoded", "encoded", "sample_of", "timing_of"]

FORMAT: Final = "topocal/journal"
VERSION: Final = 1

_CHECK: Final = re.compile(rb',"check":(\d+)\}$')
"""How a line ends; what it is a check of is the line without it.  Lines written by hand need
none."""


class Timing(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A sample as it stands in a line."""

    flows: list[tuple[str, str]]
    size: float
    seconds: float
    issue: str
    repeat: int = 0
    iterations: int = 1
    finish: tuple[float, ...] | None = None
    start: tuple[float, ...] | None = None
    end: tuple[float, ...] | None = None
    aside: str | None = None


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Any line; which one it is, the fields say that it has."""

    format: str | None = None
    version: int | None = None
    subject: str | None = None
    run: str | None = None
    session: dict[str, Any] | None = None
    batch: tuple[int, int] | None = None
    after_s: float = 0.0
    left: Annotated[int, msgspec.Meta(ge=0)] = 0
    samples: list[Timing] = []
    aside: tuple[int, int] | None = None
    patterns: list[str] = []
    size: float = 0.0
    issue: str = ""
    reason: str = ""
    remark: str | None = None
    links: dict[str, str] | None = None
    copies: dict[str, float] | None = None
    check: int | None = None

    def __post_init__(self) -> None:
        """What is counted and put together later is what it has to be."""
        for key in ("ranks", "remarks"):
            names = [] if self.session is None else self.session.get(key, [])
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                raise ValueError(f"{key} is no list of texts")


def encoded(line: Line) -> bytes:
    """A line with its check and its end."""
    content = msgspec.json.encode(line)
    return b'%s,"check":%d}\n' % (content[:-1], zlib.crc32(content))


def decoded(text: bytes) -> Line:
    """A line whose check, if it has one, is right."""
    line = msgspec.json.decode(text, type=Line)
    if line.format is not None:  # Of a newer version, which may check otherwise.
        return line
    found = _CHECK.search(text)
    if line.check is not None and (
        found is None or zlib.crc32(text[: found.start()] + b"}") != line.check
    ):
        raise msgspec.DecodeError("its check is not that of its content")
    return line


def timing_of(sample: Sample) -> Timing:
    return Timing(
        flows=sample.pattern.pairs,
        size=sample.pattern.flows[0].size_bytes,
        seconds=sample.seconds,
        issue=sample.issue or "",
        repeat=sample.repeat,
        iterations=sample.iterations,
        finish=sample.flow_finish_s,
        start=sample.endpoint_start_s,
        end=sample.endpoint_end_s,
        aside=sample.set_aside,
    )


def sample_of(timing: Timing, round_: int) -> Sample:
    flows = tuple(Flow(source=s, destination=d, size_bytes=timing.size) for s, d in timing.flows)
    return Sample(
        pattern=Pattern(flows=flows, name=notation(timing.flows)),
        seconds=timing.seconds,
        issue=timing.issue,
        repeat=timing.repeat,
        iterations=timing.iterations,
        round=round_,
        flow_finish_s=timing.finish,
        endpoint_start_s=timing.start,
        endpoint_end_s=timing.end,
        set_aside=timing.aside,
    )

"""Mean rates of everyone sending to the one N places on: ``+3: 32.84 GB/s avg (263 total)``.

What the figures are: all GPUs i send to (i + N) mod n at once, and the figure is the mean
of the flows' own rates.  Where flows differ, that is no throughput (the slow ones may
still crawl when the fast ones are long done), so a line is a reading with its pattern, not
a sample.  The number of GPUs is the total over the mean where a total is printed, else
one more than the largest shift.
"""

from __future__ import annotations

import re
from typing import Final

from topocal.measure.importers.figures import is_rate
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.tables import SIZE_WHEN_UNKNOWN_BYTES
from topocal.measure.patterns import relay
from topocal.topo.errors import UnitError
from topocal.topo.flow import Pattern
from topocal.topo.readers.paste import MAX_LINES
from topocal.topo.units import rate_unit_Bps

__all__ = ["SHIFT_RATES", "looks_like_shift_rates", "parse_shift_rates"]

TITLE: Final = "rates by shift"

_LINE: Final = re.compile(
    r"[ \t]{0,20}\+([0-9]{1,3}):[ \t]{1,8}([0-9]{1,9}(?:\.[0-9]{1,9})?)[ \t]{0,8}([KMGT]i?B/s)"
    r"[ \t]{1,8}(?:avg|mean)\b[^(\n]{0,40}(?:\([ \t]{0,8}([0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"[ \t]{1,8}total[ \t]{0,8}\))?"
)
_MOST_GPUS: Final = 256
_MOST_LINES: Final = 4096
_WHOLE: Final = 0.05
"""A total over a mean is within this of a whole number."""


def looks_like_shift_rates(text: str) -> bool:
    """Whether some line is of this form."""
    return any(_LINE.match(line) for line in text.split("\n", MAX_LINES)[:MAX_LINES] if "+" in line)


def parse_shift_rates(text: str, *, file: str) -> Imported:
    """The lines of one text.

    Raises
    ------
    FormatError
        When there is none, or lines disagree on how many GPUs there are.
    """
    draft = Draft(kind="shift-rates", title=TITLE, file=file)
    found = [
        (match, k)
        for k, line in enumerate(text.split("\n", MAX_LINES)[:MAX_LINES], start=1)
        if (match := _LINE.match(line)) is not None
    ]
    if not found:
        raise draft.fail(
            "has no line such as +1: 51.5 GB/s avg", remedy="give the tool's whole output"
        )
    if len(found) > _MOST_LINES:
        raise draft.fail(f"has {len(found)} such lines", remedy="give the output of one run")
    n = _count(draft, found)
    patterns: dict[int, Pattern] = {}
    names = [f"gpu{k}" for k in range(n)]
    readings = []
    for match, line in found:
        shift = int(match[1])
        try:
            rate = float(match[2]) * rate_unit_Bps(match[3])
        except UnitError as error:
            raise draft.fail(error.what, line=line, remedy=error.remedy) from error
        if not is_rate(rate) or not 0 < shift < n:
            raise draft.fail(
                f"+{shift}: {match[2]} {match[3]} is no rate of a shift among {n} GPUs",
                line=line,
                remedy="check the line",
            )
        if shift not in patterns:
            patterns[shift] = relay(names, shift, SIZE_WHEN_UNKNOWN_BYTES)
        readings.append(
            Reading(
                what=f"mean rate of each flow at shift {shift}",
                value=rate,
                unit="B/s",
                reason="it is a mean over flows that may differ, not bytes over the time of the "
                "last",
                pattern=patterns[shift],
                where=draft.where(line),
            )
        )
    draft.add("mean rates by shift", readings=readings, default=False)
    return draft.done()


def _count(draft: Draft, found: list[tuple[re.Match[str], int]]) -> int:
    """How many GPUs take part."""
    counts: dict[int, int] = {}
    for match, line in found:
        if match[4] is None or not float(match[2]):
            continue
        ratio = float(match[4]) / float(match[2])
        if ratio > _MOST_GPUS or abs(ratio - round(ratio)) > _WHOLE * max(ratio, 1) / 4:
            raise draft.fail(
                f"total {match[4]} over mean {match[2]} is no number of GPUs",
                line=line,
                remedy="check the line",
            )
        counts.setdefault(round(ratio), line)
    if len(counts) > 1:
        raise draft.fail(
            f"lines speak of {' and of '.join(map(str, sorted(counts)[:2]))} GPUs",
            line=max(counts.values()),
            remedy="give the output of one run",
        )
    if counts:
        return next(iter(counts))
    n = max(int(match[1]) for match, _ in found) + 1
    draft.note(f"the number of GPUs is not said: {n}, one more than the largest shift, is taken")
    return n


SHIFT_RATES: Final = Importer(
    name="shift-rates",
    title=TITLE,
    looks_like=looks_like_shift_rates,
    parse=parse_shift_rates,
)
"""The importer that the registry lists."""

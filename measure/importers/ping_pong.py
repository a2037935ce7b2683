"""Lines ``Transfer size (B): …, Transfer Time (s): …, Bandwidth (GB/s): …``.

OLCF's MPI ping-pong tutorial prints them, and the many programs that grew from it.  The time
is of one way (half a round trip); the bandwidth, whose GB are 2**30 bytes, says the same and
is not used.  ``[Average]`` lines count where single iterations stand above them.  A size that
is not larger than the one before begins another pair or another setting, and so does another
number in brackets before the line: a run.

References
----------
cpu/ping_pong.c in olcf-tutorials/MPI_ping_pong.
"""

from __future__ import annotations

import re
from typing import Final

from topocal.measure.importers.figures import alone, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import TELLS_A_RATE, only_start_up
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines

__all__ = ["PING_PONG", "looks_like_ping_pong", "parse_ping_pong"]

TITLE: Final = "MPI ping-pong"

_LINE: Final = re.compile(
    r"(?:\[(?P<rank>[0-9]{1,6})\]\s{1,8})?(?P<average>\[Average\]\s{1,8})?"
    r"(?:Transfer|Msg) size \(B[^)]{0,12}\):\s{0,20}(?P<size>[0-9]{1,15}),"
    r"[\s0-9,]{0,40}Transfer Time \(s\):\s{0,20}(?P<seconds>[0-9.eE+\-]{1,24})"
    r"(?:,\s{1,8}Bandwidth \(GB/s\):\s{0,20}[0-9.eE+\-a-z]{1,24})?(?P<iteration>,\s{0,8}Iteration)?"
)
_ENDS: Final = ("rank0", "rank1")


def looks_like_ping_pong(text: str) -> bool:
    """Whether a text has such a line."""
    return _LINE.search(text) is not None


def parse_ping_pong(text: str, *, file: str) -> Imported:
    """The lines of one text.

    Raises
    ------
    FormatError
        When there is none.
    """
    draft = Draft(kind="ping-pong", title=TITLE, file=file)
    rows = [
        (found, number)
        for number, line in enumerate(plain_lines(text), 1)
        if (found := _LINE.search(line)) is not None
    ]
    averages = [row for row in rows if row[0]["average"]]
    runs: list[list[Sample]] = []
    running: dict[str, tuple[int, list[Sample]]] = {}
    for found, number in averages or rows:
        size, seconds = int(found["size"]), to_number(found["seconds"])
        before, run = running.get(found["rank"] or "", (size, []))
        if not run or size < before or (size == before and found["iteration"] is None):
            run = []
            runs.append(run)
        running[found["rank"] or ""] = (size, run)
        if size and seconds and is_rate(size / seconds):
            where = draft.where(number)
            run.append(alone(*_ENDS, size / seconds, where=where, size_bytes=float(size)))
    runs = [run for run in runs if run]
    for number, samples in enumerate(runs, 1):
        small = only_start_up(samples, TELLS_A_RATE)
        draft.add(
            "one message at a time",
            [] if small else samples,
            readings=small,
            conditions={"run": str(number), "direction": "one way", "statistic": "mean"},
        )
    if runs:
        draft.note("which devices the ranks used is not said: the ends are rank0 and rank1")
    draft.prefer_one_run()
    return draft.done()


PING_PONG: Final = Importer(
    name="ping-pong",
    title=TITLE,
    looks_like=looks_like_ping_pong,
    parse=parse_ping_pong,
)
"""The importer that the registry lists."""

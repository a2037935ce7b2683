"""UCX's ``ucx_perftest``: the results of single tests.

What the figures are (src/tools/perf in openucx/ucx): ``overall`` bandwidth is all bytes over
all time, its MB 2**20 bytes, at the client; bytes go from the client to the server but for
``get``.  Tests of latency are of half a round trip.  Lines before ``Final`` are interim.
``Message size`` stands in the server's box, or after ``-s`` in the command.  The ends are
``client`` and ``server``, or the devices that ``CUDA_VISIBLE_DEVICES`` (``HIP_``, ``ROCR_``)
of both commands names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topocal.measure.importers.figures import alone, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported, Latency, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import TELLS_A_RATE
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines

__all__ = ["UCX", "looks_like_ucx", "parse_ucx"]

TITLE: Final = "ucx_perftest"

_HEADER: Final = re.compile(
    r"(overhead|latency) \(usec\)\s{1,40}bandwidth \(MB/s\)\s{1,40}message rate \(msg/s\)"
)
_RESULT: Final = re.compile(
    r"\s{0,20}(Final:|\[thread [0-9]{1,3}\])?\s{0,60}[0-9]{1,12}((?:\s{1,30}[0-9.]{1,20}){7})\s*"
)
_SIZE: Final = re.compile(r"Message size:\s{0,4}([0-9]{1,15})\b")
_NAME: Final = re.compile(
    r"(?:Test:\s{1,12}([\w ,/\-]{2,60}?)\s*$|={8,}\s(\w{2,40})\s={8,}|\s-t\s{0,4}(\w{2,40}))"
)
_COMMAND: Final = re.compile(r"ucx_perftest(?P<arguments>[^&;|\n]{0,400})")
_VISIBLE: Final = re.compile(r"(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=([0-9]{1,3})\b")
_COMMANDED: Final = re.compile(r"\s-s\s{0,4}(?:\$\(\()?([0-9]{1,15}(?:\*[0-9]{1,15}){0,4})")
_VALUED: Final = re.compile(r"\s-[a-zA-Z]\s{1,4}(?!-)(?:\$\(\([^)]{0,60}\)\)|\S{1,80})")
_MiB: Final = 2.0**20
_US: Final = 1e-6
_AVERAGE: Final = 1
_OVERALL: Final = 4
"""Places of the average time and of the overall bandwidth behind the number of iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """One result, and what was said of it."""

    name: str
    size: float | None
    seconds: float
    rate_Bps: float
    line: int

    @property
    def size_bytes(self) -> float:
        """Bytes of a message; where they are not said, of the rate over the time of one."""
        return self.size or float(round(self.rate_Bps * self.seconds))


def looks_like_ucx(text: str) -> bool:
    """Whether a text has the tool's header."""
    return "bandwidth (MB/s)" in text and any(map(_HEADER.search, plain_lines(text)))


def parse_ucx(text: str, *, file: str) -> Imported:
    """The tests of one text.

    Raises
    ------
    FormatError
        When there is none.
    """
    draft = Draft(kind="ucx", title=TITLE, file=file)
    lines = plain_lines(text)
    client, server = _ends(lines)
    groups: dict[str, list[Sample]] = {}
    latencies: list[Latency] = []
    readings: list[Reading] = []
    for test in _tests(draft, lines):
        a, b = (server, client) if "get" in test.name else (client, server)
        where = draft.where(test.line)
        if "lat" in test.name and "bandwidth" not in test.name:
            latencies.append(Latency(source=a, destination=b, seconds=test.seconds, where=where))
        elif not is_rate(test.rate_Bps):
            continue
        elif 0 < test.size_bytes < TELLS_A_RATE:
            readings.append(
                Reading(
                    what=f"{test.name}, messages of {test.size_bytes:g} bytes",
                    value=test.rate_Bps,
                    unit="B/s",
                    reason="its messages are so small that they tell how long one takes to start, "
                    "and no rate",
                    where=where,
                )
            )
        else:
            size = test.size_bytes or None
            groups.setdefault(test.name, []).append(
                alone(a, b, test.rate_Bps, where=where, size_bytes=size)
            )
    for name, samples in groups.items():
        draft.add(name, samples, conditions={"direction": "one way", "test": name})
    if len(groups) > 1:
        first = next(iter(groups))
        draft.leave_out(lambda group: group.label in groups and group.label != first)
        draft.note(f"tests differ: {first} is used; name another to use that")
    draft.add("latencies", latencies=latencies, default=False)
    draft.add("small messages", readings=readings, default=False)
    return draft.done()


def _tests(draft: Draft, lines: Sequence[str]) -> Iterator[_Test]:
    """The results, with the test and the size that stand before them."""
    name, size, latency = "", None, False
    interim: _Test | None = None
    for number, line in enumerate(lines, 1):
        command = _COMMAND.search(line)
        if command is not None and (said := _COMMANDED.search(command["arguments"])) is not None:
            size = math.prod(float(factor) for factor in said[1].split("*"))
        if (said := _SIZE.search(line)) is not None:
            size = float(said[1])
        elif (said := _NAME.search(line)) is not None:
            name = next(word for word in said.groups() if word)
        elif (said := _HEADER.search(line)) is not None:
            latency = said[1] == "latency"
        row = _RESULT.fullmatch(line)
        values = [v for word in row[2].split() if (v := to_number(word)) is not None] if row else []
        if row is None or len(values) <= _OVERALL:
            continue
        interim = _Test(
            name=name or ("latency" if latency and size is None else "bandwidth"),
            size=size,
            seconds=values[_AVERAGE] * _US,
            rate_Bps=values[_OVERALL] * _MiB,
            line=number,
        )
        if row[1] is None or row[1].startswith("Final"):
            yield interim
            interim = None
    if interim is not None:
        draft.note("the last test has no final line: its last interim figure is used")
        yield interim


def _ends(lines: Sequence[str]) -> tuple[str, str]:
    """Client and server, by the devices that their commands see."""
    client, server = "client", "server"
    for line in lines:
        seen = 0
        for command in _COMMAND.finditer(line):
            visible = _VISIBLE.findall(line, seen, command.start())
            seen = command.end()
            if not visible:
                continue
            arguments = _VALUED.sub(" ", command["arguments"]).split()
            if any(not word.startswith("-") for word in arguments):
                client = f"gpu{int(visible[-1])}"
            else:
                server = f"gpu{int(visible[-1])}"
    named = client.startswith("gpu") and server.startswith("gpu") and client != server
    return (client, server) if named else ("client", "server")


UCX: Final = Importer(name="ucx", title=TITLE, looks_like=looks_like_ucx, parse=parse_ucx)
"""The importer that the registry lists."""

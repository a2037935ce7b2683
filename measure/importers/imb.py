"""Intel MPI benchmarks: PingPong, PingPing, Sendrecv, Uniband, Biband.

What the figures are (Intel MPI Benchmarks user guide, "MPI-1 benchmarks"): ``t[usec]`` of
PingPong is half of a round trip, of PingPing the time of a message while another comes the
other way.  In Sendrecv each rank sends to the next and receives from the one before, and
``t_max`` is the slowest.  Uniband and Biband keep a window of messages under way from the
first half of the ranks to the second, or both ways, and print the total.  Times are taken
where there are any: ``Mbytes/sec`` was 2**20 bytes before 2018 and is 10**6 since.  Other
benchmarks are readings.  Ends are ``rank0`` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import in_order, to_number
from topocal.measure.importers.imported import Draft, Imported, Latency, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import only_start_up, sweep_samples
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import format_bytes

__all__ = ["IMB", "looks_like_imb", "parse_imb"]

TITLE: Final = "Intel MPI benchmarks"

_TITLE: Final = re.compile(r"#\s{0,4}Benchmarking\s{1,4}([A-Za-z_]{2,40})")
_PROCESSES: Final = re.compile(r"#\s{0,4}#processes\s{0,4}=\s{0,4}([0-9]{1,7})")
_HEADER: Final = re.compile(r"#bytes\s{1,20}#repetitions(.{0,200})")
_MOST_RANKS: Final = 64
_MB: Final = 1e6
_US: Final = 1e-6
_KINDS: Final = frozenset({"PingPong", "PingPing", "Sendrecv", "Uniband", "Biband"})
_PREFIX: Final = re.compile(r"^[>\s]{0,20}(?:\[[0-9]{1,4}(?:,[0-9]{1,4})?\](?:<\w{1,10}>:?)?)?")


@dataclass(slots=True)
class _Section:
    name: str
    processes: int = 2
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, dict[str, float], int]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The benchmark's name without the suffix of its variant; nothing if it is no pattern."""
        stem = re.sub(r"(?:Specific(?:Source)?|AnySource)$", "", self.name)
        return stem if stem in _KINDS else ""


def looks_like_imb(text: str) -> bool:
    """Whether a text has a section of one of the benchmarks."""
    return _TITLE.search(text) is not None and _HEADER.search(text) is not None


def parse_imb(text: str, *, file: str) -> Imported:
    """The sections of one text.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="imb", title=TITLE, file=file)
    readings: list[Reading] = []
    windows = {s.kind for s in _sections(plain_lines(text))} & {"Uniband", "Biband"}
    for section in _sections(plain_lines(text)):
        pairs = _pairs(section)
        if not pairs:
            readings += [
                Reading(
                    what=f"{section.name} at {format_bytes(size)}",
                    value=_seconds(found) or 0.0,
                    unit="s",
                    reason="which bytes go where is the library's choice or not in the text",
                    where=draft.where(line),
                )
                for size, found, line in section.rows
                if _seconds(found)
            ]
            continue
        samples, latencies = _figures(draft, section, pairs)
        small = only_start_up(samples)
        one_at_a_time = section.kind in ("PingPong", "PingPing")
        draft.add(
            f"{section.name}, {section.processes} ranks",
            [] if small else samples,
            conditions={"direction": _way(section, pairs), "statistic": "mean"},
            latencies=latencies,
            readings=small,
            default=not (one_at_a_time and windows),
        )
    draft.add("no patterns", readings=readings, default=False)
    return draft.done()


def _sections(lines: Sequence[str]) -> list[_Section]:
    found: list[_Section] = []
    for number, line in enumerate(lines, 1):
        if (title := _TITLE.search(line)) is not None:
            found.append(_Section(title[1]))
        elif not found:
            continue
        elif (processes := _PROCESSES.search(line)) is not None:
            found[-1].processes = int(processes[1])
        elif (header := _HEADER.search(line)) is not None:
            found[-1].columns = header[1].split()
        else:
            words = _PREFIX.sub("", line).split()
            columns = found[-1].columns
            if len(words) != len(columns) + 2 or not words[0].isdecimal() or len(words[0]) > 15:
                continue
            values = {
                name: value
                for name, word in zip(columns, words[2:], strict=True)
                if (value := to_number(word)) is not None
            }
            found[-1].rows.append((int(words[0]), values, number))
    return found


def _pairs(section: _Section) -> list[tuple[str, str]]:
    n = section.processes
    if not section.kind or not 2 <= n <= _MOST_RANKS:
        return []
    if section.kind == "PingPong":
        return [("rank0", "rank1")]
    if section.kind == "PingPing":
        return in_order("rank0", "rank1")
    if section.kind == "Sendrecv":
        return [(f"rank{k}", f"rank{(k + 1) % n}") for k in range(n)]
    if n % 2:
        return []
    halves = [(f"rank{k}", f"rank{k + n // 2}") for k in range(n // 2)]
    if section.kind == "Uniband":
        return halves
    return [pair for a, b in halves for pair in ((a, b), (b, a))]


def _way(section: _Section, pairs: Sequence[tuple[str, str]]) -> str:
    if len(pairs) == 1:
        return "one way"
    return "both ways" if section.processes == 2 else "several at once"


def _seconds(found: dict[str, float]) -> float | None:
    """The slowest rank's time, else the only one."""
    for name in ("t_max[usec]", "t[usec]", "t_avg[usec]"):
        if found.get(name, 0.0) > 0:
            return found[name] * _US
    return None


def _figures(
    draft: Draft, section: _Section, pairs: Sequence[tuple[str, str]]
) -> tuple[list[Sample], list[Latency]]:
    figures: list[tuple[int, float, int]] = []
    latencies = []
    for size, found, line in section.rows:
        seconds = _seconds(found)
        if size == 0 and seconds and len(pairs) == 1:
            latencies.append(
                Latency(
                    source=pairs[0][0],
                    destination=pairs[0][1],
                    seconds=seconds,
                    where=draft.where(line),
                )
            )
        elif size > 0 and seconds:
            figures.append((size, len(pairs) * size / seconds, line))
        elif size > 0 and found.get("Mbytes/sec", 0.0) > 0:
            figures.append((size, found["Mbytes/sec"] * _MB, line))
    return sweep_samples(draft, pairs, figures), latencies


IMB: Final = Importer(
    name="imb",
    title=TITLE,
    looks_like=looks_like_imb,
    parse=parse_imb,
)
"""The importer that the registry lists."""

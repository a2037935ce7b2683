"""perftest: ``ib_write_bw``, ``ib_read_bw``, ``ib_send_bw`` and their latency tests.

What the figures are (src/perftest_resources.c in linux-rdma/perftest): ``BW average`` is
bytes over time; of a bidirectional test the sum of both directions.  ``MB/sec`` there are
2**20 bytes, ``Gb/sec`` 10**9 bits.  ``BW peak`` is of two messages only, and 0 with ``-D``.
Writes and sends move bytes from the client to the server, reads the other way.
``t_typical`` of a latency test is one way.

The ends are ``client`` and ``server``, with the local device's name where one text has
tests of several.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import in_order, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import only_start_up, sweep_samples
from topocal.topo.readers.paste import plain_lines

__all__ = ["PERFTEST", "looks_like_perftest", "parse_perftest"]

TITLE: Final = "perftest"

_TITLE: Final = re.compile(
    r"(RDMA_Write|RDMA_Read|Send|Write|Read|Atomic|Raw Ethernet)(?: (Post List|Infinitely))?"
    r"( Bidirectional)?(?: (Post List|Infinitely))? (BW|Latency) Test"
)
_DEVICE: Final = re.compile(r"Device\s{0,12}:\s{0,4}([\w.\-]{1,40})")
_HEADER: Final = re.compile(
    r"#bytes\s{1,20}#iterations\s{1,20}(?:BW peak\[(M|G)(i?)(B|b)/sec\]|t_min\[usec\])"
)
_ROW: Final = re.compile(
    r"(?:.{0,120}?\s)??\s{0,20}([0-9]{1,12})((?:\s{1,40}[0-9.]{1,20}){3,10})\s*"
)
_UNITS: Final = {
    ("M", "", "B"): 2.0**20,
    ("M", "i", "B"): 2.0**20,
    ("G", "", "b"): 1e9 / 8,
    ("G", "", "B"): 1e9,
    ("G", "i", "B"): 2.0**30,
    ("M", "", "b"): 1e6 / 8,
}
_AVERAGE: Final = 2
"""Place of ``BW average``, and of ``t_max``, behind the size."""

_TYPICAL: Final = 3
_US: Final = 1e-6


@dataclass(slots=True)
class _Section:
    verb: str = "Write"
    both: bool = False
    latency: bool = False
    device: str = ""
    unit_Bps: float = 0.0
    rows: list[tuple[int, list[float], int]] = field(default_factory=list)


def looks_like_perftest(text: str) -> bool:
    """Whether a text has the header of one of the tests."""
    return _HEADER.search(text) is not None


def parse_perftest(text: str, *, file: str) -> Imported:
    """The tests of one text.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="perftest", title=TITLE, file=file)
    sections = [s for s in _sections(plain_lines(text)) if s.rows]
    several = len({s.device for s in sections}) > 1
    seen: dict[tuple[str, str], int] = {}
    for section in sections:
        suffix = f"-{section.device}" if several and section.device else ""
        a, b = f"client{suffix}", f"server{suffix}"
        if section.verb.endswith("Read"):
            a, b = b, a
        if section.device:
            draft.devices.setdefault(f"client{suffix}", {"model": section.device})
        pairs = in_order(a, b) if section.both else [(a, b)]
        way = "both ways" if section.both else "one way"
        label = f"{section.verb.removeprefix('RDMA_').lower()}, {way}" + (
            ", one message at a time" if section.latency else ""
        )
        label += f", {section.device}" if several and section.device else ""
        key = (suffix, label)
        seen[key] = seen.get(key, 0) + 1
        samples = sweep_samples(draft, pairs, _figures(section))
        small = only_start_up(samples)
        draft.add(
            label,
            [] if small else samples,
            readings=small,
            conditions={
                "direction": way,
                "operation": "read" if section.verb.endswith("Read") else "write",
                "statistic": "mean",
            },
            default=not section.latency or all(s.latency for s in sections),
        )
    if several:
        draft.note(
            "whether the tests of different devices ran at the same time is not said: each is "
            "taken to have run alone"
        )
    return draft.done()


def _sections(lines: list[str]) -> list[_Section]:
    found = [_Section()]
    for number, line in enumerate(lines, 1):
        if (title := _TITLE.search(line)) is not None:
            found.append(
                _Section(title[1], title[3] is not None, title[5] == "Latency", found[0].device)
            )
        elif (header := _HEADER.search(line)) is not None:
            if found[-1].rows:
                found.append(_Section(found[-1].verb, found[-1].both, device=found[-1].device))
            section = found[-1]
            section.latency = header[1] is None
            if header[1] is not None:
                section.unit_Bps = _UNITS.get((header[1], header[2], header[3]), 0.0)
        elif "Device" in line and (device := _DEVICE.search(line)) is not None:
            found[-1].device = device[1]
        elif (found[-1].unit_Bps or found[-1].latency) and (row := _ROW.fullmatch(line)):
            values = [v for word in row[2].split() if (v := to_number(word)) is not None]
            if len(values) >= _AVERAGE + 1:
                found[-1].rows.append((int(row[1]), values, number))
    return found


def _figures(section: _Section) -> list[tuple[int, float, int]]:
    """Size, total rate and line of each row."""
    figures = []
    for size, values, line in section.rows:
        if section.latency:
            place = min(_TYPICAL, len(values) - 1)
            rate = size / (values[place] * _US) if values[place] > 0 else 0.0
        else:
            rate = values[_AVERAGE] * section.unit_Bps
        if size > 0 and is_rate(rate):
            figures.append((size, rate, line))
    return figures


PERFTEST: Final = Importer(
    name="perftest",
    title=TITLE,
    looks_like=looks_like_perftest,
    parse=parse_perftest,
)
"""The importer that the registry lists."""

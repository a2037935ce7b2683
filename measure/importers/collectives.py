"""Tables of collectives by size, as tools other than nccl-tests print them.

Ascend's ``hccl_test``, Neuron's ``nccom-test``, oneCCL's ``benchmark``, DeepSpeed's communication
benchmarks and scripts such as ``all_reduce_bench.py``: columns of a size, a time, the algorithm's
bandwidth (bytes of one rank over the time) or the bus bandwidth, whatever they are called and
however they are ruled.  Which bytes go where is the library's choice, so that all of it is
readings.  The bus bandwidth is kept where it is printed; of other tables the algorithm's, which
oneCCL leaves to the reader: bytes over the average time.

A table belongs to the collective that the lines above it name: the command, a heading.

References
----------
``alg_bandwidth`` of hccl_test is bytes of one NPU over the time, in 10**9 (its documentation,
*Result Description*).  DeepSpeed and the scripts write 2**10 bytes as KB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.topo.errors import UnitError
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import format_bytes, rate_unit_Bps

__all__ = ["COLLECTIVES", "looks_like_collectives", "parse_collectives"]

TITLE: Final = "a table of collectives"

_COLUMNS: Final = {
    "size": re.compile(r"data_?size|#?bytes|size|payload|(?:msg|message)[ _]size", re.I),
    "time": re.compile(r"a?ve?g?_?time|aveg_time|t_avg|time|duration|(?:avg[ _])?latency", re.I),
    "algorithm": re.compile(r"alg(?:o|orithm)?[ _]?(?:bw|bandwidth)|throughput", re.I),
    "bus": re.compile(r"bus[ _]?(?:bw|bandwidth)", re.I),
    "check": re.compile(r"check_result", re.I),
    "repeats": re.compile(r"#?repetitions", re.I),
}
_UNIT: Final = re.compile(r"\s{0,4}[(\[]\s{0,4}([A-Za-z/μµ#%]{1,12})\s{0,4}[)\]]\s{0,4}$")
_SPLIT: Final = re.compile(r"\s{0,40}\|\s{0,40}|\s{2,80}")
_CELL: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?(?:e[+-]?[0-9]{1,3})?)\s{0,4}(\S{0,8})")
_NAMES: Final = (
    "all_?reduce|all_?gatherv?|all_?to_?allv?c?|broadcast|bcast|reduce_?scatterv?|send_?recv"
    "|gather|scatter|reduce"
)
_NAMED: Final = re.compile(
    rf"(?<![\w.-])(?:benchmarking:\s{{0,4}})?({_NAMES})(?:_test|_perf|_bench)?(?![\w/-])", re.I
)
_NEURON: Final = re.compile(r"\bnccom-test\b.{0,300}?\s(allr|allg|redsct|alltoall|permute)\b")
_NEURON_NAMES: Final = {"allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter"}
_PLAIN: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "sendrecv": "sendrecv",
    "bcast": "broadcast",
}
_BYTES: Final = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}
_SECONDS: Final = {"us": 1e-6, "usec": 1e-6, "μs": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_LONGEST: Final = 400
_REASON: Final = "which bytes go where is the library's choice and not in the output"


@dataclass(frozen=True, slots=True)
class _Header:
    """Columns of a table: their place and unit by what they are."""

    width: int
    place: Mapping[str, int]
    unit: Mapping[str, str]


@dataclass(slots=True)
class _Table:
    """Readings of one table, and what its collective is called."""

    test: str
    readings: list[Reading] = field(default_factory=list)
    wrong: int = 0


def looks_like_collectives(text: str) -> bool:
    """Whether a line is the head of such a table."""
    return any(_header(line) is not None for line in plain_lines(text))


def parse_collectives(text: str, *, file: str) -> Imported:
    """The tables of one text.

    Raises
    ------
    FormatError
        When there is none.
    """
    draft = Draft(kind="collectives", title=TITLE, file=file)
    tables: list[_Table] = []
    header: _Header | None = None
    said = ""
    for number, line in enumerate(plain_lines(text), 1):
        if (found := _header(line)) is not None:
            header = found
            tables.append(_Table(said or (tables[-1].test if tables else "")))
            said = ""
        elif header is None or not _take(draft, tables[-1], header, line, number):
            said = _said(line) or said
    for table in tables:
        if table.wrong:
            draft.note(f"{table.wrong} rows are of results that were wrong: they are left out")
        name = table.test or "a collective that is not named"
        conditions = {"test": name, "direction": "several at once"}
        draft.add(name, readings=table.readings, conditions=conditions, default=False)
    return draft.done()


def _said(line: str) -> str:
    """The collective that a line above a table is about, where it is one."""
    if len(line) > _LONGEST:
        return ""
    if neuron := _NEURON.search(line):
        return _NEURON_NAMES.get(neuron[1], neuron[1])
    found = {m[1].lower().replace("_", "") for m in _NAMED.finditer(line)}
    plain = found.pop() if len(found) == 1 else ""
    return _PLAIN.get(plain, plain)


def _header(line: str) -> _Header | None:
    """The columns, where a line names a size and what a collective reached."""
    if len(line) > _LONGEST or not re.search(r"bandwidth|bus|alg|t_avg", line, re.I):
        return None
    cells = _cells(line)
    place: dict[str, int] = {}
    unit: dict[str, str] = {}
    for k, cell in enumerate(cells):
        name = cell.rstrip(": ")
        bracket = _UNIT.search(name)
        name = name[: bracket.start()] if bracket else name
        for what, pattern in _COLUMNS.items():
            if what not in place and pattern.fullmatch(name.strip()):
                place[what] = k
                unit[what] = bracket[1] if bracket else ""
    told = place.keys() & {"algorithm", "bus"} or {"time", "repeats"} <= place.keys()
    # "throughput" alone is a column of many tables.
    plain = {cells[k].lower() for k in place.values()} if place else set()
    if "size" not in place or not told or ("bus" not in place and "throughput" in str(plain)):
        return None
    return _Header(len(cells), place, unit)


def _cells(line: str) -> list[str]:
    return _SPLIT.split(line.strip().strip("|").strip())


def _take(draft: Draft, table: _Table, header: _Header, line: str, number: int) -> bool:
    """Add the figure of a row, if the line is one."""
    cells = _cells(line)
    if len(cells) != header.width:
        cells = line.split()
    if len(cells) != header.width:
        return False
    size = _value(cells[header.place["size"]], _BYTES)
    if size is None:
        return False
    if cells[header.place["check"]].lower() == "failed" if "check" in header.place else False:
        table.wrong += 1
        return True
    rate, what = _rate(header, cells, size)
    if rate is None or size <= 0 or not is_rate(rate):
        return True
    table.readings.append(
        Reading(
            what=f"{table.test or 'a collective'} {what} bandwidth at {format_bytes(size)}",
            value=rate,
            unit="B/s",
            reason=_REASON,
            where=draft.where(number),
        )
    )
    return True


def _rate(header: _Header, cells: Sequence[str], size: float) -> tuple[float | None, str]:
    """Bytes per second of a row, and whose they are."""
    for what in ("bus", "algorithm"):
        if what not in header.place:
            continue
        found = _CELL.fullmatch(cells[header.place[what]].strip())
        value = to_number(found[1]) if found else None
        unit = (found[2] if found else "") or header.unit[what]
        try:
            return (None if value is None else value * rate_unit_Bps(unit or "GB/s")), what
        except UnitError:
            return None, what
    seconds = _value(cells[header.place["time"]], _SECONDS, header.unit["time"])
    return (size / seconds if seconds else None), "algorithm"


def _value(cell: str, units: Mapping[str, float], unit: str = "") -> float | None:
    found = _CELL.fullmatch(cell.strip())
    value = to_number(found[1]) if found else None
    factor = units.get((found[2] if found and found[2] else unit).lower())
    return None if value is None or factor is None else value * factor


COLLECTIVES: Final = Importer(
    name="collectives",
    title=TITLE,
    looks_like=looks_like_collectives,
    parse=parse_collectives,
)
"""The importer that the registry lists."""

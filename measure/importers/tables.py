"""Pair and fan tables as CSV with a header.

Two kinds, told apart by their columns, in any order and mix:

pairs
    ``source,destination,bandwidth_GBps``: one flow alone.
patterns
    ``pattern,throughput_GBps`` in the notation of :mod:`topocal.measure.patterns`
    (quote it where it holds a comma), or ``direction,root,peers,throughput_GBps``
    with ``in`` or ``out`` and the peers separated by blanks.  The throughput is
    the total: bytes of all flows over the time until the last one is done.

The unit in the rate's column name may be any that
:func:`topocal.topo.units.rate_unit_Bps` knows.  An optional column ``size`` says
at which size per flow ("256MiB") it was measured.  Lines that begin with ``#``
and empty lines are passed over.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from topocal.measure.patterns import fan_in, fan_out, parse_pattern, peer
from topocal.measure.samples import Measurements, Sample
from topocal.topo.columns import close_name
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import FormatError, InputError, TopocalError, UnitError, Where, one_line
from topocal.topo.flow import Pattern
from topocal.topo.readers.reader import read_text
from topocal.topo.units import parse_bytes, rate_unit_Bps

__all__ = ["SIZE_WHEN_UNKNOWN_BYTES", "parse_table", "read_tables"]

SIZE_WHEN_UNKNOWN_BYTES: Final = 2.0**28
"""Size that a rate without a size is booked at, 256 MiB per flow; only the ratio counts."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_RESERVED: Final = re.compile(r"[\s,+]|->|<-")
"""What the notation of patterns needs for itself."""

_RATE_COLUMN: Final = re.compile(r"(bandwidth|throughput)_([A-Za-z/]+)")
_PAIR_COLUMNS: Final = ("source", "destination")
_FAN_COLUMNS: Final = ("direction", "root", "peers")
_REMEDY: Final = (
    "begin with source,destination,bandwidth_GBps or direction,root,peers,throughput_GBps"
)


def read_tables(paths: Sequence[str | Path]) -> Measurements:
    """The samples of several files together.

    Raises
    ------
    InputError
        When a file cannot be read, is of another kind, or a row is wrong; also when two
        files are the same.
    """
    samples: list[Sample] = []
    for path in paths:
        samples += parse_table(read_text(path), file=str(path))
    return Measurements.of(samples, [str(p) for p in paths])


def parse_table(text: str, *, file: str) -> list[Sample]:
    """The samples of one table, in its order.

    Raises
    ------
    FormatError
        When it is no such table, or a row is cut or names no pattern.
    InputError
        When a rate is not a finite number above zero.
    """
    lines = text.split("\n")
    numbered = [
        (k, line)
        for k, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        raise FormatError("has no header", where=Where(file=file), remedy=_REMEDY)
    header_at, header_line = numbered[0]
    columns = [c.strip() for c in _cells(header_line, Where(file=file, line=header_at))]
    table = _Header(columns, Where(file=file, line=header_at))
    if len(numbered) == 1:
        raise FormatError("has a header but no rows", where=Where(file=file), remedy="add rows")
    samples: list[Sample] = []
    for number, line in numbered[1:]:
        where = Where(file=file, line=number)
        cells = [c.strip() for c in _cells(line, where)]
        if len(cells) != len(columns):
            raise FormatError(
                f"has {len(cells)} cells where the header has {len(columns)}",
                where=where,
                remedy="give every column a cell; quote a cell that holds a comma",
            )
        samples.append(table.sample(dict(zip(columns, cells, strict=True)), where))
    _reject_repeats(samples)
    return samples


def _cells(line: str, where: Where) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line), strict=True))
    except (csv.Error, StopIteration) as error:
        raise FormatError(
            f"is not CSV: {one_line(error)}", where=where, remedy="check the quotes"
        ) from error


class _Header:
    """The columns of a table, and how a row of them becomes a sample."""

    def __init__(self, columns: list[str], where: Where) -> None:
        repeated = {c for c in columns if columns.count(c) > 1}
        if repeated:
            raise FormatError(
                f"names the column {one_line(min(repeated))!r} twice", where=where, remedy=_REMEDY
            )
        rates = [c for c in columns if _RATE_COLUMN.fullmatch(c)]
        needed: tuple[str, ...]
        if "pattern" in columns:
            needed, self._kind = ("pattern",), "pattern"
        elif any(c in columns for c in _FAN_COLUMNS):
            needed, self._kind = _FAN_COLUMNS, "fan"
        elif any(c in columns for c in _PAIR_COLUMNS) or rates:
            needed, self._kind = _PAIR_COLUMNS, "pair"
        else:
            raise FormatError(
                f"is not a table of pairs or patterns (begins {one_line(','.join(columns))!r})",
                where=where,
                remedy=_REMEDY,
            )
        missing = [c for c in needed if c not in columns]
        if missing:
            raise FormatError(
                f"has no column {' or '.join(map(repr, missing))}", where=where, remedy=_REMEDY
            )
        if len(rates) != 1:
            quantity = "bandwidth_GBps" if self._kind == "pair" else "throughput_GBps"
            raise FormatError(
                "has no column with a rate" if not rates else "has several columns with a rate",
                where=where,
                remedy=f"name one column {quantity}",
            )
        unknown = [c for c in columns if c not in (*needed, rates[0], "size")]
        if unknown:
            close = close_name(unknown[0], (*needed, "size"))
            raise FormatError(
                f"has an unknown column {one_line(unknown[0])!r}",
                where=where,
                remedy=f"did you mean {close}?" if close else "remove it, or put # before notes",
            )
        self._rate = rates[0]
        match = _RATE_COLUMN.fullmatch(rates[0])
        assert match is not None
        try:
            self._unit_Bps = rate_unit_Bps(match[2])
        except UnitError as error:
            raise UnitError(error.what, where=where, remedy=error.remedy) from error

    def sample(self, row: dict[str, str], where: Where) -> Sample:
        """The sample of one row."""
        rate_Bps = self._positive(row[self._rate], where) * self._unit_Bps
        size = row.get("size", "")
        try:
            size_bytes = parse_bytes(size) if size else SIZE_WHEN_UNKNOWN_BYTES
            if not size_bytes > 0:
                raise UnitError("a size of zero", remedy="give the size of one flow")
            pattern = self._pattern(row, size_bytes, where)
        except TopocalError as error:
            if error.where is not None:
                raise
            raise type(error)(error.what, where=where, remedy=error.remedy) from error
        seconds = pattern.total_bytes / rate_Bps
        if not (math.isfinite(seconds) and seconds > 0):
            raise InputError(
                f"{self._rate} {one_line(row[self._rate])!r} is no usable rate",
                where=where,
                remedy="check its unit",
            )
        return Sample(pattern=pattern, seconds=seconds, size_known=bool(size), where=where)

    def _positive(self, text: str, where: Where) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not (math.isfinite(value) and value > 0):
            raise InputError(
                f"{self._rate} is {one_line(text)!r}",
                where=where,
                remedy="give a finite number above zero",
            )
        return value

    def _pattern(self, row: dict[str, str], size_bytes: float, where: Where) -> Pattern:
        names = {k: row[k] for k in ("source", "destination", "root") if k in row}
        for column, name in names.items():
            if not name:
                raise FormatError(f"{column} is empty", where=where, remedy="name an endpoint")
            if _RESERVED.search(name) or not name.isprintable():
                raise FormatError(
                    f"{column} is {one_line(name)!r}",
                    where=where,
                    remedy="use a name without blanks, commas, +, ->, <- or control characters",
                )
        if self._kind == "pattern":
            return parse_pattern(row["pattern"], size_bytes, where=where)
        if self._kind == "pair":
            return peer(
                canonical_endpoint(row["source"]),
                canonical_endpoint(row["destination"]),
                size_bytes,
            )
        directions = {"in": fan_in, "out": fan_out}
        if row["direction"].lower() not in directions:
            raise FormatError(
                f"direction is {one_line(row['direction'])!r}", where=where, remedy="say in or out"
            )
        peers = [canonical_endpoint(p) for p in re.split(r"[\s;,]+", row["peers"]) if p]
        return directions[row["direction"].lower()](
            canonical_endpoint(row["root"]), peers, size_bytes
        )


def _reject_repeats(samples: Sequence[Sample]) -> None:
    """A table has one figure per pattern and size; two are a slip or two runs."""
    seen: dict[tuple[frozenset[tuple[str, str]], float], Sample] = {}
    for sample in samples:
        key = (frozenset(sample.pattern.pairs), sample.pattern.total_bytes)
        if key in seen and sample.seconds != seen[key].seconds:
            raise InputError(
                f"{one_line(sample.name)} stands twice with different figures "
                f"(also at {seen[key].where})",
                where=sample.where,
                remedy="keep one, or put the runs in separate files",
            )
        seen.setdefault(key, sample)

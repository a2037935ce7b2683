"""Tables of rates with a header, whatever their columns are called.

The project's own two tables (:mod:`topocal.measure.importers.tables`) are read strictly;
others by what their columns mean (:mod:`topocal.measure.importers.table_columns`):

* One flow, or several at once (``0>4;1>5``, ``0->4 + 1->5``): a rate is the bytes of all
  flows over the time until the last one is done.
* *Both ways* is the sum of both directions; where rows name a direction (``H2D``, ``D2H``)
  it is the rate of that direction while the other runs as well, so that the two rows of a
  machine are one pattern.
* ``25-26`` is a range: its middle is taken, and the notes say so.
* Host memory (``host``, ``cpu``) is ``cpu0``; where only a direction is named, the GPU is
  called ``gpu``, since it is not said which.
* Bus bandwidths of collectives and figures of "all GPUs" without their flows are readings.

Rows of different conditions (``kind``, ``p2p`` …) make groups.  Rows of different machines
are never mixed: a fit uses the one with the most figures.  Where the same flows stand
several times with different figures under names that begin with different words
(``3root …``, ``4root …``), the first word of the name is the set-up it was measured in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from topocal.measure.importers.figures import (
    at_once,
    in_order,
    is_rate,
    moved,
    to_number,
    written_number,
)
from topocal.measure.importers.imported import Draft, Group, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.table_columns import (
    IDENTITIES,
    Columns,
    RateColumn,
    classify,
    once_each,
)
from topocal.measure.importers.table_forms import ambiguous_unit, tidy_table
from topocal.measure.importers.table_rows import (
    NOTHING,
    RANGE,
    REMEDY,
    delimiter_of,
    rows_by_column,
)
from topocal.measure.importers.tables import parse_table
from topocal.measure.patterns import parse_pattern
from topocal.measure.samples import Sample
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import FlowError, FormatError, UnitError, Where, one_line
from topocal.topo.units import parse_bytes

__all__ = ["RATE_TABLE", "looks_like_rate_table", "parse_rate_table"]

TITLE: Final = "a table of rates"

_OWN: Final = (
    {"source", "destination"},
    {"pattern"},
    {"direction", "root", "peers"},
)
_OWN_RATE: Final = re.compile(r"(?:bandwidth|throughput)_[A-Za-z/]{3,8}")
_FLOW: Final = re.compile(r"\s{0,8}([^\s<>;]{1,40}?)\s{0,8}-?>\s{0,8}([^\s<>;]{1,40})\s{0,8}")
_PAIR: Final = re.compile(
    r"\s{0,8}([^\s<>;]{1,40}?)\s{0,4}(?:->|<->|[-:/,>])\s{0,4}([^\s<>;]{1,40})"
)
_HOSTS: Final = frozenset({"host", "cpu", "mem", "memory", "ram", "sysmem"})
_HOST: Final = "cpu0"
_SOME_GPU: Final = "gpu"
_DIRECTIONS: Final = {"h2d": (_HOST, _SOME_GPU), "d2h": (_SOME_GPU, _HOST)}
_MOST_FLOWS: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class _Figure:
    """One cell: a sample or a reading, and its conditions."""

    conditions: dict[str, str]
    sample: Sample | None
    reading: Reading | None
    name: str


def looks_like_rate_table(text: str) -> bool:
    """Whether a header names ends and a rate, or a size and a time, first or in a table below."""
    if _begins_with_header(text):
        return True
    tidied = tidy_table(text)
    return tidied is not None and (_begins_with_header(tidied) or bool(ambiguous_unit(text)))


def _begins_with_header(text: str) -> bool:
    for line in text[:200_000].split("\n")[:200]:
        if line.strip() and not line.lstrip().startswith("#"):
            delimiter = delimiter_of(line)
            if not delimiter or len(line) > 20_000:
                return False
            found = classify([c.strip().strip('"') for c in line.split(delimiter)])
            return found.has_figures and found.has_ends
    return False


def parse_rate_table(text: str, *, file: str) -> Imported:
    """The rows of one table.

    Raises
    ------
    FormatError
        When it is no such table, or a row is cut or names nothing that can be moved.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="rate-table", title=TITLE, file=file)
    if text.lstrip().startswith("|") or not _begins_with_header(text):
        if unclear := ambiguous_unit(text):
            raise draft.fail(
                f"column {one_line(unclear)!r} does not say whether it is bits or bytes",
                remedy="write GBps for bytes, Gbps for bits",
            )
        text = tidy_table(text) or text
    rows, header = rows_by_column(draft, text)
    columns = classify(header)
    if not columns.has_figures or not columns.has_ends:
        raise draft.fail(
            f"is no table of rates (begins {one_line(','.join(header))!r})",
            line=rows[0][0] if rows else None,
            remedy=REMEDY,
        )
    if _is_own(header):
        draft.add("table", parse_table(text, file=file))
        return draft.done()
    columns.refuse_misspelt(draft, rows[0][0])
    if columns.unused:
        draft.note(f"columns {', '.join(map(one_line, columns.unused[:8]))} are not used")
    figures: list[_Figure] = []
    directed: dict[tuple[tuple[str, str], ...], dict[str, tuple[float, Where, str]]] = {}
    flows = 0
    for line, cells in rows:
        row = _Row(draft=draft, columns=columns, cells=cells, line=line)
        for figure in row.figures(directed):
            flows += 0 if figure.sample is None else len(figure.sample.pattern.flows)
            if flows > _MOST_FLOWS:
                raise draft.fail(
                    "names too many flows", line=line, remedy="give one machine's table"
                )
            figures.append(figure)
    figures += _both_ways_of_directions(draft, directed)
    _split_by_set_up(figures)
    _add_groups(draft, figures)
    _prefer(draft)
    return draft.done()


def _is_own(header: Sequence[str]) -> bool:
    """Whether it is one of the project's own two tables."""
    rest = [c for c in header if c != "size"]
    rates = [c for c in rest if _OWN_RATE.fullmatch(c)]
    return len(rates) == 1 and {c for c in rest if c != rates[0]} in _OWN


@dataclass(slots=True, kw_only=True)
class _Row:
    draft: Draft
    columns: Columns
    cells: Mapping[str, str]
    line: int

    def figures(
        self, directed: dict[tuple[tuple[str, str], ...], dict[str, tuple[float, Where, str]]]
    ) -> list[_Figure]:
        """What the row says; one direction of a pattern of both goes to ``directed``."""
        way = self.cells.get(self.columns.direction, "").lower()
        conditions = self._conditions(way)
        found = []
        for column, rate in self._rates():
            if column.meaning == "both ways" and way in _DIRECTIONS and not self._has_own_ends():
                key = tuple(sorted(conditions.items()))
                directed.setdefault(key, {})[way] = (rate, self.where, self._name)
                continue
            found.append(self._figure(column, rate, way, conditions))
        if not self.columns.rates:
            found.append(self._timed(conditions, way))
        return found

    def _rates(self) -> list[tuple[RateColumn, float]]:
        """The rate of each meaning; where two columns have one meaning, they must agree."""
        stated = [(column, self._rate(column)) for column in self.columns.rates]
        rates = [(column, rate) for column, rate in stated if rate is not None]
        return once_each(rates, partial(self.draft.fail, line=self.line))

    @property
    def where(self) -> Where:
        return self.draft.where(self.line)

    @property
    def _name(self) -> str:
        return self.cells.get(self.columns.name, "")

    def _has_own_ends(self) -> bool:
        c = self.columns
        return bool((c.source and c.destination) or c.pair or c.flows)

    def _conditions(self, way: str) -> dict[str, str]:
        found = {c.strip().lower(): self.cells[c].lower() for c in self.columns.conditions}
        found = {key: value for key, value in found.items() if value not in NOTHING}
        for key in ("kind", "op", "operation", "mode", "type"):
            for operation in ("read", "write"):
                if operation in found.get(key, ""):
                    found["operation"] = operation
        if "p2p" in found:
            found["p2p"] = _on_or_off(found["p2p"])
        if way and way not in _DIRECTIONS:
            found["direction"] = way
        return found

    def _rate(self, column: RateColumn) -> float | None:
        text = self.cells[column.name]
        if text.lower() in NOTHING:
            return None
        value = written_number(text.lstrip("~≈ "))
        if value is None and (span := RANGE.fullmatch(text)):
            low, high = to_number(span[1]), to_number(span[2])
            if low is not None and high is not None and 0 < low <= high:
                value = (low + high) / 2
                self.draft.note(
                    f"line {self.line}: {one_line(text)} is a range: its middle is taken"
                )
        if value is None or not is_rate(value * column.unit_Bps):
            raise self.draft.fail(
                f"{one_line(column.name)} is {one_line(text)!r}",
                line=self.line,
                remedy="give a finite number above zero, with a point and without marks between "
                "thousands, or leave the cell empty",
            )
        return value * column.unit_Bps

    def _figure(
        self, column: RateColumn, rate: float, way: str, conditions: dict[str, str]
    ) -> _Figure:
        if column.meaning in ("everyone", "collective") or (
            self.columns.members and not self._has_own_ends()
        ):
            members = self.cells.get(self.columns.members, "") or way or self._name
            reason = (
                "which flows ran is not in the table"
                if column.meaning == "everyone"
                else "which bytes go where in a collective is the library's choice and not in "
                "the table"
            )
            reading = Reading(
                what=f"{column.name} of {one_line(members)}",
                value=rate,
                unit="B/s",
                reason=reason,
                where=self.where,
            )
            return _Figure(conditions=conditions, sample=None, reading=reading, name=self._name)
        pairs = self._pairs(way)
        if column.meaning == "both ways":
            if len(pairs) != 1:
                raise self.draft.fail(
                    f"{one_line(column.name)} needs one pair", line=self.line, remedy=REMEDY
                )
            pairs = in_order(*pairs[0])
            conditions = conditions | {"direction": "both ways"}
        sample = moved(
            pairs, rate, where=self.where, size_bytes=self._size(), repeat=self._repeat()
        )
        return _Figure(conditions=conditions, sample=sample, reading=None, name=self._name)

    def _timed(self, conditions: dict[str, str], way: str) -> _Figure:
        """A row with a size and a time."""
        time = to_number(self.cells[self.columns.time])
        size = self._size()
        if time is None or not time > 0 or size is None:
            raise self.draft.fail(
                f"{one_line(self.columns.time)} or {one_line(self.columns.size)} is missing or no "
                "positive number",
                line=self.line,
                remedy="give both",
            )
        pairs = self._pairs(way)
        sample = moved(
            pairs,
            len(pairs) * size / (time * self.columns.time_unit_s),
            where=self.where,
            size_bytes=size,
            repeat=self._repeat(),
        )
        return _Figure(conditions=conditions, sample=sample, reading=None, name=self._name)

    def _size(self) -> float | None:
        text = self.cells.get(self.columns.size, "")
        if text.lower() in NOTHING:
            return None
        try:
            return parse_bytes(text) or None
        except UnitError as error:
            raise self.draft.fail(error.what, line=self.line, remedy=error.remedy) from error

    def _repeat(self) -> int:
        value = to_number(self.cells.get(self.columns.repeat, "") or "0")
        return int(value) if value is not None and 0 <= value < 1e6 else 0

    def _pairs(self, way: str) -> list[tuple[str, str]]:
        """From where to where bytes go."""
        c = self.columns
        if c.flows:
            pairs = self._flows(self.cells[c.flows])
        elif c.source and c.destination:
            pairs = [(_endpoint(self.cells[c.source]), _endpoint(self.cells[c.destination]))]
        elif c.pair:
            match = _PAIR.fullmatch(self.cells[c.pair])
            if match is None:
                raise self.draft.fail(
                    f"{one_line(self.cells[c.pair])!r} is no pair",
                    line=self.line,
                    remedy="write 1-2 or 1->2",
                )
            pairs = [(_endpoint(match[1]), _endpoint(match[2]))]
        elif way in _DIRECTIONS:
            pairs = [_DIRECTIONS[way]]
        else:
            raise self.draft.fail(
                f"direction {one_line(way)!r} does not say from where to where",
                line=self.line,
                remedy="write H2D or D2H, or name source and destination",
            )
        if any(not a or not b or a == b for a, b in pairs) or len(set(pairs)) < len(pairs):
            raise self.draft.fail(
                "names a flow twice, to itself or without an end",
                line=self.line,
                remedy="name two different ends for each flow",
            )
        return pairs

    def _flows(self, text: str) -> list[tuple[str, str]]:
        parts = [p for p in text.split(";") if p.strip()]
        matches = [_FLOW.fullmatch(p) for p in parts]
        if parts and all(m is not None and "," not in m[0] for m in matches):
            return [(_endpoint(m[1]), _endpoint(m[2])) for m in matches if m is not None]
        try:
            return parse_pattern(text, 1.0, resolve=_endpoint, where=self.where).pairs
        except (FlowError, FormatError) as error:
            raise self.draft.fail(error.what, line=self.line, remedy=error.remedy) from error


def _endpoint(name: str) -> str:
    return _HOST if name.strip().lower() in _HOSTS else canonical_endpoint(name)


def _on_or_off(word: str) -> str:
    if word in ("on", "1", "yes", "true", "enabled"):
        return "on"
    return "off" if word in ("off", "0", "no", "false", "disabled") else word


def _both_ways_of_directions(
    draft: Draft,
    directed: Mapping[tuple[tuple[str, str], ...], Mapping[str, tuple[float, Where, str]]],
) -> list[_Figure]:
    """Rates of both directions while both run, of one machine: one pattern."""
    found = []
    for key, ways in directed.items():
        conditions = dict(key)
        if len(ways) == 2:
            rates = [ways[w][0] for w in ("h2d", "d2h")]
            sample = at_once([_DIRECTIONS[w] for w in ("h2d", "d2h")], rates, where=ways["h2d"][1])
            draft.note(
                "each figure of both ways is taken as the rate of one direction while the other "
                "runs as well"
            )
            conditions["direction"] = "both ways"
            found.append(
                _Figure(conditions=conditions, sample=sample, reading=None, name=ways["h2d"][2])
            )
            continue
        for way, (rate, where, name) in ways.items():
            reading = Reading(
                what=f"{way} while the other direction runs",
                value=rate,
                unit="B/s",
                reason="the rate of the other direction is not in the table",
                where=where,
            )
            found.append(_Figure(conditions=conditions, sample=None, reading=reading, name=name))
    return found


def _split_by_set_up(figures: Sequence[_Figure]) -> None:
    """The first word of the name is the set-up, where one pattern has several under it."""
    words: dict[tuple[object, ...], dict[str, float]] = {}
    for f in figures:
        if f.sample is None or not f.name.split():
            continue
        key = (tuple(sorted(f.sample.pattern.pairs)), tuple(sorted(f.conditions.items())))
        words.setdefault(key, {}).setdefault(f.name.split()[0], f.sample.seconds)
    if not any(len(set(w.values())) > 1 for w in words.values()):
        return
    for f in figures:
        if f.name.split():
            f.conditions = f.conditions | {"setup": f.name.split()[0]}


def _add_groups(draft: Draft, figures: Sequence[_Figure]) -> None:
    groups: dict[tuple[tuple[str, str], ...], list[_Figure]] = {}
    for f in figures:
        groups.setdefault(tuple(sorted(f.conditions.items())), []).append(f)
    for key, members in groups.items():
        label = ", ".join(f"{k} {v}" if k == "p2p" else v for k, v in key if k != "operation")
        draft.add(
            label or "table",
            [f.sample for f in members if f.sample is not None],
            conditions=dict(key),
            readings=[f.reading for f in members if f.reading is not None],
        )


def _prefer(draft: Draft) -> None:
    """A fit uses writes, peer access, and of several machines the one with the most figures."""
    for key, wanted in (("p2p", "on"), ("operation", "write")):
        having = {
            _machine(g) for g in draft.groups if g.default and g.conditions.get(key) == wanted
        }
        draft.leave_out(partial(_differs, key=key, wanted=wanted, on=having))
    sizes: Counter[tuple[tuple[str, str], ...]] = Counter()
    for g in draft.groups:
        sizes[_machine(g)] += len(g.measurements.samples) * g.default
    if not sizes:
        return
    best = max(sizes, key=lambda machine: sizes[machine])
    draft.leave_out(lambda g: _machine(g) != best)
    others = [_words(m) for m in sizes if m != best]
    if others:
        draft.note(f"{_words(best)} is used, with the most figures; not {', '.join(others)}")


def _machine(group: Group) -> tuple[tuple[str, str], ...]:
    """What tells a group's machine, or the state it was in, from others."""
    return tuple(sorted((k, v) for k, v in group.conditions.items() if k in IDENTITIES))


def _words(machine: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{k} {one_line(v)}" for k, v in machine) or "the rest"


def _differs(
    group: Group, *, key: str, wanted: str, on: Collection[tuple[tuple[str, str], ...]]
) -> bool:
    return _machine(group) in on and group.conditions.get(key, wanted) != wanted


RATE_TABLE: Final = Importer(
    name="rate-table",
    title=TITLE,
    looks_like=looks_like_rate_table,
    parse=parse_rate_table,
)
"""The importer that the registry lists."""

"""What the figures of nvbandwidth's tests are.

From its source (testcases_ce.cpp, testcases_sm.cpp, testcase.cpp in NVIDIA/nvbandwidth)
and its README:

* Pair tests copy one pair at a time.  The arrows in the titles of the pair tests do not
  say where the bytes go: ``read`` copies from the column's GPU to the row's, ``write``
  from the row's to the column's, whatever the arrow.
* ``all_to_one_write`` and ``one_to_all_read`` bring bytes into the column's GPU from all
  others, ``one_to_all_write`` and ``all_to_one_read`` take them out of it; a figure is the
  total over the time until all copies are done.
* Copy-engine tests with host memory, both ways and all GPUs at once, print one measured
  copy while the others run twice as long.  Such rates belong to one moment, so those of
  all directions and all GPUs together are one pattern.
* ``*_bidirectional_*_sm`` prints the sum of both directions; copy-engine pair tests print
  one direction (releases with ``Read1``/``Read2``/``Total`` tables: both, and their sum).
* SUM lines add up cells and are no throughput of anything, unless all ran at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from topocal.measure.importers.figures import alone, at_once, finishing, in_order, is_rate, moved
from topocal.measure.importers.imported import Draft, Group, Reading
from topocal.measure.samples import Sample
from topocal.topo.units import BYTES_PER_GB

__all__ = ["HOST", "Table", "add_tests", "named_by_title", "rows_are_host"]

HOST: Final = "cpu0"
"""The tool's CPU row: memory near each GPU, which the tool does not tell apart."""

_NAME: Final = re.compile(
    r"(?:multinode_)?(?P<what>host_to_device|device_to_host|device_to_device|all_to_host"
    r"|host_to_all|all_to_one|one_to_all)(?P<both>_bidirectional)?(?:_memcpy)?"
    r"(?:_(?P<operation>read|write))?_(?P<engine>ce|sm)"
)
_PAIR_TITLE: Final = re.compile(r"memcpy (CE|SM) GPU\(row\) (->|<-) GPU\(column\) bandwidth")
"""Printed by the one-way pair tests alone (testcases_ce.cpp and testcases_sm.cpp)."""

_ENGINE: Final = {"ce": "copy engine", "sm": "kernel"}
MOST_IN_FAN: Final = 144
"""GPUs: two racks of 72.  Each figure names them all."""

_INTO: Final = frozenset({("all_to_one", "write"), ("one_to_all", "read")})

Cell = tuple[str, str, float, int]
"""Row, column, bytes per second, line."""


@dataclass(slots=True, kw_only=True)
class Table:
    """One table of a test.

    Attributes
    ----------
    title
        The line above it.
    columns
        Endpoints.
    rows
        ``(endpoint or "", figures, line)``.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None], int]]

    def cells(self) -> Iterator[Cell]:
        """The figures that were measured, in bytes per second."""
        for row, figures, line in self.rows:
            for column, figure in zip(self.columns, figures, strict=True):
                if figure and is_rate(figure * BYTES_PER_GB) and row != column:
                    yield row, column, figure * BYTES_PER_GB, line

    @property
    def role(self) -> str:
        """``first``, ``second`` or ``total`` where a test prints several tables."""
        title = self.title.lower()
        for word, role in (("1 bandwidth", "first"), ("2 bandwidth", "second"), ("total", "total")):
            if word in title:
                return role
        return ""


def rows_are_host(test: str) -> bool:
    """Whether a test's rows are not the devices of its columns."""
    return not test.removeprefix("multinode_").startswith("device_to_device")


def named_by_title(title: str) -> str:
    """The test that a table's title can only be of; empty where several print the same.

    >>> named_by_title("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)")
    'device_to_device_memcpy_read_ce'
    >>> named_by_title("memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)")
    ''
    """
    found = _PAIR_TITLE.search(title)
    if found is None:
        return ""
    operation = {"->": "read", "<-": "write"}[found[2]]
    return f"device_to_device_memcpy_{operation}_{found[1].lower()}"


def add_tests(draft: Draft, run: str, tests: dict[str, list[Table]]) -> None:
    """Add the groups of one run's tests, by name.

    Raises
    ------
    InputError
        When a figure is no rate.
    """
    for engine in ("ce", "sm"):
        _add_host_both_ways(draft, run, tests, engine)
    for name, tables in tests.items():
        match = _NAME.fullmatch(name)
        if match is None:
            _add_readings(draft, run, name, tables, *_not_a_pattern(name))
            continue
        conditions = {"run": run, "engine": _ENGINE[match["engine"]]}
        if match["operation"]:
            conditions["operation"] = match["operation"]
        samples = list(_samples(draft, match, tables))
        if samples:
            several = any(len(s.pattern.flows) > 1 for s in samples)
            both = bool(match["both"])
            conditions["direction"] = (
                "both ways" if both else "several at once" if several else "one way"
            )
            draft.add(name, samples, conditions=conditions)
        elif match["both"] and match["engine"] == "sm" and match["what"] in _ALL_HOST:
            reason = "releases differ in whether such a figure is one direction or both"
            _add_readings(draft, run, name, tables, reason, "B/s")
    _prefer(draft, run)


_ALL_HOST: Final = frozenset({"all_to_host", "host_to_all"})


def _samples(draft: Draft, match: re.Match[str], tables: Sequence[Table]) -> Iterable[Sample]:
    """Samples of a test that stands alone (host memory both ways by copy engine does not)."""
    what, both, operation = match["what"], bool(match["both"]), match["operation"] or "write"
    cells = [c for t in tables for c in t.cells()]
    if what == "device_to_device":
        return _pairs_both_ways(draft, match, tables) if both else _pairs(draft, operation, cells)
    if both and what not in _ALL_HOST and match["engine"] == "sm":
        return [
            moved(in_order(HOST, gpu), rate, where=draft.where(line))
            for _, gpu, rate, line in cells
        ]
    if both:
        return []
    if what in ("host_to_device", "device_to_host"):
        return [
            alone(*_host_pair(what, gpu), rate, where=draft.where(line))
            for _, gpu, rate, line in cells
        ]
    if what in _ALL_HOST:
        return _all_at_once(draft, [(_host_pair(what, g), r, line) for _, g, r, line in cells])
    into = (what, operation) in _INTO
    everyone = tables[0].columns if tables else ()
    if len(everyone) > MOST_IN_FAN:
        draft.note(f"{match.string}: fans of more than {MOST_IN_FAN} are not read")
        return []
    return [
        moved(
            [(p, gpu) if into else (gpu, p) for p in everyone if p != gpu],
            rate,
            where=draft.where(line),
        )
        for _, gpu, rate, line in cells
        if len(everyone) > 1
    ]


def _host_pair(what: str, gpu: str) -> tuple[str, str]:
    return (HOST, gpu) if what.startswith("host") else (gpu, HOST)


def _pairs(draft: Draft, operation: str, cells: Iterable[Cell]) -> list[Sample]:
    return [
        alone(
            *((column, row) if operation == "read" else (row, column)),
            rate,
            where=draft.where(line),
        )
        for row, column, rate, line in cells
    ]


def _pairs_both_ways(
    draft: Draft, match: re.Match[str], tables: Sequence[Table]
) -> Iterator[Sample]:
    by_role = {t.role: t for t in tables}
    if "first" in by_role and "second" in by_role:
        reverse = {(r, c): rate for r, c, rate, _ in by_role["second"].cells()}
        for row, column, rate, line in by_role["first"].cells():
            if (row, column) in reverse:
                pairs, rates = [(column, row), (row, column)], [rate, reverse[row, column]]
                if pairs != in_order(row, column):
                    pairs, rates = pairs[::-1], rates[::-1]
                yield finishing(pairs, rates, where=draft.where(line))
        return
    table = by_role.get("total") or (tables[0] if tables else None)
    if table is None:
        return
    if table.role == "total" or match["engine"] == "sm":
        for row, column, rate, line in table.cells():
            yield moved(in_order(row, column), rate, where=draft.where(line))
        return
    rates_of = {(r, c): (rate, line) for r, c, rate, line in table.cells()}
    for (row, column), (rate, line) in rates_of.items():
        # Of the two cells of a pair each is one direction; together they are one pattern.
        if (column, row) in rates_of and in_order(row, column)[0] == (row, column):
            towards_row = (match["operation"] or "write") == "read"
            forth = rates_of[column, row][0] if towards_row else rate
            back = rate if towards_row else rates_of[column, row][0]
            yield at_once(in_order(row, column), [forth, back], where=draft.where(line))


def _all_at_once(draft: Draft, flows: Sequence[tuple[tuple[str, str], float, int]]) -> list[Sample]:
    if len(flows) < 2:
        return []
    return [
        at_once([p for p, _, _ in flows], [r for _, r, _ in flows], where=draft.where(flows[0][2]))
    ]


def _add_host_both_ways(draft: Draft, run: str, tests: dict[str, list[Table]], engine: str) -> None:
    """Host memory both ways by copy engine: two tests, each of one direction, make one pattern."""
    if engine != "ce":
        return
    for to_gpu, to_host, together in (
        ("host_to_device", "device_to_host", False),
        ("host_to_all", "all_to_host", True),
    ):
        names = [f"{what}_bidirectional_memcpy_{engine}" for what in (to_gpu, to_host)]
        found = [
            {gpu: (rate, line) for t in tests.get(name, ()) for _, gpu, rate, line in t.cells()}
            for name in names
        ]
        both = [gpu for gpu in found[0] if gpu in found[1]]
        flows = [
            (_host_pair(what, gpu), *found[k][gpu])
            for gpu in both
            for k, what in enumerate((to_gpu, to_host))
        ]
        samples = (
            _all_at_once(draft, flows)
            if together
            else [s for k in range(0, len(flows), 2) for s in _all_at_once(draft, flows[k : k + 2])]
        )
        conditions = {"run": run, "engine": _ENGINE[engine], "direction": "both ways"}
        if samples:
            draft.add(" + ".join(names), samples, conditions=conditions)
        for name, figures, other in zip(names, found, names[::-1], strict=True):
            if figures and not samples:
                reason = f"it is one direction, and {other}, which has the other, is missing"
                _add_readings(draft, run, name, tests[name], reason, "B/s")


def _not_a_pattern(name: str) -> tuple[str, str]:
    """Why a test is no pattern, and the unit of its figures."""
    if "latency" in name:
        return "it is the time of one load, not the start-up time of a transfer", "s"
    if "local" in name:
        return "the bytes stay inside one GPU", "B/s"
    return "this test is not known", "B/s"


def _add_readings(
    draft: Draft, run: str, name: str, tables: Sequence[Table], reason: str, unit: str
) -> None:
    factor = 1e-9 if unit == "s" else BYTES_PER_GB
    draft.add(
        name,
        conditions={"run": run},
        readings=[
            Reading(
                what=f"{name} {row or HOST} {column}",
                value=figure * factor,
                unit=unit,
                reason=reason,
                where=draft.where(line),
            )
            for t in tables
            for row, figures, line in t.rows
            for column, figure in zip(t.columns, figures, strict=True)
            if figure and 0 < figure < 1e9
        ],
        default=False,
    )


def _prefer(draft: Draft, run: str) -> None:
    """A fit uses one engine, and of reads and writes the writes."""
    for key, wanted in (("engine", "copy engine"), ("operation", "write")):
        if any(
            g.conditions.get("run") == run and g.conditions.get(key) == wanted and g.default
            for g in draft.groups
        ):
            draft.leave_out(partial(_differs, run=run, key=key, wanted=wanted))


def _differs(group: Group, *, run: str, key: str, wanted: str) -> bool:
    known = group.conditions
    return known.get("run") == run and known.get(key, wanted) != wanted

"""NIXLBench: transfers from an initiator to a target, by block size and batch size.

What the figures are (benchmark/nixlbench in ai-dynamo/nixl): a request moves ``Batch Size``
blocks; ``B/W (GB/Sec)`` is its bytes over its time, in 10**9, of one pair of workers.  A write
goes from the initiator to the target, a read back.  With more than two workers ``Aggregate B/W`` is
the sum over the pairs, of which nothing says where they run, so that those tables are readings;
and so are other schemes than *pairwise*, and storage.

Which devices the workers use is not in the output: the ends are ``initiator`` and ``target``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import TELLS_A_RATE, only_start_up, sweep_samples
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import BYTES_PER_GB, format_bytes

__all__ = ["NIXLBENCH", "looks_like_nixlbench", "parse_nixlbench"]

TITLE: Final = "NIXLBench"

_HEADER: Final = re.compile(r"\s{0,8}Block Size \(B\)\s{1,20}Batch Size\s.{0,300}B/W \(GB/Sec\)")
_SETTING: Final = re.compile(
    r"\s{0,8}([A-Z][\w ]{1,40}?)\s{1,4}\(--(\w{2,40})=[^)]{0,200}\)\s{0,80}:\s{0,4}(\S.{0,200})"
)
_RATE: Final = "B/W (GB/Sec)"
_TOTAL: Final = "Aggregate B/W (GB/Sec)"
_BETWEEN_WORKERS: Final = frozenset(
    {"", "UCX", "UCX_MO", "LIBFABRIC", "MOONCAKE", "GPUNETIO", "UCCL", "TCPXO"}
)
"""Backends that move bytes from worker to worker; the others store them."""

_LONGEST: Final = 500


@dataclass(slots=True)
class _Table:
    """Rows of one run with what was set for it."""

    settings: Mapping[str, str]
    several: bool
    rows: list[tuple[int, float, int]] = field(default_factory=list)
    """Bytes of a request, bytes per second, line."""

    def said(self, option: str) -> str:
        """What an option was set to, in capitals."""
        return self.settings.get(option, "").upper()

    @property
    def why_not(self) -> str:
        """Why the figures are no transfers from one end to the other; empty where they are."""
        if self.said("backend") not in _BETWEEN_WORKERS:
            return "the backend stores the bytes and sends them to no other worker"
        if self.said("scheme") not in ("", "PAIRWISE"):
            return "which worker sends to which is not in the output"
        return "several pairs of workers ran, and nothing says where" if self.several else ""


def looks_like_nixlbench(text: str) -> bool:
    """Whether a text has the head of its table."""
    return any(map(_HEADER.match, plain_lines(text)))


def parse_nixlbench(text: str, *, file: str) -> Imported:
    """The tables of one text.

    Raises
    ------
    FormatError
        When there is none.
    """
    draft = Draft(kind="nixlbench", title=TITLE, file=file)
    tables: list[_Table] = []
    columns: list[str] = []
    settings: dict[str, str] = {}
    for number, line in enumerate(plain_lines(text), 1):
        if len(line) > _LONGEST:
            continue
        if _HEADER.match(line):
            columns = re.split(r"\s{2,80}", line.strip())
            tables.append(_Table(dict(settings), _TOTAL in columns))
        elif (setting := _SETTING.fullmatch(line)) is not None:
            if columns:
                settings, columns = {}, []  # another run begins
            settings[setting[2]] = setting[3].strip()
        elif columns:
            _take(tables[-1], columns, line.split(), number)
    for number, table in enumerate(tables, 1):
        _add(draft, table, number)
    draft.prefer_one_run()
    return draft.done()


def _take(table: _Table, columns: Sequence[str], words: Sequence[str], number: int) -> None:
    """Keep a row, if the words are one."""
    figures = [to_number(word) for word in words]
    if len(figures) != len(columns) or None in figures:
        return
    block, batch = figures[0] or 0.0, figures[1] or 0.0
    rate = figures[columns.index(_TOTAL if table.several else _RATE)] or 0.0
    size = int(block * batch)
    if 0 < size < 1e15 and is_rate(rate * BYTES_PER_GB):
        table.rows.append((size, rate * BYTES_PER_GB, number))


def _add(draft: Draft, table: _Table, number: int) -> None:
    verb = table.said("op_type").lower() or "write"
    memory = [table.said(f"{side}_seg_type") for side in ("initiator", "target")]
    kinds = f"{memory[0]} and {memory[1]}" if all(memory) else "memory not named"
    label = f"{verb}, {kinds}"
    conditions = {"run": str(number), "operation": verb, "direction": "one way"}
    if reason := table.why_not:
        readings = [
            Reading(
                what=f"{verb} bandwidth at {format_bytes(size)}",
                value=rate,
                unit="B/s",
                reason=reason,
                where=draft.where(line),
            )
            for size, rate, line in table.rows
        ]
        draft.add(label, readings=readings, conditions=conditions, default=False)
        return
    pair = ("target", "initiator") if verb == "read" else ("initiator", "target")
    samples = sweep_samples(draft, [pair], table.rows)
    small = only_start_up(samples, TELLS_A_RATE)
    draft.add(label, [] if small else samples, readings=small, conditions=conditions)
    draft.note(
        "which devices the workers used is not in the output: the ends are initiator and target"
    )


NIXLBENCH: Final = Importer(
    name="nixlbench",
    title=TITLE,
    looks_like=looks_like_nixlbench,
    parse=parse_nixlbench,
)
"""The importer that the registry lists."""

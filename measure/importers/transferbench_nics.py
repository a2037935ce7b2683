"""TransferBench's presets over network cards: ``nicp2p``, ``nica2a``, ``nicrings``.

What the figures are (client/Presets in ROCm/TransferBench): each transfer goes from the memory
nearest to one card to that nearest to another, and its rate is its bytes over its own time.

============  ================================================================
``nicp2p``    each card to each; ``PARALLEL_NODE`` and ``NIC_PARALLEL_LEVEL`` say how many of
              them at a time
``nica2a``    all to all within each group, all groups of all planes at once
``nicrings``  each card to the one of its number on the next rank, all at once
============  ================================================================

The ends are the cards: ``node0/nic0``, numbered by their names; two of them may share a GPU.
Rows and columns of a table stand in one order, so that the rows name the columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import alone, finishing, is_rate, to_number
from topocal.measure.importers.imported import Draft
from topocal.topo.naming import natural_key
from topocal.topo.units import BYTES_PER_GB

__all__ = ["NicTables", "is_of_nics"]

_P2P: Final = re.compile(r"Unidirectional copy peak bandwidth GB/s \(NIC RDMA")
_A2A: Final = re.compile(
    r"NIC AllToAll Plane ([0-9]{1,4}) Group ([0-9]{1,4}) \(([0-9]{1,5}) NICs\)"
)
_RINGS: Final = re.compile(r"NIC Rings benchmark")
_SIZE: Final = re.compile(r"([0-9]{1,15}) bytes per Transfer")
_READS: Final = re.compile(r"RDMA[- ]reads?\b|USE_RE?D?MO?TE?A?_?READ\s{0,20}=?\s{0,20}1\b", re.I)
_ROW: Final = re.compile(
    r"\s{0,200}(?:Rank\s([0-9]{1,4})\s{1,80})?(?:(GPU|CPU)\s([0-9]{1,4})\s{1,80})?"
    r"([A-Za-z][\w.:\-]{0,40})\s{1,80}(?:(?:GPU|CPU)\s[0-9]{1,4}\s{1,80})?"
    r"((?:(?:[0-9.]{1,16}|N/A)\s{1,80}){0,1024}(?:[0-9.]{1,16}|N/A))\s*"
)
_LIST: Final = re.compile(
    r"\s{0,40}Rank\s([0-9]{1,4})\s{1,40}([A-Za-z][\w.:\-]{0,40})\s{1,40}(?:GPU|CPU)\s[0-9]{1,4}"
    r"\s{1,40}Rank\s([0-9]{1,4})\s{1,40}([A-Za-z][\w.:\-]{0,40})\s{1,40}(?:GPU|CPU)\s[0-9]{1,4}"
    r"\s{1,40}([0-9.]{1,16})\s*"
)
_RING_HEAD: Final = re.compile(r"\s{0,40}Rank\s{1,80}Name\s{1,80}(.{1,4000}?)\(GB/s\)\s*")
_RING_ROW: Final = re.compile(
    r"\s{0,40}([0-9]{1,4})\s{1,80}(\S{1,80})((?:\s{1,80}[0-9.]{1,16}){2,1024})\s*"
)
_NO_CARDS: Final = frozenset(
    {"GPU", "CPU", "Rank", "RTotal", "STotal", "Actual", "MAX", "AVG", "MIN", "TOTAL"}
)
_SUMS: Final = 2
"""Columns ``STotal`` and ``Actual`` behind those of the cards."""

_Nic = tuple[int, str]
"""Rank and name."""


@dataclass(slots=True)
class _Table:
    """One table: from the title on."""

    kind: str
    line: int
    rows: list[tuple[_Nic, list[float | None]]] = field(default_factory=list)
    pairs: list[tuple[_Nic, _Nic, float]] = field(default_factory=list)
    ring: list[str] = field(default_factory=list)
    told: int = 0
    """Cards that the title says the table is of."""


def is_of_nics(line: str) -> bool:
    """Whether a line is the title of such a table."""
    return any(pattern.search(line) for pattern in (_P2P, _A2A, _RINGS))


class NicTables:
    """Collects the tables over network cards, and makes groups of them."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._tables: list[_Table] = []
        self._size: float | None = None
        self._reads = False
        self._rank = 0

    def take(self, line: str, number: int) -> bool:
        """Note a line, if it belongs to such a table; returns whether it does."""
        if (size := _SIZE.search(line)) is not None:
            self._size = float(size[1]) or None
        self._reads = self._reads or _READS.search(line) is not None
        if is_of_nics(line):
            a2a = _A2A.search(line)
            kind = "p2p" if _P2P.search(line) else "a2a" if a2a else "rings"
            self._tables.append(_Table(kind, number, told=int(a2a[3]) if a2a else 0))
            self._rank = 0
            return True
        return bool(self._tables) and self._take_row(self._tables[-1], line)

    def _take_row(self, table: _Table, line: str) -> bool:
        if table.kind == "rings":
            return _take_ring(table, line)
        if (pair := _LIST.fullmatch(line)) is not None:
            rate = to_number(pair[5])
            if rate is not None:
                source, target = (int(pair[1]), pair[2]), (int(pair[3]), pair[4])
                table.pairs.append((source, target, rate))
            return True
        row = _ROW.fullmatch(line)
        if row is None or row[4] in _NO_CARDS:
            return False
        self._rank = int(row[1]) if row[1] is not None else self._rank
        table.rows.append(((self._rank, row[4]), [to_number(w) for w in row[5].split()]))
        return True

    def finish(self) -> None:
        """Make groups of all tables."""
        tables = [t for t in self._tables if t.rows or t.pairs]
        whole = [t for t in tables if self._square(t)]
        if not whole:
            return
        names = self._names(whole)
        operation = {"operation": "read" if self._reads else "write", "statistic": "mean"}
        alike = [(a, b, r) for t in whole if t.kind == "p2p" for a, b, r in t.pairs]
        samples = [
            alone(
                names[a],
                names[b],
                rate * BYTES_PER_GB,
                where=self._draft.where(whole[0].line),
                size_bytes=self._size,
            )
            for a, b, rate in alike
            if a != b and is_rate(rate * BYTES_PER_GB)
        ]
        if samples:
            self._draft.note(
                "pairs of network cards may have run several at a time (PARALLEL_NODE, "
                "NIC_PARALLEL_LEVEL): what they share is in the figures"
            )
        self._draft.add(
            "network cards, pair by pair", samples, conditions=operation | {"direction": "one way"}
        )
        for kind, label in (("a2a", "all to all of network cards"), ("rings", "rings of NICs")):
            mine = [t for t in whole if t.kind == kind]
            if mine and len(mine) == sum(t.kind == kind for t in tables):
                self._add_at_once(mine, label, names, operation)

    def _square(self, table: _Table) -> bool:
        """Give a matrix's cells their pairs; a table that is cut is told and left out."""
        n = len(table.rows)
        if table.kind == "rings" or not table.rows:
            return bool(table.pairs)
        wide = n + (_SUMS if table.kind == "a2a" else 0)
        if any(len(cells) != wide for _, cells in table.rows):
            self._draft.note(
                f"line {table.line}: the table over network cards lacks rows or figures: it is "
                "left out"
            )
            return False
        ends = [end for end, _ in table.rows]
        table.pairs += [
            (source, target, rate)
            for source, cells in table.rows
            for target, rate in zip(ends, cells, strict=False)
            if rate
        ]
        return True

    def _names(self, tables: Sequence[_Table]) -> dict[_Nic, str]:
        """Endpoint of each card: numbered by name within its rank."""
        cards = {end for t in tables for a, b, _ in t.pairs for end in (a, b)}
        ranks = {rank for rank, _ in cards}
        found = {}
        for rank in ranks:
            mine = sorted((name for r, name in cards if r == rank), key=natural_key)
            for k, name in enumerate(mine):
                node = f"node{rank}/" if len(ranks) > 1 else ""
                found[rank, name] = f"{node}nic{k}"
        first = min(ranks)
        shown = sorted((name for r, name in cards if r == first), key=natural_key)
        self._draft.note(
            f"network cards are numbered by their names: {', '.join(shown[:8])}"
            f"{', …' if len(shown) > 8 else ''}"
        )
        return found

    def _add_at_once(
        self,
        tables: Sequence[_Table],
        label: str,
        names: dict[_Nic, str],
        conditions: dict[str, str],
    ) -> None:
        cells = [
            (names[a], names[b], rate * BYTES_PER_GB)
            for t in tables
            for a, b, rate in t.pairs
            if a != b and is_rate(rate * BYTES_PER_GB)
        ]
        if not cells:
            return
        sample = finishing(
            [(a, b) for a, b, _ in cells],
            [rate for _, _, rate in cells],
            where=self._draft.where(tables[0].line),
            size_bytes=self._size,
        )
        self._draft.add(label, [sample], conditions=conditions | {"direction": "several at once"})


def _take_ring(table: _Table, line: str) -> bool:
    """A row of ``nicrings``: what each card of a rank passed to the next rank."""
    if (head := _RING_HEAD.fullmatch(line)) is not None:
        table.ring = head[1].split()
        return True
    row = _RING_ROW.fullmatch(line)
    if row is None or not table.ring or row[2] in _NO_CARDS:
        return False
    rates = [to_number(word) for word in row[3].split()]
    if len(rates) != len(table.ring) + 1:
        return False
    rank = int(row[1])
    table.rows.append(((rank, ""), rates))
    ranks = len(table.rows)
    table.pairs = [
        ((k, name), ((k + 1) % ranks, name), rate)
        for k, (_, mine) in enumerate(table.rows)
        for name, rate in zip(table.ring, mine, strict=False)
        if rate
    ]
    return True

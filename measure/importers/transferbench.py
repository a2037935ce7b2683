"""TransferBench's peer-to-peer preset.

What the figures are (client/include/Presets/PeerToPeer.hpp in ROCm/TransferBench): in the
first table one copy at a time from the row's memory to the column's, averaged; in the
second both directions of a pair at once, ``->`` and ``<-`` the bytes of each over its own
time and ``<->`` their sum.  The pattern takes as long as the slower one.  CPU numbers are
NUMA nodes.  Tables may be printed as CSV, and rows ``min``, ``max`` and ``sd`` may stand
between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import alone, finishing, in_order, is_rate
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.text_matrix import Matrix, MatrixRow, header_names, read_matrix
from topocal.measure.samples import Sample
from topocal.topo.readers.matrix_text import plain_lines
from topocal.topo.units import BYTES_PER_GB

__all__ = ["TRANSFERBENCH_P2P", "looks_like_transferbench_p2p", "parse_transferbench_p2p"]

TITLE: Final = "TransferBench p2p"

_TABLE: Final = re.compile(
    r"(Uni|Bi)directional copy peak bandwidth GB/s\s{0,4}\[(Local|Remote) read / (?:Local|Remote)"
    r" write\]\s{0,4}\(GPU-Executor:\s{0,4}(GFX|DMA)\)"
)
_BYTES: Final = re.compile(r"Bytes Per Direction[ ,]{1,8}([0-9]{1,15})")
_LOOK_AHEAD: Final = 4


def looks_like_transferbench_p2p(text: str) -> bool:
    """Whether a text has one of the preset's tables."""
    return _TABLE.search(text) is not None


def parse_transferbench_p2p(text: str, *, file: str) -> Imported:
    """The tables of one output.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="transferbench", title=TITLE, file=file)
    lines = [line.replace(",", " ") for line in plain_lines(text)]
    size: float | None = None
    run, seen = 1, set[str]()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if stated := _BYTES.search(line):
            size = float(stated[1]) or None
        if (title := _TABLE.search(line)) is None:
            continue
        if title[1] in seen:
            run, seen = run + 1, set()
        seen.add(title[1])
        found = _table_below(lines, at, draft.file)
        if found is None:
            draft.note(f"line {at}: no table follows")
            continue
        matrix, at = found
        _add(draft, title, matrix, size, run)
    draft.prefer_one_run()
    return draft.done()


def _table_below(lines: Sequence[str], at: int, file: str) -> tuple[Matrix, int] | None:
    for here in range(at, min(at + _LOOK_AHEAD, len(lines))):
        if header_names(lines[here]) is not None:
            return read_matrix(lines, here, file=file)
    return None


def _add(draft: Draft, title: re.Match[str], matrix: Matrix, size: float | None, run: int) -> None:
    both = title[1] == "Bi"
    label = f"{'both ways' if both else 'one way'}, {title[3]}"
    samples = _both_ways(draft, matrix, size) if both else _one_way(draft, matrix, size)
    for sentence in matrix.damage(f"the table {label!r}"):
        draft.note(sentence)
    draft.add(
        label,
        samples,
        conditions={
            "run": str(run),
            "engine": "kernel" if title[3] == "GFX" else "copy engine",
            "operation": "read" if title[2] == "Remote" else "write",
            "direction": "both ways" if both else "one way",
            "statistic": "mean",
        },
    )


def _one_way(draft: Draft, matrix: Matrix, size: float | None) -> list[Sample]:
    return [
        alone(row.name, column, cell * BYTES_PER_GB, where=draft.where(row.line), size_bytes=size)
        for row in matrix.rows
        if row.arrow in ("->", "")
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if column != row.name and cell and is_rate(cell * BYTES_PER_GB)
    ]


def _both_ways(draft: Draft, matrix: Matrix, size: float | None) -> list[Sample]:
    forth = {row.name: row for row in matrix.rows if row.arrow == "->"}
    back = {row.name: row for row in matrix.rows if row.arrow == "<-"}
    samples = []
    for name, row in forth.items():
        if name not in back:
            draft.note(f"line {row.line}: row {name} has no row <- of its own: it is left out")
            continue
        samples += _pairs(draft, matrix, row, back[name], size)
    return samples


def _pairs(
    draft: Draft, matrix: Matrix, forth: MatrixRow, back: MatrixRow, size: float | None
) -> list[Sample]:
    samples = []
    for column, a, b in zip(matrix.columns, forth.cells, back.cells, strict=True):
        if column == forth.name or not a or not b:
            continue
        rates = [a * BYTES_PER_GB, b * BYTES_PER_GB]
        if not all(map(is_rate, rates)):
            continue
        pairs = in_order(forth.name, column)
        mirrored = pairs[0] != (forth.name, column)
        samples.append(
            finishing(
                pairs,
                rates[::-1] if mirrored else rates,
                where=draft.where(forth.line),
                size_bytes=size,
                repeat=int(mirrored),
            )
        )
    return samples


TRANSFERBENCH_P2P: Final = Importer(
    name="transferbench",
    title=TITLE,
    looks_like=looks_like_transferbench_p2p,
    parse=parse_transferbench_p2p,
)
"""The importer that the registry lists."""

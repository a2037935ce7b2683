"""TransferBench: its presets' tables, and the lines of single transfers.

What the figures are (client/Presets in ROCm/TransferBench): in the first table of ``p2p``
one copy at a time from the row's memory to the column's, averaged; in the second both
directions of a pair at once, ``->`` and ``<-`` the bytes of each over its own time and
``<->`` their sum.  The pattern takes as long as the slower one.  CPU numbers are NUMA nodes.
Tables may be printed as CSV, and rows ``min``, ``max`` and ``sd`` may stand between them.
``podp2p`` does the same over several ranks, each a node of its own here; presets over network
cards: :mod:`topocal.measure.importers.transferbench_nics`.
``a2a`` copies between all pairs at once; ``scaling`` copies from one GPU to
each other memory with ever more compute units, of which the best counts.  Lines of single
transfers: :mod:`topocal.measure.importers.transferbench_transfers`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import alone, finishing, in_order, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.text_matrix import Matrix, MatrixRow, header_names, read_matrix
from topocal.measure.importers.transferbench_nics import NicTables, is_of_nics
from topocal.measure.importers.transferbench_ranks import read_rank_table
from topocal.measure.importers.transferbench_transfers import (
    Transfers,
    add_all_to_all,
    is_transfer,
)
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import BYTES_PER_GB

__all__ = ["TRANSFERBENCH", "looks_like_transferbench", "parse_transferbench"]

TITLE: Final = "TransferBench"

_TABLE: Final = re.compile(
    r"(Uni|Bi)directional copy peak bandwidth GB/s\s{0,4}\[(Local|Remote) read / (?:Local|Remote)"
    r" write\]\s{0,4}\(GPU-Executor:\s{0,4}(GFX|DMA)\)"
)
_BYTES: Final = re.compile(r"Bytes Per Direction[ ,]{1,8}([0-9]{1,15})")
_SUMMARY: Final = re.compile(r"Summary:\s{0,4}\[([0-9]{1,15}) bytes per Transfer\](.{0,200})")
_SUMMARY_ENGINE: Final = re.compile(r"\[(GFX|DMA):")
_SCALING: Final = re.compile(r"Copying ([0-9]{1,15}) bytes from (GPU|CPU) ([0-9]{1,4}) to other")
_SCALING_HEADER: Final = re.compile(
    r"\s{0,8}NumCUs((?:\s{1,40}(?:CPU|GPU)\s?[0-9]{1,4}){1,256})\s*"
)
_COLUMN: Final = re.compile(r"(CPU|GPU)\s?([0-9]{1,4})")
_CSV_HEADER: Final = re.compile(r"Test#,Transfer#,NumBytes,Src,Exe,Dst")
_PARALLEL: Final = re.compile(r"^PARALLEL_LVL\s{1,20}=?\s{0,20}[1-9]", re.M)
_LOOK_AHEAD: Final = 4
_ENGINES: Final = {"GFX": "kernel", "DMA": "copy engine"}


def looks_like_transferbench(text: str) -> bool:
    """Whether a text has one of the presets' tables, or a line of a transfer."""
    if _TABLE.search(text) or _SUMMARY.search(text) or _CSV_HEADER.search(text):
        return True
    if _SCALING.search(text) is not None and "NumCUs" in text:
        return True
    if "NIC" in text and any(map(is_of_nics, text.splitlines())):
        return True
    return "Transfer" in text and any(map(is_transfer, _lines(text)))


def _lines(text: str) -> list[str]:
    """Lines with blanks for what may stand between columns."""
    return [line.replace("\\ ", " ").replace(",", " ") for line in plain_lines(text)]


def parse_transferbench(text: str, *, file: str) -> Imported:
    """The tables and transfers of one output.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="transferbench", title=TITLE, file=file)
    lines = _lines(text)
    size: float | None = None
    run, seen = 1, set[str]()
    transfers, nics = Transfers(draft), NicTables(draft)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if stated := _BYTES.search(line):
            size = float(stated[1]) or None
        if transfers.take(line, at) or nics.take(line, at):
            continue
        if summary := _SUMMARY.search(line):
            found = _table_below(lines, at, draft.file)
            if found is not None:
                matrix, at = found
                _add_summary(draft, transfers, summary, matrix)
            continue
        if scaling := _SCALING.search(line):
            at = _add_scaling(draft, scaling, lines, at)
            continue
        if (title := _TABLE.search(line)) is None:
            continue
        if title[1] in seen:
            run, seen = run + 1, set()
        seen.add(title[1])
        found = read_rank_table(lines, at, file=file) or _table_below(lines, at, file)
        if found is None:
            draft.note(f"line {at}: no table follows")
            continue
        matrix, at = found
        _add(draft, title, matrix, size, run)
    transfers.finish()
    nics.finish()
    if _PARALLEL.search(text) is not None:
        draft.note(
            "pairs of nodes ran at the same time (PARALLEL_LVL): what they share is in the figures"
        )
    draft.prefer_one_run()
    return draft.done()


def _add_summary(
    draft: Draft, transfers: Transfers, summary: re.Match[str], matrix: Matrix
) -> None:
    pairs = sum(
        1
        for row in matrix.rows
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if cell and column != row.name
    )
    if 0 < transfers.last_count <= pairs and not matrix.missing_rows():
        transfers.drop_last()
    engine = _SUMMARY_ENGINE.search(summary[2])
    named = {} if engine is None else {"engine": _ENGINES[engine[1]]}
    add_all_to_all(draft, matrix, float(summary[1]) or None, named)


def _add_scaling(draft: Draft, title: re.Match[str], lines: Sequence[str], at: int) -> int:
    """Copies from one memory with ever more compute units: the best of each column."""
    source = f"{title[2].lower()}{int(title[3])}"
    best: dict[str, tuple[float, int]] = {}
    names: list[str] = []
    end = at
    for number in range(at, len(lines)):
        line = lines[number]
        if not line.strip():
            continue
        header = _SCALING_HEADER.fullmatch(line)
        if header is not None:
            names = [f"{w.lower()}{int(n)}" for w, n in _COLUMN.findall(header[1])]
            continue
        figures = [to_number(word) for word in line.split()]
        if not names:
            continue
        if len(figures) != len(names) + 1 or None in figures:
            break
        end = number + 1
        for name, value in zip(names, figures[1:], strict=True):
            if value and value > best.get(name, (0.0, 0))[0]:
                best[name] = (value, number + 1)
    samples = [
        alone(
            source,
            name,
            value * BYTES_PER_GB,
            where=draft.where(line),
            size_bytes=float(title[1]) or None,
        )
        for name, (value, line) in best.items()
        if name != source and is_rate(value * BYTES_PER_GB)
    ]
    if samples:
        draft.note("of copies with ever more compute units, the best of each pair is taken")
    draft.add(
        f"from {source}, best number of compute units",
        samples,
        conditions={"engine": "kernel", "direction": "one way", "statistic": "peak"},
    )
    return end


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
            "engine": _ENGINES[title[3]],
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


TRANSFERBENCH: Final = Importer(
    name="transferbench",
    title=TITLE,
    looks_like=looks_like_transferbench,
    parse=parse_transferbench,
)
"""The importer that the registry lists."""

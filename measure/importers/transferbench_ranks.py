"""TransferBench's tables over several ranks (preset ``podp2p``), as a matrix or as a list.

A matrix names the ranks above their GPUs, each in the first column of its block; rank and
GPU are one device.  A list has a row for each pair.  All ranks have the same GPUs
(client/Presets/PodPeerToPeer.hpp in ROCm/TransferBench).  With one rank only, its GPUs are
called as everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import to_number
from topocal.measure.importers.text_matrix import MAX_COLUMNS, Matrix, MatrixRow
from topocal.topo.errors import FormatError, Where

__all__ = ["read_rank_table"]

_RANKS: Final = re.compile(
    r"\s{0,8}SRC\S{0,12}DST\S{0,4}((?:\s{1,200}Rank\s[0-9]{1,4}){1,1024})\s*"
)
_MEMORIES: Final = re.compile(
    r"\s{0,200}Mem Device((?:\s{1,40}(?:GPU|CPU)\s[0-9]{1,4}){1,1024})\s*"
)
_ROW: Final = re.compile(
    r"\s{0,200}(?:Rank\s([0-9]{1,4})\s{1,40})?(GPU|CPU)\s([0-9]{1,4})(?:\s{1,8}(->|<-|<->))?"
    r"((?:\s{1,40}(?:[0-9.]{1,16}|N/A)){1,1024})\s*"
)
_LIST: Final = re.compile(
    r"\s{0,8}SRC Rank\s{1,40}SRC MEM\s{1,40}(?:Dir\s{1,40})?DST Rank\s{1,40}DST MEM\s{1,40}"
    r"bw \(GB/s\)\s*"
)
_LIST_ROW: Final = re.compile(
    r"\s{0,40}Rank\s([0-9]{1,4})\s{1,40}(GPU|CPU)\s([0-9]{1,4})\s{1,40}(?:(->|<-|<->)\s{1,40})?"
    r"Rank\s([0-9]{1,4})\s{1,40}(GPU|CPU)\s([0-9]{1,4})\s{1,40}([0-9.]{1,16}|N/A)\s*"
)
_NUMBER: Final = re.compile(r"([0-9]{1,4})")
_MEMORY: Final = re.compile(r"(GPU|CPU)\s([0-9]{1,4})")
_LOOK_AHEAD: Final = 6

_Device = tuple[int, str, int]
"""Rank, kind and number."""


def read_rank_table(lines: Sequence[str], at: int, *, file: str) -> tuple[Matrix, int] | None:
    """The table that begins within a few lines of ``at``, and the line after its last row.

    Raises
    ------
    FormatError
        When it has more columns than any tool prints.
    """
    for here in range(at, min(at + _LOOK_AHEAD, len(lines))):
        if (ranks := _RANKS.fullmatch(lines[here])) is not None:
            return _matrix(lines, here, [int(n) for n in _NUMBER.findall(ranks[1])], file)
        if _LIST.fullmatch(lines[here]) is not None:
            return _list(lines, here, file)
    return None


def _is_rule(line: str) -> bool:
    return re.search(r"\w", line) is None


def _matrix(
    lines: Sequence[str], at: int, ranks: list[int], file: str
) -> tuple[Matrix, int] | None:
    below = at + 1
    while below < len(lines) and _is_rule(lines[below]):
        below += 1
    memories = _MEMORIES.fullmatch(lines[below]) if below < len(lines) else None
    if memories is None:
        return None
    found = _MEMORY.findall(memories[1])
    each = len(found) // len(ranks)
    if each * len(ranks) != len(found):
        return None
    columns = [(ranks[k // each], kind, int(number)) for k, (kind, number) in enumerate(found)]
    matrix = Matrix(columns=_names(columns, ranks), line=at + 1)
    _check(matrix, file)
    rank, end = ranks[0], below + 1
    for number in range(below + 1, len(lines)):
        if _is_rule(lines[number]):
            continue
        row = _ROW.fullmatch(lines[number])
        if row is None:
            break
        rank = int(row[1]) if row[1] is not None else rank
        cells = [to_number(word) for word in row[5].split()]
        end = number + 1
        name = _name((rank, row[2], int(row[3])), ranks)
        if len(cells) != len(columns):
            matrix.cut = (number + 1, name, len(cells), len(columns))
            continue
        matrix.rows.append(MatrixRow(name=name, arrow=row[4] or "", cells=cells, line=number + 1))
    return matrix, end


def _list(lines: Sequence[str], at: int, file: str) -> tuple[Matrix, int]:
    rows: dict[tuple[_Device, str], dict[_Device, float | None]] = {}
    where: dict[tuple[_Device, str], int] = {}
    end = at + 1
    for number in range(at + 1, len(lines)):
        if _is_rule(lines[number]):
            continue
        row = _LIST_ROW.fullmatch(lines[number])
        if row is None:
            break
        end = number + 1
        key = ((int(row[1]), row[2], int(row[3])), row[4] or "")
        where.setdefault(key, number + 1)
        rows.setdefault(key, {})[int(row[5]), row[6], int(row[7])] = to_number(row[8])
    columns = sorted({d for cells in rows.values() for d in cells})
    ranks = sorted({d[0] for d in columns} | {device[0] for device, _ in rows})
    matrix = Matrix(columns=_names(columns, ranks), line=at + 1)
    _check(matrix, file)
    for (device, arrow), cells in rows.items():
        matrix.rows.append(
            MatrixRow(
                name=_name(device, ranks),
                arrow=arrow,
                cells=[cells.get(column) for column in columns],
                line=where[device, arrow],
            )
        )
    return matrix, end


def _names(columns: Sequence[_Device], ranks: Sequence[int]) -> list[str]:
    return [_name(column, ranks) for column in columns]


def _name(device: _Device, ranks: Sequence[int]) -> str:
    rank, kind, number = device
    plain = f"{kind.lower()}{number}"
    return plain if len(ranks) < 2 else f"node{rank}/{plain}"


def _check(matrix: Matrix, file: str) -> None:
    if len(matrix.columns) > MAX_COLUMNS:
        raise FormatError(
            f"has a table of {len(matrix.columns)} columns",
            where=Where(file=file, line=matrix.line),
            remedy=f"give a table of {MAX_COLUMNS} devices at most",
        )

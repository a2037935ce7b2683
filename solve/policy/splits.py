"""Split regions: the shares met to the row, cut along axis 0 only.

Of each group, regions too small to cut and whatever else fits go whole to the holder that
lacks most of its quota.  The rest is laid end to end, and the quotas that are left cut it.
A cut keeps at least ``min_split_bytes`` on either side; where that is not possible it moves to
the nearest row that does, or to the region's edge, and the next quota makes up for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.solve.policy.choice import Choice
from topocal.solve.policy.rounding import Regions
from topocal.solve.policy.table import Table

__all__ = ["Pieces", "cut"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """What each holder sends, S pieces in the order of the regions, then along axis 0.

    Attributes
    ----------
    region
        Shape (S,): number of the region.
    entry
        Shape (S,): entry of the choice.
    begin, rows
        Shape (S,): along axis 0.
    """

    region: Ints
    entry: Ints
    begin: Ints
    rows: Ints


def cut(
    choice: Choice, table: Table, regions: Regions, shares: Floats, min_split_bytes: int
) -> Pieces:
    """Tile every region with pieces such that each holder sends about its share."""
    rows = table.rows[regions.row]
    row_bytes = table.row_bytes[regions.row]
    least = -(-min_split_bytes // np.maximum(row_bytes, 1))
    can_cut = (row_bytes > 0) & (rows >= 2 * np.maximum(least, 1))
    quota = shares * choice.size_bytes[choice.entry_group]
    whole = np.full(len(regions.row), -1, dtype=np.int64)
    pieces: list[tuple[int, int, int, int]] = []
    by_group = regions.order[np.argsort(regions.group[regions.order], kind="stable")]
    ends = np.searchsorted(regions.group[by_group], np.arange(len(choice.groups) + 1))
    for group in range(len(choice.groups)):
        members = by_group[ends[group] : ends[group + 1]]
        first, last = int(choice.start[group]), int(choice.start[group + 1])
        left = quota[first:last].tolist()
        rest = []
        # Those that cannot be cut come first, so that the others can make up for them.
        for k in members[np.argsort(can_cut[members], kind="stable")].tolist():
            best = max(range(len(left)), key=left.__getitem__)
            size = float(regions.size[k])
            if can_cut[k] and size > left[best]:
                rest.append(k)
                continue
            left[best] -= size
            whole[k] = first + best
        pieces += _laid_out(rest, left, first, rows, row_bytes, np.maximum(least, 1))
    kept = np.flatnonzero(whole >= 0)
    table_of = np.array(pieces, dtype=np.int64).reshape(-1, 4)
    region = np.concatenate((kept, table_of[:, 0]))
    begin = np.concatenate((np.zeros(len(kept), dtype=np.int64), table_of[:, 2]))
    order = np.lexsort((begin, region))
    return Pieces(
        region=region[order],
        entry=np.concatenate((whole[kept], table_of[:, 1]))[order],
        begin=begin[order],
        rows=np.concatenate((rows[kept], table_of[:, 3]))[order],
    )


def _laid_out(
    rest: list[int], left: list[float], first: int, rows: Ints, row_bytes: Ints, least: Ints
) -> list[tuple[int, int, int, int]]:
    """``(region, entry, begin, rows)`` of regions end to end, cut by what each holder lacks."""
    pieces: list[tuple[int, int, int, int]] = []
    for k in rest:
        at, end, unit, margin = 0, int(rows[k]), float(row_bytes[k]), int(least[k])
        while at < end:
            best = max(range(len(left)), key=left.__getitem__)
            wanted = round(max(left[best], 0.0) / unit)
            take = _allowed(wanted, end - at, margin)
            left[best] -= take * unit
            if pieces and pieces[-1][:2] == (k, first + best):
                last = pieces.pop()
                pieces.append((k, last[1], last[2], last[3] + take))
            else:
                pieces.append((k, first + best, at, take))
            at += take
    return pieces


def _allowed(wanted: int, rows: int, margin: int) -> int:
    """So many rows of the rest, or the nearest number that leaves neither side too small.

    >>> _allowed(5, 10, 2), _allowed(1, 10, 2), _allowed(9, 10, 2), _allowed(12, 10, 2)
    (5, 2, 8, 10)
    >>> _allowed(1, 3, 2)
    3
    """
    if rows < 2 * margin or wanted >= rows:
        return rows
    take = max(wanted, margin)
    if rows - take >= margin:
        return take
    return rows if wanted - (rows - margin) > rows - wanted else rows - margin

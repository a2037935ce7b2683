"""Candidates made from shares: whole regions and split ones, rounded, improved, polished.

Shares that spread the bytes end together but ask for many small quotas; shares with few
holders round well; and one request after another may do well, too.  Each is tried as it is
rounded and after local search; the best few of the whole and of the split ones are polished by
simulated finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.policy.choice import Choice
from topocal.solve.policy.judge import Judge
from topocal.solve.policy.program import least_busy_whole
from topocal.solve.policy.rounding import (
    Regions,
    by_holder,
    by_quota,
    improved,
    polished,
    regions_of,
    shares_of,
)
from topocal.solve.policy.splits import cut
from topocal.solve.policy.table import Table

__all__ = ["Way", "drafts"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SQUARINGS: Final = (4, 5)
"""Powers that local search tries: 16 and 32."""

_POLISHED: Final = 2
"""So many of the whole and of the split ones, the best first."""

_ENOUGH: Final = 2e-3
"""A finish this near to the bound, relative, needs no further search."""


@dataclass(frozen=True, eq=False)
class Way:
    """A candidate as parts: row of the table, holder, begin and rows along axis 0.

    In order of rows, then along the axis.
    """

    name: str
    row: Ints
    holder: Ints
    begin: Ints
    rows: Ints


@dataclass(frozen=True, eq=False)
class _Draft:
    """Pieces of the requests that have a choice, and the entry that each is with.

    ``pieces.row`` may name a row several times, in order along axis 0.
    """

    name: str
    pieces: Regions
    begin: Ints
    rows: Ints
    held: Ints
    is_split: bool


def drafts(
    choice: Choice,
    table: Table,
    judge: Judge,
    shares: Sequence[Floats],
    online: Ints,
    bound_s: float,
    min_split_bytes: int | None,
) -> list[Way]:
    """All candidates.

    Parameters
    ----------
    shares
        Shape (E,) each: the first spread, the others with few holders.
    online
        Shape (N,): the holder of each row of the table by the policy of that name, to start from.
    min_split_bytes
        ``None``: whole regions only.
    """
    found = list(_rounded(choice, table, shares, online, bound_s, min_split_bytes))
    for kind in (False, True):
        mine = [draft for draft in found if draft.is_split == kind]
        if len(choice.groups) and mine:
            enough_s = bound_s * (1.0 + _ENOUGH)
            _, finish = judge.race(
                [choice.bytes_of(shares_of(choice, d.pieces, d.held)) for d in mine],
                enough_s=enough_s,
            )
            for k in np.argsort(finish, kind="stable")[:_POLISHED].tolist():
                if not np.isfinite(finish[k]):
                    break
                draft = mine[k]
                held, least = polished(choice, judge, draft.pieces, draft.held, enough_s)
                if (held != draft.held).any():
                    found.append(replace(draft, name=f"{draft.name}, polished", held=held))
                if least <= enough_s:
                    break
    return [_way(choice, table, draft) for draft in found]


def _rounded(
    choice: Choice,
    table: Table,
    shares: Sequence[Floats],
    online: Ints,
    bound_s: float,
    min_split_bytes: int | None,
) -> Iterator[_Draft]:
    regions = regions_of(choice, table)
    begin = np.zeros(len(regions.row), dtype=np.int64)
    whole = _Draft("", regions, begin, table.rows[regions.row], begin, False)
    for start, prefix in zip(shares, ("spread", *["few"] * len(shares)), strict=False):
        held = by_quota(choice, regions, start)
        yield from _improved(choice, replace(whole, name=f"{prefix}, whole", held=held), bound_s)
        if min_split_bytes is not None:
            draft = _cut(choice, table, regions, start, min_split_bytes)
            yield from _improved(choice, replace(draft, name=f"{prefix}, split"), bound_s)
    held = by_holder(choice, regions, online[regions.row])
    yield from _improved(choice, replace(whole, name="online, whole", held=held), bound_s)
    exact = least_busy_whole(choice, regions)
    if exact is not None:
        yield replace(whole, name="integer program, whole", held=exact)


def _improved(choice: Choice, draft: _Draft, bound_s: float) -> Iterator[_Draft]:
    """A draft, and what local search makes of it."""
    yield draft
    for squarings in _SQUARINGS:
        held = improved(choice, draft.pieces, draft.held, bound_s, squarings)
        yield replace(draft, name=f"{draft.name}, improved ({2**squarings})", held=held)


def _cut(
    choice: Choice, table: Table, regions: Regions, shares: Floats, min_split_bytes: int
) -> _Draft:
    pieces = cut(choice, table, regions, shares, min_split_bytes)
    row = regions.row[pieces.region]
    size = (pieces.rows * table.row_bytes[row]).astype(np.float64)
    parts = Regions(row, regions.group[pieces.region], size, np.argsort(-size, kind="stable"))
    return _Draft("", parts, pieces.begin, pieces.rows, pieces.entry, True)


def _way(choice: Choice, table: Table, draft: _Draft) -> Way:
    """With the requests that have no choice; neighbours from one holder become one part."""
    only = np.array([holders[0] for holders in table.group_holders], dtype=np.int64)
    plain = np.ones(len(table.target), dtype=bool)
    plain[draft.pieces.row] = False
    others = np.flatnonzero(plain)
    holder = table.target[others].copy()
    moving = table.group[others] >= 0
    holder[moving] = only[table.group[others][moving]]
    row = np.concatenate((others, draft.pieces.row))
    begin = np.concatenate((np.zeros(len(others), dtype=np.int64), draft.begin))
    holder = np.concatenate((holder, choice.entry_holder[draft.held]))
    rows = np.concatenate((table.rows[others], draft.rows))
    order = np.lexsort((begin, row))
    row, begin, holder, rows = row[order], begin[order], holder[order], rows[order]
    first = np.ones(len(row), dtype=bool)
    first[1:] = (row[1:] != row[:-1]) | (holder[1:] != holder[:-1])
    starts = np.flatnonzero(first)
    return Way(draft.name, row[first], holder[first], begin[first], np.add.reduceat(rows, starts))

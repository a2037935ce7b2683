"""Who loads what, written down as sets: "these senders to these receivers".

A resource is loaded by few blocks of a machine's pairs: a card's uplink by that card to
everybody, the hop between sockets by one socket's cards to the other's.  A machine of n
endpoints has n² pairs but only a few blocks for each resource, and the sets repeat.

A pair of an endpoint with itself loads nothing, whatever the blocks say; so a block may
hold it, and "everybody under this switch to everybody" is one block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["Block", "SetTable", "blocks_of", "matrix_of", "members_of", "ranges_of"]

Ints = NDArray[np.int64]
Block = tuple[int, int, float]
"""Number of the senders' set, of the receivers' set, and a value."""

_SALTS: Final = 8


@dataclass
class SetTable:
    """Sets of endpoints, each once, in the order in which they were first asked for."""

    sets: list[tuple[int, ...]] = field(default_factory=list)
    _number: dict[bytes, int] = field(default_factory=dict)

    def number(self, members: Ints) -> int:
        """Number of the set of ``members``, which are in order."""
        key = np.ascontiguousarray(members, dtype=np.int64).tobytes()
        found = self._number.setdefault(key, len(self.sets))
        if found == len(self.sets):
            self.sets.append(tuple(members.tolist()))
        return found


def ranges_of(members: Sequence[int]) -> list[list[int]]:
    """Ordered numbers as arguments of :class:`range`: ``[first, end]`` or ``[first, end, step]``.

    >>> ranges_of([0, 1, 2, 3, 8, 16, 24, 40])
    [[0, 4], [8, 32, 8], [40, 41]]
    """
    found: list[list[int]] = []
    k = 0
    while k < len(members):
        step = members[k + 1] - members[k] if k + 1 < len(members) else 1
        last = k
        while last + 1 < len(members) and members[last + 1] - members[last] == step:
            last += 1
        if step > 1 and last - k < 2:  # Two far apart are not yet a pattern.
            last, step = k, 1
        first, end = members[k], members[last]
        found.append([first, end + 1] if step == 1 else [first, end + step, step])
        k = last + 1
    return found


def members_of(ranges: Iterable[Sequence[int]], n: int) -> tuple[int, ...]:
    """The numbers that :func:`ranges_of` wrote.

    Raises
    ------
    ValueError
        When they are not numbers below ``n`` in order, each once.
    """
    found: list[int] = []
    for one in ranges:
        span: Any = range(*one) if 2 <= len(one) <= 3 and min(one[2:], default=1) > 0 else ()
        if not span or span[0] <= (found[-1] if found else -1) or span[-1] >= n:
            raise ValueError(f"{list(one)} is no range of the {n} endpoints in order")
        found.extend(span)
    return tuple(found)


def blocks_of(matrix: csr_array, n: int, table: SetTable) -> list[list[Block]]:
    """For each column of a (pairs × columns) matrix its blocks, in a fixed order.

    Senders with the same receivers (each but itself) make a block.  The matrix has no explicit
    zeros and nothing on pairs of an endpoint with itself.
    """
    columns = matrix.tocsc()
    columns.sort_indices()
    column = np.repeat(np.arange(matrix.shape[1]), np.diff(columns.indptr))
    pair, value = columns.indices.astype(np.int64), columns.data
    values, code = np.unique(value, return_inverse=True)
    lane = column * max(1, len(values)) + code
    order = np.argsort(lane, kind="stable")
    lane, pair = lane[order], pair[order]
    source, destination = pair // n, pair % n
    new = np.ones(len(pair), dtype=bool)
    new[1:] = (np.diff(lane) != 0) | (np.diff(source) != 0)
    start = np.flatnonzero(new)
    end = np.append(start[1:], len(pair))
    found: list[list[Block]] = [[] for _ in range(matrix.shape[1])]
    if not len(start):
        return found
    run_lane, run_source = lane[start], source[start]
    key, with_self = _keys(run_lane, run_source, destination, start, n)
    grouped = np.lexsort((np.arange(len(key)), key, run_lane))
    first = np.ones(len(grouped), dtype=bool)
    first[1:] = (np.diff(key[grouped]) != 0) | (np.diff(run_lane[grouped]) != 0)
    bounds = np.append(np.flatnonzero(first), len(grouped))
    # Blocks of a resource stand in the order of their first sender.
    groups = [grouped[a:b] for a, b in itertools.pairwise(bounds)]
    groups.sort(key=lambda members: (int(run_lane[members[0]]), int(members[0])))
    for members in groups:
        one = int(members[0])
        receivers = destination[start[one] : end[one]]
        if with_self[one]:
            receivers = np.union1d(receivers, run_source[one : one + 1])
        senders = run_source[members]
        if len(receivers) == 1 and len(senders) == n - 1:  # From everybody, itself not counted.
            senders = np.union1d(senders, receivers)
        c, v = divmod(int(run_lane[one]), len(values))
        found[c].append((table.number(senders), table.number(receivers), float(values[v])))
    return found


def _keys(
    run_lane: Ints, run_source: Ints, destination: Ints, start: Ints, n: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A key for each sender's set of receivers, and whether it holds the sender itself.

    It does where that makes more sets the same, and where it makes no difference and there
    are several receivers: neighbours then have the same sets.  Equal keys in a lane mean
    equal sets; a second, independent key checks that.
    """
    check = _random_words(n, _SALTS)
    several = np.diff(np.append(start, len(destination)))
    for salt in range(_SALTS):
        word = _random_words(n, salt)
        plain = np.add.reduceat(word[destination], start)
        own = plain + word[run_source]
        spread = _random_words(int(run_lane[-1]) + 1, _SALTS + 1 + salt)[run_lane]
        _, inverse, count = np.unique(
            np.concatenate((plain + spread, own + spread)), return_inverse=True, return_counts=True
        )
        common = count[inverse]
        gain = common[len(plain) :] - common[: len(plain)]
        with_self = (gain > 0) | ((gain == 0) & (several > 1))
        key = np.where(with_self, own, plain)
        second = np.add.reduceat(check[destination], start)
        second = np.where(with_self, second + check[run_source], second)
        order = np.lexsort((key, run_lane))
        same = (np.diff(key[order]) == 0) & (np.diff(run_lane[order]) == 0)
        if not np.any(same & (np.diff(second[order]) != 0)):
            break
    return key, with_self


def _random_words(count: int, salt: int) -> NDArray[np.uint64]:
    """The same numbers on every machine: splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(salt << 40)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def matrix_of(
    blocks: Sequence[Sequence[Block]], sets: Sequence[Sequence[int]], n: int
) -> csr_array:
    """The (pairs × columns) matrix of the blocks of each column; pairs with themselves empty."""
    members = [np.array(s, dtype=np.int64) for s in sets]
    pairs, columns, values = [], [], []
    for c, own in enumerate(blocks):
        for senders, receivers, value in own:
            pair = (members[senders][:, None] * n + members[receivers]).ravel()
            pair = pair[pair % (n + 1) != 0]
            pairs.append(pair)
            columns.append(np.full(len(pair), c))
            values.append(np.full(len(pair), float(value)))
    shape = (n * n, len(blocks))
    if not pairs:
        return csr_array(shape, dtype=np.float64)
    triples = (np.concatenate(values), (np.concatenate(pairs), np.concatenate(columns)))
    found = csr_array(triples, shape=shape)
    found.sum_duplicates()
    return found

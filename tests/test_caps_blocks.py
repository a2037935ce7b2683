"""Blocks of senders and receivers say exactly which pairs load what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from topocal.solve.rectangles import SetTable, blocks_of, matrix_of, members_of, ranges_of


def _matrix(n: int, *columns: dict[tuple[int, int], float]) -> csr_array:
    found = np.zeros((n * n, len(columns)))
    for c, column in enumerate(columns):
        for (a, b), value in column.items():
            found[a * n + b, c] = value
    return csr_array(found)


def test_a_card_an_uplink_and_everybody_are_one_block_each() -> None:
    # Four cards, 0 and 1 under one switch, 2 and 3 under another.
    n = 4
    others = {(0, b): 1.0 for b in (1, 2, 3)}
    uplink = {(a, b): 2.0 for a in (0, 1) for b in (2, 3)}
    everybody = {(a, b): 1.0 for a in range(4) for b in range(4) if a != b}
    into = {(a, 3): 1.0 for a in (0, 1, 2)}
    table = SetTable()
    found = blocks_of(_matrix(n, others, uplink, everybody, into), n, table)
    named = [[(table.sets[a], table.sets[b], w) for a, b, w in own] for own in found]
    every = (0, 1, 2, 3)
    assert named == [
        [((0,), every, 1.0)],
        [((0, 1), (2, 3), 2.0)],
        [(every, every, 1.0)],
        [(every, (3,), 1.0)],
    ]


def test_weights_make_blocks_of_their_own() -> None:
    table = SetTable()
    (own,) = blocks_of(_matrix(3, {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 2.0}), 3, table)
    assert sorted(w for _, _, w in own) == [1.0, 2.0]


def test_nothing_has_no_blocks() -> None:
    assert blocks_of(_matrix(3, {}, {}), 3, SetTable()) == [[], []]
    assert matrix_of([[], []], [], 3).shape == (9, 2)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_they_come_back_as_the_same_loads(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 6))
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    loads = st.dictionaries(st.sampled_from(pairs), st.sampled_from([1.0, 2.0, 0.5]))
    matrix = _matrix(n, *data.draw(st.lists(loads, min_size=1, max_size=4)))
    table = SetTable()
    blocks = blocks_of(matrix, n, table)
    back = matrix_of(blocks, table.sets, n)
    assert np.array_equal(back.toarray(), matrix.toarray())
    assert blocks_of(back, n, SetTable()) == blocks


@given(st.sets(st.integers(0, 40), min_size=1))
@settings(deadline=None, max_examples=150)
def test_ranges_come_back_as_the_same_numbers(numbers: set[int]) -> None:
    members = sorted(numbers)
    ranges = ranges_of(members)
    assert members_of(ranges, 41) == tuple(members)
    assert [e for r in ranges for e in range(*r)] == members


@pytest.mark.parametrize("ranges", [[[0]], [[2, 2]], [[0, 3], [2, 4]], [[0, 9]], [[0, 4, 0]]])
def test_ranges_that_are_none_are_refused(ranges: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="is no range"):
        members_of(ranges, 5)

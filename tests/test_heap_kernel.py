"""The priority queues of the compiled loops, against sorting."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.fluid_kernel import TARGET
from topocal.topo.heap_kernel import (
    clear,
    drop_target,
    first,
    insert,
    push_target,
    remove,
    update,
)

RECORD = np.dtype([("key", np.float64), ("place", np.int64)], align=True)

KEYS = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, np.inf])
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 39), KEYS), max_size=300)


@settings(deadline=None, max_examples=150)
@given(STEPS)
def test_a_queue_of_records_is_sorted_whatever_is_done_to_it(
    steps: list[tuple[int, int, float]],
) -> None:
    records = np.zeros(40, dtype=RECORD)
    records["place"] = -1
    queue = np.zeros(41, dtype=np.int64)
    inside: dict[int, float] = {}
    length = 0
    for what, item, key in steps:
        if item not in inside:
            records["key"][item] = inside[item] = key
            length = insert(queue, records, length, item)
        elif what == 0:
            records["key"][item] = inside[item] = key
            update(queue, records, length, item)
        elif what == 1:
            del inside[item]
            length = remove(queue, records, length, item)
        assert length == len(inside)
        assert set(queue[:length]) == set(inside)
        assert all(queue[records["place"][k]] == k for k in inside)
        assert all(records["place"][k] == -1 for k in range(40) if k not in inside)
        if inside:
            assert first(queue, records, length) == min(inside, key=lambda k: (inside[k], k))
    clear(queue, records, length)
    assert (records["place"] == -1).all()
    assert queue[-1] == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 10), max_size=60), st.integers(0, 5))
def test_a_heap_of_targets_gives_them_in_order(values: list[float], offset: int) -> None:
    targets = np.zeros(70, dtype=TARGET)
    for k, value in enumerate(values):
        push_target(targets, offset, k, value, k, -k)
    taken = []
    for length in range(len(values), 0, -1):
        at = targets[offset]
        assert values[at["flow"]] == at["at"]
        assert at["column"] == -at["flow"]
        taken.append(float(at["at"]))
        drop_target(targets, offset, length)
    assert taken == sorted(values)

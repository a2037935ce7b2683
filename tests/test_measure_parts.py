"""What measuring is made of: payloads, orders, batches, what fits, what is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_ranks import surveyed

from topocal.measure import payload
from topocal.measure.checks import doubts, drifted, is_spread
from topocal.measure.design import design
from topocal.measure.memory import refuse_too_much
from topocal.measure.orders import (
    Exchange,
    Order,
    Receive,
    Report,
    Send,
    Start,
    decode,
    encode,
)
from topocal.measure.patterns import fan_in, fan_out, peer
from topocal.measure.plan import Plan
from topocal.measure.samples import Sample
from topocal.measure.schedule import absent_patterns, batches, buffers, exchanges
from topocal.topo.errors import InputError
from topocal.topo.machines import build_machine

# Payload.

INDEX = np.arange(8, dtype=np.int32)


@given(rank=st.integers(0, 2000), slot=st.integers(0, 2000), length=st.integers(1, 40))
@settings(deadline=None, max_examples=100)
def test_what_was_written_is_right_and_nothing_else(rank: int, slot: int, length: int) -> None:
    buffer = np.zeros(length, dtype=np.int32)
    seed = payload.seed_of(rank, slot)
    payload.write(buffer, INDEX, seed)
    assert payload.first_wrong_word(buffer, INDEX, seed) is None
    # Word by word: i·A + seed·B modulo 2^32.
    for i, word in enumerate(buffer.tolist()):
        assert (word - i * 0x9E3779B1 - seed * 0x85EBCA6B) % 2**32 == 0
    assert payload.first_wrong_word(buffer, INDEX, seed + 1) == 0
    assert payload.first_wrong_word(buffer, INDEX, payload.seed_of(rank + 1, slot)) == 0


@given(place=st.integers(0, 29), bit=st.integers(0, 31))
@settings(deadline=None, max_examples=60)
def test_one_bit_is_noticed(place: int, bit: int) -> None:
    buffer = np.zeros(30, dtype=np.int32)
    payload.write(buffer, INDEX, 5)
    buffer.view(np.uint32)[place] ^= np.uint32(1 << bit)
    assert payload.first_wrong_word(buffer, INDEX, 5) == place


def test_words_that_changed_places_are_noticed() -> None:
    buffer = np.zeros(30, dtype=np.int32)
    payload.write(buffer, INDEX, 5)
    assert len(set(buffer.tolist())) == 30
    moved = np.roll(buffer, 8)  # By a whole chunk of the index.
    assert payload.first_wrong_word(moved, INDEX, 5) == 0
    poison = np.full(30, payload.POISON, dtype=np.uint8).repeat(4).view(np.int32)
    assert payload.first_wrong_word(poison, INDEX, 5) == 0


# Orders.


@pytest.mark.parametrize(
    "order",
    [
        Start(at=1.5),
        Exchange(
            sends=[Send(0, 1, 0, 4096)],
            receives=[Receive(1, 2, 0, 3, 17)],
            issue="group",
            iterations=3,
            verify=True,
            limit_s=2.0,
        ),
    ],
)
def test_orders_travel(order: Any) -> None:
    assert decode(encode(order), Order) == order


def test_an_answer_is_no_order() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(encode(Report(failed="x")), Order)


# Who does what.

RANK_OF = {"gpu0": 0, "gpu1": 1, "gpu2": 2, "gpu3": 3}


def of(patterns: list[Any], iterations: list[int] | None = None) -> dict[int, Exchange]:
    return exchanges(
        patterns,
        RANK_OF,
        issue="group",
        iterations=iterations or [1] * len(patterns),
        verify=True,
        limit_s=1.0,
    )


def test_a_fan_in_and_what_each_does_of_it() -> None:
    #   gpu3 <- gpu1, gpu2: two flows, 0 and 1; each sender uses its first buffer.
    found = of([fan_in("gpu3", ["gpu1", "gpu2"], 100.0)])
    assert set(found) == {1, 2, 3}
    assert found[1].sends == [Send(0, 3, 0, 100)]
    assert found[2].sends == [Send(1, 3, 0, 100)]
    assert found[3].receives == [Receive(0, 1, 0, 0, 100), Receive(1, 2, 1, 0, 100)]
    assert (found[1].receives, found[2].receives, found[3].sends) == ([], [], [])


def test_a_fan_out_sends_from_different_buffers() -> None:
    #   gpu0 -> gpu1, gpu2: the receiver of the second expects the second buffer.
    found = of([fan_out("gpu0", ["gpu1", "gpu2"], 100.0)])
    assert found[0].sends == [Send(0, 1, 0, 100), Send(1, 2, 1, 100)]
    assert found[1].receives == [Receive(0, 0, 0, 0, 100)]
    assert found[2].receives == [Receive(1, 0, 0, 1, 100)]


def test_patterns_at_the_same_time_number_their_flows_through() -> None:
    found = of([peer("gpu0", "gpu1", 8.0), peer("gpu2", "gpu3", 16.0)], [5, 2])
    assert found[0].sends == [Send(0, 1, 0, 8)]
    assert found[3].receives == [Receive(1, 2, 0, 0, 16)]
    assert [found[r].iterations for r in range(4)] == [5, 5, 2, 2]


def test_no_rank_does_two_things_at_once() -> None:
    with pytest.raises(InputError, match="two patterns at once at rank 1"):
        of([peer("gpu0", "gpu1", 8.0), peer("gpu1", "gpu2", 8.0)])


# Batches of a plan.


def plan(**more: Any) -> Plan:
    return design(
        build_machine("b70"),
        endpoints=["gpu0", "gpu1", "gpu4"],
        sizes_bytes=more.pop("sizes_bytes", [64.0, 1024.0]),
        **more,
    )


def test_every_scenario_runs_once() -> None:
    whole = plan()
    due = list(batches(whole, ["group"], whole.endpoints))
    ran = [(p.name, b.size_bytes) for b in due for p in b.patterns]
    assert sorted(ran) == sorted((p.name, s) for p in whole.patterns for s in (64.0, 1024.0))
    assert [b.round for b in due] == sorted(b.round for b in due)
    for b in due:
        assert {p.name for p in b.patterns} <= {
            whole.patterns[k].name for k in whole.rounds[b.round]
        }


def test_what_is_measured_is_not_due() -> None:
    whole = plan()
    first = next(batches(whole, ["group"], whole.endpoints))
    done = {(tuple(p.pairs), first.size_bytes, "group") for p in first.patterns}
    due = list(batches(whole, ["group"], whole.endpoints, done))
    assert first not in due
    assert len(due) == len(list(batches(whole, ["group"], whole.endpoints))) - 1


def test_both_ways_to_issue_one_after_the_other() -> None:
    whole = plan(sizes_bytes=[64.0])
    due = list(batches(whole, ["group", "one-by-one"], whole.endpoints))
    ran = {(p.name, b.issue) for b in due for p in b.patterns}
    assert ran == {(p.name, issue) for p in whole.patterns for issue in ("group", "one-by-one")}


def test_patterns_of_who_is_absent_are_left_out() -> None:
    whole = plan()
    present = ["gpu0", "gpu4"]
    absent = absent_patterns(whole, present)
    ran = {p.name for b in batches(whole, ["group"], present) for p in b.patterns}
    assert ran == {p.name for p in whole.patterns} - set(absent)
    assert all("gpu1" in name for name in absent)
    assert not any("gpu1" in name for name in ran)


def test_patterns_that_share_an_endpoint_never_run_together() -> None:
    whole = plan(sizes_bytes=[64.0])
    crowded = replace(whole, rounds=(tuple(range(len(whole.patterns))),))
    for batch in batches(crowded, ["group"], whole.endpoints):
        ends = [end for p in batch.patterns for end in {e for pair in p.pairs for e in pair}]
        assert len(ends) == len(set(ends))


def test_a_size_that_is_no_number_of_bytes() -> None:
    with pytest.raises(InputError, match=r"a message of 100\.5 bytes cannot be sent"):
        list(batches(plan(sizes_bytes=[100.5]), ["group"], ["gpu0"]))


def test_as_many_buffers_as_the_widest_pattern_needs() -> None:
    whole = plan()
    found = buffers(whole, whole.endpoints)
    for name, (sends, receives) in found.items():
        assert sends == max(sum(s == name for s, _ in p.flows) for p in whole.patterns)
        assert receives == max(sum(d == name for _, d in p.flows) for p in whole.patterns)
    assert sum(sum(n) for n in found.values()) > 0


# Memory.


def test_ranks_of_one_host_share_its_memory() -> None:
    surveys = {0: surveyed("a", 1000), 1: surveyed("a", 1000), 2: surveyed("b", 1000)}
    names = ["gpu0", "gpu1", "gpu2"]
    refuse_too_much({0: 400, 1: 400, 2: 800}, surveys, names)
    with pytest.raises(
        InputError,
        match=r"rank 0 \(gpu0\) and 1 more on its host need 801 B of buffers, and 1 kB are",
    ):
        refuse_too_much({0: 400, 1: 401, 2: 0}, surveys, names)
    with pytest.raises(InputError, match=r"rank 2 \(gpu2\) need"):
        refuse_too_much({0: 0, 1: 0, 2: 801}, surveys, names)


def test_buffers_that_are_there_already_count_as_free() -> None:
    refuse_too_much({0: 800}, {0: surveyed("a", 200, held=800)}, ["gpu0"])


# Checks.


def timed(*seconds: float, starts: tuple[float, ...] | None = None) -> list[Sample]:
    return [
        Sample(pattern=peer("gpu0", "gpu1", 8.0), seconds=s, endpoint_start_s=starts)
        for s in seconds
    ]


#   Repeats.                          Which of them are doubtful.
DOUBTFUL = [
    ((1.0, 1.01, 0.99, 1.0, 3.0), [4]),
    ((1.0, 1.01, 0.99, 1.0, 0.3), [4]),
    ((1.0, 1.01, 0.99, 1.0, 1.08), []),  # Eight per cent are the weather.
    ((1.0, 1.3, 0.8, 1.2, 0.9), []),  # All scatter like that.
    ((1.0, 5.0), []),  # Which of two is wrong?
    ((1.0,), []),
    ((), []),
]


@pytest.mark.parametrize(("seconds", "which"), DOUBTFUL)
def test_what_stands_apart_is_doubtful(seconds: tuple[float, ...], which: list[int]) -> None:
    assert list(doubts(timed(*seconds))) == which


def test_starts_that_lie_apart_are_doubtful() -> None:
    assert doubts(timed(1.0, starts=(0.0, 0.09))) == {}
    assert doubts(timed(1.0, starts=(0.0, 0.2))) == {
        0: "its ranks started apart by 20% of its time"
    }


def test_many_doubtful_ones_are_how_it_is() -> None:
    assert not is_spread(1, 5)
    assert not is_spread(2, 6)
    assert is_spread(2, 5)


#   Before, now, how much longer.
DRIFTS = [
    ((1.0, 1.0, 1.0), (1.2, 1.2, 1.2), 1.2),
    ((1.0, 1.0, 1.0), (0.5, 0.5, 0.5), 0.5),
    ((1.0, 1.0, 1.0), (1.05, 1.05, 1.05), None),  # Too little.
    ((1.0, 1.0, 1.5), (1.2, 1.4, 1.4), None),  # It has been there before.
]


@pytest.mark.parametrize(("before", "now", "ratio"), DRIFTS)
def test_drift(before: tuple[float, ...], now: tuple[float, ...], ratio: float | None) -> None:
    assert drifted(before, now) == ratio

"""Orders and reports between ranks: clocks, patience, and who failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from pretended_ranks import (
    LIMIT_S,
    NAMES,
    Group,
    brings_other_bytes,
    crew_of,
    group,
    waits_in_vain,
)

from topocal.measure.crew import Crew, DismissedError, WrongBytesError
from topocal.measure.orders import (
    Exchange,
    Message,
    Prepare,
    Receive,
    Send,
    Tick,
    Wait,
    decode,
    encode,
)
from topocal.measure.waits import complaint
from topocal.topo.errors import MeasurementError


def one_message(limit_s: float = LIMIT_S) -> dict[int, Exchange]:
    """gpu1 -> gpu2."""
    options: dict[str, Any] = {
        "issue": "group",
        "iterations": 1,
        "verify": True,
        "limit_s": limit_s,
    }
    return {
        1: Exchange(sends=[Send(0, 2, 0, 8)], receives=[], **options),
        2: Exchange(sends=[], receives=[Receive(0, 1, 0, 0, 8)], **options),
    }


def test_clocks_of_other_hosts_are_compared() -> None:
    ranks = group(3)
    ranks.members[1].host, ranks.members[1].offset_s = "b", 1000.0
    ranks.members[2].offset_s = 0.0
    ranks.start()
    crew = crew_of(ranks)
    assert crew.offsets_s[1] == pytest.approx(1000.0, abs=1.0)
    assert crew.offsets_s[2] == 0.0  # The same host has the same clock: nothing is estimated.
    reports = crew.exchange(one_message())
    # Told in its own time, reported in ours.
    assert ranks.members[1].started[0] - ranks.members[2].started[0] == pytest.approx(
        1000.0, abs=1.0
    )
    assert reports[1].start == pytest.approx(reports[2].start, abs=1.0)
    crew.stop(failed=False)
    ranks.join()
    assert ranks.ends == {1: None, 2: None}


def test_who_has_nothing_to_do_is_told_to_wait_on() -> None:
    #   gpu1 -> gpu2 again and again, 7 s each, while rank 3 idles and has patience for 20 s.
    now, told = [0.0], [0.0]
    ranks = group(4, time=lambda: now[0])
    ranks.start()
    scatter = ranks.first.control.scatter

    def watched(messages: Mapping[int, Message], limit_s: float) -> dict[int, str]:
        if 3 in messages:
            assert isinstance(messages[3], Wait)
            told.append(now[0])
        return scatter(messages, limit_s)

    crew = Crew(ranks.first, (*NAMES, "gpu3"), LIMIT_S)
    crew.survey()
    ranks.first.control.scatter = watched  # type: ignore[method-assign]  # To see what it is told.
    crew.wait(20.0)
    for _ in range(12):
        crew.exchange(one_message())
        now[0] += 7.0
    assert len(told) > 3
    assert max(b - a for a, b in pairwise([*told, now[0]])) <= 20.0
    ranks.first.control.scatter = scatter  # type: ignore[method-assign]
    crew.stop(failed=False)
    ranks.join()
    assert ranks.ends == {1: None, 2: None, 3: None}


#   What goes wrong where.                          What is said.
FAILURES: dict[str, tuple[Callable[[Group], None], type[MeasurementError], str]] = {
    "waits": (
        lambda g: setattr(g.members[1], "spoil", waits_in_vain),
        MeasurementError,
        "rank 1 (gpu1) waited for rank 2 (gpu2): nothing came in time",
    ),
    "wrong": (
        lambda g: setattr(g.members[2], "spoil", brings_other_bytes),
        WrongBytesError,
        "rank 2 (gpu2) received other bytes than rank 1 (gpu1) sent",
    ),
    "closed": (
        lambda g: g.members[0].network.gone.update({2: "the connection was closed"}),
        MeasurementError,
        "rank 2 (gpu2) is gone: its connection was closed",
    ),
    "silent": (
        lambda g: g.members[0].network.gone.update({2: "nothing came in time"}),
        MeasurementError,
        "rank 2 (gpu2) did not answer within 20 s",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_who_failed_is_named(kind: str) -> None:
    harm, error, words = FAILURES[kind]
    ranks = group(3)
    ranks.start()
    crew = crew_of(ranks)
    crew.exchange(one_message())
    harm(ranks)
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        crew.exchange(one_message())
    ranks.members[0].network.gone.clear()
    crew.stop(failed=True)
    ranks.join()
    assert all(isinstance(end, DismissedError) for end in ranks.ends.values())


def test_the_first_failure_counts() -> None:
    # Both report a failure; that of rank 2 came first.
    ranks = group(3, spoil=waits_in_vain)
    ranks.members[1].seconds = lambda order: 0.5
    ranks.members[2].seconds = lambda order: 0.1
    ranks.start()
    crew = crew_of(ranks)
    with pytest.raises(MeasurementError, match=r"rank 2 \(gpu2\) waited for rank 1"):
        crew.exchange(one_message())
    crew.stop(failed=True)
    ranks.join()
    assert all(isinstance(e, DismissedError) for e in ranks.ends.values())


def test_what_a_rank_cannot_do_it_says() -> None:
    def no_room(order: Prepare) -> None:
        raise MeasurementError("rank 2 has no room for its buffers")

    ranks = group(3)
    ranks.members[2].prepare = no_room  # type: ignore[method-assign]  # A rank without memory.
    ranks.start()
    crew = crew_of(ranks)
    order = Prepare(sends=1, receives=1, bytes_each=8)
    with pytest.raises(MeasurementError, match=r"^rank 2 \(gpu2\) has no room"):
        crew.prepare({0: order, 1: order, 2: order})
    assert ranks.members[0].prepared == ranks.members[1].prepared == [order]
    crew.stop(failed=True)
    ranks.join()


def test_a_first_rank_that_says_nothing_is_not_waited_for() -> None:
    ranks = group(2, limit_s=0.1)
    ranks.start()
    ranks.join()
    assert str(ranks.ends[1]).startswith("rank 0 gave rank 1 no order: nothing came in time")


def test_a_complaint_is_about_others() -> None:
    assert complaint("x").others_fault
    assert DismissedError("x").others_fault
    assert not MeasurementError("x").others_fault
    assert decode(encode(Tick()), Tick) == Tick()

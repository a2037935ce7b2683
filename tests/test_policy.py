"""Who sends what, by hand: answers, and what is refused."""

from __future__ import annotations

import pytest
from policy_cases import costs_of, senders, wanted

from topocal.solve.policy.assign import assign
from topocal.solve.policy.baselines import BASELINES, baseline
from topocal.solve.policy.requests import Part, Request
from topocal.solve.policy.table import table_of
from topocal.topo.errors import InputError, NoRouteError, UnknownEndpointError


def test_a_region_is_split_in_proportion_to_what_its_holders_pass() -> None:
    # Senders of 10 and 30 B/s, 40 rows of one byte: 10 and 30 rows, one second.
    costs = costs_of(3, senders([10.0, 30.0], 3))
    answer = assign(costs, [wanted(2, [0, 1], (40,))], min_split_bytes=1)
    assert answer.finish_s == pytest.approx(1.0)
    assert answer.bound_s == pytest.approx(1.0)
    assert sorted(part.shape for part in answer.parts(0)) == [(10,), (30,)]
    assert {part.holder: part.shape for part in answer.parts(0)} == {"gpu0": (10,), "gpu1": (30,)}


def test_whole_regions_go_where_they_end_soonest() -> None:
    # Two regions of 30 B, senders of 10 and 30 B/s: both from the fast one, 60 / 30 = 2 s (one
    # each: 3 s); shared at will 60 / 40 = 1.5 s.
    costs = costs_of(3, senders([10.0, 30.0], 3))
    asked = [wanted(2, [0, 1], (30,), name) for name in "ab"]
    answer = assign(costs, asked, split=False)
    assert answer.finish_s == pytest.approx(2.0)
    assert answer.bound_s == pytest.approx(1.5)
    assert answer.gap == pytest.approx(1 / 3)
    assert [answer.parts(k)[0].holder for k in (0, 1)] == ["gpu1", "gpu1"]


def test_a_receiver_that_serves_by_turns_is_fed_by_its_fastest_sender() -> None:
    # By turns what adds up is time: every byte from the slow sender (10 B/s) costs the receiver
    # 0.1 s, from the fast one (40 B/s) 0.025 s.  20 bytes: 0.5 s from the fast one alone.
    costs = costs_of(3, senders([10.0, 40.0], 3), engines=[2])
    answer = assign(costs, [wanted(2, [0, 1], (20,))], min_split_bytes=1)
    assert answer.finish_s == pytest.approx(0.5)
    assert answer.bound_s == pytest.approx(0.5)
    assert answer.parts(0) == (Part(holder="gpu1", origin=(0,), shape=(20,)),)


def test_targets_share_what_their_holders_share() -> None:
    # Holders 0 and 1 share an uplink of 10 B/s, holder 2 has 20 B/s of its own; two targets
    # want 30 B each, from 0 or 1 and from 0 or 2: 60 B over 30 B/s cannot take less than 2 s, and
    # the first target's 30 B on the uplink alone take 3 s.
    uses = {
        "uplink": (10.0, [(0, 3), (0, 4), (1, 3), (1, 4)]),
        "other": (20.0, [(2, 3), (2, 4)]),
    }
    asked = [wanted(3, [0, 1], (30,), "a"), wanted(4, [0, 2], (30,), "b")]
    answer = assign(costs_of(5, uses), asked, min_split_bytes=1)
    assert answer.bound_s == pytest.approx(3.0)
    assert answer.finish_s == pytest.approx(3.0)
    assert answer.parts(1)[0].holder == "gpu2"
    assert answer.bottleneck == "uplink"


def test_a_local_copy_is_free_and_comes_first() -> None:
    costs = costs_of(3, senders([1.0, 1.0, 1.0], 3))
    answer = assign(costs, [wanted(1, [0, 1, 2], (100,))])
    assert answer.parts(0) == (Part(holder="gpu1", origin=(0,), shape=(100,)),)
    assert (answer.finish_s, answer.bound_s, answer.gap) == (0.0, 0.0, 0.0)
    assert answer.flows() == []
    assert answer.bottleneck is None


def test_of_equals_the_lowest_holder_sends() -> None:
    costs = costs_of(4, senders([5.0, 5.0, 5.0], 4))
    answer = assign(costs, [wanted(3, [2, 1, 0], (10,))], split=False)
    assert answer.parts(0)[0].holder == "gpu0"


def test_start_up_time_counts_once_and_only_where_bytes_move() -> None:
    costs = costs_of(3, senders([10.0, 10.0], 3), alpha_s=0.25)
    assert assign(costs, [wanted(2, [0], (10,))]).finish_s == pytest.approx(1.25)
    assert assign(costs, [wanted(2, [2], (10,))]).finish_s == 0.0


def test_what_has_one_holder_is_in_the_way_of_the_rest() -> None:
    # 30 B that only sender 0 has; 10 B that both have come from sender 1.
    costs = costs_of(3, senders([10.0, 10.0], 3))
    asked = [wanted(2, [0], (30,), "only"), wanted(2, [0, 1], (10,), "both")]
    answer = assign(costs, asked, min_split_bytes=1)
    assert answer.finish_s == pytest.approx(3.0)
    assert answer.parts(1) == (Part(holder="gpu1", origin=(0,), shape=(10,)),)


def test_an_element_without_axes_is_never_split() -> None:
    costs = costs_of(3, senders([10.0, 10.0], 3))
    scalar = Request(
        parameter="s", target="gpu2", holders=("gpu0", "gpu1"), origin=(), shape=(), element_bytes=4
    )
    answer = assign(costs, [scalar], min_split_bytes=1)
    assert answer.parts(0) == (Part(holder="gpu0", origin=(), shape=()),)


def test_a_region_of_nothing_has_one_part() -> None:
    costs = costs_of(3, senders([10.0, 10.0], 3))
    answer = assign(costs, [wanted(2, [0, 1], (0, 5))], min_split_bytes=1)
    assert answer.parts(0) == (Part(holder="gpu0", origin=(0, 0), shape=(0, 5)),)
    assert answer.finish_s == 0.0


def test_parts_are_told_in_the_whole_parameter() -> None:
    costs = costs_of(3, senders([10.0, 30.0], 3))
    asked = Request(
        parameter="w",
        target="gpu2",
        holders=("gpu0", "gpu1"),
        origin=(100, 7),
        shape=(40, 2),
        element_bytes=2,
    )
    answer = assign(costs, [asked], min_split_bytes=1)
    parts = answer.parts(0)
    assert len(parts) == 2
    assert parts[0].origin == (100, 7)
    assert parts[1].origin == (100 + parts[0].shape[0], 7)
    assert parts[1].shape[0] == 40 - parts[0].shape[0]


def test_where_nothing_is_known_to_limit_it_the_lowest_holder_sends_in_no_time() -> None:
    costs = costs_of(3, {"elsewhere": (10.0, [(0, 1)])})
    answer = assign(costs, [wanted(2, [0, 1], (12,)), wanted(2, [0], (3,), "q")])
    assert [parts[0].holder for _, parts in answer] == ["gpu0", "gpu0"]
    assert (answer.finish_s, answer.bound_s, answer.bottleneck) == (0.0, 0.0, None)


def test_a_holder_that_nothing_joins_is_left_out() -> None:
    # Sender 0 passes nothing.
    costs = costs_of(3, senders([0.0, 10.0], 3))
    answer = assign(costs, [wanted(2, [0, 1], (10,))])
    assert answer.parts(0)[0].holder == "gpu1"
    with pytest.raises(NoRouteError, match=r"^nothing gets to gpu2 from gpu0; name a holder"):
        assign(costs, [wanted(2, [0], (10,))])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"holders": ()}, "nobody holds it"),
        ({"holders": ("gpu0", "gpu0")}, "a holder stands twice"),
        ({"shape": (1, 2)}, "its origin has 1 axes and its shape 2"),
        ({"shape": (-1,)}, "must be integers, zero or more"),
        ({"shape": (1.0,)}, "must be integers, zero or more"),
        ({"origin": (True,)}, "must be integers, zero or more"),
        ({"element_bytes": 0}, "its elements have no bytes"),
        ({"shape": (2**62,)}, "bytes"),
        ({"holders": "gpu0"}, "must be sequences"),
        ({"shape": 3}, "must be sequences"),
        ({"holders": (0,)}, "must be names"),
        ({"parameter": 1}, "must be names"),
    ],
)
def test_what_is_no_request_is_refused(change: dict[str, object], words: str) -> None:
    good: dict[str, object] = {
        "parameter": "p",
        "target": "gpu2",
        "holders": ("gpu0",),
        "origin": (0,),
        "shape": (1,),
        "element_bytes": 1,
    }
    Request(**good)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=words) as error:
        Request(**(good | change))  # type: ignore[arg-type]
    assert str(error.value).startswith("request for ")


def test_lists_are_taken_for_tuples() -> None:
    asked = Request(parameter="p", target="gpu2", holders=["gpu0"], origin=[0], shape=[4])  # type: ignore[arg-type]
    assert asked == wanted(2, [0], (4,))
    assert hash(asked) == hash(wanted(2, [0], (4,)))


def test_what_cannot_be_assigned_is_refused() -> None:
    costs = costs_of(3, senders([1.0], 3))
    with pytest.raises(InputError, match="no requests"):
        assign(costs, [])
    with pytest.raises(UnknownEndpointError, match="unknown endpoint 'gpu9'"):
        assign(costs, [wanted(9, [0], (1,))])
    with pytest.raises(UnknownEndpointError, match="unknown endpoint 'gpu7'"):
        assign(costs, [wanted(1, [0, 7], (1,))])
    for size in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="min_split_bytes"):
            assign(costs, [wanted(1, [0], (1,))], min_split_bytes=size)  # type: ignore[arg-type]
    big = [wanted(1, [0], (2**59,), str(k)) for k in range(9)]
    with pytest.raises(InputError, match="more bytes than can be counted"):
        assign(costs, big)


def test_baselines_do_what_they_say() -> None:
    # Sender 1 is the fast one.
    costs = costs_of(4, senders([10.0, 30.0, 10.0, 10.0], 4))
    asked = [
        wanted(3, [0, 1], (30,), "a"),
        wanted(3, [0, 1], (30,), "b"),
        wanted(2, [0, 2], (5,), "c"),
    ]
    table = table_of(costs, asked)
    found = {name: baseline(name, costs, table).tolist() for name in BASELINES}
    assert found == {
        "first": [0, 0, 0],
        "least-loaded": [0, 1, 2],
        "fastest-pair": [1, 1, 2],
        # 30 B take 1 s of the fast sender; a second time 2 s, less than 3 s of the other.
        "per-request": [1, 1, 2],
        "online": [1, 1, 2],
    }

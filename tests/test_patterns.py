"""Patterns and the notation for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.patterns import (
    PatternKind,
    both_ways,
    bundle,
    fan_in,
    fan_out,
    kind_of,
    notation,
    parse_pattern,
    peer,
    relay,
)
from topocal.topo.errors import FlowError, FormatError

RING = ["gpu0", "gpu1", "gpu2", "gpu3"]


@pytest.mark.parametrize(
    ("pattern", "text", "kind"),
    [
        (peer("gpu0", "gpu1"), "gpu0->gpu1", PatternKind.PEER),
        (both_ways("gpu0", "gpu1"), "gpu0<->gpu1", PatternKind.BOTH_WAYS),
        (fan_in("gpu3", ["gpu4", "gpu5"]), "gpu3<-gpu4,gpu5", PatternKind.FAN_IN),
        (fan_out("gpu0", ["gpu1", "gpu2"]), "gpu0->gpu1,gpu2", PatternKind.FAN_OUT),
        (
            bundle([("gpu0", "gpu4"), ("gpu1", "gpu5")]),
            "gpu0->gpu4 + gpu1->gpu5",
            PatternKind.BUNDLE,
        ),
        (
            relay(RING),
            "gpu0->gpu1 + gpu1->gpu2 + gpu2->gpu3 + gpu3->gpu0",
            PatternKind.RELAY,
        ),
    ],
)
def test_each_kind_has_its_notation(pattern: object, text: str, kind: PatternKind) -> None:
    assert pattern.name == text  # type: ignore[attr-defined]
    assert kind_of(pattern) is kind  # type: ignore[arg-type]
    assert sorted(parse_pattern(text).pairs) == sorted(pattern.pairs)  # type: ignore[attr-defined]


def test_two_rings_are_not_one_relay() -> None:
    pattern = bundle([("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")])
    assert kind_of(pattern) is PatternKind.BUNDLE


def test_a_relay_of_two_is_both_ways() -> None:
    assert kind_of(relay(["gpu0", "gpu1"])) is PatternKind.BOTH_WAYS


def test_numbers_are_gpus_and_blanks_do_not_matter() -> None:
    assert parse_pattern(" 3 <- 4, 5 ").pairs == [("gpu4", "gpu3"), ("gpu5", "gpu3")]
    assert parse_pattern("0<->1+2->3").pairs == [
        ("gpu0", "gpu1"),
        ("gpu1", "gpu0"),
        ("gpu2", "gpu3"),
    ]


@pytest.mark.parametrize("text", ["", "3", "3-4", "->4", "3->", "0,1->2", "0->1 +", "0,1<->2,3"])
def test_what_is_not_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="write"):
        parse_pattern(text)


@pytest.mark.parametrize("text", ["0->0", "0->1,1", "3<-3,4", "0->1 + 0->1"])
def test_impossible_flows_are_refused(text: str) -> None:
    with pytest.raises(FlowError):
        parse_pattern(text)


def test_a_pattern_needs_flows() -> None:
    with pytest.raises(FlowError, match="name at least one peer"):
        fan_in("gpu0", [])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] != p[1]),
        min_size=1,
        max_size=12,
        unique=True,
    )
)
def test_notation_round_trips(pairs: list[tuple[int, int]]) -> None:
    named = [(f"gpu{s}", f"gpu{d}") for s, d in pairs]
    assert sorted(parse_pattern(notation(named)).pairs) == sorted(named)

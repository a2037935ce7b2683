"""plan.json: what it costs, what is written, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.budget import Worth, by_information
from topocal.measure.design import design
from topocal.measure.plan import (
    DEFAULT_SIZES_BYTES,
    OVERHEAD_S,
    Plan,
    checked_sizes,
    expected_seconds,
    fingerprint,
    plan_from_document,
    plan_to_document,
    read_plan,
    write_plan,
)
from topocal.topo.errors import FormatError, InputError
from topocal.topo.machines import b70, l40s, random_cluster, random_pcie_tree

MiB = 2.0**20


@pytest.fixture(scope="module")
def plan() -> Plan:
    return design(l40s())


def test_it_comes_back_exactly(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    assert read_plan(path) == plan
    write_plan(read_plan(path), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_any_plan_comes_back_exactly(seed: int, cluster: bool) -> None:
    rng = np.random.default_rng(seed)
    topology = random_cluster(rng, gpus=2) if cluster else random_pcie_tree(rng, gpus=4)
    plan = design(topology)
    text = msgspec.json.encode(plan_to_document(plan))
    assert plan_from_document(msgspec.json.decode(text), file="x") == plan


def test_a_bottleneck_that_is_alone_has_no_ratio(tmp_path: Path) -> None:
    plan = design(b70(), endpoints=["gpu0", "gpu1"])
    write_plan(plan, tmp_path / "plan.json")
    assert "Infinity" not in (tmp_path / "plan.json").read_text()
    assert plan.finding("gpu0->switch0").ratio is None


def test_sizes_by_default_are_4_KiB_to_256_MiB(plan: Plan) -> None:
    assert plan.sizes_bytes == DEFAULT_SIZES_BYTES
    assert plan.sizes_bytes[0] == 4096
    assert plan.sizes_bytes[-1] == 256 * MiB
    assert len(plan.sizes_bytes) == 9


def test_sizes_are_put_in_order_and_taken_once() -> None:
    assert checked_sizes([4096, 1, 4096.0]) == (1.0, 4096.0)


# Two flows of 256 MiB and of 1 MiB into one card at 1/4 ns per byte each: half a nanosecond
# per byte of one flow, six runs of each size.
def test_expected_time_by_hand() -> None:
    seconds = expected_seconds(0.5e-9, [MiB, 256 * MiB], 6)
    assert seconds == pytest.approx(12 * OVERHEAD_S + 6 * 0.5e-9 * 257 * MiB)


def test_expected_time_and_memory_of_a_pattern(plan: Plan) -> None:
    rate = plan.finding("switch0->gpu0").assumed_Bps
    number = plan.finding("switch0->gpu0").pattern
    assert rate is not None
    assert number is not None
    fan = plan.patterns[number]
    assert len(fan.flows) == 2
    assert fan.seconds == pytest.approx(expected_seconds(2 / rate, plan.sizes_bytes, 6))
    assert fan.memory_bytes == 2 * 256 * MiB


def test_expected_time_of_the_whole_is_that_of_its_rounds(plan: Plan) -> None:
    longest = [max(plan.patterns[k].seconds for k in members) for members in plan.rounds]
    assert plan.seconds == pytest.approx(sum(longest))
    assert plan.seconds < sum(p.seconds for p in plan.patterns)
    assert plan.memory_bytes == max(p.memory_bytes for p in plan.patterns)


def test_the_fingerprint_is_of_the_topology() -> None:
    assert design(l40s()).topology_sha256 == fingerprint(l40s()) != fingerprint(b70())


def test_fewer_sizes_and_repeats_take_less() -> None:
    whole = design(l40s())
    quick = design(l40s(), sizes_bytes=[MiB], repeats=1, warm_ups=0)
    assert quick.seconds < whole.seconds / 10
    assert quick.memory_bytes == whole.memory_bytes / 256
    assert [p.flows for p in quick.patterns] == [p.flows for p in whole.patterns]


def test_an_unknown_resource_is_refused(plan: Plan) -> None:
    with pytest.raises(InputError, match="the plan has no resource 'nothing'"):
        plan.finding("nothing")


Damage = Callable[[dict[str, Any]], object]

DAMAGED: dict[str, tuple[Damage, str]] = {
    "no patterns": (lambda d: d.pop("patterns"), "damaged plan: no 'patterns'"),
    "text for a number": (lambda d: d.update(repeats="five"), "damaged plan"),
    "no repeats": (lambda d: d.update(repeats=0), "0 repeats"),
    "sizes mixed up": (lambda d: d["sizes_bytes"].reverse(), "not in ascending order"),
    "a size of zero": (lambda d: d.update(sizes_bytes=[0]), "a size of 0.0 bytes"),
    "a ratio below one": (lambda d: d.update(clear_ratio=0.5), "a clear ratio of 0.5"),
    "a pattern without flows": (lambda d: d["patterns"][0].update(flows=[]), "without flows"),
    "a flow to itself": (
        lambda d: d["patterns"][0].update(flows=[["gpu0", "gpu0"]]),
        "from gpu0 to itself",
    ),
    "an endpoint that is not listed": (
        lambda d: d["patterns"][0].update(flows=[["gpu0", "gpu9"]]),
        "pattern 0 names gpu9",
    ),
    "an endpoint listed twice": (lambda d: d["endpoints"].append("gpu0"), "listed twice"),
    "negative time": (lambda d: d["patterns"][0].update(seconds=-1.0), "pattern 0 takes -1.0 s"),
    "an unknown purpose": (
        lambda d: d["patterns"][0]["reasons"][0].update(purpose="fun"),
        "damaged plan",
    ),
    "a pattern in two rounds": (lambda d: d["rounds"].append([0]), "every pattern once"),
    "a pattern in no round": (lambda d: d["rounds"].pop(), "every pattern once"),
    "an empty round": (lambda d: d["rounds"].append([]), "every pattern once"),
    "a pattern that is not there": (
        lambda d: d["resources"][0].update(pattern=999),
        "names a pattern that is not there",
    ),
    "a resource listed twice": (
        lambda d: d["resources"].append(d["resources"][0]),
        "a resource is listed twice",
    ),
    "an unknown outcome": (lambda d: d["resources"][0].update(outcome="odd"), "damaged plan"),
    "a total that does not add up": (lambda d: d["expected"].update(patterns=1), "not add up"),
    "newer": (lambda d: d.update(version=2), "has version 2 of topocal/plan"),
    "another kind": (lambda d: d.update(format="topocal/model"), "is not a topocal/plan file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_plan_is_refused_in_one_line(name: str, plan: Plan, tmp_path: Path) -> None:
    damage, message = DAMAGED[name]
    document = json.loads(json.dumps(plan_to_document(plan)))
    damage(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=message) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "hello", "[1]", "{}", "null", '{"format": "topocal/plan"}'])
def test_what_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(FormatError):
        read_plan(tmp_path / "plan.json")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_plan(tmp_path / "plan.json")


def test_an_old_plan_survives_a_failed_write(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_plan(plan, tmp_path / "no" / "plan.json")
    assert list(tmp_path.iterdir()) == []


# --- what is worth most ----------------------------------------------------------------


# Of make a 3 and 2, of make b 2.5 and 1: 3 of a, then 2.5 of b; then 2/2 of a and 1/2 of b.
def test_the_first_of_each_make_comes_first() -> None:
    patterns = [[Worth("a", 2.0)], [Worth("a", 3.0)], [Worth("b", 2.5)], [Worth("b", 1.0)]]
    assert by_information(patterns) == [1, 2, 0, 3]


def test_a_pattern_with_two_purposes_is_worth_both() -> None:
    patterns = [[Worth("a", 2.0)], [Worth("b", 1.5), Worth("c", 1.0)], []]
    assert by_information(patterns) == [1, 0, 2]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.lists(
            st.builds(Worth, st.sampled_from("abc"), st.floats(0, 10, allow_nan=False)), max_size=3
        ),
        max_size=12,
    )
)
def test_the_order_is_the_greedy_one(patterns: list[list[Worth]]) -> None:
    order = by_information(patterns)
    assert sorted(order) == list(range(len(patterns)))
    chosen: list[str] = []
    for at, k in enumerate(order):
        now = [
            sum(w.value / (1 + chosen.count(str(w.make))) for w in patterns[j]) for j in order[at:]
        ]
        assert now[0] >= max(now) - 1e-12
        chosen += [str(w.make) for w in patterns[k]]

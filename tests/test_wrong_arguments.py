"""Slips in Python: what is given in place of something else is refused, with what to give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topocal as tc
from topocal.deepspeed import ReplicaPolicy, ReplicaSelector
from topocal.measure.plan import checked_sizes
from topocal.solve.nominal_model import nominal_model
from topocal.topo.errors import InputError, TopologyError
from topocal.topo.resource import Resource, Sharing

TOPOLOGY = tc.machines.build_machine("dgx-h100")
MODEL = nominal_model(TOPOLOGY)
CAPS = MODEL.caps()
ASKED = tc.Request(
    parameter="w", target="gpu0", holders=("gpu1",), origin=(0,), shape=(4,), element_bytes=2
)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tc.fan_in("gpu0", "gpu1"), "peers 'gpu1' is no list .*; give a list"),
        (lambda: tc.fan_out("gpu0", "gpu1"), "peers 'gpu1' is no list .*; give a list"),
        (lambda: tc.relay("0123"), "ring '0123' is no list"),
        (lambda: tc.relay([0, 1, 2]), "an endpoint is 0; name it by text, such as 'gpu0'"),
        (lambda: tc.peer("gpu0", 1), "an endpoint is 1; name it by text"),
        (lambda: tc.peer("gpu0", None), "an endpoint is None"),
        (lambda: tc.bundle("ab"), "pairs 'ab' is no list"),
        (lambda: tc.bundle(["ab"]), r"'ab' is no pair; give \(sender, receiver\)"),
        (lambda: tc.bundle([("gpu0", "gpu1", 5)]), r"\('gpu0', 'gpu1', 5\) is no pair"),
        (lambda: tc.bundle([7]), "7 is no pair"),
        (lambda: tc.peer("gpu0", "gpu1", "1MiB"), "has size 1MiB; give a finite number"),
        (lambda: tc.peer("gpu0", "gpu1", math.nan), "has size nan"),
        (lambda: tc.peer("gpu0", "gpu1", -1), "has size -1"),
        (lambda: tc.peer("gpu0", "gpu1", None), "has size None"),
        (lambda: checked_sizes(["1MiB"]), "a size of 1MiB bytes; give numbers"),
        (lambda: tc.price(CAPS, [(0, 1)]), r"transfer 0 is \(0, 1\); give \(source, dest"),
        (lambda: tc.price(CAPS, ["abc"]), r"transfer 0 is abc; give"),
        (lambda: tc.price(CAPS, "0->1"), "a str is no list of transfers"),
        (lambda: tc.price(CAPS, tc.peer("gpu0", "gpu1")), "a Pattern is no list of transfers"),
        (lambda: tc.price(CAPS, 5), "a int is no list of transfers"),
        (lambda: tc.price(CAPS, [(0, 1, math.nan)]), "size"),
        (lambda: tc.price(CAPS, [(0, 1, -5)]), "'-5' is not a size; give a finite"),
        (lambda: tc.assign(CAPS, ASKED), "a Request is no list of requests; give a list"),
        (lambda: tc.assign(CAPS, "requests.json"), "a str is no list of requests"),
        (lambda: tc.assign(CAPS, [ASKED, 3]), "request 1 is a int; give a list"),
        (lambda: ReplicaPolicy(CAPS, element_bytes="2"), "element_bytes 2 is no whole number"),
        (lambda: ReplicaPolicy(CAPS, element_bytes=0), "element_bytes is 0; give"),
        (lambda: ReplicaSelector(CAPS, element_bytes=0), "element_bytes is 0; give"),
    ],
)
def test_a_slip_is_one_line(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as found:
        call()
    assert "\n" not in str(found.value)
    assert found.value.remedy


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (TOPOLOGY, "a Topology, not a fitted model or its caps; fit a model .*nominal_model"),
        ("caps.json", "'caps.json' is a str, not .*; read the file first"),
        ({"format": "topocal/caps"}, "a dict, not .*; read the file first"),
        (None, "a NoneType, not .*; give a fitted model or its caps"),
    ],
    ids=["topology", "file", "document", "nothing"],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda machine: tc.price(machine, [(0, 1, 5)]),
        lambda machine: tc.price_bounds(machine, tc.Totals(sent=np.ones(8), received=None)),
        lambda machine: tc.assign(machine, [ASKED]),
        lambda machine: ReplicaPolicy(machine, element_bytes=2),
        lambda machine: ReplicaSelector(machine, element_bytes=2),
    ],
    ids=["price", "price_bounds", "assign", "ReplicaPolicy", "ReplicaSelector"],
)
def test_what_is_no_fitted_machine_is_told(
    call: Callable[[Any], Any], machine: object, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        call(machine)


@pytest.mark.parametrize("size", [math.nan, math.inf, -1e15, "5", None, True])
def test_a_selector_counts_only_sizes(size: Any) -> None:
    selector = ReplicaSelector(CAPS, element_bytes=2)
    with pytest.raises(InputError, match="from rank 1 to rank 2; give a finite number"):
        selector.add(1, 2, size)
    assert selector.busiest_s == 0
    selector.add(1, 2, 1e9)
    assert selector.busiest_s > 0


@pytest.mark.parametrize("rank", ["1", 1.0, None])
def test_a_selector_counts_only_ranks(rank: Any) -> None:
    selector = ReplicaSelector(CAPS, element_bytes=2)
    with pytest.raises(InputError, match=r"source rank .* is no whole number"):
        selector.add(rank, 2, 5)


def two_cards() -> tc.TopologyBuilder:
    builder = tc.TopologyBuilder("two cards")
    for name in ("gpu0", "gpu1"):
        builder.node(name, "gpu")
    builder.connect("gpu0", "gpu1", "pcie", nominal_Bps=1e9, sharing="duplex")
    return builder


def test_kinds_may_be_words() -> None:
    by_members = tc.TopologyBuilder("two cards")
    for name in ("gpu0", "gpu1"):
        by_members.node(name, tc.NodeKind.GPU)
    by_members.connect("gpu0", "gpu1", tc.LinkKind.PCIE, nominal_Bps=1e9, sharing=Sharing.DUPLEX)
    built = two_cards().build()
    assert built == by_members.build()
    assert built.graph.nodes["gpu0"]["kind"] is tc.NodeKind.GPU


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (lambda b: b.node("gpu2", "card"), "node gpu2 is of kind 'card'; use one of gpu, memory"),
        (lambda b: b.node("gpu2", None), "node gpu2 is of kind None; use one of gpu"),
        (lambda b: b.node("", "gpu"), "a node is called ''; give it a name"),
        (lambda b: b.node(2, "gpu"), "a node is called 2; give it a name"),
        (lambda b: b.connect("gpu1", "gpu0", "pci"), "link gpu1->gpu0 is of kind 'pci'; use one"),
        (
            lambda b: b.connect("gpu0", "gpu9", "pcie"),
            re.escape("no node gpu9; add it first: node('gpu9', kind)"),
        ),
        (
            lambda b: b.connect("gpu1", "gpu0", "pcie", nominal_Bps="1GB/s"),
            "passes '1GB/s'; give bytes per second as a number",
        ),
        (lambda b: b.connect("gpu1", "gpu0", "pcie", back_Bps=-1), "passes -1; give bytes"),
        (lambda b: b.connect("gpu1", "gpu0", "pcie", nominal_Bps=math.nan), "passes nan"),
        (lambda b: b.connect("gpu1", "gpu0", "pcie", sharing="both"), "of kind 'both'; use one of"),
    ],
)
def test_a_builder_refuses_at_once_and_stays_as_it_was(
    slip: Callable[[tc.TopologyBuilder], Any], words: str
) -> None:
    builder = two_cards()
    with pytest.raises(TopologyError, match=words):
        slip(builder)
    assert builder.build() == two_cards().build()


def test_a_builder_builds_once() -> None:
    builder = two_cards()
    built = builder.build()
    for late in (
        lambda: builder.node("gpu2", "gpu"),
        lambda: builder.connect("gpu1", "gpu0", "pcie"),
        lambda: builder.include(built),
        lambda: builder.resource(Resource(id="engine")),
    ):
        with pytest.raises(TopologyError, match="two cards is built; add all before build"):
            late()
    assert builder.build() == built == two_cards().build()
    more = tc.TopologyBuilder("three cards")
    more.include(built)
    more.node("gpu2", "gpu")
    assert more.build().endpoints == ("gpu0", "gpu1", "gpu2")

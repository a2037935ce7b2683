"""Transfers as they are written down: every shape, and every mistake in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.solve.transfer_files import parse_transfers, read_transfers
from topocal.solve.transfers import Flows, Totals
from topocal.topo.errors import InputError

CARDS = [f"gpu{k}" for k in range(4)]
NODES = ["node0/gpu0", "node0/gpu1", "node1/gpu0", "node1/gpu1"]


def flows_of(content: Any, endpoints: list[str] = CARDS, **options: Any) -> Flows:
    text = content if isinstance(content, str) else json.dumps(content)
    found = parse_transfers(text.encode(), endpoints, file="f", **options)
    assert isinstance(found, list)
    (one,) = found
    return one


def totals_of(content: Any, endpoints: list[str] = CARDS) -> Totals:
    text = content if isinstance(content, str) else json.dumps(content)
    found = parse_transfers(text.encode(), endpoints, file="f")
    assert isinstance(found, Totals)
    return found


def moved(flows: Flows) -> dict[tuple[int, int], float]:
    return {divmod(int(p), 4): float(flows.moved[p]) for p in np.flatnonzero(flows.moved)}


# 0 -> 2 by 8 bytes and 1 -> 3 by 6.
SEGMENT = {"shape": [2, 2], "source": [0, 0, [2, 1]], "target": [2, 0, [2, 1]]}
OTHER = {"shape": [3], "source": [1, 4, [1]], "target": [3, 0, [1]]}
PLAN = {"logical_shape": [4, 4], "segments": [SEGMENT, OTHER]}

SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "csv": ("source,destination,size\n0,2,8\n1,3,6\n", {}),
    "csv by name": ("src;dst;bytes\ngpu0;gpu2;8\nGPU1;gpu3;6 B\n", {}),
    "csv twice the same pair": ("from,to,size\n0,2,3\n0,2,5\n1,3,6\n", {}),
    "json flows": (
        [{"source": 0, "destination": 2, "size": 8}, {"src": 1, "dst": 3, "bytes": 6}],
        {},
    ),
    "json flows under a name": (
        {"flows": [{"from": "gpu0", "to": 2, "size": "8 B"}, {"from": "1", "to": 3, "nbytes": 6}]},
        {},
    ),
    "a transfer plan": (PLAN, {"element_size": 2}),
    "a transfer plan that says its type": ({**PLAN, "dtype": "torch.bfloat16"}, {}),
    "plans by parameter": (
        {"embed": {**PLAN, "segments": [SEGMENT]},
         "head": {**PLAN, "segments": [OTHER], "itemsize": 2}},
        {"element_size": 2},
    ),
    "segments with ranks": (
        {"segments": [{"source_rank": 0, "target_rank": 2, "shape": [4], "element_size": 2},
                      {"source_rank": 1, "target_rank": 3, "numel": 3, "dtype": "float16"}]},
        {},
    ),
    "pairs": ({"bytes_by_pair": {"0->2": 8, "gpu1->gpu3": 6}}, {}),
    "nothing but pairs": ({"0->2": 8, "1->3": 6}, {}),
    "pairs as tuples": ({"bytes": {"(0, 2)": 8, "1,3": 6}}, {}),
    "pairs by sender": ({"bytes": {"0": {"2": 8}, "1": {"3": 6}}}, {}),
    "a matrix": ({"matrix": [[0, 0, 8, 0], [0, 0, 0, 6], [0] * 4, [0] * 4]}, {}),
    "flows and the same pairs": (
        {"flows": [{"source": 0, "target": 2, "bytes": 8}, {"source": 1, "target": 3, "bytes": 6}],
         "pairs": {"0->2": 8, "1->3": 6}},
        {},
    ),
    "a report with totals beside its flows": (
        {"segments": [{"source_rank": 0, "target_rank": 2, "bytes": 8},
                      {"source_rank": 1, "target_rank": 3, "bytes": 6}],
         "sent_bytes_by_rank": [8, 6, 0, 0], "received_bytes_by_rank": {"2": 8, "3": 6}},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_says_the_same(name: str) -> None:
    content, options = SHAPES[name]
    found = flows_of(content, **options)
    assert moved(found) == {(0, 2): 8.0, (1, 3): 6.0}
    assert found.local_bytes == 0
    assert found.flows >= 2


TOTALS: dict[str, Any] = {
    "csv": "process,sent,received\n0,8,0\n1,6,\n2,0,8\n3,0,6\n".replace("6,\n", "6,0\n"),
    "csv of ranks": "rank\tsent_bytes\treceived_bytes\n0\t8 B\t0\n1\t6\t0\n2\t0\t8\n3\t0\t6\n",
    "lists": {"sent": [8, 6, 0, 0], "received": [0, 0, 8, 6]},
    "tables": {"bytes_sent": {"0": 8, "1": 6}, "bytes_received": {"2": 8, "3": 6}},
    "rows": [
        {"rank": 0, "sent_bytes": 8, "received_bytes": 0},
        {"rank": 1, "sent_bytes": 6, "received_bytes": 0},
        {"rank": 2, "sent_bytes": 0, "received_bytes": 8},
        {"rank": 3, "sent_bytes": 0, "received_bytes": 6},
    ],
    "in and out": {"out_bytes": [8, 6, 0, 0], "in_bytes": {"2": 8, "3": 6}},
    "by rank": {
        "ranks": {
            "0": {"sent": 8},
            "1": {"sent": 6},
            "2": {"received": 8},
            "3": {"received": 6},
        }
    },
    "inside a report": {
        "summary": {"per": {"sent_bytes": [8, 6, 0, 0], "recv_bytes": [0, 0, 8, 6]}}
    },
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals_of_every_shape(name: str) -> None:
    found = totals_of(TOTALS[name])
    assert found.sent is not None
    assert found.received is not None
    assert found.sent.tolist() == [8, 6, 0, 0]
    assert found.received.tolist() == [0, 0, 8, 6]


def test_one_side_may_be_unknown() -> None:
    found = totals_of({"sent_bytes": [8, 6, 0, 0]})
    assert found.received is None
    assert totals_of("endpoint,received\ngpu2,8\n").sent is None


def test_what_stays_is_free() -> None:
    found = flows_of("source,destination,size\n0,0,100\n0,1,5\n")
    assert found.local_bytes == 100
    assert moved(found) == {(0, 1): 5.0}
    # Totals beside flows may count what stays.
    report = {
        "flows": [{"source": 0, "target": 0, "bytes": 100}, {"source": 0, "target": 1, "bytes": 5}]
    }
    assert moved(flows_of(report | {"sent_bytes": [105, 0, 0, 0]})) == {(0, 1): 5.0}


def test_numbers_are_processes_where_cards_have_no_number() -> None:
    assert moved(flows_of("source,destination,size\n0,2,8\nnode0/gpu1,3,6\n", NODES)) == {
        (0, 2): 8.0,
        (1, 3): 6.0,
    }
    # By rank in JSON, whatever the cards are called; by card in CSV.
    turned = CARDS[::-1]
    assert moved(flows_of([{"source": 0, "destination": 2, "size": 8}], turned)) == {(0, 2): 8.0}
    assert moved(flows_of("source,destination,size\n0,2,8\n", turned)) == {(3, 1): 8.0}


def test_patterns_are_priced_one_by_one() -> None:
    text = "source,destination,size,pattern\n0,1,5,a\n2,3,7,b\n0,3,1,a\n"
    found = parse_transfers(text.encode(), CARDS, file="f")
    assert isinstance(found, list)
    assert [(f.name, moved(f)) for f in found] == [
        ("a", {(0, 1): 5.0, (0, 3): 1.0}),
        ("b", {(2, 3): 7.0}),
    ]


MISTAKES: dict[str, tuple[Any, str]] = {
    "nothing": ("", "f"),
    "no json": ("{", "not a JSON file"),
    "an empty object": ({}, "says nothing that can be priced"),
    "something else": ({"a": [1, 2]}, "says nothing that can be priced"),
    "an unknown process": ([{"source": 0, "target": 9, "bytes": 1}], "no process 9"),
    "half a process": ([{"source": 0.5, "target": 1, "bytes": 1}], "no process 0.5"),
    "an unknown card": ([{"source": "gpu0", "target": "gpu7", "bytes": 1}], "unknown endpoint"),
    "several targets": ([{"source": 0, "target": [1, 2], "bytes": 1}], "no process [1, 2]"),
    "no bytes": ([{"source": 0, "target": 1}], "says no bytes"),
    "negative bytes": ([{"source": 0, "target": 1, "bytes": -5}], "'-5' is not a size"),
    "bytes that are true": ([{"source": 0, "target": 1, "bytes": True}], "'True' is not a size"),
    "infinite bytes": ('[{"source": 0, "target": 1, "bytes": 1e999}]', "f: "),
    "elements of unknown size": (PLAN, "does not say how large they are"),
    "a shape of text": (
        [{"source": 0, "target": 1, "shape": ["a"], "itemsize": 2}],
        "is not a shape",
    ),
    "two descriptions": (
        {"flows": [{"source": 0, "target": 1, "bytes": 5}], "pairs": {"0->1": 6}},
        "its flows and its pairs differ",
    ),
    "flows against totals": (
        {"flows": [{"source": 0, "target": 1, "bytes": 5}], "sent_bytes": [9, 0, 0, 0]},
        "process 0 sends 5 bytes by its flows and 9 by its totals",
    ),
    "a matrix of another size": ({"matrix": [[0, 1], [1, 0]]}, "is not 4 × 4"),
    "totals that differ": ({"sent": [5, 0, 0, 0], "received": [0, 4, 0, 0]}, "5 bytes are sent"),
    "too many totals": ({"sent": [1, 1, 1, 1, 1]}, "no process 4"),
    "a process twice": ("process,sent\n0,5\n0,6\n", "f:3: process 0 stands twice"),
    "a row too short": ("process,sent,received\n0,5\n", "f:2: has 2 fields"),
    "a total that is none": ("process,sent\n0,much\n", "f:2: 'much' is not a size"),
    "rows of no process": ("process,sent\n# none\n", "has no rows"),
    "a start": ("source,destination,size,start\n0,1,5,1ms\n", "flows that start later"),
    "a line that lacks a field": ("source,destination,size\n0,1\n", "f:2: has 2 fields"),
    "a column that is missing": ("source,size\n0,1\n", "no column destination"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_one_line(name: str) -> None:
    content, words = MISTAKES[name]
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(InputError) as caught:
        parse_transfers(text.encode(), CARDS, file="f")
    assert words in str(caught.value)
    assert str(caught.value).startswith("f")
    assert "\n" not in str(caught.value)


def test_deep_nesting_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    deep = "[" * 200 + "]" * 200
    with pytest.raises(InputError, match="nested too deep"):
        parse_transfers(f'{{"a": {deep}}}'.encode(), CARDS, file="f")
    path = tmp_path / "flows.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text"):
        read_transfers(path, CARDS)
    with pytest.raises(InputError, match="no such file"):
        read_transfers(tmp_path / "none.csv", CARDS)


_NAMES = st.sampled_from(
    [
        "source",
        "target",
        "bytes",
        "sent",
        "received",
        "rank",
        "matrix",
        "0->1",
        "shape",
        "flows",
        "dtype",
        "pairs",
        "itemsize",
        "sent_bytes",
        "start",
        "pattern",
        "size",
        "x",
    ]
)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.sampled_from(["0", "gpu1", ""])
)
_DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_NAMES, inner, max_size=5)
    ),
    max_leaves=25,
)


@given(_DOCUMENTS, st.sampled_from([None, 2]))
@settings(deadline=None, max_examples=150)
def test_whatever_stands_in_a_file(document: Any, element_size: int | None) -> None:
    text = json.dumps(document)
    try:
        found = parse_transfers(text.encode(), CARDS, file="f", element_size=element_size)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        for one in [found] if isinstance(found, Totals) else found:
            sides = [one.sent, one.received] if isinstance(one, Totals) else [one.moved]
            for side in sides:
                assert side is None or (np.isfinite(side).all() and (side >= 0).all())


@given(st.text(alphabet='source,destination;size\t\n0123gpu.-"#process sent received', max_size=80))
@settings(deadline=None, max_examples=150)
def test_whatever_stands_in_a_table(text: str) -> None:
    try:
        parse_transfers(text.encode(), CARDS, file="f")
    except InputError as error:
        assert "\n" not in str(error)

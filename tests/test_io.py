"""topology.json: what comes back is what was written, and what is damaged is told."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, InputError, TopocalError, TopologyError
from topocal.topo.io import (
    decode_document,
    encode_document,
    read_topology,
    topology_from_document,
    topology_to_document,
    write_atomically,
    write_topology,
)
from topocal.topo.json_values import from_json_value, to_json_value
from topocal.topo.machines import MACHINES, random_cluster, random_fabric_set
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.topology import Topology


def back(topology: Topology) -> Topology:
    content = encode_document(topology_to_document(topology))
    document = decode_document(content, format="topocal/topology", version=1, file="t.json")
    return topology_from_document(document, file="t.json")


def full() -> Topology:
    """Every kind of attribute that a topology may have."""
    build = TopologyBuilder("everything")
    build.node("socket0", NodeKind.SOCKET, label="erste CPU – 0", numa=0)
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:{k}1:00.0", links=(1, 2), big=2**70)
        build.connect(
            f"gpu{k}",
            "socket0",
            LinkKind.PCIE,
            nominal_Bps=0.1 + 0.2,
            back_Bps=math.inf,
            generation=4,
            rates=[1, 2.5, None, {"a": True}],
        )
    build.connect("gpu0", "gpu1", LinkKind.UNKNOWN, sharing=Sharing.DUPLEX, path_class="NODE")
    build.resource(
        Resource(
            id="engine",
            sharing=Sharing.TIME_SHARED,
            kappa=0.98,
            in_order=True,
            label="L",
            source="S",
        )
    )
    build.use(
        Use(resource="engine", sources=("gpu0",), path_classes=(PathClass.SYS, PathClass.NET))
    )
    build.peer_access = False
    build.no_peer_pairs = [["gpu0", "gpu1"]]
    build.stated_classes = [["gpu0", "gpu1", "SYS"]]
    build.class_overrides = [["gpu0", "gpu1", "SYS"]]
    build.source("by hand")
    build.note("a note")
    topology = build.build()
    graph = topology.graph.copy()
    graph.graph["measured"] = {"when": (2026, 1), "@": "kept"}
    return Topology(graph)


def test_everything_comes_back(tmp_path: Path) -> None:
    topology = full()
    write_topology(topology, tmp_path / "topology.json")
    again = read_topology(tmp_path / "topology.json")
    assert again == topology
    assert again.graph.nodes["gpu0"]["links"] == (1, 2)
    assert isinstance(again.graph.nodes["gpu0"]["links"], tuple)
    assert isinstance(again.uses[0].path_classes, tuple)
    assert again.uses[0].path_classes[0] is PathClass.SYS
    assert list(tmp_path.iterdir()) == [tmp_path / "topology.json"]


@pytest.mark.parametrize("name", MACHINES)
def test_reference_machines_come_back(name: str) -> None:
    topology = MACHINES[name].build()
    again = back(topology)
    assert again == topology
    assert encode_document(topology_to_document(again)) == encode_document(
        topology_to_document(topology)
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_random_machines_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for topology in (random_fabric_set(rng, gpus=4), random_cluster(rng, nodes=2, gpus=2)):
        assert back(topology) == topology


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.just("@"), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(VALUES)
def test_values_come_back_equal_and_of_the_same_type(value: Any) -> None:
    again = from_json_value(json.loads(json.dumps(to_json_value(value), allow_nan=False)))
    assert again == value
    assert repr(again) == repr(value)


@pytest.mark.parametrize("value", [{1: 2}, object(), {1, 2}, b"bytes", np.float64(1.0)])
def test_values_without_a_json_form_are_refused(value: object) -> None:
    with pytest.raises(TopologyError, match="cannot be written"):
        to_json_value(value)


def test_values_nested_too_deep_are_refused() -> None:
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    with pytest.raises(TopologyError, match="too deep"):
        to_json_value(value)


@pytest.mark.parametrize(
    "value", [{"@": "set", "of": []}, {"@": "int", "of": "x"}, {"@": "float", "of": "1"}, {"@": 1}]
)
def test_unknown_tags_are_refused(value: object) -> None:
    with pytest.raises(FormatError, match="of no known type"):
        from_json_value(value)


def damaged(change: str) -> bytes:
    """A document after ``change`` was run on it."""
    document = topology_to_document(full())
    exec(change, {"d": document})
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a JSON file"),
        (b"\x00\xff\xfe", "not a JSON file"),
        (b"[" * 100_000, "not a JSON file"),
        (b"[]", "is not a topocal/topology file but something else"),
        (b'{"format": "topocal/model"}', "is not a topocal/topology file but topocal/model"),
        (damaged("d['version'] = 2"), "has version 2 of topocal/topology"),
        (damaged("d['version'] = True"), "has version True"),
        (damaged("del d['nodes']"), "damaged topology: KeyError 'nodes'"),
        (damaged("d['nodes'][0]['kind'] = 'cloud'"), "damaged topology"),
        (damaged("d['nodes'][0]['id'] = 7"), "damaged topology"),
        (damaged("d['nodes'].append(d['nodes'][0])"), "node socket0 is listed twice"),
        (damaged("d['nodes'] = 7"), "damaged topology"),
        (damaged("d['links'][0]['head'] = 'nowhere'"), "joins a node that is not listed"),
        (damaged("d['links'].append(d['links'][0])"), "is listed twice"),
        (damaged("d['links'][0]['uses'] = [['r']]"), "damaged topology"),
        (damaged("d['links'][0]['nominal_Bps'] = 'fast'"), "damaged topology"),
        (damaged("d['resources'][0]['sharing'] = 'ours'"), "damaged topology"),
        (damaged("d['resources'].append(d['resources'][0])"), "is listed twice"),
        (damaged("d['uses'][0]['path_classes'] = ['FAR']"), "damaged topology"),
        (damaged("d['no_peer_pairs'] = [7]"), "damaged topology"),
        (damaged("d['peer_access'] = 'no'"), "damaged topology"),
        (damaged("d['attributes'] = {'a': {'@': 'odd'}}"), "of no known type"),
        (damaged("d['resources'] = []"), "uses the unknown resource"),
        (damaged("d['class_overrides'] = [['gpu0', 'gpu1', 'FAR']]"), "unknown path class FAR"),
        (damaged("d['stated_classes'] = [['gpu0', 'gpu7', 'SYS']]"), "unknown node gpu7"),
    ],
)
def test_damage_is_told_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(content)
    with pytest.raises(TopocalError) as caught:
        read_topology(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_damage_escapes_as_another_error(data: st.DataObject) -> None:
    """Replace or drop any value of a document by another."""
    document = topology_to_document(full())
    at: Any = document
    for _ in range(data.draw(st.integers(1, 5))):
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        inner = at[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            at = inner
            continue
        if data.draw(st.booleans()):
            del at[key]
        else:
            at[key] = data.draw(VALUES.map(to_json_value))
        break
    with contextlib.suppress(TopocalError):
        decoded = decode_document(
            json.dumps(document).encode(), format="topocal/topology", version=1, file="f"
        )
        topology_from_document(decoded, file="f").validate()


def test_attributes_that_hide_a_field_are_refused() -> None:
    graph = full().graph.copy()
    graph.nodes["gpu0"]["id"] = "other"
    with pytest.raises(TopologyError, match="gpu0 has an attribute called id"):
        topology_to_document(Topology(graph))


def test_text_that_json_cannot_hold() -> None:
    with pytest.raises(TopocalError, match="cannot be written as JSON"):
        encode_document({"text": "\ud800"})


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_topology(tmp_path / "absent.json")
    with pytest.raises(InputError, match="cannot be written"):
        write_topology(full(), tmp_path / "no such folder" / "t.json")
    target = tmp_path / "folder"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(target, b"")
    assert sorted(tmp_path.iterdir()) == [target]


def test_writing_replaces_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]

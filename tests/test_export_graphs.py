"""GraphML and DOT: other programs read them, whatever the names are."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.exporters.dot import to_dot
from topocal.topo.exporters.figures import Figure, nominal_figures
from topocal.topo.exporters.graphml import to_graphml
from topocal.topo.exporters.xml_text import xml_safe
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


def pair(a: str = "gpu0", b: str = "gpu1", **attributes: Any) -> Topology:
    build = TopologyBuilder("pair")
    build.node(a, NodeKind.GPU, **attributes)
    build.node(b, NodeKind.GPU)
    build.connect(a, b, LinkKind.NVLINK, nominal_Bps=25e9, count=2)
    return build.build()


def read(text: str) -> nx.MultiDiGraph:
    return nx.read_graphml(io.BytesIO(text.encode()), force_multigraph=True)


@pytest.mark.parametrize("name", MACHINES)
def test_networkx_reads_every_machine(name: str) -> None:
    topology = build_machine(name)
    found = read(to_graphml(topology, nominal_figures(topology)))
    assert set(found.nodes) == set(topology.graph.nodes)
    assert {(a, b, key) for a, b, key in found.edges(keys=True)} == {
        (link.tail, link.head, key) for key, link in topology.links.items()
    }
    for node, kind in topology.graph.nodes(data="kind"):
        assert found.nodes[node]["kind"] == str(kind)
    for key, link in topology.links.items():
        told = found.edges[link.tail, link.head, key].get("nominal_Bps")
        assert told == link.nominal_Bps


def test_types_and_figures_of_a_link() -> None:
    topology = pair(index=3, spare=True, share=0.5, net_names=["a", "b"], odd=None)
    figures = nominal_figures(topology)
    figures["gpu0->gpu1"] = Figure(
        capacity_Bps=22.5e9, low_Bps=22e9, high_Bps=23e9, status="pinned"
    )
    text = to_graphml(topology, figures)
    found = read(text)
    assert found.nodes["gpu0"] == {
        "kind": "gpu", "label": "", "index": 3, "spare": True, "share": 0.5,
        "net_names": '["a","b"]',
    }  # fmt: skip
    edge = found.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (edge["capacity_Bps"], edge["low_Bps"], edge["high_Bps"]) == (22.5e9, 22e9, 23e9)
    assert (edge["status"], edge["count"], edge["reverse"]) == ("pinned", 2, "gpu1->gpu0")
    assert found.edges["gpu1", "gpu0", "gpu1->gpu0"]["status"] == "nominal"
    types = {
        e.get("attr.name"): e.get("attr.type")
        for e in ET.fromstring(text).iter("{http://graphml.graphdrawing.org/xmlns}key")
        if e.get("for") == "node"
    }
    assert types == {
        "kind": "string", "label": "string", "index": "long", "spare": "boolean",
        "share": "double", "net_names": "string",
    }  # fmt: skip


def test_an_attribute_has_one_type_in_the_file() -> None:
    """A whole number and a fraction are fractions; a number and a text are text."""
    build = TopologyBuilder("mixed")
    build.node("gpu0", NodeKind.GPU, speed=1, tag=7)
    build.node("gpu1", NodeKind.GPU, speed=1.5, tag="seven")
    build.connect("gpu0", "gpu1", LinkKind.NVLINK)
    topology = build.build()
    found = read(to_graphml(topology, nominal_figures(topology)))
    assert [found.nodes[n]["speed"] for n in ("gpu0", "gpu1")] == [1.0, 1.5]
    assert [found.nodes[n]["tag"] for n in ("gpu0", "gpu1")] == ["7", "seven"]


def test_resources_that_no_link_shows_are_in_the_graph() -> None:
    topology = pair().with_resources(
        [Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=0.98, label="receives")],
        [Use(resource="engine", destinations=("gpu1",))],
    )
    found = read(to_graphml(topology, nominal_figures(topology)))
    records = {r["id"]: r for r in json.loads(found.graph["resources"])}
    assert records["engine"] == {
        "id": "engine", "label": "receives", "sharing": "time-shared", "kappa": 0.98,
        "status": "unknown", "uses": [{"destinations": ["gpu1"], "weight": 1.0}],
    }  # fmt: skip
    assert records["gpu0->gpu1"]["capacity_Bps"] == 25e9


def test_the_unlimited_is_no_number_in_a_file() -> None:
    topology = pair()
    figures = {
        name: replace(f, capacity_Bps=float("inf")) for name, f in nominal_figures(topology).items()
    }
    assert "inf" not in re.sub("[a-z]*info?[a-z]+", "", to_graphml(topology, figures))
    assert "unlimited" not in to_dot(topology, figures)


NAMES = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\"\\<>&'\n\x00]{};-"),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=120)
@given(NAMES, NAMES, NAMES, NAMES)
def test_hostile_names_in_graphml(a: str, b: str, label: str, key: str) -> None:
    if a == b:
        b += "'"
    topology = pair(a, b, **{f"x{key}": label})
    found = read(to_graphml(topology, nominal_figures(topology)))
    assert found.number_of_nodes() == 2
    assert found.number_of_edges() == 2
    assert found.nodes[xml_safe(a)][xml_safe(f"x{key}")] == xml_safe(label)


STATEMENT = re.compile(
    r'\s*(?:"(?:[^"\\]|\\.)*"(?: -> "(?:[^"\\]|\\.)*")? \[(?:[a-z]+=(?:"(?:[^"\\]|\\.)*"|[\w.]+)'
    r'(?:, )?)+\];|(?:graph|node|edge) \[.*\];|subgraph cluster_\d+ \{|label="(?:[^"\\]|\\.)*";|\})'
)


def statements(text: str) -> list[str]:
    head, *lines = text.splitlines()
    assert re.fullmatch(r'digraph "(?:[^"\\]|\\.)*" \{', head), head
    for line in lines:
        assert STATEMENT.fullmatch(line), line
    return lines


@settings(deadline=None, max_examples=120)
@given(NAMES, NAMES, NAMES)
def test_hostile_names_in_dot(a: str, b: str, label: str) -> None:
    if a == b:
        b += "'"
    lines = statements(to_dot(pair(a, b, label=label), nominal_figures(pair(a, b))))
    assert len(lines) == 3 + 2 + 1 + 1
    assert len({line.split(" [shape")[0] for line in lines if "shape=" in line}) == 2


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_is_drawn(name: str) -> None:
    topology = build_machine(name)
    text = to_dot(topology, nominal_figures(topology))
    lines = statements(text)
    assert sum("shape=" in line for line in lines) == len(topology.graph.nodes)
    drawn = sum(2 if "dir=both" in line else 1 for line in lines if " -> " in line)
    assert drawn == len(topology.links)
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True)


def test_directions_that_differ_are_drawn_apart() -> None:
    topology = pair()
    figures = nominal_figures(topology)
    same = to_dot(topology, figures)
    assert same.count(" -> ") == 1
    assert 'label="nvlink\\n25.0 GB/s", dir=both' in same or "25 GB/s" in same
    figures["gpu0->gpu1"] = Figure(capacity_Bps=7e9, status="pinned")
    apart = to_dot(topology, figures)
    assert apart.count(" -> ") == 2
    assert apart.count("style=dashed") == 1

"""What a merge takes over: attributes, links, shared cards, loads, classes; and what it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.contradictions import within
from topocal.topo.errors import TopocalError
from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.machines import build_machine
from topocal.topo.machines.generators import random_fabric_set, random_pcie_tree
from topocal.topo.merge import Merged, merge
from topocal.topo.renaming import rename_nodes
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.topology import Topology
from topocal.topo.view import View


def pair(name: str, **attributes: Any) -> TopologyBuilder:
    """One socket with two GPUs, by address."""
    builder = TopologyBuilder(name)
    builder.source(f"{name}.txt: a test")
    builder.node("socket0", NodeKind.SOCKET, numa=0)
    for k in range(2):
        builder.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:0{k + 1}:00.0", **attributes)
        builder.connect("socket0", f"gpu{k}", LinkKind.PCIE)
    return builder


def renamed(builder: TopologyBuilder) -> Topology:
    """The same machine, whose tool calls GPUs by other names."""
    return rename_nodes(builder.build(), {"gpu0": "gpu7", "gpu1": "gpu3"})


# Attributes

FREELY_ADDED = {
    "mig": ["1g.10gb", "2g.20gb"],
    "nvlinks": 18,
    "nvlinks_inactive": 2,
    "nvlink_Bps": 26e9,
    "card": 3,
    "numa_affinity": 1,
    "memory_numa": 2,
    "compute_units": 304,
    "something_new": {"deep": [1, 2]},
}


@pytest.mark.parametrize("name", sorted(FREELY_ADDED))
def test_whatever_a_file_says_is_filled_in(name: str) -> None:
    value = FREELY_ADDED[name]
    merged = merge([pair("a").build(), renamed(pair("b", **{name: value}))])
    assert [merged.topology.graph.nodes[g].get(name) for g in ("gpu0", "gpu1")] == [value, value]
    assert merged.contradictions == ()


@pytest.mark.parametrize("name", ["nvlinks", "numa_affinity", "memory_numa", "compute_units"])
def test_two_files_that_say_different_things(name: str) -> None:
    merged = merge([pair("a", **{name: 1}).build(), renamed(pair("b", **{name: 2}))])
    (odd,) = merged.contradictions
    assert odd.about == name.replace("_", " ")
    assert odd.evidence == ("gpu0: 1 in a.txt, 2 in b.txt", "gpu1: 1 in a.txt, 2 in b.txt")
    assert merged.topology.graph.nodes["gpu0"][name] == 1


def test_what_a_reader_makes_up_is_not_compared() -> None:
    one = pair("a", card=0, names=["cuda0"], rank=1)
    merged = merge([one.build(), pair("b", card=4, names=["nvml0"], rank=2).build()])
    assert merged.contradictions == ()


def test_no_two_devices_get_one_number() -> None:
    one, other = pair("a"), pair("b")
    one.node("gpu9", NodeKind.GPU, bus_id="0000:09:00.0", index=0)
    one.connect("socket0", "gpu9", LinkKind.PCIE)
    topology = other.build()
    graph = topology.graph.copy()
    graph.nodes["gpu1"]["index"] = 0
    merged = merge([one.build(), Topology(graph)])
    assert "index" not in merged.topology.graph.nodes["gpu1"]


# Shared cards


def ports(name: str, *, shared: bool, rate: float | None, count: int = 2) -> Topology:
    builder = TopologyBuilder(name)
    builder.source(f"{name}.txt: a test")
    builder.node("socket0", NodeKind.SOCKET, numa=0)
    first = None
    for k in range(count):
        builder.node(f"nic{k}", NodeKind.NIC, bus_id=f"0000:21:00.{k}")
        known: dict[str, Any] = {} if rate is None else {"generation": 5, "width": 16}
        made = builder.connect(
            "socket0",
            f"nic{k}",
            LinkKind.PCIE,
            nominal_Bps=rate,
            resources=first if shared else None,
            **known,
        )
        first = first or made
    return builder.build()


@pytest.mark.parametrize("count", [2, 4])
def test_every_port_of_a_card_gets_the_speed_of_its_link(count: int) -> None:
    whole = ports("a", shared=True, rate=None, count=count)
    merged = merge([whole, ports("b", shared=False, rate=57e9, count=1)])
    links = merged.topology.links
    for k in range(count):
        for link in (f"socket0->nic{k}", f"nic{k}->socket0"):
            assert links[link].nominal_Bps == 57e9
    view = View(merged.topology, "t")
    assert {view.uplink[f"nic{k}"]["generation"] for k in range(count)} == {5}
    assert merged.topology.resources["socket0->nic0"].nominal_Bps == 57e9
    assert merged.topology.validate() == []


def test_ports_that_a_file_says_share_a_card_share_its_resource() -> None:
    apart, shared = ports("a", shared=False, rate=None), ports("b", shared=True, rate=None)
    # The first file gives the graph: both are equally rich.
    merged = merge([apart, shared])
    uses = {merged.topology.links[f"socket0->nic{k}"].uses for k in range(2)}
    assert uses == {(("socket0->nic0", 1.0),)}
    assert "socket0->nic1" not in merged.topology.resources
    assert merged.topology.validate() == []


# Loads that no link shows


def test_uses_come_over_under_the_merged_names() -> None:
    other = (
        pair("b")
        .build()
        .with_resources(
            [
                Resource(id="gpu0.engine", sharing=Sharing.TIME_SHARED, kappa=0.9),
                Resource(id="root", nominal_Bps=40e9),
            ],
            [
                Use(resource="gpu0.engine", destinations=("gpu0",)),
                Use(resource="root", path_classes=(PathClass.PHB,), weight=2.0),
            ],
        )
    )
    names = {"gpu0": "gpu7", "gpu1": "gpu3"}
    merged = merge([pair("a").build(), rename_nodes(other, names)]).topology
    assert merged.resources["gpu0.engine"].kappa == 0.9
    assert merged.resources["root"].nominal_Bps == 40e9
    assert Use(resource="gpu0.engine", destinations=("gpu0",)) in merged.uses
    assert Use(resource="root", path_classes=(PathClass.PHB,), weight=2.0) in merged.uses
    assert merged.validate() == []


def test_uses_of_devices_that_are_not_merged_are_left_out() -> None:
    other = pair("b")
    other.node("gpu9", NodeKind.GPU, bus_id="0000:09:00.0")
    engine = [Resource(id="gpu9.engine"), Resource(id="gpu0.engine")]
    uses = [
        Use(resource="gpu9.engine", destinations=("gpu9",)),
        Use(resource="gpu0.engine", sources=("gpu0", "gpu9")),
    ]
    topology = other.build().with_resources(engine, uses)
    base = pair("a")
    for k in (4, 5):
        base.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:0{k}:00.0")
        base.connect("socket0", f"gpu{k}", LinkKind.PCIE)
    merged = merge([base.build(), topology]).topology
    assert merged.uses == (Use(resource="gpu0.engine", sources=("gpu0",)),)
    assert "gpu9.engine" not in merged.resources


def test_uses_that_both_files_have_are_taken_once() -> None:
    one = (
        pair("a")
        .build()
        .with_resources([Resource(id="root", nominal_Bps=1e9)], [Use(resource="root", weight=2.0)])
    )
    assert merge([one, one]).topology.uses == one.uses
    root = {"root": replace(one.resources["root"], nominal_Bps=2e9)}
    other = one.with_resources(root.values())
    assert merge([one, other]).topology.resources["root"].nominal_Bps == 1e9


def test_links_take_over_what_else_they_load() -> None:
    other = pair("b")
    other.resource(Resource(id="root", nominal_Bps=40e9))
    other.node("gpu2", NodeKind.GPU, bus_id="0000:05:00.0")
    other.connect("socket0", "gpu2", LinkKind.PCIE, uses=(("root", 2.0),))
    base = pair("a")
    base.node("gpu2", NodeKind.GPU, bus_id="0000:05:00.0")
    base.connect("socket0", "gpu2", LinkKind.PCIE)
    links = merge([base.build(), other.build()]).topology.links
    assert links["socket0->gpu2"].uses == (("socket0->gpu2", 1.0), ("root", 2.0))


# Classes of pairs


def test_pair_lists_come_over_under_the_merged_names() -> None:
    other = pair("b")
    other.stated_classes = [["gpu0", "gpu1", "PHB"]]
    other.no_peer_pairs = [["gpu0", "gpu1"]]
    other.class_overrides = [["gpu0", "gpu1", "NODE"], ["gpu1", "gpu0", "NODE"]]
    graph = merge([pair("a").build(), renamed(other)]).topology.graph.graph
    assert graph["stated_classes"] == [["gpu0", "gpu1", "PHB"]]
    assert graph["no_peer_pairs"] == [["gpu0", "gpu1"]]
    assert graph["class_overrides"] == [["gpu0", "gpu1", "NODE"], ["gpu1", "gpu0", "NODE"]]


def test_an_override_does_not_replace_what_the_first_file_shows() -> None:
    other = pair("b")
    other.stated_classes = [["gpu0", "gpu1", "SYS"]]
    other.class_overrides = [["gpu0", "gpu1", "SYS"], ["gpu1", "gpu0", "SYS"]]
    merged = merge([pair("a").build(), other.build()])
    assert merged.topology.graph.graph["class_overrides"] == []
    assert merged.topology.routes().path_class[0, 1] == PathClass.PHB
    assert [c.what for c in merged.contradictions] == ["PHB in a.txt, SYS in b.txt"]


def test_a_class_that_the_first_file_does_not_know_comes_from_the_second() -> None:
    base = pair("a")
    base.connect("gpu0", "gpu1", LinkKind.UNKNOWN)
    other = pair("b")
    other.class_overrides = [["gpu0", "gpu1", "PXB"], ["gpu1", "gpu0", "PXB"]]
    merged = merge([base.build(), other.build()])
    assert merged.topology.routes().path_class[0, 1] == PathClass.PXB
    assert merged.contradictions == ()


def test_a_link_of_unknown_kind_claims_nothing() -> None:
    base = pair("a")
    base.connect("gpu0", "gpu1", LinkKind.UNKNOWN, link_type="XXXX")
    topology = base.build()
    assert topology.routes().path_class[0, 1] == PathClass.SYS
    other = pair("b")
    other.connect("gpu0", "gpu1", LinkKind.XGMI, count=1)
    assert merge([topology, other.build()]).contradictions == ()


def test_a_stated_class_of_an_unknown_link_holds() -> None:
    base = pair("a")
    base.connect("gpu0", "gpu1", LinkKind.UNKNOWN, path_class="PXB")
    assert base.build().routes().path_class[0, 1] == PathClass.PXB


# Any machine


def _content(topology: Topology) -> tuple[Any, ...]:
    graph = topology.graph
    nodes = {
        node: {key: value for key, value in data.items() if key != "label" or value}
        for node, data in graph.nodes(data=True)
    }
    links = {key: (tail, head, data) for tail, head, key, data in graph.edges(keys=True, data=True)}
    pairs = {key: graph.graph[key] for key in ("class_overrides", "stated_classes")}
    return nodes, links, topology.resources, topology.uses, pairs


def _stripped(topology: Topology) -> Topology:
    """The same machine by somebody who can tell devices apart and no more."""
    graph = topology.graph.copy()
    for _, data in graph.nodes(data=True):
        for key in [k for k in data if k not in ("kind", "bus_id", "index", "host", "numa")]:
            del data[key]
    for *_, data in graph.edges(keys=True, data=True):
        data["nominal_Bps"] = None
        for key in ("generation", "width", "count", "max_generation", "max_width", "distance"):
            data.pop(key, None)
    graph.graph["resources"] = {
        key: replace(resource, nominal_Bps=None, source="")
        for key, resource in topology.resources.items()
    }
    return Topology(graph)


def _machine(seed: int) -> Topology:
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return random_fabric_set(rng)
    topology = random_pcie_tree(rng, gpus=int(rng.integers(2, 9)), nics=int(rng.integers(0, 4)))
    graph = topology.graph.copy()
    kinds = (NodeKind.GPU, NodeKind.NIC, NodeKind.PCIE_SWITCH)
    for k, (_, data) in enumerate(graph.nodes(data=True)):
        if data["kind"] in kinds:
            data["bus_id"] = f"0000:{k + 1:02x}:00.0"
    return Topology(graph)


@pytest.mark.parametrize("name", ["b70", "dgx1", "dgx-h100", "gh200", "mi250x", "h20-pair"])
def test_a_machine_merged_with_itself_is_itself(name: str) -> None:
    machine = build_machine(name)
    merged = merge([machine, machine])
    assert _content(merged.topology) == _content(machine)
    assert set(merged.contradictions) == set(within(View(machine, "m")))
    assert merged.notes == ()


@pytest.mark.parametrize("name", ["b70", "dgx1", "dgx-h100", "gh200", "mi250x", "h20-pair"])
def test_what_one_file_leaves_out_another_fills_in(name: str) -> None:
    machine = build_machine(name)
    assert _content(merge([_stripped(machine), machine]).topology) == _content(machine)


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_any_machine_is_filled_in(seed: int) -> None:
    machine = _machine(seed)
    assert _content(merge([machine, machine]).topology) == _content(machine)
    assert _content(merge([_stripped(machine), machine]).topology) == _content(machine)


def _part(topology: Topology, rng: np.random.Generator) -> Topology:
    """Some of the devices of a machine, under other names."""
    graph: nx.MultiDiGraph = topology.graph.copy()
    devices = [n for n, d in graph.nodes(data=True) if "bus_id" in d and d["kind"].is_endpoint]
    for node in devices[1:]:
        if rng.random() < 0.4:
            graph.remove_node(node)
    kept = {resource for *_, uses in graph.edges(data="uses") for resource, _ in uses}
    graph.graph["resources"] = {k: r for k, r in topology.resources.items() if k in kept}
    names = sorted(graph.nodes)
    return rename_nodes(Topology(graph), dict(zip(names, rng.permutation(names), strict=True)))


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_a_part_under_other_names_adds_nothing_and_contradicts_nothing(seed: int) -> None:
    machine = _machine(3 * seed + 1)
    rng = np.random.default_rng(seed)
    part = _part(machine, rng)
    for files in ([machine, part], [part, machine]):
        merged: Merged = merge(files)
        graph = merged.topology.graph
        assert {d.get("bus_id") for _, d in graph.nodes(data=True)} == {
            d.get("bus_id") for _, d in machine.graph.nodes(data=True)
        }
        assert graph.number_of_nodes() == machine.graph.number_of_nodes()
        assert graph.number_of_edges() == machine.graph.number_of_edges()
        itself = {c.what for file in files for c in within(View(file, "m"))}
        assert {c.about for c in merged.contradictions if c.what not in itself} <= {"numbers"}


ON_NODES = (
    *("bus_id", "index", "numa", "cpu_list", "model", "device", "host", "tile", "bus"),
    *("names", "net_names", "nvlinks", "nvlink_Bps", "label", "memory_bytes"),
)
ON_LINKS = (
    *("generation", "width", "max_generation", "max_width", "count"),
    *("speed_text", "described", "distance"),
)
_NOISE = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.booleans(),
    st.lists(st.integers(0, 1), max_size=2),
)


@given(
    seeds=st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300)),
    changes=st.lists(
        st.tuples(
            st.integers(0, 40),
            st.sampled_from(ON_NODES),
            _NOISE,
        ),
        max_size=12,
    ),
    on_links=st.lists(st.tuples(st.integers(0, 80), st.sampled_from(ON_LINKS), _NOISE), max_size=8),
)
@settings(deadline=None, max_examples=100)
def test_only_errors_of_the_project_come_out_of_a_merge(
    seeds: tuple[int, int, int],
    changes: list[tuple[int, str, Any]],
    on_links: list[tuple[int, str, Any]],
) -> None:
    files = []
    for seed in seeds:
        graph = _machine(seed).graph.copy()
        names = sorted(graph.nodes)
        for place, key, value in changes:
            graph.nodes[names[(place + seed) % len(names)]][key] = value
        links = sorted(graph.edges(keys=True))
        for place, key, value in on_links if links else ():
            graph.edges[links[(place + seed) % len(links)]][key] = value
        files.append(Topology(graph))
    try:
        merged = merge(files)
    except TopocalError:
        return
    merged.topology.routes(merged.topology.endpoints)
    document = topology_to_document(merged.topology)
    assert topology_from_document(document, file="t") == merged.topology

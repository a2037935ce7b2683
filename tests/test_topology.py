"""The machine as an object: what it answers, and what it finds wrong with itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import TopologyError, UnknownEndpointError
from topocal.topo.machines import MACHINES, b70
from topocal.topo.naming import natural_key
from topocal.topo.renaming import rename_nodes, with_prefix
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology


def pair(**attributes: Any) -> TopologyBuilder:
    """gpu0 and gpu1 on one socket, both links with ``attributes``."""
    build = TopologyBuilder("pair")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU, index=k)
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE, **attributes)
    return build


def test_what_a_topology_answers() -> None:
    topology = pair(nominal_Bps=28e9, generation=4).build()
    assert topology.name == "pair"
    assert topology.endpoints == topology.accelerators == ("gpu0", "gpu1")
    link = topology.links["gpu0->socket0"]
    assert (link.tail, link.head, link.kind) == ("gpu0", "socket0", LinkKind.PCIE)
    assert link.nominal_Bps == topology.resources["gpu0->socket0"].nominal_Bps == 28e9
    assert topology.links[link.reverse or ""].reverse == link.id
    assert repr(topology) == "<Topology 'pair': 2 endpoints, 4 links, 4 resources>"
    topology.require_endpoints(["gpu0"])
    with pytest.raises(UnknownEndpointError, match="did you mean gpu"):
        topology.require_endpoints(["gpu0", "gpu2"])


def test_networkx_works_on_the_graph_as_it_is() -> None:
    graph = b70().graph
    assert nx.is_strongly_connected(graph)
    assert nx.shortest_path_length(graph, "gpu0", "gpu7") == 5
    with pytest.raises(nx.NetworkXError):
        graph.add_node("more")


def test_equality_is_of_content() -> None:
    assert b70() == b70()
    assert b70() != pair().build()
    assert b70() != "b70"
    assert b70().with_resources([Resource(id="r")], [Use(resource="r")]) != b70()


def test_replaced_resources_leave_the_old_topology_alone() -> None:
    before = pair().build()
    after = before.with_resources([Resource(id="gpu0->socket0", nominal_Bps=1.0)])
    assert before.resources["gpu0->socket0"].nominal_Bps is None
    assert after.resources["gpu0->socket0"].nominal_Bps == 1.0
    assert after.routes().route("gpu0", "gpu1") == before.routes().route("gpu0", "gpu1")
    assert after.with_resources([]).routes() is after.routes()


def test_parallel_links_are_numbered() -> None:
    build = pair()
    assert build.connect("gpu0", "gpu1", LinkKind.NVLINK) == ("gpu0->gpu1", "gpu1->gpu0")
    assert build.connect("gpu0", "gpu1", LinkKind.NVLINK) == ("gpu0->gpu1#2", "gpu1->gpu0#2")
    assert {"gpu0->gpu1", "gpu0->gpu1#2"} <= set(build.build().links)


@pytest.mark.parametrize(
    ("sharing", "resources"),
    [
        (Sharing.CAPACITY, {"gpu0->gpu1", "gpu1->gpu0"}),
        (Sharing.FATPIPE, {"gpu0->gpu1", "gpu1->gpu0"}),
        (Sharing.DUPLEX, {"gpu0<->gpu1"}),
    ],
)
def test_resources_of_a_link(sharing: Sharing, resources: set[str]) -> None:
    build = TopologyBuilder("two")
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
    build.connect("gpu0", "gpu1", LinkKind.NVLINK, sharing=sharing, nominal_Bps=1e9)
    topology = build.build()
    assert set(topology.resources) == resources
    assert {r.sharing for r in topology.resources.values()} == {sharing}


def test_a_name_stands_for_one_node() -> None:
    build = pair()
    with pytest.raises(TopologyError, match="two nodes are called gpu0"):
        build.node("gpu0", NodeKind.GPU)
    with pytest.raises(TopologyError, match="two nodes are called"):
        build.include(pair().build())


def test_included_topologies_keep_all_they_have() -> None:
    build = TopologyBuilder("both")
    for k in range(2):
        part = pair(nominal_Bps=1e9)
        part.no_peer_pairs = [["gpu0", "gpu1"]]
        part.resource(Resource(id="engine"))
        part.use(Use(resource="engine", sources=("gpu0",)))
        part.note("same note")
        build.include(with_prefix(part.build(), f"n{k}/"))
    topology = build.build()
    assert topology.accelerators == ("n0/gpu0", "n0/gpu1", "n1/gpu0", "n1/gpu1")
    assert topology.graph.graph["no_peer_pairs"] == [
        ["n0/gpu0", "n0/gpu1"], ["n1/gpu0", "n1/gpu1"],
    ]  # fmt: skip
    assert [use.sources for use in topology.uses] == [("n0/gpu0",), ("n1/gpu0",)]
    assert {"n0/engine", "n1/engine"} <= set(topology.resources)
    assert topology.graph.graph["notes"] == ["same note"]
    assert topology.links["n0/gpu0->n0/socket0"].reverse == "n0/socket0->n0/gpu0"


def test_renaming_back_gives_the_same_machine() -> None:
    topology = MACHINES["dgx1"].build()
    there = {node: f"x {node}" for node in topology.graph.nodes}
    back = {new: old for old, new in there.items()}
    assert rename_nodes(rename_nodes(topology, there), back) == topology
    with pytest.raises(TopologyError, match="same id"):
        rename_nodes(topology, {"gpu0": "gpu1"})


def test_natural_order() -> None:
    names = ["gpu10", "gpu2", "gpu2x", "gpu02", "node1/gpu0", "node0/gpu9", "9", "x"]
    assert sorted(names, key=natural_key) == [
        "9", "gpu02", "gpu2", "gpu2x", "gpu10", "node0/gpu9", "node1/gpu0", "x",
    ]  # fmt: skip


@given(st.lists(st.text(alphabet="ab01٣²", max_size=30) | st.text(max_size=5), max_size=6))
def test_natural_order_is_total(names: list[str]) -> None:
    names = list(dict.fromkeys(names))
    keys = [natural_key(name) for name in names]
    assert len(set(keys)) == len(names)
    backwards = names[::-1]
    assert sorted(backwards, key=natural_key) == sorted(names, key=natural_key)


def test_a_number_of_any_length_sorts() -> None:
    assert natural_key("9" * 10_000) > natural_key("8" * 10_000)


def broken(change: Callable[[nx.MultiDiGraph], object]) -> nx.MultiDiGraph:
    graph = pair().build().graph.copy()
    change(graph)
    return graph


LINK = ("gpu0", "socket0", "gpu0->socket0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.graph.pop("resources"), "has no resources or uses"),
        (lambda g: g.add_node("x"), "x: node of kind None"),
        (lambda g: g.add_node("x", kind="gpu"), "x: node of kind 'gpu'"),
        (lambda g: g.add_node(7, kind=NodeKind.GPU), "7: node id is not text"),
        (lambda g: g.add_edge("gpu0", "gpu1", key=LINK[2], kind=LinkKind.PCIE), "two links have"),
        (lambda g: g.add_edge("gpu0", "gpu1", key=3, kind=LinkKind.PCIE), "link id is not text"),
        (lambda g: g.add_edge("gpu0", "gpu0", key="l", kind=LinkKind.PCIE), "to itself"),
        (lambda g: g.add_edge("gpu0", "gpu1", key="l", kind="pcie"), "link of kind 'pcie'"),
        (lambda g: g.edges[LINK].update(nominal_Bps="fast"), "nominal capacity fast"),
        (lambda g: g.edges[LINK].update(nominal_Bps=math.nan), "nominal capacity nan"),
        (lambda g: g.edges[LINK].update(uses=(("r", 1.0),)), "uses the unknown resource r"),
        (lambda g: g.edges[LINK].update(uses=((LINK[2], 0.0),)), "with weight 0.0"),
        (lambda g: g.edges[LINK].update(path_class="FAR"), "unknown path class FAR"),
        (lambda g: g.graph["uses"].append(Use(resource="r")), "is used but is not a resource"),
        (
            lambda g: g.graph["uses"].append(Use(resource=LINK[2], sources=("x",))),
            "is used by the unknown endpoint x",
        ),
        (lambda g: g.graph["uses"].append(Use(resource=LINK[2], weight=-1)), "with weight -1"),
        (
            lambda g: g.graph["resources"].update({LINK[2]: Resource(id=LINK[2], nominal_Bps=-1)}),
            "nominal capacity -1",
        ),
        (
            lambda g: g.graph["resources"].update({LINK[2]: Resource(id=LINK[2], kappa=1.5)}),
            "overlap factor 1.5",
        ),
        (lambda g: g.graph["resources"].update(x=Resource(id="y")), "x: is not listed under"),
        (lambda g: g.graph.update(no_peer_pairs=[["gpu0", "x"]]), "names the unknown node x"),
        (lambda g: g.graph.update(class_overrides=[["gpu0", "gpu1"]]), "has the entry"),
        (lambda g: g.graph.update(stated_classes=[["gpu0", "gpu1", 3]]), "unknown path class 3"),
    ],
)
def test_contradictions_are_refused(
    change: Callable[[nx.MultiDiGraph], object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology(broken(change))
    assert message in str(caught.value)
    assert caught.value.remedy


def loose(build: TopologyBuilder) -> None:
    build.node("nic0", NodeKind.NIC)


def island(build: TopologyBuilder) -> None:
    for k in (2, 3):
        build.node(f"gpu{k}", NodeKind.GPU)
    build.connect("gpu2", "gpu3", LinkKind.PCIE)


def unused(build: TopologyBuilder) -> None:
    build.resource(Resource(id="engine"))


def same_bus(build: TopologyBuilder) -> None:
    for k in (2, 3):
        build.node(f"gpu{k}", NodeKind.GPU, bus_id="0000:17:00.0")
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE)


def same_index(build: TopologyBuilder) -> None:
    build.node("gpu2", NodeKind.GPU, index=1)
    build.connect("gpu2", "socket0", LinkKind.PCIE)


def link(**attributes: Any) -> Callable[[TopologyBuilder], None]:
    def add(build: TopologyBuilder) -> None:
        build.node("nic0", NodeKind.NIC)
        build.connect("nic0", "socket0", LinkKind.PCIE, **attributes)

    return add


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (lambda build: None, []),
        (loose, ["nic0: has no link"]),
        (island, ["gpu2: and 1 more endpoints cannot be reached from gpu0"]),
        (unused, ["engine: no link or endpoint uses this resource"]),
        (same_bus, ["gpu3: has the same bus_id 0000:17:00.0 as gpu2"]),
        (same_index, ["gpu2: has the same index 1 as gpu1"]),
        (link(generation=4, width=16, nominal_Bps=28e9), []),
        (link(width=12), ["nic0->socket0: PCIe width 12"]),
        (link(generation=9), ["nic0->socket0: PCIe generation 9"]),
        (link(max_width=5), ["nic0->socket0: PCIe max_width 5"]),
        (
            link(width=8, max_width=16, generation=1, max_generation=4),
            [
                "nic0->socket0: runs at generation 1 where generation 4 is possible",
                "nic0->socket0: runs at x8 where x16 is possible",
            ],
        ),
        (link(nominal_Bps=0.0), ["nic0->socket0: nominal capacity 0", "nominal capacity 0"]),
        (
            link(nominal_Bps=2e9, back_Bps=1e9),
            ["nic0->socket0: nominal capacity 2000000000.0 forth and 1000000000.0 back"],
        ),
    ],
)
def test_doubts_are_told(change: Callable[[TopologyBuilder], None], problems: list[str]) -> None:
    build = pair()
    change(build)
    found = build.build().validate()
    assert len(found) == len(problems)
    for problem, start in zip(found, problems, strict=True):
        assert start in str(problem)
        assert problem.remedy


def changed(change: Callable[[nx.MultiDiGraph], object]) -> list[str]:
    return [str(problem) for problem in Topology(broken(change)).validate()]


def test_missing_directions_are_told() -> None:
    found = changed(lambda g: g.remove_edge(*LINK))
    assert found == [
        "gpu0: has no route to gpu1; add links in the missing direction",
        "socket0->gpu0: its other direction gpu0->socket0 does not exist; add a link gpu0->socket0",
        "gpu0->socket0: no link or endpoint uses this resource; use it or remove it",
    ]


def test_a_wrong_other_direction_is_told() -> None:
    found = changed(lambda g: g.edges[LINK].update(reverse="gpu1->socket0"))
    assert len(found) == 1
    assert "its other direction gpu1->socket0 runs from gpu1 to socket0" in found[0]


def test_a_link_that_loads_nothing_is_told() -> None:
    found = changed(lambda g: g.edges[LINK].update(uses=()))
    assert [text.partition(";")[0] for text in found] == [
        "gpu0->socket0: no link or endpoint uses this resource",
        "gpu0->socket0: loads no resource",
    ]


def test_a_machine_without_endpoints_is_told() -> None:
    build = TopologyBuilder("empty")
    build.node("socket0", NodeKind.SOCKET)
    assert [str(p) for p in build.build().validate()] == [
        "empty: has no endpoint; add a GPU, NIC, processor or memory node"
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_reference_machines_are_in_order(name: str) -> None:
    assert MACHINES[name].build().validate() == []

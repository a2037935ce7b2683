"""Nodes joined to clusters: who hangs where, what links pass, how far endpoints are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError, TopologyError
from topocal.topo.fabric import dragonfly, fat_tree, plain_switch, rails
from topocal.topo.machines import b70
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology


def node(gpus: int = 2, port_Bps: float | None = 25e9) -> Topology:
    """GPU and NIC k together on switch k."""
    build = TopologyBuilder("node")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(gpus):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{k}", "socket0", LinkKind.PCIE)
        build.node(f"gpu{k}", NodeKind.GPU, index=k)
        more = {} if port_Bps is None else {"network_Bps": port_Bps}
        build.node(f"nic{k}", NodeKind.NIC, index=k, **more)
        for card in ("gpu", "nic"):
            build.connect(f"{card}{k}", f"switch{k}", LinkKind.PCIE)
    return build.build()


def neighbours(topology: Topology, id: str) -> list[str]:
    return sorted(topology.graph.successors(id))


def net_hops(topology: Topology, source: str, destination: str) -> int:
    links = [topology.links[k] for k in topology.routes().route(source, destination)]
    return sum(link.kind is LinkKind.NET for link in links)


def test_every_id_is_under_its_node_and_host() -> None:
    topology = plain_switch([node()] * 3)
    assert topology.accelerators == tuple(f"node{n}/gpu{k}" for n in range(3) for k in range(2))
    for name, data in topology.graph.nodes(data=True):
        if name != "switch0":
            assert data["host"] == name.partition("/")[0]
    assert topology.validate() == []


def test_one_switch() -> None:
    topology = plain_switch([node()] * 2, name="both")
    assert topology.name == "both"
    assert neighbours(topology, "switch0") == [
        "node0/nic0", "node0/nic1", "node1/nic0", "node1/nic1",
    ]  # fmt: skip
    assert topology.links["node0/nic0->switch0"].nominal_Bps == 25e9
    assert net_hops(topology, "node0/gpu0", "node1/gpu1") == 2


def test_different_nodes_join_too() -> None:
    topology = plain_switch([node(1), node(3, port_Bps=None)])
    assert topology.accelerators[-1] == "node1/gpu2"
    assert topology.links["node1/nic2->switch0"].nominal_Bps is None
    assert topology.links["node0/nic0->switch0"].nominal_Bps == 25e9


def test_rails_of_one_leaf_each() -> None:
    topology = rails([node()] * 3)
    assert neighbours(topology, "rail1") == ["node0/nic1", "node1/nic1", "node2/nic1"]
    assert net_hops(topology, "node0/gpu1", "node2/gpu1") == 2


def test_rails_under_spines() -> None:
    topology = rails([node()] * 4, spines=2, nodes_per_leaf=2, oversubscription=2)
    assert neighbours(topology, "rail0-leaf1") == ["node2/nic0", "node3/nic0", "spine0", "spine1"]
    # Two ports of 25 GB/s below, two uplinks above, two to one: 12.5 GB/s each.
    assert topology.links["rail0-leaf0->spine1"].nominal_Bps == 12.5e9
    assert net_hops(topology, "node0/gpu0", "node1/gpu0") == 2
    assert net_hops(topology, "node0/gpu0", "node3/gpu0") == 4
    assert net_hops(topology, "node0/gpu0", "node1/gpu1") == 4


def test_fat_tree_of_two_levels() -> None:
    topology = fat_tree([node()] * 4, nodes_per_leaf=2, spines=2)
    assert len(neighbours(topology, "leaf0")) == 6
    assert topology.links["leaf0->spine0"].nominal_Bps == 50e9
    assert net_hops(topology, "node0/gpu0", "node1/gpu0") == 2
    assert net_hops(topology, "node0/gpu0", "node2/gpu0") == 4


def test_fat_tree_of_three_levels() -> None:
    topology = fat_tree(
        [node()] * 8, nodes_per_leaf=1, spines=2, leaves_per_pod=2, cores=3, oversubscription=2
    )
    assert neighbours(topology, "core4") == [f"pod{p}-spine1" for p in range(4)]
    # A leaf: 50 GB/s below, 25 above, 12.5 to each spine.  A spine: 25 below, 12.5 above.
    assert topology.links["leaf5->pod2-spine0"].nominal_Bps == 12.5e9
    assert topology.links["pod0-spine1->core4"].nominal_Bps == pytest.approx(12.5e9 / 3)
    assert net_hops(topology, "node0/gpu0", "node1/gpu0") == 4
    assert net_hops(topology, "node0/gpu0", "node7/gpu0") == 6


def test_dragonfly() -> None:
    topology = dragonfly(
        [node()] * 12, nodes_per_router=1, routers_per_group=4, local_Bps=1e9, global_Bps=2e9
    )
    # Three groups of four routers: six local links in each, three global ones.
    wires = [link for link in topology.links.values() if "router" in link.tail + link.head]
    between = [link for link in wires if "router" in link.tail and "router" in link.head]
    assert sum(link.nominal_Bps == 1e9 for link in between) == 2 * 3 * 6
    assert sum(link.nominal_Bps == 2e9 for link in between) == 2 * 3
    longest = max(
        net_hops(topology, a, b)
        for a in topology.accelerators
        for b in topology.accelerators
        if a.partition("/")[0] != b.partition("/")[0]
    )
    # Port, local, global, local, port.
    assert longest == 5


def test_ports_of_unknown_speed_leave_uplinks_unknown() -> None:
    topology = fat_tree([node(port_Bps=None)] * 2, nodes_per_leaf=1, spines=1)
    assert topology.links["leaf0->spine0"].nominal_Bps is None
    known = fat_tree([node(port_Bps=None)] * 2, nodes_per_leaf=1, spines=1, port_Bps=1e9)
    assert known.links["leaf0->spine0"].nominal_Bps == 2e9


def test_what_is_plugged_in_can_be_named() -> None:
    topology = plain_switch([node()] * 2, nics=["nic1"])
    assert neighbours(topology, "switch0") == ["node0/nic1", "node1/nic1"]
    boxes = plain_switch([b70()] * 2, nics=["gpu0"])
    assert neighbours(boxes, "switch0") == ["node0/gpu0", "node1/gpu0"]
    with pytest.raises(TopologyError, match="node has no node nic9"):
        plain_switch([node()], nics=["nic9"])


def test_peer_access_of_the_nodes_is_kept() -> None:
    def with_peers(allowed: bool | None) -> Topology:
        graph = node().graph.copy()
        graph.graph["peer_access"] = allowed
        return Topology(graph)

    assert plain_switch([with_peers(False)] * 2).graph.graph["peer_access"] is False
    mixed = plain_switch([with_peers(True), with_peers(False)]).graph.graph
    assert mixed["peer_access"] is None
    assert mixed["no_peer_pairs"] == [["node1/gpu0", "node1/gpu1"]]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda: plain_switch([]), "no nodes"),
        (lambda: plain_switch([b70()]), "b70 has no NIC to plug in"),
        (lambda: plain_switch([node()], port_Bps=0), "port_Bps is 0"),
        (lambda: rails([node()] * 2, nodes_per_leaf=1), "no spine joins"),
        (lambda: rails([node()], nodes_per_leaf=0), "nodes_per_leaf is 0"),
        (lambda: rails([node()], oversubscription=0), "oversubscription is 0"),
        (lambda: fat_tree([node()], nodes_per_leaf=0, spines=1), "nodes_per_leaf is 0"),
        (lambda: fat_tree([node()], nodes_per_leaf=1, spines=0), "spines is 0"),
        (
            lambda: fat_tree([node()] * 2, nodes_per_leaf=1, spines=1, leaves_per_pod=1),
            "no core joins",
        ),
        (lambda: dragonfly([node()], nodes_per_router=1, routers_per_group=0), "per_group is 0"),
    ],
)
def test_impossible_fabrics(join: Callable[[], Topology], message: str) -> None:
    with pytest.raises((InputError, TopologyError), match=message) as caught:
        join()
    assert caught.value.remedy

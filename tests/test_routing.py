"""Routes and their classes, by hand on small machines."""

from __future__ import annotations

import numpy as np
import pytest
from routed_machines import class_of, made, pcie, way

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import NoRouteError, UnknownEndpointError
from topocal.topo.fabric import fat_tree, plain_switch, rails
from topocal.topo.machines import (
    b70,
    dgx1,
    dgx_h100,
)
from topocal.topo.resource import LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology


def two_sockets(builder: TopologyBuilder) -> None:
    """socket0 has bridge0 (switch0, switch1 under switch2) and bridge1; socket1 has bridge2.

    ::

        socket0 ─ bridge0 ─ switch2 ┬ switch0 ─ gpu0, gpu1
                                    └ switch1 ─ gpu2
                  bridge0 ─ gpu3
                  bridge1 ─ gpu4
        socket1 ─ bridge2 ─ gpu5
    """
    for k in range(2):
        builder.node(f"socket{k}", NodeKind.SOCKET)
        builder.node(f"mem{k}", NodeKind.MEMORY)
        builder.connect(f"mem{k}", f"socket{k}", LinkKind.MEMORY)
    builder.connect("socket0", "socket1", LinkKind.SMP)
    for k in range(3):
        builder.node(f"bridge{k}", NodeKind.HOST_BRIDGE)
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
    for k in range(6):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k)
    pcie(builder, ("bridge0", "socket0"), ("bridge1", "socket0"), ("bridge2", "socket1"))
    pcie(builder, ("switch2", "bridge0"), ("switch0", "switch2"), ("switch1", "switch2"))
    pcie(builder, ("gpu0", "switch0"), ("gpu1", "switch0"), ("gpu2", "switch1"))
    pcie(builder, ("gpu3", "bridge0"), ("gpu4", "bridge1"), ("gpu5", "bridge2"))


@pytest.mark.parametrize(
    ("source", "destination", "expected", "nodes"),
    [
        ("gpu0", "gpu1", "PIX", "gpu0 switch0 gpu1"),
        ("gpu0", "gpu2", "PXB", "gpu0 switch0 switch2 switch1 gpu2"),
        ("gpu0", "gpu3", "PHB", "gpu0 switch0 switch2 bridge0 gpu3"),
        ("gpu3", "gpu4", "NODE", "gpu3 bridge0 socket0 bridge1 gpu4"),
        ("gpu4", "gpu5", "SYS", "gpu4 bridge1 socket0 socket1 bridge2 gpu5"),
        ("gpu4", "mem0", "PHB", "gpu4 bridge1 socket0 mem0"),
        ("mem1", "gpu4", "SYS", "mem1 socket1 socket0 bridge1 gpu4"),
        ("mem0", "mem1", "SYS", "mem0 socket0 socket1 mem1"),
    ],
)
def test_lowest_common_ancestor(source: str, destination: str, expected: str, nodes: str) -> None:
    topology = made(two_sockets)
    assert way(topology, source, destination) == nodes.split()
    assert class_of(topology, source, destination) == expected
    assert class_of(topology, destination, source) == expected


def test_a_direct_gpu_link_wins_over_pcie() -> None:
    def build(builder: TopologyBuilder) -> None:
        two_sockets(builder)
        builder.connect("gpu0", "gpu5", LinkKind.NVLINK)

    topology = made(build)
    assert way(topology, "gpu0", "gpu5") == ["gpu0", "gpu5"]
    assert class_of(topology, "gpu0", "gpu5") == "NVL"
    # gpu1 has no link of its own: it does not go by way of gpu0.
    assert class_of(topology, "gpu1", "gpu5") == "SYS"


def test_nvswitch_joins_gpus_but_is_no_way_to_the_host() -> None:
    def build(builder: TopologyBuilder) -> None:
        two_sockets(builder)
        builder.node("nvswitch0", NodeKind.NVSWITCH)
        for k in (0, 4, 5):
            builder.connect(f"gpu{k}", "nvswitch0", LinkKind.NVLINK)

    topology = made(build)
    assert way(topology, "gpu4", "gpu5") == ["gpu4", "nvswitch0", "gpu5"]
    assert class_of(topology, "gpu4", "gpu5") == "NVL"
    assert way(topology, "gpu4", "mem1") == ["gpu4", "bridge1", "socket0", "socket1", "mem1"]
    assert class_of(topology, "gpu1", "gpu5") == "SYS"


def test_cube_mesh_uses_its_links_and_no_third_gpu() -> None:
    topology = dgx1()
    assert way(topology, "gpu0", "gpu4") == ["gpu0", "gpu4"]
    assert way(topology, "gpu0", "gpu5") == [
        "gpu0", "switch0", "socket0", "socket1", "switch2", "gpu5",
    ]  # fmt: skip


def test_gpus_relay_only_where_there_is_no_other_way() -> None:
    def ring(builder: TopologyBuilder) -> None:
        for k in range(4):
            builder.node(f"gpu{k}", NodeKind.GPU)
        for k in range(4):
            builder.connect(f"gpu{k}", f"gpu{(k + 1) % 4}", LinkKind.XGMI)

    topology = made(ring)
    assert class_of(topology, "gpu0", "gpu1") == "NVL"
    assert class_of(topology, "gpu0", "gpu2") == "NVB"
    assert len(way(topology, "gpu0", "gpu2")) == 3


@pytest.mark.parametrize(
    ("kind", "expected"), [(LinkKind.C2C, "C2C"), (LinkKind.NVLINK, "NVL"), (LinkKind.PCIE, "PHB")]
)
def test_memory_of_the_own_processor(kind: LinkKind, expected: str) -> None:
    def build(builder: TopologyBuilder) -> None:
        for k in range(2):
            builder.node(f"socket{k}", NodeKind.SOCKET)
            builder.node(f"mem{k}", NodeKind.MEMORY)
            builder.node(f"gpu{k}", NodeKind.GPU)
            builder.connect(f"mem{k}", f"socket{k}", LinkKind.MEMORY)
            builder.connect(f"gpu{k}", f"socket{k}", kind)
        builder.connect("socket0", "socket1", LinkKind.SMP)
        builder.node("gpu2", NodeKind.GPU)
        builder.connect("gpu2", "socket0", kind)

    topology = made(build)
    assert class_of(topology, "gpu0", "mem0") == class_of(topology, "mem0", "gpu0") == expected
    assert class_of(topology, "gpu0", "mem1") == "SYS"
    assert class_of(topology, "gpu0", "gpu1") == "SYS"
    assert class_of(topology, "gpu0", "gpu2") == "PHB"


def without_peers(builder: TopologyBuilder) -> None:
    two_sockets(builder)
    builder.peer_access = False


@pytest.mark.parametrize(
    ("source", "destination", "nodes", "expected"),
    [
        # The uplinks of switch0 and of bridge0 are crossed up and down.
        (
            "gpu0",
            "gpu1",
            "gpu0 switch0 switch2 bridge0 socket0 mem0 socket0 bridge0 switch2 switch0 gpu1",
            "PIX",
        ),
        ("gpu4", "gpu5", "gpu4 bridge1 socket0 mem0 socket0 socket1 bridge2 gpu5", "SYS"),
        ("gpu5", "gpu4", "gpu5 bridge2 socket1 mem1 socket1 socket0 bridge1 gpu4", "SYS"),
        # Only GPUs are peers or not: copies to memory go as always.
        ("gpu4", "mem1", "gpu4 bridge1 socket0 socket1 mem1", "SYS"),
    ],
)
def test_staged_copies_go_by_host_memory(
    source: str, destination: str, nodes: str, expected: str
) -> None:
    topology = made(without_peers)
    assert way(topology, source, destination) == nodes.split()
    assert class_of(topology, source, destination) == expected
    routes = topology.routes(topology.endpoints)
    assert routes.staged is not None
    at = routes.position
    assert bool(routes.staged[at[source], at[destination]]) == destination.startswith("gpu")


def test_staged_copies_turn_at_the_root_where_no_memory_is_described() -> None:
    def one_switch(builder: TopologyBuilder) -> None:
        builder.peer_access = False
        builder.node("socket0", NodeKind.SOCKET)
        builder.node("switch0", NodeKind.PCIE_SWITCH)
        pcie(builder, ("switch0", "socket0"))
        for k in range(2):
            builder.node(f"gpu{k}", NodeKind.GPU)
            pcie(builder, (f"gpu{k}", "switch0"))

    topology = made(one_switch)
    assert way(topology, "gpu0", "gpu1") == ["gpu0", "switch0", "socket0", "switch0", "gpu1"]


def test_single_pairs_that_are_no_peers() -> None:
    def build(builder: TopologyBuilder) -> None:
        two_sockets(builder)
        builder.connect("gpu0", "gpu5", LinkKind.NVLINK)
        builder.no_peer_pairs = [["gpu0", "gpu1"]]

    topology = made(build)
    assert "mem0" in way(topology, "gpu0", "gpu1")
    assert "mem0" in way(topology, "gpu1", "gpu0")
    assert way(topology, "gpu0", "gpu2") == ["gpu0", "switch0", "switch2", "switch1", "gpu2"]
    assert way(topology, "gpu0", "gpu5") == ["gpu0", "gpu5"]


def test_stated_classes_hold() -> None:
    def build(builder: TopologyBuilder) -> None:
        two_sockets(builder)
        builder.connect("gpu0", "gpu4", LinkKind.UNKNOWN, path_class="PHB")
        builder.class_overrides = [["gpu2", "gpu3", "NODE"]]

    topology = made(build)
    assert way(topology, "gpu0", "gpu4") == ["gpu0", "gpu4"]
    assert class_of(topology, "gpu0", "gpu4") == class_of(topology, "gpu4", "gpu0") == "PHB"
    assert class_of(topology, "gpu2", "gpu3") == "NODE"
    assert class_of(topology, "gpu3", "gpu2") == "PHB"


def host(
    builder: TopologyBuilder, gpus: int, nics: dict[int, int], rails_of: dict[int, int]
) -> None:
    """GPU k under switch ``k // 2``; NIC n under the switch that ``nics`` says."""
    builder.node("socket0", NodeKind.SOCKET)
    builder.node("mem0", NodeKind.MEMORY)
    builder.connect("mem0", "socket0", LinkKind.MEMORY)
    for k in range((gpus + 1) // 2):
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        pcie(builder, (f"switch{k}", "socket0"))
    for k in range(gpus):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k)
        pcie(builder, (f"gpu{k}", f"switch{k // 2}"))
    for k, switch in nics.items():
        builder.node(f"nic{k}", NodeKind.NIC, index=rails_of.get(k, k))
        pcie(builder, (f"nic{k}", f"switch{switch}"))


def nics_used(topology: Topology, gpus: int) -> list[str]:
    """The NIC by which each GPU of node 0 leaves for node 1."""
    found = []
    for k in range(gpus):
        nodes = way(topology, f"node0/gpu{k}", "node1/gpu0")
        found.append(next(n for n in nodes if "nic" in n).removeprefix("node0/"))
    return found


@pytest.mark.parametrize(
    ("nics", "rails_of", "expected"),
    [
        # Nearest by class, whatever the rail.
        ({0: 1, 1: 0}, {}, "nic1 nic1 nic0 nic0"),
        # Equally near: the own rail, by index.
        ({0: 0, 1: 0, 2: 1, 3: 1}, {}, "nic0 nic1 nic2 nic3"),
        ({0: 0, 1: 0, 2: 1, 3: 1}, {0: 1, 1: 0}, "nic1 nic0 nic2 nic3"),
        # Equally near and on no rail: shared out evenly.
        ({8: 0, 9: 0}, {}, "nic8 nic9 nic8 nic9"),
        ({0: 0}, {}, "nic0 nic0 nic0 nic0"),
    ],
)
def test_nearest_nic(nics: dict[int, int], rails_of: dict[int, int], expected: str) -> None:
    node = made(lambda builder: host(builder, 4, nics, rails_of))
    topology = plain_switch([node] * 2)
    assert nics_used(topology, 4) == expected.split()


def test_the_faster_of_equally_near_nics() -> None:
    def build(builder: TopologyBuilder) -> None:
        host(builder, 2, {}, {})
        for k, rate in enumerate((3e9, 25e9)):
            builder.node(f"nic{k}", NodeKind.NIC, index=k, network_Bps=rate)
            pcie(builder, (f"nic{k}", "switch0"))

    assert nics_used(plain_switch([made(build)] * 2), 2) == ["nic1", "nic1"]


def test_route_between_nodes_in_full() -> None:
    node = made(lambda builder: host(builder, 2, {0: 0}, {}))
    topology = plain_switch([node] * 2)
    assert way(topology, "node0/gpu1", "node1/mem0") == [
        "node0/gpu1", "node0/switch0", "node0/nic0", "switch0",
        "node1/nic0", "node1/switch0", "node1/socket0", "node1/mem0",
    ]  # fmt: skip
    assert class_of(topology, "node0/gpu1", "node1/mem0") == "NET"
    assert way(topology, "node0/gpu0", "node1/nic0")[2:] == [
        "node0/nic0", "switch0", "node1/nic0",
    ]  # fmt: skip


def test_rails_that_do_not_meet_are_changed_inside_a_node() -> None:
    topology = rails([dgx_h100()] * 2)
    nodes = way(topology, "node0/gpu3", "node1/gpu6")
    assert [node for node in nodes if "nic" in node or "rail" in node] == [
        "node0/nic3", "rail3", "node1/nic3",
    ]  # fmt: skip
    assert nodes[-3:] == ["node1/bridge6", "node1/switch6", "node1/gpu6"]
    assert class_of(topology, "node0/gpu3", "node1/gpu6") == "NET"


def test_an_endpoint_with_a_port_of_its_own_uses_that() -> None:
    def star(builder: TopologyBuilder) -> None:
        builder.node("hub", NodeKind.NET_SWITCH)
        for k in range(3):
            builder.node(f"cpu{k}", NodeKind.CPU)
            builder.connect(f"cpu{k}", "hub", LinkKind.NET)

    assert way(made(star), "cpu0", "cpu2") == ["cpu0", "hub", "cpu2"]


def test_equal_paths_are_loaded_evenly() -> None:
    node = made(lambda builder: host(builder, 4, {k: k // 2 for k in range(4)}, {}))
    topology = fat_tree([node] * 8, nodes_per_leaf=2, spines=4)
    routes = topology.routes()
    crossings = np.bincount(routes.indices, minlength=len(routes.links))
    uplinks = [n for link, n in zip(routes.links, crossings, strict=True) if "->spine" in link]
    downlinks = [n for link, n in zip(routes.links, crossings, strict=True) if "spine" in link]
    # 8 GPUs of a leaf send to 24 others: 192 routes over 4 spines.
    assert uplinks == [48] * 16
    assert downlinks == [48] * 32


def test_parallel_links_share_destinations() -> None:
    def build(builder: TopologyBuilder) -> None:
        two_sockets(builder)
        builder.connect("socket0", "socket1", LinkKind.SMP)
        builder.node("gpu6", NodeKind.GPU)
        pcie(builder, ("gpu6", "bridge2"))

    topology = made(build)
    routes = topology.routes()
    hops = {link for k in (5, 6) for link in routes.route("gpu0", f"gpu{k}") if "t0->s" in link}
    assert hops == {"socket0->socket1", "socket0->socket1#2"}


def test_nothing_connects_two_parts() -> None:
    def apart(builder: TopologyBuilder) -> None:
        for k in range(2):
            builder.node(f"gpu{k}", NodeKind.GPU)

    topology = made(apart)
    assert class_of(topology, "gpu0", "gpu1") == "DIS"
    with pytest.raises(NoRouteError, match="no route from gpu0 to gpu1"):
        topology.routes().route("gpu0", "gpu1")


@pytest.mark.parametrize("kind", [NodeKind.GPU, NodeKind.SOCKET])
def test_a_machine_of_one_node(kind: NodeKind) -> None:
    topology = made(lambda builder: builder.node("only0", kind) and None)
    routes = topology.routes()
    assert routes.endpoints == (("only0",) if kind is NodeKind.GPU else ())
    assert len(routes.indices) == 0


def test_unknown_endpoints() -> None:
    routes = b70().routes()
    with pytest.raises(
        UnknownEndpointError, match=r"unknown endpoint 'gpu9'; did you mean gpu\d\?"
    ):
        routes.route("gpu0", "gpu9")
    with pytest.raises(UnknownEndpointError):
        b70().routes(("gpu0", "nothing"))


def test_duplex_links_still_have_two_directions() -> None:
    def build(builder: TopologyBuilder) -> None:
        for k in range(2):
            builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect("gpu0", "gpu1", LinkKind.PCIE, sharing=Sharing.DUPLEX)

    topology = made(build)
    assert topology.routes().route("gpu1", "gpu0") == ("gpu1->gpu0",)

"""Reference machines: what is published of each."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from topocal.topo.errors import InputError
from topocal.topo.machines import (
    MACHINES,
    b70,
    build_machine,
    fat_tree_cluster,
    rail_pod,
    random_cluster,
    random_fabric_set,
    random_pcie_tree,
)
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

NAMES = tuple(MACHINES)


def classes(topology: Topology) -> Counter[str]:
    """How many unordered pairs of GPUs have each class."""
    routes = topology.routes()
    return Counter(
        PathClass(int(routes.path_class[i, j])).name
        for i, j in combinations(range(len(routes.endpoints)), 2)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("b70", {"PIX": 4, "PHB": 8, "SYS": 16}),
        ("l20", {"PIX": 12, "SYS": 16}),
        ("l40s", {"PIX": 12, "SYS": 16}),
        ("dgx1", {"NVL": 16, "SYS": 12}),
        ("dgx-a100", {"NVL": 28}),
        ("dgx-h100", {"NVL": 28}),
        ("gh200", {"NVL": 6}),
        ("mi250x", {"NVL": 12, "PHB": 16}),
        ("mi300x", {"NVL": 28}),
        ("h20-pair", {"NVL": 56, "NET": 64}),
        ("fat-tree", {"NVL": 8 * 28, "NET": 28 * 64}),
        ("rail-pod", {"NVL": 8 * 28, "NET": 28 * 64}),
    ],
)
def test_how_far_gpus_are_from_each_other(name: str, expected: dict[str, int]) -> None:
    assert classes(MACHINES[name].build()) == expected


def test_every_machine_is_covered_above() -> None:
    marks = test_how_far_gpus_are_from_each_other.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in marks[0].args[1]} == set(NAMES)


def test_b70() -> None:
    topology = b70()
    assert topology.endpoints == tuple(f"gpu{k}" for k in range(8))
    assert {"socket0->socket1", "socket1->socket0"} <= set(topology.links)
    assert all(link.nominal_Bps is None for link in topology.links.values())
    routes = topology.routes()
    assert routes.route("gpu1", "gpu0") == ("gpu1->switch0", "switch0->gpu0")
    assert routes.route("gpu3", "gpu6") == (
        "gpu3->switch1", "switch1->socket0", "socket0->socket1", "socket1->switch3",
        "switch3->gpu6",
    )  # fmt: skip


def fabric_out_Bps(topology: Topology, gpu: str) -> float:
    """What a GPU's own fabric passes out in all."""
    kinds = (LinkKind.NVLINK, LinkKind.XGMI)
    return sum(
        link.nominal_Bps or 0
        for link in topology.links.values()
        if link.tail == gpu and link.kind in kinds
    )


@pytest.mark.parametrize(
    ("name", "GBps"),
    [("dgx1", 150), ("dgx-a100", 300), ("dgx-h100", 450), ("gh200", 450), ("mi300x", 448)],
)
def test_what_leaves_each_gpu(name: str, GBps: float) -> None:
    topology = MACHINES[name].build()
    assert {fabric_out_Bps(topology, gpu) for gpu in topology.accelerators} == {GBps * 1e9}


def test_frontier_links() -> None:
    topology = MACHINES["mi250x"].build()
    rates = {
        (i, j): (topology.links[f"gpu{i}->gpu{j}"].nominal_Bps or 0) / 1e9
        for i, j in combinations(range(8), 2)
        if f"gpu{i}->gpu{j}" in topology.links
    }
    assert Counter(rates.values()) == {200: 4, 100: 2, 50: 6}
    assert rates[0, 1] == 200
    assert rates[0, 6] == rates[2, 4] == 100
    routes = topology.routes(topology.endpoints)
    assert topology.links[routes.route("gpu3", "mem0")[0]].nominal_Bps == 36e9


def test_own_memory_of_a_superchip() -> None:
    topology = MACHINES["gh200"].build()
    routes = topology.routes(topology.endpoints)
    at = routes.position
    assert routes.path_class[at["gpu2"], at["mem2"]] == PathClass.C2C
    assert routes.path_class[at["gpu2"], at["mem1"]] == PathClass.SYS
    assert topology.links["gpu2->socket2"].nominal_Bps == 450e9


@pytest.mark.parametrize("name", ["dgx1", "dgx-a100", "dgx-h100", "mi300x"])
def test_each_gpu_has_a_nic_on_its_switch(name: str) -> None:
    topology = MACHINES[name].build()
    nics = [n for n in topology.endpoints if topology.graph.nodes[n]["kind"] is NodeKind.NIC]
    routes = topology.routes(topology.endpoints)
    at = routes.position
    for gpu in topology.accelerators:
        assert PathClass.PIX in [routes.path_class[at[gpu], at[nic]] for nic in nics]


@pytest.mark.parametrize("build", [fat_tree_cluster, rail_pod])
def test_each_gpu_uses_the_nic_of_its_own_rail(build: object) -> None:
    topology = build(2)  # type: ignore[operator]
    routes = topology.routes()
    for k in range(8):
        used = routes.route(f"node0/gpu{k}", f"node1/gpu{k}")
        assert [link.partition("->")[0] for link in used if link.startswith("node0/nic")] == [
            f"node0/nic{k}"
        ]


def test_rails_meet_only_in_the_spines() -> None:
    topology = rail_pod(2)
    routes = topology.routes()
    same, other = routes.route("node0/gpu2", "node1/gpu2"), routes.route("node0/gpu2", "node1/gpu5")
    assert not any("spine" in link for link in same)
    assert sum("->spine" in link for link in other) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_names_its_source(name: str) -> None:
    machine = MACHINES[name]
    assert machine.title
    assert len(machine.source) > 30
    topology = machine.build()
    assert topology.graph.graph["provenance"]
    assert machine.build() == topology


@pytest.mark.parametrize("name", NAMES)
def test_every_known_speed_names_its_source(name: str) -> None:
    topology = MACHINES[name].build()
    net = {r for link in topology.links.values() if link.kind is LinkKind.NET for r, _ in link.uses}
    for resource in topology.resources.values():
        if resource.nominal_Bps is not None and resource.id not in net:
            assert resource.source


@pytest.mark.parametrize("name", ["DGX_H100", "dgxh100", "dgx-h100", "DGX H100"])
def test_machines_are_found_by_name(name: str) -> None:
    assert build_machine(name) == MACHINES["dgx-h100"].build()


@pytest.mark.parametrize(("name", "remedy"), [("dgx-h10", "did you mean"), ("??", "known: b70")])
def test_unknown_machines(name: str, remedy: str) -> None:
    with pytest.raises(InputError, match="no reference machine") as caught:
        build_machine(name)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("make", [random_pcie_tree, random_fabric_set, random_cluster])
def test_random_machines_depend_on_nothing_but_the_seed(make: object) -> None:
    def build(seed: int) -> Topology:
        return make(np.random.default_rng(seed))  # type: ignore[operator, no-any-return]

    assert build(5) == build(5)
    assert any(build(5) != build(seed) for seed in range(6, 12))


@pytest.mark.parametrize("seed", range(12))
def test_random_machines_can_be_used(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for topology in (random_pcie_tree(rng, nics=2), random_fabric_set(rng), random_cluster(rng)):
        assert (topology.routes().path_class != PathClass.DIS).all()
        assert all("PCIe" not in problem.what for problem in topology.validate())

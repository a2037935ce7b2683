"""Files that show part of a machine: lists, NUMA nodes, trees without sockets, single cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topocal.topo.errors import InputError
from topocal.topo.merge import Merged, merge
from topocal.topo.nominal import nvlink_Bps, pcie_Bps
from topocal.topo.readers.registry import parse_any, read_any
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology
from topocal.topo.view import View

CASES = Path(__file__).parents[1].parent / "shared" / "cases"

# A machine of two sockets, with two GPUs below one switch each and a NIC of two ports.

TREE = """\
-+-[0000:16]-+-00.0  Intel Corporation Device 09a2
 |           \\-02.0-[17-1b]----00.0-[18-1b]--+-00.0-[19]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
 |                                           +-01.0-[1a]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
 |                                           \\-02.0-[1b]--+-00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
 |                                                        \\-00.1  Mellanox Technologies MT28908 Family [ConnectX-6]
 \\-[0000:96]-+-00.0  Intel Corporation Device 09a2
             \\-02.0-[97-9b]----00.0-[98-9b]--+-00.0-[99]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
                                             \\-01.0-[9a]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
"""  # noqa: E501

ROWS = (
    ("GPU0", "X", "PIX", "SYS", "SYS", "PIX", "PIX", "0-23", "0"),
    ("GPU1", "PIX", "X", "SYS", "SYS", "PIX", "PIX", "0-23", "0"),
    ("GPU2", "SYS", "SYS", "X", "PIX", "SYS", "SYS", "24-47", "1"),
    ("GPU3", "SYS", "SYS", "PIX", "X", "SYS", "SYS", "24-47", "1"),
    ("NIC0", "PIX", "PIX", "SYS", "SYS", "X", "PIX"),
    ("NIC1", "PIX", "PIX", "SYS", "SYS", "PIX", "X"),
)


def topo_m(rows: tuple[tuple[str, ...], ...] = ROWS) -> str:
    names = [row[0] for row in rows]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    return "\n".join([header, *("\t".join(row) for row in rows)]) + "\n"


def numactl(*lists: str, sizes: int = 1000) -> str:
    lines = [f"available: {len(lists)} nodes (0-{len(lists) - 1})"]
    for n, cpus in enumerate(lists):
        first, last = map(int, cpus.split("-"))
        listed = " ".join(map(str, range(first, last + 1)))
        lines += [f"node {n} cpus: {listed}", f"node {n} size: {sizes} MB"]
    return "\n".join(lines) + "\n"


def query(*buses: str, attached: int | None = None, width: int = 16) -> str:
    lines = [] if attached is None else [f"Attached GPUs                  : {attached}"]
    for bus in buses:
        lines += [
            f"GPU 00000000:{bus}:00.0",
            "    Product Name              : NVIDIA A100-PCIE-40GB",
            "        GPU Link Info",
            "            PCIe Generation",
            "                Max           : 4",
            "                Current       : 4",
            "            Link Width",
            "                Max           : 16x",
            f"                Current       : {width}x",
        ]
    return "\n".join(lines) + "\n"


def listed(*numbers: int, model: str = "NVIDIA A100-PCIE-40GB", links: tuple[str, ...] = ()) -> str:
    lines = []
    for n in numbers:
        lines.append(f"GPU {n}: {model} (UUID: GPU-0000000{n})")
        lines += [f"\t Link {k}: {rate}" for k, rate in enumerate(links)]
    return "\n".join(lines) + "\n"


def read(**texts: str) -> list[Topology]:
    return [parse_any(text, file=f"{name}.txt") for name, text in texts.items()]


def nodes(merged: Merged, kind: NodeKind) -> dict[str, dict[str, Any]]:
    graph = merged.topology.graph
    return {n: graph.nodes[n] for n in graph.nodes if graph.nodes[n]["kind"] is kind}


# Lists of NUMA nodes


def test_numa_nodes_are_matched_by_number_and_add_memory_and_processors() -> None:
    merged = merge(read(topo=topo_m(), numactl=numactl("0-23", "24-47")))
    assert merged.contradictions == ()
    memory = nodes(merged, NodeKind.MEMORY)
    assert {n: d["memory_bytes"] for n, d in memory.items()} == {
        "memory0": 1000 << 20,
        "memory1": 1000 << 20,
    }
    routes = merged.topology.routes(("gpu0", "memory0", "memory1"))
    codes = [PathClass(routes.path_class[0, k]).name for k in (1, 2)]
    assert codes == ["PHB", "SYS"]


def test_a_node_that_no_gpu_is_on_is_added() -> None:
    near = tuple(row[:3] + row[5:] for row in ROWS if row[0] not in ("GPU2", "GPU3"))
    merged = merge(read(topo=topo_m(near), numactl=numactl("0-23", "24-47")))
    sockets = nodes(merged, NodeKind.SOCKET)
    assert {d["numa"] for d in sockets.values()} == {0, 1}
    assert merged.topology.graph.has_edge("socket0", "socket1")
    assert merged.topology.validate() == []


def test_processors_match_sockets_that_have_no_number() -> None:
    # Affinity of NUMA nodes is missing, as old versions print it.
    rows = tuple(row[:8] for row in ROWS)
    old = topo_m(rows).replace("\tNUMA Affinity", "")
    merged = merge(read(topo=old, numactl=numactl("0-23", "24-47")))
    assert {d["numa"] for d in nodes(merged, NodeKind.SOCKET).values()} == {0, 1}
    assert merged.topology.routes(("gpu2", "memory1")).path_class[0, 1] == PathClass.PHB


def test_a_job_that_is_bound_to_one_core_is_no_contradiction() -> None:
    bound = topo_m().replace("0-23", "3").replace("24-47", "24-25")
    assert merge(read(topo=bound, numactl=numactl("0-23", "24-47"))).contradictions == ()


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        (("0-15", "16-31"), "their NUMA nodes have other processors"),
        (("0-47",), "NUMA node 1 is not in other.txt"),
    ],
)
def test_numa_nodes_of_another_machine(lists: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InputError, match=f"is about another machine than topo.txt: .*{reason}"):
        merge(read(topo=topo_m(), other=numactl(*lists)))


def test_two_lists_of_numa_nodes() -> None:
    lscpu = "NUMA node(s):     2\nNUMA node0 CPU(s): 0-23\nNUMA node1 CPU(s): 24-47\n"
    merged = merge(read(a=numactl("0-23", "24-47"), b=lscpu))
    assert merged.contradictions == ()
    assert len(merged.topology.endpoints) == 4
    with pytest.raises(InputError, match="other processors"):
        merge(read(a=numactl("0-15", "16-31"), b=lscpu))


# A tree without sockets


def test_the_sockets_of_a_tree_come_from_another_file() -> None:
    merged = merge(read(topo=topo_m(), tree=TREE))
    assert merged.contradictions == ()
    view = View(merged.topology, "t")
    assert view.chain("gpu0") == ["gpu0", "pcie:0000:17:00.0", "host-bridge:0000:16", "socket0"]
    assert view.chain("gpu3")[-1] == "socket1"
    assert merged.topology.graph.nodes["gpu3"]["index"] == 3
    assert "host bridges hang off the sockets that topo.txt names" in merged.notes
    assert merged.topology.validate() == []
    routes = merged.topology.routes()
    names = {(a, b): c.name for a, b, c in routes.classes() if a < b and (a, b) != ("gpu0", "gpu3")}
    assert names["gpu0", "gpu1"] == "PIX"
    assert names["gpu0", "gpu2"] == "SYS"


def test_order_does_not_matter_to_a_tree_without_sockets() -> None:
    files = read(topo=topo_m(), tree=TREE, numactl=numactl("0-23", "24-47"))
    one, two = merge(files), merge(files[::-1])
    assert dict(one.topology.graph.nodes(data=True)) == dict(two.topology.graph.nodes(data=True))
    assert set(one.topology.links) == set(two.topology.links)
    assert len(nodes(one, NodeKind.MEMORY)) == 2


def test_what_nothing_places_stays_between_the_sockets() -> None:
    merged = merge(read(tree=TREE, numactl=numactl("0-23", "24-47")))
    assert set(nodes(merged, NodeKind.SOCKET)) == {"socket0", "socket1", "socket-unknown"}
    routes = merged.topology.routes(("gpu0", "memory0", "memory1"))
    assert {PathClass(c).name for c in routes.path_class[0, 1:]} == {"SYS"}
    assert merged.topology.validate() == []


def test_a_tree_without_sockets_contradicts_nobody_about_sockets() -> None:
    # gpu0 and gpu1 hang below one switch, whatever socket that is on.
    wrong = topo_m(
        tuple(
            tuple("SYS" if c == "PIX" and r < 2 else c for c in row) for r, row in enumerate(ROWS)
        )
    )
    merged = merge(read(topo=wrong, tree=TREE))
    odd = [c for c in merged.contradictions if c.about != "one machine?"]
    assert [c.what for c in odd] == ["PIX in tree.txt, SYS in topo.txt"]
    assert "gpu0-gpu1" in odd[0].evidence


# Lists of GPUs


def test_a_list_of_one_gpu_is_matched_by_its_number() -> None:
    merged = merge(read(topo=topo_m(), list=listed(2)))
    assert merged.contradictions == ()
    models = [d.get("model") for d in nodes(merged, NodeKind.GPU).values()]
    assert models == [None, None, "NVIDIA A100-PCIE-40GB", None]
    assert merged.notes == ("list.txt lists 1 of the 4 GPUs",)


def test_gpus_of_a_list_that_stand_nowhere_are_told() -> None:
    few = tuple(row[:3] + row[5:] for row in ROWS if row[0] not in ("GPU2", "GPU3"))
    merged = merge(read(topo=topo_m(few), list=listed(0, 1, 2, 3)))
    assert len(merged.topology.accelerators) == 2
    assert merged.notes == (
        "list.txt lists 2 GPUs that no file connects to anything (gpu2, gpu3): left out",
    )


def test_the_link_of_a_gpu_that_has_an_address() -> None:
    merged = merge(read(tree=TREE, query=query("1a", attached=4, width=8)))
    (low,) = merged.contradictions
    assert (low.about, low.evidence) == ("gpu1", ("runs Gen4 x8", "could run Gen4 x16"))
    uplink = View(merged.topology, "t").uplink["gpu1"]
    assert uplink["nominal_Bps"] == pcie_Bps(4, 8)
    assert uplink["max_width"] == 16
    assert View(merged.topology, "t").uplink["gpu0"]["nominal_Bps"] is None


def test_numbers_of_a_whole_list_join_addresses_to_a_matrix() -> None:
    whole = query("19", "1a", "99", "9a", attached=4)
    merged = merge(read(topo=topo_m(), query=whole))
    assert [d["bus_id"][5:7] for d in nodes(merged, NodeKind.GPU).values()] == [
        "19",
        "1a",
        "99",
        "9a",
    ]


def test_one_gpu_of_several_that_nothing_numbers() -> None:
    with pytest.raises(InputError, match="neither PCI addresses nor numbers tell which GPU"):
        merge(read(topo=topo_m(), query=query("1a", attached=4)))


def test_tiles_and_their_card() -> None:
    matrix = (
        "\n         GPU 0/0|GPU 0/1|CPU Affinity\n"
        "GPU 0/0 |S      |MDF    |0-23\nGPU 0/1 |MDF    |S      |0-23\n"
    )
    card = (
        "| Device ID | Topology Information |\n| 0         | Local CPU List: 0-23 |\n"
        "|           | PCIe Switch Count: 1 |\n"
        "|           | PCIe Switch: /sys/devices/pci0000:4a/0000:4a:02.0/0000:55:01.0 |\n"
    )
    merged = merge(read(matrix=matrix, card=card))
    assert merged.contradictions == ()
    assert merged.topology.accelerators == ("gpu0.0", "gpu0.1")
    assert merged.topology.graph.nodes["switch0"]["bus_id"] == "0000:55:01.0"
    assert merged.topology.validate() == []


# NVLink


NV = tuple(
    tuple(
        "NV12" if c in ("PIX", "SYS") and k < 5 and row[0] < "N" else c for k, c in enumerate(row)
    )
    for row in ROWS
)


def test_the_rate_of_nvlinks_comes_from_one_file_and_their_number_from_another() -> None:
    merged = merge(read(topo=topo_m(NV), nvlink=listed(0, 1, 2, 3, links=("25.781 GB/s",) * 12)))
    assert merged.contradictions == ()
    rates = {data["nominal_Bps"] for *_, data in View(merged.topology, "t").fabric_links}
    assert rates == {nvlink_Bps(3, 12)}
    sources = {r.source for r in merged.topology.resources.values() if "nvswitch" in r.id}
    assert all("whitepaper" in source for source in sources)


def test_a_rate_that_no_document_states_is_kept() -> None:
    merged = merge(read(topo=topo_m(NV), nvlink=listed(0, 1, 2, 3, links=("33 GB/s",) * 12)))
    rates = {data["nominal_Bps"] for *_, data in View(merged.topology, "t").fabric_links}
    assert rates == {12 * 33e9}


def test_fewer_nvlinks_than_the_matrix_shows() -> None:
    merged = merge(read(topo=topo_m(NV), nvlink=listed(0, 1, 2, 3, links=("25 GB/s",) * 11)))
    (odd,) = merged.contradictions
    assert odd.about == "GPU links"
    assert odd.evidence[0] == "gpu0: 12 in topo.txt, 11 in nvlink.txt"


def test_more_nvlinks_than_the_matrix_shows_lead_to_processors() -> None:
    merged = merge(read(topo=topo_m(NV), nvlink=listed(0, 1, 2, 3, links=("25 GB/s",) * 18)))
    assert merged.contradictions == ()


# Public cases


def case(*names: str) -> Merged:
    paths = [CASES / name for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip("the public cases are not here")
    return merge([read_any(path) for path in paths])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_lspci_and_numactl(order: tuple[int, ...]) -> None:
    names = [f"lspci-wrx90-2gpu/{n}.txt" for n in ("lspci_tv", "lspci_vvv", "numactl")]
    merged = case(*(names[k] for k in order))
    assert merged.contradictions == ()
    assert merged.notes == ("lspci_vvv.txt lists 1 of the 4 NICs",)
    view = View(merged.topology, "t")
    assert view.get("socket0", "numa") == 0
    assert nodes(merged, NodeKind.MEMORY)["memory0"]["memory_bytes"] == 128_295 << 20
    gpus = [view.uplink[g]["nominal_Bps"] for g in ("gpu0", "gpu1")]
    assert gpus == [pcie_Bps(4, 16)] * 2
    # One card, one link: what is known of the first port holds for the second.
    ports = [n for n in view.of_kind(NodeKind.NIC) if view.get(n, "bus_id")[5:7] == "21"]
    assert [view.uplink[port]["nominal_Bps"] for port in ports] == [pcie_Bps(5, 16)] * 2
    used = {view.uplink[port]["uses"] for port in ports}
    assert len(used) == 1
    ((resource, _),) = used.pop()
    assert merged.topology.resources[resource].nominal_Bps == pcie_Bps(5, 16)


def test_gh200_and_lscpu() -> None:
    merged = case("topo-gh200-c2c/topology.txt", "topo-gh200-c2c/lscpu.txt")
    assert merged.contradictions == ()
    assert set(merged.topology.endpoints) == {"gpu0", "nic0", "nic1", "cpu0", "memory0"}
    assert nodes(merged, NodeKind.CPU)["cpu0"]["cpu_list"] == "0-71"
    routes = merged.topology.routes(("gpu0", "memory0"))
    assert routes.path_class[0, 1] == PathClass.C2C


def test_xpu_smi_matrix_and_device() -> None:
    merged = case("xpu-smi-topology-2x2/topology_m.txt", "xpu-smi-topology-2x2/topology_d.txt")
    assert merged.contradictions == ()
    assert len(merged.topology.accelerators) == 4
    assert View(merged.topology, "t").get("switch0", "bus_id") == "0000:55:01.0"

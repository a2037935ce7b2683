"""Public outputs of ``topo -m`` and its kin: every case gives what its case.md says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.readers.reader import read_text
from topocal.topo.readers.registry import read_any, sniff
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the public cases are not here")


@dataclass(frozen=True)
class Case:
    """What case.md says of one file; ``pairs`` of GPUs by path class, other pairs singly."""

    file: str
    gpus: int
    nics: int = 0
    sockets: int = 1
    switches: int | None = None
    numa: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, int] | None = None
    classes: dict[tuple[str, str], str] = field(default_factory=dict)
    cpus: dict[str, str] = field(default_factory=dict)
    nvlinks: dict[tuple[str, str], int] = field(default_factory=dict)
    peers: bool | None = None
    told: tuple[str, ...] = ()


def halves(first: int, second: int) -> dict[str, int]:
    return {f"gpu{k}": first if k < 4 else second for k in range(8)}


TOPO_M = [
    Case(
        "contend-host-bothways-a100/topology.txt",
        8,
        sockets=2,
        numa=halves(0, 1),
        pairs={"PXB": 4, "NODE": 8, "SYS": 16},
        classes={("gpu0", "gpu1"): "PXB", ("gpu6", "gpu7"): "PXB", ("gpu0", "gpu2"): "NODE"},
    ),
    Case(
        "contend-shm-uplink-twice/topology_1086.txt",
        8,
        1,
        sockets=2,
        switches=2,
        pairs={"PIX": 12, "SYS": 16},
        classes={("gpu0", "nic0"): "NODE", ("gpu7", "nic0"): "SYS"},
    ),
    Case(
        "contend-shm-uplink-twice/topology_307.txt",
        8,
        1,
        sockets=2,
        switches=2,
        pairs={"PIX": 12, "SYS": 16},
        classes={("gpu3", "nic0"): "PIX", ("gpu4", "nic0"): "SYS"},
    ),
    Case(
        "contend-shm-uplink-twice/topology_1130.txt",
        8,
        sockets=2,
        switches=0,
        numa=halves(0, 1),
        pairs={"NODE": 12, "SYS": 16},
    ),
    Case(
        "contend-wrx90-root-switch/topology.txt",
        8,
        switches=6,
        pairs={"PIX": 4, "PXB": 8, "NODE": 16},
        classes={("gpu0", "gpu1"): "PIX"},
    ),
    Case("contend-wrx90-two-switch/topology.txt", 8, switches=2, pairs={"PIX": 12, "NODE": 16}),
    Case(
        "host-far-socket-p100/topology.txt",
        2,
        sockets=2,
        pairs={"SYS": 1},
        cpus={"gpu0": "0-5", "gpu1": "6-11"},
    ),
    Case(
        "old-7gpu-x1-risers/topology.txt",
        7,
        switches=2,
        pairs={"PIX": 9, "PHB": 12},
        classes={("gpu0", "gpu2"): "PIX", ("gpu3", "gpu6"): "PIX", ("gpu2", "gpu3"): "PHB"},
    ),
    Case("old-azure-m60-vm/topology_2gpu.txt", 2, pairs={"SYS": 1}, cpus={"gpu1": "0-11"}),
    Case("old-azure-m60-vm/topology_4gpu.txt", 4, pairs={"SYS": 6}, told=("may share an uplink",)),
    Case(
        "pix-no-p2p-2080ti/topology.txt",
        2,
        switches=1,
        pairs={"PIX": 1},
        peers=False,
        numa={"gpu0": 1, "gpu1": 1},
        told=("no peer access between any two GPUs",),
    ),
    Case(
        "topo-b200-lost-nvlink/topology.txt",
        8,
        12,
        sockets=2,
        pairs={"NVL": 21, "NODE": 3, "SYS": 4},
        classes={
            ("gpu2", "gpu0"): "NODE",
            ("gpu2", "gpu3"): "NODE",
            ("gpu2", "gpu7"): "SYS",
            ("gpu4", "nic11"): "NODE",
            ("gpu0", "nic11"): "SYS",
        }
        | {(f"gpu{k}", f"nic{k}"): "PXB" for k in range(6)},
        nvlinks={(f"gpu{k}", "nvswitch0"): 18 for k in (0, 1, 3, 4, 5, 6, 7)},
        told=("no header", "row GPU6 ends after 14 of 20 columns", "gpu2 has no NVLink"),
    ),
    Case(
        "topo-flat-and-virtual/topology_allsys.txt",
        8,
        2,
        sockets=2,
        numa=halves(0, 1),
        pairs={"SYS": 28},
        classes={
            ("gpu6", "nic0"): "PHB",
            ("gpu6", "nic1"): "PHB",
            ("nic0", "nic1"): "PIX",
            ("gpu7", "nic0"): "SYS",
        },
    ),
    Case(
        "topo-flat-and-virtual/topology_vm.txt",
        8,
        1,
        sockets=2,
        switches=0,
        numa=halves(0, 1),
        pairs={"NODE": 12, "SYS": 16},
        classes={("gpu0", "nic0"): "SYS", ("gpu7", "nic0"): "SYS"},
        told=("no PCIe switch shows", "only measurements tell"),
    ),
    Case(
        "topo-gh200-c2c/topology.txt",
        1,
        2,
        cpus={"gpu0": "0-71"},
        numa={"gpu0": 0},
        classes={("gpu0", "nic0"): "SYS", ("nic0", "nic1"): "PIX"},
        told=("not a second socket",),
    ),
    Case(
        "topo-nvlink-pairs-vs-pcie-pairs/topology_3090.txt",
        4,
        pairs={"NVL": 2, "PHB": 2, "NODE": 2},
        nvlinks={("gpu0", "gpu2"): 4, ("gpu1", "gpu3"): 4},
        classes={("gpu0", "gpu1"): "PHB", ("gpu2", "gpu3"): "PHB", ("gpu0", "gpu3"): "NODE"},
    ),
    Case(
        "topo-nvlink-pairs-vs-pcie-pairs/topology_a100_custom.txt",
        4,
        4,
        pairs={"NVL": 6},
        classes={(f"gpu{k}", f"nic{k}"): "PXB" for k in range(4)} | {("nic0", "nic1"): "SYS"},
        nvlinks={("gpu0", "gpu3"): 4},
        cpus={"gpu0": "0"},
        told=("the NIC legend names 2 of 4 NICs",),
    ),
    Case(
        "topo-power9-and-epyc/topology_power9.txt",
        4,
        4,
        sockets=2,
        pairs={"NVL": 2, "SYS": 4},
        numa={"gpu0": 0, "gpu1": 0, "gpu2": 8, "gpu3": 8},
        nvlinks={("gpu0", "gpu1"): 3, ("gpu2", "gpu3"): 3},
        classes={
            ("nic0", "nic1"): "PIX",
            ("nic2", "nic3"): "PIX",
            ("gpu0", "nic1"): "NODE",
            ("gpu2", "nic3"): "NODE",
            ("gpu0", "nic2"): "SYS",
        },
    ),
    Case(
        "topo-power9-and-epyc/topology_epyc.txt",
        2,
        2,
        sockets=2,
        pairs={"SYS": 1},
        classes={("gpu0", "nic0"): "NODE", ("gpu1", "nic1"): "NODE", ("gpu0", "nic1"): "SYS"},
    ),
    Case(
        "topo-raw-ansi-mig-windows/topology_h100_mig.txt",
        1,
        numa={"gpu0": 0},
        cpus={"gpu0": "0-19"},
    ),
    Case("topo-raw-ansi-mig-windows/topology_windows.txt", 1),
    Case(
        "trap-affinity-blank-or-na/topology_blank.txt",
        8,
        1,
        sockets=2,
        numa=halves(0, 1),
        pairs={"NVL": 4, "NODE": 24},
        cpus={"gpu0": "0-15,56-71", "gpu4": ""},
        nvlinks={(f"gpu{k}", f"gpu{k + 1}"): 12 for k in (0, 2, 4, 6)},
        classes={("gpu6", "nic0"): "PHB", ("gpu0", "nic0"): "NODE"},
        told=("hides the socket hop",),
    ),
    Case(
        "trap-affinity-blank-or-na/topology_half_na.txt",
        2,
        sockets=2,
        pairs={"SYS": 1},
        numa={"gpu1": 1},
        cpus={"gpu0": "0-7,16-23", "gpu1": "8-15,24-31"},
    ),
    Case("trap-affinity-blank-or-na/topology_na.txt", 1, cpus={"gpu0": "0-7"}),
    Case(
        "trap-affinity-blank-or-na/topology_odd.txt",
        2,
        switches=1,
        pairs={"PIX": 1},
        numa={"gpu0": 1, "gpu1": 1},
        cpus={"gpu0": "1,3,5,7,9,11"},
    ),
    Case(
        "trap-trailing-blanks-k8s/topology.txt",
        8,
        1,
        sockets=2,
        switches=4,
        cpus={"gpu0": "0-9,20-29", "gpu4": "10-19,30-39"},
        pairs={"PIX": 4, "PHB": 8, "SYS": 16},
        classes={("gpu3", "nic0"): "PHB", ("gpu7", "nic0"): "SYS"},
        told=("rows GPU5, GPU6, GPU7, mlx4_0 are missing", "assumed"),
    ),
]


def read(file: str, kind: str) -> Topology:
    path = CASES / file
    assert sniff(read_text(path), file=file).name == kind
    topology = read_any(path)
    again = topology_from_document(topology_to_document(topology), file=file)
    assert again == topology
    return topology


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def class_of(topology: Topology, a: str, b: str) -> str:
    routes = topology.routes(topology.endpoints)
    return PathClass(int(routes.path_class[routes.position[a], routes.position[b]])).name


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


@needs_cases
@pytest.mark.parametrize("case", TOPO_M, ids=lambda case: case.file)
def test_topo_m(case: Case) -> None:
    machine = read(case.file, "nvidia-topo")
    nodes = machine.graph.nodes
    assert len(machine.accelerators) == case.gpus
    assert len(of_kind(machine, NodeKind.NIC)) == case.nics
    assert len(of_kind(machine, NodeKind.SOCKET)) == case.sockets
    if case.switches is not None:
        assert len(of_kind(machine, NodeKind.PCIE_SWITCH)) == case.switches
    if case.pairs is not None:
        found = Counter(c.name for a, b, c in machine.routes().classes() if a < b)
        assert found == case.pairs
    assert {pair: class_of(machine, *pair) for pair in case.classes} == case.classes
    assert {g: nodes[g].get("numa") for g in case.numa} == case.numa
    assert {g: nodes[g].get("cpu_list", "") for g in case.cpus} == case.cpus
    links = {(a, b): d["count"] for a, b, d in machine.graph.edges(data=True) if "count" in d}
    assert {pair: links[pair] for pair in case.nvlinks} == case.nvlinks
    assert machine.graph.graph["peer_access"] is case.peers
    for words in case.told:
        assert words in notes(machine)
    # What a matrix does not say is not there.
    assert all(d["nominal_Bps"] is None for _, _, d in machine.graph.edges(data=True))


@needs_cases
def test_every_topo_m_file_is_in_the_table() -> None:
    listed = {case.file for case in TOPO_M}
    found = {
        str(path.relative_to(CASES))
        for path in CASES.rglob("topology*.txt")
        if sniff_name(path) == "nvidia-topo"
    }
    assert found == listed


def sniff_name(path: Path) -> str:
    try:
        return sniff(read_text(path), file=str(path)).name
    except FormatError:
        return ""


@needs_cases
@pytest.mark.parametrize("case", TOPO_M, ids=lambda case: case.file)
def test_routes_agree_with_the_matrix(case: Case) -> None:
    machine = read(case.file, "nvidia-topo")
    stated = machine.graph.graph["stated_classes"]
    assert bool(stated) == (case.gpus + case.nics > 1)
    for a, b, name in stated:
        assert class_of(machine, a, b) == class_of(machine, b, a) == name


@needs_cases
def test_error_text_of_an_old_windows_driver() -> None:
    path = CASES / "topo-raw-ansi-mig-windows" / "topology_windows_error.txt"
    with pytest.raises(
        FormatError, match=r"message, not an output: .*this driver's nvidia-smi lacks"
    ):
        read_any(path)


@needs_cases
def test_lists() -> None:
    place = "topo-raw-ansi-mig-windows"
    mig = read(f"{place}/list_h100_mig.txt", "nvidia-list")
    assert mig.endpoints == ("gpu0",)
    assert mig.graph.nodes["gpu0"]["mig"] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    assert "all share the links of gpu0" in notes(mig)
    two = read(f"{place}/list_h200_mig.txt", "nvidia-list")
    assert two.graph.nodes["gpu0"]["mig"][0] == "1c.3g.71gb"
    hidden = read(f"{place}/nvlink_h100_mig.txt", "nvidia-list")
    assert "nvlinks" not in hidden.graph.nodes["gpu0"]
    assert "unknown, not none" in notes(hidden)
    node = read(f"{place}/nvlink_h200.txt", "nvidia-list").graph.nodes["gpu0"]
    assert (node["nvlinks"], round(node["nvlink_total_Bps"] / 1e9)) == (18, 478)


@needs_cases
@pytest.mark.parametrize("state", ["idle", "load"])
def test_link_info(state: str) -> None:
    machine = read(f"topo-raw-ansi-mig-windows/linkinfo_4080_{state}.txt", "nvidia-query")
    links = [d for _, _, d in machine.graph.edges(data=True)]
    assert {(d["generation"], d["width"]) for d in links} == {(4, 16)}
    assert ("no fault" in notes(machine)) == (state == "idle")


@needs_cases
def test_numa() -> None:
    grace = read("topo-gh200-c2c/lscpu.txt", "lscpu")
    assert of_kind(grace, NodeKind.SOCKET) == ["socket0"]
    one = read("lspci-wrx90-2gpu/numactl.txt", "numactl")
    assert of_kind(one, NodeKind.SOCKET) == ["socket0"]
    assert one.graph.nodes["memory0"]["memory_bytes"] == 128295 * 2**20


@needs_cases
def test_rocm_partitions() -> None:
    machine = read("rocm-showtopo-tpx-xxxx/showtopo.txt", "rocm-showtopo")
    nodes = machine.graph.nodes
    assert len(machine.accelerators) == 12
    cards: dict[int, set[str]] = {}
    for gpu in machine.accelerators:
        if "card" in nodes[gpu]:
            cards.setdefault(nodes[gpu]["card"], set()).add(gpu)
    assert list(cards.values()) == [
        {"gpu1", "gpu2", "gpu3", "gpu4"},
        {"gpu5", "gpu6", "gpu7", "gpu8"},
    ]
    kinds = Counter(
        data["kind"]
        for a, b, data in machine.graph.edges(data=True)
        if {a, b} <= set(machine.accelerators) and a < b
    )
    # 66 pairs, 6 in each of the two cards.
    assert kinds == {LinkKind.XGMI: 54, LinkKind.UNKNOWN: 12}
    assert (nodes["gpu2"]["numa"], nodes["gpu2"]["numa_affinity"]) == (0, 1)
    assert "no table of weights, hops" in notes(machine)


@needs_cases
def test_transferbench() -> None:
    machine = read("rocm-showtopo-tpx-xxxx/transferbench_topology.txt", "transferbench-topology")
    assert len(machine.accelerators) == 8
    assert {c.name for _, _, c in machine.routes().classes()} == {"NVL"}
    assert machine.graph.nodes["gpu4"]["numa"] == 1
    assert machine.graph.nodes["gpu7"]["bus_id"] == "0000:df:00.0"


@needs_cases
def test_xpu_smi() -> None:
    machine = read("xpu-smi-topology-2x2/topology_m.txt", "xpu-smi")
    assert machine.accelerators == ("gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1")
    assert class_of(machine, "gpu0.0", "gpu1.1") == "NVL"
    assert class_of(machine, "gpu0.0", "gpu1.0") == "NVB"
    assert len(of_kind(machine, NodeKind.SOCKET)) == 2
    device = read("xpu-smi-topology-2x2/topology_d.txt", "xpu-smi-device")
    (switch,) = of_kind(device, NodeKind.PCIE_SWITCH)
    assert switch == "pcie:0000:55:01.0"
    assert device.graph.nodes[switch]["path"].endswith("/0000:54:00.0/0000:55:01")
    with pytest.raises(FormatError, match="printed its help"):
        read_any(CASES / "xpu-smi-topology-2x2" / "legend.txt")

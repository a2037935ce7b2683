"""``nvidia-smi -L``, ``nvlink -s`` and ``-q``, ``lscpu`` and ``numactl -H``."""

from __future__ import annotations

import json

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology


def read(text: str, kind: str) -> Topology:
    assert sniff(text, file="x").name == kind
    return parse_any(text, file="x")


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


LIST = (
    "GPU 0: NVIDIA A30 (UUID: GPU-0)\n"
    "  MIG 2g.12gb     Device  0: (UUID: MIG-0)\n"
    "  MIG 1c.1g.6gb   Device  1: (UUID: MIG-1)\n"
    "  MIG 1c.1g.6gb   Device  2: (UUID: MIG-2)\n"
    "GPU 1: NVIDIA A30 (UUID: GPU-1)\n"
)


def test_list_with_mig() -> None:
    machine = read("$ nvidia-smi -L\n" + LIST, "nvidia-list")
    assert machine.endpoints == ("gpu0", "gpu1")
    assert machine.graph.nodes["gpu0"]["mig"] == ["2g.12gb", "1c.1g.6gb", "1c.1g.6gb"]
    assert machine.graph.nodes["gpu1"]["model"] == "NVIDIA A30"
    assert "mig" not in machine.graph.nodes["gpu1"]
    assert "gpu0 is split into MIG instances (2g.12gb, 2x 1c.1g.6gb)" in notes(machine)
    assert "UUID" not in str(dict(machine.graph.nodes(data=True)))


def test_nvlink_status() -> None:
    text = (
        "GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-0)\n"
        "\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n\t Link 2: 25.781 GB/s\n"
        "GPU 1: Tesla V100-SXM2-16GB (UUID: GPU-1)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        "GPU 2: Tesla V100-SXM2-16GB (UUID: GPU-2)\n"
        "Nvlink queries are not supported for Devices in MIG mode\n"
    )
    machine = read(text, "nvidia-list")
    node = machine.graph.nodes["gpu0"]
    assert (node["nvlinks"], node["nvlinks_inactive"]) == (2, 1)
    assert node["nvlink_Bps"] == 25.781e9
    assert node["nvlink_total_Bps"] == pytest.approx(51.562e9)
    assert machine.graph.nodes["gpu1"]["nvlinks"] == 0
    # Unknown is not none.
    assert "nvlinks" not in machine.graph.nodes["gpu2"]
    assert "gpu2 is in MIG mode, which hides its NVLinks" in notes(machine)
    assert "1 of the 3 NVLinks of gpu0 is inactive" in notes(machine)


def test_nvlinks_of_different_rates() -> None:
    text = "GPU 0: A (UUID: G)\n\t Link 0: 25 GB/s\n\t Link 1: 20 GB/s\n"
    machine = read(text, "nvidia-list")
    assert "nvlink_Bps" not in machine.graph.nodes["gpu0"]
    assert machine.graph.nodes["gpu0"]["nvlink_total_Bps"] == 45e9
    assert "different rates (20 GB/s, 25 GB/s)" in notes(machine)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LIST + "GPU 1: NVIDIA A30 (UUID: GPU-9)\n", "x:6: lists GPU 1 twice"),
        ("GPU 0: A (UUID: G)\n\t Link 0: fast\n", "x:2: NVLink 0 of GPU 0 has no rate"),
        ("GPU 0: A (UUID: G)\n\t Link 0: 25_GB/s\n", "x:2: NVLink 0 of GPU 0 has no rate"),
    ],
)
def test_damaged_list(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(text, "nvidia-list")
    with pytest.raises(FormatError, match="names no GPU"):
        parse_any("Link 0: 25 GB/s", file="x", kind="nvidia-list")


def query(generation: dict[str, object], width: dict[str, object], *, head: str = "") -> str:
    def part(values: dict[str, object]) -> str:
        return "".join(f"                {key:<39}: {value}\n" for key, value in values.items())

    return (
        f"{head}        GPU Link Info\n            PCIe Generation\n{part(generation)}"
        f"            Link Width\n{part(width)}        Bridge Chip\n"
        "            Type                                   : N/A\n"
    )


def test_idle_link_is_no_fault() -> None:
    generation = {"Max": 4, "Current": 1, "Device Current": 1, "Device Max": 4, "Host Max": 5}
    machine = read(query(generation, {"Max": "16x", "Current": "16x"}), "nvidia-query")
    (link,) = [
        d for _, _, k, d in machine.graph.edges(keys=True, data=True) if k.startswith("gpu0")
    ]
    assert (link["kind"], link["generation"], link["width"]) == (LinkKind.PCIE, 4, 16)
    assert link["current_generation"] == 1
    # 16 GT/s, 16 lanes, 128/130 coding, 256 of 280 bytes are payload.
    assert link["nominal_Bps"] == pytest.approx(16e9 * 16 / 8 * 128 / 130 * 256 / 280)
    assert "no fault" in notes(machine)


def test_link_below_its_capability() -> None:
    generation = {"Max": 3, "Current": 3, "Device Max": 4, "Host Max": 3}
    machine = read(query(generation, {"Max": "16x", "Current": "8x"}), "nvidia-query")
    (link,) = [
        d for _, _, k, d in machine.graph.edges(keys=True, data=True) if k.startswith("gpu0")
    ]
    assert (link["width"], link["max_width"]) == (8, 16)
    assert (link["generation"], link["max_generation"]) == (3, 4)
    told = notes(machine)
    assert "has 8 of 16 lanes" in told
    assert "its slot allows 3" in told


def test_full_query_of_two_gpus() -> None:
    head = (
        "GPU 00000000:{}:00.0\n    Product Name                          : NVIDIA L4\n"
        "    PCI\n        Bus Id                            : 00000000:{}:00.0\n"
    )
    text = "==============NVSMI LOG==============\n" + "".join(
        query(
            {"Max": 4, "Current": 4}, {"Max": "16x", "Current": "16x"}, head=head.format(bus, bus)
        )
        for bus in ("17", "CA")
    )
    machine = read(text, "nvidia-query")
    nodes = machine.graph.nodes
    assert [nodes[g]["bus_id"] for g in machine.accelerators] == ["0000:17:00.0", "0000:ca:00.0"]
    assert nodes["gpu1"]["model"] == "NVIDIA L4"
    excerpts = read(query({"Max": 4}, {"Max": "8x"}) * 2, "nvidia-query")
    assert excerpts.accelerators == ("gpu0", "gpu1")


def test_link_info_not_available() -> None:
    machine = read(query({"Max": "N/A", "Current": 3}, {"Max": "N/A"}), "nvidia-query")
    (link,) = [
        d for _, _, k, d in machine.graph.edges(keys=True, data=True) if k.startswith("gpu0")
    ]
    assert (link["generation"], link["nominal_Bps"]) == (3, None)
    with pytest.raises(FormatError, match="has 0 GPUs with a PCIe link"):
        read("GPU Link Info\n", "nvidia-query")


LSCPU = """Architecture:            aarch64
CPU(s):                  144
NUMA:
  NUMA node(s):          3
  NUMA node0 CPU(s):     0-71
  NUMA node1 CPU(s):     72-143
  NUMA node2 CPU(s):
"""


def test_lscpu() -> None:
    machine = read(LSCPU, "lscpu")
    assert of_kind(machine, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert machine.graph.nodes["socket1"]["cpu_list"] == "72-143"
    assert "memory nodes 2 have no processor" in notes(machine)
    fields = [line.split(":", 1) for line in LSCPU.strip().split("\n")]
    document = {"lscpu": [{"field": k.strip() + ":", "data": v.strip() or None} for k, v in fields]}
    nested = {"lscpu": [{"field": "NUMA:", "data": None, "children": document["lscpu"]}]}
    for form in (document, nested):
        again = read(json.dumps(form), "lscpu")
        assert of_kind(again, NodeKind.SOCKET) == ["socket0", "socket1"]


def test_damaged_lscpu() -> None:
    cut = LSCPU[: LSCPU.index("  NUMA node1")]
    assert "there are 3 NUMA nodes and lists 1" in notes(read(cut, "lscpu"))
    with pytest.raises(FormatError, match="NUMA node 0 has no list of processors"):
        read(LSCPU.replace("0-71", "zero"), "lscpu")
    with pytest.raises(FormatError, match="lists no NUMA nodes"):
        read("NUMA node(s):   2\n", "lscpu")


NUMACTL = """$ numactl --hardware
available: 3 nodes (0-2)
node 0 cpus: 0 1 2 3 8 9
node 0 size: 1024 MB
node 0 free: 17 MB
node 1 cpus: 4 5 6 7
node 1 size: 2048 MB
node 2 cpus:
node 2 size: 512 MB
node distances:
node   0   1   2
  0:  10  32  80
  1:  32  10  80
  2:  80  80  10
"""


def test_numactl() -> None:
    machine = read(NUMACTL, "numactl")
    assert of_kind(machine, NodeKind.SOCKET) == ["socket0", "socket1"]
    nodes = machine.graph.nodes
    assert nodes["socket0"]["cpu_list"] == "0-3,8-9"
    assert nodes["memory1"]["memory_bytes"] == 2048 * 2**20
    link = machine.graph.edges["socket0", "socket1", "socket0->socket1"]
    assert (link["kind"], link["distance"]) == (LinkKind.SMP, 32)
    assert "memory nodes 2 have no processor" in notes(machine)


def test_damaged_numactl() -> None:
    cut = NUMACTL[: NUMACTL.index("node 1 size")]
    assert "the size of memory node 1 is not stated" in notes(read(cut, "numactl"))
    with pytest.raises(FormatError, match="x:3: processors are not a list of numbers"):
        read(NUMACTL.replace("0 1 2 3", "0 1 two 3"), "numactl")
    with pytest.raises(FormatError, match="lists no NUMA nodes"):
        read("available: 1 nodes (0)\n", "numactl")


def test_lists_below_each_other_are_one_machine() -> None:
    text = (
        "GPU 0: B (UUID: G0)\n\t Link 0: 50 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: B (UUID: G1)\n\t Link 0: 50 GB/s\n...\n"
        "GPU 0: B (UUID: G0)\n\t Link 0, P2P is supported: true\n"
        "GPU 0: B (UUID: G0)\n\t Link 0: Remote Device 00000000:19:00.0: Link 9\n"
        "\t Link 1: Remote Device 00000000:1A:00.0: Link 8\n"
        "GPU 1: B (UUID: G1)\n         NVLE: disabled\n"
    )
    graph = parse_any(text, file="x").graph
    assert graph.nodes["gpu0"]["nvlinks"] == 1
    assert graph.nodes["gpu0"]["nvlinks_inactive"] == 1
    assert "nvlinks" not in graph.nodes["gpu1"]
    assert graph.nodes["gpu1"]["nvlink_Bps"] == 50e9
    assert any("gpu1 is cut after 1" in note for note in graph.graph["notes"])


def far_ends(number: int, *buses: int) -> str:
    links = "".join(
        f"\t Link {k}: Remote Device 00000000:{bus:02X}:00.0: Link {k + 30}\n"
        for k, bus in enumerate(buses)
    )
    return f"GPU {number}: B (UUID: G{number})\n{links}"


def test_far_ends_that_all_gpus_name_are_switches() -> None:
    rates = "".join(
        f"GPU {g}: B (UUID: G{g})\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: 25 GB/s\n"
        for g in range(2)
    )
    text = far_ends(0, 5, 6, 6) + far_ends(1, 6, 5, 5)
    for given, nominal in ((text, None), (rates + text, 75e9)):
        topology = parse_any(given, file="x")
        links = [link for link in topology.links.values() if link.tail == "gpu0"]
        assert [(link.head, link.kind, link.nominal_Bps) for link in links] == [
            ("nvswitch0", LinkKind.NVLINK, nominal)
        ]
        assert not any("not in this output" in n for n in topology.graph.graph["notes"])
    # Each names the other: no switch, and which address is whose is not said.
    apart = parse_any(far_ends(0, 7, 7) + far_ends(1, 6, 6), file="x")
    assert not apart.links


def test_a_matrix_and_lists_in_one_paste_are_one_machine() -> None:
    text = (
        "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\n"
        "GPU0\t X \tNV2\t0-15\nGPU1\tNV2\t X \t0-15\n$ nvidia-smi nvlink -s\n"
        "GPU 0: V (UUID: a)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
        "GPU 1: V (UUID: b)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
    )
    topology = parse_any(text, file="x")
    assert topology.links["gpu0->gpu1"].nominal_Bps == 50e9
    assert topology.graph.nodes["gpu1"]["model"] == "V"
    assert not any("not in this output" in n for n in topology.graph.graph["notes"])
    other = parse_any(text.replace("GPU 1:", "GPU 3:"), file="x")
    assert len(other.accelerators) == 2
    assert any("different GPUs" in n for n in other.graph.graph["notes"])

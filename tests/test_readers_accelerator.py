"""Matrices of accelerators other than NVIDIA's, with codes of their own."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import FormatError
from topocal.topo.readers.accelerator_matrix import (
    looks_like_accelerator_matrix,
    parse_accelerator_matrix,
)
from topocal.topo.readers.code_legend import Meaning, meaning_of, read_legend
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.resource import LinkKind, PathClass
from topocal.topo.topology import Topology

HUAWEI = """\
# npu-smi info -t topo
           NPU0       NPU1       NPU2       NPU3       CPU Affinity
NPU0       X          HCCS       PHB        SYS        0-23
NPU1       HCCS       X          SYS        PIX        0-23
NPU2       PHB        SYS        X          HCCS       24-47
NPU3       SYS        PIX        HCCS       X          24-47

Legend:

  X    = Self
  SYS  = Path traversing PCIe and NUMA nodes.
  HCCS = Connection traversing HCCS.
"""

DIES = """\
          Phy-ID0    Phy-ID1    Phy-ID2    Phy-ID3
Phy-ID0   X          SIO        HCCS_SW    HCCS_SW
Phy-ID1   SIO        X          HCCS_SW    HCCS_SW
Phy-ID2   HCCS_SW    HCCS_SW    X          SIO
Phy-ID3   HCCS_SW    HCCS_SW    SIO        X
"""

METAX = """\
mx-smi topo -n
Attached GPUs    : 2
        GPU0    GPU1    NIC0    Node Affinity  CPU Affinity
GPU0    X       MX      PIX     0              0-31,64-95
GPU1    MX      X       NODE    1              32-63
NIC0    PIX     NODE    X

Legend:
  MX   = Connection traversing MetaXLink
NIC Legend:
  NIC0: mlx5_2
"""

COUNTED = """\
        GPU0  GPU1  GPU2  CPU Affinity  NUMA Affinity
GPU0    X     MT2   NODE  0-7           0
GPU1    MT2   X     QQ    0-7           0
GPU2    NODE  QQ    X     0-7           0
 MTx  = Connection traversing a path of x bonded MTLinks
"""

IN_A_BOX = """\
| MAKE     | Device 0 | Device 1 | CPU Affinity | NUMA Affinity |
|----------|----------|----------|--------------|---------------|
| Device 0 | X        | SYS      | 0-3          | 0             |
| Device 1 | SYS      | X        | 4-7          | 1             |
"""

NODES_ONLY = """\
modID   CPU Affinity    NUMA Affinity
-----   ------------    -------------
0       0-3, 8-11       0
1       4-7, 12-15      1
"""


def pair_class(topology: Topology, a: str, b: str) -> PathClass:
    routes = topology.routes((a, b))
    return PathClass(int(routes.path_class[0, 1]))


def stated(topology: Topology) -> set[tuple[str, str, str]]:
    return {(a, b, c) for a, b, c in topology.graph.graph["stated_classes"]}


def test_codes_of_huawei_are_read_by_their_legend() -> None:
    topology = parse_any(HUAWEI, file="npu.txt")
    assert topology.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert stated(topology) == {
        ("gpu0", "gpu1", "NVL"),
        ("gpu0", "gpu2", "PHB"),
        ("gpu0", "gpu3", "SYS"),
        ("gpu1", "gpu2", "SYS"),
        ("gpu1", "gpu3", "PIX"),
        ("gpu2", "gpu3", "NVL"),
    }
    link = topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["kind"], link["fabric"], link["nominal_Bps"]) == (LinkKind.FABRIC, "HCCS", None)
    assert topology.graph.nodes["gpu2"]["cpu_list"] == "24-47"
    assert topology.graph.nodes["gpu2"]["label"] == "NPU2"
    assert topology.graph.graph["provenance"] == ["npu.txt: npu-smi info -t topo"]


def test_a_fabric_through_a_switch_is_one_switch() -> None:
    topology = parse_any(DIES, file="dies.txt")
    assert topology.routes().route("gpu0", "gpu3") == ("gpu0->nvswitch0", "nvswitch0->gpu3")
    assert topology.routes().route("gpu0", "gpu1") == ("gpu0->gpu1",)
    assert topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]["fabric"] == "SIO"
    assert topology.graph.nodes["nvswitch0"]["label"] == "HCCS switch"
    assert pair_class(topology, "gpu0", "gpu3") is PathClass.NVL


def test_nics_and_the_order_of_the_columns_behind() -> None:
    topology = parse_any(METAX, file="mx.txt")
    nodes = topology.graph.nodes
    assert (nodes["gpu0"]["numa"], nodes["gpu0"]["cpu_list"]) == (0, "0-31,64-95")
    assert (nodes["gpu1"]["numa"], nodes["gpu1"]["cpu_list"]) == (1, "32-63")
    assert nodes["nic0"]["net_names"] == ["mlx5_2"]
    assert pair_class(topology, "gpu0", "nic0") is PathClass.PIX
    assert ("gpu1", "nic0", "NODE") in stated(topology)


def test_a_count_is_taken_and_what_nothing_explains_is_told() -> None:
    topology = parse_any(COUNTED, file="mt.txt")
    assert topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]["count"] == 2
    assert ("gpu1", "gpu2", "NODE") not in stated(topology)
    assert [n for n in topology.graph.graph["notes"] if n.startswith("QQ (gpu1-gpu2)")]


def test_a_box_and_names_of_two_words() -> None:
    topology = parse_any(IN_A_BOX, file="box.txt")
    assert pair_class(topology, "gpu0", "gpu1") is PathClass.SYS
    assert topology.graph.nodes["gpu1"]["numa"] == 1


def test_nodes_alone_place_the_devices() -> None:
    topology = parse_any(NODES_ONLY, file="hl.txt")
    assert topology.graph.nodes["gpu0"]["cpu_list"] == "0-3,8-11"
    assert topology.graph.nodes["gpu1"]["numa"] == 1
    assert any("not how the devices" in note for note in topology.graph.graph["notes"])


def test_a_cut_matrix_takes_what_the_other_rows_say() -> None:
    topology = parse_any("\n".join(DIES.splitlines()[:3]), file="cut.txt")
    assert ("gpu1", "gpu3", "NVL") in stated(topology)
    assert not [entry for entry in stated(topology) if entry[:2] == ("gpu2", "gpu3")]
    assert any("are missing" in note for note in topology.graph.graph["notes"])


def test_rows_that_disagree_are_told() -> None:
    topology = parse_any(DIES.replace("Phy-ID3   HCCS_SW", "Phy-ID3   SIO    "), file="odd.txt")
    assert any("contradicts itself" in note for note in topology.graph.graph["notes"])


@pytest.mark.parametrize(
    "text",
    [
        "   GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n",  # NVIDIA's own reader's
        "   GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n",
        "GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n",
        "NPU0 NPU1\nNPU0 0.0 24.5\nNPU1 24.1 0.0\n",
        "nothing of the kind",
    ],
)
def test_other_texts_are_not_taken(text: str) -> None:
    assert not looks_like_accelerator_matrix(text)


def test_what_nvidia_prints_stays_with_its_reader() -> None:
    text = "        GPU0 GPU1 CPU Affinity\nGPU0     X   NV4  0-3\nGPU1    NV4   X   0-3\n"
    assert sniff(text, file="x").name == "nvidia-topo"


def test_no_matrix_at_all() -> None:
    with pytest.raises(FormatError, match="no matrix"):
        parse_accelerator_matrix("hello\nNPU0 NPU1\n", file="x")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Connection traversing at most a single PCIe bridge", PathClass.PIX),
        ("Path traversing multipul PCIe switches", PathClass.PXB),
        (
            "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
            PathClass.PXB,
        ),
        ("Path traversing PCIe and the PCIe host bridge of a CPU.", PathClass.PHB),
        (
            "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
            PathClass.PHB,
        ),
        (
            "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges "
            "within a NUMA node",
            PathClass.NODE,
        ),
        (
            "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
            PathClass.SYS,
        ),
    ],
)
def test_words_of_a_legend_make_a_class(words: str, expected: PathClass) -> None:
    assert meaning_of("ABC", {"ABC": words}) == Meaning(path_class=expected)


@pytest.mark.parametrize(
    ("code", "legend", "expected"),
    [
        ("MX", "Connection traversing MetaXLink", Meaning(fabric="MX")),
        ("UB_SW", "Connection traversing UB by a switch", Meaning(fabric="UB", switched=True)),
        ("ABC", "Unknown relationship.", None),
        ("ABC", "Self", None),
        ("ABC", "something over PCIe", None),
    ],
)  # fmt: skip
def test_words_of_a_legend_make_a_fabric(code: str, legend: str, expected: Meaning | None) -> None:
    assert meaning_of(code, {code: legend}) == expected


def test_a_legend_is_found_among_other_lines() -> None:
    lines = ["Legend:", "  XL#  = a link of # lanes", "NIC0: mlx5_0", "a = b"]
    assert read_legend(lines)["XL"] == "a link of # lanes"


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="NPUGX01 \n\t|-HCS=:", max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    looks_like_accelerator_matrix(text)
    with contextlib.suppress(FormatError):
        parse_accelerator_matrix(text, file="x")

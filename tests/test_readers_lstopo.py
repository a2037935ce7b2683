"""Reading lstopo's console text: the trees are made for the tests."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo.errors import FormatError
from topocal.topo.readers.lstopo_text import looks_like_lstopo_text, parse_lstopo_text
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology

TREE = """\
$ lstopo-no-graphics
Machine (512GB total)
  Package L#0
    NUMANode L#0 (P#0 256GB)
    L3 L#0 (32MB)
      L2 L#0 (1024KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#64)
    HostBridge
      PCIBridge
        PCIBridge
          PCIBridge
            PCI 1a:00.0 (3D)
              CoProc(OpenCL) "opencl0d0"
              CoProc(CUDA) "cuda0"
              GPU(NVML) "nvml0"
          PCIBridge
            PCI 1b:00.0 (3D)
              GPU(NVML) "nvml1"
          PCIBridge
            PCI 1c:00.0 (InfiniBand)
              Net "ib0"
              OpenFabrics "mlx5_0"
      PCIBridge
        PCI 05:00.0 (3D)
          GPU(NVML) "nvml2"
      PCI 00:11.5 (SATA)
    HostBridge
      PCIBridge
        PCI 3a:00.0 (3D)
          GPU(NVML) "nvml3"
      PCIBridge
        PCI 3b:00.0 (VGA)
  Package L#1
    NUMANode L#1 (P#1 256GB)
    Core L#1
      PU L#2 (P#1)
    HostBridge
      PCIBridge
        PCI 86:00.0 (Ethernet)
          Net "enp134s0"
      PCIBridge
        PCI 87:00.0 (3D)
          GPU(NVML) "nvml4"
$ uptime
"""

OLD = """\
Machine (64GB)
  NUMANode L#0 (P#0 32GB)
    Socket L#0 + L3 L#0 (20MB)
      Core L#0
        PU L#0 (P#0)
    HostBridge L#0
      PCIBridge
        PCIBridge
          PCIBridge
            PCI 10de:1023
              CoProc L#0 "cuda0"
          PCIBridge
            PCI 10de:1023
              CoProc L#1 "cuda1"
  NUMANode L#1 (P#1 32GB) + Socket L#1 + L3 L#1 (20MB)
    Core L#1
      PU L#1 (P#1)
    HostBridge L#4
      PCIBridge
        PCI 10de:1023
          CoProc L#2 "cuda2"
"""

VERBOSE = """\
Machine (P#0 total=64KB Backend=Linux)
  Package L#0 (P#0 CPUModel="Some CPU")
    NUMANode L#0 (P#0 local=64KB total=64KB)
    HostBridge L#0 (buses=0000:[16-19])
      PCIBridge L#1 (busid=0000:16:00.0 class=0604(PCIBridge) link=15.75GB/s buses=0000:[17-18])
        PCI L#0 (busid=0000:17:00.0 id=15b3:101b class=0207(InfiniBand) link=15.75GB/s \
PCIVendor="A" PCIDevice="MT [ConnectX-6]")
          Network L#0 (Address=20:00:10:86 Port=1) "ib0"
          OpenFabrics L#1 (NodeGUID=b859:9f03 Port1State=4) "mlx5_0"
      PCIBridge L#2 (busid=0000:16:01.0 class=0604(PCIBridge) link=15.75GB/s buses=0000:[19-19])
        PCI L#1 (busid=0000:19:00.0 id=10de:0001 class=0302(3D) link=15.75GB/s)
          CoProc L#2 (Backend=CUDA GPUVendor="A B" GPUModel="G100" CUDAMultiProcessors=1) "cuda0"
"""


def apart(topology: Topology, a: str, b: str) -> str:
    """The class of a pair's path."""
    return PathClass(int(topology.routes((a, b)).path_class[0, 1])).name


def labels(topology: Topology, kind: NodeKind) -> list[str]:
    """What the devices of a kind are called, in order."""
    nodes = topology.graph.nodes
    named = [name for name in topology.endpoints if nodes[name]["kind"] is kind]
    return [str(nodes[name]["label"]) for name in named]


def notes(topology: Topology) -> list[str]:
    """What the reader says of it."""
    return list(topology.graph.graph["notes"])


def test_bridges_say_how_far_apart_devices_are() -> None:
    topology = parse_lstopo_text(TREE, file="tree.txt")
    assert apart(topology, "gpu0", "gpu1") == "PIX"
    assert apart(topology, "gpu0", "nic0") == "PIX"
    assert apart(topology, "gpu0", "gpu2") == "PHB"
    assert apart(topology, "gpu0", "gpu3") == "NODE"
    assert apart(topology, "gpu2", "gpu4") == "SYS"
    assert apart(topology, "nic1", "gpu4") == "PHB"


def test_devices_have_their_tools_numbers_names_and_places() -> None:
    topology = parse_lstopo_text(TREE, file="tree.txt")
    assert labels(topology, NodeKind.GPU) == ["cuda0", "nvml1", "nvml2", "nvml3", "nvml4"]
    assert labels(topology, NodeKind.NIC) == ["mlx5_0", "enp134s0"]
    assert topology.graph.nodes["gpu2"]["bus_id"] == "0000:05:00.0"
    assert topology.graph.nodes["gpu0"]["numa"] == 0
    assert topology.graph.nodes["gpu0"]["cpu_list"] == "0,64"
    assert topology.graph.nodes["gpu4"]["numa"] == 1
    assert any("1 display" in note for note in notes(topology))


def test_old_versions_without_addresses_are_read() -> None:
    topology = parse_lstopo_text(OLD, file="old.txt")
    assert apart(topology, "gpu0", "gpu1") == "PIX"
    assert apart(topology, "gpu0", "gpu2") == "SYS"
    assert topology.graph.nodes["gpu2"]["numa"] == 1


def test_the_verbose_form_is_read() -> None:
    topology = parse_lstopo_text(VERBOSE, file="verbose.txt")
    assert labels(topology, NodeKind.NIC) == ["mlx5_0"]
    assert labels(topology, NodeKind.GPU) == ["cuda0"]
    assert apart(topology, "gpu0", "nic0") == "PHB"


def test_what_is_left_out_is_told() -> None:
    lonely = TREE.replace("87:00.0 (3D)", "87:00.0 (NVMExp)").replace('GPU(NVML) "nvml4"', "")
    lonely = lonely.replace("(Ethernet)", "(NVMExp)").replace('Net "enp134s0"', "")
    said = notes(parse_lstopo_text(lonely, file="tree.txt"))
    assert "NUMA nodes with no GPU and no NIC are left out: 1" in said
    assert any("link speeds are not taken" in note for note in said)


def test_the_registry_knows_it() -> None:
    assert sniff(TREE, file="x.txt").name == "lstopo"
    assert labels(parse_any(TREE, file="x.txt"), NodeKind.NIC) == ["mlx5_0", "enp134s0"]


def test_a_tree_with_neither_gpus_nor_nics_is_refused() -> None:
    with pytest.raises(FormatError, match="no GPUs and NICs"):
        parse_lstopo_text("Machine (1GB)\n  NUMANode L#0 (P#0)\n", file="bare.txt")


def test_other_texts_are_not_taken_for_it() -> None:
    assert not looks_like_lstopo_text("Machine (a thing)\nno tree\n")
    assert not looks_like_lstopo_text("NUMANode L#0\n")


@pytest.mark.parametrize(
    "line",
    [
        "  PCI (" + "(" * 200_000,
        "  " + "Core L#0 + " * 50_000,
        "\n".join(" " * k + "PCIBridge" for k in range(1, 3000)),
        '  Net "' + "a" * 200_000,
    ],
)
def test_hostile_texts_end_soon(line: str) -> None:
    began = time.process_time()
    text = "Machine (1GB)\n NUMANode L#0 (P#0)\n  PCI 01:00.0 (3D)\n" + line + "\n"
    assert parse_lstopo_text(text, file="x.txt").endpoints
    # Of the processor; what backtracks would take minutes.
    assert time.process_time() - began < 60


@given(st.lists(st.sampled_from(TREE.splitlines()), max_size=40))
def test_any_order_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        topology = parse_lstopo_text("\n".join(["Machine (1GB)", *lines]), file="x.txt")
    except FormatError:
        return
    assert topology.endpoints

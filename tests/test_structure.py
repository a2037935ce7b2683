"""What a topology alone says: who sits where, and what is wrong with its links."""

from __future__ import annotations

from textwrap import dedent

import pytest

from topocal.solve.evidence import FindingKind, Severity
from topocal.solve.findings_topology import find_fewer_links, find_in_topology
from topocal.solve.structure import structure
from topocal.topo.readers.registry import parse_any
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology


def read(text: str) -> Topology:
    return parse_any(dedent(text), file="paste.txt")


BRIDGED = """\
        GPU0  GPU1  GPU2  GPU3  NIC0  CPU Affinity  NUMA Affinity
GPU0     X    NV4   SYS   SYS   PHB   0-15          0
GPU1    NV4    X    SYS   SYS   PHB   0-15          0
GPU2    SYS   SYS    X    PHB   SYS   16-31         1
GPU3    SYS   SYS   PHB    X    SYS   16-31         1
NIC0    PHB   PHB   SYS   SYS    X
"""


def test_cards_joined_by_a_bridge_sit_on_a_socket_all_the_same() -> None:
    lines = structure(read(BRIDGED))
    assert lines[0] == "4 cards; pairs by class: 1 NVL, 4 SYS, 1 PHB"
    assert "joined by a fabric: gpu0 and gpu1; alone gpu2 and gpu3" in lines
    assert "on a socket: gpu0 and gpu1; gpu2 and gpu3" in lines
    assert "network cards: nic0 PHB to gpu0 and gpu1" in lines


def test_one_bridge_of_two_is_told_and_no_fault() -> None:
    (found,) = find_in_topology(read(BRIDGED))
    assert found.severity is Severity.NOTE
    assert found.text.startswith("NVLink joins gpu0–gpu1 only; gpu2 and gpu3 have none")


def test_numa_nodes_are_named_where_they_are_no_numbers_of_sockets() -> None:
    lines = structure(
        read("""\
                GPU0  GPU1  GPU2  GPU3  CPU Affinity  NUMA Affinity
        GPU0     X    PXB   SYS   SYS   48-63         3
        GPU1    PXB    X    SYS   SYS   48-63         3
        GPU2    SYS   SYS    X    PXB   16-31         1
        GPU3    SYS   SYS   PXB    X    16-31         1
        """)
    )
    assert "on a socket: gpu0 and gpu1 (NUMA node 3); gpu2 and gpu3 (NUMA node 1)" in lines


def test_numa_nodes_group_what_the_letters_put_apart() -> None:
    lines = structure(
        read("""\
                GPU0  GPU1  GPU2  GPU3  CPU Affinity  NUMA Affinity
        GPU0     X    SYS   SYS   SYS   0-15          0
        GPU1    SYS    X    SYS   SYS   0-15          0
        GPU2    SYS   SYS    X    SYS   16-31         1
        GPU3    SYS   SYS   SYS    X    16-31         1
        """)
    )
    assert any("gpu0 and gpu1" in line and "gpu2 and gpu3" in line for line in lines[1:])


def test_leaves_of_a_tree_of_switches() -> None:
    lines = structure(
        read("""\
                GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  CPU Affinity  NUMA Affinity
        GPU0     X    PIX   PXB   PXB   NODE  NODE  0-15          0
        GPU1    PIX    X    PXB   PXB   NODE  NODE  0-15          0
        GPU2    PXB   PXB    X    PIX   NODE  NODE  0-15          0
        GPU3    PXB   PXB   PIX    X    NODE  NODE  0-15          0
        GPU4    NODE  NODE  NODE  NODE   X    PIX   0-15          0
        GPU5    NODE  NODE  NODE  NODE  PIX    X    0-15          0
        """)
    )
    assert (
        "behind one PCIe switch: gpu0-gpu3 (nearest gpu0 and gpu1; gpu2 and gpu3); gpu4 and gpu5"
        in lines
    )


UPLINK = """\
<system version="1">
  <cpu numaid="0" affinity="00ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1"/>
      </pci>
      <pci busid="0000:19:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1"/>
      </pci>
      <pci busid="0000:1a:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:36:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="2" sm="80" rank="2" gdr="1"/>
    </pci>
  </cpu>
</system>
"""


def test_the_uplink_that_cards_and_a_network_card_share() -> None:
    lines = structure(read(UPLINK))
    (line,) = [x for x in lines if x.startswith("behind one PCIe switch")]
    assert line == (
        "behind one PCIe switch: gpu0, gpu1 and nic0; alone gpu2; they share an uplink of "
        "14.4 GB/s each way"
    )
    assert not any(x.startswith("network cards") for x in lines), "said with the switch"


def test_no_card_is_no_mistake() -> None:
    text = UPLINK.replace('<gpu dev="', '<nogpu dev="').replace("0x030200", "0x020000")
    assert structure(read(text))[0] == "no card is described"


def switched(lost: dict[int, int], n: int = 8, count: int = 18) -> str:
    """A matrix of ``nvidia-smi topo -m`` behind NVSwitches; some cards have fewer links."""
    rows = ["\t" + "\t".join(f"GPU{k}" for k in range(n)) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(n):
        cells = [
            " X " if a == b else f"NV{min(lost.get(a, count), lost.get(b, count))}"
            for b in range(n)
        ]
        rows.append(f"GPU{a}\t" + "\t".join(cells) + "\t0-47\t0")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("lost", [{}, {6: 16}, {1: 17, 6: 16}, {0: 9}])
def test_a_card_that_lost_links_stays_behind_its_switch(lost: dict[int, int]) -> None:
    topology = read(switched(lost))
    switches = [n for n, kind in topology.graph.nodes(data="kind") if kind is NodeKind.NVSWITCH]
    assert switches == ["nvswitch0"]
    counts = {
        tail: data["count"]
        for tail, head, data in topology.graph.edges(data=True)
        if head == "nvswitch0"
    }
    assert counts == {f"gpu{k}": lost.get(k, 18) for k in range(8)}
    found = find_fewer_links(topology)
    assert [f.about for f in found] == ([tuple(f"gpu{k}" for k in sorted(lost))] if lost else [])
    for f in found:
        assert f.kind is FindingKind.SLOW_LINK
        assert all(f"gpu{k} has {n} of 18 fabric links" in f.text for k, n in lost.items())


def test_a_bridge_with_fewer_links_than_another() -> None:
    topology = read("""\
                GPU0  GPU1  GPU2  GPU3  CPU Affinity  NUMA Affinity
        GPU0     X    NV12  SYS   SYS   0-15          0
        GPU1    NV12   X    SYS   SYS   0-15          0
        GPU2    SYS   SYS    X    NV8   16-31         1
        GPU3    SYS   SYS   NV8    X    16-31         1
        """)
    (found,) = find_in_topology(topology)
    assert found.text == (
        "Some pairs have fewer fabric links than others: gpu2–gpu3 (8 of 12). Look at their "
        "bridges."
    )


def test_a_mesh_of_single_and_double_links_is_built_so() -> None:
    topology = read("""\
                GPU0  GPU1  GPU2  GPU3
        GPU0     X    NV1   NV1   NV2
        GPU1    NV1    X    NV2   NV1
        GPU2    NV1   NV2    X    NV1
        GPU3    NV2   NV1   NV1    X
        """)
    assert find_in_topology(topology) == []


def test_a_network_card_does_not_idle() -> None:
    topology = read("""\
        5e:00.0 Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]
        \tCapabilities: [60] Express (v2) Endpoint, MSI 00
        \t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
        \t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x16 (ok)
        """)
    (found,) = find_in_topology(topology)
    assert found.severity is Severity.WARNING
    assert "at generation 3 though generation 4 is possible" in found.text
    assert found.text.endswith("network cards keep theirs when idle.")


PEERS = """\
$ nvidia-smi topo -p2p r
        GPU0  GPU1  GPU2  GPU3
 GPU0   X     OK    CNS   CNS
 GPU1   OK    X     CNS   CNS
 GPU2   CNS   CNS   X     OK
 GPU3   CNS   CNS   OK    X

Legend:
  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""


def test_peer_access_alone_says_who_lacks_it() -> None:
    topology = read(PEERS)
    assert structure(topology) == (
        "4 cards; pairs by class: 6 of which nothing says how they are connected",
    )
    (found,) = find_in_topology(topology)
    assert found.kind is FindingKind.NO_PEER
    assert "gpu0 and gpu1 with gpu2 and gpu3. Their copies go through the host" in found.text


NCCL_LOG = """\
n1:2:2 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message
n1:2:2 [0] NCCL INFO === System : maxBw 10.0 totalBw 12.0 ===
n1:2:2 [0] NCCL INFO CPU/0-0 (1/1/2)
n1:2:2 [0] NCCL INFO + PCI[12.0] - GPU/0-2000 (0)
n1:2:2 [0] NCCL INFO + PCI[6.0] - GPU/0-3000 (1)
n1:2:2 [0] NCCL INFO + PCI[12.0] - GPU/0-4000 (2)
n1:2:2 [0] NCCL INFO ==========================================
n1:2:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
"""


def test_what_nccl_says_of_links_and_ways() -> None:
    topology = read(NCCL_LOG)
    (found,) = find_in_topology(topology)
    assert found.text.startswith(
        "NCCL counts 6 GB/s for the PCIe link of gpu1, and 12 GB/s for that of others"
    )
    notes = topology.graph.graph["notes"]
    assert any("peer access is off between GPUs 0 and 1" in note for note in notes)
    assert any("through host memory (SHM)" in note for note in notes)


def test_links_that_nccl_counts_alike_are_no_finding() -> None:
    assert find_in_topology(read(NCCL_LOG.replace("PCI[6.0]", "PCI[12.0]"))) == []

"""NCCL's INFO log: the topology dump in every form that versions 2.5 to 2.30 print."""

from __future__ import annotations

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.nccl_log import looks_like_nccl_log, parse_nccl_log
from topocal.topo.readers.registry import sniff
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import View

PREFIX = "node1:100:200 [0] NCCL INFO "

# Two sockets; a switch chain with two GPUs and a dual-port NIC; a GPU and a socket
# interface straight on the other CPU.
SWITCHED = """\
=== System : maxBw 24.0 totalBw 264.0 ===
CPU/0 (1/1/2)
+ PCI[24.0] - PCI/C000 (1000c01010000000)
              + PCI[24.0] - PCI/14000 (1000c01010de13b8)
                            + PCI[24.0] - GPU/16000 (1)
                                          + NVL[264.0] - NVS/0
              + PCI[24.0] - PCI/E000 (1000c01010de13b8)
                            + PCI[24.0] - GPU/10000 (3)
                                          + NVL[264.0] - NVS/0
              + PCI[24.0] - NIC/1D000
                            + NET[25.0] - NET/0 (b060060003d3ebe8/1/25.000000)
                            + NET[25.0] - NET/1 (b060060003d3ebe8/2/25.000000)
+ SYS[9.0] - CPU/1
CPU/1 (1/1/2)
+ SYS[9.0] - CPU/0
+ PCI[24.0] - GPU/89000 (2)
              + NVL[264.0] - NVS/0
+ PCI[5000.0] - NIC/0
                + NET[1.2] - NET/2 (0/0/1.250000)
==========================================
GPU/16000 :GPU/16000 (0/5000.000000/LOC) GPU/10000 (2/264.000000/NVL) \
GPU/89000 (2/264.000000/NVL) CPU/0 (3/24.000000/PHB) CPU/1 (4/9.000000/SYS) \
NET/0 (5/24.000000/PXB) NET/2 (7/1.250000/SYS)
NET/0 :GPU/16000 (5/24.000000/PXB) NET/1 (2/25.000000/LOC) NET/2 (8/1.250000/SYS)
"""


def prefixed(text: str, prefix: str = PREFIX) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def parse(text: str) -> Topology:
    return parse_nccl_log(text, file="run.log")


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def by_bus(topology: Topology) -> dict[str, str]:
    return {bus[5:7]: node for (_, bus), node in View(topology, "t").by_bus.items()}


def above(topology: Topology, node: str) -> str:
    return View(topology, "t").above[node][0]


PREFIXES = [
    "",
    PREFIX,
    "[2025-06-27 11:00:00] node1:100:200 [0] NCCL INFO ",
    "[1,0]<stdout>:node1:100:200 [0] NCCL INFO ",
    "worker-0: node1:100:200 [0] NCCL INFO ",
    "2025-06-27T11:00:00.123Z node1:100:200 [7] NCCL INFO ",
    "\x1b[36mnode1:100:200 [0] NCCL INFO \x1b[0m",
    "NCCL INFO ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_tree_under_any_prefix(prefix: str) -> None:
    text = "some banner\n" + prefixed(SWITCHED, prefix)
    assert sniff(text, file="run.log").name == "nccl-log"
    topology = parse(text)
    at = by_bus(topology)
    # NCCL prints ranks, not device numbers: GPUs are ordered by address.
    assert [at["10"], at["16"], at["89"]] == ["gpu0", "gpu1", "gpu2"]
    assert above(topology, "gpu1") == "pcie:0000:14:00.0"
    assert above(topology, "pcie:0000:14:00.0") == "pcie:0000:0c:00.0"
    assert above(topology, "nic0") == "pcie:0000:0c:00.0"
    assert above(topology, "gpu2") == "socket1"
    graph = topology.graph
    assert graph.nodes["pcie:0000:0c:00.0"]["vendor"] == "0x1000"
    assert graph.nodes["gpu1"]["rank"] == 1
    assert graph.nodes["nic0"]["nccl_bw_GBps"] == 50.0
    assert "bus_id" not in graph.nodes["nic2"]
    assert graph.edges["gpu0", "nvswitch0", "gpu0->nvswitch0"]["nccl_bw_GBps"] == 264.0
    assert graph.number_of_edges("socket0", "socket1") == 1
    classes = {(a, b): c.name for a, b, c in topology.routes(topology.endpoints).classes()}
    assert classes["gpu0", "gpu2"] == "NVL"
    assert classes["gpu0", "nic0"] == "PXB"
    assert classes["gpu2", "nic0"] == "SYS"


def test_figures_of_the_cost_model_are_never_nominal() -> None:
    topology = parse(prefixed(SWITCHED))
    assert {link.nominal_Bps for link in topology.links.values()} == {None}
    assert "NCCL's own figures" in notes(topology)


def test_the_path_table_is_kept_for_comparison() -> None:
    topology = parse(prefixed(SWITCHED))
    assert topology.graph.graph["stated_classes"] == [
        ["gpu0", "gpu1", "NVL"],
        ["gpu1", "gpu2", "NVL"],
        ["gpu1", "nic0", "PXB"],
        ["gpu1", "nic2", "SYS"],
        ["nic0", "nic2", "SYS"],
    ]


def test_device_numbers_stand_in_the_messages_about_communicators() -> None:
    extra = "".join(
        f"{PREFIX}ncclCommInitRank comm 0x55d0 rank {r} nranks 3 cudaDev {c} nvmlDev {n} "
        f"busId {bus} commId 0x1 - Init START\n"
        for r, c, n, bus in ((1, 0, 5, "16000"), (3, 1, 4, "10000"), (2, 2, 7, "89000"))
    )
    topology = parse(extra + prefixed(SWITCHED))
    at = by_bus(topology)
    assert [at["16"], at["10"], at["89"]] == ["gpu5", "gpu4", "gpu7"]
    assert "does not say each GPU's number" not in notes(topology)


def test_ids_with_a_host_number() -> None:
    text = SWITCHED.replace("GPU/", "GPU/0-").replace("CPU/", "CPU/0-").replace("NVS/", "NVS/0-")
    text = text.replace("\nGPU/0-16000 :", "\nGPU/16000 :").replace("(1/1/2)", "(1/2/-1)")
    topology = parse(prefixed(text))
    assert topology.accelerators == ("gpu0", "gpu1", "gpu2")
    assert len(topology.graph.graph["stated_classes"]) == 5


def test_version_2_5_without_fractions() -> None:
    topology = parse(
        "=== System : maxWidth 21 maxSpeed 21 ===\n"
        "CPU/FFFFFFFFFFFFFFFF\n"
        "+ PCI[12] - GPU/1000 (0)\n"
        "            + NVL[21] - GPU/2000\n"
        "+ PCI[12] - GPU/2000 (1)\n"
        "            + NVL[21] - GPU/1000\n"
        "==========================================\n"
        "GPU/1000 :GPU/2000 (1/21/NVL) CPU/FFFFFFFFFFFFFFFF (1/12/PHB)\n"
    )
    assert topology.accelerators == ("gpu0", "gpu1")
    assert topology.graph.number_of_edges("gpu0", "gpu1") == 1
    assert "numa" not in topology.graph.nodes["socket0"]
    assert topology.graph.graph["stated_classes"] == [["gpu0", "gpu1", "NVL"]]


def test_version_2_30_with_device_nodes_and_rccl_words() -> None:
    topology = parse(
        prefixed(
            "=== System : maxBw 24.0 totalBw 48.0 ===\n"
            "CPU/0-0 (1/1/2)\n"
            "+ PCI[12.0] - PCI/0-7000 (10b5874710b58747)\n"
            "              + PCI[12.0] - DEV/0-b000 (100266a3106b0203)\n"
            "                            + LOC[5000.0] - GPU/0-b000\n"
            "                            + XGMI[24.0] - DEV/0-e000\n"
            "                            + C2C[394.6] - XC2C/0-281000\n"
            "              + PCI[12.0] - DEV/0-e000 (100266a3106b0203)\n"
            "                            + LOC[5000.0] - GPU/0-e000\n"
            "                            + XGMI[24.0] - DEV/0-b000\n"
            "==========================================\n"
            "GPU/0-b000 :GPU/0-e000 (3/24.0/XGMI) NET/0-0 (4/12.0/PXN)\n"
        )
    )
    assert topology.accelerators == ("gpu0", "gpu1")
    assert topology.graph.nodes["gpu0"]["device"] == "0x66a3"
    (link,) = topology.graph["gpu0"]["gpu1"].values()
    assert link["kind"] is LinkKind.XGMI
    assert topology.graph.graph["stated_classes"] == [["gpu0", "gpu1", "NVL"]]
    assert [c.name for a, b, c in topology.routes().classes()] == ["NVL", "NVL"]


def test_processes_interleave_and_share_lines() -> None:
    mine = [PREFIX + line for line in SWITCHED.splitlines()]
    other = [line.replace(":100:200 [0]", ":101:201 [1]") for line in mine]
    mixed = [line for pair in zip(mine, other, strict=True) for line in pair]
    # Two writes may end up in one line.
    mixed[10:12] = [mixed[10] + " " + mixed[11]]
    topology = parse("\n".join(mixed))
    assert topology.accelerators == ("gpu0", "gpu1", "gpu2")
    assert above(topology, "gpu1") == "pcie:0000:14:00.0"
    assert "the log has 2 dumps: the fullest, of line 1" in notes(topology)


def test_the_fullest_dump_wins() -> None:
    part = "=== System : maxBw 1 ===\nCPU/0 (1/1/2)\n+ PCI[24.0] - GPU/16000 (0)\n=====\n"
    topology = parse(prefixed(part) + prefixed(SWITCHED, PREFIX.replace("200", "300")))
    assert len(topology.accelerators) == 3
    assert topology.graph.graph["provenance"] == ["run.log: NCCL log, topology dump of line 5"]


def test_dumps_of_several_hosts() -> None:
    same = prefixed(SWITCHED) + prefixed(SWITCHED, PREFIX.replace("node1", "node2"))
    topology = parse(same)
    assert "dumps of 2 hosts, all of one shape" in notes(topology)
    assert "node2" not in str(topology.graph.graph) + str(dict(topology.graph.nodes(data=True)))
    fewer = "\n".join(SWITCHED.splitlines()[:9])
    other = prefixed(fewer, PREFIX.replace("node1", "node2"))
    assert "of different shapes" in notes(parse(prefixed(SWITCHED) + other))


def test_a_dump_that_is_cut_off() -> None:
    topology = parse(prefixed("\n".join(SWITCHED.splitlines()[:6])))
    assert topology.accelerators == ("gpu0",)
    assert "may be cut off" in notes(topology)


def test_lost_indentation_is_told_and_nothing_is_invented() -> None:
    flat = "\n".join(line.lstrip() for line in SWITCHED.splitlines())
    topology = parse(flat)
    assert "lost its indentation" in notes(topology)
    assert above(topology, "gpu0") == above(topology, "gpu1") == "socket0"
    assert above(topology, "gpu2") == "socket1"
    assert {c.name for a, b, c in topology.routes().classes()} == {"NVL"}


def test_an_emulated_bridge_is_told() -> None:
    topology = parse(
        "=== System : maxBw 48.0 totalBw 370.8 ===\n"
        "CPU/0-0 (1/2/-1)\n"
        "+ SYS[16.0] - CPU/0-1\n"
        "+ PCI[0.2] - PCI/0-65000 (104c823200000000)\n"
        "             + PCI[48.0] - NIC/0-67000\n"
        "                           + NET[50.0] - NET/0-c (0/d4f9fc0003ae6d94/1/50.000000)\n"
        "             + PCI[48.0] - GPU/0-68000 (8)\n"
        "CPU/0-1 (1/2/-1)\n"
        "==========================================\n"
    )
    assert "pcie:0000:65:00.0: NCCL read 2.5 GT/s x1" in notes(topology)
    assert topology.graph.nodes["nic12"]["index"] == 12


def test_links_to_what_is_not_there() -> None:
    topology = parse(
        "=== System : maxBw 1 ===\n"
        "CPU/0 (1/1/2)\n"
        "+ SYS[9.0] - CPU/1\n"
        "+ PCI[24.0] - GPU/1000 (0)\n"
        "              + NVL[20.0] - GPU/9000\n"
        "              + NVL[20.0] - GPU/1000\n"
        "==========\n"
    )
    assert "GPU/1000 has a link to GPU/9000, which the dump does not describe" in notes(topology)
    assert "gpu0 has a link to itself" in notes(topology)
    assert [k for _, k in topology.graph.nodes(data="kind")] == [NodeKind.SOCKET, NodeKind.GPU]


def test_a_log_without_a_dump_names_the_remedy() -> None:
    text = PREFIX + "Bootstrap : Using eth0:10.0.0.1<0>\n"
    assert looks_like_nccl_log(text)
    with pytest.raises(FormatError, match="NCCL_DEBUG_SUBSYS=INIT,GRAPH"):
        parse(text)


def test_a_benchmark_that_prints_info_lines_is_not_claimed() -> None:
    assert not looks_like_nccl_log(PREFIX + "Init COMPLETE\n#  size  algbw  busbw\n")

"""``nvidia-smi topo``: every trap that pastes of it have, in small matrices written by hand."""

from __future__ import annotations

import re

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.matrix_text import find_blocks
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.readers.topo_matrix import looks_like_topo_matrix, parse_topo_matrix
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NODE = Connection within a NUMA node
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""

# Two sockets; on each a switch with two GPUs; a NIC beside the first two.
PLAIN = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPIX\tSYS\tSYS\tNODE\t0-7\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tSYS\tSYS\tNODE\t0-7\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tPIX\tSYS\t8-15\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tPIX\t X \tSYS\t8-15\t1\t\tN/A\n"
    "NIC0\tNODE\tNODE\tSYS\tSYS\t X \t\t\t\t\n"
)


def read(text: str) -> Topology:
    return parse_topo_matrix(text, file="topo.txt")


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def class_of(topology: Topology, a: str, b: str) -> str:
    routes = topology.routes(topology.endpoints)
    forth, back = (
        PathClass(int(routes.path_class[routes.position[x], routes.position[y]])).name
        for x, y in ((a, b), (b, a))
    )
    assert forth == back
    return forth


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def expand_tabs(text: str) -> str:
    return "\n".join(line.expandtabs(8) for line in text.split("\n"))


def same_machine(one: Topology, other: Topology) -> bool:
    """Equal but for what they are called and told."""
    graphs = []
    for topology in (one, other):
        graph = topology.graph.copy()
        graph.graph.update(name="", notes=[], provenance=[])
        graphs.append(Topology(graph))
    return graphs[0] == graphs[1]


def test_plain() -> None:
    machine = read(PLAIN)
    assert machine.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert of_kind(machine, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert len(of_kind(machine, NodeKind.PCIE_SWITCH)) == 2
    expected = {
        ("gpu0", "gpu1"): "PIX",
        ("gpu0", "gpu2"): "SYS",
        ("gpu2", "gpu3"): "PIX",
        ("gpu1", "nic0"): "NODE",
        ("gpu3", "nic0"): "SYS",
    }
    assert {pair: class_of(machine, *pair) for pair in expected} == expected
    node = machine.graph.nodes["gpu2"]
    assert (node["numa"], node["cpu_list"], node["index"]) == (1, "8-15", 2)
    assert "numa" not in machine.graph.nodes["nic0"]
    assert all(data["nominal_Bps"] is None for _, _, data in machine.graph.edges(data=True))
    assert machine.graph.graph["peer_access"] is None
    assert machine.graph.graph["class_overrides"] == []
    assert len(machine.graph.graph["stated_classes"]) == 10


PROMPTS = "me@gpu-node1:~$ srun --gres=gpu:4 nvidia-smi topo -m\nsrun: job 7 has been allocated\n"
SAME = {
    "blanks for tabs": expand_tabs(PLAIN),
    "ESC codes": PLAIN.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace(
        "NUMA ID\n", "NUMA ID\x1b[0m\n"
    ),
    "ESC codes that lost their ESC": PLAIN.replace("\tGPU0", "\t[4mGPU0", 1).replace(
        "NUMA ID\n", "NUMA ID[0m\n"
    ),
    "legend and prompt": PROMPTS + PLAIN + LEGEND + "user@gpu-node1:~$ exit\n",
    "header on the command line": "nvidia-smi topo -m" + expand_tabs(PLAIN),
    "header without its tab": PLAIN[1:],
    "glued header": "GPU0GPU1GPU2GPU3NIC0CPU AffinityNUMA AffinityGPU NUMA ID\n"
    + PLAIN.split("\n", 1)[1],
    "glued affinity columns": PLAIN.replace(
        "CPU Affinity\tNUMA Affinity\t", "CPU AffinityNUMA Affinity"
    ),
    "trailing blanks": "\n".join(f"{line:<160}" for line in expand_tabs(PLAIN).split("\n")),
    "indented": "\n".join("    " + line for line in expand_tabs(PLAIN).split("\n")),
    "quoted": "\n".join("> " + line for line in expand_tabs(PLAIN).split("\n")),
    "prefixed by a launcher": "\n".join("3: node1: " + x for x in expand_tabs(PLAIN).split("\n")),
    "one blank between cells": re.sub(r"[ \t]+", " ", PLAIN),
    "blank lines between rows": PLAIN.replace("\n", "\n\n"),
    "non-breaking blanks": expand_tabs(PLAIN).replace("  ", "\xa0 "),
    "mixed tabs and blanks": PLAIN.replace("\tGPU0", "\t    GPU0", 1).replace(
        "\t0-7", "\t        0-7"
    ),
    "Markdown": "\n".join(
        "| " + " | ".join(cell.strip() for cell in line.split("\t")[:9]) + " |" if line else ""
        for line in PLAIN.split("\n")
    ).replace("ID |\n", "ID |\n|---|---|---|---|---|---|---|---|---|\n", 1),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_the_same_machine_however_pasted(text: str) -> None:
    assert looks_like_topo_matrix(text)
    assert sniff(text, file="x").name == "nvidia-topo"
    assert same_machine(read(text), read(PLAIN))


def test_narrow_terminal_breaks_lines() -> None:
    broken = (
        "        GPU0    GPU1    GPU2\n"
        "NIC0    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      PIX     SYS\n"
        "PIX     0-7     0\n"
        "GPU1    PIX      X      SYS\n"
        "PIX     0-7     0\n"
        "GPU2    SYS     SYS      X\n"
        "SYS     8-15    1\n"
        "NIC0    PIX     PIX     SYS\n"
        " X\n"
    )
    machine = read(broken)
    assert class_of(machine, "gpu0", "nic0") == "PIX"
    assert class_of(machine, "gpu2", "nic0") == "SYS"
    assert machine.graph.nodes["gpu2"]["numa"] == 1


def test_headerless_takes_names_from_the_rows() -> None:
    text = "\n".join(line for line in PLAIN.split("\n") if not line.startswith("\t"))
    machine = read(text)
    assert same_machine(machine, read(PLAIN))
    assert "no header" in notes(machine)


def test_headerless_columns_beyond_the_rows() -> None:
    # NV letters stand between GPUs only, so the third column is a GPU and the fourth is not.
    machine = read("GPU0  X   NV4 NV4 PXB 0-7 0\nGPU1 NV4  X  NV4 SYS 8-15 1\n")
    assert machine.endpoints == ("gpu0", "gpu1", "gpu2", "nic0")
    assert "rows GPU2, NIC0 are missing" in notes(machine)
    assert class_of(machine, "gpu0", "nic0") == "PXB"


def test_soc_is_sys_and_psb_is_pix() -> None:
    machine = read("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPSB\tSOC\nGPU1\tPSB\tX\tSOC\nGPU2\tSOC\tSOC\tX\n")
    assert class_of(machine, "gpu0", "gpu1") == "PIX"
    assert class_of(machine, "gpu0", "gpu2") == "SYS"
    assert ["gpu0", "gpu2", "SYS"] in machine.graph.graph["stated_classes"]


TAILS = {
    # Behind tabs an empty cell is an empty cell; NUMA takes two.
    "\t0-7\t0\t\tN/A": ("0-7", 0, None),
    "\t0-7\t\tN/A\t\tN/A": ("0-7", None, None),
    "\t\t1\t\tN/A": ("", 1, None),
    "\t\t\t\tN/A": ("", None, None),
    "\t0-71\t0\t\t1": ("0-71", 0, 1),
    "\t1,3,5,7\t3\t\tN/A": ("1,3,5,7", 3, None),
    "\t0\t0-1\t\tN/A": ("0", [0, 1], None),
    "\t0-7\t0,2\t\tN/A": ("0-7", [0, 2], None),
    "": ("", None, None),
}


@pytest.mark.parametrize("blanks", [False, True])
@pytest.mark.parametrize(("tail", "expected"), TAILS.items(), ids=[repr(t) for t in TAILS])
def test_affinity_columns(
    tail: str, expected: tuple[str, int | list[int] | None, int | None], blanks: bool
) -> None:
    text = f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS{tail}\n"
    text += "GPU1\tSYS\t X \t16-23\t7\t\tN/A\n"
    machine = read(expand_tabs(text) if blanks else text)
    node = machine.graph.nodes["gpu0"]
    numa = node.get("numa", node.get("numa_nodes"))
    assert (node.get("cpu_list", ""), numa, node.get("memory_numa")) == expected
    assert machine.graph.nodes["gpu1"]["numa"] == 7


def test_affinity_columns_are_all_empty() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t\t3\nGPU1\tSYS\t X \t\t5\n"
    for machine in (read(text), read(expand_tabs(text))):
        assert [machine.graph.nodes[g]["numa"] for g in machine.accelerators] == [3, 5]
        assert "cpu_list" not in machine.graph.nodes["gpu0"]
        assert of_kind(machine, NodeKind.SOCKET) == ["socket3", "socket5"]


def test_hand_trimmed_affinity() -> None:
    machine = read(
        "        GPU0    GPU1   NUMA \nGPU0     X      NODE    0\nGPU1    NODE     X     0 \n"
    )
    assert machine.graph.nodes["gpu1"]["numa"] == 0
    assert "cpu_list" not in machine.graph.nodes["gpu1"]


def test_cut_off_row() -> None:
    whole = expand_tabs(PLAIN)
    cut = whole[: whole.index("GPU3    SYS") + len("GPU3    SYS     SYS")]
    machine = read(cut)
    assert class_of(machine, "gpu3", "gpu2") == "PIX"
    assert "row GPU3 ends after 2 of 5 columns" in notes(machine)
    assert "rows NIC0 are missing" in notes(machine)


def test_missing_rows_repeat_the_first_half() -> None:
    # Nothing tells how far GPU2 and GPU3 are apart; GPU0 and GPU1 do, and rows 0-1 match.
    letters = {(0, 1): "PIX", (2, 3): "PIX", (4, 5): "PIX", (6, 7): "PIX"}
    lines = ["\t" + "\t".join(f"GPU{k}" for k in range(8))]
    for a in range(5):
        cells = [
            " X "
            if a == b
            else letters.get((min(a, b), max(a, b)), "PHB" if a // 4 == b // 4 else "SYS")
            for b in range(8)
        ]
        lines.append(f"GPU{a}\t" + "\t".join(cells))
    machine = read("\n".join(lines))
    assert len(of_kind(machine, NodeKind.PCIE_SWITCH)) == 4
    assert class_of(machine, "gpu6", "gpu7") == "PIX"
    assert "assumed, as the second half of the GPUs repeats the first" in notes(machine)
    stated = {tuple(pair[:2]) for pair in machine.graph.graph["stated_classes"]}
    assert ("gpu6", "gpu7") not in stated


def test_a_row_out_of_step_is_left_out() -> None:
    text = PLAIN.replace("GPU2\tSYS\tSYS\t X \tPIX", "GPU2\tSYS\t X \tSYS\tPIX")
    machine = read(text)
    assert "row GPU2 does not fit the columns" in notes(machine)
    assert class_of(machine, "gpu2", "gpu3") == "PIX"


def test_a_header_that_fits_no_row() -> None:
    text = PLAIN.replace("\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0", "\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0")
    machine = read(text)
    assert machine.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert "the header above line 2 does not fit the rows" in notes(machine)


def test_asymmetric_matrix() -> None:
    machine = read("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tSYS\t X \n")
    assert class_of(machine, "gpu0", "gpu1") == "PIX"
    assert "contradicts itself: gpu1-gpu0 PIX and SYS" in notes(machine)


def test_a_cell_that_is_no_code() -> None:
    with pytest.raises(FormatError, match=r"topo.txt:2: cell 'QQQ' of row GPU0 is no path class"):
        read("        GPU0  GPU1  GPU2\nGPU0    X   QQQ   PIX\nGPU1  QQQ    X    PIX\n")


def test_nic_legend_and_names() -> None:
    legend = "\nNIC Legend:\n\n  NIC0: mlx5_3\n"
    machine = read(PLAIN + LEGEND + legend)
    assert machine.graph.nodes["nic0"]["net_names"] == ["mlx5_3"]
    assert "NIC legend" not in notes(machine)
    named = read(PLAIN.replace("NIC0", "mlx5_bond_0"))
    assert named.graph.nodes["nic0"]["net_names"] == ["mlx5_bond_0"]
    other = PLAIN.replace("NIC0", "rocep1s0f0")
    assert read(other).graph.nodes["nic0"]["net_names"] == ["rocep1s0f0"]
    two = "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\nNIC0\tPIX\tX\tSYS\nNIC1\tSYS\tSYS\tX\n"
    assert "the NIC legend names 1 of 2 NICs" in notes(read(two + legend))


def test_windows_row_without_affinity() -> None:
    machine = read(
        "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t\t\t\tN/A\n"
    )
    assert machine.accelerators == ("gpu0",)
    assert set(machine.graph.nodes["gpu0"]) == {"kind", "label", "index"}


def test_no_final_newline_and_a_note_behind() -> None:
    machine = read(
        "GPU0    GPU1    CPU Affinity\nGPU0     X     SOC    0-11\nGPU1    SOC     X     0-11"
    )
    assert machine.graph.nodes["gpu1"]["cpu_list"] == "0-11"
    assert same_machine(
        read("GPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n# my note\n---\nand more\n"),
        read("GPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX"),
    )


P2P = """root@c:~# nvidia-smi topo -p2p {}
 \tGPU0\tGPU1\tGPU2\t
{}

Legend:

  X    = Self
  OK   = Status Ok
  NS   = Not supported
"""


def p2p(capability: str, ab: str, ac: str, bc: str) -> str:
    rows = [("X", ab, ac), (ab, "X", bc), (ac, bc, "X")]
    lines = [f" GPU{k}\t" + "\t".join(row) + "\t" for k, row in enumerate(rows)]
    return P2P.format(capability, "\n".join(lines))


TRIPLE = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tNV4\nGPU1\tPIX\t X \tPIX\nGPU2\tNV4\tPIX\t X \n"


@pytest.mark.parametrize(
    ("text", "peers", "pairs"),
    [
        (p2p("r", "OK", "OK", "OK"), True, []),
        (p2p("r", "NS", "NS", "CNS"), False, []),
        (p2p("rw", "OK", "GNS", "OK"), None, [["gpu0", "gpu2"]]),
        (p2p("w", "TNS", "OK", "DR"), None, [["gpu0", "gpu1"], ["gpu1", "gpu2"]]),
        # PCIe says nothing of the pair that NVLink joins; atomics nothing at all.
        (p2p("p", "NS", "NS", "NS"), None, [["gpu0", "gpu1"], ["gpu1", "gpu2"]]),
        (p2p("n", "NS", "OK", "NS"), True, []),
        (p2p("a", "NS", "NS", "NS"), None, []),
        # Reads decide, whatever PCIe says.
        (p2p("r", "OK", "OK", "OK") + p2p("p", "NS", "NS", "NS"), True, []),
        (p2p("r", "U", "U", "U"), None, []),
        (p2p("r", "NS", "NS", "NS").split("\n", 1)[1], False, []),
    ],
)
def test_peer_access(text: str, peers: bool | None, pairs: list[list[str]]) -> None:
    machine = read("$ nvidia-smi topo -m\n" + TRIPLE + LEGEND + text)
    assert machine.graph.graph["peer_access"] is peers
    assert machine.graph.graph["no_peer_pairs"] == pairs
    assert ("no peer access" in notes(machine)) == (peers is False or bool(pairs))
    # The letter stays what it is; the copies do not go by it.
    assert class_of(machine, "gpu0", "gpu1") == "PIX"
    staged = machine.routes().staged
    assert staged is not None
    assert staged.any() == (peers is False or bool(pairs))


def test_peer_access_alone() -> None:
    machine = read(p2p("r", "OK", "NS", "OK"))
    assert machine.accelerators == ("gpu0", "gpu1", "gpu2")
    assert machine.graph.graph["no_peer_pairs"] == [["gpu0", "gpu2"]]
    assert machine.graph.number_of_edges() == 0
    assert "only peer access is stated" in notes(machine)


def test_pcie_matrix_beside_the_usual_one() -> None:
    # -mp leaves NVLink out, so both together tell what it hides.
    usual = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tNODE\nGPU1\tNV4\tX\tNODE\nGPU2\tNODE\tNODE\tX\n"
    pcie = usual.replace("NV4", "PIX")
    for text in (usual + LEGEND + pcie, pcie + LEGEND + usual):
        machine = read(text)
        assert class_of(machine, "gpu0", "gpu1") == "NVL"
        assert len(of_kind(machine, NodeKind.PCIE_SWITCH)) == 1
        assert "hides" not in notes(machine)


def test_another_machine_in_the_same_file() -> None:
    other = TRIPLE.replace("PIX", "SYS")
    machine = read(TRIPLE + LEGEND + other)
    assert class_of(machine, "gpu0", "gpu1") == "PIX"
    assert "not of the same machine" in notes(machine)
    assert same_machine(read(TRIPLE + LEGEND + TRIPLE), read(TRIPLE))


def test_nvlink_counts() -> None:
    machine = read(TRIPLE)
    data = machine.graph.edges["gpu0", "gpu2", "gpu0->gpu2"]
    assert (data["kind"], data["count"], data["nominal_Bps"]) == (LinkKind.NVLINK, 4, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ERROR: Option -m is missing its value. Please run 'nvidia-smi -h' for help.",
            "message, not an output",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "driver did not answer",
        ),
        ("No devices were found", "found no device"),
        ("bash: nvidia-smi: command not found", "not installed"),
        ("Usage: xpu-smi topology [Options]\n  xpu-smi topology -m\n", "printed its help"),
    ],
)
def test_error_messages_of_tools(text: str, message: str) -> None:
    for how in (None, "nvidia-topo"):
        with pytest.raises(FormatError, match=message) as caught:
            parse_any(text, file="topo.txt", kind=how)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("topo.txt:1: ")


@pytest.mark.parametrize(
    "text", ["", "\n", "GPU0\n", "hello", "GPU0 PIX SYS", "GPU0\tPIX", "X  = Self", "GPU0 X\0"]
)
def test_no_matrix(text: str) -> None:
    assert not find_blocks(text, file="x")
    assert not looks_like_topo_matrix(text)
    with pytest.raises(FormatError, match="has no row"):
        read(text)


def test_too_many_devices() -> None:
    text = "\t" + "\t".join(f"GPU{k}" for k in range(300)) + "\nGPU0\tX\n"
    with pytest.raises(FormatError, match="300 devices"):
        read(text)


def test_rows_that_lost_their_blanks() -> None:
    text = (
        "GPU0GPU1GPU2CPU AffinityNUMA AffinityGPU NUMA ID\n"
        "GPU0XNV12NODE0-310N/A\nGPU1NV12XNODE0-310N/A\nGPU2NODENODEX0-310N/A\n"
    )
    topology = parse_topo_matrix(text, file="x")
    assert topology.graph.graph["stated_classes"] == [
        ["gpu0", "gpu1", "NVL"],
        ["gpu0", "gpu2", "NODE"],
        ["gpu1", "gpu2", "NODE"],
    ]
    (count,) = {d["count"] for *_, d in topology.graph.edges(data=True) if d.get("count")}
    assert count == 12
    assert not any("cpu_list" in d for _, d in topology.graph.nodes(data=True))

"""Damaged and hostile files for the readers of matrices and lists: only our own errors come out."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import TopocalError
from topocal.topo.readers.reader import MAX_LINE_CHARACTERS, decode_text
from topocal.topo.readers.registry import READERS
from topocal.topo.resource import PathClass
from topocal.topo.topology import Topology

OURS = (
    "nvidia-topo",
    "xpu-smi",
    "xpu-smi-device",
    "amd-smi",
    "rocm-showtopo",
    "transferbench-topology",
    "nvidia-query",
    "nvidia-list",
    "numactl",
    "lscpu",
)
BY_NAME = {reader.name: reader for reader in READERS}

TEXTS = {
    "nvidia-topo": (
        "$ nvidia-smi topo -m\n"
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\tSYS\tPIX\t0-7,16-23\t0\t\tN/A\n"
        "GPU1\tNV4\t X \tSYS\tPXB\t0-7,16-23\t0\t\tN/A\n"
        "GPU2\tSYS\tSYS\t X \tSYS\t8-15\t1\t\t2\n"
        "NIC0\tPIX\tPXB\tSYS\t X \t\t\n\nLegend:\n\n  X    = Self\n\n"
        "NIC Legend:\n\n  NIC0: mlx5_0\n"
        "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tNS\n GPU1\tOK\tX\tNS\n"
    ),
    "xpu-smi": (
        "         GPU 0/0|GPU 0/1|GPU 1/0|CPU Affinity\n"
        "GPU 0/0 |S      |MDF    |XL16   |0-3\nGPU 0/1 |MDF    |S      |XL*    |0-3\n"
        "GPU 1/0 |XL16   |XL*    |S      |4-7\n"
    ),
    "xpu-smi-device": (
        "| Device ID | Topology Information |\n| 0 | Local CPU List: 0-3 |\n"
        "| | PCIe Switch Count: 1 |\n| | PCIe Switch: /sys/devices/pci0000:4a/0000:4a:02.0 |\n"
        "| | /0000:4c:01.0 |\n"
    ),
    "amd-smi": json.dumps(
        [
            {
                "gpu": a,
                "bdf": f"0000:0{a}:00.0",
                "links": [
                    {
                        "gpu": b,
                        "weight": 15,
                        "link_status": "ENABLED",
                        "link_type": "XGMI",
                        "num_hops": 1,
                        "bandwidth": "64000-64000",
                    }
                    for b in range(2)
                ],
            }
            for a in range(2)
        ]
    ),
    "rocm-showtopo": (
        "=== Weight between two GPUs ===\n       GPU0   GPU1\nGPU0   0      30\nGPU1   30     0\n\n"
        "=== Link Type between two GPUs ===\n       GPU0   GPU1\nGPU0   0      XGMI\n"
        "GPU1   XGMI   0\n\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 0\n"
        "GPU[1]\t\t: (Topology) Numa Affinity: 1\n"
    ),
    "transferbench-topology": (
        " | GPU 00 | GPU 01 | PCIe Bus ID  | #CUs | NUMA | DMA engines\n"
        "---+---+---+---+---+---+---\n"
        " GPU 00 |    -   | PCIE-2 | 0000:0c:00.0 |  304 | 0    |0,1\n"
        " GPU 01 | PCIE-2 |    -   | 0000:22:00.0 |  304 | 1    |0,1\n\n"
        " NIC | Device Name | PCIe Bus ID | NUMA\n---+---+---+---\n 0 | mlx5_0 | 0000:0d:00.0 | 0\n"
    ),
    "nvidia-query": (
        "GPU 00000000:17:00.0\n    Product Name : A\n        GPU Link Info\n"
        "            PCIe Generation\n                Max : 4\n                Current : 1\n"
        "            Link Width\n                Max : 16x\n                Current : 8x\n"
    ),
    "nvidia-list": (
        "GPU 0: A (UUID: G)\n  MIG 1g.5gb     Device  0: (UUID: M)\n\t Link 0: 25 GB/s\n"
        "\t Link 1: <inactive>\nGPU 1: B (UUID: H)\n"
    ),
    "numactl": (
        "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 5 MB\nnode 1 cpus: 2 3\n"
        "node distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n"
    ),
    "lscpu": "NUMA node(s):  2\nNUMA node0 CPU(s):  0-3\nNUMA node1 CPU(s):  4-7\n",
}
WORDS = [
    "GPU0", "GPU1", "GPU9999", "GPU 0/0", "NIC0", "X", "SYS", "NV18", "NV999", "PIX", "OK", "NS",
    "XL*", "XL999", "XGMI", "N/A", "0-1", "5-2", "-1", "9" * 30, "\t", "|", "\x1b[4m", "{", "}",
    "[", "]", '"', ":", "²", "٣", "0000:0c:00.0", "True", "null", "1e999", "\n", " ", "",
]  # fmt: skip


def test_texts_are_of_their_kinds() -> None:
    assert set(TEXTS) == set(OURS)
    for name, text in TEXTS.items():
        assert BY_NAME[name].looks_like(text)
        assert BY_NAME[name].parse(text, file="x").endpoints


def parsed(name: str, text: str) -> Topology | None:
    """The topology, or nothing after an error of ours that fits in a line and names the file."""
    message = ""
    try:
        return BY_NAME[name].parse(text, file="x")
    except TopocalError as error:
        message = str(error)
    assert "\n" not in message
    assert message.startswith("x")
    return None


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A kind, and a text of it after a few mishaps."""
    name = draw(st.sampled_from(OURS))
    text = TEXTS[name]
    for _ in range(draw(st.integers(1, 5))):
        a = draw(st.integers(0, max(0, len(text) - 1)))
        b = min(len(text), a + draw(st.integers(0, 30)))
        what = draw(st.integers(0, 6))
        if what == 0:
            text = text[:a]
        elif what == 1:
            text = text[:a] + text[b:]
        elif what == 2:
            text = text[:a] + draw(st.sampled_from(WORDS)) + text[b:]
        elif what == 3:
            text = text[:a] + text[a:b] * draw(st.integers(2, 20)) + text[b:]
        elif what == 4:
            text = text.replace(draw(st.sampled_from(WORDS[:-1])), draw(st.sampled_from(WORDS)))
        elif what == 5:
            text = "\n".join(draw(st.permutations(text.split("\n")[:30])))
        else:
            text += "\n" + TEXTS[draw(st.sampled_from(OURS))]
    return name, text


@settings(deadline=None, max_examples=150)
@given(damaged())
def test_only_our_own_errors(case: tuple[str, str]) -> None:
    name, text = case
    for reader in (BY_NAME[n] for n in OURS):
        reader.looks_like(text)
    topology = parsed(name, text)
    if topology is None:
        return
    routes = topology.routes(topology.endpoints)
    for a, b, stated in topology.graph.graph["stated_classes"]:
        for source, destination in ((a, b), (b, a)):
            at = routes.position[source], routes.position[destination]
            assert PathClass(int(routes.path_class[at])).name == stated


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet=st.sampled_from('GPUX0 19\t\n|:-/SYPIN[]{}",=²'), max_size=300))
def test_noise(text: str) -> None:
    for name in OURS:
        BY_NAME[name].looks_like(text)
        parsed(name, text)


LONG = MAX_LINE_CHARACTERS - 1_000
HOSTILE = """
def fill(part, length):
    return part * (length // len(part))

line, all = {line}, 4 * 2**20
shapes = [
    fill("GPU0 X\\n", all),
    fill("GPU0 X\\nfoo\\n", all),
    fill("GPU0 " + fill("SYS ", line) + "\\n", all),
    fill("GPU0" + fill("\\tSYS", line) + "\\n", all),
    fill("GPU0 X " + fill("NV1", line) + "\\n", all),
    fill(fill("GPU0 ", line) + "\\n", all) + "GPU0 X\\n",
    fill("[" * line + "\\n", all),
    fill("|" * line + "\\n", all),
    fill("\\x1b[" + "1;" * (line // 2) + "\\n", all),
    fill("GPU 0/0 " + fill("S ", line) + "\\n", all),
    "Weight between two GPUs\\n" + fill("GPU0 " + fill("0 ", line) + "\\n", all),
    "WEIGHT TABLE:\\n" + fill(fill("0000:00:00.0 ", line) + "\\n", all),
    "| 0 | Local CPU List: 0\\n" + fill("| | PCIe Switch: /pci0000:00/0000:01:00.0\\n", all),
    " | GPU 00 | PCIe Bus ID\\n--+--\\n" + fill("GPU 00 | - | x\\n", all),
    "GPU 0: a (UUID: b)\\n" + fill(" Link 0: 25 GB/s\\n", all),
    fill("GPU 0: " + " " * line + "\\n", all),
    fill("GPU Link Info\\nPCIe Generation\\nMax : 4\\n", all),
    "available: 2 nodes\\n" + fill("node 0 cpus: " + fill("0 1 ", line) + "\\n", all),
    "NUMA node(s): 5\\n" + fill("NUMA node0 CPU(s): " + fill("0,", line) + "0\\n", all),
    "[" * line, '{{"link_type":' + "[" * line, '{{"topo_list":' + "[" * line,
]
"""


@pytest.mark.heavy
def test_hostile_shapes_end_soon_and_small() -> None:
    """Each of the shapes, by every reader, within processor time and memory that a process has."""
    script = textwrap.dedent(
        """
        import resource
        from topocal.topo.errors import TopocalError
        from topocal.topo.readers.reader import decode_text
        from topocal.topo.readers.registry import READERS
        for shape in shapes:
            try:
                text = decode_text(shape.encode(), file="x")
            except TopocalError:
                continue
            for reader in READERS:
                if reader.name in OURS and (reader.looks_like(text) or reader.name == OURS[0]):
                    try:
                        reader.parse(text, file="x")
                    except TopocalError as error:
                        assert chr(10) not in str(error)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        """
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
        # Time that grows with the square of a line would be hours.
        resource.setrlimit(resource.RLIMIT_CPU, (1200, 1200))

    program = f"OURS = {OURS!r}\n" + HOSTILE.format(line=LONG) + script
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) < 1024


def test_a_line_of_a_million_columns() -> None:
    text = "GPU0\t" + "SYS\t" * 10**6
    with pytest.raises(TopocalError, match="has a line of 4000005 characters"):
        decode_text(text.encode(), file="x")
    # Within what is read at all, the columns still end in one line.
    with pytest.raises(TopocalError, match="has no row"):
        BY_NAME["nvidia-topo"].parse(text[:LONG], file="x")

"""A topology from a matrix of path classes: its routes have the classes of the matrix.

Machines are made up at random as trees, printed as ``nvidia-smi topo -m`` prints
them, and read back.  Odd matrices, which no tree gives, are made up letter by letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.readers.topo_matrix import parse_topo_matrix
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

MACHINES = settings(deadline=None, max_examples=150)


@dataclass(frozen=True)
class Machine:
    """Devices by where they stand: socket, host bridge, upper switch, lower switch.

    ``numa`` and ``nvlink`` say which columns and links the tool prints.
    """

    places: tuple[tuple[int, int, int, int], ...]
    gpus: int
    columns: str
    nvlink: frozenset[tuple[int, int]]

    def name(self, k: int) -> str:
        return f"GPU{k}" if k < self.gpus else f"NIC{k - self.gpus}"

    def id(self, k: int) -> str:
        return self.name(k).lower()

    def letter(self, a: int, b: int) -> str:
        if (min(a, b), max(a, b)) in self.nvlink:
            return "NV4"
        for depth, letter in ((4, "PIX"), (3, "PXB"), (2, "PHB"), (1, "NODE")):
            if self.places[a][:depth] == self.places[b][:depth]:
                return letter
        return "SYS"

    def print(self) -> str:
        n = len(self.places)
        lines = ["\t" + "\t".join(map(self.name, range(n))) + "\tCPU Affinity\tNUMA Affinity"]
        for a in range(n):
            cells = [" X " if a == b else self.letter(a, b) for b in range(n)]
            socket = self.places[a][0]
            cpus = f"{8 * socket}-{8 * socket + 7}" if "cpu" in self.columns else ""
            numa = str(socket) if "numa" in self.columns else ""
            tail = f"\t{cpus}\t{numa}" if a < self.gpus else "\t\t"
            lines.append(self.name(a) + "\t" + "\t".join(cells) + tail)
        return "\n".join(lines) + "\n"


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    place = st.tuples(*(st.integers(0, most) for most in (2, 2, 1, 1)))
    places = tuple(draw(st.lists(place, min_size=2, max_size=10)))
    gpus = draw(st.integers(1, len(places)))
    pairs = list(combinations(range(gpus), 2))
    nvlink = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    columns = draw(st.sampled_from(["", "cpu", "numa", "cpu numa"]))
    return Machine(places, gpus, columns, frozenset(nvlink))


def read(text: str) -> Topology:
    return parse_topo_matrix(text, file="topo.txt")


def routed(topology: Topology) -> dict[tuple[str, str], str]:
    return {(a, b): c.name for a, b, c in topology.routes(topology.endpoints).classes()}


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


@MACHINES
@given(machines())
def test_routes_have_the_classes_of_the_matrix(machine: Machine) -> None:
    topology = read(machine.print())
    found = routed(topology)
    for a, b in combinations(range(len(machine.places)), 2):
        letter = machine.letter(a, b)
        expected = "NVL" if letter == "NV4" else letter
        assert found[machine.id(a), machine.id(b)] == expected
        assert found[machine.id(b), machine.id(a)] == expected
    # A tree gave the matrix, so a tree explains it: no class is kept beside the tree.
    assert topology.graph.graph["class_overrides"] == []
    assert "no PCIe tree" not in notes(topology)


@MACHINES
@given(machines())
def test_every_gpu_reaches_its_socket(machine: Machine) -> None:
    topology = read(machine.print())
    sockets = [topology.graph.nodes[s] for s in of_kind(topology, NodeKind.SOCKET)]
    used = {machine.places[k][0] for k in range(machine.gpus)}
    if "numa" in machine.columns:
        assert {s["numa"] for s in sockets} == used
    elif machine.columns:
        assert len(sockets) == len(used)
    for k in range(machine.gpus):
        links = topology.graph.out_edges(machine.id(k), data="kind")
        assert any(kind is LinkKind.PCIE for _, _, kind in links)
    assert topology_from_document(topology_to_document(topology), file="x") == topology


@st.composite
def odd_matrices(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    n = draw(st.integers(2, 8))
    letters = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV1", "NV18"])
    cells = [["X"] * n for _ in range(n)]
    for a, b in combinations(range(n), 2):
        cells[a][b] = cells[b][a] = draw(letters)
    numa = [draw(st.sampled_from(["0", "1", "0-1", "N/A"])) for _ in range(n)]
    names = [f"GPU{k}" for k in range(n)]
    lines = ["\t".join(["", *names, "NUMA Affinity"])]
    lines += [
        "\t".join([name, *row, near]) for name, row, near in zip(names, cells, numa, strict=True)
    ]
    return cells, "\n".join(lines)


@MACHINES
@given(odd_matrices())
def test_odd_matrices_keep_their_classes(case: tuple[list[list[str]], str]) -> None:
    cells, text = case
    topology = read(text)
    found = routed(topology)
    for a, row in enumerate(cells):
        for b, cell in enumerate(row):
            if a != b:
                expected = "NVL" if cell.startswith("NV") else cell
                assert found[f"gpu{a}", f"gpu{b}"] == expected
    again = topology_from_document(topology_to_document(topology), file="x")
    assert routed(again) == found
    overrides = topology.graph.graph["class_overrides"]
    assert bool(overrides) == ("keep the class that the file states" in notes(topology))
    assert all([b, a, c] in overrides for a, b, c in overrides)


def matrix(letters: dict[tuple[int, int], str], n: int, default: str, tails: list[str]) -> str:
    lines = ["\t" + "\t".join(f"GPU{k}" for k in range(n)) + "\tNUMA Affinity"]
    for a in range(n):
        row = ["X" if a == b else letters.get((min(a, b), max(a, b)), default) for b in range(n)]
        lines.append(f"GPU{a}\t" + "\t".join(row) + "\t" + tails[a])
    return "\n".join(lines)


def test_chained_switches() -> None:
    # PXB: 0 and 1 under one switch, 2 alone; both under one above.  3 is a PHB away.
    letters = {(0, 1): "PIX", (0, 2): "PXB", (1, 2): "PXB"}
    topology = read(matrix(letters, 4, "PHB", ["0"] * 4))
    assert len(of_kind(topology, NodeKind.PCIE_SWITCH)) == 3
    assert of_kind(topology, NodeKind.HOST_BRIDGE) == []
    routes = topology.routes()
    assert len(routes.route("gpu0", "gpu1")) == 2
    assert len(routes.route("gpu0", "gpu2")) == 4
    # Both ways to gpu3 go over the one uplink of the upper switch.
    shared = set(routes.route("gpu0", "gpu3")) & set(routes.route("gpu2", "gpu3"))
    assert shared - set(routes.route("gpu0", "gpu2"))


def test_all_sys_on_one_socket() -> None:
    topology = read(matrix({}, 4, "SYS", ["0", "0", "1", "1"]))
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert set(routed(topology).values()) == {"SYS"}
    assert "share a NUMA node or CPU list" in notes(topology)
    assert topology.graph.graph["class_overrides"] == []


def test_node_between_numa_nodes() -> None:
    # The letters hide the socket hop; routes cross it and keep the letter.
    topology = read(matrix({}, 2, "NODE", ["0", "1"]))
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert routed(topology)["gpu0", "gpu1"] == "NODE"
    kinds = {topology.links[k].kind for k in topology.routes().route("gpu0", "gpu1")}
    assert LinkKind.SMP in kinds
    assert "hides the socket hop" in notes(topology)


@pytest.mark.parametrize(
    ("n", "count", "switched"),
    [
        (2, 12, False),  # a bridge
        (4, 4, False),  # 4 x A100: 3 peers with 4 of 12 links each
        (4, 6, False),  # 4 x H100: 3 peers with 6 of 18 links each
        (4, 12, True),  # 36 links would be needed
        (8, 12, True),  # HGX A100
        (8, 18, True),  # HGX H100
        (16, 6, True),  # DGX-2
        (8, 2, False),  # 14 of 18 links: a mesh could do it
    ],
)
def test_nvswitch(n: int, count: int, switched: bool) -> None:
    topology = read(matrix({}, n, f"NV{count}", ["0"] * n))
    switches = of_kind(topology, NodeKind.NVSWITCH)
    assert switches == (["nvswitch0"] if switched else [])
    links = [
        data for _, _, data in topology.graph.edges(data=True) if data["kind"] is LinkKind.NVLINK
    ]
    assert len(links) == (2 * n if switched else n * (n - 1))
    assert {data["count"] for data in links} == {count}
    assert set(routed(topology).values()) == {"NVL"}


def test_a_gpu_that_lost_its_nvlinks() -> None:
    letters = {(a, 2): "NODE" for a in range(2)} | {(2, b): "NODE" for b in range(3, 8)}
    topology = read(matrix(letters, 8, "NV18", ["0"] * 8))
    assert of_kind(topology, NodeKind.NVSWITCH) == ["nvswitch0"]
    joined = {a for a, b in topology.graph.edges() if b == "nvswitch0"}
    assert joined == {f"gpu{k}" for k in range(8) if k != 2}
    found = routed(topology)
    assert found["gpu2", "gpu5"] == "NODE"
    assert found["gpu0", "gpu7"] == "NVL"
    assert "gpu2 has no NVLink while 7 other GPUs have" in notes(topology)


def test_two_islands_of_nvlink() -> None:
    # NVSwitch in each half: two switch nodes, not one.
    letters = {(a, b): "NV12" for half in (range(4), range(4, 8)) for a, b in combinations(half, 2)}
    topology = read(matrix(letters, 8, "SYS", ["0"] * 4 + ["1"] * 4))
    assert of_kind(topology, NodeKind.NVSWITCH) == ["nvswitch0", "nvswitch1"]


def test_hybrid_cube_mesh_has_direct_links() -> None:
    # DGX-1: every GPU has four peers and six links; the counts differ.
    letters = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1"}
    topology = read(matrix(letters, 4, "NV2", ["0"] * 4))
    assert of_kind(topology, NodeKind.NVSWITCH) == []
    assert topology.graph.edges["gpu0", "gpu3", "gpu0->gpu3"]["count"] == 2
    assert topology.graph.edges["gpu0", "gpu2", "gpu0->gpu2"]["count"] == 1


def test_nvlink_hides_pcie_and_nics_tell_it() -> None:
    # GPU0 and GPU1 each share a switch with a NIC; how far the GPUs are apart, NICs tell.
    text = (
        "\tGPU0\tGPU1\tNIC0\tNIC1\tNUMA Affinity\n"
        "GPU0\tX\tNV12\tPIX\tNODE\t0\n"
        "GPU1\tNV12\tX\tNODE\tPIX\t0\n"
        "NIC0\tPIX\tNODE\tX\tNODE\t\n"
        "NIC1\tNODE\tPIX\tNODE\tX\t\n"
    )
    topology = read(text)
    assert len(of_kind(topology, NodeKind.PCIE_SWITCH)) == 2
    assert len(of_kind(topology, NodeKind.HOST_BRIDGE)) == 2
    assert "hides how far apart" in notes(topology)
    stated = [pair[:2] for pair in topology.graph.graph["stated_classes"]]
    assert stated == sorted(stated)
    assert len(stated) == 6


def test_coherent_gpu_hangs_on_its_processor() -> None:
    text = (
        "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tSYS\t0-71\t0\t\t1\n"
        "NIC0\tSYS\t X \t\t\t\t\n"
    )
    topology = read(text)
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0"]
    assert topology.graph.edges["gpu0", "socket0", "gpu0->socket0"]["kind"] is LinkKind.C2C
    assert routed(topology)["gpu0", "nic0"] == "SYS"
    assert "chip-to-chip" in notes(topology)


def test_far_nic_is_joined_to_every_socket() -> None:
    text = (
        "\tGPU0\tGPU1\tNIC0\tNUMA Affinity\n"
        "GPU0\tX\tSYS\tSYS\t0\nGPU1\tSYS\tX\tSYS\t1\nNIC0\tSYS\tSYS\tX\t\n"
    )
    topology = read(text)
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert "does not tell the socket of nic0" in notes(topology)
    hops = [len(topology.routes(topology.endpoints).route(g, "nic0")) for g in ("gpu0", "gpu1")]
    assert hops[0] == hops[1]


def test_class_overrides_are_symmetric_in_the_routes() -> None:
    # 0-1 and 1-2 share a switch, 0-2 do not: no tree.
    topology = read(matrix({(0, 1): "PIX", (1, 2): "PIX"}, 3, "SYS", [""] * 3))
    found = routed(topology)
    assert (found["gpu0", "gpu1"], found["gpu2", "gpu0"]) == ("PIX", "SYS")
    assert topology.graph.graph["class_overrides"] == [
        ["gpu0", "gpu2", "SYS"],
        ["gpu2", "gpu0", "SYS"],
    ]
    assert "fit no PCIe tree (gpu0-gpu2 SYS, others make it PIX)" in notes(topology)
    classes = {PathClass(int(c)).name for c in topology.routes().path_class.flat}
    assert classes == {"LOC", "PIX", "SYS"}

"""NCCL's topology XML: every public case gives what its case.md says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.readers.registry import read_any, sniff
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology
from topocal.topo.view import View

CASES = Path(__file__).parents[1].parent / "shared" / "cases"


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def kinds(topology: Topology) -> dict[str, int]:
    return {str(k): n for k, n in Counter(k for _, k in topology.graph.nodes(data="kind")).items()}


def below(topology: Topology, place: str) -> set[str]:
    """Endpoints whose way up passes a switch or socket."""
    above = View(topology, "t").above
    found = set()
    for endpoint in topology.endpoints:
        node = endpoint
        while node in above:
            node = above[node][0]
            if node == place:
                found.add(endpoint)
    return found


def gpu_classes(topology: Topology) -> dict[str, int]:
    """Unordered pairs of GPUs by path class."""
    found = Counter(c.name for a, b, c in topology.routes(topology.accelerators).classes() if a < b)
    return dict(found)


# (file, GPUs by NUMA node, NICs, switches, GPU pairs by class).
TABLE = [
    ("xml-aws-p4d-p4de/topo-p4d.xml", {0: 4, 1: 4}, 4, 4, {"PIX": 4, "PHB": 8, "SYS": 16}),
    ("xml-aws-p4d-p4de/topo-p4de.xml", {0: 4, 1: 4}, 4, 4, {"PIX": 4, "PHB": 8, "SYS": 16}),
    ("xml-aws-p5-two-versions/topo-2023.xml", {}, 32, 8, {}),
    ("xml-aws-p5-two-versions/topo-2026.xml", {0: 8}, 32, 8, {"PHB": 28}),
    ("xml-azure-ndv2/topo.xml", {0: 4, 1: 4}, 1, 0, {"PHB": 12, "SYS": 16}),
    ("xml-azure-ndv5/topo.xml", {0: 4, 1: 4}, 8, 8, {"PHB": 12, "SYS": 16}),
    (
        "xml-oci-a100-flattened/topo-b4-milan.xml",
        {3: 2, 1: 2, 7: 2, 5: 2},
        8,
        4,
        {"PIX": 4, "SYS": 24},
    ),
    (
        "xml-oci-a100-flattened/topo-b4-rome.xml",
        {3: 2, 1: 2, 7: 2, 5: 2},
        8,
        4,
        {"PIX": 4, "SYS": 24},
    ),
    ("xml-rccl-mi300x/topo-baremetal.xml", {0: 4, 1: 4}, 8, 24, {"NVL": 28}),
    ("xml-rccl-mi300x/topo-vm.xml", {0: 4, 1: 4}, 8, 0, {"NVL": 28}),
    ("xml-rccl-pcie-only/topo-3p.xml", {0: 1, 1: 2}, 1, 3, {"PHB": 1, "SYS": 2}),
    ("xml-rccl-pcie-only/topo-3p-alt.xml", {0: 1, 1: 2}, 1, 3, {"PHB": 1, "SYS": 2}),
    ("xml-rccl-pcie-only/topo-8p.xml", {0: 8}, 1, 10, {"PXB": 12, "PHB": 16}),
    # 120 pairs: 24 within hives; 8 + 8 leaves per trunk give 2 x 28 pairs below one trunk.
    ("xml-rccl-pcie-only/topo-4hives.xml", {1: 16}, 16, 20, {"NVL": 24, "PXB": 32, "PHB": 64}),
    ("xml-user-a100-bonded-nic/topo-1gpu.xml", {0: 1}, 2, 5, {}),
    ("xml-user-a100-bonded-nic/topo-4gpu.xml", {0: 4}, 3, 10, {"NVL": 6}),
    ("xml-user-a100-bonded-nic/topo-8gpu.xml", {0: 4, 1: 4}, 5, 20, {"NVL": 28}),
]


def case(name: str) -> Topology:
    path = CASES / name
    if not path.exists():
        pytest.skip("the public cases are not here")
    return read_any(path)


@pytest.mark.parametrize(("name", "gpus", "nics", "switches", "classes"), TABLE)
def test_every_public_case(
    name: str, gpus: dict[int, int], nics: int, switches: int, classes: dict[str, int]
) -> None:
    topology = case(name)
    assert sniff((CASES / name).read_text(), file=name).name == "nccl-xml"
    numas = Counter(topology.graph.nodes[g]["numa"] for g in topology.accelerators)
    assert numas == gpus
    found = kinds(topology)
    assert (found.get("nic", 0), found.get("pcie-switch", 0)) == (nics, switches)
    assert gpu_classes(topology) == classes
    # Every pair of endpoints has a route, there and back, of the same class.
    routes = topology.routes(topology.endpoints)
    assert not (routes.path_class == PathClass.DIS).any()
    assert (routes.path_class == routes.path_class.T).all()
    document = topology_to_document(topology)
    assert topology_from_document(document, file="t") == topology


def uplink(topology: Topology, node: str) -> tuple[object, object]:
    link = View(topology, "t").uplink[node]
    return link.get("generation"), link.get("width")


def buses(topology: Topology, nodes: set[str]) -> set[str]:
    """Bus numbers of nodes."""
    return {topology.graph.nodes[n]["bus_id"].split(":")[1] for n in nodes}


def switches(topology: Topology) -> list[str]:
    return View(topology, "t").of_kind(NodeKind.PCIE_SWITCH)


@pytest.mark.parametrize("name", ["topo-p4d.xml", "topo-p4de.xml"])
def test_p4d(name: str) -> None:
    topology = case(f"xml-aws-p4d-p4de/{name}")
    graph = topology.graph
    for switch in switches(topology):
        slots = sorted(graph.nodes[n]["bus_id"][-4:] for n in below(topology, switch))
        assert slots == ["1b.0", "1c.0", "1d.0"]
        # Two A100 and a NIC share one uplink that the file caps at Gen3.
        assert uplink(topology, switch) == (3, 16)
    assert graph.nodes["socket0"]["cpu_list"] == "0-23,48-71"
    assert graph.nodes["socket1"]["cpu_list"] == "24-47,72-95"
    assert (
        graph.nodes["gpu0"]["device"] == {"topo-p4d.xml": "0x20b0", "topo-p4de.xml": "0x20b2"}[name]
    )


def test_p5() -> None:
    old = case("xml-aws-p5-two-versions/topo-2023.xml")
    assert Counter(old.graph.nodes[s]["numa"] for s in switches(old)) == {0: 4, 1: 4}
    assert all(len(below(old, s)) == 4 for s in switches(old))
    assert {uplink(old, n) for n in old.endpoints} == {(5, 16)}
    assert {uplink(old, s) for s in switches(old)} == {(None, None)}
    assert buses(old, below(old, "pcie:0000:45:00.0")) == {"4f", "50", "51", "52"}
    assert "the file lists no GPU" in notes(old)
    new = case("xml-aws-p5-two-versions/topo-2026.xml")
    for switch in switches(new):
        group = below(new, switch)
        assert sum(n.startswith("gpu") for n in group) == 1
        # Four times 100 Gb/s behind one uplink.
        assert sum(new.graph.nodes[n].get("network_Bps", 0) for n in group) == 50e9
        assert uplink(new, switch) == (4, 16)
    assert {uplink(new, g) for g in new.accelerators} == {(5, 16)}
    assert uplink(new, "nic0") == (4, 8)


def test_ndv2() -> None:
    topology = case("xml-azure-ndv2/topo.xml")
    assert topology.graph.nodes["socket0"]["cpu_list"] == "0-19"
    assert topology.graph.nodes["socket1"]["cpu_list"] == "20-39"
    assert topology.graph.nodes["nic0"]["numa"] == 0
    assert topology.graph.nodes["nic0"]["pci_class"] == "0x020700"
    # Nothing is known about switches, and the reader says so.
    assert "4 GPUs hang directly off socket0" in notes(topology)
    assert "unknown until it is measured" in notes(topology)


def test_ndv5() -> None:
    topology = case("xml-azure-ndv5/topo.xml")
    domains = [topology.graph.nodes[g]["bus_id"][:4] for g in topology.accelerators]
    assert domains == ["0001", "0002", "0003", "0008", "0009", "000a", "000b", "000c"]
    for k, switch in enumerate(switches(topology)):
        assert below(topology, switch) == {f"gpu{k}", f"nic{k}"}
        assert uplink(topology, switch) == (5, 16)
        assert "vendor" not in topology.graph.nodes[switch]


def test_oci() -> None:
    rome = case("xml-oci-a100-flattened/topo-b4-rome.xml")
    groups = {
        frozenset(buses(rome, {n for n in below(rome, s) if n.startswith("gpu")}))
        for s in switches(rome)
    }
    assert groups == {
        frozenset(g) for g in (("0f", "15"), ("51", "54"), ("8d", "92"), ("d6", "da"))
    }
    assert all(len(below(rome, s)) == 4 for s in switches(rome))
    milan = case("xml-oci-a100-flattened/topo-b4-milan.xml")
    assert milan.graph.nodes["socket3"]["cpu_list"] == "48-63,176-191"


@pytest.mark.parametrize("name", ["topo-baremetal.xml", "topo-vm.xml"])
def test_mi300x(name: str) -> None:
    topology = case(f"xml-rccl-mi300x/{name}")
    graph = topology.graph
    pairs = [(a, b, d) for a, b, d in graph.edges(data=True) if d["kind"] is LinkKind.XGMI]
    assert len(pairs) == 56
    assert {d["count"] for _, _, d in pairs} == {1}
    assert {d["nominal_Bps"] for _, _, d in pairs} == {64e9}
    # Each pair has its own link: no resource is on two routes.
    routes = topology.routes()
    used = Counter(
        resource
        for a in topology.accelerators
        for b in topology.accelerators
        if a != b
        for link in routes.route(a, b)
        for resource, _ in topology.links[link].uses
    )
    assert set(used.values()) == {1}
    assert {graph.nodes[n]["network_Bps"] for n in topology.endpoints if n[:3] == "nic"} == {50e9}
    if name == "topo-vm.xml":
        assert graph.nodes["gpu1"]["bus_id"] == "0021:00:00.0"
        assert graph.nodes["gpu1"]["rank"] == 0
    else:
        trunk = View(topology, "t").above["nic0"][0]
        assert below(topology, trunk) == {"gpu0", "nic0"}
        assert uplink(topology, trunk) == (5, 16)


def test_mi50_pcie() -> None:
    topology = case("xml-rccl-pcie-only/topo-8p.xml")
    first, second = "pcie:0000:18:00.0", "pcie:0000:3b:00.0"
    assert below(topology, first) == {"gpu0", "gpu1", "gpu2", "gpu3", "nic0"}
    assert below(topology, second) == {"gpu4", "gpu5", "gpu6", "gpu7"}
    assert uplink(topology, first) == uplink(topology, second) == (3, 16)
    assert {uplink(topology, g) for g in topology.accelerators} == {(4, 16)}


def test_mi210_and_the_one_nic() -> None:
    near = case("xml-rccl-pcie-only/topo-3p.xml"), case("xml-rccl-pcie-only/topo-3p-alt.xml")
    found = {}
    for topology in near:
        routes = topology.routes(topology.endpoints)
        i, j = routes.position["gpu0"], routes.position["nic0"]
        nic = topology.graph.nodes["nic0"]
        found[nic["bus_id"]] = (nic["numa"], PathClass(int(routes.path_class[i, j])).name)
    assert found == {"0000:41:00.0": (0, "PHB"), "0000:a1:00.0": (1, "SYS")}


def test_mi100_four_hives() -> None:
    topology = case("xml-rccl-pcie-only/topo-4hives.xml")
    graph = topology.graph
    leaves = [s for s in switches(topology) if len(below(topology, s)) == 2]
    assert len(leaves) == 16
    for leaf in leaves:
        assert {n[:3] for n in below(topology, leaf)} == {"gpu", "nic"}
        assert uplink(topology, leaf) == (3, 16)
    for trunk in ("pcie:0000:c1:00.0", "pcie:0000:e2:00.0"):
        assert len(below(topology, trunk)) == 16
        assert uplink(topology, trunk) == (4, 16)
    assert "8 bridges carry the same address 0000:c5:00.0" in notes(topology)
    hives = {}
    for a, b, d in graph.edges(data=True):
        if d["kind"] is LinkKind.XGMI:
            hives.setdefault(a, {a}).add(b)
    numbers = {frozenset(int(g[3:]) for g in hive) for hive in hives.values()}
    assert numbers == {
        frozenset(hive) for hive in ((0, 5, 6, 7), (1, 2, 3, 4), (8, 9, 10, 11), (12, 13, 14, 15))
    }


def test_bonded_nics_and_long_chains() -> None:
    topology = case("xml-user-a100-bonded-nic/topo-8gpu.xml")
    graph = topology.graph
    names = {graph.nodes[n]["net_names"][0]: n for n in topology.endpoints if n[:3] == "nic"}
    assert set(names) == {f"mlx5_bond_{k}" for k in range(5)}
    assert {graph.nodes[n]["network_Bps"] for n in names.values()} == {25e9}
    assert View(topology, "t").above[names["mlx5_bond_0"]][0] == "socket0"
    for bus, gpu, bond in (("15", 1, 1), ("49", 3, 2), ("8a", 5, 3), ("af", 7, 4)):
        assert below(topology, f"pcie:0000:{bus}:00.0") == {f"gpu{gpu}", names[f"mlx5_bond_{bond}"]}
    for bus, pair in (("0c", (0, 1)), ("41", (2, 3)), ("82", (4, 5)), ("a6", (6, 7))):
        gpus = {n for n in below(topology, f"pcie:0000:{bus}:00.0") if n.startswith("gpu")}
        assert gpus == {f"gpu{k}" for k in pair}
    assert len(graph.nodes["nvswitch0"]["bus_ids"]) == 6
    for gpu in topology.accelerators:
        link = graph.edges[gpu, "nvswitch0", f"{gpu}->nvswitch0"]
        assert (link["count"], link["nominal_Bps"]) == (12, 300e9)


def test_slices_of_a_dump_keep_the_switches_of_hidden_gpus() -> None:
    topology = case("xml-user-a100-bonded-nic/topo-1gpu.xml")
    assert topology.accelerators == ("gpu0",)
    assert below(topology, "pcie:0000:17:00.0") == set()
    assert below(topology, "pcie:0000:0c:00.0") == {"gpu0", "nic1"}

"""Published hwloc and lspci files (shared/cases): each reads, and gives what its case.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from topocal.topo.nominal import pcie_Bps
from topocal.topo.readers.reader import read_text
from topocal.topo.readers.registry import parse_any, read_any
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

REPO = Path(__file__).parents[1]
CASES = REPO.parent / "shared" / "cases"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="shared cases are not here")


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def path_class(topology: Topology, a: str, b: str) -> PathClass:
    return PathClass(int(topology.routes([a, b]).path_class[0, 1]))


def nominal(topology: Topology, a: str, b: str) -> float | None:
    return topology.links[f"{a}->{b}"].nominal_Bps


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def case(slug: str) -> Topology:
    return read_any(CASES / slug / "topo.hwloc.xml")


def test_case_dgx2() -> None:
    topology = case("hwloc-dgx2")
    assert len(topology.accelerators) == 16
    switches = of_kind(topology, NodeKind.NVSWITCH)
    assert sum(topology.graph.nodes[s]["count"] for s in switches) == 12
    boards = {
        "nvswitch0": {f"0000:{bus}:00.0" for bus in ("65", "61", "63", "67", "62", "66")},
        "nvswitch1": {f"0000:{bus}:00.0" for bus in ("c5", "c1", "c7", "c3", "c6", "c2")},
    }
    for k, gpu_id in enumerate(topology.accelerators):
        board = f"nvswitch{k // 8}"
        # 6 x 25 GB/s each way.
        assert nominal(topology, gpu_id, board) == nominal(topology, board, gpu_id) == 150e9
    for board, addresses in boards.items():
        assert set(topology.graph.nodes[board]["bus_ids"]) == addresses
    # No link between the boards is in the file: not zero, not PCIe, but not described.
    assert nominal(topology, "nvswitch0", "nvswitch1") is None
    assert path_class(topology, "gpu0", "gpu8") is PathClass.NVL
    assert "not described" in notes(topology)
    pcie = [
        link.nominal_Bps
        for link in topology.links.values()
        if link.kind is LinkKind.PCIE and link.head.startswith("gpu")
    ]
    assert pcie == [pytest.approx(pcie_Bps(3, 16))] * 16
    assert not any(link.nominal_Bps and link.nominal_Bps < 2e9 for link in topology.links.values())


def test_case_lassen() -> None:
    topology = case("hwloc-lassen-p9-4v100")
    assert topology.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")
    where = {g: topology.graph.nodes[g]["bus_id"] for g in topology.accelerators}
    assert list(where.values()) == [
        "0004:04:00.0",
        "0004:05:00.0",
        "0035:03:00.0",
        "0035:04:00.0",
    ]
    assert [topology.graph.nodes[g]["numa"] for g in topology.accelerators] == [0, 0, 8, 8]
    assert {topology.graph.nodes[s]["package"] for s in ("socket0", "socket8")} == {0, 8}
    infiniband = [
        n
        for n in of_kind(topology, NodeKind.NIC)
        if topology.graph.nodes[n]["pci_class"] == "0x020700"
    ]
    assert len(infiniband) == 4
    shared = {
        tuple(r for r, _ in topology.links[f"host-bridge:{bus}->{nic}"].uses)
        for bus, nics in (("0003:00", infiniband[:2]), ("0033:00", infiniband[2:]))
        for nic in nics
    }
    assert len(shared) == 2
    # Whatever leads from a GPU to its processor over PCIe has no known capacity.
    for g in topology.accelerators:
        numa = topology.graph.nodes[g]["numa"]
        route = topology.routes([g, f"memory{numa}"]).route(g, f"memory{numa}")
        assert all(topology.links[link].nominal_Bps is None for link in route)
    ethernet = [n for n in of_kind(topology, NodeKind.NIC) if n not in infiniband]
    rates = [topology.links[f"host-bridge:0005:00->{n}"].nominal_Bps for n in ethernet]
    assert rates == [pytest.approx(pcie_Bps(1, 4))] * 2
    assert path_class(topology, "gpu0", "gpu1") is PathClass.PIX
    assert path_class(topology, "gpu0", "gpu2") is PathClass.SYS
    assert "contradict each other" in notes(topology)


WRX90 = CASES / "lspci-wrx90-2gpu"


def together() -> Topology:
    names = ("lspci_tv.txt", "lspci_vvv.txt", "numactl.txt")
    return parse_any("\n".join(read_text(WRX90 / n) for n in names), file="paste.txt")


def check_wrx90_tree(topology: Topology) -> None:
    where = {
        n: topology.graph.nodes[n]["bus_id"]
        for n in topology.endpoints
        if "bus_id" in topology.graph.nodes[n]
    }
    assert [where[g] for g in topology.accelerators] == ["0000:c1:00.0", "0000:c2:00.0"]
    nics = {where[n]: n for n in of_kind(topology, NodeKind.NIC)}
    assert {"0000:21:00.0", "0000:21:00.1", "0000:14:00.0", "0000:14:00.1"} == set(nics)
    # Two root ports of one host bridge, and another host bridge for the NIC: no shared x16.
    assert path_class(topology, "gpu0", "gpu1") is PathClass.PHB
    assert path_class(topology, "gpu0", nics["0000:21:00.0"]) is PathClass.NODE
    assert not of_kind(topology, NodeKind.PCIE_SWITCH)


def test_case_wrx90_tree_alone() -> None:
    topology = read_any(WRX90 / "lspci_tv.txt")
    check_wrx90_tree(topology)
    assert all(link.nominal_Bps is None for link in topology.links.values())
    assert "link speeds are not shown" in notes(topology)


def test_case_wrx90_links_alone() -> None:
    topology = read_any(WRX90 / "lspci_vvv.txt")
    # Idle at 2.5 GT/s of 16 GT/s x16: the capacity is Gen4 x16, and the user is told.
    for gpu in ("gpu0", "gpu1"):
        assert nominal(topology, "socket0", gpu) == pytest.approx(pcie_Bps(4, 16))
    assert nominal(topology, "socket0", "nic0") == pytest.approx(pcie_Bps(5, 16))
    assert "gpu0, gpu1: its PCIe link reads Gen1 of Gen4: idle GPUs" in notes(topology)
    assert "nic0: its PCIe link" not in notes(topology)
    assert "what stands above them is not shown" in notes(topology)


def test_case_wrx90_one_paste() -> None:
    topology = together()
    check_wrx90_tree(topology)
    assert nominal(topology, "host-bridge:0000:c0", "gpu0") == pytest.approx(pcie_Bps(4, 16))
    # Both ports of the NIC share one Gen5 x16.
    assert nominal(topology, "host-bridge:0000:20", "nic2") == pytest.approx(pcie_Bps(5, 16))
    assert topology.links["host-bridge:0000:20->nic3"].uses == (
        topology.links["host-bridge:0000:20->nic2"].uses
    )
    assert topology.graph.nodes["socket0"]["cpu_list"] == "0-23"
    assert "which socket" not in notes(topology)

"""NCCL topology files: our own reader finds the same machine, and NCCL the fitted speeds."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError
from topocal.topo.exporters.figures import Figure, Figures, nominal_figures
from topocal.topo.exporters.nccl_speeds import (
    SPEED_TEXT,
    nccl_nvlink_Bps,
    nccl_pcie_Bps,
    nvlink_count,
    pcie_words,
)
from topocal.topo.exporters.nccl_xml import nccl_file, to_nccl
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.nominal import pcie_Bps
from topocal.topo.readers.nccl_xml import parse_nccl_xml
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
FILES = sorted(CASES.glob("xml-*/*.xml")) if CASES.is_dir() else []


def classes(topology: Topology, host: str = "") -> NDArray[np.int8]:
    """Path classes of all pairs of a host's GPUs; NCCL's PHB is also nvidia-smi's NODE."""
    names = tuple(name for name in topology.accelerators if name.startswith(host))
    found = topology.routes(names).path_class.reshape(len(names), len(names)).copy()
    found[found == PathClass.NODE] = PathClass.PHB
    return found


def read_back(text: str) -> Topology:
    return parse_nccl_xml(text, file="topo.xml")


@pytest.mark.parametrize("name", MACHINES)
def test_reference_machines_come_back_with_their_classes(name: str) -> None:
    topology = build_machine(name)
    hosts = {str(data["host"]) for _, data in topology.graph.nodes(data=True) if data.get("host")}
    host = min(hosts) if hosts else None
    back = read_back(to_nccl(topology, nominal_figures(topology), host=host))
    np.testing.assert_array_equal(classes(back), classes(topology, f"{host}/" if host else ""))


@pytest.mark.skipif(not FILES, reason="the published files are not here")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_published_files_come_back_with_their_classes(file: Path) -> None:
    topology = parse_nccl_xml(file.read_text(), file=file.name)
    if not topology.accelerators:
        pytest.skip("lists no GPU")
    text = to_nccl(topology, nominal_figures(topology))
    back = read_back(text)
    assert back.accelerators == topology.accelerators
    np.testing.assert_array_equal(classes(back), classes(topology))
    # Once more, and nothing changes.
    assert to_nccl(back, nominal_figures(back)).splitlines()[1:] == text.splitlines()[1:] or (
        "made up" in text
    )


def box() -> Topology:
    """Two GPUs behind a switch of one socket, and a third at another: all PCIe 4.0 x16."""
    build = TopologyBuilder("box")
    for k in range(2):
        build.node(f"socket{k}", NodeKind.SOCKET, numa=k, cpu_list=f"{32 * k}-{32 * k + 31}")
    build.connect("socket0", "socket1", LinkKind.SMP)
    build.node("pcie:0000:10:00.0", NodeKind.PCIE_SWITCH)
    x16 = {"nominal_Bps": pcie_Bps(4, 16), "generation": 4, "width": 16}
    build.connect("socket0", "pcie:0000:10:00.0", LinkKind.PCIE, **x16)
    for k, above in enumerate(["pcie:0000:10:00.0", "pcie:0000:10:00.0", "socket1"]):
        build.node(f"gpu{k}", NodeKind.GPU, index=k, bus_id=f"0000:{11 + k}:00.0", numa=k // 2)
        build.connect(above, f"gpu{k}", LinkKind.PCIE, **x16)
    return build.build()


def fitted(topology: Topology, **rates: float) -> Figures:
    """Nominal figures, and pinned ones for the links into and out of some nodes."""
    figures = nominal_figures(topology)
    for link in topology.links.values():
        for node, rate in rates.items():
            if node in (link.tail, link.head):
                figures[link.id] = Figure(capacity_Bps=rate, status="pinned")
    return figures


def pci(text: str) -> dict[str, dict[str, str]]:
    return {e.get("busid", ""): dict(e.attrib) for e in ET.fromstring(text).iter("pci")}


def test_a_box_by_hand() -> None:
    text = to_nccl(box(), nominal_figures(box()))
    root = ET.fromstring(text)
    assert [c.get("numaid") for c in root] == ["0", "1"]
    assert [c.get("affinity") for c in root] == ["ffffffff", "ffffffff,00000000"]
    assert [e.get("dev") for e in root.iter("gpu")] == ["0", "1", "2"]
    assert pci(text)["0000:11:00.0"] == {
        "busid": "0000:11:00.0",
        "class": "0x030200",
        "link_speed": "16.0 GT/s PCIe",
        "link_width": "16",
    }
    assert text.count('class="0x060400"') == 1


def test_fitted_speeds_are_words_that_nccl_reads_so() -> None:
    topology = box()
    text = to_nccl(topology, fitted(topology, gpu0=12e9, gpu1=26.9e9))
    found = pci(text)
    assert (found["0000:11:00.0"]["link_speed"], found["0000:11:00.0"]["link_width"]) == (
        "8.0 GT/s PCIe",
        "16",
    )
    generation = {v: k for k, v in SPEED_TEXT.items()}[found["0000:12:00.0"]["link_speed"]]
    width = int(found["0000:12:00.0"]["link_width"])
    assert nccl_pcie_Bps(generation, width) == pytest.approx(26.9e9, rel=0.01)


def test_fitted_speeds_come_back_in_full_both_ways() -> None:
    topology = box()
    figures = nominal_figures(topology)
    figures["pcie:0000:10:00.0->gpu0"] = Figure(capacity_Bps=25.123456789e9, status="pinned")
    figures["gpu0->pcie:0000:10:00.0"] = Figure(capacity_Bps=7.25e9, status="confounded")
    back = read_back(to_nccl(topology, figures))
    assert back.links["pcie:0000:10:00.0->gpu0"].nominal_Bps == 25.123456789e9
    assert back.links["gpu0->pcie:0000:10:00.0"].nominal_Bps == 7.25e9
    assert (
        "generation" not in back.graph.edges["pcie:0000:10:00.0", "gpu0", "pcie:0000:10:00.0->gpu0"]
    )
    assert back.links["socket1->gpu2"].nominal_Bps == pcie_Bps(4, 16)
    np.testing.assert_array_equal(classes(back), classes(topology))


@pytest.mark.parametrize(
    ("status", "rate", "speed"),
    [
        ("bounded", 5e9, "16.0 GT/s PCIe"),  # The specification is more: the bound says nothing.
        ("bounded", 48e9, "32.0 GT/s PCIe"),
        ("series", 5e9, "16.0 GT/s PCIe"),
        ("assumed", 28.8e9, "16.0 GT/s PCIe"),
        ("alike", 12e9, "8.0 GT/s PCIe"),
    ],
)
def test_what_a_capacity_rests_on_decides(status: str, rate: float, speed: str) -> None:
    topology = box()
    figures = {
        name: replace(figure, capacity_Bps=rate, status=status) if "gpu2" in name else figure
        for name, figure in nominal_figures(topology).items()
    }
    found = pci(to_nccl(topology, figures))["0000:13:00.0"]
    assert (found["link_speed"], found["link_width"]) == (speed, "16")


def test_what_nothing_says_is_left_out() -> None:
    build = TopologyBuilder("bare")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect("socket0", f"gpu{k}", LinkKind.PCIE)
    made = nccl_file(build.build(), nominal_figures(build.build()))
    assert all("link_speed" not in found for found in pci(made.text).values())
    assert any("made up" in note and "gpu0" in note for note in made.notes)
    assert len(pci(made.text)) == 2


def test_nvlinks_of_a_fitted_capacity() -> None:
    """17.5 links' worth of 20.6 GB/s each: NCCL can be told 17 or 18."""
    topology = build_machine("dgx-h100")
    figures = {
        name: replace(f, capacity_Bps=360e9, status="pinned") if "nvswitch" in name else f
        for name, f in nominal_figures(topology).items()
    }
    root = ET.fromstring(to_nccl(topology, figures))
    counts = {int(e.get("count", "0")) for e in root.iter("nvlink")}
    assert counts == {17}
    assert abs(nvlink_count(360e9, 90) * nccl_nvlink_Bps(90) - 360e9) <= nccl_nvlink_Bps(90) / 2


def test_like_gpus_have_one_count_of_nvlinks() -> None:
    """22.5 links of 20.6 GB/s among others of 22.1 are 22; what has a third less has 15."""
    topology = build_machine("dgx-h100")
    fitted = {"gpu0": 464.5e9, "gpu1": 445e9, "gpu2": 300e9}
    figures = {
        name: replace(f, capacity_Bps=fitted.get(name.partition("->")[0], 455e9), status="pinned")
        if "nvswitch" in name
        else f
        for name, f in nominal_figures(topology).items()
    }
    root = ET.fromstring(to_nccl(topology, figures))
    counts: dict[str, int] = {}
    for gpu in root.iter("pci"):
        for number, links in ((g.get("dev"), g.findall("nvlink")) for g in gpu.findall("gpu")):
            counts[str(number)] = sum(int(e.get("count", "0")) for e in links)
    assert counts == {"0": 22, "1": 22, "2": 15, **{str(k): 22 for k in range(3, 8)}}


def test_a_fitted_machine_comes_back_without_missing_links() -> None:
    topology = build_machine("dgx-h100")
    figures = {
        name: replace(f, capacity_Bps=450e9 + 1e9 * (sum(map(ord, name)) % 5), status="pinned")
        if "nvswitch" in name
        else f
        for name, f in nominal_figures(topology).items()
    }
    notes = parse_nccl_xml(to_nccl(topology, figures), file="topo.xml").graph.graph["notes"]
    assert not [note for note in notes if "NVLinks" in note]


@pytest.mark.parametrize(
    ("topology", "host", "what"),
    [
        (build_machine("h20-pair"), None, "2 hosts"),
        (build_machine("h20-pair"), "node9", "no host 'node9'"),
    ],
)
def test_a_host_that_is_not_told(topology: Topology, host: str | None, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        to_nccl(topology, nominal_figures(topology), host=host)
    assert "node0" in str(caught.value)


def test_machines_that_nccl_has_no_file_for() -> None:
    build = TopologyBuilder("nics")
    build.node("nic0", NodeKind.NIC)
    with pytest.raises(InputError, match="no GPU"):
        to_nccl(build.build(), {})
    build = TopologyBuilder("inferred")
    build.node("group0", NodeKind.GROUP)
    build.node("gpu0", NodeKind.GPU)
    build.connect("gpu0", "group0", LinkKind.UNKNOWN)
    with pytest.raises(InputError, match="timings"):
        to_nccl(build.build(), nominal_figures(build.build()))


def test_hostile_names_stay_in_their_attributes() -> None:
    build = TopologyBuilder('x --> <cpu numaid="7"/>')
    build.node("socket0", NodeKind.SOCKET)
    build.node("gpu0", NodeKind.GPU)
    build.node("nic0", NodeKind.NIC, net_names=['m"lx\n5_0\x01<&>'])
    for name in ("gpu0", "nic0"):
        build.connect("socket0", name, LinkKind.PCIE)
    text = to_nccl(build.build(), nominal_figures(build.build()))
    root = ET.fromstring(text)
    assert len(root) == 1
    assert [e.get("name") for e in root.iter("net")] == ['m"lx 5_0?<&>']
    assert "'" not in "".join(line for line in text.splitlines() if line.startswith(" <"))
    assert len(read_back(text).accelerators) == 1


def test_pairs_that_the_file_puts_nearer_are_told() -> None:
    """A file said SYS of two GPUs of one socket; NCCL sees the socket: PHB."""
    build = TopologyBuilder("unknown")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE)
    topology = build.build()
    overrides = topology.graph.graph["class_overrides"]
    overrides += [["gpu0", "gpu1", "SYS"], ["gpu1", "gpu0", "SYS"]]
    told = " ".join(nccl_file(topology, nominal_figures(topology)).notes)
    assert "2 ordered pairs" in told
    assert "gpu0 to gpu1: SYS here, PHB there" in told


@settings(deadline=None, max_examples=100)
@given(st.floats(2e8, 7e11))
def test_any_speed_has_words_close_to_it(rate: float) -> None:
    speed, width = pcie_words(rate)
    generation = {v: k for k, v in SPEED_TEXT.items()}[speed]
    # Below 10 GB/s lanes of 0.19 GB/s are the step.
    most = max(0.011, 0.19e9 / 2 / rate)
    assert abs(nccl_pcie_Bps(generation, width) / rate - 1) <= most

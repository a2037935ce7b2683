"""Whether files that number their devices alike are about one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topocal.topo.agreement import processors_agree, same_model, same_value
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError
from topocal.topo.merge import merge
from topocal.topo.readers.registry import read_any
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import View

CASES = Path(__file__).parents[1].parent / "shared" / "cases"


def box(
    name: str,
    gpus: int = 4,
    *,
    cpus: tuple[str, str] = ("0-15", "16-31"),
    switched: bool = True,
    nvlinks: int = 0,
    spread: bool = True,
    flipped: bool = False,
    **attributes: Any,
) -> Topology:
    """Two sockets; GPUs below a switch each, or straight below the socket; no addresses."""
    builder = TopologyBuilder(name)
    builder.source(f"{name}.txt: a test")
    for socket, listed in enumerate(cpus):
        builder.node(f"socket{socket}", NodeKind.SOCKET, numa=socket, cpu_list=listed)
        if switched:
            builder.node(f"switch{socket}", NodeKind.PCIE_SWITCH)
            builder.connect(f"socket{socket}", f"switch{socket}", LinkKind.PCIE)
    builder.connect("socket0", "socket1", LinkKind.SMP)
    for k in range(gpus):
        home = int(spread and k >= gpus / 2) ^ flipped
        builder.node(f"gpu{k}", NodeKind.GPU, index=k, numa=home, **attributes)
        above = f"switch{home}" if switched else f"socket{home}"
        builder.connect(above, f"gpu{k}", LinkKind.PCIE)
    for k in range(0, gpus, 2):
        if nvlinks:
            builder.connect(f"gpu{k}", f"gpu{k + 1}", LinkKind.NVLINK, count=nvlinks)
    return builder.build()


def doubts(*topologies: Topology) -> list[str]:
    merged = merge(topologies)
    return [c.what for c in merged.contradictions if c.about == "one machine?"]


def test_boxes_that_agree_raise_no_doubt() -> None:
    assert doubts(box("a", nvlinks=4), box("b", nvlinks=4)) == []


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (box("b", gpus=2, spread=False), "one has 4 GPUs and the other 2"),
        (box("b", cpus=("0-23", "24-47")), "their NUMA nodes have other processors"),
        (box("b", switched=False), "most of their devices are differently far apart"),
        (box("b", nvlinks=2), "their GPUs have other numbers of GPU links"),
    ],
)
def test_one_difference_is_a_warning(other: Topology, reason: str) -> None:
    nvlinks = 4 if View(other, "b").fabric_links else 0
    (what,) = doubts(box("a", nvlinks=nvlinks), other)
    assert what.startswith("b.txt is matched to a.txt by number alone, and ")
    assert reason in what
    assert what.endswith("they may be about two machines")


@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        (
            box("b", cpus=("0-23", "24-47"), switched=False),
            ("other processors", "differently far apart"),
        ),
        (
            box("b", gpus=2, spread=False, cpus=("0-7", "8-15")),
            ("4 GPUs and the other 2", "other processors"),
        ),
        (box("b", flipped=True, nvlinks=0, switched=False), ("other NUMA nodes", "far apart")),
    ],
)
def test_two_differences_are_another_machine(other: Topology, reasons: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        merge([box("a"), other])
    assert "is about another machine than" in caught.value.what
    assert all(reason in caught.value.what for reason in reasons)
    assert "read those of another by themselves" in caught.value.remedy


def test_other_models_are_named() -> None:
    with pytest.raises(InputError, match=r"\(NVIDIA H100 there, NVIDIA A100 here\)"):
        merge([box("a", model="NVIDIA A100"), box("b", model="NVIDIA H100")])


def test_the_same_addresses_with_other_cards_are_a_warning() -> None:
    def cards(name: str, device: str) -> Topology:
        builder = TopologyBuilder(name)
        builder.source(f"{name}.txt: a test")
        builder.node("socket0", NodeKind.SOCKET, numa=0)
        for k in range(2):
            builder.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:0{k}:00.0", device=device)
            builder.connect("socket0", f"gpu{k}", LinkKind.PCIE)
        return builder.build()

    (what,) = doubts(cards("a", "0x20b0"), cards("b", "0x20b2"))
    assert "by address alone, and most of their GPUs are of other models" in what
    assert doubts(cards("a", "0x20b0"), cards("b", "0x20b0")) == []


def test_a_chance_address_in_common_does_not_make_one_machine() -> None:
    def cards(name: str, buses: str, cpus: str) -> Topology:
        builder = TopologyBuilder(name)
        builder.source(f"{name}.txt: a test")
        builder.node("socket0", NodeKind.SOCKET, numa=0, cpu_list=cpus)
        for k, bus in enumerate(buses):
            builder.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:0{bus}:00.0")
            builder.connect("socket0", f"gpu{k}", LinkKind.PCIE)
        return builder.build()

    with pytest.raises(InputError, match="most of their devices are at other PCI addresses and"):
        merge([cards("a", "1234", "0-7,16-23"), cards("b", "456", "0-15,32-47")])
    (what,) = doubts(cards("a", "1234", "0-7"), cards("b", "456", "0-7"))
    assert "most of their devices are at other PCI addresses" in what


def test_a_third_file_is_not_drawn_into_a_doubt() -> None:
    same = merge([box("a"), box("b"), box("c", switched=False)])
    (doubt,) = [c for c in same.contradictions if c.about == "one machine?"]
    assert doubt.what.startswith("c.txt is matched to a.txt + b.txt")
    # What c.txt says against both is told once, and of the file that says it.
    (pairs,) = [c for c in same.contradictions if c.about == "2 pairs"]
    assert pairs.what == "PIX in a.txt, PHB in c.txt"


# Words of different tools


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA Corporation AD102GL [RTX 6000 Ada Generation]", "NVIDIA RTX 6000 Ada", True),
        ("NVIDIA Corporation GH100 [H100 SXM5 80GB]", "NVIDIA H100 80GB HBM3", True),
        ("[AMD/ATI] Aqua Vanjaram [Instinct MI300X]", "AMD Instinct MI300X OAM", True),
        ("NVIDIA Corporation Device 2684", "NVIDIA GeForce RTX 4090", True),
        ("MT2910 Family [ConnectX-7]", "ConnectX-7", True),
        ("ConnectX-6", "ConnectX-7", False),
        ("NVIDIA H100", "NVIDIA H200", False),
        ("NVIDIA B200", "NVIDIA GB200", False),
        ("NVIDIA L40S", "NVIDIA L40", False),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("GA102 [GeForce RTX 3090]", "NVIDIA GeForce RTX 4090", False),
        ("", "NVIDIA H100", True),
    ],
)
def test_models(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same
    assert same_model(other, one) is same


@pytest.mark.parametrize(
    ("one", "other", "whole", "agree"),
    [
        ("0-23", "0,1-23", (True, True), True),
        ("0-23", "5", (False, False), True),
        ("0-23", "5", (True, False), True),
        ("0-23", "5", (False, True), False),
        ("0-15", "8-23", (False, False), False),
        ("0-15,32-47", "32-40", (True, False), True),
        ("0-999999999", "1", (False, False), True),
        ("N/A", "0-3", (True, True), True),
    ],
)
def test_processors(one: str, other: str, whole: tuple[bool, bool], agree: bool) -> None:
    assert processors_agree(one, other, whole=whole) is agree


@pytest.mark.parametrize(
    ("attribute", "one", "other", "same"),
    [
        ("memory_bytes", 134_527_057_920, 134_500_000_000, True),
        ("memory_bytes", 134_527_057_920, 67_000_000_000, False),
        ("architecture", "gfx90a:sramecc+:xnack-", "gfx90a", True),
        ("architecture", "gfx90a", "gfx942", False),
        ("mig", ["1g.10gb", "3g.40gb"], ["3g.40gb", "1g.10gb"], True),
        ("compute_units", 304, 303, False),
        ("numa", 0, False, True),
    ],
)
def test_values(attribute: str, one: object, other: object, same: bool) -> None:
    assert same_value(attribute, one, other) is same


# Public cases


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("topo-flat-and-virtual/topology_vm.txt", "topo-flat-and-virtual/topology_allsys.txt"),
        (
            "topo-nvlink-pairs-vs-pcie-pairs/topology_3090.txt",
            "topo-nvlink-pairs-vs-pcie-pairs/topology_a100_custom.txt",
        ),
        ("topo-power9-and-epyc/topology_power9.txt", "topo-power9-and-epyc/topology_epyc.txt"),
        ("xml-rccl-pcie-only/topo-8p.xml", "xml-rccl-pcie-only/topo-3p.xml"),
        ("xml-rccl-mi300x/topo-baremetal.xml", "xml-rccl-mi300x/topo-vm.xml"),
        (
            "topo-raw-ansi-mig-windows/list_h100_mig.txt",
            "topo-raw-ansi-mig-windows/nvlink_h200.txt",
        ),
    ],
)
def test_files_of_two_machines_are_refused(one: str, other: str) -> None:
    paths = [CASES / name for name in (one, other)]
    if not all(path.exists() for path in paths):
        pytest.skip("the public cases are not here")
    for files in (paths, paths[::-1]):
        with pytest.raises(InputError, match=r"about another machine|no device in common"):
            merge([read_any(path) for path in files])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("old-azure-m60-vm/topology_2gpu.txt", "old-azure-m60-vm/topology_4gpu.txt"),
        ("contend-shm-uplink-twice/topology_1086.txt", "contend-shm-uplink-twice/topology_307.txt"),
        ("xml-aws-p4d-p4de/topo-p4d.xml", "xml-aws-p4d-p4de/topo-p4de.xml"),
    ],
)
def test_files_of_two_machines_are_doubted(one: str, other: str) -> None:
    paths = [CASES / name for name in (one, other)]
    if not all(path.exists() for path in paths):
        pytest.skip("the public cases are not here")
    for files in (paths, paths[::-1]):
        assert len(doubts(*(read_any(path) for path in files))) == 1

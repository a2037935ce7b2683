"""lspci's tree and device list: drawing styles, roles, links, pastes, hostile input."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import FormatError, TopocalError
from topocal.topo.nominal import pcie_Bps
from topocal.topo.readers.lspci import looks_like_lspci, parse_lspci
from topocal.topo.readers.lspci_tree import parse_tree_lines
from topocal.topo.readers.pci_function import Role
from topocal.topo.readers.registry import sniff
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology


def parse(text: str) -> Topology:
    return parse_lspci(text, file="lspci.txt")


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def path_class(topology: Topology, a: str, b: str) -> PathClass:
    return PathClass(int(topology.routes([a, b]).path_class[0, 1]))


def nominal(topology: Topology, a: str, b: str) -> float | None:
    return topology.links[f"{a}->{b}"].nominal_Bps


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


# Two GPUs and a NIC behind one switch, a third GPU behind a switch behind that switch, a
# fourth on the other root bus.
TREE = r"""
-+-[0000:80]-+-00.0  Intel Corporation Device 09a2
 |           \-01.0-[81]--+-00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
 |                        \-00.1  NVIDIA Corporation Device 22bb
 \-[0000:00]-+-00.0  Intel Corporation Device 09a2
             +-02.0-[01-0a]----00.0-[02-0a]--+-00.0-[03]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
             |                               +-04.0-[04]--+-00.0  NVIDIA Corporation Device 20b5
             |                               |            +-00.1  NVIDIA Corporation GA102 High Definition Audio Controller
             |                               |            \-00.2  NVIDIA Corporation TU102 USB 3.1 Host Controller
             |                               +-08.0-[05]----00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
             |                               \-0c.0-[06-08]----00.0-[07-08]----00.0-[08]----00.0  NVIDIA Corporation GA100
             +-1c.0-[0b]----00.0  ASPEED Technology, Inc. ASPEED Graphics Family
             +-1f.0  Intel Corporation C621 LPC Controller
             \-1f.6  Intel Corporation Ethernet Connection (3) I219-LM
"""  # noqa: E501


def test_tree() -> None:
    topology = parse(TREE)
    where = [topology.graph.nodes[g]["bus_id"] for g in topology.accelerators]
    assert where == ["0000:03:00.0", "0000:04:00.0", "0000:08:00.0", "0000:81:00.0"]
    assert [topology.graph.nodes[n]["bus_id"] for n in of_kind(topology, NodeKind.NIC)] == [
        "0000:00:1f.6",
        "0000:05:00.0",
    ]
    assert sorted(of_kind(topology, NodeKind.PCIE_SWITCH)) == [
        "pcie:0000:01:00.0",
        "pcie:0000:06:00.0",
    ]
    assert path_class(topology, "gpu0", "gpu1") is PathClass.PIX
    assert path_class(topology, "gpu0", "nic1") is PathClass.PIX
    assert path_class(topology, "gpu0", "gpu2") is PathClass.PXB
    assert path_class(topology, "gpu0", "nic0") is PathClass.PHB
    assert path_class(topology, "gpu0", "gpu3") is PathClass.NODE
    assert topology.validate() == []


def _domains_on_bridges(text: str) -> str:
    """As old releases print buses: with their domain everywhere."""
    return text.replace("-[0", "-[0000:0").replace("[0000:0000:", "[0000:")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\n ", "\n"),
        lambda t: "\n".join("    " + line for line in t.split("\n")),
        lambda t: t.translate(str.maketrans("+\\|", "├└│")).replace("-", "─"),
        lambda t: t.replace("\\", "`"),
        lambda t: "user@host:~$ lspci -tv\n" + t + "\nuser@host:~$ exit",
        lambda t: t.replace("\n", "   \n"),
    ],
    ids=["lost blanks", "indented", "boxes", "backticks", "prompts", "padded"],
)
def test_drawing_styles(change: object) -> None:
    assert callable(change)
    expected = {a: (f.parent, f.root) for a, f in parse_tree_lines(TREE.split("\n")).items()}
    assert len(expected) == 23
    found = parse_tree_lines(change(TREE).split("\n"))
    assert {a: (f.parent, f.root) for a, f in found.items()} == expected


def test_single_root_and_domains() -> None:
    text = "-[10000:e0]---06.0-[e1]----00.0  NVIDIA Corporation AD102 [GeForce RTX 4090]\n"
    topology = parse(text)
    assert topology.graph.nodes["gpu0"]["bus_id"] == "10000:e1:00.0"
    assert of_kind(topology, NodeKind.HOST_BRIDGE) == ["host-bridge:10000:e0"]
    old = r"""-[0000:00]-+-00.0  Intel Corporation Host
           \-01.0-[0000:01-02]--+-00.0  NVIDIA Corporation GF100 [Tesla C2050]
                                \-00.1  NVIDIA Corporation GF100 High Definition Audio Controller
"""
    assert parse(old).accelerators == ("gpu0",)


@pytest.mark.parametrize(
    ("name", "function", "role"),
    [
        ("NVIDIA Corporation AD102GL [RTX 6000 Ada Generation]", 0, Role.GPU),
        ("NVIDIA Corporation Device 2901", 0, Role.GPU),
        ("NVIDIA Corporation Device 22e8", 1, Role.OTHER),
        ("NVIDIA Corporation GH100 [H100 NVSwitch]", 0, Role.NVSWITCH),
        ("NVIDIA Corporation Device 22a3", 0, Role.NVSWITCH),
        ("NVIDIA Corporation AD102 [10de:2684]", 0, Role.GPU),
        ("Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]", 0, Role.GPU),
        ("Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 HDMI/DP Audio", 1, Role.OTHER),
        ("Advanced Micro Devices, Inc. [AMD] Starship/Matisse Root Complex", 0, Role.OTHER),
        ("Intel Corporation Battlemage G21 [Arc B580]", 0, Role.GPU),
        ("Intel Corporation Device e223", 0, Role.GPU),
        ("Intel Corporation DG2 Audio Controller", 0, Role.OTHER),
        ("Intel Corporation Raptor Lake-S GT1 [UHD Graphics 770]", 0, Role.OTHER),
        ("Habana Labs Ltd. HL-2080 AI Training Accelerator [Gaudi2]", 0, Role.GPU),
        ("Matrox Electronics Systems Ltd. MGA G200e", 0, Role.OTHER),
        ("Mellanox Technologies MT2910 Family [ConnectX-7]", 0, Role.NIC),
        ("Mellanox Technologies MT43244 BlueField-3 SoC Management Interface", 2, Role.OTHER),
        ("Broadcom Inc. and subsidiaries BCM57508 NetXtreme-E 10Gb/200Gb Ethernet", 1, Role.NIC),
        ("Amazon.com, Inc. Elastic Fabric Adapter (EFA)", 0, Role.NIC),
        ("Intel Corporation Wi-Fi 6 AX200", 0, Role.OTHER),
        ("Red Hat, Inc. Virtio network device", 0, Role.NIC),
        ("Cray Inc. Slingshot Cassini network controller", 0, Role.NIC),
        ("Samsung Electronics Co Ltd NVMe SSD Controller PM9A3", 0, Role.OTHER),
    ],
)
def test_roles_by_name(name: str, function: int, role: Role) -> None:
    found = parse_tree_lines([f"-[0000:00]---01.0-[01]----00.{function}  {name}"])
    assert found[f"0000:01:00.{function}"].role is role


LIST = """user@box:~$ sudo lspci -vvv
[sudo] password for user:
00:00.0 Host bridge: Intel Corporation Device 09a2 (rev 20)
        NUMA node: 0

00:01.0 PCI bridge: Intel Corporation Device 352a (rev 30) (prog-if 00 [Normal decode])
        NUMA node: 0
        Bus: primary=00, secondary=01, subordinate=03, sec-latency=0
        Capabilities: [40] Express (v2) Root Port (Slot+), MSI 00
                LnkCap: Port #1, Speed 32GT/s, Width x16, ASPM not supported
                LnkSta: Speed {switch_speed}, Width x16
        Capabilities: [110] Access Control Services
                ACSCtl: SrcValid+ TransBlk- ReqRedir{acs} CmpltRedir+

01:00.0 PCI bridge: Broadcom / LSI PEX880xx PCIe Gen 4 Switch (rev b0)
        Bus: primary=01, secondary=02, subordinate=03, sec-latency=0
        Capabilities: [68] Express (v2) Upstream Port, MSI 00
                LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1
                LnkSta: Speed {switch_speed}, Width x16

02:00.0 PCI bridge: Broadcom / LSI PEX880xx PCIe Gen 4 Switch (rev b0)
        Bus: primary=02, secondary=03, subordinate=03, sec-latency=0
        Capabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
                LnkCap: Port #4, Speed 16GT/s, Width x16, ASPM L1
                LnkSta: Speed {speed}, Width {width}
                ACSCtl: SrcValid+ TransBlk- ReqRedir{acs} CmpltRedir+

03:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)
        NUMA node: 0
        Capabilities: [78] Express (v2) Endpoint, MSI 00
                LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM not supported
                LnkSta: Speed {speed}, Width {width}
user@box:~$ sudo lspci -vvv | grep LnkSta
                LnkSta: Speed 2.5GT/s, Width x1
"""


def listed(
    *,
    speed: str = "16GT/s (ok)",
    width: str = "x16 (ok)",
    switch_speed: str = "16GT/s (downgraded)",
    acs: str = "-",
) -> Topology:
    return parse(LIST.format(speed=speed, width=width, switch_speed=switch_speed, acs=acs))


SWITCH = "pcie:0000:01:00.0"


def test_list_gives_tree_and_links() -> None:
    topology = listed()
    assert of_kind(topology, NodeKind.PCIE_SWITCH) == [SWITCH]
    assert nominal(topology, SWITCH, "gpu0") == pytest.approx(pcie_Bps(4, 16))
    # The root port could do Gen5, the switch cannot: that is no fault.
    assert nominal(topology, "host-bridge:0000:00", SWITCH) == pytest.approx(pcie_Bps(4, 16))
    assert topology.graph.graph["notes"] == []
    assert topology.graph.nodes["gpu0"]["numa"] == 0


@pytest.mark.parametrize(
    ("change", "believed", "words"),
    [
        ({"speed": "8GT/s (downgraded)"}, (3, 16), "trained at Gen3 x16, below the Gen4 x16"),
        ({"width": "x8 (downgraded)"}, (4, 8), "trained at Gen4 x8, below the Gen4 x16"),
        ({"speed": "2.5GT/s (downgraded)"}, (4, 16), "idle GPUs save power"),
        (
            {"speed": "2.5GT/s (downgraded)", "width": "x4 (downgraded)"},
            (4, 4),
            "idle GPUs save power that way, so Gen4 is taken; read it again under load to be "
            "sure; its PCIe link is trained at Gen4 x4",
        ),
        ({"acs": "+"}, (4, 16), "gpu0: access control (ACS)"),
    ],
)
def test_links_below_their_capability(
    change: dict[str, str], believed: tuple[int, int], words: str
) -> None:
    topology = listed(**change)
    assert nominal(topology, SWITCH, "gpu0") == pytest.approx(pcie_Bps(*believed))
    assert words in notes(topology)


def test_idling_is_for_gpus() -> None:
    """A switch at Gen1 is a fault, not power saving."""
    topology = listed(switch_speed="2.5GT/s (downgraded)")
    assert nominal(topology, "host-bridge:0000:00", SWITCH) == pytest.approx(pcie_Bps(1, 16))
    assert f"{SWITCH}: its PCIe link is trained at Gen1 x16" in notes(topology)


def test_narrow_port_above_a_wide_card() -> None:
    text = LIST.format(speed="16GT/s", width="x16", switch_speed="16GT/s", acs="-")
    at = text.index("02:00.0")
    text = text[:at] + text[at:].replace("Width x16\n", "Width x2\n", 1)
    topology = parse(text)
    assert nominal(topology, SWITCH, "gpu0") is None
    assert "Gen4 x16 at the device, Gen4 x2 at the port above" in notes(topology)


def test_other_commands_in_the_paste_are_not_the_devices() -> None:
    """The grep at the end of LIST prints a Gen1 x1 link that belongs to nobody."""
    assert "Gen1" not in notes(listed())


def test_listed_twice_idle_and_under_load() -> None:
    text = LIST.format(speed="2.5GT/s", width="x16", switch_speed="16GT/s", acs="-")
    busy = LIST.format(speed="16GT/s", width="x16", switch_speed="16GT/s", acs="-")
    assert "idle" not in notes(parse(text + busy))


def test_tree_and_list_together() -> None:
    listing = """
0000:03:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20f1] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)

0000:80:00.0 System peripheral [0880]: Intel Corporation Device [8086:09a2]
\tNUMA node: 1
"""
    topology = parse(TREE + listing)
    assert nominal(topology, "pcie:0000:01:00.0", "gpu0") == pytest.approx(pcie_Bps(4, 16))
    assert nominal(topology, "pcie:0000:01:00.0", "gpu1") is None
    assert topology.graph.nodes["gpu0"]["device"] == "0x20f1"
    assert path_class(topology, "gpu0", "gpu3") is PathClass.SYS


def test_numactl_in_the_paste() -> None:
    numactl = """$ numactl -H
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 8
node 0 size: 1024 MB
node 1 cpus: 4 5 6 7
node 1 size: 2048 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
    topology = parse(TREE + numactl)
    assert topology.graph.nodes["socket0"]["cpu_list"] == "0-3,8"
    assert topology.graph.edges["socket0", "socket1", "socket0->socket1"]["distance"] == 21
    assert "does not say which socket they hang off" in notes(topology)


def test_intel_card_with_its_own_switch() -> None:
    """The card's endpoint reads Gen1 x1; the link of the card is that of its upstream port."""
    text = """
00:01.0 PCI bridge: Intel Corporation Device 352a
\tBus: primary=00, secondary=01, subordinate=04, sec-latency=0
\t\tLnkCap: Port #1, Speed 32GT/s, Width x16
\t\tLnkSta: Speed 32GT/s, Width x16
01:00.0 PCI bridge: Intel Corporation Device e2ff
\tBus: primary=01, secondary=02, subordinate=04, sec-latency=0
\t\tLnkCap: Port #0, Speed 32GT/s, Width x16
\t\tLnkSta: Speed 32GT/s, Width x16
02:01.0 PCI bridge: Intel Corporation Device e2f0
\tBus: primary=02, secondary=03, subordinate=03, sec-latency=0
02:02.0 PCI bridge: Intel Corporation Device e2f1
\tBus: primary=02, secondary=04, subordinate=04, sec-latency=0
03:00.0 VGA compatible controller: Intel Corporation Battlemage G31 [Arc Pro B70]
\t\tLnkCap: Port #0, Speed 2.5GT/s, Width x1
\t\tLnkSta: Speed 2.5GT/s, Width x1
04:00.0 Audio device: Intel Corporation Device e2f7
"""
    topology = parse(text)
    assert not of_kind(topology, NodeKind.PCIE_SWITCH)
    assert nominal(topology, "host-bridge:0000:00", "gpu0") == pytest.approx(pcie_Bps(5, 16))
    alone = parse(text[text.index("03:00.0") :])
    assert nominal(alone, "socket0", "gpu0") is None
    assert "Intel GPUs report Gen1 x1" in notes(alone)


def test_integrated_graphics_is_no_accelerator() -> None:
    text = """
00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 770
0e:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Raphael (rev c1)
0e:00.2 Encryption controller: Advanced Micro Devices, Inc. [AMD] Family 19h PSP/CCP
03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 31
"""
    topology = parse(text)
    assert [topology.graph.nodes[g]["bus_id"] for g in topology.accelerators] == ["0000:03:00.0"]
    assert "0000:0e:00.0: a processor's own graphics" in notes(topology)


def test_virtual_functions_are_left_out_beside_their_device() -> None:
    text = (
        "21:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
        "21:00.2 Ethernet controller: Mellanox Technologies ConnectX Family Virtual Function\n"
    )
    assert of_kind(parse(text), NodeKind.NIC) == ["nic0"]
    # In a virtual machine it is all there is.
    assert of_kind(parse(text.split("\n")[1]), NodeKind.NIC) == ["nic0"]


def test_virtual_bridge_speed_is_not_believed() -> None:
    text = """
00:01.0 PCI bridge: Red Hat, Inc. QEMU PCIe Root port
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\t\tLnkCap: Port #16, Speed 2.5GT/s, Width x1
\t\tLnkSta: Speed 2.5GT/s, Width x1
01:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]
\t\tLnkCap: Port #0, Speed 32GT/s, Width x16
\t\tLnkSta: Speed 32GT/s, Width x16
"""
    topology = parse(text)
    assert nominal(topology, "host-bridge:0000:00", "gpu0") == pytest.approx(pcie_Bps(5, 16))


def test_without_root() -> None:
    text = "c1:00.0 3D controller: NVIDIA Corporation GA100\n\tCapabilities: <access denied>\n"
    topology = parse(text)
    assert nominal(topology, "socket0", "gpu0") is None
    assert "run `sudo lspci -vvv`" in notes(topology)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (TREE, True),
        (LIST, True),
        ("3b:00.0 Ethernet controller: Intel Corporation X710\n", True),
        ("\tGPU0\tGPU1\nGPU0\t X \tPIX\n", False),
        ("<system version='1'/>", False),
    ],
)
def test_sniffed_by_content(text: str, is_one: bool) -> None:
    assert looks_like_lspci(text) is is_one
    if is_one:
        assert sniff(text, file="x").name == "lspci"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of lspci's",
        "\n" * 500_000,
        "".join(
            f"{k >> 13:04x}:{k >> 8 & 31:02x}:{k >> 3 & 31:02x}.{k & 7} "
            "3D controller: NVIDIA Corporation\n"
            for k in range(3000)
        ),
    ],
    ids=["empty", "other text", "half a million lines", "three thousand GPUs"],
)
def test_bad_input_is_one_line(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_bridges_that_lead_to_each_other() -> None:
    text = """
01:00.0 PCI bridge: X
\tBus: primary=02, secondary=02, subordinate=02
02:00.0 PCI bridge: X
\tBus: primary=01, secondary=01, subordinate=01
02:00.1 3D controller: NVIDIA Corporation GA100
"""
    assert parse(text).accelerators == ("gpu0",)


def test_one_line_of_sixteen_thousand_bridges() -> None:
    text = "-[0000:00]-" + "+-00.0-[01]-" * 16_000 + "\n" + "   +-00.0\n" * 1000
    assert parse(text).accelerators == ()


_PIECES = st.sampled_from(
    ["[", "]", "-", "+", "\\", "|", " ", "\n", "00.0", "x", "ffff:", "é", "🙂"]
)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_mutations_raise_our_errors_only(data: st.DataObject) -> None:
    listing = LIST.format(speed="16GT/s", width="x16", switch_speed="16GT/s", acs="-")
    base = data.draw(st.sampled_from([TREE, listing, TREE + listing]))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(base)))
        length = data.draw(st.integers(0, 60))
        base = base[:at] + data.draw(_PIECES) + base[at + length :]
    with contextlib.suppress(TopocalError):
        parse(base).routes()

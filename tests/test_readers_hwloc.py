"""hwloc XML of versions 1 to 3: devices under all their names, links, matrices, hostile input."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import FormatError, TopocalError
from topocal.topo.nominal import pcie_Bps
from topocal.topo.readers.hwloc import looks_like_hwloc, parse_hwloc
from topocal.topo.readers.registry import sniff
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology


def parse(text: str) -> Topology:
    return parse_hwloc(text, file="topology.xml")


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def path_class(topology: Topology, a: str, b: str) -> PathClass:
    routes = topology.routes([a, b])
    return PathClass(int(routes.path_class[0, 1]))


def nominal(topology: Topology, a: str, b: str) -> float | None:
    return topology.links[f"{a}->{b}"].nominal_Bps


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


# One GPU and one two-port NIC behind a switch of the first package; the second has nothing.
V2 = """$ lstopo --of xml
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000ffff" gp_index="1">
  <info name="DMIProductName" value="Box 9000"/>
  <object type="Package" os_index="0" cpuset="0x000000ff" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x000000ff" gp_index="3" local_memory="1024"/>
   <object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[10-20]">
    <object type="Bridge" gp_index="5" bridge_type="1-1" depth="1" bridge_pci="0000:[11-20]"
      pci_busid="0000:10:01.0" pci_type="0604 [8086:347a] [0000:0000] 04"
      pci_link_speed="31.507692">
     <object type="Bridge" gp_index="6" bridge_type="1-1" depth="2" bridge_pci="0000:[12-20]"
       pci_busid="0000:11:00.0" pci_type="0604 [1000:c010] [0000:0000] b0"
       pci_link_speed="31.507692">
      <object type="Bridge" gp_index="7" bridge_type="1-1" depth="3" bridge_pci="0000:[13-13]"
        pci_busid="0000:12:00.0" pci_type="0604 [1000:c010] [0000:0000] b0" pci_link_speed="{port}">
       <object type="PCIDev" gp_index="8" pci_busid="0000:13:00.0"
         pci_type="0302 [10de:20b0] [10de:0000] a1" pci_link_speed="{card}">
        <object type="OSDev" gp_index="9" name="cuda0" subtype="CUDA" osdev_type="5"/>
        <object type="OSDev" gp_index="10" name="nvml0" osdev_type="1">
         <info name="GPUModel" value="A100"/>
        </object>
        <object type="OSDev" gp_index="11" name="opencl0d0" subtype="OpenCL" osdev_type="5"/>
       </object>
      </object>
      <object type="Bridge" gp_index="12" bridge_type="1-1" depth="3" bridge_pci="0000:[14-14]"
        pci_busid="0000:12:01.0" pci_type="0604 [1000:c010] [0000:0000] b0"
        pci_link_speed="31.507692">
       <object type="PCIDev" gp_index="13" pci_busid="0000:14:00.0"
         pci_type="0207 [15b3:101b] [15b3:0000] 00" pci_link_speed="31.507692">
        <object type="OSDev" gp_index="14" name="ib0" osdev_type="2"/>
        <object type="OSDev" gp_index="15" name="mlx5_0" osdev_type="3"/>
       </object>
       <object type="PCIDev" gp_index="16" pci_busid="0000:14:00.1"
         pci_type="0207 [15b3:101b] [15b3:0000] 00" pci_link_speed="31.507692">
        <object type="OSDev" gp_index="17" name="mlx5_1" osdev_type="3"/>
       </object>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x0000ff00" gp_index="18">
   <object type="NUMANode" os_index="1" cpuset="0x0000ff00" gp_index="19" local_memory="2048"/>
  </object>
 </object>
 <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
  <indexes length="4">0 1 </indexes>
  <u64values length="8">10 21 </u64values>
  <u64values length="8">21 10 </u64values>
 </distances2>
</topology>
"""


def v2(*, port: str = "31.507692", card: str = "31.507692") -> str:
    return V2.replace("{port}", port).replace("{card}", card)


def test_one_device_under_several_names() -> None:
    topology = parse(v2())
    assert topology.name == "Box 9000"
    assert topology.accelerators == ("gpu0",)
    gpu = topology.graph.nodes["gpu0"]
    assert gpu["names"] == ["cuda0", "nvml0", "opencl0d0"]
    assert (gpu["model"], gpu["bus_id"], gpu["numa"], gpu["index"]) == (
        "A100",
        "0000:13:00.0",
        0,
        0,
    )
    assert topology.graph.nodes["nic0"]["net_names"] == ["ib0", "mlx5_0"]


def test_two_ports_of_a_card_share_its_link() -> None:
    topology = parse(v2())
    above = "pcie:0000:11:00.0"
    assert topology.links[f"{above}->nic0"].uses == topology.links[f"{above}->nic1"].uses
    assert topology.links[f"nic0->{above}"].uses == topology.links[f"nic1->{above}"].uses
    assert topology.links[f"{above}->nic0"].uses != topology.links[f"nic0->{above}"].uses


def test_switch_root_port_and_sockets() -> None:
    topology = parse(v2())
    assert of_kind(topology, NodeKind.PCIE_SWITCH) == ["pcie:0000:11:00.0"]
    assert of_kind(topology, NodeKind.HOST_BRIDGE) == ["host-bridge:0000:10"]
    # A package without any device is a socket all the same, with its memory and processors.
    assert topology.graph.nodes["socket1"]["cpu_list"] == "8-15"
    assert topology.graph.nodes["memory1"]["memory_bytes"] == 2048
    data = topology.graph.edges["socket0", "socket1", "socket0->socket1"]
    assert (data["kind"], data["distance"]) == (LinkKind.SMP, 21.0)
    assert path_class(topology, "gpu0", "nic0") is PathClass.PIX
    assert path_class(topology, "gpu0", "memory1") is PathClass.SYS
    assert topology.validate() == []


def test_link_speed_is_payload_after_packet_overhead() -> None:
    topology = parse(v2())
    # 31.51 GB/s is Gen4 x16 or Gen5 x8: the payload is the same, which one is not said.
    assert nominal(topology, "pcie:0000:11:00.0", "gpu0") == pytest.approx(pcie_Bps(4, 16))
    data = topology.graph.edges["gpu0", "pcie:0000:11:00.0", "gpu0->pcie:0000:11:00.0"]
    assert "generation" not in data
    assert data["speed_text"] == "31.51 GB/s"
    # 8.00 GB/s can only be Gen2 x16.
    topology = parse(v2(port="8.000000", card="8.000000"))
    data = topology.graph.edges["gpu0", "pcie:0000:11:00.0", "gpu0->pcie:0000:11:00.0"]
    assert (data["generation"], data["width"]) == (2, 16)


@pytest.mark.parametrize(
    ("port", "card", "words"),
    [
        ("4.000000", "4.000000", "save power when idle"),
        ("1.969231", "15.753846", "contradict each other"),
    ],
)
def test_speeds_that_are_no_capacity(port: str, card: str, words: str) -> None:
    topology = parse(v2(port=port, card=card))
    assert nominal(topology, "pcie:0000:11:00.0", "gpu0") is None
    assert words in notes(topology)


def test_rates_of_two_backends_are_one_link() -> None:
    """hwloc's AMD backend says 61.5 GB/s where its PCI backend says 63.0 of the same Gen5 x16."""
    topology = parse(v2(port="63.015385", card="61.538462"))
    assert nominal(topology, "pcie:0000:11:00.0", "gpu0") == pytest.approx(
        pcie_Bps(5, 16), rel=0.03
    )
    assert notes(topology) == ""


def test_unknown_speed_stays_unknown() -> None:
    topology = parse(v2(port="0.000000", card="0.000000"))
    assert nominal(topology, "pcie:0000:11:00.0", "gpu0") is None


V1 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
 <object type="Machine" os_index="0" cpuset="0x0000000f">
  <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
   <latency value="1.000000"/><latency value="2.100000"/>
   <latency value="2.100000"/><latency value="1.000000"/>
  </distances>
  <object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="4096">
   <object type="Socket" os_index="0" cpuset="0x00000003">
    <object type="Core" os_index="0" cpuset="0x00000001"><object type="PU" os_index="0"/></object>
   </object>
   <object type="Bridge" os_index="0" bridge_type="0-1" depth="0" bridge_pci="0000:[00-03]">
    <object type="Bridge" os_index="16" name="Root Port" bridge_type="1-1" depth="1"
      bridge_pci="0000:[02-02]" pci_busid="0000:00:03.0" pci_type="0604 [8086:2f08] [8086:0000] 02"
      pci_link_speed="15.753846">
     <object type="PCIDev" os_index="8192" name="NVIDIA Corporation GK210GL [Tesla K80]"
       pci_busid="0000:02:00.0" pci_type="0302 [10de:102d] [10de:106c] a1"
       pci_link_speed="15.753846">
      <info name="PCIVendor" value="NVIDIA Corporation"/>
      <object type="OSDev" name="card1" osdev_type="1"/>
      <object type="OSDev" name="cuda0" osdev_type="5"/>
     </object>
    </object>
    <object type="PCIDev" os_index="4096" name="Matrox Electronics Systems Ltd. G200eR2"
      pci_busid="0000:00:14.0" pci_type="0300 [102b:0534] [1028:0600] 01"
      pci_link_speed="0.000000"/>
    <object type="PCIDev" os_index="4098" pci_busid="0000:00:1f.6"
      pci_type="0200 [8086:1533] [8086:0001] 03" pci_link_speed="0.250000">
     <object type="OSDev" name="eth0" osdev_type="2"/>
    </object>
   </object>
  </object>
  <object type="NUMANode" os_index="1" cpuset="0x0000000c" local_memory="4096">
   <object type="Socket" os_index="1" cpuset="0x0000000c"/>
  </object>
 </object>
</topology>
"""


def test_version_1() -> None:
    topology = parse(V1)
    assert topology.accelerators == ("gpu0",)
    assert topology.graph.nodes["gpu0"]["bus_id"] == "0000:02:00.0"
    assert of_kind(topology, NodeKind.NIC) == ["nic0"]
    assert set(of_kind(topology, NodeKind.SOCKET)) == {"socket0", "socket1"}
    data = topology.graph.edges["socket0", "socket1", "socket0->socket1"]
    assert data["distance"] == pytest.approx(21.0)
    # A root port is no switch: the GPU hangs off the host bridge.
    assert nominal(topology, "host-bridge:0000:00", "gpu0") == pytest.approx(pcie_Bps(3, 16))


def machine(inside: str, after: str = "", version: str = "3.0") -> str:
    return (
        f'<topology version="{version}"><object type="Machine" os_index="0" cpuset="0xff" '
        f'gp_index="1">{inside}</object>{after}</topology>'
    )


def package(number: int, inside: str, mask: str = "0xf") -> str:
    return (
        f'<object type="Package" os_index="{number}" cpuset="{mask}" gp_index="{50 + number}">'
        f'<object type="NUMANode" os_index="{number}" cpuset="{mask}" gp_index="{70 + number}"/>'
        f"{inside}</object>"
    )


def gpu(number: int, vendor: str = "10de:20b0", backend: str = "nvml", domain: str = "0000") -> str:
    bus = f"{number + 1:02x}"
    return (
        f'<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="{domain}:[{bus}-{bus}]">'
        f'<object type="PCIDev" gp_index="{200 + number}" pci_busid="{domain}:{bus}:00.0" '
        f'pci_type="0302 [{vendor}] [0000:0000] a1 00" pci_link_speed="31.507692">'
        f'<object type="OSDev" gp_index="{100 + number}" name="{backend}{number}" osdev_type="12"/>'
        "</object></object>"
    )


def switch(number: int) -> str:
    return (
        f'<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[{80 + number}-'
        f'{80 + number}]"><object type="PCIDev" gp_index="{300 + number}" subtype="NVSwitch" '
        f'pci_busid="0000:{80 + number}:00.0" pci_type="0000 [0000:0000] [0000:0000] 00 00" '
        'pci_link_speed="1.000000"/></object>'
    )


def hetero(name: str, objects: list[str], rows: list[list[int]], chunk: int = 3) -> str:
    """A matrix, its numbers split over many elements as hwloc splits them."""
    values = [str(v) for row in rows for v in row]

    def split(tag: str, words: list[str]) -> str:
        parts = [words[k : k + chunk] for k in range(0, len(words), chunk)]
        return "".join(f"<{tag}>{' '.join(p)} </{tag}>" for p in parts)

    return (
        f'<distances2hetero nbobjs="{len(objects)}" kind="25" name="{name}">'
        f"{split('indexes', objects)}{split('u64values', values)}</distances2hetero>"
    )


def test_direct_links_and_links_to_the_processor() -> None:
    """POWER8: 40 GB/s between GPUs and to their package; the diagonal is no link."""
    objects = ["OSDev:100", "OSDev:101", "OSDev:102", "Package:50", "Package:51"]
    d = 1_000_000
    rows = [
        [d, 40000, 0, 40000, 0],
        [40000, d, 0, 40000, 0],
        [0, 0, d, 0, 40000],
        [40000, 40000, 0, d, 0],
        [0, 0, 40000, 0, d],
    ]
    inside = package(0, gpu(0) + gpu(1)) + package(1, gpu(2), "0xf0")
    topology = parse(machine(inside, hetero("NVLinkBandwidth", objects, rows)))
    assert nominal(topology, "gpu0", "gpu1") == 40e9
    assert topology.links["gpu0->gpu1"].kind is LinkKind.NVLINK
    assert nominal(topology, "socket0", "gpu0") == 40e9
    assert topology.links["socket1->gpu2"].kind is LinkKind.C2C
    assert "gpu0->gpu2" not in topology.links
    assert path_class(topology, "gpu0", "gpu1") is PathClass.NVL
    assert path_class(topology, "gpu0", "gpu2") is PathClass.SYS


def test_switches_of_one_board_are_one_node() -> None:
    """Two GPUs, three NVSwitches: ports of 3 x 25 GB/s, or 2 x 25 where a link is missing."""
    objects = ["OSDev:100", "OSDev:101", "PCIDev:300", "PCIDev:301", "PCIDev:302"]
    rows = [[0] * 5 for _ in range(5)]
    for i, j in ((0, 2), (0, 3), (0, 4), (1, 2), (1, 3)):
        rows[i][j] = rows[j][i] = 25000
    inside = package(0, gpu(0) + gpu(1) + switch(0) + switch(1) + switch(2))
    topology = parse(machine(inside, hetero("NVLinkBandwidth", objects, rows)))
    assert of_kind(topology, NodeKind.NVSWITCH) == ["nvswitch0"]
    assert topology.graph.nodes["nvswitch0"]["count"] == 3
    assert nominal(topology, "gpu0", "nvswitch0") == 75e9
    assert nominal(topology, "nvswitch0", "gpu1") == 50e9
    assert "gpu1: linked to fewer NVSwitches" in notes(topology)
    # The switch's own PCIe link is for management and is not in the graph.
    assert "host-bridge:0000:80" not in topology.graph


def test_boards_without_a_link_between_them() -> None:
    objects = ["OSDev:100", "OSDev:101", "PCIDev:300", "PCIDev:301"]
    rows = [[0, 0, 25000, 0], [0, 0, 0, 25000], [25000, 0, 0, 0], [0, 25000, 0, 0]]
    inside = package(0, gpu(0) + gpu(1) + switch(0) + switch(1))
    topology = parse(machine(inside, hetero("NVLinkBandwidth", objects, rows)))
    assert nominal(topology, "nvswitch0", "nvswitch1") is None
    assert path_class(topology, "gpu0", "gpu1") is PathClass.NVL
    assert "not described" in notes(topology)


def test_xgmi_of_one_hop_only() -> None:
    objects = ["OSDev:100", "OSDev:101", "OSDev:102"]
    bandwidth = [[0, 100000, 50000], [100000, 0, 100000], [50000, 100000, 0]]
    hops = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    inside = package(0, "".join(gpu(k, "1002:7408", "rsmi") for k in range(3)))
    text = machine(
        inside, hetero("XGMIBandwidth", objects, bandwidth) + hetero("XGMIHops", objects, hops)
    )
    topology = parse(text)
    assert topology.links["gpu0->gpu1"].kind is LinkKind.XGMI
    assert nominal(topology, "gpu0", "gpu1") == 100e9
    assert "gpu0->gpu2" not in topology.links
    assert "1 pairs of GPUs reach each other over other GPUs" in notes(topology)


def test_homogeneous_matrix_by_gp_index() -> None:
    matrix = (
        '<distances2 type="OSDev" nbobjs="2" kind="9" name="NVLinkBandwidth" indexing="gp">'
        "<indexes>100 101</indexes><u64values>0 50000 25000 0</u64values></distances2>"
    )
    topology = parse(machine(package(0, gpu(0) + gpu(1)), matrix, "2.4"))
    assert (nominal(topology, "gpu0", "gpu1"), nominal(topology, "gpu1", "gpu0")) == (50e9, 25e9)


def test_domains_beyond_zero_and_numbers_of_backends() -> None:
    """GPUs are numbered as NVML does, whatever order the file and CUDA have."""
    inside = package(0, gpu(1, domain="0004") + gpu(0, domain="10000"))
    inside = inside.replace('name="nvml1"', 'name="nvml1"/><object type="OSDev" name="cuda0"')
    inside = inside.replace('name="nvml0"', 'name="nvml0"/><object type="OSDev" name="cuda1"')
    topology = parse(machine(inside))
    assert topology.graph.nodes["gpu1"]["bus_id"] == "0004:02:00.0"
    assert topology.graph.nodes["gpu0"]["bus_id"] == "10000:01:00.0"
    assert "cuda numbers the GPUs otherwise" in notes(topology)
    assert path_class(topology, "gpu0", "gpu1") is PathClass.NODE


def test_gpus_of_no_known_socket() -> None:
    """A virtual machine hangs its devices off the machine, not off a package."""
    topology = parse(machine(package(0, "") + package(1, "", "0xf0") + gpu(0) + gpu(1)))
    assert "does not say which socket" in notes(topology)
    assert path_class(topology, "gpu0", "gpu1") is PathClass.NODE
    assert path_class(topology, "gpu0", "memory0") is PathClass.SYS


def test_package_with_two_memory_nodes() -> None:
    inside = (
        '<object type="Package" os_index="0" cpuset="0xff" gp_index="9">'
        '<object type="Group" cpuset="0x0f"><object type="NUMANode" os_index="0" cpuset="0x0f"/>'
        f"{gpu(0)}</object>"
        '<object type="Group" cpuset="0xf0"><object type="NUMANode" os_index="1" cpuset="0xf0"/>'
        f"</object>{gpu(1)}</object>"
    )
    topology = parse(machine(inside))
    assert topology.graph.nodes["gpu0"]["numa"] == 0
    assert "numa" not in topology.graph.nodes["gpu1"]
    assert path_class(topology, "gpu0", "memory0") is PathClass.PHB
    assert path_class(topology, "gpu1", "memory0") is PathClass.SYS


def test_memory_without_processors_is_no_socket() -> None:
    inside = package(0, '<object type="NUMANode" os_index="4" cpuset="0xf" subtype="HBM"/>')
    topology = parse(machine(inside))
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0"]
    assert "memory nodes 4 have no processor" in notes(topology)


def test_file_without_pci_devices() -> None:
    inside = package(0, "".join(f'<object type="OSDev" name="{n}"/>' for n in ("nvml0", "cuda0")))
    topology = parse(machine(inside))
    assert topology.accelerators == ("gpu0",)
    assert "leaves PCI devices out" in notes(topology)


def test_old_file_without_memory_nodes() -> None:
    text = machine('<object type="Socket" os_index="0"/><object type="Socket" os_index="1"/>')
    assert of_kind(parse(text), NodeKind.SOCKET) == ["socket0", "socket1"]
    assert "lists no GPU" in notes(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<topology>",
        "<topology></topology>",
        '<system version="1"/>',
        machine(package(0, gpu(0)))[:400],
        machine("", '<distances2 nbobjs="2" name="N"><indexes>0</indexes></distances2>'),
        machine(
            "",
            '<distances2 nbobjs="1" name="N"><indexes>0</indexes>'
            "<u64values>x</u64values></distances2>",
        ),
        '<!DOCTYPE t [<!ENTITY a "b">]><topology><object type="Machine"/>&a;</topology>',
        "<topology>" + '<object type="Group">' * 10_000 + "</object>" * 10_000 + "</topology>",
        machine("".join(f'<object type="NUMANode" os_index="{k}"/>' for k in range(2000))),
    ],
)
def test_bad_input_is_one_line(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("topology.xml")


def test_a_matrix_too_large_is_refused() -> None:
    rows = [[0] * 300 for _ in range(300)]
    objects = [f"OSDev:{k}" for k in range(300)]
    with pytest.raises(FormatError, match="300 objects"):
        parse(machine(package(0, gpu(0)), hetero("NVLinkBandwidth", objects, rows, 10)))


def test_sniffed_by_content() -> None:
    assert sniff(v2(), file="x").name == "hwloc"
    assert not looks_like_hwloc("<system version='1'><cpu numaid='0'/></system>")


_PIECES = st.sampled_from(
    ['"', "<", ">", "/", "object", "0x", ",,", "-1", "99999999999", "Bridge", "0-1", "nan", "\x00"]
)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_mutations_raise_our_errors_only(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([v2(), V1, machine(package(0, gpu(0) + switch(0)))]))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(base)))
        length = data.draw(st.integers(0, 40))
        base = base[:at] + data.draw(_PIECES) + base[at + length :]
    with contextlib.suppress(TopocalError):
        parse(base).routes()

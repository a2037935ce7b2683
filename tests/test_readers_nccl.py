"""NCCL's topology XML: every trap, each in a file written by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.nccl_xml import looks_like_nccl_xml, parse_nccl_xml
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import View

# 16 GT/s x 16 lanes = 32e9 B/s, x 128/130 coding, x 256/280 of a packet is payload.
GEN4_X16 = 16e9 * 16 / 8 * 128 / 130 * 256 / 280
GEN3_X16 = GEN4_X16 / 2


def parse(body: str, *, version: str = "1") -> Topology:
    return parse_nccl_xml(f'<system version="{version}">\n{body}\n</system>\n', file="t.xml")


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


def uplink(topology: Topology, node: str) -> dict[str, object]:
    return View(topology, "t").uplink[node]


def gpu_classes(topology: Topology) -> dict[str, int]:
    """Unordered pairs of GPUs by path class."""
    found = Counter(c.name for a, b, c in topology.routes(topology.accelerators).classes() if a < b)
    return dict(found)


TWO_GPUS = """
<cpu numaid="0" affinity="0000000f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
  <pci busid="0000:10:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
    <pci busid="0000:11:00.0" class="0x030200" vendor="0x10DE" device="0x20b2"
         link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80" rank="4" gdr="1"/></pci>
    <pci busid="0000:12:00.0" class="0x030200" link_speed="8 GT/s" link_width="16">
      <gpu dev="1" sm="80"/></pci>
    <pci busid="0000:13:00.0" class="0x020700" link_speed="16 GT/s" link_width="16">
      <nic><net name="mlx5_bond_0" dev="0" speed="200000" port="1" gdr="1"/></nic></pci>
  </pci>
</cpu>
"""


def test_a_switch_with_two_gpus_and_a_nic() -> None:
    topology = parse(TWO_GPUS)
    assert topology.accelerators == ("gpu0", "gpu1")
    assert kinds(topology) == {"gpu": 2, "nic": 1, "pcie-switch": 1, "socket": 1}
    gpu = topology.graph.nodes["gpu0"]
    assert gpu["bus_id"] == "0000:11:00.0"
    assert (gpu["index"], gpu["numa"], gpu["compute_capability"], gpu["rank"]) == (0, 0, 80, 4)
    assert (gpu["vendor"], gpu["device"], gpu["pci_class"]) == ("0x10de", "0x20b2", "0x030200")
    nic = topology.graph.nodes["nic0"]
    assert (nic["net_names"], nic["network_Bps"]) == (["mlx5_bond_0"], 25e9)
    assert topology.graph.nodes["socket0"]["cpu_list"] == "0-3"
    assert uplink(topology, "gpu0")["nominal_Bps"] == pytest.approx(GEN4_X16)
    assert uplink(topology, "gpu1")["nominal_Bps"] == pytest.approx(GEN3_X16)
    assert uplink(topology, "gpu1")["generation"] == 3
    assert below(topology, "pcie:0000:10:00.0") == {"gpu0", "gpu1", "nic0"}
    assert topology.routes(topology.endpoints).route("gpu0", "nic0") == (
        "gpu0->pcie:0000:10:00.0",
        "pcie:0000:10:00.0->nic0",
    )
    assert gpu_classes(topology) == {"PIX": 1}
    assert topology.graph.graph["peer_access"] is None
    assert topology.graph.graph["notes"] == []
    assert topology.graph.graph["provenance"] == ["t.xml: NCCL topology XML"]


@pytest.mark.parametrize(
    ("speed", "width", "generation", "lanes"),
    [
        ("2.5 GT/s", "16", 1, 16),
        ("5 GT/s PCIe", "8", 2, 8),
        ("8.0 GT/s PCIe", "16", 3, 16),
        ("16 GT/s PCIe", "16", 4, 16),
        ("32 GT/s PCIe/s", "16", 5, 16),
        ("32.0GT/s", "x4", 5, 4),
        ("64.0 GT/s PCIe", "16", 6, 16),
        ("Unknown speed", "16", None, 16),
        ("", "16", None, 16),
        ("16 GT/s", "0", 4, None),
        ("16 GT/s", "255", 4, None),
        ("16 GT/s", "", 4, None),
        ("20 GT/s", "16", None, 16),
    ],
)
def test_speeds_and_widths(
    speed: str, width: str, generation: int | None, lanes: int | None
) -> None:
    topology = parse(
        f'<cpu numaid="0"><pci busid="0000:01:00.0" class="0x0302" link_speed="{speed}" '
        f'link_width="{width}"/></cpu>'
    )
    link = uplink(topology, "gpu0")
    assert (link.get("generation"), link.get("width")) == (generation, lanes)
    known = generation is not None and lanes is not None
    assert (link["nominal_Bps"] is not None) is known
    assert ("capacity is unknown" in notes(topology)) is not known


def test_missing_speed_and_width_are_unknown_and_not_zero() -> None:
    topology = parse('<cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"/></cpu>')
    assert uplink(topology, "gpu0")["nominal_Bps"] is None
    assert "gpu0: the file gives no usable speed and width" in notes(topology)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ('class="0x030000"', NodeKind.GPU),
        ('class="0x0302"', NodeKind.GPU),
        ('class="0x038000"', NodeKind.GPU),
        ('class="0x120000"', NodeKind.GPU),
        ('class="0x020000"', NodeKind.NIC),
        ('class="0x020700"', NodeKind.NIC),
        ('class="0x028000"', NodeKind.NIC),
        ('class="0x060400"', NodeKind.PCIE_SWITCH),
        ("", NodeKind.NIC),
    ],
)
def test_class_tells_the_role(attributes: str, kind: NodeKind) -> None:
    topology = parse(f'<cpu numaid="0"><pci busid="0000:01:00.0" {attributes}/></cpu>')
    (role,) = {k for _, k in topology.graph.nodes(data="kind")} - {NodeKind.SOCKET}
    assert role is kind


def test_content_wins_over_class() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:01:00.0" class="0x010802"><gpu dev="3"/></pci>'
        '<pci busid="0000:02:00.0" class="0x080100"><pci busid="0000:03:00.0" class="0x020000"/>'
        "</pci></cpu>"
    )
    assert topology.accelerators == ("gpu3",)
    assert below(topology, "pcie:0000:02:00.0") == {"nic0"}


def test_disks_and_switch_management_ports_are_left_out() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:01:00.0" class="0x010802"/>'
        '<pci busid="0000:02:00.0" class="0x068000"/><oven/></cpu>'
    )
    assert kinds(topology) == {"socket": 1}
    assert "1 x device of class 0x010802" in notes(topology)
    assert "1 x <oven>" in notes(topology)
    assert "the file lists no GPU" in notes(topology)


def test_an_emulated_bridge_is_not_believed() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:65:00.0" class="0x060400" vendor="0x104c" '
        'device="0x8232" link_speed="2.5 GT/s" link_width="1">'
        '<pci busid="0000:68:00.0" class="0x030200" link_speed="32 GT/s" link_width="16"/>'
        "</pci></cpu>"
    )
    bridge = uplink(topology, "pcie:0000:65:00.0")
    assert bridge["nominal_Bps"] is None
    assert "generation" not in bridge
    assert bridge["speed_text"] == "2.5 GT/s x1"
    assert uplink(topology, "gpu0")["generation"] == 5
    assert "pcie:0000:65:00.0: reads 2.5 GT/s x1, as bridges do" in notes(topology)


def test_a_real_riser_of_one_lane_is_believed() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:65:00.0" class="0x060400" link_speed="2.5 GT/s" '
        'link_width="1"><pci busid="0000:68:00.0" class="0x030200" link_speed="2.5 GT/s" '
        'link_width="1"/></pci></cpu>'
    )
    assert uplink(topology, "pcie:0000:65:00.0")["width"] == 1
    assert "not believed" not in notes(topology)


def test_placeholder_ids_are_no_ids() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400" vendor="0xffff" '
        'device="0x0000"><pci busid="0001:00:00.0" class="0x030200"/></pci></cpu>'
    )
    assert not {"vendor", "device"} & topology.graph.nodes["pcie:ffff:ff:01.0"].keys()


def test_siblings_with_one_address_stay_apart() -> None:
    leaf = (
        '<pci busid="0000:c5:00.0" class="0x060400">'
        '<pci busid="0000:{bus}:00.0" class="0x038000"><gpu dev="{dev}" gcn="908"/></pci></pci>'
    )
    body = "".join(leaf.format(bus=f"d{k}", dev=k) for k in range(3))
    topology = parse(f'<cpu numaid="1">{body}</cpu>')
    assert topology.accelerators == ("gpu0", "gpu1", "gpu2")
    for k, name in enumerate(["", "#2", "#3"]):
        assert below(topology, f"pcie:0000:c5:00.0{name}") == {f"gpu{k}"}
    assert gpu_classes(topology) == {"PHB": 3}
    assert "3 bridges carry the same address 0000:c5:00.0" in notes(topology)


def test_numa_gaps_and_order() -> None:
    body = "".join(
        f'<cpu numaid="{n}"><pci busid="0000:{bus}:00.0" class="0x030200"/></cpu>'
        for n, bus in ((3, "0f"), (1, "51"), (7, "8d"))
    )
    topology = parse(body)
    where = {g: topology.graph.nodes[g]["numa"] for g in topology.accelerators}
    assert where == {"gpu0": 3, "gpu1": 1, "gpu2": 7}
    assert gpu_classes(topology) == {"SYS": 3}
    assert "index" not in topology.graph.nodes["gpu0"]
    assert "does not number its GPUs" in notes(topology)


def test_gpus_without_numbers_are_ordered_by_hexadecimal_address() -> None:
    body = "".join(
        f'<pci busid="{domain}:00:00.0" class="0x030200"/>' for domain in ("000a", "0009", "0010")
    )
    topology = parse(f'<cpu numaid="0">{body}</cpu>')
    assert [topology.graph.nodes[g]["bus_id"][:4] for g in topology.accelerators] == [
        "0009",
        "000a",
        "0010",
    ]
    assert "3 GPUs hang directly off socket0" in notes(topology)


def test_numbers_that_clash_give_way_to_addresses() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:02:00.0"><gpu dev="0"/></pci>'
        '<pci busid="0000:01:00.0"><gpu dev="0"/></pci></cpu>'
    )
    assert topology.graph.nodes["gpu0"]["bus_id"] == "0000:01:00.0"
    assert "several GPUs carry the same dev number" in notes(topology)


def gpu(dev: int, bus: str, links: str, *, sm: str = 'sm="80"') -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x030200"><gpu dev="{dev}" {sm}>{links}</gpu></pci>'
    )


def test_nvswitches_that_gpus_share_are_one_fabric() -> None:
    links = "".join(f'<nvlink target="0000:c{k}:00.0" count="2" tclass="0x068000"/>' for k in "012")
    topology = parse(f'<cpu numaid="0">{gpu(0, "11", links)}{gpu(1, "12", links)}</cpu>')
    assert topology.graph.nodes["nvswitch0"]["bus_ids"] == [f"0000:c{k}:00.0" for k in "012"]
    link = topology.graph.edges["gpu0", "nvswitch0", "gpu0->nvswitch0"]
    # Third generation: 25e9 B/s per link; 3 switches x 2 links.
    assert (link["count"], link["generation"], link["nominal_Bps"]) == (6, 3, 150e9)
    assert topology.routes().route("gpu0", "gpu1") == ("gpu0->nvswitch0", "nvswitch0->gpu1")
    assert gpu_classes(topology) == {"NVL": 1}


def test_a_gpu_with_fewer_links_to_the_switches_is_told() -> None:
    six = '<nvlink target="0000:c0:00.0" count="6" tclass="0x068000"/>'
    five = six.replace('"6"', '"5"')
    topology = parse(f'<cpu numaid="0">{gpu(0, "11", six)}{gpu(1, "12", five)}</cpu>')
    assert "gpu1 has 5 NVLinks to the switches where others have 6" in notes(topology)


def test_two_boards_of_nvswitches_are_joined_by_links_of_unknown_capacity() -> None:
    one, two = (
        f'<nvlink target="0000:{bus}:00.0" count="6" tclass="0x068000"/>' for bus in ("c0", "d0")
    )
    topology = parse(f'<cpu numaid="0">{gpu(0, "11", one)}{gpu(1, "12", two)}</cpu>')
    assert (
        topology.graph.edges["nvswitch0", "nvswitch1", "nvswitch0->nvswitch1"]["nominal_Bps"]
        is None
    )
    assert gpu_classes(topology) == {"NVL": 1}
    assert "nvswitch0 and nvswitch1 share no GPU" in notes(topology)


def test_direct_links_self_links_and_absent_targets() -> None:
    first = (
        '<nvlink target="0000:12:00.0" count="1" tclass="0x030200"/>'
        '<nvlink target="0000:12:00.0" count="1" tclass="0x030200"/>'
        '<nvlink target="0000:11:00.0" count="4" tclass="0x030200"/>'
        '<nvlink target="0000:99:00.0" count="3" tclass="0x030200"/>'
        '<nvlink target="0000:12:00.0" count="many"/>'
    )
    second = '<nvlink target="0000:11:00.0" count="2" tclass="0x030200"/>'
    topology = parse(
        f'<cpu numaid="0">{gpu(0, "11", first, sm="sm=" + chr(34) + "70" + chr(34))}'
        f"{gpu(1, '12', second, sm='sm=' + chr(34) + '70' + chr(34))}</cpu>"
    )
    link = topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["kind"], link["count"], link["nominal_Bps"]) == (LinkKind.NVLINK, 2, 50e9)
    assert not any(kind is NodeKind.NVSWITCH for _, kind in topology.graph.nodes(data="kind"))
    assert "gpu0 lists 4 links to itself" in notes(topology)
    assert "gpu0 lists 3 links to 0000:99:00.0, which the file does not describe" in notes(topology)
    assert "gpu0 lists 'many' links to 0000:12:00.0: left out" in notes(topology)


def test_links_that_one_end_alone_lists() -> None:
    links = '<nvlink target="0000:12:00.0" count="2" tclass="0x030200"/>'
    topology = parse(f'<cpu numaid="0">{gpu(0, "11", links)}{gpu(1, "12", "")}</cpu>')
    assert gpu_classes(topology) == {"NVL": 1}
    assert "gpu0 lists 2 links to gpu1, which lists none back" in notes(topology)


def test_an_nvlink_of_unknown_generation_has_no_nominal() -> None:
    links = '<nvlink target="0000:c0:00.0" count="2" tclass="0x068000"/>'
    topology = parse(f'<cpu numaid="0">{gpu(0, "11", links, sm="")}</cpu>')
    assert topology.graph.edges["gpu0", "nvswitch0", "gpu0->nvswitch0"]["nominal_Bps"] is None


@pytest.mark.parametrize(
    ("gcn", "rate"), [("gfx942", 64e9), ("910", 50e9), ("906", 46e9), ("21943", None)]
)
def test_xgmi_and_both_spellings_of_gcn(gcn: str, rate: float | None) -> None:
    def card(dev: int, bus: str, peer: str) -> str:
        return (
            f'<pci busid="0000:{bus}:00.0" class="0x120000"><gpu dev="{dev}" sm="304" gcn="{gcn}">'
            f'<xgmi target="0000:{peer}:00.0" count="1" tclass="0x120000"/></gpu></pci>'
        )

    topology = parse(
        f'<cpu numaid="0">{card(0, "0c", "15")}{card(1, "15", "0c")}</cpu>', version="2"
    )
    link = topology.graph.edges["gpu1", "gpu0", "gpu1->gpu0"]
    assert (link["kind"], link["nominal_Bps"]) == (LinkKind.XGMI, rate)
    assert topology.graph.nodes["gpu0"]["architecture"] == gcn
    assert "compute_capability" not in topology.graph.nodes["gpu0"]


def test_power9_links_to_the_processor_and_chip_to_chip() -> None:
    power = parse(
        '<cpu numaid="8" arch="ppc64"><pci busid="0035:03:00.0"><gpu dev="2" sm="70">'
        '<nvlink target="0007:00:00.0" count="3" tclass="0x068001"/></gpu></pci></cpu>'
    )
    assert power.graph.edges["socket8", "gpu2", "socket8->gpu2#2"]["nominal_Bps"] == 75e9
    grace = parse(
        '<cpu numaid="-1" arch="arm64"><pci busid="000f:01:00.0" class="0x030000"><gpu dev="0" '
        'sm="121"><c2c bw="43125" count="8"/></gpu></pci>'
        '<nic><net name="eth0" dev="0" speed="10000"/></nic></cpu>'
    )
    link = grace.graph.edges["gpu0", "socket0", "gpu0->socket0#2"]
    assert (link["kind"], link["nominal_Bps"], link["count"]) == (LinkKind.C2C, 345e9, 8)
    assert "numa" not in grace.graph.nodes["socket0"]
    # A network device without a PCI device behind it.
    (virtual,) = grace.graph["socket0"]["nic0"].values()
    assert (virtual["kind"], virtual["nominal_Bps"]) == (LinkKind.UNKNOWN, None)
    assert "bus_id" not in grace.graph.nodes["nic0"]


def test_two_ports_of_one_card_are_one_nic() -> None:
    topology = parse(
        '<cpu numaid="0"><pci busid="0000:61:00.0" class="0x020700"><nic>'
        '<net name="mlx5_4" dev="4" speed="200000" port="1"/>'
        '<net name="mlx5_5" dev="5" speed="100000" port="2"/></nic></pci></cpu>'
    )
    nic = topology.graph.nodes["nic4"]
    assert (nic["net_names"], nic["network_Bps"]) == (["mlx5_4", "mlx5_5"], 37.5e9)


def test_hosts_that_nvlink_joins() -> None:
    links = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    host = (
        '<cpu host_hash="{hash}" numaid="0"><pci busid="0008:01:00.0"><gpu dev="0" sm="100">'
        + links
        + '</gpu></pci></cpu><cpu host_hash="{hash}" numaid="1"/>'
    )
    topology = parse(host.format(hash="0x1") + host.format(hash="0x2"))
    assert topology.accelerators == ("host0/gpu0", "host1/gpu0")
    assert gpu_classes(topology) == {"NVL": 1}
    assert topology.graph.has_edge("host0/socket0", "host0/socket1")
    assert not topology.graph.has_edge("host0/socket0", "host1/socket0")
    assert topology.graph.nodes["host1/gpu0"]["host"] == "host1"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- (c) somebody -->\n<!-- more -->\n<system version='2'>{}</system><!-- end -->",
        '<?xml version="1.0" encoding="UTF-8"?>\n\n<system>{}</system>',
        "$ cat topo.xml\n<system version='1'>{}</system>\n$ ",
        "{}",
        "<system><!-- a -->{}<!-- b --></system>",
    ],
)
def test_comments_prompts_and_fragments_around(text: str) -> None:
    whole = text.format(TWO_GPUS.replace("<pci", "<!-- here --><pci"))
    assert looks_like_nccl_xml(whole)
    assert kinds(parse_nccl_xml(whole, file="t.xml"))["gpu"] == 2


def test_devices_outside_any_cpu() -> None:
    topology = parse('<pci busid="0000:01:00.0" class="0x030200"/>')
    assert topology.accelerators == ("gpu0",)
    assert "numa" not in topology.graph.nodes["gpu0"]
    assert "1 devices stand outside any <cpu>" in notes(topology)


def test_masks_that_are_none_are_told() -> None:
    topology = parse('<cpu numaid="0" affinity="0000ffff,xyz"/><cpu numaid="0"/>')
    assert "cpu_list" not in topology.graph.nodes["socket0"]
    assert "the CPU mask '0000ffff,xyz' cannot be read" in notes(topology)
    assert "socket0#2" in topology.graph


def test_another_root_element_is_refused() -> None:
    with pytest.raises(FormatError, match=r"t\.xml:2: its root element is <graphs>"):
        parse_nccl_xml("<!-- -->\n<graphs version='1'/>", file="t.xml")
    with pytest.raises(FormatError, match="describes no CPU and no device"):
        parse("")

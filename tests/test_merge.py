"""Several files of one machine: what matches, what fills in, what contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topocal.topo.builder import TopologyBuilder
from topocal.topo.contradictions import Contradiction
from topocal.topo.errors import InputError
from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.merge import Merged, merge
from topocal.topo.nominal import pcie_Bps
from topocal.topo.readers.nccl_xml import parse_nccl_xml
from topocal.topo.readers.registry import read_any
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import View

CASES = Path(__file__).parents[1].parent / "shared" / "cases"


def xml(body: str, *, file: str = "a.xml") -> Topology:
    return parse_nccl_xml(f"<system>{body}</system>", file=file)


def gpu(bus: str, *, dev: int | None = None, speed: str = "16 GT/s", width: int = 16) -> str:
    inside = "" if dev is None else f'<gpu dev="{dev}" sm="80"/>'
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x030200" link_speed="{speed}" '
        f'link_width="{width}">{inside}</pci>'
    )


def switch(bus: str, *inside: str, width: int = 16) -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x060400" link_speed="16 GT/s" '
        f'link_width="{width}">{"".join(inside)}</pci>'
    )


def nic(bus: str, name: str = "mlx5_0", dev: int = 0, speed: int = 100_000) -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x020700" link_speed="16 GT/s" link_width="16">'
        f'<nic><net name="{name}" dev="{dev}" speed="{speed}"/></nic></pci>'
    )


TREE = (
    '<cpu numaid="0">' + switch("10", gpu("11", dev=0), gpu("12", dev=1), nic("13")) + "</cpu>"
    '<cpu numaid="1">' + switch("20", gpu("21", dev=2), gpu("22", dev=3)) + "</cpu>"
)


def matrix(
    classes: dict[tuple[int, int], str],
    *,
    gpus: int = 4,
    nvlinks: dict[tuple[int, int], int] | None = None,
    numa: tuple[int, ...] = (0, 0, 1, 1),
    **attributes: Any,
) -> Topology:
    """What a reader of ``topo -m`` makes: numbers and classes, no addresses, no capacities."""
    builder = TopologyBuilder("matrix")
    builder.source("topo-m.txt: nvidia-smi topo -m")
    for n in sorted(set(numa)):
        builder.node(f"socket{n}", NodeKind.SOCKET, numa=n)
    if len(set(numa)) == 2:
        builder.connect("socket0", "socket1", LinkKind.SMP)
    for k in range(gpus):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k, numa=numa[k], **attributes)
        builder.connect(f"socket{numa[k]}", f"gpu{k}", LinkKind.PCIE)
    for (a, b), count in (nvlinks or {}).items():
        builder.connect(f"gpu{a}", f"gpu{b}", LinkKind.NVLINK, count=count)
    builder.stated_classes = [[f"gpu{a}", f"gpu{b}", c] for (a, b), c in classes.items()]
    return builder.build()


AGREEING = {(0, 1): "PIX", (2, 3): "PIX", **{(a, b): "SYS" for a in (0, 1) for b in (2, 3)}}


def found(merged: Merged, about: str) -> Contradiction:
    """The one contradiction about something."""
    (one,) = [c for c in merged.contradictions if c.about == about]
    return one


# Matching


def test_files_that_agree_have_no_contradictions() -> None:
    merged = merge([matrix(AGREEING), xml(TREE)])
    assert merged.contradictions == ()
    assert merged.topology.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")
    graph = merged.topology.graph.graph
    assert graph["provenance"] == ["topo-m.txt: nvidia-smi topo -m", "a.xml: NCCL topology XML"]
    assert graph["stated_classes"][0] == ["gpu0", "gpu1", "PIX"]
    document = topology_to_document(merged.topology)
    assert topology_from_document(document, file="t") == merged.topology


def test_one_file_alone_comes_back_as_it_is() -> None:
    topology = xml(TREE)
    merged = merge([topology])
    assert merged.topology == topology
    assert merged.contradictions == ()


def test_order_of_the_files_does_not_matter() -> None:
    files = [matrix(AGREEING), xml(TREE)]
    one, two = merge(files), merge(files[::-1])
    assert dict(one.topology.graph.nodes) == dict(two.topology.graph.nodes)
    assert set(one.topology.links) == set(two.topology.links)


def test_addresses_come_before_numbers() -> None:
    body = '<cpu numaid="0">' + gpu("01", dev=0) + gpu("02", dev=1) + "</cpu>"
    swapped = '<cpu numaid="0">' + gpu("01", dev=1) + gpu("02", dev=0) + "</cpu>"
    merged = merge([xml(body), xml(swapped, file="b.xml")])
    assert merged.topology.graph.nodes["gpu0"]["bus_id"] == "0000:01:00.0"
    numbers = found(merged, "numbers")
    assert numbers.evidence == ("gpu0: 0 in a.xml, 1 in b.xml", "gpu1: 1 in a.xml, 0 in b.xml")


def test_equal_counts_match_by_order() -> None:
    hint = '<cpu numaid="0">' + gpu("21") + gpu("11") + "</cpu>"
    merged = merge([xml(hint), matrix({(0, 1): "PHB"}, gpus=2, numa=(0, 0), model="A100")])
    nodes = merged.topology.graph.nodes
    assert [(nodes[g]["bus_id"][5:7], nodes[g]["index"]) for g in ("gpu0", "gpu1")] == [
        ("11", 0),
        ("21", 1),
    ]
    assert nodes["gpu0"]["model"] == "A100"


def test_nics_match_by_name() -> None:
    builder = TopologyBuilder("other")
    builder.node("socket0", NodeKind.SOCKET, numa=0)
    builder.node("nic7", NodeKind.NIC, net_names=["mlx5_0"], index=7, model="ConnectX-7")
    builder.connect("socket0", "nic7", LinkKind.PCIE)
    merged = merge([xml(TREE), builder.build()])
    assert merged.topology.graph.nodes["nic0"]["model"] == "ConnectX-7"


def test_a_third_file_may_link_two_that_share_nothing() -> None:
    names = TopologyBuilder("names")
    names.node("socket0", NodeKind.SOCKET, numa=0)
    names.node("nic0", NodeKind.NIC, net_names=["mlx5_0"])
    names.connect("socket0", "nic0", LinkKind.PCIE)
    alone = matrix(AGREEING)
    with pytest.raises(InputError, match="no device in common"):
        merge([alone, names.build()])
    assert len(merge([alone, names.build(), xml(TREE)]).topology.endpoints) == 5


def test_files_of_different_machines_are_refused() -> None:
    other = xml('<cpu numaid="0">' + gpu("77", dev=0) + "</cpu>", file="b.xml")
    with pytest.raises(InputError, match=r"b\.xml has no device in common with a\.xml") as caught:
        merge([xml(TREE), other])
    assert "merge the files of one machine" in caught.value.remedy
    hint = xml('<cpu numaid="0">' + gpu("01") + "</cpu>")
    with pytest.raises(InputError, match="no device in common"):
        merge([hint, matrix({}, gpus=2, numa=(0, 0), model="H100")])
    with pytest.raises(InputError, match="nothing to merge"):
        merge([])


def test_models_that_differ_are_not_matched_by_number() -> None:
    two = matrix({}, gpus=2, numa=(0, 0), model="NVIDIA H100 80GB")
    other = matrix({}, gpus=2, numa=(0, 0), model="NVIDIA A100")
    with pytest.raises(InputError, match="no device in common"):
        merge([two, other])


# Filling in


def test_widths_fill_links_whose_speed_is_unknown() -> None:
    bare = (
        '<cpu numaid="0"><pci busid="0000:10:00.0" class="0x060400">'
        '<pci busid="0000:11:00.0" class="0x030200"/></pci></cpu>'
    )
    full = '<cpu numaid="0">' + switch("10", gpu("11", dev=5), width=8) + "</cpu>"
    extra = '<cpu numaid="1">' + gpu("99", dev=6) + "</cpu>"
    # The bare file shows more GPUs, so it gives the graph.
    merged = merge([xml(bare + extra.replace("dev=", "x=")), xml(full, file="b.xml")])
    view = View(merged.topology, "t")
    assert view.uplink["gpu0"]["nominal_Bps"] == pcie_Bps(4, 16)
    link = view.uplink["pcie:0000:10:00.0"]
    assert (link["generation"], link["width"], link["nominal_Bps"]) == (4, 8, pcie_Bps(4, 8))
    for direction in ("socket0->pcie:0000:10:00.0", "pcie:0000:10:00.0->socket0"):
        resource = merged.topology.resources[direction]
        assert resource.nominal_Bps == pcie_Bps(4, 8)
        assert "PCI Express" in resource.source
    assert merged.topology.graph.nodes["gpu0"]["index"] == 5


def test_nothing_that_a_file_states_is_replaced() -> None:
    slow = '<cpu numaid="0">' + gpu("11", dev=0, speed="8 GT/s") + "</cpu>"
    fast = '<cpu numaid="0">' + gpu("11", dev=0, speed="32 GT/s") + "</cpu>"
    merged = merge([xml(slow), xml(fast, file="b.xml")])
    link = View(merged.topology, "t").uplink["gpu0"]
    assert (link["generation"], link["nominal_Bps"]) == (3, pcie_Bps(3, 16))
    assert found(merged, "PCIe links").evidence == ("gpu0: Gen3 x16 in a.xml, Gen5 x16 in b.xml",)


def test_half_of_one_file_and_half_of_another_make_no_link() -> None:
    no_width = '<cpu numaid="0">' + gpu("11", dev=0, width=0) + "</cpu>"
    slower = '<cpu numaid="0">' + gpu("11", dev=0, speed="8 GT/s") + "</cpu>"
    merged = merge([xml(no_width), xml(slower, file="b.xml")])
    # The second file is the richer one; asked the other way, nothing may be mixed either.
    assert View(merged.topology, "t").uplink["gpu0"]["nominal_Bps"] == pcie_Bps(3, 16)
    more = '<cpu numaid="1">' + gpu("21", dev=1) + "</cpu>"
    link = View(merge([xml(no_width + more), xml(slower)]).topology, "t").uplink["gpu0"]
    assert (link["generation"], link.get("width"), link["nominal_Bps"]) == (4, None, None)


def test_a_figure_that_was_not_believed_does_not_come_back_from_another_file() -> None:
    def bridge(card: str) -> str:
        return (
            '<cpu numaid="0"><pci busid="0000:10:00.0" class="0x060400" link_speed="2.5 GT/s" '
            f'link_width="1">{card}</pci></cpu>'
        )

    doubted = bridge(gpu("11", dev=0)) + '<cpu numaid="1">' + gpu("21", dev=1) + "</cpu>"
    # Without a faster card below, nothing tells that the bridge is emulated.
    believed = bridge(gpu("11", dev=0, speed="", width=0))
    merged = merge([xml(doubted), xml(believed, file="b.xml")])
    link = View(merged.topology, "t").uplink["pcie:0000:10:00.0"]
    assert (link["nominal_Bps"], link["speed_text"]) == (None, "2.5 GT/s x1")


def test_gpu_links_come_from_the_file_that_has_them() -> None:
    links = {(0, 1): 4, (2, 3): 4}
    classes = {**AGREEING, (0, 1): "NVL", (2, 3): "NVL"}
    merged = merge([xml(TREE), matrix(classes, nvlinks=links)])
    assert merged.contradictions == ()
    (link,) = merged.topology.graph["gpu0"]["gpu1"].values()
    assert (link["kind"], link["count"]) == (LinkKind.NVLINK, 4)
    assert link["reverse"] == "gpu1->gpu0"
    assert merged.topology.routes().route("gpu0", "gpu1") == ("gpu0->gpu1",)
    assert merged.topology.validate() == []


def test_devices_that_only_the_smaller_file_has_are_added_in_their_place() -> None:
    small = '<cpu numaid="0">' + switch("10", gpu("11", dev=0), nic("14", "mlx5_9", 0)) + "</cpu>"
    big = TREE.replace(nic("13"), "")
    merged = merge([xml(big), xml(small, file="b.xml")])
    view = View(merged.topology, "t")
    assert view.above["nic0"][0] == "pcie:0000:10:00.0"
    assert view.uplink["nic0"]["nominal_Bps"] == pcie_Bps(4, 16)
    routes = merged.topology.routes(merged.topology.endpoints)
    assert len(routes.route("gpu1", "nic0")) == 2
    assert merged.topology.validate() == []


def test_an_added_device_does_not_take_anothers_name() -> None:
    more = '<cpu numaid="0">' + switch("10", gpu("11", dev=0), nic("13"), nic("14", "b", 1))
    merged = merge([xml(TREE), xml(more + "</cpu>", file="b.xml")])
    names = {n: merged.topology.graph.nodes[n]["net_names"] for n in ("nic0", "nic1")}
    assert names == {"nic0": ["mlx5_0"], "nic1": ["b"]}


def test_peer_access_is_taken_over_or_compared() -> None:
    open_, closed = matrix(AGREEING), matrix(AGREEING)
    open_.graph.graph["peer_access"], closed.graph.graph["peer_access"] = True, False
    assert merge([xml(TREE), closed]).topology.graph.graph["peer_access"] is False
    assert "copies between GPUs" in found(merge([open_, closed]), "peer access").what


# Contradictions


def test_classes_that_disagree() -> None:
    wrong = {**AGREEING, (0, 1): "SYS", (0, 2): "PHB", (1, 2): "PHB"}
    merged = merge([xml(TREE), matrix(wrong)])
    assert found(merged, "gpu0-gpu1").what == "PIX in a.xml, SYS in topo-m.txt"
    two = found(merged, "2 pairs")
    assert (two.what, two.evidence) == (
        "SYS in a.xml, PHB in topo-m.txt",
        ("gpu0-gpu2", "gpu1-gpu2"),
    )
    assert len(merged.contradictions) == 3
    assert "by number alone, and most of their devices" in found(merged, "one machine?").what


def test_node_and_phb_are_one_distance() -> None:
    body = '<cpu numaid="0">' + switch("10", gpu("11", dev=0)) + switch("20", gpu("21", dev=1))
    merged = merge([xml(body + "</cpu>"), matrix({(0, 1): "NODE"}, gpus=2, numa=(0, 0))])
    assert merged.contradictions == ()


def test_a_gpu_that_has_lost_its_nvlinks() -> None:
    def linked(*devs: int) -> str:
        link = '<nvlink target="0000:c0:00.0" count="12" tclass="0x068000"/>'
        return '<cpu numaid="0">' + "".join(
            f'<pci busid="0000:0{k}:00.0"><gpu dev="{k}" sm="80">{link if k in devs else ""}'
            "</gpu></pci>"
            for k in range(3)
        )

    whole, broken = linked(0, 1, 2) + "</cpu>", linked(0, 1) + "</cpu>"
    merged = merge([xml(whole), xml(broken, file="b.xml")])
    pairs = found(merged, "2 pairs")
    assert pairs.what == "NVL in a.xml, PHB in b.xml"
    assert pairs.evidence == ("gpu0-gpu2", "gpu1-gpu2")


def test_different_numbers_of_links() -> None:
    twelve, eleven = (matrix({}, nvlinks={(0, 1): n}) for n in (12, 11))
    assert found(merge([twelve, eleven]), "GPU links").evidence == (
        "gpu0: 12 in topo-m.txt (1), 11 in topo-m.txt (2)",
        "gpu1: 12 in topo-m.txt (1), 11 in topo-m.txt (2)",
    )


def test_a_file_that_lists_some_of_the_devices_is_no_contradiction() -> None:
    fewer = TREE.replace(gpu("22", dev=3), "").replace(nic("13"), nic("13") + nic("14", "b", 1))
    merged = merge([xml(TREE), xml(fewer, file="b.xml")])
    assert merged.contradictions == ()
    assert merged.notes == ("a.xml lists 1 of the 2 NICs", "b.xml lists 3 of the 4 GPUs")
    assert merged.topology.graph.graph["notes"][-2:] == list(merged.notes)


def test_files_that_each_list_devices_of_their_own() -> None:
    other = TREE.replace(
        nic("13"), nic("14", "b", 1) + gpu("15", dev=9) + nic("16", "c", 2) + nic("17", "d", 3)
    )
    one = TREE.replace(nic("13"), nic("13") + nic("16", "c", 2))
    merged = merge([xml(one), xml(other, file="b.xml")])
    nics = found(merged, "NICs")
    assert nics.what == "the files list different NICs: 3 in b.xml, 2 in a.xml"
    assert nics.evidence == (
        "only in b.xml: nic1 at 0000:14:00.0, nic3 at 0000:17:00.0",
        "only in a.xml: nic0 at 0000:13:00.0",
    )
    assert merged.notes == ("a.xml lists 4 of the 5 GPUs",)


def test_addresses_that_moved() -> None:
    moved = TREE.replace('busid="0000:22', 'busid="0000:23')
    merged = merge([xml(TREE), xml(moved, file="b.xml")])
    (evidence,) = found(merged, "PCI addresses").evidence
    assert evidence == "gpu3 is 0000:22:00.0 in a.xml and 0000:23:00.0 in b.xml"
    assert len(merged.topology.accelerators) == 4


def test_one_address_of_two_kinds() -> None:
    other = TREE.replace(nic("13"), gpu("13", dev=4))
    merged = merge([xml(TREE), xml(other, file="b.xml")])
    clash = found(merged, "PCI addresses")
    assert clash.what == "one address is two kinds of device"
    assert clash.evidence == ("0000:13:00.0 is a gpu in b.xml and a nic in a.xml",)


def test_devices_elsewhere() -> None:
    other = TREE.replace("0000:20:00.0", "0000:30:00.0").replace('numaid="1"', 'numaid="2"')
    merged = merge([xml(TREE), xml(other, file="b.xml")])
    assert found(merged, "PCIe switches").evidence[0] == (
        "gpu2: below 0000:20:00.0 in a.xml, below 0000:30:00.0 in b.xml"
    )
    assert found(merged, "NUMA nodes").evidence[0] == "gpu2: 1 in a.xml, 2 in b.xml"


def test_network_speeds() -> None:
    other = TREE.replace('speed="100000"', 'speed="200000"')
    assert found(merge([xml(TREE), xml(other, file="b.xml")]), "network speed").evidence == (
        "nic0: 12500000000.0 in a.xml, 25000000000.0 in b.xml",
    )


# One file against itself


def test_a_bridge_of_two_lanes_above_a_card_of_sixteen() -> None:
    body = '<cpu numaid="0">' + switch("10", gpu("11", dev=0), width=2) + "</cpu>"
    merged = merge([xml(body)])
    narrow = found(merged, "pcie:0000:10:00.0")
    assert narrow.what.startswith("a link of 2 lanes above a card of 16")
    assert narrow.evidence == ("pcie:0000:10:00.0: Gen4 x2", "gpu0: Gen4 x16")
    assert any("a link of 2 lanes" in note for note in merged.topology.graph.graph["notes"])


def test_a_link_trained_below_its_capability() -> None:
    builder = TopologyBuilder("m")
    builder.node("socket0", NodeKind.SOCKET, numa=0)
    builder.node("gpu0", NodeKind.GPU, index=0)
    builder.connect(
        "socket0",
        "gpu0",
        LinkKind.PCIE,
        generation=1,
        width=8,
        max_generation=4,
        max_width=16,
    )
    low = found(merge([builder.build()]), "gpu0")
    assert "below its capability in speed and width" in low.what
    assert "an idle GPU may save power" in low.what
    assert low.evidence == ("runs Gen1 x8", "could run Gen4 x16")
    assert str(low).endswith("(runs Gen1 x8; could run Gen4 x16)")


def test_gpu_order_against_address_order() -> None:
    body = '<cpu numaid="0">' + gpu("02", dev=0) + gpu("01", dev=1) + gpu("03", dev=2) + "</cpu>"
    order = found(merge([xml(body)]), "GPU order")
    assert order.evidence == ("gpu0 is 0000:02:00.0", "gpu1 is 0000:01:00.0")
    assert merge([xml(TREE)]).contradictions == ()


def test_nic_names_against_addresses() -> None:
    right = '<cpu numaid="0">' + nic("4f", "rdmap79s0") + nic("50", "mlx5_1", 1) + "</cpu>"
    assert merge([xml(right)]).contradictions == ()
    wrong = '<cpu numaid="0">' + nic("50", "rdmap79s0") + "</cpu>"
    assert found(merge([xml(wrong)]), "NIC names").evidence == (
        "rdmap79s0 is named for bus 4f and listed at 0000:50:00.0",
    )


# Public cases


def cases(*names: str) -> Merged:
    paths = [CASES / name for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip("the public cases are not here")
    return merge([read_any(path) for path in paths])


def test_the_two_p5_files() -> None:
    merged = cases("xml-aws-p5-two-versions/topo-2023.xml", "xml-aws-p5-two-versions/topo-2026.xml")
    assert len(merged.topology.accelerators) == 8
    assert len(merged.topology.endpoints) == 40
    kinds = [c for c in merged.contradictions if "two kinds" in c.what]
    assert "0000:4f:00.0 is a gpu in topo-2026.xml and a nic in topo-2023.xml" in kinds[0].evidence
    assert found(merged, "NUMA nodes")
    assert found(merged, "PCIe links")
    names = found(merged, "NIC names").evidence
    assert "rdmap79s0 is named for bus 4f and listed at 0000:50:00.0" in names
    assert "gpu0" not in str(found(merged, "PCIe switches"))


def test_the_two_oci_files() -> None:
    merged = cases(
        "xml-oci-a100-flattened/topo-b4-rome.xml", "xml-oci-a100-flattened/topo-b4-milan.xml"
    )
    assert len(merged.topology.endpoints) == 16
    moved = [e for e in found(merged, "PCI addresses").evidence if e.startswith("gpu")]
    assert [e.split()[0] for e in moved] == ["gpu2", "gpu3", "gpu4", "gpu5"]
    assert found(merged, "processors")


def test_slices_of_one_dump() -> None:
    merged = cases(*(f"xml-user-a100-bonded-nic/topo-{n}gpu.xml" for n in (1, 8, 4)))
    assert len(merged.topology.accelerators) == 8
    assert merged.contradictions == ()
    assert merged.notes == (
        "topo-4gpu.xml lists 4 of the 8 GPUs",
        "topo-4gpu.xml lists 3 of the 5 NICs",
        "topo-1gpu.xml lists 1 of the 8 GPUs",
        "topo-1gpu.xml lists 2 of the 5 NICs",
    )


def test_files_of_two_machines() -> None:
    with pytest.raises(InputError, match="no device in common"):
        cases("xml-aws-p4d-p4de/topo-p4d.xml", "xml-azure-ndv2/topo.xml")

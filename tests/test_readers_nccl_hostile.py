"""Damaged and hostile NCCL files: one line that says what and where, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import FormatError, TopocalError
from topocal.topo.io import topology_from_document, topology_to_document
from topocal.topo.merge import merge
from topocal.topo.readers.nccl_log import NCCL_LOG
from topocal.topo.readers.nccl_tree import MAX_NOTES
from topocal.topo.readers.nccl_xml import NCCL_XML, parse_nccl_xml
from topocal.topo.readers.reader import Reader, decode_text
from topocal.topo.readers.registry import parse_any, read_any
from topocal.topo.readers.xml import MAX_DEPTH, MAX_ELEMENTS, parse_xml
from topocal.topo.topology import Topology

XML = """<!-- p -->
<system version="2">
  <cpu host_hash="0x1" numaid="0" affinity="000000ff,ffff0000" arch="x86_64">
    <pci busid="0000:05:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0c:00.0" class="0x120000" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="304" gcn="gfx942" rank="0" gdr="1">
          <xgmi target="0000:15:00.0" count="1" tclass="0x120000"/>
        </gpu>
      </pci>
      <pci busid="0000:07:00.0" class="0x020700" link_speed="16 GT/s" link_width="0">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1">
    <pci busid="0000:15:00.0" class="0x120000"><gpu dev="1" gcn="910">
      <xgmi target="0000:0c:00.0" count="1" tclass="0x120000"/>
      <nvlink target="0000:c0:00.0" count="2" tclass="0x068000"/></gpu></pci>
  </cpu>
</system>
"""

LOG = """h:1:2 [0] NCCL INFO === System : maxBw 24.0 totalBw 48.0 ===
h:1:2 [0] NCCL INFO CPU/0-0 (1/1/2)
h:1:2 [0] NCCL INFO + PCI[12.0] - PCI/0-7000 (10b5874710b58747)
h:1:2 [0] NCCL INFO               + PCI[12.0] - DEV/0-b000 (100266a3106b0203)
h:1:2 [0] NCCL INFO                             + LOC[5000.0] - GPU/0-b000
h:1:2 [0] NCCL INFO                             + XGMI[24.0] - DEV/0-e000
h:1:2 [0] NCCL INFO               + PCI[12.0] - DEV/0-e000 (100266a3106b0203)
h:1:2 [0] NCCL INFO                             + NVL[24.0] - NVS/0
h:1:2 [0] NCCL INFO               + PCI[5000.0] - NIC/0
h:1:2 [0] NCCL INFO                               + NET[1.2] - NET/2 (0/0/1.25)
h:1:2 [0] NCCL INFO + SYS[9.0] - CPU/0-1
h:1:2 [0] NCCL INFO CPU/0-1 (1/1/2)
h:1:2 [0] NCCL INFO ==========================================
h:1:2 [0] NCCL INFO GPU/B000 :GPU/0-e000 (3/24.0/XGMI) NET/0-2 (4/12.0/PXN)
"""

WHOLE = {"nccl-xml": (NCCL_XML, XML), "nccl-log": (NCCL_LOG, LOG)}


def refused(text: str | bytes, *, kind: str | None = None) -> str:
    """The one line that an input ends in."""
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(FormatError) as caught:
        parse_any(decode_text(content, file="bad.xml"), file="bad.xml", kind=kind)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("bad.xml")
    assert caught.value.remedy
    return line


BOMB = "<!DOCTYPE system [\n" + "\n".join(
    ['<!ENTITY a0 "ha">', *(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))]
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            BOMB + "]>\n<system><cpu numaid='0'/>&a9;</system>",
            "bad.xml:2: declares the entity 'a0'",
        ),
        (
            '<!DOCTYPE system [<!ENTITY e SYSTEM "file:///etc/passwd">]>\n<system>&e;</system>',
            "bad.xml:1: declares the entity 'e'",
        ),
        (
            '<!DOCTYPE system [<!ENTITY % e SYSTEM "http://example.org/x">%e;]>\n<system/>',
            "bad.xml:1: declares the entity 'e'",
        ),
        (
            '<!DOCTYPE system SYSTEM "x.dtd">\n<system>\n&e; </system>',
            "bad.xml:3: uses the unknown",
        ),
        ("<system> <cpu numaid='0'>&e;</cpu> </system>", "bad.xml:1: not well-formed XML"),
        ("<system> " + "<pci>\n" * 10_000, "bad.xml:200: nests elements deeper than 200"),
        (
            "<system> <cpu\nnumaid='0'>\n<pci>\n",
            "bad.xml:3: the XML is cut off inside <pci> of line 3",
        ),
        (
            '<pci busid="0000:07:00.0" class="0x030200">\n<gpu dev="0" sm="80"/></pci>\n</pci>',
            "bad.xml: is a part from within an NCCL topology file",
        ),
        ("<system> <cpu numaid='0' affinity='00", "bad.xml:1: the XML is cut off inside <system>"),
        ("<system> <cpu numaid='0'></system>", "bad.xml:1: not well-formed XML: mismatched tag"),
        ("<system> </system>\n<system/>", "bad.xml:2: not well-formed XML: junk after document"),
        ("<system a='1' a='2'> </system>", "bad.xml:1: not well-formed XML: duplicate attribute"),
        ("<system> \x01</system>", "bad.xml:1: not well-formed XML"),
        ("<system> </system>", "describes no CPU and no device"),
    ],
)
def test_hostile_and_broken_xml(text: str, message: str) -> None:
    assert message in refused(text, kind="nccl-xml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"<system>\0</system>", "is a binary file"),
        (bytes(range(1, 256)) * 4, "is of no known kind"),
        (b"<system><cpu numaid='0'/>" + b" " * 10**6 + b"</system>", "has a line of 100"),
        (b"just words", "is of no known kind"),
    ],
)
def test_what_is_no_text_of_a_tool(content: bytes, message: str) -> None:
    assert message in refused(content)


def test_a_file_of_100_megabytes_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.xml"
    with large.open("wb") as stream:
        stream.write(XML.encode())
        stream.truncate(100 * 2**20)
    with pytest.raises(FormatError, match="larger than 16 MiB"):
        read_any(large)
    assert [p.name for p in tmp_path.iterdir()] == ["large.xml"]


def test_limits_on_elements_and_devices() -> None:
    with pytest.raises(FormatError, match=f"has more than {MAX_ELEMENTS} elements"):
        parse_xml("<a>" + "<b/>" * MAX_ELEMENTS + "</a>", file="t.xml")
    device = '<pci busid="0000:01:00.0" class="0x030200"/>\n'
    with pytest.raises(FormatError, match=r"t\.xml:5001: has more than 5000 devices"):
        parse_nccl_xml("<system><cpu>" + device * 5_001 + "</cpu></system>", file="t.xml")
    with pytest.raises(FormatError, match="has 70 CPUs, which no machine has"):
        parse_nccl_xml("<system>" + "<cpu/>" * 70 + "</system>", file="t.xml")


def test_a_file_of_more_than_256_nodes_is_read_whole() -> None:
    """NCCL itself once stopped at 256 nodes, which a plain walk of a p5 machine exceeds."""
    devices = "".join(
        f'<pci busid="0000:{k >> 5:02x}:{k & 31:02x}.0" class="0x020000"/>' for k in range(700)
    )
    topology = parse_nccl_xml(f'<system><cpu numaid="0">{devices}</cpu></system>', file="t.xml")
    assert len(topology.endpoints) == 700


def test_oddities_are_capped() -> None:
    odd = "".join(f"<x{k}/>" for k in range(5_000))
    topology = parse_nccl_xml(f"<system><cpu>{odd}</cpu></system>", file="t.xml")
    assert len(topology.graph.graph["notes"]) == MAX_NOTES + 1


def test_nesting_up_to_the_limit_and_a_named_document_type_are_fine() -> None:
    deep = "<a>" * MAX_DEPTH + "</a>" * MAX_DEPTH
    assert sum(1 for _ in parse_xml(deep, file="t.xml").walk()) == MAX_DEPTH
    root = parse_xml('<!DOCTYPE a SYSTEM "hwloc2.dtd">\n<a>x<b c=" 1 "/>y</a>', file="t.xml")
    assert (root.tag, root.text, root.line) == ("a", "xy", 2)
    assert root.children[0].get("c") == "1"
    assert root.all("b") == root.children


@pytest.mark.parametrize("cut", range(1, len(XML) - 1, 37))
def test_xml_cut_anywhere_names_a_line(cut: int) -> None:
    text = XML[:cut]
    message = r"^t\.xml:\d+: (not well-formed XML|the XML is cut off)"
    with pytest.raises(FormatError, match=message):
        parse_nccl_xml(text, file="t.xml")


Edit = tuple[str, float, int, str]
WORDS = ("GPU/", "NVL[", "0-", "xgmi", "numaid", "-1", "0000:0c:00.0")
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "double", "flip", "insert", "move"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 200),
        st.sampled_from([*'\n -/0&#é\x7f"', "9" * 30, "ffff", "<pci>", "</pci>", *WORDS]),
    ),
    min_size=1,
    max_size=8,
)


def edited(text: str, edits: list[Edit]) -> str:
    for what, place, length, word in edits:
        at = int(place * len(text))
        chunk = text[at : at + length]
        if what == "delete":
            text = text[:at] + text[at + length :]
        elif what == "double":
            text = text[:at] + chunk + text[at:]
        elif what == "flip":
            text = text[:at] + chunk[::-1] + text[at + length :]
        elif what == "insert":
            text = text[:at] + word + text[at:]
        else:
            text = text[:at] + text[at + length :] + chunk
    return text


@pytest.mark.parametrize("kind", WHOLE)
@given(edits=EDITS)
@settings(deadline=None, max_examples=150)
def test_only_our_own_errors_come_out(kind: str, edits: list[Edit]) -> None:
    reader, whole = WHOLE[kind]
    topology = ours(lambda: decoded_and_parsed(reader, edited(whole, edits)))
    if topology is None:
        return
    topology.routes(topology.endpoints)
    topology.validate()
    assert topology_from_document(topology_to_document(topology), file="f") == topology
    merged = ours(lambda: merge([reader.parse(whole, file="g"), topology]).topology)
    if merged is not None:
        merged.routes(merged.endpoints)


def ours(call: Callable[[], Topology]) -> Topology | None:
    """What a call returns, or nothing where it ends in one of our own errors, in one line."""
    try:
        return call()
    except TopocalError as error:
        if "\n" in str(error):
            raise
        return None


def decoded_and_parsed(reader: Reader, text: str) -> Topology:
    decoded = decode_text(text.encode("utf-8", "replace"), file="f")
    reader.looks_like(decoded)
    return reader.parse(decoded, file="f")


@given(st.text(max_size=300))
@settings(deadline=None, max_examples=150)
def test_any_text_at_all(text: str) -> None:
    for reader, _ in WHOLE.values():
        reader.looks_like(text)
        with pytest.raises(FormatError):
            reader.parse(text, file="f")

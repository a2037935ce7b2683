"""Tools that number GPUs otherwise than nvidia-smi: by PCI address they are the same."""

from __future__ import annotations

from pathlib import Path

from topocal.explaining import sort_inputs
from topocal.measure.importers.p2p_bandwidth import parse_p2p_bandwidth
from topocal.same_gpus import numbered_as_machine
from topocal.topo.builder import TopologyBuilder
from topocal.topo.readers.registry import parse_any
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

TOPO = (
    "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\tSYS\t0-7\t0\n"
    "GPU1\tPIX\t X \tSYS\t0-7\t0\nGPU2\tSYS\tSYS\t X \t8-15\t1\n"
)
ROWS = {0: (30.0, 31.0), 1: (32.0, 33.0), 2: (34.0, 35.0)}


def p2p(*buses: int) -> str:
    """Three GPUs at these addresses; the rate from a to b is in ROWS."""
    text = "".join(
        f"Device: {k}, A, pciBusID: {bus:x}, pciDeviceID: 0, pciDomainID:0\n"
        for k, bus in enumerate(buses)
    )
    text += "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D 0 1 2\n"
    for a, row in ROWS.items():
        cells = list(row)
        cells.insert(a, 900.0)
        text += f"     {a} " + " ".join(map(str, cells)) + "\n"
    return text


def rates(text: str, machine: Topology) -> tuple[dict[str, float], list[str]]:
    imported, told = numbered_as_machine(parse_p2p_bandwidth(text, file="x"), machine)
    return {s.name: round(s.throughput_Bps / 1e9, 6) for s in imported.best().samples}, told


def test_the_order_of_addresses_decides_where_the_topology_has_none() -> None:
    machine = parse_any(TOPO, file="x")
    plain, told = rates(p2p(0x01, 0x21, 0x61), machine)
    assert plain["gpu0->gpu1"] == 30.0
    assert not told
    # The tool's GPU 0 is at the last address: nvidia-smi's GPU 2.
    found, told = rates(p2p(0xC1, 0x01, 0x21), machine)
    assert found["gpu2->gpu0"] == 30.0  # its 0 to its 1
    assert found["gpu0->gpu1"] == 33.0  # its 1 to its 2
    assert told == [
        "the tool numbers GPUs otherwise than the topology; by PCI address its gpu0 is gpu2, its "
        "gpu1 is gpu0, its gpu2 is gpu1 here"
    ]


def test_addresses_decide_where_the_topology_has_them() -> None:
    builder = TopologyBuilder("m")
    builder.node("socket0", NodeKind.SOCKET)
    for k, bus in enumerate((0x61, 0x01, 0x21)):
        builder.node(f"gpu{k}", NodeKind.GPU, bus_id=f"0000:{bus:02x}:00.0")
        builder.connect("socket0", f"gpu{k}", LinkKind.PCIE)
    machine = builder.build()
    found, told = rates(p2p(0x01, 0x21, 0x61), machine)
    assert found["gpu1->gpu2"] == 30.0
    assert len(told) == 1
    same, told = rates(p2p(0x61, 0x01, 0x21), machine)
    assert same["gpu0->gpu1"] == 30.0
    assert not told
    other, told = rates(p2p(0x05, 0x01, 0x21), machine)
    assert other["gpu0->gpu1"] == 30.0
    assert "different machines" in told[0]


def test_some_of_the_gpus_out_of_order_are_not_guessed() -> None:
    four = TOPO.replace("\tCPU", "\tGPU3\tCPU").replace("0-7\t0", "SYS\t0-7\t0")
    four = four.replace("X \t8-15", "X \tPIX\t8-15") + "GPU3\tSYS\tSYS\tPIX\t X \t8-15\t1\n"
    machine = parse_any(four, file="x")
    assert len(machine.accelerators) == 4
    found, told = rates(p2p(0xC1, 0x01, 0x21), machine)
    assert found["gpu0->gpu1"] == 30.0
    assert "not known" in told[0]


def test_explain_uses_the_machines_numbers(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    (tmp_path / "p2p.txt").write_text(p2p(0xC1, 0x01, 0x21))
    inputs = sort_inputs([tmp_path / "topo.txt", tmp_path / "p2p.txt"], None)
    (part,) = inputs.parts
    found = {s.name: round(s.throughput_Bps / 1e9, 6) for s in part.measurements.samples}
    assert found["gpu2->gpu0"] == 30.0
    assert any("numbers GPUs otherwise" in note for note in inputs.notes)

"""``xpu-smi topology``: its traps, written by hand."""

from __future__ import annotations

import json

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology


def read(text: str, kind: str) -> Topology:
    assert sniff(text, file="x").name == kind
    return parse_any(text, file="x")


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def class_of(topology: Topology, a: str, b: str) -> str:
    routes = topology.routes(topology.endpoints)
    return PathClass(int(routes.path_class[routes.position[a], routes.position[b]])).name


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


XPU = """
         GPU 0/0|GPU 0/1|GPU 1/0|GPU 1/1|CPU Affinity
GPU 0/0 |S      |MDF    |XL*    |XL8    |0-3,8-11
GPU 0/1 |MDF    |S      |XL8    |XL*    |0-3,8-11
GPU 1/0 |XL*    |XL8    |S      |MDF    |4-7,12-15
GPU 1/1 |XL8    |XL*    |MDF    |S      |4-7,12-15
"""


def xpu_json() -> str:
    codes = [line.split("|")[1:5] for line in XPU.split("\n")[2:6]]
    names = [(0, 0), (0, 1), (1, 0), (1, 1)]
    entries = []
    for row, (device, tile) in zip(codes, names, strict=True):
        for code, (other, second) in zip(row, names, strict=True):
            entry: dict[str, object] = {
                "local_device_id": device,
                "local_subdevice_id": tile,
                "local_on_subdevice": True,
                "local_numa_index": 0,
                "local_cpu_affinity": "0-3,8-11" if device == 0 else "4-7,12-15",
                "remote_device_id": other,
                "remote_subdevice_id": second,
                "link_type": "XL" if code.strip() == "XL8" else code.strip(),
            }
            if entry["link_type"] == "XL":
                entry["port_list"] = [0, 4, 4, 0]
            entries.append(entry)
    return json.dumps({"topo_list": entries})


@pytest.mark.parametrize(
    "text", [XPU, "$ xpu-smi topology -m\n" + XPU.replace("|", "  "), xpu_json()]
)
def test_xpu_smi(text: str) -> None:
    machine = read(text, "xpu-smi")
    assert machine.accelerators == ("gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1")
    node = machine.graph.nodes["gpu1.0"]
    assert (node["index"], node["tile"], node["cpu_list"]) == (1, 0, "4-7,12-15")
    assert len(of_kind(machine, NodeKind.SOCKET)) == 2
    assert class_of(machine, "gpu0.0", "gpu0.1") == "NVL"
    assert class_of(machine, "gpu0.0", "gpu1.1") == "NVL"
    assert class_of(machine, "gpu0.0", "gpu1.0") == "NVB"
    routes = machine.routes()
    # XL* is no path of its own: it shares the Xe Link of another pair, and an MDF.
    relayed = set(routes.route("gpu0.0", "gpu1.0"))
    direct = set(routes.route("gpu0.1", "gpu1.0")) | set(routes.route("gpu0.0", "gpu1.1"))
    shared = {machine.links[k] for k in relayed & direct}
    wide = [link for link in shared if link.nominal_Bps is not None]
    # 53.125 Gb/s a lane, 8 lanes.
    assert [link.nominal_Bps for link in wide] == [pytest.approx(53.125e9)]
    # Tiles of a card share its PCIe link.
    assert len(of_kind(machine, NodeKind.PCIE_SWITCH)) == 2


def test_xpu_smi_version_2() -> None:
    text = (
        "+---------+---------+---------+--------+--------------+\n"
        "|         | GPU 0/0 | GPU 1/0 | NIC0   | CPU Affinity |\n"
        "+---------+---------+---------+--------+--------------+\n"
        "| GPU 0/0 | S       | NODE    | PIX    | 0-7          |\n"
        "| GPU 1/0 | NODE    | S       | NODE   | 0-7          |\n"
        "| NIC0    | PIX     | NODE    | S      | 0-7          |\n"
        "+---------+---------+---------+--------+--------------+\n"
    )
    machine = read(text, "xpu-smi")
    assert machine.endpoints == ("gpu0", "gpu1", "nic0")
    assert class_of(machine, "gpu0", "nic0") == "PIX"
    assert class_of(machine, "gpu0", "gpu1") == "NODE"
    rows = [["S", "NODE", "PIX"], ["NODE", "S", "NODE"], ["PIX", "NODE", "S"]]
    names = ["GPU 0/0", "GPU 1/0", "NIC0"]
    document = {
        "topo_list": [],
        "headers": names,
        "matrix": [
            {"tile": name, "cpu_affinity": "0-7", "connections": row}
            for name, row in zip(names, rows, strict=True)
        ],
    }
    again = read(json.dumps(document), "xpu-smi")
    assert list(again.routes(again.endpoints).classes()) == list(
        machine.routes(machine.endpoints).classes()
    )


def test_xpu_smi_peer_access() -> None:
    text = "$ xpu-smi topology --p2p r\n      GPU 0 GPU 1\nGPU 0 X     NS\nGPU 1 NS    X\n"
    machine = read(text, "xpu-smi")
    assert machine.graph.graph["peer_access"] is False
    assert machine.accelerators == ("gpu0", "gpu1")
    atomics = read(text.replace("p2p r", "p2p a"), "xpu-smi")
    assert atomics.graph.graph["peer_access"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (XPU.replace("XL8", "XYZ"), r"x:3: cell 'XYZ' of row GPU 0/0 is no code"),
        (xpu_json()[:200], "damaged JSON"),
        (
            '{"topo_list": [{"local_device_id": 0, "remote_device_id": 1, "link_type": "Q"}]}',
            "no code",
        ),
        ('{"topo_list": []}', "describes no devices"),
    ],
)
def test_damaged_xpu_smi(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(text, "xpu-smi")


BOX = """+-----------+-----------------------------------------------------------------+
| Device ID | Topology Information                                            |
+-----------+-----------------------------------------------------------------+
| 0         | Local CPU List: 0-3                                             |
|           | Local CPUs: 0000000f                                            |
|           | PCIe Switch Count: 1                                            |
|           | PCIe Switch: /sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0  |
|           |   /0000:4c:01.0                                                 |
+-----------+-----------------------------------------------------------------+
| 1         | Local CPU List: 0-3                                             |
|           | PCIe Switch Count: 1                                            |
|           | PCIe Switch: /sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0  |
|           |   /0000:4c:02.0                                                 |
+-----------+-----------------------------------------------------------------+
"""
PATH = "/sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0"
DEVICE_FORMS = {
    "box": BOX.split("| 1  ")[0],
    "version 2": f"| Property | Value |\n| Device ID | 0 |\n| Local CPU List | 0-3 |\n"
    f"| PCIe Switch Count | 1 |\n| PCIe Switch | {PATH} |\n",
    "JSON": json.dumps(
        {"device_id": 0, "affinity_localcpulist": "0-3", "switch_count": 1, "switch_list": [PATH]}
    ),
    "old JSON": json.dumps(
        {
            "deviceId": 0,
            "xpum_affinity_localcpulist": "0-3",
            "xpum_parent_switch_count": 1,
            "xpum_switch_0": PATH,
        }
    ),
    "JSON of version 2": json.dumps(
        {"device_id": 0, "local_cpu_list": "0-3", "pcie_switch_count": 1, "pcie_switch": PATH}
    ),
}


@pytest.mark.parametrize("text", DEVICE_FORMS.values(), ids=DEVICE_FORMS.keys())
def test_xpu_smi_device(text: str) -> None:
    machine = read(text, "xpu-smi-device")
    assert machine.accelerators == ("gpu0",)
    assert set(machine.graph.successors("gpu0")) == {"pcie:0000:4c:01.0"}
    assert "host-bridge:0000:4a" in set(machine.graph.successors("pcie:0000:4c:01.0"))
    assert machine.graph.nodes["pcie:0000:4c:01.0"]["path"] == PATH
    assert machine.graph.nodes["socket0"]["cpu_list"] == "0-3"
    assert machine.graph.graph["notes"] == []


def test_xpu_smi_two_devices() -> None:
    machine = read(BOX, "xpu-smi-device")
    assert machine.accelerators == ("gpu0", "gpu1")
    assert class_of(machine, "gpu0", "gpu1") == "PHB"
    missing = read(BOX.replace("Count: 1", "Count: 2"), "xpu-smi-device")
    assert "says that 2 PCIe switches stand above gpu0 and names 1" in notes(missing)


def test_a_device_without_a_tile_is_its_tile_0() -> None:
    twice = (
        "         GPU 0|GPU 1|CPU Affinity\nGPU 0 |S |XL16 |0-3\nGPU 1 |XL16 |S |0-3\n\n"
        "         GPU 0/0|GPU 1/0|CPU Affinity\n"
        "GPU 0/0 |S |XL16 |0-3\nGPU 1/0 |XL16 |S |0-3\n"
    )
    assert parse_any(twice, file="x").accelerators == ("gpu0", "gpu1")

"""Discovery from sysfs, amdkfd and NVML: a small made-up /sys, and this machine's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.discover import discover, topology_from_sysfs
from topocal.topo.errors import FormatError, InputError
from topocal.topo.io import read_topology, write_topology
from topocal.topo.nominal import ethernet_Bps, infiniband_Bps, nvlink_Bps, pcie_Bps
from topocal.topo.nvml import read_nvml
from topocal.topo.readers.sysfs_capture import capture_sysfs
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def path_class(topology: Topology, a: str, b: str) -> PathClass:
    return PathClass(int(topology.routes([a, b]).path_class[0, 1]))


def nominal(topology: Topology, a: str, b: str) -> float | None:
    return topology.links[f"{a}->{b}"].nominal_Bps


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def function(
    pci_class: str, vendor: str, device: str, numa: int = 0, **more: str
) -> dict[str, str]:
    return {
        "class": pci_class,
        "vendor": vendor,
        "device": device,
        "numa_node": str(numa),
        **more,
    }


def link(generation: int, width: int, best: int | None = None) -> dict[str, str]:
    speed = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}
    return {
        "current_link_speed": f"{speed[generation]} GT/s PCIe",
        "current_link_width": str(width),
        "max_link_speed": f"{speed[best or generation]} GT/s PCIe",
        "max_link_width": str(width),
    }


PORT, SWITCH_UP, SWITCH_DOWN = (
    ("0x060400", "0x8086", "0x352a"),
    ("0x060400", "0x1000", "0xc030"),
    ("0x060400", "0x1000", "0xc030"),
)
ROOT = "pci0000:10/0000:10:01.0"
UP = f"{ROOT}/0000:11:00.0"

# Two idle GPUs and a two-port NIC behind a switch of memory node 0; node 1 has a NIC.
FUNCTIONS: dict[str, dict[str, str]] = {
    ROOT: function(*PORT, **link(4, 16, 5)),
    UP: function(*SWITCH_UP, **link(4, 16)),
    f"{UP}/0000:12:00.0": function(*SWITCH_DOWN, **link(1, 16, 4)),
    f"{UP}/0000:12:00.0/0000:13:00.0": function("0x030200", "0x10de", "0x20b5", **link(1, 16, 4)),
    f"{UP}/0000:12:01.0": function(*SWITCH_DOWN, **link(1, 16, 4)),
    f"{UP}/0000:12:01.0/0000:14:00.0": function("0x030200", "0x10de", "0x20b5", **link(1, 16, 4)),
    f"{UP}/0000:12:02.0": function(*SWITCH_DOWN, **link(4, 16)),
    f"{UP}/0000:12:02.0/0000:15:00.0": function("0x020700", "0x15b3", "0x101b", **link(4, 16)),
    f"{UP}/0000:12:02.0/0000:15:00.1": function("0x020700", "0x15b3", "0x101b", **link(4, 16)),
    "pci0000:00/0000:00:02.0": function("0x030000", "0x1a03", "0x2000"),
    "pci0000:80/0000:80:01.0": function(*PORT, numa=1, **link(3, 8)),
    "pci0000:80/0000:80:01.0/0000:81:00.0": function(
        "0x020000", "0x8086", "0x1572", numa=1, **link(3, 8)
    ),
}
FILES: dict[str, str] = {
    f"{UP}/0000:12:02.0/0000:15:00.0/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
    f"{UP}/0000:12:02.0/0000:15:00.1/infiniband/mlx5_1/ports/1/rate": "200 Gb/sec (4X HDR)",
    "pci0000:80/0000:80:01.0/0000:81:00.0/net/ens1f0/speed": "10000",
    "pci0000:80/0000:80:01.0/0000:81:00.0/net/ens1f0/address": "aa:bb:cc:dd:ee:ff",
    "system/node/node0/cpulist": "0-7,16-23",
    "system/node/node0/distance": "10 21",
    "system/node/node0/meminfo": "Node 0 MemTotal: 2048 kB\nNode 0 MemFree: 1 kB",
    "system/node/node1/cpulist": "8-15,24-31",
    "system/node/node1/distance": "21 10",
    "system/node/node1/meminfo": "Node 1 MemTotal: 4096 kB",
    "system/cpu/online": "0-31",
    "system/cpu/cpu0/topology/physical_package_id": "0",
    "system/cpu/cpu8/topology/physical_package_id": "1",
}


def make_sysfs(
    top: Path, functions: dict[str, dict[str, str]] = FUNCTIONS, files: dict[str, str] = FILES
) -> Path:
    """A sysfs tree with the links that Linux makes."""
    devices = top / "devices"
    listed = top / "bus" / "pci" / "devices"
    listed.mkdir(parents=True)
    for path, said in functions.items():
        directory = devices / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in said.items():
            (directory / name).write_text(text + "\n")
        (listed / directory.name).symlink_to(Path("../../../devices") / path)
    for path, text in files.items():
        (devices / path).parent.mkdir(parents=True, exist_ok=True)
        (devices / path).write_text(text + "\n")
    return top


def test_made_up_machine(tmp_path: Path) -> None:
    topology = discover(make_sysfs(tmp_path))
    where = {g: topology.graph.nodes[g]["bus_id"] for g in topology.accelerators}
    assert where == {"gpu0": "0000:13:00.0", "gpu1": "0000:14:00.0"}
    assert of_kind(topology, NodeKind.PCIE_SWITCH) == ["pcie:0000:11:00.0"]
    assert path_class(topology, "gpu0", "gpu1") is PathClass.PIX
    assert path_class(topology, "gpu0", "nic0") is PathClass.PIX
    assert path_class(topology, "gpu0", "nic2") is PathClass.SYS
    # Idle at Gen1; both ends can do Gen4 x16.
    assert nominal(topology, "pcie:0000:11:00.0", "gpu0") == pytest.approx(pcie_Bps(4, 16))
    assert "gpu0, gpu1: its PCIe link reads Gen1 of Gen4" in notes(topology)
    assert nominal(topology, "host-bridge:0000:10", "pcie:0000:11:00.0") == pytest.approx(
        pcie_Bps(4, 16)
    )
    assert topology.validate() == []


def test_sockets_memory_and_networks(tmp_path: Path) -> None:
    topology = discover(make_sysfs(tmp_path))
    nodes = topology.graph.nodes
    assert nodes["socket1"]["cpu_list"] == "8-15,24-31"
    assert nodes["socket1"]["package"] == 1
    assert nodes["memory0"]["memory_bytes"] == 2048 * 1024
    assert nodes["cpu1"]["kind"] is NodeKind.CPU
    assert topology.graph.edges["socket0", "socket1", "socket0->socket1"]["distance"] == 21
    assert nodes["nic0"]["net_names"] == ["mlx5_0"]
    assert nodes["nic0"]["network_Bps"] == infiniband_Bps("HDR")
    assert nodes["nic2"]["net_names"] == ["ens1f0"]
    assert nodes["nic2"]["network_Bps"] == ethernet_Bps(10)
    # The ports of one card share its link.
    switch = "pcie:0000:11:00.0"
    assert topology.links[f"{switch}->nic0"].uses == topology.links[f"{switch}->nic1"].uses


def test_only_listed_files_are_captured(tmp_path: Path) -> None:
    files = capture_sysfs(make_sysfs(tmp_path))
    assert not any("address" in path for path in files)
    assert "aa:bb" not in "".join(files.values())
    assert "MemFree" not in "".join(files.values())


@pytest.mark.parametrize("inner", ["", "sys", "sysfs"])
def test_replay_of_a_copy_without_links(tmp_path: Path, inner: str) -> None:
    """A copy that lost its links, and one that a directory holds, give the same machine."""
    live = discover(make_sysfs(tmp_path / "live"))
    copy = tmp_path / "copy" / inner
    for path, text in capture_sysfs(tmp_path / "live").items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
    replayed = discover(tmp_path / "copy")
    assert replayed.graph.graph["notes"] == live.graph.graph["notes"]
    assert replayed.links == live.links
    assert dict(replayed.graph.nodes(data=True)) == dict(live.graph.nodes(data=True))


def test_flat_copy_is_rebuilt_from_bus_numbers() -> None:
    """Directories of functions side by side: bridges say which bus is below them."""
    flat = {}
    second = {
        "0000:10:01.0": 0x11,
        "0000:11:00.0": 0x12,
        "0000:12:00.0": 0x13,
        "0000:12:01.0": 0x14,
    }
    for path, said in FUNCTIONS.items():
        address = path.rpartition("/")[2]
        more = {"secondary_bus_number": str(second[address])} if address in second else {}
        for name, text in (said | more).items():
            flat[f"bus/pci/devices/{address}/{name}"] = text
    topology = topology_from_sysfs(flat)
    assert path_class(topology, "gpu0", "gpu1") is PathClass.PIX
    assert of_kind(topology, NodeKind.PCIE_SWITCH) == ["pcie:0000:11:00.0"]


def test_links_out_of_the_tree_are_not_followed(tmp_path: Path) -> None:
    top = make_sysfs(tmp_path / "sys")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "class").write_text("0x030200\n")
    (top / "bus" / "pci" / "devices" / "0000:99:00.0").symlink_to(secret)
    device = top / "devices" / ROOT / "product_name"
    device.symlink_to(secret / "class")
    files = capture_sysfs(top)
    assert not any("0000:99" in path or "product_name" in path for path in files)


def test_loops_and_pipes_do_no_harm(tmp_path: Path) -> None:
    import os

    top = make_sysfs(tmp_path)
    (top / "bus" / "pci" / "devices" / "0000:98:00.0").symlink_to("0000:98:00.0")
    os.mkfifo(top / "devices" / "pci0000:00" / "0000:00:02.0" / "product_name")
    (top / "devices" / ROOT / "up").symlink_to("..")
    assert len(discover(top).accelerators) == 2


def test_not_a_sysfs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no sysfs"):
        discover(tmp_path)
    with pytest.raises(InputError, match="holds no sysfs"):
        discover(tmp_path / "nothing")


def test_machine_without_anything(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    topology = discover(tmp_path)
    assert of_kind(topology, NodeKind.SOCKET) == ["socket0"]
    assert "no PCI device found" in notes(topology)
    assert "no memory node found" in notes(topology)


def test_kernel_without_numa() -> None:
    topology = topology_from_sysfs({"devices/system/cpu/online": "0-3"})
    assert topology.graph.nodes["socket0"]["cpu_list"] == "0-3"


def test_hypervisor_bus_and_software_interfaces(tmp_path: Path) -> None:
    guid = "devices/LNXSYSTM:00/VMBUS:00/0f0f0f0f-1111-2222-3333-444444444444/net/eth0"
    top = make_sysfs(tmp_path, {}, {"virtual/net/lo/speed": "10"})
    (top / guid).mkdir(parents=True)
    (top / guid / "speed").write_text("40000\n")
    (top / "class" / "net").mkdir(parents=True)
    (top / "class" / "net" / "eth0").symlink_to(Path("../..") / guid)
    (top / "class" / "net" / "lo").symlink_to("../../devices/virtual/net/lo")
    files = capture_sysfs(top)
    assert "0f0f0f0f" not in "".join(files)
    topology = topology_from_sysfs(files)
    assert [topology.graph.nodes[n]["net_names"] for n in of_kind(topology, NodeKind.NIC)] == [
        ["eth0"]
    ]
    assert topology.graph.nodes["nic0"]["network_Bps"] == ethernet_Bps(40)


def test_devices_of_unknown_memory_node() -> None:
    base = {f"devices/system/node/node{k}/cpulist": f"{k}" for k in range(2)}
    for k, bus in enumerate(("10", "20")):
        said = function("0x030200", "0x10de", "0x20b5", numa=-1)
        path = f"devices/pci0000:{bus}/0000:{bus}:0{k}.0"
        base |= {f"{path}/{name}": text for name, text in said.items()}
    topology = topology_from_sysfs(base)
    assert "does not say which memory node" in notes(topology)
    assert path_class(topology, "gpu0", "memory0") is PathClass.SYS


# AMD's compute driver


def kfd(top: dict[str, str], number: int, links: list[tuple[int, int, int]], **said: int) -> None:
    node = f"devices/virtual/kfd/kfd/topology/nodes/{number}"
    top[f"{node}/properties"] = "\n".join(f"{k} {v}" for k, v in said.items())
    for k, (to, weight, bandwidth) in enumerate(links):
        top[f"{node}/io_links/{k}/properties"] = (
            f"type 11\nnode_from {number}\nnode_to {to}\nweight {weight}\n"
            f"max_bandwidth {bandwidth}\n"
        )


def test_xgmi_of_the_compute_driver() -> None:
    files = {"devices/system/node/node0/cpulist": "0-7"}
    for bus in ("c1", "c6", "d1"):
        said = function("0x120000", "0x1002", "0x7408")
        files |= {f"devices/pci0000:{bus}/0000:{bus}:00.0/{n}": t for n, t in said.items()}
    kfd(files, 0, [(1, 13, 36864)], cpu_cores_count=8, simd_count=0)
    for number, bus, links in (
        (1, 0xC1, [(2, 15, 200000), (3, 30, 50000)]),
        (2, 0xC6, [(1, 15, 200000), (3, 15, 50000)]),
        (3, 0xD1, [(2, 15, 50000), (1, 30, 50000)]),
    ):
        kfd(files, number, links, simd_count=440, cpu_cores_count=0, location_id=bus << 8, domain=0)
    topology = topology_from_sysfs(files)
    assert topology.links["gpu0->gpu1"].kind is LinkKind.XGMI
    assert nominal(topology, "gpu0", "gpu1") == 200e9
    assert nominal(topology, "gpu1", "gpu2") == 50e9
    assert "gpu0->gpu2" not in topology.links
    assert topology.links["socket0->gpu0"].kind is LinkKind.C2C
    assert nominal(topology, "socket0", "gpu0") == 36.864e9


# NVML, by a module that answers like it


class FakeNvml:
    """Two A100 with two links to each other and ten to switches; a third with none."""

    class NVMLError(Exception):
        pass

    buses = ("00000000:14:00.0", "00000000:13:00.0", "00000000:77:00.0")

    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.stopped = False

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        if self.fail == "init":
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.stopped = True

    def nvmlDeviceGetCount(self) -> int:
        if self.fail == "count":
            raise OSError("library gone")
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self.buses[handle].encode())

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (8, 0)

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if handle == 2 or link >= 13:
            raise self.NVMLError("Not Supported")
        return int(link < 12)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        peer = self.buses[1 - handle] if link < 2 else "00000000:90:00.0"
        return SimpleNamespace(busId=peer)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 0 if link < 2 else 2


def test_nvml_gives_numbers_names_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    topology = discover(make_sysfs(tmp_path), nvml=True)
    assert nvml.stopped
    nodes = topology.graph.nodes
    assert [nodes[f"gpu{k}"]["bus_id"] for k in range(3)] == [
        "0000:14:00.0",
        "0000:13:00.0",
        "0000:77:00.0",
    ]
    assert nodes["gpu0"]["model"] == "NVIDIA A100-SXM4-80GB"
    assert nominal(topology, "gpu0", "gpu1") == nvlink_Bps(3, 2)
    assert topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]["count"] == 2
    assert nominal(topology, "gpu1", "nvswitch0") == nvlink_Bps(3, 10)
    assert path_class(topology, "gpu0", "gpu1") is PathClass.NVL
    # A GPU that the bus does not show is there all the same, in an unknown place.
    assert "gpu2: no PCIe tree is shown above" in notes(topology)


@pytest.mark.parametrize(
    ("fail", "words"), [("init", "Driver Not Loaded"), ("count", "library gone")]
)
def test_nvml_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fail))
    topology = discover(make_sysfs(tmp_path), nvml=True)
    assert words in notes(topology)
    assert len(topology.accelerators) == 2


def test_nvml_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in read_nvml().absence


def test_power9_links_to_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    nvml.nvmlDeviceGetNvLinkRemoteDeviceType = lambda handle, link: 1  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    topology = discover(make_sysfs(tmp_path), nvml=True)
    assert topology.links["socket0->gpu0"].kind is LinkKind.C2C
    assert nominal(topology, "socket0", "gpu0") == nvlink_Bps(3, 12)


# This machine


@pytest.mark.skipif(not Path("/sys/devices").is_dir(), reason="no sysfs here")
def test_this_machine(tmp_path: Path) -> None:
    topology = discover()
    assert of_kind(topology, NodeKind.SOCKET)
    assert of_kind(topology, NodeKind.CPU)
    assert of_kind(topology, NodeKind.MEMORY)
    assert topology.validate() == []
    if not topology.accelerators:
        assert "no GPU found" in notes(topology) or "no PCI device found" in notes(topology)
    write_topology(topology, tmp_path / "topology.json")
    assert read_topology(tmp_path / "topology.json") == topology
    assert discover() == topology


_TEXTS = st.sampled_from(["", "-1", "x", "0x", "99999999999999", "0-", "16.0 GT/s", "é\n", "0 0"])


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_odd_files_do_no_harm(data: st.DataObject) -> None:
    files = {f"devices/{p}/{n}": t for p, said in FUNCTIONS.items() for n, t in said.items()}
    files |= {f"devices/{p}": t for p, t in FILES.items()}
    for path in data.draw(st.lists(st.sampled_from(sorted(files)), max_size=12)):
        if data.draw(st.booleans()):
            files.pop(path, None)
        else:
            files[path] = data.draw(_TEXTS)
    topology_from_sysfs(files).routes()


def test_too_many_devices() -> None:
    files = {}
    for k in range(3000):
        path = f"devices/pci{k:04x}:00/{k:04x}:00:01.0"
        files |= {f"{path}/class": "0x030200", f"{path}/vendor": "0x10de"}
    with pytest.raises(FormatError, match="3000 GPUs and NICs"):
        topology_from_sysfs(files)

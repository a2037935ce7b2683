"""Gathering a machine: what is captured, that nothing names it, and that hostile archives fail."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import string
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from topocal.cli import command_line
from topocal.topo.discover import topology_from_sysfs
from topocal.topo.errors import FormatError, TopocalError
from topocal.topo.gather import Captured, capture, gather, pack
from topocal.topo.kept_output import keep_hwloc, keep_lspci, keep_nvidia_query
from topocal.topo.programs import Outcome, run_program
from topocal.topo.readers.archive import MAX_UNPACKED_BYTES, unpack
from topocal.topo.readers.gathered import MANIFEST, read_gathered
from topocal.topo.readers.registry import read_any
from topocal.topo.resource import PathClass
from topocal.topo.scrub import Scrubber, safe_interface

SYSFS = {
    "devices/system/node/node0/cpulist": "0-7\n",
    "devices/pci0000:c0/0000:c0:01.0/class": "0x060400\n",
    "devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0/class": "0x030200\n",
    "devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0/vendor": "0x10de\n",
    "devices/pci0000:c0/0000:c0:02.0/class": "0x060400\n",
    "devices/pci0000:c0/0000:c0:02.0/0000:c2:00.0/class": "0x030200\n",
    "devices/pci0000:c0/0000:c0:02.0/0000:c2:00.0/vendor": "0x10de\n",
}
TOPO = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV12\t0-7\t0\nGPU1\tNV12\t X \t0-7\t0\n\nLegend:\n\n  X    = Self\n"
)

HOST, SERIAL = "trantor17.foundation.example", "1652823054567"
UUID, MAC = "a1b2c3d4-1111-2222-3333-0123456789ab", "b8:59:9f:12:34:56"
SECRETS = (HOST, "trantor17", SERIAL, UUID, MAC, "10.20.30.40", "fe80::ba59:9fff:fe12:3456")

NVIDIA_Q = f"""==============NVSMI LOG==============
Timestamp                                 : Sat Nov 29 18:00:00 2025
Attached GPUs                             : 1
GPU 00000000:C1:00.0
    Product Name                          : NVIDIA A100-PCIE-40GB
    Serial Number                         : {SERIAL}
    GPU UUID                              : GPU-{UUID}
    PCI
        Bus                               : 0xC1
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Max                : 4
            Link Width
                Max                       : 16x
                Current                   : 16x
        Bridge Chip
            Type                          : N/A
    Processes
        Process ID                        : 4711
            Name                          : /home/hari/{HOST}/train
"""
LSPCI = f"""0000:c0:01.0 PCI bridge: Intel Corporation Device 352a
\tBus: primary=c0, secondary=c1, subordinate=c1, sec-latency=0
0000:c1:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 1463
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tLnkCap: Port #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta: Speed 16GT/s, Width x16
\tCapabilities: [100 v1] Device Serial Number b8-59-9f-ff-fe-12-34-56
\tCapabilities: [48] Vital Product Data
\t\tRead-only fields:
\t\t\t[SN] Serial number: {SERIAL}
"""
HWLOC = f"""<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0"><object type="Machine" os_index="0" cpuset="0xff" gp_index="1">
<info name="DMIProductName" value="Box"/><info name="DMIProductSerial" value="{SERIAL}"/>
<info name="HostName" value="{HOST}"/>
<object type="Package" os_index="0" cpuset="0xff" gp_index="2">
<object type="NUMANode" os_index="0" cpuset="0xff" gp_index="3" local_memory="1024"/>
<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[c0-c1]" gp_index="4">
<object type="PCIDev" gp_index="5" pci_busid="0000:c1:00.0" pci_type="0302 [10de:20f1] [10de:0] a1"
 pci_link_speed="31.507692"><object type="OSDev" gp_index="6" name="nvml0" osdev_type="1">
<info name="NVIDIAUUID" value="GPU-{UUID}"/></object></object>
<object type="PCIDev" gp_index="7" pci_busid="0000:c1:00.1" pci_type="0200 [15b3:1] [15b3:0] 00">
<object type="OSDev" gp_index="8" name="trantor17-lan" osdev_type="2">
<info name="Address" value="{MAC}"/></object></object></object></object></object>
<userdata name="{HOST}" length="3">abc</userdata></topology>
"""


def fake_run(command: Sequence[str]) -> Outcome:
    words = " ".join(command)
    printed = {
        "nvidia-smi topo -m": TOPO + f"# on {HOST} at 10.20.30.40\n",
        "nvidia-smi -q": NVIDIA_Q,
        "nvidia-smi nvlink -s": f"GPU 0: NVIDIA A100 (UUID: GPU-{UUID})\n\t Link 0: 25 GB/s\n",
        "lspci -D -vvv": LSPCI,
        "lstopo --of xml": HWLOC,
        "xpu-smi topology -m": f"error on {HOST}",
    }
    if words in printed:
        return Outcome(text=printed[words])
    return Outcome(problem="not installed")


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Captured:
    monkeypatch.setattr("topocal.topo.gather.capture_sysfs", lambda _root: dict(SYSFS))
    return capture(run=fake_run, names=[HOST])


def test_no_secret_is_in_the_archive(captured: Captured) -> None:
    content = gzip.decompress(pack(captured)).decode()
    for secret in SECRETS:
        assert secret not in content
    assert "b8-59-9f" not in content
    assert "/home/hari" not in content


def test_replay_gives_tree_links_and_fabric(captured: Captured, tmp_path: Path) -> None:
    path = tmp_path / "host.tar.gz"
    path.write_bytes(pack(captured))
    topology = read_any(path)
    assert topology.accelerators == ("gpu0", "gpu1")
    assert topology.graph.nodes["gpu0"]["bus_id"] == "0000:c1:00.0"
    assert PathClass(int(topology.routes().path_class[0, 1])) is PathClass.NVL
    sources = "\n".join(topology.graph.graph["provenance"])
    for name in ("sysfs", "nvidia-smi-topo.txt", "lspci-devices.txt", "hwloc.xml"):
        assert name in sources
    assert topology == read_gathered(path)
    # What cannot be read is told and does not stand in the way.
    assert "xpu-smi-topo.txt in host.tar.gz is left out" in "\n".join(topology.graph.graph["notes"])


def test_statuses_and_outputs(captured: Captured) -> None:
    assert captured.status["nvidia-smi-topo.txt"] == "ok"
    assert captured.status["rocm-smi-topo.txt"] == "not installed"
    assert captured.outputs["lspci-devices.txt"].count("LnkSta") == 1
    assert "Max                       : 4" in captured.outputs["nvidia-smi-query.txt"]
    assert "Processes" not in captured.outputs["nvidia-smi-query.txt"]


def test_a_program_that_prints_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topocal.topo.gather.capture_sysfs", lambda _root: dict(SYSFS))
    found = capture(run=lambda _command: Outcome(text="<topology"), names=[])
    assert "hwloc.xml" not in found.outputs
    assert "cut off" in found.status["hwloc.xml"]


def test_same_machine_same_bytes(captured: Captured) -> None:
    assert pack(captured) == pack(captured)
    with tarfile.open(fileobj=io.BytesIO(pack(captured))) as archive:
        assert {(m.uid, m.uname, m.mtime) for m in archive} == {(0, "", 0)}


def test_network_devices_with_telling_names(monkeypatch: pytest.MonkeyPatch) -> None:
    nic = "devices/pci0000:00/0000:00:03.0"
    files = {
        f"{nic}/class": "0x020000\n",
        f"{nic}/net/enxb8599f123456/speed": "1000\n",
        f"{nic}/net/trantor17-lan/speed": "1000\n",
        f"{nic}/net/enp0s3/speed": "1000\n",
        f"{nic}/infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n",
    }
    monkeypatch.setattr("topocal.topo.gather.capture_sysfs", lambda _root: files)
    found = capture(run=None, names=[])
    names = {p.split("/")[4] for p in found.sysfs if "/net/" in p or "/infiniband/" in p}
    assert names == {"net0", "net1", "enp0s3", "mlx5_0"}
    assert topology_from_sysfs(found.sysfs).graph.nodes["nic0"]["network_Bps"] == 12.5e9


# Scrubbing


@pytest.mark.parametrize(
    "text",
    [
        "0000:c1:00.0 00000000:C1:00.0 c1:00.0 10000:e1:00.0",
        "-[0000:00]-+-01.0-[01-03]--+-00.0  NVIDIA Corporation GA100 [10de:20b5]",
        "GPU0\t X \tNV12\tSYS\t0-7,16-23\t0\t\tN/A",
        "LnkSta: Speed 16GT/s (ok), Width x16 (ok)",
        'cpuset="0x0000ffff,0xffffffff,0xffffff00" local_memory="137100066816"',
        "0c:00.0 Serial bus controller [0c80]: Intel Corporation Device 7ae2",
        "Driver Version: 550.54.15   CUDA Version: 12.4",
        "200 Gb/sec (4X HDR) at 12:34:56",
    ],
)
def test_what_readers_need_stays(text: str) -> None:
    assert Scrubber(["node", "gpu1", "c1", "X"]).scrub(text) == text


def test_the_same_thing_gets_the_same_replacement() -> None:
    scrubber = Scrubber()
    other = UUID.replace("a1b2", "ffff")
    one, two, three = (scrubber.scrub(f"GPU-{u}") for u in (UUID, other, UUID.upper()))
    assert one == three != two


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("mlx5_10", True),
        ("enp65s0f0np0", True),
        ("enP2p1s0f1", True),
        ("ib0", True),
        ("rdmap16s27", True),
        ("enxb8599f123456", False),
        ("lan-of-hari", False),
        ("enp65s0f0_hari", False),
        ("", False),
    ],
)
def test_safe_interfaces(name: str, safe: bool) -> None:
    assert safe_interface(name) is safe


_HEX = st.text("0123456789abcdef", min_size=2, max_size=2)
_MACS = st.builds(
    lambda p, s: s.join(p), st.lists(_HEX, min_size=6, max_size=8), st.sampled_from(":-")
)
_UUIDS = st.uuids().map(str)
_IPV4 = st.ip_addresses(v=4).map(str)
_IPV6 = st.ip_addresses(v=6).map(str).filter(lambda a: len(a) > 4)
_HOSTS = st.from_regex(r"[a-z]{5,12}[0-9]{2,3}(\.[a-z]{4,9}\.(org|net))?", fullmatch=True).filter(
    lambda h: not h.startswith(("gpu", "node"))
)
# With a letter beyond F, so that no replacement (zeros and numbers) can hold it by chance.
_SERIALS = st.builds(
    lambda a, b: a + "M" + b,
    st.text(string.ascii_uppercase + string.digits, min_size=4, max_size=8),
    st.text(string.ascii_uppercase + string.digits, min_size=4, max_size=8),
)
_AROUND = st.sampled_from(
    ["{}", " {} ", "x={}", "({})", "at:{}", "[{}]", "{},", "id {}.", '"{}"', "\t{}\n"]
)
_LABELS = st.sampled_from(
    ["Serial Number : {}", "[SN] Serial number: {}", 'serial="{}"', "Board ID: {}", "Asset Tag={}"]
)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_planted_secret_survives(data: st.DataObject) -> None:
    host = data.draw(_HOSTS)
    secrets = data.draw(st.lists(st.one_of(_MACS, _UUIDS, _IPV4, _IPV6), min_size=1, max_size=4))
    lines = [data.draw(_AROUND).format(secret) for secret in [*secrets, host, host.upper()]]
    serial = data.draw(_SERIALS)
    lines.append(data.draw(_LABELS).format(serial))
    lines.append(TOPO)
    cleaned = Scrubber([host]).scrub("\n".join(data.draw(st.permutations(lines))))
    for secret in (*secrets, serial, host):
        if secret not in ("0.0.0.0", TOPO):
            assert secret.lower() not in cleaned.lower()
    assert "NV12" in cleaned


def test_long_runs_are_no_trap() -> None:
    for text in ("a" * 200_000, ":" * 200_000, "a:" * 100_000, "1." * 100_000, "-1" * 100_000):
        Scrubber(["host17"]).scrub(text)


def test_kept_parts_are_idempotent() -> None:
    assert keep_lspci(keep_lspci(LSPCI)) == keep_lspci(LSPCI)
    assert keep_nvidia_query(keep_nvidia_query(NVIDIA_Q)) == keep_nvidia_query(NVIDIA_Q)
    assert keep_hwloc(keep_hwloc(HWLOC)) == keep_hwloc(HWLOC)


# Running programs


def test_programs_are_bounded() -> None:
    def python(code: str, **limits: float) -> Outcome:
        return run_program([sys.executable, "-c", code], **limits)  # type: ignore[arg-type]

    assert python("print('hello')") == Outcome(text="hello\n")
    assert python("pass").problem == "printed nothing"
    assert python("raise SystemExit(3)").problem == "ended with status 3"
    assert "killed after 0.5 s" in python("import time; time.sleep(60)", timeout_s=0.5).problem
    closed = "import os, time; os.close(1); time.sleep(60)"
    assert "killed after 0.5 s" in python(closed, timeout_s=0.5).problem
    endless = "while True: print('x' * 10000)"
    assert "killed after printing" in python(endless, max_bytes=2**20).problem
    assert run_program(["no-such-program-here"]).problem == "not installed"
    # There is no shell: the argument is one, whatever is in it.
    shown = run_program([sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; ls |"])
    assert shown.text == "['$HOME; ls |']\n"


# Archives from strangers


def manifest(version: int = 1, format: str = "topocal/gathered") -> bytes:
    return json.dumps({"format": format, "version": version, "outputs": {}}).encode()


def tar(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member, content in members:
            if member.isreg():
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def plain(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member, b""


GOOD = tar([plain(MANIFEST, manifest())])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tar([plain("../outside")]), "outside of itself"),
        (tar([plain("/etc/passwd")]), "outside of itself"),
        (tar([plain("a/../../b")]), "outside of itself"),
        (tar([special("sysfs/x", tarfile.SYMTYPE, "/etc/passwd")]), "a link or device"),
        (tar([special("sysfs/x", tarfile.LNKTYPE, "topocal.json")]), "a link or device"),
        (tar([special("x", tarfile.FIFOTYPE)]), "a link or device"),
        (tar([special("x", tarfile.CHRTYPE)]), "a link or device"),
        (tar([plain("a"), plain("a")]), "holds a twice"),
        (GOOD[:1024], "cut off"),
        (GOOD[:700], "cut off"),
        (b"\0" * 512, "has no topocal.json"),
        (tar([plain("a.txt")]), "has no topocal.json"),
        (tar([plain(MANIFEST, b"{")]), "not a JSON file"),
        (tar([plain(MANIFEST, manifest(9))]), "has version 9"),
        (tar([plain(MANIFEST, manifest(1, "other"))]), "other"),
        (gzip.compress(b"hello" * 200), "no tar archive"),
        (gzip.compress(GOOD)[:60], "cut off"),
        (b"\x1f\x8b\x08 not gzip", "damaged"),
        (gzip.compress(b"\0" * (MAX_UNPACKED_BYTES + 1)), "unpacks to more than 64 MiB"),
    ],
    # The bytes hold the time at which they were packed: no part of a name.
    ids=lambda value: value if isinstance(value, str) else "tar",
)
def test_hostile_archives_fail_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "host.tar.gz"
    path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FormatError, match=words) as caught:
        read_gathered(path)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_bombs_within_bombs_and_too_many_files() -> None:
    bomb = gzip.compress(b"\0" * 2**20) * 100
    with pytest.raises(FormatError, match="unpacks to more than"):
        unpack(bomb, file="x")
    header = tarfile.TarInfo("a").tobuf()
    many = b"".join(tarfile.TarInfo(f"f{k}").tobuf() for k in range(50_001))
    with pytest.raises(FormatError, match="more than 50000 files"):
        unpack(gzip.compress(many, 1), file="x")
    # A size that no file has, and one below zero, which tarfile itself would follow backwards.
    damaged = bytearray(header)
    damaged[124:136] = b"\xff" * 12
    damaged[148:156] = b"%06o\0 " % (sum(damaged[:148]) + 256 + sum(damaged[156:]))
    with pytest.raises(FormatError, match="without a size"):
        unpack(bytes(damaged), file="x")


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_packed_by_other_programs(format: int) -> None:
    """Long names are written in three ways; a leading directory and ./ do not matter."""
    long = "sysfs/" + "/".join(["0000:00:01.0"] * 15) + "/class"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for name in ("./topocal.json", f"./{long}", "é"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
    assert unpack(stream.getvalue(), file="x") == {"topocal.json": b"1", long: b"1", "é": b"1"}


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_mutated_archives_raise_our_errors_only(data: st.DataObject) -> None:
    members = [plain(MANIFEST, manifest())]
    members += [plain(f"sysfs/{path}", text.encode()) for path, text in SYSFS.items()]
    members += [plain("outputs/nvidia-smi-topo.txt", TOPO.encode())]
    content = bytearray(tar(members))
    for _ in range(data.draw(st.integers(1, 10))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(TopocalError):
        unpack(bytes(content[:cut] if data.draw(st.booleans()) else content), file="x")


# The commands


@pytest.mark.skipif(not Path("/sys/devices").is_dir(), reason="no sysfs here")
def test_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    archive, out = tmp_path / "host.tar.gz", tmp_path / "topology.json"
    shown = runner.invoke(command_line(), ["gather", "-o", str(archive), "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["outputs"]["lspci-tree.txt"]
    shown = runner.invoke(command_line(), ["read", str(archive), "-o", str(out)])
    assert shown.exit_code == 0
    assert out.is_file()
    shown = runner.invoke(command_line(), ["discover", "-o", str(out), "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["nodes"]["socket"] >= 1
    shown = runner.invoke(command_line(), ["discover"])
    assert "socket" in shown.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["host.tar.gz", "topology.json"]


def test_gather_of_a_copied_tree_runs_no_program(tmp_path: Path) -> None:
    (tmp_path / "sys" / "devices").mkdir(parents=True)
    found = gather(tmp_path / "x.tar.gz", sysfs=tmp_path, run=fake_run)
    assert found.status == {}
    assert read_gathered(tmp_path / "x.tar.gz").endpoints == ()

"""``xpu-smi topology -d``: one device's processors and the PCIe switches above it.

The path of a switch is that of its port in sysfs, from the host bridge down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.amd_pairs import whole_number
from topocal.topo.readers.class_matrix import MAX_DEVICES
from topocal.topo.readers.paste import MAX_LINES
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["XPU_SMI_DEVICE", "looks_like_xpu_device", "parse_xpu_device"]

_MARKS: Final = re.compile(
    r'\bLocal CPU List\b|"(?:xpum_)?affinity_localcpulist"|"pcie_switch_count"|"local_cpu_list"'
)
_KEY: Final = re.compile(
    r"(Local CPU List|Local CPUs|PCIe Switch Count|PCIe Switch)\s{0,8}:?\s{0,8}(.*)"
)
_CPU_LIST: Final = re.compile(r"[0-9][0-9,\-]{0,2000}")
_ROOT: Final = re.compile(r"pci([0-9a-f]{4,8}:[0-9a-f]{2})")
_KEYS: Final = {
    "affinity_localcpulist": "Local CPU List",
    "xpum_affinity_localcpulist": "Local CPU List",
    "local_cpu_list": "Local CPU List",
    "switch_count": "PCIe Switch Count",
    "xpum_parent_switch_count": "PCIe Switch Count",
    "pcie_switch_count": "PCIe Switch Count",
    "pcie_switch": "PCIe Switch",
}
_LONGEST_CHAIN: Final = 64
_REMEDY: Final = "give the output of xpu-smi topology -d as it was printed"


@dataclass(slots=True)
class _Device:
    """One device: what each key says; of switches there may be several."""

    number: int
    said: dict[str, str] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)


def looks_like_xpu_device(text: str) -> bool:
    """Whether a text is of ``xpu-smi topology -d``."""
    return _MARKS.search(text) is not None


def parse_xpu_device(text: str, *, file: str) -> Topology:
    """The devices, each below its switches, host bridge and socket.

    Raises
    ------
    FormatError
        When there is no device in it.
    """
    devices = _from_json(text, file) if text.lstrip()[:1] in "[{" else _from_text(text)
    if not devices or len(devices) > MAX_DEVICES:
        raise FormatError(
            f"describes {len(devices) or 'no'} devices", where=Where(file=file), remedy=_REMEDY
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: xpu-smi topology -d")
    sockets: dict[str, str] = {}
    joined: set[tuple[str, str]] = set()
    for device in devices.values():
        _add(builder, device, sockets, joined)
    names = list(sockets.values())
    for k, one in enumerate(names):
        for other in names[k + 1 :]:
            builder.connect(one, other, LinkKind.SMP)
    return builder.build()


def _add(
    builder: TopologyBuilder,
    device: _Device,
    sockets: dict[str, str],
    joined: set[tuple[str, str]],
) -> None:
    name = f"gpu{device.number}"
    listed = device.said.get("Local CPU List", "").strip()
    cpu_list = listed if _CPU_LIST.fullmatch(listed) else ""
    stated: dict[str, Any] = {"cpu_list": cpu_list} if cpu_list else {}
    if cpu_list not in sockets:
        sockets[cpu_list] = builder.node(f"socket{len(sockets)}", NodeKind.SOCKET, **stated)
    builder.node(name, NodeKind.GPU, index=device.number, **stated)
    chain = [name, *_chain(builder, device), sockets[cpu_list]]
    for lower, upper in pairwise(chain):
        if (lower, upper) not in joined:
            joined.add((lower, upper))
            builder.connect(lower, upper, LinkKind.PCIE)
    count = whole_number(device.said.get("PCIe Switch Count", ""))
    if count is not None and count != len(device.switches):
        builder.note(
            f"says that {count} PCIe switches stand above {name} and names {len(device.switches)}"
        )


def _chain(builder: TopologyBuilder, device: _Device) -> list[str]:
    """Switches above a device, the nearest first, and the host bridge."""
    above: list[str] = []
    root = ""
    for path in sorted(device.switches, key=len, reverse=True)[:_LONGEST_CHAIN]:
        steps = [step for step in path.split("/") if step]
        port = next((b for step in reversed(steps) if (b := normal_bus_id(step))), None)
        found = next((m for step in steps if (m := _ROOT.fullmatch(step))), None)
        if port is None:
            builder.note(f"the path of a switch above gpu{device.number} names no PCI port")
            continue
        root = root or (found[1] if found else "")
        switch = f"pcie:{port}"
        if switch not in builder:
            stated: dict[str, Any] = {"bus_id": port, "path": path[:2000]}
            builder.node(switch, NodeKind.PCIE_SWITCH, **stated)
        if switch not in above:
            above.append(switch)
    if root:
        bridge = f"host-bridge:{root}"
        if bridge not in builder:
            builder.node(bridge, NodeKind.HOST_BRIDGE)
        above.append(bridge)
    return above


def _from_text(text: str) -> dict[int, _Device]:
    """Boxes of either version: a device's number beside its keys, or a key per line."""
    devices: dict[int, _Device] = {}
    device: _Device | None = None
    key = ""
    for line in text.split("\n", MAX_LINES)[:MAX_LINES]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 2 or "|" not in line:
            continue
        first, second = cells[0], cells[1]
        number = whole_number(second if first == "Device ID" else first)
        if number is not None:
            device = devices.setdefault(number, _Device(number))
            key = ""
        if device is None:
            continue
        words = f"{first}: {second}" if _KEY.fullmatch(first) else second
        if found := _KEY.fullmatch(words):
            key = found[1]
            if key == "PCIe Switch":
                if found[2] not in ("", "N/A"):
                    device.switches.append(found[2])
            else:
                device.said[key] = found[2]
        elif key == "PCIe Switch" and device.switches and second and not first:
            device.switches[-1] += second
    return devices


def _from_json(text: str, file: str) -> dict[int, _Device]:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(
            f"damaged JSON: {one_line(error)}", where=Where(file=file), remedy=_REMEDY
        ) from error
    devices: dict[int, _Device] = {}
    for entry in document if isinstance(document, list) else [document]:
        if not isinstance(entry, dict):
            continue
        number = whole_number(entry.get("device_id", entry.get("deviceId")))
        if number is None:
            continue
        device = devices.setdefault(number, _Device(number))
        for key, value in entry.items():
            if key == "switch_list" and isinstance(value, list):
                device.switches += [str(path) for path in value]
            elif re.fullmatch(r"xpum_switch_[0-9]{1,3}|pcie_switch", key):
                if value not in ("", "N/A", None):
                    device.switches.append(str(value))
            elif key in _KEYS:
                device.said[_KEYS[key]] = str(value)
    return devices


XPU_SMI_DEVICE: Final = Reader(
    name="xpu-smi-device",
    title="xpu-smi topology -d, also with -j",
    looks_like=looks_like_xpu_device,
    parse=parse_xpu_device,
)
"""The reader that the registry lists."""

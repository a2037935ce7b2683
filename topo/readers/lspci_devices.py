"""The device list that ``lspci``, ``lspci -v`` and ``lspci -vvv`` print.

::

    c1:00.0 VGA compatible controller [0300]: NVIDIA … [10de:26b1] (rev a1)
            NUMA node: 0
            Bus: primary=00, secondary=01, subordinate=03       (bridges)
            Capabilities: [78] Express (v2) Legacy Endpoint, MSI 00
                    LnkCap: Port #0, Speed 16GT/s, Width x16, …
                    LnkSta: Speed 2.5GT/s (downgraded), Width x16
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from topocal.topo.readers.pci import normal_bus_id, normal_class, parse_speed, parse_width
from topocal.topo.readers.pci_function import LinkState, PciFunction, Port
from topocal.topo.readers.pci_role import class_by_name, role_by_class, vendor_by_name

__all__ = ["DeviceBlocks", "is_device_line", "parse_device_blocks"]

_HEADER: Final = re.compile(
    r"\s*(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]) "
    r"(?:(?P<code>[0-9a-f]{4})"
    r"|(?P<name>[A-Z0-9][\w ()/,.&-]{2,60}?)(?: \[(?P<bracket>[0-9a-f]{4})\])?): (?P<device>\S.*)"
)
_IDS: Final = re.compile(r"\[?\b([0-9a-f]{4}):([0-9a-f]{4})\b\]?")
_TAIL: Final = re.compile(r" \((?:rev [0-9a-f]{2}|prog-if [^)]*|\w+ mode)\)")
_SECONDARY: Final = re.compile(r"Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2})")
_LINK: Final = re.compile(r"Speed ([^,]{1,40}), Width ([^\s,]{1,8})")
_NUMA: Final = re.compile(r"NUMA node: ([0-9]{1,4})\b")
_PORTS: Final = (
    ("Root Port", Port.ROOT),
    ("Upstream Port", Port.UPSTREAM),
    ("Downstream Port", Port.DOWNSTREAM),
)


@dataclass(slots=True)
class DeviceBlocks:
    """What the list says.

    Attributes
    ----------
    functions
        By address; parents and root buses are not yet known.
    buses
        Address of the bridge that leads to a bus (``dddd:bb``).
    denied
        Whether capabilities were hidden from a user without root.
    """

    functions: dict[str, PciFunction] = field(default_factory=dict)
    buses: dict[str, str] = field(default_factory=dict)
    denied: bool = False


def is_device_line(line: str) -> bool:
    """Whether a line begins a device."""
    return _HEADER.match(line) is not None


def parse_device_blocks(lines: list[str]) -> DeviceBlocks:
    """The devices that the lines list; other lines are passed over.

    A device that is listed twice (idle and under load) has the faster of its states.
    """
    found = DeviceBlocks()
    current: PciFunction | None = None
    for line in lines:
        header = _HEADER.match(line)
        if header is not None:
            current = _begin(found, header)
        elif not line.strip() or not line[0].isspace():
            # Whatever follows a prompt is another command's output, not this device's.
            current = current if _is_detail(line) else None
        if current is not None and header is None:
            _read_detail(found, current, line.strip())
    return found


def _is_detail(line: str) -> bool:
    """Whether a line that lost its indentation is a device's all the same."""
    return re.match(r"(?:LnkCap|LnkSta|Bus|NUMA node|Capabilities|ACSCtl):? ", line) is not None


def _begin(found: DeviceBlocks, header: re.Match[str]) -> PciFunction | None:
    address = normal_bus_id(header["address"])
    if address is None:
        return None
    if address in found.functions:
        return found.functions[address]
    words = header["device"].strip()
    ids = _IDS.findall(words)
    model = _TAIL.sub("", _IDS.sub("", words)).strip()
    code = header["code"] or header["bracket"]
    pci_class = normal_class(code) if code else class_by_name(header["name"] or "")
    vendor = f"0x{ids[-1][0]}" if ids else vendor_by_name(model)
    function = PciFunction(
        address=address,
        bridge=(pci_class or "").startswith("0x0604"),
        pci_class=pci_class,
        vendor=vendor,
        device=f"0x{ids[-1][1]}" if ids else None,
        model=model,
        virtual="virtual function" in model.lower(),
    )
    if pci_class is not None and not function.bridge:
        on_root_bus = address.rpartition(":")[0].endswith(":00")
        function.role = role_by_class(pci_class, vendor, model, on_root_bus=on_root_bus)
    found.functions[address] = function
    return function


def _read_detail(found: DeviceBlocks, function: PciFunction, line: str) -> None:
    if line.startswith("LnkCap:"):
        function.capability = _faster(function.capability, _link(line))
    elif line.startswith("LnkSta:"):
        function.state = _faster(function.state, _link(line))
    elif line.startswith("Bus:") and (match := _SECONDARY.match(line)):
        function.bridge = True
        domain = function.address.split(":")[0]
        found.buses.setdefault(f"{domain}:{match[1]}", function.address)
    elif line.startswith("NUMA node:") and (match := _NUMA.match(line)):
        function.numa = int(match[1])
    elif line.startswith("Capabilities: <access denied>"):
        found.denied = True
    elif line.startswith("Capabilities:") and "Express" in line:
        function.port = next((port for word, port in _PORTS if word in line), function.port)
    elif line.startswith("ACSCtl:") and "ReqRedir+" in line:
        function.redirects = True


def _link(line: str) -> LinkState:
    match = _LINK.search(line)
    if match is None:
        return LinkState()
    return LinkState(generation=parse_speed(match[1]), width=parse_width(match[2]))


def _faster(a: LinkState, b: LinkState) -> LinkState:
    return max(a, b, key=lambda s: (s.generation or 0, s.width or 0))

"""The drawing that ``lspci -t`` and ``lspci -tv`` print.

::

    -+-[0000:20]-+-01.1-[21]--+-00.0  Ethernet controller
     |           |            \\-00.1  Ethernet controller
     |           \\-03.1-[22-25]----00.0-[23-25]--+-00.0-[24]----00.0  NVIDIA …
     \\-[0000:00]---00.0  …

A root bus stands in brackets with its domain; a bridge is followed by the range
of buses below it; ``+`` begins a list of devices on one bus, whose further
members stand below it in the same column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from topocal.topo.readers.pci_function import PciFunction
from topocal.topo.readers.pci_role import role_by_name, vendor_by_name

__all__ = ["is_tree_line", "parse_tree_lines"]

_BOXES: Final = str.maketrans("├└│─┬", "+\\|-+")
"""Some terminals' and editors' drawing characters."""

_ROOT: Final = re.compile(r"[-+\\|` ]*[-+\\`]-?\[([0-9a-f]{4,8}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_ROOT_ALONE: Final = re.compile(r"-(?:\+-)?\[()([0-9a-f]{2})(?:-[0-9a-f]{2})?\]-")
_CONTINUES: Final = re.compile(r"[| ]*[+\\`]-[0-9a-f]{2}\.[0-7]\b")
_DEVICE: Final = re.compile(r"([0-9a-f]{2})\.([0-7])")
_BUSES: Final = re.compile(
    r"-+\[(?:[0-9a-f]{4,8}:)?([0-9a-f]{2})(?:-(?:[0-9a-f]{4,8}:)?([0-9a-f]{2}))?\]"
)
_IDS: Final = re.compile(r"\[?\b([0-9a-f]{4}):([0-9a-f]{4})\b\]?", re.IGNORECASE)


def is_tree_line(line: str) -> bool:
    """Whether a line is part of such a drawing."""
    line = line.translate(_BOXES)
    found = _ROOT.match(line) or _ROOT_ALONE.match(line) or _CONTINUES.match(line)
    return found is not None


@dataclass(slots=True)
class _Bus:
    """A bus whose list of devices may go on in a later line."""

    column: int
    domain: str
    number: str
    root: str
    bridge: str | None


class _Drawing:
    def __init__(self) -> None:
        self.functions: dict[str, PciFunction] = {}
        self._open: list[_Bus] = []

    def read(self, line: str) -> None:
        line = line.translate(_BOXES).rstrip()
        root = _ROOT.match(line) or _ROOT_ALONE.match(line)
        if root is not None:
            domain, number = f"{int(root[1] or '0', 16):04x}", root[2]
            name = f"{domain}:{number}"
            self._open.clear()
            self._read_devices(line, root.end(), _Bus(-1, domain, number, name, None))
            return
        if _CONTINUES.match(line) is None or not self._open:
            return
        start = next(k for k, c in enumerate(line) if c in "+\\`")
        # A paste may have lost a leading blank: the nearest column is meant.
        while len(self._open) > 1 and _nearer(self._open[-2].column, self._open[-1].column, start):
            self._open.pop()
        self._read_devices(line, start, self._open[-1])

    def _read_devices(self, line: str, position: int, bus: _Bus) -> None:
        """The rest of a line: devices along one path down, from ``position`` on."""
        while position < len(line):
            while position < len(line) and line[position] in "-+\\` ":
                if line[position] == "+":
                    self._opens(bus, position)
                position += 1
            device = _DEVICE.match(line, position)
            if device is None:
                return
            position = device.end()
            address = f"{bus.domain}:{bus.number}:{device[1]}.{device[2]}"
            below = _BUSES.match(line, position)
            if below is None:
                self._add(address, bus, line[position:].strip())
                return
            self._add(address, bus, "", bridge=True)
            bus = _Bus(-1, bus.domain, below[1], bus.root, address)
            position = below.end()

    def _opens(self, bus: _Bus, column: int) -> None:
        if not self._open or self._open[-1].column != column:
            self._open.append(_Bus(column, bus.domain, bus.number, bus.root, bus.bridge))

    def _add(self, address: str, bus: _Bus, words: str, *, bridge: bool = False) -> None:
        if address in self.functions:
            return
        ids = _IDS.findall(words)
        model = _IDS.sub("", words).strip()
        vendor = f"0x{ids[-1][0].lower()}" if ids else vendor_by_name(model)
        device = f"0x{ids[-1][1].lower()}" if ids else None
        function = PciFunction(
            address=address,
            parent=bus.bridge,
            root=bus.root,
            bridge=bridge,
            vendor=vendor,
            device=device,
            model=model,
            virtual="virtual function" in model.lower(),
        )
        if not bridge:
            function.role = role_by_name(model, vendor, device, function.number)
        self.functions[address] = function


def _nearer(outer: int, inner: int, column: int) -> bool:
    return abs(outer - column) <= abs(inner - column)


def parse_tree_lines(lines: list[str]) -> dict[str, PciFunction]:
    """Functions by address that the lines of a drawing show.

    Lines that are no part of a drawing are passed over.
    """
    drawing = _Drawing()
    for line in lines:
        if is_tree_line(line):
            drawing.read(line)
    return drawing.functions

"""PCI words that several tools print: addresses, class codes, link speeds, and CPU masks."""

from __future__ import annotations

import re
from typing import Final

from topocal.topo.nominal import pcie_generation
from topocal.topo.resource import NodeKind

__all__ = [
    "bus_id_key",
    "bus_id_of_number",
    "class_kind",
    "cpu_list_of_mask",
    "normal_bus_id",
    "normal_class",
    "normal_id",
    "parse_speed",
    "parse_width",
]

_BUS_ID: Final = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[01][0-9a-f])"
    r"(?:\.(?P<function>[0-7]))?"
)
_SPEED: Final = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?)\s*GT/?s", re.IGNORECASE)

_WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Lane counts that a PCIe link can have (PCI Express Base Specification, Link Width);
kernels print 0, 63 or 255 where they do not know."""

_NO_ID: Final = frozenset({"0x0000", "0xffff"})
"""Vendor and device ids that no device has: hand-written files fill them in."""

_MASK_WORD_BITS: Final = 32
_MAX_CPUS: Final = 65_536


def normal_bus_id(text: str) -> str | None:
    """A PCI address as ``dddd:bb:dd.f`` in lower case; ``None`` when it is none.

    >>> normal_bus_id("00000000:3B:00.0"), normal_bus_id("3b:00"), normal_bus_id("GPU0")
    ('0000:3b:00.0', '0000:3b:00.0', None)
    """
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['function'] or '0'}"


def bus_id_of_number(number: int) -> str:
    """The PCI address that NCCL writes as one number.

    >>> bus_id_of_number(0x1b000), bus_id_of_number(0x80)
    ('0000:1b:00.0', '0000:00:08.0')
    """
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"


def bus_id_key(bus_id: str) -> tuple[int, ...]:
    """Sort key of a normal PCI address: by number, whatever the digits of the domain.

    >>> sorted(["10000:01:00.0", "000a:00:00.0"], key=bus_id_key)
    ['000a:00:00.0', '10000:01:00.0']
    """
    return tuple(int(part, 16) for part in re.split(r"[:.]", bus_id))


def normal_class(text: str) -> str | None:
    """A PCI class code with all six digits; ``None`` when it is none.

    >>> normal_class("0x0302"), normal_class("030000"), normal_class("")
    ('0x030200', '0x030000', None)
    """
    match = re.fullmatch(r"(?:0x)?([0-9a-f]{4}|[0-9a-f]{6})", text.strip().lower())
    return None if match is None else f"0x{match[1]:0<6}"


def class_kind(pci_class: str | None) -> NodeKind | None:
    """What a device of a normal class code is in a topology; ``None`` when it plays no part.

    Display controllers (03) and processing accelerators (12, which AMD Instinct
    uses) are GPUs, network controllers (02) NICs, PCI bridges (0604) switches.
    Codes: PCI-SIG, PCI Code and ID Assignment Specification.

    >>> class_kind("0x120000")
    <NodeKind.GPU: 'gpu'>
    """
    if pci_class is None:
        return None
    base, sub = pci_class[2:4], pci_class[4:6]
    if base in ("03", "12"):
        return NodeKind.GPU
    if base == "02":
        return NodeKind.NIC
    if base == "06":
        return {"04": NodeKind.PCIE_SWITCH, "80": NodeKind.NVSWITCH}.get(sub)
    return None


def normal_id(text: str) -> str | None:
    """A vendor or device id with four digits; ``None`` for a placeholder or no id at all.

    >>> normal_id("0x10DE"), normal_id("0x0000")
    ('0x10de', None)
    """
    match = re.fullmatch(r"(?:0x)?([0-9a-f]{4})", text.strip().lower())
    found = None if match is None else f"0x{match[1]}"
    return None if found in _NO_ID else found


def parse_speed(text: str) -> int | None:
    """PCIe generation of a speed however spelled; ``None`` where it names none.

    >>> parse_speed("32 GT/s PCIe/s"), parse_speed("2.5GT/s"), parse_speed("Unknown speed")
    (5, 1, None)
    """
    match = _SPEED.search(text)
    return None if match is None else pcie_generation(float(match[1]))


def parse_width(text: str) -> int | None:
    """Lanes of a link; ``None`` for a number that no link has.

    >>> parse_width("16"), parse_width("x8"), parse_width("0"), parse_width("255")
    (16, 8, None, None)
    """
    match = re.fullmatch(r"x?([0-9]{1,3})", text.strip().lower())
    return int(match[1]) if match is not None and int(match[1]) in _WIDTHS else None


def cpu_list_of_mask(text: str) -> str | None:
    """A CPU mask as Linux prints it (words of 32 bits, most significant first) as a list.

    ``None`` when it is no mask; empty for a mask without CPUs.

    >>> cpu_list_of_mask("000000ff,ffff0000,00ffffff")
    '0-23,48-71'
    """
    words = text.strip().lower().removeprefix("0x").split(",")
    if len(words) * _MASK_WORD_BITS > _MAX_CPUS:
        return None
    mask = 0
    for word in words:
        digits = word.strip()
        # A mask in one piece may be longer than a word; a list of words may not.
        longest = _MASK_WORD_BITS // 4 if len(words) > 1 else _MAX_CPUS // 4
        if re.fullmatch(r"[0-9a-f]+", digits) is None or len(digits) > longest:
            return None
        mask = mask << _MASK_WORD_BITS | int(digits, 16)
    bits = f"{mask:b}"[::-1]
    spans = ((m.start(), m.end() - 1) for m in re.finditer("1+", bits))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)

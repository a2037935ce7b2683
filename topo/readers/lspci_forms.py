"""Other ways in which ``lspci`` lists devices, made into the one that is read.

``-mm`` quotes fields, ``-vmm`` gives a line to each, ``-PP`` names a device by the bridges
above it; each may name a field, number it or both (``-n``, ``-nn``).

References
----------
lspci(8), "Machine readable output", and ``show_machine`` in lspci.c of pciutils.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["as_device_list", "is_other_form"]

_ADDRESS: Final = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_QUOTED: Final = re.compile(rf'({_ADDRESS}) "([^"]{{1,200}})" "([^"]{{0,200}})" "([^"]{{0,200}})"')
_SLOT: Final = re.compile(rf"Slot:\s+({_ADDRESS})\s*$")
_FIELD: Final = re.compile(r"(Class|Vendor|Device|NUMANode):\s+(\S.{0,200})$")
_PATH: Final = re.compile(rf"((?:{_ADDRESS}/){{1,16}})({_ADDRESS}) (.*)")
_CODE: Final = re.compile(r"(.*?)\s*\[?\b([0-9a-f]{4})\]?")


def is_other_form(line: str) -> bool:
    """Whether a line begins a device in one of these forms."""
    return any(form.match(line) for form in (_QUOTED, _SLOT, _PATH))


def as_device_list(lines: Sequence[str]) -> list[str]:
    """The lines with devices of these forms written as plain ``lspci`` writes them."""
    written: list[str] = []
    bridges: dict[str, str] = {}
    fields: dict[str, str] = {}
    slot = ""
    for line in lines:
        found = _SLOT.match(line)
        if found is None and slot and (field := _FIELD.match(line)) is not None:
            fields.setdefault(field[1], field[2].strip())
            continue
        if slot and not re.match(r"[A-Za-z]{2,12}:\s", line):
            written += _device(slot, fields)
            slot = ""
        if found is not None:
            slot, fields = found[1], {}
        elif (found := _QUOTED.match(line)) is not None:
            written += _device(
                found[1], {"Class": found[2], "Vendor": found[3], "Device": found[4]}
            )
        elif (found := _PATH.match(line)) is not None:
            above = found[1].split("/")[:-1]
            bridges |= dict(zip([*above[1:], found[2]], above, strict=True))
            written.append(f"{found[2]} {found[3]}")
        else:
            written.append(line)
    if slot:
        written += _device(slot, fields)
    # Last, so that what the list itself says of a bridge comes first.
    for below, bridge in bridges.items():
        written += [
            f"{bridge} PCI bridge: not shown",
            f"\tBus: primary={_bus(bridge)}, secondary={_bus(below)}",
        ]
    return written


def _device(slot: str, fields: Mapping[str, str]) -> list[str]:
    if "Class" not in fields:
        return []
    name, code = _name_and_code(fields["Class"])
    vendor, vendor_code = _name_and_code(fields.get("Vendor", ""))
    model, model_code = _name_and_code(fields.get("Device", ""))
    kind = f"{name} [{code}]" if name and code else name or code
    ids = f" [{vendor_code}:{model_code}]" if vendor_code and model_code else ""
    lines = [f"{slot} {kind}: {vendor} {model}".rstrip() + ids]
    if "NUMANode" in fields:
        lines.append(f"\tNUMA node: {fields['NUMANode']}")
    return lines


def _name_and_code(field: str) -> tuple[str, str]:
    """``3D controller [0302]``, ``3D controller`` or ``0302``."""
    bracketed = field.endswith("]")
    found = _CODE.fullmatch(field)
    if found is None or bool(found[1]) is not bracketed:
        return field, ""
    return found[1], found[2]


def _bus(address: str) -> str:
    return address.rpartition(":")[0][-2:]

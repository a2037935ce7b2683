"""Of each tool's output, what the readers use: everything else is dropped before it is kept.

A list of what stays is safer than one of what goes: the next version of a tool
prints things that nobody has thought of.
"""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import quoteattr

from topocal.topo.readers.lspci_devices import is_device_line
from topocal.topo.readers.xml import Element, parse_xml
from topocal.topo.scrub import safe_interface

__all__ = ["keep_hwloc", "keep_lspci", "keep_nvidia_query"]


def keep_lspci(text: str) -> str:
    """Of ``lspci -vvv``: devices, bus numbers, memory nodes and links."""
    details = ("Bus:", "LnkCap:", "LnkSta:", "NUMA node:", "ACSCtl:", "Capabilities: <access")
    kept = []
    for line in text.split("\n"):
        words = line.strip()
        express = words.startswith("Capabilities:") and "Express" in words
        if express or words.startswith(details) or is_device_line(line):
            kept.append(line)
    return "\n".join(kept) + "\n"


def keep_nvidia_query(text: str) -> str:
    """Of ``nvidia-smi -q``: addresses, product names and PCIe links."""
    kept = []
    inside: int | None = None
    for line in text.split("\n"):
        words = line.strip()
        if not words:
            continue
        depth = len(line) - len(line.lstrip())
        if inside is not None and depth <= inside:
            inside = None
        if words == "GPU Link Info":
            inside = depth
        if inside is not None or re.match(
            r"GPU [0-9A-Fa-f]{4,8}:|Product Name\s*:|Attached GPUs\s*:", words
        ):
            kept.append(line)
    return "\n".join(kept) + "\n"


_ATTRIBUTES: Final = {
    "topology": {"version"},
    "object": {
        *("type", "subtype", "os_index", "gp_index", "id", "kind", "depth"),
        *("cpuset", "nodeset", "local_memory"),
        *("osdev_type", "bridge_type", "bridge_pci"),
        *("pci_busid", "pci_type", "pci_link_speed"),
    },
    "distances2": {"type", "nbobjs", "kind", "name", "indexing"},
    "distances2hetero": {"nbobjs", "kind", "name"},
    "indexes": {"length"},
    "u64values": {"length"},
    "distances": {"nbobjs", "relative_depth", "latency_base"},
    "latency": {"value"},
}
_INFOS: Final = {
    *("DMIProductName", "PlatformModel", "Architecture", "Backend", "hwlocVersion"),
    *("CPUModel", "GPUModel", "GPUVendor", "PCIVendor", "PCIDevice"),
}
_DROPPED_OBJECTS: Final = {"pu", "core", "misc"}


def keep_hwloc(text: str) -> str:
    """Of hwloc's XML: objects, links and matrices; information by a list of harmless names.

    Raises
    ------
    FormatError
        When it is not XML.
    """
    root = parse_xml(text, file="lstopo")
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    waiting: list[Element | str] = [root]
    while waiting:
        element = waiting.pop()
        if isinstance(element, str):
            parts.append(element)
            continue
        attributes = _kept_attributes(element)
        if attributes is None:
            continue
        words = "".join(f" {k}={quoteattr(v)}" for k, v in attributes.items())
        parts.append(f"<{element.tag}{words}>{_numbers_only(element.text)}")
        waiting.append(f"</{element.tag}>\n")
        waiting.extend(reversed(element.children))
    return "".join(parts)


def _kept_attributes(element: Element) -> dict[str, str] | None:
    """What stays of an element; ``None`` to leave it out with all that is in it."""
    if element.tag == "info":
        name = element.get("name")
        return {"name": name, "value": element.get("value")} if name in _INFOS else None
    names = _ATTRIBUTES.get(element.tag)
    kind = element.get("type").lower()
    if names is None or (element.tag == "object" and kind in _DROPPED_OBJECTS):
        return None
    kept = {k: v for k, v in element.attributes.items() if k in names}
    if kind == "osdev":
        name = element.get("name")
        number = re.fullmatch(r"(?:nvml|rsmi|ze|cuda|opencl\d+d|ocl\d+d)[0-9]{1,4}", name)
        kept["name"] = name if number or safe_interface(name) else "other"
    return kept


def _numbers_only(text: str) -> str:
    return text if re.fullmatch(r"[\s0-9A-Za-z:]*", text) and not text.isspace() else ""

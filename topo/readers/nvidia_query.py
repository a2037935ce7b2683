"""``nvidia-smi -q``: each GPU's PCIe link, what it can do and what it does just now.

``Max`` is what GPU and slot can do together; ``Current`` sinks to generation 1
while a GPU idles and is no fault, so the capacity is that of ``Max``.  Lanes do
not sink: fewer than ``Max`` is a link that trained badly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.nominal import pcie_Bps, source_of
from topocal.topo.readers.class_matrix import MAX_DEVICES
from topocal.topo.readers.paste import MAX_LINES
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["NVIDIA_QUERY", "looks_like_nvidia_query", "parse_nvidia_query"]

_INFO: Final = re.compile(r"^[ \t]{0,40}GPU Link Info[ \t]*$", re.M)
_ATTACHED: Final = re.compile(r"^Attached GPUs\s{0,80}:\s{1,8}([0-9]{1,4})\s*$", re.M)
_GPU: Final = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_ENTRY: Final = re.compile(r"([A-Za-z][A-Za-z ]{0,60}?)\s{0,80}:\s{1,8}(\S.{0,200})")
_LANES: Final = re.compile(r"([0-9]{1,2})x")


@dataclass(slots=True)
class _Gpu:
    bus_id: str | None = None
    model: str = ""
    generation: dict[str, int] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=dict)


def looks_like_nvidia_query(text: str) -> bool:
    """Whether a text has the link part of ``nvidia-smi -q``."""
    return _INFO.search(text) is not None


def parse_nvidia_query(text: str, *, file: str) -> Topology:
    """The GPUs and their PCIe links, each to the other end of its link.

    Raises
    ------
    FormatError
        When there is no PCIe link in it.
    """
    gpus = [gpu for gpu in _gpus(text) if gpu.generation or gpu.width]
    if not gpus or len(gpus) > MAX_DEVICES:
        raise FormatError(
            f"has {len(gpus)} GPUs with a PCIe link",
            where=Where(file=file),
            remedy="give the output of nvidia-smi -q of one machine",
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: nvidia-smi -q")
    attached = _ATTACHED.search(text)
    # GPUs come in the order of their numbers; of one alone (-i 3) nothing tells which it is.
    numbered = len(gpus) > 1 if attached is None else int(attached[1]) == len(gpus)
    for number, gpu in enumerate(gpus):
        _add(builder, number, gpu, numbered=numbered)
    if not numbered:
        builder.note(
            "which GPU of the machine this is, its number, is not in this output"
            if len(gpus) == 1
            else f"lists {len(gpus)} of {attached and attached[1]} GPUs: their numbers are unknown"
        )
    builder.note(
        "what stands above each GPU's PCIe link is not in this output: give nvidia-smi topo -m"
    )
    return builder.build()


def _gpus(text: str) -> Iterator[_Gpu]:
    """GPUs in order; an excerpt without their names has one per link part."""
    gpu: _Gpu | None = None
    named = False
    section: dict[str, int] | None = None
    for line in text.split("\n", MAX_LINES)[:MAX_LINES]:
        words = line.strip()
        if header := _GPU.fullmatch(words):
            if gpu is not None:
                yield gpu
            gpu, named, section = _Gpu(bus_id=normal_bus_id(header[1])), True, None
        elif words == "GPU Link Info":
            if gpu is not None and not named:
                yield gpu
            if gpu is None or not named:
                gpu = _Gpu()
            section = None
        elif gpu is None:
            continue
        elif words == "PCIe Generation":
            section = gpu.generation
        elif words == "Link Width":
            section = gpu.width
        elif entry := _ENTRY.fullmatch(words):
            key, value = entry[1].strip(), entry[2].strip()
            if key == "Product Name":
                gpu.model = value
            elif key in ("Max", "Current", "Device Max", "Device Current", "Host Max"):
                lanes = _LANES.fullmatch(value)
                number = lanes[1] if lanes else value
                if section is not None and number.isascii() and number.isdecimal():
                    section[key] = min(int(number[:3]), 99)
        elif ":" not in words:
            section = None
    if gpu is not None:
        yield gpu


def _add(builder: TopologyBuilder, number: int, gpu: _Gpu, *, numbered: bool) -> None:
    name = f"gpu{number}"
    known: dict[str, Any] = {"index": number} if numbered else {}
    if gpu.bus_id:
        known["bus_id"] = gpu.bus_id
    if gpu.model:
        known["model"] = gpu.model
    builder.node(name, NodeKind.GPU, label=gpu.model, **known)
    upper = builder.node(
        f"upstream{number}", NodeKind.HOST_BRIDGE, label=f"other end of the PCIe link of {name}"
    )
    ends = [g for key in ("Device Max", "Host Max") if (g := gpu.generation.get(key))]
    generation = gpu.generation.get("Max") or min(ends, default=gpu.generation.get("Current"))
    width = gpu.width.get("Current") or gpu.width.get("Max")
    now = gpu.generation.get("Current")
    stated: dict[str, Any] = {"generation": generation, "width": width}
    if now is not None and now != generation:
        stated["current_generation"] = now
    most = gpu.width.get("Max")
    if most is not None and width is not None and most > width:
        stated["max_width"] = most
        builder.note(
            f"the PCIe link of {name} has {width} of {most} lanes: a link that trained "
            "below its capability"
        )
    if gpu.generation.get("Device Max", 0) > (generation or 0):
        stated["max_generation"] = gpu.generation["Device Max"]
        builder.note(
            f"{name} could run its PCIe link at generation {stated['max_generation']}, its slot "
            f"allows {generation}"
        )
    if now is not None and generation is not None and now < generation:
        builder.note(
            f"the PCIe link of {name} runs at generation {now} now and at {generation} under "
            "load: it saves power, which is no fault"
        )
    nominal = pcie_Bps(generation, width)
    builder.connect(
        name,
        upper,
        LinkKind.PCIE,
        nominal_Bps=nominal,
        source="" if nominal is None else source_of(f"pcie {generation}"),
        **{key: value for key, value in stated.items() if value is not None},
    )


NVIDIA_QUERY: Final = Reader(
    name="nvidia-query",
    title="nvidia-smi -q",
    looks_like=looks_like_nvidia_query,
    parse=parse_nvidia_query,
)
"""The reader that the registry lists."""

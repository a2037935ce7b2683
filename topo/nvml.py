"""GPUs and NVLinks as NVIDIA's management library (NVML) lists them, where it is there.

The Python module is ``pynvml`` (``pip install nvidia-ml-py``); it is optional and
looked for when asked.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import one_line
from topocal.topo.nominal import nvlink_Bps, nvlink_generation, source_of
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["NvmlGpu", "NvmlReading", "connect_nvlinks", "read_nvml"]

_MOST_LINKS: Final = 36
"""``NVML_NVLINK_MAX_LINKS`` is 18 (nvml.h, CUDA 12); room for twice as many."""

_REMOTE_PROCESSOR: Final = 1
_REMOTE_SWITCH: Final = 2
"""``nvmlIntNvLinkDeviceType_t``: 0 GPU, 1 IBM processor, 2 NVSwitch (nvml.h)."""


@dataclass(slots=True, kw_only=True)
class NvmlGpu:
    """One GPU.

    Attributes
    ----------
    index
        NVML's number, which ``nvidia-smi`` prints.
    address
        PCI address.
    model
        Product name.
    compute_capability
        Times ten, ``None`` where unknown.
    peers
        Active NVLinks to the GPU at each PCI address.
    switch_links, processor_links
        Active NVLinks to NVSwitches, and to the processor.
    """

    index: int
    address: str
    model: str = ""
    compute_capability: int | None = None
    peers: Counter[str] = field(default_factory=Counter)
    switch_links: int = 0
    processor_links: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """What NVML says, or why it says nothing.

    Attributes
    ----------
    gpus
        In NVML's order.
    absence
        Empty, or the reason in words.
    """

    gpus: tuple[NvmlGpu, ...] = ()
    absence: str = ""


def read_nvml() -> NvmlReading:
    """Ask NVML for this machine's GPUs and the links between them."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return NvmlReading(absence="the module pynvml is not installed (pip install nvidia-ml-py)")
    # A driver that is missing or older than the module raises errors of several kinds, from
    # the module or from ctypes; whatever it is, there is then no answer.
    try:
        nvml.nvmlInit()
    except Exception as error:
        return NvmlReading(absence=f"NVML does not start: {one_line(error)}")
    try:
        count = int(nvml.nvmlDeviceGetCount())
        return NvmlReading(gpus=tuple(_read_gpu(nvml, k) for k in range(count)))
    except Exception as error:
        return NvmlReading(absence=f"NVML does not answer: {one_line(error)}")
    finally:
        _ask(nvml.nvmlShutdown)


def _read_gpu(nvml: Any, index: int) -> NvmlGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    address = _bus_id(nvml.nvmlDeviceGetPciInfo(handle))
    capability = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    gpu = NvmlGpu(
        index=index,
        address=address or f"unknown {index}",
        model=one_line(_text(_ask(nvml.nvmlDeviceGetName, handle) or "")),
        compute_capability=None if capability is None else capability[0] * 10 + capability[1],
    )
    for link in range(_MOST_LINKS):
        if _ask(nvml.nvmlDeviceGetNvLinkState, handle, link) != 1:
            continue
        remote = _ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        where = None if remote is None else _bus_id(remote)
        kind = _ask(getattr(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", None), handle, link)
        if kind == _REMOTE_PROCESSOR:
            gpu.processor_links += 1
        elif kind == _REMOTE_SWITCH or where is None:
            # Behind a switch, the far end may have no PCI address that this system sees.
            gpu.switch_links += 1
        else:
            gpu.peers[where] += 1
    return gpu


def _ask(function: Any, *arguments: Any) -> Any:
    """A call's answer, or ``None`` where NVML does not support it for this GPU."""
    try:
        return None if function is None else function(*arguments)
    except Exception:
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _bus_id(info: Any) -> str | None:
    return normal_bus_id(_text(getattr(info, "busId", "")))


def connect_nvlinks(
    builder: TopologyBuilder,
    gpus: Sequence[NvmlGpu],
    ids: Mapping[str, str],
    sockets: Mapping[str, str],
) -> None:
    """Add the NVLinks to a topology that has the GPUs.

    Parameters
    ----------
    ids
        Node ids of the GPUs by PCI address.
    sockets
        Socket node of each GPU node, for links to the processor.
    """
    known = {gpu.address for gpu in gpus}
    done: set[frozenset[str]] = set()
    switched = [g for g in gpus if g.switch_links + _strangers(g, known) > 0]
    for gpu in gpus:
        for address, count in sorted(gpu.peers.items()):
            pair = frozenset((gpu.address, address))
            if address in known and len(pair) == 2 and pair not in done:
                done.add(pair)
                _connect(builder, ids[gpu.address], ids[address], LinkKind.NVLINK, gpu, count)
        if gpu.processor_links:
            node = ids[gpu.address]
            _connect(builder, sockets[node], node, LinkKind.C2C, gpu, gpu.processor_links)
    if switched:
        builder.node("nvswitch0", NodeKind.NVSWITCH, label="NVSwitches")
        for gpu in switched:
            count = gpu.switch_links + _strangers(gpu, known)
            _connect(builder, ids[gpu.address], "nvswitch0", LinkKind.NVLINK, gpu, count)


def _strangers(gpu: NvmlGpu, known: set[str]) -> int:
    """Links to PCI devices that are no GPU of this machine: NVSwitches."""
    return sum(count for address, count in gpu.peers.items() if address not in known)


def _connect(
    builder: TopologyBuilder, a: str, b: str, kind: LinkKind, gpu: NvmlGpu, count: int
) -> None:
    nominal = nvlink_Bps(None, count, compute_capability=gpu.compute_capability)
    generation = nvlink_generation(gpu.compute_capability)
    extra: dict[str, Any] = {} if generation is None else {"generation": generation}
    builder.connect(
        a,
        b,
        kind,
        nominal_Bps=nominal,
        source="" if nominal is None else source_of(f"nvlink {generation}"),
        count=count,
        **extra,
    )

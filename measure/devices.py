"""Where buffers lie: host memory, or an accelerator's own.

Nothing here imports torch; who has it hands it over.  CUDA devices (ROCm's go by the same
name) and XPUs have the same calls.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from topocal.measure.host_facts import free_host_bytes
from topocal.measure.places import Place
from topocal.measure.waits import Late
from topocal.topo.errors import InputError

__all__ = ["Accelerator", "Host", "accelerator", "backend_and_device", "device_kind", "own_index"]

# xccl is torch's own backend for Intel devices; ccl the one that oneCCL's bindings add.
_DEVICE_OF: Final = {"nccl": "cuda", "xccl": "xpu", "ccl": "xpu"}


def device_kind(backend: str) -> str:
    """Where the buffers of a backend lie: in host memory unless it is known for a device."""
    return _DEVICE_OF.get(backend, "cpu")


def backend_and_device(backend: str, config: str, device: str | None) -> tuple[str, str]:
    """Where the buffers of a group lie, and the backend that carries them.

    Parameters
    ----------
    backend
        The group's, by its name; ``undefined`` where it has one for each kind of device.
    config
        What it has: ``cpu:gloo,cuda:nccl``.
    device
        The kind of device that the user asks for.

    >>> backend_and_device("nccl", "cuda:nccl", None)
    ('cuda', 'nccl')
    >>> backend_and_device("undefined", "cpu:gloo,cuda:nccl", None)
    ('cuda', 'nccl')
    >>> backend_and_device("undefined", "cpu:gloo,cuda:nccl", "cpu")
    ('cpu', 'gloo')
    """
    parts = [part.partition(":") for part in config.split(",")]
    backends = {kind: name for kind, _, name in parts if name}
    if backend == "undefined" or ":" in backend:
        own = (kind for kind, name in backends.items() if device_kind(name) == kind != "cpu")
        kind = device or next(own, "cpu")
        return kind, backends.get(kind, backend)
    return device or device_kind(backend), backend


def accelerator(torch: Any, kind: str) -> Any:
    """The part of torch for a kind of device.

    Raises
    ------
    InputError
        When there is no such device.
    """
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        raise InputError(
            f"torch {torch.__version__} sees no {kind} device here",
            remedy="install a build of torch for it, or use --backend gloo",
        )
    return module


def own_index(torch: Any, kind: str, place: Place, names: Sequence[str] | None = None) -> int:
    """The device of a rank: the one that its endpoint's name numbers, as tools do.

    Where endpoints have no numbers of their own it goes by the rank's place on its host.  Of
    devices that ``CUDA_VISIBLE_DEVICES`` (``ZE_AFFINITY_MASK``) leaves, the numbers are those in
    it; in a container that shows some as if they were all, the least number is the first.

    Parameters
    ----------
    names
        Endpoints by rank.

    Raises
    ------
    InputError
        When there is none for it.
    """
    count = int(accelerator(torch, kind).device_count())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("ZE_AFFINITY_MASK", ""))
    if count == 1 and visible and "," not in visible:
        return 0  # srun gives each task a device of its own.
    if place.local_rank >= count:
        raise InputError(
            f"rank {place.rank} is number {place.local_rank} on its host, which has {count} "
            f"{kind} devices",
            remedy="start as many processes on each host as it has devices",
        )
    numbers = _numbers_on_host(place, names)
    if numbers is None:
        return place.local_rank
    own = numbers[place.local_rank]
    listed = visible.split(",") if _LISTED.fullmatch(visible) else None
    if listed is not None:
        if all(str(n) in listed for n in numbers):
            return listed.index(str(own))
    elif max(numbers) < count:
        return own
    if len(numbers) == count:
        return sorted(numbers).index(own)
    raise InputError(
        f"rank {place.rank} is gpu{own} of a host where it sees {count} {kind} devices"
        + (f", {visible}" if listed is not None else ""),
        remedy="give --endpoints that the host shows",
    )


_LISTED: Final = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")
"""Of ``CUDA_VISIBLE_DEVICES``: numbers; identifiers say no number."""

_NUMBERED: Final = re.compile(r"(?:.*/)?gpu([0-9]{1,6})")


def _numbers_on_host(place: Place, names: Sequence[str] | None) -> list[int] | None:
    """The numbers of the endpoints of this host's ranks, which stand together; ``None`` where
    there are none, or two alike, as of two hosts that are played on one."""
    first = place.rank - place.local_rank
    if names is None or first < 0 or first + place.local_size > len(names):
        return None
    found = [_NUMBERED.fullmatch(name) for name in names[first : first + place.local_size]]
    numbers = [int(m[1]) for m in found if m is not None]
    whole = len(numbers) == len(found) == len(set(numbers))
    return numbers if whole and place.local_rank < len(numbers) else None


class Host:
    """Buffers in host memory."""

    kind = "cpu"
    name = "host memory"
    bus = ""

    def __init__(self, torch: Any) -> None:
        self.place = torch.device("cpu")

    def free_bytes(self) -> int:
        """Memory that can be had."""
        return free_host_bytes()

    def settle(self, _until: float) -> None:
        """Nothing is ever under way."""

    def mark(self) -> Any:
        """Nothing to wait for."""
        return None

    def reach(self, _mark: Any, _until: float) -> float:
        """Now."""
        return time.monotonic()

    def libraries(self) -> dict[str, str]:
        """None besides torch."""
        return {}


class Accelerator:
    """Buffers on the process's current device of a kind."""

    def __init__(self, torch: Any, kind: str) -> None:
        self.kind = kind
        self._torch = torch
        self._module = accelerator(torch, kind)
        index = int(self._module.current_device())
        self.place = torch.device(kind, index)
        properties = self._module.get_device_properties(index)
        self.name = str(properties.name)
        self.bus = ""
        with suppress(AttributeError):  # Older builds do not say.
            self.bus = (
                f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:"
                f"{properties.pci_device_id:02x}.0"
            )

    def free_bytes(self) -> int:
        """Memory that can be had."""
        return int(self._module.mem_get_info(self.place)[0])

    def mark(self) -> Any:
        """A point that the device reaches when it has done all that it was given so far."""
        event = self._module.Event()
        event.record()
        return event

    def reach(self, mark: Any, until: float) -> float:
        """The time at which the device has done all up to a mark; no wait without end."""
        while not mark.query():
            if time.monotonic() > until:
                raise Late("the device did not finish in time", None)
        return time.monotonic()

    def settle(self, until: float) -> None:
        """Wait until the device is idle."""
        self.reach(self.mark(), until)

    def libraries(self) -> dict[str, str]:
        """Versions of what carries messages between such devices."""
        found = {}
        with suppress(AttributeError, RuntimeError, TypeError):
            if self.kind == "cuda":
                found["nccl"] = ".".join(str(n) for n in self._torch.cuda.nccl.version())
                found["cuda"] = str(self._torch.version.cuda or self._torch.version.hip)
            else:
                found["xpu"] = str(self._torch.version.xpu)
        return found

"""What Linux says of the host that a rank runs on."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from topocal.measure.control_groups import room_in_groups

__all__ = ["bus_link", "cpu_model", "driver_version", "free_host_bytes", "host_id"]

_ROOT = Path("/")


def host_id(root: Path = _ROOT) -> str:
    """The same text on all processes that share a host and its clock, another one elsewhere.

    It is compared and never written anywhere.
    """
    boot = _text(root / "proc/sys/kernel/random/boot_id")
    clock = ""
    with suppress(OSError):
        clock = str((root / "proc/self/ns/time").readlink())
    return hashlib.sha256(f"{boot} {clock}".encode()).hexdigest()[:16]


def cpu_model(root: Path = _ROOT) -> str:
    """The processor's name; empty where the system does not say."""
    match = re.search(r"^model name\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else ""


def driver_version(kind: str, root: Path = _ROOT) -> str:
    """The version of the driver of CUDA devices; empty where there is none."""
    names = {"cuda": ("nvidia", "amdgpu"), "xpu": ("xe", "i915")}.get(kind, ())
    for name in names:
        version = _text(root / "sys/module" / name / "version").strip()
        if version:
            return f"{name} {version}"
    return ""


def free_host_bytes(root: Path = _ROOT) -> int:
    """Memory that can be had without swapping, within the limits of the control groups.

    ``MemAvailable`` of proc_meminfo(5), and what the groups leave.
    """
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    free = int(match[1]) * 1024 if match else 2**63
    room = room_in_groups(root)
    return free if room is None else min(free, room)


def bus_link(address: str, root: Path = _ROOT) -> str | None:
    """Speed and width of a device's PCIe link as they are now: ``16.0 GT/s PCIe x16``.

    Links slow down when idle, so it means something during or just after a transfer.
    """
    folder = root / "sys/bus/pci/devices" / address
    speed = _text(folder / "current_link_speed").strip()
    width = _text(folder / "current_link_width").strip()
    return f"{speed} x{width}" if speed and width else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

"""Copying the files of sysfs that matter into a dictionary of small texts.

Only files on a list are read, and of those only what the readers use: no serial
number, MAC address or unique id is on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from topocal.topo.errors import InputError, Where

__all__ = ["MAX_FILES", "capture_sysfs"]

MAX_FILES: Final = 40_000
"""Files read at most; a machine with 1000 PCI functions has some 10,000 of them."""

_MAX_FILE_BYTES: Final = 65_536
_MAX_DIRECTORIES: Final = 200_000
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_PCI_FILES: Final = (
    "class",
    "vendor",
    "device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "secondary_bus_number",
    "product_name",
)
_SHOWS: Final = ("devices", "bus/pci/devices")

_OTHER_NETS: Final = "devices/other/net"
"""Where interfaces without a PCI device are kept: their own paths hold unique ids."""

_KFD: Final = "devices/virtual/kfd/kfd/topology/nodes"
_KFD_KEYS: Final = frozenset(
    {
        "cpu_cores_count",
        "simd_count",
        "vendor_id",
        "device_id",
        "location_id",
        "domain",
        "gfx_target_version",
        "type",
        "node_from",
        "node_to",
        "weight",
        "min_bandwidth",
        "max_bandwidth",
    }
)


def capture_sysfs(root: str | Path = "/sys") -> dict[str, str]:
    """The files that describe the machine, by their path below ``root``.

    Links are followed inside ``root`` only, so that a captured tree is never
    completed from the machine that it is read on.

    Parameters
    ----------
    root
        ``/sys``, a directory with a copy of it, or one that holds that as ``sys`` or ``sysfs``.

    Raises
    ------
    InputError
        When that is no such directory.
    """
    places = [Path(root), *(Path(root) / inner for inner in ("sys", "sysfs"))]
    top = next((p for p in places if any((p / d).is_dir() for d in _SHOWS)), None)
    if top is None:
        raise InputError(
            "holds no sysfs (neither devices nor bus/pci/devices)",
            where=Where(file=str(root)),
            remedy="give /sys, or a directory that a copy of it was unpacked in",
        )
    return _Capture(top.resolve()).run()


class _Capture:
    def __init__(self, top: Path) -> None:
        self._top = top
        self._files: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        for directory in self._pci_directories():
            self._read_function(directory)
        self._read_other_networks()
        self._read_memory()
        self._read_kfd()
        return dict(sorted(self._files.items()))

    # Reading

    def _inside(self, path: Path) -> Path | None:
        """Where a path really is; ``None`` outside the tree or when it does not exist."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return real if real.is_relative_to(self._top) else None

    def _read(self, path: Path, name: str | None = None) -> str | None:
        """Keep a regular file's text under its path (or ``name``)."""
        real = self._inside(path)
        if real is None or not real.is_file() or len(self._files) >= MAX_FILES:
            return None
        try:
            with real.open("rb") as stream:
                text = stream.read(_MAX_FILE_BYTES).decode("utf-8", errors="replace")
        except OSError:
            # Such as the speed of a port that is down, or a file for root only.
            return None
        self._keep(name or real.relative_to(self._top).as_posix(), text)
        return text

    def _keep(self, name: str, text: str) -> None:
        # Nothing that sysfs says has a zero or a line longer than this in it.
        if "\0" not in text:
            self._files[name] = text.strip() + "\n"

    def _entries(self, directory: Path) -> list[Path]:
        try:
            return sorted(directory.iterdir())
        except OSError:
            return []

    # PCI

    def _pci_directories(self) -> list[Path]:
        listed = [
            real
            for entry in self._entries(self._top / "bus" / "pci" / "devices")
            if _ADDRESS.fullmatch(entry.name) and (real := self._inside(entry)) is not None
        ]
        nested = [d for d in listed if d.relative_to(self._top).parts[0] == "devices"]
        return nested or list(self._walk()) or listed

    def _walk(self) -> Iterator[Path]:
        """Directories of functions, where a copy has lost the links that list them."""
        for seen, (directory, names, _) in enumerate(os.walk(self._top / "devices")):
            if seen > _MAX_DIRECTORIES:
                return
            names[:] = sorted(n for n in names if n not in ("virtual", "system"))
            path = Path(directory)
            if _ADDRESS.fullmatch(path.name):
                yield path

    def _read_function(self, directory: Path) -> None:
        for name in _PCI_FILES:
            self._read(directory / name)
        physical = directory / "physfn"
        if physical.is_symlink() or physical.exists():
            self._keep((physical.relative_to(self._top)).as_posix(), "1")
        holders = [directory, *(e for e in self._entries(directory) if e.name.startswith("virtio"))]
        for holder in holders:
            for net in self._entries(holder / "net"):
                place = net.relative_to(self._top).as_posix()
                if self._read(net / "speed", f"{place}/speed") is None:
                    self._keep(f"{place}/speed", "-1")
        for device in self._entries(directory / "infiniband"):
            for port in self._entries(device / "ports"):
                self._read(port / "rate")

    def _read_other_networks(self) -> None:
        """Interfaces of a hypervisor's bus; software interfaces are under ``virtual``."""
        for entry in self._entries(self._top / "class" / "net"):
            real = self._inside(entry)
            if real is None:
                continue
            parts = real.relative_to(self._top).parts
            if (
                parts[0] != "devices"
                or "virtual" in parts[:2]
                or any(map(_ADDRESS.fullmatch, parts))
            ):
                continue
            name = f"{_OTHER_NETS}/{entry.name}/speed"
            if self._read(real / "speed", name) is None:
                self._keep(name, "-1")
        for entry in self._entries(self._top / _OTHER_NETS):
            self._read(entry / "speed")

    # Processors and memory

    def _read_memory(self) -> None:
        system = self._top / "devices" / "system"
        self._read(system / "cpu" / "online")
        for node in self._entries(system / "node"):
            if re.fullmatch(r"node[0-9]{1,4}", node.name) is None:
                continue
            cpus = self._read(node / "cpulist")
            self._read(node / "distance")
            place = (node / "meminfo").relative_to(self._top).as_posix()
            if (text := self._read(node / "meminfo")) is not None:
                self._keep(place, "\n".join(t for t in text.split("\n") if "MemTotal" in t))
            if first := re.match(r"[0-9]{1,5}", cpus or ""):
                self._read(system / "cpu" / f"cpu{first[0]}" / "topology" / "physical_package_id")

    # AMD

    def _read_kfd(self) -> None:
        """AMD's compute driver: which of its properties are kept stands in ``_KFD_KEYS``."""
        for node in self._entries(self._top / _KFD):
            links = self._entries(node / "io_links")
            for path in (node / "properties", *(link / "properties" for link in links)):
                if (text := self._read(path)) is not None:
                    kept = [t for t in text.split("\n") if t.split(" ")[0] in _KFD_KEYS]
                    self._keep(path.relative_to(self._top).as_posix(), "\n".join(kept))

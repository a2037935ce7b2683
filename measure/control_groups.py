"""How much memory the control groups of a process leave it.

A container or a job of a scheduler has a limit of its own, and groups stand in each other: what is
left is what the tightest of them leaves.  What a group uses holds the files that its processes
have read, which the kernel drops when room is wanted: the inactive ones count as free.

References
----------
The kernel's ``Documentation/admin-guide/cgroup-v2.rst`` (``memory.max``, ``memory.high``,
``memory.current``, ``memory.stat``) and ``Documentation/admin-guide/cgroup-v1/memory.rst``
(``memory.limit_in_bytes``, ``memory.usage_in_bytes``, ``total_inactive_file``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = ["room_in_groups"]

_GROUPS: Final = "sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class _Version:
    """What the files of a version of control groups are called."""

    mounts: tuple[str, ...]
    limits: tuple[str, ...]
    used: str
    inactive: str


_SECOND: Final = _Version(
    mounts=(_GROUPS, f"{_GROUPS}/unified"),
    limits=("memory.max", "memory.high"),
    used="memory.current",
    inactive="inactive_file",
)
_FIRST: Final = _Version(
    mounts=(f"{_GROUPS}/memory",),
    limits=("memory.limit_in_bytes",),
    used="memory.usage_in_bytes",
    inactive="total_inactive_file",
)


def room_in_groups(root: Path = Path("/")) -> int | None:
    """Bytes that every group above this process still leaves it; ``None`` where none has a limit.

    Parameters
    ----------
    root
        The folder that holds ``proc`` and ``sys``.
    """
    rooms = [
        room
        for version, own in _own_groups(_text(root / "proc/self/cgroup"))
        for mount in version.mounts
        for folder in _upwards(root / mount, own)
        for room in [_room(folder, version)]
        if room is not None
    ]
    return min(rooms, default=None)


def _own_groups(text: str) -> Iterator[tuple[_Version, PurePosixPath]]:
    """This process's groups that account for memory, from ``/proc/self/cgroup``.

    A container may see the path that its host knows, of which its own ``/sys`` has nothing but
    the root.
    """
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield _SECOND, PurePosixPath(path)
        elif "memory" in controllers.split(","):
            yield _FIRST, PurePosixPath(path)


def _upwards(mount: Path, own: PurePosixPath) -> Iterator[Path]:
    """The folders of a group and of all that it stands in."""
    parts = [part for part in own.parts if part not in ("/", "..")]
    for count in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:count])


def _room(folder: Path, version: _Version) -> int | None:
    limits = [_number(_text(folder / name)) for name in version.limits]
    known = [limit for limit in limits if limit is not None]
    used = _number(_text(folder / version.used))
    if not known or used is None:
        return None
    dropped = re.search(rf"^{version.inactive} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return max(0, min(known) - max(0, used - (int(dropped[1]) if dropped else 0)))


def _number(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 20 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

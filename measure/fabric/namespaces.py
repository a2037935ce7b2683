"""Linux namespaces, by the kernel's own calls.

``os.unshare`` and ``os.setns`` came with Python 3.12; ctypes reaches the same on 3.11.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = [
    "NEW_NETWORK",
    "NEW_USER",
    "be_host",
    "die_with_parent",
    "enter_namespace",
    "inside_network",
    "isolate",
    "make_network",
]

_NEW_MOUNTS: Final = 0x00020000
_NEW_UTS: Final = 0x04000000
NEW_USER: Final = 0x10000000
_NEW_PID: Final = 0x20000000
NEW_NETWORK: Final = 0x40000000
"""CLONE_NEW* of linux/sched.h."""

_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
"""linux/mount.h and sys/mount.h."""

_PR_SET_PDEATHSIG: Final = 1
"""linux/prctl.h."""

_NETWORK: Final = "/proc/self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def isolate() -> bool:
    """Move this process into a new network, and its next children into new process ids.

    It must have one thread.  Where the privilege is lacking, a new user namespace gives it,
    in which the user is root and nobody else exists.

    Returns
    -------
    Whether a new user namespace was needed.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    try:
        _unshare(_NEW_PID | NEW_NETWORK)
    except PermissionError:
        uid, gid = os.geteuid(), os.getegid()
        _unshare(NEW_USER | _NEW_PID | NEW_NETWORK)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        return True
    return False


def make_network() -> int:
    """A new network namespace, held by the file descriptor that is returned.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    here = os.open(_NETWORK, os.O_RDONLY)
    try:
        _unshare(NEW_NETWORK)
        made = os.open(_NETWORK, os.O_RDONLY)
        enter_namespace(here, NEW_NETWORK)
    finally:
        os.close(here)
    return made


@contextmanager
def inside_network(namespace: int) -> Iterator[None]:
    """Be in another network while the block runs.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    here = os.open(_NETWORK, os.O_RDONLY)
    try:
        enter_namespace(namespace, NEW_NETWORK)
        yield
    finally:
        enter_namespace(here, NEW_NETWORK)
        os.close(here)


def enter_namespace(namespace: int, kind: int) -> None:
    """Move this thread into a namespace for good.

    Parameters
    ----------
    namespace
        File descriptor.
    kind
        :data:`NEW_NETWORK` or :data:`NEW_USER`; the latter takes a process with one thread.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    if _libc.setns(namespace, kind) != 0:
        raise _error("setns")


def be_host(name: str, addresses: Mapping[str, str]) -> None:
    """Give this process, and its children, a host name, and other hosts' names to resolve.

    Names are resolved by a file of their own in place of /etc/hosts, which nobody else sees
    and which ends with the last of these processes.

    Parameters
    ----------
    name
        Of this host.
    addresses
        Of every host by name.

    Raises
    ------
    OSError
        When the kernel refuses the name; where it refuses the file, names do not resolve.
    """
    _unshare(_NEW_UTS)
    content = name.encode()
    if _libc.sethostname(content, len(content)) != 0:
        raise _error("sethostname")
    with suppress(OSError):
        _unshare(_NEW_MOUNTS)
        _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
        # Mounted over any folder, for as long as it takes to put the file in its place.
        folder = Path(tempfile.gettempdir())
        _mount("topocal", str(folder), "tmpfs", 0)
        try:
            lines = [f"{address} {host}" for host, address in addresses.items()]
            (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            _mount(str(folder / "hosts"), "/etc/hosts", "", _MS_BIND)
        finally:
            _libc.umount2(str(folder).encode(), _MNT_DETACH)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        raise _error("mount")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise _error("prctl")


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise _error("unshare")


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")

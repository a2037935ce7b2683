"""Linux namespaces, by the kernel's own calls.

``os.unshare`` and ``os.setns`` came with Python 3.12; ctypes reaches the same on 3.11.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = [
    "NEW_NETWORK",
    "NEW_USER",
    "die_with_parent",
    "enter_namespace",
    "inside_network",
    "isolate",
    "make_network",
    "own_host_name",
]

NEW_UTS: Final = 0x04000000
NEW_USER: Final = 0x10000000
NEW_PID: Final = 0x20000000
NEW_NETWORK: Final = 0x40000000
"""CLONE_NEW* of linux/sched.h."""

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
        _unshare(NEW_PID | NEW_NETWORK)
    except PermissionError:
        uid, gid = os.geteuid(), os.getegid()
        _unshare(NEW_USER | NEW_PID | NEW_NETWORK)
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


def own_host_name(name: str) -> None:
    """Give this process, and its children, a host name of its own.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    _unshare(NEW_UTS)
    content = name.encode()
    if _libc.sethostname(content, len(content)) != 0:
        raise _error("sethostname")


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

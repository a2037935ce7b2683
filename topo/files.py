"""Opening what a user names: regular files, and pipes that are open already; nothing that hangs.

A shell's ``<(command)`` and ``/dev/stdin`` are open pipes.  A named pipe waits for
somebody to write, and a device may never end.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Final

from topocal.topo.errors import InputError, Where

__all__ = ["read_limited", "write_atomically"]

_REMEDY: Final = "check the path and its permissions"

_KINDS: Final = (
    (stat.S_ISDIR, "is a directory"),
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def read_limited(path: str | Path, limit: int | None = None) -> bytes:
    """The content of a file, or its first ``limit`` bytes.

    Raises
    ------
    InputError
        When it is not there, may not be read, or is no file.
    """
    try:
        with os.fdopen(_open_file(path), "rb") as stream:
            return stream.read(-1 if limit is None else limit)
    except OSError as error:
        raise InputError(_why(error), where=Where(file=str(path)), remedy=_REMEDY) from error


def _open_file(path: str | Path) -> int:
    """Open without waiting for anybody at the other end, and look at what it is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    # One of the process's own descriptors, such as /dev/fd/63, is open at the other end.
    is_open = stat.S_ISFIFO(mode) and os.path.realpath(path).startswith("/proc/")
    if not is_open and (problem := _other_than_a_file(mode)):
        os.close(descriptor)
        raise OSError(0, problem)
    os.set_blocking(descriptor, True)
    return descriptor


def _other_than_a_file(mode: int) -> str:
    """What is there, where that is no file; empty for a file."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "")


def _why(error: OSError) -> str:
    return (error.strerror or "cannot be used").lower()


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that the old content or the new is there at any moment, never a part.

    Permissions follow the umask, as for any new file.  A link is followed; what is
    there and is no file (a device, a pipe) is not replaced.

    Raises
    ------
    InputError
        When it cannot be written; an old file is then untouched.
    """
    temporary = None
    try:
        target = _target(path)
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(
            f"cannot be written: {_why(error)}",
            where=Where(file=str(path)),
            remedy="choose another place",
        ) from error


def _target(path: str | Path) -> Path:
    """The file to replace.

    Raises
    ------
    OSError
        When what is there is no file.
    """
    if str(path) == "-" or re.match(r"/dev/(?:std|fd/)|/proc/[^/]+/fd/", str(path)):
        raise OSError(0, "standard output is no file")
    target = Path(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if problem := _other_than_a_file(mode):
        raise OSError(0, problem)
    return Path(os.path.realpath(target)) if target.is_symlink() else target

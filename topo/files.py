"""Opening what a user names: regular files, and pipes that are open already; nothing that hangs.

``-`` is standard input, wherever a file is read.  A shell's ``<(command)`` and ``/dev/stdin``
are open pipes.  A named pipe waits for somebody to write, and a device may never end.

What comes out of a pipe comes once.  It is kept, so that whoever looks what a file is and
whoever then reads it see the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import sys
from pathlib import Path
from typing import Any, Final

from topocal.topo.errors import InputError, Where

__all__ = ["read_limited", "require_writable", "write_atomically"]

_REMEDY: Final = "check the path and its permissions"

_MOST_BYTES: Final = 2**30
"""Larger than any file of ours or of a tool: it would take minutes, and the machine's memory."""

_MOST_PIPES: Final = 16
"""More than any command line names; of more, the first ones are forgotten."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_LONGEST_STEM: Final = 200
"""Bytes of a name that a part keeps; names have 255 at most."""

_FOLDER: Final = "is a directory"

_KINDS: Final = (
    (stat.S_ISDIR, _FOLDER),
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def read_limited(path: str | Path, limit: int | None = None) -> bytes:
    """The content of a file, or its first ``limit`` bytes; ``-`` is standard input.

    Raises
    ------
    InputError
        When it is not there, may not be read, is no file, or, without a limit, is larger than
        a gigabyte.
    """
    try:
        content = _read(path, _MOST_BYTES + 1 if limit is None else limit)
    except OSError as error:
        raise InputError(_why(error), where=Where(file=str(path)), remedy=_REMEDY) from error
    if limit is None and len(content) > _MOST_BYTES:
        raise _too_large(path)
    return content


def _too_large(path: str | Path) -> InputError:
    return InputError(
        "is larger than 1 GiB",
        where=Where(file=str(path)),
        remedy="give a file of topocal's, or what a tool prints",
    )


class _Kept:
    """What has come out of pipes and of standard input."""

    pipes: Final[dict[tuple[int, int], bytes]] = {}
    standard_input: tuple[Any, bytes] | None = None
    """The stream, and what it held."""


def _read(path: str | Path, limit: int) -> bytes:
    if str(path) == "-":
        return _read_standard_input()[:limit]
    with os.fdopen(_open_file(path), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISFIFO(status.st_mode):
            if limit > _MOST_BYTES and status.st_size > _MOST_BYTES:
                raise _too_large(path)  # Not after it has filled the memory.
            return stream.read(limit)
        pipe = status.st_dev, status.st_ino
        content = stream.read(_MOST_BYTES + 1)
        # Whoever comes second finds it empty.
        content = _Kept.pipes.setdefault(pipe, content)
        if len(_Kept.pipes) > _MOST_PIPES:
            del _Kept.pipes[next(iter(_Kept.pipes))]
        return content[:limit]


def _read_standard_input() -> bytes:
    """All of it.

    Raises
    ------
    InputError
        When there is none: ``topocal read - <&-``, ``topocal read - < .``.
    """
    stream, kept = sys.stdin, _Kept.standard_input
    if kept is None or kept[0] is not stream:
        try:
            kept = stream, stream.buffer.read(_MOST_BYTES + 1)
        except (AttributeError, OSError, ValueError) as error:
            raise InputError(
                "cannot be read",
                where=Where(file="-"),
                remedy="give a file, or pipe a tool into it",
            ) from error
        _Kept.standard_input = kept
    return kept[1]


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
    there and is no file (a device, a pipe) is not replaced.  A process that is killed may
    leave its part, ``.NAME.part`` beside the file, which the next write of it removes.

    Raises
    ------
    InputError
        When it cannot be written; an old file is then untouched.
    """
    try:
        target = _target(path)
        descriptor, part = _open_part(target)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
                part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _keep_name(target.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


def require_writable(path: str | Path) -> None:
    """Try whether :func:`write_atomically` could write here; what is there stays as it is.

    Raises
    ------
    InputError
        As it would; a disk that fills up later is told later.
    """
    try:
        descriptor, part = _open_part(_target(path))
        part.unlink(missing_ok=True)
        os.close(descriptor)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: str | Path, error: OSError) -> InputError:
    is_folder = error.strerror == _FOLDER
    return InputError(
        f"cannot be written: {_why(error)}",
        where=Where(file=str(path)),
        remedy="name a file in it" if is_folder else "choose another place",
    )


def _open_part(target: Path) -> tuple[int, Path]:
    """A new file beside the target, locked while its writer lives.

    Whoever finds one that nobody has locked removes it.  Where somebody else is writing, the
    part gets a name of its own.
    """
    stem = os.fsdecode(os.fsencode(target.name)[:_LONGEST_STEM])
    part = target.with_name(f".{stem}.part")
    for _ in range(2):
        try:
            descriptor = os.open(part, _NEW, 0o666)
        except FileExistsError:
            _remove_if_left(part)
            continue
        if _is_ours(descriptor, part, lock=False):
            return descriptor, part
        os.close(descriptor)
        break
    part = target.with_name(f".{stem}.{secrets.token_hex(8)}.part")
    return os.open(part, _NEW, 0o666), part


def _is_ours(descriptor: int, part: Path, *, lock: bool) -> bool:
    """Lock a part; no, where another has, or where the name is another file's by now.

    File systems without locks have nobody who removes parts: there it is ours without one,
    unless it is the ``lock`` that says so.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if lock:
            return False
    try:
        return os.path.samestat(os.fstat(descriptor), part.lstat())
    except OSError:
        return False


def _remove_if_left(part: Path) -> None:
    """Remove a part whose writer is gone; anything else of that name stays."""
    try:
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if is_file and _is_ours(descriptor, part, lock=True):
            part.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _keep_name(folder: Path) -> None:
    """Have the new name on disk too, on file systems that can be told so."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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

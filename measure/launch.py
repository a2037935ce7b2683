"""Processes on this host, one per rank, and a parent that watches them.

The parent forks, so that whatever is expensive to import is imported once.  Each child
gets torchrun's variables and a file through which all of them meet (it has no name, so
nothing of it stays behind); then it does its work.  What goes wrong is found in this order,
since one failure makes others:

1. a child that died,
2. a child that is stopped (state ``T``), or broke its promise of a sign of life,
3. a child's own error,
4. a child's complaint about another one, rank 0's before the others'.

After the first sign of any the parent waits a moment for a better one, longer where all it
has are complaints, ends all children and raises one error that names the rank.  No child
outlives the parent: the kernel kills them when it dies (``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from topocal.measure.places import Place
from topocal.measure.waits import is_out_of_memory
from topocal.topo import errors
from topocal.topo.errors import InputError, MeasurementError, TopocalError, Where, one_line

__all__ = ["QUIET_S", "launch"]

QUIET_S: Final = 3.0
"""How long a process may be stopped before it counts as gone; a debugger takes longer."""

_POLL_S: Final = 0.05
"""Seldom enough not to be seen in the timings of who shares the processors."""

_GRACE_S: Final = 0.5
"""How long a better reason is waited for after the first sign of a failure."""

_GRACE_OF_COMPLAINTS_S: Final = 3.0
"""The same, where somebody complains of another one: who is complained of may take that long to
die, or to say what is wrong, where there are more processes than cores."""

_SPARE_BYTES: Final = 1 << 20
"""What a child that has run out of memory says so with: Python asks for as much at a time."""

_END_S: Final = 2.0
"""How long a child has to end after SIGTERM."""

_LESS_MEMORY: Final = "plan smaller sizes (topocal plan --sizes), or start fewer ranks on its host"
_KILLED: Final = "if nobody did, the kernel was out of memory: see dmesg"

_HELD: Final = (signal.SIGINT, signal.SIGTERM)

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says before it ends."""

    rank: int
    at: float
    kind: str
    what: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None
    others_fault: bool = False


@dataclass(frozen=True, slots=True)
class _Child:
    rank: int
    pid: int


def launch(
    work: Callable[[Place], None],
    count: int,
    *,
    enter: Callable[[int], None] | None = None,
    names: Sequence[str] | None = None,
    quiet_s: float = QUIET_S,
) -> None:
    """Do ``work`` in ``count`` processes and wait for all of them.

    Before ``enter``, a child has ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``,
    ``LOCAL_WORLD_SIZE`` set, and ``GLOO_SOCKET_IFNAME`` to ``lo`` where it was not: nothing
    listens beyond this host.  SIGINT is the parent's: it ends the children and raises.

    Parameters
    ----------
    work
        What each child does, given its place; its meeting point is a file.  Whatever it
        needs is best imported before.  It must not have started a device.
    enter
        Called first in each child with its rank: to enter a network namespace, to set
        variables of its own.
    names
        Of the ranks, for messages.
    quiet_s
        How long a child may be stopped.

    Raises
    ------
    InputError
        When ``count`` is not positive.
    MeasurementError
        When a child died, was stopped, or broke its promise; names the rank.
    TopocalError
        What a child raised.
    KeyboardInterrupt
        After the children have ended.
    """
    if count < 1:
        raise InputError(f"{count} processes", remedy="give one or more")
    meeting = os.memfd_create("topocal-meeting")
    try:
        _Launch(work, count, enter, names, quiet_s, meeting).run()
    finally:
        os.close(meeting)


class _Launch:
    """One launch in the making; see :func:`launch`."""

    def __init__(
        self,
        work: Callable[[Place], None],
        count: int,
        enter: Callable[[int], None] | None,
        names: Sequence[str] | None,
        quiet_s: float,
        meeting: int,
    ) -> None:
        self._work, self._count, self._enter = work, count, enter
        self._names, self._quiet_s = names, quiet_s
        self._meeting = f"file:///proc/self/fd/{meeting}"
        self._parent = os.getpid()
        self._children: list[_Child] = []
        self._statuses: dict[int, int] = {}
        self._stopped_since: dict[int, float] = {}
        self._failures: list[_Failure] = []
        self._text = b""
        # One number for each child: until when it has promised to give a sign of life.
        self._shared = mmap.mmap(-1, 8 * count)
        self._promises = memoryview(self._shared).cast("d")
        self._promises[:] = memoryview(bytes(8 * count)).cast("d")
        for rank in range(count):
            self._promises[rank] = math.inf

    def run(self) -> None:
        reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._reading = reading
        os.set_blocking(reading, False)
        before = _on_sigterm(_leave)
        try:
            for rank in range(self._count):
                self._fork(rank)
            self._watch()
        finally:
            self._end_all()
            _on_sigterm(before)
            os.close(reading)
            os.close(self._writing)

    def _fork(self, rank: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal between here and the child's own settings would make it a second parent.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            with warnings.catch_warnings():
                # From Python 3.12 on it warns of threads; numpy's own are safe to fork with.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                self._be_child(rank, held)
            self._children.append(_Child(rank, pid))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _be_child(self, rank: int, held: Iterable[int]) -> NoReturn:
        code, spare = 2, bytearray(_SPARE_BYTES)
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._parent:
                os._exit(2)
            self._settle(rank)
            if self._enter is not None:
                self._enter(rank)
            self._work(
                Place(
                    rank=rank,
                    size=self._count,
                    local_rank=rank,
                    local_size=self._count,
                    meeting=self._meeting,
                    promise=lambda seconds: self._promise(rank, seconds),
                )
            )
            sys.stdout.flush()
            sys.stderr.flush()
            code = 0
        except BaseException as error:  # Whatever it is, the parent must hear of it.
            del spare
            self._tell(rank, error)
        finally:
            # No clean-up of the parent's things, and no wait for a backend's threads.
            os._exit(code)

    def _settle(self, rank: int) -> None:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(self._count),
            LOCAL_WORLD_SIZE=str(self._count),
        )
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    def _promise(self, rank: int, seconds: float) -> None:
        self._promises[rank] = time.monotonic() + seconds

    def _tell(self, rank: int, error: BaseException) -> None:
        if isinstance(error, TopocalError):
            where = error.where
            failure = _Failure(
                rank=rank,
                at=time.monotonic(),
                kind=type(error).__name__,
                what=error.what,
                remedy=error.remedy,
                file=None if where is None else where.file,
                line=None if where is None else where.line,
                others_fault=getattr(error, "others_fault", False),
            )
        elif is_out_of_memory(error):
            failure = _Failure(
                rank=rank,
                at=time.monotonic(),
                kind="MeasurementError",
                what=f"{self._name(rank)} ran out of memory",
                remedy=_LESS_MEMORY,
            )
        else:
            last = traceback.extract_tb(error.__traceback__)[-1:]
            place = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
            failure = _Failure(
                rank=rank,
                at=time.monotonic(),
                kind="MeasurementError",
                what=f"{self._name(rank)}: {type(error).__name__}: {one_line(error)}{place}",
            )
        # Short enough to be written whole, next to what others write (pipe(7): PIPE_BUF).
        while len(content := msgspec.json.encode(failure) + b"\n") > select.PIPE_BUF:
            failure = msgspec.structs.replace(
                failure,
                what=failure.what[: max(80, len(failure.what) // 2)],
                remedy=failure.remedy[: len(failure.remedy) // 2],
                file=None,
            )
        with suppress(OSError):
            os.write(self._writing, content)

    def _name(self, rank: int) -> str:
        if self._names is None or rank >= len(self._names):
            return f"rank {rank}"
        return f"rank {rank} ({self._names[rank]})"

    def _watch(self) -> None:
        """Until all have ended well; raises otherwise."""
        while len(self._statuses) < self._count:
            self._look(_POLL_S)
            if self._first_sign():
                since = time.monotonic()
                while self._may_know_better(time.monotonic() - since):
                    self._look(_POLL_S)
                self._look(0.0)
                raise self._reason()

    def _may_know_better(self, waited_s: float) -> bool:
        """Whether a better reason than those there are may come."""
        if len(self._statuses) == self._count or not all(map(self._aborted, self._dead())):
            return False
        # Who aborts does that because of another one, it may be, and so is as who complains.
        of_others = (self._failures or self._dead()) and all(f.others_fault for f in self._failures)
        return waited_s < (_GRACE_OF_COMPLAINTS_S if of_others else _GRACE_S)

    def _look(self, seconds: float) -> None:
        """What children say, and what has become of them."""
        select.select([self._reading], [], [], seconds)
        with suppress(BlockingIOError):
            self._text += os.read(self._reading, 1 << 16)
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            with suppress(msgspec.DecodeError):
                self._failures.append(msgspec.json.decode(line, type=_Failure))
        now = time.monotonic()
        for child in self._children:
            if child.rank in self._statuses:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._statuses[child.rank] = status
                self._stopped_since.pop(child.rank, None)
            elif _is_stopped(child.pid):
                self._stopped_since.setdefault(child.rank, now)
            else:
                self._stopped_since.pop(child.rank, None)
        # A stop of everybody, the parent too, is somebody's Ctrl-Z: time starts afresh.
        if now - getattr(self, "_looked", now) > 1.0:
            self._stopped_since.clear()
        self._looked = now

    def _dead(self) -> list[int]:
        """Ranks that were killed, or ended badly without a word, the first one first.

        Who aborted comes last: a backend may do that because of another one's death.
        """
        told = {f.rank for f in self._failures}
        dead = [
            rank
            for rank, status in self._statuses.items()
            if os.WIFSIGNALED(status) or (status and rank not in told)
        ]
        return sorted(dead, key=self._aborted)

    def _aborted(self, rank: int) -> bool:
        return os.WTERMSIG(self._statuses[rank]) == signal.SIGABRT

    def _stopped(self) -> list[int]:
        now = time.monotonic()
        return [r for r, since in self._stopped_since.items() if now - since >= self._quiet_s]

    def _silent(self) -> list[int]:
        now = time.monotonic()
        alive = set(range(self._count)) - self._statuses.keys()
        return [r for r in sorted(alive) if now > self._promises[r]]

    def _first_sign(self) -> bool:
        return bool(self._failures or self._dead() or self._stopped() or self._silent())

    def _reason(self) -> TopocalError:
        """The failure that made the others."""
        for rank in self._dead():
            status = self._statuses[rank]
            if not os.WIFSIGNALED(status):
                how, remedy = f"ended with status {os.waitstatus_to_exitcode(status)}", ""
            else:
                number = os.WTERMSIG(status)
                how = f"was killed by {signal.Signals(number).name}"
                remedy = _KILLED if number == signal.SIGKILL else ""
            return MeasurementError(f"{self._name(rank)} {how}", remedy=remedy, about=rank)
        for rank in self._stopped_since:
            return MeasurementError(f"{self._name(rank)} is stopped and did not go on", about=rank)
        # Rank 0 hears of all others, so its complaint is the one that knows.
        for failure in sorted(self._failures, key=lambda f: (f.others_fault, f.rank != 0, f.at)):
            return _error_of(failure)
        rank = self._silent()[0]
        return MeasurementError(f"{self._name(rank)} gave no sign of life in time", about=rank)

    def _end_all(self) -> None:
        """End what is left: politely, then for good."""
        for number, seconds in ((signal.SIGTERM, _END_S), (signal.SIGKILL, math.inf)):
            left = [c for c in self._children if c.rank not in self._statuses]
            for child in left:
                os.kill(child.pid, number)
                os.kill(child.pid, signal.SIGCONT)
            until = time.monotonic() + seconds
            while left and time.monotonic() < until:
                for child in left:
                    pid, status = os.waitpid(child.pid, os.WNOHANG)
                    if pid:
                        self._statuses[child.rank] = status
                left = [c for c in left if c.rank not in self._statuses]
                if left:
                    time.sleep(_POLL_S / 2)


def _leave(*_: object) -> NoReturn:
    """End as SIGTERM would, but by way of the clean-up."""
    raise SystemExit(128 + signal.SIGTERM)


def _on_sigterm(handler: Any) -> Any:
    """Set what SIGTERM does; the old setting, or ``None`` where only the main thread may."""
    if handler is None or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, handler)


def _is_stopped(pid: int) -> bool:
    """Whether a process is in state T (proc_pid_stat(5)); its name may hold anything but ends
    with the last parenthesis."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def _error_of(failure: _Failure) -> TopocalError:
    """What a child raised, raised again."""
    kind = getattr(errors, failure.kind, MeasurementError)
    if kind is errors.UnknownEndpointError:
        kind = InputError
    where = None if failure.file is None else Where(file=failure.file, line=failure.line)
    error = kind(failure.what, where=where, remedy=failure.remedy, about=failure.rank)
    assert isinstance(error, TopocalError)
    return error

"""A fabric that stands: start it, let processes in, change it, and it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from topocal.measure.fabric.blueprint import Blueprint, blueprint_to_json
from topocal.measure.fabric.namespaces import (
    NEW_NETWORK,
    NEW_USER,
    be_host,
    enter_namespace,
)
from topocal.measure.fabric.wire import Wire
from topocal.topo.errors import EmulationError, InputError, UnknownEndpointError

__all__ = ["Command", "Fabric"]

_MOST_SECONDS: Final = 60.0
"""For an answer of the holder: building 64 endpoints takes a few."""

_AT_CLOSE_S: Final = 5.0


class Fabric:
    """An emulated fabric, there while the ``with`` block runs.

    Parameters
    ----------
    blueprint
        What to build.

    Attributes
    ----------
    blueprint
        As given.
    seconds
        How long building took.

    Raises
    ------
    EmulationError
        On entering, when the system refuses namespaces, or ``ip`` or ``tc`` fails.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.seconds = 0.0
        self._holder: subprocess.Popen[bytes] | None = None
        self._wire: Wire | None = None
        self._user: int | None = None
        self._networks: list[int] = []
        self._commands: dict[int, Command] = {}
        self._next = 0

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        ours.settimeout(_MOST_SECONDS)
        # A holder that is tied to a thread would end with it, so only the main one's is tied.
        main = threading.current_thread() is threading.main_thread()
        try:
            self._holder = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "topocal.measure.fabric.holder"),
                    *(str(theirs.fileno()), str(os.getpid() if main else 0)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_import_path(),
            )
        finally:
            theirs.close()
        self._wire = Wire(ours)
        try:
            answer, files = self._ask(json.loads(blueprint_to_json(self.blueprint)))
        except BaseException:
            self.close()
            raise
        self._user = files.pop(0) if answer["own_user"] else None
        self._networks = files
        self.seconds = float(answer["seconds"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go: every command in the fabric is killed, and the network with it."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        for file in (*self._networks, *([] if self._user is None else [self._user])):
            os.close(file)
        self._networks, self._user = [], None
        if self._holder is not None:
            try:
                self._holder.wait(_AT_CLOSE_S)
            except subprocess.TimeoutExpired:
                self._holder.kill()
                self._holder.wait()
            self._holder = None

    def enter(self, rank: int) -> None:
        """Move the calling process into the namespace of a rank, for good.

        For a child process, before it starts threads.  It keeps nothing of the fabric but the
        network it is in, the host's name where there are several, and the environment of its
        rank.

        Raises
        ------
        EmulationError
            When the kernel refuses.
        """
        blueprint = self.blueprint
        try:
            if self._user is not None:
                enter_namespace(self._user, NEW_USER)
            enter_namespace(self._networks[rank], NEW_NETWORK)
            if blueprint.has_hosts:
                be_host(blueprint.hosts[rank], blueprint.host_addresses)
        except OSError as error:
            raise EmulationError(
                f"rank {rank} cannot enter its network namespace: {error.strerror}",
                remedy="enter in a child process that has one thread",
            ) from error
        if self._wire is not None:
            # A copy of the socket would keep the fabric alive after its owner has gone.
            self._wire.close()
        for file in (*self._networks, *([] if self._user is None else [self._user])):
            os.close(file)
        self._wire, self._networks, self._user = None, [], None
        os.environ.update(blueprint.environment(rank))

    def change(self, id: str, capacity_Bps: float) -> None:
        """Change the capacity of a link or a pool, while traffic runs.

        Raises
        ------
        InputError
            When the capacity is not above zero.
        EmulationError
            When nothing of that name has a capacity.
        """
        if not capacity_Bps > 0:
            raise InputError(f"a capacity of {capacity_Bps}", remedy="give bytes per second")
        self._ask({"do": "change", "id": id, "capacity_Bps": capacity_Bps})

    def run(
        self,
        rank: int,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        preferred: bool = False,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Command:
        """Start a command at an endpoint; it ends with the fabric at the latest.

        Parameters
        ----------
        environment
            In place of this process's; the names of
            :meth:`~topocal.measure.fabric.blueprint.Blueprint.environment` are added to it.
        preferred
            Whether it runs before ordinary processes, where the system allows that.
        stdin, stdout, stderr
            File descriptors; nothing, and this process's own, unless told.

        Raises
        ------
        EmulationError
            When it cannot be executed.
        """
        base = dict(os.environ if environment is None else environment)
        null = os.open(os.devnull, os.O_RDWR)
        files = [
            null if stdin is None else stdin,
            1 if stdout is None else stdout,
            2 if stderr is None else stderr,
        ]
        message = {
            "do": "run",
            "rank": rank,
            "command": list(command),
            "environment": base | self.blueprint.environment(rank),
            "folder": str(Path.cwd()),
            "preferred": preferred,
        }
        try:
            return self._start(message, files)
        finally:
            os.close(null)

    def background(self, source: str, destination: str, rate_Bps: float) -> Command:
        """Start a steady stream between two endpoints, which is not part of any measurement.

        Raises
        ------
        UnknownEndpointError
            When there is no such endpoint.
        """
        for name in (source, destination):
            if name not in self.blueprint.rank:
                raise UnknownEndpointError(name, self.blueprint.endpoints)
        message = {
            "do": "background",
            "source": source,
            "destination": destination,
            "rate_Bps": rate_Bps,
        }
        return self._start(message, [])

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until something that was started has ended.

        Raises
        ------
        TimeoutError
            When nothing does within the time.
        EmulationError
            When the holder has gone.
        """
        assert self._wire is not None
        self._end().settimeout(timeout_s)
        try:
            self._listen()
        finally:
            if self._wire is not None:
                self._end().settimeout(_MOST_SECONDS)

    def signal(self, command: Command, number: int) -> None:
        """Send a signal to something that was started, if it still runs."""
        if command.status is None:
            self._ask({"do": "signal", "number": command.number, "signal": number})

    def _end(self) -> socket.socket:
        assert self._wire is not None
        return self._wire.end

    def _start(self, message: dict[str, Any], files: list[int]) -> Command:
        self._next += 1
        command = Command(self, self._next)
        self._commands[command.number] = command
        try:
            self._ask({**message, "number": command.number}, files)
        except EmulationError:
            del self._commands[command.number]
            raise
        return command

    def _ask(
        self, message: dict[str, Any], files: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        """Send, and return the answer with its files."""
        if self._wire is None:
            raise EmulationError("the fabric is closed", remedy="use it inside its with block")
        with contextlib.suppress(BrokenPipeError):
            self._wire.send(message, files)
        while True:
            answer, received = self._listen()
            if answer is not None:
                return answer, received

    def _listen(self) -> tuple[dict[str, Any] | None, list[int]]:
        """One message: an answer, or ``None`` after noting that a command has ended.

        Raises
        ------
        EmulationError
            When the system refused, or the holder is not there any more.
        """
        assert self._wire is not None
        received = self._wire.receive()
        if received is None:
            raise EmulationError(
                "the process that holds the fabric has ended", remedy="start it again"
            )
        message, files = received
        if "refused" in message:
            raise EmulationError(
                f"no emulated fabric here: {message['refused']}",
                remedy="allow user namespaces (kernel.unprivileged_userns_clone, "
                "kernel.apparmor_restrict_unprivileged_userns, seccomp), or run as root",
            )
        if "failed" in message:
            raise EmulationError(message["failed"], remedy=message["remedy"])
        if "ended" in message:
            self._commands.pop(message["ended"]).status = message["status"]
            return None, []
        return message, files


class Command:
    """Something that runs at an endpoint.

    Attributes
    ----------
    number
        Its name for the holder.
    status
        ``None`` while it runs; then its exit status, or minus the signal that ended it.
    """

    def __init__(self, fabric: Fabric, number: int) -> None:
        self.number = number
        self.status: int | None = None
        self._fabric = fabric

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end and return its status.

        Raises
        ------
        TimeoutError
            When nothing at all ends for so long.
        """
        while self.status is None:
            self._fabric.wait(timeout_s)
        return self.status

    def stop(self) -> None:
        """End it."""
        self._fabric.signal(self, signal.SIGTERM)
        self.wait(_AT_CLOSE_S)


def _import_path() -> dict[str, str]:
    """This process's environment, in which the holder finds the same packages."""
    found = os.pathsep.join(p for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": found}

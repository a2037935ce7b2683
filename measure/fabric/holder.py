"""The process that holds a fabric: ``python -m topocal.measure.fabric.holder FD PARENT``.

It moves into new namespaces, builds, and hands out the networks as file descriptors.  Then
it does what it is asked (change a capacity, run a command at an endpoint, send background
traffic) until the other end of its socket closes.  It is the first process of a new
process-id namespace, so that the kernel ends every command with it; namespaces and their
interfaces end with the last file descriptor and the last process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any, Final, NoReturn

from topocal.measure.fabric.background import carry
from topocal.measure.fabric.blueprint import Blueprint, blueprint_from_json
from topocal.measure.fabric.build import build, change
from topocal.measure.fabric.namespaces import (
    NEW_NETWORK,
    be_host,
    die_with_parent,
    enter_namespace,
    isolate,
)
from topocal.measure.fabric.priority import prefer
from topocal.measure.fabric.wire import Wire

__all__ = ["main"]

_REMEDIES: Final = {
    "change": "see the fabric's links with topocal fabric --json",
    "run": "give a command that can be executed here",
    "background": "start the fabric again",
    "signal": "start the fabric again",
}


def main(arguments: list[str]) -> int:
    """Hold a fabric.

    Parameters
    ----------
    arguments
        The file descriptor of the socket, and the process id of the parent where this
        process shall die with the thread that started it, else 0.
    """
    end, parent = int(arguments[0]), int(arguments[1])
    if parent:
        die_with_parent()
        if os.getppid() != parent:
            return 1
    # An interrupt is for whoever started this; the socket tells when they are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wire = Wire(socket.socket(fileno=end))
    try:
        own_user = isolate()
    except OSError as error:
        wire.send({"refused": _why(error)})
        return 1
    child = os.fork()
    if child == 0:
        _run_first_process(wire, own_user)
    wire.close()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _run_first_process(wire: Wire, own_user: bool) -> NoReturn:
    status = 1
    try:
        die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        received = wire.receive()
        if received is not None:
            blueprint = blueprint_from_json(json.dumps(received[0]))
            _Holder(wire, blueprint).serve(own_user)
            status = 0
    except BrokenPipeError:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _Holder:
    """A fabric that stands, and the processes in it."""

    def __init__(self, wire: Wire, blueprint: Blueprint) -> None:
        self._wire = wire
        self._blueprint = blueprint
        self._networks: list[int] = []
        # A command by its process id, and by the number that its owner knows it by.
        self._number: dict[int, int] = {}
        self._process: dict[int, int] = {}

    def serve(self, own_user: bool) -> None:
        """Build, say so, and do as asked until nobody is there to ask."""
        begin = time.monotonic()
        try:
            self._networks = build(self._blueprint)
        except OSError as error:
            self._wire.send(
                {
                    "failed": f"the fabric cannot be built: {_why(error)}",
                    "remedy": "it takes iproute2 and the kernel's veth, bridge, ifb and sch_htb",
                }
            )
            return
        user = os.open("/proc/self/ns/user", os.O_RDONLY) if own_user else None
        files = [*self._networks] if user is None else [user, *self._networks]
        seconds = time.monotonic() - begin
        self._wire.send({"ready": True, "own_user": own_user, "seconds": seconds}, files)
        wakeup, at_exit = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(at_exit)
        while True:
            if not self._wire.has_message:
                asked = self._wire.fileno()
                ready, _, _ = select.select([asked, wakeup], [], [])
                if wakeup in ready:
                    os.read(wakeup, 4096)
                    self._bury()
                if asked not in ready:
                    continue
            received = self._wire.receive()
            if received is None:
                return
            self._do(*received)

    def _do(self, message: dict[str, Any], files: list[int]) -> None:
        reply: dict[str, Any] = {"done": True}
        try:
            match message["do"]:
                case "change":
                    change(self._blueprint, self._networks, message["id"], message["capacity_Bps"])
                case "run":
                    self._run(message, files)
                case "background":
                    self._background(message)
                case "signal":
                    process = self._process.get(message["number"])
                    if process is not None:
                        os.kill(process, message["signal"])
        except OSError as error:
            reply = {"failed": _why(error), "remedy": _REMEDIES[message["do"]]}
        finally:
            for file in files:
                os.close(file)
        self._wire.send(reply)

    def _run(self, message: dict[str, Any], files: list[int]) -> None:
        """Start a command at an endpoint, with the standard files that came along."""
        # What cannot be executed is told through this pipe, which a successful exec closes.
        reader, writer = os.pipe2(os.O_CLOEXEC)
        child = os.fork()
        if child == 0:
            try:
                self._become(message, files)
            except OSError as error:
                os.write(writer, str(error.strerror or error).encode())
            finally:
                os._exit(127)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            failure = pipe.read()
        if failure:
            os.waitpid(child, 0)
            raise OSError(f"{message['command'][0]}: {failure.lower()}")
        self._remember(message["number"], child)

    def _become(self, message: dict[str, Any], files: list[int]) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        rank = message["rank"]
        for target, file in enumerate(files):
            os.dup2(file, target)
        if self._blueprint.has_hosts:
            be_host(self._blueprint.hosts[rank], self._blueprint.host_addresses)
        enter_namespace(self._networks[rank], NEW_NETWORK)
        if message["preferred"]:
            prefer(True)
        os.chdir(message["folder"])
        os.execvpe(message["command"][0], message["command"], message["environment"])

    def _background(self, message: dict[str, Any]) -> None:
        blueprint = self._blueprint
        ends = [blueprint.rank[message[side]] for side in ("source", "destination")]
        child = os.fork()
        if child == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                carry(
                    self._networks[ends[0]],
                    self._networks[ends[1]],
                    blueprint.address(ends[1]),
                    message["rate_Bps"],
                )
            finally:
                os._exit(1)
        self._remember(message["number"], child)

    def _remember(self, number: int, process: int) -> None:
        self._number[process] = number
        self._process[number] = process

    def _bury(self) -> None:
        """Collect every process that has ended, and tell of those that somebody waits for."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            number = self._number.pop(process, None)
            if number is not None:
                del self._process[number]
                code = os.waitstatus_to_exitcode(status)
                self._wire.send({"ended": number, "status": code})


def _why(error: OSError) -> str:
    """What an error of the system says, without its number."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

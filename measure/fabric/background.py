"""Traffic of others: one steady stream between two endpoints."""

from __future__ import annotations

import os
import socket
import time
from typing import Final

from topocal.measure.fabric.namespaces import NEW_NETWORK, enter_namespace

__all__ = ["carry"]

_CHUNK: Final = 1 << 16


def carry(source: int, destination: int, address: str, rate_Bps: float) -> None:
    """Send from one network namespace to another until killed.

    The process becomes the sender; a child of it receives and ends with it.

    Parameters
    ----------
    source, destination
        File descriptors of the namespaces.
    address
        Of the destination.
    rate_Bps
        Bytes per second that the sender offers; what the fabric does not take is not made up
        for.
    """
    enter_namespace(destination, NEW_NETWORK)
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        receiver = os.fork()
        if receiver == 0:
            _swallow(server)
        enter_namespace(source, NEW_NETWORK)
        with socket.create_connection((address, port)) as sender:
            _pour(sender, rate_Bps)


def _swallow(server: socket.socket) -> None:
    try:
        connection, _ = server.accept()
        room = bytearray(1 << 20)
        while connection.recv_into(room):
            pass
    finally:
        os._exit(0)


def _pour(sender: socket.socket, rate_Bps: float) -> None:
    chunk = bytes(_CHUNK)
    due = time.monotonic()
    while True:
        sender.sendall(chunk)
        due = max(due + _CHUNK / rate_Bps, time.monotonic() - 0.01)
        time.sleep(max(0.0, due - time.monotonic()))

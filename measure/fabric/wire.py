"""Messages between a fabric's holder and whoever started it: JSON lines, some with files."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Wire"]

_CHUNK: Final = 1 << 16
_MOST_FILES: Final = 250
"""The kernel passes no more than 253 at once."""


class Wire:
    """One end of a connection.

    Parameters
    ----------
    end
        A stream socket, which the wire owns from then on.

    Attributes
    ----------
    end
        The socket.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._buffer = b""
        self._files: list[int] = []

    def fileno(self) -> int:
        """For ``select``."""
        return self.end.fileno()

    def send(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """Send a message and file descriptors, which stay open here.

        Raises
        ------
        OSError
            When the other end has gone.
        """
        content = json.dumps(message).encode() + b"\n"
        if files:
            # They travel with the first byte; what does not fit at once follows.
            sent = socket.send_fds(self.end, [content], list(files))
            content = content[sent:]
        self.end.sendall(content)

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message with its file descriptors; ``None`` when the other end has gone.

        Raises
        ------
        TimeoutError
            When the socket has a timeout and it passes.
        """
        while b"\n" not in self._buffer:
            try:
                more, files, _, _ = socket.recv_fds(self.end, _CHUNK, _MOST_FILES)
            except ConnectionError:
                return None
            for file in files:
                os.set_inheritable(file, False)
            self._files += files
            if not more:
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        files, self._files = self._files, []
        return json.loads(line), files

    @property
    def has_message(self) -> bool:
        """Whether a whole message is here already."""
        return b"\n" in self._buffer

    def close(self) -> None:
        """Close this end."""
        self.end.close()

"""What the coordinator tells a rank, and what it hears back.

Ranks other than the first do what they are told and know nothing of plans::

    coordinator (rank 0)                      every other rank
    Survey                             ->     memory, host, versions        -> Surveyed
    Prepare                            ->     buffers                       -> Ready
    Copy                               ->     within its memory, timed      -> Copied
    Exchange                           ->     receive buffers overwritten   -> Ready
    Start (when)                       ->     messages, timed               -> Report
    Wait                               ->     the next order may take a while
    Stop                               ->     the end
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

__all__ = [
    "Answer",
    "Copied",
    "Copy",
    "Exchange",
    "Message",
    "Order",
    "Prepare",
    "Ready",
    "Receive",
    "Report",
    "Send",
    "Start",
    "Stop",
    "Survey",
    "Surveyed",
    "Tick",
    "Wait",
    "decode",
    "encode",
]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Base of all that travels between ranks."""


class Survey(Message, frozen=True, kw_only=True):
    """Say what you are, and how much memory is free."""


class Surveyed(Message, frozen=True, kw_only=True):
    """What a rank is.

    ``host`` and ``memory`` are equal for ranks on one host and of one memory; they are
    not written anywhere.  ``told`` is what it was started to do
    (:mod:`topocal.measure.instructions`).
    """

    host: str
    memory: str
    free_bytes: int
    held_bytes: int
    device: str
    facts: dict[str, Any]
    told: dict[str, str] = {}


class Tick(Message, frozen=True, kw_only=True):
    """Say what your clock says."""


class Prepare(Message, frozen=True, kw_only=True):
    """Have so many buffers of so many bytes to send from and to receive into."""

    sends: int
    receives: int
    bytes_each: int


class Copy(Message, frozen=True, kw_only=True):
    """Copy a buffer to another within your own memory."""


class Copied(Message, frozen=True, kw_only=True):
    """Bytes per second of a copy; ``None`` where there are no two buffers for it."""

    rate_Bps: float | None


class Send(msgspec.Struct, frozen=True, array_like=True):
    """A message to ``peer`` from buffer ``slot``; flows are numbered over all ranks."""

    flow: int
    peer: int
    slot: int
    size: int


class Receive(msgspec.Struct, frozen=True, array_like=True):
    """A message from ``peer``, whose buffer ``sent_slot`` it is, into buffer ``slot``."""

    flow: int
    peer: int
    slot: int
    sent_slot: int
    size: int


class Exchange(Message, frozen=True, kw_only=True):
    """Send and receive all of this, ``iterations`` times, each within ``limit_s``."""

    sends: list[Send]
    receives: list[Receive]
    issue: str
    iterations: int
    verify: bool
    limit_s: float


class Start(Message, frozen=True, kw_only=True):
    """Begin when the rank's own clock says so."""

    at: float


class Wait(Message, frozen=True, kw_only=True):
    """The next order comes within so many seconds."""

    seconds: float


class Stop(Message, frozen=True, kw_only=True):
    """Nothing more; ``failed``: because something failed, which the coordinator tells."""

    failed: bool = False


class Ready(Message, frozen=True, kw_only=True):
    """Done what was to be done; ``clock``: what the rank's clock said."""

    clock: float


class Report(Message, frozen=True, kw_only=True):
    """How it went, by the rank's own clock.

    ``finish`` holds the arrival of each received message; ``wrong`` the numbers of those
    flows that brought other bytes than were sent; ``failed`` why it did not work, and
    ``peer`` who was waited for.
    """

    start: float = 0.0
    end: float = 0.0
    finish: list[float] = []
    wrong: list[int] = []
    failed: str | None = None
    peer: int | None = None
    link: str | None = None


Order = Survey | Tick | Prepare | Copy | Exchange | Start | Wait | Stop
Answer = Surveyed | Ready | Copied | Report

_Any = TypeVar("_Any", bound=Message)


def encode(message: Message) -> bytes:
    """The bytes that travel."""
    return msgspec.msgpack.encode(message)


def decode(content: bytes, kind: Any) -> Any:
    """The message in the bytes, which is one of ``kind``.

    Raises
    ------
    msgspec.DecodeError
        When it is none.
    """
    return msgspec.msgpack.decode(content, type=kind)

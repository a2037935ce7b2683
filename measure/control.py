"""Orders and reports between ranks, apart from what is timed.

They travel on a group of their own: a message that does not come ends every connection
of its group (gloo closes them all when a wait runs out), and a report must not queue up
behind what is timed.  torch is handed over by who has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from topocal.measure.orders import Message, decode, encode
from topocal.measure.waits import promised, wait

__all__ = ["Control"]

_FRAME: Final = 1024
"""Bytes of a control message; what is longer comes in a second one."""

_HEAD: Final = 4
"""Bytes that say how long it is."""


class Control:
    """One rank's end of the control group.

    Parameters
    ----------
    torch
        The module.
    group
        The control group.
    ranks
        The global number of each of its ranks.
    promise
        Called with how long this rank may be silent, each time before it waits.
    """

    def __init__(
        self, torch: Any, group: Any, ranks: Sequence[int], promise: Callable[[float], None]
    ) -> None:
        self._torch, self._dist = torch, torch.distributed
        self._group, self._global, self._promise = group, ranks, promise

    def scatter(self, messages: Mapping[int, Message], limit_s: float) -> dict[int, str]:
        """Send messages to ranks; returns why, for those that did not take theirs."""
        with promised(self._promise, limit_s):
            return self._scatter(messages, time.monotonic() + limit_s)

    def _scatter(self, messages: Mapping[int, Message], until: float) -> dict[int, str]:
        waits = []
        for rank, message in messages.items():
            parts = self._framed(encode(message))
            waits += [(rank, self._post(self._dist.isend, part, rank), part) for part in parts]
        failed: dict[int, str] = {}
        for rank, work, _ in waits:
            why = wait(work, until)
            if why and rank not in failed:
                failed[rank] = why
        return failed

    def gather(
        self, ranks: Iterable[int], kind: Any, limit_s: float
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """A message from each of the ranks, and why, for those from which none came."""
        with promised(self._promise, limit_s):
            return self._gather(ranks, kind, time.monotonic() + limit_s)

    def _gather(
        self, ranks: Iterable[int], kind: Any, until: float
    ) -> tuple[dict[int, Any], dict[int, str]]:
        heads = {rank: self._empty(_FRAME) for rank in ranks}
        works = {rank: self._post(self._dist.irecv, head, rank) for rank, head in heads.items()}
        found: dict[int, Any] = {}
        failed: dict[int, str] = {}
        for rank, work in works.items():
            why = wait(work, until)
            head = heads[rank].numpy()
            length = int.from_bytes(head[:_HEAD].tobytes(), "little")
            content = head[_HEAD : _HEAD + length].tobytes()
            if not why and length > _FRAME - _HEAD:
                rest = self._empty(length)
                why = wait(self._post(self._dist.irecv, rest, rank), until)
                content = rest.numpy().tobytes()
            if why:
                failed[rank] = why
            else:
                found[rank] = decode(content, kind)
        return found, failed

    def _post(self, call: Any, tensor: Any, rank: int) -> Any:
        """The operation begun, or the error that forbade it."""
        try:
            return call(tensor, self._global[rank], group=self._group)
        except RuntimeError as error:
            return error

    def _empty(self, size: int) -> Any:
        return self._torch.zeros(size, dtype=self._torch.uint8)

    def _framed(self, content: bytes) -> list[Any]:
        """The one or two messages that carry the content."""
        head = self._empty(_FRAME)
        raw = head.numpy()
        raw[:_HEAD] = list(len(content).to_bytes(_HEAD, "little"))
        if len(content) > _FRAME - _HEAD:
            rest = self._empty(len(content))
            rest.numpy()[:] = bytearray(content)
            return [head, rest]
        raw[_HEAD : _HEAD + len(content)] = bytearray(content)
        return [head]

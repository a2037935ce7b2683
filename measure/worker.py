"""One rank of the measured group, on torch.distributed; the only file that imports torch.

A :class:`Member` has two channels to the others: the *measured group*, whose messages
are what is timed, and a *control group* of its own on gloo, for orders and reports.  They
are apart because a message that does not come ends every connection of its group (gloo
closes them all when a wait runs out), and because a report must not share a queue with
what is timed.

Times are those of ``CLOCK_MONOTONIC``.  Between the two readings of the clock stand only
the messages and the wait until the device has done them.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist

from topocal.measure import payload
from topocal.measure.control import Control
from topocal.measure.devices import (
    Accelerator,
    Host,
    accelerator,
    backend_and_device,
    device_kind,
    own_index,
)
from topocal.measure.host_facts import bus_link, cpu_model, driver_version, host_id
from topocal.measure.meeting import meet
from topocal.measure.orders import Exchange, Prepare, Receive, Report, Send, Surveyed
from topocal.measure.places import Place
from topocal.measure.waits import (
    Late,
    begin,
    complaint,
    first_line,
    is_out_of_memory,
    promised,
    sleep_until,
    wait_or_raise,
    words,
)
from topocal.topo.errors import InputError, MeasurementError, one_line

__all__ = ["Member", "default_backend", "join", "leave"]

_COPIES: Final = 5

_PR_SET_TIMERSLACK: Final = 29  # linux/prctl.h


def default_backend() -> str:
    """nccl or xccl where there are such devices, else gloo."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        return "nccl"
    if hasattr(torch, "xpu") and torch.xpu.is_available() and "xccl" in dist.Backend.backend_list:
        return "xccl"
    return "gloo"


def join(
    place: Place, backend: str | None, *, limit_s: float, names: Sequence[str] | None = None
) -> str:
    """Make this process part of the group of all; returns the backend.

    Parameters
    ----------
    limit_s
        How long the others are waited for.
    names
        Of the ranks, for messages.

    Raises
    ------
    InputError
        When this build of torch has no such backend, or there is no device for the rank.
    MeasurementError
        When others do not come; names them.
    """
    with promised(place.promise, limit_s):
        return _join(place, backend, limit_s, names)


def _join(place: Place, backend: str | None, limit_s: float, names: Sequence[str] | None) -> str:
    chosen = backend or default_backend()
    if chosen not in dist.Backend.backend_list:
        raise InputError(
            f"torch {torch.__version__} knows no backend {one_line(chosen)!r}",
            remedy="use gloo, nccl or xccl",
        )
    kind = device_kind(chosen)
    if kind != "cpu":
        if place.meeting.startswith("file:"):  # All on one host: nothing is to listen beyond it.
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        accelerator(torch, kind).set_device(own_index(torch, kind, place, names))
    else:
        # Ranks on one host that each start a thread for every core get in each other's way.
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(max(1, cores // max(1, place.local_size)))
    has = getattr(dist, f"is_{chosen}_available", None)
    if has is not None and not has():
        raise InputError(
            f"torch {torch.__version__} was built without {chosen}",
            remedy=f"use gloo, or install a build of torch with {chosen}",
        )
    store = meet(dist, place, limit_s, names)
    try:
        dist.init_process_group(
            chosen,
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=limit_s),
        )
    except (RuntimeError, ValueError) as error:
        raise MeasurementError(
            f"rank {place.rank} of {place.size} could not join the others: {first_line(error)}",
            remedy="check the network between them",
        ) from error
    return chosen


def leave() -> None:
    """End what :func:`join` began."""
    dist.destroy_process_group()


class Member:
    """This process as a rank of the measured group.

    Making one is collective: every rank of the group makes its own at the same time.

    Parameters
    ----------
    group
        The measured group; the default group unless told.
    device
        Where buffers lie: ``cpu``, ``cuda`` or ``xpu``; by the backend unless told.
    limit_s
        How long the making may take.
    promise
        Called with how long this rank may be silent, each time before it waits.

    Raises
    ------
    InputError
        When torch.distributed has no group yet, or this process is not in it.
    MeasurementError
        When the others do not come.
    """

    clock = staticmethod(time.monotonic)
    """What times are read from."""

    def __init__(
        self,
        group: Any = None,
        *,
        device: str | None = None,
        limit_s: float,
        promise: Callable[[float], None] | None = None,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise InputError(
                "torch.distributed has no process group",
                remedy="call init_process_group first, or use topocal measure",
            )
        if not dist.is_gloo_available():
            raise InputError(
                f"torch {torch.__version__} was built without gloo",
                remedy="install a usual build of torch: orders and reports travel on gloo",
            )
        self._group = dist.group.WORLD if group is None else group
        self.rank = int(dist.get_rank(self._group))
        if self.rank < 0:
            raise InputError("this process is not in the group", remedy="call it on its ranks only")
        self.size = int(dist.get_world_size(self._group))
        kind, self.backend = backend_and_device(
            str(dist.get_backend(self._group)), str(dist.get_backend_config(self._group)), device
        )
        self._global = [int(dist.get_global_rank(self._group, r)) for r in range(self.size)]
        self._promise = promise or (lambda _: None)
        self._device = Host(torch) if kind == "cpu" else Accelerator(torch, kind)
        self._sent: list[Any] = []
        self._received: list[Any] = []
        self._index = torch.arange(0, dtype=torch.int32)
        self._pool: ThreadPoolExecutor | None = None
        self._met: set[int] = set()
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # Starts are to be on time.
        try:
            self._control_group = dist.new_group(
                self._global,
                backend="gloo",
                timeout=timedelta(seconds=limit_s),
                use_local_synchronization=True,
            )
            # Some backends need everybody at their first operation.
            dist.all_reduce(torch.zeros(1, device=self._device.place), group=self._group)
            self._device.settle(time.monotonic() + limit_s)
        except RuntimeError as error:
            raise complaint(
                f"rank {self.rank} could not connect to the others: {first_line(error)}"
            ) from error
        self.control = Control(torch, self._control_group, self._global, self._promise)

    def close(self) -> None:
        """End the control group and let go of the buffers."""
        self._sent, self._received = [], []
        if self._pool is not None:
            self._pool.shutdown()
        dist.destroy_process_group(self._control_group)

    # What a rank is, and its buffers.

    def survey(self) -> Surveyed:
        """What this rank is, and how much memory is free for it."""
        host = host_id()
        facts = {
            "cpu": cpu_model(),
            "driver": driver_version(self._device.kind),
            "bus": self._device.bus,
            "libraries": self._device.libraries() | {"torch": str(torch.__version__)},
        }
        return Surveyed(
            host=host,
            memory=host if self._device.kind == "cpu" else f"{host}/{self._device.place}",
            free_bytes=self._device.free_bytes(),
            held_bytes=sum(b.numel() for b in (*self._sent, *self._received)),
            device=self._device.name,
            facts={k: v for k, v in facts.items() if v},
        )

    def prepare(self, order: Prepare) -> None:
        """Have the buffers that an order asks for, those to send from filled.

        Raises
        ------
        MeasurementError
            When there is not enough memory after all.
        """
        whole = -(-order.bytes_each // payload.WORD_BYTES) * payload.WORD_BYTES
        kept = self._sent[0].numel() if self._sent else -1
        if kept != whole:
            self._sent, self._received = [], []
        try:
            while len(self._received) < order.receives:
                self._received.append(self._new(whole))
            on_host = self._device.kind == "cpu"
            chunk = payload.CHUNK_WORDS if on_host else payload.DEVICE_CHUNK_WORDS
            self._index = torch.arange(
                min(chunk, whole // payload.WORD_BYTES),
                dtype=torch.int32,
                device=self._device.place,
            )
            while len(self._sent) < order.sends:
                buffer = self._new(whole)
                seed = payload.seed_of(self.rank, len(self._sent))
                payload.write(buffer.view(torch.int32), self._index, seed)
                self._sent.append(buffer)
        except RuntimeError as error:
            why = "" if is_out_of_memory(error) else f": {first_line(error)}"
            raise MeasurementError(
                f"rank {self.rank} has no room for its buffers{why}",
                remedy="measure smaller sizes",
            ) from error

    def copy_Bps(self, limit_s: float) -> float | None:
        """Bytes per second of a copy within this rank's memory: the median of a few."""
        if not (self._sent and self._received):
            return None
        until = time.monotonic() + limit_s
        times = []
        for _ in range(_COPIES):
            self._device.settle(until)
            start = time.monotonic()
            self._received[0].copy_(self._sent[0])
            self._device.settle(until)
            times.append(time.monotonic() - start)
        return float(self._sent[0].numel() / median(times))

    def _new(self, size: int) -> Any:
        return torch.zeros(size, dtype=torch.uint8, device=self._device.place)

    # What is timed.

    def arrange(self, order: Exchange) -> None:
        """All that comes before the start: old contents overwritten, the device idle."""
        if self._device.kind != "cpu" and order.issue == "one-by-one":
            self._meet(order)
        if order.verify:
            for message in order.receives:
                self._received[message.slot][: message.size].fill_(payload.POISON)
        if self._pool is None and len(order.receives) > 1 and self._device.kind == "cpu":
            self._pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="arrival")
        self._device.settle(time.monotonic() + order.limit_s)

    def _meet(self, order: Exchange) -> None:
        """A byte between any two ranks that exchange messages one by one for the first time.

        Two ranks then set up what the backend needs between them, and wait for each other;
        in the order of the flows at every rank, or a ring of them would wait for ever.
        """
        until = time.monotonic() + order.limit_s
        both: list[tuple[Send | Receive, Any, Any]] = [
            *((m, self._sent[m.slot][:1], dist.isend) for m in order.sends),
            *((m, self._received[m.slot][:1], dist.irecv) for m in order.receives),
        ]
        for message, byte, call in sorted(both, key=lambda item: item[0].flow):
            if message.peer not in self._met:
                try:
                    wait_or_raise(self._begin(call, byte, message.peer), until, message.peer)
                except Late as late:
                    raise complaint(
                        f"rank {self.rank} waited for rank {late.peer}: {late.why}"
                    ) from late
                self._met.add(message.peer)

    def exchange(self, order: Exchange, at: float) -> Report:
        """Send and receive what the order says, from the instant ``at`` on."""
        with promised(self._promise, 2 * order.limit_s):
            return self._exchange(order, at)

    def _exchange(self, order: Exchange, at: float) -> Report:
        sends = [(m, self._sent[m.slot][: m.size]) for m in order.sends]
        receives = [(m, self._received[m.slot][: m.size]) for m in order.receives]
        turn = self._by_turns if order.issue == "one-by-one" else self._together
        sleep_until(at, order.limit_s)
        start = time.monotonic()
        until = start + order.limit_s
        finish: list[float] = []
        try:
            for left in range(order.iterations - 1, -1, -1):
                finish = turn(sends, receives, until, is_last=left == 0)
            self._device.settle(until)
        except Late as late:
            return Report(start=start, end=time.monotonic(), failed=late.why, peer=late.peer)
        end = time.monotonic()
        return Report(
            start=start,
            end=end,
            finish=[min(t, end) for t in finish] or [end] * len(receives),
            wrong=self._wrong(order.receives) if order.verify else [],
            link=bus_link(self._device.bus) if self._device.bus else None,
        )

    def _together(
        self,
        sends: Sequence[tuple[Send, Any]],
        receives: Sequence[tuple[Receive, Any]],
        until: float,
        *,
        is_last: bool,
    ) -> list[float]:
        """All messages handed over as one batch; arrival of each where that shows."""
        both: list[tuple[Send | Receive, Any, Any]] = [
            *((m, t, dist.irecv) for m, t in receives),
            *((m, t, dist.isend) for m, t in sends),
        ]
        if self._device.kind != "cpu":
            # Both ends list their messages in the order of the flows, as some backends ask.
            both.sort(key=lambda item: item[0].flow)
        # Else receives stay first.  gloo has one connection for both directions of a pair and
        # says on it that a receive is posted: behind a message that is under way the word
        # comes late, and the two directions take turns.
        ops = [
            dist.P2POp(call, tensor, self._global[m.peer], self._group) for m, tensor, call in both
        ]
        try:
            works = dist.batch_isend_irecv(ops) if ops else []
        except RuntimeError as error:
            raise Late(words(error), both[0][0].peer) from error
        if len(works) != len(ops) or self._device.kind != "cpu":
            # One for the whole batch, or a wait that only later work of the device obeys.
            for work in works:
                wait_or_raise(work, until, both[0][0].peer)
            return []
        arrivals = [
            (m.peer, w) for (m, _, c), w in zip(both, works, strict=True) if c is dist.irecv
        ]
        others = [
            (m.peer, w) for (m, _, c), w in zip(both, works, strict=True) if c is not dist.irecv
        ]
        finish = self._arrivals(arrivals, until, apart=is_last)
        for peer, work in others:
            wait_or_raise(work, until, peer)
        return finish

    def _arrivals(
        self, works: Sequence[tuple[int, Any]], until: float, *, apart: bool
    ) -> list[float]:
        """When each message has come; ``apart``: each by a thread of its own, so that one does
        not hide another."""
        if not apart or len(works) < 2 or self._pool is None:
            return [wait_or_raise(work, until, peer) for peer, work in works]
        waits = [self._pool.submit(wait_or_raise, work, until, peer) for peer, work in works]
        return [w.result() for w in waits]

    def _by_turns(
        self,
        sends: Sequence[tuple[Send, Any]],
        receives: Sequence[tuple[Receive, Any]],
        until: float,
        *,
        is_last: bool,
    ) -> list[float]:
        """Messages by one call each; each receive is waited for before the next is posted.

        On a device all messages of a pair stand in one queue, so of two that cross both ends
        must begin with the same: a send to a rank that something comes from before goes out
        once that receive is posted.
        """
        first = {m.peer: m.flow for m, _ in receives} if self._device.kind != "cpu" else {}
        begun: list[tuple[int, Any]] = []
        held: dict[int, Any] = {}
        posted: dict[int, Any] = {}
        if self._device.kind == "cpu" and receives:
            # Before all sends, for the reason that _together gives.
            m, tensor = receives[0]
            posted[m.flow] = self._begin(dist.irecv, tensor, m.peer)
        for sent, tensor in sends:
            if first.get(sent.peer, sent.flow) < sent.flow:
                held[sent.peer] = tensor
            else:
                begun.append((sent.peer, self._begin(dist.isend, tensor, sent.peer)))
        finish = []
        for m, tensor in receives:
            work = posted.get(m.flow) or self._begin(dist.irecv, tensor, m.peer)
            if m.peer in held:
                begun.append((m.peer, self._begin(dist.isend, held[m.peer], m.peer)))
            wait_or_raise(work, until, m.peer)
            finish.append(self._device.reach(self._device.mark(), until))
        for peer, work in begun:
            wait_or_raise(work, until, peer)
        return finish

    def _begin(self, call: Any, tensor: Any, peer: int) -> Any:
        return begin(call, tensor, self._global[peer], self._group, peer)

    def _wrong(self, receives: Sequence[Receive]) -> list[int]:
        """Flows that brought something else than was sent."""
        found = []
        for m in receives:
            whole, rest = divmod(m.size, payload.WORD_BYTES)
            content = self._received[m.slot].view(torch.int32)
            seed = payload.seed_of(m.peer, m.sent_slot)
            bad = payload.first_wrong_word(content[:whole], self._index, seed) is not None
            if not bad and rest:
                last = torch.zeros(1, dtype=torch.int32, device=self._device.place)
                last[:] = payload.words(self._index[:1], seed, whole)
                ours = self._received[m.slot][whole * payload.WORD_BYTES : m.size]
                bad = not torch.equal(ours, last.view(torch.uint8)[:rest])
            if bad:
                found.append(m.flow)
        return found

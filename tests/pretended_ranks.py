"""Ranks over a network that only pretends: no torch, no processes.

Each rank is a thread that serves as it would; its host's clock may be off, and it may fail in
whatever way.  How long messages take is what a test says; no time that passes counts.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from topocal.measure.crew import Crew, serve
from topocal.measure.orders import (
    Exchange,
    Message,
    Prepare,
    Report,
    Surveyed,
    decode,
    encode,
)
from topocal.topo.errors import MeasurementError

if TYPE_CHECKING:
    from topocal.measure.instructions import Instructions
    from topocal.measure.worker import Member

LIMIT_S: Final = 20.0
"""How long anybody waits: longer than any thread is kept from running."""

LONGEST_S: Final = 60.0
"""The same, where the product would wait for hours."""


def surveyed(memory: str, free: int, held: int = 0, **more: Any) -> Surveyed:
    """What a rank says of itself; further facts by name."""
    return Surveyed(
        host=more.pop("host", memory),
        memory=memory,
        free_bytes=free,
        held_bytes=held,
        device=more.pop("device", "card"),
        facts=more,
    )


@dataclass
class Network:
    """Mail between ranks; who is ``gone`` neither sends nor takes any."""

    size: int
    gone: dict[int, str] = field(default_factory=dict)
    boxes: dict[tuple[int, int], queue.Queue[bytes]] = field(default_factory=dict)

    def box(self, source: int, destination: int) -> queue.Queue[bytes]:
        return self.boxes.setdefault((source, destination), queue.Queue())


class Control:
    def __init__(self, network: Network, rank: int) -> None:
        self.network, self.rank = network, rank

    def scatter(self, messages: Mapping[int, Message], limit_s: float) -> dict[int, str]:
        failed = {}
        for rank, message in messages.items():
            if rank in self.network.gone:
                failed[rank] = self.network.gone[rank]
            else:
                self.network.box(self.rank, rank).put(encode(message))
        return failed

    def gather(
        self, ranks: Iterable[int], kind: Any, limit_s: float
    ) -> tuple[dict[int, Any], dict[int, str]]:
        found, failed = {}, {}
        for rank in ranks:
            try:
                if rank in self.network.gone:
                    failed[rank] = self.network.gone[rank]
                else:
                    content = self.network.box(rank, self.rank).get(timeout=min(limit_s, LONGEST_S))
                    found[rank] = decode(content, kind)
            except queue.Empty:
                failed[rank] = "nothing came in time"
        return found, failed


@dataclass
class FakeMember:
    """A rank whose messages take as long as ``seconds`` says, without any being sent."""

    network: Network
    rank: int
    offset_s: float = 0.0
    host: str = "a"
    seconds: Callable[[Exchange], float] = lambda order: 0.02
    spoil: Callable[[Exchange, Report], Report] = lambda order, report: report
    backend: str = "gloo"
    time: Callable[[], float] = time.monotonic
    prepared: list[Prepare] = field(default_factory=list)
    started: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.network.size
        self.control = Control(self.network, self.rank)

    def clock(self) -> float:
        return self.time() + self.offset_s

    def survey(self) -> Surveyed:
        return Surveyed(
            host=self.host,
            memory=self.host,
            free_bytes=10**9,
            held_bytes=0,
            device="card",
            facts={"cpu": "CPU"},
        )

    def prepare(self, order: Prepare) -> None:
        self.prepared.append(order)

    def copy_Bps(self, limit_s: float) -> float | None:
        return 1e9 * (1 + self.rank) if self.rank != 1 else None

    def arrange(self, order: Exchange) -> None:
        pass

    def exchange(self, order: Exchange, at: float) -> Report:
        self.started.append(at)
        end = at + order.iterations * self.seconds(order)
        return self.spoil(
            order, Report(start=at, end=end, finish=[end - 1e-4 for _ in order.receives])
        )


@dataclass
class Group:
    """All ranks; those but the first serve in threads."""

    members: list[FakeMember]
    limit_s: float = LIMIT_S
    ends: dict[int, BaseException | None] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    otherwise: dict[int, Instructions] = field(default_factory=dict)

    def start(self, told: Instructions | None = None) -> None:
        """All others begin to serve, who were told so, as far as ``otherwise`` says no other."""
        for member in self.members[1:]:
            own = self.otherwise.get(member.rank, told)
            thread = threading.Thread(target=self._serve, args=(member, own), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _serve(self, member: FakeMember, told: Instructions | None) -> None:
        try:
            serve(cast("Member", member), self.limit_s, told)
            self.ends[member.rank] = None
        except MeasurementError as error:
            self.ends[member.rank] = error

    def join(self) -> None:
        for thread in self.threads:
            thread.join(timeout=2 * LONGEST_S)
            assert not thread.is_alive()

    @property
    def first(self) -> Member:
        return cast("Member", self.members[0])


def group(size: int, *, limit_s: float = LIMIT_S, **more: Any) -> Group:
    network = Network(size)
    return Group([FakeMember(network, rank, **more) for rank in range(size)], limit_s)


NAMES = ("gpu0", "gpu1", "gpu2")


def crew_of(ranks: Group) -> Crew:
    crew = Crew(ranks.first, NAMES[: len(ranks.members)], LIMIT_S)
    crew.survey()
    crew.set_clocks()
    return crew


def waits_in_vain(order: Exchange, report: Report) -> Report:
    peer_ = order.sends[0].peer if order.sends else order.receives[0].peer
    return Report(start=report.start, end=report.end, failed="nothing came in time", peer=peer_)


def brings_other_bytes(order: Exchange, report: Report) -> Report:
    return Report(
        start=report.start,
        end=report.end,
        finish=report.finish,
        wrong=[m.flow for m in order.receives],
    )

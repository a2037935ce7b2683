"""The first rank's hold on all others: orders out, reports in, and who failed.

Everything here is in ranks; patterns and plans are the coordinator's
(:mod:`topocal.measure.coordinator`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from topocal.measure.instructions import require_same
from topocal.measure.orders import (
    Answer,
    Copied,
    Copy,
    Exchange,
    Message,
    Order,
    Prepare,
    Ready,
    Report,
    Start,
    Stop,
    Survey,
    Surveyed,
    Tick,
    Wait,
)
from topocal.measure.waits import complaint
from topocal.topo.errors import MeasurementError, TopocalError
from topocal.topo.units import format_seconds

if TYPE_CHECKING:
    from topocal.measure.instructions import Instructions
    from topocal.measure.worker import Member

__all__ = ["Crew", "DismissedError", "WrongBytesError", "serve"]

_LEAD_S: Final = 1e-3
_LEAD_PER_RANK_S: Final = 1e-4
"""How far ahead a start is set, so that everybody has heard of it: telling eight ranks over
gloo took 0.7 ms (measured on two cores)."""

_SLOWEST_FILL_BPS: Final = 100e6
"""Filling buffers is no slower than this, however many ranks share a host: one core of an EPYC
fills 0.5 GB/s and more."""

_PINGS: Final = 10
"""Of so many readings of a clock on another host the one with the quickest answer counts."""

_GRACE_S: Final = 3.0
"""How much longer than a rank itself others wait to hear that it waited in vain."""


class WrongBytesError(MeasurementError):
    """A rank received something else than was sent to it."""


class DismissedError(MeasurementError):
    """The first rank stopped for a failure that it tells itself."""

    others_fault = True


@dataclass(slots=True)
class Crew:
    """All ranks, as the first one sees them.

    Attributes
    ----------
    member
        This rank's own part.
    names
        Of the ranks, for messages.
    timeout_s
        How long anything may take that moves no bytes.
    told
        What this rank was told to do, as all others must have been.
    offsets_s
        Each rank's clock less ours.
    """

    member: Member
    names: Sequence[str]
    timeout_s: float
    told: Instructions = field(default_factory=dict)
    surveys: dict[int, Surveyed] = field(default_factory=dict)
    offsets_s: dict[int, float] = field(default_factory=dict)
    _patience_s: float = math.inf
    _told: dict[int, float] = field(default_factory=dict)

    @property
    def others(self) -> list[int]:
        """Every rank but this one."""
        return list(range(1, self.member.size))

    def name(self, rank: int) -> str:
        """A rank as messages call it."""
        return f"rank {rank} ({self.names[rank]})"

    # Orders and answers.

    def tell(self, messages: Mapping[int, Message]) -> None:
        """Send orders.

        Raises
        ------
        MeasurementError
            When a rank does not take its own.
        """
        failed = self.member.control.scatter(messages, self.timeout_s)
        if failed:
            self._lost(failed, self.timeout_s)

    def hear(
        self, ranks: Iterable[int], kind: Any, limit_s: float
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Answers, and why there is none."""
        return self.member.control.gather(ranks, kind, limit_s)

    def _answers(
        self, ranks: Iterable[int], kind: Any, limit_s: float | None = None
    ) -> dict[int, Any]:
        """Answers of all the ranks; raises for the first that has none or says it failed."""
        limit_s = self.timeout_s if limit_s is None else limit_s
        found, failed = self.hear(ranks, kind | Report, limit_s)
        if failed:
            self._lost(failed, limit_s)
        for rank, answer in found.items():
            if isinstance(answer, Report) and answer.failed:
                own = f"rank {rank} "  # As it calls itself, which does not know its endpoint.
                said = answer.failed
                what = said.removeprefix(own) if said.startswith(own) else f"failed: {said}"
                raise MeasurementError(f"{self.name(rank)} {what}", about=rank)
        return found

    def _lost(self, failed: Mapping[int, str], limit_s: float) -> NoReturn:
        rank = next((r for r, why in failed.items() if "closed" in why), min(failed))
        if "closed" in failed[rank]:
            raise complaint(f"{self.name(rank)} is gone: its connection was closed")
        raise complaint(f"{self.name(rank)} did not answer within {format_seconds(limit_s)}")

    def survey(self) -> dict[int, Surveyed]:
        """What every rank is.

        Raises
        ------
        InputError
            When one was told to do something else.
        """
        self.tell(dict.fromkeys(self.others, Survey()))
        self.surveys = {0: self.member.survey(), **self._answers(self.others, Surveyed)}
        told = {rank: found.told for rank, found in self.surveys.items()}
        require_same(told | {0: dict(self.told)}, self.names)
        return self.surveys

    def set_clocks(self) -> None:
        """How far each clock on another host is off ours: half a round trip is the error."""
        for rank in self.others:
            if self.surveys[rank].host == self.surveys[0].host:
                self.offsets_s[rank] = 0.0
                continue
            best: tuple[float, float] | None = None
            for _ in range(_PINGS):
                before = self.member.clock()
                self.tell({rank: Tick()})
                clock = self._answers([rank], Ready)[rank].clock
                after = self.member.clock()
                found = after - before, clock - (before + after) / 2
                best = found if best is None else min(best, found)
            assert best is not None
            self.offsets_s[rank] = best[1]

    def prepare(self, orders: Mapping[int, Prepare]) -> None:
        """Have buffers ready everywhere."""
        self.tell({r: o for r, o in orders.items() if r != 0})
        if 0 in orders:
            self.member.prepare(orders[0])
        most = max((o.bytes_each * (o.sends + o.receives) for o in orders.values()), default=0)
        limit = self.timeout_s + most / _SLOWEST_FILL_BPS
        self._answers([r for r in orders if r != 0], Ready, limit)

    def copy(self) -> dict[int, float]:
        """Bytes per second of a copy within each rank's memory, one rank of a host at a time."""
        found: dict[int, float | None] = {0: self.member.copy_Bps(self.timeout_s)}
        of_host: dict[str, list[int]] = {}
        for rank in self.others:
            of_host.setdefault(self.surveys[rank].host, []).append(rank)
        for turn in range(max(map(len, of_host.values()), default=0)):
            ranks = [members[turn] for members in of_host.values() if turn < len(members)]
            self.tell(dict.fromkeys(ranks, Copy()))
            answers = self._answers(ranks, Copied)
            found |= {rank: answer.rate_Bps for rank, answer in answers.items()}
        return {rank: rate for rank, rate in found.items() if rate is not None}

    def wait(self, seconds: float) -> None:
        """The next order may take so long; who has none for longer is told again in time."""
        self._patience_s = seconds
        self._keep_waiting(self.others)

    def _keep_waiting(self, ranks: Iterable[int]) -> None:
        self.tell(dict.fromkeys(ranks, Wait(seconds=self._patience_s)))
        self._told |= dict.fromkeys(ranks, self.member.clock())

    def stop(self, *, failed: bool) -> None:
        """Let everybody go; who does not hear it finds out by itself."""
        self.member.control.scatter(
            dict.fromkeys(self.others, Stop(failed=failed)), 1.0 if failed else self.timeout_s
        )

    # What is timed.

    def exchange(self, orders: Mapping[int, Exchange]) -> dict[int, Report]:
        """Everybody does its part from one instant on; reports by our clock.

        Raises
        ------
        MeasurementError
            When a rank failed, is lost, or (:class:`WrongBytesError`) got other bytes.
        """
        others = [r for r in orders if r != 0]
        now = self.member.clock()
        self._told |= dict.fromkeys(others, now)
        self._keep_waiting(
            [r for r, told in self._told.items() if now - told > self._patience_s / 2]
        )
        limit = max(order.limit_s for order in orders.values())
        self.tell({r: orders[r] for r in others})
        if 0 in orders:
            self.member.arrange(orders[0])
        self._answers(others, Ready)
        at = self.member.clock() + _LEAD_S + _LEAD_PER_RANK_S * len(others)
        self.tell({r: Start(at=at + self.offsets_s.get(r, 0.0)) for r in others})
        reports: dict[int, Report] = {}
        if 0 in orders:
            reports[0] = self.member.exchange(orders[0], at)
        found, failed = self.hear(others, Report, limit + _GRACE_S)
        for rank, report in found.items():
            reports[rank] = _shifted(report, -self.offsets_s.get(rank, 0.0))
        self._check(orders, reports, failed, limit)
        return reports

    def _check(
        self,
        orders: Mapping[int, Exchange],
        reports: Mapping[int, Report],
        failed: Mapping[int, str],
        limit_s: float,
    ) -> None:
        if failed:
            self._lost(failed, limit_s + _GRACE_S)
        late = [(r.end, rank) for rank, r in reports.items() if r.failed]
        if late:
            _, rank = min(late)
            report = reports[rank]
            about = "" if report.peer is None else f" waited for {self.name(report.peer)}"
            raise complaint(f"{self.name(rank)}{about}: {report.failed}")
        for rank, report in reports.items():
            for flow in report.wrong:
                peer = next(m.peer for m in orders[rank].receives if m.flow == flow)
                raise WrongBytesError(
                    f"{self.name(rank)} received other bytes than {self.name(peer)} sent",
                    remedy="memory, link or driver corrupts data: check both devices",
                    about=peer,
                )


def _shifted(report: Report, by_s: float) -> Report:
    if by_s == 0:
        return report
    return Report(
        start=report.start + by_s,
        end=report.end + by_s,
        finish=[t + by_s for t in report.finish],
        wrong=report.wrong,
        failed=report.failed,
        peer=report.peer,
        link=report.link,
    )


def serve(member: Member, limit_s: float, told: Instructions | None = None) -> None:
    """Do what the first rank says until it says stop.

    Parameters
    ----------
    told
        What this rank was told to do.

    Raises
    ------
    MeasurementError
        When it says nothing for longer than it announced, or stops for a failure (it then
        tells which).
    """
    patience = limit_s
    while True:
        order = _next_order(member, patience)
        if isinstance(order, Stop):
            if order.failed:
                raise _dismissed()
            return
        if isinstance(order, Wait):
            patience = order.seconds
            continue
        answer = _obey(member, order, limit_s)
        if isinstance(answer, Surveyed):
            answer = msgspec.structs.replace(answer, told=dict(told or {}))
        failed = member.control.scatter({0: answer}, limit_s)
        if failed:
            raise complaint(f"rank 0 did not take the report of rank {member.rank}: {failed[0]}")


def _dismissed() -> DismissedError:
    return DismissedError("rank 0 stopped", remedy="see what it says")


def _next_order(member: Member, limit_s: float) -> Order:
    found, failed = member.control.gather([0], Order, limit_s)
    if failed:
        raise complaint(f"rank 0 gave rank {member.rank} no order: {failed[0]}")
    order: Order = found[0]
    return order


def _obey(member: Member, order: Order, limit_s: float) -> Answer:
    """Do one thing, and say how it went."""
    try:
        match order:
            case Survey():
                return member.survey()
            case Prepare():
                member.prepare(order)
            case Copy():
                return Copied(rate_Bps=member.copy_Bps(limit_s))
            case Exchange():
                member.arrange(order)
                member.control.scatter({0: Ready(clock=member.clock())}, limit_s)
                start = _next_order(member, limit_s)
                if isinstance(start, Start):
                    return member.exchange(order, start.at)
                if isinstance(start, Stop):  # Another rank was not ready.
                    raise _dismissed()
                return Report(failed="was not told when to start")
            case _:
                pass
    except DismissedError:
        raise
    except TopocalError as error:
        return Report(failed=f"{error.what}; {error.remedy}" if error.remedy else error.what)
    return Ready(clock=member.clock())

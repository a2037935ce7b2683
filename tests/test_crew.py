"""Orders and reports between ranks, over a network that only pretends: no torch, no processes.

Each rank is a thread that serves as it would; its host's clock may be off, and it may fail
in whatever way.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from topocal.measure import coordinator
from topocal.measure.checks import DRIFT
from topocal.measure.coordinator import Coordinator, Settings
from topocal.measure.crew import Crew, DismissedError, WrongBytesError, serve
from topocal.measure.distributed import Session, coordinate
from topocal.measure.journal import Journal
from topocal.measure.orders import (
    Exchange,
    Message,
    Prepare,
    Receive,
    Report,
    Send,
    Surveyed,
    Tick,
    decode,
    encode,
)
from topocal.measure.patterns import fan_in, peer
from topocal.measure.plan import Plan, PlannedPattern
from topocal.measure.waits import complaint
from topocal.topo.errors import InputError, MeasurementError

if TYPE_CHECKING:
    from topocal.measure.worker import Member

LIMIT_S = 0.3


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
                    content = self.network.box(rank, self.rank).get(timeout=min(limit_s, 5.0))
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
    prepared: list[Prepare] = field(default_factory=list)
    started: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.network.size
        self.control = Control(self.network, self.rank)

    def clock(self) -> float:
        return time.monotonic() + self.offset_s

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
    ends: dict[int, BaseException | None] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for member in self.members[1:]:
            thread = threading.Thread(target=self._serve, args=(member,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _serve(self, member: FakeMember) -> None:
        try:
            serve(cast("Member", member), LIMIT_S)
            self.ends[member.rank] = None
        except MeasurementError as error:
            self.ends[member.rank] = error

    def join(self) -> None:
        for thread in self.threads:
            thread.join(timeout=10.0)
            assert not thread.is_alive()

    @property
    def first(self) -> Member:
        return cast("Member", self.members[0])


def group(size: int, **more: Any) -> Group:
    network = Network(size)
    return Group([FakeMember(network, rank, **more) for rank in range(size)])


NAMES = ("gpu0", "gpu1", "gpu2")


def crew_of(ranks: Group) -> Crew:
    crew = Crew(ranks.first, NAMES[: len(ranks.members)], LIMIT_S)
    crew.survey()
    crew.set_clocks()
    return crew


def one_message(limit_s: float = LIMIT_S) -> dict[int, Exchange]:
    """gpu1 -> gpu2."""
    options: dict[str, Any] = {
        "issue": "group",
        "iterations": 1,
        "verify": True,
        "limit_s": limit_s,
    }
    return {
        1: Exchange(sends=[Send(0, 2, 0, 8)], receives=[], **options),
        2: Exchange(sends=[], receives=[Receive(0, 1, 0, 0, 8)], **options),
    }


def test_clocks_of_other_hosts_are_compared() -> None:
    ranks = group(3)
    ranks.members[1].host, ranks.members[1].offset_s = "b", 1000.0
    ranks.members[2].offset_s = 0.0
    ranks.start()
    crew = crew_of(ranks)
    assert crew.offsets_s[1] == pytest.approx(1000.0, abs=0.05)
    assert crew.offsets_s[2] == 0.0  # The same host has the same clock: nothing is estimated.
    reports = crew.exchange(one_message())
    # Told in its own time, reported in ours.
    assert ranks.members[1].started[0] - ranks.members[2].started[0] == pytest.approx(
        1000.0, abs=0.05
    )
    assert reports[1].start == pytest.approx(reports[2].start, abs=0.05)
    crew.stop(failed=False)
    ranks.join()
    assert ranks.ends == {1: None, 2: None}


def test_who_has_nothing_to_do_is_told_to_wait_on() -> None:
    #   gpu1 -> gpu2 takes long enough for others to think that rank 0 is gone; rank 3 idles.
    def slowly(order: Exchange, report: Report) -> Report:
        time.sleep(0.1)
        return report

    ranks = group(4)
    for member in ranks.members[1:3]:
        member.spoil = slowly
    ranks.start()
    crew = Crew(ranks.first, (*NAMES, "gpu3"), LIMIT_S)
    crew.survey()
    crew.wait(0.3)
    for _ in range(6):
        crew.exchange(one_message())
    assert ranks.ends == {}
    crew.stop(failed=False)
    ranks.join()
    assert ranks.ends == {1: None, 2: None, 3: None}


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


#   What goes wrong where.                          What is said.
FAILURES: dict[str, tuple[Callable[[Group], None], type[MeasurementError], str]] = {
    "waits": (
        lambda g: setattr(g.members[1], "spoil", waits_in_vain),
        MeasurementError,
        "rank 1 (gpu1) waited for rank 2 (gpu2): nothing came in time",
    ),
    "wrong": (
        lambda g: setattr(g.members[2], "spoil", brings_other_bytes),
        WrongBytesError,
        "rank 2 (gpu2) received other bytes than rank 1 (gpu1) sent",
    ),
    "closed": (
        lambda g: g.members[0].network.gone.update({2: "the connection was closed"}),
        MeasurementError,
        "rank 2 (gpu2) is gone: its connection was closed",
    ),
    "silent": (
        lambda g: g.members[0].network.gone.update({2: "nothing came in time"}),
        MeasurementError,
        "rank 2 (gpu2) did not answer within 300 ms",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_who_failed_is_named(kind: str) -> None:
    harm, error, words = FAILURES[kind]
    ranks = group(3)
    ranks.start()
    crew = crew_of(ranks)
    crew.exchange(one_message())
    harm(ranks)
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        crew.exchange(one_message())
    crew.stop(failed=True)
    ranks.join()
    assert isinstance(ranks.ends[1], MeasurementError)


def test_the_first_failure_counts() -> None:
    # Both report a failure; that of rank 2 came first.
    ranks = group(3, spoil=waits_in_vain)
    ranks.members[1].seconds = lambda order: 0.5
    ranks.members[2].seconds = lambda order: 0.1
    ranks.start()
    crew = crew_of(ranks)
    with pytest.raises(MeasurementError, match=r"rank 2 \(gpu2\) waited for rank 1"):
        crew.exchange(one_message())
    crew.stop(failed=True)
    ranks.join()
    assert all(isinstance(e, DismissedError) for e in ranks.ends.values())


def test_what_a_rank_cannot_do_it_says() -> None:
    def no_room(order: Prepare) -> None:
        raise MeasurementError("rank 2 has no room for its buffers")

    ranks = group(3)
    ranks.members[2].prepare = no_room  # type: ignore[method-assign]  # A rank without memory.
    ranks.start()
    crew = crew_of(ranks)
    order = Prepare(sends=1, receives=1, bytes_each=8)
    with pytest.raises(MeasurementError, match=r"^rank 2 \(gpu2\) has no room"):
        crew.prepare({0: order, 1: order, 2: order})
    assert ranks.members[0].prepared == ranks.members[1].prepared == [order]
    crew.stop(failed=True)
    ranks.join()


def test_a_first_rank_that_says_nothing_is_not_waited_for() -> None:
    ranks = group(2)
    ranks.start()
    ranks.join()
    assert str(ranks.ends[1]).startswith("rank 0 gave rank 1 no order: nothing came in time")


def test_a_complaint_is_about_others() -> None:
    assert complaint("x").others_fault
    assert DismissedError("x").others_fault
    assert not MeasurementError("x").others_fault
    assert decode(encode(Tick()), Tick) == Tick()


# Whole plans.


def plan_of(*patterns: Any, sizes: tuple[float, ...] = (8.0,), repeats: int = 3) -> Plan:
    return Plan(
        machine="",
        topology_sha256="",
        endpoints=NAMES,
        sizes_bytes=sizes,
        repeats=repeats,
        warm_ups=1,
        clear_ratio=1.4,
        patterns=tuple(
            PlannedPattern(flows=tuple(p.pairs), reasons=(), seconds=0.0, memory_bytes=0.0)
            for p in patterns
        ),
        rounds=tuple((k,) for k in range(len(patterns))),
        resources=(),
    )


FANS = plan_of(fan_in("gpu0", ["gpu1", "gpu2"]), peer("gpu1", "gpu2"))


def measured(ranks: Group, plan: Plan = FANS, **more: Any) -> tuple[Any, list[str]]:
    said: list[str] = []
    session = Session(
        names=NAMES,
        subject="plan",
        settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4, check_every_s=0.0, **more),
        tell=said.append,
    )
    ranks.start()
    found = coordinate(ranks.first, session, lambda machine: machine.run(plan))
    ranks.join()
    return found, said


def test_a_plan_is_measured() -> None:
    ranks = group(3)
    found, said = measured(ranks)
    assert [(s.name, s.repeat) for s in found.samples] == [
        *(("gpu1->gpu2", k) for k in range(3)),
        *(("gpu0<-gpu1,gpu2", k) for k in range(3)),
    ]
    for sample in found.samples:
        assert sample.seconds == pytest.approx(0.02)
        assert sample.flow_finish_s == pytest.approx([0.02 - 1e-4] * len(sample.pattern.flows))
    assert [s.set_aside for s in found.set_aside] == ["warm-up", "warm-up"]
    # gpu0 receives two and sends none; gpu1 sends one; gpu2 either.
    assert [m.prepared[0] for m in ranks.members] == [
        Prepare(sends=0, receives=2, bytes_each=8),
        Prepare(sends=1, receives=0, bytes_each=8),
        Prepare(sends=1, receives=1, bytes_each=8),
    ]
    assert found.runs[0].provenance["local_copy_Bps"] == {"gpu0": 1e9, "gpu2": 3e9}
    assert said == ["buffers: 16 B on rank 0 (gpu0), 40 B in all"]


def test_short_patterns_run_until_they_last() -> None:
    #   A message of 0.96 ms and timings of 10 ms: eleven times each, as ten are 9.6 ms.
    ranks = group(3, seconds=lambda order: 0.96e-3)
    session_plan = plan_of(peer("gpu1", "gpu2"))
    said: list[str] = []
    session = Session(
        names=NAMES,
        subject="plan",
        settings=Settings(timeout_s=LIMIT_S, shortest_s=10e-3),
        tell=said.append,
    )
    ranks.start()
    found = coordinate(ranks.first, session, lambda machine: machine.run(session_plan))
    ranks.join()
    assert found is not None
    assert [s.iterations for s in found.samples] == [11, 11, 11]
    assert [s.seconds for s in found.samples] == pytest.approx([0.96e-3] * 3)
    assert sorted(s.iterations for s in found.set_aside) == [1, 11]


def test_what_stands_apart_is_measured_again() -> None:
    #   The fifth message takes three times as long, once.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += bool(order.receives)
        return 0.06 if order.receives and count[0] == 19 else 0.02

    #   Reference: 7 to find its size, 7 as a base; 1 warm-up; then repeats, the fourth is late.
    ranks = group(3, seconds=seconds)
    found, _ = measured(ranks, plan_of(peer("gpu1", "gpu2"), repeats=5))
    assert [s.seconds for s in found.samples] == pytest.approx([0.02] * 5)
    reasons = sorted(s.set_aside or "" for s in found.set_aside)
    assert reasons == ["measured again: it took 3 times the median of its repeats", "warm-up"]


def test_a_machine_that_has_changed_is_measured_again() -> None:
    #   From the 20th message on everything takes twice as long: 14 of the reference, 1
    #   warm-up, 3 repeats; then the reference again, at its new pace after one of the old.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += bool(order.receives)
        return 0.04 if order.receives and count[0] >= 20 else 0.02

    ranks = group(3, seconds=seconds)
    found, said = measured(ranks, plan_of(peer("gpu1", "gpu2")))
    assert DRIFT < 1.0
    assert [s.seconds for s in found.samples] == pytest.approx([0.04] * 3)
    assert said[-1] == (
        "drift: gpu1->gpu2 of 8 B took 2 times as long after round 0; measured again: rounds 0 to 0"
    )
    aside = [s for s in found.set_aside if s.set_aside != "warm-up"]
    assert [s.seconds for s in aside] == pytest.approx([0.02] * 3)
    assert said[-1] in found.runs[0].provenance["remarks"]


def test_repeats_that_were_cut_off_are_measured_again_when_it_goes_on(tmp_path: Path) -> None:
    #   14 messages of the reference and 1 warm-up; the second repeat fails.
    count = [0]

    def spoil(order: Exchange, report: Report) -> Report:
        count[0] += 1
        return waits_in_vain(order, report) if count[0] == 17 else report

    plan = plan_of(peer("gpu1", "gpu2"))

    def run(resume: bool) -> Any:
        ranks = group(3)
        ranks.members[2].spoil = spoil
        ranks.start()
        session = Session(
            names=NAMES,
            subject="plan",
            settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4),
            journal=tmp_path / "j",
            resume=resume,
        )
        try:
            return coordinate(ranks.first, session, lambda machine: machine.run(plan))
        finally:
            ranks.join()

    with pytest.raises(MeasurementError, match="nothing came in time"):
        run(resume=False)
    found = run(resume=True)
    assert [s.repeat for s in found.samples] == [0, 1, 2]
    reasons = sorted(s.set_aside for s in found.set_aside)
    assert reasons == ["its repeats were cut off", "warm-up", "warm-up"]


PAIRS = plan_of(*(peer(a, b) for a in NAMES for b in NAMES if a != b))


@pytest.mark.parametrize(
    "slow", [(20, 70), (23, 24), (17, 41), (40, 75), (15, 16), (0, 25), (0, 45)]
)
def test_a_rank_that_is_slow_for_a_while_changes_nothing(slow: tuple[int, int]) -> None:
    #   gpu1 is half as fast from one of its messages to another.  Each of the six pairs takes 1
    #   warm-up, 3 repeats and a look at the reference, gpu0->gpu1: 7 messages, or 14 in doubt.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += 1
        return 0.04 if slow[0] <= count[0] < slow[1] else 0.02

    ranks = group(3)
    ranks.members[1].seconds = seconds
    found, said = measured(ranks, PAIRS)
    assert count[0] > slow[0]
    undisturbed, _ = measured(group(3), PAIRS)
    assert [(s.name, s.repeat) for s in found.samples] == [
        (s.name, s.repeat) for s in undisturbed.samples
    ]
    assert [s.seconds for s in found.samples] == pytest.approx(
        [s.seconds for s in undisturbed.samples]
    )
    assert bool(said[1:]) == (slow[1] - slow[0] > 10)


def test_what_changes_all_the_time_is_taken_as_it_is() -> None:
    #   Each look at the reference takes twice as long as the one before: no end of changes.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += bool(order.receives)
        return 0.01 * 1.2 ** (count[0] // 4)

    found, said = measured(group(3, seconds=seconds), PAIRS)
    assert {s.name for s in found.samples} == {p.name for p in PAIRS.patterns}
    assert said[-1].endswith("the machine keeps changing, and is taken as it is")
    assert sum("measured again" in text for text in said) == 10


def test_many_repeats_are_written_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    #   Time is always up: parts of 5 repeats, and a last one of 8, as 3 would be too few.  The
    #   message after the second part fails: 14 of the reference, 1 and 5, 7, 1 and 5, 7, 1.
    monkeypatch.setattr(coordinator, "_PART_S", -1.0)
    count = [0]

    def spoil(order: Exchange, report: Report) -> Report:
        count[0] += 1
        return waits_in_vain(order, report) if count[0] == 42 else report

    plan = plan_of(peer("gpu1", "gpu2"), repeats=23)
    reached: list[float] = []

    def run(resume: bool) -> Any:
        ranks = group(3)
        ranks.members[2].spoil = spoil
        ranks.start()
        session = Session(
            names=NAMES,
            subject="plan",
            settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4, check_every_s=0.0),
            journal=tmp_path / "j",
            resume=resume,
            advance=lambda done, total: reached.append(done / total),
        )
        try:
            return coordinate(ranks.first, session, lambda machine: machine.run(plan))
        finally:
            ranks.join()

    with pytest.raises(MeasurementError, match="nothing came in time"):
        run(resume=False)
    lines = [json.loads(t) for t in (tmp_path / "j").read_text().splitlines()]
    written = [line for line in lines if "batch" in line]
    assert [(line["left"], len(line["samples"])) for line in written] == [
        (23, 1),  # A warm-up.
        (18, 5),
        (18, 1),
        (13, 5),
        (13, 1),
    ]
    assert reached == pytest.approx([5 / 23, 10 / 23])
    found = run(resume=True)
    assert [s.repeat for s in found.samples] == list(range(23))
    assert reached[2:] == pytest.approx([5 / 13, 1.0])


def test_bytes_that_are_wrong_end_it_and_are_kept() -> None:
    #   After 14 messages of the reference and 1 warm-up.
    count = [0]

    def spoil(order: Exchange, report: Report) -> Report:
        count[0] += 1
        return brings_other_bytes(order, report) if count[0] == 16 else report

    ranks = group(3)
    ranks.members[2].spoil = spoil
    ranks.start()
    journal = Journal(None, subject="plan", run="abc")
    journal.begin({"backend": "gloo", "ranks": list(NAMES)})
    crew = crew_of(ranks)
    machine = Coordinator(
        crew, settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4), journal=journal
    )
    with pytest.raises(WrongBytesError, match=r"rank 2 \(gpu2\) received other bytes"):
        machine.run(plan_of(peer("gpu1", "gpu2")))
    reasons = sorted(s.set_aside or "" for s in journal.measurements().set_aside)
    assert reasons == [
        "rank 2 (gpu2) received other bytes than rank 1 (gpu1) sent",
        "warm-up",
    ]
    crew.stop(failed=True)
    ranks.join()


def test_sizes_that_do_not_fit_are_refused_before_any_memory_is_taken() -> None:
    #   gpu1 and gpu2 need 0.5 GB each, of 1 GB that is free on the host: more than 80 %.
    ranks = group(3)
    with pytest.raises(InputError, match=r"rank 1 \(gpu1\) and 1 more on its host need 1 GB of"):
        measured(ranks, plan_of(peer("gpu1", "gpu2"), sizes=(8.0, 5e8)))
    ranks.join()
    assert [m.prepared for m in ranks.members] == [[], [], []]


def test_a_plan_for_nobody_here() -> None:
    ranks = group(3)
    with pytest.raises(InputError, match="no pattern of the plan has all its endpoints"):
        measured(ranks, plan_of(peer("gpu1", "gpu9")))
    ranks.join()
    assert all(isinstance(e, DismissedError) for e in ranks.ends.values())

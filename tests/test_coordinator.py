"""Whole plans on ranks that only pretend: what is measured, measured again, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pretended_ranks import (
    LIMIT_S,
    NAMES,
    Group,
    brings_other_bytes,
    crew_of,
    group,
    waits_in_vain,
)

from topocal.measure import coordinator
from topocal.measure.checks import DRIFT
from topocal.measure.coordinator import Coordinator, Settings
from topocal.measure.crew import DismissedError, WrongBytesError
from topocal.measure.distributed import Session, coordinate
from topocal.measure.journal import Journal
from topocal.measure.orders import Exchange, Prepare, Report
from topocal.measure.patterns import fan_in, peer
from topocal.measure.plan import Plan, PlannedPattern
from topocal.topo.errors import InputError, MeasurementError


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
    ranks.start(session.instructions)
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
    ranks.start(session.instructions)
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
        session = Session(
            names=NAMES,
            subject="plan",
            settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4),
            journal=tmp_path / "j",
            resume=resume,
        )
        ranks.start(session.instructions)
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


def figures(found: Any) -> dict[str, float]:
    """What a fit goes by: the median of each pattern's repeats."""
    names = dict.fromkeys(s.name for s in found.samples)
    return {n: median(s.seconds for s in found.samples if s.name == n) for n in names}


#   A rank, and the first and the number of its messages that take longer.  Besides looks at the
#   reference, gpu0->gpu1 and gpu0->gpu2, each pair takes 1 warm-up, 3 repeats, and 1 more of a
#   second look.  For gpu1 its first pair begins with message 15.
PASSING = [
    *((1, first, many) for first in range(14, 40, 2) for many in (2, 4, 5)),  # Half a batch, one.
    *((2, first, many) for first in range(29, 75, 5) for many in (3, 5)),
    *((2, first, 20) for first in range(14, 60, 9)),  # More than one, and looks between them.
    (1, 12, 4),  # From the middle of the first look.
    (2, 13, 40),
    (1, 62, 40),  # To the end, and a little further.
]


@pytest.mark.parametrize("times", [1.5, 50.0])
@pytest.mark.parametrize(("rank", "first", "many"), PASSING)
def test_what_is_slow_for_however_short_a_while_changes_no_figure(
    rank: int, first: int, many: int, times: float
) -> None:
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += 1
        return 0.02 * times if first <= count[0] < first + many else 0.02

    ranks = group(3)
    ranks.members[rank].seconds = seconds
    found, _ = measured(ranks, PAIRS)
    assert count[0] > first
    assert figures(found) == pytest.approx(dict.fromkeys(figures(found), 0.02))
    assert len(figures(found)) == 6


def test_what_is_not_like_its_second_look_is_told_and_kept_apart() -> None:
    #   gpu1 sends to gpu2 at a tenth of its pace for a warm-up and three repeats.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += bool(order.sends)
        return 0.2 if order.sends and count[0] <= 4 else 0.02

    ranks = group(3)
    ranks.members[1].seconds = seconds
    #   The reference has gpu0 and another in each message.
    plan = plan_of(peer("gpu1", "gpu2"), peer("gpu0", "gpu1"), peer("gpu0", "gpu2"))
    found, said = measured(ranks, plan)
    assert figures(found)["gpu1->gpu2"] == pytest.approx(0.02)
    assert said[1:] == [
        "drift: gpu1->gpu2 of 8 B took 0.1 times as long when it was looked at again; measured "
        "again: rounds 0 to 0"
    ]
    reasons = {s.set_aside for s in found.set_aside if s.seconds > 0.1}
    assert reasons == {
        "warm-up",
        "it, or what ran beside it, took 0.1 times as long when it was looked at again",
    }


def test_every_rank_is_looked_at() -> None:
    #   gpu2 alone is slow from its 30th message on: gpu0->gpu1 alone would not show it.
    count = [0]

    def seconds(order: Exchange) -> float:
        count[0] += 1
        return 0.04 if count[0] >= 30 else 0.02

    ranks = group(3)
    ranks.members[2].seconds = seconds
    _, said = measured(ranks, PAIRS)
    assert any("gpu0->gpu2 of 8 B took 2 times as long" in text for text in said)


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
    #   message after the second part fails: 14 of the reference, 1 and 5, 7 and 1, 1 and 5, 7
    #   and 1, 1.
    monkeypatch.setattr(coordinator, "_PART_S", -1.0)
    count = [0]

    def spoil(order: Exchange, report: Report) -> Report:
        count[0] += 1
        return waits_in_vain(order, report) if count[0] == 44 else report

    plan = plan_of(peer("gpu1", "gpu2"), repeats=23)
    reached: list[float] = []

    def run(resume: bool) -> Any:
        ranks = group(3)
        ranks.members[2].spoil = spoil
        session = Session(
            names=NAMES,
            subject="plan",
            settings=Settings(timeout_s=LIMIT_S, shortest_s=1e-4, check_every_s=0.0),
            journal=tmp_path / "j",
            resume=resume,
            advance=lambda done, total: reached.append(done / total),
        )
        ranks.start(session.instructions)
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


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        (
            {"plan": "another"},
            "rank 1 (gpu1) has another plan than rank 0 (gpu0); copy one plan.json to every host",
        ),
        (
            {"command": "topocal calibrate"},
            "rank 1 (gpu1) has command topocal calibrate, and rank 0 (gpu0) has command "
            "topocal measure; start every rank by the same command line",
        ),
        (
            {"endpoints": "gpu1,gpu0,gpu2"},
            "rank 1 (gpu1) has endpoints gpu1,gpu0,gpu2, and rank 0 (gpu0) has endpoints "
            "gpu0,gpu1,gpu2; start every rank by the same command line",
        ),
        (
            {"--issue": "group and one-by-one"},
            "rank 1 (gpu1) has --issue group and one-by-one, and rank 0 (gpu0) has --issue "
            "group; start every rank by the same command line",
        ),
    ],
)
def test_a_rank_that_was_told_something_else_is_named(
    tmp_path: Path, differs: dict[str, str], words: str
) -> None:
    session = Session(
        names=NAMES,
        subject="plan",
        told={"command": "topocal measure", "plan": "this one"},
        settings=Settings(timeout_s=LIMIT_S),
        journal=tmp_path / "journal",
    )
    asked: list[object] = []
    ranks = group(3)
    ranks.otherwise[1] = {**session.instructions, **differs}
    ranks.start(session.instructions)
    with pytest.raises(InputError) as found:
        coordinate(ranks.first, session, asked.append)
    ranks.join()
    assert str(found.value) == words
    assert asked == []
    assert list(tmp_path.iterdir()) == []
    assert isinstance(ranks.ends[1], DismissedError)
    assert isinstance(ranks.ends[2], DismissedError)

"""A rank that goes astray in the middle of its messages is named, in one line."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from real_messages import PATIENCE_S, batches

from topocal.measure.design import design
from topocal.measure.plan import write_plan
from topocal.topo.machines import build_machine

pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = pytest.mark.heavy

JOURNAL = "cal.json.journal"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan_of(tmp_path, 2.0**16)
    return tmp_path


def plan_of(folder: Path, size_bytes: float) -> None:
    """The same measurements, by messages of some size."""
    ends = ("gpu0", "gpu1", "gpu4")
    plan = design(build_machine("b70"), endpoints=ends, sizes_bytes=[size_bytes], repeats=3)
    write_plan(plan, folder / "plan.json")


MISCHIEF = """
    import os, resource, signal, sys, time
    from pathlib import Path
    from topocal.measure.coordinator import Settings
    from topocal.measure.distributed import Session, ensure_torch, subject_of, take_part
    from topocal.measure.launch import launch
    from topocal.measure.plan import plan_to_document, read_plan
    from topocal.topo.errors import TopocalError

    ensure_torch()
    from topocal.measure.worker import Member

    def no_more_memory():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (64 << 10)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    class Wayward(Member):
        "From its twelfth message on, rank 2 is not what it should be."
        sent = 0

        def prepare(self, order):
            if self.rank == 2:
                PREPARING
            super().prepare(order)

        def arrange(self, order):
            super().arrange(order)
            self.sent += bool(order.sends)
            if self.rank == 2 and self.sent == 12:
                MISCHIEF

        def exchange(self, order, at):
            report = super().exchange(order, at)
            if self.rank == 2 and self.sent == 12:
                REPORTING
            return report

    plan = read_plan("plan.json")
    session = Session(
        names=plan.endpoints,
        subject=subject_of(plan_to_document(plan)),
        settings=Settings(timeout_s=TIMEOUT, shortest_s=1e-3),
        journal=Path("cal.json.journal"),
    )

    def work(place):
        if place.rank == 2:
            BEFORE
        take_part(place, session, lambda m: m.run(plan), backend="gloo", member_class=Wayward)

    try:
        launch(work, 3, names=session.names)
    except TopocalError as error:
        sys.exit(f"topocal: {error}")
"""


PHASES = ("BEFORE", "PREPARING", "MISCHIEF", "REPORTING")


def wayward(folder: Path, mischief: str, *, phase: str = "MISCHIEF", s: float = 60.0) -> str:
    """What is said when rank 2 goes astray, of whom the others wait for ``s`` at most: one line."""
    script = textwrap.dedent(MISCHIEF).replace("TIMEOUT", str(s))
    for name in PHASES:
        script = script.replace(name, mischief if name == phase else "pass")
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == 1, found.stderr
    return found.stderr


def test_a_rank_that_hangs_is_named(folder: Path) -> None:
    said = wayward(folder, "time.sleep(1000)", s=10.0)
    assert said == (
        "topocal: rank 2 (gpu4) did not answer within 10 s; see what became of the other ranks\n"
    )
    assert batches(folder / JOURNAL)


def test_a_rank_that_hangs_before_all_have_met_is_named(folder: Path) -> None:
    said = wayward(folder, "time.sleep(1000)", phase="BEFORE", s=2.0)
    assert said == (
        "topocal: rank 2 (gpu4) did not come within 10 s; see what became of the other ranks\n"
    )
    assert not (folder / JOURNAL).exists()


@pytest.mark.parametrize("phase", ["BEFORE", "PREPARING", "MISCHIEF", "REPORTING"])
def test_a_rank_that_is_killed_at_work_is_named(folder: Path, phase: str) -> None:
    assert wayward(folder, "os.kill(os.getpid(), signal.SIGKILL)", phase=phase) == (
        "topocal: rank 2 (gpu4) was killed by SIGKILL; if nobody did, the kernel was out of "
        "memory: see dmesg\n"
    )


@pytest.mark.parametrize("phase", ["PREPARING", "MISCHIEF", "REPORTING"])
def test_a_rank_without_memory_is_named(folder: Path, phase: str) -> None:
    #   Not a byte more than it has, and something to be allocated: what a batch has taken already
    #   may be all that it needs.
    said = wayward(folder, "no_more_memory(); bytearray(1 << 26)", phase=phase)
    assert said == (
        "topocal: rank 2 (gpu4) ran out of memory; plan smaller sizes (topocal plan --sizes), or "
        "start fewer ranks on its host\n"
    )
    assert bool(batches(folder / JOURNAL)) == (phase != "PREPARING")


def test_a_rank_without_memory_for_its_buffers_is_named(folder: Path) -> None:
    #   Of a size that the C library asks the kernel for anew each time (mallopt(3)).
    plan_of(folder, 2.0**25)
    said = wayward(folder, "no_more_memory()", phase="PREPARING")
    assert said in (
        "topocal: rank 2 (gpu4) has no room for its buffers; measure smaller sizes\n",
        # Where there was none left to say even that.
        "topocal: rank 2 (gpu4) ran out of memory; plan smaller sizes (topocal plan --sizes), or "
        "start fewer ranks on its host\n",
    )
    assert batches(folder / JOURNAL) == []


def test_wrong_bytes_are_noticed_and_who_sent_them_is_named(folder: Path) -> None:
    one_bit = "self._sent[order.sends[0].slot][order.sends[0].size - 1] ^= 1"
    said = wayward(folder, one_bit)
    assert "received other bytes than rank 2 (gpu4) sent; memory, link or driver" in said
    last = batches(folder / JOURNAL)[-1]
    assert any("other bytes" in s.get("aside", "") for s in last["samples"])

"""What goes wrong while measuring: the end comes soon, in one line, and nothing is lost.

Each test starts ``topocal measure --spawn 3``, waits until some batches are in the journal,
does its mischief, and then lets ``--resume`` finish the rest.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from topocal.measure.calibration import read_calibration
from topocal.measure.design import design
from topocal.measure.plan import Plan, read_plan, write_plan
from topocal.topo.machines import build_machine

pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = pytest.mark.heavy

PATIENCE_S = 60.0
"""No assertion on speed: what takes longer hangs."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan = design(
        build_machine("b70"),
        endpoints=["gpu0", "gpu1", "gpu4"],
        sizes_bytes=[2.0**16],
        repeats=3,
    )
    write_plan(plan, tmp_path / "plan.json")
    return tmp_path


COMMAND = (sys.executable, "-m", "topocal", "measure", "plan.json", "-o", "cal.json")
OPTIONS = ("--spawn", "3", "--timeout", "3s", "--min-duration", "1ms", "--backend", "gloo")


def start(
    folder: Path, *more: str, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *OPTIONS, *more],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(temporary(folder))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=before,
    )


def temporary(folder: Path) -> Path:
    """Where temporary files go."""
    made = folder / "tmp"
    made.mkdir(exist_ok=True)
    return made


def children(process: subprocess.Popen[str]) -> list[int]:
    """The ranks' process ids, in order of rank."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def batches(folder: Path) -> int:
    journal = folder / "cal.json.journal"
    if not journal.exists():
        return 0
    return sum(line.startswith(b'{"batch"') for line in journal.read_bytes().splitlines())


def wait_for_batches(process: subprocess.Popen[str], folder: Path, count: int = 2) -> list[int]:
    until = time.monotonic() + PATIENCE_S
    while batches(folder) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)
    return children(process)


def end_of(process: subprocess.Popen[str], ranks: list[int]) -> tuple[int, str]:
    """Exit status and what it says; no rank is left."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    left = [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert left == []
    return process.returncode, errors


def assert_resumes(folder: Path, *more: str) -> Plan:
    """What is missing is measured, and only that."""
    before = batches(folder)
    kept = {
        line
        for line in (folder / "cal.json.journal").read_text().splitlines()
        if line.startswith('{"batch"')
    }
    assert before >= 1
    process = start(folder, "--resume", *more)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), (out, errors)
    assert not (folder / "cal.json.journal").exists()
    found = read_calibration(folder / "cal.json")
    seconds = {s.seconds for s in (*found.samples, *found.set_aside)}
    for line in kept:
        assert {s["seconds"] for s in json.loads(line)["samples"]} <= seconds
    plan = read_plan(folder / "plan.json")
    measured = {(s.name, s.pattern.flows[0].size_bytes) for s in found.samples}
    assert measured == {(p.name, size) for p in plan.patterns for size in plan.sizes_bytes}
    return plan


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            signal.SIGKILL,
            "rank 1 (gpu1) was killed by SIGKILL; if nobody did, the kernel was out of memory: "
            "see dmesg",
        ),
        (signal.SIGSTOP, "rank 1 (gpu1) is stopped and did not go on"),
    ],
    ids=["killed", "stopped"],
)
def test_a_rank_that_is_gone_is_named(folder: Path, number: int, words: str) -> None:
    process = start(folder)
    ranks = wait_for_batches(process, folder)
    assert listening([*ranks, process.pid]) == {"0100007F"}  # 127.0.0.1, and nowhere else.
    os.kill(ranks[1], number)
    status, errors = end_of(process, ranks)
    assert status == 2
    assert errors == (
        f"topocal: {words}; what was measured is in cal.json.journal; go on with --resume\n"
    )
    if number == signal.SIGKILL:
        assert_resumes(folder)


def listening(pids: list[int]) -> set[str]:
    """Addresses that processes listen on, as proc_net_tcp(5) writes them: sockets in state
    LISTEN, and whatever takes datagrams."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(descriptor.readlink()).removeprefix("socket:[").rstrip("]"))
    found = set()
    for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in Path(f"/proc/{pids[0]}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and (words[3] == "0A" or not name.startswith("tcp")):
                found.add(words[1].partition(":")[0])
    return found


def test_ctrl_c_ends_all_of_them(folder: Path) -> None:
    process = start(folder, before=lambda: _plain_ctrl_c())
    ranks = wait_for_batches(process, folder)
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
    status, errors = end_of(process, ranks)
    assert status == 130
    assert errors == (
        "topocal: interrupted; what was measured is in cal.json.journal, go on with --resume\n"
    )


# As a job's end by its scheduler, or `kill`.
def test_sigterm_ends_all_of_them_and_says_so(folder: Path) -> None:
    process = start(folder)
    ranks = wait_for_batches(process, folder)
    process.terminate()
    status, errors = end_of(process, ranks)
    assert status == 128 + signal.SIGTERM
    assert errors == (
        "topocal: ended by SIGTERM; what was measured is in cal.json.journal, go on with --resume\n"
    )
    assert batches(folder) >= 2


def _plain_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_parent_that_dies_takes_all_with_it(folder: Path) -> None:
    process = start(folder)
    ranks = wait_for_batches(process, folder)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while any(_is_alive(pid) for pid in ranks):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert batches(folder) >= 2
    assert list(temporary(folder).iterdir()) == []


def _is_alive(pid: int) -> bool:
    """Whether it runs; who is dead may wait for somebody to take notice."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_a_full_disk_ends_it_and_room_lets_it_go_on(folder: Path) -> None:
    # Files may grow to 8 KiB, where a few batches fit: writing more fails as on a full disk.
    process = start(folder, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, (out, errors)
    assert errors == (
        "topocal: cal.json.journal: cannot be written: file too large; "
        "make room or choose another place; what is in it can be gone on with (--resume)\n"
    )
    content = (folder / "cal.json.journal").read_bytes()
    assert content.endswith(b"}\n")
    assert len(content) <= 8192
    assert_resumes(folder)


def test_endless_repeats_are_written_as_they_come(folder: Path) -> None:
    plan = replace(read_plan(folder / "plan.json"), repeats=10**9)
    write_plan(plan, folder / "plan.json")
    process = start(folder)
    wait_for_batches(process, folder, 3)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    lines = [json.loads(t) for t in (folder / "cal.json.journal").read_text().splitlines()]
    left = [line["left"] for line in lines if "batch" in line]
    # Of one batch, as none of them ever ends.
    assert left == sorted(left, reverse=True)
    assert all(5 <= a - b <= 10**5 for a, b in pairwise([10**9, *left]))


def test_what_is_not_finished_is_not_begun_anew(folder: Path) -> None:
    process = start(folder)
    ranks = wait_for_batches(process, folder)
    os.kill(ranks[0], signal.SIGKILL)
    assert end_of(process, ranks)[0] == 2
    again = start(folder)
    _, errors = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 2
    assert errors == (
        "topocal: cal.json.journal: holds a measurement that was not finished; "
        "go on with --resume, or remove it\n"
    )
    # A smaller group goes on, without the patterns of who is gone.
    smaller = start(folder, "--resume", "--spawn", "2", "--endpoints", "0,4")
    out, errors = smaller.communicate(timeout=PATIENCE_S)
    assert (smaller.returncode, errors) == (0, ""), out
    assert "patterns of endpoints that are not in the group, such as gpu" in out
    found = read_calibration(folder / "cal.json")
    assert len(found.runs) == 2
    assert found.runs[0].provenance["ranks"] == ["gpu0", "gpu1", "gpu4"]
    assert "ranks" not in found.runs[1].provenance
    assert "measured by a group of 2" in found.runs[1].provenance["remarks"]
    ends = {end for s in found.samples if s.run == 1 for pair in s.pattern.pairs for end in pair}
    assert ends <= {"gpu0", "gpu4"}


MISCHIEF = """
    import resource, sys, time
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
        settings=Settings(timeout_s=PATIENCE, shortest_s=1e-3),
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


def wayward(folder: Path, mischief: str, *, phase: str = "MISCHIEF", s: float = 3.0) -> str:
    """What is said when rank 2 goes astray: one line."""
    script = textwrap.dedent(MISCHIEF).replace("PATIENCE", str(s))
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
    said = wayward(folder, "time.sleep(1000)")
    assert said == (
        "topocal: rank 2 (gpu4) did not answer within 3 s; see what became of the other ranks\n"
    )
    assert batches(folder) >= 1


def test_a_rank_that_hangs_before_all_have_met_is_named(folder: Path) -> None:
    said = wayward(folder, "time.sleep(1000)", phase="BEFORE", s=0.5)
    assert said == (
        "topocal: rank 2 (gpu4) did not come within 2.5 s; see what became of the other ranks\n"
    )
    assert not (folder / "cal.json.journal").exists()


@pytest.mark.parametrize("phase", ["PREPARING", "MISCHIEF", "REPORTING"])
def test_a_rank_without_memory_is_named(folder: Path, phase: str) -> None:
    #   Not a byte more than it has: an allocation, or the stack of a thread, is refused.
    plan = design(
        build_machine("b70"), endpoints=["gpu0", "gpu1", "gpu4"], sizes_bytes=[2.0**24], repeats=3
    )
    write_plan(plan, folder / "plan.json")
    #   And something to be allocated: what a batch has already taken may be all that it needs.
    said = wayward(folder, "no_more_memory(); bytearray(1 << 26)", phase=phase)
    assert said in (
        "topocal: rank 2 (gpu4) has no room for its buffers; measure smaller sizes\n",
        "topocal: rank 2 (gpu4) ran out of memory; plan smaller sizes (topocal plan --sizes), or "
        "start fewer ranks on its host\n",
    )
    assert (batches(folder) > 0) == (phase != "PREPARING")


def test_wrong_bytes_are_noticed_and_who_sent_them_is_named(folder: Path) -> None:
    one_bit = "self._sent[order.sends[0].slot][order.sends[0].size - 1] ^= 1"
    said = wayward(folder, one_bit)
    assert "received other bytes than rank 2 (gpu4) sent; memory, link or driver" in said
    lines = [json.loads(t) for t in (folder / "cal.json.journal").read_text().splitlines()]
    last = [line for line in lines if "batch" in line][-1]
    assert any("other bytes" in s.get("aside", "") for s in last["samples"])


def of_an_environment(
    folder: Path, rank: int, *, of: int = 2, timeout: str = "3s", port: int | None = None
) -> subprocess.Popen[str]:
    """A process as srun would start it, where no parent watches."""
    known = ("0", "1", "4")[:of]
    options = ("--timeout", timeout, "--min-duration", "1ms", "--endpoints", ",".join(known))
    return subprocess.Popen(
        [*COMMAND, *options, "--backend", "gloo"],
        cwd=folder,
        env=os.environ
        | {
            "RANK": str(rank),
            "WORLD_SIZE": str(of),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(of),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port or 20_000 + os.getpid() % 10_000),
            "GLOO_SOCKET_IFNAME": "lo",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def ranks_of_an_environment(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [of_an_environment(folder, rank) for rank in range(2)]
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_without_a_parent_time_runs_out(
    folder: Path, ranks_of_an_environment: list[subprocess.Popen[str]]
) -> None:
    first, second = ranks_of_an_environment
    wait_for_batches_of_two(first, folder)
    assert listening([first.pid, second.pid]) == {"0100007F"}
    os.kill(second.pid, signal.SIGSTOP)
    _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 2
    assert errors.startswith("topocal: rank ")
    assert "rank 1 (gpu1)" in errors
    assert len(errors.splitlines()) == 1
    assert batches(folder) >= 1


def wait_for_batches_of_two(process: subprocess.Popen[str], folder: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not batches(folder):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("who", "said"),
    [
        # Of a complaint that all have, one line will do.
        ([0, 2], {0: "rank 1 (gpu1) did not come within 5 s"}),
        ([0], {0: "rank 1 (gpu1), rank 2 (gpu4) did not come within 5 s"}),
        ([1], {1: "rank 1 did not reach rank 0 at 127.0.0.1:{port} within 5 s: {refused}"}),
    ],
    ids=["one", "all-others", "the-first"],
)
def test_who_does_not_come_is_named(folder: Path, who: list[int], said: dict[int, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    processes = {r: of_an_environment(folder, r, of=3, timeout="1s", port=port) for r in who}
    for rank, process in processes.items():
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2, errors
        expected = said.get(rank)
        assert errors == (
            ""
            if expected is None
            else f"topocal: {expected}; see what became of the other ranks\n".format(
                port=port, refused=os.strerror(errno.ECONNREFUSED)
            )
        )


def test_a_port_that_is_taken_is_told(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        first = of_an_environment(folder, 0, port=port)
        _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 2
    assert errors == (
        f"topocal: rank 0 cannot listen at 127.0.0.1:{port}: address already in use; "
        "set MASTER_PORT to a free port, the same everywhere\n"
    )

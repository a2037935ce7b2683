"""What goes wrong while measuring: the end comes soon, in one line, and nothing is lost.

Each test starts ``topocal measure --spawn 3``, waits until some batches are in the journal,
does its mischief, and then lets ``--resume`` finish the rest.  What goes wrong in the middle of
messages is in test_wayward_ranks.py.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from real_messages import (
    ENDLESS,
    PATIENCE_S,
    batches,
    children,
    free_port,
    pausing_after,
    topocal,
    wait_for_batches,
)

from topocal.measure.calibration import read_calibration
from topocal.measure.design import design
from topocal.measure.plan import Plan, read_plan, write_plan
from topocal.topo.machines import build_machine

pytest.importorskip("torch", reason="measuring needs torch")
pytestmark = pytest.mark.heavy


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


def endless(folder: Path, **more: object) -> None:
    """A plan that is never done."""
    plan = replace(read_plan(folder / "plan.json"), repeats=ENDLESS)
    write_plan(plan, folder / "plan.json")


MEASURE = ("measure", "plan.json", "-o", "cal.json")
OPTIONS = ("--spawn", "3", "--timeout", "60s", "--min-duration", "1ms", "--backend", "gloo")


def start(
    folder: Path,
    *more: str,
    pause_after: int | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[str]:
    arguments = (*MEASURE, *OPTIONS, *more)
    return subprocess.Popen(
        topocal(*arguments) if pause_after is None else pausing_after(pause_after, *arguments),
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


def journal(folder: Path) -> Path:
    return folder / "cal.json.journal"


def ranks_that_measure(process: subprocess.Popen[str], folder: Path, count: int = 2) -> list[int]:
    """The ranks, once so many batches are written."""
    wait_for_batches(process, journal(folder), count)
    return children(process)


def end_of(process: subprocess.Popen[str], ranks: list[int]) -> tuple[int, str]:
    """Exit status and what it says; no rank is left."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    left = [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert left == []
    return process.returncode, errors


def assert_resumes(folder: Path, *more: str) -> Plan:
    """What is missing is measured, and only that."""
    kept = batches(journal(folder))
    assert kept
    process = start(folder, "--resume", *more)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), (out, errors)
    assert not journal(folder).exists()
    found = read_calibration(folder / "cal.json")
    seconds = {s.seconds for s in (*found.samples, *found.set_aside)}
    for line in kept:
        assert {s["seconds"] for s in line["samples"]} <= seconds
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
    process = start(folder, pause_after=2)
    ranks = ranks_that_measure(process, folder)
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
        table = Path(f"/proc/{pids[0]}/net/{name}")
        # A kernel without IPv6 has none of the second ones.
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            words = line.split()
            if words[9] in inodes and (words[3] == "0A" or not name.startswith("tcp")):
                found.add(words[1].partition(":")[0])
    return found


def test_ctrl_c_ends_all_of_them(folder: Path) -> None:
    endless(folder)
    process = start(folder, before=lambda: _plain_ctrl_c())
    ranks = ranks_that_measure(process, folder)
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
    status, errors = end_of(process, ranks)
    assert status == 130
    assert errors == (
        "topocal: interrupted; what was measured is in cal.json.journal, go on with --resume\n"
    )


# As a job's end by its scheduler, or `kill`.
def test_sigterm_ends_all_of_them_and_says_so(folder: Path) -> None:
    endless(folder)
    process = start(folder)
    ranks = ranks_that_measure(process, folder)
    process.terminate()
    status, errors = end_of(process, ranks)
    assert status == 128 + signal.SIGTERM
    assert errors == (
        "topocal: ended by SIGTERM; what was measured is in cal.json.journal, go on with --resume\n"
    )
    assert len(batches(journal(folder))) >= 2


def _plain_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_parent_that_dies_takes_all_with_it(folder: Path) -> None:
    endless(folder)
    process = start(folder)
    ranks = ranks_that_measure(process, folder)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while any(_is_alive(pid) for pid in ranks):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(batches(journal(folder))) >= 2
    assert list(temporary(folder).iterdir()) == []


def _is_alive(pid: int) -> bool:
    """Whether it runs; who is dead may wait for somebody to take notice."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_a_full_disk_ends_it_and_room_lets_it_go_on(folder: Path) -> None:
    # Of 13 batches, of 30 timings and 5 kB each, a few fit into files that may grow to 32 KiB:
    # writing more fails as on a full disk.
    write_plan(replace(read_plan(folder / "plan.json"), repeats=30), folder / "plan.json")
    room = 32 << 10
    process = start(folder, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, (out, errors)
    assert errors == (
        "topocal: cal.json.journal: cannot be written: file too large; "
        "make room or choose another place; what is in it can be gone on with (--resume)\n"
    )
    content = journal(folder).read_bytes()
    assert content.endswith(b"}\n")
    assert len(content) <= room
    assert_resumes(folder)


def test_endless_repeats_are_written_as_they_come(folder: Path) -> None:
    endless(folder)
    process = start(folder)
    ranks_that_measure(process, folder, 3)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    # Of one batch, as none of them ever ends; one that a change of the machine spoils begins anew.
    before = ENDLESS
    for line in batches(journal(folder)):
        if any("aside" not in sample for sample in line["samples"]):
            assert any(5 <= then - line["left"] <= 10**5 for then in (before, ENDLESS))
        else:
            assert line["left"] in (before, ENDLESS)
        before = line["left"]


def test_what_is_not_finished_is_not_begun_anew(folder: Path) -> None:
    process = start(folder, pause_after=2)
    ranks = ranks_that_measure(process, folder)
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


def of_an_environment(
    folder: Path,
    rank: int,
    *,
    port: int,
    of: int = 2,
    timeout: str = "10s",
    more: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """A process as srun would start it, where no parent watches."""
    known = ("0", "1", "4")[:of]
    options = ("--timeout", timeout, "--min-duration", "1ms", "--endpoints", ",".join(known))
    return subprocess.Popen(
        topocal(*MEASURE, *options, "--backend", "gloo", *more),
        cwd=folder,
        env=os.environ
        | {
            "RANK": str(rank),
            "WORLD_SIZE": str(of),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(of),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def ranks_of_an_environment(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    endless(folder)
    port = free_port()
    processes = [of_an_environment(folder, rank, port=port) for rank in range(2)]
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_without_a_parent_time_runs_out(
    folder: Path, ranks_of_an_environment: list[subprocess.Popen[str]]
) -> None:
    first, second = ranks_of_an_environment
    wait_for_batches(first, journal(folder), 1)
    assert listening([first.pid, second.pid]) == {"0100007F"}
    os.kill(second.pid, signal.SIGSTOP)
    _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 2
    assert errors.startswith("topocal: rank ")
    assert "rank 1 (gpu1)" in errors
    assert len(errors.splitlines()) == 1
    assert batches(journal(folder))


@pytest.mark.parametrize(
    ("who", "timeout", "said"),
    [
        # Of a complaint that all have, one line will do.  One may come later than the other.
        ([0, 2], "4s", {0: "rank 1 (gpu1) did not come within 20 s"}),
        ([0], "1s", {0: "rank 1 (gpu1), rank 2 (gpu4) did not come within 5 s"}),
        ([1], "1s", {1: "rank 1 did not reach rank 0 at 127.0.0.1:{port} within 5 s: {refused}"}),
    ],
    ids=["one", "all-others", "the-first"],
)
def test_who_does_not_come_is_named(
    folder: Path, who: list[int], timeout: str, said: dict[int, str]
) -> None:
    port = free_port()
    processes = {r: of_an_environment(folder, r, of=3, timeout=timeout, port=port) for r in who}
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


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (("--issue", "both"), "rank 1 (gpu1) has --issue group and one-by-one, and rank 0 (gpu0)"),
        (("--endpoints", "1,0"), "rank 1 (gpu1) has endpoints gpu1,gpu0"),
    ],
)
def test_ranks_that_were_told_different_things_measure_nothing(
    folder: Path, own: tuple[str, ...], words: str
) -> None:
    endless(folder)
    port = free_port()
    processes = [
        of_an_environment(folder, rank, port=port, more=more, timeout="60s")
        for rank, more in enumerate(((), own))
    ]
    try:
        said = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [2, 2]
    assert said[0].startswith(f"topocal: {words}"), said
    assert not journal(folder).exists()

"""Processes on this host: what they are told, how their end is told, and that none is left.

The launches run in processes of their own: they fork, which a test runner does not like.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from real_messages import PATIENCE_S

from topocal.measure.launch import launch
from topocal.measure.places import Place, first_node, place_from_environment
from topocal.topo.errors import InputError

BEGINNING = """
    import os, signal, sys, time
    from topocal.measure.launch import launch
    from topocal.topo.errors import FormatError, InputError, MeasurementError, TopocalError, Where

    def run(work, count=3, **more):
        try:
            launch(work, count, names=["gpu0", "gpu1", "gpu2"], quiet_s=0.2, **more)
        except TopocalError as error:
            print(type(error).__name__, error)
        tell_who_is_left()

    def tell_who_is_left():
        try:
            print("left", os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("nobody is left")

    def others_wait(place):
        if place.rank != 1:
            time.sleep(1000)
"""


def told(script: str) -> list[str]:
    """What a script prints, by line."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGINNING) + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.stderr == ""
    return found.stdout.splitlines()


def test_each_knows_its_place() -> None:
    lines = told("""
        def work(place):
            e = os.environ
            assert place.meeting.startswith("file:///")
            words = [place.rank, place.size, place.local_rank, place.local_size, e["RANK"],
                     e["WORLD_SIZE"], e["LOCAL_RANK"], e["LOCAL_WORLD_SIZE"],
                     e["GLOO_SOCKET_IFNAME"], e["MARK"]]
            os.write(1, (" ".join(map(str, words)) + "\\n").encode())

        def enter(rank):
            os.environ["MARK"] = f"entered-{rank}"
        run(work, enter=enter)
    """)
    assert sorted(lines) == [
        "0 3 0 3 0 3 0 3 lo entered-0",
        "1 3 1 3 1 3 1 3 lo entered-1",
        "2 3 2 3 2 3 2 3 lo entered-2",
        "nobody is left",
    ]


KILLED = (
    "MeasurementError rank 1 (gpu1) was killed by SIGKILL; if nobody did, the kernel was out of "
    "memory: see dmesg"
)

#   Rank 1 does something, ranks 0 and 2 wait.       What the parent raises.
ENDS = {
    "os.kill(os.getpid(), signal.SIGKILL)": "MeasurementError rank 1 (gpu1) was killed by SIGKILL",
    "os.kill(os.getpid(), signal.SIGSEGV)": "MeasurementError rank 1 (gpu1) was killed by SIGSEGV",
    "os.kill(os.getpid(), signal.SIGSTOP)": (
        "MeasurementError rank 1 (gpu1) is stopped and did not go on"
    ),
    "raise MemoryError": "MeasurementError rank 1 (gpu1) ran out of memory; plan smaller sizes",
    'raise RuntimeError("can\'t start new thread")': (
        "MeasurementError rank 1 (gpu1) ran out of memory; plan smaller sizes"
    ),
    "os._exit(7)": "MeasurementError rank 1 (gpu1) ended with status 7",
    "raise ValueError('odd')": "MeasurementError rank 1 (gpu1): ValueError: odd (<string>:",
    "raise InputError('bad', remedy='mend it')": "InputError bad; mend it",
    "raise FormatError('cut', where=Where(file='a', line=3))": "FormatError a:3: cut",
    "raise InputError('x' * 9000)": "InputError " + "x" * 1000,
    "place.promise(0.1); time.sleep(1000)": (
        "MeasurementError rank 1 (gpu1) gave no sign of life in time"
    ),
}


@pytest.mark.parametrize("deed", ENDS)
def test_the_end_is_told_and_nobody_is_left(deed: str) -> None:
    lines = told(f"""
        def work(place):
            others_wait(place)
            {deed}
        run(work)
    """)
    assert len(lines) == 2
    assert lines[0].startswith(ENDS[deed])
    assert lines[1] == "nobody is left"


def test_the_cause_is_told_and_not_what_came_of_it() -> None:
    # Ranks 0 and 2 complain of rank 1 before the parent has noticed that it is dead.
    lines = told("""
        reading, writing = os.pipe()
        def work(place):
            if place.rank == 1:
                os.write(writing, b"xx")
                os.kill(os.getpid(), signal.SIGKILL)
            os.read(reading, 1)
            error = MeasurementError("rank 1 did not answer")
            error.others_fault = True
            raise error
        run(work)
    """)
    assert lines == [KILLED, "nobody is left"]


def test_who_aborts_for_another_ones_death_is_not_blamed() -> None:
    lines = told("""
        reading, writing = os.pipe()
        def work(place):
            if place.rank == 1:
                os.write(writing, b"xx")
                os.kill(os.getpid(), signal.SIGKILL)
            os.read(reading, 1)
            os.abort()
        run(work)
    """)
    assert lines == [KILLED, "nobody is left"]


def test_an_own_fault_comes_before_a_complaint() -> None:
    lines = told("""
        reading, writing = os.pipe()
        def work(place):
            if place.rank == 1:
                os.write(writing, b"xx")
                raise InputError("no room")
            os.read(reading, 1)
            error = MeasurementError("rank 1 did not answer")
            error.others_fault = True
            raise error
        run(work)
    """)
    assert lines == ["InputError no room", "nobody is left"]


def test_of_complaints_the_one_of_rank_0_is_told() -> None:
    lines = told("""
        reading, writing = os.pipe()
        def work(place):
            if place.rank == 0:
                os.read(reading, 1)
            else:
                os.write(writing, b"x")
            error = MeasurementError(f"rank {place.rank} complains")
            error.others_fault = True
            raise error
        run(work)
    """)
    assert lines == ["MeasurementError rank 0 complains", "nobody is left"]


def test_who_was_stopped_for_a_moment_goes_on() -> None:
    lines = told("""
        def work(place):
            if place.rank == 0:
                time.sleep(0.05)
                if os.fork() == 0:
                    time.sleep(0.05)
                    os.kill(os.getppid(), signal.SIGCONT)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGSTOP)
                os.wait()
                print("went on", flush=True)
        launch(work, 2, quiet_s=30.0)
        print("done")
    """)
    assert lines == ["went on", "done"]


def test_sigterm_ends_children_too() -> None:
    lines = told("""
        def work(place):
            if place.rank == 2:
                os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(1000)
        try:
            run(work)
        except SystemExit as stop:
            print(stop.code)
        tell_who_is_left()
    """)
    assert lines == ["143", "nobody is left"]


def test_no_process_is_no_launch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 processes"):
        launch(lambda place: None, 0)


# Places by the variables of others.


def place(rank: int, size: int, local_rank: int, local_size: int) -> Place:
    return Place(
        rank=rank, size=size, local_rank=local_rank, local_size=local_size, meeting="env://"
    )


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"RANK": "3"}, None),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            place(3, 8, 1, 2),
        ),
        ({"RANK": "0", "WORLD_SIZE": "1"}, place(0, 1, 0, 1)),
        (
            {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"},
            place(5, 8, 1, 1),
        ),
        # A batch script by itself is no task among many.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}, None),
        # torchrun inside of srun: torchrun's word counts.
        (
            {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
            place(1, 2, 0, 1),
        ),
    ],
)
def test_places_by_the_environment(variables: dict[str, str], found: Place | None) -> None:
    assert place_from_environment(variables) == found


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "8", "WORLD_SIZE": "8"},
        {"RANK": "-1", "WORLD_SIZE": "8"},
        {"RANK": "one", "WORLD_SIZE": "8"},
        {"RANK": "0", "WORLD_SIZE": ""},
        {"RANK": "0", "WORLD_SIZE": "9" * 5000},
    ],
)
def test_variables_that_make_no_sense(variables: dict[str, str]) -> None:
    with pytest.raises(InputError):
        place_from_environment(variables)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("gpu[03-07,12],login1", "gpu03"),
        ("gpu[3,5-7]", "gpu3"),
        ("rack2-[10-12]-ib", "rack2-10-ib"),
        ("", ""),
    ],
)
def test_first_node_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


def test_srun_says_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_JOB_ID": "123456",
        "SLURM_STEP_ID": "2",
        "SLURM_STEP_NODELIST": "gpu[03-04]",
        "SLURM_STEP_NUM_NODES": "2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")  # So that it is put back afterwards.
    monkeypatch.delenv("MASTER_PORT")
    monkeypatch.setenv("MASTER_ADDR", "x")
    monkeypatch.delenv("MASTER_ADDR")
    found = place_from_environment()
    assert found == place(5, 8, 1, 1)
    import os

    assert os.environ["MASTER_ADDR"] == "gpu03"
    assert 20_000 <= int(os.environ["MASTER_PORT"]) < 32_000

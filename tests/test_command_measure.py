"""``topocal measure`` and ``measure.run_plan``, with real messages between real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from real_messages import PATIENCE_S, free_port

from topocal.cli import command_line
from topocal.measure.calibration import read_calibration
from topocal.measure.patterns import PatternKind, both_ways, bundle, fan_in, peer, relay
from topocal.measure.plan import Plan, PlannedPattern, fingerprint, write_plan
from topocal.measure.provenance import check_provenance
from topocal.measure.samples import Sample
from topocal.topo.errors import TopocalError
from topocal.topo.flow import Pattern
from topocal.topo.io import write_topology
from topocal.topo.machines import build_machine

pytest.importorskip("torch", reason="measuring needs torch")

QUICK = ("--timeout", "60s", "--min-duration", "1ms", "--backend", "gloo")


def plan_of(patterns: Sequence[Pattern], rounds: Sequence[Sequence[int]], **more: Any) -> Plan:
    """A plan by hand, of the machine b70."""
    # The first is no multiple of the words that payloads are compared by.
    sizes = more.pop("sizes_bytes", (1001.0, 2.0**16))
    return Plan(
        machine="b70",
        topology_sha256=fingerprint(build_machine("b70")),
        endpoints=more.pop("endpoints", ENDS),
        sizes_bytes=sizes,
        repeats=more.pop("repeats", 3),
        warm_ups=1,
        clear_ratio=1.4,
        patterns=tuple(
            PlannedPattern(
                flows=tuple(p.pairs), reasons=(), seconds=0.01, memory_bytes=2.0 * sizes[-1]
            )
            for p in patterns
        ),
        rounds=tuple(tuple(members) for members in rounds),
        resources=(),
    )


ENDS = ("gpu0", "gpu1", "gpu4")
SMALL = plan_of(
    [
        fan_in("gpu0", ["gpu1", "gpu4"]),
        relay(["gpu0", "gpu1", "gpu4"]),
        peer("gpu4", "gpu1"),
    ],
    [[0], [1], [2]],
)


def run(folder: Path, *arguments: str, status: int = 0, **environment: str) -> tuple[str, str]:
    """What a command prints, on either stream."""
    found = subprocess.run(
        [sys.executable, "-m", "topocal", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == status, (found.stdout, found.stderr)
    return found.stdout, found.stderr


def assert_is_whole(plan: Plan, samples: Sequence[Sample], issues: Sequence[str]) -> None:
    """Every scenario has its repeats, and every sample its times."""
    for planned in plan.patterns:
        for size in plan.sizes_bytes:
            for issue in issues:
                ours = [
                    s
                    for s in samples
                    if s.name == planned.name
                    and s.pattern.flows[0].size_bytes == size
                    and s.issue == issue
                ]
                assert len(ours) >= plan.repeats - 1  # A doubtful one may be set aside.
                assert len({s.repeat for s in ours}) == len(ours)
    for sample in samples:
        assert sample.flow_finish_s is not None
        assert sample.endpoint_start_s is not None
        assert sample.endpoint_end_s is not None
        assert min(sample.endpoint_start_s) == 0.0
        assert max(sample.endpoint_end_s) == pytest.approx(sample.seconds)
        assert 0 < max(sample.flow_finish_s) <= sample.seconds * (1 + 1e-9)
        assert sample.round is not None


def assert_short_ones_last(samples: Sequence[Sample], aside: Sequence[Sample]) -> None:
    """What is timed runs as often as some warm-up of it did, and by one of them for 1 ms."""

    def kind(sample: Sample) -> tuple[str, str, float]:
        return sample.name, sample.issue, sample.pattern.flows[0].size_bytes

    for sample in samples:
        warm = [s for s in aside if s.set_aside == "warm-up" and kind(s) == kind(sample)]
        assert sample.iterations in {s.iterations for s in warm}
        # It need not run again for less than half as often again.
        assert any(1.501e3 * sample.iterations * s.seconds >= 1 for s in warm)


def test_a_plan_in_processes_started_here(tmp_path: Path) -> None:
    write_plan(SMALL, tmp_path / "plan.json")
    write_topology(build_machine("b70"), tmp_path / "topology.json")
    out, errors = run(
        tmp_path,
        *("measure", "plan.json", "-o", "cal.json", "--spawn", "3", "-t", "topology.json"),
        *("--issue", "both", "--json", *QUICK),
    )
    assert errors == ""
    summary = json.loads(out)
    found = read_calibration(tmp_path / "cal.json")
    assert summary["samples"] == len(found.samples)
    assert summary["patterns"] == 3
    assert summary["set_aside"]["warm-up"] >= 2 * (3 + 2)
    assert_is_whole(SMALL, found.samples, ["group", "one-by-one"])
    (run_,) = found.runs
    check_provenance(run_.provenance)
    assert run_.provenance["backend"] == "gloo"
    assert run_.provenance["ranks"] == ["gpu0", "gpu1", "gpu4"]
    assert run_.provenance["placement"] == {"gpu0": "0", "gpu1": "0", "gpu4": "0"}
    assert run_.provenance["verified"] is True
    # Each of the three sends and receives, and so has two buffers to copy between.
    assert run_.provenance["local_copy_Bps"].keys() == {"gpu0", "gpu1", "gpu4"}
    assert summary["relays"] == {}  # One host, and nothing that leaves it.
    assert run_.provenance["libraries"]["torch"]
    assert run_.provenance["environment"]["GLOO_SOCKET_IFNAME"] == "lo"
    assert "issue" not in run_.provenance
    assert_short_ones_last(found.samples, found.set_aside)
    assert not (tmp_path / "cal.json.journal").exists()
    # There is nothing to go on with: what is complete stays as it is.
    content = (tmp_path / "cal.json").read_bytes()
    run(tmp_path, "measure", "plan.json", "-o", "cal.json", "--spawn", "3", "--resume", *QUICK)
    assert (tmp_path / "cal.json").read_bytes() == content
    # Of a plan that asks for more it is not complete, and stays as well.
    write_plan(plan_of([both_ways("gpu0", "gpu4")], [[0]]), tmp_path / "other.json")
    _, errors = run(
        tmp_path,
        *("measure", "other.json", "-o", "cal.json", "--spawn", "3", "--resume", *QUICK),
        status=2,
    )
    assert errors == (
        "topocal: cal.json: is complete, and not of this plan: it lacks gpu0<->gpu4 of 1 kB; "
        "write elsewhere\n"
    )
    assert (tmp_path / "cal.json").read_bytes() == content


@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_torch_that_cannot_be_loaded_is_told(tmp_path: Path, error: str) -> None:
    """As of a build for another processor, or without a library it wants."""
    write_plan(SMALL, tmp_path / "plan.json")
    (tmp_path / "torch.py").write_text(f"raise {error}('libc10.so: cannot open shared object')")
    _, errors = run(
        tmp_path,
        *("measure", "plan.json", "-o", "cal.json", "--spawn", "3", *QUICK),
        status=2,
        PYTHONPATH=str(tmp_path),
    )
    assert errors == (
        "topocal: torch cannot be loaded: libc10.so: cannot open shared object; "
        "try python -c 'import torch', and install a build for this machine\n"
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"plan.json", "torch.py", "__pycache__"}


@pytest.mark.heavy
def test_patterns_of_one_round_run_at_the_same_time(tmp_path: Path) -> None:
    #   Two pairs that share nothing, in one round; the other round has each by itself.
    plan = plan_of(
        [peer("gpu0", "gpu1"), peer("gpu4", "gpu5"), bundle([("gpu0", "gpu4"), ("gpu1", "gpu5")])],
        [[0, 1], [2]],
        endpoints=("gpu0", "gpu1", "gpu4", "gpu5"),
        sizes_bytes=(2.0**20,),
        repeats=2,
    )
    write_plan(plan, tmp_path / "plan.json")
    # Nobody reads on after the first line, which ends nothing.
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "topocal", "measure", "plan.json", "-o", "cal.json"),
            *("--spawn", "4", "--no-verify", *QUICK),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out = process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=PATIENCE_S) == 0
    # A buffer of 1 MiB each to send from and to receive into; gpu1 and gpu4 do either at times.
    assert "buffers: 2 MiB on rank 1 (gpu1), 6 MiB in all" in out
    found = read_calibration(tmp_path / "cal.json")
    assert {(s.name, s.round) for s in found.samples} == {
        ("gpu0->gpu1", 0),
        ("gpu4->gpu5", 0),
        ("gpu0->gpu4 + gpu1->gpu5", 1),
    }
    assert found.runs[0].provenance["verified"] is False


def test_ranks_that_torchrun_started(tmp_path: Path) -> None:
    write_plan(SMALL, tmp_path / "plan.json")
    found = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-addr", "127.0.0.1", "--master-port", str(free_port())),
            *("-m", "topocal", "measure", "plan.json", "-o", "cal.json"),
            *("--endpoints", "4,1", *QUICK),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("left out 2 patterns of endpoints that are not in the group") == 1
    assert found.stdout.endswith("in it; 2 of the plan's 3 patterns are not\n")
    samples = read_calibration(tmp_path / "cal.json")
    assert {s.name for s in samples.samples} == {"gpu4->gpu1"}
    assert samples.runs[0].provenance["ranks"] == ["gpu4", "gpu1"]
    assert len(samples.samples) >= 2 * 2


JOB = """
    import json, os, sys
    from topocal.measure.launch import launch

    def work(place):
        import torch, torch.distributed as dist
        import topocal as tc
        from topocal.measure.calibration import write_calibration
        from topocal.measure.coordinator import Settings
        from topocal.measure.plan import read_plan

        where = {"rank": place.rank, "world_size": place.size}
        dist.init_process_group(init_method=place.meeting, **where)
        # Global ranks 3, 1, 2 are ranks 1, 2 and so on of a group; rank 0 is not in it.
        group = dist.new_group([1, 2, 3])
        plan = read_plan("plan.json")
        if place.rank != 0:
            settings = Settings(shortest_s=1e-3, timeout_s=60.0)
            found = tc.run_plan(plan, group, issue="one-by-one", settings=settings)
            assert (found is None) == (place.rank != 1)
            if found is not None:
                write_calibration(found, "cal.json")
        # The job goes on: everybody's group, and the measured one, are as before.
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == 4
        if place.rank != 0:
            dist.all_reduce(total, group=group)
            assert total.item() == 12
        dist.destroy_process_group()

    import torch
    launch(work, 4)
"""


@pytest.mark.heavy
def test_inside_a_running_job_on_a_group_of_its_own(tmp_path: Path) -> None:
    write_plan(SMALL, tmp_path / "plan.json")
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOB)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    samples = read_calibration(tmp_path / "cal.json")
    assert_is_whole(SMALL, samples.samples, ["one-by-one"])
    assert samples.runs[0].provenance["ranks"] == ["gpu0", "gpu1", "gpu4"]
    assert samples.runs[0].provenance["issue"] == "one-by-one"
    # A group without a backend of its own name has one for each kind of device.
    assert samples.runs[0].provenance["backend"] == "gloo"
    assert {s.kind for s in samples.samples} == {
        PatternKind.FAN_IN,
        PatternKind.RELAY,
        PatternKind.PEER,
    }


AS_ON_DEVICES = """
    from topocal.measure.calibration import write_calibration
    from topocal.measure.coordinator import Settings
    from topocal.measure.distributed import Session, ensure_torch, take_part
    from topocal.measure.launch import launch
    from topocal.measure.plan import read_plan

    ensure_torch()
    from topocal.measure.worker import Member

    class AsOnDevices(Member):
        "Goes the way of device memory, though its own is the host's."

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self._device.kind = "pretended"

    plan = read_plan("plan.json")
    settings = Settings(issues=("group", "one-by-one"), timeout_s=60.0, shortest_s=1e-3)
    session = Session(names=plan.endpoints, subject="plan", settings=settings)

    def work(place):
        take_part(
            place, session, lambda m: write_calibration(m.run(plan), "cal.json"),
            backend="gloo", member_class=AsOnDevices,
        )

    launch(work, 3, names=session.names)
"""


@pytest.mark.heavy
def test_the_way_of_devices_gone_in_host_memory(tmp_path: Path) -> None:
    #   Messages that cross, that go round, and that meet: none waits for ever, all bytes are
    #   right, and arrivals are those of the whole batch where only that can be seen.
    plan = plan_of(
        [
            both_ways("gpu0", "gpu4"),
            relay(["gpu0", "gpu1", "gpu4"]),
            fan_in("gpu1", ["gpu4", "gpu0"]),
            bundle([(a, b) for a in ENDS for b in ENDS if a != b]),
        ],
        [[0], [1], [2], [3]],
        repeats=2,
    )
    write_plan(plan, tmp_path / "plan.json")
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AS_ON_DEVICES)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    samples = read_calibration(tmp_path / "cal.json").samples
    assert_is_whole(plan, samples, ["group", "one-by-one"])
    assert {s.kind for s in samples} == {
        PatternKind.BOTH_WAYS,
        PatternKind.RELAY,
        PatternKind.FAN_IN,
        PatternKind.BUNDLE,
    }


#   What is asked for, and what is said about it.
REFUSED = {
    "nothing starts them": ([], "nothing says how many processes measure; start them here with"),
    "too few": (["--spawn", "1"], "--spawn 1; transfers need two processes or more"),
    "too many": (["--spawn", "4"], "3 endpoints of the machine for 4 processes; start one"),
    "unknown endpoint": (["--spawn", "2", "--endpoints", "0,9"], "unknown endpoint"),
    "one twice": (["--spawn", "2", "--endpoints", "0,0"], "an endpoint stands for two ranks"),
    "issue": (
        ["--spawn", "3", "--issue", "loudly"],
        "no --issue 'loudly'; choose one of group, one-by-one",
    ),
    "timeout": (["--spawn", "3", "--timeout", "0s"], "--timeout 0s; give more than nothing"),
    "no duration": (["--spawn", "3", "--timeout", "soon"], "soon"),
    "other machine": (["--spawn", "3", "-t", "dgx-h100"], "is a plan for another machine than"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_makes_no_sense_is_refused(tmp_path: Path, kind: str) -> None:
    arguments, words = REFUSED[kind]
    write_plan(SMALL, tmp_path / "plan.json")
    with pytest.raises(TopocalError) as caught:
        command_line()(
            ["measure", str(tmp_path / "plan.json"), "-o", str(tmp_path / "cal.json"), *arguments],
            standalone_mode=False,
        )
    assert words in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json"]


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("smoke", "knows no backend 'smoke'; use gloo, nccl or xccl"),
        ("mpi", "was built without mpi; use gloo, or install a build of torch with mpi"),
        ("ucc", "was built without ucc; use gloo"),
    ],
)
def test_a_backend_that_is_not_there(tmp_path: Path, backend: str, words: str) -> None:
    from torch import distributed

    if getattr(distributed, f"is_{backend}_available", lambda: False)():
        pytest.skip(f"this build of torch has {backend}")
    write_plan(SMALL, tmp_path / "plan.json")
    _, errors = run(
        tmp_path,
        *("measure", "plan.json", "-o", "cal.json", "--spawn", "3", "--backend", backend),
        status=2,
    )
    assert words in errors
    assert len(errors.splitlines()) == 1


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    write_plan(SMALL, tmp_path / "plan.json")
    script = (
        "import sys; sys.modules['torch'] = None; import importlib.util as u;"
        "find = u.find_spec; u.find_spec = lambda n, *a: None if n == 'torch' else find(n, *a);"
        "from topocal.cli import main; sys.argv = ['topocal', *sys.argv[1:]]; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, "measure", "plan.json", "-o", "cal.json", "--spawn", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 2
    assert found.stderr == (
        "topocal: measuring needs torch, which is not installed; pip install 'topocal[measure]'\n"
    )


@pytest.mark.gpu
def test_between_devices(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available() and torch.cuda.device_count() >= 2:
        backend = "nccl"
    elif hasattr(torch, "xpu") and torch.xpu.is_available() and torch.xpu.device_count() >= 2:
        backend = "xccl"
    else:
        pytest.skip("needs two CUDA or XPU devices")
    plan = plan_of(
        [peer("gpu0", "gpu1"), relay(["gpu0", "gpu1"])],
        [[0], [1]],
        endpoints=("gpu0", "gpu1"),
        sizes_bytes=(4096.0, 2.0**24),
    )
    write_plan(plan, tmp_path / "plan.json")
    run(
        tmp_path,
        *("measure", "plan.json", "-o", "cal.json", "--spawn", "2", "--backend", backend),
        *("--issue", "both"),
    )
    found = read_calibration(tmp_path / "cal.json")
    assert found.runs[0].provenance["backend"] == backend
    assert found.runs[0].provenance["devices"][0] != "host memory"
    assert_is_whole(plan, found.samples, ["group", "one-by-one"])

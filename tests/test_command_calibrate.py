"""``topocal calibrate``: the loop of measuring and fitting, simulated and with real messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real_messages import PATIENCE_S, batches, children, pausing_after, wait_for_batches

from topocal.calibration import Calibration, simulated_machine
from topocal.cli import command_line
from topocal.measure.calibration import read_calibration
from topocal.measure.machine import Machine
from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.model import read_model, write_model
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, TopocalError
from topocal.topo.io import write_topology
from topocal.topo.resource import LinkKind, NodeKind, Resource, Use
from topocal.topo.topology import Topology

GB = 1e9


def tree() -> Topology:
    """Four GPUs behind two switches, whose uplinks meet in one socket."""
    builder = TopologyBuilder("tree")
    builder.node("cpu0", NodeKind.SOCKET)
    for k in range(2):
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        builder.connect(f"switch{k}", "cpu0", LinkKind.PCIE, nominal_Bps=40 * GB)
    for k in range(4):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k)
        builder.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=28 * GB)
    return builder.build()


TRUE_BPS = {"gpu1->switch0": 20 * GB, "cpu0->switch1": 33 * GB}
"""What is slower than the specification says."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_topology(tree(), tmp_path / "tree.json")
    return tmp_path


def run(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    found = subprocess.run(
        [sys.executable, "-m", "topocal", "calibrate", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == status, (found.stdout, found.stderr)
    return found.stdout, found.stderr


class Truth:
    """The tree as it really is."""

    def __init__(self) -> None:
        self.machine = SimulatedMachine(
            topology=tree(), capacities=Capacities.of(tree(), TRUE_BPS), noise=0.003
        )
        self.rng = np.random.default_rng(5)
        self.plans: list[Plan] = []

    def run(self, plan: Plan) -> Measurements:
        self.plans.append(plan)
        return self.machine.run(plan, self.rng)


def calibration(folder: Path, **more: object) -> Calibration:
    options: dict[str, object] = {
        "topology": tree(),
        "endpoints": ("gpu0", "gpu1", "gpu2", "gpu3"),
        "sizes_bytes": (2.0**24, 2.0**28),
        "repeats": 5,
        "rounds": 4,
        "model": folder / "model.json",
        "samples": folder / "cal.json",
    }
    return Calibration(**(options | more))  # type: ignore[arg-type]  # By name, as the class checks.


def test_the_loop_finds_what_is_slower_than_it_should_be(tmp_path: Path) -> None:
    truth = Truth()
    machine: Machine = truth
    said: list[str] = []
    step = calibration(tmp_path).run(machine, said.append)
    for name, rate in TRUE_BPS.items():
        fitted = step.model.resources[name].capacity_Bps
        assert fitted == pytest.approx(rate, rel=0.02), name
    assert len(said) == len(truth.plans)
    assert said[0].startswith(f"round 1: {len(truth.plans[0].patterns)} patterns; ")
    # What is on disk is what was returned, every timing of every round.
    assert len(read_calibration(tmp_path / "cal.json").samples) == sum(
        len(p.patterns) * len(p.sizes_bytes) * p.repeats for p in truth.plans
    )
    again = read_model(tmp_path / "model.json")
    assert again.resources.keys() == step.model.resources.keys()


def test_a_fitted_model_can_answer(tmp_path: Path) -> None:
    truth = Truth()
    step = calibration(tmp_path, rounds=2).run(truth, lambda _: None)
    write_model(step.model, tmp_path / "fitted.json")
    machine = simulated_machine(str(tmp_path / "fitted.json"), noise=0.0, seed=0)
    ours = {s.name: s.seconds for s in machine.run(truth.plans[0]).samples}
    true = {p.name: p.pattern.scaled(2.0**28) for p in truth.plans[0].patterns}
    seconds = truth.machine.true_seconds(list(true.values()))
    for name, expected in zip(true, seconds.tolist(), strict=True):
        assert ours[name] == pytest.approx(expected, rel=0.05), name


def test_simulated_from_the_command_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--sizes", "16MiB,256MiB", "--rounds", "1", "--simulate", "tree.json")
    out, errors = run(folder, "tree.json", "-o", "model.json", *options)
    assert errors == ""
    assert "round 1: " in out
    assert "wrote model.json and model.calibration.json" in out
    assert (folder / "model.calibration.json").exists()
    first = (folder / "model.json").read_bytes()
    monkeypatch.chdir(folder)
    command_line()(
        ["calibrate", "tree.json", "-o", "b.json", *options, "--seed", "0", "--json"],
        standalone_mode=False,
    )
    assert (folder / "b.json").read_bytes() == first
    assert json.loads(capsys.readouterr().out)["format"] == "topocal/model"


#   What is asked for, and what is said about it.
REFUSED = {
    "nothing measures": ([], "nothing says how many processes measure"),
    "both": (["--simulate", "tree.json", "--spawn", "4"], "--spawn does nothing with --simulate"),
    "unknown machine": (["--simulate", "nothing"], "no file and no reference machine 'nothing'"),
    "no speeds": (["--simulate", "b70"], "b70 cannot answer: "),
    "noise": (["--simulate", "tree.json", "--noise", "2"], "a noise of 2.0; give a share"),
    "rounds": (["--simulate", "tree.json", "--rounds", "0"], "--rounds 0; give one or more"),
    "issue": (["--spawn", "4", "--issue", "both"], "--issue both; a model is of one of"),
    "one endpoint": (["--simulate", "tree.json", "--endpoints", "0"], "endpoint"),
    "processes": (["--spawn", "3"], "4 endpoints of the machine for 3 processes"),
    "repeats": (["--simulate", "tree.json", "--repeats", "0"], "repeats"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_makes_no_sense_is_refused(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, words = REFUSED[kind]
    monkeypatch.chdir(folder)
    with pytest.raises(TopocalError) as caught:
        command_line()(
            ["calibrate", "tree.json", "-o", "model.json", *arguments], standalone_mode=False
        )
    assert words in str(caught.value)
    assert sorted(p.name for p in folder.iterdir()) == ["tree.json"]


def test_there_must_be_something_to_measure(tmp_path: Path) -> None:
    class Idle:
        def run(self, plan: Plan) -> Measurements:
            raise InputError("asked")

    with pytest.raises(InputError, match="asked"):
        calibration(tmp_path).run(Idle(), lambda _: None)
    assert list(tmp_path.iterdir()) == []


REAL = (
    *("tree.json", "-o", "model.json", "--endpoints", "0,1,2", "--spawn", "3"),
    *("--sizes", "64KiB", "--repeats", "2", "--rounds", "1", "--backend", "gloo"),
    *("--timeout", "60s", "--min-duration", "1ms"),
)


def test_what_a_fit_adds_makes_it_no_other_machine(folder: Path) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    # One sender passes less to its neighbour than its link, which no link can say.
    slow = Use(resource="slow", sources=("gpu1",), destinations=("gpu0",))
    true = tree().with_resources([Resource(id="slow")], [slow])
    machine = SimulatedMachine(
        topology=true, capacities=Capacities.of(true, {"slow": 6 * GB}), noise=0.003
    )
    rng = np.random.default_rng(5)

    class Slow:
        def run(self, plan: Plan) -> Measurements:
            return machine.run(plan, rng)

    samples = folder / "model.calibration.json"
    step = calibration(folder, samples=samples, rounds=2).run(Slow(), lambda _: None)
    assert set(step.model.topology.resources) - set(tree().resources)
    out, _ = run(folder, "tree.json", *REAL[1:3], "--spawn", "4", "--resume")
    assert out == "model.json and model.calibration.json are complete\n"


@pytest.mark.heavy
def test_with_real_messages_cut_off_and_gone_on_with(folder: Path) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    process = subprocess.Popen(
        pausing_after(3, "calibrate", *REAL),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = folder / "model.calibration.json.journal"
    wait_for_batches(process, journal, 3)
    os.kill(children(process)[2], signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert errors == (
        "topocal: rank 2 (gpu2) was killed by SIGKILL; if nobody did, the kernel was out of "
        "memory: see dmesg; what was measured is in model.calibration.json.journal; "
        "go on with --resume\n"
    )
    kept = {timing["seconds"] for line in batches(journal) for timing in line["samples"]}
    out, errors = run(folder, *REAL, "--resume")
    assert errors == ""
    assert "round 1: " in out
    assert not journal.exists()
    found = read_calibration(folder / "model.calibration.json")
    assert kept <= {s.seconds for s in (*found.samples, *found.set_aside)}
    (run_,) = found.runs
    assert run_.provenance["ranks"] == ["gpu0", "gpu1", "gpu2"]
    assert all(s.run == 0 for s in found.samples)
    # What is complete is left as it is.
    before = (folder / "model.json").read_bytes()
    out, _ = run(folder, *REAL, "--resume")
    assert out == "model.json and model.calibration.json are complete\n"
    assert (folder / "model.json").read_bytes() == before
    _, errors = run(folder, "dgx-h100", *REAL[1:], "--resume", status=2)
    assert errors == (
        "topocal: model.json: is complete, and a model of another machine; write elsewhere\n"
    )
    assert (folder / "model.json").read_bytes() == before
    model = read_model(folder / "model.json")
    assert model.topology.accelerators == ("gpu0", "gpu1", "gpu2", "gpu3")


def test_a_calibration_that_ends_early_says_why(tmp_path: Path) -> None:
    """Two cards of eight: only the two links of each to the NVSwitch are on their routes."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "topocal", "calibrate", "dgx-h100", "-o", "model.json"),
            *("--simulate", "dgx-h100", "--endpoints", "0,1", "--sizes", "1MiB,64MiB"),
            *("--repeats", "3"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    said = " ".join(ran.stdout.split())
    assert "nothing more can be told by measuring between these endpoints: 82 of 86" in said
    assert "resources are crossed by no transfer" in said

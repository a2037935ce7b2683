"""The whole chain with real gloo messages on a fabric whose capacities are known.

These take a quiet machine: figures are judged by medians and quantiles, never by the worst
one, and a check that fails is tried again (:mod:`quiet_machine`).
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from quiet_machine import patiently
from real_messages import PATIENCE_S

from topocal.fabrics import find_shape, plan_of, with_faults
from topocal.measure.calibration import read_calibration
from topocal.measure.fabric.emulated import Fabric
from topocal.measure.patterns import fan_in, fan_out, relay
from topocal.measure.plan import write_plan
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.link_costs import link_costs
from topocal.solve.model import Model, read_model
from topocal.solve.predict import predict
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import EmulationError
from topocal.topo.flow import Pattern
from topocal.topo.io import write_topology
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

pytestmark = [
    pytest.mark.alone,
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

MiB = 2.0**20
HELD_OUT = 11
"""So many that one bad one does not move the ninth decile."""

CALIBRATE = r"""
import json, sys
from pathlib import Path
from topocal.calibration import Calibration
from topocal.fabrics import SIZES_BYTES, find_shape, on_fabric, plan_of, with_faults
from topocal.measure.calibration import write_calibration
from topocal.measure.patterns import parse_pattern
like, endpoints, faults, patterns, rounds, folder = json.loads(sys.argv[1])
shape = with_faults(find_shape(like, endpoints=endpoints), **faults)
def work(machine):
    calibration = Calibration(
        topology=shape.topology,
        endpoints=shape.blueprint.endpoints,
        sizes_bytes=SIZES_BYTES,
        repeats=2,
        rounds=rounds,
        model=Path(folder) / "model.json",
        samples=Path(folder) / "calibration.json",
    )
    calibration.run(machine, print)
    held = plan_of(shape, [parse_pattern(p) for p in patterns], sizes_bytes=[2.0**21], repeats=2)
    write_calibration(machine.run(held), Path(folder) / "held-out.json")
on_fabric(shape, work)
"""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """One fabric at a time: two would share the cores that carry them."""
    with Path(__file__).with_name("test_emulated_fabric_live.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    """Skips everything, with the reason, where there can be no fabric."""
    try:
        with Fabric(find_shape("b70", endpoints="0,1").blueprint):
            pass
    except EmulationError as error:
        pytest.skip(str(error))


def run_python(script: str, *arguments: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(json.dumps, arguments)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def held_out(endpoints: Sequence[str]) -> list[Pattern]:
    """Fans of any root and width that no plan asked for."""
    rng = np.random.default_rng(5)
    found: dict[str, Pattern] = {}
    while len(found) < HELD_OUT:
        root = str(rng.choice(endpoints))
        others = [str(e) for e in rng.permutation(endpoints) if e != root]
        peers = others[: int(rng.integers(2, len(others)))]
        made = (fan_in if rng.random() < 0.5 else fan_out)(root, peers)
        found[made.name] = made
    return list(found.values())


def calibrated(
    tmp_path: Path, like: str, endpoints: str | None = None, **faults: list[str]
) -> tuple[Model, Measurements]:
    shape = find_shape(like, endpoints=endpoints)
    patterns = [p.name for p in held_out(shape.blueprint.endpoints)]
    run_python(CALIBRATE, [like, endpoints, faults, patterns, 2 if faults else 4, str(tmp_path)])
    return read_model(tmp_path / "model.json"), read_calibration(tmp_path / "held-out.json")


def errors_of_predictions(model: Model, measured: Measurements) -> list[float]:
    by_name: dict[str, list[Sample]] = {}
    for sample in measured.samples:
        by_name.setdefault(sample.name, []).append(sample)
    return [
        abs(
            median(s.seconds for s in samples) / predict(model, [samples[0].pattern])[0].seconds - 1
        )
        for samples in by_name.values()
    ]


def require_good_predictions(model: Model, measured: Measurements) -> None:
    errors = errors_of_predictions(model, measured)
    assert len(errors) == HELD_OUT
    assert median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.03


KNOWN = (Status.PINNED, Status.SERIES, Status.CONFOUNDED)


def require_capacities(model: Model, truth: dict[str, float], most: float = 0.05) -> None:
    wrong = {
        name: (model.resources[name].capacity_Bps, true, str(model.resources[name].status))
        for name, true in truth.items()
        if model.resources[name].capacity_Bps != pytest.approx(true, rel=most)
        or model.resources[name].status not in KNOWN
    }
    assert wrong == {}


SIX_OF_TWO_NODES = ",".join(f"node{n}/gpu{g}" for n in range(2) for g in range(3))


@pytest.mark.parametrize(("like", "endpoints"), [("b70", None), ("two-nodes", SIX_OF_TWO_NODES)])
def test_every_capacity_is_recovered_and_fans_are_predicted(
    like: str, endpoints: str | None, tmp_path: Path
) -> None:
    truth = find_shape(like, endpoints=endpoints).visible_Bps

    def check() -> None:
        model, measured = calibrated(tmp_path, like, endpoints)
        # In series, the one that stands for all of them carries what shows.
        stands_for = {
            name: model.resources[r.confounded_with[0]]
            for name in truth
            if (r := model.resources[name]).status is Status.SERIES
        }
        for name, other in stands_for.items():
            assert other.capacity_Bps == pytest.approx(truth[name], rel=0.05)
        require_capacities(model, truth)
        require_good_predictions(model, measured)

    patiently(check)


def test_a_slow_direction_a_half_duplex_link_and_a_hidden_limit(tmp_path: Path) -> None:
    faults = {
        "slow": ["switch3->socket1=0.6"],
        "half_duplex": ["gpu2->switch1"],
        "ingress": ["gpu5=35MB/s"],
    }
    shape = with_faults(find_shape("b70"), **faults)
    truth = shape.visible_Bps
    # A limit for all that an endpoint takes in is in series with its link, and shows as that.
    expected = {**truth, "switch2->gpu5": 35e6}
    # What only binds behind these two can be no more than bounded.
    for name in ("gpu2<->switch1", "gpu2->switch1", "switch1->gpu2", "socket1->switch2"):
        expected.pop(name, None)

    def check() -> None:
        model, measured = calibrated(tmp_path, "b70", **faults)
        require_capacities(model, {n: expected[n] for n in ("switch3->socket1", "switch2->gpu5")})
        close = [
            abs(model.resources[name].capacity_Bps / true - 1)  # type: ignore[operator]
            for name, true in expected.items()
            if model.resources[name].status is Status.PINNED
        ]
        assert len(close) >= 0.8 * len(expected)
        assert np.quantile(close, 0.9) < 0.05
        # Both directions share 60.5 MB/s, which is a resource of the fit, not of the topology.
        both = [r for name, r in model.resources.items() if name.endswith(".both-ways")]
        pool = shape.blueprint.truth["gpu2<->switch1"]
        assert any(
            r.capacity_Bps == pytest.approx(pool, rel=0.05)
            and {"gpu2", "gpu3"} & set(r.id.split("."))
            for r in both
        )
        require_good_predictions(model, measured)

    patiently(check)


# How receives are posted.

BOTH_MODES = r"""
import json, sys
from topocal.fabrics import find_shape, on_fabric
from topocal.measure.calibration import write_calibration
from topocal.measure.coordinator import Settings
from topocal.measure.design import design
machine_file, output = json.loads(sys.argv[1])
shape = find_shape(machine_file, scale=1.5, spread=0.01)
plan = design(shape.topology, sizes_bytes=(2.0**19, 3 * 2.0**19), repeats=2)
modes = Settings(issues=("group", "one-by-one"))
on_fabric(shape, lambda machine: write_calibration(machine.run(plan), output), settings=modes)
"""


def star_of_unlike_senders() -> Topology:
    """Three GPUs on a switch that send 24, 36 and 48 GB/s and take in 100."""
    build = TopologyBuilder("star")
    build.node("nvswitch0", NodeKind.NVSWITCH)
    for k, rate in enumerate((24e9, 36e9, 48e9)):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "nvswitch0", LinkKind.NVLINK, nominal_Bps=rate, back_Bps=100e9)
    return build.build()


def test_receives_that_are_posted_one_by_one_share_time(tmp_path: Path) -> None:
    """Together they share bytes, and a fan takes as long as its slowest sender; one after the
    other they share time, and a fan takes as long as all its senders would alone."""
    machine = tmp_path / "star.json"
    write_topology(star_of_unlike_senders(), machine)
    shape = find_shape(str(machine), scale=1.5, spread=0.01)

    def check() -> None:
        run_python(BOTH_MODES, [str(machine), str(tmp_path / "calibration.json")])
        measured = read_calibration(tmp_path / "calibration.json")
        models = {
            issue: fit(
                Measurements.of([s for s in measured.samples if s.issue == issue]), shape.topology
            )
            for issue in ("group", "one-by-one")
        }
        engines = {
            issue: [name for name in model.resources if name.endswith("receiver.engine")]
            for issue, model in models.items()
        }
        assert engines["group"] == []
        assert len(engines["one-by-one"]) == 3
        for name in engines["one-by-one"]:
            assert models["one-by-one"].resources[name].kappa == pytest.approx(1.0, abs=0.05)
        senders = {n: t for n, t in shape.visible_Bps.items() if n.endswith("->nvswitch0")}
        for model in models.values():
            for name, true in senders.items():
                assert model.resources[name].capacity_Bps == pytest.approx(true, rel=0.05)

    patiently(check)


# Two nodes.

AGENT = (
    "exec torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
    "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --local-addr $TOPOCAL_ADDRESS "
    "-m topocal measure plan.json -o calibration.json --no-verify"
)


def test_torchrun_on_two_nodes_meets_and_measures(tmp_path: Path) -> None:
    """An agent in each node's namespace, two ranks under each; what they find of the NICs."""
    ends = [f"node{n}/gpu{g}" for n in range(2) for g in range(2)]
    nics = "node0/nic0,node1/nic0"
    across = relay([ends[0], ends[2], ends[1], ends[3]])
    patterns = [relay(ends), across, fan_in(ends[0], ends[2:]), fan_out(ends[1], ends[2:])]
    shape = find_shape("two-nodes", endpoints=",".join(ends))
    write_plan(plan_of(shape, patterns, repeats=2), tmp_path / "plan.json")

    def check() -> None:
        command = [sys.executable, "-m", "topocal", "fabric", "--like", "two-nodes"]
        done = subprocess.run(
            [*command, "--endpoints", nics, "--first", "--", "sh", "-c", AGENT],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        costs = link_costs(read_calibration(tmp_path / "calibration.json"), shape.topology)
        truth = find_shape("two-nodes", endpoints=nics).visible_Bps
        into_0, into_1 = (truth[f"switch0->node{n}/nic0"] for n in range(2))
        (fan,) = costs["fan_in"]
        assert fan["root_receive_Bps"] == pytest.approx(into_0, rel=0.05)
        (fan,) = costs["fan_out"]
        assert fan["root_send_Bps"] == pytest.approx(into_1, rel=0.05)
        # In the ring 0 -> 1 -> 2 -> 3 -> 0 every process has one neighbour beside it and one on
        # the other node; in 0 -> 2 -> 1 -> 3 -> 0 both are on the other node.
        relays = {(r["receive_path"], r["send_path"]): r for r in costs["relay"]}
        assert {labels: r["processes"] for labels, r in relays.items()} == {
            ("intra_node", "inter_node"): 2,
            ("inter_node", "intra_node"): 2,
            ("inter_node", "inter_node"): 4,
        }
        # There two flows cross the network each way, and share what it passes.
        both = relays["inter_node", "inter_node"]["slowest_Bps"]
        assert both == pytest.approx(min(into_0, into_1) / 2, rel=0.05)

    patiently(check)

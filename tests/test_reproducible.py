"""The same data gives the same model: whatever the threads, the locale, the hash seed, the order.

Environments are tried in processes of their own, which print everything that a fit leads to.
"""

from __future__ import annotations

import json
import locale
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topocal as tc
from topocal.measure.design import design
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.fit import fit
from topocal.solve.model import Model, model_to_document
from topocal.topo.capacities import Capacities
from topocal.topo.topology import Topology

ROOT = Path(__file__).parents[1]
FILES = [str(ROOT / "examples" / "b70" / name) for name in ("pairs.csv", "fans.csv")]

EVERYTHING = """
import hashlib, locale, sys
import topocal as tc
from topocal.measure.design import design
from topocal.measure.plan import plan_to_document
from topocal.solve.caps_document import encode_caps
from topocal.solve.model import model_to_document
from topocal.topo.io import encode_document
locale.setlocale(locale.LC_ALL, "")
topology = tc.machines.b70()
model = tc.fit(tc.read_tables(sys.argv[1:]), topology)
ends = topology.accelerators
wanted = [tc.fan_in(ends[0], ends[1:], 2**28), tc.relay(ends, 1, 2**20)]
print(hashlib.sha256(encode_document(model_to_document(model))).hexdigest())
print(hashlib.sha256(encode_document(plan_to_document(design(topology)))).hexdigest())
print(hashlib.sha256(encode_caps(model.caps())).hexdigest())
print([(p.seconds.hex(), p.reason) for p in tc.predict(model, wanted)])
"""


def _everything(**environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", EVERYTHING, *FILES],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@cache
def _usual() -> str:
    return _everything(PYTHONHASHSEED="0")


def _made_locale(name: str, folder: Path) -> dict[str, str]:
    """An environment with a locale, made here where the system has its definition only."""
    try:
        before = locale.setlocale(locale.LC_ALL)
        locale.setlocale(locale.LC_ALL, f"{name}.UTF-8")
        locale.setlocale(locale.LC_ALL, before)
    except locale.Error:
        make = ["localedef", "-i", name, "-f", "UTF-8", str(folder / f"{name}.UTF-8")]
        try:
            subprocess.run(make, check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip(f"no locale {name} here, nor its definition")
        return {"LOCPATH": str(folder), "LC_ALL": f"{name}.UTF-8"}
    return {"LC_ALL": f"{name}.UTF-8"}


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "environment",
    [
        {**dict.fromkeys(THREADS, "1"), "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "1"},
        {**dict.fromkeys(THREADS, "7"), "NUMBA_NUM_THREADS": "2", "PYTHONHASHSEED": "12345"},
        {"TZ": "Asia/Kathmandu", "COLUMNS": "7", "PYTHONOPTIMIZE": "1", "LC_ALL": "C"},
    ],
    ids=lambda e: "-".join(f"{k}={v}" for k, v in e.items() if not k.startswith(("OPEN", "MKL"))),
)
def test_the_environment_does_not_count(environment: dict[str, str]) -> None:
    found = _everything(**environment)
    assert found.count("\n") == 4
    assert found == _usual()


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["tr_TR", "de_DE"])
def test_the_locale_does_not_count(name: str, tmp_path: Path) -> None:
    """Turkish has other capitals of i, German a comma in its figures."""
    assert _everything(**_made_locale(name, tmp_path)) == _usual()


@cache
def _measured() -> tuple[Topology, Measurements]:
    """A machine with stragglers, noise and a start-up time, at two sizes."""
    topology = tc.machines.b70()
    plan = design(topology, sizes_bytes=[2.0**20, 2.0**28])
    truth = SimulatedMachine(
        topology=topology,
        capacities=Capacities.of(topology, dict.fromkeys(topology.resources, 2.5e10)),
        noise=0.02,
        stragglers=0.05,
        alpha_s=2e-5,
    )
    return topology, truth.run(plan, np.random.default_rng(5))


def _content(model: Model) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(model_to_document(model)))
    return document


def _shuffled(seed: int) -> Measurements:
    _, measured = _measured()
    rng = random.Random(seed)
    samples = [*measured.samples, *measured.set_aside]
    rng.shuffle(samples)
    return Measurements.of(samples, measured.sources, measured.runs)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_samples_does_not_count(seed: int) -> None:
    topology, measured = _measured()
    assert _content(fit(_shuffled(seed), topology)) == _content(fit(measured, topology))


def test_a_fit_leaves_nothing_behind_that_the_next_one_sees() -> None:
    topology, measured = _measured()
    first = _content(fit(measured, topology))
    fit(tc.read_tables(FILES), tc.machines.b70())
    np.random.default_rng().random()
    assert _content(fit(measured, topology)) == first

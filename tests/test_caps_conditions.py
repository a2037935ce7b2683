"""Caps: the conditions they were measured under, and stale ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from caps_cases import B70, small

import topocal as tc
from topocal.measure.samples import Run
from topocal.solve.caps import Caps
from topocal.solve.conditions import Conditions, agreed
from topocal.solve.nominal_model import nominal_model
from topocal.topo import machines
from topocal.topo.errors import FormatError, InputError


@pytest.fixture(scope="module")
def caps() -> Caps:
    return nominal_model(small()).caps()


def test_ranks_of_the_calibration_number_the_processes() -> None:
    measured = tc.read_tables([str(B70 / "pairs.csv")])
    ranks = [f"gpu{k}" for k in (3, 2, 1, 0, 7, 6, 5, 4)]
    said = {"ranks": ranks, "backend": "xccl", "environment": {"CCL_ZE_IPC": "1"}, "run": "x7"}
    model = tc.fit(replace(measured, runs=(Run(provenance=said),)), machines.b70())
    found = model.caps()
    assert found.endpoints == tuple(ranks)
    assert found.calibration == Conditions(
        group_size=8, backend="xccl", settings={"CCL_ZE_IPC": "1"}
    )


def test_a_model_keeps_its_conditions(tmp_path: Path) -> None:
    model = replace(nominal_model(small()), provenance={"backend": "nccl", "hosts": 1})
    tc.write_model(model, tmp_path / "model.json")
    assert tc.read_model(tmp_path / "model.json").provenance == {"backend": "nccl", "hosts": 1}
    document = json.loads((tmp_path / "model.json").read_text())
    del document["digest"]
    text = json.dumps(document)
    (tmp_path / "bad.json").write_text(text.replace('"hosts": 1', '"hosts": -1'))
    with pytest.raises(FormatError, match="damaged model: ValueError provenance has hosts '-1'"):
        tc.read_model(tmp_path / "bad.json")
    old = json.loads(text)
    del old["provenance"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert tc.read_model(tmp_path / "old.json").provenance == {}


def test_conditions_that_runs_agree_on() -> None:
    one = Run(provenance={"backend": "nccl", "hosts": 1, "run": "a", "ranks": ("gpu0", "gpu1")})
    other = Run(provenance={"backend": "nccl", "hosts": 2, "ranks": ["gpu0", "gpu1"]})
    assert agreed([one, other]) == {"ranks": ["gpu0", "gpu1"], "backend": "nccl"}
    assert agreed([]) == {}


MEASURED = Conditions(group_size=8, backend="nccl", settings={"NCCL_P2P_LEVEL": "SYS"})


@pytest.mark.parametrize(
    ("transfer", "words"),
    [
        (Conditions(group_size=16), "group size 8 (the transfer has 16)"),
        (Conditions(backend="gloo"), "backend nccl (the transfer has gloo)"),
        (
            Conditions(settings={"NCCL_P2P_LEVEL": "PIX"}),
            "setting NCCL_P2P_LEVEL SYS (the transfer has PIX)",
        ),
        (
            Conditions(settings={"NCCL_ALGO": "Ring"}),
            "setting NCCL_ALGO not set (the transfer has Ring)",
        ),
        (
            Conditions(group_size=4, backend="ucc"),
            "group size 8 (the transfer has 4), backend nccl (the transfer has ucc)",
        ),
    ],
)
def test_stale_caps_are_refused_unless_allowed(
    transfer: Conditions, words: str, caps: Caps
) -> None:
    stale = replace(caps, calibration=MEASURED)
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        tc.price(stale, [(0, 1, 1e9)], under=transfer)
    assert "--allow-stale" in str(caught.value)
    found = tc.price(stale, [(0, 1, 1e9)], under=transfer, allow_stale=True)
    assert words in found.notes[0]
    with pytest.raises(InputError, match=re.escape(words)):
        tc.price_bounds(stale, tc.Totals(sent=np.ones(4), received=None), under=transfer)


def test_the_same_conditions_and_unknown_ones(caps: Caps) -> None:
    same = Conditions(group_size=8, backend="NCCL", settings={"NCCL_P2P_LEVEL": "SYS"})
    assert MEASURED.require_same(same) == ()
    assert MEASURED.require_same(Conditions()) == ()
    assert Conditions().require_same(Conditions()) == ()
    (note,) = Conditions(backend="nccl").require_same(same)
    assert "does not say its group size, settings" in note
    assert Conditions().completed(same) == same
    with pytest.raises(InputError, match="it had group size 8 and not 4"):
        MEASURED.completed(Conditions(group_size=4))


def test_settings_are_compared_as_they_are_kept() -> None:
    kept = Conditions(settings={"NCCL_TOPO_FILE": "topo.xml"})
    assert kept.require_same(Conditions(settings={"NCCL_TOPO_FILE": "/home/me/topo.xml"})) == ()


def test_what_a_calibration_file_says_of_its_group_reaches_the_caps(tmp_path: Path) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    records = [{"src": a, "dst": b, "bytes": 10**8, "seconds": 0.01} for a, b in pairs]
    document = {"tool": "calibrate_links", "schema": 2, "world_size": 4, "backend": "xccl"}
    path = tmp_path / "raw.json"
    path.write_text(json.dumps({**document, "peer": records}))
    found = tc.fit(tc.load(path)).caps()
    assert found.endpoints == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert found.calibration == Conditions(group_size=4, backend="xccl")
    with pytest.raises(InputError, match="group size 4"):
        tc.price(found, [(0, 1, 1e9)], under=Conditions(group_size=8))
    # One of another group is no repeat of it.
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**document, "world_size": 8, "peer": records}))
    with pytest.raises(InputError, match="differ in ranks"):
        tc.load([path, other])

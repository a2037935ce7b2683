"""The demo's live part where nothing real can be measured; where it can, see
test_emulated_fabric_gloo.py."""

from __future__ import annotations

import importlib.util
import json
from statistics import median

import pytest
from typer.testing import CliRunner

from topocal import live_demo
from topocal.cli import command_line
from topocal.measure.fabric.emulated import Fabric
from topocal.topo.errors import EmulationError


def refuse(self: Fabric) -> Fabric:
    raise EmulationError("no emulated fabric here: unshare: Operation not permitted", remedy="x")


def test_where_namespaces_are_refused_a_model_answers_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fabric, "__enter__", refuse)
    monkeypatch.setattr(live_demo, "find_spec", importlib.util.find_spec)
    said: list[str] = []
    live = live_demo.run_live(said.append)
    assert live.instead
    assert any("a model answers" in text for text in said)
    assert len(live.capacities) == 26
    assert median(abs(row.error or 1.0) for row in live.capacities) < 0.02
    # No plan had them, and they are of the truth that the fit has not seen.
    assert len(live.fans) == 3
    assert all(abs(fan.error) < 0.05 for fan in live.fans)


def test_without_torch_it_says_so_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_demo, "find_spec", lambda name: None)
    done = CliRunner().invoke(command_line(), ["demo", "--live", "--json"])
    assert done.exit_code == 0, done.output
    live = json.loads(done.stdout)["live"]
    assert live["real"] is False
    assert live["instead"] == "torch is not installed"
    assert {"resource", "true_Bps", "fitted_Bps", "error", "status"} == live["capacities"][0].keys()
    assert [fan["binds"] for fan in live["fans"]]
    done = CliRunner().invoke(command_line(), ["demo", "--live"])
    assert "a model in place of real messages" in " ".join(done.stdout.split())

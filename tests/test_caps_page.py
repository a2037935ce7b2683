"""The lines of docs/caps.md that price without topocal agree with ours, on machines of all laws."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topocal as tc
from topocal.measure.patterns import PatternKind
from topocal.solve.caps import Caps
from topocal.solve.caps_document import write_caps
from topocal.solve.fading import Crowd, Fading
from topocal.solve.nominal_model import nominal_model
from topocal.solve.price import price
from topocal.topo import machines
from topocal.topo.resource import Resource, Sharing, Use

ROOT = Path(__file__).parents[1]
B70 = ROOT / "examples" / "b70"

Theirs = Callable[[dict[tuple[int, int], float]], tuple[float, str]]


def lines() -> str:
    """The block of the page that defines the price, less its example."""
    page = (ROOT / "docs" / "caps.md").read_text()
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def price" in b]
    return str(block.split("seconds, busiest = price(")[0])


def theirs(caps: Caps, place: Path, monkeypatch: pytest.MonkeyPatch) -> Theirs:
    """The page's function on some caps, with nothing of ours in sight."""
    code = lines()
    assert "topocal" not in code
    monkeypatch.chdir(place)
    write_caps(caps, place / "caps.json")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/caps.md", "exec"), names)
    found: Theirs = names["price"]
    return found


def _b70() -> tc.Model:
    return tc.fit(tc.read_tables([str(B70 / "pairs.csv"), str(B70 / "fans.csv")]), machines.b70())


def _all_laws() -> tc.Model:
    """Eight cards of one node with an engine, a duplex, a fatpipe, and one that counts twice."""
    topology = machines.l40s().with_resources(
        [
            Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=0.9),
            Resource(id="both", sharing=Sharing.DUPLEX, nominal_Bps=30e9),
            Resource(id="path", sharing=Sharing.FATPIPE, nominal_Bps=4e9),
            Resource(id="staged", nominal_Bps=20e9),
        ],
        [
            Use(resource="engine", destinations=("gpu2", "gpu3")),
            Use(resource="both", sources=("gpu5",)),
            Use(resource="both", destinations=("gpu5",)),
            Use(resource="path", sources=("gpu0", "gpu6"), destinations=("gpu1", "gpu7")),
            Use(resource="staged", sources=("gpu4",), weight=2.0),
        ],
    )
    return nominal_model(topology)


def _faded(by: Crowd) -> tc.Model:
    fading = Fading(loss=0.03, error=0.01, by=by, most_flows=8, advantage=9.0)
    return replace(_b70(), fading=fading)


def _with_start_up() -> tc.Model:
    kinds = dict.fromkeys(PatternKind, 2e-3)
    return replace(_b70(), offset_s=dict.fromkeys(PatternKind, -1e-3), alpha_s=kinds)


MACHINES: dict[str, Callable[[], tc.Model]] = {
    "b70": _b70,
    "all laws": _all_laws,
    "many flows lose": lambda: _faded(Crowd.PATTERN),
    "flows on a resource lose": lambda: _faded(Crowd.RESOURCE),
    "start-up": _with_start_up,
    "two nodes": lambda: nominal_model(machines.rail_pod(2)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_prices_as_we_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = MACHINES[name]().caps()
    their_price = theirs(caps, tmp_path, monkeypatch)
    n = len(caps.endpoints)
    random = np.random.default_rng(11)
    binding = set()
    for _ in range(40):
        pairs = random.choice(
            [p for p in range(n * n) if p % (n + 1)], random.integers(1, 14), False
        )
        transfers = {divmod(p, n): float(random.integers(1, 2**30)) for p in pairs.tolist()}
        seconds, busiest = their_price(transfers)
        ours = price(caps, [(a, b, size) for (a, b), size in transfers.items()])
        assert seconds == pytest.approx(ours.busiest_s, rel=1e-9)
        assert ours.busiest is not None
        binding.add(ours.busiest.resource)
        if ours.runner_up is None or ours.runner_up.seconds < ours.busiest.seconds * (1 - 1e-9):
            assert busiest == ours.busiest.resource
    assert len(binding) > 3
    if name == "all laws":
        assert {"both", "path"} <= binding


def test_there_are_few_lines() -> None:
    body = lines().split("def price")[1]
    statements = [line for line in body.splitlines()[2:] if line.strip()]
    assert len(statements) <= 13
    assert max(map(len, lines().splitlines())) <= 110

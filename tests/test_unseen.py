"""Limits that neither a topology nor any pair shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from topocal.measure.patterns import bundle, parse_pattern
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.solve.rows import Observation
from topocal.solve.unseen import Unseen, suppose, told
from topocal.topo.flow import Pattern

LEFT, RIGHT = [f"gpu{k}" for k in range(4)], [f"gpu{k}" for k in range(4, 8)]
PORT, UPLINK = 50e9, 60e9
SIZE = 2.0**28


def _seconds(pattern: Pattern) -> float:
    """Ports of 50 GB/s each way; between the halves an uplink of 60 GB/s each way."""
    busy: dict[object, float] = {}
    for flow in pattern.flows:
        a, b = flow.source, flow.destination
        crossed: list[tuple[object, float]] = [((a, "out"), PORT), ((b, "in"), PORT)]
        if (a in LEFT) != (b in LEFT):
            crossed.append(((a in LEFT), UPLINK))
        for what, capacity in crossed:
            busy[what] = busy.get(what, 0.0) + flow.size_bytes / capacity
    return max(busy.values())


def _measured(patterns: list[Pattern], noise: float = 0.003) -> Measurements:
    rng = np.random.default_rng(8)
    return Measurements(
        samples=tuple(
            Sample(pattern=p, seconds=_seconds(p) * math.exp(rng.normal(0, noise)))
            for p in patterns
        )
    )


def _pairs() -> list[Pattern]:
    ends = LEFT + RIGHT
    return [bundle([(a, b)], SIZE) for a in ends for b in ends if a != b]


def _said(model: Model, notation: str) -> tuple[float, float, float]:
    (found,) = predict(model, [parse_pattern(notation, SIZE)])
    return found.seconds, found.low_s, found.high_s


def test_an_uplink_that_no_pair_shows_limits_transfers_that_nobody_measured() -> None:
    concurrent = ["0->4 + 1->5", "0->4 + 1->5 + 2->6 + 3->7", "0->1 + 2->3", "4->5 + 6->7"]
    model = fit(_measured([*_pairs(), *(parse_pattern(c, SIZE) for c in concurrent)]))
    for notation in ("0->5 + 2->4", "0->7 + 1->6 + 2->5", "1->4 + 3->5", "0->2 + 1->3"):
        seconds, low, high = _said(model, notation)
        truth = _seconds(parse_pattern(notation, SIZE))
        assert seconds == pytest.approx(truth, rel=0.02), notation
        assert low <= truth * 1.003, notation
        assert truth <= high * 1.003, notation
    assert any("shared from gpu0-gpu3 to gpu4-gpu7" in one for one in model.findings)
    # Nothing was said of the other direction.
    assert not any("from gpu4-gpu7 to gpu0-gpu3" in r.label for r in model.resources.values())


def test_what_was_measured_is_never_predicted_far_from_it() -> None:
    """A pair of pairs that another figure denies to be an uplink keeps its own limit."""
    patterns = _pairs()
    slow = parse_pattern("0->1 + 2->3", SIZE)
    crossed = parse_pattern("0->3 + 2->1", SIZE)
    measured = _measured([*patterns, crossed])
    odd = Sample(pattern=slow, seconds=2 * SIZE / 52e9)
    model = fit(Measurements(samples=(*measured.samples, odd)))
    assert _said(model, "0->1 + 2->3")[0] == pytest.approx(2 * SIZE / 52e9, rel=0.02)
    assert _said(model, "0->3 + 2->1")[0] == pytest.approx(SIZE / PORT, rel=0.02)


def test_a_sound_machine_has_none() -> None:
    ends = LEFT
    patterns = [bundle([(a, b)], SIZE) for a in ends for b in ends if a != b]
    patterns += [parse_pattern(c, SIZE) for c in ("0->1 + 2->3", "0<-1,2,3", "3->0,1,2", "0<->1")]
    model = fit(_measured(patterns))
    assert not [r for r in model.resources if r.startswith("unseen")]
    assert not [one for one in model.findings if "supposed" in one]


def _observed(notation: str, total_Bps: float) -> Observation:
    pattern = parse_pattern(notation, SIZE)
    seconds = pattern.total_bytes / total_Bps
    return Observation(name=pattern.name, pattern=pattern, seconds=seconds, sigma=0.01)


def test_how_wide_a_limit_may_be() -> None:
    pair, both = _observed("0->1", 10e9), _observed("0->2 + 1->3", 20e9)
    alone = [_observed("0->2", 20e9), _observed("1->3", 20e9)]
    wide = Unseen(((("gpu0", "gpu1"), ("gpu2", "gpu3")),))
    assert suppose([pair, both, *alone], [both.name], 0.01) == (wide,)
    # Of a flow that was not measured alone that may be what is slow.
    path = Unseen(((("gpu0",), ("gpu2",)),))
    assert suppose([pair, both, alone[1]], [both.name], 0.01) == (wide, path)
    assert path.alone
    assert not wide.alone
    assert suppose([pair, both], [pair.name, both.name], 0.01)[0].label == "path from gpu0 to gpu1"
    assert wide.label == "shared from gpu0 and gpu1 to gpu2 and gpu3"
    denied = _observed("0->3 + 1->2", 40e9)
    narrow, *_ = suppose([pair, both, denied], [both.name], 0.01)
    assert narrow.includes("gpu0", "gpu2")
    assert not narrow.includes("gpu0", "gpu3")
    assert suppose([pair, both], [], 0.01) == ()


def test_words() -> None:
    assert Unseen(((("gpu0", "gpu1"),) * 2,)).label == (
        "shared by all between gpu0 and gpu1, both ways"
    )
    said = told({"path from a to b": (1e9, ["a->b"]), "x": (2e9, ()), "y": (3e9, ())})
    assert said.endswith("1 GB/s path from a to b (by a->b); 2 GB/s x; 1 more")


def test_one_wrong_cell_takes_no_other_pair_with_it() -> None:
    fans = ["4<-0,1,2", "0->1,2,4", "5<-0,1"]
    right = _measured([*_pairs(), *(parse_pattern(c, SIZE) for c in fans)])
    samples = [
        Sample(pattern=s.pattern, seconds=s.seconds * 10 if s.name == "gpu0->gpu4" else s.seconds)
        for s in right.samples
    ]
    model = fit(Measurements(samples=tuple(samples)))
    assert set(model.left_out) == {"gpu0->gpu4"}
    assert _said(model, "0->1")[0] == pytest.approx(SIZE / PORT, rel=0.02)

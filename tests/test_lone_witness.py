"""One receiver that takes turns says nothing of the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from topocal.measure.patterns import bundle, fan_in
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import Prediction, predict
from topocal.topo.flow import Pattern

ENDS = [f"gpu{k}" for k in range(8)]
SLOW = "gpu5"
SIZE = 2.0**28


def _seconds(pattern: Pattern, timed: set[str]) -> float:
    """Links of 27 GB/s, one sender's of 13; some receivers serve one flow at a time."""
    own = {
        f: f.size_bytes / (13e9 if SLOW in (f.source, f.destination) else 27e9)
        for f in pattern.flows
    }
    busy: dict[str, float] = {}
    for f in pattern.flows:
        busy[f.source] = busy.get(f.source, 0.0) + own[f]
        into = own[f] if f.destination in timed else f.size_bytes / 27e9
        busy[f.destination] = busy.get(f.destination, 0.0) + into
    return max(*busy.values(), *own.values())


def _model(timed: set[str], fans: list[Pattern]) -> Model:
    rng = np.random.default_rng(4)
    pairs = [bundle([(a, b)], SIZE) for a in ENDS for b in ENDS if a != b]
    return fit(
        Measurements(
            samples=tuple(
                Sample(pattern=p, seconds=_seconds(p, timed) * math.exp(rng.normal(0, 0.01)))
                for p in [*pairs, *fans]
            )
        )
    )


def _fan(root: str, *peers: str) -> Pattern:
    return fan_in(root, peers, SIZE)


EQUAL = [_fan("gpu0", "gpu2", "gpu3"), _fan("gpu4", "gpu0", "gpu1"), _fan("gpu7", "gpu0", "gpu1")]


def _said(model: Model, pattern: Pattern) -> Prediction:
    (found,) = predict(model, [pattern])
    return found


@pytest.mark.parametrize("everyone", [False, True])
def test_others_may_be_as_it_is_or_not(everyone: bool) -> None:
    timed = set(ENDS) if everyone else {"gpu2"}
    model = _model(timed, [*EQUAL, _fan("gpu2", "gpu0", SLOW), _fan("gpu2", "gpu4", "gpu6", SLOW)])
    assert "no fan tells whether the other receivers do" in model.sharing
    own = _fan("gpu2", "gpu1", SLOW)
    assert _said(model, own).seconds == pytest.approx(_seconds(own, timed), rel=0.03)
    for other in (_fan("gpu1", SLOW, "gpu4"), _fan("gpu7", "gpu3", SLOW, "gpu4")):
        found = _said(model, other)
        assert found.low_s <= _seconds(other, timed) <= found.high_s * 1.01
        assert not found.narrow


def test_two_speak_for_all() -> None:
    fans = [*EQUAL, _fan("gpu2", "gpu0", SLOW), _fan("gpu3", "gpu4", SLOW)]
    model = _model(set(ENDS), fans)
    assert model.sharing.startswith("receivers are time-shared")
    other = _fan("gpu1", SLOW, "gpu4")
    assert _said(model, other).seconds == pytest.approx(_seconds(other, set(ENDS)), rel=0.03)

"""Data that makes little sense: an honest model or a clear error, and all numbers finite."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.patterns import bundle, fan_in, fan_out, peer
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model, model_to_document, read_model, write_model
from topocal.solve.predict import predict
from topocal.topo.errors import InputError, TopocalError
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70
from topocal.topo.topology import Topology

MIB = 2.0**20
FOUR = ["gpu0", "gpu1", "gpu2", "gpu3"]


def sample(pattern: Pattern, seconds: float, repeat: int = 0) -> Sample:
    return Sample(pattern=pattern, seconds=seconds, repeat=repeat)


def every_number(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from every_number(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from every_number(inner)
    elif isinstance(value, float):
        yield value


def honest(samples: list[Sample], topology: Topology | None = None) -> Model:
    """Fit, write, read back, predict: all numbers finite."""
    model = fit(Measurements.of(samples), topology)
    document = model_to_document(model)
    document.pop("topology")
    assert all(math.isfinite(x) for x in every_number(document))
    assert all(math.isfinite(r.error) for r in model.residuals)
    ends = model.topology.accelerators
    if len(ends) > 2:
        (prediction,) = predict(model, [fan_in(ends[0], ends[1:], 2**28)])
        assert 0 <= prediction.low_s <= prediction.seconds <= prediction.high_s < math.inf
    return model


def test_one_sample() -> None:
    model = honest([sample(peer("gpu0", "gpu1", 64 * MIB), 0.01)])
    assert len(model.residuals) == 1


def test_every_figure_the_same() -> None:
    pairs = [peer(a, b, MIB) for a in FOUR for b in FOUR if a != b]
    model = honest([sample(p, 1e-3) for p in pairs])
    assert all(abs(r.error) < 1e-6 for r in model.residuals)


def test_only_fans() -> None:
    honest([sample(fan_in(r, [e for e in FOUR if e != r], MIB), 3e-3) for r in FOUR])


def test_a_single_fan() -> None:
    honest([sample(fan_out("gpu0", FOUR[1:], MIB), 3e-3)])


@pytest.mark.parametrize("decades", [6, 9])
def test_a_huge_spread(decades: int) -> None:
    rng = np.random.default_rng(0)
    pairs = [peer(a, b, MIB) for a in FOUR for b in FOUR if a != b]
    fans = [fan_in(r, [e for e in FOUR if e != r], MIB) for r in FOUR]
    honest([sample(p, float(10 ** rng.uniform(-decades, 0))) for p in [*pairs, *fans]])


def test_repeats_that_contradict_each_other() -> None:
    pairs = [peer(a, b, MIB) for a in FOUR for b in FOUR if a != b]
    rng = np.random.default_rng(1)
    honest([sample(p, float(rng.uniform(1e-3, 1.0)), k) for p in pairs for k in range(5)])


def test_every_sample_an_outlier() -> None:
    rng = np.random.default_rng(2)
    pairs = [peer(a, b, MIB) for a in FOUR for b in FOUR if a != b]
    late = [float(1e-3 * (50.0 if rng.random() < 0.5 else 1.0)) for _ in pairs]
    honest([sample(p, s) for p, s in zip(pairs, late, strict=True)])


def test_empty_messages_alone_tell_no_capacity() -> None:
    with pytest.raises(TopocalError):
        fit(Measurements.of([sample(peer("gpu0", "gpu1", 0.0), 1e-5)]))


def test_empty_messages_among_others_are_start_up_time() -> None:
    samples = [
        sample(peer(a, b, size), 1e-4 + size / 1e10)
        for a in FOUR
        for b in FOUR
        if a != b
        for size in (0.0, MIB, 64 * MIB)
    ]
    model = honest(samples)
    (alpha,) = set(model.alpha_s.values())
    assert alpha == pytest.approx(1e-4, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_no_time_is_an_error(seconds: float) -> None:
    with pytest.raises(TopocalError):
        fit(Measurements.of([sample(peer("gpu0", "gpu1", MIB), seconds)]))


def test_more_resources_than_figures() -> None:
    model = honest([sample(peer("gpu0", "gpu5", MIB), 1e-3)], b70())
    assert {r.status for r in model.resources.values()} <= {
        "confounded",
        "series",
        "unknown",
        "bounded",
        "alike",
        "pinned",
    }


def test_the_same_input_gives_the_same_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    pairs = [peer(a, b, MIB) for a in FOUR for b in FOUR if a != b]
    fans = [fan_in(r, [e for e in FOUR if e != r], MIB) for r in FOUR]
    samples = [
        sample(p, float(1e-3 * np.exp(0.02 * rng.standard_normal())), k)
        for p in [*pairs, *fans]
        for k in range(3)
    ]
    for name, order in (("a", samples), ("b", samples[::-1]), ("c", samples[7:] + samples[:7])):
        write_model(fit(Measurements.of(order)), tmp_path / name)
    first = (tmp_path / "a").read_bytes()
    assert (tmp_path / "b").read_bytes() == first
    assert (tmp_path / "c").read_bytes() == first
    assert json.loads(first)["format"] == "topocal/model"
    again = read_model(tmp_path / "a")
    write_model(again, tmp_path / "d")
    assert (tmp_path / "d").read_bytes() == first


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_whatever_is_measured(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    samples = []
    for _ in range(count):
        pairs = data.draw(
            st.lists(
                st.tuples(st.sampled_from(FOUR), st.sampled_from(FOUR)).filter(
                    lambda p: p[0] != p[1]
                ),
                min_size=1,
                max_size=4,
                unique=True,
            )
        )
        size = data.draw(st.sampled_from([1.0, 4096.0, MIB, 2.0**30]))
        seconds = data.draw(st.floats(1e-9, 1e6))
        samples.append(sample(bundle(pairs, size), seconds))
    try:
        honest(samples)
    except TopocalError as error:
        assert "\n" not in str(error)


def test_endpoints_that_differ_in_case_only_are_no_two() -> None:
    pairs = [bundle([(a, b)], 2.0**28) for a, b in (("GPU0", "gpu1"), ("gpu1", "gpu0"))]
    measured = Measurements(samples=tuple(Sample(pattern=p, seconds=0.01) for p in pairs))
    with pytest.raises(InputError, match="GPU0 and gpu0 differ in case only"):
        fit(measured)

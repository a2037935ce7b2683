"""calibration.json: every raw timing comes back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from calibration_cases import PROVENANCE, pattern_of_three, small, stripped
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.calibration import (
    decode_calibration,
    encode_calibration,
    read_calibration,
    write_calibration,
)
from topocal.measure.patterns import bundle, peer
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.errors import InputError
from topocal.topo.flow import Flow, Pattern


def test_everything_comes_back(tmp_path: Path) -> None:
    before = small()
    write_calibration(before, tmp_path / "calibration.json")
    after = read_calibration(tmp_path / "calibration.json")
    assert stripped(after) == stripped(before)
    assert after.runs[0].provenance == PROVENANCE
    assert [s.set_aside for s in after.set_aside] == ["gpu2 did not answer"]
    assert after.sources == (str(tmp_path / "calibration.json"),)
    assert list(tmp_path.iterdir()) == [tmp_path / "calibration.json"]
    assert after.samples[0].flow_finish_s == (1e-5, 1.1e-5)


def test_the_file_is_as_documented() -> None:
    document = json.loads(encode_calibration(small()))
    assert document["format"] == "topocal/calibration"
    assert document["version"] == 1
    (run,) = document["runs"]
    assert run["patterns"][0] == {"kind": "fan-in", "flows": [[1, 0], [2, 0]]}
    assert run["endpoints"] == ["gpu0", "gpu1", "gpu2"]
    assert run["scenarios"][0] == {"pattern": 0, "size_bytes": 4096.0}
    assert run["samples"]["seconds"][:2] == [1.1e-5, 1.2e-5]


def test_constant_columns_stand_once() -> None:
    samples = [
        Sample(pattern=pattern_of_three(), seconds=s, repeat=k, round=7, issue="group")
        for k, s in enumerate((1.0, 2.0, 3.0))
    ]
    (run,) = json.loads(encode_calibration(Measurements.of(samples)))["runs"]
    assert run["samples"] == {
        "scenario": [0, 0, 0],
        "seconds": [1.0, 2.0, 3.0],
        "repeat": [0, 1, 2],
        "round": 7,
        "issue": "group",
    }


def test_a_hundred_repeats_take_few_bytes() -> None:
    samples = [
        Sample(pattern=pattern_of_three(), seconds=1.0 + k / 1024, repeat=k) for k in range(1000)
    ]
    assert len(encode_calibration(Measurements.of(samples))) < 25 * len(samples)


def test_a_run_says_how_messages_were_issued_unless_a_sample_does() -> None:
    samples = [
        Sample(pattern=peer("gpu0", "gpu1", 8.0), seconds=1.0, run=0),
        Sample(pattern=peer("gpu0", "gpu1", 8.0), seconds=2.0, run=0, issue="one-by-one"),
    ]
    content = encode_calibration(Measurements.of(samples, [], [Run(provenance=PROVENANCE)]))
    assert [s.issue for s in decode_calibration(content, file="x").samples] == [
        "group",
        "one-by-one",
    ]


def test_empty_messages_are_samples_and_times_of_zero_are_set_aside() -> None:
    samples = [
        Sample(pattern=pattern_of_three(0.0), seconds=2e-6, flow_finish_s=(1e-6, 2e-6)),
        Sample(pattern=pattern_of_three(0.0), seconds=0.0),
        Sample(pattern=pattern_of_three(0.0), seconds=-1e-9),
        Sample(pattern=pattern_of_three(0.0), seconds=3e-6, flow_finish_s=(-1e-6, 3e-6)),
    ]
    found = decode_calibration(encode_calibration(Measurements.of(samples)), file="x")
    assert [s.seconds for s in found.samples] == [2e-6]
    assert [s.set_aside for s in found.set_aside] == [
        "its time is not above zero",
        "its time is not above zero",
        "a flow finished before the start",
    ]


def test_order_of_samples_does_not_matter() -> None:
    measured = small()
    back = Measurements.of(reversed((*measured.samples, *measured.set_aside)), ["x"], measured.runs)
    assert encode_calibration(back) == encode_calibration(measured)


def test_samples_that_differ_in_anything_have_one_order() -> None:
    """Same notation, same total, same seconds: sizes, repeats and finishes decide."""
    flows = [("gpu1", "gpu0", 1.0), ("gpu2", "gpu0", 3.0)]
    one, other = (
        Pattern(
            flows=tuple(Flow(source=s, destination=d, size_bytes=b) for (s, d, _), b in pairs),
            name="gpu0<-gpu1,gpu2",
        )
        for pairs in (
            [(flows[0], 1.0), (flows[1], 3.0)],
            [(flows[0], 3.0), (flows[1], 1.0)],
        )
    )
    samples = [
        Sample(pattern=one, seconds=1.0, repeat=1),
        Sample(pattern=other, seconds=1.0),
        Sample(pattern=one, seconds=1.0, flow_finish_s=(0.5, 1.0)),
        Sample(pattern=one, seconds=1.0, flow_finish_s=(0.25, 1.0)),
        Sample(pattern=one, seconds=1.0, issue="group"),
    ]
    forth, back = Measurements.of(samples), Measurements.of(samples[::-1])
    assert forth.samples == back.samples
    assert [s.pattern is other for s in forth.samples] == [False] * 4 + [True]


SIZES = st.floats(0, 1e12) | st.sampled_from([0.0, 4096.0, 0.1])


NAMES = st.sampled_from(["gpu0", "gpu1", "gpu2", "host/gpu0", "nic 1", "é"])


SECONDS = st.floats(0, 1e6, exclude_min=True)


@st.composite
def measurements(draw: st.DrawFn) -> Measurements:
    samples = []
    for _ in range(draw(st.integers(0, 6))):
        pairs = draw(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4, unique=True))
        flows = tuple(
            Flow(
                source=s, destination=d, size_bytes=draw(SIZES), start_s=draw(st.just(0.0) | SIZES)
            )
            for s, d in pairs
        )
        pattern = Pattern(flows=flows, name=draw(st.sampled_from(["", "mine", "gpu0->gpu1"])))
        finish = st.none() | st.lists(SECONDS, min_size=len(flows), max_size=len(flows)).map(tuple)
        samples.append(
            Sample(
                pattern=pattern,
                seconds=draw(SECONDS),
                size_known=draw(st.booleans()),
                flow_finish_s=draw(finish),
                repeat=draw(st.integers(0, 3)),
                round=draw(st.none() | st.integers(0, 3)),
                issue=draw(st.sampled_from(["group", "one-by-one"])),
                iterations=draw(st.integers(1, 3)),
                set_aside=draw(st.none() | st.just("warm-up")),
                run=0,
            )
        )
    return Measurements.of(samples, [], [Run(provenance=PROVENANCE)])


@settings(deadline=None, max_examples=100)
@given(measurements())
def test_any_measurements_come_back(before: Measurements) -> None:
    content = encode_calibration(before)
    after = decode_calibration(content, file="x")
    assert stripped(after) == stripped(before)
    assert encode_calibration(after) == content


def test_what_would_not_come_back_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    one = peer("gpu0", "gpu1", 1.0)
    for wrong, message in (
        (Sample(pattern=one, seconds=math.nan), "a time that is not finite"),
        (Sample(pattern=one, seconds=1.0, flow_finish_s=(math.inf,)), "not finite"),
        (Sample(pattern=one, seconds=1.0, run=0), "belongs to run 0, which is not listed"),
        (Sample(pattern=peer("a\n", "b"), seconds=1.0), "an endpoint is called"),
    ):
        with pytest.raises(InputError, match=message):
            write_calibration(Measurements(samples=(wrong,)), path)
    with pytest.raises(InputError, match="unknown key 'mood'"):
        write_calibration(small(mood="fine"), path)
    with pytest.raises(InputError, match="cannot be written"):
        write_calibration(small(), tmp_path / "nowhere" / "x.json")
    assert path.read_bytes() == b"old"


def test_repeats_share_their_pattern_in_memory() -> None:
    samples = [
        Sample(pattern=bundle([("gpu0", "gpu1"), ("gpu2", "gpu3")], 8.0), seconds=float(k + 1))
        for k in range(3)
    ]
    found = decode_calibration(encode_calibration(Measurements.of(samples)), file="x").samples
    assert len({id(s.pattern) for s in found}) == 1

"""calibration.json: every raw timing comes back, and what is damaged or mixed up is told."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.calibration import (
    decode_calibration,
    encode_calibration,
    read_calibration,
    write_calibration,
)
from topocal.measure.load import load, parse_measurements
from topocal.measure.merging import merge
from topocal.measure.patterns import bundle, fan_in, peer, relay
from topocal.measure.provenance import (
    KEYS,
    check_provenance,
    fingerprint,
    local_provenance,
    transport_settings,
)
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.errors import FormatError, InputError, TopocalError
from topocal.topo.flow import Flow, Pattern

PROVENANCE: dict[str, Any] = {
    "run": "a1b2",
    "started": "2026-11-03T10:00:00Z",
    "machine": "0123456789abcdef",
    "hosts": 1,
    "devices": ["card", "card", "card"],
    "ranks": ["gpu0", "gpu1", "gpu2"],
    "backend": "nccl",
    "issue": "group",
    "clock": "perf_counter",
    "clock_resolution_s": 1e-9,
    "driver": "550.1",
    "libraries": {"nccl": "2.21.5"},
    "environment": {"NCCL_P2P_LEVEL": "SYS"},
    "verified": True,
}


def pattern_of_three(size_bytes: float = 4096.0) -> Pattern:
    return fan_in("gpu0", ["gpu1", "gpu2"], size_bytes)


def small(**changes: Any) -> Measurements:
    """Two repeats of a fan, a relay with unequal sizes and late starts, a failed timing."""
    ring = Pattern(
        flows=(
            Flow(source="gpu0", destination="gpu1", size_bytes=1000.0),
            Flow(source="gpu1", destination="gpu2", size_bytes=0.1 + 0.2, start_s=1e-3),
            Flow(source="gpu2", destination="gpu0", size_bytes=0.0),
        ),
        name="my ring",
    )
    shared = {"issue": "group", "run": 0}
    samples = [
        Sample(
            pattern=pattern_of_three(),
            seconds=1.1e-5,
            repeat=0,
            round=3,
            flow_finish_s=(1e-5, 1.1e-5),
            endpoint_start_s=(0.0, 1e-7, 2e-7),
            endpoint_end_s=(1.1e-5, 1e-5, 1.1e-5),
            **shared,
        ),
        Sample(pattern=pattern_of_three(), seconds=1.2e-5, repeat=1, round=4, **shared),
        Sample(pattern=ring, seconds=0.1, run=0, issue="one-by-one", size_known=False),
        Sample(pattern=ring, seconds=0.0, run=0, issue="group", set_aside="gpu2 did not answer"),
    ]
    return Measurements.of(samples, ["x"], [Run(provenance=PROVENANCE | changes, source="x")])


def stripped(measurements: Measurements) -> list[Sample]:
    """All samples without where they came from."""
    every = (*measurements.samples, *measurements.set_aside)
    return [msgspec.structs.replace(s, where=None) for s in every]


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


# What is refused.


def document() -> dict[str, Any]:
    found = json.loads(encode_calibration(small()))
    del found["digest"]
    return dict(found)


def damaged(change: str) -> bytes:
    """A document after ``change`` was run on it; ``r`` is its run, ``s`` its samples."""
    found = document()
    exec(change, {"d": found, "r": found["runs"][0], "s": found["runs"][0]["samples"]})
    return json.dumps(found).encode()


BAD = {
    "empty": (b"", "not a JSON object"),
    "binary": (b"\x00\xff\xfe", "not a JSON object"),
    "deep": (b"[" * 100_000, "not a JSON object"),
    "list": (b"[]", "not a JSON object"),
    "cut": (encode_calibration(small())[:-40], "not a JSON object"),
    "another kind": (b'{"format": "topocal/model"}', "but topocal/model"),
    "no kind": (b"{}", "but something else"),
    "newer": (damaged("d['version'] = 2"), "has version 2 of topocal/calibration; this release"),
    "flag": (damaged("d['version'] = True"), "has version True"),
    "more": (damaged("d['digesu'] = 'x'"), "unknown field `digesu`"),
    "no runs": (damaged("del d['runs']"), "missing required field `runs`"),
    "runs": (damaged("d['runs'] = 7"), "Expected `array`, got `int`"),
    "text": (damaged("s['seconds'][0] = 'fast'"), "Expected `float`, got `str`"),
    "nan": (
        json.dumps(document()).replace("1.1e-05", "NaN").encode(),
        "not a JSON object: JSON is malformed",
    ),
    "infinite": (json.dumps(document()).replace("1.1e-05", "1e999").encode(), "out of range"),
    "short column": (damaged("s['seconds'].pop()"), "run 0 has 3 seconds for 4 scenarios"),
    "short repeat": (damaged("s['repeat'] = [1, 2]"), "has 2 repeat for 4 samples"),
    "short finish": (damaged("s['flow_finish_s'] = []"), "has 0 flow_finish_s for 4 samples"),
    "finish": (
        damaged("s['flow_finish_s'][0] = [1.0]"),
        "has sample 0 with 1 flow_finish_s where 2 belong",
    ),
    "ends": (
        damaged("s['endpoint_end_s'][0] = [1.0]"),
        "has sample 0 with 1 endpoint_end_s where 3 belong",
    ),
    "repeat": (damaged("s['repeat'] = -1"), "has a sample with repeat -1"),
    "round": (damaged("s['round'] = [0, 1, -2, None]"), "has a sample with round -2"),
    "iterations": (damaged("s['iterations'] = 0"), "has a sample with iterations 0"),
    "issue": (damaged("s['issue'] = 'loudly'"), "has a sample issued 'loudly'"),
    "scenario": (damaged("s['scenario'][1] = 9"), "has a sample of scenario 9, which is not"),
    "scenario below": (damaged("s['scenario'][1] = -1"), "has a sample of scenario -1"),
    "pattern": (damaged("r['scenarios'][0]['pattern'] = 5"), "of a pattern that is not listed"),
    "endpoint": (
        damaged("r['patterns'][0]['flows'][0] = [0, 7]"),
        "an endpoint that is not listed",
    ),
    "flows": (damaged("r['patterns'][0]['flows'] = []"), "has pattern 0 without flows"),
    "kind": (
        damaged("r['patterns'][0]['kind'] = 'relay'"),
        "calls pattern 0 'relay', but its flows are fan-in",
    ),
    "title": (damaged("r['patterns'][0]['name'] = 'a\\nb'"), "has pattern 0 called 'a b'"),
    "sizes": (
        damaged("r['scenarios'][0]['size_bytes'] = [1.0]"),
        "has scenario 0 with 1 size_bytes for 2 flows",
    ),
    "size": (damaged("r['scenarios'][0]['size_bytes'] = -4"), "with size_bytes below zero"),
    "start": (damaged("r['scenarios'][0]['start_s'] = -1"), "with start_s below zero"),
    "same name": (
        damaged("r['endpoints'][1] = r['endpoints'][0]"),
        "lists endpoint 'gpu0' twice",
    ),
    "blank name": (damaged("r['endpoints'][0] = ' gpu0'"), "has an endpoint called 'gpu0'"),
    "no name": (damaged("r['endpoints'][0] = ''"), "has an endpoint called ''"),
    "provenance": (damaged("r['provenance']['backend'] = 3"), "provenance has backend '3'"),
    "provenance key": (damaged("r['provenance']['mood'] = 'ok'"), "unknown key 'mood'"),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        read_calibration(path)
    shown = str(caught.value)
    assert message in shown
    assert shown.startswith(f"{path}: ")
    assert caught.value.remedy
    assert "\n" not in shown


def test_every_flipped_bit_is_noticed() -> None:
    """Of all single-bit changes, none reads as other measurements."""
    content = encode_calibration(small())
    before = stripped(decode_calibration(content, file="x"))
    for at in range(len(content)):
        for bit in (0, 3, 6):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            with contextlib.suppress(TopocalError):
                assert stripped(decode_calibration(bytes(changed), file="x")) == before


def test_a_wrong_digest_is_refused_and_none_is_not() -> None:
    content = encode_calibration(small())
    changed = content.replace(b"0.000012", b"0.000013")
    assert changed != content
    with pytest.raises(FormatError, match="does not match its digest"):
        decode_calibration(changed, file="x")
    without = json.loads(content)
    del without["digest"]
    again = decode_calibration(json.dumps(without).encode(), file="x")
    assert stripped(again) == stripped(small())


def test_the_digest_is_that_of_the_runs_as_they_stand() -> None:
    content = encode_calibration(small())
    digest = json.loads(content)["digest"]
    runs = content[content.index(b"[") : content.rindex(b"]") + 1]
    assert digest == "sha256:" + hashlib.sha256(runs).hexdigest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_damage_escapes_as_another_error(data: st.DataObject) -> None:
    found = document()
    at: Any = found
    while True:
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
            at = at[key]
            continue
        if data.draw(st.booleans()):
            del at[key]
        else:
            at[key] = data.draw(JSON)
        break
    with contextlib.suppress(TopocalError):
        read = decode_calibration(json.dumps(found).encode(), file="x")
        assert all(math.isfinite(s.seconds) and s.seconds > 0 for s in read.samples)
        encode_calibration(read)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_mutated_bytes_read_or_are_refused(data: st.DataObject) -> None:
    content = bytearray(json.dumps(document()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
        if not content:
            break
    with contextlib.suppress(TopocalError):
        parse_measurements(bytes(content), file="x")


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


# Runs together.


def test_files_of_any_kind_load_together(tmp_path: Path) -> None:
    calibration, pairs = tmp_path / "calibration.json", tmp_path / "pairs.csv"
    write_calibration(small(), calibration)
    pairs.write_text("source,destination,bandwidth_GBps\n0,1,10\n")
    forth, back = load([calibration, str(pairs)]), load([pairs, calibration])
    assert forth.samples == back.samples
    assert len(forth.samples) == 4
    assert len(forth.set_aside) == 1
    assert load(calibration).samples == load([calibration]).samples


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xef\xbb\xbf \n" + encode_calibration(small()))
    assert len(load(path).samples) == 3


def test_no_file_the_same_file_and_no_measurements(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no files"):
        load([])
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    write_calibration(small(), one)
    other.write_bytes(one.read_bytes())
    with pytest.raises(InputError, match=r"b\.json: is the same as .*a\.json"):
        load([one, other])
    other.write_text('{"format": "topocal/topology", "version": 1}')
    with pytest.raises(FormatError, match="is not a topocal/calibration file but topocal/topology"):
        load(other)
    other.write_text("GPU0\tGPU1\n")
    with pytest.raises(FormatError, match="is not a table of pairs or patterns"):
        load(other)
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "gloo"}, "b.json differ in backend: nccl against gloo"),
        ({"machine": "f" * 16}, "differ in machine"),
        ({"ranks": ["gpu0", "gpu1"]}, "differ in ranks: 3 of them against 2"),
        (
            {"devices": ["card", "card", "other"]},
            "differ in devices: number 2 is card against other",
        ),
        ({"libraries": {"nccl": "2.22"}}, "in libraries: nccl=2.21.5 against nccl=2.22"),
        ({"environment": {}}, "NCCL_P2P_LEVEL=SYS against NCCL_P2P_LEVEL not set"),
        ({"hosts": 2}, "differ in hosts: 1 against 2"),
    ],
)
def test_runs_of_other_conditions_are_not_merged(changes: dict[str, Any], message: str) -> None:
    one = small()
    other = small(run="other", **changes)
    runs = [Run(provenance=r.provenance, source="b.json") for r in other.runs]
    other = Measurements.of(other.samples, ["b.json"], runs)
    with pytest.raises(InputError) as caught:
        merge([one, other])
    assert message in str(caught.value)
    assert "fit them apart" in str(caught.value)
    (name,) = changes
    assert len(merge([one, other], ignoring=[name]).samples) == 6


def test_what_need_not_agree_and_what_is_unknown_is_no_obstacle() -> None:
    other = small(run="b", started="2026-11-04T10:00:00Z", issue="one-by-one", verified=False)
    assert len(merge([small(), other]).runs) == 2
    unknown = Measurements.of([Sample(pattern=pattern_of_three(), seconds=1.0)])
    assert len(merge([small(), unknown]).samples) == 4


def test_a_key_to_ignore_must_exist() -> None:
    with pytest.raises(InputError, match="no provenance key 'bakend'; use one of machine"):
        merge([small()], ignoring=["bakend"])


def test_a_resumed_run_counts_its_timings_once() -> None:
    before = small()
    more = Sample(pattern=relay(["gpu0", "gpu1", "gpu2"], 1, 8.0), seconds=1.0, run=0)
    after = Measurements.of(
        (*before.samples, *before.set_aside, more),
        ["y"],
        [Run(provenance=PROVENANCE | {"duration_s": 9.0}, source="y")],
    )
    forth, back = merge([before, after]), merge([after, before])
    assert stripped(forth) == stripped(back) == stripped(after)
    assert forth.runs == back.runs == after.runs


def test_runs_without_a_name_are_never_taken_for_one() -> None:
    nameless = {k: v for k, v in PROVENANCE.items() if k != "run"}
    one = Measurements.of(small().samples, ["x"], [Run(provenance=nameless)])
    assert len(merge([one, one]).samples) == 6


def test_merging_does_not_depend_on_order_and_keeps_runs_apart() -> None:
    parts = [small(), small(run="b"), small(run="c")]
    forth, back = merge(parts), merge(parts[::-1])
    assert forth.samples == back.samples
    assert [r.provenance["run"] for r in forth.runs] == ["a1b2", "b", "c"]
    assert encode_calibration(forth) == encode_calibration(back)
    again = decode_calibration(encode_calibration(forth), file="x")
    assert stripped(again) == stripped(forth)


# Provenance.


def test_every_key_says_what_it_is() -> None:
    for name, key in KEYS.items():
        assert key.meaning.endswith((".", "…")), name
        kinds = ("text", "integer", "number", "flag", "texts", "table", "numbers")
        assert key.type in kinds, name
        assert name.endswith("_s") == (key.unit == "s"), name
    agree = {name for name, key in KEYS.items() if key.must_agree}
    assert {"backend", "ranks", "environment", "machine", "libraries", "clock"} <= agree
    assert not {"run", "started", "issue", "remarks"} & agree


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", 3),
        ("hosts", 0),
        ("hosts", True),
        ("hosts", 1.5),
        ("duration_s", -1.0),
        ("duration_s", math.nan),
        ("started", "yesterday"),
        ("ranks", ["gpu0", "gpu0"]),
        ("ranks", "gpu0"),
        ("environment", {"A": 1}),
        ("local_copy_Bps", {"gpu0": "fast"}),
        ("local_copy_Bps", {"gpu0": 0.0}),
        ("local_copy_Bps", {"gpu0": math.inf}),
        ("local_copy_Bps", {"gpu0": True}),
        ("issue", "loudly"),
        ("verified", "yes"),
        ("run", ""),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"provenance has {name}") as caught:
        check_provenance({name: value})
    assert caught.value.remedy.startswith("give a ")


def test_what_steers_messages_is_kept_and_what_names_a_host_is_not() -> None:
    assert transport_settings(
        {
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SOCKET_IFNAME": "^lo,docker0,acme-secret0,eth1",
            "NCCL_TOPO_FILE": "/home/alice/topo.xml",
            "NCCL_COMM_ID": "10.1.2.3:5000",
            "NCCL_HOSTID": "alice-box",
            "NCCL_DEBUG": "INFO",
            "UCX_TLS": "rc,cuda",
            "UCX_NET_DEVICES": "mlx5_0:1",
            "CCL_ZE_IPC_EXCHANGE": "sockets",
            "GLOO_SOCKET_IFNAME": "eth0",
            "FI_PROVIDER": "10.1.2.3",
            "AWS_SECRET_ACCESS_KEY": "x",
            "HOME": "/home/alice",
        }
    ) == {
        "CCL_ZE_IPC_EXCHANGE": "sockets",
        "FI_PROVIDER": "0.0.0.0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "^lo,docker0,interface,eth1",
        "NCCL_TOPO_FILE": "topo.xml",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_TLS": "rc,cuda",
    }


def test_what_a_process_knows_by_itself_is_valid() -> None:
    found = local_provenance({"NCCL_ALGO": "Ring"})
    check_provenance(found)
    assert found["environment"] == {"NCCL_ALGO": "Ring"}
    assert found["python"].startswith("3.")


def test_fingerprints_tell_apart_and_do_not_depend_on_order() -> None:
    assert fingerprint(["a", "b"]) == fingerprint(["b", "a"]) != fingerprint(["a", "c"])
    assert len(fingerprint([])) == 16


def test_repeats_share_their_pattern_in_memory() -> None:
    samples = [
        Sample(pattern=bundle([("gpu0", "gpu1"), ("gpu2", "gpu3")], 8.0), seconds=float(k + 1))
        for k in range(3)
    ]
    found = decode_calibration(encode_calibration(Measurements.of(samples)), file="x").samples
    assert len({id(s.pattern) for s in found}) == 1

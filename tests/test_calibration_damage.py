"""calibration.json: what is damaged is told in one line, down to a flipped bit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from calibration_cases import small, stripped
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.calibration import (
    decode_calibration,
    encode_calibration,
    read_calibration,
)
from topocal.measure.load import parse_measurements
from topocal.topo.errors import FormatError, TopocalError


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

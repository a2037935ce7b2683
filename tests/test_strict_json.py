"""JSON in which a field stands twice is refused wherever people's JSON is read, with its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topocal as tc
from topocal.measure.calibration import read_calibration, write_calibration
from topocal.measure.design import design
from topocal.measure.plan import read_plan, write_plan
from topocal.measure.samples import Measurements, Run
from topocal.solve.caps import caps_of
from topocal.solve.nominal_model import nominal_model
from topocal.topo.digest import digest_of
from topocal.topo.errors import FormatError
from topocal.topo.flow_files import read_flows
from topocal.topo.strict_json import decode_json

CARDS = ("gpu0", "gpu1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1, "a": 1}', "f:1: field 'a' stands twice in one object; keep one of the two"),
        ('{"a": 1,\n "b": 2,\n\n "a": 3}', "f:4: field 'a' stands twice"),
        ('[{"x": [{"y": {"z": 1,\n"z": 2}}]}]', "f:2: field 'z' stands twice"),
        # Both spellings are the name é.
        ('{"\\u00e9": 1, "é": 2}', "f:1: field 'é' stands twice"),
        # Braces, colons and names within texts are no structure.
        ('{"a": "{\\"b\\": 1, \\"b\\": 2}", "c": "}",\n "c": ":"}', "f:2: field 'c'"),
        ('{"": 1, "": 2}', "f:1: field '' stands twice"),
        # The object inside is whole when the outer one repeats.
        ('{"a": {"b": 1}, "b": 2,\n"a": 3}', "f:2: field 'a' stands twice"),
        ("{", "f: not a JSON file: Input data was truncated; give better"),
        ('{\n"a" 1}', "f:2: not a JSON file: JSON is malformed: expected ':'; give better"),
        ("NaN", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    for content in (text, text.encode()):
        with pytest.raises(FormatError) as caught:
            decode_json(content, file="f", remedy="give better")
        assert told in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_that_editors_write_are_no_matter(encoding: str) -> None:
    assert decode_json('{"é":\r\n1}'.encode(encoding), file="f", remedy="") == {"é": 1}


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FormatError, match="not a JSON file"):
        decode_json(b'{"a": "\xff"}', file="f", remedy="give better")


def test_the_same_name_in_different_objects_is_no_repeat() -> None:
    text = '{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}], "c": "a", "d": ["a", "a"]}'
    assert decode_json(text, file="f", remedy="") == json.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@settings(deadline=None, max_examples=100)
@given(VALUES, st.dictionaries(st.text(max_size=4), VALUES, min_size=1), st.data())
def test_any_document_passes_and_any_repeat_does_not(
    around: Any, fields: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps([around, fields], indent=data.draw(st.sampled_from([None, 1])))
    assert decode_json(text, file="f", remedy="") == [around, fields]
    name = data.draw(st.sampled_from(sorted(fields)))
    twice = f"{json.dumps(fields)[:-1]}, {json.dumps(name)}: 0}}"
    with pytest.raises(FormatError, match="stands twice"):
        decode_json(f"[{json.dumps(around)}, {twice}]", file="f", remedy="")


# Every file of ours, and every other JSON that a user may write.


def _written(folder: Path) -> dict[str, Callable[[Path], object]]:
    machine = tc.machines.b70()
    model = nominal_model(machine)
    tc.write_topology(machine, folder / "topology.json")
    write_plan(design(machine, sizes_bytes=[4096.0]), folder / "plan.json")
    sample = tc.Sample(pattern=tc.peer("gpu0", "gpu1", 1e6), seconds=1.0, run=0)
    write_calibration(
        Measurements.of([sample], [], [Run(provenance={"backend": "gloo"})]),
        folder / "calibration.json",
    )
    tc.write_model(model, folder / "model.json")
    tc.write_caps(caps_of(model), folder / "caps.json")
    (folder / "flows.json").write_text('[{"source": 0, "destination": 1, "size": 5}]')
    (folder / "transfers.json").write_text('{"0->1": 5}')
    (folder / "requests.json").write_text(
        json.dumps(
            {
                "format": "topocal/requests",
                "version": 1,
                "requests": [
                    {
                        "parameter": "q",
                        "target": "gpu0",
                        "holders": ["gpu1"],
                        "shape": [4],
                        "element_bytes": 2,
                    }
                ],
            }
        )
    )
    return {
        "topology.json": tc.read_topology,
        "plan.json": read_plan,
        "calibration.json": read_calibration,
        "model.json": tc.read_model,
        "caps.json": tc.read_caps,
        "flows.json": lambda path: read_flows(path, CARDS),
        "transfers.json": lambda path: tc.read_transfers(path, CARDS),
        "requests.json": lambda path: tc.read_requests(path, CARDS),
    }


def test_no_file_of_a_user_may_name_a_field_twice(tmp_path: Path) -> None:
    for name, read in _written(tmp_path).items():
        path = tmp_path / name
        read(path)
        text = path.read_text()
        at = text.index("{") + 1
        field = text[text.index('"', at) : text.index(":", at)]
        # The same field with the same value: what its digest says is true all the same.
        value = json.dumps(json.JSONDecoder().raw_decode(text[text.index("{") :])[0][field[1:-1]])
        path.write_text(f"{text[:at]}{field}: {value}, {text[at:]}")
        with pytest.raises(FormatError, match="stands twice in one object"):
            read(path)


def test_a_repeat_deep_in_a_file_with_a_right_digest(tmp_path: Path) -> None:
    tc.write_topology(tc.machines.b70(), tmp_path / "t.json")
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["digest"] == digest_of(document)
    text = json.dumps(document).replace('"kind": ', '"kind": "nic", "kind": ', 1)
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(FormatError, match="field 'kind' stands twice"):
        tc.read_topology(tmp_path / "t.json")


def test_a_calibration_with_a_digest_is_looked_through_outside_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    _written(tmp_path)
    whole = json.loads(path.read_text())
    bare = {k: v for k, v in whole.items() if k != "digest"}
    text = json.dumps(bare)
    path.write_text(text)
    read_calibration(path)
    path.write_text(text.replace('"backend": ', '"backend": "nccl", "backend": ', 1))
    with pytest.raises(FormatError, match="field 'backend' stands twice"):
        read_calibration(path)

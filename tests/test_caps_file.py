"""caps.json: it comes back as it was, its digest, and every bad one."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caps_cases import GB, small, with_digest

import topocal as tc
from topocal.solve.caps import Caps
from topocal.solve.caps_document import (
    caps_digest,
    caps_from_document,
    caps_to_document,
    encode_caps,
    read_caps,
    write_caps,
)
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.topo.errors import FlowError, FormatError, InputError


@pytest.fixture(scope="module")
def caps() -> Caps:
    return nominal_model(small()).caps()


def test_the_file_comes_back_as_it_was(b70: tc.Model, tmp_path: Path) -> None:
    for name, one in (("small", nominal_model(small()).caps()), ("b70", b70.caps())):
        path = tmp_path / name
        write_caps(one, path)
        back = read_caps(path)
        assert encode_caps(back) == path.read_bytes()
        assert caps_digest(back) == caps_digest(one)
        assert np.array_equal(
            PairCosts.of(back).seconds_per_byte.toarray(),
            PairCosts.of(one).seconds_per_byte.toarray(),
        )


def test_the_digest_is_that_of_the_content(caps: Caps) -> None:
    document = json.loads(encode_caps(caps))
    content = {k: v for k, v in document.items() if k != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert document["digest"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert document["digest"] == caps_digest(caps)


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "from topocal.topo import machines\n"
        "from topocal.solve.nominal_model import nominal_model\n"
        "from topocal.solve.caps_document import encode_caps\n"
        "caps = nominal_model(machines.rail_pod(3)).caps()\n"
        "print(encode_caps(caps).decode())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            check=True,
            cwd=tmp_path,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) > 1000


def closed(caps: Caps, resource: str) -> Caps:
    """The same with a resource that passes nothing."""
    document = caps_to_document(caps)
    for entry in document["resources"]:
        if entry["id"] == resource:
            entry["cap_Bps"] = 0.0
    return caps_from_document(with_digest(document), file="caps.json")


def test_a_cap_of_zero_is_refused_where_it_is_on_the_only_route(caps: Caps) -> None:
    shut = closed(caps, "gpu0->switch0")
    with pytest.raises(FlowError, match=r"from gpu0 to gpu2: gpu0->switch0 on its only route"):
        tc.price(shut, [("gpu0", "gpu2", 1e9)])
    assert tc.price(shut, [("gpu2", "gpu0", 8 * GB)]).seconds == pytest.approx(1.0)
    assert tc.price(shut, [("gpu0", "gpu2", 0.0)]).seconds == 0.0
    with pytest.raises(FlowError, match="gpu0 can send to nobody"):
        tc.price_bounds(shut, tc.Totals(sent=np.array([1.0, 0, 0, 0]), received=None))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "older": (lambda d: d.update(version=0), "has version 0 of topocal/caps"),
    "newer": (lambda d: d.update(version=2), "has version 2 of topocal/caps"),
    "another kind": (lambda d: d.update(format="topocal/model"), "is not a topocal/caps file"),
    "no endpoint": (lambda d: d["endpoints"].pop(), "is no range of the 3 endpoints"),
    "an endpoint twice": (lambda d: d.update(endpoints=["a", "a", "b", "c"]), "one twice"),
    "a set that is none": (lambda d: d["sets"].__setitem__(0, [[3, 9]]), "is no range of the 4"),
    "a block of no set": (
        lambda d: d["resources"][0]["loads"].append([0, 99, 1]),
        "names a set that is not there",
    ),
    "a weight of zero": (
        lambda d: d["resources"][0]["loads"][0].__setitem__(2, 0),
        "has a weight that is none",
    ),
    "a negative cap": (lambda d: d["resources"][0].update(cap_Bps=-1.0), "not a possible figure"),
    "a cap that is text": (lambda d: d["resources"][0].update(cap_Bps="fast"), "float"),
    "no kappa": (lambda d: _entry(d, "turns").pop("kappa"), "time-shared and has kappa None"),
    "too large a kappa": (lambda d: _entry(d, "turns").update(kappa=1.5), "not a possible figure"),
    "an unknown sharing": (lambda d: d["resources"][0].update(sharing="magic"), "magic"),
    "an unknown status": (lambda d: d["resources"][0].update(status="sure"), "sure"),
    "a resource twice": (lambda d: d["resources"].append(d["resources"][0]), "stands twice"),
    "no resources": (lambda d: d.pop("resources"), "KeyError 'resources'"),
    "a short table": (lambda d: d["processes"]["send_Bps"].pop(), "table of processes is not of 4"),
    "other counts": (lambda d: d["processes"].update(senders=[1, 2]), "is not of 4"),
    "a short row": (
        lambda d: d["processes"]["receive_most_Bps"][0].pop(),
        "rows of other lengths",
    ),
    "a group of text": (lambda d: d["calibration"].update(group_size="8"), "int"),
}


def _entry(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in document["resources"] if entry["id"] == name)


@pytest.mark.parametrize("name", CHANGES)
def test_bad_caps_are_refused_in_one_line(name: str, caps: Caps, tmp_path: Path) -> None:
    change, words = CHANGES[name]
    document = json.loads(encode_caps(caps))
    change(document)
    path = tmp_path / "caps.json"
    path.write_text(json.dumps(with_digest(document)))
    with pytest.raises(FormatError) as caught:
        read_caps(path)
    text = str(caught.value)
    assert words in text
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert caught.value.remedy


def test_a_byte_that_is_flipped_is_found(caps: Caps, tmp_path: Path) -> None:
    content = encode_caps(caps)
    path = tmp_path / "caps.json"
    random = np.random.default_rng(3)
    kept = 0
    for _ in range(400):
        place, bit = int(random.integers(len(content))), int(random.integers(8))
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        path.write_bytes(bytes(flipped))
        try:
            back = read_caps(path)
        except FormatError as error:
            assert "\n" not in str(error)
        else:
            # Blanks between values are no content, nor is how a number is written.
            assert caps_digest(back) == caps_digest(caps)
            kept += 1
    assert kept < 40


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format":"topocal/caps"}', "\0"])
def test_what_is_no_caps_file(content: str, tmp_path: Path) -> None:
    path = tmp_path / "caps.json"
    path.write_text(content)
    with pytest.raises(FormatError):
        read_caps(path)


def test_the_digest_that_is_wanted(caps: Caps, tmp_path: Path) -> None:
    path = tmp_path / "caps.json"
    write_caps(caps, path)
    digest = caps_digest(caps)
    for same in (digest, digest[7:], digest[7:15], digest[:15].upper().replace("SHA", "sha")):
        assert read_caps(path, digest=same).endpoints == caps.endpoints
    with pytest.raises(FormatError, match="holds other caps"):
        read_caps(path, digest="sha256:" + "0" * 64)
    for none in (digest[7:14], "", "nonsense"):
        with pytest.raises(InputError, match="is no digest"):
            read_caps(path, digest=none)

"""A changed file is noticed: whatever bit flips, the content is refused or still the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topocal.measure.calibration import encode_calibration, read_calibration
from topocal.measure.design import design
from topocal.measure.plan import plan_to_document, read_plan
from topocal.measure.simulated import SimulatedMachine
from topocal.solve.caps_document import encode_caps, read_caps
from topocal.solve.model import model_to_document, read_model
from topocal.solve.nominal_model import nominal_model
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.digest import digest_of
from topocal.topo.errors import FormatError
from topocal.topo.io import encode_document, read_topology, topology_to_document
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

FLIPS = 600
"""Flipped bits in each file; the fields that hold figures alone have several times as many."""


def machine() -> Topology:
    builder = TopologyBuilder("star")
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    for k in range(3):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=12345678901.0)
    return builder.build()


@cache
def contents() -> dict[str, bytes]:
    topology = machine()
    plan = design(topology)
    truth = SimulatedMachine(topology=topology, capacities=Capacities.of(topology), noise=0.01)
    model = nominal_model(topology)
    return {
        "topology": encode_document(topology_to_document(topology)),
        "plan": encode_document(plan_to_document(plan)),
        "calibration": encode_calibration(truth.run(plan, np.random.default_rng(1))),
        "model": encode_document(model_to_document(model)),
        "caps": encode_caps(model.caps()),
    }


def _again(read: Callable[[Path], Any], encode: Callable[[Any], bytes]) -> Callable[[Path], bytes]:
    return lambda path: encode(read(path))


AGAIN: dict[str, Callable[[Path], bytes]] = {
    "topology": _again(read_topology, lambda t: encode_document(topology_to_document(t))),
    "plan": _again(read_plan, lambda p: encode_document(plan_to_document(p))),
    "calibration": _again(read_calibration, encode_calibration),
    "model": _again(read_model, lambda m: encode_document(model_to_document(m))),
    "caps": _again(read_caps, encode_caps),
}
"""What is read from a file, written once more."""


@pytest.mark.parametrize("kind", AGAIN)
def test_no_flipped_bit_changes_what_is_read(kind: str, tmp_path: Path) -> None:
    """A file with a bit flipped is refused, or gives what the whole one gives (a blank more)."""
    whole = contents()[kind]
    path = tmp_path / f"{kind}.json"
    path.write_bytes(whole)
    assert AGAIN[kind](path) == whole
    rng = random.Random(kind)
    refused = 0
    for _ in range(FLIPS):
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        try:
            again = AGAIN[kind](path)
        except FormatError as error:
            assert str(error).startswith(f"{path}:")
            assert "\n" not in str(error)
            refused += 1
        else:
            assert again == whole, (
                f"byte {place}, bit {bit}: {bytes(whole[place - 9 : place + 9])!r}"
            )
    assert refused > 0.6 * FLIPS


@pytest.mark.parametrize("kind", AGAIN)
def test_a_figure_that_would_do_as_well_is_refused(kind: str, tmp_path: Path) -> None:
    """Each digit made another one leaves a valid file but for its digest."""
    whole = contents()[kind].decode()
    places = [k for k, c in enumerate(whole) if c.isdigit() and whole[k - 1].isdigit()]
    path = tmp_path / "f.json"
    for place in random.Random(2).sample(places, 60):
        digit = "7" if whole[place] != "7" else "4"
        path.write_text(whole[:place] + digit + whole[place + 1 :])
        with pytest.raises(FormatError):
            AGAIN[kind](path)


@pytest.mark.parametrize("kind", ["topology", "plan", "calibration", "model"])
def test_a_file_without_a_digest_is_taken_as_it_is(kind: str, tmp_path: Path) -> None:
    document = json.loads(contents()[kind])
    del document["digest"]
    path = tmp_path / "f.json"
    path.write_text(json.dumps(document))
    assert AGAIN[kind](path) == contents()[kind]


@pytest.mark.parametrize("kind", ["topology", "plan", "model", "caps"])
def test_the_digest_is_that_of_the_content(kind: str, tmp_path: Path) -> None:
    """Neither layout nor the order of keys counts, and a line of Python finds it."""
    document = json.loads(contents()[kind])
    assert document["digest"] == digest_of(document)
    path = tmp_path / "f.json"
    path.write_text(json.dumps(dict(reversed(document.items())), indent=7))
    assert AGAIN[kind](path) == contents()[kind]


@pytest.mark.parametrize("kind", ["topology", "plan", "model"])
@pytest.mark.parametrize("digest", [None, 3, "", "sha256:0", ["a"], {"a": 1}, "\x1b[31m\n"])
def test_a_digest_that_is_none_is_refused(kind: str, digest: object, tmp_path: Path) -> None:
    document = json.loads(contents()[kind])
    path = tmp_path / "f.json"
    path.write_text(json.dumps(document | {"digest": digest}))
    with pytest.raises(FormatError, match="was changed or damaged") as caught:
        AGAIN[kind](path)
    assert str(caught.value).isprintable()
    assert 'remove "digest"' in str(caught.value)


def test_a_document_with_a_digest_of_its_own_keeps_it() -> None:
    document = {"format": "f", "version": 1, "digest": "of something else"}
    assert json.loads(encode_document(document)) == document
    assert "digest" not in json.loads(encode_document({"answer": 1}))

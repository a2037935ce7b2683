"""The committed schemas are those of the types, and the files that we write are as they say."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from topocal.measure.calibration import write_calibration
from topocal.measure.design import design
from topocal.measure.importers.tables import read_tables
from topocal.measure.load import load
from topocal.measure.plan import plan_to_document
from topocal.schemas.generate import NAMES, encode_schema, schema_of
from topocal.solve.caps_document import caps_to_document
from topocal.solve.fit import fit
from topocal.solve.model import Model, model_to_document
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError
from topocal.topo.io import topology_to_document
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Sharing, Use

ROOT = Path(__file__).parents[1]
B70 = [ROOT / "examples" / "b70" / f"{name}.csv" for name in ("pairs", "fans")]
OPEN = ("NodeEntry", "LinkEntry")
"""Beside whose fields anything may stand."""


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, refusing what it does not describe: so that no field is forgotten."""
    found = copy.deepcopy(schema)
    for name, part in [("", found), *found["$defs"].items()]:
        if "properties" in part and name not in OPEN:
            part["additionalProperties"] = False
    return found


def errors(name: str, document: Any) -> list[str]:
    """What a document has that its schema does not say, in JSON's own types."""
    plain = json.loads(msgspec.json.encode(document))
    validator = Draft202012Validator(strict(schema_of(name)))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(plain)]


@pytest.fixture(scope="module")
def model() -> Model:
    return fit(read_tables(B70), build_machine("b70"))


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_schema_is_the_generated_one(name: str) -> None:
    committed = ROOT / "docs" / "schemas" / f"{name}.schema.json"
    assert committed.read_bytes() == encode_schema(name), "run `make schemas`"


def test_no_schema_is_left_over() -> None:
    files = {path.name for path in (ROOT / "docs" / "schemas").iterdir()}
    assert files == {f"{name}.schema.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas_and_describe_every_field_of_theirs(name: str) -> None:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["description"]
    own = ("RunEntry", "Columns", "PatternEntry", "ScenarioEntry", "Tagged", "Faded", "Residual")
    silent = [
        f"{title}.{key}"
        for title, part in (("", schema), *schema["$defs"].items())
        if title not in own  # Told as a whole, by the docstring of the type.
        for key, value in part.get("properties", {}).items()
        if "description" not in value and key not in ("format", "version")
    ]
    assert silent == []


@pytest.mark.parametrize("machine", MACHINES)
def test_topologies(machine: str) -> None:
    assert errors("topology", topology_to_document(build_machine(machine))) == []


def test_a_topology_with_everything() -> None:
    build = TopologyBuilder("all")
    build.peer_access = False
    build.node("gpu0", NodeKind.GPU, index=0, net_names=["a"], pair=(1, 2))
    build.node("gpu1", NodeKind.GPU, label="one")
    build.connect("gpu0", "gpu1", LinkKind.NVLINK, nominal_Bps=float("inf"), count=2)
    build.no_peer_pairs.append(["gpu0", "gpu1"])
    build.stated_classes.append(["gpu0", "gpu1", "PIX"])
    build.class_overrides.append(["gpu0", "gpu1", "SYS"])
    build.note("a note")
    build.source("a source")
    build.resource(Resource(id="r", sharing=Sharing.TIME_SHARED, kappa=0.9, in_order=True))
    build.use(Use(resource="r", sources=("gpu0",), path_classes=(PathClass.NVL,), weight=2.0))
    build.use(Use(resource="r"))
    assert errors("topology", topology_to_document(build.build())) == []


@pytest.mark.parametrize("machine", ["b70", "dgx-h100"])
def test_plans(machine: str) -> None:
    assert errors("plan", plan_to_document(design(build_machine(machine)))) == []


def test_models_and_caps(model: Model) -> None:
    assert errors("model", model_to_document(model)) == []
    assert errors("caps", caps_to_document(model.caps())) == []


def test_a_calibration_of_tables(tmp_path: Path) -> None:
    write_calibration(read_tables(B70), tmp_path / "c.json")
    assert errors("calibration", json.loads((tmp_path / "c.json").read_bytes())) == []


def test_what_the_command_line_writes(tmp_path: Path) -> None:
    """A calibration with many sizes, repeats and conditions, its model, and its caps."""
    for command in (
        "read dgx-h100.txt -o topology.json",
        "plan dgx-h100 --sizes 64KiB,16MiB -o plan.json",
        "calibrate dgx-h100 -o model.json --simulate dgx-h100 --sizes 1MiB,64MiB --repeats 3",
        "caps model.json --group-size 8 --backend nccl --setting NCCL_P2P_LEVEL=SYS -o caps.json",
    ):
        (tmp_path / "dgx-h100.txt").write_text(
            "        GPU0  GPU1  CPU Affinity\nGPU0     X    PIX   0-23\nGPU1    PIX    X    0-23\n"
        )
        ran = subprocess.run(
            [sys.executable, "-m", "topocal", *command.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    (tmp_path / "calibration.json").write_bytes((tmp_path / "model.calibration.json").read_bytes())
    for name in NAMES:
        document = json.loads((tmp_path / f"{name}.json").read_bytes())
        assert errors(name, document) == [], name
    assert load([tmp_path / "calibration.json"]).samples


def damaged(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document without each of its fields, and with each of another type."""
    for key in document:
        yield f"without {key}", {k: v for k, v in document.items() if k != key}
        yield f"{key} of another type", {**document, key: {"no": ["such", "thing"]}}


OPTIONAL = {
    "topology": {
        "peer_access", "no_peer_pairs", "stated_classes", "class_overrides", "provenance",
        "notes", "attributes", "digest",
    },
    "plan": {"digest"},
    "model": {"fading", "undecided_endpoints", "provenance", "digest"},
    "calibration": {"digest"},
    "caps": set[str](),
}  # fmt: skip
"""What files of earlier releases, or of others, may lack."""

FREE = ("attributes of another type",)
"""An object may hold anything there."""


def test_what_is_damaged_is_found(model: Model, tmp_path: Path) -> None:
    write_calibration(read_tables(B70), tmp_path / "c.json")
    documents = {
        "topology": topology_to_document(build_machine("b70")),
        "plan": plan_to_document(design(build_machine("b70"))),
        "calibration": json.loads((tmp_path / "c.json").read_bytes()),
        "model": model_to_document(model),
        "caps": caps_to_document(model.caps()),
    }
    assert set(documents) == set(NAMES)
    for name, document in documents.items():
        for what, bad in damaged(document):
            if what.removeprefix("without ") in OPTIONAL[name] or what in FREE:
                continue
            assert errors(name, bad), f"{name} {what} passes"
        assert errors(name, {**document, "version": 99})
        assert errors(name, {**document, "format": "topocal/other"})


def test_the_command(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "topocal", "schema", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    listed = run()
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(NAMES)
    assert set(json.loads(run("--json").stdout)["schemas"]) == set(NAMES)
    assert run("caps").stdout.encode() == encode_schema("caps")
    assert run("caps", "-o", "caps.schema.json").returncode == 0
    assert (tmp_path / "caps.schema.json").read_bytes() == encode_schema("caps")
    unknown = run("kaps")
    assert unknown.returncode == 2
    assert "did you mean caps?" in unknown.stderr
    every = run("nothing")
    assert every.returncode == 2
    assert "topology, plan, calibration, model, caps" in every.stderr
    assert run("-o", "x.json").returncode == 2


def test_an_unknown_name() -> None:
    with pytest.raises(InputError, match="no schema 'x'"):
        schema_of("x")

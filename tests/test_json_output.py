"""What --json prints: valid JSON, one name for one thing, and every name in the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topocal import cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "json.md").read_text()

Run = Callable[..., tuple[int, str, str]]

LINES = [
    "assign caps.json wanted.csv",
    "calibrate topology.json -o m.json --simulate model.json --rounds 1",
    "caps model.json",
    "demo",
    "diff model.json changed.json",
    "discover --sysfs sys",
    "explain pairs.csv fans.csv",
    "explain model.json --fan-in 0:1,2",
    "export model.json --as dot",
    "export model.json --as dot -o x.dot",
    "fabric --like topology.json --ingress 0=1GB/s",
    "fit pairs.csv fans.csv",
    "gather --sysfs sys -o host.tar.gz",
    "plan topology.json",
    "predict model.json --fan-in 0:1,2",
    "price caps.json flows.csv",
    "price caps.json totals.csv",
    "read topo-m.txt",
    "report model.json -o report.html",
    "schema",
    "schema model",
    "schema model -o model.schema.json",
    "show",
    "show topology.json",
    "show --nominal",
    "simulate model.json flows.csv --set gpu1.sender.far=2x",
    "simulate model.json patterns.csv --set gpu1.sender.far=2x",
]

ALSO = {"measure", "completion"}
"""Commands without a line here: one needs processes (test_command_measure.py looks at what it
prints), one prints a script."""

BY_NAME = {
    "true_Bps", "visible_Bps", "nominal_Bps", "nodes", "path_classes", "outputs", "schemas",
    "relays", "set_aside",
}  # fmt: skip
"""Objects whose fields are not ours: names of resources, kinds, programs."""


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field, but for what stands in files that have a schema."""
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, dict):
        form = str(value.get("format", ""))
        if (form.startswith("topocal/") and form != "topocal/assignment") or "$schema" in value:
            return
        for key, item in value.items():
            yield key, item
            if not (key in BY_NAME and isinstance(item, dict)):
                yield from _walk(item)


def _strict(text: str) -> Any:
    def never(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=never)


@pytest.fixture
def files(run: Run) -> Run:
    document = json.loads(Path("model.json").read_text())
    del document["digest"]
    for resource in document["resources"]:
        for key in ("capacity_Bps", "low_Bps", "high_Bps"):
            resource[key] = resource[key] and resource[key] * 3
    Path("changed.json").write_text(json.dumps(document))
    Path("sys/devices/system/node").mkdir(parents=True)
    Path("totals.csv").write_text("process,sent,received\n0,5,0\n1,0,5\n")
    Path("topo-m.txt").write_text("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n")
    Path("patterns.csv").write_text("source,destination,size,pattern\n0,1,1MB,a\n1,2,1MB,b\n")
    return run


def _documented() -> set[str]:
    return set(re.findall(r"^\| `([\w`, ]+)` \|", PAGE, flags=re.MULTILINE))


def _names() -> set[str]:
    return {name for cell in _documented() for name in re.split(r"`, `", cell)}


def test_every_command_that_prints_json_is_here() -> None:
    assert {line.split()[0] for line in LINES} | ALSO == set(cli.VERBS)


@pytest.mark.parametrize("line", LINES)
def test_every_name_is_documented(line: str, files: Run) -> None:
    status, out, _ = files(*line.split(), "--json")
    assert status == (1 if line.startswith("diff") else 0)
    document = _strict(out)
    assert isinstance(document, dict)
    assert {key for key, _ in _walk(document)} <= _names()


def test_units_are_in_names_and_names_are_not_stale(files: Run) -> None:
    found: dict[str, set[str]] = {}
    for line in LINES:
        for key, value in _walk(_strict(files(*line.split(), "--json")[1])):
            kind = "number" if isinstance(value, int | float) else type(value).__name__
            found.setdefault(key, set()).add(kind)
    for key in found:
        # Inside all is SI: no GB/s, no MB, no milliseconds.
        assert not re.search(r"_(GBps|MBps|Gbps|GB|MB|MiB|GiB|ms|us)$", key), key
        if re.search(r"_(Bps|bytes|s)$", key):
            assert found[key] <= {"number", "NoneType", "list", "dict"}, (key, found[key])
    unused = _names() - set(found) - {"what", "remedy"}  # Of problems, of which there are none.
    # What only real messages bring.
    of_messages = "samples set_aside backend remarks relays receives sends live real instead"
    assert unused <= {*of_messages.split(), "fitted_Bps", "fans", "predicted_s", "measured_s"}

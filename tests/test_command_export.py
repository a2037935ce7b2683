"""``topocal export``: files, notes, JSON, and what it refuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import pytest

B70 = Path(__file__).parents[1] / "examples" / "b70"


def topocal(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topocal", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a fitted model.json."""
    place = tmp_path_factory.mktemp("export")
    fitted = topocal(
        "fit", B70 / "pairs.csv", B70 / "fans.csv", "-t", "b70", "-o", "model.json", cwd=place
    )
    assert fitted.returncode == 0, fitted.stderr
    return place


@pytest.mark.parametrize("format", ["simgrid", "nccl", "graphml", "dot"])
def test_a_model_in_every_format(format: str, folder: Path) -> None:
    ran = topocal("export", "model.json", "--as", format, "-o", f"x.{format}", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert f"wrote x.{format} (fitted capacities)" in ran.stdout
    text = (folder / f"x.{format}").read_text()
    printed = topocal("export", "model.json", "--as", format, cwd=folder)
    assert printed.stdout == text
    if format == "dot":
        assert text.startswith('digraph "b70" {')
    elif format == "graphml":
        graph = nx.read_graphml(io.BytesIO(text.encode()), force_multigraph=True)
        edge = graph.edges["switch1", "socket0", "switch1->socket0"]
        resources = {
            r["id"]: r for r in json.loads((folder / "model.json").read_text())["resources"]
        }
        assert edge["capacity_Bps"] == resources["switch1->socket0"]["capacity_Bps"]
        assert edge["status"] == resources["switch1->socket0"]["status"]
    else:
        assert ET.fromstring(text).tag == {"simgrid": "platform", "nccl": "system"}[format]


def test_nccl_files_are_read_again(folder: Path) -> None:
    assert (
        topocal("export", "model.json", "--as", "nccl", "-o", "t.xml", cwd=folder).returncode == 0
    )
    ran = topocal("read", "t.xml", "-o", "t.json", cwd=folder)
    assert "4 PIX, 8 PHB, 16 SYS" in ran.stdout


def test_json_has_the_notes_and_the_content(folder: Path) -> None:
    ran = topocal("export", "b70", "--as", "simgrid", "--endpoints", "0,1,7", "--json", cwd=folder)
    document = json.loads(ran.stdout)
    assert document["capacities"] == "nominal"
    assert document["machine"] == "b70"
    hosts = [e.get("id") for e in ET.fromstring(document["content"]).iter("host")]
    assert hosts == ["gpu0", "gpu1", "gpu7"]
    assert any("nothing says what they pass" in note for note in document["notes"])
    ran = topocal("export", "b70", "--as", "dot", "-o", "b.dot", "--json", cwd=folder)
    document = json.loads(ran.stdout)
    assert document["output"] == "b.dot"
    assert "content" not in document


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["b70", "--as", "visio"], "choose one of simgrid, nccl, graphml, dot"),
        (["b70", "--as", "dot", "--endpoints", "0,1"], "--endpoints is for simgrid"),
        (["b70", "--as", "simgrid", "--host", "a"], "--host is for nccl"),
        (["h20-pair", "--as", "nccl"], "choose one with --host: node0, node1"),
        (["b70", "--as", "simgrid", "--endpoints", "0,99"], "gpu7"),
        (["model.json", "--as", "dot", "-o", "model.json"], "is what is read"),
        (["none.json", "--as", "dot"], "none.json"),
        (["b70"], "--as"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str, folder: Path) -> None:
    before = (folder / "model.json").read_bytes()
    ran = topocal("export", *words, cwd=folder)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert told in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    assert (folder / "model.json").read_bytes() == before


def test_what_is_wrong_names_the_file(tmp_path: Path) -> None:
    ran = topocal("export", "h20-pair", "--as", "nccl", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == ("topocal: h20-pair: has 2 hosts; choose one with --host: node0, node1\n")

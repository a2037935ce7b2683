"""``topocal show`` as people call it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from topocal.cli import main
from topocal.topo.io import write_topology
from topocal.topo.machines import MACHINES, b70, rail_pod
from topocal.topo.nominal import SOURCES

MATRIX = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\t0-31\t0
GPU1\tPIX\t X \t0-31\t0
"""


@dataclass
class Result:
    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["topocal", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return Result(int(caught.value.code or 0), printed.out, printed.err)

    return call


def document(result: Result) -> dict[str, Any]:
    assert result.status == 0
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_the_tree_and_who_shares_what(run: Run) -> None:
    result = run("show", "b70")
    assert result.status == 0
    assert result.err == ""
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == "b70  8 GPUs · 4 PCIe switches · 2 sockets"
    assert lines[1:6] == [
        "machine",
        "├── socket0",
        "│   ├── switch0  PCIe",
        "│   │   ├── gpu0  PCIe · Arc Pro B70",
        "│   │   └── gpu1  PCIe · Arc Pro B70",
    ]
    assert "    └── socket0 to socket1: SMP" in lines
    row = next(line for line in lines if "switch0->socket0" in line)
    # All are shared as capacities, and no speed is known: columns of that would say nothing.
    assert row.split() == ["switch0->socket0", "12", "gpu0–1", "gpu2–7"]
    # What belongs to one card is not shared.
    assert not any("gpu0->switch0" in line for line in lines)


def test_capacities_fabric_and_sources(run: Run) -> None:
    out = run("show", "dgx-h100").out
    assert "switch0  PCIe 5.0 x16 · 57.6 GB/s" in out
    assert "nvswitch0 to gpu0–7: 18 × NVLink 4 · 450 GB/s" in out
    assert "no resource is shared" in out
    assert f"  {SOURCES['nvlink 4'].source}" in out.splitlines()


def test_alike_nodes_once_and_the_network(run: Run) -> None:
    out = run("show", "rail-pod").out
    assert "node0–7 (8 alike)" in out
    assert out.count("node0/switch0  PCIe") == 1
    assert "node1/switch0" not in out
    assert "rail3  node0–7/nic3" in out
    assert "network · 100 GB/s: 32 links" in out
    assert "more; --json lists all" in out


def test_json_holds_all_of_it(run: Run) -> None:
    found = document(run("show", "b70", "--json"))
    assert found["machine"] == "b70"
    assert found["endpoints"] == [f"gpu{k}" for k in range(8)]
    (machine,) = found["machines"]
    socket0 = machine["trees"][0]
    assert (socket0["node"], socket0["kind"], socket0["link"]) == ("socket0", "socket", None)
    gpu3 = socket0["children"][1]["children"][1]
    assert gpu3["node"] == "gpu3"
    assert gpu3["link"]["forth_nominal_Bps"] is None
    assert len(found["resources"]) == 26
    assert found["resources"][0]["pairs"] == 16
    assert found["problems"] == []
    assert found["output"] is None


def test_every_reference_machine_by_name(run: Run) -> None:
    for name in MACHINES:
        assert document(run("show", name, "--json"))["machine"] == name


def test_a_file_of_ours(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    write_topology(rail_pod(2), path)
    assert document(run("show", path, "--json"))["network"]["switches"][0] == "rail0"


@pytest.mark.parametrize("how", ["file", "standard input"])
def test_the_output_of_a_tool(run: Run, tmp_path: Path, how: str) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(MATRIX)
    result = (
        run("show", path, "--json")
        if how == "file"
        else run("show", "-", "--json", stdin=MATRIX.encode())
    )
    assert document(result)["endpoints"] == ["gpu0", "gpu1"]


def test_a_file_wins_over_a_machine_of_the_same_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topology(MACHINES["gh200"].build(), tmp_path / "b70")
    monkeypatch.chdir(tmp_path)
    assert document(run("show", "b70", "--json"))["machine"] == "gh200"


def test_svg(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "b70.svg"
    result = run("show", "b70", "--svg", path)
    assert result.out.replace("\n", "").endswith(f"drawn to {path}")
    root = ElementTree.fromstring(path.read_text())
    assert root.tag.endswith("}svg")
    assert document(run("show", "b70", "--svg", path, "--json"))["output"] == str(path)
    assert list(tmp_path.iterdir()) == [path]


def test_notes_and_problems_are_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    topology = b70()
    graph = topology.graph.copy()
    graph.graph["notes"] = ["read [with] care"]
    graph.edges["gpu0", "switch0", "gpu0->switch0"]["width"] = 3
    write_topology(type(topology)(graph), path)
    out = run("show", path).out
    assert "  read [with] care" in out
    assert "PCIe width 3; give one of 1, 2, 4, 8, 16, 32, or None" in out


def test_list_of_machines(run: Run) -> None:
    found = document(run("show", "--json"))
    assert [machine["name"] for machine in found["machines"]] == list(MACHINES)
    out = run("show").out
    assert all(name in out for name in MACHINES)


def test_nominal_constants(run: Run) -> None:
    found = document(run("show", "--nominal", "--json"))
    assert {row["key"]: row["source"] for row in found["constants"]} == {
        key: constant.source for key, constant in SOURCES.items()
    }
    assert "nvlink 4" in run("show", "--nominal").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "b71"], "no file and no reference machine 'b71'; did you mean b70?"),
        (["show", "absent.json"], "absent.json: no such file or directory"),
        (["show", "b70", "--svg", "no/such/folder.svg"], "cannot be written"),
    ],
)
def test_bad_input_ends_in_one_line(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert message in result.err
    assert result.err.count("\n") == 1


def test_text_that_is_no_topology(run: Run) -> None:
    result = run("show", "-", stdin=b"hello")
    assert result.status == 2
    assert "standard input: is of no known kind" in result.err

"""What the published machine's figures say, and two pastes to an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from topocal.measure.importers.tables import read_tables
from topocal.solve.explain import Explanation, explain
from topocal.topo.machines import b70

B70 = Path(__file__).parents[1] / "examples" / "b70"
TABLES = [B70 / "pairs.csv", B70 / "fans.csv"]

TOPO = """\
\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\t0-7\t0
GPU1\tPIX\t X \tSYS\t0-7\t0
GPU2\tSYS\tSYS\t X \t8-15\t1
"""

P2P = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 900.00  26.00   3.90
     1  26.10 901.00   3.90
     2   3.80   3.90 899.00
"""


@pytest.fixture(scope="module")
def explained() -> Explanation:
    return explain(read_tables(TABLES), b70(), time_limit_s=60.0)


@pytest.mark.heavy
def test_ten_resources_suffice_and_no_fewer_do(explained: Explanation) -> None:
    fewest = explained.fewest
    assert fewest is not None
    assert fewest.status == "optimal"
    assert len(fewest.chosen) == fewest.at_least == 10
    assert fewest.unique is False
    assert len(fewest.time_shared) == 8


def test_findings_name_the_senders(explained: Explanation) -> None:
    texts = " ".join(f.text for f in explained.findings)
    assert "near is slower than far" in texts
    for finding in explained.findings:
        assert finding.about
        assert "\n" not in finding.text


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topocal", "explain", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_two_pastes_to_an_answer(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    (tmp_path / "p2p.txt").write_text(P2P)
    ran = _run("topo.txt", "p2p.txt", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    # The topology came from the first paste: one pair shares a switch, the third card is afar.
    resources = {r["id"] for r in document["model"]["resources"]}
    assert any("socket0->socket1" in r for r in resources)
    assert document["fewest"]["status"] in ("optimal", "feasible")
    people = _run("topo.txt", "p2p.txt", cwd=tmp_path)
    assert "The fewest resources" in people.stdout


def test_a_topology_alone_is_described(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    ran = _run("topo.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "behind one PCIe switch: gpu0 and gpu1; alone gpu2" in ran.stdout
    assert "give measurements of its transfers" in ran.stdout


def test_what_is_neither_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "junk.txt").write_text("hello\n")
    ran = _run("junk.txt", cwd=tmp_path)
    assert ran.returncode == 2
    assert "junk.txt" in ran.stderr
    assert ran.stderr.count("\n") == 1

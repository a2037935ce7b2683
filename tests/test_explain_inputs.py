"""Files in any mix, explained together: what cannot be used is passed over, and told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from topocal.explaining import sort_inputs
from topocal.measure.importers.registry import sniff_or_none
from topocal.topo.errors import InputError
from topocal.topo.readers.reader import read_text

CASES = Path(__file__).parents[1].parent / "shared" / "cases"

TOPO = """\
        GPU0  GPU1  GPU2  CPU Affinity  NUMA Affinity
GPU0     X    PIX   SYS   0-23          0
GPU1    PIX    X    SYS   0-23          0
GPU2    SYS   SYS    X    24-47         1
"""
PAIRS = """\
source,destination,bandwidth_GBps
gpu0,gpu1,25
gpu1,gpu0,25
gpu0,gpu2,12
gpu2,gpu0,12
gpu1,gpu2,12
gpu2,gpu1,12
"""
HOST = """\
source,destination,bandwidth_GBps
cpu0,gpu0,12
gpu0,cpu0,13
"""
COLLECTIVE = """\
collective,gpus,busbw_GBps
allreduce,"0,1,2",24
"""


def place(folder: Path, **texts: str) -> list[Path]:
    found = []
    for name, text in texts.items():
        path = folder / f"{name}.{'txt' if name == 'topo' else 'csv'}"
        path.write_text(text)
        found.append(path)
    return found


def test_nothing_is_passed_over_where_all_is_of_use(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, pairs=PAIRS), None)
    assert found.notes == ()
    assert found.machine is not None
    assert len(found.measurements.samples) == 6


def test_host_memory_that_the_topology_lacks_is_passed_over(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, pairs=PAIRS, host=HOST), None)
    assert found.machine is not None
    assert len(found.measurements.samples) == 6
    (note,) = found.notes
    assert "cpu0: 2 figures" in note


def test_a_topology_that_shows_nothing_of_what_was_measured_is_not_used(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, host=HOST), None)
    assert found.machine is None
    assert len(found.measurements.samples) == 2
    assert "it is not used" in found.notes[0]


def test_an_endpoint_that_is_misspelt_is_not_passed_over(tmp_path: Path) -> None:
    files = place(tmp_path, topo=TOPO, pairs=PAIRS.replace("gpu2", "gpu9"))
    ran = explain(*files)
    assert ran.returncode == 2
    assert "gpu9" in ran.stderr


def test_a_file_of_collectives_alone_is_passed_over_beside_others(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, pairs=PAIRS, collective=COLLECTIVE), None)
    assert len(found.measurements.samples) == 6
    (note,) = [n for n in found.notes if "no figure that a fit can use" in n]
    assert note.startswith("collective.csv: ")
    assert "library's choice" in note


def test_where_no_file_is_of_use_the_reason_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no figure that a fit can use"):
        sort_inputs(place(tmp_path, topo=TOPO, collective=COLLECTIVE), None)
    with pytest.raises(InputError, match="no measurements among the files"):
        sort_inputs(place(tmp_path, topo=TOPO), None)


def explain(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topocal", "explain", *map(str, words)],
        capture_output=True,
        text=True,
    )


def test_what_was_passed_over_is_printed_and_in_the_json(tmp_path: Path) -> None:
    files = place(tmp_path, topo=TOPO, pairs=PAIRS, host=HOST, collective=COLLECTIVE)
    ran = explain(*files)
    assert ran.returncode == 0, ran.stderr
    assert "note: collective.csv: no figure" in ran.stdout
    notes = json.loads(explain(*files, "--json").stdout)["model"]["notes"]
    assert sum("passed over" in note for note in notes) == 2


NOTHING_TO_FIT = {"alpha-beta-ndv2-dgx2", "contend-shm-uplink-twice"}
"""Costs of links and collectives: `topocal read` shows them."""


@pytest.mark.skipif(not CASES.is_dir(), reason="the published files are not here")
@pytest.mark.parametrize("case", sorted(p for p in CASES.glob("*") if p.is_dir()), ids=str)
def test_all_measurements_of_a_case_together(case: Path) -> None:
    files = [p for p in sorted(case.iterdir()) if p.name != "case.md"]
    measured = [p for p in files if sniff_or_none(read_text(p)) is not None]
    others = [p for p in files if p not in measured]
    if not measured:
        pytest.skip("only topologies")
    if case.name in NOTHING_TO_FIT:
        with pytest.raises(InputError, match="no figure that a fit can use"):
            sort_inputs(measured, None)
        return
    found = sort_inputs(measured, None)
    assert found.measurements.samples
    for topology in others:
        one = sort_inputs([*measured, topology], None)
        assert one.measurements.samples
        assert len(one.measurements.samples) <= len(found.measurements.samples)

"""Files in any mix, explained together: what cannot be used is passed over, and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Run
from topocal.cli import command_line
from topocal.explaining import sort_inputs
from topocal.solve.model import read_model
from topocal.topo.errors import InputError

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


@pytest.fixture
def explain(command: Run) -> Run:
    """Runs ``topocal explain``."""
    return lambda *words: command("explain", *words)


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
    assert len(found.whole()[0].measurements.samples) == 6


def test_host_memory_that_the_topology_lacks_is_a_part_of_its_own(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, pairs=PAIRS, host=HOST), None)
    assert found.whole()[0].machine is not None
    assert len(found.whole()[0].measurements.samples) == 6
    (note,) = found.notes
    assert "cpu0: 2 figures" in note
    (_, host) = found.parts
    assert (host.title, host.machine) == (f"{found.parts[0].title} (with cpu0)", None)
    assert len(host.measurements.samples) == 2


def test_a_fit_takes_pastes_as_explain_does(tmp_path: Path) -> None:
    paste = tmp_path / "paste.txt"
    paste.write_text(
        TOPO + "\n" + "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n"
        "   D\\D     0      1\n     0 700.0  25.0\n     1  25.2 700.0\n"
    )
    model = tmp_path / "model.json"
    command_line()(["fit", str(paste), "-o", str(model)], standalone_mode=False)
    assert read_model(model).topology.accelerators == ("gpu0", "gpu1", "gpu2")
    # The report of that model takes the very paste as well, and figures of the host beside it.
    page = tmp_path / "page.html"
    (host,) = place(tmp_path, host=HOST.replace("gpu0,cpu0,13", "gpu0,gpu1,25"))
    command_line()(["report", str(model), str(host), "-o", str(page)], standalone_mode=False)
    assert "cpu0: 1 figure to and from there stand apart" in page.read_text()
    # Two machines in one table: one is fitted, and what is left is said.
    two = tmp_path / "two.csv"
    two.write_text(
        "box,source,destination,bandwidth_GBps\na,gpu0,gpu1,25\na,gpu1,gpu0,25\nb,gpu0,gpu1,50\n"
    )
    command_line()(["fit", str(two), "-o", str(model)], standalone_mode=False)
    assert "two.csv (box a) is used; not two.csv (box b)" in read_model(model).notes


def test_a_topology_that_shows_nothing_of_what_was_measured_is_not_used(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, host=HOST), None)
    assert found.machine is not None
    assert found.whole()[0].machine is None
    assert len(found.whole()[0].measurements.samples) == 2
    assert "it is not used" in found.notes[0]


def test_an_endpoint_that_is_misspelt_is_not_passed_over(tmp_path: Path, explain: Run) -> None:
    files = place(tmp_path, topo=TOPO, pairs=PAIRS.replace("gpu2", "gpu9"))
    ran = explain(*files)
    assert ran.status == 2
    assert "gpu9" in ran.err


def test_a_file_of_collectives_alone_is_no_part_of_a_fit(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, pairs=PAIRS, collective=COLLECTIVE), None)
    assert len(found.whole()[0].measurements.samples) == 6
    (note,) = [n for n in found.notes if "no figure that a fit can use" in n]
    assert note.startswith("collective.csv: ")
    assert "library's choice" in note


def test_where_no_file_is_of_use_a_fit_says_why(tmp_path: Path) -> None:
    found = sort_inputs(place(tmp_path, topo=TOPO, collective=COLLECTIVE), None)
    with pytest.raises(
        InputError, match=r"no figure that a fit can use: collective\.csv: which bytes"
    ):
        found.whole()
    alone = sort_inputs(place(tmp_path, topo=TOPO), None)
    assert alone.parts == ()
    assert alone.machine is not None


def test_the_same_file_twice_is_a_slip(tmp_path: Path) -> None:
    (path,) = place(tmp_path, pairs=PAIRS)
    copy = tmp_path / "copy.csv"
    copy.write_text(PAIRS)
    with pytest.raises(InputError, match="is the same as"):
        sort_inputs([path, copy], None)


# --- what tools do not say ---------------------------------------------------------------


def matrix(rate: float, step: float = 0.0) -> str:
    """A table without a title; each row reads a little more, so that it is not symmetric."""
    lines = ["     GPU0  GPU1  GPU2"]
    for a in range(3):
        row = ["-" if a == b else f"{rate + step * (a - b):.1f}" for b in range(3)]
        lines.append(f"GPU{a}  " + "  ".join(row))
    return "\n".join(lines) + "\n"


def test_a_table_that_reads_twice_another_is_one_of_both_ways(tmp_path: Path) -> None:
    files = place(tmp_path, pairs=PAIRS.replace(",12", ",25"))
    other = tmp_path / "more.txt"
    other.write_text(matrix(48.0))
    found = sort_inputs([*files, other], None)
    names = {s.name for s in found.whole()[0].measurements.samples}
    assert {"gpu0<->gpu1", "gpu0<->gpu2", "gpu1<->gpu2"} < names
    assert any("reads 1.92 times what the other figures say" in n for n in found.notes)


def test_an_unsymmetric_table_is_none_of_both_ways(tmp_path: Path) -> None:
    other = tmp_path / "p2p_bi.txt"
    other.write_text(matrix(48.0, 10.0))
    found = sort_inputs([other], None)
    assert all("<->" not in s.name for s in found.whole()[0].measurements.samples)


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("p2p_bi.txt", True),
        ("bidirectional.txt", True),
        ("both-ways.txt", True),
        ("p2p.txt", False),
        ("binary.txt", False),
    ],
)
def test_alone_the_name_of_the_file_counts(tmp_path: Path, name: str, both: bool) -> None:
    (tmp_path / name).write_text(matrix(100.0))
    found = sort_inputs([tmp_path / name], None)
    names = {s.name for s in found.whole()[0].measurements.samples}
    assert all(("<->" in n) is both for n in names)


def host_file(rate: float) -> str:
    return HOST.replace(",12", f",{rate}").replace(",13", f",{rate + 0.4}")


def test_cards_that_all_call_themselves_the_first_are_told_by_the_files(tmp_path: Path) -> None:
    files = place(tmp_path, card_1=host_file(12.0), card_3=host_file(3.0), card_4=host_file(12.1))
    found = sort_inputs(files, None)
    names = {s.name for s in found.whole()[0].measurements.samples}
    assert {"cpu0->gpu1", "cpu0->gpu3", "gpu4->cpu0"} < names
    assert any("gpu1, gpu3 and gpu4" in n for n in found.notes)


def test_files_that_disagree_throughout_are_explained_apart(tmp_path: Path, explain: Run) -> None:
    files = place(tmp_path, near=host_file(12.0), far=host_file(3.0))
    found = sort_inputs(files, None)
    assert [p.title for p in found.parts] == ["near.csv", "far.csv"]
    with pytest.raises(InputError, match="several machines or settings"):
        found.whole()
    ran = explain(*files)
    assert ran.status == 0, ran.err
    assert "== near.csv ==" in ran.out
    assert "4 times as fast in near.csv" in " ".join(ran.out.split())
    document = json.loads(explain(*files, "--json").out)
    assert [document["title"], document["others"][0]["title"]] == ["near.csv", "far.csv"]


def test_one_figure_that_differs_is_a_contradiction_of_one_machine(tmp_path: Path) -> None:
    again = PAIRS.replace("gpu0,gpu1,25", "gpu0,gpu1,17")
    found = sort_inputs(place(tmp_path, pairs=PAIRS, again=again), None)
    assert len(found.parts) == 1


def test_a_table_of_several_machines_is_explained_machine_by_machine(tmp_path: Path) -> None:
    text = "box,source,destination,bandwidth_GBps\n" + "".join(
        f"{box},gpu{a},gpu{b},{rate}\n"
        for box, rate in (("a", 25), ("b", 50))
        for a, b in ((0, 1), (1, 0))
    )
    found = sort_inputs(place(tmp_path, two=text), None)
    assert sorted(p.title for p in found.parts) == ["two.csv (box a)", "two.csv (box b)"]


# --- the command -------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("--faster", "3"), ("--size", "1MiB")])
def test_an_option_of_a_pattern_without_a_pattern_is_a_slip(
    tmp_path: Path, option: tuple[str, str], explain: Run
) -> None:
    ran = explain(*place(tmp_path, pairs=PAIRS), *option)
    assert ran.status == 2
    assert f"{option[0]} does nothing without a pattern" in ran.err
    assert ran.err.count("\n") == 1
    with_pattern = explain(*place(tmp_path, pairs=PAIRS), *option, "--flow", "0:1")
    assert with_pattern.status == 0, with_pattern.err


def test_what_was_passed_over_is_printed_and_in_the_json(tmp_path: Path, explain: Run) -> None:
    files = place(tmp_path, topo=TOPO, pairs=PAIRS, host=HOST, collective=COLLECTIVE)
    ran = explain(*files)
    assert ran.status == 0, ran.err
    assert "- collective.csv: no figure" in ran.out
    notes = json.loads(explain(*files, "--json").out)["model"]["notes"]
    assert sum("stand apart" in note or "no figure" in note for note in notes) == 2


def test_what_is_no_sample_and_a_topology_alone_are_explained_as_well(
    tmp_path: Path, explain: Run
) -> None:
    (topo,) = place(tmp_path, topo=TOPO.replace("PIX", "NV4").replace("SYS", "NV4"))
    lost = topo.read_text().replace("GPU2    NV4   NV4", "GPU2    SYS   SYS")
    topo.write_text(lost)
    ran = explain(topo)
    assert ran.status == 0, ran.err
    document = json.loads(explain(topo, "--json").out)
    assert set(document) == {"findings", "notes"}
    (collective,) = place(tmp_path, collective=COLLECTIVE + 'allreduce,"0,2,3",35\n')
    ran = explain(collective)
    assert ran.status == 0, ran.err
    assert "busbw: 24 GB/s over gpu0-gpu2 and 35 GB/s over gpu0, gpu2 and gpu3" in ran.out


def test_a_card_and_its_host_alone_can_be_asked_of(tmp_path: Path, explain: Run) -> None:
    (path,) = place(tmp_path, host=HOST)
    ran = explain(path, "--flow", "cpu0:gpu0")
    assert ran.status == 0, ran.err
    assert "12 GB/s in all" in ran.out

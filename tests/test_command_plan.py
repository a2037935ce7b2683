"""``topocal plan`` from end to end: what is printed, written and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from topocal import cli
from topocal.measure.plan import plan_to_document, read_plan
from topocal.topo.digest import digest_of
from topocal.topo.io import write_topology
from topocal.topo.machines import l40s


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", "plan", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return call


def _json(ran: Ran) -> dict[str, Any]:
    assert ran.status == 0
    assert ran.err == ""
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_it_tells_counts_costs_and_what_each_pattern_is_for(run: Run) -> None:
    ran = run("l40s")
    assert ran.status == 0
    assert ran.err == ""
    text = " ".join(ran.out.split())
    assert "l40s: 44 patterns between 8 endpoints in" in text
    assert "an exhaustive sweep has 155" in text
    assert "expected: " in text
    # Seven flows into one card, and at 256 MiB a buffer for each.
    assert "1792 MiB of buffers" in text
    assert "9 sizes from 4 KiB to 256 MiB, 5 repeats and 1 warm-up each" in text
    assert "note: capacity unknown (smp from socket to socket" in text
    row = next(line for line in ran.out.splitlines() if line.strip().startswith("switch0->gpu0 "))
    assert "gpu0<-" in row
    assert row.rstrip().endswith("2.00")
    assert "Not measured" in text
    assert "no transfer between these endpoints crosses it" in text
    assert "in series with" in text


def test_the_plan_is_written_and_printed_alike(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    printed = _json(run("l40s", "-o", str(path), "--json"))
    assert printed == json.loads(path.read_text())
    digest = printed.pop("digest")
    assert printed == json.loads(json.dumps(plan_to_document(read_plan(path))))
    assert digest == digest_of(printed)
    assert printed["format"] == "topocal/plan"
    assert printed["version"] == 1
    assert "wrote" in run("l40s", "-o", str(path)).out


def test_a_topology_file_gives_the_same_plan_as_the_machine(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    write_topology(l40s(), path)
    assert _json(run(str(path), "--json")) == _json(run("l40s", "--json"))


def test_another_tools_output_is_a_topology_too(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(
        "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tSYS\nGPU1\tPIX\t X \tSYS\nGPU2\tSYS\tSYS\t X \n"
    )
    assert _json(run(str(path), "--json"))["endpoints"] == ["gpu0", "gpu1", "gpu2"]


def test_sizes_repeats_and_endpoints_are_as_asked(run: Run) -> None:
    plan = _json(
        run("l40s", "--sizes", "1MiB,4KiB", "--repeats", "3", "--endpoints", "0,gpu4", "--json")
    )
    assert plan["sizes_bytes"] == [4096, 2**20]
    assert plan["repeats"] == 3
    assert plan["endpoints"] == ["gpu0", "gpu4"]


def test_a_budget_is_kept_and_what_is_left_out_is_said(run: Run) -> None:
    ran = run("l40s", "--budget-patterns", "5")
    assert "5 patterns between 8 endpoints" in ran.out
    assert "a pattern would do, but the budget leaves it out" in " ".join(ran.out.split())
    timed = _json(run("l40s", "--budget-seconds", "2", "--json"))
    assert 0 < timed["expected"]["seconds"] <= 2


def test_an_exhaustive_sweep_is_planned_for_comparison(run: Run) -> None:
    plan = _json(run("l40s", "--exhaustive", "--json"))
    assert plan["expected"]["patterns"] == 155
    assert plan["expected"]["rounds"] == 155
    designed = _json(run("l40s", "--json"))
    assert designed["expected"]["seconds"] < plan["expected"]["seconds"] / 4


def test_long_tables_are_cut_unless_all_is_asked_for(run: Run) -> None:
    cut, whole = run("rail-pod"), run("rail-pod", "--all")
    assert "more (--all prints them)" in cut.out
    assert "--all" not in whole.out
    assert len(whole.out.splitlines()) > 2 * len(cut.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing-like-it",), "no reference machine 'nothing-like-it'"),
        (("l40s", "--sizes", "big"), "'big' is not a size"),
        (("l40s", "--sizes", "0"), "is less than a byte"),
        (("l40s", "--endpoints", "0,99"), "unknown endpoint '99'"),
        (("l40s", "--endpoints", "0"), "needs two endpoints"),
        (("l40s", "--endpoints", "0,0"), "is named twice"),
        (("l40s", "--repeats", "0"), "0 repeats"),
        (("l40s", "--budget-patterns", "0"), "a budget of 0 patterns"),
        (("l40s", "--budget-seconds", "0.000001"), "one pattern takes"),
        (("l40s", "-o", "no/such/folder/plan.json"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    arguments: tuple[str, ...],
    message: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


def test_help_has_examples(run: Run) -> None:
    ran = run("--help")
    assert "topocal plan topology.json -o plan.json" in ran.out


def test_planning_loads_no_torch_and_no_solver() -> None:
    code = (
        "import sys; from topocal.measure.design import design;"
        "from topocal.topo.machines import b70; design(b70());"
        "print([m for m in ('torch', 'cvxpy', 'topocal.solve') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"

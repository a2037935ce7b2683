"""What tests of the command line have in common: running it, and files to run it on; and those of
the report: a browser, and pages of every kind of model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from browser import Browser

    import topocal as tc
    from topocal.solve.model import Model


class Ran(NamedTuple):
    """What came of a command."""

    status: int
    out: str
    err: str


B70 = Path(__file__).parents[1] / "examples" / "b70"

Run = Callable[..., Ran]

PAIRS = "source,destination,bandwidth_GBps\n0,1,25\n1,0,25\n0,2,24\n2,0,24\n1,2,12\n2,1,12\n"
FANS = "direction,root,peers,throughput_GBps\nin,0,1 2,25\n"
FLOWS = "source,destination,size\n0,1,64MiB\n2,1,64MiB\n"
WANTED = "parameter,target,holders,shape,element_bytes\nq,1,0 2,4096 4096,2\n"


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """Runs the command in a folder of its own, which is the current one."""
    from topocal.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return Ran(int(stopped.value.code or 0), out, err)

    return call


@pytest.fixture(scope="session")
def b70() -> tc.Model:
    """The published machine, fitted to its pairs and its three fans."""
    import topocal as tc

    tables = [str(B70 / "pairs.csv"), str(B70 / "fans.csv")]
    return tc.fit(tc.read_tables(tables), tc.machines.b70())


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model of three cards, its caps, topology and plan, and tables to use them with."""
    from topocal.measure.design import design
    from topocal.measure.load import load
    from topocal.measure.plan import write_plan
    from topocal.solve.caps import caps_of
    from topocal.solve.caps_document import write_caps
    from topocal.solve.fit import fit
    from topocal.solve.model import write_model
    from topocal.topo.io import write_topology

    folder = tmp_path_factory.mktemp("made")
    for name, text in {"pairs": PAIRS, "fans": FANS, "flows": FLOWS, "wanted": WANTED}.items():
        (folder / f"{name}.csv").write_text(text)
    model = fit(load([folder / "pairs.csv", folder / "fans.csv"]), None)
    write_model(model, folder / "model.json")
    write_caps(caps_of(model), folder / "caps.json")
    write_topology(model.topology, folder / "topology.json")
    write_plan(design(model.topology, sizes_bytes=[4096.0]), folder / "plan.json")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def run(command: Run, made: dict[str, bytes]) -> Run:
    """Runs the command in a folder with all of these files."""
    for name, content in made.items():
        Path(name).write_bytes(content)
    return command


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from browser import open_browser

    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    from report_models import MODELS

    return {name: make() for name, make in MODELS.items()}


@pytest.fixture(scope="session")
def pages(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each model."""
    from topocal.report.page import build_report, render_report

    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, model in models.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_report(build_report(model)))
    return found

"""The command line from end to end: what is printed, what is written, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from topocal import cli

B70 = Path(__file__).parents[1] / "examples" / "b70"
PAIRS, FANS = str(B70 / "pairs.csv"), str(B70 / "fans.csv")


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return call


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "model.json"
    subprocess.run(
        [sys.executable, "-m", "topocal", "fit", PAIRS, FANS, "-o", str(path)],
        check=True,
        capture_output=True,
    )
    return str(path)


def test_demo_tells_the_story(run: Run) -> None:
    ran = run("demo")
    assert ran.status == 0
    assert ran.err == ""
    for words in (
        "left out gpu1->gpu0, gpu1->gpu2, gpu1->gpu3",
        "receivers are time-shared",
        "Capacity resources alone cannot explain this machine",
        "slowest of width 7",
        "pinned by gpu6->gpu4",
        "gpu7 <- gpu0–6",
        "topocal explain topo.txt p2p.txt",
    ):
        assert words in " ".join(ran.out.split())


def test_demo_as_json(run: Run) -> None:
    document = json.loads(run("demo", "--json").out)
    assert len(document["extremes"]) == 8
    assert all(abs(row["error"]) < 0.03 for row in document["extremes"])
    assert all(row["binds"] for row in document["extremes"])


def test_fit_writes_a_model_and_says_what_it_did(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    ran = run("fit", PAIRS, FANS, "-o", str(path))
    assert ran.status == 0
    assert "2 groups of endpoints found from the pair table" in " ".join(ran.out.split())
    document = json.loads(path.read_text())
    assert document["format"] == "topocal/model"
    assert document["version"] == 1
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_fit_on_ones_own_files(run: Run, tmp_path: Path) -> None:
    pairs, fans = tmp_path / "p.csv", tmp_path / "f.csv"
    names = ("a", "b", "c")
    pairs.write_text(
        "source,destination,bandwidth_GBps\n"
        + "".join(f"{s},{d},20\n" for s in names for d in names if s != d)
    )
    fans.write_text('pattern,throughput_GBps\n"a<-b,c",20\n')
    model = tmp_path / "m.json"
    assert run("fit", str(pairs), str(fans), "-o", str(model)).status == 0
    ran = run("predict", str(model), "--fan-in", "b:a,c", "--size", "1GB", "--json")
    (prediction,) = json.loads(ran.out)["predictions"]
    assert prediction["seconds"] == pytest.approx(0.1, rel=0.02)


def test_predict_a_fan_that_nobody_measured(run: Run, model_file: str) -> None:
    ran = run("predict", model_file, "--fan-in", "2:3,5,7", "--size", "256MiB", "--json")
    assert ran.status == 0
    (prediction,) = json.loads(ran.out)["predictions"]
    # By hand: 0.9775 · (1/53.67 + 1/27.35 + 1/27.45) per GB, times 0.2684 GB.
    assert prediction["seconds"] == pytest.approx(0.02404, rel=0.01)
    assert prediction["throughput_Bps"] == pytest.approx(3 * 2**28 / prediction["seconds"])
    assert prediction["bottleneck"]["resource"] == "gpu2.receiver.engine"
    assert prediction["runner_up"]["seconds"] < prediction["bottleneck"]["seconds"]
    low, high = prediction["interval_s"]
    assert low <= prediction["seconds"] <= high


def test_every_form_of_a_pattern_is_the_same_prediction(run: Run, model_file: str) -> None:
    seconds = set()
    for options in (
        ("--fan-in", "3:4,5"),
        ("--pattern", "3<-4,5"),
        ("--flow", "4:3", "--flow", "gpu5:gpu3"),
    ):
        document = json.loads(run("predict", model_file, *options, "--json").out)
        seconds.add(document["predictions"][0]["seconds"])
    assert len(seconds) == 1


def test_predict_for_people_names_what_cannot_be_told_apart(run: Run, model_file: str) -> None:
    ran = run("predict", model_file, "--fan-in", "3:4,5,6,7")
    assert "the data cannot tell these apart" in " ".join(ran.out.split())
    assert "38.5 ms" in ran.out


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


BAD_FITS: dict[str, tuple[str, str]] = {
    "missing column": ("source,bandwidth_GBps\n0,5\n", "x.csv:1: has no column 'destination'"),
    "negative rate": ("source,destination,bandwidth_GBps\n0,1,-5\n", "x.csv:2: bandwidth_GBps"),
    "non-finite rate": ("source,destination,bandwidth_GBps\n0,1,inf\n", "x.csv:2:"),
    "empty": ("", "x.csv: is empty"),
    "another kind": ("hello\n", "x.csv:1: is not a table"),
    "binary": ("\x00\x01", "x.csv: is a binary file"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_input_is_one_line_status_two_and_nothing_written(
    name: str, run: Run, tmp_path: Path
) -> None:
    text, message = BAD_FITS[name]
    output = tmp_path / "m.json"
    ran = run("fit", _write(tmp_path / "x.csv", text), "-o", str(output))
    _refused(ran, message)
    assert not output.exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "x.csv"]


def test_an_unknown_endpoint_in_a_table_names_file_and_line(run: Run, tmp_path: Path) -> None:
    from topocal.topo.io import write_topology
    from topocal.topo.machines import b70

    topology = tmp_path / "topology.json"
    write_topology(b70(), topology)
    table = _write(tmp_path / "x.csv", "source,destination,bandwidth_GBps\n0,1,5\n0,11,5\n")
    ran = run("fit", table, "-t", str(topology), "-o", str(tmp_path / "m.json"))
    _refused(ran, "x.csv:3: unknown endpoint 'gpu11'; did you mean gpu1?")
    assert not (tmp_path / "m.json").exists()


def test_an_old_model_survives_a_failed_fit(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "m.json"
    output.write_text("precious")
    _refused(run("fit", _write(tmp_path / "x.csv", "hello\n"), "-o", str(output)), "x.csv")
    assert output.read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing to predict"),
        (("--fan-in", "2"), "'2' is not of the form ROOT:PEERS"),
        (("--fan-in", "2:2,3"), "flow from gpu2 to itself"),
        (("--fan-in", "2:99"), "unknown endpoint '99'"),
        (("--fan-in", "2:gpu33"), "did you mean gpu3?"),
        (("--fan-in", "2:3", "--size", "many"), "'many' is not a size"),
        (("--fan-in", "2:3", "--size", "-4"), "'-4' is not a size"),
        (("--pattern", "3-4"), "'3-4' is not a pattern"),
        (("--flow", "0:1", "--flow", "0:1"), "stands twice"),
    ],
)
def test_bad_questions_are_refused(
    options: tuple[str, ...], message: str, run: Run, model_file: str
) -> None:
    _refused(run("predict", model_file, *options), message)


def test_what_is_no_model_is_refused(run: Run, tmp_path: Path, model_file: str) -> None:
    damaged = json.loads(Path(model_file).read_text())
    del damaged["digest"]
    newer = damaged | {"version": 99}
    wrong: list[tuple[str, str]] = [
        ("hello", "not a JSON file"),
        ("{}", "is not a topocal/model file"),
        ("[1, 2]", "is not a topocal/model file"),
        (json.dumps(newer), "has version 99"),
        (json.dumps(damaged | {"resources": []}), "damaged model"),
        (json.dumps(damaged | {"noise": "loud"}), "damaged model"),
        (json.dumps({k: v for k, v in damaged.items() if k != "topology"}), "damaged model"),
        (json.dumps(_with_capacity(damaged, -1.0)), "damaged model"),
    ]
    for text, message in wrong:
        path = _write(tmp_path / "m.json", text)
        _refused(run("predict", path, "--fan-in", "0:1"), message)


def _with_capacity(document: dict[str, Any], value: float) -> dict[str, Any]:
    first, *others = document["resources"]
    return document | {"resources": [first | {"capacity_Bps": value}, *others]}


def _refused(ran: Ran, message: str) -> None:
    assert ran.status == 2
    assert ran.out == ""
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


def test_unwritable_output_is_refused(run: Run, tmp_path: Path) -> None:
    _refused(run("fit", PAIRS, "-o", str(tmp_path / "no" / "m.json")), "cannot be written")


def test_help_and_version(run: Run) -> None:
    assert "predict" in run("--help").out
    for command in ("fit", "predict", "demo"):
        assert f"topocal {command}" in run(command, "--help").out
    assert run("--version").out.startswith("topocal ")


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = ("cvxpy", "torch", "matplotlib", "numpy", "scipy", "networkx", "numba", "jinja2")
    code = f"import sys, topocal.cli; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_closed_pipe_is_not_an_error() -> None:
    code = f"'{sys.executable}' -m topocal demo | head -n 1"
    ran = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr

"""``topocal caps`` and ``topocal price``: what they print and write, and every mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import topocal as tc
from topocal.cli import main
from topocal.solve.caps_document import caps_digest, read_caps
from topocal.topo import machines

B70 = Path(__file__).parents[1] / "examples" / "b70"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.json"
    measured = tc.read_tables([str(B70 / "pairs.csv"), str(B70 / "fans.csv")])
    tc.write_model(tc.fit(measured, machines.b70()), path)
    return path


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path
) -> Run:
    """Runs the command in a directory with a model, flows and totals."""
    monkeypatch.chdir(tmp_path)
    Path("model.json").write_bytes(model.read_bytes())
    Path("flows.csv").write_text("source,destination,size\n4,3,1GiB\n5,3,1GiB\n3,3,1GiB\n")
    Path("totals.csv").write_text("process,sent,received\n4,1GiB,0\n5,1GiB,0\n3,0,2GiB\n")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topocal", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return call


def refused(ran: tuple[int, str, str], words: str) -> None:
    status, out, err = ran
    assert (status, out) == (2, "")
    assert err.startswith("topocal")
    assert err.count("\n") == 1
    assert words in err


def test_caps_are_written_printed_and_read_again(run: Run) -> None:
    status, out, err = run("caps", "model.json", "-o", "caps.json", "--backend", "xccl")
    assert (status, err) == (0, "")
    digest = caps_digest(read_caps("caps.json"))
    assert f"digest {digest}" in out
    assert "8 processes on b70" in out
    assert "calibrated with backend xccl" in out
    assert "wrote caps.json" in out
    _, as_json, _ = run("caps", "caps.json", "--json")
    assert as_json == Path("caps.json").read_text()
    assert run("caps", "caps.json", "--digest", digest)[0] == 0
    refused(run("caps", "caps.json", "--digest", "0" * 16), "holds other caps")
    refused(run("caps", "model.json", "--digest", "0" * 16), "holds other caps")
    refused(run("caps", "caps.json", "--backend", "nccl"), "are caps already")


def test_caps_of_some_endpoints_and_by_specification(run: Run) -> None:
    _, out, _ = run("caps", "model.json", "--endpoint", "5", "--endpoint", "gpu2", "--json")
    assert json.loads(out)["endpoints"] == ["gpu5", "gpu2"]
    refused(run("caps", "model.json", "--endpoint", "9"), "unknown endpoint '9'")
    status, out, _ = run("caps", "dgx-h100", "--json")
    assert status == 0
    assert {r["status"] for r in json.loads(out)["resources"]} == {"assumed"}


def test_a_price_is_printed_and_written(run: Run) -> None:
    run("caps", "model.json", "-o", "caps.json")
    status, out, err = run("price", "caps.json", "flows.csv", "-o", "price.json")
    assert (status, err) == (0, "")
    assert "busiest: " in out
    assert "1 GiB stay where they are" in out
    _, as_json, _ = run("price", "model.json", "flows.csv", "--json")
    found = json.loads(as_json)
    assert json.loads(Path("price.json").read_text()) == found
    (one,) = found["transfers"]
    ours = tc.price(read_caps("caps.json"), [(4, 3, 2**30), (5, 3, 2**30)])
    assert one["seconds"] == ours.seconds
    assert one["interval_s"] == [ours.low_s, ours.high_s]
    assert one["local_bytes"] == 2**30
    assert found["caps_digest"] == caps_digest(read_caps("caps.json"))
    again = run("price", "model.json", "flows.csv", "--json")[1]
    assert again == as_json


def test_totals_have_bounds(run: Run) -> None:
    _, out, _ = run("price", "model.json", "totals.csv")
    assert "depending on who sends to whom" in out
    _, as_json, _ = run("price", "model.json", "totals.csv", "--json")
    (one,) = json.loads(as_json)["transfers"]
    (priced,) = json.loads(run("price", "model.json", "flows.csv", "--json")[1])["transfers"]
    assert one["proven_s"] <= one["at_least_s"] <= priced["busiest_s"] <= one["at_most_s"] * 1.0001


def test_a_transfer_plan_needs_the_size_of_its_elements(run: Run) -> None:
    plan = {
        "logical_shape": [8],
        "segments": [{"shape": [8], "source": [0, 0, [1]], "target": [4, 0, [1]]}],
    }
    Path("plan.json").write_text(json.dumps(plan))
    refused(run("price", "model.json", "plan.json"), "--element-size 2")
    _, out, _ = run("price", "model.json", "plan.json", "--element-size", "2", "--json")
    assert json.loads(out)["transfers"][0]["moved_bytes"] == 16
    refused(run("price", "model.json", "plan.json", "--element-size", "0"), "an element of 0 bytes")


def test_stale_caps(run: Run) -> None:
    said = ("--group-size", "8", "--backend", "xccl", "--setting", "CCL_ZE_IPC=1")
    run("caps", "model.json", "-o", "caps.json", *said)
    assert run("price", "caps.json", "flows.csv", *said)[0] == 0
    other = run("price", "caps.json", "flows.csv", "--group-size", "16")
    refused(other, "stale caps: they were calibrated with group size 8 (the transfer has 16)")
    refused(run("price", "caps.json", "flows.csv", "--backend", "gloo"), "backend xccl")
    refused(run("price", "caps.json", "totals.csv", "--setting", "CCL_ZE_IPC=0"), "CCL_ZE_IPC 1")
    refused(run("price", "caps.json", "flows.csv", "--setting", "CCL"), "NAME=VALUE")
    refused(run("price", "caps.json", "flows.csv", "--group-size", "1"), "a group of 1")
    status, out, _ = run("price", "caps.json", "flows.csv", "--group-size", "16", "--allow-stale")
    assert status == 0
    assert "stale caps, used all the same" in out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"version": 1', '"version": 0', "has version 0 of topocal/caps"),
        ('"version": 1', '"version": 7', "has version 7 of topocal/caps"),
        ('"status":"pinned"', '"status":"bounded"', "was changed or damaged"),
        ('"digest"', '"digests"', "was changed or damaged"),
        ("{", "[", "caps.json: "),
    ],
)
def test_bad_caps(old: str, new: str, words: str, run: Run) -> None:
    run("caps", "model.json", "-o", "caps.json")
    text = Path("caps.json").read_text()
    assert old in text
    Path("caps.json").write_text(text.replace(old, new, 1))
    refused(run("price", "caps.json", "flows.csv"), words)
    refused(run("caps", "caps.json", "-o", "new.json"), words)
    assert not Path("new.json").exists()


def test_an_endpoint_that_is_missing(run: Run) -> None:
    run("caps", "model.json", "-o", "caps.json", "--endpoint", "0", "--endpoint", "4")
    refused(run("price", "caps.json", "flows.csv"), "flows.csv:2: unknown endpoint '3'")
    refused(run("price", "caps.json", "none.csv"), "no such file")
    refused(run("price", "none.json", "flows.csv"), "no such file")


def test_what_is_read_is_not_overwritten(run: Run) -> None:
    run("caps", "model.json", "-o", "caps.json")
    before = {name: Path(name).read_bytes() for name in ("model.json", "caps.json", "flows.csv")}
    refused(run("caps", "model.json", "-o", "./model.json"), "is what is read")
    for name in ("caps.json", "flows.csv"):
        refused(run("price", "caps.json", "flows.csv", "-o", name), "is what is read")
    assert before == {name: Path(name).read_bytes() for name in before}

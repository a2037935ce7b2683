"""Requests and assignments on disk, and ``topocal assign``: what is read, written and refused."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.cli import main
from topocal.solve.policy.files import parse_requests, requests_to_document
from topocal.solve.policy.requests import Request
from topocal.topo.errors import InputError
from topocal.topo.io import encode_document

ENDPOINTS = [f"gpu{k}" for k in range(8)]
HEAD = '{"format": "topocal/requests", "version": 1, "requests": '

JSON = """
{"format": "topocal/requests", "version": 1, "element_bytes": 2, "requests": [
 {"parameter": "wq", "target": "gpu4", "holders": ["gpu0", "gpu1"],
  "origin": [0, 8], "shape": [4, 2]},
 {"parameter": "norm", "target": 5, "holders": [0], "shape": [16], "element_bytes": 4},
 {"parameter": "step", "target": "GPU5", "holders": ["0"], "shape": []}
]}
"""

CSV = """
# two axes, one, none
parameter,target,holders,origin,shape,element_bytes
wq,gpu4,gpu0 gpu1,0 8,4 2,2

norm,5,0,,16,4
step,GPU5,0,,,2
"""

REQUESTS = [
    Request(
        parameter="wq",
        target="gpu4",
        holders=("gpu0", "gpu1"),
        origin=(0, 8),
        shape=(4, 2),
        element_bytes=2,
    ),
    Request(
        parameter="norm",
        target="gpu5",
        holders=("gpu0",),
        origin=(0,),
        shape=(16,),
        element_bytes=4,
    ),
    Request(
        parameter="step", target="gpu5", holders=("gpu0",), origin=(), shape=(), element_bytes=2
    ),
]


@pytest.mark.parametrize("text", [JSON, CSV, "\ufeff" + CSV.strip(), CSV.replace("\n", "\r\n")])
def test_both_forms_say_the_same(text: str) -> None:
    assert parse_requests(text.encode(), ENDPOINTS, file="r") == REQUESTS


@given(
    st.lists(
        st.builds(
            lambda name, target, holders, region, size: Request(
                parameter=name,
                target=target,
                holders=tuple(holders),
                origin=tuple(a for a, _ in region),
                shape=tuple(b for _, b in region),
                element_bytes=size,
            ),
            st.text(st.characters(exclude_categories=["Cs"])),
            st.sampled_from(ENDPOINTS),
            st.lists(st.sampled_from(ENDPOINTS), min_size=1, unique=True),
            st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 1000)), max_size=3),
            st.integers(1, 8),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(deadline=None, max_examples=60)
def test_requests_survive_the_round_trip(requests: list[Request]) -> None:
    text = json.dumps(requests_to_document(requests))
    assert parse_requests(text.encode(), ENDPOINTS, file="r") == requests
    written = encode_document(requests_to_document(requests))
    assert parse_requests(written, ENDPOINTS, file="r") == requests


ONE = (
    '{"parameter": "p", "target": "gpu1", "holders": ["gpu0"], "shape": [2], "element_bytes": 1%s}'
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "r: has no requests; give parameter"),
        (HEAD + "[]}", "r: has no requests; give parameter"),
        (HEAD + "3}", "r: has no list of requests"),
        (HEAD + "[3]}", "r: requests[0]: is no object"),
        ("[1]", "r: does not say that it holds requests"),
        ('{"format": "topocal/model", "version": 1}', "r: is not a topocal/requests file but"),
        ('{"format": "topocal/requests", "version": 2, "requests": []}', "r: has version 2"),
        (HEAD + "[", "not a JSON file"),
        (HEAD + '[], "more": 1}', "r: unknown field 'more'"),
        (HEAD + "[" + ONE % ', "size": 1' + "]}", "r: requests[0]: unknown field 'size'"),
        (
            HEAD + "[" + ONE.replace("shape", "form") % "" + "]}",
            "requests[0]: unknown field 'form'",
        ),
        (HEAD + "[" + ONE.replace('"shape": [2], ', "") % "" + "]}", "requests[0]: no shape"),
        (HEAD + "[" + ONE.replace("[2]", "2") % "" + "]}", "shape is no list of whole numbers"),
        (HEAD + "[" + ONE.replace("[2]", "[2.5]") % "" + "]}", "shape is no list of whole"),
        (HEAD + "[" + ONE.replace("[2]", "[true]") % "" + "]}", "shape is no list of whole"),
        (HEAD + "[" + ONE.replace("[2]", "[-2]") % "" + "]}", "zero or more"),
        (HEAD + "[" + ONE.replace('"gpu1"', '"gpu9"') % "" + "]}", "unknown endpoint 'gpu9'"),
        (HEAD + "[" + ONE.replace('"gpu1"', "null") % "" + "]}", "requests[0]: no target"),
        (HEAD + "[" + ONE.replace('"gpu1"', "[]") % "" + "]}", "'[]' is no endpoint"),
        (HEAD + "[" + ONE.replace('["gpu0"]', '"gpu0"') % "" + "]}", "holders is no list"),
        (HEAD + "[" + ONE.replace('["gpu0"]', "[]") % "" + "]}", "nobody holds it"),
        (
            HEAD + "[" + ONE.replace('["gpu0"]', '["gpu0", "0"]') % "" + "]}",
            "a holder stands twice",
        ),
        (HEAD + "[" + ONE.replace('"p"', "1") % "" + "]}", "parameter is no text"),
        (HEAD + "[" + ONE.replace('bytes": 1', 'bytes": "1"') % "" + "]}", "no whole number"),
        (HEAD + "[" + ONE % ', "origin": [1, 2]' + "]}", "its origin has 2 axes and its shape 1"),
        ("parameter,target,holders,shape\n", "r:1: no column element_bytes"),
        ("a,a\n", "r:1: unknown column 'a'; the columns are parameter"),
        (CSV.replace("origin", "shape"), "r:3: two columns for shape"),
        (CSV + "x,1\n", "r:8: has 2 fields where the header has 6"),
        (CSV.replace("4 2,2", "4 x,2"), "r:4: shape '4 x' is not whole numbers"),
        (CSV.replace("4 2,2", "4 -2,2"), "r:4: shape '4 -2' is not whole numbers"),
        (CSV.replace("4 2,2", "4 2,"), "r:4: no element_bytes"),
        (CSV.replace("4 2,2", "4 2,2 2"), "r:4: no element_bytes"),
        (CSV.replace("gpu0 gpu1", "gpu0 gpu11"), "r:4: unknown endpoint 'gpu11'"),
        (CSV.replace("wq", '"wq'), "r:4: not a line of CSV"),
        ("\x00\x01\x02", "r: is a binary file"),
        ("\xff\xfe", "r:1: unknown column"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        parse_requests(text.encode(), ENDPOINTS, file="r")
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InputError, match="r:1: is not text"):
        parse_requests(b"\xff\xfe\x00", ENDPOINTS, file="r")


# The command.

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs ``topocal`` in a directory with ``requests.json`` and ``requests.csv``."""
    monkeypatch.chdir(tmp_path)
    Path("requests.json").write_text(JSON)
    Path("requests.csv").write_text(CSV)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return call


def test_assign_prints_and_writes_who_sends_what(run: Run) -> None:
    status, out, err = run("assign", "dgx-h100", "requests.csv", "-o", "parts.csv")
    assert (status, err) == (0, "")
    assert "3 requests, 82 B move in" in out
    assert "no answer finishes sooner" in out
    assert "100% of the busiest time rests on what no measurement had as its bottleneck" in out
    assert "wrote parts.csv" in out
    rows = list(csv.DictReader(Path("parts.csv").read_text().splitlines()))
    assert [(r["request"], r["holder"], r["origin"], r["shape"]) for r in rows] == [
        ("0", "gpu1", "0 8", "4 2"),
        ("1", "gpu0", "0", "16"),
        ("2", "gpu0", "", ""),
    ]


def test_assign_says_the_same_in_json(run: Run) -> None:
    _, out, _ = run("assign", "dgx-h100", "requests.json", "--json", "-o", "answer.json")
    printed, written = json.loads(out), json.loads(Path("answer.json").read_text())
    # Files may carry a digest of their own content besides.
    assert printed == {name: written[name] for name in printed}
    assert (printed["format"], printed["version"]) == ("topocal/assignment", 1)
    assert [part["holder"] for part in printed["parts"]] == ["gpu1", "gpu0", "gpu0"]
    assert printed["finish_s"] == pytest.approx(printed["bound_s"])
    assert printed["dependence"]["share"] == 1.0
    assert len(printed["answer_digest"]) == len(printed["caps_digest"]) == 71
    first = next(c for c in printed["candidates"] if c["name"] == "first")
    assert first["busiest_s"] >= printed["busiest_s"]


def test_where_nothing_is_known_no_time_is_given(run: Run) -> None:
    # No speed of this machine's links is stated: an answer of 0 s would be taken for one.
    status, out, _ = run("assign", "b70", "requests.csv")
    assert (status, out.count("nothing says how long it takes")) == (0, 1)
    assert "candidate" not in out
    answer = json.loads(run("assign", "b70", "requests.csv", "--json")[1])
    for name in ("finish_s", "bound_s", "gap", "busiest_s", "interval_s"):
        assert answer[name] is None, name
    assert answer["notes"] == ["nothing says how long it takes"]
    Path("flows.csv").write_text("source,destination,size\n0,1,256MiB\n")
    (priced,) = json.loads(run("price", "b70", "flows.csv", "--json")[1])["transfers"]
    for name in ("seconds", "busiest_s", "interval_s", "throughput_Bps"):
        assert priced[name] is None, name
    assert priced["notes"] == ["nothing says how long it takes"]


def test_assign_takes_caps_and_checks_their_digest(run: Run) -> None:
    assert run("caps", "dgx-h100", "-o", "caps.json")[0] == 0
    by_caps = json.loads(run("assign", "caps.json", "requests.json", "--json")[1])
    by_name = json.loads(run("assign", "dgx-h100", "requests.json", "--json")[1])
    assert by_caps == by_name
    ran = run("assign", "caps.json", "requests.json", "--digest", "0" * 64)
    assert ran[0] == 2
    assert ran[2].count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.json", "requests.json"), "none.json"),
        (("dgx-h100", "none.json"), "none.json: no such file"),
        (("dgx-h100", "requests.json", "-o", "a.txt"), "a.txt: is neither .csv nor .json"),
        (("dgx-h100", "requests.json", "--min-split", "0"), "no whole number of bytes"),
        (("dgx-h100", "requests.json", "--min-split", "1.5"), "no whole number of bytes"),
        (("dgx-h100", "requests.json", "--min-split", "x"), "is not a size"),
        (("requests.json", "requests.json"), "requests.json"),
        (("dgx-h100", "requests.json", "--group-size", "1"), "a group of 1"),
        (("dgx-h100", "requests.json", "-o", "no/such/a.csv"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    before = sorted(path.name for path in Path().iterdir())
    status, out, err = run("assign", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("topocal: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(path.name for path in Path().iterdir()) == before

"""Tables that people write: a column is known, a note that is told, or a slip that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import topocal as tc

Run = Callable[..., tuple[int, str, str]]

# Of each kind of table: how it is given to a command, a header and a row.
TABLES: dict[str, tuple[str, str, str]] = {
    "flows": ("simulate model.json {}", "source,destination,size", "0,1,1MB"),
    "transfers": ("price caps.json {}", "source,destination,size", "0,1,1MB"),
    "totals": ("price caps.json {}", "process,sent,received", "0,5,0\n1,0,5"),
    "requests": (
        "assign caps.json {}",
        "parameter,target,holders,shape,element_bytes",
        "q,1,0 2,4096 4096,2",
    ),
    "pairs": ("fit {}", "source,destination,bandwidth_GBps", "0,1,5\n1,0,5"),
    "rates": ("fit {}", "pair,one_way_GBps", "0-1,5\n1-0,5"),
}

# What a column is called by mistake, and what is said about it.
SLIPS: list[tuple[str, str, str]] = [
    ("flows", "strat", "unknown column 'strat'; did you mean start?"),
    ("flows", "patern", "unknown column 'patern'; did you mean pattern?"),
    ("flows", "priority", "unknown column 'priority'; the columns are source, destination, size,"),
    ("flows", "SIZE", "two columns for size"),
    ("flows", "bytes", "two columns for size"),
    ("transfers", "sart", "unknown column 'sart'; did you mean start?"),
    ("totals", "recieved", "unknown column 'recieved'; did you mean received?"),
    ("totals", "ingress", "two columns for received"),
    ("totals", "host", "unknown column 'host'; the columns are process, sent, received"),
    ("requests", "orgin", "unknown column 'orgin'; did you mean origin?"),
    ("requests", "Shape", "two columns for shape"),
    ("pairs", "sizee", "column 'sizee' is not known; did you mean size?"),
    ("rates", "sise", "column 'sise' is not known; did you mean size?"),
    ("rates", "repeats", "column 'repeats' is not known; did you mean repeat?"),
]


def _cells(header: str, rows: str, name: str, value: str) -> str:
    return f"{header},{name}\n" + "".join(f"{row},{value}\n" for row in rows.split("\n"))


@pytest.mark.parametrize(("kind", "name", "words"), SLIPS)
def test_a_column_that_is_no_column_is_refused(kind: str, name: str, words: str, run: Run) -> None:
    line, header, rows = TABLES[kind]
    Path("table.csv").write_text(_cells(header, rows, name, "1"))
    status, out, err = run(*line.format("table.csv").split())
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("topocal: table.csv:")
    assert words in err


@pytest.mark.parametrize("name", ["note", "Comment", "Remarks", "description"])
@pytest.mark.parametrize("kind", TABLES)
def test_notes_are_passed_over(kind: str, name: str, run: Run) -> None:
    line, header, rows = TABLES[kind]
    Path("table.csv").write_text(f"{header}\n{rows}\n")
    status, plain, err = run(*line.format("table.csv").split(), "--json")
    assert (status, err) == (0, "")
    Path("table.csv").write_text(_cells(header, rows, name, "as of Monday"))
    status, noted, err = run(*line.format("table.csv").split(), "--json")
    assert (status, err) == (0, "")
    before, after = json.loads(plain), json.loads(noted)
    told = [note for note in after["notes"] if note not in before["notes"]]
    if kind not in ("pairs", "rates"):
        assert told == [f"column {name}: taken for notes and passed over"]
    for document in (before, after):
        for key in ("notes", "digest", "answer_digest"):
            document.pop(key, None)
    assert before == after
    # For people as well.
    status, out, _ = run(*line.format("table.csv").split())
    assert status == 0
    assert all(f"note: {note}" in " ".join(out.split()) for note in told)


@pytest.mark.parametrize("divider", [",", ";", "\t", " ; "])
@pytest.mark.parametrize("kind", ["flows", "transfers", "totals", "requests"])
def test_dividers_are_alike(kind: str, divider: str, run: Run) -> None:
    line, header, rows = TABLES[kind]
    text = f"{header}\n{rows}\n"
    Path("table.csv").write_text(text)
    plain = run(*line.format("table.csv").split(), "--json")
    Path("table.csv").write_text("# as of Monday\n\n" + text.replace(",", divider))
    assert run(*line.format("table.csv").split(), "--json") == plain
    assert plain[0] == 0


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "BOM": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 BE": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CR": lambda text: text.replace("\n", "\r").encode(),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TABLES)
def test_any_editor_may_have_saved_a_table(kind: str, encoding: str, run: Run) -> None:
    line, header, rows = TABLES[kind]
    text = f"{header}\n{rows}\n"
    Path("table.csv").write_text(text)
    plain = run(*line.format("table.csv").split(), "--json")
    Path("table.csv").write_bytes(ENCODINGS[encoding](text))
    assert run(*line.format("table.csv").split(), "--json") == plain
    assert plain[0] == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "line",
    [
        "predict {model.json} --flow 0:1",
        "caps {caps.json}",
        "plan {topology.json}",
        "show {topology.json}",
        "simulate {model.json} flows.csv",
        "explain {model.json} --flow 0:1",
        "export {model.json} --as dot",
        "measure {plan.json} -o c.json --spawn 7",
    ],
)
def test_any_editor_may_have_saved_json(line: str, encoding: str, run: Run) -> None:
    """The digest is of what stands in it."""
    name = line.partition("{")[2].partition("}")[0]
    words = line.replace("{", "").replace("}", "").split()
    plain = run(*words)
    Path(name).write_bytes(ENCODINGS[encoding](Path(name).read_text()))
    assert run(*words) == plain


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "content", [b"", b"\0\1\2", bytes(range(256)), b"caf\xe9,\xff\n1,2\n", b"\x1f\x8b\x08rest"]
)
def test_what_is_no_table_is_told(kind: str, content: bytes, run: Run) -> None:
    Path("table.csv").write_bytes(content)
    status, out, err = run(*TABLES[kind][0].format("table.csv").split())
    assert (status, out) == (2, "")
    assert err.startswith("topocal: table.csv")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"source":0,"destination":1,"size":5,"strat":1}]', "f:1: unknown field 'strat'; did"),
        ('[{"source":0,"destination":1,"size":5},\n{"source":0,"destination":1,"sise":5}]',
         "f:2: unknown field 'sise'; did you mean size?"),
        ('{"flows": [{"source":0,"destination":1,"size":5}], "start": 5}',
         "f: field 'start' stands outside of the flows; say it of each flow"),
        ('[{"source":0,"src":0,"destination":1,"size":5}]', "f:1: two fields for source"),
    ],
)  # fmt: skip
def test_fields_of_flows_in_json(text: str, words: str) -> None:
    from topocal.topo.flow_files import parse_flows

    with pytest.raises(tc.TopocalError) as caught:
        parse_flows(text, ["gpu0", "gpu1"], file="f")
    assert words in str(caught.value)


def test_what_stands_beside_flows_is_told() -> None:
    from topocal.topo.flow_files import parse_flows

    told: list[str] = []
    text = '{"made by": "me", "flows": [{"source":0,"destination":1,"size":5,"note":"x"}]}'
    (pattern,) = parse_flows(text, ["gpu0", "gpu1"], file="f", tell=told.append)
    assert len(pattern.flows) == 1
    assert told == [
        "field made by: beside the flows, passed over",
        "field note: taken for notes and passed over",
    ]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([{"source": 0, "target": 1, "bytes": 5, "strat": 1}], "did you mean start?"),
        ([{"source": 0, "target": 1, "size": 5, "dytpe": "fp8"}], "did you mean dtype?"),
        ([{"process": 0, "sent": 5, "recieved": 7}], "did you mean received?"),
        ([{"rank": 0, "sent": 5, "recvied": 7}], "did you mean received?"),
    ],
)
def test_near_misses_in_transfers_of_json(document: object, words: str) -> None:
    from topocal.solve.transfer_files import parse_transfers

    with pytest.raises(tc.TopocalError) as caught:
        parse_transfers(json.dumps(document).encode(), ["gpu0", "gpu1"], file="f")
    assert words in str(caught.value)


def test_what_a_plan_says_besides_is_no_slip() -> None:
    """DeepSpeed's segments, and what other programs may add."""
    from topocal.solve.transfer_files import parse_transfers

    segment = {"source": [0, 0, [8, 1]], "target": [1, 0, [8, 1]], "shape": [2, 8]}
    document = {"dtype": "bfloat16", "step": 7, "segments": [segment | {"region": 3, "label": ""}]}
    (found,) = parse_transfers(json.dumps(document).encode(), ["gpu0", "gpu1"], file="f")  # type: ignore[misc]  # flows
    assert found.moved.sum() == 32.0


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("source,destination,a_GBps,b_GBps", "0,1,5,8", "a_GBps and b_GBps say different rates"),
        ("source,destination,a_GBps,a_Gbps", "0,1,5,80", "5 GB/s and 10 GB/s; keep one of the"),
        ("source,destination,a_GBps,a_GiBps", "0,1,5,5", "5 GB/s and 5.37 GB/s"),
        ("pair,p_both_ways_GBps,q_bidir_GBps", "0-1,50,40", "50 GB/s and 40 GB/s"),
    ],
)
def test_two_columns_of_rates_that_differ_are_refused(
    header: str, row: str, words: str, run: Run
) -> None:
    Path("x.csv").write_text(f"{header}\n{row}\n")
    status, out, err = run("fit", "x.csv")
    assert (status, out) == (2, "")
    assert err.startswith("topocal: x.csv:2: ")
    assert words in err


def test_two_columns_of_rates_that_agree_count_once(run: Run) -> None:
    Path("x.csv").write_text("source,destination,a_GBps,a_Gbps\n0,1,5,40\n1,0,5,40.1\n")
    assert len(tc.load("x.csv").samples) == 2


def test_what_a_fit_passes_over_is_told(run: Run) -> None:
    Path("x.csv").write_text("source,destination,rate_GBps,wiring_of\n0,1,5,a\n1,0,5,b\n")
    status, out, _ = run("fit", "x.csv", "-o", "m.json")
    assert status == 0
    assert "note: columns wiring_of are not used" in out
    assert "columns wiring_of are not used" in json.loads(Path("m.json").read_text())["notes"]
    status, out, _ = run("fit", "x.csv", "fans.csv")
    assert "note: x.csv: columns wiring_of are not used" in out

"""Flow files: every spelling that is read, and the line of every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.errors import FormatError, InputError
from topocal.topo.flow import Flow
from topocal.topo.flow_files import parse_flows, read_flows

ENDPOINTS = ("gpu0", "gpu1", "gpu2", "nic0")
HEADER = "source,destination,size,start\n"

ONE = Flow(source="gpu0", destination="gpu1", size_bytes=1024.0)

READ = [
    "source,destination,size\ngpu0,gpu1,1024\n",
    "source,destination,size\r\ngpu0,gpu1,1 KiB\r\n",
    "\ufeffsource,destination,size\ngpu0,gpu1,1024",
    "# what a rank sends\n\nsource;destination;size\n\n# first\n0; 1;1KiB\n",
    "size\tdst\tsrc\n1024\tGPU1\tgpu0\n",
    "from,to,bytes,start,note\n0,1,1024,,hello\n",
    '"source","destination","size"\n"gpu0","gpu1","1024"\n',
    '[{"source": 0, "destination": "gpu1", "size": 1024}]',
    '{"flows": [{"src": "gpu0", "dst": 1, "size_bytes": "1KiB", "start_s": null}]}',
    '  {"name": {"a": [1]}, "flows": [{"from": "0", "to": "1", "bytes": 1.024e3, "start": 0}]}',
]


@pytest.mark.parametrize("text", READ)
def test_one_flow_however_it_is_written(text: str) -> None:
    (pattern,) = parse_flows(text.removeprefix("\ufeff"), ENDPOINTS, file="f")
    assert pattern.flows == (ONE,)
    assert pattern.name == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_in_the_usual_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "flows.csv"
    path.write_bytes(READ[0].encode(encoding))
    (pattern,) = read_flows(path, ENDPOINTS)
    assert pattern.flows == (ONE,)


def test_starts_and_patterns() -> None:
    text = (
        "source,destination,size,start,pattern\n"
        "0,1,1GB,5ms,ring\n1,2,2GB,,fan\n2,0,3GB,1.5,ring\n0,nic0,0,0,\n"
    )
    ring, fan, rest = parse_flows(text, ENDPOINTS, file="f")
    assert (ring.name, fan.name, rest.name) == ("ring", "fan", "")
    assert [(f.size_bytes, f.start_s) for f in ring.flows] == [(1e9, 5e-3), (3e9, 1.5)]
    assert fan.flows == (Flow(source="gpu1", destination="gpu2", size_bytes=2e9),)
    assert rest.flows[0].destination == "nic0"


def test_a_flow_to_itself_is_a_flow() -> None:
    (pattern,) = parse_flows(HEADER + "0,0,5,0", ENDPOINTS, file="f")
    assert pattern.pairs == [("gpu0", "gpu0")]


# text, line, part of the message
MISTAKES = [
    ("", None, "has no flows"),
    ("\n# nothing\n", None, "has no flows"),
    (HEADER, None, "has no flows"),
    ("hello\n", 1, "no column source in the header 'hello'"),
    ("\n\nsource,destination\n", 3, "no column size"),
    ("source,src,destination,size\n0,0,1,1", 1, "two columns for source"),
    (HEADER + "0,1,1GB,0\n0,1,1GB\n", 3, "has 3 fields where the header has 4"),
    (HEADER + "0,1,1GB,0,7\n", 2, "has 5 fields where the header has 4"),
    (HEADER + "# note\n\n0,1,1 GBs,0\n", 4, "'1 GBs' is not a size; write it as 256MiB"),
    (HEADER + "0,1,-1,0\n", 2, "'-1' is not a size"),
    (HEADER + "0,1,nan,0\n", 2, "'nan' is not a size"),
    (HEADER + "0,1,1e999,0\n", 2, "'1e999' is not a size"),
    (HEADER + "0,1,,0\n", 2, "flow without a size"),
    (HEADER + "0,1,5,soon\n", 2, "'soon' is not a time"),
    (HEADER + ",1,5,0\n", 2, "flow without a source"),
    (HEADER + "0,1,5,0\n0,gpu9,5,0\n", 3, "unknown endpoint 'gpu9'; did you mean gpu"),
    (HEADER + '0,1,"5,0\n', 2, "not a line of CSV"),
    (HEADER + '0,"1\n1",5,0\n', 2, "unknown endpoint"),
    (HEADER + '0,"1\n1",5,0\n0,1,x,0\n', 2, "unknown endpoint"),
    ("[\n  {,}\n]", 2, "not a JSON file"),
    ("[", None, "not a JSON file"),
    ('{"a": 1}', None, "has no list of flows"),
    ('{"flows": 7}', None, "has no list of flows"),
    ("[]", None, "has no flows"),
    ('[\n{"source": 0, "destination": 1, "size": 1},\n7]', 3, "'7' is not a flow"),
    ('[{"source": 0,\n"destination": 1,\n"size": 1}, {\n"source": 0}]', 3, "without a destination"),
    (
        '{"x": [1, {"flows": 0}],\n"flows": [\n{"source": 0, "destination": 1, "size": true}]}',
        3,
        "'True' is not a size; give a number",
    ),
    ('[{"source": 0, "destination": 1, "size": [1]}]', 1, "'[1]' is not a size"),
    ('[{"source": true, "destination": 1, "size": 1}]', 1, "without a source"),
    ('[{"source": 0, "destination": 1, "size": -4}]', 1, "'-4' is not a size"),
    (
        '[{"source": 0, "destination": 1, "size": 1' + "0" * 400 + "}]",
        None,
        "flows.txt",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), MISTAKES)
def test_mistakes_are_told_with_their_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_flows(text, ENDPOINTS, file="flows.txt")
    told = str(caught.value)
    assert message in told
    assert "\n" not in told
    if line is not None:
        assert told.startswith(f"flows.txt:{line}: ")
    assert told.startswith("flows.txt")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    path.write_bytes(b"source,destination,size\n0,1,5\n\xff\xfa\n")
    with pytest.raises(FormatError, match=r"flows\.csv:3: is not text"):
        read_flows(path, ENDPOINTS)
    path.write_bytes(b"source\0destination")
    with pytest.raises(FormatError, match="is a binary file"):
        read_flows(path, ENDPOINTS)
    with pytest.raises(InputError, match="no such file"):
        read_flows(tmp_path / "none.csv", ENDPOINTS)


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(
            st.sampled_from(
                [*'[]{}",:;\t\n#', "source", "destination", "size", "flows", "0", "1", "5us", "\\u"]
            ),
            max_size=40,
        ).map("".join),
        st.text(max_size=60).map(HEADER.__add__),
    )
)
def test_no_text_is_more_than_a_mistake(text: str) -> None:
    found: str | None = None
    try:
        patterns = parse_flows(text, ENDPOINTS, file="f")
    except InputError as error:
        found = str(error)
    if found is None:
        assert all(pattern.flows for pattern in patterns)
    else:
        assert found.startswith("f")
        assert "\n" not in found

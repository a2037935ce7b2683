"""Pair and fan tables: what they say, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.tables import parse_table, read_tables
from topocal.topo.errors import InputError, TopocalError

PAIRS = "source,destination,bandwidth_GBps\n0,1,10\n1,0,20\n"


def test_pairs() -> None:
    first, second = parse_table(PAIRS, file="pairs.csv")
    assert first.pattern.pairs == [("gpu0", "gpu1")]
    assert first.throughput_Bps == pytest.approx(10e9)
    assert not first.size_known
    assert second.where is not None
    assert str(second.where) == "pairs.csv:3"


def test_fans_by_direction_and_by_notation_are_the_same() -> None:
    by_column = parse_table(
        "direction,root,peers,throughput_GBps\nin,3,4 5,27\nout,0,1;2,9\n", file="a"
    )
    by_notation = parse_table('pattern,throughput_GBps\n"3<-4,5",27\n"0->1,2",9\n', file="b")
    assert [s.pattern for s in by_column] == [s.pattern for s in by_notation]
    assert [s.seconds for s in by_column] == [s.seconds for s in by_notation]


def test_units_sizes_column_order_comments_and_blank_lines() -> None:
    text = (
        "# my machine\n\nsize,bandwidth_MiBps,destination,source\n"
        "1MiB,1024,gpu1,gpu0\n# a note\n\n4MiB,1024,gpu1,gpu0\n"
    )
    one, two = parse_table(text, file="x")
    assert one.size_known
    assert one.seconds == pytest.approx(1 / 1024)
    assert two.seconds == pytest.approx(4 / 1024)


def test_bits_are_not_bytes() -> None:
    (sample,) = parse_table("source,destination,bandwidth_Gbps\n0,1,80\n", file="x")
    assert sample.throughput_Bps == pytest.approx(10e9)


def test_order_of_files_and_rows_does_not_matter(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text(PAIRS)
    b.write_text("direction,root,peers,throughput_GBps\nin,0,1 2,30\n")
    forth, back = read_tables([a, b]), read_tables([b, a])
    assert forth.samples == back.samples
    assert forth.endpoints == ("gpu0", "gpu1", "gpu2")


BAD = {
    "empty": ("", "is empty"),
    "only comments": ("# nothing\n", "has no header"),
    "no rows": ("source,destination,bandwidth_GBps\n", "has a header but no rows"),
    "missing column": ("source,bandwidth_GBps\n0,1\n", "x.csv:1: has no column 'destination'"),
    "no rate": ("source,destination\n0,1\n", "x.csv:1: has no column with a rate"),
    "two rates": (
        "source,destination,bandwidth_GBps,throughput_GBps\n0,1,1,1\n",
        "several columns with a rate",
    ),
    "unknown unit": ("source,destination,bandwidth_apples\n0,1,1\n", "x.csv:1: 'apples'"),
    "unknown column": (
        "source,destination,bandwidth_GBps,mood\n0,1,1,ok\n",
        "x.csv:1: has an unknown column 'mood'",
    ),
    "column twice": ("source,source,bandwidth_GBps\n0,1,1\n", "names the column 'source' twice"),
    "negative": ("source,destination,bandwidth_GBps\n0,1,-3\n", "x.csv:2: bandwidth_GBps is '-3'"),
    "zero": ("source,destination,bandwidth_GBps\n0,1,0\n", "x.csv:2: bandwidth_GBps is '0'"),
    "nan": ("source,destination,bandwidth_GBps\n0,1,nan\n", "x.csv:2: bandwidth_GBps is 'nan'"),
    "inf": ("source,destination,bandwidth_GBps\n0,1,inf\n", "x.csv:2: bandwidth_GBps is 'inf'"),
    "word": ("source,destination,bandwidth_GBps\n0,1,fast\n", "x.csv:2: bandwidth_GBps is 'fast'"),
    "overflow": ("source,destination,bandwidth_GBps\n0,1,1e300\n", "x.csv:2:"),
    "short row": ("source,destination,bandwidth_GBps\n0,1\n", "x.csv:2: has 2 cells"),
    "self": ("source,destination,bandwidth_GBps\n2,2,5\n", "x.csv:2: flow from gpu2 to itself"),
    "no name": ("source,destination,bandwidth_GBps\n,2,5\n", "x.csv:2: source is empty"),
    "peer is root": (
        "direction,root,peers,throughput_GBps\nin,1,1 2,5\n",
        "x.csv:2: flow from gpu1 to itself",
    ),
    "peer twice": (
        "direction,root,peers,throughput_GBps\nin,1,2 2,5\n",
        "x.csv:2: flow gpu2->gpu1 stands twice",
    ),
    "no peers": ("direction,root,peers,throughput_GBps\nin,1,,5\n", "x.csv:2:"),
    "sideways": (
        "direction,root,peers,throughput_GBps\nup,1,2,5\n",
        "x.csv:2: direction is 'up'; say in or out",
    ),
    "no notation": ("pattern,throughput_GBps\n3-4,5\n", "x.csv:2: '3-4' is not a pattern"),
    "two figures": (PAIRS + "0,1,11\n", "x.csv:4: gpu0->gpu1 stands twice"),
    "size of zero": (
        "source,destination,bandwidth_GBps,size\n0,1,5,0\n",
        "x.csv:2: a size of zero",
    ),
    "another kind": (
        "GPU0\tGPU1\nGPU0\t X \tPIX\n",
        "x.csv:1: is not a table of pairs or patterns",
    ),
    "json": ('{"format": "topocal/model"}\n', "x.csv:1:"),
    "open quote": ('source,destination,bandwidth_GBps\n"0,1,5\n', "x.csv:2: is not CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_tables([path])
    shown = str(caught.value).replace(str(path), "x.csv")
    assert message in shown
    assert "; " in shown, "names a remedy"
    assert "\n" not in shown


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.csv", tmp_path):
        with pytest.raises(InputError, match="check the path"):
            read_tables([path])


@settings(deadline=None, max_examples=150)
@given(
    st.text(alphabet="source,destinationbandwidth_GBps\n0123456789-<>+.\"' #;einfNaN", max_size=200)
)
def test_nothing_but_our_own_errors_comes_out(text: str) -> None:
    try:
        parse_table(text, file="x.csv")
    except TopocalError as error:
        assert "\n" not in str(error)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_mutated_table_reads_or_is_refused(data: st.DataObject) -> None:
    text = list(PAIRS + "0,2,5\n2,1,7.5\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 5))] = data.draw(st.text(max_size=3))
        if not text:
            break
    try:
        samples = parse_table("".join(text), file="x.csv")
    except TopocalError as error:
        assert "\n" not in str(error)
    else:
        assert all(s.seconds > 0 for s in samples)

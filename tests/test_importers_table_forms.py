"""Tables of pairs as people write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any
from topocal.measure.importers.table_forms import ambiguous_unit, tidy_table
from topocal.topo.errors import FormatError

FROM_TO = """\
# My box

Measured with a script:

| From | To | **Bandwidth** | Latency (us) |
|:----:|:--:|--------------:|---|
| GPU0 | GPU 1 | **45.2 GB/s** | 2.1 |
| GPU1 | GPU0 | 22 GB/s | 3.1 |

And that is all.
"""

UNI_BI = """\
| Pair | Uni (GB/s) | Bi (GB/s) |
|---|---|---|
| 0-1 | 45 | 88 |
| 0-2 | 22 | 40 |
"""

BLANKS = """\
Link               Bandwidth (GB/s)
GPU 0 <-> GPU 1    45.2
GPU 0 <-> GPU 2    22.1
"""

MATRIX = """\
| | GPU0 | GPU1 | GPU2 |
|---|---|---|---|
| GPU0 | - | 45 GB/s | 22 GB/s |
| GPU1 | 45 GB/s | - | 23 GB/s |
| GPU2 | 22 GB/s | 23 GB/s | - |
"""


def rates(text: str) -> dict[str, float]:
    """GB/s of each pattern."""
    found = import_any(text, file="x.md")
    samples = [s for g in found.groups for s in g.measurements.samples]
    return {s.name: round(s.throughput_Bps / 1e9, 3) for s in samples}


def test_markdown_below_a_title_with_units_behind_bold_figures() -> None:
    assert rates(FROM_TO) == {"gpu0->gpu1": 45.2, "gpu1->gpu0": 22.0}


@pytest.mark.parametrize(
    ("a", "b"), [("src_gpu", "dst_gpu"), ("GPU A", "GPU B"), ("Source GPU", "Destination GPU")]
)
def test_ends_are_called_as_people_call_them(a: str, b: str) -> None:
    assert rates(f"{a},{b},bandwidth_GBps\n0,1,45\n1,0,44\n") == {
        "gpu0->gpu1": 45.0,
        "gpu1->gpu0": 44.0,
    }


def test_uni_and_bi_are_two_things() -> None:
    assert rates(UNI_BI) == {
        "gpu0->gpu1": 45.0,
        "gpu0->gpu2": 22.0,
        "gpu0<->gpu1": 88.0,
        "gpu0<->gpu2": 40.0,
    }


def test_a_double_arrow_is_the_sum_of_both_directions() -> None:
    assert rates(BLANKS) == {"gpu0<->gpu1": 45.2, "gpu0<->gpu2": 22.1}


def test_a_matrix_is_no_list_of_pairs() -> None:
    assert tidy_table(MATRIX) is None
    assert import_any(MATRIX, file="x.md").kind == "pair-table"


def test_gbps_may_be_either() -> None:
    text = "src,dst,bandwidth_gbps\n0,1,360\n"
    assert ambiguous_unit(text) == "bandwidth_gbps"
    with pytest.raises(FormatError, match="bits or bytes"):
        import_any(text, file="x.csv")


def test_rows_keep_their_lines() -> None:
    samples = import_any(FROM_TO, file="x.md").best().samples
    assert [s.where.line for s in samples if s.where is not None] == [7, 8]


def test_other_texts_have_none() -> None:
    assert tidy_table("From here to there, it is far\nand so on, and so on\n") is None
    assert tidy_table("") is None


def test_hostile_tables_end_soon() -> None:
    began = time.process_time()
    for row in ("|" * 5000, "| GPU " * 5000, "a-" * 3000 + "," + "1", "  x" * 4000):
        tidy_table("| Pair | Bandwidth (GB/s) |\n" + (row + "\n") * 20)
        tidy_table("pair,bandwidth_GBps\n" + (row + "\n") * 20)
        tidy_table((row + "\n") * 300)
    # Of the processor; what backtracks would take minutes.
    assert time.process_time() - began < 60


@given(st.lists(st.sampled_from((FROM_TO + UNI_BI + BLANKS + MATRIX).splitlines()), max_size=20))
def test_any_lines_make_a_table_or_none(lines: list[str]) -> None:
    found = tidy_table("\n".join(lines))
    assert found is None or "," in found

"""Matrices of figures as programs print them, and pairs by other names of devices."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.measure.importers.matrix_forms import plain_matrices
from topocal.measure.importers.registry import import_any

NAMED = """\
,GPU0,GPU1,GPU2
GPU0,,45.2,22.1
GPU1,45.0,,22.0
GPU2,22.2,22.3,
"""

TITLED = """\
Bandwidth (Gb/s),0,1,2
0,0,361.6,176.8
1,360,nan,176
2,177.6,178.4,0
"""

NUMPY = """\
P2P bandwidth GB/s:
[[  0.   45.2  22.1]
 [ 45.    0.   22. ]
 [ 22.2  22.3   0. ]]
"""

TORCH = """\
Measured bandwidth in GB/s
tensor([[0.0000, 45.2000, 22.1000],
        [45.0000, 0.0000, 22.0000],
        [22.2000, 22.3000, 0.0000]], device='cuda:0')
"""

LISTS = """\
p2p_bandwidth = [[0, 45.2, 22.1],
                 [45.0, 0, 22.0],
                 [22.2, 22.3, 0]]
"""

EXPECTED = {
    "gpu0->gpu1": 45.2,
    "gpu0->gpu2": 22.1,
    "gpu1->gpu0": 45.0,
    "gpu1->gpu2": 22.0,
    "gpu2->gpu0": 22.2,
    "gpu2->gpu1": 22.3,
}


def rates(text: str) -> dict[str, float]:
    """GB/s of each pattern."""
    samples = import_any(text, file="x.txt").best().samples
    return {s.name: round(s.throughput_Bps / 1e9, 3) for s in samples}


@pytest.mark.parametrize("text", [NAMED, TITLED, NUMPY, TORCH, LISTS, "\n" + TITLED])
def test_every_form_is_the_same_matrix(text: str) -> None:
    assert rates(text) == EXPECTED


@pytest.mark.parametrize(
    "lines",
    [
        ["[[1, 2]", "[3, 4]"],
        ["[[1, 2, 3]", " [4, 5, 6]]"],
        ["0,1,2", "1,2,3"],
        [",GPU0,GPU1", "GPU0,1"],
        ["a, b, c", "d"],
        [],
    ],
)
def test_what_is_no_square_matrix_stays(lines: list[str]) -> None:
    assert plain_matrices(lines) == lines


@pytest.mark.parametrize(
    "text",
    [
        "cuda:0 -> cuda:1 : 45.3 GB/s\ncuda:1 -> cuda:0 : 45.1 GB/s\n",
        "0 -> 1: 45.3 GB/s\n1 -> 0: 45.1 GB/s\n",
        "(0) -> (1) | 45.3 GB/s\n(1) -> (0) | 45.1 GB/s\n",
        "xpu:0 -> xpu:1 45.3 GB/s\nxpu:1 -> xpu:0 45.1 GB/s\n",
    ],
)
def test_pairs_by_other_names(text: str) -> None:
    assert rates(text) == {"gpu0->gpu1": 45.3, "gpu1->gpu0": 45.1}


def test_hostile_texts_end_soon() -> None:
    began = time.process_time()
    for line in ("[" * 30_000, "[[" + "1 " * 9_000, ",0" * 20_000, "0," * 20_000, "[[1]"):
        plain_matrices([line] * 50)
    # Of the processor; what backtracks would take minutes.
    assert time.process_time() - began < 60


@given(
    st.lists(st.sampled_from((NAMED + TITLED + NUMPY + TORCH + LISTS).splitlines()), max_size=20)
)
def test_any_order_of_lines_is_rewritten(lines: list[str]) -> None:
    assert len(plain_matrices(lines)) >= len(lines)

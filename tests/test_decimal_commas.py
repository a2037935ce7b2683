"""Figures as much of Europe writes them, and with commas between thousands."""

from __future__ import annotations

import pytest

from topocal.measure.importers.pair_lines import parse_pair_lines
from topocal.measure.importers.rate_table import parse_rate_table
from topocal.topo.errors import TopocalError


@pytest.mark.parametrize(
    ("figure", "rate"),
    [
        ("24,5 GB/s", 24.5e9),
        ("24.5 GB/s", 24.5e9),
        ("24,512.3 MB/s", 24.5123e9),
        ("1,234,567 MB/s", 1234.567e9),
        ("0,125 TB/s", 125e9),
        ("196.4 Gbit/s", 24.55e9),
        ("196,4 Gbits/s", 24.55e9),
        ("24,5 Gbytes/sec", 24.5e9),
    ],
)
def test_a_line_is_read_whole(figure: str, rate: float) -> None:
    found = parse_pair_lines(f"GPU 0 -> GPU 1: {figure}\n", file="x")
    (sample,) = found.groups[0].measurements.samples
    assert sample.throughput_Bps == pytest.approx(rate)


def test_a_comma_that_may_be_either_is_refused() -> None:
    with pytest.raises(TopocalError, match=r"24,512 may be a decimal comma or thousands") as caught:
        parse_pair_lines("GPU 0 -> GPU 1: 9 GB/s\nGPU 1 -> GPU 0: 24,512 MB/s\n", file="x")
    assert caught.value.where is not None
    assert caught.value.where.line == 2


def test_a_cell_with_a_decimal_comma_is_read() -> None:
    found = parse_rate_table("src;dst;GB/s\n0;1;50,7\n1;0;49,9\n", file="x")
    rates = [s.throughput_Bps for s in found.groups[0].measurements.samples]
    assert rates == pytest.approx([50.7e9, 49.9e9])
    with pytest.raises(TopocalError, match="with a point"):
        parse_rate_table("src;dst;MB/s\n0;1;50,712\n", file="x")

"""Quantities as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo.errors import UnitError
from topocal.topo.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_rate,
    parse_seconds,
    rate_unit_Bps,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("256MiB", 256 * 2**20),
        ("1.5 GB", 1.5e9),
        ("1k", 1e3),
        ("2TiB", 2 * 2.0**40),
        ("1_000", 1000),
        ("2PiB", 2.0**51),
        ("1000 PB", 1e18),
        (".5kB", 500),
        ("1e3B", 1000),
        (7, 7),
        (0.5, 0.5),
        ("0", 0),
    ],
)
def test_sizes(text: str | float, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("25GB/s", 25e9),
        ("200Gb/s", 25e9),
        ("200 Gbps", 25e9),
        ("200 Gbit/s", 25e9),
        ("1GiB/s", 2.0**30),
        ("8 kbps", 1000),
        ("5GBps", 5e9),
        ("3e9", 3e9),
        (12.5, 12.5),
    ],
)
def test_rates(text: str | float, expected: float) -> None:
    assert parse_rate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5us", 5e-6), ("5 µs", 5e-6), ("5 μs", 5e-6), ("1.2 ms", 1.2e-3), ("3", 3), ("7ns", 7e-9)],
)
def test_times(text: str, expected: float) -> None:
    assert parse_seconds(text) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_bytes, "256 Mb"),
        (parse_bytes, "256 mib"),
        (parse_bytes, "lots"),
        (parse_bytes, "-1"),
        (parse_bytes, "1e999"),
        (parse_bytes, math.nan),
        (parse_bytes, ""),
        (parse_bytes, 10**400),
        (parse_bytes, "25_"),
        (parse_bytes, "2__5"),
        (parse_bytes, "2_.5"),
        (parse_bytes, "٣"),
        (parse_rate, "25_GB/s"),
        (parse_rate, "25 GBs"),
        (parse_rate, "-5GB/s"),
        (parse_rate, math.inf),
        (parse_seconds, "5 mins"),
        (parse_seconds, "soon"),
        (parse_seconds, "1_ms"),
        (parse_seconds, -(10**400)),
        (rate_unit_Bps, "GBs"),
        (rate_unit_Bps, "parsec"),
    ],
)
def test_what_is_no_quantity(parse: object, text: object) -> None:
    with pytest.raises(UnitError, match="is not a") as caught:
        parse(text)  # type: ignore[operator]
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("parse", "most", "above"),
    [
        (parse_bytes, "1000 PB", "1001 PB"),
        (parse_rate, "1000 PB/s", "1001 PB/s"),
        (parse_seconds, "1e9 s", "1.1e9 s"),
        (parse_seconds, 1e9, 1e308),
    ],
)
def test_the_most_that_is_said_is_read(
    parse: Callable[[str | float], float], most: str | float, above: str | float
) -> None:
    assert parse(most) > 0
    with pytest.raises(UnitError, match="is too large a") as caught:
        parse(above)
    assert str(most) in caught.value.remedy or parse is parse_seconds


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("GBps", 1e9), ("GiB/s", 2.0**30), ("Gb/s", 1.25e8), ("Bps", 1), ("MBps", 1e6)],
)
def test_units_of_rate(unit: str, expected: float) -> None:
    assert rate_unit_Bps(unit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_bytes(268435456), "256 MiB"),
        (format_bytes(1500000), "1.5 MB"),
        (format_bytes(0), "0 B"),
        (format_rate(27.9e9), "27.9 GB/s"),
        (format_rate(0.9999e9), "1 GB/s"),
        (format_rate(0.9994e9), "999 MB/s"),
        (format_bytes(999_700), "1 MB"),
        (format_seconds(0.99999e-3), "1 ms"),
        (format_rate(1500e12), "1.5 PB/s"),
        (format_rate(None), "unknown"),
        (format_rate(math.inf), "unlimited"),
        (format_seconds(0.0384), "38.4 ms"),
        (format_seconds(2), "2 s"),
        (format_seconds(3e-6), "3 us"),
        (format_seconds(0), "0 ns"),
    ],
)
def test_words_for_people(text: str, expected: str) -> None:
    assert text == expected


@given(st.floats(1, 1e15))
def test_what_is_written_reads_back_within_its_digits(value: float) -> None:
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=5.1e-3)
    assert parse_rate(format_rate(value)) == pytest.approx(value, rel=5.1e-3)

"""Quantities as people write them, and the SI floats that the code uses.

Inside topocal everything is bytes, seconds and bytes per second.  Decimal and
binary prefixes follow IEC 80000-13: ``GB`` is 1e9 bytes, ``GiB`` is 2**30 bytes;
a small ``b`` is a bit.  These factors appear in this file only.
"""

from __future__ import annotations

import math
import re
from typing import Final

from topocal.topo.errors import UnitError, one_line

__all__ = [
    "BYTES_PER_GB",
    "MOST_BYTES",
    "format_bytes",
    "format_rate",
    "format_seconds",
    "parse_bytes",
    "parse_rate",
    "parse_seconds",
    "rate_unit_Bps",
]

BYTES_PER_GB: Final = 1e9
MOST_BYTES: Final = 1e18
"""A thousand petabytes: no transfer is larger, and sums of such sizes stay exact enough."""

_MOST_BPS: Final = 1e18
"""A thousand petabytes per second: no link passes more."""

_MOST_SECONDS: Final = 1e9
"""Some thirty years: nothing that is timed begins or ends later."""

_DECIMAL: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_BINARY: Final = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_PREFIX: Final = _DECIMAL | _BINARY
_SECONDS: Final = {
    "h": 3600.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}

_NUMBER: Final = r"\s*([+-]?(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*"
_BYTES: Final = re.compile(_NUMBER + r"([kKmMgGtTpP]i?)?([bB])?\s*")
_RATE: Final = re.compile(_NUMBER + r"([kKmMgGtTpP]i?)?(?:([bB])(/s|ps)?|bit/s)?\s*")
_TIME: Final = re.compile(_NUMBER + r"([a-zµμ]*)\s*")


def parse_bytes(text: str | int | float) -> float:
    """Bytes from ``"256MiB"``, ``"1.5 GB"``, ``"4096"`` or a number.

    >>> parse_bytes("256MiB")
    268435456.0
    >>> parse_bytes("1 kB")
    1000.0

    Raises
    ------
    UnitError
        When it is not a finite, non-negative amount of bytes up to :data:`MOST_BYTES`.
    """
    if isinstance(text, int | float):
        return _checked(_float(text), _number_words(text), "size", MOST_BYTES)
    match = _BYTES.fullmatch(text)
    if match is None or match[3] == "b":
        raise UnitError(f"{one_line(text)!r} is not a size", remedy="write it as 256MiB or 1.5GB")
    value = float(match[1]) * _PREFIX[(match[2] or "").lower()]
    return _checked(value, text, "size", MOST_BYTES)


def parse_rate(text: str | int | float) -> float:
    """Bytes per second from ``"25GB/s"``, ``"200Gb/s"``, ``"200 Gbps"`` or a number.

    >>> parse_rate("200Gb/s")
    25000000000.0
    >>> parse_rate("25 GB/s")
    25000000000.0

    Raises
    ------
    UnitError
        When it is not a finite, non-negative rate that a link could pass.
    """
    if isinstance(text, int | float):
        return _checked(_float(text), _number_words(text), "rate", _MOST_BPS)
    match = _RATE.fullmatch(text)
    if match is None:
        raise UnitError(f"{one_line(text)!r} is not a rate", remedy="write it as 25GB/s or 200Gb/s")
    bits = match[3] == "b" or text.rstrip().endswith("bit/s")
    factor = _PREFIX[(match[2] or "").lower()] / (8.0 if bits else 1.0)
    return _checked(float(match[1]) * factor, text, "rate", _MOST_BPS)


def parse_seconds(text: str | int | float) -> float:
    """Seconds from ``"5us"``, ``"1.2 ms"``, ``"2min"``, ``"3"`` or a number.

    >>> parse_seconds("250 ms")
    0.25

    Raises
    ------
    UnitError
        When it is not a finite, non-negative time, or longer than anybody waits.
    """
    if isinstance(text, int | float):
        return _checked(_float(text), _number_words(text), "time", _MOST_SECONDS)
    match = _TIME.fullmatch(text)
    if match is None or (match[2] or "s") not in _SECONDS:
        raise UnitError(f"{one_line(text)!r} is not a time", remedy="write it as 5us or 1.2ms")
    value = float(match[1]) * _SECONDS[match[2] or "s"]
    return _checked(value, text, "time", _MOST_SECONDS)


def rate_unit_Bps(unit: str) -> float:
    """Bytes per second in one of a bare rate unit such as ``GBps`` or ``MiBps``.

    >>> rate_unit_Bps("GBps")
    1000000000.0

    Raises
    ------
    UnitError
        When the unit is not known.
    """
    match = re.fullmatch(r"([KkMGTmgt]i?)?([Bb])(?:/s|ps)", unit)
    if match is None:
        raise UnitError(f"{one_line(unit)!r} is not a unit of rate", remedy="use GBps or GiBps")
    return _PREFIX[(match[1] or "").lower()] / (8.0 if match[2] == "b" else 1.0)


_MOST: Final = {"size": "1000 PB", "rate": "1000 PB/s", "time": "1e9 s"}
"""The largest of each kind, in words."""


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if number > 0 else -math.inf


def _number_words(number: int | float) -> object:
    """A number as it was given; one that Python would refuse to write, as infinity."""
    value = _float(number)
    return number if math.isfinite(value) else value


def _checked(value: float, text: object, kind: str, most: float) -> float:
    if value > most and math.isfinite(value):
        raise UnitError(
            f"{one_line(text)!r} is too large a {kind}", remedy=f"give {_MOST[kind]} at most"
        )
    if not math.isfinite(value) or value < 0:
        raise UnitError(
            f"{one_line(text)!r} is not a {kind}", remedy="give a finite number, zero or more"
        )
    return value


def format_bytes(value_bytes: float) -> str:
    """A size for people: binary prefix where it is exact, decimal otherwise.

    >>> format_bytes(268435456)
    '256 MiB'
    >>> format_bytes(1500000)
    '1.5 MB'
    >>> format_bytes(8e9)
    '8 GB'
    """
    for name in ("ti", "gi", "mi", "ki"):
        # 8e9 is a whole number of KiB too, but nobody means it that way.
        if value_bytes and value_bytes % _BINARY[name] == 0 and value_bytes < 1e4 * _BINARY[name]:
            return f"{value_bytes / _BINARY[name]:.0f} {name[0].upper()}iB"
    return _scaled(value_bytes, "B", _DECIMAL)


def format_rate(value_Bps: float | None) -> str:
    """A rate for people.

    >>> format_rate(27.9e9)
    '27.9 GB/s'
    >>> format_rate(None)
    'unknown'
    """
    if value_Bps is None:
        return "unknown"
    return "unlimited" if math.isinf(value_Bps) else _scaled(value_Bps, "B/s", _DECIMAL)


def format_seconds(value_s: float) -> str:
    """A time for people.

    >>> format_seconds(0.0384)
    '38.4 ms'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value_s >= _ROUNDS_UP * factor:
            return f"{_significant(value_s / factor)} {unit}"
    return f"{_significant(value_s / 1e-9)} ns"


_ROUNDS_UP: Final = 0.9995
"""From here on three digits are those of the next unit: 1 GB/s, and not 1e+03 MB/s."""


def _scaled(value: float, unit: str, prefixes: dict[str, float]) -> str:
    for name, factor in sorted(prefixes.items(), key=lambda item: -item[1]):
        if value >= _ROUNDS_UP * factor:
            shown = name if name == "k" else name.upper()
            return f"{_significant(value / factor)} {shown}{unit}"
    return f"{_significant(value)} {unit}"


def _significant(value: float) -> str:
    return f"{value:.3g}" if value < 1000 * _ROUNDS_UP else f"{value:.0f}"

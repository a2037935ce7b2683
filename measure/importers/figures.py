"""Samples from the figures that tools print.

A sample's throughput is the bytes of all flows over the time until the last one is done.
Tools print four other things, each of which is turned into that here:

=====================  ==============================================================
:func:`alone`          the rate of one flow that ran alone: the same thing
:func:`moved`          a total over the time until all flows were done: the same thing
:func:`finishing`      the rate of each flow over its own time, sizes equal: the
                       pattern takes as long as its slowest flow
:func:`at_once`        the rate of each flow while all the others ran as well (a
                       measured flow among longer ones): that is how a pattern runs
                       whose flows have sizes in proportion to these rates, so that
                       all end together; no guess about what happens once some are
                       done
=====================  ==============================================================

A mean of rates of flows that differ, or a rate without the flows it belongs to, is no
sample: it becomes a :class:`~topocal.measure.importers.imported.Reading`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.tables import SIZE_WHEN_UNKNOWN_BYTES
from topocal.measure.patterns import bundle, notation
from topocal.measure.samples import Sample
from topocal.topo.errors import FlowError, InputError, Where, one_line
from topocal.topo.flow import Flow, Pattern
from topocal.topo.topology import natural_key

__all__ = [
    "alone",
    "at_once",
    "finishing",
    "in_order",
    "is_rate",
    "moved",
    "number",
    "to_number",
    "written_number",
]

_COMMA: Final = re.compile(r"([0-9]{1,9}),([0-9]{1,12})")
_THOUSANDS: Final = re.compile(r"[0-9]{1,3}(?:,[0-9]{3}){1,3}(?:\.[0-9]{1,12})?")

_FASTEST_Bps: Final = 1e16
_SLOWEST_Bps: Final = 1.0
"""Ten petabytes, and one byte, per second: outside, a figure is no rate of a machine."""


def is_rate(value_Bps: float) -> bool:
    """Whether a machine could reach this."""
    return math.isfinite(value_Bps) and _SLOWEST_Bps <= value_Bps <= _FASTEST_Bps


def to_number(text: str) -> float | None:
    """The finite number that a text is, ``None`` when it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def written_number(text: str) -> float | None:
    """As :func:`to_number`, also with a decimal comma, or with commas between thousands.

    ``None`` where a comma may be either: three digits behind the only one.

    >>> written_number("24,5"), written_number("24,512.3"), written_number("1,234,567")
    (24.5, 24512.3, 1234567.0)
    >>> written_number("24,512") is None
    True
    """
    value = to_number(text)
    if value is not None:
        return value
    single = _COMMA.fullmatch(text)
    if single is not None:
        unclear = len(single[2]) == 3 and len(single[1]) <= 3 and int(single[1]) > 0
        return None if unclear else to_number(text.replace(",", "."))
    return to_number(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else None


def number(value: object) -> float | None:
    """The finite number that a JSON value is, or a text in it says; ``None`` when none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return to_number(value.strip())
    if isinstance(value, int | float):
        try:
            found = float(value)
        except OverflowError:
            return None
        return found if math.isfinite(found) else None
    return None


def alone(
    source: str,
    destination: str,
    rate_Bps: float,
    *,
    where: Where,
    size_bytes: float | None = None,
    repeat: int = 0,
) -> Sample:
    """One flow alone.

    Raises
    ------
    InputError
        When the rate or the size is not possible.
    """
    return moved(
        [(source, destination)], rate_Bps, where=where, size_bytes=size_bytes, repeat=repeat
    )


def moved(
    pairs: Sequence[tuple[str, str]],
    total_Bps: float,
    *,
    where: Where,
    size_bytes: float | None = None,
    repeat: int = 0,
) -> Sample:
    """Equal flows whose bytes together, over the time until all were done, are ``total_Bps``.

    Raises
    ------
    InputError
        When the rate or the size is not possible.
    """
    _check(total_Bps, size_bytes, where)
    size = SIZE_WHEN_UNKNOWN_BYTES if size_bytes is None else size_bytes
    return Sample(
        pattern=_pattern(pairs, size, where),
        seconds=len(pairs) * size / total_Bps,
        size_known=size_bytes is not None,
        where=where,
        repeat=repeat,
    )


def finishing(
    pairs: Sequence[tuple[str, str]],
    rates_Bps: Sequence[float],
    *,
    where: Where,
    size_bytes: float | None = None,
    repeat: int = 0,
) -> Sample:
    """Equal flows that started together, each with the rate over its own time.

    Raises
    ------
    InputError
        When a rate or the size is not possible.
    """
    for rate in rates_Bps:
        _check(rate, size_bytes, where)
    size = SIZE_WHEN_UNKNOWN_BYTES if size_bytes is None else size_bytes
    finish = tuple(size / rate for rate in rates_Bps)
    return Sample(
        pattern=_pattern(pairs, size, where),
        seconds=max(finish),
        size_known=size_bytes is not None,
        where=where,
        flow_finish_s=finish,
        repeat=repeat,
    )


def at_once(
    pairs: Sequence[tuple[str, str]],
    rates_Bps: Sequence[float],
    *,
    where: Where,
    repeat: int = 0,
) -> Sample:
    """Flows with the rate that each has while all the others run.

    Raises
    ------
    InputError
        When a rate is not possible.
    """
    for rate in rates_Bps:
        _check(rate, None, where)
    total = math.fsum(rates_Bps)
    seconds = len(pairs) * SIZE_WHEN_UNKNOWN_BYTES / total
    flows = tuple(
        Flow(source=a, destination=b, size_bytes=rate * seconds)
        for (a, b), rate in zip(pairs, rates_Bps, strict=True)
    )
    return Sample(
        pattern=Pattern(flows=flows, name=notation(pairs)),
        seconds=seconds,
        size_known=False,
        where=where,
        repeat=repeat,
    )


def in_order(a: str, b: str) -> list[tuple[str, str]]:
    """Both directions of a pair, in an order that does not depend on who is named first.

    >>> in_order("gpu10", "gpu2")
    [('gpu2', 'gpu10'), ('gpu10', 'gpu2')]
    """
    first, second = sorted((a, b), key=natural_key)
    return [(first, second), (second, first)]


def _pattern(pairs: Sequence[tuple[str, str]], size_bytes: float, where: Where) -> Pattern:
    try:
        return bundle(pairs, size_bytes)
    except FlowError as error:
        raise FlowError(error.what, where=where, remedy=error.remedy) from error


def _check(rate_Bps: float, size_bytes: float | None, where: Where) -> None:
    if not is_rate(rate_Bps):
        raise InputError(
            f"{one_line(f'{rate_Bps:g}')} bytes per second is no rate of a machine",
            where=where,
            remedy="check the figure and its unit",
        )
    if size_bytes is not None and not 0 < size_bytes <= 1e18:
        raise InputError(
            f"{one_line(f'{size_bytes:g}')} bytes is no size of a transfer",
            where=where,
            remedy="check the figure and its unit",
        )

"""Refusing an argument of another kind, in words that say what to give instead."""

from __future__ import annotations

from typing import Final

from topocal.topo.errors import InputError, one_line

__all__ = ["is_amount", "not_wanted"]

_HOW: Final = {
    "Topology": "fit a model with topocal.fit, or take its specified capacities: "
    "topocal.solve.nominal_model.nominal_model(topology)",
    "Measurements": "fit a model to them with topocal.fit",
    "str": "read the file first: topocal.read_model, read_caps, read_topology or load",
    "PosixPath": "read the file first: topocal.read_model, read_caps, read_topology or load",
    "dict": "read the file first: topocal.read_model, read_caps, read_topology or load",
}
"""What to do with what people give in place of a fitted machine."""


def not_wanted(value: object, wanted: str) -> InputError:
    """The error of who gave something of another kind than a machine with its speeds.

    >>> raise not_wanted("model.json", "a model or its caps")
    Traceback (most recent call last):
    ...
    topocal.topo.errors.InputError: 'model.json' is a str, not a model or its caps; read the \
file first: topocal.read_model, read_caps, read_topology or load
    """
    kind = type(value).__name__
    shown = f"{one_line(value)!r} is a {kind}" if isinstance(value, str) else f"this is a {kind}"
    return InputError(
        f"{shown}, not {wanted}", remedy=_HOW.get(kind, f"give {wanted}"), about=value
    )


def is_amount(value: object) -> bool:
    """Whether it is a finite number, zero or more.

    >>> is_amount(2.5), is_amount(float("nan")), is_amount(-1), is_amount("2"), is_amount(True)
    (True, False, False, False, False)
    """
    if isinstance(value, bool | str | bytes):
        return False
    try:
        return 0 <= value < float("inf")  # type: ignore[operator]  # Also numpy's own numbers.
    except (TypeError, ValueError):
        return False

"""Python values as JSON values, such that they come back equal and of the same type.

JSON has no tuples, no infinities and no integers beyond 64 bits; those become
objects with the key ``@``::

    (1, 2)        {"@": "tuple", "of": [1, 2]}
    inf           {"@": "float", "of": "inf"}
    2**80         {"@": "int", "of": "1208925819614629174706176"}
    {"@": 1}      {"@": "dict", "of": {"@": 1}}
"""

from __future__ import annotations

import math
from typing import Any, Final

from topocal.topo.errors import FormatError, TopologyError, one_line

__all__ = ["from_json_value", "to_json_value"]

_TAG: Final = "@"
_DEEPEST: Final = 100
_SAFE_INT: Final = 2**63
_LONGEST_INT: Final = 4000
"""Digits; Python itself refuses to read more than 4300."""


def to_json_value(value: Any, depth: int = 0) -> Any:
    """``value`` in JSON types.

    Raises
    ------
    TopologyError
        When it is of a type that has no JSON form, or nested too deep.

    >>> to_json_value((1, float("inf")))
    {'@': 'tuple', 'of': [1, {'@': 'float', 'of': 'inf'}]}
    """
    if depth > _DEEPEST:
        raise TopologyError("attribute nested too deep", remedy="keep attributes flat")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -_SAFE_INT <= value < _SAFE_INT else {_TAG: "int", "of": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "of": str(value)}
    if kind is list:
        return [to_json_value(item, depth + 1) for item in value]
    if kind is tuple:
        return {_TAG: "tuple", "of": [to_json_value(item, depth + 1) for item in value]}
    if kind is dict and all(type(key) is str for key in value):
        found = {key: to_json_value(item, depth + 1) for key, item in value.items()}
        return {_TAG: "dict", "of": found} if _TAG in value else found
    if isinstance(value, str):
        # A StrEnum in an attribute is kept as its text, which compares equal.
        return str(value)
    raise TopologyError(
        f"attribute of type {kind.__name__} cannot be written: {one_line(repr(value))}",
        remedy="use numbers, text, lists, tuples and dictionaries with text keys",
    )


def from_json_value(value: Any) -> Any:
    """What :func:`to_json_value` was given.

    Raises
    ------
    FormatError
        When a tagged object is not one that :func:`to_json_value` writes.

    >>> from_json_value({"@": "tuple", "of": [1, {"@": "float", "of": "inf"}]})
    (1, inf)
    """
    if isinstance(value, list):
        return [from_json_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: from_json_value(item) for key, item in value.items()}
    content = value.get("of")
    match value[_TAG], content:
        case "tuple", list():
            return tuple(from_json_value(item) for item in content)
        case "float", "inf" | "-inf" | "nan":
            return float(content)
        case "int", str() if _is_integer(content):
            return int(content)
        case "dict", dict():
            return {key: from_json_value(item) for key, item in content.items()}
    raise FormatError(f"value {one_line(value)} is of no known type", remedy="write the file again")


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST_INT

"""The order of ids that people expect."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["natural_key"]

_DIGITS: Final = re.compile(r"(\d+)")
_LONGEST_NUMBER: Final = 18
"""Longer runs of digits are serial numbers, not counts; they sort as text."""


def natural_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts ``gpu2`` before ``gpu10``.

    Different names never have equal keys: ``gpu1`` and ``gpu01`` sort by their text.

    >>> sorted(["gpu10", "gpu2"], key=natural_key)
    ['gpu2', 'gpu10']
    """
    key: list[tuple[int, int | str]] = []
    for k, part in enumerate(_DIGITS.split(name)):
        if k % 2 and len(part) <= _LONGEST_NUMBER and part.isascii():
            key.append((0, int(part)))
        elif part:
            key.append((1, part))
    key.append((-1, name))
    return tuple(key)

"""What is sent, so that the receiver can tell whether it arrived.

Every buffer that is sent holds 32-bit words that differ from place to place and from
buffer to buffer: word ``i`` of buffer ``seed`` is ``i · A + seed · B`` modulo 2^32.  The
receiver knows who sends it which buffer, overwrites what it received before with another
value, and compares every word.  Bytes of a wrong place, of another sender, of an earlier
message or none at all differ.

The functions take arrays of NumPy as well as of whatever computes like them, so that a
device compares its own memory.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "CHUNK_WORDS",
    "DEVICE_CHUNK_WORDS",
    "POISON",
    "WORD_BYTES",
    "first_wrong_word",
    "seed_of",
    "words",
    "write",
]

WORD_BYTES: Final = 4
POISON: Final = 0xA5
"""What a buffer is filled with before it receives."""

CHUNK_WORDS: Final = 1 << 16
"""Words that a processor compares at once: they stay in its cache, which makes comparing
several times as fast (2.2 GB/s against 0.7 on one core of an EPYC)."""

DEVICE_CHUNK_WORDS: Final = 1 << 22
"""Words that a device compares at once: enough to keep it busy."""

_A: Final = 0x9E3779B1
"""2^32 over the golden ratio, made odd: consecutive words differ in most of their bits
(multiplicative hashing; Knuth, The Art of Computer Programming, volume 3, section 6.4)."""

_B: Final = 0x85EBCA6B
"""Another odd number; any would do that is not a small multiple of the first."""

_BUFFERS: Final = 1 << 16


def seed_of(rank: int, slot: int) -> int:
    """The seed of a rank's buffer; different for different ranks and slots."""
    return rank * _BUFFERS + slot + 1


def words(index: Any, seed: int, start: int = 0) -> Any:
    """The words at ``start + index``; ``index`` is an array of 32-bit integers.

    >>> import numpy as np
    >>> with np.errstate(over="ignore"):
    ...     words(np.arange(3, dtype=np.int32), seed=0).tolist()
    [0, -1640531535, 1013904226]
    """
    return index * _signed(_A) + _signed(start * _A + seed * _B)


def _signed(value: int) -> int:
    """A number modulo 2^32 as a signed 32-bit integer."""
    return (value + 2**31) % 2**32 - 2**31


def write(buffer: Any, index: Any, seed: int) -> None:
    """Fill a buffer of 32-bit words; ``index`` counts from 0 and sets how many at a time."""
    for start in range(0, len(buffer), len(index)):
        part = buffer[start : start + len(index)]
        part[:] = words(index[: len(part)], seed, start)


def first_wrong_word(buffer: Any, index: Any, seed: int) -> int | None:
    """Where a buffer begins to differ from what :func:`write` wrote; ``None``: nowhere."""
    for start in range(0, len(buffer), len(index)):
        part = buffer[start : start + len(index)]
        differs = part != words(index[: len(part)], seed, start)
        if bool(differs.any()):
            return start + int(differs.nonzero()[0].flatten()[0])
    return None

"""Changing a whole file a little: by bytes, by words and lines, by JSON values."""

from __future__ import annotations

import json
import random
from typing import Any, Final

__all__ = ["mutated"]

WORDS: Final = (
    "", "0", "-1", "1", "2", "1e999", "-1e999", "nan", "inf", "9" * 25, "4294967296", "1e-320",
    "0x", "²", "٣", "\x00", "\x1b[31m", "\ufeff", "\u202e", "\ud7ff", "💥", "é" * 40, "/", "..",
    "../../etc/passwd", "gpu0", "gpu1", "GPU0", "gpu99999999", "a" * 300, "NV18", "SYS", "X",
    "0000:ff:1f.7", "ffffffff:ff:1f.7", "GB/s", "GiB", "us", "->", "<-", "<->", "+", ",", ";",
    ":", "|", "\t", "\r", "\n", '"', "'", "{", "}", "[", "]", "<", ">", "&#0;", "&lt;", "%s",
    "{{7*7}}", "None", "null", "true",
)  # fmt: skip

_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 3, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.0, -0.0, 0.5, 1e-320,
    1e308, -1e308, 5e-324, "", "gpu0", "gpu9", "a\nb", "\x1b[31m", "x" * 300, [], {}, [0], [[]],
    {"": 0}, ["gpu0", "gpu0"], [1e308, 1e308],
)  # fmt: skip

_DEEP: Final = 2_000

_LONGEST: Final = 50_000
"""Characters that are changed further: lines are made 60 times as long."""


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few changes, of a kind that suits the content; sometimes only bytes."""
    if rng.random() < 0.7:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict | list):
            return _json(document, rng)
    if rng.random() < 0.7:
        return _text(content.decode("utf-8", "surrogateescape"), rng).encode(
            "utf-8", "surrogateescape"
        )
    return _bytes(content, rng)


def _bytes(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = rng.randrange(256)
            case 2:
                del changed[at : at + rng.randint(1, 40)]
            case 3:
                begin = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[begin : begin + rng.randint(1, 60)]
            case _:
                del changed[at:]
    return bytes(changed)


def _text(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 5)):
        text = text[:_LONGEST]
        at = rng.randrange(len(text) + 1)
        end = at
        while end < len(text) and text[end].isalnum():
            end += 1
        lines = text.split("\n")
        line = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                text = text[:at] + rng.choice(WORDS) + text[end:]
            case 1:
                text = text[:at] + rng.choice(WORDS) + text[at:]
            case 2:
                text = text[:at] + text[end + 1 :]
            case 3:
                lines.insert(rng.randrange(len(lines) + 1), lines[line])
                text = "\n".join(lines)
            case 4:
                del lines[line]
                text = "\n".join(lines)
            case 5:
                other = rng.randrange(len(lines))
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 6:
                lines[line] = (lines[line] + rng.choice(" \t|,")) * rng.choice((2, 5, 60))
                text = "\n".join(lines)
            case _:
                text = text[:at]
    return text


def _json(document: Any, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        places = list(_places(document))
        if not places:
            break
        inside, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1:
                inside[key] = _copy(rng.choice(_VALUES))
            case 2:
                del inside[key]
            case 3 if isinstance(inside, list):
                inside.append(_copy(inside[key]))
            case 3:
                inside[rng.choice(WORDS)] = _copy(inside[key])
            case 4:
                other, place = rng.choice(places)
                if isinstance(other, list) == isinstance(place, int):
                    inside[key] = _copy(_at(other, place))
            case _:
                inside[key] = _copy(_near(inside[key], rng))
    text = json.dumps(document)
    if rng.random() < 0.02:
        text = text.replace("null", "[" * _DEEP + "]" * _DEEP)
    if rng.random() < 0.05:
        text = text.replace("1e+308", "1e999")
    return text.encode("utf-8", "surrogatepass")


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _at(inside: Any, key: Any) -> Any:
    try:
        return inside[key]
    except (IndexError, KeyError):
        return None


def _near(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return rng.choice(_VALUES)
    if isinstance(value, int | float):
        return rng.choice((-value, value + 1, value * 1e30, value * 1e-30, str(value), [value]))
    if isinstance(value, str):
        return _text(value, rng)
    if isinstance(value, list):
        return rng.choice((value[::-1], value * 2, value[:1], dict(enumerate(map(str, value)))))
    return list(value.values())


def _places(value: Any) -> Any:
    """All places of a document that hold a value, as (container, key)."""
    if isinstance(value, dict):
        for key in value:
            yield value, key
            yield from _places(value[key])
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield value, k
            yield from _places(item)

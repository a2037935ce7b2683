"""Changing a whole file a little, in a way that suits it.

By bytes; by words, numbers, columns, lines and blocks of lines; by the values of JSON, whole or
line by line; by the elements of XML (:mod:`mutate_trees`); by the members of an archive; by lines
of other files.  Words of the format itself get past the first check more often than others.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, Final

from mutate_trees import changed_archive, changed_xml

__all__ = ["Mutator"]

WORDS: Final = (
    "", "0", "-1", "1", "2", "1e999", "-1e999", "nan", "inf", "9" * 25, "4294967296", "1e-320",
    "0x", "²", "٣", "\x00", "\x1b[31m", "\ufeff", "\u202e", "\ud7ff", "💥", "é" * 40, "/", "..",
    "../../etc/passwd", "gpu0", "gpu1", "GPU0", "gpu99999999", "a" * 300, "NV18", "SYS", "X",
    "0000:ff:1f.7", "ffffffff:ff:1f.7", "GB/s", "GiB", "us", "->", "<-", "<->", "+", ",", ";",
    ":", "|", "\t", "\r", "\n", '"', "'", "{", "}", "[", "]", "<", ">", "&#0;", "&lt;", "%s",
    "{{7*7}}", "None", "null", "true", "N/A", "-", "0.00", "1.5", "_", "²³", "1_0", "+1", "0b1",
)  # fmt: skip

_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 3, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.0, -0.0, 0.5, 1e-320,
    1e308, -1e308, 5e-324, "", "gpu0", "gpu9", "a\nb", "\x1b[31m", "x" * 300, [], {}, [0], [[]],
    {"": 0}, ["gpu0", "gpu0"], [1e308, 1e308],
)  # fmt: skip

_DEEP: Final = 2_000

_LONGEST: Final = 50_000
"""Characters that are changed further: lines are made 60 times as long."""

_LARGE: Final = 10**270
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Mutator:
    """Changes files of one kind.

    Parameters
    ----------
    words
        Words of the format.
    others
        Whole files, whose lines are put into each other.
    """

    def __init__(self, words: Sequence[str] = (), others: Sequence[bytes] = ()) -> None:
        self._words = tuple(words) or WORDS
        self._lines = [
            line
            for content in others
            for line in content.decode("utf-8", "surrogateescape").split("\n")
            if line.strip()
        ] or [""]

    def mutated(self, content: bytes, rng: random.Random) -> bytes:
        """A few changes, of a kind that suits the content; sometimes only bytes."""
        if b"\0" in content and not _packed(content) and rng.random() < 0.9:
            return self._parts(content.split(b"\0"), rng)
        if rng.random() < 0.7:
            shaped = self._shaped(content, rng)
            if shaped is not None:
                return shaped
        if rng.random() < 0.8:
            text = self._text(content.decode("utf-8", "surrogateescape"), rng)
            return text.encode("utf-8", "surrogateescape")
        return _bytes(content, rng)

    def _parts(self, parts: list[bytes], rng: random.Random) -> bytes:
        """One of several files that stand between NULs is changed, goes, or comes twice."""
        k = rng.randrange(len(parts))
        match rng.randrange(8):
            case 0:
                parts.insert(rng.randrange(len(parts) + 1), parts[k])
            case 1:
                del parts[k]
            case 2:
                other = rng.randrange(len(parts))
                parts[k], parts[other] = parts[other], parts[k]
            case _:
                parts[k] = self.mutated(parts[k], rng)
        return b"\0".join(parts)

    def _shaped(self, content: bytes, rng: random.Random) -> bytes | None:
        """Changed as what it is, where that has a shape."""
        start = content[:200].lstrip()
        if start[:1] in (b"{", b"["):
            try:
                return self._json(json.loads(content), rng)
            except (ValueError, RecursionError):
                return self._json_line(content, rng)
        if start[:1] == b"<":
            return changed_xml(content, rng, self._word)
        return changed_archive(content, rng, self.mutated)

    def _word(self, rng: random.Random) -> str:
        return rng.choice(self._words if rng.random() < 0.6 else WORDS)

    def _text(self, text: str, rng: random.Random) -> str:
        for _ in range(rng.randint(1, 4)):
            text = text[:_LONGEST]
            text = self._once(text, rng)
        return text

    def _once(self, text: str, rng: random.Random) -> str:
        at = rng.randrange(len(text) + 1)
        end = at
        while end < len(text) and text[end].isalnum():
            end += 1
        lines = text.split("\n")
        line = rng.randrange(len(lines))
        match rng.randrange(16):
            case 0 | 1:
                return text[:at] + self._word(rng) + text[end:]
            case 2:
                return text[:at] + self._word(rng) + text[at:]
            case 3:
                return text[:at] + text[end + 1 :]
            case 4:
                lines.insert(rng.randrange(len(lines) + 1), lines[line])
            case 5:
                del lines[line]
            case 6:
                other = rng.randrange(len(lines))
                lines[line], lines[other] = lines[other], lines[line]
            case 7:
                lines[line] = (lines[line] + rng.choice(" \t|,")) * rng.choice((2, 5, 60))
            case 8:
                return text[:at]
            case 9 | 10:
                return _number(text, rng)
            case 11:
                lines[line] = _cells(lines[line], rng)
            case 12:
                _column(lines, rng)
            case 13:
                lines.insert(line, rng.choice(self._lines))
            case 14:
                many = rng.randint(1, 12)
                place = rng.randrange(len(lines) + 1)
                lines[place:place] = lines[line : line + many]
            case _:
                del lines[line : line + rng.randint(1, 12)]
        return "\n".join(lines)

    def _json_line(self, content: bytes, rng: random.Random) -> bytes | None:
        """One line of several, where each is JSON."""
        lines = content.split(b"\n")
        some = [k for k, line in enumerate(lines) if line[:1] in (b"{", b"[")]
        if not some:
            return None
        k = rng.choice(some)
        try:
            document = json.loads(lines[k])
        except (ValueError, RecursionError):
            return None
        match rng.randrange(6):
            case 0:
                lines.insert(rng.randrange(len(lines) + 1), lines[k])
            case 1:
                other = rng.choice(some)
                lines[k], lines[other] = lines[other], lines[k]
            case 2:
                del lines[k]
            case _:
                lines[k] = self._json(document, rng)
        return b"\n".join(lines)

    def _json(self, document: Any, rng: random.Random) -> bytes:
        if not isinstance(document, dict | list):
            document = [document]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            places = list(_places(document))
            if not places:
                break
            inside, key = rng.choice(places)
            match rng.randrange(7):
                case 0:
                    inside[key] = _copy(rng.choice(_VALUES))
                case 1 if isinstance(inside[key], str):
                    inside[key] = self._word(rng)
                case 1:
                    inside[key] = _copy(rng.choice(_VALUES))
                case 2:
                    del inside[key]
                case 3 if isinstance(inside, list):
                    inside.append(_copy(inside[key]))
                case 3:
                    inside[self._word(rng)] = _copy(inside[key])
                case 4:
                    other, place = rng.choice(places)
                    if isinstance(other, list) == isinstance(place, int):
                        inside[key] = _copy(_at(other, place))
                case 5 if isinstance(inside, dict):
                    inside[self._word(rng)] = inside.pop(key)
                case _:
                    inside[key] = _copy(self._near(inside[key], rng))
        text = json.dumps(document)
        if rng.random() < 0.02:
            text = text.replace("null", "[" * _DEEP + "]" * _DEEP)
        if rng.random() < 0.05:
            text = text.replace("1e+308", "1e999")
        return text.encode("utf-8", "surrogatepass")

    def _near(self, value: Any, rng: random.Random) -> Any:
        if isinstance(value, bool) or value is None:
            return rng.choice(_VALUES)
        if isinstance(value, int | float):
            if abs(value) > _LARGE:
                return rng.choice((-value, 1 / 3, [value]))
            return rng.choice((-value, value + 1, value * 1e30, value * 1e-30, str(value), [value]))
        if isinstance(value, str):
            return self._once(value, rng)
        if isinstance(value, list):
            return rng.choice((value[::-1], value * 2, value[:1], dict(enumerate(map(str, value)))))
        return list(value.values())


def _packed(content: bytes) -> bool:
    """Whether it is an archive, where a NUL parts nothing."""
    return content[:2] == b"\x1f\x8b" or content[257:262] == b"ustar"


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


def _number(text: str, rng: random.Random) -> str:
    """One number becomes another of the text, or a neighbour, or an odd one."""
    begin = rng.randrange(len(text) + 1)
    found = _NUMBER.search(text, begin) or _NUMBER.search(text)
    if found is None:
        return text
    other = _NUMBER.search(text, rng.randrange(len(text) + 1))
    old = found.group()
    new = rng.choice(
        (
            other.group() if other else "7",
            str(int(old) + 1) if old.isdigit() and len(old) < 20 else "3",
            str(int(old) - 1) if old.isdigit() and len(old) < 20 else "-3",
            "0", "0.0", "-" + old, old + "0" * rng.choice((1, 3, 30, 400)), old + "e308", "1e-320",
            old + old, old.lstrip("0") or "00", "0" + old,
        )
    )  # fmt: skip
    return text[: found.start()] + new + text[found.end() :]


def _cells(line: str, rng: random.Random) -> str:
    """A row with a cell more, a cell less, or two that changed places."""
    cells = re.split(r"(\s+|,)", line)
    k = 2 * rng.randrange(len(cells) // 2 + 1)
    other = 2 * rng.randrange(len(cells) // 2 + 1)
    match rng.randrange(4):
        case 0:
            del cells[k : k + 2]
        case 1:
            cells[k:k] = [cells[other], cells[min(k + 1, len(cells) - 1)] or " "]
        case 2:
            cells[k] = cells[other]
        case _:
            cells[k], cells[other] = cells[other], cells[k]
    return "".join(cells)


def _column(lines: list[str], rng: random.Random) -> None:
    """A column of every row like the one that is met is taken out, doubled or exchanged."""
    start = rng.randrange(len(lines))
    width = len(lines[start].split())
    if not width:
        return
    k, other = rng.randrange(width), rng.randrange(width)
    how = rng.randrange(3)
    for number in range(start, min(len(lines), start + 40)):
        cells = re.split(r"(\s+|,)", lines[number].strip())
        if len(cells) < 2 * max(k, other) + 1:
            continue
        if how == 0:
            del cells[2 * k : 2 * k + 2]
        elif how == 1:
            cells[2 * k : 2 * k] = [cells[2 * other], " "]
        else:
            cells[2 * k], cells[2 * other] = cells[2 * other], cells[2 * k]
        lines[number] = "".join(cells)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _at(inside: Any, key: Any) -> Any:
    try:
        return inside[key]
    except (IndexError, KeyError):
        return None


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

"""What a tool printed, without what terminals, web pages and launchers put around its lines.

What is taken off, in this order, and nothing else:

* terminal codes and the entities of HTML, wherever they stand;
* quote marks (``> ``) and what launchers put before each line (``[1,0]<stdout>:`` of mpirun,
  ``(worker, rank=1, pid=2769) `` of Ray and SkyPilot), line by line;
* what stands before *every* line: line numbers that count up, a rank or a host and a colon
  (srun, pdsh), a time of day (container logs), the mark of a comment.

Numbers that a web page has put on lines of their own between the lines are blanked.

Lines are never joined, split or left out, so that their numbers stay those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = ["MAX_LINES", "plain_lines", "undress"]

MAX_LINES: Final = 200_000
"""Of a log; what stands further down is not looked for."""

_FEWEST: Final = 4
"""Lines from which on something before every one of them is no coincidence."""

_MOST_DIGITS: Final = 6

_MOST_SHARED: Final = 6
"""Prefixes of different kinds that may stand before each other."""

_RULE: Final = " \t-=+:\u2500\u253c"
_ANSI: Final = re.compile(r"\x1b?\[[0-9]{0,3}(?:;[0-9]{1,3}){0,4}[mK]|\x1b\([A-Z0-9]|\x1b")
_QUOTE: Final = re.compile(r"[ \t]{0,8}(?:>[ \t]?){1,8}")
_LAUNCHER: Final = re.compile(
    r"[ \t]{0,8}\[[0-9]{1,6},[0-9]{1,6}\](?:\[[^\]\s]{1,80}\])?<std(?:out|err|diag)>: ?"
    r"|[ \t]{0,8}\([\w.\-]{1,60}(?:,? [\w.\-]{1,40}=[^,()\s]{1,60}){1,6}\) ?"
)
_NUMBERED: Final = re.compile(r"[ \t]{0,8}([0-9]{1,6})(?:[ \t]{0,4}[:|.)](?:[ \t]|$)|[ \t]|$)")
_COMMENT: Final = re.compile(r"[ \t]{0,8}(?:#|//) ?")
_NAMED: Final = re.compile(r"[ \t]{0,8}[\w.\-]{1,80}: ?")
_TIMED: Final = re.compile(
    r"[ \t]{0,8}\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.,]{0,10}"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?\]? ?"
)
_ENTITIES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&quot;", '"'), ("&amp;", "&"))


def plain_lines(text: str) -> list[str]:
    """The first lines of a text as the tool printed them, without table rules.

    >>> plain_lines("> GPU0 | X")
    ['GPU0   X']
    """
    lines = [
        line.replace("\xa0", " ").replace("|", " ").replace("\u2502", " ") for line in _bare(text)
    ]
    return ["" if not line.strip(_RULE) else line.rstrip() for line in lines]


def undress(text: str) -> str:
    """A text without what surrounds it; table rules stay.

    >>> undress("1: a\\n2: b\\n3:\\n4: c")
    'a\\nb\\n\\nc'
    """
    return "\n".join(_bare(text))


def _bare(text: str) -> list[str]:
    lines = [_by_itself(line) for line in text.split("\n", MAX_LINES)[:MAX_LINES]]
    for _ in range(_MOST_SHARED):
        shorter = _without_shared(lines)
        if shorter is None:
            break
        lines = [_by_itself(line) for line in shorter]
    for k in _numbers_between(lines):
        lines[k] = ""
    return lines


def _numbers_between(lines: Sequence[str]) -> list[int]:
    """Lines that hold a line's number alone, each above the line it is of."""
    found: list[int] = []
    run: list[int] = []
    last = 0
    for k, line in enumerate(lines):
        word = line.strip()
        if not (word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS):
            continue
        if run and (int(word) != last + 1 or k - run[-1] > 2):
            found += _if_long(run)
            run = []
        run.append(k)
        last = int(word)
    return found + _if_long(run)


def _if_long(run: list[int]) -> list[int]:
    """The lines, where that many in a row are no coincidence."""
    apart = sum(b - a > 1 for a, b in pairwise(run))
    return run if apart + 1 >= _FEWEST else []


def _by_itself(line: str) -> str:
    if "[" in line or "\x1b" in line:
        line = _ANSI.sub("", line)
    if "&" in line:
        for entity, character in _ENTITIES:
            line = line.replace(entity, character)
    for before in (_QUOTE, _LAUNCHER, _LAUNCHER):
        found = before.match(line)
        if found is not None:
            line = line[found.end() :]
    return line


def _without_shared(lines: Sequence[str]) -> list[str] | None:
    """The lines without what stands before every one; ``None`` where nothing does."""
    written = [(k, line) for k, line in enumerate(lines) if line.strip()]
    if len(written) < _FEWEST:
        return None
    ends = (
        _line_numbers(written)
        or _every(_TIMED, written)
        or _every(_COMMENT, written)
        or _names(written)
    )
    if ends is None:
        return None
    shorter = list(lines)
    for (k, line), end in zip(written, ends, strict=True):
        shorter[k] = line[end:]
    return shorter


def _line_numbers(written: Sequence[tuple[int, str]]) -> list[int] | None:
    """Where the numbers end of lines that are all numbered, one after the other."""
    ends = []
    first: int | None = None
    for k, line in written:
        found = _NUMBERED.match(line)
        if found is None or int(found[1]) - k != (int(found[1]) - k if first is None else first):
            return None
        first = int(found[1]) - k
        ends.append(found.end())
    return ends


def _every(pattern: re.Pattern[str], written: Sequence[tuple[int, str]]) -> list[int] | None:
    """Where a prefix ends that stands before every line."""
    ends = []
    for _, line in written:
        found = pattern.match(line)
        if found is None:
            return None
        ends.append(found.end())
    return ends


def _names(written: Sequence[tuple[int, str]]) -> list[int] | None:
    """Where the names end of lines that all begin with one of a few.

    Few, since lines of a name and its value begin alike.
    """
    ends, names = [], set[str]()
    for _, line in written:
        found = _NAMED.match(line)
        if found is None:
            return None
        names.add(found[0].strip())
        ends.append(found.end())
    return ends if len(names) * _FEWEST <= len(written) else None

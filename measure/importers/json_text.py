"""JSON documents in a text that may have prompts and messages around them."""

from __future__ import annotations

import json
from typing import Any, Final

from topocal.topo.errors import FormatError, Where

__all__ = ["begins_json", "find_json"]

MOST_DOCUMENTS: Final = 1_000


def begins_json(text: str) -> bool:
    """Whether a text begins with a JSON object, prompts and messages aside."""
    head = text[:100_000]
    return head.lstrip()[:1] == "{" or "\n{" in head


def find_json(text: str, *, file: str) -> tuple[list[tuple[dict[str, Any], int]], list[str]]:
    """The JSON objects in a text with the line each begins at, and sentences on what is cut.

    ``NaN``, which is not JSON but is printed by some tools, is read as a number that is
    not finite.

    Raises
    ------
    FormatError
        When there is none, or the first is damaged.
    """
    decoder = json.JSONDecoder()
    found: list[tuple[dict[str, Any], int]] = []
    at, line = _next(text, 0), 1
    before = 0
    while at is not None and len(found) < MOST_DOCUMENTS:
        line += text.count("\n", before, at)
        before = at
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            here = line
            if isinstance(error, json.JSONDecodeError):
                here += text.count("\n", at, error.pos)
            what = getattr(error, "msg", "") or "it is nested too deep or has too long a number"
            if found:
                return found, [f"line {here}: what follows is cut or damaged and left out"]
            raise FormatError(
                f"is damaged JSON: {what[0].lower() + what[1:]}",
                where=Where(file=file, line=here),
                remedy="give the whole output of the tool",
            ) from error
        if isinstance(document, dict):
            found.append((document, line))
        at = _next(text, end)
    if not found:
        raise FormatError(
            "has no JSON object", where=Where(file=file), remedy="give the tool's JSON output"
        )
    return found, []


def _next(text: str, begin: int) -> int | None:
    """Where the next object begins: a brace that is the first of its line, or of the text."""
    if begin == 0 and text.lstrip()[:1] == "{":
        return text.index("{")
    at = text.find("\n{", max(begin - 1, 0))
    return None if at < 0 else at + 1

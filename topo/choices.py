"""One of a few words, in any case; a near one is told."""

from __future__ import annotations

from collections.abc import Iterable

from topocal.topo.columns import close_name
from topocal.topo.errors import InputError, one_line

__all__ = ["one_of"]


def one_of(word: str, choices: Iterable[str], *, what: str) -> str:
    """The choice that a word stands for.

    Parameters
    ----------
    what
        What is chosen, such as ``format``.

    Raises
    ------
    InputError
        When it stands for none.

    >>> one_of("DOT", ["dot", "graphml"], what="format")
    'dot'
    """
    known = list(choices)
    for choice in known:
        if word.strip().lower() == choice.lower():
            return choice
    close = close_name(word, known)
    raise InputError(
        f"no {what} {one_line(word)!r}",
        remedy=f"did you mean {close}?" if close else f"choose one of {', '.join(known)}",
        about=word,
    )

"""What each rank was told to do: compared before anything is measured.

Rank 0 decides all that is done, so a rank that was started with another plan, other options
or another command would serve without a word, and its user would take what was measured for
something else.  Every rank says what it was told when it is first asked
(:class:`~topocal.measure.orders.Survey`), and rank 0 compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from topocal.topo.errors import InputError

__all__ = ["Instructions", "require_same"]

Instructions = Mapping[str, str]
"""By what a user gave (``--issue``): its value.  Names in ``_UNSHOWN`` hold digests."""

_UNSHOWN: Final = {
    "plan": "copy one plan.json to every host",
    "machine": "copy one topology file to every host, and give all ranks the same options",
}
"""Values that nobody can read, and what to do when they differ."""

_LONGEST: Final = 60
_SAME_LINE: Final = "start every rank by the same command line"


def require_same(told: Mapping[int, Instructions], names: Sequence[str]) -> None:
    """All ranks were told the same.

    Parameters
    ----------
    told
        By rank.
    names
        Endpoint of each rank, as rank 0 has them.

    Raises
    ------
    InputError
        Naming the first rank that was told something else, and what.

    >>> told = {0: {"--issue": "group"}, 1: {"--issue": "one-by-one"}}
    >>> require_same(told, ["gpu0", "gpu1"])
    Traceback (most recent call last):
    ...
    topocal.topo.errors.InputError: rank 1 (gpu1) has --issue one-by-one, and rank 0 (gpu0) has \
--issue group; start every rank by the same command line
    """
    first = told[0]
    others = [rank for rank in sorted(told) if told[rank] != first]
    if not others:
        return
    rank = others[0]
    own = told[rank]
    what = next(k for k in (*first, *own) if own.get(k) != first.get(k))
    more = f", and so do {len(others) - 1} more" if len(others) > 1 else ""
    who, zero = (f"rank {r} ({names[r]})" for r in (rank, 0))
    if what in _UNSHOWN and what in own and what in first:
        raise InputError(
            f"{who} has another {what} than {zero}{more}", remedy=_UNSHOWN[what], about=rank
        )
    raise InputError(
        f"{who} has {_words(what, own)}, and {zero} has {_words(what, first)}{more}",
        remedy=_SAME_LINE,
        about=rank,
    )


def _words(what: str, told: Instructions) -> str:
    if what not in told:
        return f"no {what}"
    value = told[what]
    short = value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    return f"a {what}" if what in _UNSHOWN else f"{what} {short}"

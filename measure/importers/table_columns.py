"""What the columns of a table of rates are, by their names.

==============  ==========================================================================
ends            ``source,destination`` (src, from, sender … / dst, to, receiver …),
                ``pair`` (``1-2``), or ``flows`` (``0>4;1>5``, or a pattern's notation)
rates           a name that ends in a unit: ``total_GBs``, ``one_way_GBps``,
                ``bandwidth (GB/s)``; *both ways* in it is the sum of both directions,
                unless each row names a direction: then it is that direction's
size, time      ``size``, ``bytes``; ``seconds``, ``time_us`` …
direction       ``H2D`` or ``D2H``: the ends are host memory and some GPU
conditions      ``kind``, ``p2p``, ``engine`` …; which machine: ``machine``, ``box`` …
==============  ==========================================================================

Other columns are not used, and the notes say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.imported import Draft
from topocal.topo.columns import close_name
from topocal.topo.errors import FormatError, UnitError, one_line
from topocal.topo.units import format_rate, rate_unit_Bps

__all__ = ["CONDITIONS", "IDENTITIES", "Columns", "RateColumn", "classify", "once_each"]

_SOURCE: Final = frozenset({"source", "src", "from", "sender", "tx"})
_DESTINATION: Final = frozenset({"destination", "dst", "dest", "to", "receiver", "rx"})
_PAIR: Final = frozenset({"pair", "gpu_pair", "link"})
_FLOWS: Final = frozenset({"flows", "pattern", "transfers", "pairs"})
_MEMBERS: Final = frozenset({"gpus", "ranks", "devices", "group"})
_SIZE: Final = frozenset(
    {"size", "bytes", "size_bytes", "message_size", "bytes_per_flow", "nbytes"}
)
_NAME: Final = frozenset({"name", "label", "test", "case"})
_NOTE: Final = frozenset({"note", "notes", "comment", "remark", "description"})
_REPEAT: Final = frozenset({"repeat", "repetition", "iteration", "trial"})
_TIME: Final = re.compile(r"(?:seconds|time_s|elapsed_s|(?:time|elapsed|duration)_(s|ms|us|ns))")
_SECONDS: Final = {None: 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RATE: Final = re.compile(r"(.{1,60}?)[_ ]{0,4}[(\[]?([KMGT]i?[Bb])(?:/s|ps|s|_per_s|/sec)[)\]]?")
_BOTH_WAYS: Final = re.compile(r"both|bidir|duplex|two.?way|(?:^|[ _-])bi(?:$|[ _-])")
_EVERYONE: Final = re.compile(r"all")
_MEANT: Final = ("size", "repeat")
"""Fields of :class:`Columns` whose absence says something, too."""
_SAME: Final = 0.02
"""Two figures of one rate may differ by so much: each was rounded in its own unit."""
_COLLECTIVE: Final = re.compile(r"bus.?b|alg.?b|allreduce|all_reduce|collective")

IDENTITIES: Final = frozenset(
    {"machine", "box", "host", "system", "server", "node", "setup", "wiring", "software", "config",
     "configuration", "run"}
)  # fmt: skip
"""Columns whose values are different machines or states of one: never mixed in a fit."""

CONDITIONS: Final = frozenset(
    {"kind", "type", "op", "operation", "mode", "transfer", "engine", "p2p", "peer", "backend",
     "protocol", "direction", "statistic", "metric"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RateColumn:
    """A column of rates.

    Attributes
    ----------
    name
        As it stands in the header.
    unit_Bps
        Bytes per second in one of it.
    meaning
        ``rate``, ``both ways``, ``everyone`` or ``collective``.
    """

    name: str
    unit_Bps: float
    meaning: str


@dataclass(slots=True, kw_only=True)
class Columns:
    """Names of a table's columns by what they are; empty where there is none.

    ``texts`` are the columns that may hold any words.
    """

    source: str = ""
    destination: str = ""
    pair: str = ""
    flows: str = ""
    members: str = ""
    size: str = ""
    time: str = ""
    time_unit_s: float = 1.0
    direction: str = ""
    name: str = ""
    repeat: str = ""
    rates: list[RateColumn] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def refuse_misspelt(self, draft: Draft, line: int) -> None:
        """A column that is nearly one that matters, where that one is missing, is a slip.

        Raises
        ------
        FormatError
            When there is one.
        """
        for column in self.unused:
            near = close_name(column, _MEANT)
            if near and not getattr(self, near):
                raise draft.fail(
                    f"column {one_line(column)!r} is not known",
                    line=line,
                    remedy=f"did you mean {near}? A column called note may say anything",
                )

    @property
    def has_figures(self) -> bool:
        """Whether a row says how long something took."""
        return bool(self.rates) or bool(self.time and self.size)

    @property
    def has_ends(self) -> bool:
        """Whether a row says what moved from where to where."""
        ends = self.source and self.destination
        return bool(ends or self.pair or self.flows or self.members or self.direction)


def once_each(
    rates: list[tuple[RateColumn, float]], fail: Callable[..., FormatError]
) -> list[tuple[RateColumn, float]]:
    """One rate of each meaning in a row, and all readings, which no fit uses.

    Raises
    ------
    FormatError
        As ``fail`` makes it, when two columns say different rates of the same flows.
    """
    found: dict[str, tuple[RateColumn, float]] = {}
    readings = [one for one in rates if one[0].meaning in ("everyone", "collective")]
    for column, rate in rates:
        if (column, rate) in readings:
            continue
        first, known = found.setdefault(column.meaning, (column, rate))
        if abs(rate - known) > _SAME * known:
            raise fail(
                f"{one_line(first.name)} and {one_line(column.name)} say different rates of the "
                f"same flows, {format_rate(known)} and {format_rate(rate)}",
                remedy="keep one of the columns",
            )
    return [*found.values(), *readings]


def classify(header: list[str]) -> Columns:
    """What each column of a header is.

    >>> found = classify(["name", "flows", "kind", "total_GBs"])
    >>> found.flows, found.conditions, found.rates[0].unit_Bps
    ('flows', ['kind'], 1000000000.0)
    """
    found = Columns()
    single = (
        ("source", _SOURCE),
        ("destination", _DESTINATION),
        ("pair", _PAIR),
        ("flows", _FLOWS),
        ("members", _MEMBERS),
        ("size", _SIZE),
        ("name", _NAME),
        ("repeat", _REPEAT),
    )
    for column in header:
        word = column.strip().lower().replace(" ", "_").replace("-", "_")
        role = next((r for r, words in single if word in words and not getattr(found, r)), None)
        if role is not None:
            setattr(found, role, column)
            if role == "name":
                found.texts.append(column)
        elif word == "direction" and not found.direction:
            found.direction = column
        elif (time := _TIME.fullmatch(word)) and not found.time:
            found.time, found.time_unit_s = column, _SECONDS[time[1]]
        elif rate := _rate(column):
            found.rates.append(rate)
        elif word in IDENTITIES or word in CONDITIONS:
            found.conditions.append(column)
        else:
            found.texts.append(column)
            if word not in _NOTE:
                found.unused.append(column)
    return found


def _rate(column: str) -> RateColumn | None:
    match = _RATE.fullmatch(column.strip())
    if match is None:
        return None
    try:
        unit = rate_unit_Bps(match[2] + "/s")
    except UnitError:
        return None
    word = match[1].lower()
    meaning = "rate"
    if _COLLECTIVE.search(word):
        meaning = "collective"
    elif _EVERYONE.match(word):
        meaning = "everyone"
    elif _BOTH_WAYS.search(word):
        meaning = "both ways"
    return RateColumn(name=column, unit_Bps=unit, meaning=meaning)

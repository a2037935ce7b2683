"""What tools do not say of their tables, made out from the tables together.

* A table without a title that reads about twice what other tables read of the same pairs holds
  sums of both directions; alone, its file's name may say so.
* Files that each measured one card, all under the same number, were run with one card visible
  at a time: the number in the file's name tells the cards apart.
* Tables that disagree throughout are of different machines or settings and must not be mixed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from topocal.measure.importers.imported import Imported
    from topocal.measure.samples import Measurements
    from topocal.solve.settings import Setting

__all__ = [
    "Piece",
    "as_both_ways",
    "common_conditions",
    "numbered_by_file",
    "preferred",
    "put_apart",
]

TWICE: Final = (1.6, 2.1)
"""What both ways pass in all of one way on sound machines: 1.89 to 2.0 published, 1.6 where
something is lost."""

SYMMETRIC: Final = math.log(1.05)
"""Sums of both directions read alike both ways round, but for errors of two runs."""

SHARED: Final = 1 / 3
"""Below this share of the smaller file's patterns, what both hold is a sample too small to say
that the machines differ."""

APART: Final = math.log(1.15)
"""Files of one machine in one setting agree within 5 %; those that are 15 % apart on what they
both hold are not."""

_BOTH_WAYS: Final = re.compile(r"(?<![a-z])(bi|bidi\w*|bi-?dir\w*|both\w*|duplex)(?![a-z])", re.I)

_RANKS: Final = (
    ("p2p", "off", "on"),
    ("operation", "read", "write"),
    ("engine", "kernel", "copy engine"),
)
"""Of a condition, the value that gives way to the other: as importers choose."""


class Table(Protocol):
    """A file with measurements."""

    name: str
    imported: Imported | None
    measurements: Measurements | None
    notes: list[str]


def numbered_by_file(tables: Sequence[Table]) -> list[str]:
    """Give cards that files number alike the numbers in the files' names; what was done, told."""
    from topocal.solve.words import is_host, ranges

    alone: dict[str, list[Table]] = {}
    for table in tables:
        if table.imported is None:
            continue
        ends = {
            n
            for g in table.imported.groups
            for s in g.measurements.samples
            for pair in s.pattern.pairs
            for n in pair
        }
        cards = {n for n in ends if not is_host(n)}
        if len(cards) == 1 and len(ends) > 1:
            alone.setdefault(cards.pop(), []).append(table)
    notes = []
    for card, found in alone.items():
        numbers = _numbers([PurePath(t.name).stem for t in found])
        stem = re.sub(r"[0-9]+$", "", card)
        if len(found) < 2 or numbers is None or stem == card:
            continue
        for table, number in zip(found, numbers, strict=True):
            assert table.imported is not None
            table.imported = table.imported.renamed({card: f"{stem}{number}"})
        notes.append(
            f"{len(found)} files all call their card {card}, as tools do that see one card only: "
            f"they are numbered by the files' names, {ranges(f'{stem}{n}' for n in numbers)}"
        )
    return notes


def _numbers(stems: Sequence[str]) -> list[int] | None:
    """The one number in which the names differ; ``None`` where they differ otherwise."""
    parts = [re.split(r"([0-9]+)", stem) for stem in stems]
    if len({tuple(p[::2]) for p in parts}) != 1:
        return None
    digits = [p[1::2] for p in parts]
    varying = [k for k in range(len(digits[0])) if len({d[k] for d in digits}) > 1]
    if len(varying) != 1:
        return None
    numbers = [int(d[varying[0]][:9]) for d in digits]
    return numbers if len(set(numbers)) == len(numbers) else None


def as_both_ways(tables: Sequence[Table]) -> list[str]:
    """Read tables without a title as sums of both directions where they must be."""
    notes: list[str] = []
    for table in tables:
        if table.imported is None:
            continue
        for k, group in enumerate(table.imported.groups):
            if group.conditions.get("direction") == "not stated":
                notes += _one_untitled(table, k, tables)
    return notes


def _one_untitled(table: Table, k: int, tables: Sequence[Table]) -> Iterator[str]:
    from dataclasses import replace

    from topocal.measure.importers.pair_table import both_ways_of

    assert table.imported is not None
    group = table.imported.groups[k]
    rates = _pair_rates([group.measurements])
    others = _pair_rates(
        g.measurements
        for t in tables
        for j, g in enumerate(t.imported.groups if t.imported else ())
        if (t is not table or j != k) and g.conditions.get("direction") != "both ways"
        if not _is_called_both_ways(t) or t is table
    )
    common = [rates[p] / others[p] for p in rates if p in others]
    mutual = [abs(math.log(rates[p] / rates[p[::-1]])) for p in rates if p[::-1] in rates]
    if not mutual or median(mutual) > SYMMETRIC:
        return
    told = f"{table.name}: its table has no title"
    if len(common) > 1:
        if not TWICE[0] <= median(common) <= TWICE[1]:
            return
        told += (
            f", reads {median(common):.2f} times what the other figures say of the same pairs, "
            "and alike both ways round"
        )
    elif _is_called_both_ways(table):
        told += ", and its name says both ways"
    else:
        return
    groups = list(table.imported.groups)
    groups[k] = replace(
        group,
        measurements=both_ways_of(group.measurements),
        conditions={**group.conditions, "direction": "both ways"},
        label=group.label.replace("without a title", "of both ways"),
    )
    table.imported = replace(table.imported, groups=tuple(groups))
    yield f"{told}: taken as sums of both directions"


def _is_called_both_ways(table: Table) -> bool:
    return _BOTH_WAYS.search(PurePath(table.name).stem.replace("_", " ")) is not None


def _pair_rates(measurements: Iterable[Measurements]) -> dict[tuple[str, str], float]:
    from topocal.solve.settings import rates_of

    found: dict[tuple[str, str], float] = {}
    for one in measurements:
        for key, (_, rate) in rates_of(one).items():
            if len(key) == 1:
                found.setdefault(next(iter(key)), rate)
    return found


def preferred(settings: Sequence[Setting], imported: Imported) -> list[tuple[str, Measurements]]:
    """What a fit uses of a file, machine by machine; the importer's own choice first."""
    machines = list(dict.fromkeys(s.machine for s in settings if s.measurements.samples))
    used = {s.machine for s in settings if s.default and s.measurements.samples}
    found: list[tuple[str, Measurements]] = []
    if used:
        own = next(iter(used)) if len(used) == 1 and len(machines) > 1 else ""
        found.append((own, imported.best()))
    for machine in machines:
        if machine not in used:
            mine = [s for s in settings if s.machine == machine and s.measurements.samples]
            found.append((machine, _merged(_chosen(mine))))
    return found


def _chosen(settings: Sequence[Setting]) -> list[Setting]:
    """Those whose conditions do not give way to others that there are."""
    kept = list(settings)
    for key, loser, winner in _RANKS:
        if any(s.conditions.get(key) == winner for s in kept):
            kept = [s for s in kept if s.conditions.get(key) != loser]
    return kept


def _merged(settings: Sequence[Setting]) -> Measurements:
    from topocal.measure.samples import Measurements

    samples = [
        s for one in settings for s in (*one.measurements.samples, *one.measurements.set_aside)
    ]
    sources = dict.fromkeys(x for s in settings for x in s.measurements.sources)
    return Measurements.of(samples, list(sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Figures of one file and one machine.

    Attributes
    ----------
    file
        Its name.
    machine
        What the table says of the machine; empty where it has one only.
    conditions
        Those that change what is measured, where all tables in it agree on them.
    measurements
        The samples.
    """

    file: str
    machine: str
    conditions: Mapping[str, str]
    measurements: Measurements


_TELLING: Final = ("engine", "p2p", "memory")


def common_conditions(settings: Sequence[Setting], measurements: Measurements) -> dict[str, str]:
    """Conditions that all tables of some samples share."""
    used = {id(s.pattern) for s in measurements.samples}
    mine = [s for s in settings if any(id(x.pattern) in used for x in s.measurements.samples)]
    found = {}
    for key in _TELLING:
        values = {s.conditions.get(key, "") for s in mine}
        if len(values) == 1 and "" not in values:
            found[key] = values.pop()
    return found


def put_apart(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces in groups that agree on what they both hold; those of another machine alone."""
    from topocal.solve.settings import rates_of

    rates = [rates_of(p.measurements) for p in pieces]
    sizes = sorted(range(len(pieces)), key=lambda k: (-len(rates[k]), k))
    groups: list[list[int]] = []
    for k in sizes:
        for group in groups:
            if all(
                pieces[k].machine == pieces[g].machine
                and _agree(_by_key(rates[k]), _by_key(rates[g]), _alike(pieces[k], pieces[g]))
                for g in group
            ):
                group.append(k)
                break
        else:
            groups.append([k])
    return [[pieces[k] for k in sorted(group)] for group in groups]


def _by_key(rates: Mapping[Any, tuple[Any, float]]) -> dict[Any, float]:
    return {key: rate for key, (_, rate) in rates.items()}


def _alike(one: Piece, other: Piece) -> bool:
    """Whether nothing says that two pieces were measured otherwise."""
    return all(other.conditions.get(k, v) == v for k, v in one.conditions.items())


def _agree(one: Mapping[Any, float], other: Mapping[Any, float], alike: bool) -> bool:
    """Whether two sets of figures can be of one machine in one setting.

    One figure of many that differs is a contradiction, and told as one; under other conditions
    it is what these change.
    """
    apart = [abs(math.log(one[k] / other[k])) for k in one if k in other]
    if not alike:
        return max(apart, default=0.0) <= APART
    few = len(apart) < SHARED * min(len(one), len(other))
    return few or median(apart) <= APART

"""Tables of figures with the conditions they were taken under, and what the conditions change.

A tool prints the same transfers with and without peer access, as writes and as reads, by copy
engines and by kernels; a table gives several set-ups of a machine.  A fit must not mix them,
but what changes between them is often the answer.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from topocal.measure.importers.imported import Imported, LinkCost, Reading
from topocal.measure.samples import Measurements
from topocal.solve.evidence import Finding, FindingKind, Pair, Severity, Shown, listed, span
from topocal.solve.findings_units import unit_between
from topocal.solve.words import is_host, pattern_in_words, sentence
from topocal.topo.flow import Pattern
from topocal.topo.naming import natural_key
from topocal.topo.units import format_rate

__all__ = ["CHANGES", "Setting", "compare_settings", "rates_of", "settings_of"]

CHANGES: Final = math.log(1.15)
"""A setting matters from 15 % on: reads and writes of sound links differ by less."""

AGREES: Final = math.log(1.05)
"""Like figures of steady machines agree within 5 %."""

MOST_TOLD: Final = 3
"""Findings for one condition: those of what the fit uses, then the largest changes."""

_SHOWN: Final = 8

Key = frozenset[Pair]

USUAL: Final = {
    "run",
    "p2p",
    "engine",
    "operation",
    "direction",
    "statistic",
    "memory",
    "numa",
    "kind",
    "test",
    "place",
    "profile",
    "chunk",
    "gpus per node",
    "nics per node",
    "hosts",
}
"""Conditions that importers set; others are columns by which a table tells machines or
set-ups apart."""

_WORDS: Final = {
    ("p2p", "on"): "with peer access",
    ("p2p", "off"): "without peer access",
    ("operation", "read"): "by reads",
    ("operation", "write"): "by writes",
    ("engine", "kernel"): "by a kernel",
    ("engine", "copy engine"): "by copy engines",
}

_ACROSS_FILES: Final = {"engine", "p2p", "operation", "memory"}
"""Conditions that tell two files apart, each of which was measured under one."""

_MACHINES: Final = {"machine", "box", "host", "node", "system", "server"}
"""Columns that tell machines apart; that these differ is no finding."""

CONTRADICTS: Final = math.log(1.3)
"""The same transfer alone and among others of one log differs by less on sound machines."""

_TRIFLES: Final = {"direction", "statistic", "run", "place", "test", "kind"}
"""What these change is no news: other patterns, the mean against the best, another test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Figures under one set of conditions.

    Attributes
    ----------
    source
        The file, without its folder.
    label
        As the importer names it.
    conditions
        By name; ``direction`` and the like aside.
    rates
        Pattern and rate by the pattern's pairs, at the largest size.
    measurements
        The samples themselves.
    readings, costs
        What is no sample.
    default
        Whether a fit uses it.
    """

    source: str
    label: str
    conditions: Mapping[str, str]
    rates: Mapping[Key, tuple[Pattern, float]]
    measurements: Measurements
    readings: tuple[Reading, ...] = ()
    costs: tuple[LinkCost, ...] = ()
    default: bool = True
    no_peer: frozenset[Pair] = field(default_factory=frozenset)

    @property
    def machine(self) -> str:
        """What the table says of the machine or set-up, empty where nothing."""
        return _machine(self.conditions.items())


def rates_of(measurements: Measurements) -> dict[Key, tuple[Pattern, float]]:
    """Rate of each pattern at its largest size, the median of repeats."""
    found: dict[Key, dict[float, list[tuple[Pattern, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for s in measurements.samples:
        found[frozenset(s.pattern.pairs)][s.pattern.total_bytes].append(
            (s.pattern, s.throughput_Bps)
        )
    result = {}
    for key, by_size in found.items():
        largest = by_size[max(by_size)]
        result[key] = (largest[0][0], median(rate for _, rate in largest))
    return result


def settings_of(imported: Imported, source: str) -> list[Setting]:
    """All that a file holds, table by table."""
    return [
        Setting(
            source=source,
            label=g.label,
            conditions=g.conditions,
            rates=rates_of(g.measurements),
            measurements=g.measurements,
            readings=g.readings,
            costs=g.costs,
            default=g.default,
            no_peer=frozenset(imported.no_peer),
        )
        for g in imported.groups
    ]


@dataclass(frozen=True, slots=True)
class _Side:
    """All figures of one file under conditions that are alike but for trifles."""

    source: str
    conditions: tuple[tuple[str, str], ...]
    rates: Mapping[Key, tuple[Pattern, float]]

    @property
    def machine(self) -> str:
        """As :attr:`Setting.machine`."""
        return _machine(self.conditions)


def _machine(conditions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{k} {v}" for k, v in sorted(conditions) if k not in USUAL)


def compare_settings(settings: Sequence[Setting]) -> list[Finding]:
    """What changes where nothing but one condition does, or nothing but the file."""
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], dict[Key, tuple[Pattern, float]]]
    merged = defaultdict(dict)
    for s in settings:
        rest = tuple(sorted((k, v) for k, v in s.conditions.items() if k not in _TRIFLES))
        for key, known in s.rates.items():
            merged[s.source, rest].setdefault(key, known)
    used = {s.machine for s in settings if s.default}
    sides = [_Side(source, rest, rates) for (source, rest), rates in merged.items() if rates]
    found: dict[str, list[tuple[tuple[int, float], Finding]]] = defaultdict(list)
    for one, other in itertools.combinations(sides, 2):
        what = _difference(one, other, sides)
        if what is None or (told := _compared(one, other, what)) is None:
            continue
        change, finding = told
        # What the fit uses comes first, then what changes most.
        rank = sum(side.machine in used for side in (one, other))
        found[what].append(((-rank, -change), finding))
    return [
        *_contradictions(settings),
        *(
            finding
            for ranked in found.values()
            for finding in _unlike([f for _, f in sorted(ranked, key=lambda item: item[0])])
        ),
    ]


def _unlike(findings: Sequence[Finding]) -> list[Finding]:
    """The first few that do not say the same of other tables."""
    found: dict[tuple[tuple[str, ...], str], Finding] = {}
    for f in findings:
        what = f.text.partition(":")[0].partition(" (")[0]
        found.setdefault((f.about, what), f)
    return list(found.values())[:MOST_TOLD]


def _contradictions(settings: Sequence[Setting]) -> list[Finding]:
    """Transfers that one file holds twice under like conditions, with unlike figures."""
    first: dict[tuple[str, tuple[tuple[str, str], ...], Key], Setting] = {}
    found: list[tuple[float, str, Shown, Shown]] = []
    for s in settings:
        rest = tuple(sorted((k, v) for k, v in s.conditions.items() if k not in _TRIFLES))
        for key, (pattern, rate) in s.rates.items():
            other = first.setdefault((s.source, rest, key), s)
            if other is s or other.conditions.get("direction") == s.conditions.get("direction"):
                continue
            before = other.rates[key][1]
            off = abs(math.log(rate / before))
            if off <= CONTRADICTS:
                continue
            name = pattern_in_words(pattern)
            text = (
                f"{name} {format_rate(before)} ({other.label}) and {format_rate(rate)} ({s.label})"
            )
            shown = [
                Shown(name=f"{name}, {x.label}", rate_Bps=r)
                for x, r in ((other, before), (s, rate))
            ]
            found.append((off, text, shown[0], shown[1]))
    if not found:
        return []
    found.sort(key=lambda item: -item[0])
    number = f"{len(found)} transfers stand" if len(found) > 1 else "One transfer stands"
    return [
        Finding(
            kind=FindingKind.CONTRADICTION,
            severity=Severity.WARNING,
            about=(found[0][2].name.partition(",")[0],),
            text=(
                f"{number} twice with unlike figures: {found[0][1]}. No pattern is slower than "
                "each of its flows alone; the lines may be of different machines."
            ),
            evidence=tuple(shown for _, _, a, b in found[: _SHOWN // 2] for shown in (a, b)),
        )
    ]


def _difference(one: _Side, other: _Side, sides: Sequence[_Side]) -> str | None:
    """The one condition in which two sides differ; ``file`` where only the file does."""
    a, b = dict(one.conditions), dict(other.conditions)
    keys = {k for k in (*a, *b) if a.get(k) != b.get(k)}
    if one.source != other.source:
        told = [k for k in keys & _ACROSS_FILES if k in a and k in b]
        if not told:
            return "file" if not keys & _ACROSS_FILES else None
        # A file that holds both is compared within itself.
        both = any(
            len({dict(s.conditions).get(told[0]) for s in sides if s.source == source} - {None}) > 1
            for source in (one.source, other.source)
        )
        return told[0] if len(told) == 1 and not both else None
    # What only one of them states, as tools do of writes with peer access, is no difference.
    stated = [k for k in keys if k in a and k in b]
    return stated[0] if len(stated) == 1 and stated[0] not in _MACHINES else None


def _compared(one: _Side, other: _Side, what: str) -> tuple[float, Finding] | None:
    common = [key for key in one.rates if key in other.rates]
    if not common:
        return None
    logs = {key: math.log(one.rates[key][1] / other.rates[key][1]) for key in common}
    if sum(logs.values()) < 0:
        one, other = other, one
        logs = {key: -x for key, x in logs.items()}
    moved = {key: x for key, x in logs.items() if abs(x) > CHANGES}
    if not moved:
        return _no_change(one, logs) if what == "p2p" else None
    if what == "p2p" and dict(one.conditions)["p2p"] == "off":
        return _slower_with_peers(one, other, moved, len(logs))
    first, second = _called(one, other, what)
    worst = max(moved, key=lambda key: (abs(moved[key]), -len(key)))
    of = "" if what == "file" else _of(one, what)
    text = f"{of}{_text(one, other, logs, moved, worst, (first, second))}"
    why = (_units(logs) or _places(common)) if what == "file" else ""
    why += _engine(one, other, common) if what == "engine" else ""
    largest = sorted(moved, key=lambda key: -abs(moved[key]))[: _SHOWN // 2]
    is_usual = what in USUAL and not why
    return abs(moved[worst]), Finding(
        kind=FindingKind.SETTINGS,
        severity=Severity.NOTE if is_usual else Severity.WARNING,
        about=tuple(dict.fromkeys(n for p in sorted(worst) for n in p))[:_SHOWN],
        text=sentence(text + why),
        evidence=tuple(
            Shown(
                name=f"{pattern_in_words(side.rates[key][0])} {name}", rate_Bps=side.rates[key][1]
            )
            for key in largest
            for side, name in ((one, first), (other, second))
        ),
    )


def _no_change(side: _Side, logs: Mapping[Key, float]) -> tuple[float, Finding] | None:
    """Peer access that changes nothing: copies do not go from card to card."""
    if max(map(abs, logs.values())) > AGREES:
        return None
    rates = [side.rates[key][1] for key in logs if len(key) == 1] or [
        side.rates[key][1] for key in logs
    ]
    ends = sorted({n for key in logs for pair in key for n in pair})
    return 0.0, Finding(
        kind=FindingKind.NO_PEER,
        severity=Severity.WARNING,
        about=tuple(ends[:_SHOWN]),
        text=(
            f"With and without peer access everything reads alike ({span(rates)}): no copy goes "
            "from card to card directly, whatever was asked for."
        ),
        evidence=tuple(
            Shown(name=pattern_in_words(side.rates[key][0]), rate_Bps=side.rates[key][1])
            for key in list(logs)[:_SHOWN]
        ),
    )


def _slower_with_peers(
    off: _Side, on: _Side, moved: Mapping[Key, float], count: int
) -> tuple[float, Finding] | None:
    """Peer access that makes copies slower, with the pairs that gain by it, as over NVLink."""
    lost = {key: x for key, x in moved.items() if x > 0}
    gained = [key for key in moved if key not in lost]
    worst = max(lost.values())
    ends = sorted({n for key in lost for pair in key for n in pair}, key=natural_key)
    before = span([off.rates[key][1] for key in lost])
    text = (
        f"With peer access copies between the cards are slower than without it: {before} falls to "
        f"{span([on.rates[key][1] for key in lost])} on {len(lost)} of {count} figures. "
        "Something on the direct way holds them back, as PCIe access control (ACS), an IOMMU or "
        "virtualisation does: look there, or leave peer access off."
    )
    if gained:
        ways = sorted({tuple(sorted(p, key=natural_key)) for key in gained for p in key})
        pairs = listed([f"{a}–{b}" for a, b in ways])
        text += (
            f" {pairs} {'gains' if len(gained) == 1 else 'gain'} by it "
            f"({span([off.rates[key][1] for key in gained])} without, "
            f"{span([on.rates[key][1] for key in gained])} with): they are nearer, or another link "
            "joins them."
        )
    return worst, Finding(
        kind=FindingKind.SETTINGS,
        severity=Severity.SERIOUS if worst >= math.log(2) else Severity.WARNING,
        about=tuple(ends[:_SHOWN]),
        text=text,
        evidence=tuple(
            Shown(
                name=f"{pattern_in_words(side.rates[key][0])} {name}", rate_Bps=side.rates[key][1]
            )
            for key in sorted(lost, key=lambda key: -lost[key])[: _SHOWN // 2]
            for side, name in ((off, "without peer access"), (on, "with peer access"))
        ),
    )


def _of(side: _Side, what: str) -> str:
    """What else the table says of the machine."""
    own = _machine((k, v) for k, v in side.conditions if k != what)
    if what not in USUAL and (operation := dict(side.conditions).get("operation")):
        own = ", ".join(x for x in (own, f"{operation}s") if x)
    return f"{own}: " if own else ""


def _units(logs: Mapping[Key, float]) -> str:
    """The units that lie between two files which differ throughout by one factor."""
    if len(logs) < 2 or max(logs.values()) - min(logs.values()) > 2 * AGREES:
        return ""
    between = unit_between(math.exp(median(logs.values())))
    if not between:
        return ""
    return f" That is the factor between {between}: the unit of one of them is likely wrong."


def _places(common: Sequence[Key]) -> str:
    """What may tell two files of host copies apart."""
    if not all(any(map(is_host, pair)) for key in common for pair in key):
        return ""
    return (
        " If the host's buffers lay on different sockets, the slower copies cross the link between "
        "them, which then is their limit; the memory's node belongs to the measurement."
    )


def _called(one: _Side, other: _Side, what: str) -> tuple[str, str]:
    """The two sides in words."""
    if what == "file":
        return f"in {one.source}", f"in {other.source}"
    a, b = (dict(side.conditions)[what] for side in (one, other))
    return (_WORDS.get((what, a), f"with {what} {a}"), _WORDS.get((what, b), f"with {what} {b}"))


def _text(
    one: _Side,
    other: _Side,
    logs: Mapping[Key, float],
    moved: Mapping[Key, float],
    worst: Key,
    names: tuple[str, str],
) -> str:
    first, second = names
    pattern = pattern_in_words(one.rates[worst][0])
    figures = f"{pattern} {format_rate(one.rates[worst][1])} {first}, "
    figures += f"{format_rate(other.rates[worst][1])} {second}"
    if len(logs) == 1:
        return f"{figures}: {_times([moved[worst]])}."
    up = {k: x for k, x in moved.items() if x > 0}
    if len(up) == len(logs):
        by = _by_number(one, other, logs)
        return f"Everything is {_times(list(logs.values()))} as fast {first}: {by} {second}."
    text = f"{len(moved)} of {len(logs)} figures differ: {figures}"
    if len(up) < len(moved):
        back = min(moved, key=lambda k: moved[k])
        if back != worst:
            text += (
                f"; but {pattern_in_words(one.rates[back][0])} "
                f"{format_rate(one.rates[back][1])} against {format_rate(other.rates[back][1])}"
            )
    rest = [abs(x) for k, x in logs.items() if k not in moved]
    if rest:
        text += f"; the others agree within {math.expm1(max(rest)):.0%}"
    return f"{text}."


def _by_number(one: _Side, other: _Side, logs: Iterable[Key]) -> str:
    """Figures of both sides, for one flow, both ways and more."""
    by: dict[int, list[Key]] = defaultdict(list)
    for key in logs:
        by[len(key)].append(key)
    parts = []
    for n, keys in sorted(by.items()):
        what = "one way" if n == 1 else "both ways" if n == 2 and _mutual(keys) else f"{n} flows"
        if len(keys) == 1:
            what = pattern_in_words(one.rates[keys[0]][0])
        parts.append(
            f"{what} {span([one.rates[k][1] for k in keys])} for "
            f"{span([other.rates[k][1] for k in keys])}"
        )
    return "; ".join(parts[:4])


def _mutual(keys: Iterable[Key]) -> bool:
    return all({(b, a) for a, b in key} == set(key) for key in keys)


def _times(logs: Sequence[float]) -> str:
    low, high = (
        f"{x:.2g}" if x < 100 else f"{x:.0f}" for x in (math.exp(min(logs)), math.exp(max(logs)))
    )
    return f"{high} times" if low == high else f"{low} to {high} times"


def _engine(one: _Side, other: _Side, common: Sequence[Key]) -> str:
    """Whether one engine passes alike where the other tells pairs apart: that is its own limit."""
    for side, against in ((one, other), (other, one)):
        top = max(side.rates[k][1] for k in common)
        flat = [k for k in common if math.log(top / side.rates[k][1]) <= AGREES]
        apart = [against.rates[k][1] for k in flat]
        if len(flat) > 1 and math.log(max(apart) / min(apart)) > CHANGES and min(apart) > top:
            engine = dict(side.conditions)["engine"]
            return (
                f" The {engine} passes no more than {format_rate(top)} on {len(flat)} of them, "
                f"which the other tells apart ({span(apart)}): that is the {engine}'s own limit, "
                "not the links'."
            )
    return ""

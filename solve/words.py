"""Endpoints, pairs and patterns in as few words as say which they are.

>>> ranges(["gpu0", "gpu1", "gpu2", "gpu5"])
'gpu0-gpu2 and gpu5'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from topocal.measure.patterns import parse_pattern
from topocal.topo.errors import TopocalError
from topocal.topo.flow import Pattern
from topocal.topo.naming import natural_key

__all__ = ["is_host", "name_in_words", "pairs_in_words", "pattern_in_words", "ranges", "sentence"]

Pair = tuple[str, str]

SHORT: Final = 48
"""Characters up to which a pattern's notation is read at a glance."""

_NUMBERED: Final = re.compile(r"(.*?)(\d+)")
_HOST: Final = re.compile(r"(?:.*/)?(?:cpu|mem|host)[0-9]*")
_MOST: Final = 4


def is_host(name: str) -> bool:
    """Whether an endpoint is what importers call the host's memory.

    >>> is_host("cpu0"), is_host("node1/mem"), is_host("gpu0")
    (True, True, False)
    """
    return _HOST.fullmatch(name) is not None


def _joined(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def ranges(names: Iterable[str], most: int = 6) -> str:
    """Names in natural order, three or more in a row as a range."""
    ordered = sorted(set(names), key=natural_key)
    runs: list[list[str]] = []
    for name in ordered:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else run
    if len(parts) > most:
        return f"{', '.join(parts[:most])} and {len(parts) - most} more"
    return _joined(parts)


def _follows(one: str, other: str) -> bool:
    a, b = _NUMBERED.fullmatch(one), _NUMBERED.fullmatch(other)
    return bool(a and b and a[1] == b[1] and int(b[2]) == int(a[2]) + 1)


def pattern_in_words(pattern: Pattern) -> str:
    """Its notation where that is short, else what it is.

    >>> from topocal.measure.patterns import bundle
    >>> ends = [f"gpu{k}" for k in range(4)]
    >>> pattern_in_words(bundle([(a, b) for a in ends for b in ends if a != b]))
    'all to all of gpu0-gpu3 (12 flows)'
    """
    pairs = pattern.pairs
    if len(pairs) < 2 or (len(pattern.name) <= SHORT and len(pairs) < 5):
        return pattern.name
    return _set_in_words(set(pairs)) or (
        pattern.name
        if len(pattern.name) <= SHORT
        else f"{pairs[0][0]}->{pairs[0][1]} and {len(pairs) - 1} more flows"
    )


def name_in_words(name: str) -> str:
    """As :func:`pattern_in_words`, of a pattern's notation; the name itself where it is none.

    >>> name_in_words("gpu0->gpu1"), name_in_words("a warm morning")
    ('gpu0->gpu1', 'a warm morning')
    """
    if len(name) <= SHORT:
        return name
    try:
        return pattern_in_words(parse_pattern(name))
    except TopocalError:
        return name


def _set_in_words(pairs: set[Pair]) -> str:
    """What a set of flows is, with their number; empty where it is nothing in particular."""
    sources, destinations = {a for a, _ in pairs}, {b for _, b in pairs}
    n = len(pairs)
    flows = f"({n} flows)"
    if sources == destinations:
        if n == len(sources) * (len(sources) - 1):
            return f"all to all of {ranges(sources)} {flows}"
        if shift := _shift(pairs):
            further = "next" if shift == 1 else f"one {shift} further"
            return f"each of {ranges(sources)} to the {further} {flows}"
        hubs = [e for e in sources if all(e in pair for pair in pairs)]
        if len(hubs) == 1 and n == 2 * (len(sources) - 1):
            return f"{hubs[0]} both ways with each of {ranges(sources - set(hubs))} {flows}"
        return ""
    if n == len(sources) * len(destinations):
        many = "each of " if len(sources) > 1 else ""
        to = "each of " if len(destinations) > 1 else ""
        return f"{many}{ranges(sources)} to {to}{ranges(destinations)} {flows}"
    if n == len(sources) == len(destinations):
        return f"{ranges(sources)} to {ranges(destinations)}, one to one {flows}"
    return ""


def _shift(pairs: Collection[Pair]) -> int:
    """By how many places a ring sends on; zero where it does not."""
    ends = sorted({a for a, _ in pairs}, key=natural_key)
    if len(pairs) != len(ends):
        return 0
    place = {name: k for k, name in enumerate(ends)}
    steps = {(place[b] - place[a]) % len(ends) for a, b in pairs}
    return steps.pop() if len(steps) == 1 else 0


def sentence(text: str) -> str:
    """With a capital at its begin, unless that is a name."""
    word = text.split(" ", 1)[0]
    return text if any(c.isdigit() for c in word) else text[:1].upper() + text[1:]


def pairs_in_words(pairs: Collection[Pair], everyone: Iterable[str] = ()) -> str:
    """Which pairs these are; one arrow for both directions where both are among them.

    Parameters
    ----------
    everyone
        All endpoints that were measured, so that "all others" can be said.

    >>> pairs_in_words([("a", "b"), ("b", "a"), ("a", "c")])
    'a<->b and a->c'
    """
    given = set(pairs)
    mutual = {(a, b) for a, b in given if (b, a) in given}
    whole = set(everyone) or {n for pair in given for n in pair}
    parts = [
        *(_mutual_in_words(part, whole) for part in _components(mutual)),
        *_single_in_words(given - mutual),
    ]
    if len(parts) > _MOST:
        left = len({frozenset(p) for p in mutual}) + len(given - mutual) - _MOST
        singles = all("<->" in p or "->" in p for p in parts)
        more = left if singles else len(parts) - _MOST
        return f"{', '.join(parts[:_MOST])} and {more} more"
    return _joined(parts)


def _components(mutual: set[Pair]) -> list[set[Pair]]:
    """Mutual pairs in parts without a common endpoint; a part that has no short words, pair by
    pair."""
    beside: dict[str, list[Pair]] = {}
    for pair in mutual:
        beside.setdefault(pair[0], []).append(pair)
    seen: set[str] = set()
    found: list[set[Pair]] = []
    for first in sorted(mutual, key=_in_order):
        if first[0] in seen:
            continue
        # Both directions are there, so that those that begin at an end are all of them.
        part: set[Pair] = set()
        ends = [first[0]]
        while ends:
            end = ends.pop()
            if end not in seen:
                seen.add(end)
                part.update(beside[end])
                ends += [other for _, other in beside[end]]
        if _has_words(part):
            found.append(part)
        else:
            found += [
                {(a, b), (b, a)}
                for a, b in sorted(part, key=_in_order)
                if natural_key(a) < natural_key(b)
            ]
    return found


def _in_order(pair: Pair) -> tuple[tuple[tuple[int, int | str], ...], ...]:
    return natural_key(pair[0]), natural_key(pair[1])


def _has_words(part: set[Pair]) -> bool:
    ends = {n for pair in part for n in pair}
    return len(part) == len(ends) * (len(ends) - 1) or _two_sides(part) is not None


def _mutual_in_words(part: set[Pair], whole: set[str]) -> str:
    ends = {n for pair in part for n in pair}
    if len(ends) == 2:
        a, b = sorted(ends, key=natural_key)
        return f"{a}<->{b}"
    if len(part) == len(ends) * (len(ends) - 1):
        return f"among {ranges(ends)}"
    sides = _two_sides(part)
    assert sides is not None
    one, other = sorted(sides, key=len)
    if len(one) > 1:
        one, other = sides
    if len(one) == 1 and other == whole - one:
        return f"{ranges(one)} with all others"
    return f"{ranges(one)} with {ranges(other)}"


def _single_in_words(given: set[Pair]) -> list[str]:
    """Pairs of which only one direction is meant."""
    by_targets: dict[frozenset[str], set[str]] = {}
    for source in {a for a, _ in given}:
        targets = frozenset(b for a, b in given if a == source)
        by_targets.setdefault(targets, set()).add(source)
    parts = []
    for targets, sources in by_targets.items():
        if len(targets) * len(sources) > 2:
            parts.append((sources, f"{ranges(sources)} to {ranges(targets)}"))
        else:
            parts += [({a}, f"{a}->{b}") for a in sources for b in targets]
    parts.sort(key=lambda p: (min(map(natural_key, p[0])), p[1]))
    return [text for _, text in parts]


def _two_sides(given: set[Pair]) -> tuple[set[str], set[str]] | None:
    """The sides of a complete bipartite set of mutual pairs."""
    first = min(given, key=lambda p: (natural_key(p[0]), natural_key(p[1])))[0]
    right = {b for a, b in given if a == first}
    left = {a for a, b in given if b in right}
    if left & right or len(left) * len(right) * 2 != len(given):
        return None
    return (left, right) if given == _complete(left, right) else None


def _complete(left: set[str], right: set[str]) -> set[Pair]:
    return {(a, b) for a in left for b in right} | {(b, a) for a in left for b in right}

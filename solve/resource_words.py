"""Resources that differ in one number only, and pass the same, in one line.

>>> resources_in_words([("gpu0->switch0", 26e9, 3), ("gpu1->switch0", 26.1e9, 4)])
['gpu0 and gpu1->switch0, each: 26.1 GB/s (7 figures)']
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topocal.solve.evidence import span
from topocal.solve.words import pairs_in_words, ranges
from topocal.topo.units import format_rate

__all__ = ["Alike", "alike_resources", "labels_in_words", "resources_in_words"]

ALIKE: Final = math.log(1.05)
"""Capacities within 5 % of each other are told as one span."""

_NAME: Final = re.compile(r"[A-Za-z_][\w/:.]*?\d[\w:.]*")
_DIGITS: Final = re.compile(r"\d+")
_PAIR: Final = re.compile(r"pair (\S+)->(\S+)")


@dataclass(frozen=True, slots=True)
class Alike:
    """Resources that are told together.

    Attributes
    ----------
    words
        Their labels in one, ``each`` where they are several.
    rates_Bps
        What each passes.
    figures
        How many figures they explain in all.
    """

    words: str
    rates_Bps: tuple[float, ...]
    figures: int


def alike_resources(resources: Sequence[tuple[str, float, int]]) -> list[Alike]:
    """Groups of like resources.

    Parameters
    ----------
    resources
        Label, bytes per second and number of figures that it explains.
    """
    found = []
    for members in _grouped([label for label, _, _ in resources], [r for _, r, _ in resources]):
        labels = [resources[k][0] for k in members]
        words = _together(labels) + ", each" * (len(labels) > 1)
        rates = tuple(resources[k][1] for k in members)
        found.append(Alike(words, rates, sum(resources[k][2] for k in members)))
    return found


def resources_in_words(resources: Sequence[tuple[str, float, int]]) -> list[str]:
    """One line for each group of :func:`alike_resources`."""
    lines = []
    for one in alike_resources(resources):
        rates = one.rates_Bps
        rate = span(rates) if all(map(math.isfinite, rates)) else format_rate(rates[0])
        n = one.figures
        lines.append(f"{one.words}: {rate}" + (f" ({n} figure{'s' * (n != 1)})" if n else ""))
    return lines


def labels_in_words(labels: Sequence[str]) -> list[str]:
    """Labels, like ones together."""
    return [_together([labels[k] for k in members]) for members in _grouped(labels, None)]


def _grouped(labels: Sequence[str], rates: Sequence[float] | None) -> list[list[int]]:
    """Numbers of the labels that differ in one name only and pass alike, in their order."""
    groups: list[list[int]] = []
    for k, label in enumerate(labels):
        for group in groups:
            first = group[0]
            if not _one_name_apart([labels[g] for g in group], label):
                continue
            if rates is not None:
                span_of = [rates[g] for g in (*group, k)]
                if not math.log(max(span_of) / min(span_of)) <= ALIKE:
                    continue
            elif first == k:
                continue
            group.append(k)
            break
        else:
            groups.append([k])
    return groups


def _one_name_apart(labels: Sequence[str], label: str) -> bool:
    if all(_PAIR.fullmatch(one) for one in (*labels, label)):
        return True
    if _NAME.sub("#", labels[0]) != _NAME.sub("#", label):
        return False
    rows = [_NAME.findall(one) for one in (*labels, label)]
    varying = [k for k in range(len(rows[0])) if len({row[k] for row in rows}) > 1]
    stems = {_DIGITS.sub("#", row[k]) for row in rows for k in varying}
    return len(varying) <= 1 and len(stems) <= 1


def _together(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    pairs = [match.groups() for one in labels if (match := _PAIR.fullmatch(one))]
    if len(pairs) == len(labels):
        return f"pairs {pairs_in_words([(a, b) for a, b in pairs])}"
    rows = [_NAME.findall(one) for one in labels]
    at = next((k for k in range(len(rows[0])) if len({row[k] for row in rows}) > 1), 0)
    parts = _NAME.split(labels[0])
    names = [*rows[0][:at], ranges(row[at] for row in rows), *rows[0][at + 1 :]]
    return "".join(part + name for part, name in zip(parts, [*names, ""], strict=True))

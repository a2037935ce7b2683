"""Drafts of patterns become a plan: budget, rounds, expected time and memory, findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topocal.measure.budget import Worth, by_information
from topocal.measure.findings import Verdict, findings
from topocal.measure.pinning import weigh
from topocal.measure.plan import (
    Outcome,
    Plan,
    PlannedPattern,
    Reason,
    checked_sizes,
    expected_seconds,
    fingerprint,
)
from topocal.measure.rounds import pack
from topocal.topo.errors import InputError
from topocal.topo.units import format_seconds

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings
    from topocal.measure.prior import Prior
    from topocal.topo.topology import Topology

__all__ = ["Budget", "Draft", "Drafts", "Runs", "assemble"]

_MOST_REPEATS = 1_000_000
"""More of one pattern say nothing more: a number above is a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """How each pattern is run: at which sizes, how often timed and untimed."""

    sizes_bytes: tuple[float, ...]
    repeats: int
    warm_ups: int

    @classmethod
    def of(cls, sizes_bytes: Sequence[float], repeats: int, warm_ups: int) -> Runs:
        """Checked numbers.

        Raises
        ------
        InputError
            When a size is not above zero, or a number of runs makes no sense.
        """
        if not 1 <= repeats <= _MOST_REPEATS or warm_ups < 0:
            raise InputError(
                f"{repeats} repeats after {warm_ups} warm-ups",
                remedy="give one repeat at least, and a million at most",
            )
        return cls(sizes_bytes=checked_sizes(sizes_bytes), repeats=repeats, warm_ups=warm_ups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a plan may take at most; ``None`` is no limit."""

    patterns: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.patterns is not None and self.patterns < 1:
            raise InputError(
                f"a budget of {self.patterns} patterns", remedy="allow at least one pattern"
            )
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"a budget of {self.seconds} s", remedy="allow some time")


@dataclass(slots=True)
class Draft:
    """A pattern by its rows, and what it is for."""

    rows: tuple[int, ...]
    reasons: list[Reason] = field(default_factory=list)
    worth: list[Worth] = field(default_factory=list)


class Drafts:
    """Patterns in the order in which they were first wanted, each once."""

    def __init__(self) -> None:
        self._by_flows: dict[frozenset[int], int] = {}
        self._all: list[Draft] = []

    def __iter__(self) -> Iterator[Draft]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Draft:
        return self._all[number]

    def add(self, rows: Sequence[int], reason: Reason, worth: Worth) -> int:
        """Want a pattern for one more reason; its number."""
        key = frozenset(rows)
        if key not in self._by_flows:
            self._by_flows[key] = len(self._all)
            self._all.append(Draft(tuple(rows)))
        number = self._by_flows[key]
        self._all[number].reasons.append(reason)
        self._all[number].worth.append(worth)
        return number


def assemble(
    topology: Topology,
    crossings: Crossings,
    prior: Prior,
    drafts: Sequence[Draft],
    verdicts: Sequence[Verdict],
    *,
    runs: Runs,
    clear_ratio: float,
    budget: Budget,
    pinned: Collection[str] = (),
    one_by_one: bool = False,
) -> Plan:
    """The plan.

    Parameters
    ----------
    verdicts
        One for each class of ``crossings``; their patterns are numbers of ``drafts``.
    one_by_one
        Whether every pattern has a round of its own.

    Raises
    ------
    InputError
        When the budget leaves nothing.
    """
    seconds = _seconds(crossings, drafts, runs)

    notes = list(prior.notes)
    rounds = _rounds(crossings, drafts, seconds, budget, one_by_one)
    kept = sorted(k for members in rounds for k in members)
    if len(kept) < len(drafts):
        notes.append(f"the budget leaves out {len(drafts) - len(kept)} of {len(drafts)}")
    place = {k: at for at, k in enumerate(kept)}
    names = crossings.names
    largest = runs.sizes_bytes[-1]
    return Plan(
        machine=topology.name,
        topology_sha256=fingerprint(topology),
        endpoints=crossings.endpoints,
        sizes_bytes=runs.sizes_bytes,
        repeats=runs.repeats,
        warm_ups=runs.warm_ups,
        clear_ratio=clear_ratio,
        patterns=tuple(
            PlannedPattern(
                flows=tuple(names(drafts[k].rows)),
                reasons=tuple(drafts[k].reasons),
                seconds=seconds[k],
                memory_bytes=largest * _most_flows_at_one_end(crossings, drafts[k].rows),
            )
            for k in kept
        ),
        rounds=tuple(tuple(place[k] for k in members) for members in rounds),
        resources=findings(
            topology, crossings, prior, [_placed(v, place) for v in verdicts], pinned
        ),
        notes=tuple(notes),
    )


def _placed(verdict: Verdict, place: dict[int, int]) -> Verdict:
    """With the pattern's number in the plan, or left out."""
    if verdict.pattern is None:
        return verdict
    if verdict.pattern not in place:
        return replace(verdict, outcome=Outcome.LEFT_OUT, pattern=None, ratio=0.0, others=())
    return replace(verdict, pattern=place[verdict.pattern])


def _seconds(crossings: Crossings, drafts: Sequence[Draft], runs: Runs) -> list[float]:
    if not drafts:
        return []
    busy = weigh(crossings, [d.rows for d in drafts]).busy_s
    each = runs.repeats + runs.warm_ups
    return [expected_seconds(u, runs.sizes_bytes, each) for u in busy.tolist()]


def _most_flows_at_one_end(crossings: Crossings, rows: Sequence[int]) -> int:
    ends = Counter(int(e[p]) for p in rows for e in (crossings.source, crossings.destination))
    return max(ends.values())


def _rounds(
    crossings: Crossings,
    drafts: Sequence[Draft],
    seconds: Sequence[float],
    budget: Budget,
    one_by_one: bool,
) -> tuple[tuple[int, ...], ...]:
    """The drafts that the budget allows, in rounds."""
    patterns = [d.rows for d in drafts]

    def packed(chosen: Sequence[int], if_free: Sequence[int] = ()) -> tuple[tuple[int, ...], ...]:
        if one_by_one:
            return tuple((k,) for k in sorted(chosen))
        return pack(crossings, patterns, seconds, chosen=chosen, if_free=if_free)

    if budget.patterns is None and budget.seconds is None:
        return packed(range(len(drafts)))
    order = by_information([d.worth for d in drafts])[: budget.patterns]
    if budget.seconds is None:
        return packed(order)

    def whole(number: int) -> float:
        return math.fsum(max(seconds[k] for k in members) for members in packed(order[:number]))

    if order and whole(1) > budget.seconds:
        raise InputError(
            f"one pattern takes {format_seconds(whole(1))}, the budget is "
            f"{format_seconds(budget.seconds)}",
            remedy="allow more, or give fewer sizes or repeats",
        )
    low, high = min(1, len(order)), len(order)
    while low < high:
        middle = (low + high + 1) // 2
        if whole(middle) <= budget.seconds:
            low = middle
        else:
            high = middle - 1
    return packed(order[:low], order[low:])

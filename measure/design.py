"""From a machine to the patterns that pin its resources.

Every resource must be the clear bottleneck of some pattern: busy 1.4 times as long as
anything else.  Speeds are nominal (:mod:`topocal.measure.prior`) until something is
measured; then the caller gives what the samples prove, for resources that are not
pinned yet the slowest speed that they allow, and designs again.  What no pattern can
pin is said with its reason.

To these come patterns about what no topology says
(:mod:`topocal.measure.supplements`, :mod:`topocal.measure.opposed`,
:mod:`topocal.measure.crowds`).  A pattern that
serves several purposes is measured once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.measure.assembly import Budget, Drafts, Runs, assemble
from topocal.measure.crossings import TIME_SHARED
from topocal.measure.crowds import crowds
from topocal.measure.findings import Verdict
from topocal.measure.opposed import connections, opposed_flows
from topocal.measure.pinning import Search
from topocal.measure.plan import DEFAULT_SIZES_BYTES, Outcome, Plan
from topocal.measure.setting import LEAST_RATIO, Setting
from topocal.measure.supplements import contrasts, lone_flows
from topocal.topo.errors import InputError

if TYPE_CHECKING:
    from topocal.topo.flow import Pattern
    from topocal.topo.topology import Topology

__all__ = ["CLEAR_RATIO", "REPEATS", "WARM_UPS", "design"]

CLEAR_RATIO: Final = 1.4
"""Busy seconds of a clear bottleneck over those of anything else: room for capacities that are
not what they are taken to be."""

REPEATS: Final = 5
WARM_UPS: Final = 1


def design(
    topology: Topology,
    *,
    endpoints: Sequence[str] | None = None,
    theta: Mapping[str, float] | None = None,
    pinned: Collection[str] = (),
    measured: Iterable[Pattern] = (),
    supplements: bool = True,
    sizes_bytes: Sequence[float] = DEFAULT_SIZES_BYTES,
    repeats: int = REPEATS,
    warm_ups: int = WARM_UPS,
    clear_ratio: float = CLEAR_RATIO,
    budget_patterns: int | None = None,
    budget_s: float | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Plan:
    """The patterns that pin every resource of a machine that can be pinned.

    The same input gives the same plan.

    Parameters
    ----------
    topology
        The machine.
    endpoints
        Who takes part: the accelerators unless told.
    theta
        Seconds per byte by resource id, to assume in place of nominal capacities.  In
        adaptive rounds: what was fitted, and for what is not pinned its bound, the slowest
        that the samples allow.
    pinned
        Resources that are known already and need no pattern.
    measured
        Patterns that were measured already: what they tell needs no supplement.  A pattern
        that is needed to pin a resource may still be one of them.
    supplements
        Whether to add what no topology says: sharing at endpoints, lone flows, both ways,
        many flows at once.
    sizes_bytes, repeats, warm_ups
        How each pattern is run.
    clear_ratio
        From which ratio a bottleneck is clear.
    budget_patterns, budget_s
        Keep the most informative patterns within so many, and within so much expected time.
    advance
        Told how many resources have been looked at, and of how many, as it goes on.

    Raises
    ------
    InputError
        When endpoints, sizes or a budget make no sense, or one pattern takes longer than the
        whole budget.
    TopologyError
        When ``theta`` or ``pinned`` names no resource.
    """
    if not (math.isfinite(clear_ratio) and clear_ratio >= 1):
        raise InputError(f"a clear ratio of {clear_ratio}", remedy="give 1 or more")
    runs = Runs.of(sizes_bytes, repeats, warm_ups)
    budget = Budget(patterns=budget_patterns, seconds=budget_s)
    setting = Setting.of(topology, endpoints, theta)
    search = Search(setting.crossings, clear=clear_ratio)
    known = setting.known_verdicts(pinned)
    done = _rows(setting, measured)
    drafts = Drafts()
    if supplements:
        _add_contrasts(setting, search, drafts, done)
    _pin(setting, search, drafts, known, advance)
    if supplements:
        _add_checks(setting, search, drafts, done, known)
    return assemble(
        topology,
        setting.crossings,
        setting.prior,
        list(drafts),
        [v if v is not None else Verdict(Outcome.NOT_FOUND) for v in known],
        runs=runs,
        clear_ratio=clear_ratio,
        budget=budget,
        pinned=pinned,
    )


def _rows(setting: Setting, patterns: Iterable[Pattern]) -> list[tuple[int, ...]]:
    """Patterns by their rows; those that name others than the endpoints are of no interest."""
    c = setting.crossings
    number = {name: k for k, name in enumerate(c.endpoints)}
    found: dict[frozenset[int], tuple[int, ...]] = {}
    for pattern in patterns:
        if all(end in number for pair in pattern.pairs for end in pair):
            rows = tuple(int(c.row[number[s], number[d]]) for s, d in pattern.pairs)
            if min(rows, default=-1) >= 0:
                found[frozenset(rows)] = rows
    return list(found.values())


def _add_contrasts(
    setting: Setting, search: Search, drafts: Drafts, done: Sequence[tuple[int, ...]]
) -> None:
    """Fans that tell how endpoints share."""
    for fan in contrasts(search, range(len(setting.crossings.endpoints)), done):
        drafts.add(fan.rows, *setting.fan(fan.endpoint, fan.receives, fan.ratio))


def _pin(
    setting: Setting,
    search: Search,
    drafts: Drafts,
    known: list[Verdict | None],
    advance: Callable[[int, int], None] | None = None,
) -> None:
    """A pattern for every class that nothing is known of yet; fills ``known``."""
    ready = _clear_already(search, drafts, known)
    for group, verdict in enumerate(known):
        if advance is not None:
            advance(group + 1, len(known))
        if verdict is not None:
            continue
        if group in ready:
            number, ratio = ready[group]
            drafts.add(drafts[number].rows, *setting.bottleneck(group, ratio))
            known[group] = setting.verdict(search, group, ratio, number)
            continue
        best = search.best(group)
        at: int | None = None
        if best.ratio >= LEAST_RATIO:
            at = drafts.add(best.rows, *setting.bottleneck(group, best.ratio))
            search.take(best.rows)
        known[group] = setting.verdict(search, group, best.ratio, at)
    _find_fans(setting, search, drafts, known)


def _clear_already(
    search: Search, drafts: Drafts, known: Sequence[Verdict | None]
) -> dict[int, tuple[int, float]]:
    """Classes that a draft pins as it is: its number and how far ahead the class is there.

    Of several drafts the one of fewest flows, then the clearest.
    """
    found: dict[int, tuple[int, float]] = {}
    if not len(drafts):
        return found
    weights = search.weigh([d.rows for d in drafts])
    ratio = weights.ratio
    for number in np.flatnonzero(ratio >= search.clear).tolist():
        group = int(weights.busiest[number])
        if known[group] is not None:
            continue
        here = (len(drafts[number].rows), -float(ratio[number]))
        if group in found:
            other, other_ratio = found[group]
            if here >= (len(drafts[other].rows), -other_ratio):
                continue
        found[group] = (number, float(ratio[number]))
    return found


def _find_fans(
    setting: Setting, search: Search, drafts: Drafts, known: list[Verdict | None]
) -> None:
    """For time-shared classes, the draft in which they are furthest ahead."""
    c = setting.crossings
    timed = [k for k, v in enumerate(known) if v is not None and v.outcome is Outcome.SHARING]
    if not timed or not len(drafts):
        return
    weights = search.weigh([d.rows for d in drafts])
    for group in timed:
        mine = np.flatnonzero(weights.busiest == group)
        assert c.law[group] == TIME_SHARED
        if len(mine):
            number = int(mine[np.argmax(weights.ratio[mine])])
            known[group] = Verdict(
                Outcome.SHARING, pattern=number, ratio=float(weights.ratio[number])
            )


def _add_checks(
    setting: Setting,
    search: Search,
    drafts: Drafts,
    done: Sequence[tuple[int, ...]],
    known: Sequence[Verdict | None],
) -> None:
    """Lone flows, flows both ways over each connection, and many flows at once."""
    peers = [d.rows[0] for d in drafts if len(d.rows) == 1]
    for flow in lone_flows(search, peers, [rows[0] for rows in done if len(rows) == 1]):
        drafts.add((flow.row,), *setting.alone(flow.row, flow.is_far))
    pinned_by = {
        group: drafts[v.pattern].rows
        for group, v in enumerate(known)
        if v is not None and v.outcome is Outcome.CLEAR and v.pattern is not None
    }
    directions = connections(setting.topology, search)
    for check in opposed_flows(search, directions, pinned_by, done):
        drafts.add(check.rows, *setting.both_ways(check.classes, check.ratio))
    for crowd in crowds(search, {frozenset(rows) for rows in done}):
        drafts.add(crowd.rows, *setting.crowd(crowd.endpoint, len(crowd.rows)))

"""A plan as what runs one after another: batches of patterns that run at the same time.

A batch is one round of the plan at one size and in one issue mode.  Patterns whose
endpoints are not all there are left out; patterns that share an endpoint never run at the
same time, whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topocal.measure.orders import Exchange, Receive, Send
from topocal.measure.plan import Plan
from topocal.topo.errors import InputError, one_line
from topocal.topo.flow import Pattern

__all__ = ["Batch", "absent_patterns", "batches", "buffers", "exchanges"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What runs at the same time: patterns with their size, and how often."""

    round: int
    issue: str
    patterns: tuple[Pattern, ...]
    repeats: int

    @property
    def size_bytes(self) -> float:
        """Bytes of every flow."""
        return self.patterns[0].flows[0].size_bytes


def absent_patterns(plan: Plan, present: Collection[str]) -> list[str]:
    """Names of the patterns that some endpoint is missing for."""
    return [
        p.name for p in plan.patterns if not {end for pair in p.flows for end in pair} <= {*present}
    ]


def batches(
    plan: Plan,
    issues: Sequence[str],
    present: Collection[str],
    measured: Collection[tuple[Pairs, float, str]] = (),
    left: Mapping[tuple[Pairs, float, str], int] | None = None,
) -> Iterator[Batch]:
    """All batches of a plan in order, without what is measured.

    Parameters
    ----------
    measured
        Scenarios that are done.
    left
        How many repeats are to come of those that are done in part.

    Raises
    ------
    InputError
        When a size is no whole number of bytes.
    """
    for size in plan.sizes_bytes:
        if size != int(size):
            raise InputError(
                f"a message of {size} bytes cannot be sent", remedy="plan whole numbers of bytes"
            )
    here, known = set(present), set(measured)
    for number, members in enumerate(plan.rounds):
        patterns = [plan.patterns[k].pattern for k in members]
        possible = [p for p in patterns if {end for pair in p.pairs for end in pair} <= here]
        for size in plan.sizes_bytes:
            for issue in issues:
                due: dict[int, list[Pattern]] = {}
                for p in possible:
                    key = tuple(p.pairs), size, issue
                    if key not in known:
                        repeats = min(plan.repeats, (left or {}).get(key, plan.repeats))
                        due.setdefault(repeats, []).append(p.scaled(size))
                for repeats, alike in sorted(due.items()):
                    for together in _disjoint(alike):
                        yield Batch(number, issue, tuple(together), repeats)


def _disjoint(patterns: Sequence[Pattern]) -> list[list[Pattern]]:
    """Patterns in as few groups as first-fit finds, no endpoint twice in a group."""
    groups: list[list[Pattern]] = []
    taken: list[set[str]] = []
    for pattern in patterns:
        ends = {end for pair in pattern.pairs for end in pair}
        for group, names in zip(groups, taken, strict=True):
            if not ends & names:
                group.append(pattern)
                names |= ends
                break
        else:
            groups.append([pattern])
            taken.append(ends)
    return groups


def buffers(plan: Plan, present: Collection[str]) -> dict[str, tuple[int, int]]:
    """How many buffers each endpoint needs: to send from, to receive into."""
    here = set(present)
    found = dict.fromkeys(present, (0, 0))
    for planned in plan.patterns:
        if not {end for pair in planned.flows for end in pair} <= here:
            continue
        for name in {end for pair in planned.flows for end in pair}:
            sends = sum(s == name for s, _ in planned.flows)
            receives = sum(d == name for _, d in planned.flows)
            found[name] = max(found[name][0], sends), max(found[name][1], receives)
    return found


def exchanges(
    patterns: Sequence[Pattern],
    rank_of: dict[str, int],
    *,
    issue: str,
    iterations: Sequence[int],
    verify: bool,
    limit_s: float,
) -> dict[int, Exchange]:
    """What each rank has to do for patterns at the same time, by rank.

    Flows are numbered over all patterns; the k-th message that a rank sends is its buffer
    k.

    Raises
    ------
    InputError
        When two patterns share an endpoint.
    """
    found: dict[int, Exchange] = {}
    number = 0
    for pattern, times in zip(patterns, iterations, strict=True):
        sends: dict[int, list[Send]] = {}
        receives: dict[int, list[Receive]] = {}
        for flow in pattern.flows:
            source, destination = rank_of[flow.source], rank_of[flow.destination]
            ours, theirs = sends.setdefault(source, []), receives.setdefault(destination, [])
            size, slot = int(flow.size_bytes), len(ours)
            ours.append(Send(number, destination, slot, size))
            theirs.append(Receive(number, source, len(theirs), slot, size))
            number += 1
        for rank in {*sends, *receives}:
            if rank in found:
                raise InputError(
                    f"two patterns at once at rank {rank}, one of them {one_line(pattern.name)}",
                    remedy="give each a batch of its own",
                )
            found[rank] = Exchange(
                sends=sends.get(rank, []),
                receives=receives.get(rank, []),
                issue=issue,
                iterations=times,
                verify=verify,
                limit_s=limit_s,
            )
    return found

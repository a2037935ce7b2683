"""What the figures could not have shown, and so may be there.

A fit supposes nothing that no figure needs.  But of figures none of which uses both directions of
a card at once, none could need a limit on both; nor could single pairs need one on all that runs
at once between cards of which nobody said how they are joined.  Such limits stay open: nothing is
predicted by them, but a pattern that they may bind is not known to be as fast as said.

A card is *tried* when some figure has it send and take in at once, at the rate of the slower of
the two alone.  If all that were tried pass, the others are taken to be like them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topocal.solve.words import is_host, ranges
from topocal.topo.resource import NodeKind, Resource, Sharing, Use

if TYPE_CHECKING:
    from topocal.solve.hypotheses import Fit
    from topocal.solve.rows import Observation
    from topocal.topo.topology import Topology

__all__ = ["Together", "may_be_together", "untried_both_ways"]

TRIED: Final = 0.9
"""Share of what one direction passes alone that both must have passed each: figures of one thing
scatter by less, and halves of one whole are far below."""

WITNESSES: Final = 3
"""Patterns that must have passed so much at once: a single one may just miss what is shared."""

TOGETHER: Final = "all.at-once"
"""Id of the limit."""

LEAST_TOGETHER: Final = 3
"""Cards from which several flows can be on their way without sharing an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A limit on all that runs at once between some cards, if there is one.

    Attributes
    ----------
    resource, use
        For the topology.
    least_Bps
        What it passes at least.
    """

    resource: Resource
    use: Use
    least_Bps: float


@dataclass(slots=True)
class _Passed:
    """Most of what an endpoint sent, took in, and did of both at once, in bytes per second."""

    sent: float = 0.0
    received: float = 0.0
    both: float = 0.0

    @property
    def is_tried(self) -> bool:
        return self.both >= TRIED * min(self.sent, self.received) > 0


def untried_both_ways(fit: Fit) -> frozenset[str]:
    """Ids of limits on both directions of an endpoint that no figure needed, but may be there."""
    passed = _passed(fit.rows.observations)
    column = {name: k for k, name in enumerate(fit.rows.resources)}
    untried, free, needed = set(), False, False
    for endpoint in sorted(passed):
        name = f"{endpoint}.both-ways"
        if name not in column or is_host(endpoint):
            continue
        if fit.active[column[name]]:
            needed = True
        elif passed[endpoint].is_tried:
            free = True
        else:
            untried.add(name)
    return frozenset() if free and not needed else frozenset(untried)


def _passed(observations: Iterable[Observation]) -> dict[str, _Passed]:
    found: dict[str, _Passed] = {}
    for o in observations:
        sent: dict[str, float] = {}
        received: dict[str, float] = {}
        for f in o.pattern.flows:
            sent[f.source] = sent.get(f.source, 0.0) + f.size_bytes
            received[f.destination] = received.get(f.destination, 0.0) + f.size_bytes
        for end, size in sent.items():
            one = found.setdefault(end, _Passed())
            one.sent = max(one.sent, size / o.seconds)
            if end in received:
                one.both = max(one.both, min(size, received[end]) / o.seconds)
        for end, size in received.items():
            one = found.setdefault(end, _Passed())
            one.received = max(one.received, size / o.seconds)
    return found


def may_be_together(
    topology: Topology, observations: Sequence[Observation], noise: float, *, any_shared: bool
) -> Together | None:
    """Of cards that nobody said how they are joined: what all may pass at once.

    Nothing but single pairs says what lies between them.  They pass at least what three patterns
    did; where that is all that the cards can send, there is no such limit.

    Parameters
    ----------
    topology
        Where its groups were made out of the pair table, there may be one.
    any_shared
        Whether some figures show a limit that several flows share and no pair shows: then there
        may be others, and what many flows passed together elsewhere proves nothing here.
    """
    kind = dict(topology.graph.nodes(data="kind"))
    if NodeKind.GROUP not in kind.values():
        return None
    cards = tuple(e for e in topology.endpoints if not is_host(e))
    if len(cards) < LEAST_TOGETHER:
        return None
    passed = _passed(observations)
    inside = frozenset(cards)
    alone = max(
        (_rate_inside(o, inside) for o in observations if len(o.pattern.flows) == 1), default=0.0
    )
    several = sorted(_rate_inside(o, inside) for o in observations if len(o.pattern.flows) > 1)
    proven = 0.0 if any_shared or len(several) < WITNESSES else several[-WITNESSES]
    most = max(alone, proven)
    ways = (
        sum(passed[e].sent for e in cards if e in passed),
        sum(passed[e].received for e in cards if e in passed),
    )
    if most <= 0 or most >= TRIED * min(ways):
        return None
    return Together(
        resource=Resource(
            id=TOGETHER, sharing=Sharing.DUPLEX, label=f"all at once between {ranges(cards)}"
        ),
        use=Use(resource=TOGETHER, sources=cards, destinations=cards),
        least_Bps=most * math.exp(-2 * noise),
    )


def _rate_inside(observation: Observation, inside: frozenset[str]) -> float:
    flows = observation.pattern.flows
    size = sum(f.size_bytes for f in flows if f.source in inside and f.destination in inside)
    return size / observation.seconds

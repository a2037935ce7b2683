"""Limits that neither links nor endpoints show, supposed from the figures that need them.

A fit may leave figures that took longer than everything their flows are known to cross
allows: four pairs that pass together what one passes alone, on a machine whose topology
nobody gave and whose pairs all read alike.  Something limits them, and a model without it
would predict those very figures wrong.  So a limit is supposed for each.  Of one pair it is
the pair's own path.  Of several flows it is what all senders share towards all receivers, as
an uplink would be, unless another figure speaks against so wide a limit; then it is these
pairs' alone.  Where a flow was never measured alone, it may be that one's own path.  The next
fit has them as candidates and takes those that are worth their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from topocal.solve.words import name_in_words, ranges
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.solve.rows import Observation

__all__ = ["Unseen", "suppose", "told"]

MOST: Final = 64
"""Limits supposed at once, the worst figures first: more would say that the topology is another."""

FEW: Final = 8
"""Flows of a figure up to which each may be what is slow."""

CLEAR: Final = 3.0
"""Deviations of the noise by which a figure speaks against a limit."""

_SHOWN: Final = 2

Block: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Unseen:
    """A limit that some pairs may share.

    Attributes
    ----------
    blocks
        Senders and receivers; each sender of a block with each of its receivers.
    """

    blocks: tuple[Block, ...]

    @property
    def label(self) -> str:
        """In words."""
        said = [_words(*block) for block in self.blocks[:_SHOWN]]
        more = len(self.blocks) - _SHOWN
        return " and ".join(said) + (f" and {more} more" if more > 0 else "")

    @property
    def alone(self) -> bool:
        """Whether it is one pair's own path."""
        ((senders, receivers), *others) = self.blocks
        return not others and len(senders) == len(receivers) == 1

    def includes(self, source: str, destination: str) -> bool:
        """Whether a pair crosses it."""
        return any(source in senders and destination in to for senders, to in self.blocks)


def suppose(
    observations: Sequence[Observation], slow: Collection[str], noise: float
) -> tuple[Unseen, ...]:
    """A limit for each of the figures that were slower than what is known allows.

    Parameters
    ----------
    slow
        Their names, the worst first.
    noise
        Relative standard deviation of one figure.
    """
    by_name = {o.name: o for o in observations}
    alone = {o.pattern.pairs[0] for o in observations if len(o.pattern.flows) == 1}
    found: dict[Unseen, None] = {}
    for name in slow:
        if len(found) >= MOST:
            break
        one = by_name[name]
        wide = Unseen((_ends(one),))
        if wide in found:
            continue
        fits = _allows(wide, one.throughput_Bps * math.exp(CLEAR * noise), observations)
        found[wide if fits else _alone(one)] = None
        if len(one.pattern.flows) <= FEW:
            # One of the flows may be slow by itself, if nobody measured it so.
            found |= {
                Unseen((((a,), (b,)),)): None for a, b in one.pattern.pairs if (a, b) not in alone
            }
    return tuple(found)


def told(limits: Mapping[str, tuple[float, Sequence[str]]]) -> str:
    """A sentence on the limits that a fit took, from rates and figures by their words."""
    said = [
        f"{format_rate(Bps)} {label}" + (f" (by {name_in_words(names[0])})" if names else "")
        for label, (Bps, names) in list(limits.items())[:_SHOWN]
    ]
    more = [f"{len(limits) - _SHOWN} more"] if len(limits) > _SHOWN else []
    return (
        "some figures are slower than all that their flows are known to cross: further limits are "
        f"supposed, which no topology shows: {'; '.join(said + more)}"
    )


def _words(senders: tuple[str, ...], receivers: tuple[str, ...]) -> str:
    if senders == receivers:
        return f"shared by all between {ranges(senders)}, both ways"
    what = "path" if len(senders) == len(receivers) == 1 else "shared"
    return f"{what} from {ranges(senders)} to {ranges(receivers)}"


def _ends(observation: Observation) -> Block:
    flows = observation.pattern.flows
    return tuple(sorted({f.source for f in flows})), tuple(sorted({f.destination for f in flows}))


def _alone(observation: Observation) -> Unseen:
    """These pairs and no others."""
    receivers: dict[str, set[str]] = {}
    for flow in observation.pattern.flows:
        receivers.setdefault(flow.source, set()).add(flow.destination)
    together: dict[tuple[str, ...], list[str]] = {}
    for source in sorted(receivers):
        together.setdefault(tuple(sorted(receivers[source])), []).append(source)
    return Unseen(tuple((tuple(senders), to) for to, senders in together.items()))


def _allows(limit: Unseen, most_Bps: float, observations: Sequence[Observation]) -> bool:
    """Whether no figure passed more through it."""
    return all(passed <= most_Bps for passed in _passed(limit, observations))


def _passed(limit: Unseen, observations: Sequence[Observation]) -> Iterator[float]:
    for o in observations:
        inside = sum(
            f.size_bytes for f in o.pattern.flows if limit.includes(f.source, f.destination)
        )
        yield inside / o.seconds

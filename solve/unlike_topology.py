"""What the topology does not explain, and at which endpoint it shows.

Two signs.  A resource that passes far less of its specification than its like do: a limit
that no topology shows would look so.  And figures that only a supposed resource explains, or
none at all: where one endpoint has a part in all of them, it is named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.solve.candidates import like
from topocal.solve.rows import first_busiest
from topocal.solve.status import Status
from topocal.topo.topology import natural_key
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.solve.hypotheses import Fit
    from topocal.solve.model import FittedResource
    from topocal.solve.rows import Observation
    from topocal.topo.topology import Topology

__all__ = ["supposed_at", "unlike_their_like"]

FAR_BELOW: Final = 0.75
"""Links of one make reach the same share of their specification within 15 % on the published
machines; the next lower width or generation is half."""

FEWEST: Final = 3
"""Pinned resources of a make that say what is usual."""

FEWEST_FIGURES: Final = 2
"""One figure may be wrong in itself; two that one endpoint has a part in are no accident."""


def unlike_their_like(topology: Topology, resources: Mapping[str, FittedResource]) -> Iterator[str]:
    """A sentence for each pinned resource that is far slower than its like."""
    make = like(topology)
    shares: dict[str, dict[str, float]] = {}
    for name, fitted in resources.items():
        nominal = topology.resources[name].nominal_Bps if name in topology.resources else None
        if fitted.status is Status.PINNED and fitted.capacity_Bps and nominal:
            shares.setdefault(make[name], {})[name] = fitted.capacity_Bps / nominal
    ends = {used: link for link in topology.links.values() for used, _ in link.uses}
    for members in shares.values():
        if len(members) < FEWEST:
            continue
        usual = float(np.median(list(members.values())))
        for name, share in members.items():
            if share >= FAR_BELOW * usual:
                continue
            rate = resources[name].capacity_Bps or math.nan
            link = ends.get(name)
            at = [e for e in (link.tail, link.head) if e in topology.endpoints] if link else []
            where = f"; a limit at {at[0]} that the topology lacks would look so" if at else ""
            yield (
                f"{resources[name].label} passes {format_rate(rate)}, {share:.0%} of its "
                f"specification where its like pass {usual:.0%}: the topology does not explain it"
                f"{where}"
            )


def supposed_at(fit: Fit, missed: Sequence[str], links: frozenset[str]) -> Iterator[str]:
    """One sentence, naming the endpoint that has a part in all that the links do not explain.

    Parameters
    ----------
    missed
        Names of the observations that nothing explains.
    links
        Resources of the topology as it was given.
    """
    rows = fit.rows
    x = np.where(fit.active, fit.estimate.x, -np.inf)
    top = first_busiest(rows.log_load, x)
    unexplained = set(missed)
    odd = []
    for observation, at in zip(rows.observations, top.tolist(), strict=True):
        bound = rows.resources[rows.log_load.indices[at]] if at >= 0 else ""
        if observation.name in unexplained or (bound and bound not in links):
            odd.append(observation)
    if len(odd) < FEWEST_FIGURES or 2 * len(odd) > len(rows.observations):
        return
    common = set.intersection(*(_ends(o) for o in odd))
    if not common:
        return
    # Of several the one that takes part in the fewest figures that are explained.
    named = {o.name for o in odd}
    fine = Counter(e for o in rows.observations if o.name not in named for e in _ends(o))
    least = min(fine[end] for end in common)
    found = sorted(end for end in common if fine[end] == least)
    at = " or ".join(f"what {endpoint} {way}" for endpoint, way in found)
    names = ", ".join(sorted((o.name for o in odd), key=natural_key)[:3])
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    yield (
        f"the topology does not explain {len(odd)} figures ({names}{more}); what they have in "
        f"common is {at}: something limits it that the topology lacks"
    )


def _ends(observation: Observation) -> set[tuple[str, str]]:
    flows = observation.pattern.flows
    return {(f.destination, "receives") for f in flows} | {(f.source, "sends") for f in flows}

"""Limits on both directions that some figure uses in both directions.

What both directions draw from would explain what one passes alone just as well, and of two
directions that pass alike it would do so with one number.  That is no reason to suppose it: it
would say of both at once what nobody measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.solve.candidates import MOST_FOR_ALL_PAIRS, Candidates
from topocal.solve.rows import Observation, Rows
from topocal.topo.resource import NEAR, PathClass, Sharing

__all__ = ["never_opposed"]


def never_opposed(candidates: Candidates, rows: Rows) -> NDArray[np.bool_]:
    """Shape (R,): supposed limits on both directions of something, of which no observation uses
    more than one at a time."""
    found = np.zeros(len(rows.resources), dtype=bool)
    column = {name: k for k, name in enumerate(rows.resources)}
    table = candidates.topology.resources
    for name in candidates.rank:
        if table[name].sharing is Sharing.DUPLEX and not name.startswith("between."):
            found[column[name]] = True
    for end in _at_once(rows.observations):
        if f"{end}.both-ways" in column:
            found[column[f"{end}.both-ways"]] = False
    between = column.get("between.both-ways")
    if between is not None and len(candidates.topology.endpoints) <= MOST_FOR_ALL_PAIRS:
        carried = rows.log_load.tocsc()
        span = slice(carried.indptr[between], carried.indptr[between + 1])
        crossing = (rows.observations[s] for s in np.unique(carried.indices[span]).tolist())
        place = _places(candidates, rows.observations)
        found[between] = not any(_crosses_both_ways(o, place) for o in crossing)
    return found


def _at_once(observations: tuple[Observation, ...]) -> set[str]:
    """Endpoints that some observation has send and receive."""
    found: set[str] = set()
    for o in observations:
        flows = o.pattern.flows
        if len(flows) > 1:
            found |= {f.source for f in flows} & {f.destination for f in flows}
    return found


def _places(candidates: Candidates, observations: tuple[Observation, ...]) -> dict[str, int]:
    """By endpoint a number of its socket or group: those that reach each other inside share it."""
    ends = sorted({n for o in observations for pair in o.pattern.pairs for n in pair})
    routes = candidates.topology.routes(ends)
    at = [routes.position[e] for e in ends]
    near = np.isin(routes.path_class[np.ix_(at, at)], (PathClass.LOC, *NEAR))
    return {e: int(np.argmax(near[k])) for k, e in enumerate(ends)}


def _crosses_both_ways(observation: Observation, place: dict[str, int]) -> bool:
    """Whether some flow goes from one socket or group to another, and one comes back."""
    ways = {(place[f.source], place[f.destination]) for f in observation.pattern.flows}
    return any(a != b and (b, a) in ways for a, b in ways)

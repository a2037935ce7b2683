"""Patterns that collapse: no way of sharing makes them as slow as they were.

One after another the flows of a pattern take the sum of their times alone, and sharing of
bytes or of time can only be quicker.  What takes far longer (published: 37 GB/s alone, 2.7
together) says nothing of what the resources pass, so it is told and left out of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from topocal.solve.rows import Observation
from topocal.topo.units import format_rate

__all__ = ["COLLAPSES", "collapsed"]

COLLAPSES: Final = math.log(1 / 0.7)
"""A pattern collapses when it takes 1.4 times as long as its flows one after another; no way
of sharing does that."""

_SIGMAS: Final = 4.5
"""Of the errors of both figures: a normal error is beyond this three times in a million."""


def collapsed(observations: Iterable[Observation], noise: float) -> dict[str, str]:
    """Reason by name of each pattern that collapsed; of those whose flows were all timed alone.

    Parameters
    ----------
    noise
        Relative standard deviation of a figure whose own is unknown.
    """
    seen = tuple(observations)
    alone = {
        o.pattern.pairs[0]: o.seconds / o.pattern.total_bytes
        for o in seen
        if len(o.pattern.flows) == 1
    }
    found = {}
    for o in seen:
        flows = o.pattern.flows
        if len(flows) < 2 or not all((f.source, f.destination) in alone for f in flows):
            continue
        serial_s = math.fsum(f.size_bytes * alone[f.source, f.destination] for f in flows)
        sigma = o.sigma if math.isfinite(o.sigma) else noise
        threshold = max(COLLAPSES, _SIGMAS * math.sqrt(2) * max(sigma, noise))
        if serial_s > 0 and math.log(o.seconds / serial_s) > threshold:
            found[o.name] = (
                f"collapses: {format_rate(o.throughput_Bps)} in all, {o.seconds / serial_s:.1f} "
                "times as long as its flows one after another, which no capacity explains"
            )
    return found

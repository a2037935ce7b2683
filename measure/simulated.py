"""A machine that answers from a model: known capacities, timed as if they were not known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topocal.measure.samples import Measurements, Sample
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Pattern
from topocal.topo.topology import Topology

__all__ = ["time_patterns"]


def time_patterns(
    topology: Topology,
    patterns: Sequence[Pattern],
    capacities: Capacities,
    *,
    noise: float,
    rng: np.random.Generator,
    alpha_s: float = 0.0,
) -> Measurements:
    """Time patterns on a machine whose capacities are known, with log-normal errors.

    Parameters
    ----------
    noise
        Relative standard deviation of one timing.
    rng
        Source of the errors; the same state gives the same samples.

    Raises
    ------
    TopocalError
        When a pattern cannot be carried on the machine.
    """
    seconds = busiest(topology, patterns, capacities, alpha_s=alpha_s).seconds
    measured = seconds * np.exp(noise * rng.standard_normal(len(patterns)))
    return Measurements.of(
        Sample(pattern=p, seconds=float(s)) for p, s in zip(patterns, measured, strict=True)
    )

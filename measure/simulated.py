"""A machine that answers from a model: known capacities, timed as if they were not known.

Times come from the fluid simulation, so that unequal sizes, several time-shared engines
and late finishes are as they would be, not as the closed form says.  On top: log-normal
errors, stragglers, a loss that grows with the number of flows (fading), start-up time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements, Sample
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Pattern
from topocal.topo.fluid import simulate_batch
from topocal.topo.loads import Loads, batch_of
from topocal.topo.topology import Topology

__all__ = ["SimulatedMachine", "time_patterns"]


@dataclass(frozen=True, kw_only=True)
class SimulatedMachine:
    """A machine whose truth is known.

    Attributes
    ----------
    topology, capacities
        The truth; it may hold resources that the topology given to a fit does not.
    alpha_s
        Start-up time of every pattern.
    noise
        Relative standard deviation of one timing (log-normal).
    stragglers
        Share of timings that take 1.5 to 4 times as long.
    fading
        Relative loss for every flow of a pattern beyond the first.
    drift
        How much longer the last timing takes than the first, relatively; those between grow
        evenly.
    faults
        Share of timings that fail; they are set aside.
    """

    topology: Topology
    capacities: Capacities
    alpha_s: float = 0.0
    noise: float = 0.0
    stragglers: float = 0.0
    fading: float = 0.0
    drift: float = 0.0
    faults: float = 0.0

    def true_seconds(self, patterns: Sequence[Pattern]) -> NDArray[np.float64]:
        """What each pattern takes, without errors.

        Raises
        ------
        TopocalError
            When a pattern cannot be carried.
        """
        lines, batch = batch_of(self.topology, patterns)
        found = simulate_batch(Loads.of(lines, self.capacities), batch, alpha_s=self.alpha_s)
        flows = np.array([len(p.flows) for p in patterns])
        return np.asarray(found.seconds * (1.0 + self.fading * (flows - 1)))

    def time(
        self, patterns: Sequence[Pattern], repeats: int, rng: np.random.Generator
    ) -> Measurements:
        """Time each pattern ``repeats`` times; equal generators give equal samples."""
        true = np.repeat(self.true_seconds(patterns), repeats)
        measured = true * np.exp(self.noise * rng.standard_normal(len(true)))
        late = rng.random(len(true)) < self.stragglers
        measured *= np.where(late, rng.uniform(1.5, 4.0, len(true)), 1.0)
        measured *= 1.0 + self.drift * np.linspace(0.0, 1.0, len(true))
        # Nothing is drawn where nothing fails: the same generator gives the same errors.
        failed = rng.random(len(true)) < self.faults if self.faults else np.zeros(len(true), bool)
        return Measurements.of(
            Sample(
                pattern=patterns[k // repeats],
                seconds=0.0 if failed[k] else float(s),
                repeat=k % repeats,
                set_aside="a rank did not answer" if failed[k] else None,
            )
            for k, s in enumerate(measured)
        )

    def run(self, plan: Plan, rng: np.random.Generator) -> Measurements:
        """Time a plan: its patterns at its sizes, as often as it says."""
        patterns = [p.pattern.scaled(size) for p in plan.patterns for size in plan.sizes_bytes]
        return self.time(patterns, plan.repeats, rng)


def time_patterns(
    topology: Topology,
    patterns: Sequence[Pattern],
    capacities: Capacities,
    *,
    noise: float,
    rng: np.random.Generator,
    alpha_s: float = 0.0,
) -> Measurements:
    """Time patterns once each on a machine whose capacities are known.

    Raises
    ------
    TopocalError
        When a pattern cannot be carried on the machine.
    """
    machine = SimulatedMachine(
        topology=topology, capacities=capacities, alpha_s=alpha_s, noise=noise
    )
    return machine.time(patterns, 1, rng)

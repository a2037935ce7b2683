"""Measure, fit, and measure what the fit does not know yet.

The first plan goes by nominal capacities.  Each further one takes what was fitted, and for
every resource that is not pinned its *bound*, the slowest that the samples allow: a
multiple of nominal would miss links that are slower than anybody thinks.  It ends when
everything is pinned, or cannot bind, or nothing is left to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topocal.measure.design import design
from topocal.measure.merging import merge
from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.status import Status
from topocal.topo.flow import Pattern
from topocal.topo.resource import Sharing
from topocal.topo.topology import Topology

__all__ = ["MOST_ROUNDS", "Step", "calibrate"]

MOST_ROUNDS: Final = 4
"""Three or four rounds pin all that can be pinned (docs/model.md)."""


@dataclass(frozen=True)
class Step:
    """One round: its plan, all samples so far, and the model fitted to them."""

    plan: Plan
    measurements: Measurements
    model: Model


def calibrate(
    topology: Topology,
    measure: Callable[[Plan], Measurements],
    *,
    endpoints: Sequence[str] | None = None,
    sizes_bytes: Sequence[float] | None = None,
    repeats: int | None = None,
    rounds: int = MOST_ROUNDS,
) -> Iterator[Step]:
    """Alternate measuring and fitting; yields after each round, the last one is the result.

    Parameters
    ----------
    measure
        Runs a plan and returns its samples.
    endpoints
        Who takes part: the accelerators unless told.
    sizes_bytes, repeats
        How each pattern is run; the design's own choice where not given.
    rounds
        At most so many.

    Raises
    ------
    InputError, TopologyError, SolverError
        As :func:`topocal.measure.design.design` and :func:`topocal.solve.fit.fit`.
    """
    options: dict[str, object] = {}
    if sizes_bytes is not None:
        options["sizes_bytes"] = sizes_bytes
    if repeats is not None:
        options["repeats"] = repeats
    plan = design(topology, endpoints=endpoints, **options)  # type: ignore[arg-type]
    samples: Measurements | None = None
    done: dict[str, Pattern] = {}
    for _ in range(rounds):
        if not plan.patterns:
            return
        new = measure(plan)
        samples = new if samples is None else merge([samples, new])
        model = fit(samples, topology)
        yield Step(plan, samples, model)
        for pattern in plan.patterns:
            done[pattern.name] = pattern.pattern
        # What the fit found besides the topology's own resources is part of the machine: ports
        # behind a receiver that serves by turns are pinned by single flows, not by fans.
        machine = model.topology
        plan = design(
            machine,
            endpoints=endpoints,
            theta=_assumed(machine, model),
            pinned=[r.id for r in model.resources.values() if r.status is Status.PINNED],
            measured=done.values(),
            **options,  # type: ignore[arg-type]
        )
        if all(p.name in done for p in plan.patterns):
            return


def _assumed(topology: Topology, model: Model) -> dict[str, float]:
    """Seconds per byte: as fitted where pinned, else the slowest that the samples allow."""
    found = {}
    for name, resource in topology.resources.items():
        fitted = model.resources.get(name)
        if fitted is None or resource.sharing is Sharing.TIME_SHARED:
            continue
        if fitted.status is Status.CONFOUNDED and not fitted.confounded_with:
            # It may be no port at all but flows that take turns, which a fan is to tell.
            continue
        pinned = fitted.status is Status.PINNED
        rate = fitted.capacity_Bps if pinned else fitted.low_Bps or fitted.capacity_Bps
        if rate:
            found[name] = 1.0 / rate
    return found

"""Why a machine is as slow as it is: findings with their evidence, and the fewest resources
that reproduce the figures.

The explanation is never the estimate: it says what suffices, the fit what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topocal.measure.samples import Measurements
from topocal.solve.candidates import RECEIVER
from topocal.solve.collapse import collapsed
from topocal.solve.conflicts import Conflict, conflicts
from topocal.solve.demands import Figure, Receivers, demands
from topocal.solve.evidence import (
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
    Severity,
    Shown,
)
from topocal.solve.explanation_columns import explanation_columns
from topocal.solve.findings import find_all
from topocal.solve.fit import fit
from topocal.solve.groups import infer_topology
from topocal.solve.minimum import Minimum, explain_by_fewest
from topocal.solve.model import Model
from topocal.solve.observe import observe
from topocal.solve.rows import Observation
from topocal.solve.status import Status
from topocal.topo.topology import Topology

__all__ = ["CONCURRENT_TOLERANCE", "PAIR_TOLERANCE", "Explanation", "explain", "find"]

PAIR_TOLERANCE: Final = 0.05
"""How far an explanation may be off for a pair: published steady pairs scatter by that much."""

CONCURRENT_TOLERANCE: Final = 0.03
"""The same for several flows at once; they are medians of more bytes."""

MATTERS: Final = 0.05
"""Published losses by many flows are 5 %; less is good to know and no more."""

MOST_ENDPOINTS: Final = 16
"""Above that the search for the fewest resources is not tried: it takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the figures say about a machine.

    Attributes
    ----------
    model
        Fitted to them.
    findings
        The gravest first.
    fewest
        The fewest resources that reproduce the figures; ``None`` where not tried.
    """

    model: Model
    findings: tuple[Finding, ...]
    fewest: Minimum | None


def explain(
    measurements: Measurements,
    topology: Topology | None = None,
    *,
    time_limit_s: float = 5.0,
) -> Explanation:
    """Fit, find, and look for the fewest resources.

    Parameters
    ----------
    time_limit_s
        Wall seconds for the fewest resources.

    Raises
    ------
    InputError
        As :func:`topocal.solve.fit.fit`.
    SolverError
        When an optimiser fails.
    """
    model, findings = find(measurements, topology)
    machine = infer_topology(measurements) if topology is None else topology
    # What the fit left out for a reason explains nothing either.
    observed = observe(measurements, machine).observations
    seen = [o for o in observed if o.name not in model.left_out]
    endpoints = measurements.endpoints
    fewest = None
    if len(endpoints) <= MOST_ENDPOINTS and seen:
        engines = [r for r in model.resources.values() if r.kappa is not None]
        timed = bool(engines) and RECEIVER not in model.undecided
        figures = [
            Figure(
                pattern=o.pattern,
                throughput_Bps=o.throughput_Bps,
                tolerance=PAIR_TOLERANCE if len(o.pattern.flows) == 1 else CONCURRENT_TOLERANCE,
            )
            for o in seen
        ]
        wanted = demands(
            explanation_columns(machine, endpoints),
            figures,
            receivers=Receivers.TIME_SHARED if timed else Receivers.CAPACITY,
            kappa=engines[0].kappa or 1.0 if timed else 1.0,
        )
        fewest = explain_by_fewest(wanted, time_limit_s=time_limit_s)
    return Explanation(model=model, findings=findings, fewest=fewest)


def find(
    measurements: Measurements, topology: Topology | None = None
) -> tuple[Model, tuple[Finding, ...]]:
    """Fit, and find; the gravest first.

    Raises
    ------
    InputError, SolverError
        As :func:`topocal.solve.fit.fit`.
    """
    model = fit(measurements, topology)
    machine = infer_topology(measurements) if topology is None else topology
    observed = observe(measurements, machine).observations
    # What the fit left out is wrong or unstable; what collapsed is what a finding is about.
    fallen = collapsed(observed, model.noise)
    evidence = _evidence(
        machine, model, [o for o in observed if o.name in fallen or o.name not in model.left_out]
    )
    told = conflicts(measurements, model.noise)
    return model, tuple(find_all(evidence, also=[*_of_the_fit(model), *map(_of_conflict, told)]))


def _evidence(machine: Topology, model: Model, seen: Sequence[Observation]) -> Evidence:
    several = [o for o in seen if len(o.pattern.flows) > 1]
    return Evidence(
        topology=machine,
        pair_rates_Bps={
            o.pattern.pairs[0]: o.throughput_Bps for o in seen if len(o.pattern.flows) == 1
        },
        concurrent=tuple(
            Concurrent(pattern=o.pattern, throughput_Bps=o.throughput_Bps) for o in several
        ),
        fitted_Bps={
            r.id: r.capacity_Bps
            for r in model.resources.values()
            if r.status is Status.PINNED and r.capacity_Bps and r.id in machine.resources
        },
        noise=model.noise,
    )


def _of_the_fit(model: Model) -> Iterator[Finding]:
    """A loss by many flows, which no single figure shows."""
    fading = model.fading
    if fading is None:
        return
    yield Finding(
        kind=FindingKind.FADING,
        severity=Severity.WARNING
        if fading.loss * (fading.most_flows - 1) > MATTERS
        else Severity.NOTE,
        about=tuple(one.name for one in fading.evidence),
        text=fading.text,
        evidence=tuple(
            shown
            for one in fading.evidence
            for shown in (
                Shown(name=one.name, rate_Bps=one.measured_Bps),
                Shown(name=f"{one.name} without it", rate_Bps=one.without_Bps),
            )
        ),
    )


def _of_conflict(conflict: Conflict) -> Finding:
    return Finding(
        kind=FindingKind.CONTRADICTION,
        severity=Severity.WARNING,
        about=(conflict.name,) if conflict.name else tuple(s for s, _ in conflict.figures),
        text=conflict.text,
        evidence=tuple(
            Shown(name=f"{conflict.name or 'median'} in {source}", rate_Bps=rate)
            for source, rate in conflict.figures
        ),
    )

"""Why a machine is as slow as it is: findings with their evidence, and the fewest resources
that reproduce the figures.

The explanation is never the estimate: it says what suffices, the fit what is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from topocal.measure.samples import Measurements
from topocal.solve.candidates import RECEIVER
from topocal.solve.collapse import collapsed
from topocal.solve.conflicts import Conflict, conflicts
from topocal.solve.demands import Figure, Receivers, demands
from topocal.solve.evidence import (
    NOISE_FLOOR,
    Concurrent,
    Evidence,
    Finding,
    FindingKind,
    Pair,
    Severity,
    Shown,
)
from topocal.solve.explanation_columns import explanation_columns
from topocal.solve.findings import find_all
from topocal.solve.findings_at_once import find_slow_at_once
from topocal.solve.findings_readings import find_in_readings
from topocal.solve.findings_sharing import find_shared
from topocal.solve.findings_sizes import find_falling_rates
from topocal.solve.findings_topology import find_fewer_links, find_no_fabric
from topocal.solve.fit import fit
from topocal.solve.groups import infer_topology
from topocal.solve.integer import ProgramStatus
from topocal.solve.minimum import Minimum, explain_by_fewest
from topocal.solve.model import Model
from topocal.solve.observe import observe
from topocal.solve.overview import blind_spot, overview, quiet
from topocal.solve.rows import Observation
from topocal.solve.settings import Setting, compare_settings, rates_of
from topocal.solve.status import Status
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology

__all__ = [
    "CONCURRENT_TOLERANCE",
    "PAIR_TOLERANCE",
    "Explanation",
    "explain",
    "find",
    "find_in_settings",
]

PAIR_TOLERANCE: Final = 0.05
"""How far an explanation may be off for a pair: published steady pairs scatter by that much."""

CONCURRENT_TOLERANCE: Final = 0.03
"""The same for several flows at once; they are medians of more bytes."""

FEWEST_TO_TELL: Final = 12
"""Directions of pairs (six pairs) from which their scatter is an estimate of the noise."""

LOOSER: Final = (1.0, 2.0)
"""Where nothing explains the figures within the tolerances, twice as far off is still an answer."""

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
    overview
        What was measured, by kind.
    blind_spot
        What these figures cannot show, and what would; empty where they can.
    quiet
        What is to be said where there are no findings.
    not_tried
        Why the fewest resources were not looked for, where that is no wish of the caller.
    """

    model: Model
    findings: tuple[Finding, ...]
    fewest: Minimum | None
    overview: tuple[str, ...] = ()
    blind_spot: str = ""
    quiet: str = ""
    not_tried: str = ""


def explain(
    measurements: Measurements,
    topology: Topology | None = None,
    *,
    no_peer: frozenset[Pair] = frozenset(),
    also: Iterable[Finding] = (),
    time_limit_s: float = 5.0,
) -> Explanation:
    """Fit, find, and look for the fewest resources.

    Parameters
    ----------
    no_peer
        Pairs of which a tool said that they have no peer access.
    also
        Further findings, such as of :func:`find_in_settings`.
    time_limit_s
        Wall seconds for the fewest resources; nothing to not look for them.

    Raises
    ------
    InputError
        As :func:`topocal.solve.fit.fit`.
    SolverError
        When an optimiser fails.
    """
    machine = infer_topology(measurements) if topology is None else topology
    model, findings, evidence, seen = _found(
        measurements, topology, machine, no_peer, also, sharing=True
    )
    fewest = None
    if len(measurements.endpoints) <= MOST_ENDPOINTS and seen and time_limit_s > 0:
        fewest = _fewest(machine, measurements.endpoints, model, seen, time_limit_s)
    return Explanation(
        model=model,
        findings=findings,
        fewest=fewest,
        overview=overview(_as_measured(evidence, measurements)),
        blind_spot=blind_spot(evidence),
        quiet=quiet(evidence),
        not_tried=f"{len(measurements.endpoints)} endpoints are more than {MOST_ENDPOINTS}"
        if len(measurements.endpoints) > MOST_ENDPOINTS
        else "",
    )


def _as_measured(evidence: Evidence, measurements: Measurements) -> Evidence:
    """With the figures of the largest messages in place of what the fit makes of all sizes."""
    rates = rates_of(measurements)
    return replace(
        evidence,
        pair_rates_Bps={
            p: rates.get(frozenset([p]), (None, r))[1] for p, r in evidence.pair_rates_Bps.items()
        },
        concurrent=tuple(
            replace(c, throughput_Bps=rates[key][1])
            if (key := frozenset(c.pattern.pairs)) in rates
            else c
            for c in evidence.concurrent
        ),
    )


def _fewest(
    machine: Topology,
    endpoints: tuple[str, ...],
    model: Model,
    seen: Sequence[Observation],
    time_limit_s: float,
) -> Minimum:
    engines = [r for r in model.resources.values() if r.kappa is not None]
    timed = bool(engines) and RECEIVER not in model.undecided
    opposed = frozenset(pair for o in seen for pair in _opposed(o))
    columns = explanation_columns(machine, endpoints, opposed=opposed)
    begin = time.perf_counter()
    fewest = None
    for looser in LOOSER:
        left = time_limit_s - (time.perf_counter() - begin)
        figures = [
            Figure(
                pattern=o.pattern,
                throughput_Bps=o.throughput_Bps,
                tolerance=looser
                * (PAIR_TOLERANCE if len(o.pattern.flows) == 1 else CONCURRENT_TOLERANCE),
            )
            for o in seen
        ]
        wanted = demands(
            columns,
            figures,
            receivers=Receivers.TIME_SHARED if timed else Receivers.CAPACITY,
            kappa=engines[0].kappa or 1.0 if timed else 1.0,
        )
        fewest = explain_by_fewest(wanted, time_limit_s=max(left, time_limit_s / 4))
        if fewest.status is not ProgramStatus.INFEASIBLE:
            break
    assert fewest is not None
    return fewest


def _opposed(one: Observation) -> Iterator[frozenset[str]]:
    """Ends between which two of its flows run in opposite directions."""
    pairs = set(one.pattern.pairs)
    yield from (frozenset(pair) for pair in pairs if pair[::-1] in pairs)


def find(
    measurements: Measurements,
    topology: Topology | None = None,
) -> tuple[Model, tuple[Finding, ...]]:
    """Fit, and find what is wrong; the gravest first.

    Raises
    ------
    InputError, SolverError
        As :func:`topocal.solve.fit.fit`.
    """
    machine = infer_topology(measurements) if topology is None else topology
    model, findings, _, _ = _found(measurements, topology, machine, frozenset(), (), sharing=False)
    return model, findings


def find_in_settings(settings: Sequence[Setting], topology: Topology | None) -> list[Finding]:
    """What all tables of some files say by what changes between them, and what is no sample."""
    return [
        *compare_settings(settings),
        *find_slow_at_once(settings),
        *find_falling_rates(settings),
        *find_in_readings(settings, topology),
    ]


def _found(
    measurements: Measurements,
    given: Topology | None,
    machine: Topology,
    no_peer: frozenset[Pair],
    also: Iterable[Finding],
    *,
    sharing: bool,
) -> tuple[Model, tuple[Finding, ...], Evidence, list[Observation]]:
    """The model, the findings, what they rest on, and what the fit did not leave out."""
    model = fit(measurements, given)
    observed = observe(measurements, machine).observations
    # What the fit left out is wrong or unstable; what collapsed is what a finding is about.
    fallen = collapsed(observed, model.noise)
    evidence = _evidence(
        machine,
        model,
        [o for o in observed if o.name in fallen or o.name not in model.left_out],
        no_peer,
    )
    shared = find_shared(evidence) if sharing else []
    more = [
        *shared,
        # Groups that were made out of pairs lack what several flows share, and a loss by many
        # flows would only stand in for it.
        *(_of_the_fit(model) if given is not None or not shared else ()),
        *map(_of_conflict, conflicts(measurements, model.noise)),
        *((*find_no_fabric(given), *find_fewer_links(given)) if given is not None else ()),
        *also,
    ]
    seen = [o for o in observed if o.name not in model.left_out]
    return model, tuple(find_all(evidence, also=more)), evidence, seen


def _evidence(
    machine: Topology,
    model: Model,
    seen: Sequence[Observation],
    no_peer: frozenset[Pair],
) -> Evidence:
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
        noise=_noise(machine, model, seen),
        no_peer=no_peer,
    )


def _noise(machine: Topology, model: Model, seen: Sequence[Observation]) -> float:
    """Relative deviation of one figure.

    The fit's counts, without repeats, how far pairs differ that the topology makes alike.  Groups
    that were made out of the figures may be wrong; there the two directions of each pair say
    how far figures that should agree do.
    """
    if NodeKind.GROUP not in {kind for _, kind in machine.graph.nodes(data="kind")}:
        return model.noise
    rates = {o.pattern.pairs[0]: o.throughput_Bps for o in seen if len(o.pattern.flows) == 1}
    apart = [abs(math.log(r / rates[p[::-1]])) for p, r in rates.items() if p[::-1] in rates]
    if len(apart) < FEWEST_TO_TELL:
        return model.noise
    # Half of all normal errors are within 0.6745 deviations; of two figures, root two as much.
    return min(model.noise, max(NOISE_FLOOR, median(apart) / (0.6745 * math.sqrt(2))))


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

"""From measurements to a model: the order of the steps, and nothing else.

consistency -> sharing (candidates, rows, estimate) -> intervals -> model
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from topocal.measure.samples import Measurements
from topocal.solve.candidates import like
from topocal.solve.consistency import Consistency, check_consistency
from topocal.solve.groups import infer_topology
from topocal.solve.intervals import Knowledge, Status, what_is_known
from topocal.solve.model import FittedResource, Model, Residual, with_kappa
from topocal.solve.sharing import Fit, fit_sharing, nominal_prior
from topocal.topo.errors import InputError
from topocal.topo.resource import Resource, Sharing
from topocal.topo.topology import Topology

__all__ = ["fit"]


def fit(measurements: Measurements, topology: Topology | None = None) -> Model:
    """Fit every resource's capacity to the measurements.

    Parameters
    ----------
    topology
        Of the machine; without one, groups of endpoints are inferred from the pair
        table, and the model's notes say so.

    Raises
    ------
    InputError
        When there are no samples, or one names an endpoint that the topology lacks.
    SolverError
        When an optimiser fails.
    """
    if not measurements.samples:
        raise InputError("no measurements", remedy="give at least one pair")
    if topology is None:
        topology = infer_topology(measurements)
    else:
        for sample in measurements.samples:
            for pair in sample.pattern.pairs:
                topology.require_endpoints(pair, where=sample.where)
    consistency = check_consistency(topology, measurements)
    samples = consistency.keep(measurements.samples)
    own_paths = [
        s.pattern.pairs[0]
        for group in consistency.disagreeing
        for s in group.samples
        if s.name not in consistency.left_out
    ]
    best, verdict = fit_sharing(topology, measurements, samples, consistency.noise, own_paths)
    return _model(best, verdict.text, consistency, topology, measurements)


def _model(
    best: Fit,
    sharing: str,
    consistency: Consistency,
    topology: Topology,
    measurements: Measurements,
) -> Model:
    kappa = math.exp(best.estimate.log_kappa)
    table = list(best.topology.resources.values())
    known = what_is_known(
        best.rows,
        best.estimate,
        best.active,
        consistency.noise,
        np.isfinite(nominal_prior(best.topology)),
    )
    names = [s.name for s in best.rows.samples]
    fitted = _taken_alike(
        best.topology,
        [
            _fitted(resource, float(best.estimate.x[k]), known[k], kappa, names, table)
            for k, resource in enumerate(table)
        ],
    )
    residuals = tuple(
        Residual(
            name=s.name,
            size_bytes=s.pattern.flows[0].size_bytes,
            measured_s=s.seconds,
            predicted_s=float(math.exp(log_s)),
        )
        for s, log_s in zip(best.rows.samples, best.estimate.log_predicted, strict=True)
    )
    notes = list(topology.graph.graph["notes"])
    if not all(s.size_known for s in measurements.samples):
        notes.append(
            "no sizes were given with the rates: start-up time (alpha) is unknown and taken as "
            "zero, so small transfers take longer than predicted"
        )
    return Model(
        topology=with_kappa(best.topology, kappa),
        resources={r.id: r for r in fitted},
        noise=consistency.noise,
        sharing=sharing,
        findings=_findings(consistency),
        left_out=consistency.left_out,
        residuals=residuals,
        notes=tuple(notes),
        sources=measurements.sources,
    )


def _fitted(
    resource: Resource,
    x: float,
    known: Knowledge,
    kappa: float,
    samples: list[str],
    table: list[Resource],
) -> FittedResource:
    if resource.sharing is Sharing.TIME_SHARED:
        return FittedResource(
            id=resource.id,
            label=resource.name,
            sharing=resource.sharing,
            capacity_Bps=None,
            low_Bps=None,
            high_Bps=None,
            kappa=kappa,
            status=known.status if known.status is not Status.UNKNOWN else Status.ASSUMED,
            pinned_by=tuple(samples[k] for k in known.pinned_by),
            confounded_with=tuple(table[k].id for k in known.confounded_with),
        )
    return FittedResource(
        id=resource.id,
        label=resource.name,
        sharing=resource.sharing,
        capacity_Bps=_Bps(x),
        low_Bps=_Bps(known.high_x),
        high_Bps=_Bps(known.low_x),
        kappa=None,
        status=known.status,
        pinned_by=tuple(samples[k] for k in known.pinned_by),
        confounded_with=tuple(table[k].id for k in known.confounded_with),
    )


def _taken_alike(topology: Topology, resources: Sequence[FittedResource]) -> list[FittedResource]:
    """Give resources that were never the bottleneck the capacity of their like that were.

    Only where no specification says what they pass, and only above what the data proves.
    """
    make = like(topology)
    values: dict[str, list[float]] = {}
    for r in resources:
        if r.status in (Status.PINNED, Status.CONFOUNDED) and r.capacity_Bps is not None:
            values.setdefault(make[r.id], []).append(r.capacity_Bps)
    result = []
    for r in resources:
        known = values.get(make[r.id])
        open_above = r.status in (Status.BOUNDED, Status.UNKNOWN) and r.sharing is not (
            Sharing.TIME_SHARED
        )
        if known and open_above and topology.resources[r.id].nominal_Bps is None:
            alike = float(np.median(known))
            if alike > (r.capacity_Bps or 0.0):
                r = replace(r, capacity_Bps=alike, status=Status.ALIKE)
        result.append(r)
    return result


def _Bps(x: float) -> float | None:
    return math.exp(-x) if math.isfinite(x) else None


def _findings(consistency: Consistency) -> tuple[str, ...]:
    found = [c.text for c in consistency.contradictions if c.flow.name not in consistency.left_out]
    for group in consistency.disagreeing:
        if group.samples[0].name not in consistency.left_out:
            found.append(
                f"{group.text} disagree by {math.expm1(group.spread):.0%} although they are "
                "alike by topology: each is given a path of its own"
            )
    return tuple(found)

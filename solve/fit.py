"""From measurements to a model: the order of the steps, and nothing else.

observe -> consistency -> candidates -> sharing (rows, estimate, polish) -> intervals -> model
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from topocal.measure.samples import Measurements
from topocal.solve.candidates import with_candidates
from topocal.solve.certify import certify
from topocal.solve.collapse import collapsed
from topocal.solve.conditions import agreed
from topocal.solve.conflicts import conflicts
from topocal.solve.consistency import Consistency, check_consistency
from topocal.solve.fading import Fading
from topocal.solve.fading_fit import Crowded, fit_with_fading
from topocal.solve.fitted import machine_of
from topocal.solve.groups import infer_topology
from topocal.solve.hypotheses import Fit, nominal_prior
from topocal.solve.intervals import Knowledge, what_is_known
from topocal.solve.model import (
    Certificate,
    FittedResource,
    Model,
    Residual,
)
from topocal.solve.observe import Observed, observe
from topocal.solve.rows import Observation
from topocal.solve.sharing import SharingVerdict
from topocal.solve.status import CLEAR_SIGMAS, Status
from topocal.solve.unlike_topology import supposed_at, unlike_their_like
from topocal.solve.unseen import Unseen, suppose, told
from topocal.solve.words import name_in_words
from topocal.topo.errors import InputError, one_line
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate

__all__ = ["fit"]

_UNEXPLAINED = 0.10
"""Error (log) from which a figure counts as unexplained, if it is clear of the noise."""

_WORTH_A_LIMIT = 0.05
"""…and from which a limit is supposed that would explain it: steady machines repeat within that."""

_BY_CHANCE = 1e-3
"""Chance that noise alone leaves any figure of a machine unexplained."""

_MOST_OWN_PATHS = 512
"""Pairs that may have a limit of their own; more would say that the topology is another."""

_MOST_ROUNDS = 3
"""Further fits at most, each with limits that the last one needs."""

_MOST_FOR_UNSEEN = 2000
"""Observations up to which limits are supposed that nothing shows."""

_NOISY = 0.15
"""Noise above which a fit is worth a warning: steady machines repeat within 5 %."""


def fit(
    measurements: Measurements,
    topology: Topology | None = None,
    *,
    certify_s: float | None = None,
) -> Model:
    """Fit every resource's capacity to the measurements.

    Parameters
    ----------
    topology
        Of the machine; without one, groups of endpoints are inferred from the pair
        table, and the model's notes say so.
    certify_s
        Wall seconds to spend on proving how near the least sum of errors the fit is.

    Raises
    ------
    InputError
        When there are no samples, one names an endpoint that the topology lacks, or two
        endpoints differ in case only.
    SolverError
        When an optimiser fails.
    """
    if not measurements.samples:
        raise InputError("no measurements", remedy="give at least one pair")
    for sample in measurements.samples:
        if not 0 < sample.seconds < math.inf:
            raise InputError(
                f"a sample of {one_line(sample.name)} took {sample.seconds} s",
                where=sample.where,
                remedy="leave it out",
                about=sample,
            )
    _refuse_names_alike(measurements.endpoints)
    if topology is None:
        topology = infer_topology(measurements)
    else:
        first = {id(s.pattern): s for s in reversed(measurements.samples)}
        for sample in reversed(first.values()):
            for pair in sample.pattern.pairs:
                topology.require_endpoints(pair, where=sample.where)
    observed = observe(measurements, topology)
    if not observed.observations:
        raise InputError(
            "no measurement says how long a byte takes",
            remedy="measure messages of several MiB",
        )
    consistency = check_consistency(topology, observed.observations)
    fallen = collapsed(observed.observations, consistency.noise)
    consistency = replace(consistency, left_out=fallen | consistency.left_out)
    own_paths = consistency.unlike[:_MOST_OWN_PATHS]
    measured = [pair for o in observed.observations for pair in o.pattern.pairs]
    kept = _with_noise(observed.observations, consistency)

    def fitted(unseen: Sequence[Unseen]) -> Crowded:
        return fit_with_fading(
            with_candidates(topology, measurements.endpoints, own_paths, measured, unseen), kept
        )

    plain = fitted(())
    found = _with_unseen(plain, fitted, kept, consistency.noise)
    proven = certify(found.fit, certify_s)
    model = _model(found, plain, proven, consistency, observed, measurements.sources, topology)
    told = [c.text for c in conflicts(measurements, consistency.noise)]
    return replace(model, findings=(*model.findings, *told), provenance=agreed(measurements.runs))


def _refuse_names_alike(endpoints: Sequence[str]) -> None:
    """Of two files one may say GPU0 and the other gpu0: they would be two machines in one."""
    known: dict[str, str] = {}
    for name in endpoints:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise InputError(
                f"endpoints {one_line(other)} and {one_line(name)} differ in case only",
                remedy="write an endpoint alike everywhere",
            )


def _with_noise(observations: Sequence[Observation], consistency: Consistency) -> list[Observation]:
    """The observations that are kept, each with a standard error."""
    return [
        o if math.isfinite(o.sigma) else replace(o, sigma=consistency.noise)
        for o in consistency.keep(observations)
    ]


def _with_unseen(
    plain: Crowded,
    fitted: Callable[[Sequence[Unseen]], Crowded],
    kept: Sequence[Observation],
    noise: float,
) -> Crowded:
    """The fit, with limits that nothing shows where figures are slower than it says without."""
    found = plain
    missed = _missed(_residuals(found.fit), noise, _WORTH_A_LIMIT)
    supposed: tuple[Unseen, ...] = ()
    for _ in range(_MOST_ROUNDS if len(kept) <= _MOST_FOR_UNSEEN else 0):
        slow = [r.name for r in missed if r.predicted_Bps > r.measured_Bps]
        further = [u for u in suppose(kept, slow, noise) if u not in supposed]
        if not further:
            break
        supposed = (*supposed, *further)
        again = fitted(supposed)
        missed_again = _missed(_residuals(again.fit), noise, _WORTH_A_LIMIT)
        if len(missed_again) >= len(missed):
            break
        found, missed = again, missed_again
    return found


def _model(
    found: Crowded,
    plain: Crowded,
    proven: Certificate,
    consistency: Consistency,
    observed: Observed,
    sources: tuple[str, ...],
    topology: Topology,
) -> Model:
    best, verdict = found.fit, found.verdict
    supposed = np.array([name in best.candidates.rank for name in best.rows.resources])
    known = what_is_known(
        best.rows,
        best.estimate,
        best.active,
        np.isfinite(nominal_prior(best.topology)),
        supposed,
        # What a sender passes, or an endpoint that takes turns, is what flows take alone.
        doubted=supposed & ~_told_alone(best),
        freedom=consistency.freedom,
    )
    known = found.knowing(_with_open_ports(known, verdict))
    machine, fitted = machine_of(found, known, observed.observations, topology, consistency.noise)
    residuals = _residuals(best)
    return Model(
        topology=machine,
        resources={r.id: r for r in fitted},
        noise=consistency.noise,
        sharing=verdict.text,
        undecided=verdict.undecided,
        undecided_endpoints=verdict.undecided_endpoints,
        fading=found.fading,
        findings=(
            *_findings(consistency, residuals, found.fading, topology),
            *_unseen(best, fitted, topology),
            *_unlike_topology(topology, plain.fit, fitted, consistency.noise),
        ),
        left_out=consistency.left_out,
        residuals=residuals,
        alpha_s=observed.alpha_s,
        offset_s=observed.offset_s,
        certificate=proven,
        notes=(*topology.graph.graph["notes"], *observed.notes),
        sources=sources,
    )


def _told_alone(fit: Fit) -> NDArray[np.bool_]:
    """Shape (R,): resources that single flows show, or would."""
    engines = set(fit.candidates.engines.values())
    names = fit.rows.resources
    return np.array([n in fit.candidates.classes or n in engines for n in names], dtype=bool)


def _with_open_ports(known: list[Knowledge], verdict: SharingVerdict) -> list[Knowledge]:
    """Ports that only fans pin, at endpoints that may as well serve these by turns, are not."""
    result = list(known)
    for port, fans in verdict.fans_at.items():
        one = known[port]
        if one.status is Status.PINNED and fans.issuperset(one.pinned_by):
            result[port] = replace(
                one, status=Status.CONFOUNDED, low_x=-math.inf, error=math.nan, pinned_by=()
            )
    return result


def _residuals(fit: Fit) -> tuple[Residual, ...]:
    return tuple(
        Residual(
            name=o.name,
            measured_Bps=o.throughput_Bps,
            predicted_Bps=o.pattern.total_bytes / math.exp(log_s),
        )
        for o, log_s in zip(fit.rows.observations, fit.estimate.log_predicted, strict=True)
    )


def _missed(
    residuals: Sequence[Residual], noise: float, least: float = _UNEXPLAINED
) -> list[Residual]:
    """Figures that nothing explains, the worst first."""
    # Of many figures some are far off by chance.
    chance = -float(ndtri(_BY_CHANCE / (2 * max(1, len(residuals)))))
    limit = max(least, max(CLEAR_SIGMAS, chance) * noise)
    return sorted(
        (r for r in residuals if abs(math.log(r.predicted_Bps / r.measured_Bps)) > limit),
        key=lambda r: -abs(math.log(r.predicted_Bps / r.measured_Bps)),
    )


def _unseen(best: Fit, fitted: Sequence[FittedResource], topology: Topology) -> Iterator[str]:
    """The limits that were supposed, and have become part of the model."""
    limits = best.candidates.unseen
    # Groups that were made out of the pair table promise nothing of a pair.
    groups = NodeKind.GROUP in {kind for _, kind in topology.graph.nodes(data="kind")}
    taken = {
        r.label: (r.capacity_Bps, r.pinned_by)
        for r in fitted
        if r.id in limits and r.capacity_Bps and not (groups and limits[r.id].alone)
    }
    if taken:
        yield told(taken)


def _unlike_topology(
    topology: Topology,
    plain: Fit,
    fitted: Sequence[FittedResource],
    noise: float,
) -> Iterator[str]:
    """What the links of a topology that was given do not explain, nothing being supposed."""
    if any(r.nominal_Bps is not None for r in topology.resources.values()):
        yield from unlike_their_like(topology, {r.id: r for r in fitted})
        missed = [r.name for r in _missed(_residuals(plain), noise)]
        yield from supposed_at(plain, missed, frozenset(topology.resources))


def _findings(
    consistency: Consistency,
    residuals: Sequence[Residual],
    fading: Fading | None,
    topology: Topology,
) -> Iterator[str]:
    """What the data says about itself, and what the fit could not say."""
    if fading is not None:
        yield fading.text
    for one in consistency.contradictions:
        if not {one.flow.name, one.pattern.name} & consistency.left_out.keys():
            yield one.text
    # Groups that were made out of the pair table promise nothing.
    known = NodeKind.GROUP not in {kind for _, kind in topology.graph.nodes(data="kind")}
    for group in consistency.disagreeing if known else ():
        if group.samples[0].name not in consistency.left_out:
            yield (
                f"{group.text} disagree by {math.expm1(group.spread):.0%} although they are "
                "alike by topology"
            )
    if missed := _missed(residuals, consistency.noise):
        worst = missed[0]
        yield (
            f"{len(missed)} of {len(residuals)} figures are not explained by any resource that was "
            f"tried, the worst {name_in_words(worst.name)}: {format_rate(worst.measured_Bps)} "
            f"measured, {format_rate(worst.predicted_Bps)} predicted; predictions near them "
            "are not to be relied on"
        )
    if consistency.noise > _NOISY:
        yield (
            f"the figures scatter by {consistency.noise:.0%} where they should be alike: "
            "intervals are wide, and a topology or more repeats would help"
        )

"""Each resource as the model tells it: by what the fit knows of it, and by its like.

What was only supposed and never needed is no part of the machine, unless the figures could not
have shown it (:mod:`topocal.solve.untried`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import stdtrit

from topocal.solve.candidates import hosts_of, like
from topocal.solve.intervals import Knowledge
from topocal.solve.model import FASTEST_BPS, SLOWEST_BPS, FittedResource
from topocal.solve.status import CONFIDENCE, Status
from topocal.solve.untried import may_be_together, untried_both_ways
from topocal.topo.incidence import incidence
from topocal.topo.resource import Resource, Sharing
from topocal.topo.topology import Topology

if TYPE_CHECKING:
    from topocal.solve.fading_fit import Crowded
    from topocal.solve.rows import Observation

__all__ = ["machine_of"]


def machine_of(
    found: Crowded,
    known: Sequence[Knowledge],
    observations: Sequence[Observation],
    topology: Topology,
    noise: float,
) -> tuple[Topology, list[FittedResource]]:
    """The topology with the resources that are part of the machine, and these as fitted.

    Parameters
    ----------
    known
        Of each of the fit's resources.
    observations
        All that there are, also those that the fit left out.
    topology
        As it was given or inferred.
    noise
        Relative standard deviation of one figure.
    """
    best = found.fit
    table = list(best.topology.resources.values())
    supposed = np.array([r.id in best.candidates.rank for r in table])
    names = [o.name for o in best.rows.observations]
    kappa = np.exp(best.estimate.log_kappa)
    timed = found.verdict.time_shared
    engines = {best.candidates.engines[key]: float(kappa[key[1]]) for key in timed}
    untried = untried_both_ways(best)
    kept = [
        k
        for k, r in enumerate(table)
        if r.id in engines
        or r.id in untried
        or (r.sharing is not Sharing.TIME_SHARED and (best.active[k] or not supposed[k]))
    ]
    fitted = [
        _fitted(
            table[k],
            float(best.estimate.x[best.rows.series[k]]),
            known[k],
            engines,
            names,
            table,
            float(found.crowding[k]) if found.fading else None,
        )
        for k in kept
    ]
    # What nothing tried stands for itself.
    fitted = [
        replace(r, status=Status.BOUNDED, confounded_with=())
        if r.id in untried and r.status in _NEVER
        else r
        for r in fitted
    ]
    fitted = _taken_alike(best.topology, fitted, best.candidates.rank)
    fitted = _open_at_hosts(best.topology, _hosts(observations, topology), fitted)
    fitted = [_opened(r) if r.id in untried and r.status is Status.BOUNDED else r for r in fitted]
    machine = _kept(best.topology, [table[k].id for k in kept], engines)
    shared = any(
        r.status is not Status.PINNED
        and r.id in best.candidates.rank
        and r.id not in best.candidates.classes | untried
        and r.sharing is not Sharing.TIME_SHARED
        for r in fitted
    )
    limit = may_be_together(topology, best.rows.observations, noise, any_shared=shared)
    if limit is not None:
        machine = machine.with_resources([limit.resource], [limit.use])
        fitted.append(_at_least(limit.resource, limit.least_Bps))
    by_id = {r.id: r for r in fitted}
    return machine, [by_id[name] for name in machine.resources]


FEWEST_ALIKE: Final = 3
"""Like resources that say how far one more of them may be from them."""

_NEVER: Final = (Status.SERIES, Status.UNKNOWN)


def _opened(resource: FittedResource) -> FittedResource:
    """What passes so much at least, and perhaps any amount."""
    return replace(resource, capacity_Bps=None, high_Bps=None)


def _at_least(resource: Resource, least_Bps: float) -> FittedResource:
    return FittedResource(
        id=resource.id,
        label=resource.name,
        sharing=resource.sharing,
        capacity_Bps=None,
        low_Bps=least_Bps,
        high_Bps=None,
        kappa=None,
        error=None,
        status=Status.BOUNDED,
    )


def _kept(topology: Topology, names: Sequence[str], engines: dict[str, float]) -> Topology:
    """The topology with the named resources only, and the overlap factors of its engines."""
    kept = set(names)
    smaller = topology.without_resources(r for r in topology.resources if r not in kept)
    return smaller.with_resources(
        replace(smaller.resources[e], kappa=k) for e, k in engines.items()
    )


def _fitted(
    resource: Resource,
    x: float,
    known: Knowledge,
    engines: dict[str, float],
    samples: list[str],
    table: list[Resource],
    crowding: float | None,
) -> FittedResource:
    if resource.sharing is Sharing.TIME_SHARED:
        return FittedResource(
            id=resource.id,
            label=resource.name,
            sharing=resource.sharing,
            capacity_Bps=None,
            low_Bps=None,
            high_Bps=None,
            kappa=engines[resource.id],
            error=_finite(known.error),
            status=known.status
            if known.status in (Status.PINNED, Status.CONFOUNDED)
            else Status.ASSUMED,
            pinned_by=tuple(samples[k] for k in known.pinned_by),
            confounded_with=tuple(table[k].id for k in known.confounded_with),
            crowding=crowding,
        )
    return FittedResource(
        id=resource.id,
        label=resource.name,
        sharing=resource.sharing,
        capacity_Bps=_Bps(x),
        # A bound counts the noise of single samples, the best value weighs them all: where the
        # two cross, by less than the noise, the interval reaches as far as the value.
        low_Bps=_Bps(max(known.high_x, x)),
        high_Bps=_Bps(min(known.low_x, x)),
        kappa=None,
        error=_finite(known.error),
        status=known.status,
        pinned_by=tuple(samples[k] for k in known.pinned_by),
        confounded_with=tuple(table[k].id for k in known.confounded_with),
        crowding=crowding,
    )


def _taken_alike(
    topology: Topology, resources: Sequence[FittedResource], supposed: Collection[str]
) -> list[FittedResource]:
    """Give resources that were never the bottleneck the capacity of their like that were.

    Only where no specification says what they pass, and only above what the data proves.  As
    far as those differ, it may as well: 95 % of one more of them (Student's t).
    """
    make = like(topology)
    values: dict[str, list[float]] = {}
    sure: dict[str, list[float]] = {}
    for r in resources:
        if r.status in (Status.PINNED, Status.CONFOUNDED) and r.capacity_Bps is not None:
            values.setdefault(make[r.id], []).append(r.capacity_Bps)
            # What other resources may do as well says nothing of how far like ones differ.
            if r.status is Status.PINNED or not (r.confounded_with or r.id in supposed):
                sure.setdefault(make[r.id], []).append(r.capacity_Bps)
    result = []
    for r in resources:
        known = values.get(make[r.id])
        open_above = r.status in (Status.BOUNDED, Status.UNKNOWN) and r.sharing is not (
            Sharing.TIME_SHARED
        )
        if known and open_above and topology.resources[r.id].nominal_Bps is None:
            alike, least = float(np.median(known)), r.capacity_Bps or 0.0
            most = max(alike, least) * _one_more(sure.get(make[r.id], ()))
            r = replace(
                r,
                capacity_Bps=max(alike, least),
                high_Bps=most if most < FASTEST_BPS else None,
                status=Status.ALIKE if alike > least else r.status,
            )
        result.append(r)
    return result


def _one_more(values: Sequence[float]) -> float:
    """By which factor one more of a few values may at 95 % be above their middle."""
    n = len(values)
    if n < FEWEST_ALIKE:
        return math.inf
    spread = float(np.std(np.log(values), ddof=1))
    return math.exp(float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * spread * math.sqrt(1 + 1 / n))


def _hosts(observations: Sequence[Observation], topology: Topology) -> frozenset[str]:
    ends = dict.fromkeys(n for o in observations for pair in o.pattern.pairs for n in pair)
    return frozenset(hosts_of(topology, list(ends)))


def _open_at_hosts(
    topology: Topology, hosts: frozenset[str], resources: Sequence[FittedResource]
) -> list[FittedResource]:
    """Leave open what the host's memory passes to several cards, where no pattern showed it.

    The bound, what one copy takes, stays the least that it passes.
    """
    if not hosts:
        return list(resources)
    crossing: dict[str, set[tuple[str, str]]] = {}
    ends = topology.endpoints
    pairs = [(a, b) for a in ends for b in ends if a != b and ({a, b} & hosts)]
    lines = incidence(topology, pairs)
    matrix = lines.matrix.tocsc()
    for k, name in enumerate(lines.resources):
        rows = matrix.indices[matrix.indptr[k] : matrix.indptr[k + 1]]
        crossing[name] = {pairs[r] for r in rows.tolist()}
    others = [(a, b) for a in ends for b in ends if a != b and not ({a, b} & hosts)]
    of_cards: set[str] = set()
    if others:
        between = incidence(topology, others)
        loaded = np.unique(between.matrix.indices)
        of_cards = {between.resources[k] for k in loaded.tolist()}
    result = []
    for r in resources:
        cards = {n for pair in crossing.get(r.id, ()) for n in pair} - hosts
        if (
            r.status in (Status.BOUNDED, Status.SERIES)
            and r.sharing is Sharing.CAPACITY
            and topology.resources[r.id].nominal_Bps is None
            and len(cards) > 1
            and r.id not in of_cards
        ):
            r = _opened(r)
        result.append(r)
    return result


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _Bps(x: float) -> float | None:
    """Bytes per second; None where nothing is known, or nothing that any machine passes."""
    if not -math.log(FASTEST_BPS) < x < -math.log(SLOWEST_BPS):
        return None
    return math.exp(-x)

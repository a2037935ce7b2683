"""The caps of a fitted machine: what a policy needs to price transfers, and nothing else.

A model knows the machine; its caps know the processes.  They say what each resource
passes and which (sender, receiver) pairs load it, so that a program without this package can
price a set of transfers in a few lines (docs/caps.md), and on what the figures rest.

Where the figures come from::

    Model ──> loads of all pairs (incidence) ──> blocks of senders and receivers
          ──> value, interval, status of each resource, what was measured where
          ──> PairCosts ──> tables by process and by pair

A resource that no pattern ever had as its bottleneck is taken at what is proven of it
(bounded), at its specification (assumed), or at what others of its make pass (alike).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from topocal.measure.patterns import PatternKind
from topocal.solve.caps_tables import (
    ProcessTable,
    alone_blocks,
    both_ways_blocks,
    process_table,
)
from topocal.solve.conditions import Conditions
from topocal.solve.fading import Fading
from topocal.solve.pair_costs import PairCosts
from topocal.solve.rectangles import Block, SetTable, blocks_of, matrix_of
from topocal.solve.status import Status
from topocal.topo.errors import InputError
from topocal.topo.incidence import incidence
from topocal.topo.resource import PathClass, Sharing
from topocal.topo.wanted import not_wanted

if TYPE_CHECKING:
    from topocal.solve.model import FittedResource, Model

__all__ = ["Cap", "Caps", "as_caps", "caps_of", "costs_of"]

_TWO_SIDED: Final = 1.96
"""Deviations of a 95 % interval."""

_PAIRS_AT_ONCE: Final = 1 << 18
"""Pairs whose loads are found in one go: memory stays bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """What one resource passes, and who loads it.

    Attributes
    ----------
    id, label, sharing, status
        As in the model.
    cap_Bps
        Bytes per second that count; ``None``: never binds (nothing is known of it, or it
        is time-shared).
    low_Bps, high_Bps
        95 % interval; ``None`` where nothing is proven on that side.
    kappa, kappa_low, kappa_high
        Overlap of a time-shared resource, and its interval where it was measured.
    loads
        Blocks ``(senders, receivers, weight)``, numbers of :attr:`Caps.sets`.
    """

    id: str
    label: str
    sharing: Sharing
    status: Status
    cap_Bps: float | None
    low_Bps: float | None = None
    high_Bps: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    loads: tuple[Block, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Caps:
    """Caps of the resources between n processes.

    Attributes
    ----------
    machine
        Its name.
    endpoints
        Endpoint of each process: by rank where the calibration says it, else in natural order.
    calibration
        Under which conditions was measured.
    noise
        Relative standard deviation of one sample.
    offset_s, least_s
        A transfer takes ``max(busiest + offset_s, least_s)``.
    undecided
        Processes of which the data cannot tell whether they serve their flows at once or by
        turns: those receiving, and those sending.
    sets
        Sets of processes that :attr:`Cap.loads` names.
    resources
        Those that some pair loads, in the model's order.
    unreachable
        Blocks of pairs that nothing joins; their values mean nothing.
    fading
        How much longer everything takes for each further flow; ``None``: not at all.
    alone, both_ways, processes
        Tables of :mod:`topocal.solve.caps_tables`.
    """

    machine: str
    endpoints: tuple[str, ...]
    calibration: Conditions
    noise: float
    offset_s: float
    least_s: float
    undecided: tuple[tuple[int, ...], tuple[int, ...]]
    sets: tuple[tuple[int, ...], ...]
    resources: tuple[Cap, ...]
    unreachable: tuple[Block, ...]
    alone: tuple[Block, ...]
    both_ways: tuple[Block, ...]
    processes: ProcessTable
    fading: Fading | None = None

    @cached_property
    def weights(self) -> csr_array:
        """Shape (n * n, resources): how often a byte of each pair counts on each resource."""
        return matrix_of([cap.loads for cap in self.resources], self.sets, len(self.endpoints))

    @cached_property
    def pair_costs(self) -> PairCosts:
        """Seconds that a byte of each pair takes of each resource, less any :attr:`fading`."""
        return costs_of(self, [cap.cap_Bps for cap in self.resources])


def as_caps(machine: Caps | Model) -> Caps:
    """Caps as they are, or those of a model.

    Raises
    ------
    InputError
        When it is neither.
    """
    if isinstance(machine, Caps):
        return machine
    own: Callable[[], Caps] | None = getattr(machine, "caps", None)
    if own is None:  # Models know this module, which therefore cannot know them.
        raise not_wanted(machine, "a fitted model or its caps")
    return own()


def costs_of(
    caps: Caps,
    caps_Bps: Sequence[float | None],
    kappas: Sequence[float | None] | None = None,
    pairs: NDArray[np.int64] | None = None,
) -> PairCosts:
    """The costs were the resources to pass so much.

    Parameters
    ----------
    caps_Bps
        Of each resource; ``None`` never binds.
    kappas
        Of each time-shared resource; default: its own.
    pairs
        The only pairs that count, in order (default: all): the others cost nothing.
    """
    kappas = [cap.kappa for cap in caps.resources] if kappas is None else kappas
    weights = caps.weights
    if pairs is not None:
        counts = np.zeros(weights.shape[0], dtype=np.int64)
        some = weights[pairs]
        counts[pairs] = np.diff(some.indptr)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        weights = csr_array((some.data, some.indices, indptr), shape=weights.shape)
    return PairCosts.build(
        caps.endpoints,
        [
            (cap.id, cap.sharing, value, 1.0 if kappa is None else kappa)
            for cap, value, kappa in zip(caps.resources, caps_Bps, kappas, strict=True)
        ],
        weights,
        unreachable=_unreachable(caps),
        alpha_s=caps.offset_s,
    )


def _unreachable(caps: Caps) -> NDArray[np.bool_]:
    n = len(caps.endpoints)
    lost = matrix_of([caps.unreachable], caps.sets, n)
    return np.asarray(np.diff(lost.indptr) > 0)


def caps_of(model: Model, endpoints: Sequence[str] | None = None) -> Caps:
    """The caps between some endpoints of a fitted machine.

    Parameters
    ----------
    endpoints
        Endpoint of each process; default: of each rank of the calibration where it says them,
        else the accelerators, else all endpoints.

    Raises
    ------
    UnknownEndpointError
        When one is not an endpoint of the machine.
    InputError
        When fewer than two are given, or one twice.
    """
    chosen = _chosen(model, endpoints)
    names, matrix, lost = _loads(model, chosen)
    # One that stands in series with another and is loaded by the same pairs says nothing more.
    loaded = np.unique(matrix.indices)
    keep = np.setdiff1d(loaded, _in_series(model, names, matrix))
    table = SetTable()
    n = len(chosen)
    kept = csr_array(matrix[:, keep])
    blocks = blocks_of(kept, n, table)
    (unreachable,) = blocks_of(csr_array(lost[:, None]), n, table)
    resources = tuple(
        _cap(model.resources[names[k]], tuple(own))
        for k, own in zip(keep.tolist(), blocks, strict=True)
    )
    offset, least = (
        by_kind.get(PatternKind.BUNDLE, float(np.median(list(by_kind.values()))))
        if by_kind
        else 0.0
        for by_kind in (model.offset_s, model.alpha_s)
    )
    costs = PairCosts.build(
        chosen,
        [(c.id, c.sharing, c.cap_Bps, 1.0 if c.kappa is None else c.kappa) for c in resources],
        kept,
        unreachable=lost > 0,
        alpha_s=offset,
    )
    alone, both_ways = alone_blocks(costs, table), both_ways_blocks(costs, table, model.fading)
    return Caps(
        machine=model.topology.name,
        endpoints=chosen,
        calibration=Conditions.of(model.provenance),
        noise=model.noise,
        offset_s=offset,
        least_s=least,
        undecided=_undecided(model, chosen),
        sets=tuple(table.sets),
        resources=resources,
        unreachable=tuple(unreachable),
        alone=tuple(alone),
        both_ways=tuple(both_ways),
        processes=process_table(costs, model.fading),
        fading=model.fading,
    )


def _undecided(model: Model, chosen: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Processes that may serve their flows by turns, receiving and sending; engines do anyway."""
    single = set(model.undecided_endpoints)

    def on(side: int) -> tuple[int, ...]:
        word = "sender" if side else "receiver"
        return tuple(
            k
            for k, name in enumerate(chosen)
            if (side in model.undecided or (name, side) in single)
            and f"{name}.{word}.engine" not in model.resources
        )

    return on(0), on(1)


def _chosen(model: Model, endpoints: Sequence[str] | None) -> tuple[str, ...]:
    topology = model.topology
    if endpoints is None:
        ranks = model.provenance.get("ranks", ())
        if len(ranks) > 1 and set(ranks) <= set(topology.endpoints):
            return tuple(ranks)
        several = len(topology.accelerators) > 1
        chosen = topology.accelerators if several else topology.endpoints
    else:
        topology.require_endpoints(endpoints)
        chosen = tuple(endpoints)
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise InputError(
            "caps are between two different endpoints or more", remedy="name each process's once"
        )
    return chosen


def _loads(
    model: Model, chosen: tuple[str, ...]
) -> tuple[tuple[str, ...], csr_array, NDArray[np.float64]]:
    """Resources, the loads of all pairs on them, and which pairs nothing joins."""
    n = len(chosen)
    routes = model.topology.routes(chosen)
    place = [routes.position[e] for e in chosen]
    classes = routes.path_class[np.ix_(place, place)].ravel()
    lost = (classes == PathClass.DIS).astype(np.float64)
    lost[:: n + 1] = 0.0
    names = tuple(model.topology.resources)
    parts = []
    for begin in range(0, n * n, _PAIRS_AT_ONCE):
        pairs = np.arange(begin, min(begin + _PAIRS_AT_ONCE, n * n))
        # A pair without a route stands as one of an endpoint with itself, which loads nothing.
        ends = [(p // n, p // n if lost[p] else p % n) for p in pairs.tolist()]
        parts.append(incidence(model.topology, [(chosen[a], chosen[b]) for a, b in ends]).matrix)
    matrix = csr_array(vstack(parts, format="csr"))
    matrix.eliminate_zeros()
    return names, matrix, lost


def _in_series(model: Model, names: tuple[str, ...], matrix: csr_array) -> NDArray[np.int64]:
    """Columns of resources in series whose stand-in the same pairs load alike."""
    number = {name: k for k, name in enumerate(names)}
    own = [k for k, name in enumerate(names) if model.resources[name].status is Status.SERIES]
    if not own:
        return np.zeros(0, dtype=np.int64)
    other = [number[model.resources[names[k]].confounded_with[0]] for k in own]
    columns = matrix.tocsc()
    same = np.asarray(abs(columns[:, own] - columns[:, other]).sum(axis=0) == 0).ravel()
    return np.array([k for k, alike in zip(own, same.tolist(), strict=True) if alike], np.int64)


def _cap(fitted: FittedResource, loads: tuple[Block, ...]) -> Cap:
    timed = fitted.sharing is Sharing.TIME_SHARED
    spread = None
    if timed and fitted.status is Status.PINNED and fitted.error is not None:
        spread = float(np.exp(_TWO_SIDED * fitted.error))
    kappa = fitted.kappa if timed else None
    return Cap(
        id=fitted.id,
        label=fitted.label,
        sharing=fitted.sharing,
        status=fitted.status,
        cap_Bps=fitted.capacity_Bps,
        low_Bps=fitted.low_Bps,
        high_Bps=fitted.high_Bps,
        kappa=kappa,
        kappa_low=None if spread is None or kappa is None else kappa / spread,
        kappa_high=None if spread is None or kappa is None else kappa * spread,
        loads=loads,
    )

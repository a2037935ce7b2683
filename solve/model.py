"""The fitted model: every resource's capacity and what it rests on, in memory and on disk.

History of model.json: 1 (2026-11) first version.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from topocal.measure.patterns import PatternKind
from topocal.measure.provenance import check_provenance
from topocal.solve.fading import Fading
from topocal.solve.status import Status
from topocal.topo.capacities import Capacities
from topocal.topo.errors import FormatError, InputError, NoRouteError, Where, one_line
from topocal.topo.incidence import incidence
from topocal.topo.io import (
    decode_document,
    encode_document,
    read_bytes,
    stated_format,
    topology_from_document,
    topology_to_document,
    write_atomically,
)
from topocal.topo.resource import PathClass, Sharing
from topocal.topo.topology import Topology

if TYPE_CHECKING:
    from topocal.solve.caps import Caps

__all__ = [
    "FASTEST_BPS",
    "SLOWEST_BPS",
    "Certificate",
    "FittedResource",
    "Model",
    "Residual",
    "is_model",
    "model_from_document",
    "read_model",
    "write_model",
]

FORMAT: Final = "topocal/model"
VERSION: Final = 1

SLOWEST_BPS: Final = 1e-12
FASTEST_BPS: Final = 1e21
"""Capacities outside are no machine's; sums and inverses of those inside stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedResource:
    """One resource after the fit.

    Attributes
    ----------
    id, label, sharing
        As in the topology.
    capacity_Bps
        Best value in bytes per second; for a bounded resource the least that the
        data allows.  ``None`` when unknown, and for time-shared resources.
    low_Bps, high_Bps
        95 % interval; ``high_Bps`` is ``None`` where nothing bounds it from above.
    kappa
        Overlap factor of a time-shared resource.
    error
        Standard error of the log of the capacity (or of kappa) where it is pinned.
    status
        What the capacity rests on.
    pinned_by
        Names of the samples that have it as their clear bottleneck.
    confounded_with
        Resources that may explain its samples as well; for one in series, the resource
        that stands for it.
    crowding
        Where a loss by many flows is fitted: how far the log of the capacity (or of kappa)
        rises for each unit that the loss does, with the same samples.
    """

    id: str
    label: str
    sharing: Sharing
    capacity_Bps: float | None
    low_Bps: float | None
    high_Bps: float | None
    kappa: float | None
    error: float | None
    status: Status
    pinned_by: tuple[str, ...] = ()
    confounded_with: tuple[str, ...] = ()
    crowding: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """An observation of the fit: total throughput measured and predicted."""

    name: str
    measured_Bps: float
    predicted_Bps: float

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput."""
        return self.predicted_Bps / self.measured_Bps - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Proofs about a fit, with its time-shared engines' times taken as given.

    Attributes
    ----------
    least_largest_error
        No capacities miss every observation by less than this (log), in closed form.
    largest_error
        What the fit at hand misses by.
    text
        Sentences, the first on the largest error, a second on the sum of errors where asked.
    sum_gap
        How much smaller the sum of errors of any other capacities may be, relative; ``None``
        where not asked for, or where engines add up time.
    """

    least_largest_error: float
    largest_error: float
    text: tuple[str, ...]
    sum_gap: float | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A machine whose capacities are known from measurements.

    Attributes
    ----------
    topology
        With the candidate resources of the fit.
    resources
        By id, in the topology's order.
    noise
        Relative standard deviation of one sample.
    fading
        How much longer everything takes for each further flow; ``None`` where the data does
        not demand it.
    sharing
        Sentence on whether receivers share bytes or time.
    undecided
        Sides of an endpoint (0 receiving, 1 sending) on which the data cannot tell bytes from
        time; predictions allow for both.
    undecided_endpoints
        On other sides, single endpoints of which it cannot tell, each with its side.
    findings
        What the data says about itself: contradictions, disagreements, in sentences.
    left_out
        Reason by name of each sample that the fit did not use.
    residuals
        Observations that it used.
    alpha_s, offset_s
        Time of an empty message, and the intercept that goes with the capacities at large
        sizes, by kind of pattern; empty where the samples do not tell.
    certificate
        What is proven of the fit.
    notes
        What was assumed.
    sources
        Files that the samples came from.
    provenance
        Conditions of the measurements that all of them agree on, by the keys of
        :mod:`topocal.measure.provenance`; what is absent is unknown.
    """

    topology: Topology
    resources: Mapping[str, FittedResource]
    noise: float
    sharing: str
    undecided: tuple[int, ...]
    findings: tuple[str, ...]
    left_out: Mapping[str, str]
    residuals: tuple[Residual, ...]
    alpha_s: Mapping[PatternKind, float]
    offset_s: Mapping[PatternKind, float]
    certificate: Certificate
    notes: tuple[str, ...]
    sources: tuple[str, ...]
    fading: Fading | None = None
    undecided_endpoints: tuple[tuple[str, int], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def capacities(self) -> Capacities:
        """Best values, for the simulator; what is unknown never binds."""
        return Capacities.of(
            self.topology,
            {
                r.id: math.inf if r.capacity_Bps is None else r.capacity_Bps
                for r in self.resources.values()
                if r.sharing is not Sharing.TIME_SHARED
            },
        )

    def start_up_s(self, kind: PatternKind, busy_s: float) -> float:
        """What a pattern takes besides its busiest resource's time.

        The intercept of its kind, else the median of all kinds, else zero; and never so
        little that the whole is quicker than an empty message.
        """
        offset, alpha = (
            table.get(kind, float(np.median(list(table.values())))) if table else 0.0
            for table in (self.offset_s, self.alpha_s)
        )
        return max(offset, alpha - busy_s)

    def caps(self, endpoints: Sequence[str] | None = None) -> Caps:
        """What a policy needs to price transfers between ``endpoints`` (default: the ranks of
        the calibration, else the accelerators); see :mod:`topocal.solve.caps`."""
        from topocal.solve.caps import caps_of

        return caps_of(self, endpoints)

    @cached_property
    def crowd(self) -> Mapping[str, int]:
        """How many ordered pairs of accelerators load each resource; of pairs that something
        connects."""
        ends = self.topology.accelerators or self.topology.endpoints
        pairs = [(a, b) for a in ends for b in ends if a != b]
        try:
            lines = incidence(self.topology, pairs)
        except NoRouteError:
            routes = self.topology.routes(tuple(ends))
            pairs = [(a, b) for a, b, code in routes.classes() if code is not PathClass.DIS]
            if not pairs:
                return {}
            lines = incidence(self.topology, pairs)
        counts = np.bincount(lines.matrix.indices, minlength=len(lines.resources))
        return {name: int(n) for name, n in zip(lines.resources, counts, strict=True)}


def write_model(model: Model, path: str | Path) -> None:
    """Write model.json atomically.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    write_atomically(path, encode_document(model_to_document(model)))


def model_to_document(model: Model) -> dict[str, Any]:
    """The model as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "noise": model.noise,
        "fading": None if model.fading is None else msgspec.to_builtins(model.fading),
        "sharing": model.sharing,
        "undecided": list(model.undecided),
        "undecided_endpoints": [list(one) for one in model.undecided_endpoints],
        "findings": list(model.findings),
        "left_out": dict(model.left_out),
        "resources": [msgspec.to_builtins(r) for r in model.resources.values()],
        "residuals": [msgspec.to_builtins(r) for r in model.residuals],
        "alpha_s": {str(kind): alpha for kind, alpha in model.alpha_s.items()},
        "offset_s": {str(kind): offset for kind, offset in model.offset_s.items()},
        "certificate": msgspec.to_builtins(model.certificate),
        "notes": list(model.notes),
        "sources": list(model.sources),
        "provenance": dict(model.provenance),
        "topology": topology_to_document(model.topology),
    }


def is_model(path: str | Path) -> bool:
    """Whether a file says that it is a model; no, where it cannot be read."""
    try:
        return stated_format(read_bytes(path)) == FORMAT
    except InputError:
        return False


def read_model(path: str | Path) -> Model:
    """Read model.json.

    Raises
    ------
    InputError
        When the file cannot be read, is of another kind, newer than this release, or damaged.
    """
    file = str(path)
    document = decode_document(read_bytes(path), format=FORMAT, version=VERSION, file=file)
    return model_from_document(document, file=file)


def model_from_document(document: dict[str, Any], *, file: str) -> Model:
    """The model that :func:`model_to_document` wrote.

    Raises
    ------
    FormatError
        When a part is missing, of the wrong type, or contradicts another.
    TopologyError
        When its topology contradicts itself.
    """
    try:
        resources = msgspec.convert(document["resources"], list[FittedResource])
        topology = topology_from_document(document["topology"], file=file)
        if {r.id for r in resources} != set(topology.resources):
            raise ValueError("its resources are not those of its topology")
        if len({r.id for r in resources}) < len(resources):
            raise ValueError("a resource stands twice")
        for resource in resources:
            _check(resource, topology)
        by_id = {r.id: r for r in resources}
        return Model(
            topology=topology,
            resources={name: by_id[name] for name in topology.resources},
            noise=_noise(document["noise"]),
            fading=_fading(document.get("fading")),
            sharing=msgspec.convert(document["sharing"], str),
            undecided=msgspec.convert(document["undecided"], tuple[int, ...]),
            undecided_endpoints=msgspec.convert(
                document.get("undecided_endpoints", []), tuple[tuple[str, int], ...]
            ),
            findings=msgspec.convert(document["findings"], tuple[str, ...]),
            left_out=msgspec.convert(document["left_out"], dict[str, str]),
            residuals=msgspec.convert(document["residuals"], tuple[Residual, ...]),
            alpha_s=msgspec.convert(document["alpha_s"], dict[PatternKind, float]),
            offset_s=msgspec.convert(document["offset_s"], dict[PatternKind, float]),
            certificate=msgspec.convert(document["certificate"], Certificate),
            notes=msgspec.convert(document["notes"], tuple[str, ...]),
            sources=msgspec.convert(document["sources"], tuple[str, ...]),
            provenance=_provenance(document.get("provenance", {})),
        )
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise FormatError(
            f"damaged model: {type(error).__name__} {one_line(error)}",
            where=Where(file=file),
            remedy="fit it again with topocal fit",
        ) from error


_MOST_ERROR: Final = 100.0
_MOST_FLOWS: Final = 1e9


def _check(resource: FittedResource, topology: Topology) -> None:
    """What the predictions rely on.

    Raises
    ------
    ValueError
        When a number is no capacity, or a name no resource.
    """
    for name in ("capacity_Bps", "low_Bps", "high_Bps"):
        value = getattr(resource, name)
        if value is not None and not SLOWEST_BPS <= value <= FASTEST_BPS:
            raise ValueError(f"{resource.id} has {name} {value}")
    if resource.error is not None and not 0 < resource.error < _MOST_ERROR:
        raise ValueError(f"{resource.id} has error {resource.error}")
    if resource.crowding is not None and not abs(resource.crowding) < _MOST_FLOWS:
        raise ValueError(f"{resource.id} has crowding {resource.crowding}")
    if resource.kappa is not None and not 0 < resource.kappa <= 1:
        raise ValueError(f"{resource.id} has kappa {resource.kappa}")
    ordered = [
        v for v in (resource.low_Bps, resource.capacity_Bps, resource.high_Bps) if v is not None
    ]
    if any(a > b * (1 + 1e-9) for a, b in itertools.pairwise(ordered)):
        raise ValueError(f"{resource.id} has a capacity outside its interval")
    if resource.status is Status.SERIES and not resource.confounded_with:
        raise ValueError(f"{resource.id} does not name what stands for it")
    if resource.status is Status.PINNED and resource.error is None:
        raise ValueError(f"{resource.id} is pinned without an error")
    for other in resource.confounded_with:
        if other not in topology.resources:
            raise ValueError(f"{resource.id} names the unknown resource {one_line(other)}")
    if resource.sharing is not topology.resources[resource.id].sharing:
        raise ValueError(f"{resource.id} is shared otherwise in the topology")


def _provenance(value: object) -> dict[str, Any]:
    found = msgspec.convert(value, dict[str, Any])
    try:
        check_provenance(found)
    except InputError as error:
        raise ValueError(error.what) from error
    return found


def _fading(value: object) -> Fading | None:
    """A loss as predictions rely on it; none in models from before it was known."""
    fading = msgspec.convert(value, Fading | None)
    if fading is not None:
        if not (0 < fading.loss < 1 and 0 < fading.error < _MOST_ERROR):
            raise ValueError(f"a loss of {fading.loss} within {fading.error}")
        if not 1 < fading.most_flows < 1 << 31:
            raise ValueError(f"a loss by {fading.most_flows} flows")
    return fading


def _noise(value: object) -> float:
    noise = msgspec.convert(value, float)
    if not 0 < noise < _MOST_ERROR:
        raise ValueError(f"noise is {noise}")
    return noise

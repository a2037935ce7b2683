"""What the page's calculator computes with: the model's numbers, and who loads what.

The calculator (``templates/calculator.js``) follows :mod:`topocal.solve.occupancy`,
:mod:`topocal.solve.fading` and :mod:`topocal.solve.predict` for patterns of equal sizes; its
figures agree with theirs but for the order of sums.  Rates go over as seconds per byte, in
digits that lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from topocal.measure.patterns import PatternKind
from topocal.report.figures import reachable
from topocal.solve.fading import Crowd
from topocal.solve.occupancy import DOMINATES
from topocal.solve.status import CLEAR_SIGMAS, OPEN_ABOVE, Status
from topocal.topo.incidence import incidence
from topocal.topo.resource import Sharing
from topocal.topo.units import MOST_BYTES

if TYPE_CHECKING:
    from topocal.solve.model import Model

__all__ = ["calculator_data", "loaded_resources"]

_MOST_COUNTED: Final = 256
"""Who is how crowded is counted up to so many accelerators: pairs grow with their square."""


def loaded_resources(model: Model, endpoints: Sequence[str]) -> list[str]:
    """Resources that some pair of the endpoints loads, in the topology's order."""
    pairs = reachable(model, endpoints)
    if not pairs:
        return []
    lines = incidence(model.topology, pairs)
    return [lines.resources[k] for k in np.unique(lines.matrix.indices)]


def calculator_data(model: Model, endpoints: Sequence[str]) -> dict[str, Any]:
    """The numbers, as JSON values.

    Parameters
    ----------
    endpoints
        Those that the calculator offers.
    """
    pairs = reachable(model, endpoints)
    names = loaded_resources(model, endpoints)
    number = {name: k for k, name in enumerate(names)}
    table = [model.resources[name] for name in names]
    engine = [r.sharing is Sharing.TIME_SHARED for r in table]
    best = [0.0 if r.capacity_Bps is None else 1.0 / r.capacity_Bps for r in table]
    slow = [0.0 if r.low_Bps is None else 1.0 / r.low_Bps for r in table]
    fast = [0.0 if r.high_Bps is None else 1.0 / r.high_Bps for r in table]
    return {
        "endpoints": list(endpoints),
        "resources": {
            "id": names,
            "label": [r.label for r in table],
            "engine": [int(e) for e in engine],
            "fatpipe": [int(r.sharing is Sharing.FATPIPE) for r in table],
            "untried": [int(r.sharing is Sharing.DUPLEX and r.capacity_Bps is None) for r in table],
            "best": best,
            "slowest": [max(a, b) for a, b in zip(slow, best, strict=True)],
            "fastest": [min(a, b) for a, b in zip(fast, best, strict=True)],
            "kappa": [1.0 if r.kappa is None else r.kappa for r in table],
            "crowding": [r.crowding or 0.0 for r in table],
            "error": [0.0 if r.error is None else r.error for r in table],
            "pinned": [int(r.status is Status.PINNED) for r in table],
            "settled": [
                int(r.status is Status.PINNED or (r.status is Status.ASSUMED and not e))
                for r, e in zip(table, engine, strict=True)
            ],
            "unknown": [int(r.status is Status.UNKNOWN) for r in table],
            "open": [int(r.status in OPEN_ABOVE) for r in table],
            "instead": [
                number.get(r.confounded_with[0], -1) if r.status is Status.SERIES else k
                for k, r in enumerate(table)
            ],
            "crowd": _crowd(model, names),
        },
        "routes": _routes(model, endpoints, pairs, number),
        "noise": model.noise,
        "undecided": _undecided(model, endpoints),
        "start_up": {
            str(kind): [
                table_of.get(kind, float(np.median(list(table_of.values())))) if table_of else 0.0
                for table_of in (model.offset_s, model.alpha_s)
            ]
            for kind in PatternKind
        },
        "fading": None
        if model.fading is None
        else {
            "loss": model.fading.loss,
            "error": model.fading.error,
            "by_pattern": model.fading.by is Crowd.PATTERN,
            "most_flows": model.fading.most_flows,
        },
        "dominates": DOMINATES,
        "clear_sigmas": CLEAR_SIGMAS,
        "most_bytes": MOST_BYTES,
    }


def _undecided(model: Model, endpoints: Sequence[str]) -> list[list[int]]:
    """Numbers of the endpoints whose sharing the data does not tell: receiving, sending."""
    ends = frozenset(model.undecided_endpoints)
    return [
        [k for k, end in enumerate(endpoints) if side in model.undecided or (end, side) in ends]
        for side in (0, 1)
    ]


def _crowd(model: Model, names: Sequence[str]) -> list[int]:
    """As :attr:`topocal.solve.model.Model.crowd`, of pairs that something connects."""
    ends = model.topology.accelerators or model.topology.endpoints
    pairs = reachable(model, ends) if len(ends) <= _MOST_COUNTED else []
    if not pairs:
        return [0] * len(names)
    lines = incidence(model.topology, pairs)
    counts = np.bincount(lines.matrix.indices, minlength=len(lines.resources))
    place = {name: k for k, name in enumerate(lines.resources)}
    return [int(counts[place[name]]) for name in names]


def _routes(
    model: Model,
    endpoints: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    number: dict[str, int],
) -> list[list[list[float] | None]]:
    """For each sender and receiver: resource, weight, resource, weight …; ``None``: no way."""
    place = {end: k for k, end in enumerate(endpoints)}
    found: list[list[list[float] | None]] = [[None] * len(endpoints) for _ in endpoints]
    if not pairs:
        return found
    lines = incidence(model.topology, pairs)
    matrix, indptr = lines.matrix, lines.matrix.indptr
    columns = {k: number[name] for k, name in enumerate(lines.resources) if name in number}
    for p, (a, b) in enumerate(pairs):
        span = slice(indptr[p], indptr[p + 1])
        flat: list[float] = []
        for k, w in zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True):
            flat += [columns[k], int(w) if w == int(w) else w]
        found[place[a]][place[b]] = flat
    return found

"""All steps from requests to an answer.

Candidates are whole regions (rounded shares, improved and polished; the mixed-integer
program where there are few), split regions, and what other policies do.  The one that ends
first under fair sharing is the answer, so that it is never behind any of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.caps import as_caps
from topocal.solve.model import Model
from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.answer import Assignment, Candidate
from topocal.solve.policy.baselines import BASELINES, baseline
from topocal.solve.policy.choice import Choice, choice_of
from topocal.solve.policy.drafts import Way, drafts
from topocal.solve.policy.fractional import evenly, least_busy, least_work
from topocal.solve.policy.judge import Judge
from topocal.solve.policy.requests import Request
from topocal.solve.policy.settle import settle
from topocal.solve.policy.table import Table, table_of
from topocal.topo.errors import InputError

if TYPE_CHECKING:
    from topocal.solve.caps import Caps
    from topocal.solve.conditions import Conditions

__all__ = ["DEFAULT_MIN_SPLIT_BYTES", "assign", "caps_of_machine", "require_conditions"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEFAULT_MIN_SPLIT_BYTES: Final = 1 << 20
"""Below about a mebibyte the start-up of a message outweighs its bytes on every machine that
docs/references.md lists (tens of microseconds at tens of GB/s)."""

WORTH: Final = 1e-3
"""Regions are split only where that ends so much sooner, relative: parts are messages more."""

_FADING: Final = (
    "on this machine flows get less the more of them there are: the finish allows for that, "
    "the bound and the comparison of candidates do not"
)

_SAME: Final = 1e-9
"""Relative difference that only rounding errors make."""


def assign(
    machine: Model | Caps | PairCosts,
    requests: Sequence[Request],
    *,
    split: bool = True,
    min_split_bytes: int = DEFAULT_MIN_SPLIT_BYTES,
    under: Conditions | None = None,
    allow_stale: bool = False,
) -> Assignment:
    """Choose who sends what so that everything has arrived as soon as possible.

    The same machine and requests give the same answer, to the bit, in any process and with
    any number of cores, in whatever order the requests come.

    Parameters
    ----------
    machine
        A fitted model, its caps, or costs of pairs.
    split
        Whether a region may come from several holders, cut along axis 0.
    min_split_bytes
        Least size of a part of a region that is cut.
    under
        Conditions of the transfer; those of the calibration must be the same where both are
        known.
    allow_stale
        Whether other conditions are allowed, and told in the answer's notes.

    Raises
    ------
    InputError
        When there are no requests, ``min_split_bytes`` is no size, or the calibration is
        stale.
    UnknownEndpointError
        When a request names an endpoint that the machine does not have.
    NoRouteError
        When no holder of a region can reach its target.
    SolverError
        When the linear program fails.
    """
    if type(min_split_bytes) is not int or min_split_bytes < 1:
        raise InputError(
            f"min_split_bytes is {min_split_bytes!r}", remedy="give a number of bytes, 1 or more"
        )
    caps = caps_of_machine(machine)
    _require_requests(requests)
    notes = require_conditions(caps, under, allow_stale=allow_stale)
    if caps is not None and caps.fading is not None:
        notes = (*notes, _FADING)
    costs = machine if isinstance(machine, PairCosts) else PairCosts.of(caps or machine)
    table = table_of(costs, requests)
    others = {name: baseline(name, costs, table) for name in BASELINES}
    n = len(costs.endpoints)
    first = others["first"] * n + table.target
    choice = choice_of(costs, table, also=np.unique(first[others["first"] != table.target]))
    judge = Judge(choice)
    best = least_busy(choice)
    sparse = least_work(choice, best)
    starts = [choice.even, evenly(choice, best), sparse, best.shares]
    shares, _ = settle(choice, judge, [s for s in starts if s is not None], best.bound_s)
    ways = drafts(
        choice,
        table,
        judge,
        [shares, best.shares if sparse is None else sparse],
        others["online"],
        best.bound_s,
        min_split_bytes if split else None,
    )
    rows = np.arange(len(table.target))
    for name, holder in others.items():
        ways.append(Way(name, rows, holder, np.zeros(len(rows), dtype=np.int64), table.rows))
    bytes_of = [_bytes_of(way, table, choice, n) for way in ways]
    is_split = np.array([len(way.row) > len(rows) for way in ways])
    place, busy, fair = _race(judge, bytes_of, is_split)
    candidates = tuple(
        Candidate(
            name=way.name,
            busy_s=float(b),
            fair_s=float(f) if np.isfinite(f) else None,
            parts=len(way.row),
        )
        for way, b, f in zip(ways, busy, fair, strict=True)
    )
    way = ways[place]
    whole_bytes = np.zeros(n * n)
    whole_bytes[choice.pairs] = bytes_of[place]
    busy_of = costs.busy_s(whole_bytes)
    answer_least = 0.0 if caps is None else caps.least_s
    bound = max(best.bound_s + costs.alpha_s, answer_least, 0.0) if best.bound_s > 0 else 0.0
    return Assignment(
        endpoints=costs.endpoints,
        requests=requests,
        order=table.order,
        part_row=way.row,
        part_holder=way.holder,
        part_begin=way.begin,
        part_rows=way.rows,
        chosen=candidates[place],
        candidates=candidates,
        fair_s=float(fair[place]),
        start_up_s=costs.alpha_s,
        least_s=answer_least,
        bound_s=bound,
        bytes_of_pair=whole_bytes,
        bottleneck=costs.resources[int(np.argmax(busy_of))] if busy_of.any() else None,
        caps=caps,
        notes=notes,
    )


def caps_of_machine(machine: Model | Caps | PairCosts) -> Caps | None:
    """The caps of a machine; ``None`` for bare costs.

    Raises
    ------
    InputError
        When it is no machine with speeds.
    """
    return None if isinstance(machine, PairCosts) else as_caps(machine)


def _require_requests(requests: Any) -> None:
    """Refuse what is no list of requests.

    Raises
    ------
    InputError
        Naming what it is.
    """
    remedy = "give a list of topocal.Request; topocal.read_requests reads a file"
    if isinstance(requests, Request | str) or not isinstance(requests, Sequence):
        kind = type(requests).__name__
        raise InputError(f"a {kind} is no list of requests", remedy=remedy, about=requests)
    for number, one in enumerate(requests):
        if not isinstance(one, Request):
            kind = type(one).__name__
            raise InputError(f"request {number} is a {kind}", remedy=remedy, about=one)


def require_conditions(
    caps: Caps | None, under: Conditions | None, *, allow_stale: bool
) -> tuple[str, ...]:
    """Check that caps were calibrated as a transfer runs; what could not be compared.

    Raises
    ------
    InputError
        When they were not, unless allowed.
    """
    if under is None:
        return ()
    if caps is None:
        return ("the calibration's conditions are unknown",)
    return caps.calibration.require_same(under, allow_stale=allow_stale)


def _race(
    judge: Judge, bytes_of: list[Floats], is_split: NDArray[np.bool_]
) -> tuple[int, Floats, Floats]:
    """The best candidate, and busiest time and finish of all.

    Whole regions, unless split ones end :data:`WORTH` sooner.
    """
    busy, fair = np.zeros(len(bytes_of)), np.full(len(bytes_of), np.inf)
    whole, split = np.flatnonzero(~is_split), np.flatnonzero(is_split)
    busy[whole], fair[whole] = judge.race([bytes_of[k] for k in whole])
    best = int(whole[_soonest(fair[whole])])
    busy[split], fair[split] = judge.race(
        [bytes_of[k] for k in split], float(fair[best]) * (1.0 - WORTH)
    )
    if np.isfinite(fair[split]).any():
        other = int(split[_soonest(fair[split])])
        best = other if fair[other] < fair[best] * (1.0 - WORTH) else best
    return best, busy, fair


def _soonest(fair: Floats) -> int:
    """The first of those that end first but for rounding errors."""
    return int(np.argmax(fair <= fair.min() * (1.0 + _SAME)))


def _bytes_of(way: Way, table: Table, choice: Choice, n: int) -> Floats:
    """Shape (P,): bytes of each pair; local copies have none."""
    target = table.target[way.row]
    moves = way.holder != target
    pair = np.searchsorted(choice.pairs, (way.holder * n + target)[moves])
    size = (way.rows * table.row_bytes[way.row])[moves].astype(np.float64)
    found: Floats = np.bincount(pair, size, len(choice.pairs)).astype(np.float64)
    return found

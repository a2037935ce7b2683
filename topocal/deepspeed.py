"""Replica policies for DeepSpeed's transfer planner, which this module never imports.

:class:`ReplicaSelector` is a ``replica_selector`` of ``deepspeed.checkpoint.affine_transfer.
plan_transfer`` (0.19.8): it is asked for one region at a time and keeps count of what every
resource has to do.  :class:`ReplicaPolicy` is a ``replica_policy`` of a planner that asks
for all regions of a sync at once; it can do better, and can split regions.

Both take ranks for endpoints of the machine: process ``r`` of the caps is rank ``r`` unless
told otherwise.  Where trainer and rollout number their ranks apart, ``target_endpoints`` says
where the targets are.

Requests are read by the names of their attributes::

    rank that wants it    target_rank, target, location
    who holds it          candidates (each with source_rank), locations, holders
    region                logical_origin or origin; shape
    parameter             parameter, name            (ReplicaPolicy)
    bytes of an element   element_bytes, itemsize    (else what the policy was told)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.assign import (
    DEFAULT_MIN_SPLIT_BYTES,
    assign,
    caps_of_machine,
    require_conditions,
)
from topocal.solve.policy.baseline_kernel import choose
from topocal.solve.policy.requests import Request
from topocal.topo.errors import InputError, NoRouteError, UnknownEndpointError, one_line
from topocal.topo.wanted import is_amount

if TYPE_CHECKING:
    from topocal.solve.caps import Caps
    from topocal.solve.conditions import Conditions
    from topocal.solve.model import Model
    from topocal.solve.policy.answer import Assignment

__all__ = ["ReplicaPart", "ReplicaPolicy", "ReplicaSelector"]

Ranks = Mapping[int, str] | Sequence[str]
"""Endpoint of each rank."""

_TARGET: Final = ("target_rank", "target", "location")
_HOLDERS: Final = ("candidates", "locations", "holders")
_ORIGIN: Final = ("logical_origin", "origin")
_PARAMETER: Final = ("parameter", "name")
_ELEMENT: Final = ("element_bytes", "itemsize")
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class ReplicaPart:
    """Part of a region that one holder sends, in elements of the whole parameter."""

    source_rank: int
    logical_origin: tuple[int, ...]
    shape: tuple[int, ...]


class _Ranks:
    """Ranks and the endpoints they are on.

    Raises
    ------
    UnknownEndpointError
        When an endpoint is not among those of the machine.
    """

    def __init__(self, costs: PairCosts, ranks: Ranks | None, what: str) -> None:
        given = costs.endpoints if ranks is None else ranks
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        self._what = what
        self._number: dict[int, int] = {}
        for rank, name in pairs:
            if name not in costs.number:
                raise UnknownEndpointError(str(name), costs.endpoints)
            self._number[_integer(rank, "rank")] = costs.number[name]

    def __getitem__(self, rank: int) -> int:
        """Number of the endpoint of a rank.

        Raises
        ------
        InputError
            When the rank is unknown.
        """
        if rank not in self._number:
            known = sorted(self._number)
            shown = ", ".join(map(str, known[:8])) + (", …" if len(known) > 8 else "")
            raise InputError(
                f"{self._what} rank {rank} is at no endpoint",
                remedy=f"the machine has ranks {shown or 'none'}",
                about=rank,
            )
        return self._number[rank]


class ReplicaSelector:
    """Answers one request at a time, as ``plan_transfer(..., replica_selector=…)`` asks.

    Parameters
    ----------
    machine
        A fitted model, its caps, or costs of pairs.
    element_bytes
        Bytes of an element of what is transferred.
    endpoints, target_endpoints
        Endpoint of each source rank and target rank; default: the machine's processes, and
        the same as the sources.
    under, allow_stale
        Conditions of the transfer, which those of the calibration must be unless allowed.

    A local copy is taken where there is one; else the holder that adds least to the sum of the
    16th powers of all resources' busy times, the lowest rank of equals.  All ranks that ask
    the same in the same order get the same.
    """

    def __init__(
        self,
        machine: Model | Caps | PairCosts,
        *,
        element_bytes: int,
        endpoints: Ranks | None = None,
        target_endpoints: Ranks | None = None,
        under: Conditions | None = None,
        allow_stale: bool = False,
    ) -> None:
        caps = caps_of_machine(machine)
        require_conditions(caps, under, allow_stale=allow_stale)
        self._costs = machine if isinstance(machine, PairCosts) else PairCosts.of(caps or machine)
        self._sources = _Ranks(self._costs, endpoints, "source")
        self._targets = _Ranks(
            self._costs, endpoints if target_endpoints is None else target_endpoints, "target"
        )
        self._element_bytes = _positive(element_bytes)
        by_pair = self._costs.seconds_per_byte.tocsc()
        self._ptr = by_pair.indptr.astype(np.int64)
        self._rows = by_pair.indices.astype(np.int64)
        self._cost = by_pair.data.astype(np.float64)
        self.reset()

    def reset(self) -> None:
        """Forget what has been chosen: a new sync begins."""
        self._load = np.zeros(len(self._costs.resources))
        self._top = 0.0

    @property
    def busiest_s(self) -> float:
        """How long the busiest resource takes for all that has been chosen so far."""
        return self._top

    def add(self, source_rank: int, target_rank: int, size_bytes: float) -> None:
        """Count bytes that need no choice, such as regions with one holder.

        Raises
        ------
        InputError
            When a rank is unknown, or the size is no finite number from zero on.
        """
        pair = self._pair(
            _integer(source_rank, "source rank"), _integer(target_rank, "target rank")
        )
        if not is_amount(size_bytes):
            raise InputError(
                f"{one_line(size_bytes)} bytes from rank {source_rank} to rank {target_rank}",
                remedy="give a finite number, zero or more",
                about=size_bytes,
            )
        self._count(pair, size_bytes)

    def __call__(self, request: Any) -> int:
        """The rank that shall send.

        Raises
        ------
        InputError
            When the request lacks something, or names an unknown rank.
        NoRouteError
            When no holder can reach the target.
        """
        target = _integer(_find(request, _TARGET), "target rank")
        place = self._targets[target]
        holders = sorted(_holders(request))
        size = _elements(_find(request, ("shape",))) * self._element_bytes
        local = [rank for rank in holders if self._sources[rank] == place]
        if local:
            return target if target in local else local[0]
        pairs = [self._pair(rank, target) for rank in holders]
        open_ = [k for k, pair in enumerate(pairs) if not self._costs.blocked[pair]]
        if not open_:
            raise NoRouteError(
                f"nothing gets to rank {target} from ranks {', '.join(map(str, holders))}",
                remedy="name a holder that reaches it, or check the capacities on the way",
            )
        columns = np.array([pairs[k] for k in open_], dtype=np.int64)
        best = choose(
            columns, float(size), self._ptr, self._rows, self._cost, self._load, self._top
        )
        self._count(int(columns[best]), size)
        return holders[open_[int(best)]]

    def _pair(self, source_rank: int, target_rank: int) -> int:
        return self._sources[source_rank] * len(self._costs.endpoints) + self._targets[target_rank]

    def _count(self, pair: int, size_bytes: float) -> None:
        lines = slice(int(self._ptr[pair]), int(self._ptr[pair + 1]))
        self._load[self._rows[lines]] += size_bytes * self._cost[lines]
        self._top = max(self._top, float(self._load[self._rows[lines]].max(initial=0.0)))


class ReplicaPolicy:
    """Answers all requests of a sync at once, as ``plan_transfers(..., replica_policy=…)`` asks.

    Parameters
    ----------
    machine, endpoints, target_endpoints, under, allow_stale
        As for :class:`ReplicaSelector`.
    element_bytes
        Bytes of an element where requests do not say it: a number, or a function of the
        parameter.
    split, min_split_bytes
        Whether regions may be cut along axis 0, and the least size of a part.
    make_part
        Makes a part from rank, origin and shape; default :class:`ReplicaPart`.
    """

    def __init__(
        self,
        machine: Model | Caps | PairCosts,
        *,
        element_bytes: int | Callable[[Any], int],
        endpoints: Ranks | None = None,
        target_endpoints: Ranks | None = None,
        split: bool = True,
        min_split_bytes: int = DEFAULT_MIN_SPLIT_BYTES,
        make_part: Callable[[int, tuple[int, ...], tuple[int, ...]], Any] = ReplicaPart,
        under: Conditions | None = None,
        allow_stale: bool = False,
    ) -> None:
        caps = caps_of_machine(machine)
        require_conditions(caps, under, allow_stale=allow_stale)
        self._costs = machine if isinstance(machine, PairCosts) else PairCosts.of(caps or machine)
        self._machine = self._costs if caps is None else caps
        self._sources = _Ranks(self._costs, endpoints, "source")
        self._targets = _Ranks(
            self._costs, endpoints if target_endpoints is None else target_endpoints, "target"
        )
        self._element_bytes = element_bytes if callable(element_bytes) else _positive(element_bytes)
        self._split = split
        self._min_split_bytes = min_split_bytes
        self._make_part = make_part
        self.assignment: Assignment | None = None
        """The last answer: its digest, predicted finish and bound."""

    def __call__(self, requests: Iterable[Any]) -> list[Any]:
        """For each request, in order, the rank that sends it, or its parts along axis 0.

        Raises
        ------
        InputError
            When a request lacks something, or names an unknown rank.
        NoRouteError
            When no holder of a region can reach its target.
        """
        asked: list[Request] = []
        ranks_at: list[dict[str, int]] = []
        for request in requests:
            target = _integer(_find(request, _TARGET), "target rank")
            place = self._targets[target]
            ranks: dict[str, int] = {}
            for rank in sorted(_holders(request), reverse=True):
                ranks[self._costs.endpoints[self._sources[rank]]] = rank
            if target in _holders(request) and self._sources[target] == place:
                ranks[self._costs.endpoints[place]] = target
            asked.append(self._request(request, self._costs.endpoints[place], tuple(ranks)))
            ranks_at.append(ranks)
        if not asked:
            return []
        answer = assign(
            self._machine, asked, split=self._split, min_split_bytes=self._min_split_bytes
        )
        self.assignment = answer
        return [
            ranks[parts[0].holder]
            if len(parts) == 1
            else [self._make_part(ranks[part.holder], part.origin, part.shape) for part in parts]
            for (_, parts), ranks in zip(answer, ranks_at, strict=True)
        ]

    def _request(self, request: Any, target: str, holders: tuple[str, ...]) -> Request:
        parameter = _find(request, _PARAMETER)
        shape = _find(request, ("shape",))
        element = _find(request, _ELEMENT, None)
        if element is None:
            known = self._element_bytes
            element = known(parameter) if callable(known) else known
        return Request(
            parameter=str(parameter),
            target=target,
            holders=holders,
            origin=tuple([_integer(k, "origin") for k in _find(request, _ORIGIN)]),
            shape=tuple([_integer(k, "shape") for k in shape]),
            element_bytes=_positive(element),
        )


def _find(request: Any, names: Sequence[str], default: Any = _NOTHING) -> Any:
    """The first attribute (or item of a mapping) that is there.

    Raises
    ------
    InputError
        When none is, and there is no default.
    """
    for name in names:
        if isinstance(request, Mapping):
            if name in request:
                return request[name]
        elif hasattr(request, name):
            return getattr(request, name)
    if default is not _NOTHING:
        return default
    raise InputError(
        f"a {type(request).__name__} has no {names[0]}",
        remedy=f"give requests with {' or '.join(names)}",
        about=request,
    )


def _holders(request: Any) -> set[int]:
    """Ranks that hold a region.

    Raises
    ------
    InputError
        When nobody does.
    """
    found = set()
    for holder in _find(request, _HOLDERS):
        rank = getattr(holder, "source_rank", holder)
        if isinstance(holder, Mapping):
            rank = _find(holder, ("source_rank",))
        found.add(_integer(rank, "holder"))
    if not found:
        raise InputError("a request has no holders", remedy="name at least one", about=request)
    return found


def _integer(value: Any, what: str) -> int:
    """A whole number, as Python's own kind: planners compare types.

    Raises
    ------
    InputError
        When it is none.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{what} {one_line(value)} is no whole number", remedy="give one")
    return int(value.__index__())


def _positive(value: Any) -> int:
    number = _integer(value, "element_bytes")
    if number < 1:
        raise InputError(f"element_bytes is {number}", remedy="give the bytes of an element")
    return number


def _elements(shape: Iterable[Any]) -> int:
    count = 1
    for size in shape:
        count *= _integer(size, "shape")
    return count

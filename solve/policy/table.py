"""Requests as arrays in an order that does not depend on how they were given.

Requests are sorted by parameter, target, origin, shape and holders: what is computed from
the table is the same on every rank, whatever order the requests came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.requests import Request
from topocal.topo.errors import InputError, NoRouteError, UnknownEndpointError

__all__ = ["LOCAL", "Table", "table_of"]

Ints = NDArray[np.int64]

LOCAL = -1
"""Group of requests whose target holds the region itself."""


@dataclass(frozen=True, eq=False)
class Table:
    """Requests in their fixed order, N of them, in G groups of one target and holder set.

    Attributes
    ----------
    requests
        As they were given.
    order
        Shape (N,): place of each row in ``requests``.
    target
        Shape (N,): number of the endpoint.
    rows, row_bytes, size_bytes
        Shape (N,).
    group
        Shape (N,): :data:`LOCAL` where the target holds the region.
    group_target
        Shape (G,).
    group_holders
        Numbers of the endpoints that can send, lowest first.
    """

    requests: Sequence[Request]
    order: Ints
    target: Ints
    rows: Ints
    row_bytes: Ints
    size_bytes: Ints
    group: Ints
    group_target: Ints
    group_holders: tuple[tuple[int, ...], ...]


def table_of(costs: PairCosts, requests: Sequence[Request]) -> Table:
    """Sort, number and group.

    Raises
    ------
    InputError
        When there are no requests, or more bytes than can be counted.
    UnknownEndpointError
        When a request names an endpoint that the costs do not have.
    NoRouteError
        When no holder can reach the target.
    """
    if not requests:
        raise InputError("no requests", remedy="give at least one")
    number = costs.number
    sets: dict[tuple[str, ...], tuple[int, ...]] = {}
    keys = []
    for k, request in enumerate(requests):
        holders = sets.get(request.holders)
        try:
            if holders is None:
                holders = tuple(sorted([number[name] for name in request.holders]))
                sets[request.holders] = holders
            target = number[request.target]
        except KeyError as error:
            raise UnknownEndpointError(str(error.args[0]), costs.endpoints) from error
        keys.append(
            (
                request.parameter,
                target,
                request.origin,
                request.shape,
                request.element_bytes,
                holders,
                k,
            )
        )
    keys.sort()
    order = [key[-1] for key in keys]
    groups: dict[tuple[int, tuple[int, ...]], int] = {}
    group = []
    for _, target, _, _, _, holders, _ in keys:
        local = target in holders
        group.append(LOCAL if local else groups.setdefault((target, holders), len(groups)))
    # Groups by target and holders, lowest first, whatever the parameters are called.
    ranked = sorted(groups)
    place = np.empty(len(ranked) + 1, dtype=np.int64)
    place[LOCAL] = LOCAL
    for new, key in enumerate(ranked):
        place[groups[key]] = new
    rows = [requests[k].rows for k in order]
    row_bytes = [requests[k].row_bytes for k in order]
    if sum(map(int.__mul__, rows, row_bytes)) > 2**62:
        raise InputError("more bytes than can be counted", remedy="check shapes and element_bytes")
    rows_of, row_bytes_of = np.array(rows, dtype=np.int64), np.array(row_bytes, dtype=np.int64)
    return Table(
        requests=requests,
        order=np.array(order, dtype=np.int64),
        target=np.array([key[1] for key in keys], dtype=np.int64),
        rows=rows_of,
        row_bytes=row_bytes_of,
        size_bytes=rows_of * row_bytes_of,
        group=place[np.array(group, dtype=np.int64)],
        group_target=np.array([target for target, _ in ranked], dtype=np.int64),
        group_holders=tuple(_reaching(costs, target, holders) for target, holders in ranked),
    )


def _reaching(costs: PairCosts, target: int, holders: tuple[int, ...]) -> tuple[int, ...]:
    """The holders from which bytes get to the target.

    Raises
    ------
    NoRouteError
        When there are none.
    """
    n = len(costs.endpoints)
    found = tuple(holder for holder in holders if not costs.blocked[holder * n + target])
    if not found:
        names = ", ".join(costs.endpoints[holder] for holder in holders)
        raise NoRouteError(
            f"nothing gets to {costs.endpoints[target]} from {names}",
            remedy="name a holder that reaches it, or check the capacities on the way",
        )
    return found

"""Which NIC an endpoint uses to reach other nodes.

The nearest by path class; among those the fastest, where speeds are known; then
the one on the endpoint's own rail (the same ``rail`` or ``index``); then the
one that fewer endpoints use, so that equally near NICs are shared out evenly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.resource import NodeKind, PathClass

__all__ = ["Candidates", "Choice", "choose_gateways", "rail_of"]

Ints = NDArray[np.int64]


def rail_of(name: str, attributes: Mapping[str, Any]) -> int:
    """Number of an endpoint's rail: ``rail``, else ``index``, else the last number in its name.

    >>> rail_of("node1/gpu3", {})
    3

    Returns
    -------
    The number, or -1 where nothing says it.
    """
    for key in ("rail", "index"):
        value = attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
    digits = re.findall(r"\d{1,9}", name.rpartition("/")[2])
    return int(digits[-1]) if digits else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Pairs of an endpoint and a gateway that it can reach and be reached from.

    Attributes
    ----------
    endpoint, gateway
        Shape (pairs,), node numbers; sorted by endpoint, then gateway.
    network
        Shape (pairs,), which network the gateway is on.
    path_class
        Shape (pairs,), codes.
    hops_cost
        Shape (pairs,), what the way to the gateway costs.
    """

    endpoint: Ints
    gateway: Ints
    network: Ints
    path_class: NDArray[np.int64]
    hops_cost: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Chosen gateways, shape (nodes, networks).

    Attributes
    ----------
    gateway
        Node numbers, -1 where there is none.
    score
        Path class of the way there, plus less than one for slower gateways; the
        network of the least sum of both ends' scores is taken.
    """

    gateway: Ints
    score: NDArray[np.float64]


def choose_gateways(
    candidates: Candidates,
    *,
    kinds: Sequence[NodeKind],
    rails: Ints,
    speed: NDArray[np.float64],
    networks: int,
) -> Choice:
    """One gateway per endpoint and network.

    Parameters
    ----------
    kinds, rails
        Per node.
    speed
        Per node, bytes per second of a gateway's port; NaN where unknown, which counts as
        the fastest that is known.
    """
    gateway = np.full((len(kinds), networks), -1, dtype=np.int64)
    score = np.full((len(kinds), networks), np.inf)
    if len(candidates.endpoint) == 0:
        return Choice(gateway=gateway, score=score)
    slowness = _slowness(speed)[candidates.gateway]
    own = rails[candidates.endpoint]
    off_rail = (own < 0) | (own != rails[candidates.gateway])
    later = np.array([kind is not NodeKind.GPU for kind in kinds])[candidates.endpoint]
    # GPUs choose before memory and processors do, so that these do not disturb their balance.
    order = np.lexsort(
        (
            candidates.gateway,
            candidates.hops_cost,
            off_rail,
            slowness,
            candidates.path_class,
            candidates.network,
            candidates.endpoint,
            later,
        )
    )
    grade = np.stack(
        [
            candidates.path_class[order].astype(np.float64),
            slowness[order],
            off_rail[order].astype(np.float64),
            candidates.hops_cost[order],
        ],
        axis=1,
    )
    owner = candidates.endpoint[order] * networks + candidates.network[order]
    begins = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    group = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(owner))))
    equal = (grade == grade[begins[group]]).all(axis=1)
    many = np.bincount(group, weights=equal).astype(np.int64)
    used = np.zeros(len(kinds), dtype=np.int64)
    chosen = candidates.gateway[order][begins]
    np.add.at(used, chosen[many == 1], 1)
    for k in np.flatnonzero(many > 1):
        choices = candidates.gateway[order[begins[k] : begins[k] + many[k]]]
        chosen[k] = choices[np.argmin(used[choices])]
        used[chosen[k]] += 1
    at = owner[begins]
    gateway.flat[at] = chosen
    score.flat[at] = grade[begins, 0] + 0.4 * grade[begins, 1]
    # Paying for an own port is never right: whoever has one is on that network.
    own_port = candidates.path_class[order][begins] == PathClass.LOC
    score.flat[at[own_port]] = 0.0
    return Choice(gateway=gateway, score=score)


def _slowness(speed: NDArray[np.float64]) -> NDArray[np.float64]:
    """0 for the fastest and for unknown speeds, towards 1 for slower ones."""
    known = np.isfinite(speed)
    if not known.any():
        return np.zeros(len(speed))
    distinct = np.unique(speed[known])[::-1]
    slow = np.searchsorted(-distinct, -np.where(known, speed, distinct[0]))
    found: NDArray[np.float64] = slow / len(distinct)
    return found

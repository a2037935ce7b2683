"""A fabric with something wrong.  Pure functions from blueprint to blueprint.

What goes wrong while a fabric runs (a capacity that changes, traffic of others) is asked of
:class:`~topocal.measure.fabric.emulated.Fabric`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from topocal.measure.fabric.blueprint import Blueprint, FabricLink, Ingress, Pool
from topocal.topo.errors import InputError, UnknownEndpointError, one_line

__all__ = ["half_duplex", "limit_ingress", "slow"]


def slow(blueprint: Blueprint, link: str, factor: float) -> Blueprint:
    """One direction of one connection passes ``factor`` of what it did.

    Raises
    ------
    InputError
        When there is no such link, it has no capacity, or the factor is not above zero.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"a factor of {factor}", remedy="give a number above zero, such as 0.5")
    known = _link(blueprint, link)
    if known.capacity_Bps is None:
        raise InputError(f"{link} has no capacity of its own", remedy="choose another link")
    changed = replace(known, capacity_Bps=known.capacity_Bps * factor)
    links = tuple(changed if x.id == link else x for x in blueprint.links)
    return replace(blueprint, links=links)


def half_duplex(blueprint: Blueprint, link: str, capacity_Bps: float | None = None) -> Blueprint:
    """Both directions of a connection share one capacity: the larger of theirs unless told.

    Raises
    ------
    InputError
        When there is no such link, nothing says its capacity, or it shares one already.
    """
    known = _link(blueprint, link)
    back = blueprint.link[known.reverse]
    if any(pool.link in (known.id, back.id) for pool in blueprint.pools):
        raise InputError(f"{link} is half-duplex already", remedy="name each connection once")
    rates = [x.capacity_Bps for x in (known, back) if x.capacity_Bps is not None]
    if capacity_Bps is None:
        if not rates:
            raise InputError(f"{link} has no capacity", remedy="choose another link")
        capacity_Bps = max(rates)
    pool = Pool(
        id=f"{known.tail}<->{known.head}", link=known.id, capacity_Bps=_positive(capacity_Bps)
    )
    alone = {known.id: replace(known, capacity_Bps=None), back.id: replace(back, capacity_Bps=None)}
    links = tuple(alone.get(x.id, x) for x in blueprint.links)
    return replace(blueprint, links=links, pools=(*blueprint.pools, pool))


def limit_ingress(
    blueprint: Blueprint, endpoint: str, capacity_Bps: float, sources: Sequence[str] = ()
) -> Blueprint:
    """An endpoint takes in no more than a rate, which nothing in the topology shows.

    Parameters
    ----------
    sources
        Only what these send counts; what all send unless told.

    Raises
    ------
    UnknownEndpointError
        When there is no such endpoint.
    InputError
        When the rate is not above zero, or the endpoint has a limit already.
    """
    for name in (endpoint, *sources):
        if name not in blueprint.rank:
            raise UnknownEndpointError(name, blueprint.endpoints)
    if blueprint.ingress_of(endpoint) is not None:
        raise InputError(f"{endpoint} has an ingress limit already", remedy="name it once")
    limit = Ingress(endpoint=endpoint, capacity_Bps=_positive(capacity_Bps), sources=tuple(sources))
    return replace(blueprint, ingress=(*blueprint.ingress, limit))


def _link(blueprint: Blueprint, link: str) -> FabricLink:
    if link not in blueprint.link:
        raise InputError(
            f"the fabric has no link {one_line(link)!r}",
            remedy="it has " + ", ".join(x.id for x in blueprint.links[:8]) + " …",
        )
    return blueprint.link[link]


def _positive(rate_Bps: float) -> float:
    if not (math.isfinite(rate_Bps) and rate_Bps > 0):
        raise InputError(f"a capacity of {rate_Bps}", remedy="give bytes per second above zero")
    return rate_Bps

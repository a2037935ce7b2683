"""The uplinks that staged copies cross twice, as resources of their own.

A copy between two GPUs that are no peers goes up to host memory and down again.
Where both lie under one uplink it crosses that link in both directions, and the
two directions turn out not to be independent: on public boxes with RTX 2080 Ti
and RTX 4090 cards, staged copies one way and both ways move the same total.  The
resource that explains it counts a staged byte twice, once up and once down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from topocal.topo.naming import natural_key
from topocal.topo.resource import Resource, Sharing, Use
from topocal.topo.topology import Topology

__all__ = ["with_staging_resources"]

_SOURCE: Final = "assumed: staged copies up and down together pass what one direction does"


def with_staging_resources(topology: Topology) -> Topology:
    """A copy with one resource for each connection that some staged copy crosses both ways.

    Returns
    -------
    Resources ``staged:<a><-><b>`` of sharing ``duplex``, loaded with weight 2 by the copies
    that go up and down there; the same topology where no copy is staged.
    """
    twice = _crossed_twice(topology)
    if not twice:
        return topology
    resources, uses = [], []
    for (up, down), pairs in twice.items():
        forth, back = topology.links[up], topology.links[down]
        rates = (forth.nominal_Bps, back.nominal_Bps)
        known = [rate for rate in rates if rate is not None]
        name = f"staged:{up.replace('->', '<->')}"
        resources.append(
            Resource(
                id=name,
                sharing=Sharing.DUPLEX,
                nominal_Bps=min(known) if len(known) == 2 else None,
                label=f"staged copies on {forth.tail}–{forth.head}",
                source=_SOURCE if len(known) == 2 else "",
            )
        )
        for sources, destinations in _blocks(pairs):
            uses.append(Use(resource=name, sources=sources, destinations=destinations, weight=2.0))
    return topology.with_resources(resources, uses)


def _crossed_twice(topology: Topology) -> dict[tuple[str, str], dict[str, set[str]]]:
    """``{(link, its other direction): {source: destinations}}`` of the staged copies."""
    routes = topology.routes()
    found: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    if routes.staged is None:
        return found
    for i, j in zip(*routes.staged.nonzero(), strict=True):
        source, destination = routes.endpoints[i], routes.endpoints[j]
        crossed = routes.route(source, destination)
        for link in crossed:
            other = topology.links[link].reverse
            if other not in crossed or other is None:
                continue
            up, down = sorted((link, other), key=natural_key)
            if topology.links[up].uses != topology.links[down].uses:
                found[up, down][source].add(destination)
    return found


def _blocks(
    pairs: Mapping[str, set[str]],
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """``pairs`` as sets of sources and destinations of which every pair counts.

    A pair from an endpoint to itself never loads anything, so the members of one
    switch make one block.
    """
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for source, destinations in pairs.items():
        groups[frozenset(destinations | {source})].append(source)
    for members, sources in groups.items():
        if members <= set(sources) or len(sources) == 1:
            yield _sorted(sources), _sorted(members)
        else:
            for source in sources:
                yield (source,), _sorted(members - {source})


def _sorted(names: list[str] | frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=natural_key))

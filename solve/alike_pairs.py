"""Pairs that should read alike: by what the topology says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from topocal.solve.evidence import Evidence, Pair

__all__ = ["alike", "by_ends", "in_groups"]


def alike(evidence: Evidence) -> dict[Pair, Hashable]:
    """For each measured pair a key that pairs share which the topology says are alike.

    The same path class, the same makes of ends and of links (kind, nominal capacity,
    direction of travel), staged or not.
    """
    if not evidence.rates:
        return {}
    topology = evidence.topology
    routes = topology.routes(evidence.endpoints)
    nodes, links = topology.graph.nodes, topology.links
    make = {
        e: (str(nodes[e]["kind"]), str(nodes[e].get("model", "")), evidence.is_host(e))
        for e in evidence.endpoints
    }
    parts = [(str(links[k].kind), links[k].nominal_Bps or 0.0) for k in routes.links]
    found: dict[Pair, Hashable] = {}
    for pair in evidence.rates:
        index = routes.pair_index(*pair)
        span = slice(routes.indptr[index], routes.indptr[index + 1])
        found[pair] = (
            int(routes.path_class.flat[index]),
            bool(routes.staged.flat[index]) if routes.staged is not None else False,
            make[pair[0]],
            make[pair[1]],
            tuple(parts[k] for k in routes.indices[span]),
        )
    return found


def in_groups(evidence: Evidence) -> dict[Hashable, list[Pair]]:
    """Pairs by what makes them alike."""
    found: dict[Hashable, list[Pair]] = defaultdict(list)
    for pair, key in alike(evidence).items():
        found[key].append(pair)
    return found


def by_ends(evidence: Evidence) -> dict[Hashable, list[Pair]]:
    """Pairs by whether either end is the host's memory."""
    found: dict[Hashable, list[Pair]] = defaultdict(list)
    for pair in evidence.rates:
        found[evidence.is_host(pair[0]), evidence.is_host(pair[1])].append(pair)
    return found

"""The same machine under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import networkx as nx

from topocal.topo.errors import TopologyError
from topocal.topo.naming import natural_key
from topocal.topo.topology import Topology

__all__ = ["rename_nodes", "with_prefix"]


def with_prefix(topology: Topology, prefix: str) -> Topology:
    """A copy in which every id begins with ``prefix``."""
    return rename_nodes(topology, {node: prefix + node for node in topology.graph.nodes}, prefix)


def rename_nodes(topology: Topology, names: Mapping[str, str], prefix: str = "") -> Topology:
    """A copy with other node ids.

    Links and resources that are named after the nodes they join are renamed with
    them; other resources get ``prefix``.

    Parameters
    ----------
    names
        New id of each node; nodes that it does not name keep theirs.

    Raises
    ------
    TopologyError
        When two nodes would have the same id.
    """
    graph = topology.graph
    whole = {node: names.get(node, node) for node in graph.nodes}
    if len(set(whole.values())) < len(whole):
        raise TopologyError("two nodes would have the same id", remedy="give each its own")
    rename = _renamer(whole, prefix)
    out = nx.MultiDiGraph()
    for node, data in graph.nodes(data=True):
        out.add_node(whole[node], **data)
    for tail, head, key, data in graph.edges(keys=True, data=True):
        changed: dict[str, Any] = dict(data)
        changed["uses"] = tuple((rename(r), w) for r, w in data.get("uses", ()))
        if data.get("reverse") is not None:
            changed["reverse"] = rename(data["reverse"])
        out.add_edge(whole[tail], whole[head], key=rename(key), **changed)
    resources = [replace(r, id=rename(r.id)) for r in topology.resources.values()]
    uses = [
        replace(
            use,
            resource=rename(use.resource),
            sources=_all(whole, use.sources),
            destinations=_all(whole, use.destinations),
        )
        for use in topology.uses
    ]
    out.graph.update(graph.graph)
    out.graph.update(
        resources={r.id: r for r in sorted(resources, key=lambda r: natural_key(r.id))}, uses=uses
    )
    for attribute in ("no_peer_pairs", "stated_classes", "class_overrides"):
        if attribute in graph.graph:
            out.graph[attribute] = [
                [whole.get(a, a), whole.get(b, b), *more] for a, b, *more in graph.graph[attribute]
            ]
    return Topology(out)


def _all(names: Mapping[str, str], chosen: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if chosen is None else tuple(names[name] for name in chosen)


def _renamer(names: Mapping[str, str], prefix: str) -> Callable[[str], str]:
    def rename(id: str) -> str:
        """``a->b``, ``a<->b`` and either with ``#2`` follow their nodes."""
        for arrow in ("<->", "->"):
            tail, found, rest = id.partition(arrow)
            head, mark, number = rest.partition("#")
            if found and tail in names and head in names:
                return f"{names[tail]}{arrow}{names[head]}{mark}{number}"
        return names.get(id, prefix + id)

    return rename

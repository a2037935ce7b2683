"""Hanging host bridges on the sockets that another file names.

``lspci`` draws the tree below each root bus and says nothing of sockets: its
reader puts all on one.  A file that places the devices (``topo -m``, NCCL's XML)
tells which socket each root bus belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx

from topocal.topo.match import Match
from topocal.topo.resource import LinkKind, NodeKind, Resource
from topocal.topo.topology import Topology, natural_key
from topocal.topo.view import View

__all__ = ["reroot"]


def reroot(base: View, other: View, match: Match) -> Topology | None:
    """The first topology on the sockets of the second, where only the second names any.

    What hangs below the first one's socket moves to the socket of the devices below
    it; what nothing places stays on a node between the sockets.

    Returns
    -------
    ``None`` where the first file has sockets of its own, or the second no more than one.
    """
    old = base.unstated_socket
    sockets = [s for s in other.of_kind(NodeKind.SOCKET) if other.get(s, "label") != _UNSTATED]
    if old is None or len(sockets) < 2:
        return None
    homes = {child: _home(child, base, other, match) for child in _children(base, old)}
    return _Move(base, other, old, sockets, homes).topology()


_UNSTATED = "socket not stated"


def _children(base: View, socket: str) -> list[str]:
    found = {node for node, (upper, _) in base.above.items() if upper == socket}
    return sorted(found, key=natural_key)


def _home(child: str, base: View, other: View, match: Match) -> str | None:
    """The other file's socket of the devices below a node, where they agree on one."""
    devices = [child, *base.below.get(child, ())]
    tops = {
        other.chain(match.endpoints[device])[-1] for device in devices if device in match.endpoints
    }
    sockets = {top for top in tops if other.graph.nodes[top]["kind"] is NodeKind.SOCKET}
    return sockets.pop() if len(sockets) == len(tops) == 1 else None


class _Move:
    """Builds the new graph."""

    def __init__(
        self,
        base: View,
        other: View,
        old: str,
        sockets: list[str],
        homes: Mapping[str, str | None],
    ) -> None:
        self._base = base
        self._other = other
        self._old = old
        self._names = {socket: self._free(socket) for socket in sockets}
        touching = {*base.graph.predecessors(old), *base.graph.successors(old)}
        whole = all(homes.get(node) is not None for node in touching)
        self._between = None if whole else self._free("socket-unknown")
        self._upper = {
            node: self._between if home is None else self._names[home]
            for node, home in ((node, homes.get(node)) for node in touching)
        }
        self._graph = nx.MultiDiGraph()

    def _free(self, name: str) -> str:
        while name != self._old and name in self._base.graph:
            name += "'"
        return name

    def topology(self) -> Topology:
        base, old = self._base.graph, self._old
        self._graph.graph.update(base.graph)
        self._graph.add_nodes_from((n, d) for n, d in base.nodes(data=True) if n != old)
        for socket, name in self._names.items():
            self._graph.add_node(name, **self._other.graph.nodes[socket])
        if self._between is not None:
            self._graph.add_node(self._between, **{**base.nodes[old], "label": _UNSTATED})
        ends = {
            key: (
                self._upper[head] if tail == old else tail,
                self._upper[tail] if head == old else head,
            )
            for tail, head, key in base.edges(keys=True)
        }
        names = {
            key: f"{ends[key][0]}->{ends[key][1]}" + "".join(key.partition("#")[1:])
            for tail, head, key in base.edges(keys=True)
            if old in (tail, head)
        }
        for _, _, key, data in base.edges(keys=True, data=True):
            changed: dict[str, Any] = dict(data)
            changed["uses"] = tuple((names.get(r, r), weight) for r, weight in data["uses"])
            changed["reverse"] = names.get(data.get("reverse"), data.get("reverse"))
            self._graph.add_edge(*ends[key], key=names.get(key, key), **changed)
        self._resources = {
            names.get(name, name): replace(resource, id=names.get(name, name))
            for name, resource in self._base.topology.resources.items()
        }
        self._graph.graph["uses"] = [
            replace(use, resource=names.get(use.resource, use.resource))
            for use in base.graph["uses"]
        ]
        self._join()
        table = sorted(self._resources.items(), key=lambda item: natural_key(item[0]))
        self._graph.graph["resources"] = dict(table)
        return Topology(self._graph)

    def _join(self) -> None:
        """Links between the sockets, and from each to what nothing places."""
        table = self._other.topology.resources
        for tail, head, data in self._other.graph.edges(data=True):
            if data["kind"] is LinkKind.SMP and tail in self._names and head in self._names:
                own = table[data["uses"][0][0]] if data["uses"] else None
                more = {k: v for k, v in data.items() if k not in ("uses", "reverse")}
                self._connect(self._names[tail], self._names[head], own, more)
        for name in self._names.values() if self._between is not None else ():
            more = {"kind": LinkKind.SMP, "nominal_Bps": None}
            self._connect(name, str(self._between), None, more)
            self._connect(str(self._between), name, None, more)

    def _connect(
        self, tail: str, head: str, like: Resource | None, data: Mapping[str, Any]
    ) -> None:
        if self._graph.has_edge(tail, head):
            return
        key = f"{tail}->{head}"
        self._resources[key] = Resource(id=key) if like is None else replace(like, id=key)
        self._graph.add_edge(
            tail, head, key=key, **data, uses=((key, 1.0),), reverse=f"{head}->{tail}"
        )

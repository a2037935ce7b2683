"""Routes of any pairs of endpoints on one machine.

Two layers of chains (:mod:`topocal.topo.layer`): inside a machine everything
but networks, where switches, bridges and sockets pass traffic on and endpoints
do not; and the networks, where network switches do.  A pair that the first
layer connects stays inside.  Otherwise each end goes by its gateway
(:mod:`topocal.topo.gateways`) and the network joins them.  Where peer access is
off, a copy is staged: it goes to host memory, or to the root above it, and from
there to its destination.  What is still not connected may be relayed by other
endpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.cheapest import components
from topocal.topo.gateways import Candidates, Choice, choose_gateways, rail_of
from topocal.topo.layer import Chains, Layer, distinct, pairs_within
from topocal.topo.naming import natural_key
from topocal.topo.path_class import classify, count_table, hops_of, pack
from topocal.topo.resource import LinkKind, NodeKind, PathClass

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["LINK_COST", "Found", "Router"]

Ints = NDArray[np.int64]

LINK_COST: Final = {
    LinkKind.NVLINK: 1.0,
    LinkKind.XGMI: 1.0,
    LinkKind.XELINK: 1.0,
    LinkKind.FABRIC: 1.0,
    LinkKind.C2C: 10.0,
    LinkKind.MEMORY: 10.0,
    LinkKind.PCIE: 100.0,
    LinkKind.UNKNOWN: 100.0,
    LinkKind.SMP: 10_000.0,
    LinkKind.NET: 1_000_000.0,
}
"""What a link costs a route, by kind.

Only the order of magnitude matters: one link of a dearer kind outweighs any
number of cheaper ones that a real machine chains.  Whole numbers, so that
equal routes cost exactly the same.
"""

_RELAY_COST: Final = 1e9
"""What passing through an endpoint costs: more than anything else."""

_STAGES: Final = (NodeKind.MEMORY, NodeKind.SOCKET, NodeKind.HOST_BRIDGE)
"""Where a copy is staged, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Routes of ``q`` pairs.

    Attributes
    ----------
    rows
        Shape (q, longest), link numbers in order of travel, with -1 anywhere between.
    path_class
        Shape (q,), codes.
    staged
        Shape (q,), whether the copy is staged in host memory.
    """

    rows: NDArray[np.int32]
    path_class: NDArray[np.int8]
    staged: NDArray[np.bool_]


class Router:
    """Finds routes on a topology; what pairs have in common is worked out once.

    Parameters
    ----------
    topology
        The machine.
    """

    def __init__(self, topology: Topology) -> None:
        graph = topology.graph
        self._names = sorted(graph.nodes, key=natural_key)
        self.number = {name: k for k, name in enumerate(self._names)}
        """Number of each node, in natural order of ids."""
        links = list(topology.links.values())
        self.links = tuple(link.id for link in links)
        """Link ids by number, in natural order."""
        self._kinds = [graph.nodes[name]["kind"] for name in self._names]
        self._endpoint = np.array([kind.is_endpoint for kind in self._kinds], dtype=bool)
        self._is_gpu = np.array([kind is NodeKind.GPU for kind in self._kinds], dtype=bool)
        self._tail = np.array([self.number[link.tail] for link in links], dtype=np.int64)
        self._head = np.array([self.number[link.head] for link in links], dtype=np.int64)
        self._cost = np.array([LINK_COST[link.kind] for link in links])
        heads = [self._kinds[k] for k in self._head]
        self._counts = count_table([link.kind for link in links], heads)
        self._packed = pack(self._counts)
        on_net = np.array([link.kind is LinkKind.NET for link in links], dtype=bool)
        self._peer_access = graph.graph.get("peer_access")
        self._read_stated(topology)
        self._build_layers(on_net)
        self._choose_gateways(topology, on_net)

    def _read_stated(self, topology: Topology) -> None:
        """What the graph says of single pairs: their class, or that they are no peers."""
        graph, n = topology.graph, len(self._names)
        self._link_class = np.full(len(self.links) + 1, -1, dtype=np.int8)
        stated = {
            key: data["path_class"]
            for _, _, key, data in graph.edges(keys=True, data=True)
            if "path_class" in data
        }
        for k, link in enumerate(self.links):
            if link in stated:
                self._link_class[k] = PathClass[stated[link]]
        # Nothing tells how far a link of unknown kind reaches: nothing nearer is claimed.
        of_unknown_kind = np.array(
            [link.kind is LinkKind.UNKNOWN for link in topology.links.values()] + [False]
        )
        joins = np.append(self._endpoint[self._tail] & self._endpoint[self._head], False)
        self._unknown = of_unknown_kind & joins
        self._link_class[self._unknown & (self._link_class < 0)] = PathClass.SYS
        overrides = graph.graph.get("class_overrides") or ()
        keys = [self.number[a] * n + self.number[b] for a, b, _ in overrides]
        order = np.argsort(keys, kind="stable").astype(np.int64)
        self._override_key = np.array(keys, dtype=np.int64)[order]
        codes = np.array([PathClass[c] for _, _, c in overrides], dtype=np.int8)
        self._override_class = codes[order]
        denied = graph.graph.get("no_peer_pairs") or ()
        both = {(self.number[a], self.number[b]) for a, b, *_ in denied}
        both |= {(b, a) for a, b in both}
        self._denied_key = np.array(sorted(a * n + b for a, b in both), dtype=np.int64)

    def _build_layers(self, on_net: NDArray[np.bool_]) -> None:
        n = len(self._names)
        touches_net = np.zeros(n, dtype=bool)
        touches_net[self._tail[on_net]] = touches_net[self._head[on_net]] = True
        inside = np.zeros(n, dtype=bool)
        inside[self._tail[~on_net]] = inside[self._head[~on_net]] = True
        switch = np.array([kind is NodeKind.NET_SWITCH for kind in self._kinds], dtype=bool)
        # A switch that is also wired to the machine itself is its own gateway.
        self._gateway = touches_net & (~switch | inside)
        stage = np.array([kind in _STAGES for kind in self._kinds], dtype=bool)
        ends = np.flatnonzero(self._endpoint | self._gateway | stage)
        self._inner = Layer(
            ~self._endpoint,
            ends,
            np.flatnonzero(~on_net),
            self._tail,
            self._head,
            self._cost,
        )
        self._outer = Layer(
            switch,
            np.flatnonzero(self._gateway),
            np.flatnonzero(on_net),
            self._tail,
            self._head,
            self._cost,
        )
        self._machine = self._components(~on_net)
        self._island = self._components(np.ones(len(on_net), dtype=bool))

    def _components(self, links: NDArray[np.bool_]) -> Ints:
        return components(len(self._names), self._tail[links], self._head[links])

    def _choose_gateways(self, topology: Topology, on_net: NDArray[np.bool_]) -> None:
        network = self._components(on_net)
        gateways = np.flatnonzero(self._gateway)
        kept, label = np.unique(network[gateways], return_inverse=True)
        self._networks = len(kept)
        place = np.full(len(self._names), -1, dtype=np.int64)
        place[gateways] = label
        ends = np.flatnonzero(self._endpoint)
        # An endpoint's own port is for itself alone; NICs and nodes that pass traffic serve all.
        serves = np.array([k is NodeKind.NIC or not k.is_endpoint for k in self._kinds], dtype=bool)
        serving = gateways[serves[gateways]]
        e, at = pairs_within(ends, self._machine[ends], self._machine[serving])
        g = serving[at]
        own = ends[self._gateway[ends] & ~serves[ends]]
        e, g = np.concatenate([e, own]), np.concatenate([g, own])
        there, back = self._inner.chains(e, g), self._inner.chains(g, e)
        cost = np.maximum(there.cost, back.cost)
        near = np.maximum(self._classes(e, g, there), self._classes(g, e, back))
        reached = np.isfinite(cost)
        # A NIC speaks for itself only.
        nic = np.array([k is NodeKind.NIC for k in self._kinds], dtype=bool)
        reached &= ~nic[e] | (e == g)
        speed = np.full(len(self._names), np.nan)
        ports = np.flatnonzero(on_net)
        all_links = list(topology.links.values())
        for k in ports:
            rate = all_links[k].nominal_Bps
            if rate is not None:
                node = self._tail[k]
                speed[node] = rate if np.isnan(speed[node]) else speed[node] + rate
        nodes = topology.graph.nodes
        rails = np.array([rail_of(name, nodes[name]) for name in self._names], dtype=np.int64)
        order = np.lexsort((g[reached], e[reached]))
        self._choice: Choice = choose_gateways(
            Candidates(
                endpoint=e[reached][order],
                gateway=g[reached][order],
                network=place[g[reached][order]],
                path_class=near[reached][order].astype(np.int64),
                hops_cost=cost[reached][order],
            ),
            kinds=self._kinds,
            rails=rails,
            speed=speed,
            networks=self._networks,
        )

    def _classes(self, source: Ints, destination: Ints, chains: Chains) -> NDArray[np.int8]:
        """Classes of pairs inside a machine; a stated one wins over what is crossed."""
        per_path = pack(self._counts[chains.table].sum(axis=1, dtype=np.int16))
        packed = chains.totals(self._packed, per_path)
        code = classify(packed)
        code[source == destination] = PathClass.LOC
        single = np.where(chains.first >= 0, chains.first, chains.last)
        stated = self._link_class[single]
        use = (hops_of(packed) == 1) & (stated >= 0)
        code[use] = stated[use]
        return code

    def find(self, source: Ints, destination: Ints) -> Found:
        """Routes of pairs of endpoints, given by node number.

        Returns
        -------
        ``DIS`` and no links where nothing connects a pair; ``LOC`` and no links from an
        endpoint to itself.
        """
        q = len(source)
        rows = np.full((q, 0), -1, dtype=np.int32)
        path_class = np.full(q, PathClass.DIS, dtype=np.int8)
        path_class[source == destination] = PathClass.LOC
        staged = np.zeros(q, dtype=bool)
        for at, found_rows, found_class in self._parts(source, destination, staged):
            rows = _placed(rows, at, found_rows, q)
            path_class[at] = found_class
        self._override(source, destination, path_class)
        return Found(rows=rows, path_class=path_class, staged=staged)

    def _parts(
        self, source: Ints, destination: Ints, staged: NDArray[np.bool_]
    ) -> Iterator[tuple[Ints, NDArray[np.int32], NDArray[np.int8]]]:
        """``(which pairs, their links, their classes)``, later parts over earlier ones."""
        apart = source != destination
        inside = np.flatnonzero(apart & (self._machine[source] == self._machine[destination]))
        left = apart.copy()
        if len(inside):
            chains = self._inner.chains(source[inside], destination[inside])
            reached = np.isfinite(chains.cost)
            classes = self._classes(source[inside], destination[inside], chains)
            yield inside[reached], chains.rows()[reached], classes[reached]
            left[inside[reached]] = False
            at, rows = self._staged(source, destination, inside[reached])
            if len(at):
                staged[at] = True
                place = np.full(len(source), -1, dtype=np.int64)
                place[inside] = np.arange(len(inside))
                yield at, rows, classes[place[at]]
        outside = np.flatnonzero(left)
        if len(outside) and self._networks:
            at, rows = self._across(source, destination, outside)
            yield at, rows, np.full(len(at), PathClass.NET, dtype=np.int8)
            left[at] = False
        lost = np.flatnonzero(left & (self._island[source] == self._island[destination]))
        if len(lost):
            at, rows = self._relayed(source, destination, lost)
            classes = classify(pack(self._counts[rows].sum(axis=1, dtype=np.int16)))
            classes[classes == PathClass.NVL] = PathClass.NVB
            classes[self._unknown[rows].any(axis=1)] = PathClass.SYS
            yield at, rows, classes

    def _staged(
        self, source: Ints, destination: Ints, inside: Ints
    ) -> tuple[Ints, NDArray[np.int32]]:
        """Of the pairs ``inside``, those that are no peers, by way of host memory."""
        nothing = inside[:0], np.zeros((0, 0), dtype=np.int32)
        s, d = source[inside], destination[inside]
        denied = np.zeros(len(inside), dtype=bool)
        if self._peer_access is False:
            denied |= self._is_gpu[s] & self._is_gpu[d]
        denied |= _contains(self._denied_key, s * len(self._names) + d)
        if not denied.any():
            return nothing
        at, s, d = inside[denied], s[denied], d[denied]
        stage = self._stage_of(np.unique(s))[s]
        known = stage >= 0
        at, s, d, stage = at[known], s[known], d[known], stage[known]
        up, down = self._inner.chains(s, stage), self._inner.chains(stage, d)
        whole = np.isfinite(up.cost) & np.isfinite(down.cost)
        return at[whole], np.hstack([up.rows(), down.rows()])[whole]

    def _stage_of(self, endpoints: Ints) -> Ints:
        """Where copies from each endpoint are staged, by node; -1 where there is no host."""
        found = np.full(len(self._names), -1, dtype=np.int64)
        for kind in _STAGES:
            nodes = np.array([k for k, v in enumerate(self._kinds) if v is kind], dtype=np.int64)
            left = endpoints[found[endpoints] < 0]
            e, at = pairs_within(left, self._machine[left], self._machine[nodes])
            m = nodes[at]
            cost = self._inner.chains(e, m).cost
            order = np.lexsort((m, cost, e))
            order = order[np.isfinite(cost[order])]
            nearest, first = np.unique(e[order], return_index=True)
            found[nearest] = m[order][first]
        return found

    def _across(
        self, source: Ints, destination: Ints, outside: Ints
    ) -> tuple[Ints, NDArray[np.int32]]:
        """Pairs in different machines, by the network that is nearest to both ends."""
        s, d = source[outside], destination[outside]
        score = self._choice.score
        best = score[s, 0] + score[d, 0]
        chosen = np.zeros(len(s), dtype=np.int64)
        for k in range(1, self._networks):
            total = score[s, k] + score[d, k]
            better = (total < best) | ((total == best) & (score[s, k] < score[s, chosen]))
            chosen[better], best = k, np.where(better, total, best)
        known = np.isfinite(best)
        outside, s, d, chosen = outside[known], s[known], d[known], chosen[known]
        leave, enter = self._choice.gateway[s, chosen], self._choice.gateway[d, chosen]
        wire = self._outer.chains(leave, enter)
        # Many pairs share the way to a gateway and the way from one; each is found once.
        k, size = self._networks, len(self._names) * self._networks
        leaving, out_of = distinct(s * k + chosen, size)
        entering, into_of = distinct(d * k + chosen, size)
        near, far = self._choice.gateway.flat[leaving], self._choice.gateway.flat[entering]
        there = self._inner.chains(leaving // k, near).rows()[out_of]
        arrive = self._inner.chains(far, entering // k).rows()[into_of]
        whole = np.isfinite(wire.cost)
        rows = np.hstack([there, wire.rows(), arrive])
        return (outside, rows) if whole.all() else (outside[whole], rows[whole])

    def _relayed(
        self, source: Ints, destination: Ints, lost: Ints
    ) -> tuple[Ints, NDArray[np.int32]]:
        """Pairs that only other endpoints connect: those may now pass traffic on."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        n = len(self._names)
        # Every node arrives at number n + k and leaves from k; between stands the price.
        order = np.lexsort((np.arange(len(self._cost)), self._cost, self._head, self._tail))
        key, first = np.unique((self._tail * n + self._head)[order], return_index=True)
        link = order[first]
        rows = np.concatenate([self._tail[link], np.arange(n) + n])
        columns = np.concatenate([self._head[link] + n, np.arange(n)])
        price = np.where(self._endpoint, _RELAY_COST, 1e-3)
        weights = csr_array(
            (np.concatenate([self._cost[link], price]), (rows, columns)), shape=(2 * n, 2 * n)
        )
        starts, row = np.unique(source[lost], return_inverse=True)
        cost, before = dijkstra(weights, indices=starts, return_predecessors=True)
        here = destination[lost] + n
        reached = np.isfinite(cost[row, here])
        lost, row, here = lost[reached], row[reached], here[reached]
        steps: list[NDArray[np.int32]] = []
        while (alive := here >= 0).any():
            previous = np.maximum(np.where(alive, before[row, here], -1), -1)
            on_link = alive & (here >= n) & (previous >= 0)
            step = np.full(len(lost), -1, dtype=np.int32)
            at = np.searchsorted(key, previous[on_link] * n + here[on_link] - n)
            step[on_link] = link[at]
            steps.append(step)
            here = previous
        return lost, np.stack(steps[::-1], axis=1) if steps else np.zeros((0, 0), np.int32)

    def _override(self, source: Ints, destination: Ints, path_class: NDArray[np.int8]) -> None:
        """Classes that the graph states for single pairs."""
        if len(self._override_key) == 0:
            return
        key = source * len(self._names) + destination
        hit = np.flatnonzero(_contains(self._override_key, key))
        at = np.searchsorted(self._override_key, key[hit])
        connected = path_class[hit] != PathClass.DIS
        path_class[hit[connected]] = self._override_class[at[connected]]


def _contains(sorted_keys: Ints, key: Ints) -> NDArray[np.bool_]:
    if len(sorted_keys) == 0:
        return np.zeros(len(key), dtype=bool)
    at = np.minimum(np.searchsorted(sorted_keys, key), len(sorted_keys) - 1)
    found: NDArray[np.bool_] = sorted_keys[at] == key
    return found


def _placed(
    rows: NDArray[np.int32], at: Ints, found: NDArray[np.int32], q: int
) -> NDArray[np.int32]:
    """``rows`` with those ``at`` replaced, widened where needed."""
    if len(at) == q and rows.shape[1] == 0:
        return found
    width = max(rows.shape[1], found.shape[1])
    if rows.shape[1] < width:
        wider = np.full((q, width), -1, dtype=np.int32)
        wider[:, : rows.shape[1]] = rows
        rows = wider
    rows[at, : found.shape[1]] = found
    rows[at, found.shape[1] :] = -1
    return rows

"""Cheapest chains of links over one kind of network, for many pairs at once.

A layer has *terminals*, where chains begin and end, and a *core* of nodes that
pass traffic on.  A chain is a link out of its first terminal, a path through
the core, and a link into its last; or one direct link.  Only the core is
searched (scipy's Dijkstra), so a thousand endpoints on a few hundred switches
cost a few hundred searches, and everything per pair is array arithmetic.

Costs are whole numbers, so equal chains compare equal.  Where several are, the
destination decides: the k-th terminal of a switch takes the k-th alternative
(d-mod-k, as fat-tree routing does), so that equal paths are loaded evenly and
every run finds the same.  All nodes and links come in natural order of their
ids; nothing depends on the order in which a graph was built.

References
----------
E. Zahavi, D-Mod-K routing providing non-blocking traffic for shift permutations
on real life fat trees, CCIT report 776, Technion, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topocal.topo.cheapest import cheapest_costs, components

__all__ = ["Chains", "Layer", "distinct", "pairs_within"]

Ints = NDArray[np.int64]

_LARGEST_TABLE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Chains of ``q`` pairs.

    Attributes
    ----------
    cost
        Shape (q,); infinite where nothing connects a pair, 0 from a node to itself.
    first, last
        Shape (q,), the link out of the first terminal and into the last, or -1.
    path
        Shape (q,), row of ``table``, or -1.
    table
        Shape (paths, longest), links through the core in order of travel, -1 in front of
        the shorter ones.
    """

    cost: NDArray[np.float64]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    path: NDArray[np.int64]
    table: NDArray[np.int32]

    def rows(self) -> NDArray[np.int32]:
        """Shape (q, 2 + longest): all links of each chain, -1 in between."""
        width = self.table.shape[1]
        out = np.full((len(self.first), width + 2), -1, dtype=np.int32)
        out[:, 0] = self.first
        if width:
            # A row of -1 at the end answers to path -1.
            padded = np.vstack([self.table, np.full((1, width), -1, dtype=np.int32)])
            out[:, 1:-1] = padded[self.path]
        out[:, -1] = self.last
        return out

    def totals(self, per_link: Ints, per_path: Ints) -> Ints:
        """Sum of a figure over each chain.

        Parameters
        ----------
        per_link
            Shape (links + 1,); the last is the figure of no link.
        per_path
            Shape (paths,), the figure of each row of ``table``.
        """
        padded = np.append(per_path, per_link[-1])
        found: Ints = per_link[self.first] + padded[self.path]
        found += per_link[self.last]
        return found


class Layer:
    """One network and the chains on it.

    Parameters
    ----------
    passes
        Shape (nodes,), whether a node passes traffic on.
    terminals
        Nodes where chains may begin or end, those that pass traffic on included.
    links
        Numbers of the links of this layer, in natural order.
    tail, head, cost
        Shape (all links,): node numbers and whole-number costs.
    """

    def __init__(
        self,
        passes: NDArray[np.bool_],
        terminals: Ints,
        links: Ints,
        tail: Ints,
        head: Ints,
        cost: NDArray[np.float64],
    ) -> None:
        self._tail, self._head, self._cost = tail, head, cost
        self._nodes = len(passes)
        self._core = np.flatnonzero(passes)
        core_of = np.full(self._nodes, -1, dtype=np.int64)
        core_of[self._core] = np.arange(len(self._core))
        self._terminal_of = np.full(self._nodes, -1, dtype=np.int64)
        self._terminal_of[terminals] = np.arange(len(terminals))
        inner = links[passes[tail[links]] & passes[head[links]]]
        leaving = links[~passes[tail[links]] & passes[head[links]]]
        entering = links[passes[tail[links]] & ~passes[head[links]]]
        direct = links[~passes[tail[links]] & ~passes[head[links]]]
        self._out = _Attachments.make(terminals, core_of, leaving, tail, head, cost)
        self._in = _Attachments.make(terminals, core_of, entering, head, tail, cost)
        self._search(inner, core_of)
        self._direct(direct)
        self._rank = _ranks(self._in)

    def _search(self, inner: Ints, core_of: Ints) -> None:
        """Distances through the core."""
        n = len(self._core)
        sources = np.unique(self._out.core[self._out.core >= 0])
        self._row = np.full(n + 1, -1, dtype=np.int64)
        self._row[sources] = np.arange(len(sources))
        # By head, then natural order: the alternatives into a node stand together.
        inner = inner[np.argsort(core_of[self._head[inner]], kind="stable")]
        tails, heads = core_of[self._tail[inner]], core_of[self._head[inner]]
        if len(sources) == 0 or len(inner) == 0:
            self._distance = np.full((len(sources), n), np.inf)
            self._distance[np.arange(len(sources)), sources] = 0.0
            self._tight = self._tight_tail = np.zeros(0, dtype=np.int64)
            self._begin = np.zeros((len(sources), n), dtype=np.int64)
            self._count = np.zeros((len(sources), n), dtype=np.int64)
            self._forks = False
            return
        order = np.lexsort((self._cost[inner], heads, tails))
        keys, first = np.unique((tails * n + heads)[order], return_index=True)
        cheapest = self._cost[inner][order][first]
        self._distance = cheapest_costs(n, sources, keys // n, keys % n, cheapest)
        self._find_tight(inner, tails, heads, sources)

    def _find_tight(self, inner: Ints, tails: Ints, heads: Ints, sources: Ints) -> None:
        """``tight[begin[r, v]:][:count[r, v]]``: the last links of cheapest ways from r to v.

        Only links of a source's own part of the core are looked at: a cluster is
        hundreds of small parts.
        """
        n = len(self._core)
        part = components(n, tails, heads)
        row, edge = pairs_within(np.arange(len(sources)), part[sources], part[tails])
        reach = self._distance[row, tails[edge]] + self._cost[inner[edge]]
        tight = np.isfinite(reach) & (reach == self._distance[row, heads[edge]])
        row, edge = row[tight], edge[tight]
        self._tight = inner[edge]
        self._tight_tail = tails[edge]
        key = row * n + heads[edge]
        starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))[: len(key)])
        self._begin = np.zeros((len(sources), n), dtype=np.int64)
        self._count = np.zeros((len(sources), n), dtype=np.int64)
        self._begin.flat[key[starts]] = starts
        self._count.flat[key[starts]] = np.diff(np.append(starts, len(key)))
        self._forks = len(starts) < len(key)

    def _direct(self, direct: Ints) -> None:
        """Links from terminal to terminal; the cheapest of parallel ones, then the first."""
        key = self._tail[direct] * self._nodes + self._head[direct]
        order = np.lexsort((np.arange(len(direct)), self._cost[direct], key))
        self._direct_key, first = np.unique(key[order], return_index=True)
        self._direct_link = direct[order][first]
        self._has_direct = np.zeros(self._nodes, dtype=bool)
        self._has_direct[self._tail[direct]] = True

    def chains(self, source: Ints, destination: Ints) -> Chains:
        """Cheapest chain of each pair of terminals (node numbers, equal lengths)."""
        s, d = self._terminal_of[source], self._terminal_of[destination]
        out_slot, in_slot, cost = self._choose(s, d)
        first = self._out.link[s, out_slot]
        last = self._in.link[d, in_slot]
        reached = np.isfinite(cost) & (source != destination)
        direct, direct_cost = self._direct_links(source, destination)
        straight = (direct >= 0) & (direct_cost <= cost)
        through = reached & ~straight
        path, table = self._paths(s, d, out_slot, in_slot, through)
        cost = np.where(straight, direct_cost, cost)
        cost[source == destination] = 0.0
        straight &= source != destination
        return Chains(
            cost=cost,
            first=np.where(through, first, np.where(straight, direct, -1)).astype(np.int32),
            last=np.where(through, last, -1).astype(np.int32),
            path=path,
            table=table,
        )

    def _choose(self, s: Ints, d: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Attachments that a pair leaves and arrives by, and the cost of the whole."""
        slots = [(i, j) for i in range(self._out.width) for j in range(self._in.width)]
        zeros = np.zeros(len(s), dtype=np.int64)
        if len(slots) == 1:
            return zeros, zeros, self._via(s, d, 0, 0)
        best = self._via(s, d, 0, 0)
        for i, j in slots[1:]:
            np.minimum(best, self._via(s, d, i, j), out=best)
        ties = zeros.copy()
        for i, j in slots:
            ties += self._via(s, d, i, j) == best
        wanted = self._rank[d] % np.maximum(ties, 1)
        seen, out_slot, in_slot = zeros.copy(), zeros.copy(), zeros.copy()
        for i, j in slots:
            equal = self._via(s, d, i, j) == best
            hit = equal & (seen == wanted)
            out_slot[hit], in_slot[hit] = i, j
            seen += equal
        return out_slot, in_slot, best

    def _via(self, s: Ints, d: Ints, i: int, j: int) -> NDArray[np.float64]:
        u, v = self._out.core[s, i], self._in.core[d, j]
        found: NDArray[np.float64] = self._out.cost[s, i] + self._in.cost[d, j]
        known = (u >= 0) & (v >= 0)
        if known.all():
            found += self._distance[self._row[u], v]
            return found
        found[~known] = np.inf
        found[known] += self._distance[self._row[u[known]], v[known]]
        return found

    def _direct_links(self, source: Ints, destination: Ints) -> tuple[Ints, NDArray[np.float64]]:
        link = np.full(len(source), -1, dtype=np.int64)
        cost = np.full(len(source), np.inf)
        if len(self._direct_key) == 0:
            return link, cost
        asked = np.flatnonzero(self._has_direct[source])
        key = source[asked] * self._nodes + destination[asked]
        at = np.minimum(np.searchsorted(self._direct_key, key), len(self._direct_key) - 1)
        hit = self._direct_key[at] == key
        link[asked[hit]] = self._direct_link[at[hit]]
        cost[asked[hit]] = self._cost[link[asked[hit]]]
        return link, cost

    def _paths(
        self, s: Ints, d: Ints, out_slot: Ints, in_slot: Ints, through: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.int32]]:
        """Core paths of the pairs that go ``through``; equal ones are walked once.

        A path depends on where it enters the core and where it leaves it; where there
        are equal paths, also on the destination's rank.
        """
        path = np.full(len(s), -1, dtype=np.int64)
        row = self._row[self._out.core[s[through], out_slot[through]]]
        if self._forks:
            goal = d[through] * self._in.width + in_slot[through]
            goals = len(self._in.core) * self._in.width
        else:
            goal = self._in.core[d[through], in_slot[through]]
            goals = len(self._core)
        key, number = distinct(row * goals + goal, len(self._distance) * goals)
        path[through] = number
        row, goal = key // max(goals, 1), key % max(goals, 1)
        if self._forks:
            terminal, slot = goal // self._in.width, goal % self._in.width
            here = self._in.core[terminal, slot]
            choice = self._rank[terminal] // np.maximum(self._in.degree[terminal], 1)
        else:
            here, choice = goal, np.zeros(len(goal), dtype=np.int64)
        steps: list[NDArray[np.int32]] = []
        while True:
            alive = self._distance[row, here] > 0
            if not alive.any():
                break
            count = np.maximum(self._count[row, here], 1)
            edge = self._begin[row, here] + choice % count
            edge[~alive] = 0
            steps.append(np.where(alive, self._tight[edge], -1).astype(np.int32))
            here = np.where(alive, self._tight_tail[edge], here)
            choice = choice // count
        if not steps:
            return path, np.zeros((len(key), 0), dtype=np.int32)
        return path, np.stack(steps[::-1], axis=1)


@dataclass(frozen=True, slots=True)
class _Attachments:
    """Where terminals meet the core: shape (terminals, width >= 1), -1 where there is none.

    A terminal that is itself in the core meets it there, by no link.
    """

    core: Ints
    link: Ints
    cost: NDArray[np.float64]
    degree: Ints

    @property
    def width(self) -> int:
        return int(self.core.shape[1])

    @classmethod
    def make(
        cls,
        terminals: Ints,
        core_of: Ints,
        links: Ints,
        outer: Ints,
        inner: Ints,
        cost: NDArray[np.float64],
    ) -> _Attachments:
        """``outer`` and ``inner`` name the ends of ``links`` outside and inside the core."""
        terminal_of = np.full(len(core_of), -1, dtype=np.int64)
        terminal_of[terminals] = np.arange(len(terminals))
        links = links[terminal_of[outer[links]] >= 0]
        owner = terminal_of[outer[links]]
        order = np.argsort(owner, kind="stable")
        links, owner = links[order], owner[order]
        degree = np.bincount(owner, minlength=len(terminals))
        slot = np.arange(len(links)) - np.repeat(np.cumsum(degree) - degree, degree)
        inside = core_of[terminals] >= 0
        width = max(int(degree.max(initial=0)), 1)
        core = np.full((len(terminals), width), -1, dtype=np.int64)
        link = np.full((len(terminals), width), -1, dtype=np.int64)
        price = np.zeros((len(terminals), width))
        core[owner, slot] = core_of[inner[links]]
        link[owner, slot] = links
        price[owner, slot] = cost[links]
        core[inside, 0] = core_of[terminals[inside]]
        return cls(core, link, price, degree)


def _ranks(attachments: _Attachments) -> Ints:
    """Place of each terminal among those that share its first attachment."""
    rank = np.zeros(len(attachments.core), dtype=np.int64)
    core = attachments.core[:, 0]
    order = np.argsort(core, kind="stable")
    begins = np.searchsorted(core[order], core[order])
    rank[order] = np.arange(len(core)) - begins
    return rank


def pairs_within(a: Ints, label_a: Ints, label_b: Ints) -> tuple[Ints, Ints]:
    """All pairs of an entry of ``a`` and an index of ``label_b`` with the same label.

    Sorted by place in ``a``, then by index.
    """
    order = np.argsort(label_b, kind="stable")
    ordered = label_b[order]
    begin = np.searchsorted(ordered, label_a, side="left")
    count = np.searchsorted(ordered, label_a, side="right") - begin
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(a, count), order[np.repeat(begin, count) + offset]


def distinct(key: Ints, size: int) -> tuple[Ints, Ints]:
    """Distinct keys, and the number of each key among them."""
    if size > _LARGEST_TABLE:
        found, number = np.unique(key, return_inverse=True)
        return found, number
    present = np.zeros(size, dtype=bool)
    present[key] = True
    found = np.flatnonzero(present)
    place = np.zeros(size, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[key]

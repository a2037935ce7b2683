"""Everything that could explain a machine, as columns: who loads it and how often a byte counts.

An explanation picks from these (:mod:`topocal.solve.minimum`): the resources of the
topology, what each endpoint sends and receives (in all, near, far, and by path class),
what happens inside, out of and into each switch, bridge, socket or group, and every pair
by itself.  Columns that the same pairs load alike are one: nothing could tell them apart,
and the first name in that order stands for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from topocal.solve.words import ranges
from topocal.topo.errors import InputError, UnknownEndpointError
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.naming import natural_key
from topocal.topo.resource import FAR, NodeKind, PathClass, Sharing
from topocal.topo.topology import Topology

__all__ = ["Columns", "explanation_columns"]

_ENCLOSING = (
    NodeKind.PCIE_SWITCH,
    NodeKind.HOST_BRIDGE,
    NodeKind.SOCKET,
    NodeKind.GROUP,
    NodeKind.NVSWITCH,
    NodeKind.NET_SWITCH,
)
"""Kinds of nodes that endpoints sit under."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Candidate resources of an explanation, R of them, over P ordered pairs.

    Attributes
    ----------
    labels
        What each is, for people.
    oddity
        Shape (R,): of explanations of one size the least odd is preferred. 0 is a resource of
        the topology, all that an endpoint receives, or all that it sends near or far; 1 a
        part of what it receives, what passes a node, or both directions; 2 a part by path
        class; 3 a single pair.
    pairs
        ``(source, destination)`` of each row.
    weight
        Shape (P, R), sparse: how often a byte of the pair counts there.
    """

    labels: tuple[str, ...]
    oddity: NDArray[np.int64]
    pairs: tuple[tuple[str, str], ...]
    weight: csr_array

    def log_load(self, patterns: Sequence[Pattern]) -> csr_array:
        """Log of the bytes of each pattern on each column, shape (patterns, R).

        Raises
        ------
        UnknownEndpointError
            When a pattern names an endpoint that the columns were not made for.
        InputError
            When a flow has no bytes.
        """
        position = {pair: k for k, pair in enumerate(self.pairs)}
        row, column, size = [], [], []
        for k, pattern in enumerate(patterns):
            for flow in pattern.flows:
                pair = (flow.source, flow.destination)
                if pair not in position:
                    known = sorted({n for p in self.pairs for n in p}, key=natural_key)
                    lost = next((n for n in pair if n not in known), pair[1])
                    raise UnknownEndpointError(lost, known)
                if flow.size_bytes <= 0:
                    raise InputError(
                        f"{pattern.name} has a flow of no bytes", remedy="leave it out"
                    )
                row.append(k)
                column.append(position[pair])
                size.append(flow.size_bytes)
        flows = coo_array((size, (row, column)), shape=(len(patterns), len(self.pairs)))
        loads = csr_array(flows.tocsr() @ self.weight)
        loads.sum_duplicates()
        loads.data = np.log(loads.data)
        return loads


def explanation_columns(
    topology: Topology,
    endpoints: Sequence[str] | None = None,
    *,
    pairs: bool = True,
    opposed: frozenset[frozenset[str]] = frozenset(),
) -> Columns:
    """The candidates of a machine.

    Parameters
    ----------
    endpoints
        Those whose transfers are to be explained; default: the accelerators.
    pairs
        Whether every pair is a candidate by itself.
    opposed
        Pairs of endpoints between which traffic ran both ways at once: there the two directions
        may draw from one resource although the topology does not say so.  Nothing else can
        tell, and without any, one resource for both would pass for the simpler explanation.

    Raises
    ------
    UnknownEndpointError
        When one of them is not an endpoint of the topology.
    NoRouteError
        When nothing connects two of them.
    InputError
        When there are fewer than two.
    """
    given = topology.accelerators if endpoints is None else endpoints
    ends = tuple(sorted(set(given), key=natural_key))
    if len(ends) < 2:
        raise InputError("fewer than two endpoints", remedy="name those that send and receive")
    topology.require_endpoints(ends)
    all_pairs = [(a, b) for a in ends for b in ends if a != b]
    lines, table = incidence(topology, all_pairs), topology.resources
    shared = (Sharing.TIME_SHARED, Sharing.FATPIPE)
    kept = [k for k, name in enumerate(lines.resources) if table[name].sharing not in shared]
    weight = lines.matrix.tocsc()[:, kept]
    found: dict[tuple[bytes, bytes], str] = {}
    columns: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    oddities: list[int] = []

    def add(label: str, rows: NDArray[np.int64], weights: NDArray[np.float64], oddity: int) -> None:
        key = (rows.tobytes(), weights.tobytes())
        if len(rows) and key not in found:
            found[key] = label
            columns.append((rows, weights))
            oddities.append(oddity)

    for at, k in enumerate(kept):
        span = slice(weight.indptr[at], weight.indptr[at + 1])
        rows = weight.indices[span].astype(np.int64)
        order = np.argsort(rows)
        add(table[lines.resources[k]].name, rows[order], weight.data[span][order], 0)
    for label, members, oddity in _sets(topology, ends, all_pairs, pairs, opposed):
        add(label, np.flatnonzero(members), np.ones(int(members.sum())), oddity)
    row = np.concatenate([rows for rows, _ in columns])
    column = np.repeat(np.arange(len(columns)), [len(rows) for rows, _ in columns])
    values = np.concatenate([weights for _, weights in columns])
    shape = (len(all_pairs), len(columns))
    return Columns(
        labels=tuple(found.values()),
        oddity=np.array(oddities, dtype=np.int64),
        pairs=tuple(all_pairs),
        weight=coo_array((values, (row, column)), shape=shape).tocsr(),
    )


def _sets(
    topology: Topology,
    ends: Sequence[str],
    all_pairs: Sequence[tuple[str, str]],
    each: bool,
    opposed: frozenset[frozenset[str]],
) -> Iterator[tuple[str, NDArray[np.bool_], int]]:
    """Sets of pairs that may share something, with a label and how odd that would be."""
    routes = topology.routes(tuple(ends))
    place = routes.position
    code = np.array([routes.path_class[place[a], place[b]] for a, b in all_pairs])
    far = np.isin(code, [int(c) for c in FAR])
    source = np.array([a for a, _ in all_pairs])
    destination = np.array([b for _, b in all_pairs])
    everything = np.ones(len(code), dtype=bool)
    grouped = NodeKind.GROUP in {k for _, k in topology.graph.nodes(data="kind")}
    around = "group" if grouped else "socket"
    inside, outside = f" inside its {around}", f" to another {around}"
    classes = [PathClass(int(c)) for c in np.unique(code)]
    for end in ends:
        sends, receives = source == end, destination == end
        for words, side in (("", everything), (inside, ~far), (outside, far)):
            yield f"sender {end}{words}", sends & side, 0
        yield f"receiver {end}", receives, 0
        for words, side in ((" from near", ~far), (" from afar", far)):
            yield f"receiver {end}{words}", receives & side, 1
        if len(classes) > 2:
            for c in classes:
                yield f"sender {end} over {c.name}", sends & (code == int(c)), 2
                yield f"receiver {end} over {c.name}", receives & (code == int(c)), 2
        if any(end in both for both in opposed):
            yield f"both directions of {end}", sends | receives, 1
    for node, members in _enclosures(topology, ends):
        sends, receives = np.isin(source, members), np.isin(destination, members)
        called = ranges(members) if grouped else node
        yield f"{'among' if grouped else 'inside'} {called}", sends & receives, 1
        for words, side in (("", everything), (" from afar", far)):
            yield f"into {called}{words}", ~sends & receives & side, 1
        for words, side in (("", everything), (" to afar", far)):
            yield f"out of {called}{words}", sends & ~receives & side, 1
        if any(len(both & set(members)) == 1 for both in opposed):
            yield f"both directions of {called}", sends ^ receives, 1
    for a, b in itertools.combinations(ends, 2):
        if {a, b} in opposed:
            mutual = (source == a) & (destination == b) | (source == b) & (destination == a)
            yield f"both directions between {a} and {b}", mutual, 2
    if each:
        for k, (a, b) in enumerate(all_pairs):
            yield f"pair {a}->{b}", np.arange(len(code)) == k, 3


def _enclosures(topology: Topology, ends: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Nodes with the endpoints for which they are the nearest of their kind."""
    graph = nx.Graph(topology.graph)
    kind = dict(topology.graph.nodes(data="kind"))
    stop = set(topology.endpoints)
    found: dict[str, list[str]] = {}
    for end in ends:
        for node in _nearest_of_each_kind(graph, kind, end, stop - {end}):
            found.setdefault(node, []).append(end)
    for node in sorted(found, key=natural_key):
        if len(found[node]) < len(ends):
            yield node, found[node]


def _nearest_of_each_kind(
    graph: nx.Graph, kind: dict[str, NodeKind], end: str, closed: Iterable[str]
) -> Iterator[str]:
    """By hops from the endpoint, not through other endpoints; several where equally near."""
    hops = nx.single_source_shortest_path_length(nx.restricted_view(graph, list(closed), []), end)
    least: dict[NodeKind, int] = {}
    for node, distance in hops.items():
        if kind[node] in _ENCLOSING:
            least.setdefault(kind[node], distance)
            if distance == least[kind[node]]:
                yield node

"""Routes and their classes on any machine: what must hold."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.machines import (
    random_cluster,
    random_fabric_set,
    random_pcie_tree,
)
from topocal.topo.renaming import rename_nodes
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import Topology


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    match draw(st.sampled_from(["tree", "fabric", "cluster"])):
        case "tree":
            topology = random_pcie_tree(
                rng, gpus=draw(st.integers(1, 9)), nics=draw(st.integers(0, 3))
            )
        case "fabric":
            topology = random_fabric_set(rng, gpus=draw(st.integers(1, 9)))
        case _:
            topology = random_cluster(
                rng, nodes=draw(st.integers(1, 4)), gpus=draw(st.integers(1, 4))
            )
    graph = topology.graph.copy()
    graph.graph["peer_access"] = draw(st.sampled_from([None, True, False]))
    return Topology(graph)


MANY = settings(deadline=None, max_examples=60)


@MANY
@given(machines())
def test_routes_are_chains_of_links(topology: Topology) -> None:
    routes = topology.routes(topology.endpoints)
    for source in routes.endpoints:
        for destination in routes.endpoints:
            links = [topology.links[k] for k in routes.route(source, destination)]
            if source == destination:
                assert links == []
                continue
            assert links[0].tail == source
            assert links[-1].head == destination
            assert all(a.head == b.tail for a, b in pairwise(links))


@MANY
@given(machines())
def test_endpoints_do_not_pass_traffic_on(topology: Topology) -> None:
    """Random machines have a host, so nothing needs a relay; memory is where copies are staged."""
    routes = topology.routes(topology.endpoints)
    kinds = dict(topology.graph.nodes(data="kind"))
    for source in routes.endpoints:
        for destination in routes.endpoints:
            inner = [topology.links[k].head for k in routes.route(source, destination)][:-1]
            passing = {kinds[node] for node in inner if kinds[node].is_endpoint}
            assert passing <= {NodeKind.NIC, NodeKind.MEMORY}


@MANY
@given(machines())
def test_classes_are_symmetric(topology: Topology) -> None:
    path_class = topology.routes(topology.endpoints).path_class
    assert np.array_equal(path_class, path_class.T)
    assert np.all(np.diag(path_class) == PathClass.LOC)


@MANY
@given(machines(), st.data())
def test_routes_exist_where_networkx_finds_a_path(topology: Topology, data: st.DataObject) -> None:
    """Cut some links at random: what networkx can still reach has a route, and only that."""
    graph = nx.MultiDiGraph(topology.graph)
    edges = sorted(graph.edges(keys=True))
    cut = data.draw(st.sets(st.sampled_from(edges), max_size=6) if edges else st.just(set()))
    graph.remove_edges_from(cut)
    graph.graph.update(topology.graph.graph, peer_access=None)
    torn = Topology(graph)
    routes = torn.routes(torn.endpoints)
    reach = {node: nx.descendants(graph, node) | {node} for node in torn.endpoints}
    for i, source in enumerate(routes.endpoints):
        for j, destination in enumerate(routes.endpoints):
            found = routes.path_class[i, j] != PathClass.DIS
            assert found == (destination in reach[source])


@MANY
@given(machines(), st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(topology: Topology, random: object) -> None:
    graph = nx.MultiDiGraph()
    nodes = list(topology.graph.nodes(data=True))
    edges = list(topology.graph.edges(keys=True, data=True))
    random.shuffle(nodes)  # type: ignore[attr-defined]
    random.shuffle(edges)  # type: ignore[attr-defined]
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    graph.graph.update(topology.graph.graph)
    before, after = (t.routes(t.endpoints) for t in (topology, Topology(graph)))
    assert before.endpoints == after.endpoints
    assert before.links == after.links
    assert np.array_equal(before.indices, after.indices)
    assert np.array_equal(before.path_class, after.path_class)


@MANY
@given(machines(), st.randoms(use_true_random=False))
def test_names_change_neither_class_nor_length(topology: Topology, random: object) -> None:
    """Lengths may change between nodes: equally near NICs are shared out in order of names."""
    names = list(topology.graph.nodes)
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    mapping = {old: f"x{shuffled.index(old)}" for old in names}
    other = rename_nodes(topology, mapping)
    before = topology.routes(topology.endpoints)
    after = other.routes(other.endpoints)
    at = [after.position[mapping[e]] for e in before.endpoints]
    n = len(at)
    assert np.array_equal(before.path_class, after.path_class[np.ix_(at, at)])
    if (before.path_class == PathClass.NET).any():
        return
    lengths = np.diff(before.indptr).reshape(n, n)
    assert np.array_equal(lengths, np.diff(after.indptr).reshape(n, n)[np.ix_(at, at)])


@MANY
@given(machines(), st.data())
def test_a_route_does_not_depend_on_who_else_is_asked_for(
    topology: Topology, data: st.DataObject
) -> None:
    some = tuple(data.draw(st.lists(st.sampled_from(topology.endpoints), min_size=1, unique=True)))
    whole, part = topology.routes(topology.endpoints), topology.routes(some)
    for source in some:
        for destination in some:
            assert part.route(source, destination) == whole.route(source, destination)

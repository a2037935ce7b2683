"""Flows × resources, by hand and by counting."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, NoRouteError, UnknownEndpointError
from topocal.topo.incidence import incidence
from topocal.topo.machines import b70, h20_pair, random_cluster, random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.staging import with_staging_resources
from topocal.topo.topology import Topology


def loads(topology: Topology, source: str, destination: str) -> dict[str, float]:
    """What one flow loads, and how much."""
    found = incidence(topology, [(source, destination)])
    row = found.matrix.toarray()[0]
    return {name: w for name, w in zip(found.resources, row, strict=True) if w}


def two_switches(
    *, peer_access: bool | None = None, uplink: Sharing = Sharing.CAPACITY
) -> Topology:
    """gpu0, gpu1 on switch0; gpu2 on switch1; both switches on socket0."""
    build = TopologyBuilder("two switches")
    build.peer_access = peer_access
    build.node("socket0", NodeKind.SOCKET)
    for k in range(2):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{k}", "socket0", LinkKind.PCIE, sharing=uplink, nominal_Bps=12e9)
    for k in range(3):
        build.node(f"gpu{k}", NodeKind.GPU, index=k)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE)
    return build.build()


def test_each_direction_of_a_link_is_a_resource() -> None:
    assert loads(two_switches(), "gpu0", "gpu2") == {
        "gpu0->switch0": 1, "switch0->socket0": 1, "socket0->switch1": 1, "switch1->gpu2": 1,
    }  # fmt: skip


def test_staged_copies_load_the_uplink_up_and_down() -> None:
    topology = two_switches(peer_access=False)
    near, far = loads(topology, "gpu0", "gpu1"), loads(topology, "gpu0", "gpu2")
    assert near["switch0->socket0"] == near["socket0->switch0"] == 1
    assert far["switch0->socket0"] == far["socket0->switch1"] == 1
    # A ring over the GPUs of one switch loads its uplink twice as much as one that alternates:
    # the near GPUs are half as fast (contend-shm-uplink-twice).
    ring_near = [("gpu0", "gpu1"), ("gpu1", "gpu0")]
    ring_far = [("gpu0", "gpu2"), ("gpu2", "gpu0")]
    busiest = [incidence(topology, ring).matrix.sum(axis=0).max() for ring in (ring_near, ring_far)]
    assert busiest == [2, 1]


def test_a_duplex_uplink_counts_a_staged_byte_twice() -> None:
    """As pix-no-p2p-2080ti: 5.7 one way and 6.1 both ways on a resource of 12."""
    topology = two_switches(peer_access=False, uplink=Sharing.DUPLEX)
    assert loads(topology, "gpu0", "gpu1")["switch0<->socket0"] == 2
    assert loads(topology, "gpu0", "gpu2") == {
        "gpu0->switch0": 1, "switch0<->socket0": 1, "switch1<->socket0": 1, "switch1->gpu2": 1,
    }  # fmt: skip


def test_staging_resources_count_what_crosses_both_ways() -> None:
    topology = with_staging_resources(two_switches(peer_access=False))
    name = "staged:socket0<->switch0"
    assert topology.resources[name].nominal_Bps == 12e9
    assert loads(topology, "gpu0", "gpu1")[name] == 2
    assert name not in loads(topology, "gpu0", "gpu2")
    assert [n for n in topology.resources if n.startswith("staged:")] == [name]


@pytest.mark.parametrize(
    "topology",
    [two_switches(), two_switches(peer_access=False, uplink=Sharing.DUPLEX)],
    ids=["peers", "duplex"],
)
def test_no_staging_resource_where_nothing_needs_one(topology: Topology) -> None:
    assert with_staging_resources(topology) is topology


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (Use(resource="r"), [1, 1, 1, 0]),
        (Use(resource="r", sources=("gpu0",)), [1, 1, 0, 0]),
        (Use(resource="r", destinations=("gpu2", "gpu0")), [0, 1, 1, 0]),
        (Use(resource="r", sources=("gpu0", "gpu1"), destinations=("gpu1",)), [1, 0, 0, 0]),
        (Use(resource="r", path_classes=(PathClass.PIX,), weight=2.5), [2.5, 0, 0, 0]),
        (Use(resource="r", path_classes=()), [0, 0, 0, 0]),
    ],
)
def test_uses_choose_flows_by_ends_and_class(use: Use, expected: list[float]) -> None:
    topology = two_switches().with_resources([Resource(id="r")], [use])
    pairs = [("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu2", "gpu0"), ("gpu0", "gpu0")]
    found = incidence(topology, pairs)
    assert found.matrix.toarray()[:, found.resources.index("r")].tolist() == expected


def test_a_flow_to_itself_loads_nothing_and_repeats_repeat() -> None:
    found = incidence(b70(), [("gpu0", "gpu0"), ("gpu0", "gpu1"), ("gpu0", "gpu1")])
    dense = found.matrix.toarray()
    assert dense[0].sum() == 0
    assert np.array_equal(dense[1], dense[2])
    assert found.pairs[1] == ("gpu0", "gpu1")
    assert found.resources == tuple(b70().resources)


def test_memory_and_nics_are_endpoints_too() -> None:
    topology = h20_pair()
    row = loads(topology, "node0/mem0", "node1/nic7")
    assert row["node0/mem0->node0/socket0"] == 1
    assert row["switch0->node1/nic7"] == 1


def test_bad_pairs() -> None:
    with pytest.raises(FlowError, match="no flows"):
        incidence(b70(), [])
    with pytest.raises(UnknownEndpointError, match="gpu99"):
        incidence(b70(), [("gpu0", "gpu99")])
    build = TopologyBuilder("apart")
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
    with pytest.raises(NoRouteError, match="no route from gpu0 to gpu1"):
        incidence(build.build(), [("gpu0", "gpu1")])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([None, False]), st.data())
def test_rows_add_up_to_the_route(
    seed: int, many: bool, peer_access: bool | None, data: st.DataObject
) -> None:
    """Every link loads its own resource once, so a row is the count of its route's links."""
    rng = np.random.default_rng(seed)
    made = random_cluster(rng, nodes=2, gpus=3) if many else random_pcie_tree(rng, gpus=5, nics=1)
    graph = made.graph.copy()
    graph.graph["peer_access"] = peer_access
    topology = Topology(graph)
    ends = st.sampled_from(topology.endpoints)
    pairs = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=20))
    found = incidence(topology, pairs)
    routes = topology.routes(topology.endpoints)
    for pair, row in zip(pairs, found.matrix.toarray(), strict=True):
        loaded = {n: int(w) for n, w in zip(found.resources, row, strict=True) if w}
        assert loaded == Counter(routes.route(*pair))
    assert found.matrix.has_canonical_format


def test_few_pairs_of_a_large_machine_equal_the_same_rows_of_all() -> None:
    """Above a size routes are found pair by pair instead of all at once."""
    topology = random_cluster(np.random.default_rng(7), nodes=80, gpus=4)
    ends = topology.accelerators
    assert len(ends) > 256
    pairs = [(ends[3], ends[300]), (ends[5], ends[6]), (ends[300], ends[3]), (ends[0], ends[0])]
    some = incidence(topology, pairs).matrix.toarray()
    routes = topology.routes()
    for pair, row in zip(pairs, some, strict=True):
        assert row.sum() == len(routes.route(*pair))
        columns = [list(topology.resources).index(link) for link in routes.route(*pair)]
        assert all(row[columns] == 1)


def test_a_link_may_load_several_resources() -> None:
    build = TopologyBuilder("shared card")
    build.node("socket0", NodeKind.SOCKET)
    build.resource(Resource(id="root complex", nominal_Bps=80e9))
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE, uses=(("root complex", 0.5),))
    assert loads(build.build(), "gpu0", "gpu1") == {
        "gpu0->socket0": 1, "socket0->gpu1": 1, "root complex": 1,
    }  # fmt: skip

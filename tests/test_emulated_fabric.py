"""What an emulated fabric is derived from, and the lines that build it; nothing runs here."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from topocal.fabrics import find_shape, with_faults
from topocal.measure.fabric import faults
from topocal.measure.fabric.blueprint import (
    Blueprint,
    Ingress,
    blueprint_from_json,
    blueprint_to_json,
)
from topocal.measure.fabric.shape import SPREAD, shape_of
from topocal.measure.fabric.shapes import two_nodes
from topocal.measure.fabric.shaping import change_rate, limit_device
from topocal.measure.fabric.wiring import (
    bridge_lines,
    endpoint_lines,
    limits_in_the_middle,
    middle_lines,
    own_limit,
)
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError, NoRouteError, TopologyError, UnknownEndpointError
from topocal.topo.machines import MACHINES, b70, h20_pair, l40s, random_pcie_tree
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

B70 = shape_of(b70()).blueprint


def pair_topology(**link: object) -> Topology:
    """Two GPUs that a link joins directly."""
    build = TopologyBuilder("pair")
    for k in range(2):
        build.node(f"gpu{k}", NodeKind.GPU)
    build.connect("gpu0", "gpu1", LinkKind.NVLINK, **link)  # type: ignore[arg-type]
    return build.build()


def test_the_b70_has_all_its_directions_and_endpoint_order() -> None:
    assert B70.endpoints == tuple(f"gpu{k}" for k in range(8))
    # 8 cards, 4 switch uplinks, 1 hop between sockets, each in two directions.
    assert len(B70.links) == len(B70.truth) == 2 * (8 + 4 + 1)
    assert B70.bridges == ("switch0", "switch1", "switch2", "switch3", "socket0", "socket1")
    assert set(B70.hosts) == {"machine"}


def test_unknown_capacities_are_guessed_by_place() -> None:
    nominal = {n: r.nominal_Bps for n, r in shape_of(b70()).topology.resources.items()}
    # Two cards of 50 MB/s behind a switch pass 50 * 2 ** .585 = 75, four 50 * 4 ** .585 = 112.5.
    expected = {
        "gpu0->switch0": 50e6,
        "switch0->gpu0": 60e6,
        "switch0->socket0": 75e6,
        "socket0->switch0": 90e6,
        "socket0->socket1": 112.5e6,
        "socket1->socket0": 84.4e6,
    }
    for name, rate in expected.items():
        assert nominal[name] == pytest.approx(rate, rel=2e-3), name


def test_stated_capacities_keep_their_proportions() -> None:
    machine = l40s()
    shape = shape_of(machine)
    stated = {n: r.nominal_Bps for n, r in machine.resources.items() if r.nominal_Bps}
    factors = {
        name: shape.topology.resources[name].nominal_Bps / rate  # type: ignore[operator]
        for name, rate in stated.items()
        if name in shape.blueprint.truth
    }
    assert factors
    assert max(factors.values()) == pytest.approx(min(factors.values()))
    assert any("guessed by place" in note for note in shape.notes)  # its uplinks
    assert any("stands for" in note for note in shape.notes)


def test_truth_is_near_nominal_but_no_two_are_alike() -> None:
    shape = shape_of(b70())
    ratios = [
        true / shape.topology.resources[name].nominal_Bps  # type: ignore[operator]
        for name, true in shape.blueprint.truth.items()
    ]
    assert all(1 - SPREAD <= r <= 1 + SPREAD for r in ratios)
    assert len(set(ratios)) == len(ratios)
    assert shape_of(b70()).blueprint.truth == shape.blueprint.truth
    assert shape_of(b70(), seed=1).blueprint.truth != shape.blueprint.truth


def test_given_capacities_are_built_as_given() -> None:
    given = {"gpu3->switch1": 20e6}
    truth = shape_of(b70(), capacity_Bps=given).blueprint.truth
    assert truth == {**B70.truth, **given}


def test_in_series_only_the_slowest_shows() -> None:
    shape = shape_of(two_nodes())
    truth, visible = shape.blueprint.truth, shape.visible_Bps
    # What leaves node 0 crosses its NIC, two network links, and the other NIC.
    chain = (
        "node0/socket0->node0/nic0",
        "node0/nic0->switch0",
        "switch0->node1/nic0",
        "node1/nic0->node1/socket0",
    )
    assert {visible[name] for name in chain} == {min(truth[name] for name in chain)}
    alone = "node0/gpu0->node0/switch0"
    assert visible[alone] == truth[alone]
    assert shape.blueprint.hosts == ("node0",) * 4 + ("node1",) * 4
    assert shape.blueprint.environment(5)["LOCAL_RANK"] == "1"


@pytest.mark.parametrize("name", sorted(set(MACHINES) - {"fat-tree"}))
def test_every_reference_machine_that_forwards_by_destination_can_be_a_fabric(name: str) -> None:
    blueprint = shape_of(MACHINES[name].build()).blueprint
    follow_all(blueprint)


def follow_all(blueprint: Blueprint) -> dict[tuple[str, str], list[str]]:
    """Links that a frame takes from every endpoint to every other, by next hops alone."""
    next_link = {(node, to): link for node, to, link in blueprint.hops}
    found = {}
    for source in blueprint.endpoints:
        for destination in blueprint.endpoints:
            here, path = source, []
            while here != destination:
                path.append(next_link[here, destination])
                here = blueprint.link[path[-1]].head
                assert len(path) <= len(blueprint.links)
            found[source, destination] = path
    return found


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_frames_take_the_routes_of_the_topology(seed: int) -> None:
    topology = random_pcie_tree(np.random.default_rng(seed), gpus=6)
    try:
        shape = shape_of(topology)
    except (InputError, NoRouteError):
        assume(False)
        raise
    routes = topology.routes()
    for (source, destination), path in follow_all(shape.blueprint).items():
        if source != destination:
            assert tuple(path) == routes.route(source, destination)


def test_the_blueprint_survives_json() -> None:
    blueprint = faults.limit_ingress(faults.half_duplex(B70, "gpu0->switch0"), "gpu3", 20e6)
    assert blueprint_from_json(blueprint_to_json(blueprint)) == blueprint


# What no fabric can be.


def test_routes_that_depend_on_the_source_are_refused() -> None:
    with pytest.raises(InputError, match="forwards by destination alone"):
        shape_of(MACHINES["fat-tree"].build())


def test_resources_that_a_fabric_cannot_have_are_refused() -> None:
    engine = Resource(id="engine", sharing=Sharing.TIME_SHARED)
    by_rule = b70().with_resources([engine], [Use(resource="engine", destinations=("gpu0",))])
    with pytest.raises(InputError, match="loaded by rule"):
        shape_of(by_rule)
    with pytest.raises(InputError, match="fatpipe"):
        shape_of(pair_topology(nominal_Bps=1e9, sharing=Sharing.FATPIPE))


def test_a_candidate_without_a_known_limit_does_no_harm() -> None:
    loose = Resource(id="sender gpu0")
    topology = b70().with_resources([loose], [Use(resource="sender gpu0", sources=("gpu0",))])
    assert shape_of(topology).blueprint.truth == B70.truth


def test_what_is_shared_by_unrelated_links_is_refused() -> None:
    build = TopologyBuilder("hub")
    build.node("socket0", NodeKind.SOCKET)
    build.resource(Resource(id="root", nominal_Bps=1e9))
    for k in range(3):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE, uses=(("root", 1.0),))
    with pytest.raises(InputError, match="root is shared by"):
        shape_of(build.build())


@pytest.mark.parametrize("count", [1, 65])
def test_too_few_and_too_many_endpoints_are_refused(count: int) -> None:
    build = TopologyBuilder("star")
    build.node("nvswitch0", NodeKind.NVSWITCH)
    for k in range(count):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "nvswitch0", LinkKind.NVLINK, nominal_Bps=1e9)
    with pytest.raises(InputError, match=f"a fabric of {count} endpoints"):
        shape_of(build.build())


def test_what_two_cores_cannot_carry_is_refused() -> None:
    with pytest.raises(InputError, match="in all"):
        shape_of(b70(), scale=3.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_must_make_sense(scale: float) -> None:
    with pytest.raises(InputError, match="scale"):
        shape_of(b70(), scale=scale)


def test_capacities_of_unknown_resources_are_refused() -> None:
    with pytest.raises(TopologyError, match="unknown resource"):
        shape_of(b70(), capacity_Bps={"gpu0->switch9": 1e6})
    with pytest.raises(InputError):
        shape_of(b70(), capacity_Bps={"gpu0->switch0": 0.0})


# Faults.


def test_one_direction_becomes_slow_and_nothing_else() -> None:
    slow = faults.slow(B70, "switch0->socket0", 0.5)
    assert slow.truth == {**B70.truth, "switch0->socket0": B70.truth["switch0->socket0"] / 2}


def test_half_duplex_takes_both_directions_into_one_capacity() -> None:
    changed = faults.half_duplex(B70, "gpu2->switch1")
    assert changed.truth["gpu2<->switch1"] == B70.truth["switch1->gpu2"]  # the faster one
    assert not {"gpu2->switch1", "switch1->gpu2"} & changed.truth.keys()
    assert own_limit(changed, "gpu2") is None
    limits = limits_in_the_middle(changed)
    assert limits["p0"] == changed.truth["gpu2<->switch1"]
    assert f"l{changed.number['switch1->gpu2']}" not in limits
    with pytest.raises(InputError, match="already"):
        faults.half_duplex(changed, "switch1->gpu2")


def test_a_duplex_resource_of_the_topology_is_a_pool() -> None:
    shape = shape_of(pair_topology(nominal_Bps=1e9, sharing=Sharing.DUPLEX))
    assert [pool.id for pool in shape.blueprint.pools] == ["gpu0<->gpu1"]
    assert shape.blueprint.truth.keys() == {"gpu0<->gpu1"} == shape.visible_Bps.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slow": ["switch0->socket0"]}, "is not LINK=FACTOR"),
        ({"slow": ["switch0->socket0=fast"]}, "is no factor"),
        ({"slow": ["switch0->socket0=0"]}, "a factor of 0"),
        ({"slow": ["switch0->gpu9=0.5"]}, "has no link"),
        ({"half_duplex": ["nothing"]}, "has no link"),
        ({"ingress": ["gpu3"]}, "is not ENDPOINT=RATE"),
        ({"ingress": ["gpu9=20MB/s"]}, "unknown endpoint"),
        ({"ingress": ["gpu3=0MB/s"]}, "a capacity of 0"),
        ({"ingress": ["gpu3<-gpu9=1MB/s"]}, "unknown endpoint"),
        ({"ingress": ["gpu3=1MB/s", "gpu3<-0=1MB/s"]}, "has an ingress limit already"),
    ],
)
def test_faults_that_make_no_sense_are_refused(options: dict[str, list[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        with_faults(find_shape("b70"), **options)


def test_faults_by_their_notation() -> None:
    shape = with_faults(
        find_shape("b70"),
        slow=["switch0->socket0=0.5"],
        half_duplex=["gpu2->switch1"],
        ingress=["3=20MB/s"],
    )
    assert shape.blueprint.truth["switch0->socket0"] == B70.truth["switch0->socket0"] / 2
    assert shape.blueprint.ingress == (Ingress(endpoint="gpu3", capacity_Bps=20e6),)
    some = with_faults(find_shape("b70"), ingress=["5<-0,gpu1=25MB/s"]).blueprint
    assert some.ingress_of("gpu5") == Ingress(
        endpoint="gpu5", capacity_Bps=25e6, sources=("gpu0", "gpu1")
    )
    with pytest.raises(InputError, match="no shape and no reference machine"):
        find_shape("b71x")
    with pytest.raises(UnknownEndpointError):
        find_shape("b70", endpoints="0,9")
    assert find_shape("b70", endpoints="1,0").blueprint.endpoints == ("gpu1", "gpu0")


# Lines.


def test_a_rate_counts_payload_and_the_bucket_counts_frames() -> None:
    # 1448 of 1514 bytes are payload: 144.8 MB/s take 151.4 MB/s of frames.
    rate = "rate 1211200000bit ceil 1211200000bit burst 8000 cburst 8000"
    assert change_rate("eth0", 144.8e6) == f"class change dev eth0 parent 1: classid 1:1 htb {rate}"
    lines = limit_device("eth0", 144.8e6, ["10.77.0.1", "10.77.0.2"])
    assert f"class add dev eth0 parent 1: classid 1:1 htb {rate}" in lines
    # The acknowledgements' filter comes before those of the sources.
    filters = [line for line in lines if line.startswith("filter")]
    assert "match u16 52 0xffff at 2" in filters[0]
    assert [f.split()[-4:] for f in filters[1:]] == [
        ["src", "10.77.0.1", "classid", "1:10"],
        ["src", "10.77.0.2", "classid", "1:11"],
    ]


def test_every_link_is_limited_once() -> None:
    limits = limits_in_the_middle(B70)
    own = {name: own_limit(B70, name) for name in B70.endpoints}
    assert len(limits) + len(own) == len(B70.links)
    assert own["gpu0"] == B70.truth["gpu0->switch0"]
    assert limits[f"l{B70.number['switch0->gpu0']}"] == B70.truth["switch0->gpu0"]


def test_every_connection_is_one_pair_of_interfaces() -> None:
    networks = list(range(10, 18))
    pairs = [x for x in middle_lines(B70, networks) if " type veth " in x]
    assert len(pairs) == len(B70.links) // 2
    assert sum("eth0 netns /proc/self/fd/" in line for line in pairs) == 8
    # Each of the six bridges knows the way to each of the eight endpoints.
    assert len(bridge_lines(B70)) == 6 * 8
    assert sum(line.startswith("neighbour") for line in endpoint_lines(B70, 0)) == 7


def test_endpoints_that_are_joined_directly_stand_behind_bridges_of_their_own() -> None:
    blueprint = shape_of(pair_topology(nominal_Bps=1e9)).blueprint
    assert not blueprint.single
    assert blueprint.bridges == blueprint.endpoints
    assert sum(" type veth " in line for line in middle_lines(blueprint, [10, 11])) == 3
    assert len(limits_in_the_middle(blueprint)) == 2
    assert own_limit(blueprint, "gpu0") is None


def test_a_gpu_with_two_connections_stands_behind_a_bridge() -> None:
    blueprint = shape_of(h20_pair()).blueprint  # NVLink inside, PCIe to the NICs.
    assert not blueprint.single
    follow_all(blueprint)


def test_hosts_have_names_only_where_there_are_several() -> None:
    assert not B70.has_hosts
    assert replace(B70, hosts=("a",) * 4 + ("b",) * 4).has_hosts

"""What if: every change by hand, what it must not change, and every mistake's message."""

from __future__ import annotations

import math

import numpy as np
import pytest

from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import (
    InputError,
    NoRouteError,
    TopocalError,
    TopologyError,
    UnitError,
    UnknownEndpointError,
)
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate_batch
from topocal.topo.loads import Batch
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Sharing, Use
from topocal.topo.sweep import sweep
from topocal.topo.what_if import (
    AddLink,
    Case,
    Change,
    Remove,
    Reroute,
    Scale,
    SetCapacity,
    apply,
    parse_link,
    parse_route,
    parse_setting,
)

GB = 1e9


def case() -> Case:
    """Two GPUs under each of two switches under two sockets; a second, longer way across.

    ::

        gpu0 gpu1      gpu2 gpu3       10 GB/s each
          switch0       switch1
             |             |           8 GB/s
          socket0 ----- socket1        4 GB/s, "cross"
               \\        /
                socket2                3 GB/s each
    """
    build = TopologyBuilder("two")
    build.resource(Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=0.9))
    build.resource(Resource(id="far0", nominal_Bps=5 * GB, label="far sends of gpu0"))
    for k in range(3):
        build.node(f"socket{k}", NodeKind.SOCKET)
    for k in range(2):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{k}", f"socket{k}", LinkKind.PCIE, nominal_Bps=8 * GB)
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=4 * GB)
    build.connect("socket0", "socket2", LinkKind.SMP, nominal_Bps=3 * GB)
    build.connect("socket2", "socket1", LinkKind.SMP, nominal_Bps=3 * GB)
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=10 * GB)
    build.use(Use(resource="engine", destinations=("gpu3",)))
    build.use(Use(resource="far0", sources=("gpu0",), path_classes=(PathClass.SYS,)))
    topology = build.build()
    return Case(topology=topology, capacities=Capacities.of(topology))


def seconds(which: Case, *ends: str, size: float = 12 * GB) -> float:
    flows = tuple(
        Flow(source=f"gpu{e[0]}", destination=f"gpu{e[1]}", size_bytes=size) for e in ends
    )
    loads, batch = which.batch([Pattern(flows=flows)])
    return float(simulate_batch(loads, batch).seconds[0])


# change, flows, seconds before, seconds after
BY_HAND: list[tuple[Change, tuple[str, ...], float, float]] = [
    (Scale(resource="socket0->socket1", factor=1.25), ("12",), 12 / 4, 12 / 5),
    (Scale(resource="socket0->socket1", factor=0.5), ("12",), 12 / 4, 12 / 2),
    (SetCapacity(resource="socket0->socket1", capacity_Bps=math.inf), ("12",), 12 / 4, 12 / 8),
    (SetCapacity(resource="FAR SENDS OF GPU0", capacity_Bps=GB), ("02",), 12 / 4, 12 / 1),
    # The link is gone: the longer way round.  The other direction keeps its link.
    (Remove(name="socket0->socket1"), ("12",), 12 / 4, 12 / 3),
    (Remove(name="socket0->socket1"), ("21",), 12 / 4, 12 / 4),
    (Remove(name="socket0<->socket1"), ("21",), 12 / 4, 12 / 3),
    # A resource that is no link no longer binds.
    (Remove(name="far0"), ("02", "02"), 24 / 4, 24 / 4),
    # Alone 1.2 and 3 seconds; by turns 0.9 of both; without the engine both at once.
    (Remove(name="engine"), ("23", "13"), 0.9 * (1.2 + 3), 12 / 4),
    # A link between GPUs is taken before anything else.
    (
        AddLink(tail="gpu1", head="gpu2", capacity_Bps=6 * GB),
        ("12", "21"),
        12 / 4,
        12 / 4,
    ),
    (
        AddLink(tail="gpu1", head="gpu2", capacity_Bps=6 * GB, both_ways=True),
        ("12", "21"),
        12 / 4,
        12 / 6,
    ),
    (
        Reroute(
            source="gpu1",
            destination="gpu2",
            links=(
                "gpu1->switch0",
                "switch0->socket0",
                "socket0->socket2",
                "socket2->socket1",
                "socket1->switch1",
                "switch1->gpu2",
            ),
        ),
        ("12", "03"),
        24 / 4,
        12 / 3,
    ),
]


@pytest.mark.parametrize(("change", "flows", "before", "after"), BY_HAND, ids=str)
def test_by_hand(change: Change, flows: tuple[str, ...], before: float, after: float) -> None:
    base = case()
    assert seconds(base, *flows) == pytest.approx(before)
    changed = apply(base, [change])
    assert seconds(changed, *flows) == pytest.approx(after)
    # The case that it was made from is as it was.
    assert base.topology == case().topology
    assert np.array_equal(base.capacities.capacity_Bps, case().capacities.capacity_Bps)


def test_changes_add_up_in_order() -> None:
    changed = apply(
        case(),
        [
            Scale(resource="socket0->socket1", factor=2.0),
            SetCapacity(resource="socket0->socket1", capacity_Bps=1 * GB),
            Scale(resource="socket0->socket1", factor=3.0),
        ],
    )
    assert seconds(changed, "12") == pytest.approx(12 / 3)


def test_capacities_survive_a_change_of_the_machine() -> None:
    base = apply(case(), [SetCapacity(resource="switch0->socket0", capacity_Bps=2 * GB)])
    for change in (
        Remove(name="far0"),
        Remove(name="engine"),
        AddLink(tail="gpu0", head="gpu3", capacity_Bps=6 * GB),
        Remove(name="socket0->socket2"),
    ):
        assert seconds(apply(base, [change]), "12") == pytest.approx(12 / 2)


def test_unknown_capacities_stay_unknown() -> None:
    base = case()
    capacities = Capacities.of(base.topology.with_resources([Resource(id="far0")]), needed=())
    base = Case(topology=base.topology.with_resources([Resource(id="far0")]), capacities=capacities)
    changed = apply(base, [AddLink(tail="gpu0", head="gpu3", capacity_Bps=6 * GB)])
    with pytest.raises(TopologyError, match="the capacity of far0 is unknown"):
        seconds(changed, "02")
    with pytest.raises(TopologyError, match="far0 is unknown and cannot be scaled; give it, for"):
        apply(base, [Scale(resource="far0", factor=2.0)])
    given = apply(changed, [SetCapacity(resource="far0", capacity_Bps=GB)])
    assert seconds(given, "02") == pytest.approx(12.0)


def test_new_links_get_ids_of_their_own() -> None:
    one = AddLink(tail="gpu0", head="gpu1", capacity_Bps=GB, both_ways=True)
    twice = apply(case(), [one, one, one])
    new = set(twice.topology.links) - set(case().topology.links)
    assert new == {f"gpu{a}->gpu{1 - a}{n}" for a in (0, 1) for n in ("", "#2", "#3")}
    assert twice.topology.links["gpu0->gpu1#3"].reverse == "gpu1->gpu0#3"
    assert twice.topology.links["gpu0->gpu1"].kind is LinkKind.NVLINK
    kinds = {
        ("gpu0", "switch1"): LinkKind.PCIE,
        ("socket0", "socket2"): LinkKind.SMP,
    }
    for (tail, head), kind in kinds.items():
        more = apply(case(), [AddLink(tail=tail, head=head, capacity_Bps=GB)])
        (link,) = set(more.topology.links) - set(case().topology.links)
        assert more.topology.links[link].kind is kind


def test_a_chosen_route_loads_what_rules_say_of_its_class() -> None:
    route = parse_route("gpu0->gpu1=switch0,socket0,socket2,socket0,switch0", case().topology)
    changed = apply(case(), [route])
    lines = changed.incidence([("gpu0", "gpu1"), ("gpu1", "gpu0")])
    loaded = dict(zip(lines.resources, lines.matrix.toarray()[0], strict=True))
    # It crosses the hop between sockets, so that the rule for far sends holds.
    assert loaded["far0"] == 1.0
    assert loaded["switch0->socket0"] == 1.0
    assert lines.matrix.toarray()[1].sum() == 2.0


PARSED: list[tuple[str, Change]] = [
    ("cross0=2x", Scale(resource="cross0", factor=2.0)),
    (" cross0 = .5 x", Scale(resource="cross0", factor=0.5)),
    ("a=b=1e-1x", Scale(resource="a=b", factor=0.1)),
    ("gpu0->switch0=25GB/s", SetCapacity(resource="gpu0->switch0", capacity_Bps=25e9)),
    ("cross0=200Gb/s", SetCapacity(resource="cross0", capacity_Bps=25e9)),
    ("cross0=inf", SetCapacity(resource="cross0", capacity_Bps=math.inf)),
    ("cross0=0", SetCapacity(resource="cross0", capacity_Bps=0.0)),
]


@pytest.mark.parametrize(("text", "change"), PARSED)
def test_settings_as_people_write_them(text: str, change: Change) -> None:
    assert parse_setting(text) == change


def test_links_as_people_write_them() -> None:
    assert parse_link("gpu0->gpu1=25GB/s") == AddLink(tail="gpu0", head="gpu1", capacity_Bps=25e9)
    assert parse_link("a <-> b = inf:smp") == AddLink(
        tail="a", head="b", capacity_Bps=math.inf, both_ways=True, kind=LinkKind.SMP
    )


MISTAKES: list[tuple[Change | str, type[TopocalError], str]] = [
    ("cross0", InputError, "sets nothing; write it as NAME=2x or NAME=25GB/s"),
    ("=2x", InputError, "sets nothing"),
    ("cross0=", InputError, "sets nothing"),
    ("cross0=fast", UnitError, "'fast' is not a rate"),
    ("cross0=-2x", UnitError, "'-2x' is not a rate"),
    (Scale(resource="socket0-socket1", factor=2), TopologyError, "did you mean socket0->socket1?"),
    (Scale(resource="far0", factor=math.nan), TopologyError, "far0 is scaled by nan"),
    (Scale(resource="far0", factor=-1), TopologyError, "far0 is scaled by -1"),
    (Scale(resource="engine", factor=2), TopologyError, "engine is shared by time"),
    (SetCapacity(resource="far0", capacity_Bps=-1), TopologyError, "far0 has capacity -1"),
    (Remove(name="gpu0->gpu9"), TopologyError, "unknown resource 'gpu0->gpu9'"),
    (Remove(name="gpu0<->gpu9"), TopologyError, "unknown resource"),
    (AddLink(tail="gpu0", head="gpu9", capacity_Bps=1), TopologyError, "unknown node 'gpu9'"),
    (AddLink(tail="gpu0", head="gpu0", capacity_Bps=1), TopologyError, "gpu0 to itself"),
    (AddLink(tail="gpu0", head="gpu1", capacity_Bps=math.nan), TopologyError, "has capacity nan"),
    (
        Reroute(source="gpu0", destination="gpu9", links=()),
        UnknownEndpointError,
        "unknown endpoint 'gpu9'",
    ),
    (
        Reroute(source="gpu0", destination="gpu2", links=("gpu0->switch0",)),
        NoRouteError,
        "the route of gpu0->gpu2 ends at switch0",
    ),
    (
        Reroute(source="gpu0", destination="gpu2", links=("switch0->socket0",)),
        NoRouteError,
        "is at gpu0, where switch0->socket0 does not begin",
    ),
    (
        Reroute(source="gpu0", destination="gpu2", links=("gpu0->gpu2",)),
        TopologyError,
        "unknown link 'gpu0->gpu2'",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_are_told(change: Change | str, error: type[TopocalError], message: str) -> None:
    with pytest.raises(error) as caught:
        apply(case(), [parse_setting(change) if isinstance(change, str) else change])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["gpu0=25GB/s", "gpu0->=1", "->gpu1=1", "gpu0->gpu1=1:rope"])
def test_mistaken_links(text: str) -> None:
    with pytest.raises(InputError, match="is no "):
        parse_link(text)


def test_mistaken_routes() -> None:
    topology = case().topology
    for text in ("gpu0=switch0", "gpu0->gpu1", "->gpu1=switch0"):
        with pytest.raises(InputError, match="is no route"):
            parse_route(text, topology)
    with pytest.raises(NoRouteError, match="no link from switch0 to switch1"):
        parse_route("gpu0->gpu2=switch0,switch1", topology)
    with pytest.raises(TopologyError, match="unknown node 'switch7'"):
        parse_route("gpu0->gpu2=switch7", topology)
    route = parse_route("gpu1->gpu2=switch0,socket0,socket1,switch1", topology)
    with pytest.raises(TopologyError, match="crosses socket0->socket1, which is removed"):
        apply(case(), [route, Remove(name="socket0->socket1")])


def test_a_cut_machine_has_no_route() -> None:
    cut = apply(case(), [Remove(name="gpu1->switch0")])
    with pytest.raises(NoRouteError, match="no route from gpu1 to gpu2"):
        seconds(cut, "12")


def test_a_sweep_takes_the_closed_form_where_it_is_exact() -> None:
    random = np.random.default_rng(4)
    patterns = []
    for k in range(300):
        pairs = random.integers(0, 4, (3, 2))
        sizes = [GB, GB, GB] if k % 3 else [GB, 2 * GB, 3 * GB]
        patterns.append(
            Pattern(
                flows=tuple(
                    Flow(source=f"gpu{a}", destination=f"gpu{b}", size_bytes=s)
                    for (a, b), s in zip(pairs, sizes, strict=True)
                ),
                name=f"p{k}",
            )
        )
    loads, batch = case().batch(patterns)
    told: list[int] = []
    found = sweep(loads, batch, alpha_s=0.5, progress=told.append)
    assert sum(told) == 300
    assert not found.simulated[1]
    assert found.simulated.any()
    every = simulate_batch(loads, batch, alpha_s=0.5)
    np.testing.assert_allclose(found.seconds, every.seconds, rtol=1e-12)
    for k in np.flatnonzero(found.simulated)[:20]:
        flows = slice(batch.indptr[k], batch.indptr[k + 1])
        last = batch.indptr[k] + int(np.argmax(every.finish_s[flows]))
        assert found.bottleneck[k] == every.bottleneck[last]
    one = sweep(loads, batch, alpha_s=0.5, threads=1)
    assert np.array_equal(one.seconds, found.seconds)


def test_parts_of_a_batch() -> None:
    batch = Batch(
        np.array([0, 2, 3, 6]), np.arange(6), np.linspace(10.0, 15.0, 6), np.linspace(20.0, 25.0, 6)
    )
    part = batch.part(1, 3)
    assert part.indptr.tolist() == [0, 1, 4]
    assert part.pair.tolist() == [2, 3, 4, 5]
    some = batch.select(np.array([2, 0]))
    assert some.indptr.tolist() == [0, 3, 5]
    assert some.size_bytes.tolist() == [13.0, 14.0, 15.0, 10.0, 11.0]
    assert Batch.single(np.arange(2), np.ones(2)).start_s.tolist() == [0.0, 0.0]

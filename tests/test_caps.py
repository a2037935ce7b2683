"""Caps: what stands in them, by hand and on any machine."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from caps_cases import GB, rates, small
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

import topocal as tc
from topocal.solve.caps import Caps
from topocal.solve.caps_document import (
    caps_from_document,
    encode_caps,
)
from topocal.solve.caps_tables import process_table, sender_counts
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.topo import machines
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, InputError, UnknownEndpointError
from topocal.topo.incidence import incidence
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.resource import LinkKind, NodeKind, Sharing


@pytest.fixture(scope="module")
def caps() -> Caps:
    return nominal_model(small()).caps()


def test_who_loads_what(caps: Caps) -> None:
    load = {
        cap.id: rates([(a, b, w * GB) for a, b, w in cap.loads], caps) for cap in caps.resources
    }
    (duplex,) = [cap.id for cap in caps.resources if cap.sharing is Sharing.DUPLEX]
    near, far = (0, 1), (2, 3)
    across = [*itertools.product(near, far), *itertools.product(far, near)]
    assert load[duplex] == dict.fromkeys(across, 1.0)
    assert load["turns"] == dict.fromkeys([(0, 3), (1, 3), (2, 3)], 1.0)
    assert load["path"] == {(1, 0): 1.0}
    assert load["gpu0->switch0"] == dict.fromkeys([(0, 1), (0, 2), (0, 3)], 1.0)


def test_rates_of_pairs(caps: Caps) -> None:
    alone = rates(caps.alone, caps)
    assert alone[0, 1] == pytest.approx(10)
    assert alone[1, 0] == pytest.approx(3)
    assert alone[0, 3] == alone[3, 0] == pytest.approx(8)
    assert len(alone) == 12
    # Across, both directions draw from 8; inside a switch they do not meet.
    both = rates(caps.both_ways, caps)
    assert both == {pair: pytest.approx(4) for pair in both}
    assert set(both) == {(a, b) for a, b in alone if (a < 2) != (b < 2)}


def test_what_a_process_passes(caps: Caps) -> None:
    table = caps.processes
    # Each card's own link of 10; gpu0 gets 3 from gpu1 and 8 from across, in all no more than
    # its link. gpu3's senders by turns pass 10 / 0.9 at best, its link 10.
    assert [round(s / GB, 6) for s in table.send_Bps if s] == [10, 10, 10, 10]
    assert [round(r / GB, 6) for r in table.receive_Bps if r] == [10, 10, 10, 10]
    assert table.senders == (1, 2, 3)
    # Into gpu3 by turns. One: 8 from across at least, 10 from gpu2 at most.
    least, most = table.receive_least_Bps[3], table.receive_most_Bps[3]
    assert least[0] == pytest.approx(8 * GB)
    assert most[0] == pytest.approx(10 * GB)
    # Two: both from across, 2 / (0.9 (1/8 + 1/8)) = 8.9, but both share the 8; or gpu2 and one
    # from across, 2 / (0.9 (1/8 + 1/10)) = 9.88.
    assert least[1] == pytest.approx(8 * GB)
    assert most[1] == pytest.approx(2 / (0.9 * (1 / 8 + 1 / 10)) * GB)
    assert most[2] == least[2] == pytest.approx(3 / (0.9 * (2 / 8 + 1 / 10)) * GB)
    assert table.enough_senders[3] == 1
    # Into gpu0: 3 from gpu1 alone, 8 from across; with gpu1, each gets as much as gpu1: 6.
    assert table.receive_least_Bps[0][:2] == pytest.approx((3 * GB, 6 * GB))
    assert table.receive_most_Bps[0] == pytest.approx((8 * GB, 8 * GB, 9 * GB))
    assert table.enough_senders[0] == 3


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_tables_against_all_sets_of_senders(data: st.DataObject) -> None:
    n = 5
    costs = _random_costs(data, n)
    table = process_table(costs)
    for root in range(n):
        others = [s for s in range(n) if s != root]
        for column, count in enumerate(table.senders):
            finishes = []
            for chosen in itertools.combinations(others, count):
                moved = np.zeros(n * n)
                moved[[s * n + root for s in chosen]] = 1.0
                finishes.append(float(costs.busy_s(moved).max(initial=0.0)))
            least, most = (
                t[root][column] for t in (table.receive_least_Bps, table.receive_most_Bps)
            )
            if least is None:
                assert max(finishes) == 0
                continue
            assert least == pytest.approx(count / max(finishes))
            if most is None:
                assert min(finishes) == 0
            else:
                assert most <= count / max(min(finishes), 1e-300) * (1 + 1e-9)
                assert most >= least * (1 - 1e-9)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_no_mix_of_peers_passes_more(data: st.DataObject) -> None:
    n = 4
    costs = _random_costs(data, n)
    table = process_table(costs)
    matrix = costs.seconds_per_byte.toarray()
    for k in range(n):
        for axis, bound in ((0, table.send_Bps[k]), (1, table.receive_Bps[k])):
            others = [o for o in range(n) if o != k]
            pairs = [k * n + o if axis == 0 else o * n + k for o in others]
            rows = np.vstack((matrix[:, pairs], np.diag(costs.alone_s[pairs])))
            best = linprog(-np.ones(len(pairs)), A_ub=rows, b_ub=np.ones(len(rows)))
            if bound is None:
                assert best.status == 3  # unbounded
            else:
                assert bound >= -float(best.fun or 0.0) * (1 - 1e-9)


def _random_costs(data: st.DataObject, n: int) -> PairCosts:
    pairs = [a * n + b for a in range(n) for b in range(n) if a != b]
    law = st.sampled_from([Sharing.CAPACITY, Sharing.DUPLEX, Sharing.TIME_SHARED, Sharing.FATPIPE])
    count = data.draw(st.integers(1, 5))
    weights = np.zeros((n * n, count))
    resources = []
    for k in range(count):
        chosen = data.draw(st.sets(st.sampled_from(pairs), min_size=1))
        weights[sorted(chosen), k] = data.draw(st.sampled_from([1.0, 2.0]))
        rate = data.draw(st.sampled_from([None, 1.0, 2.0, 3.0, 5.0]))
        resources.append((f"r{k}", data.draw(law), rate, data.draw(st.sampled_from([0.9, 1.0]))))
    return PairCosts.build([f"gpu{k}" for k in range(n)], resources, csr_array(weights))


def test_nested_sets_are_exact() -> None:
    # Near pairs 4 in all, far ones 5, the card 8: 8; with a card of 20, 9.
    weights = np.zeros((16, 3))
    weights[[1, 2], 0], weights[[3], 1], weights[[1, 2, 3], 2] = 1.0, 1.0, 1.0
    for card, most in ((8.0, 8.0), (20.0, 9.0)):
        resources = [("near", Sharing.CAPACITY, 4.0, 1.0), ("far", Sharing.CAPACITY, 5.0, 1.0)]
        resources.append(("card", Sharing.CAPACITY, card, 1.0))
        costs = PairCosts.build("abcd", resources, csr_array(weights))
        assert process_table(costs).send_Bps[0] == pytest.approx(most)


@pytest.mark.parametrize("n", [2, 3, 9, 10, 17, 64, 65, 200, 1024])
def test_numbers_of_senders_begin_with_one_and_end_with_all(n: int) -> None:
    counts = sender_counts(n)
    assert counts[0] == 1
    assert counts[-1] == n - 1
    assert list(counts) == sorted(set(counts))


def test_a_series_is_told_once(b70: tc.Model) -> None:
    named = {cap.id for cap in b70.caps().resources}
    loads = {tuple(cap.loads): cap for cap in b70.caps().resources}
    series = [r for r in b70.resources.values() if r.status == "series"]
    for one in series:
        assert one.id not in named or one.confounded_with[0] in named
    assert len(loads) > 1


def test_endpoints_that_are_chosen(b70: tc.Model) -> None:
    some = b70.caps(["gpu5", "gpu2", "gpu0"])
    assert some.endpoints == ("gpu5", "gpu2", "gpu0")
    costs, full = PairCosts.of(some), PairCosts.of(b70)
    assert costs.alone_s[0 * 3 + 1] == full.alone_s[5 * 8 + 2]
    with pytest.raises(UnknownEndpointError, match="gpu9"):
        b70.caps(["gpu9", "gpu1"])
    for few in (["gpu1"], ["gpu1", "gpu1"]):
        with pytest.raises(InputError, match="two different endpoints"):
            b70.caps(few)


def test_without_a_route_a_pair_is_told() -> None:
    build = TopologyBuilder("apart")
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
    for a, b in (("gpu0", "gpu1"), ("gpu2", "gpu3")):
        build.connect(a, b, LinkKind.NVLINK, nominal_Bps=10 * GB)
    found = nominal_model(build.build()).caps()
    apart = set(rates(found.unreachable, found))
    assert apart == {(a, b) for a in range(4) for b in range(4) if (a < 2) != (b < 2)}
    assert np.flatnonzero(found.pair_costs.blocked).tolist() == sorted(a * 4 + b for a, b in apart)
    with pytest.raises(FlowError, match=r"no byte gets from gpu0 to gpu3: nothing joins them"):
        tc.price(found, [(0, 3, 1.0)])
    assert tc.price(found, [(0, 1, 10 * GB)]).seconds == pytest.approx(1.0)


def test_who_may_serve_by_turns(b70: tc.Model) -> None:
    model = replace(b70, undecided=(1,), undecided_endpoints=(("gpu2", 0), ("gpu3", 0)))
    engines = {name for name in model.resources if name.endswith(".receiver.engine")}
    found = model.caps()
    receiving = [k for k in (2, 3) if f"gpu{k}.receiver.engine" not in engines]
    assert found.undecided == (tuple(receiving), tuple(range(8)))
    plain = replace(nominal_model(small()), undecided=(0, 1)).caps()
    assert plain.undecided == ((0, 1, 2, 3), (0, 1, 2, 3))
    two = tc.price(plain, [(0, 2, 8 * GB), (1, 2, 8 * GB)])
    assert two.seconds == pytest.approx(2.0)  # the 8 GB/s between the switches
    assert two.by_turns == ()  # by turns it would take as long


def test_sizes_stay_small() -> None:
    small_file = encode_caps(nominal_model(machines.rail_pod(1)).caps())
    large_file = encode_caps(nominal_model(machines.rail_pod(8)).caps())
    assert len(small_file) < 10_000
    assert len(large_file) < 200_000  # 64 processes, 4032 pairs


@pytest.mark.parametrize("name", MACHINES)
def test_every_reference_machine_loads_what_its_routes_do(name: str) -> None:
    topology = build_machine(name)
    model = nominal_model(topology)
    found = model.caps()
    back = caps_from_document(json.loads(encode_caps(found)), file="caps.json")
    ends = back.endpoints
    pairs = [(a, b) for a in ends for b in ends]
    lines = incidence(topology, pairs)
    columns = [lines.resources.index(cap.id) for cap in back.resources]
    assert abs(back.weights - lines.matrix[:, columns]).sum() == 0
    # What is left out is loaded by nobody.
    others = np.setdiff1d(np.arange(len(lines.resources)), columns)
    assert lines.matrix[:, others].nnz == 0


def test_random_clusters_come_back_too() -> None:
    for seed in range(6):
        topology = machines.random_cluster(np.random.default_rng(seed))
        found = nominal_model(topology).caps()
        back = caps_from_document(json.loads(encode_caps(found)), file="caps.json")
        pairs = [(a, b) for a in back.endpoints for b in back.endpoints]
        lines = incidence(topology, pairs)
        columns = [lines.resources.index(cap.id) for cap in back.resources]
        assert abs(back.weights - lines.matrix[:, columns]).sum() == 0

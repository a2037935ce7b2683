"""Prices: against the model's predictions, by hand, and bounds against every way to pair."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import topocal as tc
from topocal.solve.caps import Caps
from topocal.solve.caps_document import caps_to_document, encode_caps
from topocal.solve.fading import Crowd, Fading
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.solve.price import UNPROVEN, price
from topocal.solve.price_totals import price_bounds
from topocal.solve.status import Status
from topocal.solve.transfers import Flows, Totals, flows_between
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, UnknownEndpointError
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use

ROOT = Path(__file__).parents[1]
B70 = ROOT / "examples" / "b70"
GB = 1e9
FADING = Fading(loss=0.02, error=0.003, by=Crowd.PATTERN, most_flows=6, advantage=20.0)


@pytest.fixture(scope="module")
def b70_caps(b70: tc.Model) -> Caps:
    return b70.caps()


@pytest.fixture(scope="module")
def caps(b70_caps: Caps) -> Caps:
    return b70_caps


@pytest.fixture(scope="module")
def two() -> tc.Model:
    """Two cards under each of two switches; 10 GB/s each, 8 across, measured; gpu3 by turns."""
    build = TopologyBuilder("two")
    for k in range(2):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
    build.connect("switch0", "switch1", LinkKind.PCIE, nominal_Bps=8 * GB)
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=10 * GB)
    topology = build.build().with_resources(
        [Resource(id="turns", sharing=Sharing.TIME_SHARED, kappa=0.9)],
        [Use(resource="turns", destinations=("gpu3",))],
    )
    return nominal_model(topology)


def changed(model: tc.Model, **changes: Any) -> tc.Model:
    """A model with other figures for some resources."""
    table = {
        name: replace(r, **changes.get(name.replace("->", "_to_"), {}))
        for name, r in model.resources.items()
    }
    return replace(model, resources=table)


def drawn(data: st.DataObject, *, alike: bool, n: int = 8) -> list[tuple[int, int, float]]:
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=10, unique=True))
    sizes = st.integers(2**20, 2**30).map(float)
    one = data.draw(sizes)
    return [(a, b, one if alike else data.draw(sizes)) for a, b in chosen]


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("fading", [None, FADING, replace(FADING, by=Crowd.RESOURCE)])
@given(st.data())
@settings(deadline=None, max_examples=15)
def test_a_price_is_what_the_model_predicts(
    b70: tc.Model, b70_caps: Caps, fading: Fading | None, alike: bool, data: st.DataObject
) -> None:
    flows = drawn(data, alike=alike)
    model = replace(b70, fading=fading)
    caps = replace(b70_caps, fading=fading)
    found = price(caps, flows)
    pattern = tc.Pattern(
        flows=tuple(
            tc.Flow(source=caps.endpoints[a], destination=caps.endpoints[b], size_bytes=size)
            for a, b, size in flows
        )
    )
    (wanted,) = tc.predict(model, [pattern])
    assert found.seconds == pytest.approx(wanted.seconds, rel=1e-9)
    assert found.exact == wanted.exact
    assert found.busiest is not None
    assert found.busiest.seconds == pytest.approx(
        wanted.bottleneck.seconds if wanted.bottleneck else 0.0, rel=0.03
    )
    assert found.low_s <= found.seconds <= found.high_s
    assert found.low_s == pytest.approx(wanted.low_s, rel=0.1)
    assert found.high_s == pytest.approx(wanted.high_s, rel=0.1)
    assert found.busiest_s <= found.seconds * (1 + 1e-12)


def test_by_hand(two: tc.Model) -> None:
    # Both senders across: 8 GB/s for 16 GB, 2 s; each card's own link takes 0.8 s.
    found = price(two, [("gpu0", "gpu2", 8 * GB), ("gpu1", "gpu2", 8 * GB)])
    assert found.seconds == found.busiest_s == pytest.approx(2.0)
    assert found.busiest is not None
    assert found.busiest.resource == "switch0->switch1"
    assert found.runner_up is not None
    assert found.runner_up.resource == "switch1->gpu2"
    assert found.runner_up.seconds == pytest.approx(1.6)
    assert found.exact
    assert not found.simulated
    assert found.throughput_Bps == pytest.approx(8 * GB)
    # By turns: 0.9 (1/8 + 1/10) for each of 8 GB: 1.62 s; the way across 1 s.
    turns = price(two, [(0, 3, 8 * GB), (2, 3, 8 * GB)])
    assert turns.seconds == pytest.approx(0.9 * 8 * (1 / 8 + 1 / 10))
    assert turns.busiest is not None
    assert turns.busiest.sharing is Sharing.TIME_SHARED


def test_unlike_sizes_are_simulated(two: tc.Model) -> None:
    # 8 GB and 4 GB across share 8 GB/s: 1.5 s by the busiest resource, and 1.5 s in all.
    found = price(two, [(0, 2, 8 * GB), (1, 3, 4 * GB)])
    assert not found.exact
    assert found.simulated
    assert found.seconds == pytest.approx(1.5)
    # With a third flow out of gpu0: its 10 GB/s carry 12 GB, but 8 of them wait for the way.
    more = price(two, [(0, 2, 8 * GB), (1, 3, 8 * GB), (0, 1, 4 * GB)])
    assert more.seconds == pytest.approx(2.0)
    assert more.busiest_s == pytest.approx(2.0)


def test_nothing_to_move(two: tc.Model) -> None:
    for flows in ([], [(1, 1, 5.0)], [(0, 1, 0.0)]):
        found = price(two, flows)
        assert (found.seconds, found.low_s, found.high_s) == (0.0, 0.0, 0.0)
        assert found.busiest is None
        assert found.dependence.share == 0.0
    assert price(two, [(1, 1, 5.0)]).local_bytes == 5.0


def test_start_up(two: tc.Model) -> None:
    from topocal.measure.patterns import PatternKind

    kinds = dict.fromkeys(PatternKind, 1e-3)
    model = replace(two, offset_s=dict.fromkeys(kinds, -2e-4), alpha_s=kinds)
    large, small = price(model, [(0, 1, 10 * GB)]), price(model, [(0, 1, 10.0)])
    assert large.seconds == pytest.approx(1.0 - 2e-4)
    assert small.seconds == pytest.approx(1e-3)
    assert PairCosts.of(model).alpha_s == -2e-4


def test_what_rests_on_unproven_caps(two: tc.Model) -> None:
    # Measured: the cards, 10. Bounded: the way across, 8, of which 5 are proven.
    links = {
        f"gpu{k}_to_switch{k // 2}": {"status": Status.PINNED, "error": 0.01} for k in range(4)
    }
    across = {"status": Status.BOUNDED, "low_Bps": 5 * GB, "high_Bps": None}
    model = changed(two, switch0_to_switch1=across, **links)
    found = price(model, [(0, 2, 8 * GB), (1, 2, 8 * GB)])
    rest = found.dependence
    assert found.seconds == pytest.approx(2.0)
    assert rest.seconds_without == pytest.approx(0.8)
    assert rest.seconds_at_least == pytest.approx(16 / 5)
    assert rest.share == pytest.approx(1 - 0.8 / 2.0)
    assert [one.resource for one in rest.resources] == ["switch0->switch1", "switch1->gpu2"]
    # Inside a switch the cards' own links decide: nothing rests on what is not proven.
    model = changed(model, switch0_to_gpu1={"status": Status.PINNED, "error": 0.01})
    near = price(model, [(0, 1, 10 * GB)])
    assert near.dependence.share == 0.0
    assert near.dependence.resources == ()
    assert near.seconds == pytest.approx(1.0)
    # The measured one of two that are as busy is named.
    assert near.busiest is not None
    assert near.busiest.status not in UNPROVEN


def test_what_nothing_is_known_of(two: tc.Model) -> None:
    unknown = {"status": Status.UNKNOWN, "capacity_Bps": None, "low_Bps": None, "high_Bps": None}
    model = changed(two, switch0_to_switch1=unknown)
    found = price(model, [(0, 2, 10 * GB)])
    assert found.unmeasured == ("switch0->switch1",)
    assert found.seconds == pytest.approx(1.0)


def test_equal_input_gives_equal_prices(caps: Caps) -> None:
    flows = [(a, b, 1e8 + a) for a in range(8) for b in range(8) if a != b]
    assert price(caps, flows) == price(caps, flows[::-1])


@pytest.mark.parametrize(
    ("flows", "error", "words"),
    [
        ([(0, 8, 1.0)], FlowError, "no process 8; the caps are of 8 processes, 0 to 7"),
        ([(-1, 2, 1.0)], FlowError, "no process -1"),
        ([("gpu0", "gpu9", 1.0)], UnknownEndpointError, "gpu9"),
        ([(0, 1, -1.0)], tc.TopocalError, "-1.0"),
        ([(0, 1, float("nan"))], tc.TopocalError, "nan"),
        ([(True, 1, 1.0)], FlowError, "no process True"),
    ],
)
def test_what_cannot_be_priced(
    flows: list[tuple[str | int, str | int, float]],
    error: type[Exception],
    words: str,
    caps: Caps,
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        price(caps, flows)


def test_caps_of_other_processes(caps: Caps) -> None:
    with pytest.raises(FlowError, match="flows between 3 processes, caps of 8"):
        price(caps, Flows(moved=np.zeros(9)))
    with pytest.raises(FlowError, match="totals of 3 processes, caps of 8"):
        price_bounds(caps, Totals(sent=np.ones(3), received=None))


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_no_way_to_pair_is_outside_the_bounds(caps: Caps, data: st.DataObject) -> None:
    flows = flows_between(caps.endpoints, drawn(data, alike=False))
    square = flows.moved.reshape(8, 8)
    sent, received = square.sum(axis=1), square.sum(axis=0)
    finish = PairCosts.of(caps).finish_s(flows.moved)
    loose = []
    for totals in (
        Totals(sent=sent, received=received),
        Totals(sent=sent, received=None),
        Totals(sent=None, received=received),
    ):
        bounds = price_bounds(caps, totals)
        assert bounds.proven_s <= bounds.at_least_s <= finish * (1 + 1e-9)
        assert finish <= bounds.at_most_s * (1 + 1e-9)
        loose.append(bounds)
    assert loose[0].at_least_s >= max(loose[1].at_least_s, loose[2].at_least_s) * (1 - 1e-9)
    assert loose[0].at_most_s <= min(loose[1].at_most_s, loose[2].at_most_s) * (1 + 1e-9)


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_the_bound_is_the_best_way_to_pair(caps: Caps, data: st.DataObject) -> None:
    square = flows_between(caps.endpoints, drawn(data, alike=False)).moved.reshape(8, 8) / GB
    costs = PairCosts.of(caps).seconds_per_byte.toarray() * GB
    balance = np.zeros((16, 65))
    for k in range(8):
        for other in range(8):
            if other != k:
                balance[k, k * 8 + other] = balance[8 + k, other * 8 + k] = 1.0
    best = linprog(
        np.append(np.zeros(64), 1.0),
        A_ub=np.hstack((costs, -np.ones((len(costs), 1)))),
        b_ub=np.zeros(len(costs)),
        A_eq=balance,
        b_eq=np.concatenate((square.sum(axis=1), square.sum(axis=0))),
        bounds=[(0, 0 if p % 9 == 0 else None) for p in range(64)] + [(0, None)],
    )
    assert best.status == 0
    totals = Totals(sent=square.sum(axis=1) * GB, received=square.sum(axis=0) * GB)
    bound = price_bounds(caps, totals).at_least_s
    # Proven by its multipliers, so never above; and tight.
    assert bound <= float(best.fun or 0.0) * (1 + 1e-6)
    assert bound >= float(best.fun or 0.0) * (1 - 1e-3)


def test_bounds_by_hand(two: tc.Model) -> None:
    # gpu0 and gpu1 send 8 each; gpu1 takes 4, gpu2 12. At least 12 GB must cross (8 GB/s): 1.5 s.
    # At most: gpu0's 8 and gpu1's 8 to gpu2, as much as it takes, 12.
    totals = Totals(sent=np.array([8, 8, 0, 0]) * GB, received=np.array([0, 4, 12, 0]) * GB)
    bounds = price_bounds(two, totals)
    assert bounds.at_least_s == pytest.approx(1.5)
    assert bounds.at_most_s == pytest.approx(1.5)
    assert bounds.busiest is not None
    assert bounds.busiest.resource == "switch0->switch1"
    assert bounds.moved_bytes == pytest.approx(16 * GB)
    # Specifications are taken at their word, which bounds them from above too.
    assert bounds.proven_s == pytest.approx(1.5)
    # With what is sent alone, all may stay inside a switch: each card's own link.
    free = price_bounds(two, Totals(sent=np.array([8, 8, 0, 0]) * GB, received=None))
    assert free.at_least_s == pytest.approx(0.8)
    assert free.at_most_s == pytest.approx(2.0)
    # gpu3 takes 10 by turns: 0.9 / 10 each at best, 0.9 / 8 at worst, less than its link.
    turns = price_bounds(two, Totals(sent=None, received=np.array([0, 0, 0, 10]) * GB))
    assert turns.at_least_s == pytest.approx(1.0)
    assert turns.at_most_s == pytest.approx(10 / 8)


def test_totals_that_contradict_each_other() -> None:
    with pytest.raises(FlowError, match="3 bytes are sent and 4 received in all"):
        Totals(sent=np.array([3.0, 0.0]), received=np.array([0.0, 4.0]))
    with pytest.raises(FlowError, match="neither sent nor received"):
        Totals(sent=None, received=None)


def test_fading_is_part_of_the_caps(b70: tc.Model) -> None:
    fading = replace(b70, fading=FADING).caps()
    plain = replace(b70, fading=None).caps()
    assert caps_to_document(plain)["fading"]["loss"] == 0.0
    assert caps_to_document(fading)["fading"]["by"] == "pattern"
    assert b'"loss":0.02' in encode_caps(fading)
    for k, count in enumerate(plain.processes.senders):
        for root in range(8):
            for table in ("receive_least_Bps", "receive_most_Bps"):
                without = getattr(plain.processes, table)[root][k]
                with_loss = getattr(fading.processes, table)[root][k]
                assert with_loss == pytest.approx(without / (1 + 0.02 * (count - 1)))

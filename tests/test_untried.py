"""What no figure could have shown is not predicted as if it were known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from topocal.measure.patterns import parse_pattern
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.next_measurement import Adviser
from topocal.solve.predict import Prediction, predict
from topocal.solve.status import Status
from topocal.solve.untried import TOGETHER
from topocal.topo.builder import TopologyBuilder
from topocal.topo.flow import Pattern
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

SIZE = 2.0**28
PORT = 25e9
CARDS = range(6)

Law = Callable[[Pattern], float]


def machine(*, together: float = math.inf, uplink: float = math.inf) -> Law:
    """Ports of 25 GB/s; what a card passes both ways, and three cards to the other three."""

    def seconds(pattern: Pattern) -> float:
        busy: dict[object, float] = {}
        for f in pattern.flows:
            a, b = int(f.source[3:]), int(f.destination[3:])
            crossed: list[tuple[object, float]] = [
                (("out", a), PORT),
                (("in", b), PORT),
                (("both", a), together),
                (("both", b), together),
            ]
            if a // 3 != b // 3:
                crossed.append((("up", a // 3), uplink))
            for what, capacity in crossed:
                busy[what] = busy.get(what, 0.0) + f.size_bytes / capacity
        return max(busy.values())

    return seconds


def measured(law: Law, notations: Iterable[str], lacking: Iterable[str] = ()) -> Measurements:
    pairs = [f"{a}->{b}" for a in CARDS for b in CARDS if a != b]
    rng = np.random.default_rng(5)
    wanted = [p for p in (*pairs, *notations) if p not in set(lacking)]
    return Measurements.of(
        Sample(pattern=p, seconds=law(p) * math.exp(rng.normal(0, 0.005)))
        for p in (parse_pattern(n, SIZE) for n in wanted)
    )


def star() -> Topology:
    builder = TopologyBuilder("one switch")
    builder.node("switch0", NodeKind.PCIE_SWITCH)
    for k in CARDS:
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", "switch0", LinkKind.PCIE)
    return builder.build()


def _ring(order: list[int]) -> str:
    return " + ".join(f"{a}->{b}" for a, b in zip(order, (*order[1:], order[0]), strict=True))


def said(model: Model, notation: str) -> Prediction:
    (found,) = predict(model, [parse_pattern(notation, SIZE)])
    return found


FANS = [f"{r}<-{','.join(str(c) for c in CARDS if c != r)}" for r in CARDS] + [
    f"{r}->{','.join(str(c) for c in CARDS if c != r)}" for r in CARDS
]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("together", [30e9, math.inf])
def test_both_directions_are_open_where_nothing_had_both(given: bool, together: float) -> None:
    law = machine(together=together)
    model = fit(measured(law, FANS), star() if given else None)
    for notation in ("0<->1", "0->1 + 1->2 + 2->0"):
        found, truth = said(model, notation), law(parse_pattern(notation, SIZE))
        assert not found.narrow
        assert found.low_s <= truth * 1.02
        assert truth <= found.high_s * 1.02
    # By what is known both directions pass; a pattern that tells is named.
    assert said(model, "0<->1").seconds == pytest.approx(SIZE / PORT, rel=0.03)
    about = "gpu0.both-ways" if given else TOGETHER
    advice = Adviser(model).advise(said(model, "0<->1"))
    assert any(o.about == about and o.pattern and len(o.pattern.flows) > 1 for o in advice)
    # What goes one way tries neither.
    for notation in ("0->1", "0->3 + 1->4" if given else "0->1", FANS[0], FANS[-1]):
        wanting = said(model, notation).would_narrow
        assert not [name for name in wanting if name == TOGETHER or "both-ways" in name]


@pytest.mark.parametrize("given", [True, False])
def test_cards_that_were_tried_speak_for_the_others(given: bool) -> None:
    model = fit(measured(machine(), [*FANS, "0<->1"]), star() if given else None)
    assert not [r for r in model.resources if r.endswith(".both-ways")]
    limited = fit(
        measured(machine(together=30e9), [*FANS, "0<->1", "0<->2"]), star() if given else None
    )
    # Not tried: 4 and 5. They are taken to be like those that were, and not known to be.
    found = said(limited, "4<->5")
    assert found.seconds == pytest.approx(2 * SIZE / 30e9, rel=0.03)
    assert not found.narrow


def test_fans_in_and_out_alone_are_no_limit_on_both_directions() -> None:
    """One number would explain both ports, and say of both at once what nobody measured."""
    model = fit(measured(machine(), ["0<-1,2,3", "0->1,2,3", "0<-2,3,4,5", "0->2,3,4,5"]), star())
    found = model.resources["gpu0.both-ways"]
    assert found.status is Status.BOUNDED
    assert found.capacity_Bps is None
    assert said(model, "0<->1").seconds == pytest.approx(SIZE / PORT, rel=0.03)


def test_what_is_joined_in_ways_that_nobody_told_may_share_more_than_pairs_show() -> None:
    law = machine(uplink=26e9)
    pairs = measured(law, FANS)
    unknown, known = fit(pairs), fit(pairs, star())
    crossing = "0->3 + 1->4 + 2->5"
    found = said(unknown, crossing)
    assert not found.narrow
    assert found.low_s <= law(parse_pattern(crossing, SIZE)) <= found.high_s * 1.02
    assert TOGETHER in found.would_narrow
    # Who gives a topology says that there is nothing else.
    assert TOGETHER not in known.resources
    # All cards at once at full speed, in several orders, prove that nothing is shared.
    orders = ("0,1,2,3,4,5", "0,2,4,1,5,3", "0,3,1,4,2,5")
    rings = [_ring([int(c) for c in one.split(",")]) for one in orders]
    assert TOGETHER in fit(measured(machine(), [*FANS, rings[0]])).resources
    assert TOGETHER not in fit(measured(machine(), [*FANS, *rings])).resources


def test_what_one_pattern_shows_is_not_known_of_others() -> None:
    law = machine(uplink=26e9)
    model = fit(measured(law, [*FANS, "0<->1", "0->3 + 1->4"]))
    for notation in ("0->4 + 1->3", "2->3 + 1->5", "0->1 + 3->4", "3->0 + 4->1"):
        found, truth = said(model, notation), law(parse_pattern(notation, SIZE))
        assert not found.narrow, notation
        assert found.low_s <= truth * 1.02, notation
        assert truth <= found.high_s * 1.02, notation


def test_a_pair_in_no_figure_but_a_fan_is_not_as_slow_as_its_share() -> None:
    law = machine()
    for given in (None, star()):
        model = fit(measured(law, FANS, lacking=["0->1"]), given)
        found = said(model, "0->1")
        assert found.seconds == pytest.approx(SIZE / PORT, rel=0.05)
        assert found.low_s <= SIZE / PORT <= found.high_s


def test_few_like_pairs_know_their_noise_less_well() -> None:
    """Two groups of two pairs leave two degrees of freedom: Student's t is 2.2 times as wide."""
    few = ["0->1", "0->2", "1->0", "1->2", "2->1", "2->0"]
    law = machine()
    rng = np.random.default_rng(1)
    noisy = [math.exp(rng.normal(0, 0.01)) for _ in few]
    patterns = [parse_pattern(n, SIZE) for n in few]
    once = fit(
        Measurements.of(
            Sample(pattern=p, seconds=law(p) * e) for p, e in zip(patterns, noisy, strict=True)
        )
    )
    often = fit(
        Measurements.of(
            Sample(pattern=p, seconds=law(p) * e * math.exp(rng.normal(0, 0.01)), repeat=k)
            for p, e in zip(patterns, noisy, strict=True)
            for k in range(8)
        )
    )

    def width(model: Model) -> float:
        found = said(model, "0->1")
        return found.high_s / found.low_s

    assert width(once) > width(often)

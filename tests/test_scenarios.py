"""From raw timings to scenarios: who belongs together, what is left out, what comes of it."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.patterns import PatternKind, both_ways, bundle, fan_in, fan_out, peer
from topocal.measure.samples import Measurements, Sample
from topocal.solve import repeats
from topocal.solve.repeats import pool_repeats
from topocal.solve.scenarios import Scenario, build_scenarios
from topocal.topo.errors import InputError, TopocalError
from topocal.topo.flow import Flow, Pattern

KiB, MiB = 2.0**10, 2.0**20


def build(*samples: Sample) -> tuple[Scenario, ...]:
    return build_scenarios(Measurements.of(samples))


def unequal(scale: float, *, shift: int = 0) -> Pattern:
    """gpu1 sends three times what gpu2 sends, both to gpu0; flows rotated by ``shift``."""
    flows = [
        Flow(source="gpu1", destination="gpu0", size_bytes=3 * scale),
        Flow(source="gpu2", destination="gpu0", size_bytes=scale),
    ]
    flows = flows[shift:] + flows[:shift]
    return Pattern(flows=tuple(flows), name="gpu0<-gpu1,gpu2")


# Which samples belong together.


def test_one_pattern_at_two_sizes_is_one_scenario() -> None:
    #  T(1000) = 3 us, T(3000) = 5 us for each flow's bytes: alpha = 2 us, 1 ns per byte.
    (found,) = build(
        Sample(pattern=fan_in("gpu0", ["gpu1", "gpu2"], 3000.0), seconds=5e-6),
        Sample(pattern=fan_in("gpu0", ["gpu1", "gpu2"], 1000.0), seconds=3e-6),
    )
    assert found.name == "gpu0<-gpu1,gpu2"
    assert found.kind is PatternKind.FAN_IN
    assert [f.size_bytes for f in found.pattern.flows] == [1.0, 1.0]
    assert found.alpha_s == pytest.approx(2e-6)
    assert found.seconds_per_byte == pytest.approx(1e-9)
    assert found.throughput_Bps == pytest.approx(2e9)
    assert found.sizes_bytes == (1000.0, 3000.0)
    assert (found.samples, found.sigma, found.scatter) == (2, None, None)
    assert found.fit.predict(2000.0) == pytest.approx(4e-6)


def test_a_single_size_has_no_start_up_time() -> None:
    (found,) = build(Sample(pattern=peer("gpu0", "gpu1", 4000.0), seconds=2e-6))
    assert found.alpha_s is None
    assert found.seconds_per_byte == pytest.approx(5e-10)


def test_the_order_of_flows_does_not_tell_scenarios_apart() -> None:
    (found,) = build(
        Sample(pattern=fan_in("gpu0", ["gpu1", "gpu2"], 8.0), seconds=1.0),
        Sample(pattern=fan_in("gpu0", ["gpu2", "gpu1"], 8.0), seconds=2.0),
    )
    assert found.samples == 2
    assert found.seconds_per_byte == pytest.approx(math.sqrt(2.0) / 8)


def test_proportions_of_size_do() -> None:
    found = build(
        Sample(pattern=unequal(1000.0), seconds=1.0),
        Sample(pattern=unequal(2000.0, shift=1), seconds=2.0),
        Sample(pattern=fan_in("gpu0", ["gpu1", "gpu2"], 3000.0), seconds=1.5),
    )
    proportions = {tuple(f.size_bytes for f in s.pattern.flows): s for s in found}
    assert proportions.keys() == {(1.0, 1000.0 / 3000.0), (1.0, 1.0)}
    one = proportions[1.0, 1000.0 / 3000.0]
    #  Largest flows of 3000 and 6000 bytes took 1 and 2 s.
    assert one.sizes_bytes == (3000.0, 6000.0)
    assert one.seconds_per_byte == pytest.approx(1 / 3000)


def test_so_do_starts_the_way_of_issuing_and_unknown_sizes() -> None:
    one = peer("gpu0", "gpu1", 8.0)
    late = Pattern(
        flows=(Flow(source="gpu0", destination="gpu1", size_bytes=8.0, start_s=1e-3),),
        name=one.name,
    )
    found = build(
        Sample(pattern=one, seconds=1.0),
        Sample(pattern=one, seconds=1.0, issue="group"),
        Sample(pattern=one, seconds=1.0, issue="one-by-one"),
        Sample(pattern=one, seconds=1.0, size_known=False),
        Sample(pattern=late, seconds=1.0),
    )
    assert len(found) == 5
    assert {s.issue for s in found} == {None, "group", "one-by-one"}
    assert [s.size_known for s in found].count(False) == 1
    assert {s.pattern.flows[0].start_s for s in found} == {0.0, 1e-3}


def test_directions_and_other_endpoints_are_other_scenarios() -> None:
    patterns = [
        peer("gpu0", "gpu1", 8.0),
        peer("gpu1", "gpu0", 8.0),
        both_ways("gpu0", "gpu1", 8.0),
        fan_out("gpu0", ["gpu1", "gpu2"], 8.0),
        fan_in("gpu0", ["gpu1", "gpu2"], 8.0),
        bundle([("gpu0", "gpu1"), ("gpu2", "gpu3")], 8.0),
    ]
    found = build(*(Sample(pattern=p, seconds=1.0) for p in patterns))
    assert {s.name for s in found} == {p.name for p in patterns}
    assert all(s.samples == 1 for s in found)


def test_an_empty_message_belongs_to_the_sizes_that_there_are() -> None:
    equal = fan_in("gpu0", ["gpu1", "gpu2"], 8.0)
    (found,) = build(
        Sample(pattern=equal.scaled(0.0), seconds=1e-6),
        Sample(pattern=equal, seconds=9e-6),
    )
    assert found.alpha_s == pytest.approx(1e-6)
    assert found.seconds_per_byte == pytest.approx(1e-6)
    (found,) = build(
        Sample(pattern=equal.scaled(0.0), seconds=1e-6),
        Sample(pattern=unequal(1000.0), seconds=4e-6),
    )
    assert [f.size_bytes for f in found.pattern.flows] == [1.0, pytest.approx(1 / 3)]
    assert found.seconds_per_byte == pytest.approx(1e-9)
    both = build(
        Sample(pattern=equal.scaled(0.0), seconds=1e-6),
        Sample(pattern=equal, seconds=9e-6),
        Sample(pattern=unequal(1000.0), seconds=4e-6),
    )
    assert sorted(s.samples for s in both) == [1, 2]
    (with_start,) = [s for s in both if s.alpha_s is not None]
    assert [f.size_bytes for f in with_start.pattern.flows] == [1.0, 1.0]


def test_empty_messages_alone_say_the_start_and_nothing_else() -> None:
    (found,) = build(Sample(pattern=peer("gpu0", "gpu1", 0.0), seconds=3e-6))
    assert (found.alpha_s, found.seconds_per_byte, found.sigma) == (3e-6, None, None)
    assert found.doubt == "only empty messages were measured"
    assert found.throughput_Bps is None


def test_times_that_do_not_grow_say_no_slope() -> None:
    (found,) = build(
        Sample(pattern=peer("gpu0", "gpu1", 8.0), seconds=3e-6),
        Sample(pattern=peer("gpu0", "gpu1", 16.0), seconds=3e-6),
        Sample(pattern=peer("gpu0", "gpu1", 32.0), seconds=2e-6),
    )
    assert found.seconds_per_byte is None
    assert found.doubt == "its time does not grow with the size"
    assert found.alpha_s == pytest.approx(2.6e-6, rel=0.05)


def test_a_slope_that_may_as_well_be_zero_is_none() -> None:
    # Small messages on a busy machine: the times scatter by far more than the size adds.
    small, large = (2.2e-3, 3.1e-3, 4.4e-3), (2.4e-3, 3.7e-3, 4.9e-3)
    noisy = (
        *(Sample(pattern=peer("gpu0", "gpu1", 2.0**16), seconds=s) for s in small),
        *(Sample(pattern=peer("gpu0", "gpu1", 2.0**20), seconds=s) for s in large),
    )
    (found,) = build(*noisy)
    assert found.seconds_per_byte is None
    assert found.doubt == ("its time does not clearly grow with the size; measure larger messages")
    # Larger ones tell it all the same.
    telling = (Sample(pattern=peer("gpu0", "gpu1", 2.0**28), seconds=0.2 + s) for s in large)
    (found,) = build(*noisy, *telling)
    assert found.throughput_Bps == pytest.approx(2.0**28 / 0.2, rel=0.05)


def test_rates_of_unknown_size_are_pooled_per_byte() -> None:
    (found,) = build(
        Sample(pattern=peer("gpu0", "gpu1", 100.0), seconds=1.0, size_known=False),
        Sample(pattern=peer("gpu0", "gpu1", 200.0), seconds=4.0, size_known=False),
    )
    assert found.seconds_per_byte == pytest.approx(math.sqrt(0.01 * 0.02))
    assert found.alpha_s is None
    assert found.sizes_bytes == ()


def test_sizes_a_thousandth_apart_count_as_one() -> None:
    (found,) = build(
        Sample(pattern=peer("gpu0", "gpu1", 1_000_000.0), seconds=1.0),
        Sample(pattern=peer("gpu0", "gpu1", 1_000_100.0), seconds=0.9),
    )
    assert len(found.sizes_bytes) == 1
    assert found.alpha_s is None


# Repeats.


def repeated(seconds: list[float], **more: Any) -> list[Sample]:
    pattern = peer("gpu0", "gpu1", 1000.0)
    return [Sample(pattern=pattern, seconds=s, repeat=k, **more) for k, s in enumerate(seconds)]


def test_the_centre_of_repeats_counts() -> None:
    """Evenly spaced in logs, it is the middle, and of two it is their geometric mean."""
    (found,) = build(*repeated([1.01**k for k in (0, 1, 4, 2, 3)]))
    assert found.seconds_per_byte == pytest.approx(1.01**2 * 1e-3)
    (found,) = build(*repeated([1.0, 1.21]))
    assert found.seconds_per_byte == pytest.approx(1.1e-3)


def test_what_lies_far_out_hardly_moves_the_centre() -> None:
    """Too near for a straggler; a mean would move by 2 %, Huber's centre by a third of it."""
    steady = [1.0, 1.01, 1.02, 1.03, 1.04] * 2
    (found,) = build(*repeated([*steady, 1.065, 1.065]))
    usual = np.exp(np.mean(np.log(steady))) * 1e-3
    mean = np.exp(np.mean(np.log([*steady, 1.065, 1.065]))) * 1e-3
    assert usual < found.seconds_per_byte < mean


def test_the_centre_is_better_than_the_median() -> None:
    """Of twenty normal repeats: by the 95 % that Huber (1981) states against 64 %."""
    rng = np.random.default_rng(11)
    draws = 0.03 * rng.standard_normal((500, 20))
    samples = [
        Sample(pattern=peer(f"gpu{k}", "gpu999", 1e8), seconds=float(np.exp(d)), repeat=r)
        for k, row in enumerate(draws)
        for r, d in enumerate(row)
    ]
    errors = np.log([s.seconds_per_byte * 1e8 for s in build_scenarios(Measurements.of(samples))])
    assert np.std(errors) < 0.9 * np.std(np.median(draws, axis=1))


def test_a_straggler_is_left_out_with_its_figures() -> None:
    (found,) = build(*repeated([1.0, 1.01, 1.04, 2.5, 1.02, 1.03]))
    (left,) = found.left_out
    assert left.sample.seconds == 2.5
    assert left.reason == "took 2.5 s where its 5 siblings took 1.02 s"
    assert found.seconds_per_byte == pytest.approx(1.02e-3, rel=1e-4)
    assert found.samples == 5


def test_a_repeat_that_is_too_quick_is_left_out_too() -> None:
    (found,) = build(*repeated([1.0, 1.01, 0.2, 1.04, 1.02, 1.03]))
    assert [left.sample.seconds for left in found.left_out] == [0.2]


def test_few_siblings_close_ones_and_scattered_ones_all_stay() -> None:
    for seconds in (
        [1.0, 1.0, 3.0],
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.04],
        [1.0, 1.5, 0.7, 2.0, 0.5, 2.5],
    ):
        (found,) = build(*repeated(seconds))
        assert found.left_out == ()
        assert found.samples == len(seconds)


def test_a_scenario_that_is_off_as_a_whole_stays() -> None:
    steady = [
        Sample(pattern=peer(f"gpu{k}", "gpu9", 1000.0), seconds=1.0 + r / 100, repeat=r)
        for k in range(8)
        for r in range(5)
    ]
    odd = [
        Sample(pattern=peer("gpu8", "gpu9", 1000.0), seconds=9.0 + r / 10, repeat=r)
        for r in range(5)
    ]
    found = build(*steady, *odd)
    assert [s.samples for s in found] == [5] * 9


@pytest.mark.parametrize("n", range(2, 16))
def test_scatter_of_normal_errors_is_found_for_any_number_of_repeats(n: int) -> None:
    rng = np.random.default_rng(n)
    groups = 60_000 // n
    group = np.repeat(np.arange(groups), n)
    seconds = np.exp(0.03 * rng.standard_normal(len(group)))
    points = pool_repeats(group, np.full(len(group), 4096.0), seconds)
    assert points.scatter == pytest.approx(0.03, rel=0.04)
    assert points.straggler.mean() < 1e-3


def test_scatter_holds_with_one_straggler_in_twenty() -> None:
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(500), 10)
    seconds = np.exp(0.02 * rng.standard_normal(len(group)))
    late = rng.random(len(group)) < 0.05
    points = pool_repeats(group, np.full(len(group), 4096.0), np.where(late, 3 * seconds, seconds))
    assert points.scatter == pytest.approx(0.02, rel=0.15)
    assert (points.straggler == late).mean() > 0.998
    assert np.abs(np.log(points.seconds)).max() < 0.05


def test_every_octave_has_its_own_scatter() -> None:
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(200), 20)
    size = np.where(group % 2 == 0, 4096.0, 2.0**28)
    scatter = np.where(group % 2 == 0, 0.1, 0.01)
    points = pool_repeats(group, size, np.exp(scatter * rng.standard_normal(len(group))))
    assert points.scatter[0::2] == pytest.approx(0.1, rel=0.1)
    assert points.scatter[1::2] == pytest.approx(0.01, rel=0.1)


def test_the_table_of_shrinkage_is_what_it_says() -> None:
    rng = np.random.default_rng(8)
    for n in range(2, len(repeats._SHRINKAGE) + 8):
        draws = rng.standard_normal((400_000 // n, n))
        distance = np.abs(draws - np.median(draws, axis=1, keepdims=True))
        stated = float(repeats._shrinkage(np.array([n]))[0])
        assert np.median(distance) == pytest.approx(stated, rel=0.02)


def test_sigma_is_the_error_of_the_logarithm() -> None:
    """Of one size: scatter × 0.95^-0.5 / sqrt(repeats); checked against 400 draws."""
    rng = np.random.default_rng(9)
    samples = [
        Sample(
            pattern=peer(f"gpu{k}", "gpu999", 1e8),
            seconds=float(np.exp(0.02 * rng.standard_normal())),
            repeat=r,
        )
        for k in range(400)
        for r in range(12)
    ]
    found = build_scenarios(Measurements.of(samples))
    sigma = np.array([s.sigma for s in found])
    assert sigma == pytest.approx(0.02 * 0.95**-0.5 / math.sqrt(12), rel=0.05)
    errors = np.log([(s.seconds_per_byte or 0) * 1e8 for s in found])
    assert np.std(errors / sigma) == pytest.approx(1, abs=0.12)


def test_a_scenario_without_repeats_takes_the_machines_scatter() -> None:
    rng = np.random.default_rng(10)
    samples = [
        Sample(
            pattern=peer("gpu0", f"gpu{k}", 1e8),
            seconds=float(np.exp(0.02 * rng.standard_normal())),
            repeat=r,
        )
        for k in range(1, 40)
        for r in range(12)
    ]
    found = build_scenarios(
        Measurements.of([*samples, Sample(pattern=peer("gpu1", "gpu0", 1e8), seconds=1.0)])
    )
    (single,) = [s for s in found if s.samples == 1]
    assert single.sigma == pytest.approx(0.02, rel=0.15)


def test_slopes_and_their_errors_over_sizes_are_recovered() -> None:
    """300 scenarios with a protocol switch, 2 % noise and stragglers: errors as announced."""
    rng = np.random.default_rng(12)
    sizes = 4 * KiB * 2.0 ** np.arange(17)
    samples, truth = [], []
    for k in range(300):
        slope = 1 / rng.uniform(5e9, 50e9)
        truth.append(slope)
        for size in sizes:
            pattern = peer(f"gpu{k:03}", "gpu999", float(size))
            line = 5e-6 + 3 * slope * size if size <= 64 * KiB else 40e-6 + slope * size
            for r in range(10):
                late = 4.0 if rng.random() < 0.02 else 1.0
                noise = math.exp(0.02 * rng.standard_normal())
                samples.append(Sample(pattern=pattern, seconds=line * late * noise, repeat=r))
    found = build_scenarios(Measurements.of(samples))
    errors = np.log([s.seconds_per_byte or 0 for s in found]) - np.log(truth)
    sigma = np.array([s.sigma for s in found])
    assert np.median(np.abs(errors)) < 0.005
    assert np.quantile(np.abs(errors), 0.95) < 0.015
    assert 0.8 < np.std(errors / sigma) < 1.4
    assert sum(len(s.left_out) for s in found) == pytest.approx(0.02 * len(samples), rel=0.1)


# Each flow's own finish.


def test_each_flow_has_its_own_slope_per_byte_of_the_largest() -> None:
    #  gpu1 sends 3 s bytes and gpu2 s; gpu2 is done after 1 us + 1 ns per byte of gpu1's.
    def sample(scale: float, shift: int) -> Sample:
        pattern = unequal(scale, shift=shift)
        done = {"gpu1": 1e-6 + 2e-9 * 3 * scale, "gpu2": 1e-6 + 1e-9 * 3 * scale}
        return Sample(
            pattern=pattern,
            seconds=done["gpu1"],
            flow_finish_s=tuple(done[f.source] for f in pattern.flows),
        )

    (found,) = build(sample(1000.0, 0), sample(2000.0, 1), sample(3000.0, 0))
    assert [f.source for f in found.pattern.flows] == ["gpu1", "gpu2"]
    assert found.flow_seconds_per_byte == (pytest.approx(2e-9), pytest.approx(1e-9))
    assert found.seconds_per_byte == pytest.approx(2e-9)


def test_finishes_are_used_where_they_are_and_none_is_invented() -> None:
    fan = fan_in("gpu0", ["gpu1", "gpu2"], 1000.0)
    other = fan_out("gpu0", ["gpu1", "gpu2"], 1000.0)
    found = build(
        Sample(pattern=fan, seconds=2.0, flow_finish_s=(2.0, 0.0)),
        Sample(pattern=fan, seconds=2.0),
        Sample(pattern=other, seconds=2.0),
    )
    by_name = {s.name: s.flow_seconds_per_byte for s in found}
    assert by_name == {fan.name: (pytest.approx(2e-3), None), other.name: None}


# Input as such.


def test_no_samples_no_scenarios() -> None:
    assert build_scenarios(Measurements(samples=())) == ()


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_times_that_are_not_possible_are_refused(seconds: float) -> None:
    wrong = Sample(pattern=peer("gpu0", "gpu1", 8.0), seconds=seconds)
    with pytest.raises(InputError, match="a sample of gpu0->gpu1 took") as caught:
        build_scenarios(Measurements(samples=(wrong,)))
    assert caught.value.about is wrong


def test_a_pattern_without_flows_is_refused() -> None:
    with pytest.raises(InputError, match="without flows"):
        build(Sample(pattern=Pattern(flows=()), seconds=1.0))


def test_many_sizes_are_averaged_before_lines_are_fitted() -> None:
    samples = [
        Sample(pattern=peer("gpu0", "gpu1", 1000.0 * 1.01**k), seconds=1e-6 + 1e-6 * 1.01**k)
        for k in range(700)
    ]
    (found,) = build(*samples)
    assert found.samples == 700
    assert found.seconds_per_byte == pytest.approx(1e-9, rel=1e-6)


ENDPOINTS = st.sampled_from([f"gpu{k}" for k in range(4)])
SIZES = st.sampled_from([0.0, 1.0, 4096.0, 8192.0, 2.0**28, 1e300]) | st.floats(0, 1e12)


@st.composite
def any_samples(draw: st.DrawFn) -> list[Sample]:
    samples = []
    for _ in range(draw(st.integers(1, 12))):
        pairs = draw(st.lists(st.tuples(ENDPOINTS, ENDPOINTS), min_size=1, max_size=3))
        equal = draw(st.none() | SIZES)
        flows = tuple(
            Flow(source=s, destination=d, size_bytes=draw(SIZES) if equal is None else equal)
            for s, d in pairs
        )
        width = len(flows)
        times = st.lists(st.floats(-1, 1e9), min_size=width, max_size=width).map(tuple)
        sample = Sample(
            pattern=Pattern(flows=flows),
            seconds=draw(st.floats(1e-12, 1e9) | st.sampled_from([5e-324, 1e308, 1.0])),
            size_known=draw(st.booleans()),
            flow_finish_s=draw(st.none() | times),
            issue=draw(st.sampled_from([None, "group"])),
        )
        samples += [sample] * draw(st.integers(1, 5))
    return samples


@settings(deadline=None, max_examples=150)
@given(any_samples())
def test_whatever_the_samples_all_are_counted_and_all_figures_finite(
    samples: list[Sample],
) -> None:
    found = build(*samples)
    assert sum(s.samples + len(s.left_out) for s in found) == len(samples)
    for s in found:
        assert max(f.size_bytes for f in s.pattern.flows) == 1.0
        assert (s.seconds_per_byte is None) == (s.doubt is not None)
        figures = [s.alpha_s, s.seconds_per_byte, s.sigma, s.scatter]
        figures += [*(s.flow_seconds_per_byte or ()), *s.sizes_bytes]
        assert all(v is None or (math.isfinite(v) and v >= 0) for v in figures)
        assert s.seconds_per_byte is None or s.seconds_per_byte > 0


@settings(deadline=None, max_examples=100)
@given(any_samples(), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples: list[Sample], random: Any) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert build(*shuffled) == build(*samples)


@settings(deadline=None, max_examples=60)
@given(any_samples())
def test_only_our_own_errors_come_out_of_raw_samples(samples: list[Sample]) -> None:
    with contextlib.suppress(TopocalError):
        build_scenarios(Measurements(samples=tuple(samples)))

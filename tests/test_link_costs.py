"""The tables of a per-path calibrator, by hand."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topocal
from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer, relay
from topocal.measure.samples import Measurements, Sample
from topocal.solve.link_costs import link_costs
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import TopocalError, UnknownEndpointError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.resource import LinkKind, NodeKind

SIZES = (1e6, 2e6, 4e6)


def line(pattern: Pattern, alpha_s: float, rate_Bps: float, **more: Any) -> list[Sample]:
    """Samples at three sizes on the line ``alpha + bytes / rate``, bytes of one flow."""
    return [
        Sample(pattern=pattern.scaled(size), seconds=alpha_s + size / rate_Bps, **more)
        for size in SIZES
    ]


def costs(*samples: list[Sample]) -> dict[str, Any]:
    found = link_costs(Measurements.of([s for part in samples for s in part]))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_pairs_have_alpha_and_bandwidth_each_way() -> None:
    found = costs(
        line(peer("gpu0", "gpu1"), 5e-6, 10e9),
        line(peer("gpu1", "gpu0"), 6e-6, 20e9),
    )
    there, back = found["pairs"]
    assert (there["source"], there["destination"]) == ("gpu0", "gpu1")
    assert (back["source"], back["destination"]) == ("gpu1", "gpu0")
    assert there["alpha_s"] == pytest.approx(5e-6)
    assert there["bandwidth_Bps"] == pytest.approx(10e9)
    assert back["bandwidth_Bps"] == pytest.approx(20e9)
    assert there["seconds_per_byte"] == pytest.approx(1e-10)
    assert there["sizes_bytes"] == list(SIZES)
    assert there["path"] == "intra_node"
    assert (there["samples"], there["relative_error"]) == (3, None)


def test_paths_pool_their_pairs() -> None:
    found = costs(
        line(peer("a/gpu0", "a/gpu1"), 4e-6, 100e9),
        line(peer("a/gpu1", "a/gpu0"), 5e-6, 90e9),
        line(peer("a/gpu0", "a/gpu2"), 6e-6, 80e9),
        line(peer("a/gpu0", "b/gpu0"), 20e-6, 12e9),
    )
    near, far = (
        next(p for p in found["paths"] if p["path"] == path)
        for path in ("intra_node", "inter_node")
    )
    assert near["kind"] == far["kind"] == "peer"
    assert near["alpha_s"] == pytest.approx(5e-6)
    assert near["bandwidth_Bps"] == pytest.approx(90e9)
    assert near["slowest_Bps"] == pytest.approx(80e9)
    assert near["fastest_Bps"] == pytest.approx(100e9)
    assert (near["scenarios"], near["samples"]) == (3, 9)
    assert far["bandwidth_Bps"] == pytest.approx(12e9)


def test_both_ways_against_alone() -> None:
    found = costs(
        line(peer("gpu0", "gpu1"), 0, 20e9),
        line(peer("gpu1", "gpu0"), 0, 25e9),
        line(both_ways("gpu0", "gpu1"), 0, 15e9),
        line(both_ways("gpu0", "gpu2"), 0, 15e9),
    )
    known, unknown = found["both_ways"]
    assert known["endpoints"] == ["gpu0", "gpu1"]
    assert known["bandwidth_Bps"] == pytest.approx(15e9)
    assert known["ratio_to_alone"] == pytest.approx(15 / 20)
    assert unknown["ratio_to_alone"] is None


def test_fans_say_each_flow_and_the_root() -> None:
    found = costs(
        line(fan_in("gpu3", ["gpu4", "gpu5"]), 1e-6, 14e9),
        line(fan_in("gpu3", ["gpu4", "gpu5", "gpu6"]), 1e-6, 9e9),
        line(fan_out("gpu0", ["gpu1", "gpu2"]), 1e-6, 12e9),
    )
    two, three = found["fan_in"]
    assert (two["root"], two["peers"]) == ("gpu3", ["gpu4", "gpu5"])
    assert two["bandwidth_Bps"] == pytest.approx(14e9)
    assert two["root_receive_Bps"] == pytest.approx(28e9)
    assert three["root_receive_Bps"] == pytest.approx(27e9)
    (out,) = found["fan_out"]
    assert out["root_send_Bps"] == pytest.approx(24e9)


def test_unequal_sizes_say_their_proportions() -> None:
    pattern = Pattern(
        flows=(
            Flow(source="gpu1", destination="gpu0", size_bytes=4e6),
            Flow(source="gpu2", destination="gpu0", size_bytes=1e6),
        ),
        name="gpu0<-gpu1,gpu2",
    )
    found = costs([Sample(pattern=pattern, seconds=1e-3)])
    (fan,) = found["fan_in"]
    assert fan["proportions"] == [1.0, 0.25]
    assert fan["root_receive_Bps"] == pytest.approx(5e9)
    assert fan["alpha_s"] is None


def test_a_relay_over_two_hosts_by_what_is_received_and_sent() -> None:
    #  Ring a0 -> a1 -> b0 -> b1 -> a0.  a1 receives near and sends far, b0 the reverse, and
    #  so on.  Near flows run at 100, far ones at 10 GB/s.
    ring = relay(["a/gpu0", "a/gpu1", "b/gpu0", "b/gpu1"])
    rates = {("a/gpu0", "a/gpu1"): 100e9, ("b/gpu0", "b/gpu1"): 100e9}
    samples = []
    for size in SIZES:
        pattern = ring.scaled(size)
        done = tuple(1e-6 + size / rates.get(pair, 10e9) for pair in pattern.pairs)
        samples.append(Sample(pattern=pattern, seconds=max(done), flow_finish_s=done))
    found = costs(samples)["relay"]
    assert {(r["receive_path"], r["send_path"]): r["processes"] for r in found} == {
        ("inter_node", "intra_node"): 2,
        ("intra_node", "inter_node"): 2,
    }
    assert all(r["bandwidth_Bps"] == pytest.approx(10e9) for r in found)
    assert all(r["alpha_s"] == pytest.approx(1e-6) for r in found)


def test_a_process_counts_by_its_own_flows_where_they_are_known() -> None:
    #  Ring of three on one host and one far: gpu1 has two near flows and is done sooner.
    ring = relay(["a/gpu0", "a/gpu1", "a/gpu2", "b/gpu0"])
    near = {("a/gpu0", "a/gpu1"), ("a/gpu1", "a/gpu2")}
    samples, whole = [], []
    for size in SIZES:
        pattern = ring.scaled(size)
        done = tuple(size / (100e9 if pair in near else 10e9) for pair in pattern.pairs)
        samples.append(Sample(pattern=pattern, seconds=max(done), flow_finish_s=done))
        whole.append(Sample(pattern=pattern, seconds=max(done)))
    by_path = {
        (r["receive_path"], r["send_path"]): r["bandwidth_Bps"] for r in costs(samples)["relay"]
    }
    assert by_path == {
        ("inter_node", "inter_node"): pytest.approx(10e9),
        ("inter_node", "intra_node"): pytest.approx(10e9),
        ("intra_node", "inter_node"): pytest.approx(10e9),
        ("intra_node", "intra_node"): pytest.approx(100e9),
    }
    assert all(r["bandwidth_Bps"] == pytest.approx(10e9) for r in costs(whole)["relay"])


def test_two_rings_at_once_are_relays_and_pairs_both_ways_are_not() -> None:
    two_rings = relay([f"gpu{k}" for k in range(6)], shift=2)
    found = costs(line(two_rings, 0, 5e9))
    (entry,) = found["relay"]
    assert entry["processes"] == 6
    assert [b["kind"] for b in found["bundles"]] == ["bundle"]
    exchange = bundle([("gpu0", "gpu1"), ("gpu1", "gpu0"), ("gpu2", "gpu3"), ("gpu3", "gpu2")])
    assert costs(line(exchange, 0, 5e9))["relay"] == []


def test_bundles_say_all_of_their_flows() -> None:
    found = costs(line(bundle([("a/gpu0", "b/gpu0"), ("a/gpu1", "a/gpu2")]), 0, 5e9))
    (entry,) = found["bundles"]
    assert entry["flows"] == [["a/gpu0", "b/gpu0"], ["a/gpu1", "a/gpu2"]]
    assert entry["path"] == "intra_node + inter_node"
    assert entry["total_Bps"] == pytest.approx(10e9)


def test_a_local_copy_is_a_path_of_its_own() -> None:
    copy = Pattern(flows=(Flow(source="gpu0", destination="gpu0", size_bytes=8.0),), name="copy")
    found = costs([Sample(pattern=copy, seconds=1e-9)])
    assert [p["path"] for p in found["paths"]] == ["local_copy"]
    assert found["pairs"][0]["bandwidth_Bps"] == pytest.approx(8e9)


def test_both_ways_of_issuing_are_listed_apart() -> None:
    found = costs(
        line(peer("gpu0", "gpu1"), 0, 10e9, issue="group"),
        line(peer("gpu0", "gpu1"), 0, 5e9, issue="one-by-one"),
    )
    assert {p["issue"]: p["bandwidth_Bps"] for p in found["pairs"]} == {
        "group": pytest.approx(10e9),
        "one-by-one": pytest.approx(5e9),
    }


def test_what_is_not_known_is_none_and_says_why() -> None:
    found = costs([Sample(pattern=peer("gpu0", "gpu1"), seconds=2e-6)])
    (pair,) = found["pairs"]
    assert pair["bandwidth_Bps"] is None
    assert pair["alpha_s"] == 2e-6
    assert pair["doubt"] == "only empty messages were measured"
    assert found["paths"][0]["bandwidth_Bps"] is None


def test_hosts_come_from_the_topology_where_there_is_one() -> None:
    build = TopologyBuilder("two hosts")
    build.node("switch0", NodeKind.NET_SWITCH)
    for k, host in enumerate(("left", "left", "right")):
        build.node(f"gpu{k}", NodeKind.GPU, host=host)
        build.connect(f"gpu{k}", "switch0", LinkKind.NET)
    topology = build.build()
    measured = Measurements.of(
        [*line(peer("gpu0", "gpu1"), 0, 1e9), *line(peer("gpu0", "gpu2"), 0, 1e9)]
    )
    paths = [p["path"] for p in link_costs(measured, topology)["pairs"]]
    assert paths == ["intra_node", "inter_node"]
    other = Measurements.of(line(peer("gpu0", "gpu9"), 0, 1e9))
    with pytest.raises(UnknownEndpointError):
        link_costs(other, topology)


def test_nothing_measured_is_empty_tables() -> None:
    found = costs([])
    assert found["format"] == "topocal/link-costs"
    assert all(value == [] for key, value in found.items() if key not in ("format", "version"))


def test_it_is_public() -> None:
    assert topocal.link_costs is link_costs


NAMES = st.sampled_from(["gpu0", "gpu1", "a/gpu0", "b/gpu0"])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4),
            st.floats(0, 1e12) | st.sampled_from([0.0, 1e300, 5e-324]),
            st.floats(1e-12, 1e9) | st.sampled_from([5e-324, 1e308, 0.0]),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_whatever_was_measured_json_comes_out_or_our_own_error(
    rows: list[tuple[list[tuple[str, str]], float, float, bool]],
) -> None:
    samples = []
    for pairs, size, seconds, known in rows:
        flows = tuple(Flow(source=s, destination=d, size_bytes=size) for s, d in pairs)
        samples.append(Sample(pattern=Pattern(flows=flows), seconds=seconds, size_known=known))
    with contextlib.suppress(TopocalError):
        found = link_costs(Measurements.of(samples))
        json.dumps(found, allow_nan=False)
        for table in ("pairs", "fan_in", "fan_out", "both_ways", "bundles"):
            rates = [entry["bandwidth_Bps"] for entry in found[table]]
            assert all(r is None or (math.isfinite(r) and r > 0) for r in rates)

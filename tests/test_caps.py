"""Caps: what stands in them by hand, the file and its digest, and every bad one."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

import topocal as tc
from topocal.measure.samples import Run
from topocal.solve.caps import Caps
from topocal.solve.caps_document import (
    caps_digest,
    caps_from_document,
    caps_to_document,
    encode_caps,
    read_caps,
    write_caps,
)
from topocal.solve.caps_tables import process_table, sender_counts
from topocal.solve.conditions import Conditions, agreed
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.topo import machines
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, FormatError, InputError, UnknownEndpointError
from topocal.topo.incidence import incidence
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

ROOT = Path(__file__).parents[1]
B70 = ROOT / "examples" / "b70"
GB = 1e9


def small() -> Topology:
    """Two cards under each of two switches that share a duplex, and what links do not show.

    ::

        gpu0 gpu1      gpu2 gpu3     10 GB/s each, each way
         switch0 ------ switch1      8 GB/s, both ways together

    gpu3 serves its senders by turns (0.9); gpu1 sends to gpu0 at 3 GB/s at most.
    """
    build = TopologyBuilder("small")
    for k in range(2):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=10 * GB)
    build.connect("switch0", "switch1", LinkKind.PCIE, nominal_Bps=8 * GB, sharing=Sharing.DUPLEX)
    return build.build().with_resources(
        [
            Resource(id="turns", sharing=Sharing.TIME_SHARED, kappa=0.9),
            Resource(id="path", sharing=Sharing.FATPIPE, nominal_Bps=3 * GB),
        ],
        [
            Use(resource="turns", destinations=("gpu3",)),
            Use(resource="path", sources=("gpu1",), destinations=("gpu0",)),
        ],
    )


@pytest.fixture(scope="module")
def caps() -> Caps:
    return nominal_model(small()).caps()


@pytest.fixture(scope="module")
def b70() -> tc.Model:
    return tc.fit(tc.read_tables([str(B70 / "pairs.csv"), str(B70 / "fans.csv")]), machines.b70())


def rates(blocks: Any, caps: Caps) -> dict[tuple[int, int], float]:
    """What blocks say of each pair."""
    return {
        (a, b): value / GB
        for senders, receivers, value in blocks
        for a in caps.sets[senders]
        for b in caps.sets[receivers]
        if a != b
    }


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


def test_the_file_comes_back_as_it_was(b70: tc.Model, tmp_path: Path) -> None:
    for name, one in (("small", nominal_model(small()).caps()), ("b70", b70.caps())):
        path = tmp_path / name
        write_caps(one, path)
        back = read_caps(path)
        assert encode_caps(back) == path.read_bytes()
        assert caps_digest(back) == caps_digest(one)
        assert np.array_equal(
            PairCosts.of(back).seconds_per_byte.toarray(),
            PairCosts.of(one).seconds_per_byte.toarray(),
        )


def test_the_digest_is_that_of_the_content(caps: Caps) -> None:
    document = json.loads(encode_caps(caps))
    content = {k: v for k, v in document.items() if k != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert document["digest"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert document["digest"] == caps_digest(caps)


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "from topocal.topo import machines\n"
        "from topocal.solve.nominal_model import nominal_model\n"
        "from topocal.solve.caps_document import encode_caps\n"
        "caps = nominal_model(machines.rail_pod(3)).caps()\n"
        "print(encode_caps(caps).decode())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            check=True,
            cwd=tmp_path,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) > 1000


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


def with_digest(document: dict[str, Any]) -> dict[str, Any]:
    """A document whose digest is right whatever stands in it."""
    content = {k: v for k, v in document.items() if k != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return content | {"digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest()}


def closed(caps: Caps, resource: str) -> Caps:
    """The same with a resource that passes nothing."""
    document = caps_to_document(caps)
    for entry in document["resources"]:
        if entry["id"] == resource:
            entry["cap_Bps"] = 0.0
    return caps_from_document(with_digest(document), file="caps.json")


def test_a_cap_of_zero_is_refused_where_it_is_on_the_only_route(caps: Caps) -> None:
    shut = closed(caps, "gpu0->switch0")
    with pytest.raises(FlowError, match=r"from gpu0 to gpu2: gpu0->switch0 on its only route"):
        tc.price(shut, [("gpu0", "gpu2", 1e9)])
    assert tc.price(shut, [("gpu2", "gpu0", 8 * GB)]).seconds == pytest.approx(1.0)
    assert tc.price(shut, [("gpu0", "gpu2", 0.0)]).seconds == 0.0
    with pytest.raises(FlowError, match="gpu0 can send to nobody"):
        tc.price_bounds(shut, tc.Totals(sent=np.array([1.0, 0, 0, 0]), received=None))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "older": (lambda d: d.update(version=0), "has version 0 of topocal/caps"),
    "newer": (lambda d: d.update(version=2), "has version 2 of topocal/caps"),
    "another kind": (lambda d: d.update(format="topocal/model"), "is not a topocal/caps file"),
    "no endpoint": (lambda d: d["endpoints"].pop(), "is no range of the 3 endpoints"),
    "an endpoint twice": (lambda d: d.update(endpoints=["a", "a", "b", "c"]), "one twice"),
    "a set that is none": (lambda d: d["sets"].__setitem__(0, [[3, 9]]), "is no range of the 4"),
    "a block of no set": (
        lambda d: d["resources"][0]["loads"].append([0, 99, 1]),
        "names a set that is not there",
    ),
    "a weight of zero": (
        lambda d: d["resources"][0]["loads"][0].__setitem__(2, 0),
        "has a weight that is none",
    ),
    "a negative cap": (lambda d: d["resources"][0].update(cap_Bps=-1.0), "not a possible figure"),
    "a cap that is text": (lambda d: d["resources"][0].update(cap_Bps="fast"), "float"),
    "no kappa": (lambda d: _entry(d, "turns").pop("kappa"), "time-shared and has kappa None"),
    "too large a kappa": (lambda d: _entry(d, "turns").update(kappa=1.5), "not a possible figure"),
    "an unknown sharing": (lambda d: d["resources"][0].update(sharing="magic"), "magic"),
    "an unknown status": (lambda d: d["resources"][0].update(status="sure"), "sure"),
    "a resource twice": (lambda d: d["resources"].append(d["resources"][0]), "stands twice"),
    "no resources": (lambda d: d.pop("resources"), "KeyError 'resources'"),
    "a short table": (lambda d: d["processes"]["send_Bps"].pop(), "table of processes is not of 4"),
    "other counts": (lambda d: d["processes"].update(senders=[1, 2]), "is not of 4"),
    "a short row": (
        lambda d: d["processes"]["receive_most_Bps"][0].pop(),
        "rows of other lengths",
    ),
    "a group of text": (lambda d: d["calibration"].update(group_size="8"), "int"),
}


def _entry(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in document["resources"] if entry["id"] == name)


@pytest.mark.parametrize("name", CHANGES)
def test_bad_caps_are_refused_in_one_line(name: str, caps: Caps, tmp_path: Path) -> None:
    change, words = CHANGES[name]
    document = json.loads(encode_caps(caps))
    change(document)
    path = tmp_path / "caps.json"
    path.write_text(json.dumps(with_digest(document)))
    with pytest.raises(FormatError) as caught:
        read_caps(path)
    text = str(caught.value)
    assert words in text
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert caught.value.remedy


def test_a_byte_that_is_flipped_is_found(caps: Caps, tmp_path: Path) -> None:
    content = encode_caps(caps)
    path = tmp_path / "caps.json"
    random = np.random.default_rng(3)
    kept = 0
    for _ in range(400):
        place, bit = int(random.integers(len(content))), int(random.integers(8))
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        path.write_bytes(bytes(flipped))
        try:
            back = read_caps(path)
        except FormatError as error:
            assert "\n" not in str(error)
        else:
            # Blanks between values are no content, nor is how a number is written.
            assert caps_digest(back) == caps_digest(caps)
            kept += 1
    assert kept < 40


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format":"topocal/caps"}', "\0"])
def test_what_is_no_caps_file(content: str, tmp_path: Path) -> None:
    path = tmp_path / "caps.json"
    path.write_text(content)
    with pytest.raises(FormatError):
        read_caps(path)


def test_the_digest_that_is_wanted(caps: Caps, tmp_path: Path) -> None:
    path = tmp_path / "caps.json"
    write_caps(caps, path)
    digest = caps_digest(caps)
    for same in (digest, digest[7:], digest[7:15], digest[:15].upper().replace("SHA", "sha")):
        assert read_caps(path, digest=same).endpoints == caps.endpoints
    with pytest.raises(FormatError, match="holds other caps"):
        read_caps(path, digest="sha256:" + "0" * 64)
    for none in (digest[7:14], "", "nonsense"):
        with pytest.raises(InputError, match="is no digest"):
            read_caps(path, digest=none)


def test_ranks_of_the_calibration_number_the_processes() -> None:
    measured = tc.read_tables([str(B70 / "pairs.csv")])
    ranks = [f"gpu{k}" for k in (3, 2, 1, 0, 7, 6, 5, 4)]
    said = {"ranks": ranks, "backend": "xccl", "environment": {"CCL_ZE_IPC": "1"}, "run": "x7"}
    model = tc.fit(replace(measured, runs=(Run(provenance=said),)), machines.b70())
    found = model.caps()
    assert found.endpoints == tuple(ranks)
    assert found.calibration == Conditions(
        group_size=8, backend="xccl", settings={"CCL_ZE_IPC": "1"}
    )


def test_a_model_keeps_its_conditions(tmp_path: Path) -> None:
    model = replace(nominal_model(small()), provenance={"backend": "nccl", "hosts": 1})
    tc.write_model(model, tmp_path / "model.json")
    assert tc.read_model(tmp_path / "model.json").provenance == {"backend": "nccl", "hosts": 1}
    document = json.loads((tmp_path / "model.json").read_text())
    del document["digest"]
    text = json.dumps(document)
    (tmp_path / "bad.json").write_text(text.replace('"hosts": 1', '"hosts": -1'))
    with pytest.raises(FormatError, match="damaged model: ValueError provenance has hosts '-1'"):
        tc.read_model(tmp_path / "bad.json")
    old = json.loads(text)
    del old["provenance"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert tc.read_model(tmp_path / "old.json").provenance == {}


def test_conditions_that_runs_agree_on() -> None:
    one = Run(provenance={"backend": "nccl", "hosts": 1, "run": "a", "ranks": ("gpu0", "gpu1")})
    other = Run(provenance={"backend": "nccl", "hosts": 2, "ranks": ["gpu0", "gpu1"]})
    assert agreed([one, other]) == {"ranks": ["gpu0", "gpu1"], "backend": "nccl"}
    assert agreed([]) == {}


MEASURED = Conditions(group_size=8, backend="nccl", settings={"NCCL_P2P_LEVEL": "SYS"})


@pytest.mark.parametrize(
    ("transfer", "words"),
    [
        (Conditions(group_size=16), "group size 8 (the transfer has 16)"),
        (Conditions(backend="gloo"), "backend nccl (the transfer has gloo)"),
        (
            Conditions(settings={"NCCL_P2P_LEVEL": "PIX"}),
            "setting NCCL_P2P_LEVEL SYS (the transfer has PIX)",
        ),
        (
            Conditions(settings={"NCCL_ALGO": "Ring"}),
            "setting NCCL_ALGO not set (the transfer has Ring)",
        ),
        (
            Conditions(group_size=4, backend="ucc"),
            "group size 8 (the transfer has 4), backend nccl (the transfer has ucc)",
        ),
    ],
)
def test_stale_caps_are_refused_unless_allowed(
    transfer: Conditions, words: str, caps: Caps
) -> None:
    stale = replace(caps, calibration=MEASURED)
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        tc.price(stale, [(0, 1, 1e9)], under=transfer)
    assert "--allow-stale" in str(caught.value)
    found = tc.price(stale, [(0, 1, 1e9)], under=transfer, allow_stale=True)
    assert words in found.notes[0]
    with pytest.raises(InputError, match=re.escape(words)):
        tc.price_bounds(stale, tc.Totals(sent=np.ones(4), received=None), under=transfer)


def test_the_same_conditions_and_unknown_ones(caps: Caps) -> None:
    same = Conditions(group_size=8, backend="NCCL", settings={"NCCL_P2P_LEVEL": "SYS"})
    assert MEASURED.require_same(same) == ()
    assert MEASURED.require_same(Conditions()) == ()
    assert Conditions().require_same(Conditions()) == ()
    (note,) = Conditions(backend="nccl").require_same(same)
    assert "does not say its group size, settings" in note
    assert Conditions().completed(same) == same
    with pytest.raises(InputError, match="it had group size 8 and not 4"):
        MEASURED.completed(Conditions(group_size=4))


def test_settings_are_compared_as_they_are_kept() -> None:
    kept = Conditions(settings={"NCCL_TOPO_FILE": "topo.xml"})
    assert kept.require_same(Conditions(settings={"NCCL_TOPO_FILE": "/home/me/topo.xml"})) == ()


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


def test_what_a_calibration_file_says_of_its_group_reaches_the_caps(tmp_path: Path) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    records = [{"src": a, "dst": b, "bytes": 10**8, "seconds": 0.01} for a, b in pairs]
    document = {"tool": "calibrate_links", "schema": 2, "world_size": 4, "backend": "xccl"}
    path = tmp_path / "raw.json"
    path.write_text(json.dumps({**document, "peer": records}))
    found = tc.fit(tc.load(path)).caps()
    assert found.endpoints == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert found.calibration == Conditions(group_size=4, backend="xccl")
    with pytest.raises(InputError, match="group size 4"):
        tc.price(found, [(0, 1, 1e9)], under=Conditions(group_size=8))
    # One of another group is no repeat of it.
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**document, "world_size": 8, "peer": records}))
    with pytest.raises(InputError, match="differ in ranks"):
        tc.load([path, other])


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

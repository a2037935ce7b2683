"""Runs of several files together, and under which conditions each was made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from calibration_cases import PROVENANCE, pattern_of_three, small, stripped

from topocal.measure.calibration import (
    decode_calibration,
    encode_calibration,
    write_calibration,
)
from topocal.measure.load import load
from topocal.measure.merging import merge
from topocal.measure.patterns import relay
from topocal.measure.provenance import (
    KEYS,
    check_provenance,
    fingerprint,
    local_provenance,
    transport_settings,
)
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.errors import FormatError, InputError

# Runs together.


def test_files_of_any_kind_load_together(tmp_path: Path) -> None:
    calibration, pairs = tmp_path / "calibration.json", tmp_path / "pairs.csv"
    write_calibration(small(), calibration)
    pairs.write_text("source,destination,bandwidth_GBps\n0,1,10\n")
    forth, back = load([calibration, str(pairs)]), load([pairs, calibration])
    assert forth.samples == back.samples
    assert len(forth.samples) == 4
    assert len(forth.set_aside) == 1
    assert load(calibration).samples == load([calibration]).samples


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xef\xbb\xbf \n" + encode_calibration(small()))
    assert len(load(path).samples) == 3


def test_no_file_the_same_file_and_no_measurements(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no files"):
        load([])
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    write_calibration(small(), one)
    other.write_bytes(one.read_bytes())
    with pytest.raises(InputError, match=r"b\.json: is the same as .*a\.json"):
        load([one, other])
    other.write_text('{"format": "topocal/topology", "version": 1}')
    with pytest.raises(FormatError, match="is not a topocal/calibration file but topocal/topology"):
        load(other)
    other.write_text("GPU0\tGPU1\n")
    with pytest.raises(FormatError, match="is not a table of pairs or patterns"):
        load(other)
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "gloo"}, "b.json differ in backend: nccl against gloo"),
        ({"machine": "f" * 16}, "differ in machine"),
        ({"ranks": ["gpu0", "gpu1"]}, "differ in ranks: 3 of them against 2"),
        (
            {"devices": ["card", "card", "other"]},
            "differ in devices: number 2 is card against other",
        ),
        ({"libraries": {"nccl": "2.22"}}, "in libraries: nccl=2.21.5 against nccl=2.22"),
        ({"environment": {}}, "NCCL_P2P_LEVEL=SYS against NCCL_P2P_LEVEL not set"),
        ({"hosts": 2}, "differ in hosts: 1 against 2"),
    ],
)
def test_runs_of_other_conditions_are_not_merged(changes: dict[str, Any], message: str) -> None:
    one = small()
    other = small(run="other", **changes)
    runs = [Run(provenance=r.provenance, source="b.json") for r in other.runs]
    other = Measurements.of(other.samples, ["b.json"], runs)
    with pytest.raises(InputError) as caught:
        merge([one, other])
    assert message in str(caught.value)
    assert "fit them apart" in str(caught.value)
    (name,) = changes
    assert len(merge([one, other], ignoring=[name]).samples) == 6


def test_what_need_not_agree_and_what_is_unknown_is_no_obstacle() -> None:
    other = small(run="b", started="2026-11-04T10:00:00Z", issue="one-by-one", verified=False)
    assert len(merge([small(), other]).runs) == 2
    unknown = Measurements.of([Sample(pattern=pattern_of_three(), seconds=1.0)])
    assert len(merge([small(), unknown]).samples) == 4


def test_a_key_to_ignore_must_exist() -> None:
    with pytest.raises(InputError, match="no provenance key 'bakend'; use one of machine"):
        merge([small()], ignoring=["bakend"])


def test_a_resumed_run_counts_its_timings_once() -> None:
    before = small()
    more = Sample(pattern=relay(["gpu0", "gpu1", "gpu2"], 1, 8.0), seconds=1.0, run=0)
    after = Measurements.of(
        (*before.samples, *before.set_aside, more),
        ["y"],
        [Run(provenance=PROVENANCE | {"duration_s": 9.0}, source="y")],
    )
    forth, back = merge([before, after]), merge([after, before])
    assert stripped(forth) == stripped(back) == stripped(after)
    assert forth.runs == back.runs == after.runs


def test_runs_without_a_name_are_never_taken_for_one() -> None:
    nameless = {k: v for k, v in PROVENANCE.items() if k != "run"}
    one = Measurements.of(small().samples, ["x"], [Run(provenance=nameless)])
    assert len(merge([one, one]).samples) == 6


def test_merging_does_not_depend_on_order_and_keeps_runs_apart() -> None:
    parts = [small(), small(run="b"), small(run="c")]
    forth, back = merge(parts), merge(parts[::-1])
    assert forth.samples == back.samples
    assert [r.provenance["run"] for r in forth.runs] == ["a1b2", "b", "c"]
    assert encode_calibration(forth) == encode_calibration(back)
    again = decode_calibration(encode_calibration(forth), file="x")
    assert stripped(again) == stripped(forth)


# Provenance.


def test_every_key_says_what_it_is() -> None:
    for name, key in KEYS.items():
        assert key.meaning.endswith((".", "…")), name
        kinds = ("text", "integer", "number", "flag", "texts", "table", "numbers")
        assert key.type in kinds, name
        assert name.endswith("_s") == (key.unit == "s"), name
    agree = {name for name, key in KEYS.items() if key.must_agree}
    assert {"backend", "ranks", "environment", "machine", "libraries", "clock"} <= agree
    assert not {"run", "started", "issue", "remarks"} & agree


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", 3),
        ("hosts", 0),
        ("hosts", True),
        ("hosts", 1.5),
        ("duration_s", -1.0),
        ("duration_s", math.nan),
        ("started", "yesterday"),
        ("ranks", ["gpu0", "gpu0"]),
        ("ranks", "gpu0"),
        ("environment", {"A": 1}),
        ("local_copy_Bps", {"gpu0": "fast"}),
        ("local_copy_Bps", {"gpu0": 0.0}),
        ("local_copy_Bps", {"gpu0": math.inf}),
        ("local_copy_Bps", {"gpu0": True}),
        ("issue", "loudly"),
        ("verified", "yes"),
        ("run", ""),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"provenance has {name}") as caught:
        check_provenance({name: value})
    assert caught.value.remedy.startswith("give a ")


def test_what_steers_messages_is_kept_and_what_names_a_host_is_not() -> None:
    assert transport_settings(
        {
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SOCKET_IFNAME": "^lo,docker0,acme-secret0,eth1",
            "NCCL_TOPO_FILE": "/home/alice/topo.xml",
            "NCCL_COMM_ID": "10.1.2.3:5000",
            "NCCL_HOSTID": "alice-box",
            "NCCL_DEBUG": "INFO",
            "UCX_TLS": "rc,cuda",
            "UCX_NET_DEVICES": "mlx5_0:1",
            "CCL_ZE_IPC_EXCHANGE": "sockets",
            "GLOO_SOCKET_IFNAME": "eth0",
            "FI_PROVIDER": "10.1.2.3",
            "AWS_SECRET_ACCESS_KEY": "x",
            "HOME": "/home/alice",
        }
    ) == {
        "CCL_ZE_IPC_EXCHANGE": "sockets",
        "FI_PROVIDER": "0.0.0.0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "^lo,docker0,interface,eth1",
        "NCCL_TOPO_FILE": "topo.xml",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_TLS": "rc,cuda",
    }


def test_what_a_process_knows_by_itself_is_valid() -> None:
    found = local_provenance({"NCCL_ALGO": "Ring"})
    check_provenance(found)
    assert found["environment"] == {"NCCL_ALGO": "Ring"}
    assert found["python"].startswith("3.")


def test_fingerprints_tell_apart_and_do_not_depend_on_order() -> None:
    assert fingerprint(["a", "b"]) == fingerprint(["b", "a"]) != fingerprint(["a", "c"])
    assert len(fingerprint([])) == 16

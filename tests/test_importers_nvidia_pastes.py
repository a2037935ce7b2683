"""NVIDIA's tools as people post them: heads cut away, several runs, several tools."""

from __future__ import annotations

import json

import pytest

from topocal.measure.importers.nvbandwidth import parse_nvbandwidth
from topocal.measure.importers.p2p_bandwidth import parse_p2p_bandwidth
from topocal.measure.importers.pair_table import looks_like_pair_table
from topocal.measure.importers.registry import import_all, import_any
from topocal.measure.importers.visible_devices import VisibleDevices
from topocal.measure.load import parse_measurements
from topocal.measure.samples import Measurements
from topocal.topo.errors import FormatError, InputError


def rates(measured: Measurements) -> dict[str, list[float]]:
    """GB/s of each pattern."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(round(s.throughput_Bps / 1e9, 6))
    return found


def one_way(state: str, a: float, b: float) -> str:
    return (
        f"Unidirectional P2P={state} Bandwidth Matrix (GB/s)\n"
        f"   D\\D     0      1 \n     0 900.00 {a:6.2f} \n     1 {b:6.2f} 900.00 \n"
    )


BANNER = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"


def device(number: int, bus: int) -> str:
    return f"Device: {number}, A, pciBusID: {bus:x}, pciDeviceID: 0, pciDomainID:0\n"


# p2pBandwidthLatencyTest


def test_who_reaches_whom_is_no_table_of_rates() -> None:
    text = (
        "P2P Connectivity Matrix\n     D\\D     0     1\n"
        "     0       1     1\n     1       1     1\n"
        "\nUnidirectional P2P=Enabled Bandwidth (GB/s)\n"
        "   D\\D     0      1\n     0 1581.6  241.3\n     1  242.0 1582.3\n"
    )
    found = import_any(text, file="x")
    assert found.kind == "p2p"
    assert rates(found.best()) == {"gpu0->gpu1": [241.3], "gpu1->gpu0": [242.0]}
    assert not looks_like_pair_table(text.partition("Uni")[0])


def test_runs_of_different_gpus_are_used_together() -> None:
    text = (
        "$ export CUDA_VISIBLE_DEVICES=0,1\n$ ./p2pBandwidthLatencyTest\n"
        + BANNER + device(0, 2) + device(1, 0x17) + "Device=0 CANNOT Access Peer Device=1\n"
        + one_way("Enabled", 6.6, 6.7)
        + "$ CUDA_VISIBLE_DEVICES=3,2 ./p2pBandwidthLatencyTest\n"
        + BANNER + device(0, 3) + device(1, 1)
        + one_way("Enabled", 28.5, 28.4)
    )  # fmt: skip
    found = parse_p2p_bandwidth(text, file="x")
    assert rates(found.best()) == {
        "gpu0->gpu1": [6.6],
        "gpu1->gpu0": [6.7],
        "gpu3->gpu2": [28.5],
        "gpu2->gpu3": [28.4],
    }
    assert found.no_peer == (("gpu0", "gpu1"),)
    assert {n: d["bus_id"] for n, d in found.devices.items()} == {
        "gpu0": "0000:02:00.0",
        "gpu1": "0000:17:00.0",
        "gpu3": "0000:03:00.0",
        "gpu2": "0000:01:00.0",
    }
    assert found.notes == (
        "no peer access between gpu0-gpu1: what they copy goes through the host, whatever a "
        "table's title says",
    )


def test_runs_of_other_gpus_under_the_same_numbers_are_told() -> None:
    runs = [
        BANNER + device(0, bus) + device(1, bus + 1) + one_way("Enabled", rate, rate)
        for bus, rate in ((2, 6.6), (7, 28.5))
    ]
    found = parse_p2p_bandwidth("".join(runs), file="x")
    assert rates(found.best()) == {"gpu0->gpu1": [28.5], "gpu1->gpu0": [28.5]}
    assert any("different GPUs" in n and "CUDA_VISIBLE_DEVICES" in n for n in found.notes)
    same = parse_p2p_bandwidth(runs[0] * 2, file="x")
    assert not any("different GPUs" in n for n in same.notes)


@pytest.mark.parametrize(
    ("direct", "through_host", "told"), [(9.9, 22.2, True), (20.0, 22.2, False), (45, 22.2, False)]
)
def test_peer_access_that_makes_copies_slower_is_told(
    direct: float, through_host: float, told: bool
) -> None:
    text = one_way("Disabled", through_host, through_host) + one_way("Enabled", direct, direct)
    found = parse_p2p_bandwidth(text, file="x")
    assert rates(found.best()) == {"gpu0->gpu1": [direct], "gpu1->gpu0": [direct]}
    notes = [n for n in found.notes if n.startswith("with peer access")]
    assert len(notes) == told
    assert all("9.9 GB/s, without it at 22.2 GB/s" in n for n in notes)


def test_columns_may_be_named() -> None:
    text = one_way("Enabled", 20.0, 21.0).replace("     0      1 \n", "   GPU 0   GPU 1 \n")
    for lines, names in (("", "gpu0->gpu1"), ("$ export CUDA_VISIBLE_DEVICES=4,2\n", "gpu4->gpu2")):
        assert rates(parse_p2p_bandwidth(lines + text, file="x").best())[names] == [20.0]


def test_a_pair_without_peer_access_does_not_make_peers_slow() -> None:
    text = (
        "Device=0 CANNOT Access Peer Device=1\n"
        + one_way("Disabled", 22.2, 22.2)
        + one_way("Enabled", 9.9, 9.9)
    )
    assert not any(
        n.startswith("with peer access") for n in parse_p2p_bandwidth(text, file="x").notes
    )


def test_one_gpu_copies_to_none() -> None:
    text = "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0 \n     0 1511.12 \n"
    with pytest.raises(FormatError, match="is of one GPU"):
        parse_p2p_bandwidth(text, file="x")


@pytest.mark.parametrize(
    ("lines", "of_1"),
    [
        (["export CUDA_VISIBLE_DEVICES=2,5"], "5"),
        (["CUDA_VISIBLE_DEVICES='2,5' ./p2pBandwidthLatencyTest"], "5"),
        (["export CUDA_VISIBLE_DEVICES=2,5", "./p2pBandwidthLatencyTest"], "5"),
        (["CUDA_VISIBLE_DEVICES=2,5 ./p2pBandwidthLatencyTest", "./p2pBandwidthLatencyTest"], "1"),
        (["export CUDA_VISIBLE_DEVICES=2,5", "unset CUDA_VISIBLE_DEVICES"], "1"),
        (["CUDA_VISIBLE_DEVICES=GPU-3f1c ./p2pBandwidthLatencyTest"], "1"),
        (["export CUDA_VISIBLE_DEVICES=4,4"], "1"),
        (["mpirun -x CUDA_VISIBLE_DEVICES=6,7 -np 2 ./build/sendrecv_perf -g 1"], "7"),
    ],
)
def test_visible_devices(lines: list[str], of_1: str) -> None:
    seen = VisibleDevices()
    for line in lines:
        seen.read(line)
    assert seen.of("1") == of_1


# nvbandwidth

PAIRS = """memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     26.34
 1     25.34       N/A
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # read: from the column's GPU to the row's.
        (PAIRS + "SUM device_to_device_memcpy_read_ce 51.68\n", {"gpu1->gpu0": [26.34]}),
        (PAIRS, {"gpu1->gpu0": [26.34]}),
        (PAIRS.replace("->", "<-"), {"gpu0->gpu1": [26.34]}),
        # Ahead of the first release.
        (
            "Running benchmark device_to_device_memcpy_write_ce.\n"
            + PAIRS.replace("(row)", "(rows)").replace("(column)", "(columns)"),
            {"gpu0->gpu1": [26.34]},
        ),
        # A sum of one of three tables, and the command alone.
        (
            PAIRS.replace("->", "<->").replace("bandwidth", "Total bandwidth")
            + "SUM device_to_device_bidirectional_memcpy_write_ce_total 51.68\n",
            {"gpu0<->gpu1": [26.34, 25.34]},
        ),
        (
            "./nvbandwidth -b 512 -t device_to_device_bidirectional_memcpy_write_sm -i 5\n"
            + PAIRS.replace("CE", "SM").replace("->", "<->"),
            {"gpu0<->gpu1": [26.34, 25.34]},
        ),
        # Somebody cut from within one test into another, whose sum names it.
        (
            "Running host_to_device_memcpy_ce.\n[...]\n" + PAIRS
            + "SUM device_to_device_memcpy_write_ce 51.68\n",
            {"gpu0->gpu1": [26.34]},
        ),
    ],
)  # fmt: skip
def test_a_test_is_named_by_its_sum_or_its_title(
    text: str, expected: dict[str, list[float]]
) -> None:
    found = import_any(text, file="x")
    assert found.kind == "nvbandwidth"
    got = rates(found.best())
    assert {name: got[name] for name in expected} == expected


def test_a_title_that_several_tests_print_names_none() -> None:
    text = PAIRS + "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n  0 1\n0 5.0 6.0\n"
    found = import_any(text, file="x")
    assert set(rates(found.best())) == {"gpu0->gpu1", "gpu1->gpu0"}
    assert any("not named" in n for n in found.notes)
    summed = import_any(text + "SUM all_to_host_memcpy_ce 11.0\n", file="x")
    (both,) = summed.select("all_to_host_memcpy_ce").samples
    assert sorted(both.pattern.pairs) == [("gpu0", "cpu0"), ("gpu1", "cpu0")]
    assert rates(summed.select("device_to_device_memcpy_read_ce")) == rates(found.best())


def test_sums_without_tables_are_no_figures() -> None:
    with pytest.raises(FormatError, match="sums of tests and not their tables"):
        import_any("SUM host_to_device_memcpy_ce 205.04\nSUM device_local_copy 7.5\n", file="x")


def test_a_waived_test_and_wrong_data_are_the_message() -> None:
    with pytest.raises(FormatError, match="write_ce was waived: no two GPUs reach each other"):
        import_any("Waiving device_to_device_memcpy_write_ce.\n", file="x")
    wrong = (
        "Running device_to_device_memcpy_read_ce.\n"
        " Invalid value when checking the pattern at 0x7\n"
    )
    with pytest.raises(FormatError, match="read_ce found wrong data"):
        import_any(wrong, file="x")
    beside = import_any(wrong + "Running device_to_device_memcpy_write_ce.\n" + PAIRS, file="x")
    assert len(beside.best().samples) == 2
    assert any("wrong data" in n for n in beside.notes)


PROCESSES = [
    f"Process {k} (tray-{k // 2}): device {k % 2}: HGX GB200 (0000000{k % 2 + 8}:01:00)"
    for k in range(4)
]


def test_a_multi_node_run_names_hosts_and_their_gpus() -> None:
    rows = "".join(
        f"{a} " + " ".join("N/A" if a == b else f"{100 + 10 * a + b}.5" for b in range(4)) + "\n"
        for a in range(4)
    )
    text = (
        "\n".join(PROCESSES)
        + "\nRunning multinode_device_to_device_memcpy_read_ce.\n"
        + "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n    0 1 2 3\n"
        + rows
    )
    found = parse_nvbandwidth(text, file="x")
    # Row 0, column 3: read from process 3, which has the second tray's GPU 1.
    assert rates(found.best())["node1/gpu1->node0/gpu0"] == [103.5]
    assert len(found.best().samples) == 12
    assert found.devices["node1/gpu1"] == {"model": "HGX GB200", "bus_id": "0009:01:00.0"}
    document = {
        "nvbandwidth": {
            "GPU Device list": PROCESSES,
            "testcases": [
                {
                    "name": "multinode_device_to_device_memcpy_read_ce",
                    "bandwidth_matrix": [r.split()[1:] for r in rows.splitlines()],
                }
            ],
        }
    }
    same = parse_nvbandwidth(json.dumps(document), file="x")
    assert rates(same.best()) == rates(found.best())


def test_latencies_alone_are_the_reason() -> None:
    text = "P2P=Enabled Latency Matrix (us)\n  D\\D  0  1\n  0  2.6  1.3\n  1  1.3  2.6\n"
    with pytest.raises(InputError, match="has latencies and no rates"):
        import_any(text, file="x").best()


# Several tools in one paste

BANDWIDTH_TEST = (
    "[CUDA Bandwidth Test] - Starting...\n Device 0: A\n"
    " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
    "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t12.2\n"
)


def test_the_tools_of_one_paste_are_all_used() -> None:
    text = BANDWIDTH_TEST + one_way("Enabled", 20.0, 21.0)
    assert {i.kind for i in import_all(text, file="x")} == {"p2p", "bandwidth-test"}
    measured = parse_measurements(text.encode(), file="x")
    assert rates(measured) == {
        "gpu0->gpu1": [20.0],
        "gpu1->gpu0": [21.0],
        "cpu0->gpu0": [12.2],
    }


def test_what_cannot_be_read_beside_another_tool_is_told() -> None:
    text = one_way("Enabled", 20.0, 21.0) + BANDWIDTH_TEST.replace("12.2", "1e30")
    (found,) = import_all(text, file="x")
    assert any("CUDA bandwidthTest are left out" in n for n in found.notes)


# simpleP2P

SIMPLE = (
    "[./simpleP2P] - Starting...\n"
    "> Peer access from A (GPU0) -> A (GPU1) : Yes\n> Peer access from A (GPU1) -> A (GPU0) : Yes\n"
    "cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 20.00GB/s\n"
)


def test_simple_p2p_prints_gib_of_copies_that_take_turns() -> None:
    found = import_any("$ export CUDA_VISIBLE_DEVICES=2,3\n" + SIMPLE + "Test passed\n", file="x")
    assert rates(found.best()) == {"gpu2->gpu3": [21.474836], "gpu3->gpu2": [21.474836]}
    assert {s.pattern.total_bytes for s in found.best().samples} == {2**26}
    assert any("GiB/s" in n for n in found.notes)


def test_simple_p2p_of_wrong_data_is_refused() -> None:
    wrong = "Verification error @ element 1: val = 0.0, ref = 4.0\n"
    with pytest.raises(FormatError, match=r"x:5: .*arrived wrong"):
        import_any(SIMPLE + wrong * 3, file="x")
    other = SIMPLE.replace("GPU0 and GPU1: 20", "GPU0 and GPU2: 10")
    found = import_any(SIMPLE + wrong + other, file="x")
    assert set(rates(found.best())) == {"gpu0->gpu2", "gpu2->gpu0"}
    assert len(found.best().set_aside) == 2


def test_simple_p2p_without_peers() -> None:
    text = SIMPLE.partition("cudaMemcpyPeer")[0].replace("Yes", "No")
    with pytest.raises(FormatError, match="no two GPUs reach"):
        import_any(text, file="x")


# bandwidthTest


def bandwidth_test(number: int, model: str, rate: float) -> str:
    return (
        f"[CUDA Bandwidth Test] - Starting...\n Device {number}: {model}\n"
        " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
        f"   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t{rate}\n\n"
        " Device to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
        "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t500.0\n"
    )


def test_runs_on_several_gpus_are_used_together() -> None:
    together = bandwidth_test(0, "A", 12.0) + bandwidth_test(1, "A", 6.0)
    found = import_any(together, file="x")
    assert rates(found.best()) == {"cpu0->gpu0": [12.0], "cpu0->gpu1": [6.0]}
    by_variable = "".join(
        f"$ CUDA_VISIBLE_DEVICES={k} ./bandwidthTest\n" + bandwidth_test(0, "A", 12.0 / k)
        for k in (1, 2)
    )
    assert rates(import_any(by_variable, file="x").best()) == {
        "cpu0->gpu1": [12.0],
        "cpu0->gpu2": [6.0],
    }


def test_runs_on_other_machines_are_told() -> None:
    text = bandwidth_test(0, "T4", 9.7) + bandwidth_test(0, "A100", 12.3)
    found = import_any(text, file="x")
    assert rates(found.best()) == {"cpu0->gpu0": [12.3]}
    assert any("different GPUs that have the same number" in n for n in found.notes)
    same = import_any(bandwidth_test(0, "T4", 9.7) * 2, file="x")
    assert not any("different GPUs" in n for n in same.notes)

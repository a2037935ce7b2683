"""NVIDIA's tools: what their figures mean, on small hand-written outputs."""

from __future__ import annotations

import json

import pytest

from topocal.measure.importers.bandwidth_test import parse_bandwidth_test
from topocal.measure.importers.imported import Imported
from topocal.measure.importers.nccl_tests import parse_nccl_tests
from topocal.measure.importers.nvbandwidth import parse_nvbandwidth
from topocal.measure.importers.p2p_bandwidth import parse_p2p_bandwidth
from topocal.measure.importers.pair_table import both_ways_of, parse_pair_table
from topocal.measure.samples import Measurements
from topocal.topo.errors import FormatError, InputError

P2P = """user@box:~$ ./p2pBandwidthLatencyTest
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, A, pciBusID: b4, pciDeviceID: 0, pciDomainID:0
Device: 1, B, pciBusID: 5, pciDeviceID: 0, pciDomainID:d463
Device=0 CAN Access Peer Device=1
Device=1 CANNOT Access Peer Device=0

P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     0     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00   5.00
     1   6.00 900.00
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1008.06  20.00
     1  25.00 900.00
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00  40.00
     1  41.00 900.00
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.32  14.99
     1  13.63   1.25

   CPU     0      1
     0   3.36  10.34
     1  10.47   3.27
"""


def rates(measured: Measurements) -> dict[str, list[float]]:
    """GB/s of each pattern, in canonical order."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(round(s.throughput_Bps / 1e9, 6))
    return found


def p2p(text: str) -> Imported:
    return parse_p2p_bandwidth(text, file="p2p.txt")


def test_p2p_tables_are_kept_apart_by_condition() -> None:
    found = p2p(P2P)
    assert found.labels == (
        "P2P disabled, unidirectional",
        "P2P enabled, unidirectional",
        "P2P enabled, bidirectional",
        "P2P enabled, latency",
        "P2P enabled, latency on the host's clock",
    )
    assert rates(found.select(p2p="off")) == {"gpu0->gpu1": [5.0], "gpu1->gpu0": [6.0]}
    # A fit uses the tables with peer access; both cells of a pair are repeats of its sum.
    assert rates(found.best()) == {
        "gpu0->gpu1": [20.0],
        "gpu1->gpu0": [25.0],
        "gpu0<->gpu1": [41.0, 40.0],
    }
    both = found.select("P2P enabled, bidirectional").samples[0]
    assert [f.size_bytes for f in both.pattern.flows] == [2.0**28, 2.0**28]
    assert not both.size_known


def test_p2p_latencies_are_alphas() -> None:
    by_gpu = p2p(P2P).groups[3]
    assert [(a.source, a.destination, round(a.seconds * 1e6, 6)) for a in by_gpu.latencies] == [
        ("gpu0", "gpu1", 14.99),
        ("gpu1", "gpu0", 13.63),
    ]
    assert by_gpu.default
    assert not p2p(P2P).groups[4].default


def test_p2p_devices_and_access() -> None:
    found = p2p(P2P)
    assert found.devices["gpu0"] == {"model": "A", "bus_id": "0000:b4:00.0"}
    assert found.devices["gpu1"]["bus_id"] == "d463:05:00.0"
    assert found.no_peer == (("gpu1", "gpu0"),)
    assert any("no peer access" in n for n in found.notes)


def test_p2p_reads_go_the_other_way() -> None:
    text = (
        "Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)\n"
        "   D\\D     0      1\n     0 900.00  20.00\n     1  25.00 900.00\n"
    )
    assert rates(p2p(text).best()) == {"gpu0->gpu1": [25.0], "gpu1->gpu0": [20.0]}


def test_p2p_cut_in_a_row_and_in_a_figure() -> None:
    whole = (
        "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n"
        "   D\\D     0      1      2 \n"
        "     0 900.00  40.00  41.00 \n"
        "     1  40.00 900.00  42.00 \n"
    )
    row = p2p(whole + "     2  41.0")
    assert rates(row.best()) == {
        "gpu0<->gpu1": [40.0, 40.0],
        "gpu0<->gpu2": [41.0],
        "gpu1<->gpu2": [42.0],
    }
    assert row.notes == (
        "line 5: row 2 of the table 'P2P enabled, bidirectional' is cut after 1 of 3 figures: "
        "it is left out",
    )
    missing = p2p(whole)
    assert missing.notes == ("the table 'P2P enabled, bidirectional' has no row 2",)
    figure = p2p(
        "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n D\\D 0 1\n 0 9.00 7.25\n 1 4"
    )
    assert rates(figure.best()) == {"gpu0->gpu1": [7.25]}


def test_p2p_two_runs_the_last_of_equals_is_used() -> None:
    second = P2P.replace(" 20.00", " 22.00").replace(" 25.00", " 26.00")
    found = p2p(P2P + "\nuser@box:~$ sudo reboot\n" + second)
    assert rates(found.best())["gpu0->gpu1"] == [22.0]
    assert rates(found.select("run 1: P2P enabled, unidirectional"))["gpu0->gpu1"] == [20.0]
    assert any(n.startswith("holds 2 runs: run 2 is used") for n in found.notes)


def test_p2p_terminal_codes_tabs_and_a_dash_on_the_diagonal() -> None:
    text = (
        "\x1b[1mUnidirectional P2P=Enabled Bandwidth Matrix (GB/s)\x1b[0m\n"
        "   D\\D\t0\t1\n\t0\t\u2014\t12.5\n\t1\tN/A\t\u2014\n"
    )
    assert rates(p2p(text).best()) == {"gpu0->gpu1": [12.5]}


def test_p2p_without_tables_is_refused_in_one_line() -> None:
    with pytest.raises(FormatError, match=r"^p2p\.txt: has no figures") as caught:
        p2p("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n")
    assert "\n" not in str(caught.value)


def test_a_table_without_a_title_is_one_way_and_says_so() -> None:
    text = (
        "         GPU 0  GPU 1  GPU10\n"
        "GPU 0      -     56.2   56.3\n"
        "GPU 1     56.4    -     56.5\n"
        "GPU10     56.6   56.7    -\n"
    )
    found = parse_pair_table(text, file="t.txt")
    assert rates(found.best())["gpu0->gpu10"] == [56.3]
    assert len(found.best().samples) == 6
    assert "no title" in found.notes[0]
    assert rates(both_ways_of(found.best()))["gpu0<->gpu10"] == [56.6, 56.3]
    with pytest.raises(InputError, match="is not one flow"):
        both_ways_of(both_ways_of(found.best()))


NVB = """$ ./nvbandwidth
[...]
nvbandwidth Version: v0.2

Device 0: NVIDIA H800 (00000000:1b:00)
Device 1: NVIDIA H800

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
          0         1
0     55.00     56.00

SUM host_to_device_memcpy_ce 111.00

Running host_to_device_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
          0         1
0     50.00     52.00

Running device_to_host_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
          0         1
0     30.00     N/A

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
          0         1
0       N/A    172.00
1    173.00       N/A

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
          0         1
0       N/A    176.00
1    177.00       N/A

Running device_to_device_bidirectional_memcpy_write_ce.
memcpy CE GPU(row) <-> GPU(column) bandwidth (GB/s)
          0         1
0       N/A    170.00
1    160.00       N/A

Running all_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
          0         1
0     40.00     20.00

Running all_to_one_write_ce.
memcpy CE All Gpus -> GPU(column) total bandwidth (GB/s)
          0         1
0    178.00    179.00

Running one_to_all_write_ce.
memcpy CE GPU(column) -> All GPUs total bandwidth (GB/s)
          0         1
0    175.00    176.00

Running host_to_device_memcpy_sm.
memcpy SM CPU(row) -> GPU(column) bandwidth (GB/s)
          0         1
0     38.00     39.00

Running device_to_device_bidirectional_memcpy_read_sm.
memcpy SM GPU(row) -> GPU(column) bandwidth (GB/s)
          0         1
0       N/A    300.00
1    301.00       N/A

Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
          0         1
0   1100.00   1101.00
 [...]
"""


def nvb(text: str) -> Imported:
    return parse_nvbandwidth(text, file="nvb.txt")


def test_nvbandwidth_pairs_go_where_the_bytes_go_not_the_arrow() -> None:
    found = nvb(NVB)
    # read: from the column's GPU to the row's; write: from the row's to the column's.
    assert rates(found.select("device_to_device_memcpy_read_ce")) == {
        "gpu0->gpu1": [173.0],
        "gpu1->gpu0": [172.0],
    }
    assert rates(found.select("device_to_device_memcpy_write_ce")) == {
        "gpu0->gpu1": [176.0],
        "gpu1->gpu0": [177.0],
    }
    assert rates(found.select("host_to_device_memcpy_ce")) == {
        "cpu0->gpu0": [55.0],
        "cpu0->gpu1": [56.0],
    }


def test_nvbandwidth_rates_of_one_moment_make_flows_that_end_together() -> None:
    (sample,) = nvb(NVB).select("all_to_host_memcpy_ce").samples
    assert sample.name == "cpu0<-gpu0,gpu1"
    assert sample.throughput_Bps == pytest.approx(60e9)
    sizes = [f.size_bytes for f in sample.pattern.flows]
    assert [s / sample.seconds for s in sizes] == pytest.approx([40e9, 20e9])
    assert sample.flow_finish_s is None


def test_nvbandwidth_two_tests_of_one_direction_each_make_a_pattern() -> None:
    found = nvb(NVB)
    label = "host_to_device_bidirectional_memcpy_ce + device_to_host_bidirectional_memcpy_ce"
    (sample,) = found.select(label).samples
    assert sample.pattern.pairs == [("cpu0", "gpu0"), ("gpu0", "cpu0")]
    assert sample.throughput_Bps == pytest.approx(80e9)
    alone = nvb(NVB.replace("Running device_to_host_bidirectional", "Running another_"))
    (reading, _) = next(g for g in alone.groups if g.readings).readings
    assert reading.value == 50e9
    assert "which has the other, is missing" in reading.reason


def test_nvbandwidth_both_ways_of_pairs() -> None:
    found = nvb(NVB)
    (one,) = found.select("device_to_device_bidirectional_memcpy_write_ce").samples
    assert one.throughput_Bps == pytest.approx(330e9)
    assert [f.size_bytes / one.seconds for f in one.pattern.flows] == pytest.approx([170e9, 160e9])
    both = found.select("device_to_device_bidirectional_memcpy_read_sm")
    assert rates(both) == {"gpu0<->gpu1": [301.0, 300.0]}


def test_nvbandwidth_fans_and_what_a_fit_uses() -> None:
    found = nvb(NVB)
    assert rates(found.select("all_to_one_write_ce")) == {
        "gpu1->gpu0": [178.0],
        "gpu0->gpu1": [179.0],
    }
    used = {g.label for g in found.groups if g.default}
    assert not any(label.endswith("_sm") or "_read_" in label for label in used)
    assert "device_local_copy" not in used
    assert found.devices["gpu0"] == {"model": "NVIDIA H800", "bus_id": "0000:1b:00.0"}
    assert sum("cut the output here" in n for n in found.notes) == 2


def as_json(**cases: list[list[object]]) -> str:
    tests = [{"name": n, "status": "Passed", "bandwidth_matrix": m} for n, m in cases.items()]
    return json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": tests}})


def test_nvbandwidth_json_with_texts_and_not_available() -> None:
    text = "user$ nvbandwidth -j\n" + as_json(
        device_to_device_memcpy_write_ce=[["N/A", "395.25"], [396, None]],
        host_to_device_memcpy_ce=[["55.5", "N/A"]],
    )
    assert rates(nvb(text).best()) == {
        "gpu0->gpu1": [395.25],
        "gpu1->gpu0": [396.0],
        "cpu0->gpu0": [55.5],
    }


def test_nvbandwidth_json_three_tables_in_one() -> None:
    rows: list[list[object]] = [
        ["N/A", "100"], ["110", "N/A"],  # what the row's GPU takes in
        ["N/A", "200"], ["210", "N/A"],  # what it gives out
        ["N/A", "300"], ["320", "N/A"],
    ]  # fmt: skip
    found = nvb(as_json(device_to_device_bidirectional_memcpy_write_ce=rows)).best()
    by_row = {s.where.line if s.where else 0: s for s in found.samples}
    assert len(found.samples) == 2
    assert len(by_row) == 1
    # Row 0: 1->0 at 100 and 0->1 at 200; equal sizes, so the slower one counts.
    assert sorted(s.throughput_Bps for s in found.samples) == pytest.approx([200e9, 220e9])
    slow = min(found.samples, key=lambda s: s.throughput_Bps)
    assert slow.pattern.pairs[0] == ("gpu0", "gpu1")
    assert slow.flow_finish_s is not None
    assert slow.flow_finish_s[0] * 2 == pytest.approx(slow.flow_finish_s[1])


def test_nvbandwidth_json_status_without_figures_is_told() -> None:
    document = {"nvbandwidth": {"testcases": [
        {"name": "device_to_device_memcpy_read_ce", "status": "Waived"},
        {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["1.5"]]},
    ]}}  # fmt: skip
    found = nvb(json.dumps(document))
    assert found.notes == (
        "device_to_device_memcpy_read_ce was waived: no two GPUs reach each other's memory",
    )


def test_nvbandwidth_damaged_json_names_the_line() -> None:
    with pytest.raises(FormatError, match=r"nvb\.txt:3: is damaged JSON"):
        nvb('{"nvbandwidth": {\n"testcases": [\n}')


BANDWIDTH = """[CUDA Bandwidth Test] - Starting...
 Device 0: Tesla P100
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     12.0

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     13.0

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     444.0

Result = PASS
"""


def test_bandwidth_test() -> None:
    found = parse_bandwidth_test(BANDWIDTH, file="b.txt")
    assert rates(found.best()) == {"cpu0->gpu0": [12.0], "gpu0->cpu0": [13.0]}
    (sample, _) = found.best().samples
    assert sample.size_known
    assert sample.pattern.total_bytes == 32e6
    assert found.groups[-1].readings[0].value == 444e9
    assert found.notes == ()
    far = found.renamed({"cpu0": "cpu1"})
    assert rates(far.best()) == {"cpu1->gpu0": [12.0], "gpu0->cpu1": [13.0]}


def test_bandwidth_test_megabytes_are_told() -> None:
    text = BANDWIDTH.replace("GB/s", "MB/s").replace("12.0", "12150.7")
    found = parse_bandwidth_test(text, file="b.txt")
    assert rates(found.best())["cpu0->gpu0"] == [12.1507]
    assert "4.9 %" in found.notes[0]


NCCL_HEADER = """# nThread 1 nGpus 3 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5
#
# Using devices
#  Rank  0 Group  0 Pid  31706 on hostA device  0 [0000:b4:00] NVIDIA X
#  Rank  1 Group  0 Pid  31706 on hostA device  2 [0000:b5:00] NVIDIA X
#  Rank  2 Group  0 Pid  31706 on hostA device  1 [0000:b6:00] NVIDIA X
#
#                                   out-of-place                   in-place
#  size  count type redop root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#   (B)                         (us) (GB/s) (GB/s)         (us) (GB/s) (GB/s)
"""


def nccl(test: str, *rows: str) -> Imported:
    text = f"root@box:~# ./build/{test} -g3\n{NCCL_HEADER}" + "\n".join(rows) + "\n"
    return parse_nccl_tests(text, file="n.txt")


def test_nccl_sendrecv_is_a_ring_in_order_of_ranks() -> None:
    found = nccl(
        "sendrecv_perf", "  3000000  750000  float  none  -1  100.0 30.0 30.0 0  90.0 33.0 33.0 0"
    )
    (sample,) = found.best().samples
    assert sample.pattern.pairs == [("gpu0", "gpu2"), ("gpu2", "gpu1"), ("gpu1", "gpu0")]
    assert sample.seconds == pytest.approx(100e-6)
    assert [f.size_bytes for f in sample.pattern.flows] == [3e6] * 3
    assert found.select("sendrecv, in place").samples[0].seconds == pytest.approx(90e-6)
    assert found.devices["gpu2"] == {"model": "NVIDIA X", "bus_id": "0000:b5:00.0"}


def test_nccl_alltoall_gather_and_scatter_move_a_share_of_the_size() -> None:
    row = "  3000000  250000  float  none  {}  100.0 30.0 30.0 0  N/A N/A N/A N/A"
    (everyone,) = nccl("alltoall_perf", row.format(-1)).best().samples
    assert len(everyone.pattern.flows) == 6
    assert everyone.pattern.flows[0].size_bytes == 1e6
    (into,) = nccl("gather_perf", row.format(1)).best().samples
    assert into.pattern.pairs == [("gpu0", "gpu2"), ("gpu1", "gpu2")]
    (out_of,) = nccl("scatter_perf", row.format(0)).best().samples
    assert out_of.pattern.pairs == [("gpu0", "gpu2"), ("gpu0", "gpu1")]


def test_nccl_collectives_are_readings_and_no_samples() -> None:
    found = nccl(
        "all_reduce_perf", "  1048576  262144  float  sum  -1  279.5 3.75 5.0 0  280.2 3.74 4.9 0"
    )
    assert found.groups[0].readings[0].what == "all_reduce bus bandwidth at 1 MiB"
    assert found.groups[0].readings[0].value == pytest.approx(5e9)
    with pytest.raises(InputError, match="library's choice"):
        found.best()


def test_nccl_wrong_results_are_set_aside() -> None:
    found = nccl(
        "sendrecv_perf", "  3000000  750000  float  none  -1  100.0 30.0 30.0 7  90.0 33.0 33.0 0"
    )
    (group, _) = found.groups
    assert group.measurements.samples == ()
    assert group.measurements.set_aside[0].set_aside == "its results were wrong"


def test_nccl_ranks_of_several_hosts() -> None:
    row = "  3000000  750000  float  none  -1  100.0 30.0 30.0 0  90.0 33.0 33.0 0\n"
    (sample,) = (
        parse_nccl_tests(
            "$ mpirun sendrecv_perf\n"
            + NCCL_HEADER.replace("hostA device  1", "hostB device  0")
            + row,
            file="n.txt",
        )
        .best()
        .samples
    )
    assert sample.pattern.pairs[2] == ("node1/gpu0", "node0/gpu0")


def test_nccl_json() -> None:
    document = {
        "version": 2,
        "args": ["./build/sendrecv_perf", "-g", "2"],
        "config": {"nthreads": 1, "ngpus": 2, "devices": [
            {"rank": 0, "hostname": "h", "device": 0, "device_hex": "0000:01:00"},
            {"rank": 1, "hostname": "h", "device": 1, "device_hex": "0000:02:00"},
        ]},
        "results": [
            {"size": 1000, "root": "    -1", "out_of_place": {"time": 10.0, "nwrong": None}},
            {"size": 2000, "root": "    -1", "out_of_place": {"time": "nan", "nwrong": 0.0}},
            {"size": 4000, "out_of_place": None, "in_place": {"cpu_time": 5, "nwrong": 0}},
        ],
    }  # fmt: skip
    found = parse_nccl_tests(json.dumps(document), file="n.json")
    (sample,) = found.best().samples
    assert sample.name == "gpu0<->gpu1"
    assert sample.seconds == pytest.approx(10e-6)
    assert found.select("sendrecv, in place").samples[0].pattern.total_bytes == 8000

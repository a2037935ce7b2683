"""What people of clusters have: OSU, Intel's MPI benchmarks, perftest, mpiGraph, ze_peer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.imported import Imported
from topocal.measure.importers.registry import IMPORTERS, import_any, sniff_or_none
from topocal.topo.errors import FormatError, TopocalError

OSU_BW = """\
$ mpirun -np 2 osu_bw -d cuda D D
# OSU MPI-CUDA Bandwidth Test v7.2
# Size      Bandwidth (MB/s)
# Datatype: MPI_CHAR.
1                       1.00
1000                  500.00              Pass
4000000             80000.00
"""

OSU_PAIRS = """\
===== pair 2,5  run 1/1 =====
# OSU MPI-ROCM Bi-Directional Bandwidth Test v7.5
# Size      Bandwidth (MB/s)
1048576            140000.00

===== pair 0,1  run 1/1 =====
# OSU MPI-ROCM Bandwidth Test v7.5
# Size      Bandwidth (MB/s)
1048576             70000.00
"""

OSU_SUITE = """\
srun -N 2 ./osu_latency
# OSU MPI Latency Test v5.8
# Size          Latency (us)
0                       2.00
1000                    4.00
srun -N 2 ./osu_bw
# OSU MPI Bandwidth Test v5.8
# Size      Bandwidth (MB/s)
1000                  1000.00
# OSU MPI Allreduce Latency Test v5.6.2
# Size       Avg Latency(us)
4                       1.40
"""

OSU_SEVERAL = """\
# OSU MPI Multiple Bandwidth / Message Rate Test v5.7
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1000                 3000.00      3000000.00
"""

OSU_GET = """\
# OSU MPI One Sided Get Bandwidth Test v7.1
# Size      Bandwidth (MB/s)
1000                 3000.00
"""

IMB = """\
# Benchmarking PingPong
# #processes = 2
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         2.00         0.00
         1000         1000         4.00       238.42
# Benchmarking Sendrecv
# #processes = 3
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec
         1000         1000         4.00         8.00         6.00       238.42
# Benchmarking Biband
# #processes = 4
       #bytes #repetitions   Mbytes/sec      Msg/sec
         1000         1000      2000.00        20000
# Benchmarking Allreduce
# #processes = 2
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            4         1000         4.00         5.00         4.50
"""

PERFTEST = """\
                    RDMA_Write Bidirectional BW Test
 Dual-port       : OFF          Device         : mlx5_0
 local address: LID 0000 QPN 0x008a PSN 0xfffb6d
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1790300          0.00               160.00              0.357719
"""

PERFTEST_READ = """\
(worker1, rank=1)                     RDMA_Read BW Test
(worker1, rank=1)  Dual-port       : OFF  Device         : mlx5_1
(worker1, rank=1)  #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
(worker1, rank=1)  1024      1000             5000.00             1000.00               0.689839
"""

PERFTEST_LATENCY = """\
                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 1000       1000          1.90           6.01         2.00              2.10
"""

MPIGRAPH = """\
START mpiGraph v1.6
MsgSize\t1000
Procs\t3

Send max\t3000.0
Send\t\tn1:0\tn1:1\tn2:2
n1:0 to\t0.000\t1000.000\t2000.000
n1:1 to\t500.000\t0.000\t1000.000
n2:2 to\t1000.000\t4000.000\t0.000

Recv\t\tn1:0\tn1:1\tn2:2
n1:0 from\t0.000\t9.000\t9.000
"""

LINES = """\
Detected 3 GPUs
.......{WRITE} GPU 0 to GPU <*>.......
GPU 0 -> GPU 1: Bandwidth = 150.5 GB/s
GPU0 to GPU2: 18.8 GB/s
CPU 1 -> GPU 2: 24 GB/s
.......{READ} GPU<*> to GPU 0.......
GPU 1 -> GPU 0: Bandwidth = 173.5 GB/s
Bidirectional
GPU 0 <-> GPU 1: Bandwidth = 200 GB/s
All pairs in parallel
GPU 0 -> GPU 1: Bandwidth = 9 GB/s
"""

ZE_PEER = """\
Unidirectional Bandwidth P2P Write
 Device(0)->Device(0): 212.03 GBPS
 Device(0)->Device(1): 17.5 GBPS
Unidirectional Bandwidth P2P Read
 Device(0)<-Device(1): 15.5 GBPS
Unidirectional Latency P2P Write
 Device(0)->Device(1): 6.5 uS
Bidirectional Bandwidth IPC P2P: Device(0)<-->Device(1)
 Size:    1 MB - BW:   9.0000 GBPS
"""


def rates(found: Imported, label: str | None = None) -> dict[str, float]:
    chosen = found.best() if label is None else found.select(label)
    return {s.name: round(s.throughput_Bps / 1e9, 6) for s in chosen.samples}


def labels(found: Imported) -> dict[str, bool]:
    return {g.label: g.default for g in found.groups}


# OSU


def test_bandwidth_between_devices_is_of_the_first_two() -> None:
    found = import_any(OSU_BW, file="o")
    samples = found.best().samples
    assert {s.name for s in samples} == {"gpu0->gpu1"}
    assert [s.pattern.total_bytes for s in samples] == [1.0, 1000.0, 4e6]
    assert [round(s.throughput_Bps) for s in samples] == [10**6, 5 * 10**8, 8 * 10**10]
    assert any("taken to be gpu0" in note for note in found.notes)


def test_a_pair_named_above_is_believed() -> None:
    found = import_any(OSU_PAIRS, file="o")
    assert rates(found) == {"gpu2<->gpu5": 140.0, "gpu0->gpu1": 70.0}
    assert not any("taken to be" in note for note in found.notes)


def test_ranks_on_two_nodes_stay_ranks_and_collectives_are_readings() -> None:
    found = import_any(OSU_SUITE, file="o")
    # One message at a time has another start-up time than a window of them.
    assert labels(found) == {
        "rank0->rank1 by size, one message at a time": False,
        "rank0->rank1 by size": True,
        "no patterns of known ends": False,
    }
    (latency,) = found.groups[0].latencies
    assert latency.seconds == pytest.approx(2e-6)
    assert rates(found, "rank0->rank1 by size, one message at a time") == {"rank0->rank1": 0.25}
    (reading,) = found.groups[2].readings
    assert (reading.what, reading.unit) == ("Allreduce Latency at 4 B", "s")


def test_several_pairs_are_one_pattern() -> None:
    (sample,) = import_any(OSU_SEVERAL, file="o").best().samples
    assert sorted(sample.pattern.pairs) == [("rank0", "rank2"), ("rank1", "rank3")]
    assert sample.throughput_Bps == pytest.approx(3e9)
    many = import_any(OSU_SEVERAL.replace("pairs: 2", "pairs: 620"), file="o")
    assert [len(g.readings) for g in many.groups] == [1]


def test_a_get_moves_bytes_to_the_first_rank() -> None:
    assert rates(import_any(OSU_GET, file="o")) == {"rank1->rank0": 3.0}


def test_a_sweep_cut_among_small_messages_tells_no_rate() -> None:
    text = "# OSU MPI Bandwidth Test v5.8\n1  1.00\n2  2.00\n4  4.00\n8  7.90\n"
    (group,) = import_any(text, file="o").groups
    assert not group.measurements.samples
    assert group.readings[0].reason.startswith("its messages are so small")


# Intel MPI benchmarks


def test_times_count_rather_than_megabytes() -> None:
    found = import_any(IMB, file="i")
    assert rates(found, "Sendrecv, 3 ranks") == {
        "rank0->rank1 + rank1->rank2 + rank2->rank0": round(3000 / 8e-6 / 1e9, 6)
    }
    assert rates(found, "PingPong, 2 ranks") == {"rank0->rank1": 0.25}
    (both,) = found.select("Biband, 4 ranks").samples
    assert set(both.pattern.pairs) == {
        ("rank0", "rank2"),
        ("rank2", "rank0"),
        ("rank1", "rank3"),
        ("rank3", "rank1"),
    }
    assert both.throughput_Bps == pytest.approx(2e9)
    assert found.groups[0].latencies[0].seconds == pytest.approx(2e-6)
    assert labels(found)["PingPong, 2 ranks"] is False
    (readings,) = [g.readings for g in found.groups if g.readings]
    assert [(r.what, round(r.value * 1e6, 3)) for r in readings] == [("Allreduce at 4 B", 5.0)]


# perftest


def test_bidirectional_gigabits_are_the_sum_of_both() -> None:
    found = import_any(PERFTEST, file="p")
    assert rates(found) == {"client<->server": 20.0}
    assert found.devices["client"]["model"] == "mlx5_0"


def test_megabytes_are_binary_and_reads_come_from_the_server() -> None:
    (sample,) = import_any(PERFTEST_READ, file="p").best().samples
    assert sample.name == "server->client"
    assert sample.throughput_Bps == pytest.approx(1000 * 2**20)


def test_latency_is_the_typical_one() -> None:
    (sample,) = import_any(PERFTEST_LATENCY, file="p").best().samples
    assert sample.seconds == pytest.approx(2e-6)


def test_several_devices_are_told_apart() -> None:
    found = import_any(PERFTEST + PERFTEST_READ, file="p")
    assert set(rates(found)) == {
        "client-mlx5_0<->server-mlx5_0",
        "server-mlx5_1->client-mlx5_1",
    }
    assert any("same time" in note for note in found.notes)


# mpiGraph


def test_steps_of_mpigraph_are_patterns() -> None:
    found = import_any(MPIGRAPH, file="m")
    one, two = found.best().samples
    assert one.pattern.pairs == [("n1:0", "n1:1"), ("n1:1", "n2:2"), ("n2:2", "n1:0")]
    assert one.seconds == pytest.approx(1e-6)
    assert two.seconds == pytest.approx(2e-6)  # 1000 bytes at 500 MB/s
    assert two.flow_finish_s == pytest.approx((0.5e-6, 2e-6, 0.25e-6))


def test_a_cut_matrix_of_mpigraph_is_refused() -> None:
    text = "\n".join(line for line in MPIGRAPH.splitlines() if not line.startswith("n2:2 to"))
    with pytest.raises(FormatError, match="2 whole rows of sends for 3 ranks"):
        import_any(text, file="m")


# Lines


def test_lines_of_pairs() -> None:
    found = import_any(LINES, file="l")
    assert rates(found, "one way, write") == {
        "gpu0->gpu1": 150.5,
        "gpu0->gpu2": 18.8,
        "cpu1->gpu2": 24.0,
    }
    assert rates(found, "one way, read") == {"gpu1->gpu0": 173.5}
    assert rates(found, "both ways") == {"gpu0<->gpu1": 200.0}
    assert labels(found) == {
        "one way, write": True,
        "one way, read": False,
        "both ways": True,
        "several at once": False,
    }


def test_ze_peer() -> None:
    found = import_any(ZE_PEER, file="z")
    assert rates(found, "one way, write") == {"gpu0->gpu1": 17.5}
    assert rates(found, "one way, read") == {"gpu1->gpu0": 15.5}
    (both,) = found.select("both ways").samples
    assert (both.name, both.pattern.flows[0].size_bytes) == ("gpu0<->gpu1", 2.0**20)
    (latencies,) = [g.latencies for g in found.groups if g.latencies]
    assert latencies[0].seconds == pytest.approx(6.5e-6)


def test_hip_bus_bandwidth() -> None:
    text = "      p2p_bi_gpu0_gpu1\t    65536kB\t  GB/sec\t3.8896\t3.8916\t0.0068\n"
    (sample,) = import_any(text, file="h").best().samples
    assert (sample.name, sample.pattern.flows[0].size_bytes) == ("gpu0<->gpu1", 2.0**26)
    assert sample.throughput_Bps == pytest.approx(3.8896e9)


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0 -> GPU 1: Supported\nGPU 1 -> GPU 0: Supported\n",
        "GPU 0: 24.5 GB/s\n",
        "GPU 0 -> GPU 0: 900 GB/s\n",
        "10 GB/s from here to there\n",
    ],
)
def test_other_lines_are_no_pairs(text: str) -> None:
    assert sniff_or_none(text) is None


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.sampled_from(
            "\n".join([OSU_BW, OSU_SUITE, IMB, PERFTEST, PERFTEST_READ, MPIGRAPH, LINES, ZE_PEER])
            .replace("\t", " \t")
            .split("\n")
        ),
        max_size=40,
    ),
    st.integers(0, 60),
)
def test_any_mixture_is_read_or_refused(lines: list[str], cut: int) -> None:
    text = "\n".join(lines)
    text = text[: len(text) - cut]
    for importer in IMPORTERS:
        if importer.looks_like(text):
            try:
                importer.parse(text, file="x")
            except TopocalError as error:
                assert "\n" not in str(error)

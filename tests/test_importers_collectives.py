"""Tables of collectives of tools other than nccl-tests, and what is said of them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from topocal.measure.importers.registry import import_any, sniff_or_none
from topocal.solve.evidence import Finding, FindingKind, Severity
from topocal.solve.explain import find_in_settings
from topocal.solve.settings import settings_of
from topocal.topo.readers.registry import parse_any
from topocal.topo.topology import Topology

HCCL = """\
[root@node hccl_test]# mpirun -n 8 ./bin/all_reduce_test -p 8 -b 8K -e 64M -f 2 -d fp32 -o sum
the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 10
data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:
8192              |     57.11        |       0.14344        | success
1048576           |     82.10        |       12.77194       | success
67108864          |     1411.33      |       47.54999       | success
"""
NEURON = """\
$ nccom-test -r 32 -b 1MB -e 64MB -f 8 -d bf16 allr
     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
     1048576          524288     bf16         102           9.57          18.54
    67108864        33554432     bf16        1770          35.31          68.41
Avg bus bandwidth:      44.2267GB/s
"""
ONECCL = """\
options:
  processes:      12
#------------------------------------------------------------
# Benchmarking: allreduce
# #processes: 12
#------------------------------------------------------------

        #bytes  #repetitions   t_min[usec]   t_max[usec]   t_avg[usec]     stddev[%]
         65536            16        101.40        103.00        102.10          0.55
     134217728            16      19910.20      20042.10      20000.00          0.21

# All done
"""
DEEPSPEED = """\
---- Performance of all_gather on 8 devices ---------------------------------------------------
Size (Bytes)         Description               Duration        Throughput (Gbps)    BusBW (Gbps)
-----------------------------------------------------------------------------------------------
1.0 MB               524288x2                  95.10 us             176.4                154.4
1.0 GB               536870912x2               8.91 ms              1927.5               1686.6
"""
SCRIPT = """\
The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    32KB |   0.92GBps |   0.53GBps |
|     1GB | 343.18GBps | 196.10GBps |
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            HCCL,
            [
                ("all_reduce algorithm bandwidth at 8 KiB", 0.14344e9),
                ("all_reduce algorithm bandwidth at 1 MiB", 12.77194e9),
                ("all_reduce algorithm bandwidth at 64 MiB", 47.54999e9),
            ],
        ),
        (
            NEURON,
            [
                ("all_reduce bus bandwidth at 1 MiB", 18.54e9),
                ("all_reduce bus bandwidth at 64 MiB", 68.41e9),
            ],
        ),
        (
            ONECCL,
            [
                ("all_reduce algorithm bandwidth at 64 KiB", 65536 / 102.10e-6),
                ("all_reduce algorithm bandwidth at 128 MiB", 134217728 / 20e-3),
            ],
        ),
        (
            DEEPSPEED,
            [
                ("all_gather bus bandwidth at 1 MiB", 154.4e9 / 8),
                ("all_gather bus bandwidth at 1 GiB", 1686.6e9 / 8),
            ],
        ),
        (
            SCRIPT,
            [
                ("all_reduce bus bandwidth at 32 KiB", 0.92e9),
                ("all_reduce bus bandwidth at 1 GiB", 343.18e9),
            ],
        ),
    ],
)
def test_tables_by_size(text: str, rows: list[tuple[str, float]]) -> None:
    imported = import_any(text, file="paste.txt")
    assert imported.kind == "collectives"
    (group,) = imported.groups
    assert [r.what for r in group.readings] == [what for what, _ in rows]
    assert [r.value for r in group.readings] == pytest.approx([rate for _, rate in rows])
    assert not imported.usable


def test_wrong_results_are_left_out_and_told() -> None:
    imported = import_any(
        HCCL.replace("12.77194       | success", "12.77194       | failed"), file="x"
    )
    assert len(imported.groups[0].readings) == 2
    assert any("wrong" in note for note in imported.notes)


def test_two_tables_of_two_collectives() -> None:
    other = HCCL.replace("all_reduce_test", "reduce_scatter_test")
    tests = [g.conditions["test"] for g in import_any(HCCL + other, file="x").groups]
    assert tests == ["all_reduce", "reduce_scatter"]


@pytest.mark.parametrize(
    "text",
    [
        "size(B)  time(us)  bandwidth(GB/s)\n1024  10  0.1\n",
        "Size (Bytes)   Duration   Throughput (Gbps)\n1.0 MB   95 us   176\n",
        "source,destination,bandwidth_GBps\ngpu0,gpu1,25\n",
    ],
)
def test_columns_that_name_no_collective_are_of_another_kind(text: str) -> None:
    found = sniff_or_none(text)
    assert found is None or found.name != "collectives"


def findings(text: str, machine: Topology | None = None) -> list[Finding]:
    return find_in_settings(settings_of(import_any(dedent(text), file="p.txt"), "p.txt"), machine)


NCCL = """\
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 268435456 step: 16(factor) warmup iters: 1
# Using devices
#  Rank  0 Group  0 Pid  3917 on     ws-77 device  0 [0000:01:00] NVIDIA GeForce RTX 4090
#  Rank  1 Group  0 Pid  3917 on     {host} device  1 [0000:41:00] NVIDIA GeForce RTX 4090
#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)
     1048576        262144     float     sum      -1   233.10    4.50    4.50       0   231.90
    16777216       4194304     float     sum      -1  1400.00   11.98   11.98       0  1399.10
   268435456      67108864     float     sum      -1 {last}       0 80550.00
# Collective test concluded: all_reduce_perf
"""
LEVEL = "22410.0   11.98   11.98"
FALLS = "53360.0    5.03    5.03"


def test_bus_bandwidth_is_that_of_the_slowest_hop() -> None:
    (found,) = findings(NCCL.format(host="ws-77", last=LEVEL))
    assert found.severity is Severity.NOTE
    assert "12 GB/s is what PCIe" in found.text
    assert "generation 3 x16" in found.text


def test_several_hosts_are_compared_with_their_network_cards() -> None:
    (found,) = findings(NCCL.format(host="ws-78", last=LEVEL))
    assert "Over 2 hosts that is 95.8 Gb/s" in found.text
    assert "PCIe" not in found.text


def test_a_fabric_that_a_ring_does_not_use() -> None:
    joined = parse_any("        GPU0  GPU1\nGPU0     X    NV4\nGPU1    NV4    X\n", file="topo.txt")
    (found,) = findings(NCCL.format(host="ws-77", last=LEVEL), joined)
    assert found.severity is Severity.WARNING
    assert "a fabric, which is not used" in found.text


def test_rates_that_fall_with_size_are_told() -> None:
    falling, best = findings(NCCL.format(host="ws-77", last=FALLS))
    assert falling.kind is FindingKind.SIZES
    assert falling.text.startswith(
        "all_reduce bus bandwidth reaches 12 GB/s at 16 MiB and falls to 5.03 GB/s at 256 MiB"
    )
    assert best.kind is FindingKind.COLLECTIVES


def test_a_sweep_of_a_pair_that_falls_is_told_and_one_that_levels_off_is_not() -> None:
    head = "source,destination,size_bytes,bandwidth_GBps\n"
    rates = {2**16: 9.0, 2**20: 22.0, 2**24: 24.0}
    rows = "".join(f"gpu0,gpu1,{size},{rate}\n" for size, rate in rates.items())
    assert findings(f"{head}{rows}gpu0,gpu1,{2**28},23.5\n") == []
    (found,) = findings(f"{head}{rows}gpu0,gpu1,{2**28},12.1\n")
    assert "gpu0->gpu1 reaches 24 GB/s at 16 MiB and falls to 12.1 GB/s at 256 MiB" in found.text


def test_collectives_of_which_only_times_are_given() -> None:
    (found,) = findings("""\
        # OSU MPI-CUDA Allreduce Latency Test v7.2
        # Size       Avg Latency(us)
        1                      21.33
        1024                   25.10
        1048576               310.20
        """)
    assert "takes 21.3 us at 1 B and 310 us at 1 MiB, 3.38 GB/s of one rank's bytes" in found.text

"""AMD's tools, SuperBench and comm_scope: what their figures mean, on small outputs."""

from __future__ import annotations

import json

import pytest

from topocal.measure.importers.comm_scope import parse_comm_scope
from topocal.measure.importers.rocm_bandwidth import parse_rocm_bandwidth
from topocal.measure.importers.superbench_copy import parse_superbench_copy
from topocal.measure.importers.transferbench import parse_transferbench
from topocal.measure.samples import Measurements
from topocal.topo.errors import FormatError, InputError


def rates(measured: Measurements) -> dict[str, list[float]]:
    """GB/s of each pattern, in canonical order."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(round(s.throughput_Bps / 1e9, 6))
    return found


TB = r"""TransferBench v1.50
<SNIP>……
Bytes Per Direction 4000000
Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
   SRC+EXE\DST    CPU 00       GPU 00    GPU 01
   CPU 00  ->     24.37        17.32     16.97

   GPU 00  ->     23.83       108.95     64.00
   GPU 00 min     23.00       100.00     60.00
   GPU 01  ->     24.05        66.00       N/A
                              CPU->CPU  CPU->GPU  GPU->CPU  GPU->GPU
   Averages (During UniDir):     24.37     17.14     23.94     65.00

Bidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
   SRC\DST    CPU 00       GPU 00    GPU 01
   CPU 00  ->       N/A        16.00     17.00
   CPU 00 <-        N/A        24.00     25.00
   CPU 00 <->       N/A        40.00     42.00


   GPU 00  ->     24.50          N/A     62.00
   GPU 00 <-      16.50          N/A     60.00
   GPU 00 <->     41.00          N/A    122.00
"""


def test_transferbench_one_way() -> None:
    found = parse_transferbench(TB, file="t.txt")
    one_way = found.select("one way, GFX")
    assert rates(one_way) == {
        "cpu0->gpu0": [17.32],
        "cpu0->gpu1": [16.97],
        "gpu0->cpu0": [23.83],
        "gpu0->gpu1": [64.0],
        "gpu1->cpu0": [24.05],
        "gpu1->gpu0": [66.0],
    }
    sample = one_way.samples[0]
    assert sample.size_known
    assert sample.pattern.total_bytes == 4e6
    assert found.groups[0].conditions["engine"] == "kernel"


def test_transferbench_both_ways_takes_as_long_as_the_slower_direction() -> None:
    both = parse_transferbench(TB, file="t.txt").select("both ways, GFX")
    by_name: dict[str, list[tuple[float, ...]]] = {}
    for s in both.samples:
        assert s.flow_finish_s is not None
        by_name.setdefault(s.name, []).append(tuple(4e-3 / t for t in s.flow_finish_s))
    # From cpu0 to gpu0 at 16, back at 24; and again, seen from gpu0: forth 24.5, back 16.5.
    assert by_name["cpu0<->gpu0"] == [pytest.approx((16.5, 24.5)), pytest.approx((16.0, 24.0))]
    assert by_name["gpu0<->gpu1"] == [pytest.approx((62.0, 60.0))]
    assert rates(both)["gpu0<->gpu1"] == [120.0]  # not 122: equal bytes, the last counts


def test_transferbench_as_csv_and_by_dma() -> None:
    text = (
        "Bytes Per Direction,1000\n"
        "Unidirectional copy peak bandwidth GB/s [Remote read / Local write] (GPU-Executor: DMA)\n"
        "SRC\\EXE+DST,    GPU 00,    GPU 01,\n"
        "  GPU 00  ->,    100.0,     50.00,\n"
        "  GPU 01  ->,     51.0,    100.00,\n"
    )
    found = parse_transferbench(text, file="t.csv")
    assert rates(found.best()) == {"gpu0->gpu1": [50.0], "gpu1->gpu0": [51.0]}
    assert found.groups[0].conditions["engine"] == "copy engine"
    assert found.groups[0].conditions["operation"] == "read"


def test_transferbench_a_row_without_its_return_is_left_out() -> None:
    text = TB.replace("   GPU 00 <-      16.50          N/A     60.00\n", "")
    found = parse_transferbench(text, file="t.txt")
    assert any("row gpu0 has no row <- of its own" in n for n in found.notes)
    assert "gpu0<->gpu1" not in rates(found.select("both ways, GFX"))


RBT = """................
          RocmBandwidthTest Version: 2.6.0
          Device: 0,  AMD EPYC 7542 32-Core Processor
          Device: 1,  Radeon RX 7900 XTX,  GPU-XX,  83:0.0
          Device: 2,  Radeon RX 7900 XTX,  GPU-XX,  03:0.0

          Inter-Device Access

          D/D       0         1         2

          0         1         1         1

          1         1         1         0

          2         1         0         1

          Unidirectional copy peak bandwidth GB/s

          D/D       0           1           2

          0         N/A         28.411      28.410

          1         29.013      649.528     N/A

          2         29.016      N/A         636.462

          Bdirectional copy peak bandwidth GB/s

          D/D       0           1           2

          0         N/A         48.226      48.102

          1         48.226      N/A         N/A

          2         48.103      N/A         N/A
"""


def test_rocm_bandwidth_tables() -> None:
    found = parse_rocm_bandwidth(RBT, file="r.txt")
    assert rates(found.select("one way, peak")) == {
        "cpu0->gpu0": [28.411],
        "cpu0->gpu1": [28.41],
        "gpu0->cpu0": [29.013],
        "gpu1->cpu0": [29.016],
    }
    # The same figure in both cells is one measurement; two figures are two.
    assert rates(found.select("both ways, peak")) == {
        "cpu0<->gpu0": [48.226],
        "cpu0<->gpu1": [48.103, 48.102],
    }
    assert found.devices["gpu0"]["bus_id"] == "0000:83:00.0"
    assert found.devices["gpu1"]["bus_id"] == "0000:03:00.0"
    assert found.no_peer == (("gpu0", "gpu1"), ("gpu1", "gpu0"))
    assert [r.value for r in found.groups[0].readings] == [649.528e9, 636.462e9]


def test_rocm_bandwidth_without_a_list_of_devices() -> None:
    text = RBT[RBT.index("          Bdirectional") :]
    found = parse_rocm_bandwidth(text, file="r.txt")
    assert "cpu0<->gpu0" in rates(found.best())
    assert "0 are taken to be processors" in found.notes[0]


SWEEP = """
================    {}directional Benchmark Result    ================
================ Src Device Id: 0 Src Device Type: Cpu ================
================ Dst Device Id: {} Dst Device Type: Gpu ================

Data Size      Avg Time(us)   Avg BW(GB/s)   Min Time(us)   Peak BW(GB/s)
1 KB           5.000          0.204          4.000          0.256
2 MB           78.400         26.749         78.000         26.887
"""


def test_rocm_bandwidth_sweep_over_sizes() -> None:
    found = parse_rocm_bandwidth(SWEEP.format("Uni", 1), file="r.txt")
    small, large = found.best().samples
    assert small.seconds == pytest.approx(5e-6)
    assert small.pattern.total_bytes == 1024
    assert large.pattern.total_bytes == 2 * 2**20
    assert small.name == "cpu0->gpu0"
    assert found.select(statistic="peak").samples[0].seconds == pytest.approx(4e-6)
    both = parse_rocm_bandwidth(SWEEP.format("Bi", 1), file="r.txt").best()
    assert both.samples[1].throughput_Bps == pytest.approx(26.749e9)


def test_rocm_bandwidth_keeps_a_number_that_it_cannot_place() -> None:
    found = parse_rocm_bandwidth(SWEEP.format("Uni", 4), file="r.txt")
    assert {s.name for s in found.best().samples} == {"cpu0->device4"}
    assert "before device 4 is not said" in found.notes[0]


SUPERBENCH = """cpu_to_gpu0_by_dma_under_numa0 26.2
cpu_to_gpu0_by_dma_under_numa1 20.2
gpu0_to_cpu_by_sm_under_numa0 5.6
gpu0_to_gpu0_by_sm 682.6
gpu0_to_gpu1_write_by_sm 258.0
gpu1_to_gpu0_write_by_sm 259.0
gpu0_to_gpu1_read_by_dma 275.0
gpu0_to_gpu1_write_by_dma 279.0
gpu0_and_gpu1_write_by_dma 531.0
gpu1_and_gpu0_write_by_dma 530.0
cpu_and_gpu0_by_dma_under_numa0 49.4
gpu0_to_gpu_all_write_by_sm 55.6
gpu_all_to_gpu_all_write_by_sm 60.0
gpu2_to_cpu_by_dma_under_numa0 26.0
"""


def test_superbench_lines() -> None:
    found = parse_superbench_copy(SUPERBENCH, file="s.txt")
    assert rates(found.best()) == {
        "cpu0->gpu0": [26.2],
        "cpu1->gpu0": [20.2],
        "gpu2->cpu0": [26.0],
        "gpu0->gpu1": [279.0],
        "gpu0<->gpu1": [531.0, 530.0],
        "cpu0<->gpu0": [49.4],
    }
    assert rates(found.select(operation="read")) == {"gpu0->gpu1": [275.0]}
    fans = found.select("all at once, write, kernel")
    # One GPU's bytes to all others in all; and per GPU where all send to all.
    assert rates(fans)["gpu0->gpu1,gpu2"] == [55.6]
    assert max(s.throughput_Bps for s in fans.samples) == pytest.approx(180e9)
    assert found.groups[-1].readings[0].what == "gpu0_to_gpu0_by_sm"


def test_superbench_a_fan_slower_than_its_flows_is_told() -> None:
    found = parse_superbench_copy(
        "gpu0_to_gpu1_write_by_sm 258\ngpu1_to_gpu0_write_by_sm 258\n"
        "gpu0_to_gpu_all_write_by_sm 55.6\n",
        file="s.txt",
    )
    (note,) = found.notes
    assert "less than each of its flows alone" in note


def test_superbench_names_with_a_prefix_and_a_rank() -> None:
    found = parse_superbench_copy(
        '"gpu-copy-bw/gpu0_to_gpu1_write_by_dma_bw:0": 279.5,\n', file="s"
    )
    assert rates(found.best()) == {"gpu0->gpu1": [279.5]}


def test_superbench_a_number_with_zeros_is_the_same_gpu() -> None:
    found = parse_superbench_copy(
        "gpu00_to_gpu1_write_by_sm 258\ngpu0_to_gpu_all_write_by_sm 250\n", file="s.txt"
    )
    assert set(rates(found.best())) == {"gpu0->gpu1"}


def scope(*records: dict[str, object]) -> str:
    return json.dumps({"context": {"date": "d"}, "benchmarks": list(records)})


def record(**fields: object) -> dict[str, object]:
    return {
        "name": "Comm_hipMemcpyAsync_GPUToGPU/0/1/log2(N):20/manual_time",
        "run_name": "Comm_hipMemcpyAsync_GPUToGPU/0/1/log2(N):20/manual_time",
        "run_type": "iteration",
        "repetition_index": 0,
        "real_time": 1000.0,
        "time_unit": "ns",
        "bytes": 50000.0,
        "bytes_per_second": 1.0,
    } | fields


def test_comm_scope_repetitions_are_samples_and_aggregates_are_not() -> None:
    text = scope(
        record(src_id=0.0, dst_id=1.0),
        record(src_id=0.0, dst_id=1.0, repetition_index=1, real_time=1250.0),
        record(src_id=0.0, dst_id=1.0, run_type="aggregate", aggregate_name="median"),
        record(
            src_id=float("nan"), dst_id=float("nan"), run_type="aggregate", aggregate_name="cv",
            bytes_per_second=0.001,
        ),
        record(src_id=0.0, dst_id=0.0),
    )  # fmt: skip
    assert "NaN" in text
    found = parse_comm_scope(text, file="c.json")
    assert rates(found.best()) == {"gpu0->gpu1": [50.0, 40.0]}
    assert [s.repeat for s in found.best().samples] == [0, 1]
    assert found.groups[0].conditions["engine"] == "copy engine"
    assert found.groups[1].readings[0].reason == "the bytes stay inside one device"


def test_comm_scope_a_write_moves_to_the_owner_and_a_read_from_it() -> None:
    name = "Comm_implicit_mapped_GPU{}GPU/0/1/log2(N):28/manual_time"
    text = scope(
        record(run_name=name.format("Wr"), own_gpu=2.0, wr_gpu=0.0),
        record(run_name=name.format("Rd"), own_gpu=2.0, rd_gpu=0.0),
        record(run_name="Comm_hipMemcpy_NUMAToGPU/0/1", src_numa=1.0, dst_gpu=3.0),
    )
    found = parse_comm_scope(text, file="c.json")
    assert list(rates(found.best())) == ["cpu1->gpu3", "gpu0->gpu2", "gpu2->gpu0"]
    assert {g.conditions["engine"] for g in found.groups} == {"kernel", "copy engine"}


def test_comm_scope_medians_where_there_is_nothing_else() -> None:
    text = scope(
        record(src_id=0.0, dst_id=1.0, run_type="aggregate", aggregate_name="median"),
        record(src_id=0.0, dst_id=1.0, run_type="aggregate", aggregate_name="stddev"),
    )
    assert rates(parse_comm_scope(text, file="c.json").best()) == {"gpu0->gpu1": [50.0]}


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_transferbench, "nothing"),
        (parse_rocm_bandwidth, "RocmBandwidthTest Version: 2.6.0"),
        (
            parse_rocm_bandwidth,
            "Unidirectional copy peak bandwidth GB/s\n\n   gpu0 gpu1\ngpu0 N/A 25\ngpu1 25 N/A\n",
        ),
        (parse_superbench_copy, "gpu0_to_gpu1_by_sm"),
        (parse_comm_scope, '{"benchmarks": []}'),
    ],
)
def test_nothing_to_read_is_one_line(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(FormatError) as caught:
        parse(text, file="f.txt")
    assert str(caught.value).startswith("f.txt: has no figures of ")


def test_an_unknown_label_names_the_known_ones() -> None:
    found = parse_transferbench(TB, file="t.txt")
    with pytest.raises(InputError, match="it has one way, GFX"):
        found.select("one way, DMA")

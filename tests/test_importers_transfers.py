"""TransferBench beside its p2p preset, old rocm-bandwidth-test, tables under own titles."""

from __future__ import annotations

import pytest

from topocal.measure.importers.imported import Imported
from topocal.measure.importers.registry import import_any, sniff_or_none
from topocal.measure.importers.table_titles import title_above
from topocal.measure.importers.text_matrix import header_names

TESTS = """\
Test 1:
 Executor: GPU 00 |   40.000 GB/s |    0.025 ms |      1000000 bytes | 40.000 GB/s (sum)
     Transfer 00  |   40.000 GB/s |    0.025 ms |      1000000 bytes | G0 -> G000:004 -> G1
 Aggregate (CPU)  |   39.000 GB/s |    0.026 ms |      1000000 bytes | Overhead: 0.001 ms
Test 2:
     Transfer 00  |   10.000 GB/s |    0.100 ms |      1000000 bytes | G0 -> GPU00:004 -> G1
     Transfer 01  |   40.000 GB/s |    0.050 ms |      2000000 bytes | C1 -> G002:008 -> G2
 Aggregate (CPU)  |   29.000 GB/s |    0.100 ms |      3000000 bytes | Overhead: 0.001 ms
Test 3:
     Transfer 00  |   50.000 GB/s |    0.020 ms |      1000000 bytes | G1 -> D001.*:001 -> G0
Test 4:
     Transfer 00  |  900.000 GB/s |    0.020 ms |      1000000 bytes | N -> G000:032 -> G0
Test 5:
     Transfer 00  |   50.000 GB/s |    0.020 ms |      1000000 bytes | G0 -> G000:008 -> G1
 Aggregate (CPU)  |   29.000 GB/s |    0.100 ms |      2000000 bytes | Overhead: 0.001 ms
"""

SUMMARY = """\
- Copying 1000 bytes between all pairs of GPUs using 8 CUs (2 Transfers)
Test 1:
     Transfer 00  |   47.000 GB/s |    1.426 ms |         1000 bytes | F0 -> G000:008 -> F1
     Transfer 01  |   46.000 GB/s |    1.426 ms |         1000 bytes | F1 -> G001:008 -> F0
 Aggregate (CPU)  | 1937.924 GB/s |    1.939 ms |         2000 bytes | Overhead: 0.447 ms

Summary: [1000 bytes per Transfer] [GFX:8] [1 Read(s) 1 Write(s)]
=======================================
SRC\\DST  GPU 00     GPU 01        STotal      Actual
GPU 00      N/A     47.000        47.000      47.000
GPU 01   46.000        N/A        46.000      46.000

RTotal   46.000     47.000        93.000      46.000
"""

SCALING = """\
- Copying 1000 bytes from GPU 0 to other devices
- All numbers reported as GB/sec

NumCUs   CPU00        GPU00        GPU01
   1     14.11        20.30        33.26
   2     14.01       338.94        33.10
"""

CSV = """\
Test#,Transfer#,NumBytes,Src,Exe,Dst,CUs,BW(GB/s),Time(ms),SrcAddr,DstAddr
1,0,1000,G0,G0,G1,4,20.00,1.405,0x7f0,0x7f1
2,0,1000,G0,G0,G1,8,46.0,1.46,0x7f0,0x7f1
2,1,1000,G1,G1,G0,8,23.0,1.49,0x7f0,0x7f1
"""

COLLAPSED = """\
Bytes Per Direction 1000
Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
SRC+EXE\\\\DST CPU 00 GPU 00 GPU 01
CPU 00 -> 42.75 41.97 42.33
GPU 00 -> 55.23 1689.85 48.46
GPU 01 -> 55.23 48.51 1672.91
CPU->CPU CPU->GPU GPU->CPU GPU->GPU
"""

OLD_ROCM = """\
          RocmBandwidthTest Version: 1.0.0
          Device: 0,  Intel(R) Celeron(R) CPU G3930 @ 2.90GHz
          Device: 1,  Device 699f
          Device: 2,  AMD Radeon RX 9070 XT
          Device Access
          D/D       0         1         2
          0         1         0         0
          1         1         1         0
          2         1         0         1
          Unidirectional peak bandwidth GB/s
          D/D       0           1           2
          0         N/A         0.25        3.0
          1         0.5         34.9        N/A
          2         3.5         N/A         400.0
          Bdirectional peak bandwidth GB/s
          D/D       0           1           2
          0         N/A         0.4         6.0
          1         0.4         N/A         N/A
          2         6.0         N/A         N/A
"""


def rates(found: Imported, label: str) -> dict[str, float]:
    return {s.name: round(s.throughput_Bps / 1e9, 6) for s in found.select(label).samples}


def test_lines_of_transfers_are_tests() -> None:
    found = import_any(TESTS, file="t")
    assert found.kind == "transferbench"
    assert rates(found, "copies of tests, kernel, write") == {"gpu0->gpu1": 40.0}
    # Together: the last byte arrives after 1 MB / 10 GB/s = 100 us, 3 MB in all.
    (both,) = found.select("tests of several copies, kernel").samples
    assert both.seconds == pytest.approx(1e-4)
    assert [(f.source, f.destination, f.size_bytes) for f in both.pattern.flows] == [
        ("gpu0", "gpu1", 1e6),
        ("cpu1", "gpu2", 2e6),
    ]
    assert both.flow_finish_s == pytest.approx((1e-4, 5e-5))


def test_tests_that_are_cut_or_no_copies_are_left_out() -> None:
    found = import_any(TESTS, file="t")
    assert any("test 5 moves 2000000 bytes and its lines 1000000" in n for n in found.notes)
    (readings,) = [g.readings for g in found.groups if g.readings]
    assert [r.what for r in readings] == ["one transfer in test 4"]
    engines = {g.conditions.get("engine"): g.default for g in found.groups if not g.readings}
    assert engines == {"kernel": True, "copy engine": False}


def test_a_summary_is_one_pattern_and_counts_once() -> None:
    found = import_any(SUMMARY, file="t")
    (group,) = found.groups
    assert dict(group.conditions) == {
        "direction": "several at once",
        "statistic": "mean",
        "engine": "kernel",
    }
    (sample,) = group.measurements.samples
    assert sorted(sample.pattern.pairs) == [("gpu0", "gpu1"), ("gpu1", "gpu0")]
    assert sample.seconds == pytest.approx(1000 / 46e9)


def test_a_summary_without_all_its_rows_is_no_pattern() -> None:
    lines = [line for line in SUMMARY.splitlines() if not line.startswith("GPU 01")]
    found = import_any("\n".join(lines), file="t")
    assert [g.label for g in found.groups] == ["tests of several copies, kernel, write"]
    assert any("lacks rows" in note for note in found.notes)


def test_scaling_takes_the_best_of_each_column() -> None:
    found = import_any(SCALING, file="t")
    label = "from gpu0, best number of compute units"
    assert rates(found, label) == {"gpu0->cpu0": 14.11, "gpu0->gpu1": 33.26}


def test_csv_of_transfers() -> None:
    found = import_any(CSV, file="t")
    assert rates(found, "copies of tests, kernel, write") == {"gpu0->gpu1": 20.0}
    assert rates(found, "tests of several copies, kernel, write") == {"gpu0<->gpu1": 46.0}


def test_a_table_whose_blanks_collapsed() -> None:
    found = import_any(COLLAPSED, file="t")
    assert rates(found, "one way, GFX")["gpu1->gpu0"] == 48.51


def test_old_titles_and_devices_without_an_id() -> None:
    found = import_any(OLD_ROCM, file="r")
    assert rates(found, "one way, peak") == {
        "cpu0->gpu0": 0.25,
        "cpu0->gpu1": 3.0,
        "gpu0->cpu0": 0.5,
        "gpu1->cpu0": 3.5,
    }
    assert rates(found, "both ways, peak") == {"cpu0<->gpu0": 0.4, "cpu0<->gpu1": 6.0}
    # A processor without access to a GPU's memory copies all the same.
    assert found.no_peer == (("gpu0", "gpu1"), ("gpu1", "gpu0"))


def test_devices_from_one_on_are_gpus_behind_one_processor() -> None:
    text = """\
          RocmBandwidthTest Version: 2.6.0
          Device: 1,  AMD Radeon RX 9070 XT
          Device: 2,  AMD Radeon RX 9070 XT
          Unidirectional copy peak bandwidth GB/s
          D/D       1           2
          1         540.849     14.045
          2         14.046      540.064
"""
    found = import_any(text, file="r")
    assert rates(found, "one way, peak") == {"gpu0->gpu1": 14.045, "gpu1->gpu0": 14.046}


# Tables under titles of their own

MARKDOWN = """\
### Bandwidth between cards, bidirectional (MB/s)

| | GPU0 | GPU1 | Total |
|---|---|---|---|
| **GPU0** | - | 50000 | 50000 |
| **GPU1** | 40000 | - | 40000 |

### Latency (us)

| | GPU0 | GPU1 |
|---|---|---|
| **GPU0** | - | 2.5 |
| **GPU1** | 3 | - |
"""

UNITS = """\
=== Peer-to-Peer Bandwidth (GB/s) ===
              0         1
  0 |         X 21.57 MB/s
  1 | 21.86 MB/s         X
"""

SHOWTOPO = """\
=========================== Weight between two GPUs ============================
       GPU0         GPU1
GPU0   0            52
GPU1   52           0
"""


def test_a_title_says_unit_and_direction() -> None:
    found = import_any(MARKDOWN, file="m")
    assert found.kind == "pair-table"
    rows = found.best().samples
    assert {s.name for s in rows} == {"gpu0<->gpu1"}
    assert sorted(round(s.throughput_Bps / 1e9, 3) for s in rows) == [40.0, 50.0]
    (latencies,) = [g.latencies for g in found.groups if g.latencies]
    assert [(one.source, one.destination) for one in latencies] == [
        ("gpu0", "gpu1"),
        ("gpu1", "gpu0"),
    ]
    assert [one.seconds for one in latencies] == pytest.approx([2.5e-6, 3e-6])


def test_a_unit_behind_each_figure_counts_more_than_the_title() -> None:
    found = import_any(UNITS, file="u")
    assert [round(s.throughput_Bps / 1e6, 2) for s in found.best().samples] == [21.57, 21.86]
    assert any("if they are sums of both directions" in note for note in found.notes)


@pytest.mark.parametrize("title", ["Hops between two GPUs", "P2P Connectivity Matrix"])
def test_weights_hops_and_access_are_no_rates(title: str) -> None:
    assert sniff_or_none(SHOWTOPO) is None
    assert sniff_or_none(SHOWTOPO.replace("Weight between two GPUs", title)) is None


def test_yes_and_no_are_no_rates() -> None:
    assert sniff_or_none("   GPU0 GPU1\nGPU0 1 0\nGPU1 0 1\n") is None


@pytest.mark.parametrize(
    ("line", "what", "both"),
    [
        ("Uni-directional bandwidth GB/s", "rate", False),
        ("## Both ways at once (Gb/s)", "rate", True),
        ("Bandwidth matrix", "rate", None),
        ("P2P latency (us)", "time", None),
        ("Inter-Device Numa Distance", "other", None),
        ("nothing of the kind", "rate", None),
    ],
)
def test_titles(line: str, what: str, both: bool | None) -> None:
    found = title_above([line, "", "  0 1"], 2)
    assert (found.what, found.both_ways) == (what, both)


def test_columns_that_summarise_are_no_devices() -> None:
    assert header_names("| GPU | 0 | 1 | Total | Actual |".replace("|", " ")) == ["0", "1"]
    assert header_names("SRC\\DST GPU 00 GPU 01 STotal Actual") == ["gpu0", "gpu1"]

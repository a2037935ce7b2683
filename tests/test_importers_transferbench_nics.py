"""TransferBench between network cards: pair by pair, all to all, in rings."""

from __future__ import annotations

import pytest

from topocal.measure.importers.registry import import_any
from topocal.topo.errors import FormatError

TITLE = "Unidirectional copy peak bandwidth GB/s (NIC RDMA Using Nearest Device)\n"
P2P = (
    TITLE
    + """\
│SRC+EXE\\DST │           │            │ Rank 00│        │ Rank 01│        │
│            │NIC Device │            │ mlx5_0 │ mlx5_1 │ mlx5_0 │ mlx5_1 │
│            │           │ Mem Device │ GPU 00 │ GPU 04 │ GPU 00 │ GPU 04 │
├────────────┼───────────┼────────────┼────────┼────────┼────────┼────────┤
│ Rank 00    │ mlx5_0    │ GPU 00     │  49.10 │  48.90 │  48.60 │  48.50 │
│            │ mlx5_1    │ GPU 04     │  48.80 │  49.00 │  48.40 │  24.30 │
│ Rank 01    │ mlx5_0    │ GPU 00     │  48.70 │  48.61 │  49.20 │  48.30 │
│            │ mlx5_1    │ GPU 04     │  48.20 │  24.10 │  48.10 │  49.30 │
└────────────┴───────────┴────────────┴────────┴────────┴────────┴────────┘
Summary of top 10 fastest/slowest connection
│ Fastest Bandwidth (GB/s) │ Src        │ Dst        │ Slowest Bandwidth (GB/s) │ Src        │
│                    49.30 │ R01:mlx5_1 │ R01:mlx5_1 │                    24.10 │ R01:mlx5_1 │
"""
)
LIST = (
    TITLE
    + """\
SRC Rank  SRC NIC  SRC MEM  DST Rank  DST NIC  DST MEM  bw (GB/s)
 Rank 00  mlx5_0   GPU 00   Rank 00   mlx5_0   GPU 00    49.10
 Rank 00  mlx5_0   GPU 00   Rank 01   mlx5_0   GPU 00    48.60
 Rank 01  mlx5_0   GPU 00   Rank 00   mlx5_0   GPU 00    48.70
"""
)
A2A = """\
NIC All-To-All benchmark
========================
[1000 bytes per Transfer] [Total Transfers: 4] [MemType:default] [NIC QueuePairs:1] [#Ranks:2]

--- NIC AllToAll Plane 00 Group 00 (2 NICs) ---
 Mem Device                            Rank 00   Rank 01
                                       GPU 00    GPU 00
                         SRC+EXE\\DST   mlx5_0    mlx5_0    STotal    Actual
 Rank 00      GPU 00      mlx5_0       N/A       20.00     20.00     20.00
 Rank 01      GPU 00      mlx5_0       10.00     N/A       10.00     10.00
                          RTotal       10.00     20.00     30.00     30.00

--- NIC AllToAll Plane 01 Group 00 (2 NICs) ---
 Mem Device                            Rank 00   Rank 01
                                       GPU 01    GPU 01
                         SRC+EXE\\DST   mlx5_1    mlx5_1    STotal    Actual
 Rank 00      GPU 01      mlx5_1       N/A       40.00     40.00     40.00
 Rank 01      GPU 01      mlx5_1       40.00     N/A       40.00     40.00
                          RTotal       40.00     40.00     80.00     80.00

Aggregate bandwidth (CPU Timed):  110.00 GB/s
"""
RINGS = """\
NIC Rings benchmark
==============================
2 parallel RDMA-write rings(s) using fine-grained GPU memory across 3 ranks
1 queue pairs per NIC.  1000 bytes per Transfer.  All numbers are GB/s

              | GPU 00 | GPU 04 |
              | NIC 00 | NIC 01 |  TOTAL
 Rank  Name   | mlx5_0 | mlx5_1 | (GB/s)
--------------+--------+--------+--------
   0   node-a |  48.00 |  40.00 |  88.00
   1   node-b |  48.00 |  20.00 |  68.00
   2   node-c |  48.00 |  40.00 |  88.00
--------------+--------+--------+--------
  MAX (GB/s)  |  48.00 |  40.00 |  88.00
  AVG (GB/s)  |  48.00 |  33.33 |  81.33
  MIN (GB/s)  |  48.00 |  20.00 |  68.00

Aggregate bandwidth (CPU Timed):  200.00 GB/s
"""
N00, N01, N10, N11 = "node0/nic0", "node0/nic1", "node1/nic0", "node1/nic1"


def test_pair_by_pair_as_a_matrix() -> None:
    imported = import_any(P2P, file="t.txt")
    assert imported.kind == "transferbench"
    rates = {s.pattern.pairs[0]: s.throughput_Bps for s in imported.best().samples}
    assert len(rates) == 12, "a card to itself is no transfer between two"
    assert rates[N01, N11] == pytest.approx(24.3e9)
    assert rates[N11, N00] == pytest.approx(48.2e9)
    assert any("mlx5_0, mlx5_1" in note for note in imported.notes)
    assert any("several at a time" in note for note in imported.notes)


def test_pair_by_pair_as_a_list() -> None:
    rates = {
        s.pattern.pairs[0]: s.throughput_Bps for s in import_any(LIST, file="t.txt").best().samples
    }
    assert rates == {(N00, N10): pytest.approx(48.6e9), (N10, N00): pytest.approx(48.7e9)}


def test_csv_has_commas_for_rules() -> None:
    text = P2P.replace("│", ",").replace("├", ",").replace("─", "").replace("┼", "")
    assert len(import_any(text, file="t.csv").best().samples) == 12


def test_planes_run_all_at_once() -> None:
    (sample,) = import_any(A2A, file="t.txt").best().samples
    assert sample.pattern.pairs == [(N00, N10), (N10, N00), (N01, N11), (N11, N01)]
    assert sample.flow_finish_s == pytest.approx([1000 / (r * 1e9) for r in (20, 10, 40, 40)])
    assert sample.seconds == pytest.approx(1000 / 10e9)


def test_rings_go_to_the_next_rank() -> None:
    (sample,) = import_any(RINGS, file="t.txt").best().samples
    assert len(sample.pattern.pairs) == 6
    assert (N11, "node2/nic1") in sample.pattern.pairs
    assert ("node2/nic0", N00) in sample.pattern.pairs
    assert sample.seconds == pytest.approx(1000 / 20e9)


@pytest.mark.parametrize(("text", "last"), [(P2P, "│            │ mlx5_1"), (A2A, " Rank 01  ")])
def test_a_table_that_is_cut_is_left_out_and_told(text: str, last: str) -> None:
    cut = text[: text.rindex(last)]
    imported = import_any(cut + LIST, file="t.txt")
    (group,) = imported.groups
    assert len(group.measurements.samples) == 2, "those of the list below"
    assert any("lacks rows or figures" in note for note in imported.notes)
    with pytest.raises(FormatError, match="no figures"):
        import_any(cut, file="t.txt")

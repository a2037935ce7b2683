"""TransferBench over several ranks: the tables are made for the tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.measure.importers.imported import Imported
from topocal.measure.importers.registry import import_any
from topocal.topo.errors import TopocalError

TITLE = "directional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)\n"

ONE_WAY = f"""\
PARALLEL_LVL         =            0 : Executing p2p in parallel level 0
Bytes Per Direction 1000000
Uni{TITLE}\
┌--------------┬------------┬------------------┬------------------┐
│ SRC+EXE\\DST  │            │ Rank 00          │ Rank 01          │
├--------------┼------------┤                  │                  │
│              │ Mem Device │  GPU 00   GPU 01 │  GPU 00   GPU 01 │
├--------------┼------------┼------------------┼------------------┤
│ Rank 00      │     GPU 00 │  900.10    45.00 │   44.00    43.00 │
│              │     GPU 01 │   42.00   901.20 │   41.00     N/A  │
├--------------┼------------┼------------------┼------------------┤
│ Rank 01      │     GPU 00 │   40.00    39.00 │  900.90    38.00 │
│              │     GPU 01 │   37.00    36.00 │   35.00   900.80 │
└--------------┴------------┴------------------┴------------------┘
"""

BOTH_WAYS = f"""\
Bi{TITLE}\
 SRC\\DST                  Rank 00            Rank 01
              Mem Device   GPU 00   GPU 01    GPU 00   GPU 01
  Rank 00     GPU 00  ->     N/A    40.00     30.00    30.00
              GPU 00 <-      N/A    41.00     31.00    31.00
              GPU 00 <->     N/A    81.00     61.00    61.00

              GPU 01  ->   41.00      N/A     30.00    30.00
              GPU 01 <-    40.00      N/A     31.00    31.00
"""

LIST = f"""\
Uni{TITLE}\
  SRC Rank   SRC MEM   DST Rank   DST MEM   bw (GB/s)
   Rank 00    GPU 00    Rank 00    GPU 00      900.00
   Rank 00    GPU 00    Rank 01    GPU 00       45.00
   Rank 01    GPU 00    Rank 00    GPU 00       44.00
   Rank 01    GPU 00    Rank 01    GPU 00         N/A
"""


def rates(found: Imported) -> dict[str, float]:
    """GB/s of each pattern."""
    return {
        " ".join(f"{f.source}->{f.destination}" for f in s.pattern.flows): round(
            sum(f.size_bytes for f in s.pattern.flows) / s.seconds / 1e9, 3
        )
        for g in found.groups
        for s in g.measurements.samples
    }


def test_a_matrix_over_two_ranks() -> None:
    found = rates(import_any(ONE_WAY, file="x.txt"))
    assert len(found) == 11
    assert found["node0/gpu0->node0/gpu1"] == 45.0
    assert found["node0/gpu0->node1/gpu1"] == 43.0
    assert found["node1/gpu1->node0/gpu0"] == 37.0


def test_both_ways() -> None:
    found = rates(import_any(BOTH_WAYS, file="x.txt"))
    assert found["node0/gpu0->node0/gpu1 node0/gpu1->node0/gpu0"] == 80.0
    assert found["node0/gpu0->node1/gpu0 node1/gpu0->node0/gpu0"] == 60.0


def test_a_list_and_csv() -> None:
    expected = {"node0/gpu0->node1/gpu0": 45.0, "node1/gpu0->node0/gpu0": 44.0}
    assert rates(import_any(LIST, file="x.txt")) == expected
    csv = LIST.replace("   ", ",").replace("Rank,", "Rank ")
    assert rates(import_any(csv, file="x.txt")) == expected


def test_one_rank_is_no_node() -> None:
    text = LIST.replace("Rank 01", "Rank 00").replace("GPU 00      900", "GPU 00      901")
    text = text.replace("Rank 00    GPU 00       45", "Rank 00    GPU 01       45")
    assert rates(import_any(text, file="x.txt")) == {"gpu0->gpu1": 45.0}


def test_pairs_in_parallel_are_told() -> None:
    text = ONE_WAY.replace("=            0 ", "=            1 ")
    assert any("same time" in n for n in import_any(text, file="x.txt").notes)
    assert not any("same time" in n for n in import_any(ONE_WAY, file="x.txt").notes)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("TransferBench v1.66.02\n", {"gpu1->gpu0": 10.0}),
        ("TransferBench v1.60.00\n", {"cpu1->gpu0": 10.0}),
        ("", {}),
    ],
)
def test_memory_u_changed_its_meaning(version: str, expected: dict[str, float]) -> None:
    line = "Transfer 0 | 10.000 GB/s | 0.1 ms | 1000000 bytes | U1 -> G0:8 -> G0\n"
    assert rates(import_any(f"{version}Test 1:\n{line}", file="x.txt")) == expected


def test_transfers_over_nics_of_two_ranks() -> None:
    line = "Transfer 0 | 45.000 GB/s | 0.1 ms | 1000000 bytes | R0G0 -> R0I0.1:4 -> R1G3\n"
    found = import_any(f"Test 1:\n{line}", file="x.txt")
    assert rates(found) == {"node0/gpu0->node1/gpu3": 45.0}
    assert found.groups[0].conditions["engine"] == "NIC"
    assert "operation" not in found.groups[0].conditions


@given(st.lists(st.sampled_from((ONE_WAY + BOTH_WAYS + LIST).splitlines()), max_size=30))
def test_any_order_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        assert import_any("\n".join(lines), file="x.txt", kind="transferbench").groups is not None
    except TopocalError:
        return

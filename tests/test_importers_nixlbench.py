"""NIXLBench's tables: between two workers, between many, to storage."""

from __future__ import annotations

import pytest

from topocal.measure.importers.registry import import_any

CONFIG = """\
Connecting to ETCD at http://localhost:2379
******************************************
NIXLBench Configuration
******************************************
Worker type (--worker_type=[nixl,nvshmem])                  : nixl
Backend (--backend=[UCX,UCX_MO,GDS,GDS_MT,POSIX,Mooncake,HF3FS,OBJ]): {backend}
Initiator seg type (--initiator_seg_type=[DRAM,VRAM])       : VRAM
Target seg type (--target_seg_type=[DRAM,VRAM])             : VRAM
Scheme (--scheme=[pairwise,manytoone,onetomany,tp])         : {scheme}
Op type (--op_type=[READ,WRITE])                            : {verb}
------------------------------------------

"""
TABLE = """\
Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)
------------------------------------------------------------------------------------------
4096                1              0.347182       11.8           12.5           14.0
1048576             2              10.421133      201.2          12.5           14.0
67108864            1              11.934410      5623.1         12.5           14.0
"""
OLD = """\
Loaded plugin UCX
Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)  B/W (GB/Sec)
-----------------------------------------------------------------
4096                64             3.11355        1254.6         1.22519        1.31554
67108864            64             230.1          278118         271.6          291.6
"""
MANY = """\
Block Size (B)      Batch Size     B/W (GB/Sec)  Aggregate B/W (GB/Sec)  Network Util (%)
----------------------------------------------------------------------------------------
67108864            1              11.9           47.6             0.95
"""


def config(backend: str = "UCX", scheme: str = "pairwise", verb: str = "WRITE") -> str:
    return CONFIG.format(backend=backend, scheme=scheme, verb=verb)


@pytest.mark.parametrize(
    ("verb", "pair"),
    [("WRITE", ("initiator", "target")), ("READ", ("target", "initiator"))],
)
def test_a_request_moves_a_batch_of_blocks(verb: str, pair: tuple[str, str]) -> None:
    imported = import_any(config(verb=verb) + TABLE, file="nixl.txt")
    assert imported.kind == "nixlbench"
    samples = imported.best().samples
    assert {s.pattern.pairs[0] for s in samples} == {pair}
    assert [(s.pattern.total_bytes, s.throughput_Bps) for s in samples] == [
        (4096, pytest.approx(0.347182e9)),
        (2 * 1048576, pytest.approx(10.421133e9)),
        (67108864, pytest.approx(11.934410e9)),
    ]
    (group,) = imported.groups
    assert group.conditions["operation"] == verb.lower()
    assert any("initiator and target" in note for note in imported.notes)


def test_older_versions_print_other_columns() -> None:
    samples = import_any(OLD, file="nixl.txt").best().samples
    assert [s.throughput_Bps for s in samples] == pytest.approx([1.31554e9, 291.6e9])
    assert samples[-1].pattern.total_bytes == 64 * 67108864


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (config(backend="GDS") + TABLE, "stores"),
        (config(scheme="manytoone") + TABLE, "which worker"),
        (config() + MANY, "several pairs"),
    ],
)
def test_what_is_no_transfer_from_end_to_end_is_a_reading(text: str, reason: str) -> None:
    imported = import_any(text, file="nixl.txt")
    assert not imported.usable
    readings = imported.groups[0].readings
    assert readings
    assert all(reason in r.reason for r in readings)
    assert readings[-1].value == pytest.approx(47.6e9 if reason == "several pairs" else 11.934410e9)


def test_writes_and_reads_in_one_text_are_two_runs() -> None:
    imported = import_any(
        config() + TABLE + config(verb="READ") + TABLE.replace("11.934410", "9.5"), file="nixl.txt"
    )
    by_verb = {g.conditions["operation"]: g for g in imported.groups}
    assert {s.pattern.pairs[0] for s in by_verb["read"].measurements.samples} == {
        ("target", "initiator")
    }
    assert by_verb["read"].measurements.samples[-1].throughput_Bps == pytest.approx(9.5e9)
    assert by_verb["write"].measurements.samples[-1].throughput_Bps == pytest.approx(11.934410e9)

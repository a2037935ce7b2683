"""Logs of the ROCm Validation Suite and of SuperBench, made for the tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any, sniff
from topocal.measure.importers.rvs import looks_like_rvs, parse_rvs
from topocal.topo.errors import TopocalError

PEERS = """\
[RESULT] [   94.47] [action_1] p2p 700 700 peers:false distance:-1
[RESULT] [   94.47] [action_1] p2p 700 300 peers:true distance:40 PCIe:40
[RESULT] [   94.47] [action_1] p2p 700 900 peers:false distance:-1
[RESULT] [   94.47] [action_1] p2p 300 700 peers:true distance:40 PCIe:40
[RESULT] [   94.47] [action_1] p2p 900 700 peers:false distance:-1
[INFO  ] [   95.10] [action_1] p2p-bandwidth  [1/2] 700 300  bidirectional: false  9.000 GBps (*)
[RESULT] [   96.10] [action_1] p2p-bandwidth  [1/2] 700 300  bidirectional: false  10.000 GBps  \
duration: 0.78 sec
[INFO  ] [   96.20] [action_1] p2p-bandwidth  [2/2] 300 700  bidirectional: false  8.000 GBps
[RESULT] [   98.10] [action_2] p2p-bandwidth  [1/1] 700 300  bidirectional: true  16.000 GBps
[RESULT] [   98.10] [action_2] p2p-bandwidth  300 700  bidirectional: true  -nan GBps
"""

HOST = """\
[RESULT] [1.1] [action_3] pcie-bandwidth 0 5 300  distance:20 PCIe:20
[RESULT] [1.1] [action_3] pcie-bandwidth 1 4 700  distance:20 PCIe:20
[RESULT] [1.2] [action_3] pcie-bandwidth  [1/2] 0 700  h2d: true  d2h: false  12.000 GBps
[RESULT] [1.3] [action_3] pcie-bandwidth  [2/2] 1 300  h2d: false  d2h: true  11.000 GBps
[RESULT] [1.4] [action_4] pcie-bandwidth  [1/1] 1 300  h2d: true  d2h: true  20.000 GBps
"""

GiB = 2.0**30


def rates(text: str) -> dict[str, list[tuple[str, float]]]:
    """GiB/s of each group's samples."""
    found = import_any(text, file="rvs.log")
    return {
        g.label: [
            (
                " ".join(f"{f.source}->{f.destination}" for f in s.pattern.flows),
                round(sum(f.size_bytes for f in s.pattern.flows) / s.seconds / GiB, 6),
            )
            for s in g.measurements.samples
        ]
        for g in found.groups
    }


def test_pairs_of_gpus() -> None:
    assert sniff(PEERS, file="rvs.log").name == "rvs"
    assert rates(PEERS) == {
        "between GPUs, one way": [("gpu0->gpu1", 10.0), ("gpu1->gpu0", 8.0)],
        "between GPUs, both ways": [("gpu0->gpu1 gpu1->gpu0", 16.0)],
    }
    found = parse_rvs(PEERS, file="rvs.log")
    assert set(found.no_peer) == {("gpu0", "gpu2"), ("gpu2", "gpu0")}
    assert any("1 figures are no rates" in n for n in found.notes)
    assert any("last interim figure" in n for n in found.notes)


def test_host_and_gpus_are_counted_by_their_nodes() -> None:
    assert rates(HOST) == {
        "host and GPU, one way": [("cpu0->gpu0", 12.0), ("gpu1->cpu1", 11.0)],
        "host and GPU, both ways": [("cpu1->gpu1 gpu1->cpu1", 20.0)],
    }


def test_pairs_that_ran_at_once_are_no_samples() -> None:
    found = parse_rvs("  parallel: true\n" + PEERS, file="rvs.log")
    assert not found.usable
    assert any(g.readings for g in found.groups)


@pytest.mark.parametrize("text", ["p2p-bandwidth of 10 GBps\n", "[RESULT] nothing\n", ""])
def test_other_texts_are_not_taken(text: str) -> None:
    assert not looks_like_rvs(text)


@given(st.lists(st.sampled_from((PEERS + HOST).splitlines()), max_size=20))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    try:
        assert parse_rvs("\n".join(lines), file="x.log").groups is not None
    except TopocalError:
        return


def test_superbench_summaries_have_a_node_per_line() -> None:
    line = (
        '{"node":"n0","gpu-copy-bw:perf/cpu_to_gpu0_by_dma_under_numa1_uni_bw:0":26.0,'
        ' "gpu-copy-bw:perf/gpu0_to_gpu1_write_by_dma_bw:0":279.0,"mem-bw/h2d_bw:0":1.0}\n'
    )
    found = import_any(line, file="results-summary.jsonl")
    assert found.kind == "superbench-copy"
    assert not found.notes
    assert {s.name: round(s.throughput_Bps / 1e9, 3) for s in found.best().samples} == {
        "cpu1->gpu0": 26.0,
        "gpu0->gpu1": 279.0,
    }
    both = line + line.replace("n0", "n1").replace("279.0", "140.0").replace("}", ',"x":1}')
    found = import_any(both, file="results-summary.jsonl")
    assert {s.name for s in found.best().samples} == {"cpu1->gpu0", "gpu0->gpu1"}
    assert any("run 2 is of n1" in n for n in found.notes)


def test_superbench_both_ways_in_older_names() -> None:
    found = import_any("gpu0_to_gpu1_write_by_dma_bi_bw 500.0\n", file="x.txt")
    (sample,) = found.best().samples
    assert len(sample.pattern.flows) == 2
    assert round(sample.throughput_Bps / 1e9) == 500

"""Damaged and hostile outputs: one line that says where, or what is whole; never a traceback."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.figures import alone
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.registry import IMPORTERS, import_any, sniff_or_none
from topocal.topo.errors import FormatError, TopocalError, Where
from topocal.topo.readers.reader import decode_text

WHOLE = {
    "p2p": """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, A, pciBusID: b4, pciDeviceID: 0, pciDomainID:0
Device=1 CANNOT Access Peer Device=0
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1008.06  20.00
     1  25.00 900.00
Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00  40.00
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.32  14.99
""",
    "nvbandwidth": """nvbandwidth Version: v0.2
Device 0: NVIDIA H800 (00000000:1b:00)
Running host_to_device_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
          0         1
0     50.00     52.00
Running device_to_host_bidirectional_memcpy_ce.
          0         1
0     30.00     N/A
Running device_to_device_memcpy_write_ce.
          0         1
0       N/A    176.00
1    177.00       N/A
Running all_to_one_write_ce.
          0         1
0    178.00    179.00
[...]
""",
    "nccl-tests": """# ./sendrecv_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor)
#  Rank  0 Group  0 Pid  3 on h device  0 [0000:b4:00] X
#  Rank  1 Group  0 Pid  3 on h device  1 [0000:b5:00] X
#  size  count type redop root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
  3000000  750000  float  none  -1  100.0 30.0 30.0 0  90.0 33.0 33.0 0
""",
    "transferbench": """Bytes Per Direction 4000000
Bidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
   SRC\\DST    CPU 00       GPU 00
   CPU 00  ->       N/A        16.00
   CPU 00 <-        N/A        24.00
   CPU 00 <->       N/A        40.00
""",
    "rocm-bandwidth-test": """RocmBandwidthTest Version: 2.6.0
Device: 0,  CPU
Device: 1,  GPU,  GPU-XX,  83:0.0
Unidirectional copy peak bandwidth GB/s
          D/D       0           1
          0         N/A         28.411
          1         29.013      649.528
====    Unidirectional Benchmark Result    ====
==== Src Device Id: 0 Src Device Type: Cpu ====
==== Dst Device Id: 1 Dst Device Type: Gpu ====
1 KB           5.000          0.204          4.000          0.256
""",
    "bandwidth-test": """[CUDA Bandwidth Test] - Starting...
 Device 0: T
 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     12150.7
""",
    "superbench-copy": """cpu_to_gpu0_by_dma_under_numa0 26.2
gpu0_to_gpu1_write_by_dma 279.0
gpu0_and_gpu1_write_by_sm 440.0
gpu_all_to_gpu_all_write_by_sm 60.0
""",
    "comm-scope": json.dumps(
        {
            "context": {},
            "benchmarks": [
                {
                    "run_name": "Comm_hipMemcpyAsync_GPUToGPU/0/1/log2(N):20",
                    "run_type": "iteration",
                    "repetition_index": 0,
                    "real_time": 1000.0,
                    "time_unit": "ns",
                    "bytes": 5e4,
                    "src_id": 0.0,
                    "dst_id": 1.0,
                }
            ],
        },
        indent=1,
    ),
    "taccl": '{"name": "B_1MB", "alpha": 0.3, "node_betas_list": [23, 46], "remote_alpha": 2.6,\n'
    '"remote_beta": 105, "node_invbws_list": [23, 46], "remote_invbw": 107}',
    "deepspeed-links": '{"schema": 2, "world_size": 4, "records": [\n'
    '{"pattern": "fan_in", "root": 3, "peers": [0, 1], "bytes": 1000, "root_seconds": [1e-6]},\n'
    '{"pattern": "relay", "shift": 1, "bytes": 1000, "seconds": 1e-6}]}',
    "simple-p2p": "[simpleP2P] - Starting...\n"
    "> Peer access from A (GPU0) -> A (GPU1) : Yes\n"
    "cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 19.87GB/s\n",
    "osu": "# OSU MPI-CUDA Bandwidth Test v5.6.2\n"
    "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n"
    "# Size      Bandwidth (MB/s)\n65536   5000.00\n4194304   20000.00\n",
    "imb": "#---------------\n# Benchmarking PingPong\n# #processes = 2\n#---------------\n"
    "       #bytes #repetitions      t[usec]   Mbytes/sec\n"
    "            0         1000         1.00         0.00\n"
    "      4194304           10       400.00     10485.76\n",
    "perftest": "                    RDMA_Write BW Test\n Device         : mlx5_0\n"
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    " 65536      5000             11700.00            11600.00   0.185\n",
    "mpigraph": "START mpiGraph v1.4\nSend\tn0:0\tn1:1\t\n"
    "n0:0 to\t0\t10000\t\nn1:1 to\t11000\t0\t\n"
    "Recv\tn0:0\tn1:1\t\nn0:0 from\t0\t10000\t\nn1:1 from\t11000\t0\t\nEND mpiGraph\n",
    "rvs": "[RESULT] [ 96.1] [one] p2p-bandwidth  [1/2] 7 3  bidirectional: false  10.0 GBps\n"
    "[RESULT] [ 96.2] [one] p2p-bandwidth  [1/2] 7 3  bidirectional: true  16.0 GBps\n",
    "ucx": "|    Stage     |       overhead (usec)        |   bandwidth (MB/s)  |"
    "  message rate (msg/s) |\n| Message size: 100000000 |\n"
    "Final:  10   9221.077  2059.078  2059.078    48565.43   48565.43    486    486\n",
    "ping-pong": "Transfer size (B): 8, Transfer Time (s): 0.000001, Bandwidth (GB/s): 0.007\n"
    "Transfer size (B): 1073741824, Transfer Time (s): 0.05, Bandwidth (GB/s): 20.0\n",
    "nixlbench": "Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)\n"
    "65536               1              3.92           16.7\n"
    "67108864            1              11.9           5623.1\n",
    "collectives": "data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    "8192              |     57.11        |       0.14344        | success\n",
    "pair-lines": "GPU 0 -> GPU 1: 24.5 GB/s\nGPU 1 -> GPU 0: 12.5 GB/s\n",
    "shift-rates": "+1: 50 GB/s avg (200 total)\n+2: 25.5 GB/s avg\n",
    "rate-table": "name,flows,kind,size,total_GBs,note\n"
    "a,0>4;1>5,p2p_write,1MiB,54,\nb,0->1,h2d,,3-4,\n",
    "pair-table": "   D\\D     0      1 \n     0    \u2014   55.0 \n     1  54.0   \u2014\n",
}

JSON_NVBANDWIDTH = json.dumps(
    {
        "nvbandwidth": {
            "testcases": [
                {
                    "name": "device_to_device_memcpy_write_ce",
                    "status": "Passed",
                    "bandwidth_matrix": [["N/A", "395.2"], [396, None]],
                },
                {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.5", "N/A"]]},
            ]
        }
    }
)
JSON_NCCL = json.dumps(
    {
        "args": ["sendrecv_perf"],
        "config": {"nthreads": 1, "ngpus": 2},
        "results": [{"size": 1000, "root": "-1", "out_of_place": {"time": 10.0, "nwrong": 0}}],
    }
)


def test_every_importer_is_tried_here_and_knows_its_own() -> None:
    assert set(WHOLE) == {i.name for i in IMPORTERS}
    for name, text in WHOLE.items():
        found = sniff_or_none(text)
        assert found is not None
        assert found.name == name
        assert found.parse(text, file="f").groups


def check(imported: Imported) -> None:
    """Nothing that is not finite or not possible ever comes out."""
    for group in imported.groups:
        for s in (*group.measurements.samples, *group.measurements.set_aside):
            assert math.isfinite(s.seconds)
            assert s.seconds > 0
            assert 0 < s.throughput_Bps < 1e17
            assert s.where is not None
            pairs = s.pattern.pairs
            assert len(set(pairs)) == len(pairs)
            assert all(a != b and a and b for a, b in pairs)
            if s.flow_finish_s is not None:
                assert len(s.flow_finish_s) == len(pairs)
                assert max(s.flow_finish_s) == pytest.approx(s.seconds)
        assert all(math.isfinite(a.seconds) and a.seconds > 0 for a in group.latencies)
        assert all(math.isfinite(r.value) for r in group.readings)
        assert all(c.capacity_Bps > 0 and math.isfinite(c.alpha_s) for c in group.costs)
    assert len(set(imported.labels)) == len(imported.labels)
    assert all("\n" not in n for n in imported.notes)


def outcome(text: str, kind: str | None) -> None:
    """Either figures, or one line from this project with the file in it."""
    caught: TopocalError | None = None
    try:
        check(import_any(decode_text(text.encode(), file="bad"), file="bad", kind=kind))
    except TopocalError as error:
        caught = error
    if caught is not None:
        line = str(caught)
        assert "\n" not in line
        assert line.startswith("bad")
        assert caught.remedy


TEXTS = [*WHOLE.items(), ("nvbandwidth", JSON_NVBANDWIDTH), ("nccl-tests", JSON_NCCL)]
PIECES = [
    "", "\n", "\t", "|", ",", "N/A", "nan", "-1", "1e999", "9" * 400, "0", "\u2014", "[...]",
    "GPU 0", "<->", '"', "}", "[", "null", "NaN", "Infinity", "-0.0", "D\\D 0 1", "\x1b[31m",
    "é", "\U0001f600", "GB/s", "0->0", "1_0", "\u0660", " " * 300,
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A whole text with a few edits: pieces put in, cut out, lines doubled or swapped."""
    kind, text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["put", "replace", "cut", "double", "digit"])):
            case "put":
                text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
            case "replace":
                text = text[:at] + draw(st.sampled_from(PIECES)) + text[end:]
            case "cut":
                text = text[:at] if draw(st.booleans()) else text[:at] + text[end:]
            case "double":
                text = text[:end] + text[at:]
            case _:
                text = text[:at] + str(draw(st.integers(-(10**20), 10**20))) + text[end:]
    return kind, text


@settings(deadline=None, max_examples=150)
@given(damaged(), st.booleans())
def test_damaged_outputs(given_text: tuple[str, str], by_name: bool) -> None:
    kind, text = given_text
    outcome(text + "x", kind if by_name else None)


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=400), st.sampled_from([i.name for i in IMPORTERS]))
def test_any_text_for_any_importer(text: str, kind: str) -> None:
    outcome("." + text.replace("\0", ""), kind)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["N/A", "55.5", "peer", "fan_in", "B_1KB"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["name", "status", "bandwidth_matrix", "testcases", "nvbandwidth", "results", "size",
             "out_of_place", "time", "config", "devices", "rank", "device", "benchmarks", "bytes",
             "real_time", "time_unit", "src_id", "dst_id", "run_name", "alpha", "remote_beta",
             "schema", "pattern", "seconds", "root", "peers", "world_size", "shift"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(["nvbandwidth", "nccl-tests", "comm-scope", "taccl", "deepspeed-links"]),
    st.sampled_from(["testcases", "results", "benchmarks", "node_betas_list", "records"]),
    JSON_VALUES,
    JSON_VALUES,
)
def test_any_json_for_the_importers_of_json(
    kind: str, key: str, value: object, other: object
) -> None:
    document = {"schema": 2, "name": "B_1MB", "alpha": 1, key: value, "config": other}
    outcome(json.dumps(document), kind)


DIGITS = "9" * 100_000

HOSTILE = {
    "a row of a million figures": "D\\D " + "1 " * 99_000,
    "a table of 3000 columns": " D\\D " + " ".join(map(str, range(3000))) + "\n 0 " + "1 " * 3000,
    "many headers without rows": "   D\\D     0      1\n" * 30_000,
    "many titles without tables": "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" * 30_000,
    "many blank lines after headers": ("   D\\D     0      1\n" + "\n" * 500) * 300,
    "many runs": WHOLE["p2p"] * 500,
    "a long number": f"src,dst,rate_GBps\n0,1,{DIGITS}\n",
    "a long number in JSON": f'{{"node_betas_list": [{DIGITS}], "name": "B_1KB"}}',
    "deep JSON": '{"testcases": ' + "[" * 90_000,
    "many JSON objects": ('{"bandwidth_matrix": 1}\n') * 20_000,
    "many braces": "\n{" * 100_000 + '"bandwidth_matrix"',
    "a wide JSON table": json.dumps(
        {"testcases": [{"name": "all_to_one_write_ce", "bandwidth_matrix": [["1"] * 2000]}]}
    ).replace("}, {", "},\n{"),
    "a fan of many": json.dumps(
        {"testcases": [{"name": "all_to_one_write_ce", "bandwidth_matrix": [["1"] * 1000]}]}
    ),
    "many flows": "flows,rate_GBps\n" + ("0>1;" * 20_000 + "2>3,5\n"),
    "many test cases": "Running a_test_ce.\nRunning b_test_ce.\n" * 20_000,
    "many blanks": "gpu0_to_gpu1_write_by_sm" + " " * 150_000 + "x",
    "many arrows": "flows,rate_GBps\n" + "-" * 150_000 + ",5\n",
    "many ranks": "# nThread 9999 nGpus 9999 \n# size count type redop root time algbw busbw\n"
    "$ alltoall_perf\n 8 2 float none -1 1.0 1.0 1.0\n",
    "many shifts": "+1: 50 GB/s avg (10000 total)\n" * 5_000,
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_end(text: str) -> None:
    outcome(text, None)
    for kind in ("p2p", "nvbandwidth", "pair-table", "rate-table", "superbench-copy"):
        outcome(text, kind)


def test_more_figures_than_a_machine_has_are_refused() -> None:
    draft = Draft(kind="k", title="a tool", file="f")
    one = alone("a", "b", 1e9, where=Where(file="f", line=1))
    with pytest.raises(FormatError, match="holds more than 400000 figures"):
        draft.add("group", [one] * 400_001)


def test_notes_are_capped_and_counted() -> None:
    draft = Draft(kind="k", title="a tool", file="f")
    for k in range(100):
        draft.note(f"note {k}")
        draft.note(f"note {k}")
    draft.add("group", [alone("a", "b", 1e9, where=Where(file="f", line=1))])
    assert len(draft.done().notes) == 41
    assert draft.done().notes[-1] == "and 60 more notes of the same kinds"

"""Outputs below one another, cut anywhere and dressed anyhow: a result or one line of error."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_all
from topocal.topo.errors import TopocalError
from topocal.topo.readers.registry import parse_any

PARTS = (
    "$ export CUDA_VISIBLE_DEVICES=2,3\n",
    "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n",
    " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n",
    "GPU0GPU1CPU Affinity\nGPU0XNV40-7\nGPU1NV4X0-7\n",
    "GPU 0: A (UUID: a)\n\t Link 0: 25 GB/s\nGPU 1: A (UUID: b)\n\t Link 0: <inactive>\n",
    "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice=0 CANNOT Access Peer Device=1\n",
    "P2P Connectivity Matrix\n     D\\D     0     1\n     0\t     1     0\n     1\t     0     1\n",
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n"
    "     0 900.00  20.00 \n     1  21.00 900.00 \n",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D   GPU 0   GPU 1\n"
    "     0 900.00  9.00 \n     1  9.50 900.00 \n",
    "P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU     0      1 \n"
    "     0   1.30   2.00 \n     1   2.10   1.30 \n",
    "nvbandwidth Version: v0.8\nDevice 0: A (00000000:34:00)\n",
    "Process 0 (a): device 0: A (00000008:01:00)\nProcess 1 (b): device 0: A (00000008:01:00)\n",
    "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
    "           0         1\n 0       N/A     26.34\n 1     26.30       N/A\n",
    "SUM device_to_device_memcpy_read_ce 52.64\nWaiving host_to_device_memcpy_sm.\n[...]\n",
    "# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 2 minBytes 8\n"
    "#  Rank  0 Group  0 Pid 11 on one device  0 [0x17] A\n"
    "#  Rank  1 Group  0 Pid 11 on one device  1 [0x65] A\n",
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "  1000000000     250000000     float    none      -1   100000   10.00   10.00      0\n",
    "[CUDA Bandwidth Test] - Starting...\n Device 0: A\n Host to Device Bandwidth, 1 Device(s)\n"
    " PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t12.2\n",
    " Device to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
    "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t500.1\n",
    "cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 19.87GB/s\nVerification error @ element 1",
    "h:1:2 [0] NCCL INFO === System : maxBw 24.0 totalBw 24.0 ===\n"
    "h:1:2 [0] NCCL INFO CPU/1 (1/2/-1)\nh:1:2 [0] NCCL INFO + PCI[24.0] - GPU/81000 (0)\n",
    "Test passed\n\n```\n",
)
DRESSES = ("{}", "> {}", "# {}", "0: {}", "[1,0]<stdout>:{}", "\t{}")


@st.composite
def pastes(draw: st.DrawFn) -> str:
    """Some outputs below one another, with a cut and a dress."""
    text = "".join(draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7)))
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, len(text)))
    dress = draw(st.sampled_from(DRESSES))
    lines = text[begin:end].split("\n") if draw(st.booleans()) else text.split("\n")
    if draw(st.booleans()):
        lines = [" ".join(line.split()) for line in lines]
    return "\n".join(dress.format(line) for line in lines)


@settings(deadline=None, max_examples=150)
@given(pastes())
def test_a_paste_is_read_or_refused(text: str) -> None:
    try:
        found = import_all(text, file="x")
    except TopocalError as error:
        assert "\n" not in str(error)
    else:
        assert all(one.best().samples for one in found if one.usable)
        assert all("\n" not in note for one in found for note in one.notes)
    try:
        topology = parse_any(text, file="x")
    except TopocalError as error:
        assert "\n" not in str(error)
    else:
        assert topology.graph.number_of_nodes()


def test_all_of_them_together() -> None:
    found = import_all("".join(PARTS), file="x")
    assert [one.kind for one in found] == ["p2p", "nvbandwidth", "nccl-tests", "bandwidth-test"]
    (wrong,) = [note for note in found[0].notes if "simpleP2P" in note]
    assert "arrived wrong" in wrong
    assert parse_any("".join(PARTS), file="x").accelerators

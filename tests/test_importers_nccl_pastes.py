"""nccl-tests as people post them: names, marks and processes lost, runs that failed, NCCL's log."""

from __future__ import annotations

import pytest

from topocal.measure.importers.nccl_tests import parse_nccl_tests
from topocal.measure.importers.registry import import_any
from topocal.measure.samples import Measurements
from topocal.topo.errors import FormatError, InputError


def rates(measured: Measurements) -> dict[str, list[float]]:
    """GB/s of each pattern."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(round(s.throughput_Bps / 1e9, 6))
    return found


HEAD = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)


def ranks(*hosts: str, process: int = 11) -> str:
    return "".join(
        f"#  Rank  {k} Group  0 Pid {process + k} on {host} device  {k} [0x17] A\n"
        for k, host in enumerate(hosts)
    )


def row(root: int, algbw: float, busbw: float, in_place: str = "0") -> str:
    """100 ms for 1 GB, out of place and in place."""
    figures = f"100000 {algbw} {busbw}"
    return f"  1000000000  250000000  float  sum {root:>7} {figures} 0 {figures} {in_place}\n"


def test_marks_that_a_post_lost_do_not_matter() -> None:
    text = (
        "mpirun ./build/sendrecv_perf\n"
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n"
        + ranks("one", "one") + HEAD.replace("#wrong", "error") + row(-1, 10.0, 10.0)
    )  # fmt: skip
    kept, lost = (import_any(t, file="x") for t in (text, text.replace("#", " ")))
    assert rates(kept.best()) == rates(lost.best()) == {"gpu0<->gpu1": [20.0]}


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("sendrecv result", "sendrecv"),
        ("Here is the **Send/Recv** output", ""),
        ("send-recv:", "sendrecv"),
        ("all_reduce result ", "all_reduce"),
        ("AllGather and AllReduce", ""),
        ("all to all", "alltoall"),
    ],
)
def test_a_heading_names_the_test(heading: str, name: str) -> None:
    text = f"{heading}\n{HEAD}{row(-1, 10.0, 9.0)}"
    tests = {g.conditions["test"] for g in parse_nccl_tests(text, file="x").groups}
    assert tests == {name or "a test that is not named"}


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (row(-1, 10.0, 10.0, "N/A"), "sendrecv"),
        (row(-1, 10.0, 5.0, "N/A"), "alltoall"),
        (row(-1, 0.01, 0.02, "N/A") + row(-1, 10.0, 10.0, "N/A"), "sendrecv"),
        # All-reduce checks both columns; at two ranks its share is 1, too.
        (row(-1, 10.0, 10.0), ""),
        (row(0, 10.0, 10.0, "N/A"), ""),
        (row(-1, 10.0, 10.0, "N/A") + row(-1, 10.0, 5.0, "N/A"), ""),
        (row(-1, 0.02, 0.02, "N/A"), ""),
        # Nothing was checked.
        (row(-1, 10.0, 10.0, "N/A").replace(" 0 100000", " N/A 100000"), ""),
    ],
)
def test_rows_name_the_test_that_alone_prints_them(rows: str, name: str) -> None:
    text = "# nThread 1 nGpus 2 minBytes 8\n" + ranks("one", "one") + HEAD + rows
    imported = parse_nccl_tests(text, file="x")
    if name:
        # Both send 1 GB, or half of it, in 100 ms.
        total = 20.0 if name == "sendrecv" else 10.0
        assert set(rates(imported.best())["gpu0<->gpu1"]) == {total}
        assert any(f"only {name}" in n for n in imported.notes)
    else:
        with pytest.raises(InputError, match="does not say which test"):
            imported.best()


def test_of_several_runs_of_a_test_one_is_used() -> None:
    head = "# nThread 1 nGpus 2 minBytes 8\n" + ranks("one", "one") + HEAD
    slow = row(-1, 5.0, 5.0).replace(" 100000 ", " 200000 ")
    text = (
        "# Collective test starting: sendrecv_perf\n" + head + row(-1, 10.0, 10.0)
        + "# Collective test starting: sendrecv_perf\n" + head + slow
        + "# Collective test starting: alltoall_perf\n" + head + row(-1, 10.0, 5.0)
    )  # fmt: skip
    found = parse_nccl_tests(text, file="x")
    assert rates(found.best()) == {"gpu0<->gpu1": [10.0, 10.0]}
    assert rates(found.select("run 1: sendrecv, out of place")) == {"gpu0<->gpu1": [20.0]}
    assert any("sendrecv was run 2 times" in n and "run 2 is used" in n for n in found.notes)


def test_a_run_that_failed_says_what_with() -> None:
    text = (
        "#nThread 1 nGpus 1 minBytes 8\n#Rank  0 Group  0 Pid  1 on node device  0 [0x16] A\n"
        "#size count      type   redop    root     time   algbw   busbw #wrong\n"
        "node: Test CUDA failure common.cu:297 'an illegal memory access was encountered'\n"
    )
    with pytest.raises(FormatError, match=r"x:4: .*failed .an illegal memory access"):
        import_any(text, file="x")


def test_processes_that_did_not_join_are_told() -> None:
    head = "# nThread 1 nGpus 2 minBytes 8\n"
    text = (
        "mpirun -np 2 ./build/sendrecv_perf -g 2\n" + head + head
        + ranks("one", "one", process=11) + ranks("two", "two", process=31)
        + HEAD + HEAD + row(-1, 10.0, 10.0) * 2
    )  # fmt: skip
    found = parse_nccl_tests(text, file="x")
    assert any(n.startswith("2 processes each count their ranks from 0") for n in found.notes)
    with pytest.raises(InputError, match="nothing went from one to the other"):
        found.best()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["Channel 00/1 : 0[0] -> 1[1] via P2P/direct pointer/read"], []),
        (
            [
                "Channel 00 : 0[3000] -> 1[65000] via SHM/direct/direct",
                "Channel 01 : 0[3000] -> 1[65000] via SHM",
            ],
            ["host memory (SHM), not from GPU to GPU, between ranks 0->1:"],
        ),
        (
            [
                "Ring 00 : 0[0] -> 2[0] [send] via NET/Socket/0",
                "Ring 00 : 2[0] -> 0[0] [receive] via NET/Socket/0",
            ],
            ["TCP (NET/Socket), not by RDMA, between ranks 0->2, 2->0"],
        ),
        (["Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA"], []),
        (
            ["Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0"],
            ["over the network between ranks 0->1, which are on one host"],
        ),
    ],
)
def test_the_way_that_nccl_sent_is_told(lines: list[str], told: list[str]) -> None:
    text = (
        "sendrecv_perf\n# nThread 1 nGpus 1 minBytes 8\n" + ranks("one", "one", "two") + HEAD
        + "".join(f"one:11:12 [0] NCCL INFO {line}\n" for line in lines)
        + row(-1, 10.0, 10.0)
    )  # fmt: skip
    notes = [n for n in parse_nccl_tests(text, file="x").notes if n.startswith("NCCL sent")]
    assert len(notes) == len(told)
    for note, part in zip(notes, told, strict=True):
        assert part in note


def test_visible_devices_number_the_ranks() -> None:
    text = (
        "CUDA_VISIBLE_DEVICES=4,6 ./build/sendrecv_perf -g 2\n# nThread 1 nGpus 2 minBytes 8\n"
        + ranks("one", "one") + HEAD + row(-1, 10.0, 10.0)
    )  # fmt: skip
    found = parse_nccl_tests(text, file="x")
    assert rates(found.best()) == {"gpu4<->gpu6": [20.0]}
    assert set(found.devices) == {"gpu4", "gpu6"}

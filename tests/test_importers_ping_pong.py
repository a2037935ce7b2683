"""MPI ping-pong lines, and sweeps of messages too small to tell a rate."""

from __future__ import annotations

import pytest

from topocal.measure.importers.registry import import_any, sniff

LINES = """\
Transfer size (B):          8, Transfer Time (s):     0.000001000, Bandwidth (GB/s):     0.0074
Transfer size (B):    1000000, Transfer Time (s):     0.000100000, Bandwidth (GB/s):     9.3132
Transfer size (B): 1000000000, Transfer Time (s):     0.050000000, Bandwidth (GB/s):    18.6264
"""


def rates(text: str) -> list[tuple[str, float, float]]:
    """Pattern, size and GB/s of each sample that a fit uses."""
    return [
        (s.name, s.pattern.total_bytes, round(s.throughput_Bps / 1e9, 3))
        for s in import_any(text, file="x.txt").best().samples
    ]


def test_the_time_counts() -> None:
    assert sniff(LINES, file="x.txt").name == "ping-pong"
    assert rates(LINES) == [
        ("rank0->rank1", 8.0, 0.008),
        ("rank0->rank1", 1e6, 10.0),
        ("rank0->rank1", 1e9, 20.0),
    ]


def test_averages_count_where_iterations_stand_above_them() -> None:
    text = "".join(
        f"\tTransfer size (B): 1000000, Transfer Time (s): {t}, "
        f"Bandwidth (GB/s): 1, Iteration {k}\n"
        for k, t in enumerate((0.0002, 0.0001))
    )
    assert len(rates(text)) == 2
    average = "[Average] Transfer size (B): 1000000, 0, 0, Transfer Time (s): 0.00015, Error: 0\n"
    assert rates(text + average) == [("rank0->rank1", 1e6, 6.667)]


def test_another_sweep_is_another_run() -> None:
    found = import_any(LINES + LINES.replace("0.050", "0.100"), file="x.txt")
    assert [g.default for g in found.groups] == [False, True]
    ranks = "".join(f"[{k % 2}] {line}\n" for line in LINES.splitlines() for k in range(2))
    assert len(import_any(ranks, file="x.txt").groups) == 2


@pytest.mark.parametrize(
    "text",
    [
        LINES.splitlines()[0] + "\n",
        "p2p_uni_gpu0_gpu1\t  +064By\t  GB/sec\t0.0025\t0.0024\t0.0004\n",
        "# OSU MPI Bandwidth Test\n# Size      Bandwidth (MB/s)\n32   50.0\n64   100.0\n",
    ],
)
def test_small_messages_tell_no_rate(text: str) -> None:
    found = import_any(text, file="x.txt")
    assert not found.usable
    assert "small" in found.why_not()


def test_a_pair_of_small_messages_does_not_spoil_the_others() -> None:
    text = (
        "p2p_uni_gpu0_gpu1\t  524288kB\t  GB/sec\t3.9\t3.9\t0.1\n"
        "p2p_uni_gpu1_gpu0\t  1kB\t  GB/sec\t0.04\t0.04\t0.01\n"
    )
    assert [name for name, _, _ in rates(text)] == ["gpu0->gpu1"]

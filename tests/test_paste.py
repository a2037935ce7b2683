"""What surrounds a tool's lines in a post comes off, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any
from topocal.topo.readers.paste import plain_lines, undress
from topocal.topo.readers.registry import parse_any

MATRIX = """\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tPXB\t0-15\t0
GPU1\tPIX\t X \tSYS\tPXB\t0-15\t0
GPU2\tSYS\tSYS\t X \tSYS\t16-31\t1
NIC0\tPXB\tPXB\tSYS\t X """

P2P = """Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 900.00  20.00
     1  25.00 900.00"""

NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)
#  Rank  0 Group  0 Pid 11 on one device  0 [0x17] A
#  Rank  1 Group  0 Pid 12 on one device  1 [0x65] A
#       size         count      type   redop    root     time   algbw   busbw #wrong
  1000000000     250000000     float    none      -1   100000   10.00   10.00      0
# Collective test concluded: sendrecv_perf"""


def numbered(text: str, form: str) -> str:
    return "\n".join(form.format(k) + line for k, line in enumerate(text.split("\n"), start=1))


def before(text: str, prefix: str) -> str:
    return "\n".join(prefix + line for line in text.split("\n"))


DRESSED = {
    "as it is": lambda t: t,
    "commented out": lambda t: before(t, "# "),
    "quoted": lambda t: before(t, "> "),
    "quoted twice": lambda t: before(t, ">> "),
    "numbered by an editor": lambda t: numbered(t, "{:>4}\t"),
    "numbered between the lines": lambda t: "\n".join(
        f"{k}\n{line}" for k, line in enumerate(t.split("\n"), start=1)
    ),
    "numbered with colons": lambda t: numbered(t, "{}: "),
    "numbered with bars": lambda t: numbered(t, "{:>3} | "),
    "mpirun --tag-output": lambda t: before(t, "[1,0]<stdout>:"),
    "ray and mpirun": lambda t: before(t, "(head, rank=0, pid=3808) [1,0]<stdout>:"),
    "ray": lambda t: before(t, "(worker pid=77) "),
    "srun -l": lambda t: before(t, "0: "),
    "pdsh": lambda t: before(t, "node-17.cluster: "),
    "container log": lambda t: before(t, "2025-08-11T02:47:36.123456789Z "),
    "container log of a launcher": lambda t: before(t, "2025-08-11 02:47:36,123 [1,0]<stdout>:"),
    "carriage returns": lambda t: t.replace("\n", "\r\n").replace("\r\n", "\n"),
    "colours": lambda t: before(t, "\x1b[4m") + "\x1b[0m",
    "entities": lambda t: t.replace("  ", "&nbsp; "),
    "indented": lambda t: before(t, "      "),
    "in a fence": lambda t: f"```txt\n{t}\n```\n",
}


@pytest.mark.parametrize("dress", DRESSED)
def test_a_matrix_reads_the_same_in_every_dress(dress: str) -> None:
    plain = parse_any(MATRIX, file="x")
    found = parse_any(DRESSED[dress](MATRIX), file="x")
    assert sorted(found.graph) == sorted(plain.graph)
    assert found.graph.graph["stated_classes"] == plain.graph.graph["stated_classes"]
    assert found.graph.nodes["gpu2"]["numa"] == 1


@pytest.mark.parametrize("text", [P2P, NCCL], ids=["p2p", "nccl-tests"])
@pytest.mark.parametrize("dress", DRESSED)
def test_figures_read_the_same_in_every_dress(text: str, dress: str) -> None:
    plain, found = (import_any(t, file="x").best() for t in (text, DRESSED[dress](text)))
    assert [(s.name, s.seconds) for s in found.samples] == [
        (s.name, s.seconds) for s in plain.samples
    ]
    assert len(plain.samples) == (2 if text is P2P else 1)


def test_a_table_of_figures_is_not_numbered_lines() -> None:
    rows = ["D\\D 0 1 2", "0 9.0 1.0 1.5", "1 1.0 9.0 1.5", "2 1.5 1.5 9.0"]
    assert plain_lines("\n".join(rows)) == rows


def test_names_with_values_keep_their_names() -> None:
    lines = [f"gpu{k}_bw: {k}.5" for k in range(12)]
    assert undress("\n".join(lines)).split("\n") == lines


def test_numbers_that_skip_a_line_are_no_line_numbers() -> None:
    text = "1: a\n2: b\n4: c\n5: d"
    assert undress(text) == text


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="0123456789:>|()=[],. \tGPUX<stdou-\n&;", max_size=300))
def test_every_line_stays_a_line(text: str) -> None:
    assert len(plain_lines(text)) == len(undress(text).split("\n")) == len(text.split("\n"))

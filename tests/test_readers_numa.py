"""lscpu in other languages and as a table; numactl."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo.errors import FormatError
from topocal.topo.readers.numa_text import looks_like_lscpu, parse_lscpu, spans
from topocal.topo.readers.registry import sniff

ENGLISH = """\
CPU(s):                   8
NUMA:
  NUMA node(s):           2
  NUMA node0 CPU(s):      0-1,4-5
  NUMA node1 CPU(s):      2-3,6-7
"""

CHINESE = """\
CPU：                    8
NUMA 节点：              2
NUMA 节点0 CPU：         0-1,4-5
NUMA 节点1 CPU：         2-3,6-7
"""

GERMAN = """\
CPU(s):                  8
NUMA-Knoten:             2
NUMA-Knoten0 CPU(s):     0-1,4-5
NUMA-Knoten1 CPU(s):     2-3,6-7
"""

FRENCH = """\
Nœud(s) NUMA :                    2
Nœud NUMA 0 de processeur(s) :    0-1,4-5
Nœud NUMA 1 de processeur(s) :    2-3,6-7
"""

SPANISH = """\
Modo(s) NUMA:              2
CPU(s) del nodo NUMA 0:    0-1,4-5
CPU(s) del nodo NUMA 1:    2-3,6-7
"""

COLUMNS = """\
$ lscpu -e
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ
  0    0      0    0 0:0:0:0          yes 3500.0000
  1    0      0    1 1:1:1:0          yes 3500.0000
  2    1      1    2 2:2:2:1          yes 3500.0000
  3    1      1    3 3:3:3:1          yes 3500.0000
  4    0      0    0 0:0:0:0          yes 3500.0000
  5    0      0    1 1:1:1:0          yes 3500.0000
  6    1      1    2 2:2:2:1          yes 3500.0000
  7    1      1    3 3:3:3:1          yes 3500.0000
$
"""

COMMAS = """\
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,2,1,1,,2,2,2,1
3,3,1,1,,3,3,3,1
4,0,0,0,,0,0,0,0
5,1,0,0,,1,1,1,0
6,2,1,1,,2,2,2,1
7,3,1,1,,3,3,3,1
"""


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, GERMAN, FRENCH, SPANISH, COLUMNS, COMMAS])
def test_every_form_says_which_processors_are_where(text: str) -> None:
    assert sniff(text, file="x.txt").name == "lscpu"
    nodes = parse_lscpu(text, file="x.txt").graph.nodes
    assert nodes["socket0"]["cpu_list"] == "0-1,4-5"
    assert nodes["socket1"]["cpu_list"] == "2-3,6-7"
    assert "socket2" not in nodes


@pytest.mark.parametrize(
    "text",
    [
        "NUMA node: 0\n",
        "CPU,GPU,rate\n0,1,20\n",
        "CPU NODE\n0 1\n",
        "GPU0 NUMA 0 memory: 12\n",
        "CPU cores are listed by NUMA node in chapter 3\n",
    ],
)
def test_other_texts_are_not_taken_for_lscpu(text: str) -> None:
    assert not looks_like_lscpu(text)


def test_a_node_without_processors_is_left_out() -> None:
    text = GERMAN + "NUMA-Knoten2 CPU(s):     \n"
    assert "socket2" not in parse_lscpu(text, file="x.txt").graph.nodes


def test_spans() -> None:
    assert spans([]) == ""
    assert spans([3, 1, 2, 9, 7, 8, 8]) == "1-3,7-9"


@given(st.lists(st.sampled_from((COLUMNS + COMMAS + GERMAN).splitlines()), max_size=30))
def test_any_order_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        assert parse_lscpu("\n".join(lines), file="x.txt").graph.nodes
    except FormatError:
        return

"""``lscpu`` and ``numactl -H``: NUMA nodes, their processors and memory.

Sockets are counted by processors, not by nodes: a node without any is a GPU's
memory, HBM or CXL.  lscpu speaks the user's language; its lines are known by ``NUMA`` and
``CPU``, which stay, and by what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where
from topocal.topo.readers.paste import MAX_LINES
from topocal.topo.readers.reader import Reader
from topocal.topo.readers.sockets import MemoryNode, add_sockets
from topocal.topo.topology import Topology
from topocal.topo.units import parse_bytes

__all__ = [
    "LSCPU",
    "NUMACTL",
    "looks_like_lscpu",
    "looks_like_numactl",
    "parse_lscpu",
    "parse_numactl",
    "spans",
]

MAX_NODES: Final = 1_024
"""NUMA nodes; Linux is built for so many at most (CONFIG_NODES_SHIFT 10)."""

_LSCPU: Final = re.compile(r"NUMA node\(s\):\"?,?\s|NUMA node[0-9]{1,4} CPU\(s\):")
_LSCPU_NODE: Final = re.compile(r"NUMA node([0-9]{1,4}) CPU\(s\):?")
_PROCESSORS: Final = r"(?:CPU|[Pp]rocesseur|[Пп]роцессор)"
_TRANSLATED: Final = re.compile(
    rf"^[ \t]{{0,8}}(?=[^:：\n]{{0,60}}{_PROCESSORS})(?=[^:：\n]{{0,60}}NUMA)"
    r"[^0-9:：\n]{4,40}([0-9]{1,4})[^0-9:：\n]{0,40}[:：][ \t]{0,80}"
    r"([0-9]{1,6}(?:[-,][0-9]{1,6}){0,2000}|-?)[ \t\r]{0,80}$",
    re.M,
)
_TABLE: Final = re.compile(
    r"^[ \t]{0,8}(?:# )?CPU(?:[ \t]{1,8}[A-Z0-9a-z:]{1,24}|,[A-Za-z0-9]{0,12}){1,20}[ \t\r]{0,8}$",
    re.M,
)
_CPU_LIST: Final = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*|-?")
_NUMACTL: Final = re.compile(
    r"^[ \t]{0,8}(?:available: [0-9]{1,4} nodes|node [0-9]{1,4} cpus:)", re.M
)
_NODE: Final = re.compile(r"\s{0,8}node ([0-9]{1,4}) (cpus|size|free):(.*)")
_DISTANCES: Final = re.compile(r"\s{0,8}([0-9]{1,4}):((?:\s{1,20}[0-9]{1,4}){1,1024})\s*")
_SIZE: Final = re.compile(r"\s{0,8}([0-9]{1,12}) MB\s*")


def looks_like_lscpu(text: str) -> bool:
    """Whether a text is of ``lscpu``, in words or as JSON."""
    return (
        _LSCPU.search(text) is not None
        or _TRANSLATED.search(text) is not None
        or bool(_by_table(text))
    )


def looks_like_numactl(text: str) -> bool:
    """Whether a text is of ``numactl -H``."""
    return _NUMACTL.search(text) is not None


def parse_lscpu(text: str, *, file: str) -> Topology:
    """The sockets that ``lscpu`` lists.

    Raises
    ------
    FormatError
        When it lists no NUMA node.
    """
    nodes = _by_table(text)
    if not nodes:
        nodes = {int(m[1]): m[2].strip("-") for m in _TRANSLATED.finditer(text)}
    total = None
    for number, (key, value) in enumerate(_entries(text), 1):
        if found := _LSCPU_NODE.fullmatch(key):
            if _CPU_LIST.fullmatch(value) is None:
                raise FormatError(
                    f"NUMA node {found[1]} has no list of processors",
                    where=Where(file=file, line=number),
                    remedy="give the output of lscpu as it was printed",
                )
            nodes[int(found[1])] = value.strip("-")
        elif key.rstrip(":") == "NUMA node(s)" and value.isascii() and value.isdecimal():
            total = int(value[:5])
    _check(nodes, file=file, what="lscpu")
    builder = _builder(file, "lscpu")
    if total is not None and total > len(nodes):
        builder.note(
            f"says that there are {total} NUMA nodes and lists {len(nodes)}: it is cut off"
        )
    add_sockets(builder, [MemoryNode(number=n, cpu_list=nodes[n]) for n in sorted(nodes)])
    return builder.build()


def _by_table(text: str) -> dict[int, str]:
    """Processors of each memory node, as ``lscpu -e`` and ``-p`` list them a line each."""
    header = _TABLE.search(text)
    if header is None:
        return {}
    comma = "," in header[0]
    names = [w.lower() for w in _cells(header[0].replace("#", ""), comma=comma)]
    if "node" not in names or "core" not in names:
        return {}
    place = names.index("node")
    processors: dict[int, list[int]] = {}
    for line in text[header.end() :].split("\n", MAX_LINES)[1:MAX_LINES]:
        cells = _cells(line, comma=comma)
        if len(cells) <= place or not all(_is_number(cells[k]) for k in (0, place)):
            break
        processors.setdefault(int(cells[place]), []).append(int(cells[0]))
    return {node: spans(found) for node, found in processors.items()}


def _cells(line: str, *, comma: bool) -> list[str]:
    return [c.strip() for c in line.split(",")] if comma else line.split()


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 7


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values, whether in words or in JSON."""
    if not text.lstrip().startswith("{"):
        for line in text.split("\n", MAX_LINES)[:MAX_LINES]:
            key, colon, value = line.partition(":")
            if colon:
                yield key.strip() + ":", value.strip()
        return
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    stack: list[object] = [document.get("lscpu")] if isinstance(document, dict) else []
    while stack:
        entry = stack.pop()
        if isinstance(entry, list):
            stack += entry[:MAX_LINES]
        elif isinstance(entry, dict):
            yield str(entry.get("field")), str(entry.get("data") or "")
            stack.append(entry.get("children"))


def parse_numactl(text: str, *, file: str) -> Topology:
    """The sockets and memory that ``numactl -H`` lists.

    Raises
    ------
    FormatError
        When it lists no NUMA node.
    """
    cpus: dict[int, str] = {}
    sizes: dict[int, int] = {}
    order: list[int] = []
    distances: dict[tuple[int, int], float] = {}
    for number, line in enumerate(text.split("\n", MAX_LINES)[:MAX_LINES], 1):
        if found := _NODE.fullmatch(line):
            node, rest = int(found[1]), found[3]
            if found[2] == "cpus":
                cpus[node] = _ranges(rest, Where(file=file, line=number))
            elif found[2] == "size" and (size := _SIZE.fullmatch(rest)):
                # numactl divides by 2**20 and writes MB.
                sizes[node] = int(parse_bytes(f"{size[1]}MiB"))
        elif line.strip().startswith("node "):
            words = line.split()[1:]
            if all(w.isascii() and w.isdecimal() and len(w) < 5 for w in words):
                order = [int(w) for w in words[:MAX_NODES]]
        elif order and (found := _DISTANCES.fullmatch(line)):
            for other, distance in zip(order, found[2].split(), strict=False):
                distances[int(found[1]), other] = float(distance)
    _check(cpus, file=file, what="numactl -H")
    builder = _builder(file, "numactl -H")
    cut = sorted(set(cpus) - set(sizes))
    if cut:
        builder.note(f"the size of memory node {', '.join(map(str, cut[:8]))} is not stated")
    nodes = [
        MemoryNode(number=n, cpu_list=cpus[n], memory_bytes=sizes.get(n)) for n in sorted(cpus)
    ]
    add_sockets(builder, nodes, distances=distances)
    return builder.build()


def _ranges(text: str, where: Where) -> str:
    """``0 1 2 8`` as ``0-2,8``."""
    words = text.split()
    if not all(map(_is_number, words)):
        raise FormatError(
            "processors are not a list of numbers",
            where=where,
            remedy="give the output of numactl -H as it was printed",
        )
    return spans(int(w) for w in words)


def spans(numbers: Iterable[int]) -> str:
    """``0-2,8`` of 0 1 2 8.

    >>> spans([8, 2, 1, 0])
    '0-2,8'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _check(nodes: Iterable[int], *, file: str, what: str) -> None:
    count = len(list(nodes))
    if not 0 < count <= MAX_NODES:
        raise FormatError(
            f"lists {count or 'no'} NUMA nodes",
            where=Where(file=file),
            remedy=f"give the output of {what} as it was printed",
        )


def _builder(file: str, what: str) -> TopologyBuilder:
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: {what}")
    return builder


LSCPU: Final = Reader(name="lscpu", title="lscpu", looks_like=looks_like_lscpu, parse=parse_lscpu)
"""The reader that the registry lists."""

NUMACTL: Final = Reader(
    name="numactl",
    title="numactl -H",
    looks_like=looks_like_numactl,
    parse=parse_numactl,
)
"""The reader that the registry lists."""

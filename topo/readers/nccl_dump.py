"""Topology dumps inside an NCCL log: from lines to records.

Each process prints its own dump and the lines of several processes interleave,
so lines are first sorted by the process that their prefix names.  In a dump, a
node's children stand in the column where its name began.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from topocal.topo.readers.pci import bus_id_of_number

__all__ = ["Dump", "DumpNode", "PathTo", "find_dumps", "visible_devices"]

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX: Final = re.compile(
    r"(?:^|[\s>:])(?P<host>[^\s:>]{1,255}):(?P<pid>[0-9]{1,10}):(?P<tid>[0-9]{1,10}) "
    r"\[[^\]\s]{1,8}\] NCCL INFO ?"
)
_BARE_PREFIX: Final = re.compile(r"NCCL INFO ?")
_NODE: Final = (
    r"(?P<type>[A-Z][A-Z0-9]{2,4})/(?:(?P<system>[0-9A-Fa-f]{1,4})-)?(?P<number>[0-9A-Fa-f]{1,16})"
)
_ROOT: Final = re.compile(rf" *(?P<name>(?=CPU){_NODE})(?: \((?P<detail>[^)]*)\))?\s*")
_CHILD: Final = re.compile(
    r"(?P<indent>\s*)\+ (?P<link>[A-Z0-9]{2,8})\[\s*(?P<bw>[0-9]{1,9}(?:\.[0-9]{1,9})?)\] - "
    rf"(?P<name>{_NODE})(?: \((?P<detail>[^)]*)\))?\s*"
)
_PATHS: Final = re.compile(rf"\s*{_NODE} ?:(?P<rest>.*\([0-9]+/[0-9.]+/[A-Z0-9]{{3,4}}\).*)")
_PATH: Final = re.compile(rf"{_NODE} \([0-9]+/[0-9.]+/(?P<class>[A-Z0-9]{{3,4}})\)")
_DEVICE: Final = re.compile(
    r"\bcudaDev (?P<cuda>[0-9]{1,4})\b(?: nvmlDev (?P<nvml>[0-9]{1,4})\b)? "
    r"busId (?P<bus>[0-9A-Fa-f]{1,16})\b"
)
_NO_PCI_GBPS: Final = 5000.0
"""Bandwidth that NCCL writes where there is no PCI device (LOC_BW, src/graph/topo.h)."""


@dataclass(slots=True, eq=False, kw_only=True)
class DumpNode:
    """One node of a dump.

    Attributes
    ----------
    type
        ``CPU``, ``PCI``, ``GPU``, ``NIC``, ``NET``, ``NVS`` or a newer word.  Since version
        2.30 a GPU's links are those of a ``DEV`` above it: that one is called ``GPU`` here.
    system
        Which host of several that NVLink joins.
    number
        What stands behind the slash.
    detail
        What stands in parentheses.
    link
        Kind of the link from the node above; empty for a CPU.
    bw
        NCCL's figure for that link, in its own GB/s.
    column
        Where the name begins.
    children
        What is below it.
    """

    type: str
    system: int
    number: int
    detail: str
    link: str = ""
    bw: float = 0.0
    column: int = 0
    children: list[DumpNode] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, int]:
        """What names it everywhere in a dump."""
        return self.type, self.system, self.number

    @property
    def has_pci(self) -> bool:
        """Whether a PCI device stands behind it."""
        return self.bw < _NO_PCI_GBPS


@dataclass(frozen=True, slots=True)
class PathTo:
    """One cell of the path table: from a node to another, and NCCL's path class."""

    source: tuple[str, int, int]
    target: tuple[str, int, int]
    path_class: str


@dataclass(slots=True, eq=False, kw_only=True)
class Dump:
    """What one process printed for one communicator.

    Attributes
    ----------
    host
        Name of the host in the prefix.
    line
        Line of its heading, from 1.
    roots
        The CPUs.
    paths
        The path table.
    closed
        Whether the tree's last line was there.
    """

    host: str
    line: int
    roots: list[DumpNode] = field(default_factory=list)
    paths: list[PathTo] = field(default_factory=list)
    closed: bool = False
    _moved: bool = False
    _open: list[DumpNode] = field(default_factory=list)
    _last: dict[str, DumpNode] = field(default_factory=dict)

    def add_root(self, node: DumpNode) -> None:
        """Take a CPU's line."""
        self.roots.append(node)
        self._open = [node]

    def add_child(self, node: DumpNode, column: int) -> None:
        """Take a line below a CPU whose ``+`` stands in ``column``."""
        while len(self._open) > 1 and self._open[-1].column > column:
            self._open.pop()
        if not self._open:
            return
        parent = self._open[-1]
        owner = {"NET": "NIC", "NVL": "GPU", "XGMI": "GPU", "LOC": "GPU"}.get(node.link)
        if owner is not None and parent.type == "CPU" and owner in self._last:
            self._moved = True
            parent = self._last[owner]
        parent.children.append(node)
        self._last[node.type] = node
        if node.link == "PCI":
            self._open.append(node)

    @property
    def flattened(self) -> bool:
        """Whether the indentation was lost on the way, so that no switch holds anything."""
        switches = [node for node in self.nodes() if node.type == "PCI"]
        return self._moved or (bool(switches) and not any(node.children for node in switches))

    def nodes(self) -> list[DumpNode]:
        """All nodes in the order of their lines."""
        found: list[DumpNode] = []
        waiting = list(reversed(self.roots))
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(node.children))
        return found


def find_dumps(text: str) -> list[Dump]:
    """All dumps of a log, in the order of their headings."""
    dumps: list[Dump] = []
    current: dict[tuple[str, str], Dump] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        for host, process, body in _messages(line):
            _take(body, host, (host, process), number, current, dumps)
    return dumps


def _take(
    body: str,
    host: str,
    process: tuple[str, str],
    line: int,
    current: dict[tuple[str, str], Dump],
    dumps: list[Dump],
) -> None:
    if body.lstrip().startswith("=== System"):
        current[process] = Dump(host=host, line=line)
        dumps.append(current[process])
        return
    dump = current.get(process)
    if dump is None:
        # A paste may begin below the heading, or have lost the heading's prefix.
        if _CHILD.fullmatch(body) is None and _ROOT.fullmatch(body) is None:
            return
        dump = current[process] = Dump(host=host, line=line)
        dumps.append(dump)
    if not dump.closed and body.strip().startswith("====="):
        dump.closed = True
        return
    if not dump.closed:
        root = _ROOT.fullmatch(body)
        if root is not None:
            dump.add_root(_node(root, column=root.start("name")))
            return
        child = _CHILD.fullmatch(body)
        if child is not None:
            node = _node(child, column=child.start("name"))
            node.link, node.bw = child["link"], float(child["bw"])
            dump.add_child(node, len(child["indent"]))
            return
    paths = _PATHS.fullmatch(body)
    if paths is not None:
        source = _key(paths)
        dump.paths.extend(
            PathTo(source, _key(cell), cell["class"]) for cell in _PATH.finditer(paths["rest"])
        )


def _messages(line: str) -> list[tuple[str, str, str]]:
    """Host, process and body of each message on a line: processes may write into one line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "NCCL INFO" not in line:
        return [("", "", line.rstrip())]
    found = list(_PREFIX.finditer(line))
    if not found:
        bare = _BARE_PREFIX.search(line)
        return [] if bare is None else [("", "", line[bare.end() :].rstrip())]
    ends = [match.start() for match in found[1:]] + [len(line)]
    return [
        (match["host"], f"{match['pid']}:{match['tid']}", line[match.end() : end].rstrip())
        for match, end in zip(found, ends, strict=True)
    ]


def _key(match: re.Match[str]) -> tuple[str, int, int]:
    word = "GPU" if match["type"] == "DEV" else match["type"]
    return word, int(match["system"] or "0", 16), int(match["number"], 16)


def _node(match: re.Match[str], *, column: int) -> DumpNode:
    word, system, number = _key(match)
    return DumpNode(
        type=word, system=system, number=number, detail=match["detail"] or "", column=column
    )


def visible_devices(text: str, host: str) -> dict[str, int]:
    """Numbers that NVML (else CUDA) gives to GPUs of a host, by PCI address.

    They stand in the messages about communicators; NVML's are those of ``nvidia-smi``.
    """
    numbers: dict[str, int] = {}
    for line in text.split("\n"):
        if "busId" not in line:
            continue
        for on, _, body in _messages(line):
            device = _DEVICE.search(body)
            if device is not None and on == host:
                number = int(device["nvml"] or device["cuda"])
                numbers[bus_id_of_number(int(device["bus"], 16))] = number
    return numbers

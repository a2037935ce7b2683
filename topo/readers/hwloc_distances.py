"""Matrices in hwloc's XML: distances between memory nodes, and GPU fabrics.

Version 2 and 3 have ``<distances2>`` (objects of one type, called by their
``os`` or ``gp`` index) and ``<distances2hetero>`` (``Type:gp_index``); the
numbers are split over any number of ``<indexes>`` and ``<u64values>``.  Version 1
has ``<distances>`` of ``<latency>`` elements, of memory nodes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import networkx as nx

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.xml import Element
from topocal.topo.resource import LinkKind, NodeKind

__all__ = ["Matrix", "connect_fabrics", "memory_distances", "read_matrices"]

MAX_READ_OBJECTS: Final = 1024
"""Objects of any matrix: hwloc's are of memory nodes, of which Linux has so many at most."""

MAX_OBJECTS: Final = 256
"""Objects of one GPU matrix: more than a machine has GPUs and NVSwitches together."""

_BANDWIDTH_KIND: Final = 8
"""Bit of ``kind`` that marks bandwidths (hwloc/distances.h)."""

_MEGABYTES: Final = 1e6
_SOURCE: Final = "bandwidth matrix of the hwloc file"
_FABRICS: Final = {
    "nvlink": LinkKind.NVLINK,
    "xgmi": LinkKind.XGMI,
    "xelink": LinkKind.XELINK,
}

Resolve = Callable[[str], tuple[str, str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One matrix.

    Attributes
    ----------
    name
        Such as ``NVLinkBandwidth``; empty in old files.
    kind
        hwloc's bits.
    by_os_index
        Whether ``objects`` are operating-system numbers rather than gp indexes.
    of_memory
        Whether its objects are memory nodes.
    objects
        Index of each row and column.
    values
        Row by row.
    line
        Where it stands.
    """

    name: str
    kind: int
    by_os_index: bool
    of_memory: bool
    objects: tuple[str, ...]
    values: tuple[float, ...]
    line: int

    def value(self, row: int, column: int) -> float:
        """One cell."""
        return self.values[row * len(self.objects) + column]


def read_matrices(root: Element, *, file: str) -> list[Matrix]:
    """All matrices of a document.

    Raises
    ------
    FormatError
        When one is cut off or has something other than numbers in it.
    """
    found = [_read_matrix(e, file) for e in root.all("distances2", "distances2hetero")]
    for element in root.walk():
        if element.tag == "distances" and (old := _read_old(element)) is not None:
            found.append(old)
    return found


def _read_matrix(element: Element, file: str) -> Matrix:
    words = [w for part in element.all("indexes") for w in part.text.split()]
    objects = tuple(w.rpartition(":")[2] for w in words)
    name = element.get("name")
    where = Where(file=file, line=element.line)
    if len(objects) > MAX_READ_OBJECTS:
        raise FormatError(
            f"the matrix {one_line(name) or 'without a name'} has {len(objects)} objects; at most "
            f"{MAX_READ_OBJECTS} are read",
            where=where,
            remedy="give the file of one machine",
        )
    texts = [w for part in element.all("u64values") for w in part.text.split()]
    count = element.get("nbobjs")
    if count != str(len(objects)) or len(texts) != len(objects) ** 2:
        raise FormatError(
            f"the matrix {one_line(name) or 'without a name'} of {one_line(count)} objects has "
            f"{len(objects)} indexes and {len(texts)} values",
            where=where,
            remedy="get the whole file again",
        )
    wrong = next((w for w in texts if not re.fullmatch(r"[0-9]{1,20}", w)), None)
    if wrong is not None:
        raise FormatError(
            f"{one_line(wrong)!r} in a matrix is not a number", where=where, remedy="mend the file"
        )
    kind = element.get("kind")
    types = {w.rpartition(":")[0] for w in words} - {""} or {element.get("type")}
    return Matrix(
        name=name,
        kind=int(kind) if re.fullmatch(r"[0-9]{1,9}", kind) else 0,
        by_os_index=element.get("indexing") == "os",
        of_memory=types == {"NUMANode"},
        objects=objects,
        values=tuple(map(float, texts)),
        line=element.line,
    )


def _read_old(element: Element) -> Matrix | None:
    """Version 1: which objects it is about depends on depths; memory nodes in practice."""
    count = element.get("nbobjs")
    values = [e.get("value") for e in element.all("latency")]
    number = int(count) if re.fullmatch(r"[0-9]{1,4}", count) else 0
    if number == 0 or len(values) != number**2:
        return None
    base = element.get("latency_base")
    decimal = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
    if not all(map(decimal.fullmatch, [base, *values])):
        return None
    return Matrix(
        name="NUMALatency",
        kind=0,
        by_os_index=False,
        of_memory=True,
        objects=tuple(map(str, range(number))),
        values=tuple(float(base) * float(v) for v in values),
        line=element.line,
    )


def memory_distances(
    matrices: Sequence[Matrix], numbers: Sequence[int]
) -> dict[tuple[int, int], float]:
    """The firmware's distance of each pair of memory nodes.

    Parameters
    ----------
    numbers
        All memory nodes, in order; a matrix that numbers them otherwise (by gp
        index, or version 1) is taken in this order when it has as many.
    """
    for matrix in matrices:
        if not matrix.of_memory or matrix.kind & _BANDWIDTH_KIND:
            continue
        names = list(matrix.objects)
        if not matrix.by_os_index:
            if len(names) != len(numbers):
                continue
            names = list(map(str, numbers))
        if not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in names):
            continue
        return {
            (int(a), int(b)): matrix.value(i, j)
            for i, a in enumerate(names)
            for j, b in enumerate(names)
            if i != j
        }
    return {}


def connect_fabrics(
    builder: TopologyBuilder, matrices: Sequence[Matrix], resolve: Resolve, *, file: str
) -> None:
    """Add the links of the GPU matrices to a topology that has the GPUs.

    Parameters
    ----------
    resolve
        What an object is, by its gp index: ``("gpu", node)``, ``("socket", node)``
        or ``("switch", address)``; ``None`` for one that plays no part.

    Raises
    ------
    FormatError
        When a matrix is larger than any machine's.
    """
    hops = [m for m in matrices if "hops" in m.name.lower()]
    done: set[LinkKind] = set()
    for matrix in matrices:
        kind = _fabric(matrix, builder)
        if kind is None or kind in done:
            continue
        if len(matrix.objects) > MAX_OBJECTS:
            raise FormatError(
                f"the matrix {one_line(matrix.name)} has {len(matrix.objects)} objects; at most "
                f"{MAX_OBJECTS} are read",
                where=Where(file=file, line=matrix.line),
                remedy="give the file of one machine",
            )
        done.add(kind)
        same = [h for h in hops if h.objects == matrix.objects]
        _Fabric(builder, matrix, kind, same[0] if same else None, resolve).connect()


def _fabric(matrix: Matrix, builder: TopologyBuilder) -> LinkKind | None:
    name = matrix.name.lower()
    if matrix.of_memory or matrix.by_os_index or "hops" in name or "latency" in name:
        return None
    for word, kind in _FABRICS.items():
        if word in name:
            return kind
    if not name and matrix.kind & _BANDWIDTH_KIND:
        builder.note("a bandwidth matrix has no name: it is taken for NVLink")
        return LinkKind.NVLINK
    return None


class _Fabric:
    """One matrix as links."""

    def __init__(
        self,
        builder: TopologyBuilder,
        matrix: Matrix,
        kind: LinkKind,
        hops: Matrix | None,
        resolve: Resolve,
    ) -> None:
        self._builder = builder
        self._matrix = matrix
        self._kind = kind
        self._hops = hops
        self._what = [resolve(o) for o in matrix.objects]

    def _of(self, what: str) -> list[int]:
        return [i for i, found in enumerate(self._what) if found is not None and found[0] == what]

    def _node(self, i: int) -> str:
        found = self._what[i]
        return "" if found is None else found[1]

    def connect(self) -> None:
        unknown = sum(found is None for found in self._what)
        if unknown:
            self._builder.note(
                f"{unknown} objects of the matrix {one_line(self._matrix.name)} are not in the "
                "file: left out"
            )
        gpus = self._of("gpu")
        far = 0
        for i, j in combinations(gpus, 2):
            if self._hops is not None and self._hops.value(i, j) > 1:
                far += 1
            elif self._node(i) != self._node(j):
                self._link(self._node(i), self._node(j), self._kind, [(i, j)])
        if far:
            self._builder.note(
                f"{far} pairs of GPUs reach each other over other GPUs' links only (more than "
                "one hop): they have no link of their own"
            )
        for i in gpus:
            for j in self._of("socket"):
                # A processor's own link to its GPU, whatever it is called (POWER: NVLink).
                self._link(self._node(j), self._node(i), LinkKind.C2C, [(j, i)])
        self._connect_switches(gpus)

    def _link(
        self, a: str, b: str, kind: LinkKind, cells: list[tuple[int, int]], **attributes: Any
    ) -> bool:
        """Join two nodes by what the cells say together; nothing where they are zero."""
        forth = sum(self._matrix.value(i, j) for i, j in cells)
        back = sum(self._matrix.value(j, i) for i, j in cells)
        if not forth and not back:
            return False
        if not (forth and back):
            self._builder.note(f"{a} and {b}: the matrix has a link one way only")
        self._builder.connect(
            a,
            b,
            kind,
            nominal_Bps=(forth or back) * _MEGABYTES,
            back_Bps=(back or forth) * _MEGABYTES,
            source=_SOURCE,
            **attributes,
        )
        return True

    def _connect_switches(self, gpus: list[int]) -> None:
        """One node per group of NVSwitches that some GPU joins.

        A flow spreads over all switches of its group at once, so the group is one
        node with all of a GPU's links.
        """
        joined = nx.Graph()
        for i in gpus:
            for j in self._of("switch"):
                if self._matrix.value(i, j) or self._matrix.value(j, i):
                    joined.add_edge(i, j)
        groups = []
        gpu_set = set(gpus)
        for number, group in enumerate(nx.connected_components(joined)):
            switches = sorted(group - gpu_set)
            node = self._builder.node(
                f"nvswitch{number}",
                NodeKind.NVSWITCH,
                label=f"{len(switches)} NVSwitches" if len(switches) > 1 else "NVSwitch",
                count=len(switches),
                bus_ids=[self._node(j) for j in switches],
            )
            members = sorted(group & gpu_set)
            ports = {}
            for i in members:
                cells = [(i, j) for j in switches]
                ports[i] = sum(1 for i, j in cells if self._matrix.value(i, j))
                self._link(self._node(i), node, self._kind, cells)
            most = max(ports.values())
            if short := [self._node(i) for i in members if ports[i] < most]:
                self._builder.note(
                    f"{', '.join(short)}: linked to fewer NVSwitches than the others ({most})"
                )
            groups.append((node, members, switches))
        self._join_groups(groups)

    def _join_groups(self, groups: list[tuple[str, list[int], list[int]]]) -> None:
        for (a, gpus_a, switches_a), (b, gpus_b, switches_b) in combinations(groups, 2):
            cells = [(i, j) for i in switches_a for j in switches_b]
            if self._link(a, b, self._kind, cells):
                continue
            self._builder.connect(a, b, self._kind, described=False)
            self._builder.note(
                f"not described: the file holds no link between the NVSwitches of "
                f"{self._span(gpus_a)} and those of {self._span(gpus_b)}; the way between "
                "them has unknown capacity"
            )

    def _span(self, gpus: list[int]) -> str:
        names = [self._node(i) for i in gpus]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"

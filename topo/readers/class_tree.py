"""A matrix of path classes as nested groups: sockets, host bridges, switches.

A PCIe tree gives classes that nest (an ultrametric): whoever shares a switch
shares its host bridge, and so on.  Grouping by ever farther classes finds the
tree that a matrix came from.  For a pair of which nothing is said (NVLink hides
it, a row is cut off) it takes the farthest place that the rest allows, and for a
matrix that fits no tree it finds the nearest above; the caller checks.

Sockets come from the NUMA and CPU columns; letters decide only where those say
nothing.  That is what keeps "SYS" within one NUMA node, which a machine with many
root complexes reports, from looking like so many sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from topocal.topo.readers.class_matrix import ClassMatrix
from topocal.topo.resource import PathClass

__all__ = ["ClassTree", "Part", "Root", "SocketGroup", "group_classes"]


@dataclass(slots=True, kw_only=True)
class Root:
    """Devices below one host bridge.

    Attributes
    ----------
    switched
        Groups within which no pair crosses the host bridge (``PXB``); each holds
        groups behind one switch (``PIX``); each of those holds device numbers.
    """

    switched: list[list[list[int]]]

    @property
    def devices(self) -> list[int]:
        """All device numbers."""
        return sorted(chain.from_iterable(chain.from_iterable(self.switched)))


@dataclass(slots=True, kw_only=True)
class Part:
    """Host bridges of which no pair is said to be farther apart than ``NODE``.

    Attributes
    ----------
    roots
        The host bridges.
    bare
        Devices whose place below the socket nothing tells.
    """

    roots: list[Root] = field(default_factory=list)
    bare: list[int] = field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """All device numbers."""
        return sorted([*chain.from_iterable(r.devices for r in self.roots), *self.bare])


@dataclass(slots=True, kw_only=True)
class SocketGroup:
    """One socket (NUMA node) and what hangs on it.

    Attributes
    ----------
    numa
        Its NUMA nodes, as the tool names them.
    cpu_list
        Its processors.
    main
        The part on the socket itself.
    apart
        Parts that the letters put a socket hop away from it and from each other,
        although the NUMA column does not.
    """

    numa: tuple[int, ...] = ()
    cpu_list: str = ""
    main: Part = field(default_factory=Part)
    apart: list[Part] = field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """All device numbers."""
        return sorted(chain(self.main.devices, *(p.devices for p in self.apart)))


@dataclass(slots=True, kw_only=True)
class ClassTree:
    """All sockets, and the parts that nothing assigns to one of them."""

    sockets: list[SocketGroup] = field(default_factory=list)
    loose: list[Part] = field(default_factory=list)


_Keyed: TypeAlias = "tuple[tuple[tuple[int, ...], str], list[Root]]"
"""NUMA nodes and processors of a socket, and the roots on it."""


class _Groups:
    """Disjoint sets of 0 … n-1."""

    def __init__(self, n: int) -> None:
        self._parent = list(range(n))

    def find(self, a: int) -> int:
        while self._parent[a] != a:
            self._parent[a] = self._parent[self._parent[a]]
            a = self._parent[a]
        return a

    def union(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        self._parent[max(a, b)] = min(a, b)

    def of(self, members: Iterable[int]) -> list[list[int]]:
        """The sets among ``members``, each sorted, by their first member."""
        found: dict[int, list[int]] = {}
        for member in sorted(members):
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())


class _Grouping:
    """Working state of :func:`group_classes`."""

    def __init__(self, matrix: ClassMatrix) -> None:
        self._matrix = matrix
        n = len(matrix)
        levels = {c: _Groups(n) for c in (PathClass.PIX, PathClass.PXB, PathClass.PHB)}
        self._node: list[set[int]] = [set() for _ in range(n)]
        self._sys: list[set[int]] = [set() for _ in range(n)]
        for a, b, path_class in matrix.placed():
            for level, groups in levels.items():
                if path_class <= level:
                    groups.union(a, b)
            for stated, table in ((PathClass.NODE, self._node), (PathClass.SYS, self._sys)):
                if path_class is stated:
                    table[a].add(b)
                    table[b].add(a)
        self._roots = [
            Root(
                switched=[
                    levels[PathClass.PIX].of(group) for group in levels[PathClass.PXB].of(members)
                ]
            )
            for members in levels[PathClass.PHB].of(range(n))
        ]

    def group(self) -> ClassTree:
        keyed, unkeyed = self._by_columns()
        comps = self._by_letters(unkeyed, keyed)
        sockets = [
            SocketGroup(numa=numa, cpu_list=cpu_list) for numa, cpu_list in (k for k, _ in keyed)
        ]
        held = [roots for _, roots in keyed]
        loose: list[Part] = []
        if not sockets:
            for comp in self._merge(comps):
                sockets.append(SocketGroup())
                held.append(comp)
        else:
            known = [set(chain.from_iterable(r.devices for r in roots)) for roots in held]
            for comp in comps:
                members = list(chain.from_iterable(r.devices for r in comp))
                reachable = [
                    k for k, devices in enumerate(known) if not self._apart(members, devices)
                ]
                if len(reachable) == 1:
                    held[reachable[0]].extend(comp)
                else:
                    loose.append(self._part(comp))
        for socket, roots in zip(sockets, held, strict=True):
            self._divide(socket, roots)
        return ClassTree(sockets=sockets, loose=loose)

    # By the NUMA and CPU columns

    def _by_columns(self) -> tuple[list[_Keyed], list[Root]]:
        """Roots by the socket that their columns name, and those that name none."""
        by_numa: dict[tuple[int, ...], list[Root]] = {}
        rest: list[Root] = []
        for root in self._roots:
            numa = self._numa(root)
            if numa:
                by_numa.setdefault(numa, []).append(root)
            else:
                rest.append(root)
        by_list: dict[str, list[Root]] = {}
        unkeyed: list[Root] = []
        lists = {self._cpus(root): numa for numa, roots in by_numa.items() for root in roots}
        for root in rest:
            cpu_list = self._cpus(root)
            if not cpu_list:
                unkeyed.append(root)
            elif cpu_list in lists:
                by_numa[lists[cpu_list]].append(root)
            else:
                by_list.setdefault(cpu_list, []).append(root)
        keyed: list[_Keyed] = []
        for numa, roots in by_numa.items():
            cpu_lists = [c for c in map(self._cpus, roots) if c]
            keyed.append(((numa, cpu_lists[0] if cpu_lists else ""), roots))
        for roots in self._join_by_node(by_list.values()):
            keyed.append((((), self._cpus(roots[0])), roots))
        return keyed, unkeyed

    # What most devices of a root say; the first of equals.

    def _numa(self, root: Root) -> tuple[int, ...]:
        found = Counter(n for d in root.devices if (n := self._matrix.devices[d].numa))
        return found.most_common(1)[0][0] if found else ()

    def _cpus(self, root: Root) -> str:
        found = Counter(c for d in root.devices if (c := self._matrix.devices[d].cpu_list))
        return found.most_common(1)[0][0] if found else ""

    # By letters

    def _join_by_node(self, groups: Iterable[Sequence[Root]]) -> list[list[Root]]:
        """Groups of roots, those joined that some pair puts in one NUMA node."""
        listed = [list(group) for group in groups]
        owner = {d: k for k, roots in enumerate(listed) for r in roots for d in r.devices}
        sets = _Groups(len(listed))
        for a, k in owner.items():
            for b in self._node[a]:
                if b in owner:
                    sets.union(k, owner[b])
        return [
            list(chain.from_iterable(listed[k] for k in group))
            for group in sets.of(range(len(listed)))
        ]

    def _by_letters(self, unkeyed: list[Root], keyed: list[_Keyed]) -> list[list[Root]]:
        """Give roots without columns to the socket that most letters name; group the others."""
        owner = {d: k for k, (_, roots) in enumerate(keyed) for r in roots for d in r.devices}
        comps = []
        for comp in self._join_by_node([root] for root in unkeyed):
            votes = Counter(
                owner[b] for r in comp for a in r.devices for b in self._node[a] if b in owner
            )
            if votes:
                most = max(votes.values())
                keyed[min(k for k, v in votes.items() if v == most)][1].extend(comp)
            else:
                comps.append(comp)
        return comps

    def _apart(self, members: Iterable[int], others: set[int]) -> bool:
        return any(not self._sys[d].isdisjoint(others) for d in members)

    def _merge(self, groups: Iterable[list[Root]]) -> list[list[Root]]:
        """Groups of roots, those joined of which nothing says that they are a socket hop apart."""
        merged: list[list[Root]] = []
        held: list[set[int]] = []
        for group in groups:
            members = list(chain.from_iterable(r.devices for r in group))
            for roots, devices in zip(merged, held, strict=True):
                if not self._apart(members, devices):
                    roots.extend(group)
                    devices.update(members)
                    break
            else:
                merged.append(list(group))
                held.append(set(members))
        return merged

    def _part(self, roots: list[Root]) -> Part:
        part = Part()
        for root in sorted(roots, key=lambda r: r.devices):
            devices = root.devices
            if len(devices) == 1 and len(roots) > 1 and not self._node[devices[0]]:
                part.bare.append(devices[0])
            else:
                part.roots.append(root)
        return part

    def _divide(self, socket: SocketGroup, roots: list[Root]) -> None:
        """Split a socket's roots where letters put a socket hop between them."""
        parts = [self._part(r) for r in self._merge(self._join_by_node([root] for root in roots))]
        large = [p for p in parts if len(p.devices) > 1 and (len(p.roots) != 1 or p.bare)]
        if len(parts) == 1:
            socket.main = parts[0]
        elif large:
            socket.main = large[0]
            socket.apart = [p for p in parts if p is not large[0]]
        else:
            socket.apart = parts


def group_classes(matrix: ClassMatrix) -> ClassTree:
    """The tree that a matrix fits, or the nearest above.

    Parameters
    ----------
    matrix
        Devices and the PCIe classes of their pairs; direct links play no part.

    Returns
    -------
    Every device stands in exactly one place.
    """
    return _Grouping(matrix).group()

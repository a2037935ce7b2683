"""What a matrix of path classes says: devices, and how far apart each pair is.

Readers of ``topo -m`` and its kin fill a :class:`ClassMatrix`;
:mod:`topocal.topo.readers.from_classes` makes a topology of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from topocal.topo.errors import FormatError, Where
from topocal.topo.resource import LinkKind, NodeKind, PathClass

__all__ = [
    "MAX_DEVICES",
    "PCIE_CLASSES",
    "ClassMatrix",
    "FabricLink",
    "MatrixDevice",
    "some",
]

MAX_DEVICES: Final = 256
"""Rows of a matrix; what one system prints has some 50 (16 GPUs and 32 NICs), or 64 partitions."""

PCIE_CLASSES: Final = (
    PathClass.PIX,
    PathClass.PXB,
    PathClass.PHB,
    PathClass.NODE,
    PathClass.SYS,
)
"""Classes that place a pair in the PCIe tree, near to far."""

_SHOWN: Final = 4


def some(names: Iterable[object], *, shown: int = _SHOWN) -> str:
    """The first few of ``names`` and how many more there are.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c, d and 1 more'
    """
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDevice:
    """A row of the matrix.

    Attributes
    ----------
    id
        Node id, such as ``gpu0``.
    kind
        ``GPU`` or ``NIC``.
    label
        The tool's own name.
    numa
        NUMA nodes it is near to; empty where the tool names none.
    cpu_list
        Processors it is near to, as the tool prints them; empty where it prints none.
    coherent
        Whether its memory is a NUMA node of the system: it hangs on the processor by a
        chip-to-chip link.
    attributes
        Further node attributes.
    """

    id: str
    kind: NodeKind
    label: str = ""
    numa: tuple[int, ...] = ()
    cpu_list: str = ""
    coherent: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLink:
    """A direct link between two devices beside PCIe.

    Attributes
    ----------
    kind
        NVLink, xGMI, Xe Link, another make's fabric; ``UNKNOWN`` where the tool says that it
        does not know.
    count
        Links in parallel, ``None`` where unknown.
    nominal_Bps
        What the tool (or the specification of what it names) says, per direction.
    source
        Where ``nominal_Bps`` comes from.
    switched
        Whether the tool says that it leads through a switch of the fabric.
    attributes
        Further link attributes.
    """

    kind: LinkKind
    count: int | None = None
    nominal_Bps: float | None = None
    source: str = ""
    switched: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


class ClassMatrix:
    """Devices and what is said of each pair of them.

    Parameters
    ----------
    devices
        In the order of the rows.
    file
        For error messages.

    Raises
    ------
    FormatError
        When there are more devices than any system prints.
    """

    def __init__(self, devices: Iterable[MatrixDevice], *, file: str) -> None:
        self.devices: tuple[MatrixDevice, ...] = tuple(devices)
        if len(self.devices) > MAX_DEVICES:
            raise FormatError(
                f"has {len(self.devices)} devices, more than any machine (at most {MAX_DEVICES})",
                where=Where(file=file),
                remedy="give the output of one machine as it was printed",
            )
        self._classes: dict[tuple[int, int], PathClass] = {}
        self._fabric: dict[tuple[int, int], FabricLink] = {}
        self._assumed: set[tuple[int, int]] = set()
        self._relayed: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self.devices)

    def state(self, a: int, b: int, path_class: PathClass, *, assumed: bool = False) -> None:
        """Place a pair in the PCIe tree; ``assumed`` where the tool does not say it outright."""
        pair = (min(a, b), max(a, b))
        self._classes[pair] = path_class
        if assumed:
            self._assumed.add(pair)

    def join(self, a: int, b: int, link: FabricLink) -> None:
        """Give a pair a direct link; what the pair's PCIe class is, that hides."""
        self._fabric[min(a, b), max(a, b)] = link

    def relay(self, a: int, b: int) -> None:
        """Say that other devices' direct links carry what a pair sends each other."""
        self._relayed.add((min(a, b), max(a, b)))

    def pcie_class(self, a: int, b: int) -> PathClass | None:
        """Where a pair stands in the PCIe tree, ``None`` where nothing says so."""
        return self._classes.get((min(a, b), max(a, b)))

    def fabric(self, a: int, b: int) -> FabricLink | None:
        """The direct link of a pair."""
        return self._fabric.get((min(a, b), max(a, b)))

    def placed(self) -> Iterator[tuple[int, int, PathClass]]:
        """Pairs whose PCIe class is known, in order."""
        for (a, b), path_class in sorted(self._classes.items()):
            yield a, b, path_class

    def joined(self) -> Iterator[tuple[int, int, FabricLink]]:
        """Pairs with a direct link, in order."""
        for (a, b), link in sorted(self._fabric.items()):
            yield a, b, link

    def relayed(self) -> Iterator[tuple[int, int]]:
        """Pairs that other devices' direct links connect, in order."""
        yield from sorted(self._relayed - self._fabric.keys())

    def stated(self) -> Iterator[tuple[int, int, PathClass]]:
        """What the tool says of each pair, as routes must have it: the fabric before PCIe."""
        for a, b, path_class in self.placed():
            hidden = (a, b) in self._fabric or (a, b) in self._relayed
            if not hidden and (a, b) not in self._assumed:
                yield a, b, path_class
        for a, b, link in self.joined():
            if link.kind is not LinkKind.UNKNOWN:
                yield a, b, PathClass.NVL
        for a, b in self.relayed():
            yield a, b, PathClass.NVB

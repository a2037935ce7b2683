"""One PCI function, as hwloc, lspci and sysfs describe it in their own words.

Each of those readers fills :class:`PciFunction`;
:mod:`topocal.topo.readers.pci_tree` makes a topology of many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["LinkState", "PciFunction", "Port", "Role"]


class Role(Enum):
    """What a function is to us."""

    GPU = "gpu"
    NIC = "nic"
    NVSWITCH = "nvswitch"
    OTHER = "other"


class Port(Enum):
    """Which side of a PCIe link a bridge stands on."""

    ROOT = "root"
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """Generation and lanes of a PCIe link, each ``None`` where unknown."""

    generation: int | None = None
    width: int | None = None

    @property
    def known(self) -> bool:
        """Whether both are."""
        return self.generation is not None and self.width is not None

    def __str__(self) -> str:
        return f"Gen{self.generation or '?'} x{self.width or '?'}"


@dataclass(slots=True, kw_only=True)
class PciFunction:
    """One PCI function.

    Attributes
    ----------
    address
        ``dddd:bb:dd.f``.
    parent
        Address of the bridge above it; ``None`` on a root bus.
    root
        Root bus ``dddd:bb`` below which it stands; ``None`` where the source does not say.
    bridge
        Whether it is a PCI-to-PCI bridge.
    port
        Which kind of bridge, where the source says so.
    role
        What it is to us.
    pci_class, vendor, device
        ``0x`` and six, four and four hex digits.
    model
        Words for people.
    numa
        Memory node, ``None`` where unknown.
    state, capability
        Its link as it runs now, and at best: the link towards the root, or for a
        bridge that is a port towards devices the link below it.
    rate_Bps
        The same for sources that state bytes per second only (hwloc), after line coding.
    names
        What the operating system calls it (``mlx5_0``, ``cuda0``).
    index
        A tool's own number for it.
    network_Bps
        For a NIC, what its ports run at.
    virtual
        Whether it is a virtual function of another (SR-IOV).
    redirects
        For a bridge, whether access control (ACS) sends peer traffic up to the root.
    """

    address: str
    parent: str | None = None
    root: str | None = None
    bridge: bool = False
    port: Port | None = None
    role: Role = Role.OTHER
    pci_class: str | None = None
    vendor: str | None = None
    device: str | None = None
    model: str = ""
    numa: int | None = None
    state: LinkState = field(default_factory=LinkState)
    capability: LinkState = field(default_factory=LinkState)
    rate_Bps: float | None = None
    names: list[str] = field(default_factory=list)
    index: int | None = None
    network_Bps: float | None = None
    virtual: bool = False
    redirects: bool = False

    @property
    def slot(self) -> str:
        """Address without the function: the physical device."""
        return self.address.rpartition(".")[0]

    @property
    def number(self) -> int:
        """Which function of its device it is."""
        return int(self.address.rpartition(".")[2], 16)

"""Which PCI functions are GPUs, NICs and NVSwitches.

By class code and vendor where the source has them, by name where it has only
that (``lspci -tv``).  Audio functions, a server's own display (ASPEED, Matrox)
and a processor's own graphics are none of these.

References
----------
Class codes: PCI-SIG, PCI Code and ID Assignment Specification.  Vendor and
device ids and the words of names: the PCI ID repository (pci-ids.ucw.cz).
"""

from __future__ import annotations

import re
from typing import Final

from topocal.topo.readers.pci_function import Role

__all__ = [
    "AMD",
    "AMD_PROCESSOR",
    "INTEL",
    "NVIDIA",
    "VIRTUAL_VENDORS",
    "class_by_name",
    "role_by_class",
    "role_by_name",
    "vendor_by_name",
]

NVIDIA: Final = "0x10de"
AMD: Final = "0x1002"
AMD_PROCESSOR: Final = "0x1022"
INTEL: Final = "0x8086"
HABANA: Final = "0x1da3"

_MORE_ACCELERATORS: Final = frozenset({HABANA, "0x1ed5", "0x19e5", "0xcabc", "0x9999"})
"""Habana, Moore Threads, Huawei, Cambricon, MetaX; some make displays, too."""

VIRTUAL_VENDORS: Final = frozenset({"0x1b36", "0x1af4", "0x15ad", "0x1414", "0x80ee"})
"""QEMU, virtio, VMware, Hyper-V, VirtualBox: the speed of a bridge that a hypervisor
makes up is a setting and says nothing."""

_CLASSES: Final = {
    "vga compatible controller": "0x030000",
    "3d controller": "0x030200",
    "display controller": "0x038000",
    "processing accelerators": "0x120000",
    "co-processor": "0x0b4000",
    "ethernet controller": "0x020000",
    "infiniband controller": "0x020700",
    "fabric controller": "0x020800",
    "network controller": "0x028000",
    "pci bridge": "0x060400",
    "host bridge": "0x060000",
    "bridge": "0x068000",
    "audio device": "0x040300",
    "encryption controller": "0x108000",
}

_VENDORS: Final = (
    # How pci.ids begins a name, and the vendor's id; longer beginnings first.
    ("nvidia", NVIDIA),
    ("advanced micro devices, inc. [amd/ati]", AMD),
    ("advanced micro devices [amd/ati]", AMD),
    ("amd/ati", AMD),
    ("ati technologies", AMD),
    ("advanced micro devices", AMD_PROCESSOR),
    ("intel", INTEL),
    ("mellanox", "0x15b3"),
    ("aspeed", "0x1a03"),
    ("matrox", "0x102b"),
    ("plx technology", "0x10b5"),
    ("broadcom / lsi", "0x1000"),
    ("lsi logic", "0x1000"),
    ("broadcom", "0x14e4"),
    ("microsemi", "0x11f8"),
    ("pmc-sierra", "0x11f8"),
    ("red hat", "0x1b36"),
    ("vmware", "0x15ad"),
    ("microsoft", "0x1414"),
    ("amazon", "0x1d0f"),
    ("google", "0x1ae0"),
    ("habana", HABANA),
    ("moore threads", "0x1ed5"),
    ("huawei", "0x19e5"),
    ("cambricon", "0xcabc"),
    ("metax", "0x9999"),
)

_NVSWITCH: Final = re.compile(r"nvswitch|\bdevice (?:1ac[0-2]|1af1|22a3)\b", re.IGNORECASE)
_NVSWITCH_DEVICES: Final = frozenset({"0x1ac0", "0x1ac1", "0x1ac2", "0x1af1", "0x22a3"})
_NOT_A_GPU: Final = re.compile(
    r"audio|\busb\b|ucsi|serial bus|bridge|(?:upstream|downstream|root) port|root complex"
    r"|nforce|\bmcp\d|\bsm ?bus|\blpc\b|\bsata\b|\bide\b|memory controller|ethernet|i2c|host "
    r"|encryption|psp/ccp|\bgpio\b|dummy",
    re.IGNORECASE,
)
_INTEL_GPU: Final = re.compile(
    r"\barc\b|data center gpu|\bgpu (?:flex|max)\b|ponte vecchio|battlemage|alchemist|\bdg[12]\b"
    r"|\bdevice (?:e2[0-2][0-9a-f]|56[9a-c][0-9a-f]|0bd[0-9a-f]|0b69|4f8[0-9a-f])\b",
    re.IGNORECASE,
)
_NIC: Final = re.compile(
    r"ethernet|infiniband|connectx|omni-?path|slingshot|cassini|network (?:connection|adapter"
    r"|controller|device|card)|gigabit|\d+ ?gbe\b|\d+gbase|netxtreme|vmxnet|virtio network"
    r"|elastic (?:network|fabric) adapter|\bmt\d{4,5} family|\bena\b|\befa\b|fastlinq|\bhfi\b"
    r"|\bxxv?710\b|\be8[123]0\b|gvnic",
    re.IGNORECASE,
)
_NOT_A_NIC: Final = re.compile(
    r"wi-?fi|wireless|802\.11|soc management|bridge|auxiliary|\bdma\b|crypto|bluetooth"
    r"|(?:upstream|downstream) port",
    re.IGNORECASE,
)


def vendor_by_name(name: str) -> str | None:
    """Vendor id of a device name as lspci prints it, for the vendors that matter here.

    >>> vendor_by_name("NVIDIA Corporation GH100 [H100 SXM5 80GB]")
    '0x10de'
    """
    lower = name.strip().lower()
    return next((vendor for start, vendor in _VENDORS if lower.startswith(start)), None)


def class_by_name(name: str) -> str | None:
    """Class code of a class name as lspci prints it, for the classes that matter here.

    >>> class_by_name("VGA compatible controller")
    '0x030000'
    """
    return _CLASSES.get(name.strip().lower())


def role_by_class(
    pci_class: str, vendor: str | None, model: str = "", *, on_root_bus: bool = False
) -> Role:
    """What a function of a class is.

    Parameters
    ----------
    pci_class
        ``0x`` and six hex digits.
    on_root_bus
        Whether no bridge stands above it, as with a processor's own graphics.

    >>> role_by_class("0x030000", "0x1a03"), role_by_class("0x030200", "0x10de")
    (<Role.OTHER: 'other'>, <Role.GPU: 'gpu'>)
    """
    base, whole = pci_class[2:4], pci_class[2:6]
    if vendor == NVIDIA and (_NVSWITCH.search(model) is not None or whole == "0680"):
        return Role.NVSWITCH
    if base == "02" or whole == "0c06":
        return Role.OTHER if _NOT_A_NIC.search(model) else Role.NIC
    if base == "03" or whole == "1200":
        if vendor == INTEL:
            discrete = base == "03" and not on_root_bus
            return Role.GPU if discrete or _INTEL_GPU.search(model) else Role.OTHER
        if vendor in (NVIDIA, AMD) or (vendor in _MORE_ACCELERATORS and whole != "0300"):
            return Role.GPU
    return Role.OTHER


def role_by_name(model: str, vendor: str | None, device: str | None, function: int) -> Role:
    """What a function is when only its name is known.

    Parameters
    ----------
    function
        Its number; a GPU is function 0, its audio and USB follow.

    >>> role_by_name("NVIDIA Corporation GA102 [GeForce RTX 3090]", "0x10de", None, 0)
    <Role.GPU: 'gpu'>
    >>> role_by_name("NVIDIA Corporation GA102 High Definition Audio", "0x10de", None, 1)
    <Role.OTHER: 'other'>
    """
    if vendor == NVIDIA and (_NVSWITCH.search(model) or device in _NVSWITCH_DEVICES):
        return Role.NVSWITCH
    if vendor in (NVIDIA, AMD, HABANA) or (vendor == INTEL and _INTEL_GPU.search(model)):
        return Role.OTHER if function or _NOT_A_GPU.search(model) else Role.GPU
    if _NIC.search(model) and not _NOT_A_NIC.search(model):
        return Role.NIC
    return Role.OTHER

"""What the codes of a distance matrix mean: by the legend below it, else by the make's manual.

Tools of all makes print the matrix of ``nvidia-smi topo -m`` with codes of their own for
their own links, and a legend that says what each stands for.  The legend decides; where a
paste has none, the few codes whose meaning the makes publish are known here.

References
----------
``HCCS``, ``HCCS_SW``, ``SIO``, ``UB``: legend of Huawei's ``npu-smi info -t topo``, and
``aclrtGetDevicesTopo`` in the CANN documentation.  ``MX``, ``ETH``: legend of MetaX's
``mx-smi topo -m``.  ``MT#``: legend of Moore Threads' ``mthreads-gmi topo -m``.
``MLK``: Cambricon's ``cnmon topo -m``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topocal.topo.resource import PathClass

__all__ = ["CODE", "Meaning", "meaning_of", "read_legend"]

CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,11}")
"""What a cell may look like."""

_ENTRY: Final = re.compile(
    r"[ \t#>*`\"'\-]{0,40}([A-Z][A-Z_]{0,11}?)(?:([#xnN*]|\[[A-Za-z ]{1,20}\]|<[A-Za-z ]{1,20}>))?"
    r"[`\"']?[ \t]{0,20}[=:][ \t]{0,20}(\S.{3,300})"
)
"""``MX = Connection traversing MetaXLink``; the mark behind a code stands for a number."""

_CLASSES: Final = {
    "PSB": PathClass.PIX,
    "PIX": PathClass.PIX,
    "PXB": PathClass.PXB,
    "PHB": PathClass.PHB,
    "NODE": PathClass.NODE,
    "SYS": PathClass.SYS,
    "SOC": PathClass.SYS,
}
_PUBLISHED: Final = {
    "HCCS": False,
    "HCCS_SW": True,
    "SIO": False,
    "UB": False,
    "MX": False,
    "ETH": False,
    "MT": False,
    "MLK": False,
}
"""Codes of fabrics, and whether a switch lies between."""

_COUNTED: Final = re.compile(r"([A-Z][A-Z_]{0,10}?)([0-9]{1,3})")
_UNKNOWN: Final = re.compile(
    r"unknown|not available|not supported|no (?:connection|link|path)|disconnected", re.I
)
_SELF: Final = re.compile(r"\bself\b", re.I)
_SOCKETS: Final = re.compile(
    r"\bSMP\b|\bQPI\b|\bUPI\b|(?:between|across|different|multiple|and) (?:NUMA nodes|sockets|CPUs)"
    r"|cross.{0,10}(?:socket|NUMA)|inter-?socket",
    re.I,
)
_WITHIN: Final = re.compile(r"within (?:a|one|the same) NUMA|between (?:PCIe )?host bridges", re.I)
_SEVERAL: Final = re.compile(r"multip\w{2,5} (?:PCIe? )?(?:bridge|switch)", re.I)
_ONE: Final = re.compile(r"(?:single|same|one|a) (?:PCIe? )?(?:bridge|switch)", re.I)
_BRIDGE: Final = re.compile(r"host bridge|root complex|root port|\bCPU\b", re.I)
_PCI: Final = re.compile(r"\bPCI", re.I)
_SWITCH: Final = re.compile(r"switch", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a code says of a pair.

    Attributes
    ----------
    path_class
        The PCIe class, where it is one.
    fabric
        The fabric that joins the pair directly, where one does.
    switched
        Whether that fabric leads through a switch.
    count
        Parallel links, where the code has a number.
    """

    path_class: PathClass | None = None
    fabric: str = ""
    switched: bool = False
    count: int | None = None


def read_legend(lines: list[str]) -> dict[str, str]:
    """Codes and the words behind them; of several legends the first counts.

    >>> read_legend(["  MX   = Connection traversing MetaXLink", "  MT#  = a bonded set"])
    {'MX': 'Connection traversing MetaXLink', 'MT': 'a bonded set'}
    """
    found: dict[str, str] = {}
    for line in lines:
        entry = _ENTRY.fullmatch(line) if "=" in line or ":" in line else None
        if entry is not None:
            found.setdefault(entry[1], entry[3].strip())
    return found


def meaning_of(code: str, legend: Mapping[str, str]) -> Meaning | None:
    """What a code says; ``None`` where nothing tells, or the legend says that it is unknown.

    >>> meaning_of("PIX", {}).path_class.name, meaning_of("HCCS_SW", {}).switched
    ('PIX', True)
    >>> meaning_of("MT2", {"MT": "a path of # bonded MTLinks"}).count
    2
    >>> meaning_of("FOO", {}) is None
    True
    """
    if code in _CLASSES:
        return Meaning(path_class=_CLASSES[code])
    counted = _COUNTED.fullmatch(code)
    stem = counted[1] if counted is not None and code not in legend else code
    count = int(counted[2]) if counted is not None and stem != code else None
    words = legend.get(stem)
    if words is None:
        if stem not in _PUBLISHED:
            return None
        return Meaning(fabric=_name(stem), switched=_PUBLISHED[stem], count=count)
    if _UNKNOWN.search(words) or _SELF.search(words):
        return None
    path_class = _class_in(words)
    if path_class is not None:
        return Meaning(path_class=path_class)
    if _PCI.search(words):
        return None
    return Meaning(fabric=_name(stem), switched=bool(_SWITCH.search(words)), count=count)


def _class_in(words: str) -> PathClass | None:
    """The PCIe class that a legend's words describe."""
    if _WITHIN.search(words):
        return PathClass.NODE
    if _SOCKETS.search(words):
        return PathClass.SYS
    if not _PCI.search(words):
        return None
    if _SEVERAL.search(words):
        return PathClass.PXB
    if _ONE.search(words) and not re.search(r"\ba (?:PCIe )?host", words, re.I):
        return PathClass.PIX
    return PathClass.PHB if _BRIDGE.search(words) else None


def _name(stem: str) -> str:
    """What a fabric is called: a switch of it is no fabric of its own."""
    return stem.removesuffix("_SW")

"""Nominal capacities: what a link passes by its specification, with a source per constant.

Everything is per direction.  The figures are starting points, never results: a
real link passes less, and what it passes is what measurements say.  A function
answers ``None`` where its arguments do not say enough, so that an unknown speed
stays unknown.

``SOURCES`` holds every constant that is used here under a readable key.

Notes
-----
PCIe figures are payload: line rate, times line coding (8b/10b, 128b/130b, or the
TLP share of a FLIT), times the share of a packet that is payload.  Packets
carry at most 256 bytes unless told otherwise, which is what root ports of
servers negotiate; flow control and acknowledgements (1-3 %) are left out.
Network figures are data rates after line coding; packet headers take a further
0.6 % (InfiniBand, 4 KiB packets) to 6 % (Ethernet, 1500 bytes), which nothing
in a topology tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from topocal.topo.errors import InputError

__all__ = [
    "DEFAULT_MAX_PAYLOAD_BYTES",
    "SOURCES",
    "Constant",
    "c2c_Bps",
    "ethernet_Bps",
    "infiniband_Bps",
    "nvlink_Bps",
    "nvlink_generation",
    "pcie_Bps",
    "pcie_generation",
    "smp_Bps",
    "source_of",
    "xelink_Bps",
    "xgmi_Bps",
]

DEFAULT_MAX_PAYLOAD_BYTES: Final = 256
"""Payload of a full PCIe packet unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One published figure.

    Attributes
    ----------
    key
        What it is, such as ``nvlink 4``.
    value
        The figure, in ``unit``.
    unit
        ``B/s``, ``T/s`` (transfers of one bit per lane and second), ``b/s`` or ``B``.
    source
        The document that states it.
    """

    key: str
    value: float
    unit: str
    source: str


_PCIE_BASE: Final = "PCI-SIG, PCI Express Base Specification"
_IBTA: Final = (
    "InfiniBand Trade Association, InfiniBand roadmap and Architecture Specification vol. 2"
)

_TABLE: Final = (
    ("pcie 1", 2.5e9, "T/s", f"{_PCIE_BASE} 1.1, 8b/10b"),
    ("pcie 2", 5e9, "T/s", f"{_PCIE_BASE} 2.1, 8b/10b"),
    ("pcie 3", 8e9, "T/s", f"{_PCIE_BASE} 3.1, 128b/130b"),
    ("pcie 4", 16e9, "T/s", f"{_PCIE_BASE} 4.0, 128b/130b"),
    ("pcie 5", 32e9, "T/s", f"{_PCIE_BASE} 5.0, 128b/130b"),
    ("pcie 6", 64e9, "T/s", f"{_PCIE_BASE} 6.0, PAM4 and FLIT mode"),
    ("pcie 7", 128e9, "T/s", f"{_PCIE_BASE} 7.0, PAM4 and FLIT mode"),
    ("pcie flit", 256, "B", f"{_PCIE_BASE} 6.0, FLIT: 236 TLP + 6 DLP + 8 CRC + 6 FEC"),
    ("pcie flit tlp", 236, "B", f"{_PCIE_BASE} 6.0, FLIT: 236 TLP + 6 DLP + 8 CRC + 6 FEC"),
    (
        "pcie tlp overhead",
        24,
        "B",
        f"{_PCIE_BASE} 3.1, memory write with a 64-bit address: framing and sequence number 4, "
        "header 16, LCRC 4 (generations 1 and 2: framing 2, sequence number 2, the same sum)",
    ),
    (
        "pcie flit tlp overhead",
        16,
        "B",
        f"{_PCIE_BASE} 6.0, memory write with a 64-bit address: header 16, "
        "framing and LCRC replaced by the FLIT's own",
    ),
    ("nvlink 1", 20e9, "B/s", "NVIDIA Tesla P100 whitepaper (2016): 4 links, 160 GB/s both ways"),
    ("nvlink 2", 25e9, "B/s", "NVIDIA Tesla V100 whitepaper (2017): 6 links, 300 GB/s both ways"),
    ("nvlink 3", 25e9, "B/s", "NVIDIA A100 whitepaper (2020): 12 links, 600 GB/s both ways"),
    (
        "nvlink 3 ga10x",
        14.0625e9,
        "B/s",
        "NVIDIA Ampere GA102 whitepaper (2020): 4 links, 112.5 GB/s both ways",
    ),
    ("nvlink 4", 25e9, "B/s", "NVIDIA H100 whitepaper (2022): 18 links, 900 GB/s both ways"),
    ("nvlink 5", 50e9, "B/s", "NVIDIA Blackwell brief (2024): 18 links, 1.8 TB/s both ways"),
    ("xgmi gfx906", 46e9, "B/s", "AMD Instinct MI50/MI60 data sheet: 92 GB/s per link both ways"),
    ("xgmi gfx908", 46e9, "B/s", "AMD Instinct MI100 data sheet: 92 GB/s per link both ways"),
    (
        "xgmi gfx90a",
        50e9,
        "B/s",
        "AMD CDNA 2 whitepaper (2021): 16 bits at 25 GT/s, 100 GB/s per link both ways",
    ),
    (
        "xgmi gfx942",
        64e9,
        "B/s",
        "AMD CDNA 3 whitepaper (2023): 16 bits at 32 GT/s, 128 GB/s per link both ways",
    ),
    (
        "xgmi gfx950",
        76.8e9,
        "B/s",
        "AMD CDNA 4 whitepaper (2025): 16 bits at 38.4 GT/s, 153.6 GB/s per link both ways",
    ),
    (
        "xelink lane",
        53.125e9 / 8,
        "B/s",
        "Intel Data Center GPU Max 1550 specification: Xe Link at 53 Gb/s per lane, x4 links",
    ),
    ("c2c grace", 450e9, "B/s", "NVIDIA Grace Hopper whitepaper (2022): 900 GB/s both ways"),
    (
        "smp qpi 9.6",
        19.2e9,
        "B/s",
        "Intel, An Introduction to the QuickPath Interconnect (2009): 16 data bits per "
        "transfer; 9.6 GT/s with Xeon E5 v3 and v4",
    ),
    ("smp upi 10.4", 20.8e9, "B/s", "Intel Xeon Scalable 1st/2nd gen.: 16 data bits at 10.4 GT/s"),
    ("smp upi 11.2", 22.4e9, "B/s", "Intel Xeon Scalable 3rd gen.: 16 data bits at 11.2 GT/s"),
    ("smp upi 16", 48e9, "B/s", "Intel Xeon Scalable 4th gen.: 24 lanes at 16 GT/s, raw"),
    ("smp upi 20", 60e9, "B/s", "Intel Xeon Scalable 5th gen.: 24 lanes at 20 GT/s, raw"),
    ("smp xgmi naples", 18.95e9, "B/s", "AMD EPYC 7001 (Hot Chips 2017): 37.9 GB/s both ways"),
    ("smp xgmi rome", 32e9, "B/s", "AMD EPYC 7002/7003 (xGMI-2): 16 lanes at 16 GT/s, raw"),
    ("smp xgmi genoa", 64e9, "B/s", "AMD EPYC 9004/9005 (xGMI-3): 16 lanes at 32 GT/s, raw"),
    ("smp xbus", 64e9, "B/s", "IBM Power System AC922 Redpaper REDP-5494: 4 bytes at 16 GT/s"),
    ("ib sdr", 2e9, "b/s", f"{_IBTA}: 2.5 Gb/s, 8b/10b"),
    ("ib ddr", 4e9, "b/s", f"{_IBTA}: 5 Gb/s, 8b/10b"),
    ("ib qdr", 8e9, "b/s", f"{_IBTA}: 10 Gb/s, 8b/10b"),
    ("ib fdr10", 10e9, "b/s", f"{_IBTA}: 10.3125 Gb/s, 64b/66b"),
    ("ib fdr", 14.0625e9 * 64 / 66, "b/s", f"{_IBTA}: 14.0625 Gb/s, 64b/66b"),
    ("ib edr", 25e9, "b/s", f"{_IBTA}: 25.78125 Gb/s, 64b/66b"),
    ("ib hdr", 50e9, "b/s", f"{_IBTA}: 53.125 Gb/s PAM4"),
    ("ib ndr", 100e9, "b/s", f"{_IBTA}: 106.25 Gb/s PAM4"),
    ("ib xdr", 200e9, "b/s", f"{_IBTA}: 212.5 Gb/s PAM4"),
    (
        "ethernet",
        1.0,
        "b/s",
        "IEEE 802.3: the named speed is the data rate after line coding",
    ),
)

SOURCES: Final[dict[str, Constant]] = {
    key: Constant(key=key, value=value, unit=unit, source=source)
    for key, value, unit, source in _TABLE
}
"""Every constant of this module by its key."""

_LINE_CODING: Final = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130}

_NVLINK_OF_SM: Final = {60: 1, 70: 2, 72: 2, 75: 2, 80: 3, 86: 3, 90: 4, 100: 5, 103: 5}
"""NVLink generation of each compute capability that has NVLink (CUDA C++ Programming Guide,
table of compute capabilities; generation as in the whitepapers above)."""

_GA10X: Final = 86
_XGMI_NUMBERS: Final = {"906": "906", "908": "908", "910": "90a", "940": "942", "941": "942"}
"""RCCL's older numeric architecture names, and early steppings of gfx942."""


def pcie_generation(gigatransfers: float) -> int | None:
    """Generation that runs at so many GT/s per lane; ``None`` when none does.

    >>> pcie_generation(8.0)
    3
    """
    for generation in range(1, 8):
        rate = SOURCES[f"pcie {generation}"].value / 1e9
        if abs(gigatransfers - rate) <= 0.01 * rate:
            return generation
    return None


def pcie_Bps(
    generation: int | None,
    width: int | None,
    *,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
) -> float | None:
    """Payload bytes per second of a PCIe link in one direction.

    Parameters
    ----------
    generation
        1 to 7.
    width
        Lanes.
    max_payload_bytes
        Payload of a full packet (*Max Payload Size* of the path), 128 to 4096.

    Returns
    -------
    Bytes per second, or ``None`` where generation or width is unknown.

    Raises
    ------
    InputError
        When no packet can have that payload.

    >>> round(pcie_Bps(4, 16) / 1e9, 1)
    28.8
    """
    if not 1 <= max_payload_bytes <= 4096:
        raise InputError(
            f"PCIe payload of {max_payload_bytes} bytes", remedy="give 128 to 4096 bytes"
        )
    rate = SOURCES.get(f"pcie {generation}")
    if generation is None or rate is None or width is None or width < 1:
        return None
    if generation in _LINE_CODING:
        coding = _LINE_CODING[generation]
        overhead = SOURCES["pcie tlp overhead"].value
    else:
        coding = SOURCES["pcie flit tlp"].value / SOURCES["pcie flit"].value
        overhead = SOURCES["pcie flit tlp overhead"].value
    packet = max_payload_bytes / (max_payload_bytes + overhead)
    return rate.value * width / 8 * coding * packet


def nvlink_generation(compute_capability: int | None) -> int | None:
    """NVLink generation of a GPU by its compute capability times ten (``sm`` in NCCL's XML).

    >>> nvlink_generation(90)
    4
    """
    return None if compute_capability is None else _NVLINK_OF_SM.get(compute_capability)


def nvlink_Bps(
    generation: int | None, count: int | None = 1, *, compute_capability: int | None = None
) -> float | None:
    """Bytes per second of ``count`` parallel NVLinks in one direction.

    Parameters
    ----------
    generation
        1 to 5; ``None`` to take it from ``compute_capability``.
    count
        Links.
    compute_capability
        Times ten; GA10x parts (86) have slower links than their generation.

    Returns
    -------
    Bytes per second, or ``None`` where generation or count is unknown.

    >>> nvlink_Bps(4, 18)
    450000000000.0
    """
    if generation is None:
        generation = nvlink_generation(compute_capability)
    slim = compute_capability == _GA10X and generation == 3
    rate = SOURCES.get("nvlink 3 ga10x" if slim else f"nvlink {generation}")
    if generation is None or rate is None or count is None or count < 1:
        return None
    return rate.value * count


def xgmi_Bps(architecture: str | int | None, count: int | None = 1) -> float | None:
    """Bytes per second of ``count`` parallel xGMI links between AMD GPUs in one direction.

    Parameters
    ----------
    architecture
        ``gfx942``, with or without features (``gfx90a:sramecc+:xnack-``), or the number
        that RCCL's XML has in ``gcn``.
    count
        Links.

    Returns
    -------
    Bytes per second, or ``None`` where architecture or count is unknown.

    >>> xgmi_Bps("gfx90a:sramecc+:xnack-", 4)
    200000000000.0
    """
    match = re.match(r"(?:gfx)?([0-9a-f]{3,4})\b", str(architecture).strip().lower())
    if match is None or count is None or count < 1:
        return None
    rate = SOURCES.get(f"xgmi gfx{_XGMI_NUMBERS.get(match[1], match[1])}")
    return None if rate is None else rate.value * count


def xelink_Bps(lanes: int | None) -> float | None:
    """Bytes per second of an Xe Link connection of so many lanes (``XL16`` has 16).

    >>> xelink_Bps(4)
    26562500000.0
    """
    return None if lanes is None or lanes < 1 else SOURCES["xelink lane"].value * lanes


def smp_Bps(name: str, count: int | None = 1) -> float | None:
    """Bytes per second of ``count`` links between processors in one direction.

    Parameters
    ----------
    name
        What follows ``smp`` in :data:`SOURCES`, such as ``upi 16`` or ``xgmi genoa``.
    count
        Links.

    >>> smp_Bps("upi 10.4", 3)
    62400000000.0
    """
    rate = SOURCES.get(f"smp {name.lower()}")
    return None if rate is None or count is None or count < 1 else rate.value * count


def c2c_Bps(name: str = "grace") -> float | None:
    """Bytes per second between a processor and its GPU in one direction.

    >>> c2c_Bps()
    450000000000.0
    """
    rate = SOURCES.get(f"c2c {name.lower()}")
    return None if rate is None else rate.value


def ethernet_Bps(gigabits: float | None) -> float | None:
    """Bytes per second of an Ethernet port of so many Gb/s (Slingshot too).

    >>> ethernet_Bps(200)
    25000000000.0
    """
    if gigabits is None or not gigabits > 0:
        return None
    return gigabits * 1e9 * SOURCES["ethernet"].value / 8


def infiniband_Bps(rate: str | None, lanes: int | None = 4) -> float | None:
    """Bytes per second of an InfiniBand port.

    Parameters
    ----------
    rate
        ``SDR``, ``DDR``, ``QDR``, ``FDR10``, ``FDR``, ``EDR``, ``HDR``, ``NDR`` or ``XDR``.
    lanes
        1, 2, 4, 8 or 12; a port has 4 unless it is said otherwise (HDR100 has 2).

    >>> infiniband_Bps("NDR")
    50000000000.0
    """
    found = None if rate is None else SOURCES.get(f"ib {rate.strip().lower()}")
    return None if found is None or lanes is None or lanes < 1 else found.value * lanes / 8


def source_of(key: str) -> str:
    """Reference for a constant, for :class:`~topocal.topo.resource.Resource`'s ``source``.

    >>> source_of("nvlink 4")
    'NVIDIA H100 whitepaper (2022): 18 links, 900 GB/s both ways'

    Raises
    ------
    InputError
        When there is no such constant.
    """
    if key not in SOURCES:
        raise InputError(f"no constant called {key!r}", remedy="see topocal.topo.nominal.SOURCES")
    return SOURCES[key].source

"""Speeds in NCCL's own scale: what it reads from the words of a topology file.

References
----------
NVIDIA/nccl, src/graph/topo.cc: a PCIe link counts as ``link_width`` times its speed's figure in
units of 100 Mb/s per lane, over 80, in GB/s; an NVLink as ``count`` times a figure of the GPU's
compute capability (src/graph/topo.h); a network port as ``speed`` (Mb/s) over 8000.
"""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = [
    "SPEED_TEXT",
    "capability_of",
    "nccl_nvlink_Bps",
    "nccl_pcie_Bps",
    "nvlink_count",
    "pcie_words",
]

SPEED_TEXT: Final = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}
"""As Linux and NCCL spell the PCIe generations."""

_PER_LANE: Final = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}
"""100 Mb/s per lane (topo.cc, kvDictPciGen)."""

_REAL_WIDTHS: Final = (1, 2, 4, 8, 16, 32)
_MOST_WIDTH: Final = 128
_CLOSE: Final = 0.01
"""NCCL takes any number of lanes, so that a speed can be said within a hundredth from 10 GB/s."""

_NVLINK: Final = ((100, 40.1e9), (90, 20.6e9), (87, 20.0e9), (86, 12.0e9), (70, 20.0e9), (60, 18e9))
"""Least compute capability times ten, and bytes per second of one link (topo.h)."""


_OF_MODEL: Final = {
    **dict.fromkeys(("P100",), 60),
    **dict.fromkeys(("V100",), 70),
    **dict.fromkeys(("A100", "A800", "A30"), 80),
    **dict.fromkeys(("A40", "A6000", "A5000"), 86),
    **dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), 90),
    **dict.fromkeys(("B100", "B200", "GB200"), 100),
    **dict.fromkeys(("B300", "GB300"), 103),
}
"""Compute capability times ten (NVIDIA, "CUDA GPU Compute Capability") of cards with NVLink."""


def nccl_pcie_Bps(generation: int, width: int) -> float:
    """What NCCL takes a PCIe link for.

    >>> nccl_pcie_Bps(4, 16)
    24000000000.0
    """
    return _PER_LANE[generation] * width / 80 * 1e9


def pcie_words(rate_Bps: float) -> tuple[str, int]:
    """Speed and width that NCCL reads as this rate.

    Of those that come close, a width that slots have, and the nearest to 16 lanes.

    >>> pcie_words(24e9), pcie_words(27.4e9)
    (('16.0 GT/s PCIe', 16), ('5.0 GT/s PCIe', 73))
    """

    def error(words: tuple[int, int]) -> float:
        rate = nccl_pcie_Bps(*words)
        return max(rate / rate_Bps, rate_Bps / rate)

    for widths in (_REAL_WIDTHS, range(1, _MOST_WIDTH + 1)):
        ways = [(g, w) for w in widths for g in _PER_LANE]
        close = [words for words in ways if error(words) <= 1 + _CLOSE]
        if close:
            break
    best = min(close, key=lambda words: abs(math.log2(words[1] / 16))) if close else None
    generation, width = min(ways, key=error) if best is None else best
    return SPEED_TEXT[generation], width


def nccl_nvlink_Bps(compute_capability: int | None) -> float:
    """What NCCL takes one NVLink for; its figure for Ampere where the GPU is not known.

    >>> nccl_nvlink_Bps(90)
    20600000000.0
    """
    known = 80 if compute_capability is None else compute_capability
    return next((rate for least, rate in _NVLINK if known >= least), 20.0e9)


def capability_of(compute_capability: object, model: object) -> int | None:
    """A GPU's compute capability times ten: as it is stated, else by its model's name.

    >>> capability_of(None, "NVIDIA H100 80GB HBM3"), capability_of(70, ""), capability_of(None, "")
    (90, 70, None)
    """
    if isinstance(compute_capability, int):
        return compute_capability
    words = re.findall("[A-Z]+[0-9]+", str(model).upper())
    return next((_OF_MODEL[word] for word in words if word in _OF_MODEL), None)


def nvlink_count(rate_Bps: float, compute_capability: int | None) -> int:
    """How many NVLinks NCCL would take for that rate; one at least.

    >>> nvlink_count(360e9, 90)
    17
    """
    return max(1, round(rate_Bps / nccl_nvlink_Bps(compute_capability)))

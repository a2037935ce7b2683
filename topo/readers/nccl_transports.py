"""Which way NCCL sent, where its log stands between the lines of a benchmark.

With ``NCCL_DEBUG=INFO`` NCCL says of each channel what it goes through
(src/transport/{p2p,shm,net}.cc in NVIDIA/nccl): ``P2P`` from GPU to GPU, ``SHM`` through the
host's memory, ``NET`` over a network, by RDMA (``IB`` or a plugin's name) or by TCP
(``Socket``).  Two of these are worth a word, since rates are a fraction of what the hardware
could do: host memory, and TCP.  So is what NCCL says of pairs whose peer access is off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from topocal.topo.readers.class_matrix import some

__all__ = ["transport_notes"]

_CHANNEL: Final = re.compile(
    r"\b(?:Channel|Ring) [0-9]{1,4}(?:/[0-9]{1,4})? : ([0-9]{1,6})\[[0-9a-fA-F]{1,12}\] -> "
    r"([0-9]{1,6})\[[0-9a-fA-F]{1,12}\] (?:\[(?:send|receive)\] )?via (P2P|SHM|NET/Socket|NET)"
)
_DISABLED: Final = re.compile(
    r"P2P is disabled between (?:connected )?GPUs ([0-9]{1,6}) and ([0-9]{1,6})"
)
_MOST_PAIRS: Final = 10_000


def transport_notes(text: str, hosts: Mapping[int, str]) -> list[str]:
    """Sentences on pairs that NCCL did not send directly.

    Parameters
    ----------
    hosts
        Host of each rank, where it is known.
    """
    notes = []
    disabled = {
        (min(a, b), max(a, b))
        for a, b in ((int(m[1]), int(m[2])) for m in _DISABLED.finditer(text))
    }
    if disabled:
        notes.append(
            "NCCL says that peer access is off between GPUs "
            f"{some(f'{a} and {b}' for a, b in sorted(disabled))}: their copies go through host "
            "memory; look at IOMMU, ACS, virtualisation and the driver"
        )
    if " via " not in text:
        return notes
    pairs: dict[str, dict[tuple[int, int], None]] = {}
    for found in _CHANNEL.finditer(text):
        of_kind = pairs.setdefault(found[3], {})
        if len(of_kind) < _MOST_PAIRS:
            of_kind[int(found[1]), int(found[2])] = None

    def listed(chosen: list[tuple[int, int]]) -> str:
        return some(f"{a}->{b}" for a, b in sorted(chosen))

    if "SHM" in pairs:
        notes.append(
            f"NCCL sent through host memory (SHM), not from GPU to GPU, between ranks "
            f"{listed(list(pairs['SHM']))}: they reach each other no other way, or NCCL was told "
            "to (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL)"
        )
    if "NET/Socket" in pairs:
        notes.append(
            f"NCCL sent by TCP (NET/Socket), not by RDMA, between ranks "
            f"{listed(list(pairs['NET/Socket']))}"
        )
    inside = [
        (a, b)
        for kind in ("NET", "NET/Socket")
        for a, b in pairs.get(kind, ())
        if a in hosts and hosts[a] == hosts.get(b)
    ]
    if inside:
        notes.append(
            f"NCCL sent over the network between ranks {listed(inside)}, which are on one host"
        )
    return notes

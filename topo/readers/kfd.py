"""xGMI links as AMD's compute driver (amdkfd) lists them in sysfs.

Every GPU, and every processor with memory, is a node with ``properties`` and
``io_links``; a link names its ends, its type, a weight that grows with the
number of hops, and its bandwidth in MB/s.

References
----------
Linux kernel, drivers/gpu/drm/amd/amdkfd/kfd_topology.c; link types:
include/uapi of libhsakmt (``HSA_IOLINKTYPE_XGMI`` is 11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.readers.sockets import Sockets
from topocal.topo.resource import LinkKind

__all__ = ["connect_kfd"]

_NODE: Final = re.compile(
    r"devices/virtual/kfd/kfd/topology/nodes/([0-9]{1,4})/(?:io_links/([0-9]{1,4})/)?properties"
)
_XGMI: Final = 11
_MOST_LINKS: Final = 10_000
_SOURCE: Final = "amdkfd: max_bandwidth of the link"


def connect_kfd(
    builder: TopologyBuilder,
    files: Mapping[str, str],
    ids: Mapping[str, str],
    sockets: Sockets,
    memory_nodes: Sequence[int],
) -> int:
    """Add xGMI links between GPUs, and from processors to their GPUs.

    Parameters
    ----------
    files
        Content by path below ``/sys``.
    ids
        Node ids of the GPUs by PCI address.
    memory_nodes
        Numbers of the memory nodes that have processors, in order: the driver lists
        processors in the same order.

    Returns
    -------
    How many connections were added.
    """
    nodes: dict[int, dict[str, int]] = {}
    links: list[dict[str, int]] = []
    for path, text in files.items():
        if match := _NODE.fullmatch(path):
            said = _properties(text)
            if match[2] is None:
                nodes[int(match[1])] = said
            elif said.get("type") == _XGMI:
                links.append(said)
    gpus: dict[int, str] = {}
    processors: dict[int, str] = {}
    for number in sorted(nodes):
        said = nodes[number]
        if said.get("simd_count", 0) > 0:
            node = ids.get(_address(said))
            if node is not None:
                gpus[number] = node
        elif said.get("cpu_cores_count", 0) > 0 and len(processors) < len(memory_nodes):
            processors[number] = sockets.of(memory_nodes[len(processors)])
    return _connect(builder, gpus, processors, links[:_MOST_LINKS])


def _connect(
    builder: TopologyBuilder,
    gpus: Mapping[int, str],
    processors: Mapping[int, str],
    links: Sequence[Mapping[str, int]],
) -> int:
    nearest = min((w for link in links if (w := link.get("weight", 0)) > 0), default=0)
    ends = {**gpus, **processors}
    done: set[frozenset[str]] = set()
    for link in links:
        a, b = ends.get(link.get("node_from", -1)), ends.get(link.get("node_to", -1))
        if a is None or b is None or a == b or frozenset((a, b)) in done:
            continue
        direct = link.get("weight", 0) < 2 * nearest or nearest == 0
        to_processor = a in processors.values() or b in processors.values()
        if not direct or (a in processors.values() and b in processors.values()):
            continue
        done.add(frozenset((a, b)))
        megabytes = link.get("max_bandwidth", 0)
        builder.connect(
            *((b, a) if b in processors.values() else (a, b)),
            LinkKind.C2C if to_processor else LinkKind.XGMI,
            nominal_Bps=megabytes * 1e6 if megabytes else None,
            source=_SOURCE if megabytes else "",
        )
    return len(done)


def _address(said: Mapping[str, int]) -> str:
    """PCI address of a GPU; partitions of one GPU differ in the function only, and share 0."""
    where = said.get("location_id", 0)
    return f"{said.get('domain', 0):04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 0x1F:02x}.0"


def _properties(text: str) -> dict[str, int]:
    found = {}
    for line in text.split("\n"):
        if match := re.fullmatch(r"(\w{1,40}) ([0-9]{1,18})", line.strip()):
            found[match[1]] = int(match[2])
    return found

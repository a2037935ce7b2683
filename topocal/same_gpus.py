"""Which GPU of a topology a tool's number stands for.

``nvidia-smi``, and with it ``topo -m``, numbers GPUs by PCI address; CUDA, and with it every tool
that copies, puts the fastest first unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` is set.  On machines
with cards of several models the numbers differ.  Tools print the addresses of what they number:
where the topology has addresses too, they decide; where it has none, the order of addresses does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topocal.topo.naming import natural_key
from topocal.topo.readers.pci import bus_id_key
from topocal.topo.resource import NodeKind

if TYPE_CHECKING:
    from topocal.measure.importers.imported import Imported
    from topocal.topo.topology import Topology

__all__ = ["numbered_as_machine"]

_GPU: Final = re.compile(r"gpu[0-9]{1,6}")
_SHOWN: Final = 4


def numbered_as_machine(imported: Imported, machine: Topology) -> tuple[Imported, list[str]]:
    """What a tool measured, with the topology's numbers, and what is to be told of that."""
    addresses = {
        name: known["bus_id"]
        for name, known in imported.devices.items()
        if _GPU.fullmatch(name) and known.get("bus_id")
    }
    nodes = [
        node
        for node, data in machine.graph.nodes(data=True)
        if data.get("kind") == NodeKind.GPU and "/" not in node
    ]
    if len(addresses) < 2 or len(set(addresses.values())) < len(addresses) or not nodes:
        return imported, []
    of_address = {
        str(machine.graph.nodes[node]["bus_id"]): node
        for node in nodes
        if machine.graph.nodes[node].get("bus_id")
    }
    if of_address:
        if not set(addresses.values()) <= set(of_address):
            return imported, [
                "some PCI addresses of the measured GPUs are not in the topology: the two may be "
                "of different machines"
            ]
        names = {name: of_address[address] for name, address in addresses.items()}
    else:
        by_number = sorted(addresses, key=natural_key)
        by_address = sorted(addresses, key=lambda name: bus_id_key(addresses[name]))
        if by_number == by_address:
            return imported, []
        if len(addresses) != len(nodes):
            return imported, [
                "the tool does not number GPUs by PCI address, as nvidia-smi does, and measured "
                "not all of them: which is which of the topology is not known"
            ]
        names = dict(zip(by_address, sorted(nodes, key=natural_key), strict=True))
    changed = {old: names[old] for old in sorted(names, key=natural_key) if old != names[old]}
    if not changed:
        return imported, []
    shown = [f"{old} is {new}" for old, new in list(changed.items())[:_SHOWN]]
    more = len(changed) - len(shown)
    return imported.renamed(changed), [
        "the tool numbers GPUs otherwise than the topology; by PCI address its "
        + ", its ".join(shown)
        + (f" and {more} more" if more else "")
        + " here"
    ]

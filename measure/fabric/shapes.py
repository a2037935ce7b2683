"""Shapes that are no published machine, for fabrics only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from topocal.topo.errors import InputError, one_line
from topocal.topo.fabric import plain_switch
from topocal.topo.machines import MACHINES, build_machine
from topocal.topo.machines.server import Server
from topocal.topo.nominal import ethernet_Bps

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["SHAPES", "build_shape", "two_nodes"]


def two_nodes() -> Topology:
    """Two nodes of four GPUs, two to a PCIe switch, with a NIC each, on one network switch.

    PCIe 4.0 x16 everywhere but at the NIC, which has 5.0; its port is 400 Gb/s Ethernet.
    """
    server = Server("node", source="a shape of the emulated fabric", sockets=1, memory=False)
    for _ in range(2):
        switch = server.switch("socket0", 4, 16)
        for _ in range(2):
            server.gpu(switch, 4, 16)
    server.nic("socket0", 5, 16, network_Bps=ethernet_Bps(400))
    return plain_switch([server.done()] * 2, name="two-nodes")


SHAPES: Final[dict[str, Callable[[], Topology]]] = {"two-nodes": two_nodes}
"""By the name that people write."""


def build_shape(name: str) -> Topology:
    """A shape or a reference machine by its name.

    Raises
    ------
    InputError
        When there is neither.
    """
    if name in SHAPES:
        return SHAPES[name]()
    try:
        return build_machine(name)
    except InputError as error:
        known = ", ".join((*SHAPES, *MACHINES))
        raise InputError(
            f"no shape and no reference machine {one_line(name)!r}",
            remedy=f"give a file, or one of {known}",
        ) from error

"""What servers are built of, one call per part."""

from __future__ import annotations

from typing import Any

from topocal.topo.builder import TopologyBuilder
from topocal.topo.nominal import nvlink_Bps, pcie_Bps, source_of
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["Server"]


class Server:
    """A server in the making: sockets with memory, then switches, cards and links.

    Parameters
    ----------
    name
        What the machine is called.
    source
        The document that describes it.
    sockets
        How many, ``socket0`` and so on; each is joined to every other.
    smp_Bps, smp_source
        What passes between two sockets in one direction, and what says so.
    memory
        Whether each socket's memory (``mem0``) is an endpoint.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str,
        sockets: int = 2,
        smp_Bps: float | None = None,
        smp_source: str = "",
        memory: bool = True,
    ) -> None:
        self.build = TopologyBuilder(name)
        self.build.source(source)
        self._count = {"gpu": 0, "nic": 0, "switch": 0, "bridge": 0}
        for k in range(sockets):
            self.build.node(f"socket{k}", NodeKind.SOCKET, numa=k)
            for other in range(k):
                self.build.connect(
                    f"socket{other}",
                    f"socket{k}",
                    LinkKind.SMP,
                    nominal_Bps=smp_Bps,
                    source=smp_source,
                )
            if memory:
                self.build.node(f"mem{k}", NodeKind.MEMORY, numa=k)
                self.build.connect(f"mem{k}", f"socket{k}", LinkKind.MEMORY)

    def bridge(self, socket: int) -> str:
        """A host bridge (root complex) of a socket."""
        bridge = self._add("bridge", NodeKind.HOST_BRIDGE, numa=socket)
        self.build.connect(bridge, f"socket{socket}", LinkKind.UNKNOWN)
        return bridge

    def switch(self, parent: str, generation: int | None, width: int | None) -> str:
        """A PCIe switch under a socket, bridge or switch."""
        return self._on_pcie(self._add("switch", NodeKind.PCIE_SWITCH), parent, generation, width)

    def gpu(
        self, parent: str | None, generation: int | None, width: int | None, **attributes: Any
    ) -> str:
        """A GPU under a socket, bridge or switch."""
        card = self._add("gpu", NodeKind.GPU, **self._numbered("gpu", attributes))
        return card if parent is None else self._on_pcie(card, parent, generation, width)

    def nic(self, parent: str, generation: int | None, width: int | None, **attributes: Any) -> str:
        """A NIC under a socket, bridge or switch; ``network_Bps`` is what its port passes."""
        card = self._add("nic", NodeKind.NIC, **self._numbered("nic", attributes))
        return self._on_pcie(card, parent, generation, width)

    def nvlink(self, a: str, b: str, generation: int, count: int) -> None:
        """Parallel NVLinks between two nodes."""
        self.build.connect(
            a,
            b,
            LinkKind.NVLINK,
            nominal_Bps=nvlink_Bps(generation, count),
            source=source_of(f"nvlink {generation}"),
            generation=generation,
            count=count,
        )

    def nvswitch(self, gpus: list[str], generation: int, count: int) -> None:
        """One node for all NVSwitches, over which a GPU's links spread its traffic evenly."""
        switch = self.build.node("nvswitch0", NodeKind.NVSWITCH)
        for gpu in gpus:
            self.nvlink(gpu, switch, generation, count)

    def done(self) -> Topology:
        """The topology."""
        return self.build.build()

    def _numbered(self, word: str, attributes: dict[str, Any]) -> dict[str, Any]:
        return {"index": self._count[word]} | attributes

    def _add(self, word: str, kind: NodeKind, **attributes: Any) -> str:
        node = self.build.node(f"{word}{self._count[word]}", kind, **attributes)
        self._count[word] += 1
        return node

    def _on_pcie(self, id: str, parent: str, generation: int | None, width: int | None) -> str:
        known: dict[str, Any] = {"generation": generation, "width": width}
        self.build.connect(
            id,
            parent,
            LinkKind.PCIE,
            nominal_Bps=pcie_Bps(generation, width),
            source=source_of(f"pcie {generation}") if generation else "",
            **{name: value for name, value in known.items() if value is not None},
        )
        return id

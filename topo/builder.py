"""Assembling a :class:`~topocal.topo.topology.Topology` step by step."""

from __future__ import annotations

from typing import Any

import networkx as nx

from topocal.topo.errors import TopologyError
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology, natural_key

__all__ = ["TopologyBuilder"]


class TopologyBuilder:
    """Collects nodes, links and resources; :meth:`build` makes the topology.

    Parameters
    ----------
    name
        What the machine is called.
    """

    def __init__(self, name: str) -> None:
        self._graph = nx.MultiDiGraph()
        self._name = name
        self._resources: dict[str, Resource] = {}
        self._uses: list[Use] = []
        self._provenance: list[str] = []
        self._notes: list[str] = []
        self.peer_access: bool | None = None
        self.no_peer_pairs: list[list[str]] = []
        self.stated_classes: list[list[str]] = []
        self.class_overrides: list[list[str]] = []

    def __contains__(self, node: object) -> bool:
        return node in self._graph

    def node(self, id: str, kind: NodeKind, *, label: str = "", **attributes: Any) -> str:
        """Add a node and return its id.

        Raises
        ------
        TopologyError
            When the id is taken.
        """
        if id in self._graph:
            raise TopologyError(f"two nodes are called {id}", remedy="give each its own id")
        self._graph.add_node(id, kind=kind, label=label, **attributes)
        return id

    def connect(
        self,
        a: str,
        b: str,
        kind: LinkKind,
        *,
        nominal_Bps: float | None = None,
        back_Bps: float | None = None,
        sharing: Sharing = Sharing.CAPACITY,
        uses: tuple[tuple[str, float], ...] = (),
        resources: tuple[str, str] | None = None,
        source: str = "",
        **attributes: Any,
    ) -> tuple[str, str]:
        """Join two nodes by a link in each direction, each with its own resource.

        Parameters
        ----------
        nominal_Bps, back_Bps
            Payload bytes per second from a to b, and back (default: the same).
        sharing
            ``DUPLEX`` makes one resource of both directions; ``FATPIPE`` one
            each that is not shared.
        uses
            Further resources that both directions load.
        resources
            Resources that exist already and that the two directions load instead of
            their own: two ports of one card share the card's link.
        source
            Where the nominal capacity comes from.

        Returns
        -------
        The ids of the link from a to b and of the one back.
        """
        number = self._graph.number_of_edges(a, b) + 1
        suffix = "" if number == 1 else f"#{number}"
        forth, back = f"{a}->{b}{suffix}", f"{b}->{a}{suffix}"
        back_Bps = nominal_Bps if back_Bps is None else back_Bps
        shared = f"{a}<->{b}{suffix}"
        for link, tail, head, other, rate in (
            (forth, a, b, back, nominal_Bps),
            (back, b, a, forth, back_Bps),
        ):
            if resources is not None:
                resource = resources[0] if link == forth else resources[1]
            else:
                resource = shared if sharing is Sharing.DUPLEX else link
                self.resource(
                    Resource(id=resource, sharing=sharing, nominal_Bps=rate, source=source)
                )
            self._graph.add_edge(
                tail,
                head,
                key=link,
                kind=kind,
                nominal_Bps=rate,
                uses=((resource, 1.0), *uses),
                reverse=other,
                **attributes,
            )
        return forth, back

    def include(self, topology: Topology) -> None:
        """Add all that another topology has: nodes, links, resources, pairs, notes.

        Raises
        ------
        TopologyError
            When a node of it is here already.
        """
        graph = topology.graph
        for node, data in graph.nodes(data=True):
            if node in self._graph:
                raise TopologyError(f"two nodes are called {node}", remedy="give each its own id")
            self._graph.add_node(node, **data)
        self._graph.add_edges_from(graph.edges(keys=True, data=True))
        self._resources.update(topology.resources)
        self._uses.extend(topology.uses)
        for name in ("no_peer_pairs", "stated_classes", "class_overrides"):
            getattr(self, name).extend(graph.graph.get(name) or ())
        for known, new in ((self._provenance, "provenance"), (self._notes, "notes")):
            known.extend(text for text in graph.graph.get(new) or () if text not in known)

    def resource(self, resource: Resource) -> str:
        """Add (or replace) a resource and return its id."""
        self._resources[resource.id] = resource
        return resource.id

    def use(self, use: Use) -> None:
        """Let flows load a resource that no link shows."""
        self._uses.append(use)

    def source(self, text: str) -> None:
        """Note where part of the description comes from."""
        self._provenance.append(text)

    def note(self, text: str) -> None:
        """Tell the user something about the input: a cut row, an assumption, a contradiction."""
        self._notes.append(text)

    def build(self) -> Topology:
        """The topology.

        Raises
        ------
        TopologyError
            When it contradicts itself.
        """
        self._graph.graph.update(
            name=self._name,
            resources=dict(sorted(self._resources.items(), key=lambda i: natural_key(i[0]))),
            uses=self._uses,
            peer_access=self.peer_access,
            no_peer_pairs=self.no_peer_pairs,
            stated_classes=self.stated_classes,
            class_overrides=self.class_overrides,
            provenance=self._provenance,
            notes=self._notes,
        )
        return Topology(self._graph)

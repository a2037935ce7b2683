"""Assembling a :class:`~topocal.topo.topology.Topology` step by step."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, TypeVar

import networkx as nx

from topocal.topo.errors import TopologyError, one_line
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology, natural_key
from topocal.topo.wanted import is_amount

__all__ = ["TopologyBuilder"]

_Kind = TypeVar("_Kind", bound=StrEnum)


class TopologyBuilder:
    """Collects nodes, links and resources; :meth:`build` makes the topology.

    Parameters
    ----------
    name
        What the machine is called.

    A topology that was built does not change any more, and so a builder builds one only.

    >>> import topocal as tc
    >>> builder = tc.TopologyBuilder("two cards")
    >>> switch = builder.node("switch0", tc.NodeKind.PCIE_SWITCH)
    >>> for name in ("gpu0", "gpu1"):
    ...     gpu = builder.node(name, "gpu")  # The word will do.
    ...     links = builder.connect(gpu, switch, tc.LinkKind.PCIE, nominal_Bps=27e9)
    >>> links
    ('gpu1->switch0', 'switch0->gpu1')
    >>> topology = builder.build()
    >>> topology.endpoints
    ('gpu0', 'gpu1')
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

    def node(self, id: str, kind: NodeKind | str, *, label: str = "", **attributes: Any) -> str:
        """Add a node and return its id.

        Parameters
        ----------
        kind
            What it is, or the word for it: ``"gpu"``, ``"pcie-switch"``.

        Raises
        ------
        TopologyError
            When the id is taken or empty, the kind is none, or the topology is built.
        """
        self._require_open()
        if not isinstance(id, str) or not id:
            raise TopologyError(f"a node is called {one_line(repr(id))}", remedy="give it a name")
        kind = _word(kind, NodeKind, f"node {one_line(id)}")
        if id in self._graph:
            raise TopologyError(f"two nodes are called {id}", remedy="give each its own id")
        self._graph.add_node(id, kind=kind, label=label, **attributes)
        return id

    def connect(
        self,
        a: str,
        b: str,
        kind: LinkKind | str,
        *,
        nominal_Bps: float | None = None,
        back_Bps: float | None = None,
        sharing: Sharing | str = Sharing.CAPACITY,
        uses: tuple[tuple[str, float], ...] = (),
        resources: tuple[str, str] | None = None,
        source: str = "",
        **attributes: Any,
    ) -> tuple[str, str]:
        """Join two nodes by a link in each direction, each with its own resource.

        Parameters
        ----------
        kind
            What it is made of, or the word for it: ``"pcie"``, ``"nvlink"``.
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

        Raises
        ------
        TopologyError
            When a node is not there yet, a kind is none, a rate is no number from zero on,
            or the topology is built.
        """
        self._require_open()
        kind = _word(kind, LinkKind, f"link {one_line(a)}->{one_line(b)}")
        sharing = _word(sharing, Sharing, f"sharing of {one_line(a)}->{one_line(b)}")
        for end in (a, b):
            if end not in self._graph:
                raise TopologyError(
                    f"link {one_line(a)}->{one_line(b)}: no node {one_line(end)}",
                    remedy=f"add it first: node({one_line(end)!r}, kind)",
                )
        for rate in (nominal_Bps, back_Bps):
            if rate not in (None, math.inf) and not is_amount(rate):
                raise TopologyError(
                    f"link {one_line(a)}->{one_line(b)} passes {one_line(repr(rate))}",
                    remedy="give bytes per second as a number, or None for unknown",
                )
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
            When a node of it is here already, or the topology is built.
        """
        self._require_open()
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
        """Add (or replace) a resource and return its id.

        Raises
        ------
        TopologyError
            When the topology is built.
        """
        self._require_open()
        self._resources[resource.id] = resource
        return resource.id

    def use(self, use: Use) -> None:
        """Let flows load a resource that no link shows.

        Raises
        ------
        TopologyError
            When the topology is built.
        """
        self._require_open()
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

    def _require_open(self) -> None:
        if nx.is_frozen(self._graph):
            raise TopologyError(
                f"the topology {one_line(self._name)} is built",
                remedy="add all before build(), or take a new TopologyBuilder and include() it",
            )


def _word(value: _Kind | str, kinds: type[_Kind], what: str) -> _Kind:
    """A member of an enumeration, from itself or from its word.

    Raises
    ------
    TopologyError
        When there is none; names all.
    """
    if isinstance(value, kinds):
        return value
    try:
        return kinds(value)
    except ValueError as error:
        known = ", ".join(str(kind) for kind in kinds)
        raise TopologyError(
            f"{what} is of kind {one_line(repr(value))}", remedy=f"use one of {known}"
        ) from error

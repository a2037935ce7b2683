"""The machine: a networkx graph, the resources on it and who loads them.

Data flows one way: a reader or :mod:`topocal.topo.builder` makes the graph,
:mod:`topocal.topo.routing` finds routes on it, :mod:`topocal.topo.incidence`
turns flows into loads.

Graph attributes (networkx functions work on the graph as it is)
----------------------------------------------------------------
``graph.graph``
    ``name``: str; ``resources``: ``{id: Resource}``; ``uses``: ``list[Use]``;
    ``peer_access``: bool or None, whether GPUs may copy to each other directly
    (None: nothing says so); ``no_peer_pairs``: ``[[a, b], …]``, pairs that may not,
    in either direction; ``class_overrides``: ``[[a, b, "PIX"], …]``, path classes
    that hold whatever a route crosses; ``stated_classes``: the same form, what a
    file said, for comparison only; ``provenance``: ``list[str]``; ``notes``:
    ``list[str]``, what the reader has to tell the user.
``graph.nodes[n]``
    ``kind``: :class:`NodeKind`; ``label``: str; anything else that the source
    says (``bus_id``, ``numa``, ``host``, ``model``, …) as JSON values.
``graph.edges[tail, head, key]``
    ``key`` is the link id; ``kind``: :class:`LinkKind`; ``nominal_Bps``: float
    or None; ``uses``: ``((resource id, weight), …)``; ``reverse``: the id of the
    other direction or None; anything else that the source says
    (``generation``, ``width``, ``count``, …) as JSON values.  ``path_class`` (a
    name such as ``"NODE"``) is the class of a route that is this link alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx

from topocal.topo.errors import TopologyError, UnknownEndpointError, Where
from topocal.topo.naming import natural_key
from topocal.topo.resource import Link, NodeKind, Resource, Use
from topocal.topo.validation import Problem, doubts, inconsistencies

if TYPE_CHECKING:
    from topocal.topo.router import Router
    from topocal.topo.routing import Routes
    from topocal.topo.rules import Rules

__all__ = ["Problem", "Topology", "natural_key"]

_LINK_FIELDS = frozenset({"kind", "nominal_Bps", "uses", "reverse"})


class Topology:
    """A machine: nodes, directed links, resources and the flows that load them.

    The graph is frozen on construction; changes make a new topology
    (:meth:`with_resources`).  Equality is of content.

    Parameters
    ----------
    graph
        Attributes as in this module's docstring.

    Raises
    ------
    TopologyError
        When an attribute that the code relies on is missing or contradicts another.
    """

    def __init__(self, graph: nx.MultiDiGraph) -> None:
        self.graph: nx.MultiDiGraph = nx.freeze(graph)
        serious = inconsistencies(graph)
        if serious:
            raise TopologyError(
                serious[0].about + ": " + serious[0].what, remedy=serious[0].remedy, about=serious
            )

    @property
    def name(self) -> str:
        """What the machine is called."""
        return str(self.graph.graph.get("name", ""))

    @cached_property
    def endpoints(self) -> tuple[str, ...]:
        """Ids of all nodes where bytes may begin or end, in natural order."""
        found = (n for n, kind in self.graph.nodes(data="kind") if kind.is_endpoint)
        return tuple(sorted(found, key=natural_key))

    @cached_property
    def _endpoint_set(self) -> frozenset[str]:
        return frozenset(self.endpoints)

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """Ids of the GPUs, in natural order; what patterns are about unless told otherwise."""
        return tuple(n for n in self.endpoints if self.graph.nodes[n]["kind"] is NodeKind.GPU)

    @cached_property
    def links(self) -> dict[str, Link]:
        """Every link by id, in natural order."""
        found = {
            key: Link(
                id=key,
                tail=tail,
                head=head,
                **{k: v for k, v in data.items() if k in _LINK_FIELDS},
            )
            for tail, head, key, data in self.graph.edges(keys=True, data=True)
        }
        return dict(sorted(found.items(), key=lambda item: natural_key(item[0])))

    @property
    def resources(self) -> dict[str, Resource]:
        """Every resource by id, in natural order."""
        table: dict[str, Resource] = self.graph.graph["resources"]
        return table

    @property
    def uses(self) -> tuple[Use, ...]:
        """Loads that no link shows."""
        return tuple(self.graph.graph["uses"])

    def routes(self, endpoints: Sequence[str] | None = None) -> Routes:
        """Deterministic routes between all pairs of ``endpoints`` (default: the accelerators,
        or all endpoints where there are none); kept after the first call."""
        from topocal.topo.routing import all_pairs_routes

        chosen = tuple(endpoints) if endpoints is not None else self.accelerators or self.endpoints
        if chosen not in self._routes:
            self._routes[chosen] = all_pairs_routes(self, chosen)
        return self._routes[chosen]

    @cached_property
    def _routes(self) -> dict[tuple[str, ...], Routes]:
        return {}

    @cached_property
    def router(self) -> Router:
        """What all routes on this topology have in common."""
        from topocal.topo.router import Router

        return Router(self)

    @cached_property
    def rules(self) -> Rules:
        """What flows load, as arrays."""
        from topocal.topo.rules import Rules

        return Rules.of(self)

    def require_endpoints(self, names: Iterable[str], *, where: Where | None = None) -> None:
        """Check that all ``names`` are endpoints.

        Raises
        ------
        UnknownEndpointError
            For the first that is not.
        """
        for name in names:
            if name not in self._endpoint_set:
                raise UnknownEndpointError(name, self.endpoints, where=where)

    def with_resources(self, resources: Iterable[Resource], uses: Iterable[Use] = ()) -> Topology:
        """A copy with ``resources`` added or replaced (by id), and further ``uses``."""
        graph = self.graph.copy()
        table = self.resources | {r.id: r for r in resources}
        graph.graph["resources"] = dict(sorted(table.items(), key=lambda i: natural_key(i[0])))
        graph.graph["uses"] = [*self.uses, *uses]
        changed = self._rerouted(Topology(graph))
        if "links" in self.__dict__:
            changed.__dict__["links"] = self.links
        return changed

    def without_resources(self, names: Iterable[str]) -> Topology:
        """A copy without some resources, and without the uses of them."""
        gone = set(names)
        graph = self.graph.copy()
        graph.graph["resources"] = {k: r for k, r in self.resources.items() if k not in gone}
        graph.graph["uses"] = [use for use in self.uses if use.resource not in gone]
        for _, _, data in graph.edges(data=True):
            data["uses"] = tuple(use for use in data["uses"] if use[0] not in gone)
        return self._rerouted(Topology(graph))

    def _rerouted(self, changed: Topology) -> Topology:
        """Routes do not depend on resources: a copy that differs in them alone keeps the routes."""
        changed.__dict__["_routes"] = self._routes
        for known in ("endpoints", "_endpoint_set", "accelerators", "router"):
            if known in self.__dict__:
                changed.__dict__[known] = self.__dict__[known]
        return changed

    def validate(self) -> list[Problem]:
        """Every problem with its remedy, the harmless ones included; empty when all is well."""
        return inconsistencies(self.graph) + doubts(self)

    def _content(self) -> tuple[Any, ...]:
        graph = self.graph
        return (
            dict(graph.graph),
            dict(graph.nodes(data=True)),
            {
                key: (tail, head, data)
                for tail, head, key, data in graph.edges(keys=True, data=True)
            },
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<Topology {self.name!r}: {len(self.endpoints)} endpoints, "
            f"{len(self.links)} links, {len(self.resources)} resources>"
        )

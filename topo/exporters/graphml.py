"""GraphML: a topology with its figures, for yEd, Gephi, igraph, networkx.

A directed multigraph: an edge for each link of each direction, its key the link's id.  Every
attribute has one type in the whole file.  Resources stand as JSON in the graph's attribute
``resources``, with those that no link shows.

References
----------
GraphML Primer (graphml.graphdrawing.org), attributes with ``attr.type``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from topocal.topo.exporters.flat import (
    Plain,
    link_attributes,
    node_attributes,
    resource_records,
)
from topocal.topo.exporters.ids import distinct_ids
from topocal.topo.exporters.xml_text import quoted, xml_safe

if TYPE_CHECKING:
    from topocal.topo.exporters.figures import Figures
    from topocal.topo.topology import Topology

__all__ = ["to_graphml"]

_HEAD: Final = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
    'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">'
)


def to_graphml(topology: Topology, figures: Figures) -> str:
    """The topology as GraphML."""
    graph = topology.graph
    nodes = {str(n): node_attributes(data) for n, data in graph.nodes(data=True)}
    edges = {
        key: (tail, head, link_attributes(topology, figures, key, data))
        for tail, head, key, data in graph.edges(keys=True, data=True)
    }
    about: dict[str, Plain] = {
        "name": xml_safe(topology.name),
        "resources": _json(resource_records(topology, figures)),
        "notes": _json(list(graph.graph.get("notes") or ())),
        "provenance": _json(list(graph.graph.get("provenance") or ())),
    }
    keys = _Keys()
    keys.add("graph", [about])
    keys.add("node", nodes.values())
    keys.add("edge", [attributes for _, _, attributes in edges.values()])
    lines = [_HEAD, *keys.lines(), '  <graph edgedefault="directed">']
    lines += keys.data("graph", about, "    ")
    names = distinct_ids(nodes)
    for name, attributes in nodes.items():
        lines.append(f"    <node id={quoted(names[name])}>")
        lines += keys.data("node", attributes, "      ")
        lines.append("    </node>")
    ids = distinct_ids(edges)
    for key, (tail, head, attributes) in edges.items():
        ends = f"source={quoted(names[tail])} target={quoted(names[head])}"
        lines.append(f"    <edge id={quoted(ids[key])} {ends}>")
        lines += keys.data("edge", attributes, "      ")
        lines.append("    </edge>")
    return "\n".join([*lines, "  </graph>", "</graphml>"]) + "\n"


class _Keys:
    """The attributes that occur, each of one type: that of all its values, or text."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], str] = {}

    def add(self, domain: str, records: Iterable[Mapping[str, Plain]]) -> None:
        for record in records:
            for name, value in record.items():
                found = _type_of(value)
                known = self._types.setdefault((domain, name), found)
                if known != found:
                    numbers = {known, found} <= {"long", "double"}
                    self._types[domain, name] = "double" if numbers else "string"

    def lines(self) -> list[str]:
        return [
            f'  <key id="d{k}" for="{domain}" attr.name={quoted(name)} attr.type="{type_}"/>'
            for k, ((domain, name), type_) in enumerate(self._types.items())
        ]

    def data(self, domain: str, record: Mapping[str, Plain], indent: str) -> list[str]:
        number = {key: k for k, key in enumerate(self._types)}
        return [
            f'{indent}<data key="d{number[domain, name]}">{_text(value)}</data>'
            for name, value in record.items()
        ]


def _type_of(value: Plain) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    return "double" if isinstance(value, float) else "string"


def _text(value: Plain) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return quoted(text)[1:-1]


def _json(value: object) -> str:
    return xml_safe(msgspec.json.encode(value).decode())

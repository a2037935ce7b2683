"""Graphviz DOT: a drawing of a topology, its links labelled with what they pass.

Two directions of a connection that pass the same are one line with two heads; where they
differ, each is drawn.  Width grows with capacity; what no measurement says is dashed.

References
----------
Graphviz, "The DOT Language": a quoted id is any text in which double quotes are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from topocal.topo.errors import printable
from topocal.topo.exporters.figures import Figure, Figures, link_figure
from topocal.topo.exporters.ids import distinct_ids
from topocal.topo.naming import natural_key
from topocal.topo.resource import NodeKind
from topocal.topo.units import format_rate

if TYPE_CHECKING:
    from topocal.topo.resource import Link
    from topocal.topo.topology import Topology

__all__ = ["to_dot"]

_SHAPE: Final = {
    NodeKind.GPU: "box",
    NodeKind.NIC: "component",
    NodeKind.MEMORY: "cylinder",
    NodeKind.CPU: "box3d",
    NodeKind.SOCKET: "octagon",
    NodeKind.HOST_BRIDGE: "trapezium",
    NodeKind.GROUP: "octagon",
}
"""Switches are ellipses."""

_THICKEST: Final = 6.0
_AT_LEAST: Final = ("bounded", "series")
_DASHED: Final = ("nominal", "assumed", "unknown")


def to_dot(topology: Topology, figures: Figures) -> str:
    """The topology as a directed graph in the DOT language."""
    lines = [
        f"digraph {_quoted(topology.name or 'machine')} {{",
        '  graph [rankdir=TB, fontname="Helvetica"];',
        '  node [fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
    ]
    ids = distinct_ids(topology.graph.nodes, printable)
    hosts: dict[str, list[str]] = {}
    for name in sorted(topology.graph.nodes, key=natural_key):
        hosts.setdefault(str(topology.graph.nodes[name].get("host") or ""), []).append(name)
    for k, (host, names) in enumerate(hosts.items()):
        inside = [f"  {_node(topology, ids[name], name)}" for name in names]
        if host and len(hosts) > 1:
            lines += [f"  subgraph cluster_{k} {{", f"    label={_quoted(host)};"]
            lines += [f"  {line}" for line in inside] + ["  }"]
        else:
            lines += inside
    lines += [f"  {line}" for line in _edges(topology, figures, ids)]
    return "\n".join([*lines, "}"]) + "\n"


def _node(topology: Topology, id: str, name: str) -> str:
    data = topology.graph.nodes[name]
    words = [id, *(str(data[key]) for key in ("label", "model") if data.get(key))]
    shape = _SHAPE.get(data["kind"], "ellipse")
    return f"{_quoted(id)} [shape={shape}, label={_quoted(*words)}];"


def _edges(topology: Topology, figures: Figures, ids: dict[str, str]) -> Iterator[str]:
    drawn: set[str] = set()
    most = max(
        (f.capacity_Bps or 0.0 for f in figures.values() if math.isfinite(f.capacity_Bps or 0.0)),
        default=0.0,
    )
    for name, link in topology.links.items():
        if name in drawn:
            continue
        figure = link_figure(topology, figures, link)
        back = topology.links.get(link.reverse or "")
        both = back is not None and link_figure(topology, figures, back) == figure
        if both and back is not None:
            drawn.add(back.id)
        ends = f"{_quoted(ids[link.tail])} -> {_quoted(ids[link.head])}"
        yield f"{ends} [{', '.join(_style(link, figure, most, both=both))}];"


def _style(link: Link, figure: Figure | None, most_Bps: float, *, both: bool) -> list[str]:
    rate = None if figure is None else figure.capacity_Bps
    known = rate is not None and math.isfinite(rate)
    least = "at least " if figure is not None and figure.status in _AT_LEAST else ""
    words = [str(link.kind), least + format_rate(rate) if known and rate is not None else "?"]
    style = [f"label={_quoted(*words)}"]
    if both:
        style.append("dir=both")
    if known and rate and most_Bps > 0:
        # A tenth of the fastest is half as thick.
        share = 1 + math.log10(max(rate / most_Bps, 1e-2)) / 2
        style.append(f"penwidth={max(1.0, _THICKEST * share):.2f}")
    if figure is None or figure.status in _DASHED:
        style.append("style=dashed")
    return style


def _quoted(*words: str) -> str:
    """A quoted id of one or several lines; a backslash means nothing of its own in it."""
    clean = (printable(word).replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return '"' + "\\n".join(clean) + '"'

"""A topology as an SVG drawing.

Each machine is a box: its GPU fabric as a ring of chords at the left, its trees
from the sockets to the endpoints at the right.  Machines stand under each other,
network switches to their right.  Machines that differ in nothing but names are
drawn once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from topocal.topo.render.drawing import Box, Drawing, Line, Text, shorten, text_width
from topocal.topo.render.network_panel import draw_network
from topocal.topo.render.outline import Machine, Outline, outline
from topocal.topo.render.ring_panel import draw_ring
from topocal.topo.render.sharing import list_names
from topocal.topo.render.tree_panel import draw_trees
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology

__all__ = ["count_kinds", "draw", "render_svg", "to_svg"]

_MARGIN: Final = 20.0
_PADDING: Final = 16.0
_TITLE: Final = 16.0
_TALL: Final = 1000.0
_MOST_ALIKE: Final = 2
"""More machines of one shape are drawn once."""

_KIND_WORDS: Final = {
    NodeKind.GPU: ("GPU", "GPUs"),
    NodeKind.NIC: ("NIC", "NICs"),
    NodeKind.MEMORY: ("memory node", "memory nodes"),
    NodeKind.CPU: ("CPU", "CPUs"),
    NodeKind.PCIE_SWITCH: ("PCIe switch", "PCIe switches"),
    NodeKind.HOST_BRIDGE: ("host bridge", "host bridges"),
    NodeKind.SOCKET: ("socket", "sockets"),
    NodeKind.NVSWITCH: ("fabric switch", "fabric switches"),
    NodeKind.NET_SWITCH: ("network switch", "network switches"),
    NodeKind.GROUP: ("group", "groups"),
}


def count_kinds(topology: Topology) -> str:
    """How many nodes of each kind there are, in words.

    >>> from topocal.topo.machines import b70
    >>> count_kinds(b70())
    '8 GPUs · 4 PCIe switches · 2 sockets'
    """
    found = Counter(kind for _, kind in topology.graph.nodes(data="kind"))
    return " · ".join(
        f"{found[kind]} {_KIND_WORDS[kind][found[kind] != 1]}"
        for kind in _KIND_WORDS
        if found[kind]
    )


def render_svg(topology: Topology) -> str:
    """The drawing of a topology as SVG text.

    Parameters
    ----------
    topology
        Any; with many endpoints the drawing is long rather than small.
    """
    return to_svg(draw(topology), title=shorten(topology.name or "topology", 80))


def to_svg(drawing: Drawing, *, title: str) -> str:
    """SVG text of any drawing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("topocal.topo.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["px"] = _pixels
    return environment.get_template("drawing.svg.j2").render(drawing=drawing, title=title)


def _pixels(value: float) -> str:
    """A length with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def draw(topology: Topology) -> Drawing:
    """The drawing of a topology."""
    return _Page(topology, outline(topology)).draw()


@dataclass(frozen=True, slots=True)
class _Group:
    """Machines of one shape that are drawn as the first of them."""

    machine: Machine
    others: tuple[Machine, ...] = ()

    @property
    def names(self) -> list[str]:
        return [m.name or m.nodes[0] for m in (self.machine, *self.others)]


class _Page:
    def __init__(self, topology: Topology, parts: Outline) -> None:
        self._topology = topology
        self._parts = parts
        self._page = Drawing()
        self._right: dict[str, tuple[float, float]] = {}
        self._edges: dict[str, float] = {}
        self._same: dict[str, str] = {}

    def draw(self) -> Drawing:
        page = self._page
        name = shorten(self._topology.name or "topology", 60)
        page.texts.append(
            Text(x=_MARGIN, y=_MARGIN + _TITLE, text=name, size=_TITLE, style="title")
        )
        counts = count_kinds(self._topology)
        y = _MARGIN + _TITLE + 20
        page.texts.append(Text(x=_MARGIN, y=y, text=counts, style="quiet"))
        top = y + 16
        bottom = self._machines(top)
        if self._parts.switches:
            self._network(top, bottom - top)
        page.fit(_MARGIN)
        foot = "figures are nominal payload in one direction; what none is given for is unknown"
        page.texts.append(Text(x=_MARGIN, y=page.height + 8, text=foot, style="quiet", size=11))
        page.fit(_MARGIN)
        return page

    def _machines(self, y: float) -> float:
        """Boxes of machines under each other; where the last ends."""
        for group in _groups(self._parts.machines):
            inner = self._machine(group.machine)
            title = self._title(group)
            head = 24.0 if title else 0.0
            width = max(inner.width, text_width(title)) + 2 * _PADDING
            height = inner.height + head + 2 * _PADDING
            self._page.boxes.append(
                Box(x=_MARGIN, y=y, width=width, height=height, style="machine")
            )
            if title:
                self._page.texts.append(
                    Text(x=_MARGIN + _PADDING, y=y + 22, text=title, style="head")
                )
            dx, dy = _MARGIN + _PADDING, y + head + _PADDING
            self._page.place(inner, dx, dy)
            for node in group.machine.nodes:
                if node in self._right:
                    x0, y0 = self._right[node]
                    self._right[node] = (x0 + dx, y0 + dy)
                    self._edges[node] = _MARGIN + width
            for other in group.others:
                self._same.update(zip(other.nodes, group.machine.nodes, strict=True))
            y += height + 16
        return y - 16

    def _title(self, group: _Group) -> str:
        if group.others:
            return f"{list_names(group.names)} ({len(group.names)} alike)"
        if len(self._parts.machines) == 1:
            return ""
        return shorten(group.names[0])

    def _machine(self, machine: Machine) -> Drawing:
        """Ring and trees side by side."""
        both = Drawing()
        name_of = self._short_names(machine)
        trees, ends = draw_trees(_without_ring(machine), name_of, self._note)
        x = down = 0.0
        if machine.peers:
            ring = draw_ring(machine, self._own_names(machine), self._kind)
            # In the middle, but where the trees are tall in sight from the top.
            both.place(ring, 0.0, max(0.0, (min(trees.height, _TALL) - ring.height) / 2))
            x, down = ring.width + 28, max(0.0, (ring.height - trees.height) / 2)
        both.place(trees, x, down)
        both.fit(0.0)
        self._right.update({n: (rx + x, ry + down) for n, (rx, ry) in ends.right.items()})
        return both

    def _network(self, top: float, height: float) -> None:
        page = self._page
        page.fit(0.0)
        drawing, left = draw_network(self._parts, lambda node: shorten(node, 24), height)
        x = page.width + 90
        page.place(drawing, x, top)
        drawn = set()
        for link in self._parts.network:
            for port, switch in ((link.a, link.b), (link.b, link.a)):
                shown = self._same.get(port, port)
                if shown not in self._right or switch not in left:
                    continue
                x0, y0 = self._right[shown]
                x1 = self._edges[shown]
                x2, y2 = left[switch][0] + x, left[switch][1] + top
                style = "net" if shown == port else "net dashed"
                for line in (_wire(x0, y0, x1, y0, "net"), _wire(x1, y0, x2, y2, style)):
                    ends = (line.x1, line.y1, line.x2, line.y2)
                    if ends not in drawn:
                        drawn.add(ends)
                        page.lines.append(line)

    def _own_names(self, machine: Machine) -> Callable[[str], str]:
        """Ids without the machine's own name."""
        prefix = machine.name + "/" if machine.name else ""
        return lambda node: shorten(node.removeprefix(prefix), 30)

    def _short_names(self, machine: Machine) -> Callable[[str], str]:
        """The same, and what the source calls the node."""
        own_name = self._own_names(machine)

        def short(node: str) -> str:
            own = own_name(node)
            label = str(self._topology.graph.nodes[node].get("label") or "")
            return shorten(f"{own} {label}" if label and label != own else own, 30)

        return short

    def _kind(self, node: str) -> NodeKind:
        kind: NodeKind = self._topology.graph.nodes[node]["kind"]
        return kind

    def _note(self, node: str) -> str:
        data: dict[str, Any] = self._topology.graph.nodes[node]
        return shorten(str(data.get("model") or ""), 30)


def _wire(x1: float, y1: float, x2: float, y2: float, style: str) -> Line:
    return Line(x1=x1, y1=y1, x2=x2, y2=y2, style=style, thick=1.2)


def _without_ring(machine: Machine) -> Machine:
    """The machine without trees that are but one GPU: those stand on the ring already."""
    on_ring = {end for link in machine.peers for end in (link.a, link.b)}
    roots = tuple(r for r in machine.roots if r.children or r.node not in on_ring)
    return replace(machine, roots=roots)


def _groups(machines: tuple[Machine, ...]) -> list[_Group]:
    """Machines to draw, those of one shape together where they are many."""
    by_shape: dict[str, list[Machine]] = {}
    for machine in machines:
        by_shape.setdefault(machine.shape, []).append(machine)
    groups = []
    for alike in by_shape.values():
        if len(alike) > _MOST_ALIKE:
            groups.append(_Group(alike[0], tuple(alike[1:])))
        else:
            groups += [_Group(m) for m in alike]
    return groups

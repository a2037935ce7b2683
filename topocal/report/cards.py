"""The machine as cards: its fabric, each socket's tree, what joins them, its network.

A card is a column of rows, as wide as a phone; cards stand side by side where there is
room.  Each row is a node with what its link passes towards the root (``up``) and away from
it (``down``), or a line under an endpoint about what no link shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from topocal.report.cells import NETWORK, Cell, Cells
from topocal.report.families import Families, Folded
from topocal.report.ring import MOST_ON_A_RING, RING_HEIGHT, Ring, draw_ring
from topocal.report.rules import Part, Rules
from topocal.topo.naming import natural_key
from topocal.topo.render.drawing import FONT, SMALL, shorten, shorten_apart, text_width
from topocal.topo.render.network_panel import tiers_of
from topocal.topo.render.outline import Branch, Connection, Machine, Outline
from topocal.topo.render.sharing import list_names
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology

__all__ = ["MOST_MACHINES", "Card", "Row", "draw_cards"]

MOST_MACHINES: Final = 12
"""Machines that are drawn, those of one shape counted once."""
_MOST_ROWS: Final = 90
_MOST_SWITCHES: Final = 16
"""Network switches with a row of their own."""

_TOP: Final = 40.0
_NOTE: Final = 12.0
"""Room for a line below the title."""
_ROW: Final = 26.0
_LINE: Final = 23.0
"""Height of a row about a node, and of a line under it."""
_LEFT: Final = 14.0
_STEP: Final = 15.0
_DEEPEST: Final = 5
"""Levels that are indented; deeper ones stand under each other."""
_NAMES_END: Final = 178.0
"""Where the columns of figures begin."""
_ONE_COLUMN: Final = 262.0
_ENCLOSING: Final = (NodeKind.SOCKET, NodeKind.GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a card.

    Attributes
    ----------
    y
        Its middle.
    x
        Where its name begins.
    text
        The node's name, or words.
    kind
        What the node is; empty for a line of words.
    width
        Of the node's box.
    node
        Id of the node; empty for a line of words.
    stem_x, stem_y
        From where a line leads to the box: the trunk below the parent; ``None`` at a root.
    up, down
        What passes, in the columns of the card.
    """

    y: float
    x: float
    text: str
    kind: str = ""
    width: float = 0.0
    node: str = ""
    stem_x: float | None = None
    stem_y: float | None = None
    up: Cell | None = None
    down: Cell | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A part of the machine.

    Attributes
    ----------
    title, note
        What it is, and of which machines.
    heads
        Words over the two columns.
    rows, ring
        What is in it.
    height
        In pixels; all cards are 344 wide.
    """

    title: str
    heads: tuple[str, str] = ("↑ up", "↓ down")
    rows: tuple[Row, ...] = ()
    ring: Ring | None = None
    note: str = ""
    height: float = 0.0

    @property
    def ring_y(self) -> float:
        """Where the ring begins."""
        return _TOP + (_NOTE if self.note else 0.0)


def draw_cards(
    topology: Topology, parts: Outline, families: Families, cells: Cells, rules: Rules
) -> tuple[list[Card], list[str]]:
    """All cards, and sentences on what was left out of them."""
    page = _Page(topology, parts, families, cells, rules)
    cards = list(page.cards())
    return cards, page.left_out


class _Page:
    def __init__(
        self, topology: Topology, parts: Outline, families: Families, cells: Cells, rules: Rules
    ) -> None:
        self._topology, self._parts = topology, parts
        self._families, self._cells, self._rules = families, cells, rules
        self._said: set[str] = set()
        self.left_out: list[str] = []
        self._uplinks: dict[str, set[str]] = defaultdict(set)
        for link in parts.network:
            for port, switch in ((link.a, link.b), (link.b, link.a)):
                if self._kind(switch) is NodeKind.NET_SWITCH != self._kind(port):
                    self._uplinks[families.node(port)].add(switch)

    def cards(self) -> Iterator[Card]:
        machines = self._families.machines
        for folded in machines[:MOST_MACHINES]:
            yield from self._of_machine(folded, several=len(self._parts.machines) > 1)
        if len(machines) > MOST_MACHINES:
            self.left_out.append(
                f"The drawing shows {MOST_MACHINES} of {len(machines)} machines of different shape."
            )
        yield from self._network()
        yield from self._endpoints_by_themselves()
        yield from self._shared()

    def _of_machine(self, folded: Folded, *, several: bool) -> Iterator[Card]:
        machine = folded.machine
        where = ""
        if several:
            where = list_names(folded.names) if folded.names[0] else machine.nodes[0]
            alike = f", {len(folded.names)} alike" if len(folded.names) > 1 else ""
            where = f"{shorten(where, 22)}{alike}"
        yield from self._fabric(machine, where)
        on_fabric = {end for link in machine.peers for end in (link.a, link.b)}
        roots, between = _split(machine)
        for root in roots:
            if root.children or root.node not in on_fabric:
                yield self._tree(machine, root, where)
        rows = [self._joint(machine, link) for link in (*machine.sockets, *between)]
        if rows:
            title = f"Between {'groups' if between else 'sockets'}"
            yield _card(title, self._some(rows), where, heads=("→", "←"))
        others = [self._joint(machine, link) for link in machine.others]
        if others:
            yield _card("Further links", self._some(others), where, heads=("→", "←"))

    def _fabric(self, machine: Machine, where: str) -> Iterator[Card]:
        """Switched: a row for each card. Direct: a ring."""
        if not machine.peers:
            return
        ends = sorted({e for link in machine.peers for e in (link.a, link.b)}, key=natural_key)
        hubs = [e for e in ends if self._kind(e) is NodeKind.NVSWITCH]
        cards = [e for e in ends if e not in hubs]
        if not hubs and len(cards) <= MOST_ON_A_RING:
            own = shorten_apart([self._own(machine, e) for e in cards], 12)
            names = dict(zip(cards, own, strict=True))
            ring = draw_ring(machine.peers, names, self._cells)
            yield Card(
                title="GPU fabric",
                note=where,
                heads=("", ""),
                ring=ring,
                rows=tuple(self._kinds_of_links(machine, _NOTE if where else 0.0)),
                height=_TOP
                + (_NOTE if where else 0.0)
                + RING_HEIGHT
                + _LINE * len({c.text for c in machine.peers})
                + 8,
            )
            return
        rows = []
        if hubs:
            text = self._own(machine, hubs[0]) if len(hubs) == 1 else f"{len(hubs)} fabric switches"
            rows.append(_node_row(0, text, str(NodeKind.NVSWITCH), hubs[0]))
        far = hubs or ends
        shown = self._names(machine, cards, 1)
        for card in cards:
            up = self._cells.among((card, other) for other in far)
            down = self._cells.among((other, card) for other in far)
            row = _node_row(1, shown[card], str(self._kind(card)), card)
            rows.append(replace(row, up=up, down=down))
        yield _card("GPU fabric", self._some(rows), where, heads=("↑ out", "↓ in"))

    def _kinds_of_links(self, machine: Machine, down: float) -> Iterator[Row]:
        """Under a ring: what each kind of link in it passes."""
        by_text: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for link in machine.peers:
            by_text[link.text] += [(link.a, link.b), (link.b, link.a)]
        y = _TOP + down + RING_HEIGHT + _LINE / 2
        for text, pairs in by_text.items():
            words = f"{len(pairs) // 2} × {text or 'link'}"
            yield Row(
                y=y,
                x=_LEFT,
                text=_fit(words, _LEFT, _ONE_COLUMN, SMALL),
                down=self._cells.among(pairs),
            )
            y += _LINE

    def _tree(self, machine: Machine, root: Branch, where: str) -> Card:
        """The tree below a socket, top down."""
        order: list[tuple[Branch, str | None, int]] = []
        stack: list[tuple[Branch, str | None, int]] = [(root, None, 0)]
        alike: dict[int, list[str]] = defaultdict(list)
        while stack:
            branch, parent, level = stack.pop()
            order.append((branch, parent, level))
            alike[level].append(branch.node)
            stack += [(child, branch.node, level + 1) for child in reversed(branch.children)]
        shown: dict[str, str] = {}
        for level, nodes in alike.items():
            for each in {self._kind(node) for node in nodes}:
                same = [node for node in nodes if self._kind(node) is each]
                shown |= self._names(machine, same, level)
        rows: list[Row] = []
        for branch, parent, level in order:
            node = branch.node
            row = _node_row(level, shown[node], str(branch.kind), node)
            if parent is not None:
                row = replace(
                    row,
                    up=self._cells.between(node, parent),
                    down=self._cells.between(parent, node),
                )
            rows.append(row)
            rows += self._lines(node, level)
        kind = "Group" if root.kind is NodeKind.GROUP else "Tree"
        title = f"{kind} of {shorten(self._own(machine, root.node), 14)}"
        return _card(title, self._some(rows), where)

    def _lines(self, node: str, level: int) -> Iterator[Row]:
        """What no link shows, and the way to the network, under a node."""
        x = _indent(level) + 10
        if node in self._uplinks:
            words = f"to {list_names(self._uplinks[node])}"
            yield Row(
                y=0,
                x=x,
                text=_fit(words, x, _NAMES_END, SMALL),
                up=self._cells.between(node, NETWORK),
                down=self._cells.between(NETWORK, node),
            )
        self._said.add(node)
        yield from _part_rows(self._rules.of_endpoint.get(node, ()), x)

    def _joint(self, machine: Machine, link: Connection) -> Row:
        """A connection between equals."""
        words = f"{self._own(machine, link.a)} – {self._own(machine, link.b)}"
        return Row(
            y=0,
            x=_LEFT,
            text=_fit(words, _LEFT, _NAMES_END, FONT),
            up=self._cells.between(link.a, link.b),
            down=self._cells.between(link.b, link.a),
        )

    def _network(self) -> Iterator[Card]:
        """Between switches: each of the lower tiers with all above it."""
        switches = set(self._parts.switches)
        rank = {s: k for k, tier in enumerate(tiers_of(self._parts)) for s in tier.switches}
        above: dict[str, list[str]] = defaultdict(list)
        direct = []
        for link in self._parts.network:
            if link.a in switches and link.b in switches:
                low, high = sorted((link.a, link.b), key=lambda s: (rank.get(s, 0), natural_key(s)))
                above[low].append(high)
            elif link.a not in switches and link.b not in switches:
                direct.append(link)
        rows = [
            Row(
                y=0,
                x=_LEFT,
                text=_fit(f"{a} – {b}", _LEFT, _NAMES_END, FONT),
                up=self._cells.between(a, b),
                down=self._cells.between(b, a),
            )
            for a, b in sorted(
                {(self._families.node(c.a), self._families.node(c.b)) for c in direct}
            )
        ]
        lows = sorted(above, key=natural_key)
        groups = [[low] for low in lows]
        if len(lows) > _MOST_SWITCHES:
            by_rank: dict[int, list[str]] = defaultdict(list)
            for low in lows:
                by_rank[rank.get(low, 0)].append(low)
            groups = list(by_rank.values())
        for group in groups:
            tops = {high for low in group for high in above[low]}
            pairs = [(low, high) for low in group for high in above[low]]
            words = f"{list_names(group)} to {list_names(tops)}"
            rows.append(
                Row(
                    y=0,
                    x=_LEFT,
                    text=_fit(words, _LEFT, _NAMES_END, SMALL),
                    up=self._cells.among(pairs),
                    down=self._cells.among((high, low) for low, high in pairs),
                )
            )
        if rows:
            yield _card("Network", self._some(rows))

    def _endpoints_by_themselves(self) -> Iterator[Card]:
        """Endpoints that stand in no tree, such as cards that have only a fabric."""
        rows: list[Row] = []
        for end, parts in self._rules.of_endpoint.items():
            if end not in self._said:
                rows.append(_node_row(0, end, str(self._kind(end)), end))
                rows += _part_rows(parts, _LEFT + 10)
        if rows:
            yield _card("Senders and receivers", self._some(rows))

    def _shared(self) -> Iterator[Card]:
        rows = [
            replace(r, text=_fit(p.words, _LEFT, _ONE_COLUMN, SMALL))
            for p, r in zip(self._rules.shared, _part_rows(self._rules.shared, _LEFT), strict=True)
        ]
        if rows:
            yield _card("Shared by several", self._some(rows), heads=("", ""))

    def _some(self, rows: list[Row]) -> list[Row]:
        """At most as many rows as a card holds."""
        if len(rows) <= _MOST_ROWS:
            return rows
        left = len(rows) - _MOST_ROWS
        self.left_out.append(f"A card of the drawing leaves out {left} rows.")
        return [*rows[:_MOST_ROWS], Row(y=0, x=_LEFT, text=f"and {left} rows more")]

    def _names(self, machine: Machine, nodes: list[str], level: int) -> dict[str, str]:
        """Nodes' names as they fit at a level, such that they can be told apart."""
        own = [self._own(machine, node) for node in nodes]
        return dict(zip(nodes, shorten_apart(own, _room(_indent(level) + 18, FONT)), strict=True))

    def _own(self, machine: Machine, node: str) -> str:
        """A node's name without the machine's."""
        return node.removeprefix(machine.name + "/") if machine.name else node

    def _kind(self, node: str) -> NodeKind:
        kind: NodeKind = self._topology.graph.nodes[node]["kind"]
        return kind


def _split(machine: Machine) -> tuple[list[Branch], list[Connection]]:
    """Trees that begin at every socket and group, also where one hangs on another."""
    roots: list[Branch] = []
    between: list[Connection] = []
    waiting = list(machine.roots)
    while waiting:
        root = waiting.pop(0)
        inner = [c for c in root.children if root.kind in _ENCLOSING and c.kind in _ENCLOSING]
        between += [c.connection for c in inner if c.connection is not None]
        waiting += inner
        roots.append(replace(root, children=tuple(c for c in root.children if c not in inner)))
    return roots, between


def _indent(level: int) -> float:
    return _LEFT + _STEP * min(level, _DEEPEST)


def _fit(text: str, x: float, end: float, size: float) -> str:
    """A text cut to the room between ``x`` and ``end``."""
    return shorten(text, _room(x, size, end))


def _room(x: float, size: float, end: float = _NAMES_END) -> int:
    """Characters that fit between ``x`` and ``end``."""
    return max(6, int((end - x) / text_width("n", size)))


def _node_row(level: int, text: str, kind: str, node: str) -> Row:
    x = _indent(level)
    shown = _fit(text, x + 18, _NAMES_END, FONT)
    return Row(y=0, x=x, text=shown, kind=kind, node=node, width=text_width(shown) + 18)


def _part_rows(parts: tuple[Part, ...], x: float) -> Iterator[Row]:
    for part in parts:
        words = _fit(part.words, x, _NAMES_END, SMALL)
        yield Row(y=0, x=x, text=words, up=part.sends, down=part.receives)


def _card(
    title: str, rows: list[Row], note: str = "", heads: tuple[str, str] = ("↑ up", "↓ down")
) -> Card:
    """Rows under each other, with a trunk from each node to those below it."""
    placed: list[Row] = []
    y = _TOP + (_NOTE if note else 0.0)
    trunk: dict[float, float] = {}
    for row in rows:
        height = _ROW if row.kind else _LINE
        middle = y + height / 2
        stem_x = stem_y = None
        if row.kind:
            parent = row.x - _STEP
            if parent in trunk:
                stem_x, stem_y = parent + 7, trunk[parent]
            trunk = {x: at for x, at in trunk.items() if x < row.x} | {row.x: middle + 9}
        placed.append(replace(row, y=middle, stem_x=stem_x, stem_y=stem_y))
        if stem_x is not None and row.x - _STEP in trunk:
            trunk[row.x - _STEP] = middle
        y += height
    return Card(title=title, note=note, heads=heads, rows=tuple(placed), height=y + 10)

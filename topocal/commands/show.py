"""``topocal show``: the tree of a machine, its resources, and who shares what."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.completing import machines
from topocal.options import AsJson, refuse_idle

if TYPE_CHECKING:
    from rich.tree import Tree

    from topocal.topo.render.outline import Branch, Connection, Machine, Outline
    from topocal.topo.render.sharing import Shared
    from topocal.topo.topology import Topology

__all__ = ["show"]

_MOST_ROWS = 24
"""Shared resources that are printed; all stand in the JSON."""
_MOST_ALIKE = 2
"""More machines of one shape are printed once."""
_MOST_ACCELERATORS = 1_100
"""Who shares what is counted up to so many accelerators: pairs grow with their square."""


def show(
    context: typer.Context,
    topology: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPOLOGY",
            autocompletion=machines,
            help="topology.json, the output of a tool, - for standard input, "
            "or the name of a reference machine; without it, their list.",
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the machine to an SVG file.")
    ] = None,
    nominal: Annotated[
        bool, typer.Option("--nominal", help="Print every nominal constant and its source.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a machine: its tree, its resources, and who shares what.

    topocal show b70

    topocal show topology.json --svg machine.svg

    nvidia-smi topo -m | topocal show -

    topocal show --nominal
    """
    if nominal:
        refuse_idle(context, ("TOPOLOGY", "--svg"), "with --nominal")
    elif topology is None:
        refuse_idle(context, ("--svg",), "without a topology")
    if nominal:
        _nominal(as_json=as_json)
    elif topology is None:
        _machines(as_json=as_json)
    else:
        _one(topology, svg, as_json=as_json)


def _one(name: str, svg: Path | None, *, as_json: bool) -> None:
    from topocal.console import print_json
    from topocal.machine import find_topology
    from topocal.outputs import check_outputs
    from topocal.topo.files import write_atomically
    from topocal.topo.render.outline import outline
    from topocal.topo.render.sharing import shared_resources

    check_outputs(svg, [name], formats=("SVG",))
    machine = find_topology(name)
    parts = outline(machine)
    few = len(machine.accelerators) <= _MOST_ACCELERATORS
    shared = shared_resources(machine) if few else None
    if svg is not None:
        from topocal.topo.render.svg import render_svg

        write_atomically(svg, render_svg(machine).encode())
    if as_json:
        print_json(_document(machine, parts, shared, svg))
    else:
        _print(machine, parts, shared, svg)


def _print(
    topology: Topology, parts: Outline, shared: list[Shared] | None, svg: Path | None
) -> None:
    from topocal.console import console, safe
    from topocal.topo.render.svg import count_kinds

    out = console()
    out.print(f"[bold]{safe(topology.name or 'topology')}[/bold]  {count_kinds(topology)}")
    for tree in _trees(topology, parts):
        out.print(tree)
    if parts.switches:
        out.print(_network_tree(parts))
    if shared is not None:
        _print_shared(shared)
    else:
        out.print(f"who shares what is not counted above {_MOST_ACCELERATORS} accelerators")
    sources = sorted({r.source for r in topology.resources.values() if r.source})
    for title, lines in (
        ("capacities are nominal, from", sources),
        ("notes", topology.graph.graph.get("notes") or []),
        ("problems", [str(problem) for problem in topology.validate()]),
    ):
        if lines:
            out.print(f"[bold]{title}[/bold]")
            for line in lines:
                out.print(f"  {safe(line)}", soft_wrap=True)
    if svg is not None:
        out.print(f"drawn to {safe(svg)}")


def _trees(topology: Topology, parts: Outline) -> list[Tree]:
    """One tree for each machine; machines of one shape once, where they are many."""
    from topocal.topo.render.sharing import list_names

    by_shape: dict[str, list[Machine]] = {}
    for machine in parts.machines:
        by_shape.setdefault(machine.shape, []).append(machine)
    trees = []
    for alike in by_shape.values():
        if len(alike) <= _MOST_ALIKE:
            trees += [_machine_tree(topology, m, m.name or "machine") for m in alike]
        else:
            names = list_names([m.name or m.nodes[0] for m in alike])
            trees.append(_machine_tree(topology, alike[0], f"{names} ({len(alike)} alike)"))
    return trees


def _machine_tree(topology: Topology, machine: Machine, title: str) -> Tree:
    from rich.tree import Tree

    from topocal.console import safe

    tree = Tree(f"[bold]{safe(title)}[/bold]", guide_style="dim")
    for root in machine.roots:
        _grow(tree, topology, root)
    for heading, links in (
        ("between sockets", machine.sockets),
        ("GPU fabric", machine.peers),
        ("further links", machine.others),
    ):
        if links:
            branch = tree.add(f"[bold]{heading}[/bold]")
            for line in _link_lines(links):
                branch.add(line)
    return tree


def _grow(tree: Tree, topology: Topology, branch: Branch) -> None:
    """Add a branch and all below it, without recursion: chains may be long."""
    waiting = deque([(tree, branch)])
    while waiting:
        parent, node = waiting.popleft()
        below = parent.add(_node_line(topology, node))
        waiting += [(below, child) for child in node.children]


def _node_line(topology: Topology, branch: Branch) -> str:
    from topocal.console import safe

    data = topology.graph.nodes[branch.node]
    words = [branch.connection.text if branch.connection is not None else ""]
    words += [str(data.get(name) or "") for name in ("label", "model", "bus_id")]
    style = "green" if branch.kind.is_endpoint else "cyan"
    return f"[{style}]{safe(branch.node)}[/{style}]  {safe(' · '.join(filter(None, words)))}"


def _link_lines(links: tuple[Connection, ...]) -> list[str]:
    """One line for each wording and node that such links have in common."""
    from topocal.console import safe
    from topocal.topo.render.sharing import list_names

    by_text: dict[str, list[Connection]] = {}
    for link in links:
        by_text.setdefault(link.text or "link", []).append(link)
    lines = []
    for text, alike in by_text.items():
        hub_is_b = len({link.b for link in alike}) < len({link.a for link in alike})
        by_hub: dict[str, list[str]] = {}
        for link in alike:
            hub, other = (link.b, link.a) if hub_is_b else (link.a, link.b)
            by_hub.setdefault(hub, []).append(other)
        for hub, others in by_hub.items():
            lines.append(safe(f"{hub} to {list_names(others)}: {text}"))
    return lines


def _network_tree(parts: Outline) -> Tree:
    from rich.tree import Tree

    from topocal.console import safe
    from topocal.topo.render.network_panel import tiers_of
    from topocal.topo.render.sharing import list_names

    tree = Tree("[bold]network[/bold]", guide_style="dim")
    tiers = tiers_of(parts)
    for tier in tiers:
        for switch in tier.switches[:_MOST_ROWS]:
            ports = tier.attached.get(switch, "")
            tree.add(f"[cyan]{safe(switch)}[/cyan]  {safe(ports)}")
        if len(tier.switches) > _MOST_ROWS:
            tree.add(f"and {list_names(tier.switches[_MOST_ROWS:])}")
    counts: dict[str, list[Connection]] = {}
    for link in parts.network:
        counts.setdefault(link.text, []).append(link)
    for text, links in counts.items():
        tree.add(f"{safe(text)}: {len(links)} links")
    return tree


def _print_shared(shared: list[Shared]) -> None:
    from topocal.console import console, safe
    from topocal.tables import plain_table
    from topocal.topo.render.sharing import list_names
    from topocal.topo.resource import Sharing
    from topocal.topo.units import format_rate

    rows = [s for s in shared if not s.is_private]
    # A column in which every row would say the same is left out.
    is_known = any(s.resource.nominal_Bps is not None for s in rows)
    is_mixed = any(s.resource.sharing is not Sharing.CAPACITY for s in rows)
    columns = ["resource"] + ["sharing"] * is_mixed + ["nominal"] * is_known
    table = plain_table(
        "Who shares what, when all send to all",
        (*columns, "pairs", "from", "to"),
        right=(len(columns) - is_known, len(columns)) if is_known else (len(columns),),
        whole=(0,),
    )
    for row in rows[:_MOST_ROWS]:
        twice = f" ×{row.heaviest:g}" if row.heaviest != 1 else ""
        cells = [safe(row.resource.name)]
        cells += [str(row.resource.sharing)] * is_mixed
        cells += [format_rate(row.resource.nominal_Bps)] * is_known
        table.add_row(
            *cells,
            f"{row.pairs}{twice}",
            safe(list_names(row.sources)),
            safe(list_names(row.destinations)),
        )
    out = console()
    if rows:
        out.print(table)
        if len(rows) > _MOST_ROWS:
            out.print(f"and {len(rows) - _MOST_ROWS} more; --json lists all")
    else:
        out.print("no resource is shared: each belongs to one accelerator")


def _document(
    topology: Topology, parts: Outline, shared: list[Shared] | None, svg: Path | None
) -> dict[str, Any]:
    from topocal.topo.errors import printable

    return {
        "machine": topology.name,
        "endpoints": list(topology.endpoints),
        "machines": [
            {
                "name": machine.name,
                "trees": [_branch_document(root) for root in machine.roots],
                "between_sockets": [_link_document(c) for c in machine.sockets],
                "gpu_fabric": [_link_document(c) for c in machine.peers],
                "further_links": [_link_document(c) for c in machine.others],
            }
            for machine in parts.machines
        ],
        "network": {
            "switches": list(parts.switches),
            "links": [_link_document(c) for c in parts.network],
        },
        "resources": None if shared is None else [_shared_document(row) for row in shared],
        "notes": list(topology.graph.graph.get("notes") or ()),
        "problems": [
            {"about": p.about, "what": p.what, "remedy": p.remedy} for p in topology.validate()
        ],
        "output": None if svg is None else printable(svg),
    }


def _branch_document(root: Branch) -> dict[str, Any]:
    """Nested, built bottom up."""
    done: dict[str, dict[str, Any]] = {}
    for branch in reversed(list(root.walk())):
        done[branch.node] = {
            "node": branch.node,
            "kind": str(branch.kind),
            "link": None if branch.connection is None else _link_document(branch.connection),
            "children": [done[child.node] for child in branch.children],
        }
    return done[root.node]


def _link_document(link: Connection) -> dict[str, Any]:
    return {
        "a": link.a,
        "b": link.b,
        "kind": str(link.kind),
        "text": link.text,
        "forth_nominal_Bps": link.forth.nominal_Bps,
        "back_nominal_Bps": None if link.back is None else link.back.nominal_Bps,
    }


def _shared_document(row: Shared) -> dict[str, Any]:
    return {
        "resource": row.resource.id,
        "sharing": str(row.resource.sharing),
        "nominal_Bps": row.resource.nominal_Bps,
        "source": row.resource.source,
        "pairs": row.pairs,
        "heaviest": row.heaviest,
        "sources": list(row.sources),
        "destinations": list(row.destinations),
    }


def _machines(*, as_json: bool) -> None:
    from topocal.console import console, print_json, safe
    from topocal.tables import plain_table
    from topocal.topo.machines import MACHINES

    if as_json:
        print_json(
            {
                "machines": [
                    {"name": m.name, "title": m.title, "source": m.source}
                    for m in MACHINES.values()
                ]
            }
        )
        return
    table = plain_table("Reference machines", ("name", "what it is", "source"), whole=(0,))
    for m in MACHINES.values():
        table.add_row(m.name, safe(m.title), safe(m.source))
    console().print(table)


def _nominal(*, as_json: bool) -> None:
    from topocal.console import console, print_json, safe
    from topocal.tables import plain_table
    from topocal.topo.nominal import SOURCES

    if as_json:
        rows = [
            {"key": c.key, "value": c.value, "unit": c.unit, "source": c.source}
            for c in SOURCES.values()
        ]
        print_json({"constants": rows})
        return
    table = plain_table(
        "Nominal constants, per direction",
        ("constant", "value", "unit", "source"),
        right=(1,),
        whole=(0,),
    )
    for c in SOURCES.values():
        table.add_row(c.key, f"{c.value:g}", c.unit, safe(c.source))
    console().print(table)
